//! Copies of packets for people who watch.
//!
//! Workers look once a batch whether somebody does, and copy what is wanted into a queue of fixed length; what does not fit is
//! counted and lost, never waited for.

mod filter;
#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
};

use arc_swap::ArcSwap;
use serde::{Deserialize, Serialize};
use sig_common::{
    addr::IsdAs,
    reason::DropReason,
    wire::{ethernet, inner::InnerPacket, sig_frame, udp},
};

use crate::dataplane::Tables;

pub use filter::{Filter, FilterError};

/// Watchers at the same time.
pub const MAX_WATCHERS: usize = 4;
/// Packets that wait for a watcher.
const QUEUE: usize = 1024;
/// Most bytes that are kept of a packet.
pub const MAX_SNAPLEN: usize = 16384;

/// What somebody wants to see. Nothing of a kind unless it is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Packets of hosts, as they come and go.
    #[serde(default)]
    pub inner: bool,
    /// SIG frames, as they come and go.
    #[serde(default)]
    pub outer: bool,
    /// What is dropped, inner or outer.
    #[serde(default)]
    pub drops: bool,
    /// Which of these, as text; empty: all. See [`Filter`].
    #[serde(default)]
    pub filter: String,
    /// Bytes of each that are kept; 0: all.
    #[serde(default)]
    pub snaplen: usize,
    /// Copies of dropped packets in a second, for each reason; more are counted. 0: all.
    #[serde(default)]
    pub drops_per_second: u32,
}

impl Wanted {
    const INNER: u8 = 1;
    const OUTER: u8 = 2;
    const DROPS: u8 = 4;

    const fn bits(&self) -> u8 {
        let inner = if self.inner { Self::INNER } else { 0 };
        let outer = if self.outer { Self::OUTER } else { 0 };
        let drops = if self.drops { Self::DROPS } else { 0 };
        inner | outer | drops
    }

    /// Whether packets are wanted that are not dropped: those of the fast path too.
    #[must_use]
    pub const fn passing(&self) -> bool {
        self.inner || self.outer
    }
}

/// Where a packet was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// A LAN interface, by its number where that is known.
    Lan(Option<u16>),
    /// The tunnel device.
    Tunnel,
    /// The underlay.
    Underlay,
}

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It comes in.
    In,
    /// It goes out.
    Out,
    /// It is dropped.
    Drop(DropReason),
}

/// A copy of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// When, in nanoseconds of the workers' clock.
    pub at: u64,
    /// The worker; `None`: a program in the kernel dropped it.
    pub worker: Option<u16>,
    /// Where. Of what is dropped: where it came from.
    pub point: Point,
    /// What happens to it.
    pub event: Event,
    /// Its length as an Ethernet frame.
    pub len: u32,
    /// The beginning of it.
    pub data: Box<[u8]>,
}

/// What workers look at. One for all of them.
#[derive(Default)]
pub struct Tap {
    /// What any watcher wants.
    wanted: AtomicU8,
    watchers: ArcSwap<Vec<Arc<Watcher>>>,
    changing: Mutex<()>,
}

/// Who watches.
struct Watcher {
    wanted: u8,
    filter: Filter,
    snaplen: usize,
    drops_per_second: u32,
    drops: [Allowance; DropReason::COUNT],
    queue: SyncSender<Seen>,
    /// Packets in the queue.
    waiting: AtomicUsize,
    missed: AtomicU64,
}

/// How many dropped packets of a reason are copied.
#[derive(Default)]
struct Allowance {
    /// The latest second in which there was one.
    second: AtomicU64,
    /// Copied in this second.
    copied: AtomicU32,
    /// Beyond the limit, since the beginning.
    more: AtomicU64,
}

impl Allowance {
    /// Whether one at this time, in nanoseconds, is within the limit of a second. Workers that meet here may exceed it by a few.
    fn is_within(&self, limit: u32, at: u64) -> bool {
        let second = at / 1_000_000_000;
        let latest = self.second.load(Ordering::Relaxed);
        // Workers are late by less. More is a step of the clock.
        if latest < second || latest - second > 2 {
            self.second.store(second, Ordering::Relaxed);
            self.copied.store(0, Ordering::Relaxed);
        }
        if self.copied.load(Ordering::Relaxed) < limit {
            self.copied.fetch_add(1, Ordering::Relaxed);
            return true;
        }
        self.more.fetch_add(1, Ordering::Relaxed);
        false
    }
}

