//! Many datagrams with one system call.

use std::{
    collections::VecDeque,
    io,
    net::{IpAddr, SocketAddr, UdpSocket},
    os::fd::AsRawFd,
    ptr,
};

use sig_common::wire::{ethernet, udp};
use sig_core::port::umem::{Area, Frame, HEADROOM};
use socket2::{SockAddr, SockAddrStorage};

use super::{MAX_DATAGRAM, ip_header_len};

/// Messages of one call.
const MESSAGES: usize = 64;
/// Frames of one call.
const FRAMES: usize = 512;
/// Frames of one message, which older kernels take.
const SEGMENTS: usize = 64;
/// Bytes of one message: what an IP packet can hold.
const MESSAGE_BYTES: usize = 65_000;

/// Room for control messages.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control {
    bytes: [u8; 64],
    len: usize,
}

impl Control {
    const EMPTY: Self = Self {
        bytes: [0; 64],
        len: 0,
    };

    /// Appends a message, if there is room.
    fn push(&mut self, level: libc::c_int, kind: libc::c_int, data: &[u8]) {
        let data_len = data.len() as libc::c_uint;
        // SAFETY: plain arithmetic.
        let (len, space) = unsafe {
            (
                libc::CMSG_LEN(data_len),
                libc::CMSG_SPACE(data_len) as usize,
            )
        };
        let header_len = len as usize - data.len();
        let Some(room) = self.bytes.get_mut(self.len..self.len + space) else {
            return;
        };
        // SAFETY: integers, valid all zero.
        let mut header: libc::cmsghdr = unsafe { std::mem::zeroed() };
        header.cmsg_len = len as _;
        header.cmsg_level = level;
        header.cmsg_type = kind;
        // SAFETY: the room is longer than the header, which need not be aligned.
        unsafe {
            room.as_mut_ptr()
                .cast::<libc::cmsghdr>()
                .write_unaligned(header);
        }
        room[header_len..header_len + data.len()].copy_from_slice(data);
        self.len += space;
    }
}

/// What the engine wrote in front of the payload of a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Outer {
    to: SocketAddr,
    tos: u8,
    /// Bytes of all headers up to UDP.
    len: usize,
}

impl Outer {
    fn of(frame: &[u8]) -> Option<Self> {
        let (_, ip) = frame.split_at_checked(ethernet::HEADER_LEN)?;
        let (to, tos): (IpAddr, u8) = match ip.first()? >> 4 {
            4 => (ip.get(16..20)?.first_chunk::<4>().copied()?.into(), ip[1]),
            6 => {
                let to = ip.get(24..40)?.first_chunk::<16>().copied()?;
                (to.into(), ip[0] << 4 | ip[1] >> 4)
            }
            _ => return None,
        };
        let udp = ip_header_len(to);
        let port = ip.get(udp + 2..udp + udp::HEADER_LEN)?;
        Some(Self {
            to: SocketAddr::new(to, u16::from_be_bytes([port[0], port[1]])),
            tos,
            len: ethernet::HEADER_LEN + udp + udp::HEADER_LEN,
        })
    }

    fn control(&self, segment: Option<usize>) -> Control {
        let mut control = Control::EMPTY;
        if self.tos != 0 {
            let (level, kind) = match self.to {
                SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS),
                SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
            };
            control.push(level, kind, &libc::c_int::from(self.tos).to_ne_bytes());
        }
        if let Some(segment) = segment {
            let bytes = (segment as u16).to_ne_bytes();
            control.push(libc::SOL_UDP, libc::UDP_SEGMENT, &bytes);
        }
        control
    }
}

/// What became of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// The kernel has them.
    Done,
    /// The kernel has no room now.
    NoRoom,
    /// They are longer than what may go there.
    TooBig,
    /// The kernel does not send them, for instance because there is no route.
    Refused,
    /// They lack headers.
    Malformed,
}

/// A message of frames for one receiver, all of one length but for the last.
struct Run {
    outer: Outer,
    frames: usize,
    /// Length of the first one's payload.
    segment: usize,
    bytes: usize,
    /// A shorter frame is the last.
    is_closed: bool,
}

/// Sends.
pub(super) struct Outgoing {
    runs: Vec<Run>,
    pieces: Vec<libc::iovec>,
    names: Vec<SockAddr>,
    controls: Vec<Control>,
    messages: Vec<libc::mmsghdr>,
    /// The kernel cuts a message into datagrams.
    can_cut: bool,
    /// Frames at the front that leave in messages of their own, since the kernel refused to cut them.
    single: usize,
    /// The next one tells whether the cutting was what it refused.
    is_trial: bool,
}

