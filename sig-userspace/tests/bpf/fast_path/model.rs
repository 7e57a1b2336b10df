//! One gateway, its programs and its workers, over random packets from both sides.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sig_common::addr::{HostAddr, IsdAs};
use sig_common::fast_path::{flow_key, tickets};
use sig_common::maps::Sockets;
use sig_common::wire::flow::flow_hash;
use sig_common::wire::inner::InnerPacket;
use sig_common::wire::template::{FrameFields, Template};
use sig_common::wire::underlay::{self, Parsed};
use sig_core::dataplane::Tables;
use sig_core::framing::NO_START;
use sig_linux::bpf::{Program, Programs};

use super::gateway::{Arrival, Engine, Hex, Out, Pair, Parts, Settings, Side, Waiting};
use super::packets::{Flow, Sender, address, colliding, ethernet, hash_of, icmp_error, is_sound};
use super::plan::{Follower, HOME, IN_KERNEL, MAC, Plan, STRANGE, THEIRS, WORKERS};
use crate::frames::{LO, XDP_DROP, XDP_PASS, XDP_REDIRECT};
use crate::router_support::random::Dice;

/// Sockets of the queue that underlay and LAN share, and of the tunnel's.
pub(crate) const SOCKETS: [Sockets; 2] = [
    Sockets {
        first: 0,
        count: WORKERS as u32,
    },
    Sockets {
        first: WORKERS as u32,
        count: WORKERS as u32,
    },
];
const MS: u64 = 1_000_000;

/// How often what happened, in words.
pub(crate) type Seen = BTreeMap<String, usize>;

/// How often what begins with these words happened.
pub(crate) fn count(seen: &Seen, what: &str) -> usize {
    let with = seen.iter().filter(|(words, _)| words.starts_with(what));
    with.map(|(_, count)| count).sum()
}

/// The programs, and what they are told.
pub(crate) struct Bed {
    pub(crate) programs: Programs,
    pub(crate) follower: Follower,
    pub(crate) settings: Settings,
    /// Of the tables.
    pub(crate) generation: u64,
    pub(crate) next_path: u64,
}

/// In place of the socket of a packet that was handed over without a ticket.
const NO_TICKET: u32 = u32::MAX;

/// What a program did with a frame.
#[derive(Debug)]
enum Way {
    Pass,
    Drop,
    /// To this socket, with this in front.
    Worker(u32, u64),
    /// Out of a device.
    Fast(Vec<u8>),
}

/// A stream of a remote gateway.
struct Line {
    isd_as: IsdAs,
    host: IpAddr,
    port: u16,
    template: Template,
    stream: u32,
    next: u64,
    flows: Vec<Flow>,
    /// Frames that are late, and such that came.
    late: Vec<Vec<u8>>,
    came: VecDeque<Vec<u8>>,
    /// The rest of a packet that began in the last frame.
    rest: Vec<u8>,
    /// So many times as often as on others, nothing is special about a frame.
    calm: usize,
}

/// A stream: ISD-AS, host, port, session and number.
type Stream = (IsdAs, HostAddr, u16, u8, u32);

fn stream_of(parsed: &Parsed) -> Stream {
    let header = &parsed.header;
    (
        parsed.source_isd_as,
        parsed.source,
        parsed.source_port,
        header.session,
        header.stream,
    )
}

/// Frames of a stream that were dropped because the worker was behind. It takes them for received when a later one comes.
#[derive(Default)]
struct Dropped {
    /// Behind the last one.
    end: u64,
    /// Frames without packets in their places.
    fillers: Vec<Vec<u8>>,
}

/// What stays with a worker while something of it is there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    Stream(Stream),
    Flow(FlowKey),
}

/// A flow, as far as its order is kept: of fragments, the hash tells that they are some.
type FlowKey = ([u64; 5], u32);
/// A flow on a stream.
type FlowOnStream = (FlowKey, u32);

/// The flow of a packet in an Ethernet frame.
fn flow_of(frame: &[u8]) -> Option<FlowKey> {
    let inner = InnerPacket::parse(frame.get(14..)?).ok()?;
    let mut key = flow_key(&inner);
    // The traffic class is no part of a flow.
    key[4] &= !(0xff << 40);
    Some((key, flow_hash(&inner)))
}

pub(crate) struct Model<'a> {
    bed: &'a mut Bed,
    dice: Dice,
    now: u64,
    plan: Plan,
    pairs: Vec<Pair>,
    /// Workers that know of no programs, with the tables that are in force: two while they change.
    probes: Vec<Engine>,
    /// Remotes that `sig_underlay` admits.
    admitted: HashSet<(IsdAs, HostAddr)>,
    flows: Vec<Flow>,
    lines: Vec<Line>,
    backlog: u64,
    arrivals: u64,
    /// Last arrival and sequence number.
    order: HashMap<FlowOnStream, (u64, u64)>,
    numbers: HashSet<(u32, u64)>,
    dropped: HashMap<Stream, Dropped>,
    /// Streams and flows of which a worker has handled something that may not have left yet, by worker.
    leaving: [HashSet<Owner>; WORKERS],
    seen: &'a mut Seen,
    /// What happened last.
    log: VecDeque<String>,
}

