//! A network that loses, delays, duplicates and reorders SIG frames, and remembers what it did.
//!
//! There is a relay in front of each gateway. It only watches what the gateway sends, and ill-treats what it receives, so that
//! nothing else changes the order between what a relay sends on and what its gateway receives.

use std::collections::{BinaryHeap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use sig_common::wire::sig_frame::{self, NO_PACKET_STARTS};
use sig_common::wire::{PROTO_UDP, ethernet, ipv4, scion, udp};
use testbed::{Netns, Site};

use super::PATIENCE;
use super::packets::Label;
use crate::support::wire::PacketSocket;

/// EtherType of a socket that sees frames of all.
const ALL: u16 = libc::ETH_P_ALL as u16;
/// Frames taken from one side before the other has its turn.
const BATCH: usize = 64;

/// What happens to SIG frames for a gateway; shares of 1.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mode {
    pub(crate) name: &'static str,
    /// Every frame takes this long.
    pub(crate) delay: Duration,
    pub(crate) lost: f64,
    /// A copy follows within `spread`.
    pub(crate) duplicated: f64,
    /// They take up to `spread` longer, so that others overtake them.
    pub(crate) overtaken: f64,
    pub(crate) spread: Duration,
    /// They come only when the receiver no longer waits for them.
    pub(crate) late: f64,
}

/// Longer than the default `reorder_wait`, shorter than parts of packets are kept.
const LATE: Duration = Duration::from_millis(70);

/// A SIG frame that came.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) header: sig_frame::Header,
    pub(crate) payload: Vec<u8>,
    /// The path header as it came.
    pub(crate) path: Vec<u8>,
    /// Turns of all frames sent on in which its first and its last copy had theirs; nothing if it was lost.
    pub(crate) sent_on: Option<(u32, u32)>,
}

/// What passed in one direction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    /// In the order in which they came.
    pub(crate) frames: Vec<Frame>,
    pub(crate) duplicated: usize,
    pub(crate) delayed: usize,
    turns: u32,
}

/// The packets in the frames of a log.
#[derive(Debug, Default)]
pub(crate) struct Packets {
    /// In the order in which they were complete.
    pub(crate) labels: Vec<Label>,
    /// Places of the frames that each has parts in.
    pub(crate) parts: HashMap<Label, Vec<usize>>,
}

impl Log {
    fn came(&mut self, frame: &sig_frame::View<'_>, path: &[u8]) -> usize {
        self.frames.push(Frame {
            header: frame.header(),
            payload: frame.payload().to_vec(),
            path: path.to_vec(),
            sent_on: None,
        });
        self.frames.len() - 1
    }

    fn sent_on(&mut self, place: usize) {
        let (turn, frame) = (self.turns, &mut self.frames[place]);
        self.turns += 1;
        let first = frame.sent_on.map_or(turn, |(first, _)| first);
        frame.sent_on = Some((first, turn));
    }

    pub(crate) fn lost(&self) -> usize {
        let lost = |frame: &&Frame| frame.sent_on.is_none();
        self.frames.iter().filter(lost).count()
    }

    /// Frames that came behind a later one of their stream.
    pub(crate) fn out_of_order(&self) -> usize {
        let mut highest = HashMap::new();
        let behind = |frame: &&Frame| {
            let Frame { header, .. } = frame;
            let stream = (header.session, header.stream);
            let highest = highest.entry(stream).or_insert(header.sequence);
            let behind = header.sequence < *highest;
            *highest = header.sequence.max(*highest);
            behind
        };
        self.frames.iter().filter(behind).count()
    }

