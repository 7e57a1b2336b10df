//! Copies of packets, on their way out of mirrors.

use std::{
    io, mem,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
};

use sig_common::srv6::maps::Copied;

use super::{Copies, SrPrograms};
use crate::Error;

/// Copies that are sent at once.
const BATCH: usize = 64;

/// Whom copies are addressed to: a locally administered address that no device has to have.
const DESTINATION: [u8; 6] = [0x02, 0, 0, 0, 0, 0xfe];

/// The thread is asked this often whether it is to end.
const PATIENCE_MS: libc::c_int = 200;

/// Sends the copies that the programs make out of devices of the calling thread's network namespace, on a thread of its own.
pub struct Mirrors {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    ends: AtomicBool,
    sent: AtomicU64,
    lost: AtomicU64,
}

impl Mirrors {
    /// # Errors
    /// CAP_NET_RAW is missing, or the programs have mirrors already.
    pub fn start(programs: &mut SrPrograms) -> Result<Self, Error> {
        let socket = packet_socket().map_err(Error::doing("open the socket of mirrors"))?;
        let ring = programs.take_copies()?;
        let shared = Arc::<Shared>::default();
        let thread = thread::Builder::new().name("mirrors".into()).spawn({
            let shared = Arc::clone(&shared);
            move || send_all(ring, &socket, &shared)
        });
        Ok(Self {
            thread: Some(thread.map_err(Error::doing("start the thread of mirrors"))?),
            shared,
        })
    }

    /// Copies that were sent, and those that a device did not take.
    #[must_use]
    pub fn counts(&self) -> [u64; 2] {
        [&self.shared.sent, &self.shared.lost].map(|count| count.load(Ordering::Relaxed))
    }
}

impl Drop for Mirrors {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A packet socket that sees nothing.
fn packet_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: plain system call without pointers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` was just opened and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn send_all(mut ring: Copies, socket: &OwnedFd, shared: &Shared) {
    let mut batch = Batch::new();
    while !shared.ends.load(Ordering::Relaxed) {
        while batch.frames.len() < BATCH && ring.next(|copied, packet| batch.push(copied, packet)) {
        }
        if batch.frames.is_empty() {
            wait(&ring);
            continue;
        }
        let count = batch.frames.len();
        let sent = batch.send(socket);
        shared.sent.fetch_add(sent as u64, Ordering::Relaxed);
        shared
            .lost
            .fetch_add((count - sent) as u64, Ordering::Relaxed);
    }
}

/// Waits for copies.
fn wait(ring: &Copies) {
    let mut wanted = libc::pollfd {
        fd: ring.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry, which lives across the call. An error is the same as nothing to read.
    unsafe { libc::poll(&raw mut wanted, 1, PATIENCE_MS) };
}

/// Frames to be sent.
struct Batch {
    bytes: Vec<u8>,
    /// Device, start and end in `bytes`.
    frames: Vec<(u32, usize, usize)>,
}

impl Batch {
    const fn new() -> Self {
        Self {
            bytes: Vec::new(),
            frames: Vec::new(),
        }
    }

    fn push(&mut self, copied: &Copied, packet: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&DESTINATION);
        self.bytes.extend_from_slice(&copied.mac);
        self.bytes.extend_from_slice(&copied.ethertype);
        self.bytes.extend_from_slice(packet);
        self.frames.push((copied.ifindex, start, self.bytes.len()));
    }

    /// Sends all; how many the devices took.
    fn send(&mut self, socket: &OwnedFd) -> usize {
        let mut addresses: Vec<libc::sockaddr_ll> = Vec::with_capacity(self.frames.len());
        let mut parts: Vec<libc::iovec> = Vec::with_capacity(self.frames.len());
        let base = self.bytes.as_mut_ptr();
        for (ifindex, start, end) in &self.frames {
            // SAFETY: all-zero bytes are a value of this structure.
            let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_ifindex = ifindex.cast_signed();
            addresses.push(address);
            parts.push(libc::iovec {
                // SAFETY: within the bytes.
                iov_base: unsafe { base.add(*start) }.cast(),
                iov_len: end - start,
            });
        }
        let both = addresses.iter_mut().zip(&mut parts);
        let mut messages: Vec<libc::mmsghdr> = both
            .map(|(address, part)| {
                // SAFETY: as above.
                let mut message: libc::mmsghdr = unsafe { mem::zeroed() };
                message.msg_hdr.msg_name = (&raw mut *address).cast();
                message.msg_hdr.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
                message.msg_hdr.msg_iov = part;
                message.msg_hdr.msg_iovlen = 1;
                message
            })
            .collect();
        let (mut sent, mut rest) = (0, &mut messages[..]);
        while !rest.is_empty() {
            // SAFETY: so many messages, all of whose pointers are to what lives across the call.
            let result = unsafe {
                libc::sendmmsg(socket.as_raw_fd(), rest.as_mut_ptr(), rest.len() as u32, 0)
            };
            // After an error, the first one is lost: there is no such device, it is down, or the frame is too long.
            let taken = usize::try_from(result).unwrap_or(0);
            sent += taken;
            rest = rest.get_mut(taken.max(1)..).unwrap_or_default();
        }
        self.bytes.clear();
        self.frames.clear();
        sent
    }
}
