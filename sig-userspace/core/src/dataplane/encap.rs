//! From IP to SCION: packets in, SIG frames out.
//!
//! A packet that fits a frame stays where it was received: the outer headers are written in front of
//! it. Only packets that share a frame with others, and parts of split ones, are copied.

use std::{collections::HashMap, net::IpAddr, sync::atomic::Ordering};

use sig_common::{
    mark::Mark,
    reason::DropReason,
    wire::{ethernet, flow::flow_hash, inner::InnerPacket, sig_frame},
};

use super::{
    context::Context,
    filter::{self, Decision, Direction},
    flow_cache::FlowCache,
    icmp::{Message, RateLimit},
    inner,
    tables::{Path, Tables, Target},
};
use crate::{
    fast_path::teacher::Teacher,
    framing::{Closed, Packer, Placement},
    port::umem::{Frame, HEADROOM},
    scion::FrameFields,
};

/// ICMP messages that one worker sends per second, and at once.
const ICMP_PER_SECOND: u32 = 100;
const ICMP_BURST: u32 = 20;

/// Where a packet came from, which decides what has been done to it already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A LAN port: the gateway is a router hop, so it takes one from the TTL. With `partial`, the
    /// sender may have left transport checksums to its network card.
    Lan {
        /// Finish transport checksums that hold only the pseudo header's sum.
        partial: bool,
    },
    /// The tunnel device: the kernel has routed the packet and taken its one from the TTL, or it has been through its chain.
    Tunnel,
}

/// Where a packet goes.
enum Way {
    /// The path with this place in the tables.
    Path(u16),
    /// Into a chain, by this policy.
    Chain(u32),
}

/// A frame being filled. The packet of `frame` is the payload so far.
struct Open {
    frame: Frame,
    traffic_class: u8,
    flow_hash: u32,
}

/// What this worker sends on one path.
struct Stream {
    path: u64,
    id: u32,
    sequence: u64,
    packer: Packer,
    open: Option<Open>,
    /// Whether the stream is in `Encap::touched`.
    touched: bool,
}

/// Why a packet is not sent, and what its sender is told about it.
type Refused = (DropReason, Option<(Message, InnerPacket)>);

/// One worker's send side.
pub(super) struct Encap {
    generation: u64,
    /// Parallel to `Tables::paths`.
    streams: Vec<Stream>,
    /// Streams that are shared with the XDP programs, by path; each packet says which one it is.
    alone: Vec<Stream>,
    /// Streams with an open frame, in the order they were opened.
    touched: Vec<u16>,
    routes: FlowCache<Result<Target, DropReason>>,
    icmp_limit: RateLimit,
}

impl Encap {
    pub(super) fn new() -> Self {
        Encap {
            generation: 0,
            streams: Vec::new(),
            alone: Vec::new(),
            touched: Vec::with_capacity(64),
            routes: FlowCache::default(),
            icmp_limit: RateLimit::new(ICMP_PER_SECOND, ICMP_BURST),
        }
    }

    /// Takes an Ethernet frame with an IP packet for the other side; after [`Encap::follow`] for the
    /// tables of the batch.
    pub(super) fn packet(&mut self, context: &mut Context<'_>, mut frame: Frame, origin: Origin) {
        let metadata = match &context.teacher {
            Some(_) => frame.metadata(context.area),
            None => 0,
        };
        match self.classify(context, &mut frame, origin) {
            Ok((Way::Chain(policy), class)) => {
                filter::mark(context, Mark::Policy(policy), &mut frame, &class.packet);
                context.to_tunnel.push(frame);
            }
            Ok((Way::Path(path), packet)) => {
                let socket = Teacher::socket(metadata);
                match (socket, context.tables.paths[usize::from(path)].fast) {
                    (Some(socket), Some(fast)) => {
                        self.send_alone(context, path, frame, &packet, (fast, socket));
                    }
                    _ => self.send(context, path, frame, &packet),
                }
            }
            Err((reason, message)) => {
                if let Some((message, packet)) = message {
                    context.tell_sender(&mut self.icmp_limit, message, &frame, &packet);
                }
                // Of what is no IP packet, nothing was cut off.
                match reason {
                    DropReason::InvalidPacket => context.discard_frame(frame, reason),
                    _ => context.discard(frame, reason),
                }
            }
        }
    }

