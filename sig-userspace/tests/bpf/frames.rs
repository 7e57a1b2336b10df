//! Running the real programs over single frames.

use std::io;
use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd};

use sig_common::maps::{Sockets, Stat};
use sig_common::reason::DropReason;
use sig_linux::bpf::{Counters, Logging, Program, Programs};

/// Interface index of `lo`, which `test_run` pretends that frames come in through.
pub(crate) const LO: u32 = 1;

pub(crate) const XDP_DROP: u32 = 1;
pub(crate) const XDP_PASS: u32 = 2;
pub(crate) const XDP_REDIRECT: u32 = 4;

/// What a program shall do with a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expect {
    /// Give it to a worker.
    Worker,
    /// Leave it to the kernel.
    Pass,
    /// Leave it to the kernel, because no worker listens.
    NoSocket,
    /// Drop it.
    Drop(DropReason),
}

/// One frame and what shall become of it.
pub(crate) struct Fixture {
    /// The frame, in words that complete "a frame that is ...".
    pub(crate) that: String,
    pub(crate) frame: Vec<u8>,
    pub(crate) expect: Expect,
}

impl Fixture {
    pub(crate) fn new(that: impl Into<String>, frame: Vec<u8>, expect: Expect) -> Self {
        Self {
            that: that.into(),
            frame,
            expect,
        }
    }
}

/// The counters of one program.
#[derive(Clone, Copy)]
pub(crate) struct Stats {
    pub(crate) redirected: Stat,
    pub(crate) passed: Stat,
    pub(crate) no_socket: Stat,
    pub(crate) dropped: Option<Stat>,
}

/// Runs the program over every frame: action, untouched frame and counters must be as expected, and no other counter
/// may have moved. All deviations are reported together.
pub(crate) fn check(programs: &Programs, program: Program, stats: Stats, fixtures: &[Fixture]) {
    let mut wrong = Vec::new();
    for fixture in fixtures {
        let before = programs.counters().unwrap();
        let outcome = programs.test_run(program, &fixture.frame).unwrap();
        let moved = moved(&before, &programs.counters().unwrap());
        let (action, stat, reason) = match fixture.expect {
            Expect::Worker => (XDP_REDIRECT, stats.redirected, None),
            Expect::Pass => (XDP_PASS, stats.passed, None),
            Expect::NoSocket => (XDP_PASS, stats.no_socket, None),
            Expect::Drop(reason) => (
                XDP_DROP,
                stats.dropped.expect("a program that drops"),
                Some(reason),
            ),
        };
        let expected = (
            vec![(stat, 1)],
            reason.map(|r| (r, 1)).into_iter().collect(),
        );
        if outcome.action != action || moved != expected || outcome.frame != fixture.frame {
            wrong.push(format!(
                "{}: expected {:?}, got action {}, counters {moved:?}, frame {}",
                fixture.that,
                fixture.expect,
                outcome.action,
                if outcome.frame == fixture.frame {
                    "untouched"
                } else {
                    "changed"
                }
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

type Moved = (Vec<(Stat, u64)>, Vec<(DropReason, u64)>);

fn moved(before: &Counters, after: &Counters) -> Moved {
    let stats = after
        .stats()
        .map(|(stat, n)| (stat, n - before.stat(stat)))
        .filter(|(_, n)| *n != 0);
    let drops = after
        .drops()
        .map(|(reason, n)| (reason, n - before.dropped(reason)))
        .filter(|(_, n)| *n != 0);
    (stats.collect(), drops.collect())
}

/// Programs with sockets at the indexes `0..sockets` that share queue 0 of `port`.
pub(crate) struct Bench {
    pub(crate) programs: Programs,
    pub(crate) sockets: Vec<OwnedFd>,
}

impl Bench {
    pub(crate) fn new(port: u32, sockets: u32) -> Self {
        let mut programs = Programs::load(Logging::Off).unwrap();
        let sockets: Vec<_> = (0..sockets).map(|_| xdp_socket()).collect();
        for (index, socket) in (0..).zip(&sockets) {
            programs.set_socket(index, socket.as_fd()).unwrap();
        }
        let count = sockets.len() as u32;
        programs
            .set_steering(port, 0, Sockets { first: 0, count })
            .unwrap();
        Self { programs, sockets }
    }
}

/// An AF_XDP socket that the socket map accepts. It is bound to no device: a test run redirects, but delivers nothing.
pub(crate) fn xdp_socket() -> OwnedFd {
    // SAFETY: takes no pointer; the result is checked.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    assert!(fd >= 0, "AF_XDP socket: {}", io::Error::last_os_error());
    // SAFETY: a descriptor just made, owned by nobody else.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let entries: u32 = 64;
    // SAFETY: pointer and length are of `entries`, which lives until the call returns.
    let result = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_XDP,
            libc::XDP_RX_RING,
            (&raw const entries).cast(),
            size_of_val(&entries) as u32,
        )
    };
    assert_eq!(result, 0, "receive ring: {}", io::Error::last_os_error());
    socket
}
