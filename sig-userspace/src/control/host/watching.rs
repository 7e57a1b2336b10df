//! Packets for whoever watches: what workers copy, with the names of what they belong to.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak, mpsc::RecvTimeoutError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use sig_common::{
    addr::IsdAs,
    maps::{DROPPED_BYTES, Dropped, TUNNEL_PORT},
    reason::DropReason,
    wire::{ethernet, inner::InnerPacket},
};

use super::{HostHandle, Shared, lock};
use sig_core::{
    dataplane::Tables,
    notation::base64,
    port::Role,
    tap::{Event, Line, Outer, Packet, Point, Seen, Wanted, Watching, remote_of, whole},
};
use sig_linux::bpf::monotonic_ns;

/// How long a call may wait for a packet.
const WAIT: Duration = Duration::from_millis(100);
/// Between reads of what programs in the kernel dropped: their ring is short.
const DRAIN: Duration = Duration::from_millis(10);
/// Between signs of life, and looks at names.
const ALIVE: Duration = Duration::from_secs(1);

/// Bytes sent at once, plus at most one line.
const AT_ONCE: usize = 1 << 15;

/// Copies of dropped packets that are read from the kernel in a row: more than fit the ring.
const MAX_AT_ONCE: usize = DROPPED_BYTES as usize / size_of::<Dropped>();

/// What somebody sees. With it, the watching ends.
pub(crate) struct Watch {
    watching: Watching,
    wants_drops: bool,
    shared: Weak<Shared>,
    names: Names,
    looked: Instant,
    /// When drops of the programs in the kernel were read.
    drained: Instant,
    /// Who watches.
    by: String,
    /// Drops without a packet that were counted at the last look, by place and reason.
    counted: BTreeMap<(&'static str, DropReason), u64>,
    /// Drops beyond the limit of a second at the last look.
    more: [u64; DropReason::COUNT],
    waiting: Vec<Line>,
    wish: Wish,
}

/// What watchers want of the programs in the kernel.
#[derive(Default)]
pub(super) struct Wishes {
    /// How many want packets that could take the fast path, and do not meanwhile.
    passing: usize,
    /// How many want copies of what programs drop.
    drops: usize,
    /// By their numbers, of how many drops of each reason there were copies.
    copied: BTreeMap<u8, u64>,
}

/// A watcher's wishes. They end with this.
struct Wish {
    shared: Weak<Shared>,
    passing: bool,
    drops: bool,
}

impl Wish {
    fn new(shared: &Arc<Shared>, wanted: &Wanted) -> Self {
        let wish = Wish {
            shared: Arc::downgrade(shared),
            passing: wanted.passing(),
            drops: wanted.drops,
        };
        let mut wishes = lock(&shared.wishes);
        wishes.passing += usize::from(wish.passing);
        wishes.drops += usize::from(wish.drops);
        if wish.passing && wishes.passing == 1 {
            enable_fast_path(shared, false);
        }
        if wish.drops && wishes.drops == 1 {
            copy_drops(shared, true);
        }
        wish
    }
}

impl Drop for Wish {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let mut wishes = lock(&shared.wishes);
        wishes.passing -= usize::from(self.passing);
        wishes.drops -= usize::from(self.drops);
        if self.passing && wishes.passing == 0 {
            enable_fast_path(&shared, true);
        }
        if self.drops && wishes.drops == 0 {
            copy_drops(&shared, false);
        }
    }
}

fn enable_fast_path(shared: &Shared, on: bool) {
    let mut engine = lock(&shared.engine);
    let Some(programs) = engine.in_kernel() else {
        return;
    };
    programs.enable(on);
    match on {
        false => tracing::info!(
            "all packets go through the workers while packets are captured, not the fast path"
        ),
        true => tracing::info!("simple packets take the fast path again"),
    }
}

