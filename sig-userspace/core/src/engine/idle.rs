//! Sleeping until a port has something, and where a thread runs.

use std::time::Duration;

use super::WorkerPorts;
use crate::port::Port;

/// Empty rounds before a worker sleeps: a frame that follows at once is caught without the cost of
/// going to sleep and waking up.
const ROUNDS_BEFORE_SLEEP: u32 = 4;

/// Longest sleep, so that a request to stop is seen.
const MAX_SLEEP: Duration = Duration::from_millis(100);

/// How a worker waits.
pub(super) struct Idle {
    busy_poll: bool,
    rounds: u32,
    fds: Vec<libc::pollfd>,
}

impl Idle {
    pub(super) fn new(busy_poll: bool) -> Self {
        Idle {
            busy_poll,
            rounds: 0,
            fds: Vec::new(),
        }
    }

    /// There was something to do.
    pub(super) fn reset(&mut self) {
        self.rounds = 0;
    }

    /// Waits until a port can receive, or send what waits for that, at most `timeout` nanoseconds; whether it slept.
    pub(super) fn wait(&mut self, ports: &WorkerPorts, timeout: Option<u64>) -> bool {
        self.rounds = self.rounds.saturating_add(1);
        if self.busy_poll || self.rounds < ROUNDS_BEFORE_SLEEP {
            std::hint::spin_loop();
            return false;
        }
        let lan = ports.lan.iter().flatten();
        let all = ports.underlay.iter().chain(lan).chain(&ports.tunnel);
        // Allocates only where ports have come.
        self.fds.clear();
        self.fds.extend(all.filter_map(|port| interest(&**port)));
        let sleep = Duration::from_nanos(timeout.unwrap_or(u64::MAX)).min(MAX_SLEEP);
        if self.fds.is_empty() {
            // Ports in memory have nothing to wait on.
            std::thread::sleep(sleep.min(Duration::from_micros(50)));
            return true;
        }
        let timeout = libc::timespec {
            tv_sec: 0,
            tv_nsec: sleep.subsec_nanos().into(),
        };
        let count = self.fds.len() as libc::nfds_t;
        // SAFETY: `fds` holds `count` initialised pollfd, whose descriptors the ports keep open; the
        // timeout lives through the call; no signal mask is given.
        unsafe { libc::ppoll(self.fds.as_mut_ptr(), count, &timeout, std::ptr::null()) };
        true
    }
}

fn interest(port: &dyn Port) -> Option<libc::pollfd> {
    let room = if port.waits_for_room() {
        libc::POLLOUT
    } else {
        0
    };
    Some(libc::pollfd {
        fd: port.fd()?,
        events: libc::POLLIN | room,
        revents: 0,
    })
}

/// Ties the calling thread to one CPU. That it cannot be done costs speed, not correctness.
pub(super) fn pin_to(cpu: usize) {
    // SAFETY: a zeroed cpu_set_t is the empty set; CPU_SET checks its bound.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        if libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) != 0 {
            tracing::warn!(
                cpu,
                "cannot pin a worker thread: {}",
                std::io::Error::last_os_error()
            );
        }
    }
}

/// How much nicer workers are to themselves than to other threads: a worker that is kept waiting for some
/// tens of milliseconds loses packets.
const NICENESS: libc::c_int = -10;

/// Lets the calling thread go before ordinary ones. That it may not costs packets under load, not
/// correctness.
pub(super) fn take_precedence() {
    // SAFETY: setpriority has no memory safety preconditions; 0 is the calling thread.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICENESS) } != 0 {
        tracing::debug!(
            "cannot raise the priority of the workers: {}",
            std::io::Error::last_os_error()
        );
    }
}

/// The CPUs that this process may use, in ascending order.
pub(super) fn allowed_cpus() -> Vec<usize> {
    // SAFETY: a zeroed cpu_set_t is the empty set, large enough for the size given; CPU_ISSET checks
    // its bound.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0 {
            return Vec::new();
        }
        (0..libc::CPU_SETSIZE as usize)
            .filter(|cpu| libc::CPU_ISSET(*cpu, &set))
            .collect()
    }
}