    /// Puts the packets together, in whatever order the frames came.
    pub(crate) fn packets(&self) -> Packets {
        let mut places: Vec<usize> = (0..self.frames.len()).collect();
        places.sort_by_key(|place| {
            let header = self.frames[*place].header;
            (header.session, header.stream, header.sequence)
        });
        let mut whole: Vec<(Label, Vec<usize>)> = Vec::new();
        // The packet that continues in the next frame of the stream.
        let mut unfinished: Option<(sig_frame::Header, Vec<u8>, Vec<usize>)> = None;
        for place in places {
            let Frame {
                header, payload, ..
            } = &self.frames[place];
            let start = match header.index {
                NO_PACKET_STARTS => payload.len(),
                index => usize::from(index),
            };
            let (rest, mut bytes) = payload.split_at(start);
            let mut next = None;
            let mut add = |bytes: Vec<u8>, parts: Vec<usize>| {
                if total_len(&bytes).is_none_or(|len| bytes.len() < len) {
                    let next_header = sig_frame::Header {
                        sequence: header.sequence + 1,
                        ..*header
                    };
                    next = Some((next_header, bytes, parts));
                } else if let Some(label) = Label::of(&bytes) {
                    whole.push((label, parts));
                }
            };
            let continued = unfinished.take().filter(|(expected, ..)| {
                (expected.session, expected.stream, expected.sequence)
                    == (header.session, header.stream, header.sequence)
            });
            if let Some((_, mut bytes, mut parts)) = continued {
                bytes.extend_from_slice(rest);
                parts.push(place);
                add(bytes, parts);
            }
            while !bytes.is_empty() {
                let len = total_len(bytes).map_or(bytes.len(), |len| len.min(bytes.len()));
                let (packet, behind) = bytes.split_at(len);
                add(packet.to_vec(), vec![place]);
                bytes = behind;
            }
            unfinished = next;
        }
        whole.sort_by_key(|(_, parts)| parts.iter().copied().max());
        Packets {
            labels: whole.iter().map(|(label, _)| *label).collect(),
            parts: whole.into_iter().collect(),
        }
    }
}

/// Length of the packet that begins here, if that much of it is there.
fn total_len(bytes: &[u8]) -> Option<usize> {
    let field = |at| {
        Some(usize::from(u16::from_be_bytes([
            *bytes.get(at)?,
            *bytes.get(at + 1)?,
        ])))
    };
    match bytes.first()? >> 4 {
        4 => field(2),
        _ => Some(field(4)? + 40),
    }
}

#[derive(Debug, Default)]
struct State {
    mode: Mode,
    /// To the gateway, and from it.
    logs: [Log; 2],
    waiting: usize,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    stop: AtomicBool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stands between a gateway and its router.
pub(crate) struct Relay {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    _netns: Netns,
}

impl Relay {
    /// Puts one in front of the gateway of a site, which is not running yet.
    pub(crate) fn in_front_of(site: &Site, seed: u64) -> Self {
        let netns =
            Netns::new(&format!("relay-{}", site.isd_as().replace(':', "-"))).expect("a namespace");
        netns
            .set_sysctls(&[("net/ipv6/conf/default/disable_ipv6", "1")])
            .expect("a setting");
        let gateway = &site.gateway;
        let link = gateway
            .exec("ip -brief link show dev underlay")
            .expect("its link");
        let mac = link.split_whitespace().nth(2).expect("a MAC address");
        let address = gateway
            .exec("ip -brief address show dev underlay")
            .expect("its address");
        let address = address.split_whitespace().nth(2).expect("an IP address");
        let ip = |netns: &Netns, line: &str| netns.ip(line).expect("it is done");
        ip(
            gateway,
            &format!("link set underlay netns {} name router", netns.name()),
        );
        ip(
            &netns,
            &format!(
                "link set router up\n\
                 link add gateway type veth peer name underlay address {mac} netns {}\n\
                 link set gateway up",
                gateway.name()
            ),
        );
        ip(
            gateway,
            &format!("link set underlay up\naddress add {address} dev underlay"),
        );
        // As at all ends of underlay links of the test bed: GRO lets a router redirect to them.
        for (netns, device) in [
            (&netns, "router"),
            (&netns, "gateway"),
            (gateway, "underlay"),
        ] {
            let line = format!("ethtool -K {device} gro on tx off");
            netns.exec(&line).expect("ethtool is installed");
        }
        let open = || ["router", "gateway"].map(|device| PacketSocket::open_here(device, ALL));
        let sockets = netns.run(open).expect("the namespace");
        let shared = Arc::new(Shared::default());
        let port = site.data_addr().port();
        let worker = Worker {
            sockets,
            port,
            shared: shared.clone(),
            rng: StdRng::seed_from_u64(seed),
            queue: BinaryHeap::new(),
            count: 0,
        };
        Self {
            shared,
            thread: Some(thread::spawn(|| worker.run())),
            _netns: netns,
        }
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.shared.state().mode = mode;
    }

    /// Whether no frame waits to be sent on.
    pub(crate) fn is_empty(&self) -> bool {
        self.shared.state().waiting == 0
    }