/// Whether the packet is in several buffers: the first one of a test run holds about 3500 bytes.
fn is_jumbo(frame: &[u8]) -> bool {
    frame.len() > 3600
}

/// More packets than ever wait for a worker.
const MANY: u64 = 1_000_000;
/// How much of what happened is told with a failure.
const LOG: usize = 100;

impl<'a> Model<'a> {
    pub(crate) fn new(bed: &'a mut Bed, seed: u64, seen: &'a mut Seen) -> Self {
        let mut dice = Dice::new(seed);
        let plan = Plan::any(&mut dice, bed.next_path);
        let now = 1_000 * MS * (1 + seed);
        bed.programs
            .set_underlay_port(LO, &plan.local(), MAC)
            .expect("an underlay port");
        bed.programs
            .set_lan_port(LO, MAC, true, plan.mtu as u32)
            .expect("a LAN port");
        bed.programs
            .set_fast(LO, bed.settings.partial_checksums)
            .expect("the fast path");
        let tables = Arc::new(Tables::empty(plan.local()));
        let shared = bed.follower.maps.shared().clone();
        let pair = |number: usize| {
            let engine = || Engine::new(number, bed.settings, tables.clone());
            Pair {
                engine: engine().teach(&shared, WORKERS),
                oracle: engine(),
                waiting: VecDeque::new(),
            }
        };
        let backlog = dice.one(&[3, 20, MANY, MANY, MANY]);
        shared.set_backlog(backlog);
        shared.set_generation(0);
        let mut model = Self {
            pairs: (0..WORKERS).map(pair).collect(),
            probes: Vec::new(),
            admitted: HashSet::new(),
            flows: Vec::new(),
            lines: Vec::new(),
            backlog,
            arrivals: 0,
            order: HashMap::new(),
            numbers: HashSet::new(),
            dropped: HashMap::new(),
            leaving: Default::default(),
            now,
            plan,
            dice,
            bed,
            seen,
            log: VecDeque::new(),
        };
        model.apply(model.plan.clone());
        model.populate();
        model
    }

    fn saw(&mut self, what: impl Into<String>) {
        *self.seen.entry(what.into()).or_default() += 1;
    }

    fn log(&mut self, what: String) {
        if self.log.len() == LOG {
            self.log.pop_front();
        }
        self.log.push_back(what);
    }

    /// What happened last, a line each.
    pub(crate) fn story(&self) -> String {
        self.log
            .iter()
            .flat_map(|line| [line.as_str(), "\n"])
            .collect()
    }

    /// Flows and streams that most packets belong to.
    fn populate(&mut self) {
        let dice = &mut self.dice;
        let v6 = |dice: &mut Dice| dice.percent(40);
        for _ in 0..12 {
            let v6 = v6(dice);
            let to = match dice.below(20) {
                0 => STRANGE,
                1 => HOME,
                2 => THEIRS + dice.below(4) as u8,
                _ => THEIRS + dice.one(&self.plan.remotes).number as u8,
            };
            let from = if dice.percent(90) { HOME } else { STRANGE };
            let source = address(v6, from, 2 + dice.below(20) as u8);
            let destination = address(v6, to, 1 + dice.below(3) as u8);
            let flow = Flow::any(dice, source, destination);
            self.flows.push(flow.clone());
            if dice.percent(30) {
                // The same but for what classes look at.
                self.flows.push(Flow {
                    tos: dice.one(&[0, 1, 0xb8]),
                    ..flow
                });
            }
        }
        let hosts = [2, 3].map(|host| (address(false, HOME, host), address(false, THEIRS, host)));
        if dice.percent(40)
            && let Some(flows) = colliding(dice, hosts)
        {
            self.flows.extend(flows);
        }
        for _ in 0..6 {
            self.line();
        }
    }