    /// Sends the frames that are not full: nothing more waits.
    pub(super) fn flush(&mut self, context: &mut Context<'_>) {
        for slot in std::mem::take(&mut self.touched) {
            let stream = &mut self.streams[usize::from(slot)];
            stream.touched = false;
            if let Some(closed) = stream.packer.close() {
                stream.emit(context, &context.tables.paths[usize::from(slot)], closed);
            }
        }
    }

    /// Takes over new tables: paths that stayed keep stream and sequence. Frames are flushed at the
    /// end of each batch, so none is open here.
    pub(super) fn follow(&mut self, tables: &Tables, worker: usize) {
        if self.generation == tables.generation {
            return;
        }
        self.generation = tables.generation;
        let mut old: HashMap<u64, Stream> = std::mem::take(&mut self.streams)
            .into_iter()
            .map(|stream| (stream.path, stream))
            .collect();
        let stream = |path: &Path| {
            let kept = old.remove(&path.id);
            kept.unwrap_or_else(|| Stream::new(path, worker))
        };
        self.streams.extend(tables.paths.iter().map(stream));
        let alone = |path| Stream::new(path, worker);
        self.alone.clear();
        self.alone.extend(tables.paths.iter().map(alone));
    }

    /// Where the packet goes, and its summary; the frame then holds the packet alone.
    #[inline]
    fn classify(
        &mut self,
        context: &mut Context<'_>,
        frame: &mut Frame,
        origin: Origin,
    ) -> Result<(Way, Classified), Refused> {
        let bytes = frame.bytes(context.area);
        let is_marked = bytes.first_chunk() == Some(&Mark::Returned.address());
        let has_returned = origin == Origin::Tunnel && is_marked;
        let ip = bytes.get(ethernet::HEADER_LEN..);
        let mut packet = ip
            .and_then(|packet| InnerPacket::parse(packet).ok())
            .ok_or((DropReason::InvalidPacket, None))?;
        // Behind the packet there may be Ethernet padding.
        frame.place(
            frame.headroom() + ethernet::HEADER_LEN,
            packet.total_len.into(),
        );
        let way = self
            .route(context.tables, packet.source, packet.destination)
            .map_err(|reason| (reason, None))?;
        let is_hop = matches!(origin, Origin::Lan { .. });
        if is_hop && packet.ttl <= 1 {
            return Err((
                DropReason::TtlExpired,
                Some((Message::TimeExceeded, packet)),
            ));
        }
        // A function, like a host, may leave them to its network card.
        if has_returned || origin == (Origin::Lan { partial: true }) {
            inner::complete_checksum(frame.bytes_mut(context.area), &packet);
        }
        let flow_hash = flow_hash(&packet);
        let mut class = Classified {
            traffic_class: packet.tos,
            flow_hash,
            packet,
            has_returned,
            repeats: true,
        };
        let mut segment = usize::MAX;
        if !has_returned {
            let decision = filter::apply(context, Direction::Egress, frame, &packet);
            segment = decision.segment();
            match decision {
                Decision::Carry { repeats, .. } => class.repeats = repeats,
                Decision::Drop => return Err((DropReason::Filtered, None)),
                Decision::Chain(chain) => {
                    if u32::from(packet.total_len) > chain.room {
                        let message = Message::TooBig(chain.room);
                        return Err((DropReason::PacketTooBig, Some((message, packet))));
                    }
                    context.clamp_mss(frame.bytes_mut(context.area), &packet, segment);
                    return Ok((Way::Chain(chain.policy), class));
                }
            }
        }
        if is_hop {
            let lives_on = packet.decrement_ttl(frame.bytes_mut(context.area));
            debug_assert!(lives_on, "looked at above");
            class.packet = packet;
        }
        let path = context
            .tables
            .path_to(way, &packet, |spread| spread.pick(flow_hash));
        let path = path.map_err(|reason| match reason {
            DropReason::NoRoute => (reason, None),
            _ => (reason, Some((Message::Unreachable, packet))),
        })?;
        let capacity = context.tables.paths[usize::from(path)].packer.capacity();
        let room = capacity.min(segment);
        context.clamp_mss(frame.bytes_mut(context.area), &packet, room);
        Ok((Way::Path(path), class))
    }

    #[inline]
    fn route(
        &mut self,
        tables: &Tables,
        source: IpAddr,
        destination: IpAddr,
    ) -> Result<Target, DropReason> {
        self.routes.get_or_decide(
            tables.generation,
            source,
            destination,
            |_| true,
            || tables.target(source, destination),
        )
    }

