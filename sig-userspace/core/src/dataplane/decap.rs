//! From SCION to IP: frames in, inner packets out.

use std::{collections::HashMap, ops::Range, sync::Arc};

use sig_common::{
    addr::{HostAddr, IsdAs},
    mark::Mark,
    reason::DropReason,
    wire::{
        PROTO_UDP,
        checksum::{Sum, scion_pseudo_header},
        ethernet,
        inner::{BACK_TO_SENDER, InnerPacket},
        scion::common,
        sig_frame,
        simple::Simple,
        underlay::{self, Parsed},
    },
};

use super::{
    context::Context,
    filter::{self, Decision, Direction},
    icmp::{Message, RateLimit},
    inner,
    police::{self, Police},
    sources::Sources,
    tables::Tables,
};
use crate::{
    framing::{FrameRef, Limits, LimitsError, Piece, Reassembler, StreamKey},
    port::umem::{Area, Frame, FreeList, HEADROOM},
};

/// Longest inner packet that fits a frame of this memory behind its headroom and an Ethernet header.
pub fn max_packet(area: &Area) -> usize {
    area.largest_frame() - HEADROOM - ethernet::HEADER_LEN
}

/// ICMP messages that one worker sends to remotes per second, and at once.
const ICMP_PER_SECOND: u32 = 100;
const ICMP_BURST: u32 = 20;

/// Where the last frame came from: most frames come from where the one before came from.
#[derive(Default)]
struct LastSource {
    /// Of the tables in which the source was looked up.
    generation: u64,
    source: Option<(IsdAs, HostAddr)>,
    /// Number of the remote.
    slot: u16,
}

/// One worker's receive side.
pub(super) struct Decap {
    reassembler: Reassembler,
    /// The reassembler's discards that the worker has counted.
    counted: [u64; DropReason::COUNT],
    police: Police,
    icmp_limit: RateLimit,
    last_source: LastSource,
    /// Of the tables last seen.
    generation: u64,
    /// Remotes of these tables, by their ids, and whether they are strict.
    remotes: HashMap<u16, ((IsdAs, HostAddr), bool)>,
    verify_checksums: bool,
    /// Who may bring frames; `None`: that has been looked at before.
    sources: Option<Arc<Sources>>,
}

impl Decap {
    /// A receive side whose reassembly memory is fixed by `limits`.
    pub(super) fn new(
        limits: Limits,
        area: &Area,
        verify_checksums: bool,
    ) -> Result<Self, LimitsError> {
        let limits = Limits {
            max_packet: limits.max_packet.min(max_packet(area)),
            ..limits
        };
        Ok(Decap {
            // The seed keeps peers from choosing stream ids that collide.
            reassembler: Reassembler::new(limits, rand::random())?,
            counted: [0; DropReason::COUNT],
            police: Police::default(),
            icmp_limit: RateLimit::new(ICMP_PER_SECOND, ICMP_BURST),
            last_source: LastSource::default(),
            generation: 0,
            remotes: HashMap::new(),
            verify_checksums,
            sources: None,
        })
    }

    /// Refuses frames that are brought by others than these.
    pub(super) fn check_sources(&mut self, sources: Arc<Sources>) {
        self.sources = Some(sources);
    }

    /// Takes over new tables: what is held of remotes that have gone goes too, so that their ids may be
    /// given to others.
    pub(super) fn follow(&mut self, context: &mut Context<'_>) {
        let tables = context.tables;
        if self.generation == tables.generation {
            return;
        }
        self.generation = tables.generation;
        let remotes: HashMap<_, _> = tables
            .remotes
            .iter()
            .map(|remote| {
                let source = (remote.isd_as, remote.host);
                (remote.id, (source, remote.is_strict))
            })
            .collect();
        for (id, (source, was_strict)) in &self.remotes {
            let now = remotes.get(id).filter(|(now, _)| now == source);
            if let Some((_, true)) = now
                && !was_strict
                && let Some(teacher) = &mut context.teacher
            {
                // The programs would go on taking frames that are not protected.
                teacher.forget_remote(*id);
            }
            if now.is_none() {
                let drop = |_, _: Piece<'_>, _| context.counters.drop(DropReason::UnknownRemote);
                self.reassembler.forget_remote(context.now, *id, drop);
                if let Some(teacher) = &mut context.teacher {
                    teacher.forget_remote(*id);
                }
            }
        }
        self.remotes = remotes;
        self.count_discards(context);
    }

