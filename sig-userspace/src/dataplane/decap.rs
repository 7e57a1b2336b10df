//! From SCION to IP: frames in, inner packets out.

use std::ops::Range;

use sig_common::{
    reason::DropReason,
    wire::{
        inner::InnerPacket,
        underlay::{self, Parsed},
    },
};

use super::{context::Context, inner, police::Police};
use crate::{
    framing::{FrameRef, Limits, LimitsError, Piece, Reassembler, StreamKey},
    port::umem::{Area, CHUNK_SIZE, Frame, FreeList, HEADROOM},
};

/// Longest inner packet that fits a chunk behind its headroom and an Ethernet header.
pub const MAX_PACKET: usize = CHUNK_SIZE - HEADROOM - inner::ETHERNET_LEN;

/// Packets that one frame can set free, with all that were held for it: enough not to allocate later.
const MAX_RELEASED: usize = 64 * CHUNK_SIZE / 20;

/// A packet found in a frame, in order of delivery.
enum Found {
    /// Still in the frame: this part of its payload.
    InFrame(Range<usize>, bool),
    /// In a chunk of its own, without Ethernet header yet.
    Copied(Frame, bool),
}

/// One worker's receive side.
pub(super) struct Decap {
    reassembler: Reassembler,
    /// The reassembler's discards that the worker has counted.
    counted: [u64; DropReason::COUNT],
    police: Police,
    found: Vec<Found>,
    /// Packets that a timer released, with the remote they came from.
    released: Vec<(u16, Frame, bool)>,
    verify_checksums: bool,
}

impl Decap {
    /// A receive side whose reassembly memory is fixed by `limits`.
    pub(super) fn new(limits: Limits, verify_checksums: bool) -> Result<Self, LimitsError> {
        let limits = Limits {
            max_packet: limits.max_packet.min(MAX_PACKET),
            ..limits
        };
        Ok(Decap {
            // The seed keeps peers from choosing stream ids that collide.
            reassembler: Reassembler::new(limits, rand::random())?,
            counted: [0; DropReason::COUNT],
            police: Police::default(),
            found: Vec::with_capacity(MAX_RELEASED),
            released: Vec::with_capacity(MAX_RELEASED),
            verify_checksums,
        })
    }