    /// What passed since the last call: to the gateway, and from it.
    pub(crate) fn take_logs(&self) -> [Log; 2] {
        let limit = Instant::now() + PATIENCE;
        loop {
            let mut state = self.shared.state();
            // Frames that wait have places in the logs.
            if state.waiting == 0 {
                return std::mem::take(&mut state.logs);
            }
            drop(state);
            assert!(Instant::now() < limit, "frames wait without end");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A copy of a frame that has its turn at `due`; of several, the one that came first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    due: Instant,
    number: u64,
    direction: usize,
    place: usize,
    bytes: Vec<u8>,
}

struct Worker {
    /// Towards router and gateway. Frames that come by the first go out by the second.
    sockets: [PacketSocket; 2],
    /// The gateways' data port.
    port: u16,
    shared: Arc<Shared>,
    rng: StdRng,
    queue: BinaryHeap<std::cmp::Reverse<Waiting>>,
    count: u64,
}

impl Worker {
    fn run(mut self) {
        let shared = self.shared.clone();
        while !shared.stop.load(Ordering::Relaxed) {
            let mut timeout = Duration::from_millis(20);
            if let Some(next) = self.queue.peek() {
                timeout = timeout.min(next.0.due.saturating_duration_since(Instant::now()));
            }
            PacketSocket::wait(&self.sockets.each_ref(), timeout);
            let mut state = shared.state();
            for direction in 0..2 {
                for _ in 0..BATCH {
                    let Some(bytes) = self.sockets[direction].receive() else {
                        break;
                    };
                    self.take(&mut state, direction, bytes);
                }
            }
            let had_room = self.send_due(&mut state);
            state.waiting = self.queue.len();
            drop(state);
            if !had_room {
                thread::sleep(Duration::from_micros(200));
            }
        }
    }

    fn take(&mut self, state: &mut State, direction: usize, bytes: Vec<u8>) {
        let Some(place) = self.log(&mut state.logs[direction], &bytes) else {
            // Neighbour discovery, SCMP, what routers tell each other.
            self.sockets[1 - direction].try_send(&bytes);
            return;
        };
        let State { mode, logs, .. } = state;
        let mode = match direction {
            0 => *mode,
            _ => Mode::default(),
        };
        if self.rng.random_bool(mode.lost) {
            return;
        }
        let due = Instant::now() + mode.delay;
        if self.rng.random_bool(mode.duplicated) {
            logs[direction].duplicated += 1;
            let due = due + mode.spread.mul_f64(self.rng.random());
            self.wait_until(due, direction, place, bytes.clone());
        }
        let more = if self.rng.random_bool(mode.late) {
            LATE
        } else if self.rng.random_bool(mode.overtaken) {
            mode.spread.mul_f64(self.rng.random())
        } else {
            Duration::ZERO
        };
        logs[direction].delayed += usize::from(!more.is_zero());
        self.wait_until(due + more, direction, place, bytes);
    }

    fn wait_until(&mut self, due: Instant, direction: usize, place: usize, bytes: Vec<u8>) {
        self.count += 1;
        self.queue.push(std::cmp::Reverse(Waiting {
            due,
            number: self.count,
            direction,
            place,
            bytes,
        }));
    }

    /// Writes a frame down, if it is a SIG frame.
    fn log(&self, log: &mut Log, bytes: &[u8]) -> Option<usize> {
        let frame = ethernet::View::new_checked(bytes).ok()?;
        let packet = ipv4::View::new_checked(frame.payload()).ok()?;
        if packet.protocol() != PROTO_UDP {
            return None;
        }
        let underlay = udp::View::new_checked(packet.payload()).ok()?;
        let packet = scion::View::new_checked(underlay.payload()).ok()?;
        let (PROTO_UDP, datagram) = packet.upper_layer().ok()? else {
            return None;
        };
        let datagram = scion::udp::View::new_checked(datagram).ok()?;
        if datagram.header().destination_port != self.port {
            return None;
        }
        let frame = sig_frame::View::new_checked(datagram.payload()).ok()?;
        Some(log.came(&frame, packet.path().bytes()))
    }

    /// Sends on what is due. Returns whether the receivers had room: if not, nothing may pass what they had none for.
    fn send_due(&mut self, state: &mut State) -> bool {
        let now = Instant::now();
        while let Some(next) = self.queue.peek()
            && next.0.due <= now
        {
            let Waiting {
                direction,
                place,
                ref bytes,
                ..
            } = next.0;
            if !self.sockets[1 - direction].try_send(bytes) {
                return false;
            }
            state.logs[direction].sent_on(place);
            self.queue.pop();
        }
        true
    }
}
