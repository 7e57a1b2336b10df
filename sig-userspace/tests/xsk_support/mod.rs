//! Private network namespaces, veth pairs and a tiny XDP program for the AF_XDP tests.
//!
//! The namespaces have no name: they and all that is in them vanish with the test process.

mod bpf;
mod packet;

use std::{
    fs::File,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    process::Command,
    thread,
};

pub(crate) use bpf::Redirect;
pub(crate) use packet::PacketSocket;

/// EtherType for local experiments (IEEE 802): nothing else on the wire carries it.
pub(crate) const ETHERTYPE: u16 = 0x88b5;

/// An anonymous network namespace.
pub(crate) struct Netns(OwnedFd);

impl Netns {
    pub(crate) fn new() -> Self {
        let namespace = thread::spawn(|| {
            // SAFETY: plain system call; concerns this short-lived thread alone.
            let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
            assert_eq!(
                result,
                0,
                "{}: run as root",
                std::io::Error::last_os_error()
            );
            File::open("/proc/thread-self/ns/net").expect("the namespace can be opened")
        });
        Netns(namespace.join().expect("the namespace was made").into())
    }

    /// Runs `work` on a thread inside the namespace.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                // SAFETY: plain system call; concerns this short-lived thread alone.
                let result = unsafe { libc::setns(self.0.as_raw_fd(), libc::CLONE_NEWNET) };
                assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
                work()
            });
            inside
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs `ip` with the given arguments inside the namespace.
    pub(crate) fn ip(&self, arguments: &str) {
        let output = self.run(|| Command::new("ip").args(arguments.split(' ')).output());
        let output = output.expect("`ip` can be started");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "ip {arguments}: {message}");
    }

    /// Makes a veth pair with `queues` queues at both ends, both up: `name` here, `peer` in `other`.
    pub(crate) fn veth(&self, name: &str, other: &Netns, peer: &str, queues: u32) {
        let sizes = format!("numrxqueues {queues} numtxqueues {queues}");
        let path = format!("/proc/{}/fd/{}", std::process::id(), other.0.as_raw_fd());
        self.ip(&format!(
            "link add {name} {sizes} type veth peer name {peer} {sizes} netns {path}"
        ));
        for (namespace, device) in [(self, name), (other, peer)] {
            namespace.ip(&format!("link set {device} addrgenmode none"));
            namespace.ip(&format!("link set {device} up"));
        }
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// An Ethernet frame to `slot` of a [`Redirect`], with a serial number and bytes that follow from it.
pub(crate) fn frame(slot: u8, serial: u32, len: usize) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 1]);
    frame.extend(ETHERTYPE.to_be_bytes());
    frame.push(slot);
    frame.extend(serial.to_be_bytes());
    frame.extend((frame.len()..len).map(|place| (serial as usize * 31 + place) as u8));
    frame
}

/// The serial number of a [`frame`].
pub(crate) fn serial(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[15..19].try_into().expect("four bytes"))
}