fn copy_drops(shared: &Shared, on: bool) {
    let mut programs = lock(&shared.programs);
    let Some(programs) = programs.as_mut() else {
        return;
    };
    if on {
        // What is left from the last time is nobody's.
        programs.dropped(MAX_AT_ONCE, |_, _| {});
    }
    if let Err(error) = programs.set_drops_wanted(on) {
        tracing::warn!("cannot tell the BPF programs whether dropped packets are wanted: {error}");
    }
}

/// What the numbers in packets stand for.
struct Names {
    tables: Arc<Tables>,
    /// As in the tables.
    paths: Vec<PathName>,
    lan: BTreeMap<u16, String>,
    /// The numbers of LAN interfaces by their indexes.
    lan_numbers: BTreeMap<u32, u16>,
    underlay: String,
    underlay_index: Option<u32>,
    tunnel: String,
    /// Time 0 of the workers' clock, nanoseconds since 1970.
    start: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct PathName {
    remote: IsdAs,
    session: u8,
    name: String,
    raw: Arc<[u8]>,
}

impl HostHandle {
    /// Begins to watch.
    ///
    /// # Errors
    ///
    /// If too many watch, or the filter is wrong.
    pub(crate) fn watch(&self, wanted: &Wanted, by: &str) -> Result<Watch, String> {
        if !(wanted.inner || wanted.outer || wanted.drops) {
            return Err("nothing to watch: ask for inner, outer or drops".to_owned());
        }
        let shared = &self.shared;
        let tap = lock(&shared.engine).tap().clone();
        let watching = tap.watch(wanted)?;
        let mut watch = Watch {
            watching,
            wants_drops: wanted.drops && wanted.filter.trim().is_empty(),
            names: Names::of(shared),
            shared: Arc::downgrade(shared),
            looked: Instant::now(),
            drained: Instant::now(),
            by: by.to_owned(),
            counted: BTreeMap::new(),
            more: [0; DropReason::COUNT],
            // Whoever asked knows at once that it has begun.
            waiting: vec![Line::Alive { missed: 0 }],
            wish: Wish::new(shared, wanted),
        };
        if watch.wants_drops {
            watch.counted = without_packet(shared, &watch.names);
        }
        let Wanted {
            inner,
            outer,
            drops,
            filter,
            ..
        } = wanted;
        tracing::info!(by, inner, outer, drops, filter, "packets are shown");
        Ok(watch)
    }
}

impl Watch {
    /// The next lines, as JSON with a line feed each; empty if there is none for now. `None`: the gateway has ended.
    pub(crate) fn next(&mut self) -> Option<Vec<u8>> {
        if self.waiting.is_empty() && self.looked.elapsed() >= ALIVE {
            self.look()?;
        }
        if self.wish.drops && self.drained.elapsed() >= DRAIN {
            self.drained = Instant::now();
            self.names.show_kernel_drops(&*self.shared.upgrade()?);
        }
        let mut lines = Vec::new();
        let mut patience = if self.wish.drops { DRAIN } else { WAIT };
        while lines.len() < AT_ONCE {
            let line = match self.waiting.pop() {
                Some(line) => line,
                None => match self.watching.next(patience) {
                    Ok(seen) => Line::Packet(self.names.describe(&seen)),
                    Err(RecvTimeoutError::Disconnected) if lines.is_empty() => return None,
                    Err(_) => break,
                },
            };
            serde_json::to_writer(&mut lines, &line).ok()?;
            lines.push(b'\n');
            patience = Duration::ZERO;
        }
        Some(lines)
    }

