//! The links between the routers: a host in the middle that hands on their datagrams, in good weather and in bad.

use std::{
    cmp::Ordering,
    collections::BinaryHeap,
    net::{SocketAddr, UdpSocket},
    os::fd::AsRawFd as _,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use scion_net::enlarge_buffers;
use testbed::Netns;

/// Longest wait for datagrams.
const TICK: Duration = Duration::from_millis(1);
/// Datagrams taken from one end before another has its turn.
const BATCH: usize = 64;
/// Shorter datagrams are left alone by [`Weather::damaged`]: they are the routers' own.
const SHORTEST_DAMAGED: usize = 200;

/// What a link does to datagrams, in both directions; shares of 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Weather {
    /// Nothing passes.
    pub(crate) cut: bool,
    pub(crate) lost: f64,
    /// A copy follows at once.
    pub(crate) duplicated: f64,
    /// One of the last sixteen bytes is another one.
    pub(crate) damaged: f64,
    /// All take so long.
    pub(crate) delay: Duration,
    /// Some take up to so much longer, and others overtake them.
    pub(crate) overtaken: f64,
    pub(crate) spread: Duration,
}

/// One end of a link: where the relay listens, and the router behind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) here: SocketAddr,
    pub(crate) router: SocketAddr,
}

/// All links. It ends when dropped.
pub(crate) struct Relay {
    weather: Arc<Mutex<Vec<Weather>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A datagram that leaves later.
struct Due {
    at: Instant,
    /// Datagrams of the same time leave as they came.
    turn: u64,
    port: usize,
    bytes: Vec<u8>,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.turn).cmp(&(self.at, self.turn))
    }
}

impl Relay {
    /// Starts it inside `netns`, in good weather.
    pub(crate) fn start(netns: &Netns, links: &[[End; 2]], seed: u64) -> Result<Self> {
        let mut ports = Vec::new();
        for end in links.iter().flatten() {
            let socket = netns.run(|| UdpSocket::bind(end.here))?;
            let socket = socket.with_context(|| format!("cannot bind {}", end.here))?;
            socket.set_nonblocking(true)?;
            enlarge_buffers(&socket)?;
            ports.push((socket, end.router));
        }
        let weather = Arc::new(Mutex::new(vec![Weather::default(); links.len()]));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = thread::Builder::new().name("relay".to_owned()).spawn({
            let (weather, stop) = (weather.clone(), stop.clone());
            move || carry(&ports, &weather, &stop, StdRng::seed_from_u64(seed))
        })?;
        Ok(Self {
            weather,
            stop,
            thread: Some(thread),
        })
    }

    /// Changes the weather on a link.
    pub(crate) fn set(&self, link: usize, weather: Weather) {
        lock(&self.weather)[link] = weather;
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            eprintln!("error: the relay panicked");
        }
    }
}

fn lock(weather: &Mutex<Vec<Weather>>) -> MutexGuard<'_, Vec<Weather>> {
    weather.lock().unwrap_or_else(PoisonError::into_inner)
}

fn carry(
    ports: &[(UdpSocket, SocketAddr)],
    weather: &Mutex<Vec<Weather>>,
    stop: &AtomicBool,
    mut rng: StdRng,
) {
    let mut buffer = vec![0; 1 << 16];
    let mut under_way = BinaryHeap::new();
    // Nothing overtakes because a delay became shorter.
    let mut latest = vec![Instant::now(); ports.len()];
    let mut turn = 0;
    while !stop.load(Relaxed) {
        wait(ports);
        let now = Instant::now();
        let weather = lock(weather).clone();
        for (port, (socket, router)) in ports.iter().enumerate() {
            for _ in 0..BATCH {
                let Ok((length, from)) = socket.recv_from(&mut buffer) else {
                    break;
                };
                let weather = &weather[port / 2];
                if from != *router || weather.cut || rng.random_bool(weather.lost) {
                    continue;
                }
                let mut bytes = buffer[..length].to_vec();
                if length >= SHORTEST_DAMAGED && rng.random_bool(weather.damaged) {
                    bytes[length - rng.random_range(1..=16)] ^= rng.random_range(1..=255);
                }
                let out = port ^ 1;
                let mut at = (now + weather.delay).max(latest[out]);
                if rng.random_bool(weather.overtaken) {
                    at += weather.spread.mul_f64(rng.random());
                } else {
                    latest[out] = at;
                }
                let copies = 1 + usize::from(rng.random_bool(weather.duplicated));
                for _ in 0..copies {
                    turn += 1;
                    under_way.push(Due {
                        at,
                        turn,
                        port: out,
                        bytes: bytes.clone(),
                    });
                }
            }
        }
        let now = Instant::now();
        while let Some(due) = under_way.pop_if_due(now) {
            let (socket, router) = &ports[due.port];
            // What the kernel refuses is lost, as when the router's host is away.
            let _ = socket.send_to(&due.bytes, router);
        }
    }
}

trait PopIfDue {
    fn pop_if_due(&mut self, now: Instant) -> Option<Due>;
}

impl PopIfDue for BinaryHeap<Due> {
    fn pop_if_due(&mut self, now: Instant) -> Option<Due> {
        self.peek()
            .is_some_and(|due| due.at <= now)
            .then(|| self.pop())?
    }
}

/// Waits until a datagram is there, at most for [`TICK`].
fn wait(ports: &[(UdpSocket, SocketAddr)]) {
    let mut waiting: Vec<_> = ports
        .iter()
        .map(|(socket, _)| libc::pollfd {
            fd: socket.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    // SAFETY: the pointer and the length are those of a live vector.
    unsafe {
        libc::poll(
            waiting.as_mut_ptr(),
            waiting.len() as libc::nfds_t,
            TICK.as_millis() as libc::c_int,
        );
    }
}
