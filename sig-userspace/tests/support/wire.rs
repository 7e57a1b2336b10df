//! The far end of a wire.
#![allow(dead_code, reason = "not every test binary uses this module")]

use std::{
    ffi::CString,
    io, mem,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    time::Duration,
};

use super::netns::Netns;

/// An `AF_PACKET` socket on an interface: the far end of the wire.
pub(crate) struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Opens one that sees frames with this EtherType.
    pub(crate) fn open(namespace: &Netns, interface: &str, ethertype: u16) -> Self {
        namespace.run(|| Self::open_here(interface, ethertype))
    }

    /// The same, in the namespace of this thread.
    pub(crate) fn open_here(interface: &str, ethertype: u16) -> Self {
        let name = CString::new(interface).expect("a name without zero bytes");
        // SAFETY: plain system calls; the address lives across the call.
        unsafe {
            // No protocol yet: until it is bound, it would see the frames of all interfaces.
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0);
            assert!(fd >= 0, "{}", io::Error::last_os_error());
            let fd = OwnedFd::from_raw_fd(fd);
            let mut address: libc::sockaddr_ll = mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = ethertype.to_be();
            address.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
            let len = size_of_val(&address) as u32;
            let result = libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len);
            assert_eq!(result, 0, "{}", io::Error::last_os_error());
            let buffer: i32 = 64 << 20;
            for option in [libc::SO_RCVBUFFORCE, libc::SO_SNDBUFFORCE] {
                let value = (&raw const buffer).cast();
                libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, option, value, 4);
            }
            PacketSocket(fd)
        }
    }

    pub(crate) fn send(&self, frame: &[u8]) {
        assert!(self.try_send(frame), "{}", io::Error::last_os_error());
    }

    /// Whether the other end of the wire had room for it.
    pub(crate) fn try_send(&self, frame: &[u8]) -> bool {
        // SAFETY: the buffer is a live slice.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        sent == frame.len() as isize
    }

    /// Waits until one of them has something to receive, but not longer than `timeout`.
    pub(crate) fn wait(sockets: &[&Self], timeout: Duration) {
        let files: Vec<_> = sockets.iter().map(|socket| socket.0.as_fd()).collect();
        wait(&files, timeout);
    }

    /// The next frame that came in, if one has.
    pub(crate) fn receive(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0; 10_000];
        loop {
            let mut from = mem::MaybeUninit::<libc::sockaddr_ll>::zeroed();
            let mut len = size_of::<libc::sockaddr_ll>() as u32;
            // SAFETY: buffer and address are live and of the lengths given; any bytes are an address.
            let (received, from) = unsafe {
                let received = libc::recvfrom(
                    self.0.as_raw_fd(),
                    frame.as_mut_ptr().cast(),
                    frame.len(),
                    libc::MSG_DONTWAIT,
                    from.as_mut_ptr().cast(),
                    &mut len,
                );
                (received, from.assume_init())
            };
            if received < 0 {
                let error = io::Error::last_os_error();
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
                return None;
            }
            if from.sll_pkttype != libc::PACKET_OUTGOING {
                frame.truncate(received as usize);
                return Some(frame);
            }
        }
    }
}

/// Waits until one of these has something to read, but not longer than `timeout`.
pub(crate) fn wait(files: &[BorrowedFd<'_>], timeout: Duration) {
    let poll = |file: &BorrowedFd<'_>| libc::pollfd {
        fd: file.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let mut polls: Vec<_> = files.iter().map(poll).collect();
    let timeout = libc::timespec {
        tv_sec: timeout.as_secs() as libc::time_t,
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let count = polls.len() as libc::nfds_t;
    // SAFETY: the array has `count` entries and lives across the call, as does the time; no mask is given.
    unsafe {
        libc::ppoll(
            polls.as_mut_ptr(),
            count,
            &raw const timeout,
            std::ptr::null(),
        )
    };
}