    /// Follows new tables, and counts what was dropped without a copy.
    fn look(&mut self) -> Option<()> {
        let shared = self.shared.upgrade()?;
        self.looked = Instant::now();
        self.names = Names::of(&shared);
        self.waiting.push(Line::Alive {
            missed: self.watching.missed(),
        });
        let at = since_1970();
        for (reason, count) in self.watching.more_drops() {
            let before = std::mem::replace(&mut self.more[reason as usize], count);
            if count > before {
                self.waiting.push(Line::More {
                    at,
                    reason: reason.name().to_owned(),
                    count: count - before,
                });
            }
        }
        if self.wants_drops {
            for ((place, reason), count) in without_packet(&shared, &self.names) {
                // Copies of later packets may make it lower for a moment.
                let before = self.counted.entry((place, reason)).or_default();
                if count > *before {
                    self.waiting.push(Line::Dropped {
                        at,
                        reason: reason.name().to_owned(),
                        place: place.to_owned(),
                        count: count - *before,
                    });
                    *before = count;
                }
            }
        }
        Some(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let missed = self.watching.missed();
        tracing::info!(by = self.by, missed, "packets are no longer shown");
    }
}

/// Counts of drops of which workers have no copy: those of the programs in the kernel, and of reassembly.
fn without_packet(shared: &Shared, names: &Names) -> BTreeMap<(&'static str, DropReason), u64> {
    let mut counts = BTreeMap::new();
    let kernel = lock(&shared.programs).as_ref().map(|of| of.counters());
    // After the counters: programs count a packet before they copy it.
    names.show_kernel_drops(shared);
    if let Some(Ok(counters)) = kernel {
        let wishes = lock(&shared.wishes);
        let without = |(reason, count): (DropReason, u64)| {
            let copied = wishes.copied.get(&(reason as u8)).copied().unwrap_or(0);
            (("kernel", reason), count.saturating_sub(copied))
        };
        counts.extend(counters.drops().map(without));
    }
    let first = DropReason::IndexOutOfRange as usize;
    let last = DropReason::BufferLimit as usize;
    let engine = lock(&shared.engine);
    let of_reassembly = DropReason::ALL[first..=last].iter();
    for reason in of_reassembly.chain(&[DropReason::LinkDown]) {
        let workers = engine.counters().iter();
        let count = workers
            .map(|worker| worker.drops[*reason as usize].get())
            .sum();
        counts.insert(("worker", *reason), count);
    }
    counts
}

fn since_1970() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_nanos() as u64
}

impl Names {
    fn of(shared: &Shared) -> Self {
        let lans = shared.lans.view();
        let lans = lans.numbered();
        let engine = lock(&shared.engine);
        let planner = engine.planner();
        let plan = planner.current();
        let mut paths = Vec::new();
        for (session, planned) in plan.sessions.iter().zip(planner.sessions()) {
            let remote = plan.gateways.get(session.gateway);
            let usable = session.paths.iter().zip(&planned.paths);
            for (path, _) in usable.filter(|(_, planned)| planned.is_usable()) {
                paths.push(PathName {
                    remote: remote.map_or(IsdAs(0), |remote| remote.isd_as),
                    session: session.number,
                    name: path.name.clone(),
                    raw: path.path.raw.clone(),
                });
            }
        }
        let name = |role: Role| {
            let ports = shared.ports.iter().filter(move |port| port.role == role);
            ports.map(|port| port.interface.clone())
        };
        let first = |role: Role| name(role).next().unwrap_or_default();
        Names {
            tables: engine.tables(),
            paths,
            lan: lans
                .iter()
                .map(|(number, facts)| (*number, facts.interface.clone()))
                .collect(),
            lan_numbers: lans
                .iter()
                .map(|(number, facts)| (facts.ifindex, *number))
                .collect(),
            underlay: first(Role::Underlay),
            underlay_index: shared
                .ports
                .iter()
                .find(|port| port.role == Role::Underlay)
                .map(|port| port.ifindex),
            tunnel: planner.config().tunnel.name.clone(),
            start: since_1970().saturating_sub(engine.started().elapsed().as_nanos() as u64),
        }
    }

