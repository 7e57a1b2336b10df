//! Flows of numbered datagrams between all clients, and what became of them.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use scion_net::enlarge_buffers;
use testbed::Family;

use crate::network::{ASES, Network};

/// Datagrams a second, of each flow.
pub(crate) const RATE: u32 = 100;
const PORT: u16 = 7100;
/// First source port.
const SOURCE: u16 = 40000;
/// Flow, number, hash.
const HEADER: usize = 12;
/// The longest makes a packet of 1500 bytes over IPv6, which takes two frames.
const LONGEST: usize = 1452;
/// After a pause of the machine not all at once: nobody promised room for that.
const AT_ONCE: usize = 20;

/// One flow from each client to each other one, per address family.
pub(crate) struct Flows {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    flows: Vec<Flow>,
    stop: AtomicBool,
    /// Whether the network keeps the order of datagrams.
    in_order: AtomicBool,
}

struct Flow {
    from: usize,
    to: usize,
    family: Family,
    /// How many were sent.
    sent: AtomicU32,
    received: Mutex<Received>,
}

#[derive(Default)]
struct Received {
    /// By number.
    seen: Vec<bool>,
    next: u32,
    /// What must not happen.
    faults: Vec<String>,
}

impl Flow {
    fn name(&self) -> String {
        let letter = |place| char::from(b'a' + place as u8);
        let (from, to) = (letter(self.from), letter(self.to));
        format!("{from} to {to}, {}", self.family.name())
    }

    fn received(&self) -> MutexGuard<'_, Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many datagrams of each flow had been sent at some time.
#[derive(Clone, Debug)]
pub(crate) struct Mark(Vec<u32>);

impl Flows {
    pub(crate) fn start(network: &Network) -> Result<Self> {
        let mut flows = Vec::new();
        for family in Family::ALL {
            for from in 0..ASES {
                for to in (0..ASES).filter(|to| *to != from) {
                    flows.push(Flow {
                        from,
                        to,
                        family,
                        sent: AtomicU32::new(0),
                        received: Mutex::default(),
                    });
                }
            }
        }
        let shared = Arc::new(Shared {
            flows,
            stop: AtomicBool::new(false),
            in_order: AtomicBool::new(true),
        });
        let mut threads = Vec::new();
        for (place, own) in network.ases.iter().enumerate() {
            for family in Family::ALL {
                let receiver = own.bind(own.client_ip(family), PORT)?;
                enlarge_buffers(&receiver)?;
                receiver.set_read_timeout(Some(Duration::from_millis(50)))?;
                let shared = shared.clone();
                let receive = move || shared.receive(&receiver);
                threads.push(named("receiver").spawn(receive)?);
            }
            let mut senders = Vec::new();
            for (number, flow) in shared.flows.iter().enumerate() {
                if flow.from == place {
                    let source = SOURCE + number as u16;
                    let socket = own.bind(own.client_ip(flow.family), source)?;
                    socket.set_nonblocking(true)?;
                    let to = network.ases[flow.to].client_ip(flow.family);
                    senders.push((number, socket, SocketAddr::new(to, PORT)));
                }
            }
            let shared = shared.clone();
            threads.push(named("sender").spawn(move || shared.send(&senders))?);
        }
        Ok(Self { shared, threads })
    }

    /// From now on, or from what is under way on, order counts or not.
    pub(crate) fn expect_order(&self, in_order: bool) {
        self.shared.in_order.store(in_order, Relaxed);
    }

    pub(crate) fn mark(&self) -> Mark {
        let sent = |flow: &Flow| flow.sent.load(Relaxed);
        Mark(self.shared.flows.iter().map(sent).collect())
    }

    /// How many of the datagrams that were sent between two times have not arrived, and of how many.
    pub(crate) fn missing(&self, from: &Mark, to: &Mark) -> (u64, u64) {
        let mut all = (0, 0);
        for (flow, (from, to)) in self.shared.flows.iter().zip(from.0.iter().zip(&to.0)) {
            all.0 += u64::from(flow.missing(*from, *to));
            all.1 += u64::from(to - from);
        }
        all
    }

    /// Of which flows they are.
    pub(crate) fn who_misses(&self, from: &Mark, to: &Mark) -> Vec<String> {
        let flows = self.shared.flows.iter().zip(from.0.iter().zip(&to.0));
        let missing = flows.filter_map(|(flow, (from, to))| {
            let missing = flow.missing(*from, *to);
            (missing > 0).then(|| format!("{} ({missing} of {})", flow.name(), to - from))
        });
        missing.collect()
    }