    fn line(&mut self) {
        let dice = &mut self.dice;
        let number = match dice.percent(85) {
            true => dice.one(&self.plan.remotes).number as u8,
            false => dice.below(4) as u8,
        };
        let known = self
            .plan
            .remotes
            .iter()
            .find(|remote| remote.number == u16::from(number));
        let (isd_as, host) = match known {
            Some(remote) => (remote.isd_as, remote.host),
            None => (
                IsdAs::new(1, 0xff00_0000_0200 + u64::from(number)),
                address(self.plan.v6, 200, number),
            ),
        };
        let flows = (0..4)
            .map(|_| {
                let v6 = dice.percent(40);
                let from = match dice.below(12) {
                    0 => STRANGE,
                    1 => HOME,
                    2 => THEIRS + dice.below(3) as u8,
                    _ => THEIRS + number,
                };
                let to = if dice.percent(93) { HOME } else { THEIRS };
                let to = address(
                    v6,
                    to,
                    dice.one(&[1, 2, 2, 2, 3, 3, 4, 4, 5, 6, 18, 20, 33, 48, 70]),
                );
                let from = address(v6, from, 1 + dice.below(3) as u8);
                Flow::any(dice, from, to)
            })
            .collect();
        let port = dice.one(&[30056, 30056, 4000]);
        let session = dice.one(&[0, 0, 1, 2]);
        // What is dropped because a worker is behind counts as received, and all before; the oracle knows of no such thing where more is
        // missing, or others send as well.
        let (number, calm) = match self.backlog {
            MANY => {
                let number = dice.below(8) as u32 | dice.one(&[0, 0x40, IN_KERNEL]);
                (number, dice.one(&[1, 6, 30]))
            }
            _ => (self.lines.len() as u32, 1_000_000),
        };
        self.lines.push(Line {
            isd_as,
            host,
            port,
            template: self.plan.from(isd_as, host, port, session),
            stream: number,
            next: dice.one(&[0, 0, 1, 5000, u64::MAX - 200, (1 << 63) - 150]),
            flows,
            late: Vec::new(),
            came: VecDeque::new(),
            rest: Vec::new(),
            calm,
        });
    }

    /// Something happens.
    pub(crate) fn step(&mut self) -> Result<(), String> {
        match self.dice.below(100) {
            0 => self.change()?,
            1 => {
                // Silent streams are forgotten, and with them what was dropped of them.
                let long = if self.backlog == MANY { 5 } else { 3 };
                let times = [20 * MS, 200 * MS, 1_100 * MS, 33_000 * MS, 70_000 * MS];
                let later = self.dice.one(&times[..long]);
                self.wait(later)?;
            }
            2 if self.lines.len() < 12 => self.line(),
            3..50 => self.egress()?,
            _ => {
                // The last ones have more to bring.
                let some = self.dice.one(&[1, 2, 3, self.lines.len()]);
                let line = self.lines.len() - 1 - self.dice.below(some);
                for _ in 0..1 + self.dice.below(12) {
                    for frame in self.frames_of(line) {
                        self.ingress(frame)?;
                        self.sometimes_work()?;
                    }
                    let wait = self.dice.one(&[0, MS, 10 * MS, 12 * MS]);
                    self.wait(wait)?;
                }
            }
        }
        self.sometimes_work()
    }

    /// Nothing may be left behind.
    pub(crate) fn end(&mut self) -> Result<(), String> {
        for worker in 0..WORKERS {
            self.work(worker, usize::MAX)?;
        }
        self.wait(2_000 * MS)
    }

    fn run(&self, program: Program, frame: &[u8]) -> Result<Way, String> {
        let outcome = self
            .bed
            .programs
            .test_run(program, frame)
            .map_err(|e| e.to_string())?;
        let rest = outcome
            .frame
            .len()
            .checked_sub(8)
            .filter(|at| *at == frame.len())
            .map(|_| &outcome.frame[8..]);
        match outcome.action {
            XDP_PASS if outcome.frame == frame => Ok(Way::Pass),
            XDP_DROP => Ok(Way::Drop),
            XDP_REDIRECT if rest == Some(frame) => {
                let word = u64::from_ne_bytes(outcome.frame[..8].try_into().expect("eight bytes"));
                let (ticket, of) = tickets::decompose(word);
                let socket = of.checked_sub(1).ok_or("a ticket of no socket")?;
                let given = self.tickets(socket)[tickets::GIVEN];
                if ticket != given {
                    return Err(format!("ticket {ticket}, but {given} have been given"));
                }
                Ok(Way::Worker(socket, word))
            }
            // Of no stream that the programs could take.
            XDP_REDIRECT if outcome.frame == frame => Ok(Way::Worker(NO_TICKET, 0)),
            XDP_REDIRECT => Ok(Way::Fast(outcome.frame)),
            action => Err(format!("action {action}, or a changed frame")),
        }
    }

    fn tickets(&self, socket: u32) -> [u64; tickets::WORDS] {
        let words: &[[_; tickets::WORDS]] =
            self.bed.follower.maps.shared().tickets.all().as_chunks().0;
        std::array::from_fn(|word| words[socket as usize][word].load(Ordering::Relaxed))
    }