    /// What the XDP programs delivered of their streams is known here too, now and then, so that these are not forgotten.
    pub(super) fn look_after_streams(&mut self, context: &mut Context<'_>) {
        let now = context.now;
        let alive = match &mut context.teacher {
            Some(teacher) => teacher.look(now),
            None => return,
        };
        for (key, next) in alive {
            self.resume(context, key, next);
        }
    }

    /// The XDP programs have delivered the stream up to this number.
    fn resume(&mut self, context: &mut Context<'_>, key: StreamKey, next: u64) {
        let mut delivery = Delivery {
            context,
            police: &mut self.police,
            icmp_limit: &mut self.icmp_limit,
        };
        self.reassembler
            .resume(delivery.context.now, key, next, |key, piece, congestion| {
                delivery.released(key, piece, congestion);
            });
    }

    /// Frames of another batch follow; see [`Reassembler::begin_batch`].
    pub(super) fn begin_batch(&mut self, under_pressure: bool) {
        self.reassembler.begin_batch(under_pressure);
    }

    /// Time of the next call of [`Decap::poll`] that will have something to do, in nanoseconds.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        self.reassembler.next_deadline()
    }

    /// Takes an Ethernet frame from the underlay and puts the packets that it completes into
    /// `context.to_lan` and `context.to_tunnel`.
    pub(super) fn frame(&mut self, context: &mut Context<'_>, mut frame: Frame) {
        let admitted = self.admit(context, frame.bytes(context.area));
        let opened = admitted.and_then(|(parsed, slot)| {
            let payload = open(context, &parsed, slot, &mut frame)?;
            Ok((parsed, slot, payload))
        });
        let (parsed, slot, payload) = match opened {
            Ok(opened) => opened,
            Err(reason) => {
                context.discard_frame(frame, reason);
                return;
            }
        };
        let remote = &context.tables.remotes[usize::from(slot)];
        let received = &remote.counters[context.worker].received;
        let (payload_at, payload_len) = (payload.start, payload.len());
        received.frames.add(1);
        received.frame_bytes.add(u64::from(parsed.frame_len));
        context.counters.received.frames.add(1);
        context
            .counters
            .received
            .frame_bytes
            .add(u64::from(parsed.frame_len));

        let key = StreamKey {
            remote: remote.id,
            src_port: parsed.source_port,
            session: parsed.header.session,
            stream: parsed.header.stream,
        };
        if let Some(teacher) = &mut context.teacher
            && let Some(next) = teacher.take(&key, parsed.header.sequence)
        {
            self.resume(context, key, next);
        }
        let view = FrameRef {
            sequence: parsed.header.sequence,
            index: parsed.header.index,
            congestion: inner::is_congestion(parsed.outer_tos)
                || inner::is_congestion(parsed.traffic_class),
            payload: &frame.bytes(context.area)[payload_at..payload_at + payload_len],
        };
        let mut delivery = Delivery {
            context,
            police: &mut self.police,
            icmp_limit: &mut self.icmp_limit,
        };
        // The last packet in the frame leaves in the frame's own chunk, those before are copied out.
        let mut last: Option<(Range<usize>, bool)> = None;
        let outcome =
            self.reassembler
                .insert(delivery.context.now, key, view, |_, piece, congestion| {
                    if let Some((range, congestion)) = last.take() {
                        delivery.copy(slot, &view.payload[range], congestion);
                    }
                    match piece {
                        Piece::InFrame(range) => last = Some((range, congestion)),
                        Piece::Assembled(packet) => delivery.copy(slot, packet, congestion),
                    }
                });
        let is_simple = !parsed.is_protected
            && last
                .as_ref()
                .is_some_and(|(range, _)| *range == (0..payload_len))
            && (outcome.delivered, outcome.discarded) == (1, 0)
            && parsed.header.index == 0;
        match last {
            Some((range, congestion)) => {
                let mut packet = frame;
                let start = packet.headroom() + payload_at + range.start;
                packet.place(start, range.len());
                delivery.packet(slot, packet, congestion);
            }
            None => delivery.context.free.put(frame),
        }
        if outcome.discarded > 0 || outcome.held {
            self.count_discards(context);
        }
        if is_simple
            && let Some(teacher) = &mut context.teacher
            && let Some(next) = self.reassembler.settled(key)
        {
            let source = (parsed.source_isd_as, parsed.source);
            teacher.give(context.now, &key, source, next);
        }
    }

    /// Delivers what timers release: packets held back for a frame that did not come in time.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) {
        let mut delivery = Delivery {
            context,
            police: &mut self.police,
            icmp_limit: &mut self.icmp_limit,
        };
        self.reassembler
            .poll(delivery.context.now, |key, piece, congestion| {
                delivery.released(key, piece, congestion);
            });
        self.count_discards(context);
    }

    /// The parsed frame and the number of the remote that it came from.
    #[inline]
    fn admit(&mut self, context: &Context<'_>, bytes: &[u8]) -> Result<(Parsed, u16), DropReason> {
        let parsed = underlay::parse(bytes, &context.tables.local)?
            // The XDP program leaves what is not ours to the kernel; here it has come too far.
            .ok_or(DropReason::UnsupportedL4)?;
        let slot = self
            .last_source
            .remote(context.tables, (parsed.source_isd_as, parsed.source))
            .ok_or(DropReason::UnknownRemote)?;
        if let Some(sources) = &self.sources
            && !sources.may_bring(&parsed, bytes, &context.tables.local)
        {
            return Err(DropReason::UnderlaySource);
        }
        if parsed.is_protected {
            // What the tag does not cover, the network may change.
            return Ok((parsed, slot));
        }
        if context.tables.remotes[usize::from(slot)].is_strict {
            return Err(DropReason::Unprotected);
        }
        // A zero checksum says that the sender computed none.
        let l4 = usize::from(parsed.l4);
        let has_checksum = bytes.get(l4 + 6..l4 + 8) != Some(&[0, 0]);
        if self.verify_checksums
            && has_checksum
            && !parsed.checksum_is_valid(bytes)
            && !is_right_by_inner_checksum(&parsed, bytes)
        {
            return Err(DropReason::BadChecksum);
        }
        Ok((parsed, slot))
    }

    /// Carries over what the reassembler counts but for the common case.
    #[cold]
    fn count_discards(&mut self, context: &Context<'_>) {
        let counters = self.reassembler.counters();
        context.counters.frames_held.set(counters.held);
        context.counters.gaps.set(counters.gaps);
        context.counters.frames_late.set(counters.late);
        let discards = &counters.discards;
        for (counter, (now, counted)) in context
            .counters
            .drops
            .iter()
            .zip(discards.iter().zip(&mut self.counted))
        {
            counter.add(now - *counted);
            *counted = *now;
        }
    }
}