    /// What happened since the last call that must not happen.
    pub(crate) fn faults(&self) -> Vec<String> {
        let take = |flow: &Flow| std::mem::take(&mut flow.received().faults);
        self.shared.flows.iter().flat_map(take).collect()
    }
}

impl Flow {
    fn missing(&self, from: u32, to: u32) -> u32 {
        let received = self.received();
        let has_come = |number: u32| received.seen.get(number as usize) == Some(&true);
        (from..to).filter(|number| !has_come(*number)).count() as u32
    }
}

impl Drop for Flows {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                eprintln!("error: a sender or receiver panicked");
            }
        }
    }
}

fn named(name: &str) -> thread::Builder {
    thread::Builder::new().name(name.to_owned())
}

impl Shared {
    fn send(&self, senders: &[(usize, UdpSocket, SocketAddr)]) {
        let start = Instant::now();
        let mut bytes = Vec::new();
        while !self.stop.load(Relaxed) {
            let due = (start.elapsed().as_secs_f64() * f64::from(RATE)) as u32;
            for (flow, socket, to) in senders {
                let sent = &self.flows[*flow].sent;
                for number in (sent.load(Relaxed)..due).take(AT_ONCE) {
                    datagram(*flow, number, &mut bytes);
                    // What the kernel refuses is lost, as where an interface is down.
                    let _ = socket.send_to(&bytes, to);
                    sent.store(number + 1, Relaxed);
                }
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn receive(&self, socket: &UdpSocket) {
        let mut bytes = [0; 1 << 11];
        while !self.stop.load(Relaxed) {
            let Ok(length) = socket.recv(&mut bytes) else {
                continue;
            };
            self.take(&bytes[..length]);
        }
    }

    fn take(&self, bytes: &[u8]) {
        let word = |at: usize| {
            let bytes: Option<[u8; 4]> = bytes
                .get(at..at + 4)
                .and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u32::from_be_bytes)
        };
        let (flow, number) = (word(0) as usize, word(4));
        let Some(known) = self.flows.get(flow) else {
            self.flows[0]
                .received()
                .faults
                .push("a datagram of no flow".to_owned());
            return;
        };
        let mut wanted = Vec::new();
        datagram(flow, number, &mut wanted);
        let mut received = known.received();
        let mut fault = |what: &str| {
            received
                .faults
                .push(format!("{}: number {number} {what}", known.name()));
        };
        if bytes != wanted {
            return fault("is damaged");
        }
        if number >= known.sent.load(Relaxed).saturating_add(1) {
            return fault("was never sent");
        }
        let next = received.next;
        let place = number as usize;
        if received.seen.len() <= place {
            received.seen.resize(place + 1, false);
        }
        if std::mem::replace(&mut received.seen[place], true) {
            let fault = format!("{}: number {number} came twice", known.name());
            received.faults.push(fault);
        } else if number < next && self.in_order.load(Relaxed) {
            let fault = format!("{}: number {number} came after {}", known.name(), next - 1);
            received.faults.push(fault);
        }
        received.next = next.max(number + 1);
    }
}

/// The datagram with this number: all of it follows from flow and number.
fn datagram(flow: usize, number: u32, bytes: &mut Vec<u8>) {
    let mut state = (flow as u64) << 32 | u64::from(number) | 1 << 63;
    let mut random = || {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..4 {
        random();
    }
    let length = match random() % 8 {
        0 => LONGEST,
        1..=3 => HEADER + random() as usize % 100,
        _ => HEADER + random() as usize % (LONGEST - HEADER),
    };
    bytes.clear();
    bytes.extend((flow as u32).to_be_bytes());
    bytes.extend(number.to_be_bytes());
    while bytes.len() < length {
        bytes.extend(random().to_be_bytes());
    }
    bytes.truncate(length);
}

trait Bind {
    fn bind(&self, address: std::net::IpAddr, port: u16) -> Result<UdpSocket>;
}

impl Bind for crate::network::As {
    fn bind(&self, address: std::net::IpAddr, port: u16) -> Result<UdpSocket> {
        let address = SocketAddr::new(address, port);
        let socket = self.client.run(|| UdpSocket::bind(address))?;
        socket.with_context(|| format!("cannot bind {address}"))
    }
}