/// A watcher's end of the queue. With it, the watching ends.
pub struct Watching {
    tap: Arc<Tap>,
    watcher: Arc<Watcher>,
    queue: Receiver<Seen>,
}

impl Tap {
    /// Begins to watch.
    ///
    /// # Errors
    ///
    /// If too many watch, or the filter is wrong.
    pub fn watch(self: &Arc<Self>, wanted: &Wanted) -> Result<Watching, String> {
        let filter = wanted.filter.parse::<Filter>();
        let filter = filter.map_err(|error| error.to_string())?;
        let (sender, queue) = sync_channel(QUEUE);
        let snaplen = match wanted.snaplen {
            0 => MAX_SNAPLEN,
            bytes => bytes.min(MAX_SNAPLEN),
        };
        let watcher = Arc::new(Watcher {
            wanted: wanted.bits(),
            filter,
            snaplen,
            drops_per_second: wanted.drops_per_second,
            drops: std::array::from_fn(|_| Allowance::default()),
            queue: sender,
            waiting: AtomicUsize::new(0),
            missed: AtomicU64::new(0),
        });
        let added = self.change(|watchers| {
            let has_room = watchers.len() < MAX_WATCHERS;
            if has_room {
                watchers.push(watcher.clone());
            }
            has_room
        });
        match added {
            true => Ok(Watching {
                tap: self.clone(),
                watcher,
                queue,
            }),
            false => Err(format!(
                "{MAX_WATCHERS} others watch already; end one of their commands"
            )),
        }
    }

    fn change<R>(&self, change: impl FnOnce(&mut Vec<Arc<Watcher>>) -> R) -> R {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut watchers = Vec::clone(&self.watchers.load());
        let result = change(&mut watchers);
        let wanted = watchers.iter().fold(0, |bits, of| bits | of.wanted);
        self.watchers.store(Arc::new(watchers));
        self.wanted.store(wanted, Ordering::Relaxed);
        result
    }

    /// What a worker needs for a batch, if anybody watches.
    #[inline]
    pub(crate) fn look(&self, at: u64, worker: usize) -> Option<Look> {
        match self.wanted.load(Ordering::Relaxed) {
            0 => None,
            wanted => Some(self.begin(wanted, at, worker)),
        }
    }

    /// Shows the beginning of an Ethernet frame of `len` bytes that a program in the kernel dropped.
    pub fn show_drop(
        &self,
        tables: &Tables,
        (at, point): (u64, Point),
        reason: DropReason,
        (beginning, len): (&[u8], usize),
    ) {
        let look = Look {
            wanted: Wanted::DROPS,
            watchers: self.watchers.load_full(),
            at,
            worker: None,
        };
        // Filters look at whole packets.
        let mut frame = beginning.to_vec();
        frame.resize(len.min(MAX_SNAPLEN).max(beginning.len()), 0);
        let event = Event::Drop(reason);
        look.tell(
            Wanted::DROPS,
            tables,
            (point, event),
            &frame,
            (None, beginning.len()),
        );
    }

    #[cold]
    fn begin(&self, wanted: u8, at: u64, worker: usize) -> Look {
        Look {
            wanted,
            watchers: self.watchers.load_full(),
            at,
            worker: Some(worker as u16),
        }
    }
}

impl Watching {
    /// The next packet, if there is one within this time.
    ///
    /// # Errors
    ///
    /// There was none.
    pub fn next(
        &self,
        patience: std::time::Duration,
    ) -> Result<Seen, std::sync::mpsc::RecvTimeoutError> {
        let seen = self.queue.recv_timeout(patience)?;
        self.watcher.waiting.fetch_sub(1, Ordering::Relaxed);
        Ok(seen)
    }

    /// How many packets did not fit the queue since it began.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.watcher.missed.load(Ordering::Relaxed)
    }

    /// How many packets were dropped beyond the limit of a second since it began, by reason.
    pub fn more_drops(&self) -> impl Iterator<Item = (DropReason, u64)> {
        let counts = self.watcher.drops.iter();
        let counts = counts.map(|of| of.more.load(Ordering::Relaxed));
        DropReason::ALL.into_iter().zip(counts)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.tap
            .change(|watchers| watchers.retain(|of| !Arc::ptr_eq(of, &self.watcher)));
    }
}