/// Where the payload of an admitted frame is, after it was found authentic and decrypted if it is protected.
#[inline]
fn open(
    context: &Context<'_>,
    parsed: &Parsed,
    slot: u16,
    frame: &mut Frame,
) -> Result<Range<usize>, DropReason> {
    let payload = parsed.payload();
    if !parsed.is_protected {
        return Ok(payload);
    }
    let keyring = context.tables.remotes[usize::from(slot)].keyring.as_ref();
    let keyring = keyring.ok_or(DropReason::UnknownKey)?;
    let bytes = frame.bytes_mut(context.area);
    let sealed = bytes
        .get_mut(payload.clone())
        .ok_or(DropReason::BadFrameLen)?;
    keyring.open(&parsed.header, sealed)?;
    context.counters.frames_opened.add(1);
    Ok(payload.start + sig_frame::EXTENSION_LEN..payload.end - sig_frame::TAG_LEN)
}

/// Whether the checksum of a frame is as wrong as that of its only packet: the sender told it from that one, as
/// programs of the fast path do. The host finds what is wrong; dropped here, it would be a gap for all flows of the stream.
#[cold]
fn is_right_by_inner_checksum(parsed: &Parsed, bytes: &[u8]) -> bool {
    fn known_sum<const V6: bool>(packet: &[u8]) -> Option<Sum> {
        let simple = Simple::<V6>::parse(packet)?;
        let is_alone = usize::from(simple.total_len) == packet.len();
        simple.known_sum(packet).filter(|_| is_alone)
    }
    let payload = parsed.payload();
    let (l4, start) = (usize::from(parsed.l4), payload.start);
    let addresses = usize::from(parsed.scion) + common::HEADER_LEN..usize::from(parsed.path);
    let (Some(packet), Some(headers), Some(addresses)) = (
        bytes.get(payload),
        bytes.get(l4..start),
        bytes.get(addresses),
    ) else {
        return false;
    };
    let sum = match packet.first().map(|first| first >> 4) {
        Some(4) => known_sum::<false>(packet),
        Some(6) => known_sum::<true>(packet),
        _ => None,
    };
    let len = headers.len() + packet.len();
    parsed.header.index == 0
        && sum.is_some_and(|sum| {
            scion_pseudo_header(addresses, len as u32, PROTO_UDP)
                .add_bytes(headers)
                .combine(sum)
                .is_valid()
        })
}

