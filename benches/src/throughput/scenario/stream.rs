//! A stream of UDP packets from one client to the other at a steady rate, slow enough for ordinary sockets.

use std::{
    io,
    net::{IpAddr, SocketAddr, UdpSocket},
    os::fd::AsRawFd as _,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use crate::throughput::{
    chain::{Chain, End, thread_time},
    experiment::Family,
    subject::Refusal,
};

/// How long a thread takes at most to notice that the stream ends.
const NOTICE: Duration = Duration::from_millis(50);
/// Room for packets that the receiving thread has not taken yet, bytes: a second of what [`Stream`] is used for.
const RECEIVE_BUFFER: libc::c_int = 32 << 20;
/// Packets that are made up for when the sender was kept waiting.
const LARGEST_BURST: u64 = 64;

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Packets handed to the kernel.
    pub(super) sent: u64,
    /// Packets that arrived.
    pub(super) received: u64,
    /// Longest time between two arrivals.
    pub(super) longest_gap: Duration,
    /// Time since the last arrival, or since the start.
    pub(super) silence: Duration,
}

/// Sends until it is dropped.
pub(super) struct Stream {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    start: Instant,
    stop: AtomicBool,
    sent: AtomicU64,
    received: AtomicU64,
    /// Nanoseconds since the start; 0: nothing has arrived.
    last: AtomicU64,
    longest_gap: AtomicU64,
}

impl Stream {
    /// Starts sending IP packets of `size` bytes from one client to the other, `rate` a second.
    pub(super) fn start(
        chain: &dyn Chain,
        from: End,
        family: Family,
        size: u16,
        rate: f64,
    ) -> Result<Self, Refusal> {
        let headers = match family {
            Family::Ipv4 => 28,
            Family::Ipv6 => 48,
        };
        let payload = usize::from(size).saturating_sub(headers);
        let (a, b) = (
            chain.client(from, family)?,
            chain.client(from.other(), family)?,
        );
        let bind = |address: IpAddr| UdpSocket::bind(SocketAddr::new(address, 0));
        let sender = a
            .netns
            .run(|| bind(a.address))?
            .context("a socket of the sender")?;
        let receiver = b
            .netns
            .run(|| bind(b.address))?
            .context("a socket of the receiver")?;
        enlarge(&receiver).context("the receive buffer")?;
        receiver
            .set_read_timeout(Some(NOTICE))
            .context("a time limit for receiving")?;
        let to = receiver
            .local_addr()
            .context("the address of the receiver")?;
        let shared = Arc::new(Shared {
            start: Instant::now(),
            stop: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            last: AtomicU64::new(0),
            longest_gap: AtomicU64::new(0),
        });
        let interval = Duration::from_secs_f64(1.0 / rate.max(1.0));
        let (sending, receiving) = (shared.clone(), shared.clone());
        let threads = vec![
            thread::spawn(move || receiving.receive(&receiver)),
            thread::spawn(move || sending.send(&sender, to, payload, interval)),
        ];
        Ok(Self { shared, threads })
    }

    /// What happened so far.
    pub(super) fn progress(&self) -> Progress {
        let shared = &self.shared;
        let last = shared.last.load(Ordering::Acquire);
        Progress {
            sent: shared.sent.load(Ordering::Acquire),
            received: shared.received.load(Ordering::Acquire),
            longest_gap: Duration::from_nanos(shared.longest_gap.load(Ordering::Acquire)),
            silence: Duration::from_nanos(shared.now().saturating_sub(last)),
        }
    }

    /// CPU time of sender and receiver, and of what runs on top of them.
    pub(super) fn time(&self) -> Result<Duration> {
        self.threads.iter().map(thread_time).sum()
    }

    /// Measures gaps from now on.
    pub(super) fn forget_gaps(&self) {
        self.shared.longest_gap.store(0, Ordering::Release);
    }
}

impl Shared {
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn send(&self, socket: &UdpSocket, to: SocketAddr, payload: usize, interval: Duration) {
        let buffer = vec![0; payload];
        let mut due = Instant::now();
        while !self.stop.load(Ordering::Acquire) {
            // What the kernel refuses, for want of a route or of room, counts as not sent.
            if socket.send_to(&buffer, to).is_ok() {
                self.sent.fetch_add(1, Ordering::AcqRel);
            }
            due += interval;
            let now = Instant::now();
            if due > now {
                thread::sleep(due - now);
            } else if now - due > interval * LARGEST_BURST as u32 {
                due = now;
            }
        }
    }

    fn receive(&self, socket: &UdpSocket) {
        let mut buffer = [0; 2048];
        while !self.stop.load(Ordering::Acquire) {
            if socket.recv(&mut buffer).is_err() {
                continue;
            }
            let now = self.now();
            let last = self.last.swap(now, Ordering::AcqRel);
            if last > 0 {
                self.longest_gap.fetch_max(now - last, Ordering::AcqRel);
            }
            self.received.fetch_add(1, Ordering::AcqRel);
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Beyond the limit of unprivileged processes.
fn enlarge(socket: &UdpSocket) -> io::Result<()> {
    let bytes = RECEIVE_BUFFER;
    // SAFETY: the pointer and the length are those of a live integer, and the socket is open.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUFFORCE,
            (&raw const bytes).cast(),
            size_of_val(&bytes) as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
