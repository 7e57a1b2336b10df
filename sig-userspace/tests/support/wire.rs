//! The far end of a wire.
#![allow(dead_code, reason = "not every test binary uses this module")]

use std::{
    ffi::CString,
    io, mem,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

use super::netns::Netns;

/// An `AF_PACKET` socket on an interface: the far end of the wire.
pub(crate) struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Opens one that sees frames with this EtherType.
    pub(crate) fn open(namespace: &Netns, interface: &str, ethertype: u16) -> Self {
        namespace.run(|| {
            let name = CString::new(interface).expect("a name without zero bytes");
            // SAFETY: plain system calls; the address lives across the call.
            unsafe {
                let protocol = ethertype.to_be();
                let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, i32::from(protocol));
                assert!(fd >= 0, "{}", io::Error::last_os_error());
                let fd = OwnedFd::from_raw_fd(fd);
                let mut address: libc::sockaddr_ll = mem::zeroed();
                address.sll_family = libc::AF_PACKET as u16;
                address.sll_protocol = protocol;
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
        })
    }

    pub(crate) fn send(&self, frame: &[u8]) {
        // SAFETY: the buffer is a live slice.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        assert_eq!(sent, frame.len() as isize, "{}", io::Error::last_os_error());
    }

    /// The next frame that came in, if one has.
    pub(crate) fn receive(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0; 4096];
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