// SAFETY: the pointers in pieces and messages are used only within the call that sets them.
unsafe impl Send for Outgoing {}

impl Outgoing {
    pub(super) fn new() -> Self {
        Self {
            runs: Vec::with_capacity(MESSAGES),
            pieces: Vec::with_capacity(FRAMES),
            names: Vec::with_capacity(MESSAGES),
            controls: Vec::with_capacity(MESSAGES),
            messages: Vec::with_capacity(MESSAGES),
            can_cut: true,
            single: 0,
            is_trial: false,
        }
    }

    /// Sends from the front of the queue. Returns how many frames are done with, and how.
    pub(super) fn send(
        &mut self,
        socket: &UdpSocket,
        area: &Area,
        queue: &VecDeque<Frame>,
    ) -> (usize, Sent) {
        self.gather(area, queue);
        let Some(first) = self.runs.first().map(|run| run.frames) else {
            return (1, Sent::Malformed);
        };
        // SAFETY: the messages point to pieces, names and controls of this struct and to the frames' chunks, which all
        // live until the call returns; the kernel reads them and writes the lengths into the messages.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                self.messages.as_mut_ptr(),
                self.messages.len() as libc::c_uint,
                libc::MSG_DONTWAIT as _,
            )
        };
        if let Ok(sent @ 1..) = usize::try_from(sent) {
            let frames = self.runs.iter().take(sent).map(|run| run.frames).sum();
            if std::mem::take(&mut self.is_trial) {
                tracing::debug!("the kernel does not segment UDP here: sending frames one by one");
                self.can_cut = false;
            }
            self.single = self.single.saturating_sub(frames);
            return (frames, Sent::Done);
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR) => (0, Sent::Done),
            Some(libc::EAGAIN) => (0, Sent::NoRoom),
            Some(libc::EINVAL | libc::EIO | libc::EOPNOTSUPP | libc::EMSGSIZE) if first > 1 => {
                self.single = first;
                self.is_trial = true;
                (0, Sent::Done)
            }
            error => {
                self.single = self.single.saturating_sub(first);
                self.is_trial = false;
                match error {
                    Some(libc::EMSGSIZE) => (first, Sent::TooBig),
                    _ => (first, Sent::Refused),
                }
            }
        }
    }

    /// Makes messages of the frames at the front.
    fn gather(&mut self, area: &Area, queue: &VecDeque<Frame>) {
        self.runs.clear();
        self.pieces.clear();
        let (may_join, frames) = match self.single {
            0 => (self.can_cut, FRAMES),
            single => (false, single),
        };
        for frame in queue.iter().take(frames) {
            let bytes = frame.bytes(area);
            let Some(outer) = Outer::of(bytes) else {
                break;
            };
            let payload = &bytes[outer.len..];
            let is_full = self.runs.len() == MESSAGES;
            match self.runs.last_mut() {
                Some(run) if may_join && run.takes(&outer, payload.len()) => {
                    run.is_closed = payload.len() < run.segment;
                    run.frames += 1;
                    run.bytes += payload.len();
                }
                _ if is_full => break,
                _ => self.runs.push(Run {
                    outer,
                    frames: 1,
                    segment: payload.len(),
                    bytes: payload.len(),
                    is_closed: false,
                }),
            }
            self.pieces.push(libc::iovec {
                iov_base: payload.as_ptr().cast_mut().cast(),
                iov_len: payload.len(),
            });
        }
        self.names.clear();
        self.controls.clear();
        for run in &self.runs {
            self.names.push(run.outer.to.into());
            let segment = (run.frames > 1).then_some(run.segment);
            self.controls.push(run.outer.control(segment));
        }
        self.messages.clear();
        let mut pieces = &mut *self.pieces;
        let parts = self.names.iter().zip(&mut self.controls);
        for (run, (name, control)) in self.runs.iter().zip(parts) {
            let (own, others) = std::mem::take(&mut pieces).split_at_mut(run.frames);
            pieces = others;
            // SAFETY: integers and pointers, valid all zero.
            let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
            let header = &mut message.msg_hdr;
            header.msg_name = name.as_ptr().cast_mut().cast();
            header.msg_namelen = name.len();
            header.msg_iov = own.as_mut_ptr();
            header.msg_iovlen = own.len() as _;
            if control.len > 0 {
                header.msg_control = control.bytes.as_mut_ptr().cast();
                header.msg_controllen = control.len as _;
            }
            self.messages.push(message);
        }
    }
}