    fn send(&mut self, context: &mut Context<'_>, slot: u16, packet: Frame, class: &Classified) {
        let path = &context.tables.paths[usize::from(slot)];
        let stream = &mut self.streams[usize::from(slot)];
        if !stream.touched {
            stream.touched = true;
            self.touched.push(slot);
        }
        stream.send(context, path, packet, class);
    }

    /// Sends a packet by itself, on the stream that the XDP programs send its flow on, and tells them about the flow.
    /// All packets of a flow are on one stream, so the receiver puts them in order whoever sent them.
    fn send_alone(
        &mut self,
        context: &mut Context<'_>,
        slot: u16,
        packet: Frame,
        class: &Classified,
        (fast, socket): (u32, u32),
    ) {
        let path = &context.tables.paths[usize::from(slot)];
        let Some(teacher) = &mut context.teacher else {
            return context.discard(packet, DropReason::NoPath);
        };
        let stream = &mut self.alone[usize::from(slot)];
        let (id, sequence) = teacher.sender(fast, socket);
        // The parts of a packet follow each other.
        let frames = packet.len().div_ceil(path.packer.capacity()).max(1);
        stream.id = id;
        stream.sequence = sequence.fetch_add(frames as u64, Ordering::Relaxed);
        if frames == 1 && class.repeats {
            let generation = context.tables.fast_generation;
            let flow = (&class.packet, class.has_returned);
            teacher.flow(generation, flow, class.flow_hash, fast);
        }
        stream.send(context, path, packet, class);
        if let Some(closed) = stream.packer.close() {
            stream.emit(context, path, closed);
        }
    }
}

/// What the framing needs to know of a packet.
#[derive(Clone, Copy)]
struct Classified {
    traffic_class: u8,
    flow_hash: u32,
    packet: InnerPacket,
    /// It has been through its chain.
    has_returned: bool,
    /// What is done with it is done with all packets of its flow.
    repeats: bool,
}

impl Stream {
    fn new(path: &Path, worker: usize) -> Self {
        Stream {
            path: path.id,
            id: path.streams[worker],
            sequence: 0,
            packer: path.packer.clone(),
            open: None,
            touched: false,
        }
    }

    #[inline]
    fn send(&mut self, context: &mut Context<'_>, path: &Path, packet: Frame, class: &Classified) {
        // A frame has one traffic class, so packets of another one do not join it (RFC 6040 wants
        // the outer ECN field to be that of the inner packet).
        if self
            .open
            .as_ref()
            .is_some_and(|open| open.traffic_class != class.traffic_class)
            && let Some(closed) = self.packer.close()
        {
            self.emit(context, path, closed);
        }
        let len = packet.len();
        if !self.make_room(context, path, len)
            && let Some(closed) = self.packer.close()
        {
            self.emit(context, path, closed);
        }
        match self.packer.place(len) {
            Ok(Placement::Fresh { closed }) => {
                if let Some(closed) = closed {
                    self.emit(context, path, closed);
                }
                self.open_with(context, path, packet, class);
            }
            Ok(Placement::Append { offset }) => {
                self.append(context, offset, packet.bytes(context.area));
                context.free.put(packet);
            }
            Ok(Placement::Split(parts)) => {
                let mut packet = Some(packet);
                for part in parts {
                    if let Some(closed) = part.closed {
                        self.emit(context, path, closed);
                    }
                    let last = part.range.end == len;
                    if last && part.offset == 0 {
                        // What stands before the last part has been copied: headers may go there.
                        let Some(mut packet) = packet.take() else {
                            break;
                        };
                        packet.place(packet.headroom() + part.range.start, part.range.len());
                        self.open_with(context, path, packet, class);
                    } else if let Some(packet) = &packet {
                        let bytes = &packet.bytes(context.area)[part.range];
                        if part.offset == 0 {
                            self.open = copy(context, path, bytes, class);
                        } else {
                            self.append(context, part.offset, bytes);
                        }
                    }
                }
                if let Some(packet) = packet {
                    context.free.put(packet);
                }
            }
            Err(_) => return context.discard(packet, DropReason::PacketTooBig),
        }
        let sent = &path.counters[context.worker].sent;
        for traffic in [sent, &context.counters.sent] {
            traffic.packets.add(1);
            traffic.packet_bytes.add(len as u64);
        }
    }