    /// Whether packets that wait for the worker behind a socket are so many that it counts as being behind, or were and it has
    /// not come so far yet.
    fn is_behind(&self, socket: u32) -> bool {
        let words = self.tickets(socket);
        let waiting = words[tickets::GIVEN].saturating_sub(words[tickets::TAKEN]);
        waiting > self.backlog || words[tickets::DONE] < words[tickets::DRAINED]
    }

    fn hand_over(
        &mut self,
        side: Side,
        frame: Vec<u8>,
        metadata: (u32, u64),
        worker: usize,
        that: String,
    ) {
        self.arrivals += 1;
        let owner = self.owner(side, &frame);
        self.pairs[worker].waiting.push_back(Waiting {
            owner,
            side,
            frame,
            metadata,
            arrival: self.arrivals,
            that,
        });
    }

    /// Time passes. Workers look at their streams at least once a second.
    fn wait(&mut self, mut time: u64) -> Result<(), String> {
        while time > 0 {
            let step = time.min(500 * MS);
            time -= step;
            self.tick(step)?;
        }
        Ok(())
    }

    fn tick(&mut self, time: u64) -> Result<(), String> {
        self.now += time;
        if time >= 100 * MS {
            self.log(format!("{} ms later", time / MS));
        }
        for (pair, leaving) in self.pairs.iter_mut().zip(&mut self.leaving) {
            let engine = pair.engine.run(self.now, None);
            let oracle = pair.oracle.run(self.now, None);
            if engine != oracle {
                return Err(format!("what was held: engine {engine}\noracle {oracle}"));
            }
            pair.engine.publish(self.now);
            leaving.clear();
        }
        Ok(())
    }

    fn sometimes_work(&mut self) -> Result<(), String> {
        for worker in 0..WORKERS {
            let count = match self.dice.below(10) {
                0..5 => usize::MAX,
                5 => 1,
                6 => 3,
                _ => continue,
            };
            self.work(worker, count)?;
        }
        Ok(())
    }

    /// A worker handles so many of the packets that wait for it.
    fn work(&mut self, worker: usize, count: usize) -> Result<(), String> {
        let now = self.now;
        for _ in 0..count.min(self.pairs[worker].waiting.len()) {
            let pair = &mut self.pairs[worker];
            let Some(waiting) = pair.waiting.pop_front() else {
                break;
            };
            let Waiting {
                side,
                frame,
                metadata,
                arrival,
                that,
                owner,
            } = waiting;
            self.leaving[worker].extend(owner);
            if let Some(parsed) = self.parsed(side, &frame) {
                let header = parsed.header;
                self.log(format!(
                    "worker {worker}: {:x} {}",
                    header.stream, header.sequence
                ));
            }
            let oracle = self.ask(worker, side, &frame);
            let pair = &mut self.pairs[worker];
            let engine = pair.engine.run(
                now,
                Some(Arrival {
                    side,
                    bytes: &frame,
                    metadata: Some(metadata),
                }),
            );
            let fail = |what: &str| {
                format!(
                    "{side:?}, {that}: {what}\npacket {}\nengine {engine}\noracle {oracle}",
                    Hex(&frame)
                )
            };
            if engine.tunnel != oracle.tunnel
                || engine.lan != oracle.lan
                || engine.underlay.len() != oracle.underlay.len()
            {
                let drops = [&pair.engine, &pair.oracle].map(Engine::drops);
                return Err(fail(&format!("engine and oracle differ, drops {drops:?}")));
            }
            for (engine, oracle) in engine.underlay.iter().zip(&oracle.underlay) {
                same_frame(engine, oracle, true).map_err(|what| fail(&what))?;
                self.number(engine, &frame, arrival)
                    .map_err(|what| fail(&what))?;
            }
        }
        let pair = &mut self.pairs[worker];
        if self.dice.percent(80) {
            pair.engine.publish(now);
            self.leaving[worker].clear();
        }
        Ok(())
    }

    /// What becomes of a frame with the worker that knows of no programs.
    fn ask(&mut self, worker: usize, side: Side, frame: &[u8]) -> Out {
        let now = self.now;
        let mut out = Out::default();
        let verifies = self.bed.settings.verify_checksums;
        let parsed = self.parsed(side, frame).filter(|parsed| {
            let at = usize::from(parsed.l4) + 6;
            !verifies || frame[at..at + 2] == [0, 0] || parsed.checksum_is_valid(frame)
        });
        let oracle = &mut self.pairs[worker].oracle;
        if let Some(parsed) = parsed
            && let Some(dropped) = self.dropped.get_mut(&stream_of(&parsed))
            && dropped.end <= parsed.header.sequence
        {
            for filler in dropped.fillers.drain(..) {
                let arrival = Arrival::new(Side::Underlay, &filler);
                out.append(oracle.run(now, Some(arrival)));
            }
        }
        out.append(oracle.run(now, Some(Arrival::new(side, frame))));
        out
    }