impl LastSource {
    /// The number of the remote that `source` belongs to.
    #[inline]
    fn remote(&mut self, tables: &Tables, source: (IsdAs, HostAddr)) -> Option<u16> {
        if self.generation != tables.generation || self.source != Some(source) {
            self.slot = *tables.admitted.get(&source)?;
            self.source = Some(source);
            self.generation = tables.generation;
        }
        Some(self.slot)
    }
}

/// Hands packets over to the inner side.
struct Delivery<'a, 'b> {
    context: &'a mut Context<'b>,
    police: &'a mut Police,
    icmp_limit: &'a mut RateLimit,
}

impl Delivery<'_, '_> {
    /// Delivers a packet that was held.
    fn released(&mut self, key: StreamKey, piece: Piece<'_>, congestion: bool) {
        match (self.context.tables.remote_slot(key.remote), piece) {
            (Some(slot), Piece::Assembled(packet)) => self.copy(slot, packet, congestion),
            (None, Piece::Assembled(packet)) => {
                self.context.discard_copy(packet, DropReason::UnknownRemote);
            }
            _ => self.context.counters.drop(DropReason::UnknownRemote),
        }
    }

    /// Delivers a copy of a packet that remote number `slot` sent.
    fn copy(&mut self, slot: u16, packet: &[u8], congestion: bool) {
        match copy(self.context.area, self.context.free, packet) {
            Ok(copied) => self.packet(slot, copied, congestion),
            Err(reason) => self.context.discard_copy(packet, reason),
        }
    }

    /// Delivers a packet that lies in a chunk of its own, behind room for an Ethernet header.
    #[inline]
    fn packet(&mut self, slot: u16, mut packet: Frame, congestion: bool) {
        let context = &mut *self.context;
        let counters = &context.tables.remotes[usize::from(slot)].counters[context.worker];
        let finished = finish(
            context,
            (self.police, self.icmp_limit),
            slot,
            &mut packet,
            congestion,
        );
        match finished {
            Ok(port) => {
                let bytes = (packet.len() - ethernet::HEADER_LEN) as u64;
                for traffic in [&counters.received, &context.counters.received] {
                    traffic.packets.add(1);
                    traffic.packet_bytes.add(bytes);
                }
                match port.and_then(|port| context.to_lan[port].as_mut()) {
                    Some(to_lan) => {
                        context.counters.packets_straight.add(1);
                        to_lan.push(packet);
                    }
                    None => {
                        context.counters.packets_via_helper.add(1);
                        context.to_tunnel.push(packet);
                    }
                }
            }
            Err(reason) => {
                counters.dropped.add(1);
                context.discard(packet, reason);
            }
        }
    }
}