/// Who watches during a batch of a worker.
pub(crate) struct Look {
    wanted: u8,
    watchers: Arc<Vec<Arc<Watcher>>>,
    at: u64,
    worker: Option<u16>,
}

impl Look {
    /// Whether packets that are not dropped are wanted.
    pub(crate) const fn passing(&self) -> bool {
        self.wanted & (Wanted::INNER | Wanted::OUTER) != 0
    }

    /// An Ethernet frame comes or goes.
    #[cold]
    pub(crate) fn pass(&self, tables: &Tables, point: Point, event: Event, frame: &[u8]) {
        let kind = match point {
            Point::Underlay => Wanted::OUTER,
            Point::Lan(_) | Point::Tunnel => Wanted::INNER,
        };
        self.tell(kind, tables, (point, event), frame, (None, usize::MAX));
    }

    /// A packet is dropped: an Ethernet frame, or an IP packet without one.
    #[cold]
    pub(crate) fn drop(
        &self,
        tables: &Tables,
        point: Point,
        reason: DropReason,
        bytes: &[u8],
        is_ethernet: bool,
    ) {
        // What reads the copies knows Ethernet.
        let mut header = [0; ethernet::HEADER_LEN];
        let is_v6 = bytes.first().is_some_and(|first| first >> 4 == 6);
        header[12..].copy_from_slice(if is_v6 { &[0x86, 0xdd] } else { &[8, 0] });
        let header = (!is_ethernet).then_some(header);
        let event = Event::Drop(reason);
        self.tell(
            Wanted::DROPS,
            tables,
            (point, event),
            bytes,
            (header, usize::MAX),
        );
    }

