//! A TCP connection between each two clients, which is made again when it breaks.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::AsRawFd as _,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use testbed::{Family, Netns};

use crate::network::{ASES, Network};

const PORT: u16 = 7200;
/// Bytes that are written at once: several packets as long as they get.
const BLOCK: usize = 16 << 10;
const INTERVAL: Duration = Duration::from_millis(50);
/// After that time without an acknowledgement, a connection is made anew.
static USER_TIMEOUT: libc::c_int = 3_000;
/// A connection must go on within this time after all faults.
const PATIENCE: Duration = Duration::from_secs(15);

/// All connections.
pub(crate) struct Connections {
    pairs: Vec<Arc<Pair>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

struct Pair {
    name: String,
    /// Bytes that have arrived.
    arrived: AtomicU64,
    damaged: AtomicBool,
}

/// How far the connections were.
pub(crate) struct Progress(Vec<u64>);

impl Connections {
    pub(crate) fn start(network: &Network) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (mut pairs, mut threads) = (Vec::new(), Vec::new());
        for from in 0..ASES {
            let to = (from + 1) % ASES;
            let family = Family::ALL[from % 2];
            let [client, server] = [from, to].map(|place| &network.ases[place]);
            let address = SocketAddr::new(server.client_ip(family), PORT + from as u16);
            let pair = Arc::new(Pair {
                name: format!(
                    "TCP {} to {}, {}",
                    client.letter(),
                    server.letter(),
                    family.name()
                ),
                arrived: AtomicU64::new(0),
                damaged: AtomicBool::new(false),
            });
            let listener = server.client.run(|| TcpListener::bind(address))?;
            let listener = listener.with_context(|| format!("cannot bind {address}"))?;
            listener.set_nonblocking(true)?;
            let (accepting, stopped) = (pair.clone(), stop.clone());
            threads.push(thread::spawn(move || {
                accept(&listener, &accepting, &stopped)
            }));
            let (netns, stopped) = (client.client.clone(), stop.clone());
            threads.push(thread::spawn(move || write(&netns, address, &stopped)));
            pairs.push(pair);
        }
        Ok(Self {
            pairs,
            stop,
            threads,
        })
    }

    pub(crate) fn progress(&self) -> Progress {
        let arrived = |pair: &Arc<Pair>| pair.arrived.load(Relaxed);
        Progress(self.pairs.iter().map(arrived).collect())
    }

    /// Waits until all have gone on since then. Returns those that do not, and those that brought other bytes.
    pub(crate) fn stalled(&self, progress: &Progress) -> Vec<String> {
        let start = Instant::now();
        let stalled = |(pair, before): &(&Arc<Pair>, &u64)| pair.arrived.load(Relaxed) == **before;
        let pairs = || self.pairs.iter().zip(&progress.0);
        while pairs().any(|pair| stalled(&pair)) && start.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(20));
        }
        let stalled = pairs()
            .filter(stalled)
            .map(|(pair, _)| format!("{}: stalled", pair.name));
        let damaged = self
            .pairs
            .iter()
            .filter(|pair| pair.damaged.swap(false, Relaxed));
        stalled
            .chain(damaged.map(|pair| format!("{}: other bytes", pair.name)))
            .collect()
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                eprintln!("error: an end of a TCP connection panicked");
            }
        }
    }
}

fn accept(listener: &TcpListener, pair: &Pair, stop: &AtomicBool) {
    let mut open = None;
    let mut bytes = vec![0; BLOCK];
    while !stop.load(Relaxed) {
        if let Ok((stream, _)) = listener.accept() {
            let timeout = stream.set_read_timeout(Some(Duration::from_millis(50)));
            open = timeout.is_ok().then_some((stream, 0));
        }
        let Some((stream, at)) = &mut open else {
            thread::sleep(Duration::from_millis(20));
            continue;
        };
        match stream.read(&mut bytes) {
            Ok(0) => open = None,
            Ok(length) => {
                let wanted = (*at..).map(byte);
                if bytes[..length]
                    .iter()
                    .zip(wanted)
                    .any(|(byte, wanted)| *byte != wanted)
                {
                    pair.damaged.store(true, Relaxed);
                }
                *at += length as u64;
                pair.arrived.fetch_add(length as u64, Relaxed);
            }
            Err(error) if is_timeout(&error) => {}
            Err(_) => open = None,
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

fn write(netns: &Netns, to: SocketAddr, stop: &AtomicBool) {
    let connect = || TcpStream::connect_timeout(&to, Duration::from_secs(1));
    while !stop.load(Relaxed) {
        let Ok(Ok(mut stream)) = netns.run(connect) else {
            thread::sleep(INTERVAL);
            continue;
        };
        set_user_timeout(&stream);
        let mut at = 0;
        while !stop.load(Relaxed) {
            let block: Vec<u8> = (at..at + BLOCK as u64).map(byte).collect();
            if stream.write_all(&block).is_err() {
                break;
            }
            at += BLOCK as u64;
            thread::sleep(INTERVAL);
        }
    }
}

/// What is sent at a place.
fn byte(at: u64) -> u8 {
    (at % 251) as u8
}

fn set_user_timeout(stream: &TcpStream) {
    // SAFETY: the pointer and the length are those of a variable that lives for ever.
    let result = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_USER_TIMEOUT,
            (&raw const USER_TIMEOUT).cast(),
            size_of_val(&USER_TIMEOUT) as libc::socklen_t,
        )
    };
    if result != 0 {
        eprintln!("error: no TCP_USER_TIMEOUT: {}", io::Error::last_os_error());
    }
}