    /// What a frame belongs to.
    fn owner(&self, side: Side, frame: &[u8]) -> Option<Owner> {
        match side {
            Side::Underlay => Some(Owner::Stream(stream_of(&self.parsed(side, frame)?))),
            Side::Lan | Side::Tunnel => Some(Owner::Flow(flow_of(frame)?)),
        }
    }

    /// A program may send or deliver a frame only if all of its kind has left the worker.
    fn has_left(&self, side: Side, frame: &[u8], worker: usize) -> Result<(), String> {
        let owner = self.owner(side, frame);
        let waiting = &self.pairs[worker].waiting;
        let waits = waiting.iter().any(|waiting| waiting.owner == owner);
        if waits || owner.is_some_and(|owner| self.leaving[worker].contains(&owner)) {
            return Err("a worker still has something of it".into());
        }
        Ok(())
    }

    /// The frame of a known remote, if it is one.
    fn parsed(&self, side: Side, frame: &[u8]) -> Option<Parsed> {
        if side != Side::Underlay {
            return None;
        }
        let parsed = underlay::parse(frame, &self.plan.local()).ok().flatten();
        parsed.filter(|parsed| self.admits(parsed))
    }

    /// A frame with this packet leaves: its number must be new, and its flow in order.
    fn number(&mut self, frame: &[u8], packet: &[u8], arrival: u64) -> Result<(), String> {
        let parts = Parts::of(frame);
        let (stream, sequence) = (parts.stream(frame), parts.sequence(frame));
        if stream & IN_KERNEL == 0 {
            return Ok(());
        }
        if !self.numbers.insert((stream, sequence)) {
            return Err(format!(
                "number {sequence} of stream {stream} is there twice"
            ));
        }
        let flow = flow_of(packet).ok_or("a packet that is none")?;
        let last = self.order.insert((flow, stream), (arrival, sequence));
        match last {
            Some((before, number)) if before > arrival || (number > sequence) => Err(format!(
                "out of order: packet {arrival} has number {sequence}, packet {before} {number}"
            )),
            _ => Ok(()),
        }
    }

    fn egress(&mut self) -> Result<(), String> {
        let dice = &mut self.dice;
        let tunnel = dice.percent(25);
        let virtual_hosts = !tunnel && self.bed.settings.partial_checksums;
        let sender = if virtual_hosts {
            Sender::Virtual
        } else {
            Sender::Any
        };
        let flow = dice.one(&self.flows);
        let calm = dice.one(&[1, 5]);
        for _ in 0..dice.one(&[1, 4, 8, 12]) {
            let packet = flow.packet(&mut self.dice, self.plan.mtu, sender, calm);
            let mut frame = ethernet(MAC, &packet.bytes);
            frame.resize(
                frame.len().max(if self.dice.percent(50) { 60 } else { 14 }),
                0,
            );
            self.egress_of(tunnel, frame, &packet.that)?;
            self.sometimes_work()?;
        }
        Ok(())
    }