/// Makes an Ethernet frame of the packet, and tells the LAN port that it leaves on; `None` is the inner
/// port.
#[inline]
fn finish(
    context: &mut Context<'_>,
    (police, icmp_limit): (&mut Police, &mut RateLimit),
    slot: u16,
    packet: &mut Frame,
    congestion: bool,
) -> Result<Option<usize>, DropReason> {
    let bytes = packet.bytes_mut(context.area);
    let mut summary = InnerPacket::parse(bytes).map_err(|_| DropReason::InvalidPacket)?;
    let tables = context.tables;
    let delivery = police.admit(tables, slot, bytes, &summary)?;
    if congestion {
        inner::mark_congestion(bytes, &mut summary)?;
    }
    let decision = filter::apply(context, Direction::Ingress, packet, &summary);
    let capacity = tables.remotes[usize::from(slot)].frame_capacity;
    let capacity = capacity.min(decision.segment());
    context.clamp_mss(packet.bytes_mut(context.area), &summary, capacity);
    let repeats = match decision {
        Decision::Carry { repeats, .. } => repeats,
        Decision::Drop => return Err(DropReason::Filtered),
        Decision::Chain(chain) => {
            if delivery == police::Delivery::KernelButNotBack {
                return Err(DropReason::RoutingLoop);
            }
            if u32::from(summary.total_len) > chain.room {
                return Err(DropReason::PacketTooBig);
            }
            filter::mark(context, Mark::Policy(chain.policy), packet, &summary);
            return Ok(None);
        }
    };
    let hop = match delivery {
        police::Delivery::Lan(place) | police::Delivery::LanThisOne(place) => tables.lan.hop(place),
        police::Delivery::Kernel | police::Delivery::KernelButNotBack => None,
    }
    .filter(|hop| hop.takes(&summary) && context.is_open(hop.port));
    let Some(hop) = hop else {
        if u32::from(summary.total_len) > tables.tunnel_mtu {
            let message = Message::TooBig(tables.tunnel_mtu);
            context.tell_sender(icmp_limit, message, packet, &summary);
            return Err(DropReason::PacketTooBig);
        }
        // The kernel is the next router: it takes its one from the TTL.
        inner::put_ethernet(packet, context.area, &tables.tunnel_macs, &summary);
        let frame = packet.bytes_mut(context.area);
        if delivery == police::Delivery::KernelButNotBack {
            frame[6..12].copy_from_slice(&BACK_TO_SENDER);
        }
        return Ok(None);
    };
    let lives_on = summary.decrement_ttl(packet.bytes_mut(context.area));
    debug_assert!(lives_on, "a hop takes only packets with hops left");
    inner::put_ethernet(packet, context.area, &hop.macs, &summary);
    hop.mark_used();
    if let (Some(teacher), police::Delivery::Lan(place), true) =
        (&mut context.teacher, delivery, repeats)
    {
        let number = tables.fast_hops.get(place as usize).copied();
        if let Some(number) = number.filter(|number| *number != 0) {
            let remote = tables.remotes[usize::from(slot)].id;
            let pair = (&summary, tables.filter.by_flow());
            teacher.pair(tables.fast_generation, pair, remote, number);
        }
    }
    Ok(Some(usize::from(hop.port)))
}

/// A packet in a chunk of its own, with room for the Ethernet header.
fn copy(area: &Area, free: &mut FreeList, packet: &[u8]) -> Result<Frame, DropReason> {
    if packet.len() > max_packet(area) {
        return Err(DropReason::PacketTooBig);
    }
    let mut frame = free
        .take_for(ethernet::HEADER_LEN + packet.len())
        .ok_or(DropReason::NoFreeChunk)?;
    frame.place(HEADROOM + ethernet::HEADER_LEN, packet.len());
    frame.bytes_mut(area).copy_from_slice(packet);
    Ok(frame)
}