    /// Shows all watchers what programs in the kernel dropped since the last time.
    fn show_kernel_drops(&self, shared: &Shared) {
        let mut wishes = lock(&shared.wishes);
        let tap = lock(&shared.engine).tap().clone();
        let mut programs = lock(&shared.programs);
        let Some(programs) = programs.as_mut() else {
            return;
        };
        let (now, clock) = (since_1970(), monotonic_ns());
        programs.dropped(MAX_AT_ONCE, |dropped, packet| {
            let reason = u8::try_from(dropped.reason).ok();
            let Some(reason) = reason.and_then(DropReason::from_number) else {
                return;
            };
            *wishes.copied.entry(reason as u8).or_default() += 1;
            let lan = self.lan_numbers.get(&dropped.ifindex);
            let point = match (dropped.ifindex, lan) {
                (TUNNEL_PORT, _) => Point::Tunnel,
                (_, Some(number)) => Point::Lan(Some(*number)),
                (index, None) if self.underlay_index == Some(index) => Point::Underlay,
                // One that has just come or gone.
                (_, None) => Point::Lan(None),
            };
            let at = now.saturating_sub(clock.saturating_sub(dropped.at));
            let at = at.saturating_sub(self.start);
            let whole = (packet, dropped.len as usize);
            tap.show_drop(&self.tables, (at, point), reason, whole);
        });
    }

    fn describe(&self, seen: &Seen) -> Packet {
        let mut packet = Packet {
            at: self.start + seen.at,
            interface: match seen.point {
                Point::Underlay => self.underlay.clone(),
                Point::Tunnel => self.tunnel.clone(),
                Point::Lan(port) => match port {
                    Some(port) => self.lan.get(&port).cloned().unwrap_or_default(),
                    None if self.lan.len() == 1 => {
                        self.lan.values().next().cloned().unwrap_or_default()
                    }
                    None => "lan".to_owned(),
                },
            },
            worker: seen.worker,
            length: seen.len,
            data: base64(&seen.data),
            ..Packet::default()
        };
        let event = match seen.event {
            Event::In => "in",
            Event::Out => "out",
            Event::Drop(reason) => {
                packet.reason = Some(reason.name().to_owned());
                "drop"
            }
        };
        event.clone_into(&mut packet.event);
        let bytes = whole(seen.data.get(ethernet::HEADER_LEN..).unwrap_or_default());
        let bytes = &bytes[..];
        let frame = match seen.point {
            Point::Underlay => Outer::parse(bytes),
            Point::Lan(_) | Point::Tunnel => None,
        };
        match frame {
            Some(frame) => self.describe_frame(&frame, seen.event, &mut packet),
            None => self.describe_inner(bytes, seen, &mut packet),
        }
        packet
    }

    fn describe_frame(&self, frame: &Outer<'_>, event: Event, packet: &mut Packet) {
        "outer".clone_into(&mut packet.kind);
        packet.session = Some(frame.header.session);
        packet.stream = Some(frame.header.stream);
        packet.sequence = Some(frame.header.sequence);
        let remote = match event {
            Event::Out => frame.destination,
            Event::In | Event::Drop(_) => frame.source,
        };
        packet.remote = Some(remote.to_string());
        if event == Event::Out {
            let is_it = |path: &&PathName| {
                path.remote == remote
                    && path.session == frame.header.session
                    && *path.raw == *frame.path
            };
            let path = self.paths.iter().find(is_it);
            packet.path = path.map(|path| path.name.clone());
        }
    }

    fn describe_inner(&self, bytes: &[u8], seen: &Seen, packet: &mut Packet) {
        let kind = match seen.point {
            // What was taken out of a frame and dropped is seen as an IP packet as well.
            Point::Underlay if seen.data.get(..12) != Some(&[0; 12]) => "outer",
            _ => "inner",
        };
        kind.clone_into(&mut packet.kind);
        let Ok(summary) = InnerPacket::parse(bytes) else {
            return;
        };
        let remote = remote_of(&self.tables, &summary);
        packet.remote = remote.map(|isd_as| isd_as.to_string());
        let goes_out =
            matches!(seen.point, Point::Lan(_) | Point::Tunnel) && matches!(seen.event, Event::In);
        if goes_out {
            let trace = self.tables.trace_egress(&summary);
            let path = trace
                .path
                .and_then(|place| self.paths.get(usize::from(place)));
            packet.session = path.map(|path| path.session);
            packet.path = path.map(|path| path.name.clone());
        }
    }
}