    fn egress_of(
        &mut self,
        tunnel: bool,
        frame: Vec<u8>,
        that: &[&'static str],
    ) -> Result<(), String> {
        let (program, side) = if tunnel {
            (Program::Tunnel, Side::Tunnel)
        } else {
            (Program::Lan, Side::Lan)
        };
        let way = self.run(program, &frame)?;
        let hash = hash_of(&frame[14..]).unwrap_or(0);
        let socket = SOCKETS[usize::from(tunnel)]
            .pick(hash.rotate_left(16))
            .ok_or("no socket")?;
        let worker = socket as usize % WORKERS;
        let fail = |what: String| format!("{side:?}, {that:?}: {what}\npacket {}", Hex(&frame));
        match way {
            Way::Pass => self.saw(format!("{side:?}: pass")),
            Way::Drop if self.is_behind(socket) => self.saw(format!("{side:?}: worker behind")),
            Way::Drop => return Err(fail("dropped".into())),
            Way::Worker(to, _) if ![socket, NO_TICKET].contains(&to) => {
                return Err(fail(format!("to socket {to}")));
            }
            Way::Worker(_, word) => {
                self.saw(format!("{side:?}: worker"));
                self.hand_over(side, frame, (socket, word), worker, format!("{that:?}"));
            }
            Way::Fast(sent) => {
                let now = self.now;
                let outs: Vec<Out> = self
                    .probes
                    .iter_mut()
                    .map(|probe| probe.run(now, Some(Arrival::new(side, &frame))))
                    .collect();
                let sound = is_sound(&frame[14..], !tunnel && self.bed.settings.partial_checksums);
                let mut differences = Vec::new();
                for out in &outs {
                    let difference = match (&out.underlay[..], out.tunnel.is_empty()) {
                        ([expected], true) => same_frame(&sent, expected, sound),
                        _ => Err(format!(
                            "the oracle sends {} frames, {} to the host",
                            out.underlay.len(),
                            out.tunnel.len()
                        )),
                    };
                    differences.extend(difference.err());
                }
                if differences.len() == outs.len() {
                    return Err(fail(format!(
                        "{differences:?}\nsent {}\noracle {}",
                        Hex(&sent),
                        outs[0]
                    )));
                }
                self.has_left(side, &frame, worker).map_err(fail)?;
                self.arrivals += 1;
                self.number(&sent, &frame, self.arrivals).map_err(fail)?;
                let protocol = InnerPacket::parse(&frame[14..]).map_or(0, |inner| inner.protocol);
                if is_jumbo(&frame) {
                    self.saw(format!("{side:?}: fast, jumbo"));
                }
                self.saw(format!(
                    "{side:?}: fast, IPv{}, protocol {protocol}",
                    frame[14] >> 4
                ));
                for that in that {
                    self.saw(format!("{side:?}: fast, {that}"));
                }
            }
        }
        Ok(())
    }

    /// Frames that come in one after the other on a line; mostly one.
    fn frames_of(&mut self, line: usize) -> Vec<Vec<u8>> {
        let Self {
            dice, lines, plan, ..
        } = self;
        let line = &mut lines[line];
        let packet = |dice: &mut Dice, line: &Line| {
            if dice.below(40 * line.calm.min(6)) == 0 {
                let flow = dice.one(&line.flows);
                let from = address(flow.source.is_ipv6(), STRANGE, 1);
                return icmp_error(dice, from, flow.destination, flow.source);
            }
            let mut flow = dice.one(&line.flows);
            if dice.below(25 * line.calm) == 0 {
                flow.source = address(flow.source.is_ipv6(), STRANGE, 1);
            }
            flow.packet(dice, plan.mtu - 100, Sender::Any, line.calm.min(30))
                .bytes
        };
        let (mut payload, mut index) = (std::mem::take(&mut line.rest), 0);
        if !payload.is_empty() {
            index = payload.len() as u16;
            match dice.percent(30) {
                true => payload.extend(packet(dice, line)),
                false => index = NO_START,
            }
        } else {
            match dice.below(40 * line.calm) {
                0 => index = NO_START,
                1 => {
                    let whole = packet(dice, line);
                    let at = dice.below(whole.len());
                    line.rest = whole[at..].to_vec();
                    payload = whole[..at].to_vec();
                }
                2 | 3 => {
                    payload = packet(dice, line);
                    payload.extend(packet(dice, line));
                }
                4 => {
                    payload = packet(dice, line);
                    payload.extend(dice.bytes::<7>());
                }
                5 => {
                    payload = packet(dice, line);
                    index = dice.one(&[1, 20, NO_START]);
                }
                _ => payload = packet(dice, line),
            }
        }
        payload.truncate(9000);
        let tos = payload
            .get(1)
            .filter(|_| dice.percent(90))
            .map_or(0xb9, |tos| *tos);
        let fields = FrameFields {
            traffic_class: if payload.first().is_some_and(|first| first >> 4 == 4) {
                tos
            } else {
                dice.one(&[0, 2, 0xb8])
            },
            flow_hash: u32::from(dice.number()),
            stream: line.stream,
            sequence: line.next,
            index,
        };
        line.next = line.next.wrapping_add(1);
        let mut frame = [line.template.headers(), &payload].concat();
        line.template
            .write(&mut frame, &fields)
            .expect("room for the headers");
        let parts = Parts::of(&frame);
        match dice.below(60 * line.calm) {
            0 => frame[parts.l4 + 6..parts.l4 + 8].fill(0),
            1 => frame[parts.l4 + 6 + dice.below(2)] ^= 1 << dice.below(8),
            2 => {
                let at = dice.below(frame.len());
                frame[at] ^= 1 << dice.below(8);
            }
            3 => {
                let at = (parts.sig + 16 + dice.below(80)).min(frame.len() - 1);
                frame[at] = dice.byte();
                if dice.percent(50) {
                    parts.seal(&mut frame);
                }
            }
            4 => mark(&mut frame, dice),
            5 => frame.extend(std::iter::repeat_n(0, dice.one(&[1, 6, 60, 64, 65, 100]))),
            6 => line.next = line.next.wrapping_add(dice.one(&[1, 1, 2, 5, 70, 3000])),
            7 => line.next = line.next.wrapping_sub(dice.one(&[1, 1, 2, 30, 3000])),
            8 => {
                line.late.push(frame);
                return Vec::new();
            }
            9 => frame.truncate(14 + dice.below(frame.len() - 13)),
            10 => {
                // Of another remote, or of nobody.
                let host = address(plan.v6, 200, dice.below(5) as u8);
                let template = plan.from(line.isd_as, host, line.port, 0);
                frame = [template.headers(), &payload].concat();
                template
                    .write(&mut frame, &fields)
                    .expect("room for the headers");
            }
            11 => {
                let template = plan.from(line.isd_as, line.host, line.port, 9);
                frame = [template.headers(), &payload].concat();
                template
                    .write(&mut frame, &fields)
                    .expect("room for the headers");
            }
            _ => {}
        }
        let mut frames = vec![frame];
        if dice.below(20 * line.calm) == 0 && !line.late.is_empty() {
            frames.push(line.late.remove(0));
        }
        if dice.below(25 * line.calm) == 0
            && let Some(again) = line.came.get(dice.below(line.came.len().max(1)))
        {
            frames.push(again.clone());
        }
        line.came.extend(frames.first().cloned());
        if line.came.len() > 40 {
            line.came.pop_front();
        }
        frames
    }

    fn admits(&self, parsed: &Parsed) -> bool {
        self.admitted
            .contains(&(parsed.source_isd_as, parsed.source))
    }

    fn ingress(&mut self, frame: Vec<u8>) -> Result<(), String> {
        let way = self.run(Program::Underlay, &frame)?;
        let parsed = self.parsed(Side::Underlay, &frame);
        let fail = |what: &str| format!("Underlay: {what}\nframe {}", Hex(&frame));
        let (way, parsed) = match (way, parsed) {
            (Way::Pass, _) => {
                self.saw("Underlay: pass");
                return Ok(());
            }
            (Way::Drop, None) => {
                self.saw("Underlay: drop");
                return Ok(());
            }
            (way, Some(parsed)) => (way, parsed),
            (way, None) => return Err(fail(&format!("{way:?} of a frame that is none"))),
        };
        let socket = SOCKETS[0].pick(parsed.header.stream).ok_or("no socket")?;
        let header = parsed.header;
        let kind = match &way {
            Way::Pass => "pass",
            Way::Drop => "drop",
            Way::Worker(..) => "worker",
            Way::Fast(_) => "fast",
        };
        self.log(format!(
            "{} frame {}:{} {} {:x} {}, index {}, {} bytes: {kind}",
            self.now / MS,
            parsed.source_isd_as,
            parsed.source_port,
            header.session,
            header.stream,
            header.sequence,
            header.index,
            parsed.payload().len(),
        ));
        let worker = socket as usize % WORKERS;
        match way {
            Way::Pass => {}
            Way::Drop if self.is_behind(socket) => {
                self.saw("Underlay: worker behind");
                let filler = self.filler(&parsed)?;
                for line in &mut self.lines {
                    line.came.retain(|came| *came != frame);
                }
                let dropped = self.dropped.entry(stream_of(&parsed)).or_default();
                dropped.end = parsed.header.sequence.wrapping_add(1);
                dropped.fillers.push(filler);
            }
            Way::Drop => return Err(fail("dropped")),
            Way::Worker(to, _) if ![socket, NO_TICKET].contains(&to) => {
                return Err(fail(&format!("to socket {to}")));
            }
            Way::Worker(_, word) => {
                self.saw("Underlay: worker");
                self.hand_over(Side::Underlay, frame, (socket, word), worker, String::new());
            }
            Way::Fast(delivered) => {
                let left = self.has_left(Side::Underlay, &frame, worker);
                left.map_err(|what| fail(&what))?;
                let mut given = frame.clone();
                let l4 = usize::from(parsed.l4);
                let is_whole = !self.bed.settings.verify_checksums
                    || frame[l4 + 6..l4 + 8] == [0, 0]
                    || parsed.checksum_is_valid(&frame);
                if !is_whole {
                    // A damaged payload is left to the host, if its own checksum says so.
                    if is_sound(&frame[parsed.payload()], false) {
                        return Err(fail("delivered in spite of a wrong checksum"));
                    }
                    self.saw("Underlay: fast, damaged");
                    given[l4 + 6..l4 + 8].fill(0);
                }
                let out = self.ask(worker, Side::Underlay, &given);
                let mut straight = out.lan.iter().flatten();
                let expected = (straight.next(), straight.next());
                if !out.tunnel.is_empty()
                    || !out.underlay.is_empty()
                    || expected != (Some(&delivered), None)
                {
                    return Err(fail(&format!(
                        "delivered {}\noracle {out}",
                        Hex(&delivered)
                    )));
                }
                let inner = InnerPacket::parse(&delivered[14..]).map_err(|e| e.to_string())?;
                if is_jumbo(&frame) {
                    self.saw("Underlay: fast, jumbo");
                }
                self.saw(format!(
                    "Underlay: fast, IPv{}, protocol {}",
                    delivered[14] >> 4,
                    inner.protocol
                ));
            }
        }
        Ok(())
    }

    /// A frame without packets in the place of another one.
    fn filler(&self, parsed: &Parsed) -> Result<Vec<u8>, String> {
        let host = match parsed.source {
            HostAddr::V4(host) => IpAddr::from(host),
            HostAddr::V6(host) => IpAddr::from(host),
            HostAddr::Svc(_) => return Err("a service sends".into()),
        };
        let template = self.plan.from(
            parsed.source_isd_as,
            host,
            parsed.source_port,
            parsed.header.session,
        );
        let fields = FrameFields {
            traffic_class: 0,
            flow_hash: 0,
            stream: parsed.header.stream,
            sequence: parsed.header.sequence,
            index: NO_START,
        };
        let mut frame = template.headers().to_vec();
        template
            .write(&mut frame, &fields)
            .ok_or("no room for the headers")?;
        Ok(frame)
    }

    /// The plan changes somewhere.
    fn change(&mut self) -> Result<(), String> {
        let mut plan = self.plan.clone();
        plan.change(&mut self.dice);
        let known = |plan: &Plan| -> HashSet<(IsdAs, IpAddr, u32)> {
            plan.remotes
                .iter()
                .map(|remote| (remote.isd_as, remote.host, remote.number.into()))
                .collect()
        };
        let both = known(&self.plan)
            .intersection(&known(&plan))
            .copied()
            .collect();
        self.admit(both);
        let tables = self.prepare(&plan);
        self.probes
            .push(Engine::new(0, self.bed.settings, tables.clone()));
        for worker in [0, 1] {
            for _ in 0..self.dice.below(4) {
                self.egress()?;
            }
            for engine in 0..2 {
                let pair = &mut self.pairs[worker];
                let engine = if engine == 0 {
                    &mut pair.engine
                } else {
                    &mut pair.oracle
                };
                engine.tables = tables.clone();
            }
        }
        for _ in 0..self.dice.below(4) {
            self.egress()?;
        }
        self.plan = plan;
        self.commit();
        self.saw("plan: another one");
        Ok(())
    }

    fn apply(&mut self, plan: Plan) {
        self.admit(HashSet::new());
        let tables = self.prepare(&plan);
        self.probes = vec![Engine::new(0, self.bed.settings, tables.clone())];
        self.probes
            .push(Engine::new(0, self.bed.settings, tables.clone()));
        for pair in &mut self.pairs {
            pair.engine.tables = tables.clone();
            pair.oracle.tables = tables.clone();
        }
        self.plan = plan;
        self.commit();
    }

    fn prepare(&mut self, plan: &Plan) -> Arc<Tables> {
        self.bed.generation += 1;
        self.bed.next_path = self.bed.next_path.max(plan.next_path());
        let mut tables = plan.tables(self.bed.generation);
        self.bed.follower.prepare(&mut tables);
        Arc::new(tables)
    }

    fn commit(&mut self) {
        self.bed.follower.commit();
        self.probes.remove(0);
        let all = self
            .plan
            .remotes
            .iter()
            .map(|remote| (remote.isd_as, remote.host, remote.number.into()));
        self.admit(all.collect());
    }

    fn admit(&mut self, remotes: HashSet<(IsdAs, IpAddr, u32)>) {
        self.admitted = remotes
            .iter()
            .map(|(isd_as, host, _)| (*isd_as, (*host).into()))
            .collect();
        self.bed.programs.set_remotes(remotes).expect("remotes");
    }
}

/// Marks a frame as having met congestion.
fn mark(frame: &mut [u8], dice: &mut Dice) {
    let parts = Parts::of(frame);
    if dice.percent(70) {
        parts.mark_outside(frame);
    }
    if dice.percent(50) {
        parts.mark_scion(frame);
        parts.seal(frame);
    }
}

/// Whether `sent` is what the oracle sent, but for its place in a stream, and all checksums are right. `sound`: so is the one inside.
fn same_frame(sent: &[u8], oracle: &[u8], sound: bool) -> Result<(), String> {
    if sent.len() != oracle.len() {
        return Err(format!("{} bytes instead of {}", sent.len(), oracle.len()));
    }
    let parts = Parts::of(oracle);
    let mut again = oracle.to_vec();
    parts.seal(&mut again);
    if again != oracle {
        return Err("the oracle has a wrong checksum".into());
    }
    let mut expected = oracle.to_vec();
    parts.renumber(&mut expected, parts.stream(sent), parts.sequence(sent));
    let mut sent = sent.to_vec();
    if !sound {
        for frame in [&mut sent, &mut expected] {
            frame[parts.l4 + 6..parts.l4 + 8].fill(0);
        }
    }
    match sent.iter().zip(&expected).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => Err(format!(
            "byte {at} differs (payload at {}): {:02x} instead of {:02x}",
            parts.sig + 16,
            sent[at],
            expected[at]
        )),
    }
}