impl Run {
    fn takes(&self, outer: &Outer, len: usize) -> bool {
        self.outer == *outer
            && !self.is_closed
            && len <= self.segment
            && self.frames < SEGMENTS
            && self.bytes + len <= MESSAGE_BYTES
    }
}

/// What the kernel tells of a received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Datagram {
    pub(super) len: usize,
    pub(super) from: SocketAddr,
    /// DSCP and ECN.
    pub(super) tos: u8,
    /// Index of the interface that it came in by; 0: unknown.
    pub(super) interface: u32,
}

/// Receives.
pub(super) struct Incoming {
    names: Vec<libc::sockaddr_storage>,
    controls: Vec<Control>,
    pieces: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
}

// SAFETY: as of `Outgoing`.
unsafe impl Send for Incoming {}

impl Incoming {
    /// Receives up to `count` datagrams at once.
    pub(super) fn new(count: usize) -> Self {
        // SAFETY: integers and pointers, valid all zero.
        let (name, message) = unsafe {
            (
                std::mem::zeroed::<libc::sockaddr_storage>(),
                std::mem::zeroed::<libc::mmsghdr>(),
            )
        };
        let piece = libc::iovec {
            iov_base: ptr::null_mut(),
            iov_len: 0,
        };
        Self {
            names: vec![name; count],
            controls: vec![Control::EMPTY; count],
            pieces: vec![piece; count],
            messages: vec![message; count],
        }
    }

    /// Receives what is there into chunks, the last one first, at [`HEADROOM`]; how many.
    pub(super) fn receive(
        &mut self,
        socket: &UdpSocket,
        area: &Area,
        empty: &mut [Frame],
    ) -> usize {
        let parts = self.names.iter_mut().zip(&mut self.controls);
        let parts = parts.zip(self.pieces.iter_mut().zip(&mut self.messages));
        let mut count = 0;
        for (frame, ((name, control), (piece, message))) in empty.iter_mut().rev().zip(parts) {
            piece.iov_base = frame.chunk_mut(area)[HEADROOM..].as_mut_ptr().cast();
            piece.iov_len = MAX_DATAGRAM;
            let header = &mut message.msg_hdr;
            header.msg_name = ptr::from_mut(name).cast();
            header.msg_namelen = size_of_val(name) as libc::socklen_t;
            header.msg_iov = ptr::from_mut(piece);
            header.msg_iovlen = 1;
            header.msg_control = control.bytes.as_mut_ptr().cast();
            header.msg_controllen = control.bytes.len() as _;
            count += 1;
        }
        // SAFETY: the messages point to pieces, names and controls of this struct and to chunks whose frames are borrowed;
        // all live until the call returns, and the kernel writes no more than they hold. No time limit is given.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.messages.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        };
        usize::try_from(received).unwrap_or(0)
    }

    /// One of the datagrams of the last call; `None` if it did not fit, or has no sender.
    pub(super) fn datagram(&self, index: usize) -> Option<Datagram> {
        let message = self.messages.get(index)?;
        let header = &message.msg_hdr;
        if header.msg_flags & libc::MSG_TRUNC != 0 {
            return None;
        }
        // SAFETY: the kernel wrote the address, of this length, and an address of any bytes is valid.
        let from = unsafe {
            let mut storage = SockAddrStorage::zeroed();
            *storage.view_as() = *self.names.get(index)?;
            SockAddr::new(storage, header.msg_namelen)
        };
        let mut datagram = Datagram {
            len: message.msg_len as usize,
            from: from.as_socket()?,
            tos: 0,
            interface: 0,
        };
        datagram.read_control(header);
        Some(datagram)
    }
}

impl Datagram {
    /// Reads the control messages.
    fn read_control(&mut self, header: &libc::msghdr) {
        // SAFETY: the kernel filled in the control messages, whose buffer is alive; the macros stay within its length.
        let mut control = unsafe { libc::CMSG_FIRSTHDR(header) };
        while !control.is_null() {
            // SAFETY: not null, so it is within the buffer; the data, read unaligned, is of the type of the message.
            unsafe {
                let data = libc::CMSG_DATA(control);
                match ((*control).cmsg_level, (*control).cmsg_type) {
                    (libc::IPPROTO_IP, libc::IP_TOS) => self.tos = data.read(),
                    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                        self.tos = data.cast::<libc::c_int>().read_unaligned() as u8;
                    }
                    (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                        let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                        self.interface = info.ipi_ifindex as u32;
                    }
                    (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                        let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                        self.interface = info.ipi6_ifindex as u32;
                    }
                    _ => {}
                }
                control = libc::CMSG_NXTHDR(header, control);
            }
        }
    }
}