    /// Time of the next call of [`Decap::poll`] that will have something to do, in nanoseconds.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        self.reassembler.next_deadline()
    }

    /// Takes an Ethernet frame from the underlay and puts the packets that it completes into
    /// `context.to_inner`.
    pub(super) fn frame(&mut self, context: &mut Context<'_>, frame: Frame) {
        let parsed = match self.admit(context, frame.bytes(context.area)) {
            Ok(admitted) => admitted,
            Err(reason) => {
                context.discard(frame, reason);
                return;
            }
        };
        let (parsed, slot) = parsed;
        let remote = &context.tables.remotes[usize::from(slot)];
        let received = &remote.counters[context.worker].received;
        let payload_at = usize::from(parsed.frame) + inner::SIG_LEN;
        let payload_len = usize::from(parsed.frame_len) - inner::SIG_LEN;
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
        let view = FrameRef {
            sequence: parsed.header.sequence,
            index: parsed.header.index,
            congestion: inner::is_congestion(parsed.outer_tos)
                || inner::is_congestion(parsed.traffic_class),
            payload: &frame.bytes(context.area)[payload_at..payload_at + payload_len],
        };
        let (area, found) = (context.area, &mut self.found);
        let (free, counters) = (&mut *context.free, context.counters);
        let outcome = self
            .reassembler
            .insert(context.now, key, view, |_, piece, congestion| match piece {
                Piece::InFrame(range) => found.push(Found::InFrame(range, congestion)),
                Piece::Assembled(packet) => match copy(area, free, packet) {
                    Ok(copied) => found.push(Found::Copied(copied, congestion)),
                    Err(reason) => counters.drop(reason),
                },
            });
        if outcome.discarded > 0 || outcome.held {
            self.count_discards(context);
        }

        // The last packet that is still in the frame leaves in the frame's own chunk, the others
        // are copied out before it.
        let last = self
            .found
            .iter()
            .rposition(|found| matches!(found, Found::InFrame(..)));
        let mut found = std::mem::take(&mut self.found);
        let mut frame = Some(frame);
        for (position, found) in found.drain(..).enumerate() {
            match found {
                Found::Copied(packet, congestion) => {
                    self.deliver(context, slot, packet, congestion)
                }
                Found::InFrame(range, congestion) => {
                    let Some(mut source) = frame.take() else {
                        continue;
                    };
                    let start = source.headroom() + payload_at;
                    if Some(position) == last {
                        source.place(start + range.start, range.len());
                        self.deliver(context, slot, source, congestion);
                    } else {
                        let packet = &source.bytes(context.area)[payload_at..][range];
                        match copy(context.area, context.free, packet) {
                            Ok(copied) => self.deliver(context, slot, copied, congestion),
                            Err(reason) => context.counters.drop(reason),
                        }
                        frame = Some(source);
                    }
                }
            }
        }
        self.found = found;
        if let Some(frame) = frame {
            context.free.put(frame);
        }
    }

    /// Delivers what timers release: packets held back for a frame that did not come in time.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) {
        let mut released = std::mem::take(&mut self.released);
        let (area, free, counters) = (context.area, &mut *context.free, context.counters);
        self.reassembler
            .poll(context.now, |key, piece, congestion| {
                if let Piece::Assembled(packet) = piece {
                    match copy(area, free, packet) {
                        Ok(copied) => released.push((key.remote, copied, congestion)),
                        Err(reason) => counters.drop(reason),
                    }
                }
            });
        self.count_discards(context);
        for (id, packet, congestion) in released.drain(..) {
            match context
                .tables
                .remotes
                .iter()
                .position(|remote| remote.id == id)
            {
                Some(slot) => self.deliver(context, slot as u16, packet, congestion),
                None => context.discard(packet, DropReason::UnknownRemote),
            }
        }
        self.released = released;
    }

    /// The parsed frame and the number of the remote that it came from.
    #[inline]
    fn admit(&self, context: &Context<'_>, bytes: &[u8]) -> Result<(Parsed, u16), DropReason> {
        let parsed = underlay::parse(bytes, &context.tables.local)?
            // The XDP program leaves what is not ours to the kernel; here it has come too far.
            .ok_or(DropReason::UnsupportedL4)?;
        let slot = *context
            .tables
            .admitted
            .get(&(parsed.source_isd_as, parsed.source))
            .ok_or(DropReason::UnknownRemote)?;
        // A zero checksum says that the sender computed none.
        let l4 = usize::from(parsed.l4);
        let has_checksum = bytes.get(l4 + 6..l4 + 8) != Some(&[0, 0]);
        if self.verify_checksums && has_checksum && !parsed.checksum_is_valid(bytes) {
            return Err(DropReason::BadChecksum);
        }
        Ok((parsed, slot))
    }

    /// Carries over what the reassembler counts but for the common case.
    #[cold]
    fn count_discards(&mut self, context: &Context<'_>) {
        let counters = self.reassembler.counters();
        context.counters.held.set(counters.held);
        context.counters.gaps.set(counters.gaps);
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

    fn deliver(
        &mut self,
        context: &mut Context<'_>,
        slot: u16,
        mut packet: Frame,
        congestion: bool,
    ) {
        match self.finish(context, slot, &mut packet, congestion) {
            Ok(()) => {
                let received =
                    &context.tables.remotes[usize::from(slot)].counters[context.worker].received;
                let bytes = (packet.len() - inner::ETHERNET_LEN) as u64;
                for traffic in [received, &context.counters.received] {
                    traffic.packets.add(1);
                    traffic.packet_bytes.add(bytes);
                }
                context.to_inner.push(packet);
            }
            Err(reason) => {
                context.tables.remotes[usize::from(slot)].counters[context.worker]
                    .dropped
                    .add(1);
                context.discard(packet, reason);
            }
        }
    }

    #[inline]
    fn finish(
        &mut self,
        context: &Context<'_>,
        slot: u16,
        packet: &mut Frame,
        congestion: bool,
    ) -> Result<(), DropReason> {
        let bytes = packet.bytes_mut(context.area);
        let summary = InnerPacket::parse(bytes).map_err(|_| DropReason::InvalidPacket)?;
        self.police
            .admit(context.tables, slot, summary.source, summary.destination)?;
        if congestion {
            inner::mark_congestion(bytes, &summary)?;
        }
        let (start, len) = (packet.headroom() - inner::ETHERNET_LEN, packet.len());
        packet.place(start, inner::ETHERNET_LEN + len);
        inner::write_ethernet(packet.bytes_mut(context.area), context.tables, &summary);
        Ok(())
    }
}

/// A packet in a chunk of its own, with room for the Ethernet header.
fn copy(area: &Area, free: &mut FreeList, packet: &[u8]) -> Result<Frame, DropReason> {
    if packet.len() > MAX_PACKET {
        return Err(DropReason::PacketTooBig);
    }
    let mut frame = free.take().ok_or(DropReason::NoFreeChunk)?;
    frame.place(HEADROOM + inner::ETHERNET_LEN, packet.len());
    frame.bytes_mut(area).copy_from_slice(packet);
    Ok(frame)
}