    fn tell(
        &self,
        kind: u8,
        tables: &Tables,
        (point, event): (Point, Event),
        bytes: &[u8],
        (header, kept): (Option<[u8; ethernet::HEADER_LEN]>, usize),
    ) {
        let wanting = |watcher: &&Arc<Watcher>| watcher.wanted & kind != 0;
        for watcher in self.watchers.iter().filter(wanting) {
            let is_outer = point == Point::Underlay && header.is_none();
            let start = if header.is_none() {
                ethernet::HEADER_LEN
            } else {
                0
            };
            let packet = bytes.get(start..).unwrap_or_default();
            let incoming = event != Event::Out;
            if !watcher.filter.takes(packet, (is_outer, incoming), tables) {
                continue;
            }
            if let (Event::Drop(reason), 1..) = (event, watcher.drops_per_second)
                && !watcher.drops[reason as usize].is_within(watcher.drops_per_second, self.at)
            {
                continue;
            }
            // A watcher that is behind costs no copies.
            if watcher.waiting.load(Ordering::Relaxed) >= QUEUE {
                watcher.missed.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let header = header.as_ref().map_or(&[][..], |header| &header[..]);
            let len = header.len() + bytes.len();
            let kept = len.min(kept).min(watcher.snaplen);
            let of_packet = kept.saturating_sub(header.len());
            let mut data = Vec::with_capacity(header.len() + of_packet);
            data.extend_from_slice(header);
            data.extend_from_slice(bytes.get(..of_packet).unwrap_or(bytes));
            let seen = Seen {
                at: self.at,
                worker: self.worker,
                point,
                event,
                len: len as u32,
                data: data.into(),
            };
            watcher.waiting.fetch_add(1, Ordering::Relaxed);
            if watcher.queue.try_send(seen).is_err() {
                watcher.waiting.fetch_sub(1, Ordering::Relaxed);
                watcher.missed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// A SIG frame in an IP packet of the underlay, as far as watchers ask about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outer<'a> {
    /// Of the sender.
    pub source: IsdAs,
    /// Of the receiver.
    pub destination: IsdAs,
    /// The path header.
    pub path: &'a [u8],
    /// The header of the frame.
    pub header: sig_frame::Header,
    /// The first packet that starts in the frame.
    pub inner: Option<InnerPacket>,
}

impl<'a> Outer<'a> {
    /// Reads an IP packet; `None` if it is no whole SIG frame of the usual form, without SCION extensions.
    #[must_use]
    pub fn parse(packet: &'a [u8]) -> Option<Self> {
        let ip = InnerPacket::parse(packet).ok()?;
        let scion = ip.payload(packet)?.get(udp::HEADER_LEN..)?;
        let (common, _) = scion.split_first_chunk::<28>()?;
        let word = |at: usize| {
            let bytes = common.get(at..at + 8)?;
            Some(IsdAs(u64::from_be_bytes(bytes.try_into().ok()?)))
        };
        // Lengths of the two hosts, in units of four bytes less one.
        let hosts = 4 * (usize::from(common[9] >> 4 & 3) + usize::from(common[9] & 3) + 2);
        let headers = 4 * usize::from(common[5]);
        let path = scion.get(common.len() + hosts..headers)?;
        let frame = scion.get(headers + udp::HEADER_LEN..)?;
        let (header, payload) = frame.split_first_chunk()?;
        let (header, is_protected) = sig_frame::Header::decode_any(header).ok()?;
        let first = payload.get(header.index.into()..).filter(|_| !is_protected);
        Some(Outer {
            source: word(20)?,
            destination: word(12)?,
            path,
            header,
            inner: first.and_then(|packet| InnerPacket::parse(packet).ok()),
        })
    }
}

/// An IP packet whose end behind the header may have been cut off, with zeros to the length that it claims.
#[must_use]
pub fn whole(packet: &[u8]) -> Cow<'_, [u8]> {
    let word = |at: usize| {
        let bytes = packet.get(at..at + 2)?;
        Some(usize::from(u16::from_be_bytes(bytes.try_into().ok()?)))
    };
    let claimed = match packet.first().map(|first| first >> 4) {
        Some(4) if packet.len() >= 20 => word(2),
        Some(6) if packet.len() >= 40 => word(4).map(|payload| 40 + payload),
        _ => None,
    };
    match claimed.filter(|claimed| *claimed > packet.len()) {
        None => Cow::Borrowed(packet),
        Some(claimed) => {
            let mut packet = packet.to_vec();
            packet.resize(claimed, 0);
            Cow::Owned(packet)
        }
    }
}

/// The AS that a packet of hosts goes to, or comes from.
#[must_use]
pub fn remote_of(tables: &Tables, packet: &InnerPacket) -> Option<IsdAs> {
    let destination = tables.behind(packet.destination);
    destination.or_else(|| tables.behind(packet.source))
}

/// A line that is told of what is seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Line {
    /// A packet.
    Packet(Packet),
    /// Packets that were dropped, of which no copy is there.
    Dropped {
        /// Nanoseconds since 1970.
        at: u64,
        /// The name of a drop reason.
        reason: String,
        /// What dropped them: the programs in the kernel, or a worker.
        place: String,
        /// How many.
        count: u64,
    },
    /// Packets that were dropped in the last second beyond the limit of copies.
    More {
        /// Nanoseconds since 1970.
        at: u64,
        /// The name of a drop reason.
        reason: String,
        /// How many.
        count: u64,
    },
    /// Once a second: the gateway is there.
    Alive {
        /// Packets that were missed since the beginning.
        missed: u64,
    },
}

/// A packet that was seen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packet {
    /// Nanoseconds since 1970.
    pub at: u64,
    /// The interface that it comes in by, or goes out by.
    pub interface: String,
    /// `in`, `out` or `drop`.
    pub event: String,
    /// `inner` or `outer`.
    pub kind: String,
    /// Number of the worker; `None`: a program in the kernel dropped it.
    pub worker: Option<u16>,
    /// Why it is dropped: the name of a drop reason.
    pub reason: Option<String>,
    /// The remote AS.
    pub remote: Option<String>,
    /// Number of the session.
    pub session: Option<u8>,
    /// Name of the path.
    pub path: Option<String>,
    /// Stream of a frame.
    pub stream: Option<u32>,
    /// Sequence number of a frame.
    pub sequence: Option<u64>,
    /// Length as an Ethernet frame.
    pub length: u32,
    /// The beginning of it, Base64.
    pub data: String,
}