    /// Sees to it that the open frame, if there is one, has room for what joins it of a packet of `len` bytes: a jumbo frame is taken
    /// only when it must be. Whether there is room.
    #[inline]
    fn make_room(&mut self, context: &mut Context<'_>, path: &Path, len: usize) -> bool {
        let Some(open) = &mut self.open else {
            return true;
        };
        let (capacity, end) = (self.packer.capacity(), self.packer.used() + len);
        let joins = end <= capacity || len > capacity;
        let end = end.min(capacity);
        if !joins || open.frame.headroom() + end + path.back() <= open.frame.size() {
            return true;
        }
        let bytes = open.frame.bytes(context.area);
        let Some(larger) = copy_with_room(context, path, bytes, end) else {
            return false;
        };
        let old = std::mem::replace(&mut open.frame, larger);
        context.free.put(old);
        true
    }

    /// Opens a frame with a packet, where it is if the headers fit in front.
    #[inline]
    fn open_with(
        &mut self,
        context: &mut Context<'_>,
        path: &Path,
        packet: Frame,
        class: &Classified,
    ) {
        let is_room = packet.headroom() >= path.front() && packet.tailroom() >= path.back();
        self.open = if is_room {
            Some(Open {
                frame: packet,
                traffic_class: class.traffic_class,
                flow_hash: class.flow_hash,
            })
        } else {
            let open = copy(context, path, packet.bytes(context.area), class);
            context.free.put(packet);
            open
        };
    }

    /// Adds bytes to the open frame. Without one, because no chunk was free for it, they are lost
    /// with it.
    #[inline]
    fn append(&mut self, context: &Context<'_>, offset: usize, bytes: &[u8]) {
        if let Some(open) = &mut self.open {
            open.frame
                .place(open.frame.headroom(), offset + bytes.len());
            open.frame.bytes_mut(context.area)[offset..].copy_from_slice(bytes);
        }
    }

    /// Finishes the open frame. Its sequence number is used up in any case, so that the receiver
    /// sees what is missing.
    #[inline]
    fn emit(&mut self, context: &mut Context<'_>, path: &Path, closed: Closed) {
        let sequence = self.sequence;
        self.sequence += 1;
        let Some(Open {
            mut frame,
            traffic_class,
            flow_hash,
        }) = self.open.take()
        else {
            context.counters.drop(DropReason::NoFreeChunk);
            return;
        };
        debug_assert_eq!(frame.len(), closed.len);
        let (front, back) = (path.front(), path.back());
        frame.place(frame.headroom() - front, front + frame.len() + back);
        let fields = FrameFields {
            traffic_class,
            flow_hash,
            stream: self.id,
            sequence,
            index: closed.index,
        };
        let bytes = frame.bytes_mut(context.area);
        if let Some(keyring) = &path.keyring {
            let header = path.template.frame_header(&fields);
            let behind = bytes.get_mut(path.template.len()..).unwrap_or_default();
            if keyring.seal(context.worker, &header, behind).is_none() {
                return context.discard_frame(frame, DropReason::NoKey);
            }
            context.counters.frames_protected.add(1);
        }
        let written = path.template.write(bytes, &fields);
        debug_assert!(written.is_some(), "the frame begins with the room for them");
        let frame_len = sig_frame::HEADER_LEN + frame.len() - path.template.len();
        let sent = &path.counters[context.worker].sent;
        for traffic in [sent, &context.counters.sent] {
            traffic.frames.add(1);
            traffic.frame_bytes.add(frame_len as u64);
        }
        context.to_underlay.push(frame);
    }
}

/// A frame that begins with a copy of `bytes`; none if no chunk is free.
fn copy(context: &mut Context<'_>, path: &Path, bytes: &[u8], class: &Classified) -> Option<Open> {
    Some(Open {
        frame: copy_with_room(context, path, bytes, bytes.len())?,
        traffic_class: class.traffic_class,
        flow_hash: class.flow_hash,
    })
}

/// A copy of `bytes` behind room for the headers, with room for `len` bytes in all.
fn copy_with_room(
    context: &mut Context<'_>,
    path: &Path,
    bytes: &[u8],
    len: usize,
) -> Option<Frame> {
    let start = path.front().max(HEADROOM);
    let mut frame = context
        .free
        .take_for(start - HEADROOM + len + path.back())?;
    frame.place(start, bytes.len());
    frame.bytes_mut(context.area).copy_from_slice(bytes);
    Some(frame)
}
