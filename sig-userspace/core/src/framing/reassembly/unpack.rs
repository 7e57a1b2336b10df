//! One frame in its turn: the end of the pending packet, whole packets, the start of the next.

use sig_common::reason::DropReason;

use super::line::Pending;
use super::pool::{Buffer, Owner, Pool, Room};
use super::{FrameRef, Limits, Piece, StreamKey, Tally};
use crate::framing::{MAX_FRAMES_PER_PACKET, Malformed, NO_START, packet_len};

/// A frame whose turn has come.
#[derive(Clone, Copy)]
pub(super) struct Payload<'a> {
    pub(super) index: u16,
    pub(super) congestion: bool,
    pub(super) bytes: &'a [u8],
    /// The bytes are the caller's, who is told ranges instead of bytes.
    pub(super) of_caller: bool,
}

impl<'a> Payload<'a> {
    pub(super) fn of(frame: &FrameRef<'a>) -> Self {
        Self {
            index: frame.index,
            congestion: frame.congestion,
            bytes: frame.payload,
            of_caller: true,
        }
    }
}

/// The parts of the reassembly that a frame touches.
pub(super) struct Unpack<'a, F> {
    pub(super) limits: &'a Limits,
    pub(super) packets: &'a mut Pool<Pending>,
    pub(super) tally: &'a mut Tally,
    pub(super) deliver: &'a mut F,
    pub(super) key: StreamKey,
    pub(super) now: u64,
    /// The line, and its rank.
    pub(super) at: u32,
    pub(super) rank: u8,
}

impl<F: FnMut(StreamKey, Piece<'_>, bool)> Unpack<'_, F> {
    /// Takes a frame in that comes behind `pending`. Returns whether it begins with the rest of a
    /// packet whose start is not here.
    #[inline]
    pub(super) fn frame(&mut self, pending: &mut Pending, frame: Payload<'_>) -> bool {
        let mut orphan = false;
        let start = if pending.len != 0 {
            self.resume(pending, frame)
        } else {
            orphan = frame.index != 0;
            Some(usize::from(frame.index))
        };
        if let Some(start) = start
            && frame.index != NO_START
        {
            self.packets_from(pending, frame, start);
        }
        orphan
    }

    /// Continues the pending packet with the first bytes of the frame; where to go on, if
    /// anything may follow.
    pub(super) fn resume(&mut self, pending: &mut Pending, frame: Payload<'_>) -> Option<usize> {
        let missing = (pending.len - pending.have) as usize;
        let index = usize::from(frame.index);
        let bytes = if frame.index == NO_START && frame.bytes.len() <= missing {
            frame.bytes
        } else if index == missing && index <= frame.bytes.len() {
            &frame.bytes[..missing]
        } else {
            abandon(pending, self.packets);
            self.tally.discard(DropReason::IndexMismatch);
            return Some(index);
        };
        let have = pending.have as usize;
        pending.have += bytes.len() as u32;
        pending.frames += 1;
        pending.congestion |= frame.congestion;
        if pending.frames as usize > MAX_FRAMES_PER_PACKET {
            abandon(pending, self.packets);
            self.tally.discard(DropReason::FrameTooManyParts);
            return Some(index);
        }
        let slot = self.packets.slot(pending.buffer);
        if let Some(slot) = slot {
            self.packets.bytes_mut(slot)[have..have + bytes.len()].copy_from_slice(bytes);
        }
        if bytes.len() < missing {
            return None;
        }
        if let Some(slot) = slot {
            let packet = &self.packets.bytes(slot)[..have + missing];
            self.tally.delivered();
            (self.deliver)(self.key, Piece::Assembled(packet), pending.congestion);
        }
        abandon(pending, self.packets);
        // A frame may end with the tail and yet carry its length as index.
        (frame.bytes.len() > missing).then_some(missing)
    }

    #[inline]
    fn packets_from(&mut self, pending: &mut Pending, frame: Payload<'_>, start: usize) {
        let payload = frame.bytes;
        if start >= payload.len() {
            self.tally.discard(DropReason::IndexOutOfRange);
            return;
        }
        let mut at = start;
        while at < payload.len() {
            let len = match packet_len(&payload[at..]) {
                Ok(len) => len,
                Err(Malformed::NotIp | Malformed::HeaderCut) => {
                    self.tally.discard(DropReason::FrameInvalidPacket);
                    return;
                }
            };
            if len > payload.len() - at {
                *pending = self.begin(len, &payload[at..], frame.congestion);
                return;
            }
            if len > self.limits.max_packet {
                self.tally.discard(DropReason::PacketTooBig);
            } else {
                self.tally.delivered();
                let piece = if frame.of_caller {
                    Piece::InFrame(at..at + len)
                } else {
                    Piece::Assembled(&payload[at..at + len])
                };
                (self.deliver)(self.key, piece, frame.congestion);
            }
            at += len;
        }
    }

    /// A packet starts that does not end in this frame.
    fn begin(&mut self, len: usize, head: &[u8], congestion: bool) -> Pending {
        let mut buffer = Buffer::NONE;
        if len > self.limits.max_packet {
            self.tally.discard(DropReason::PacketTooBig);
        } else {
            buffer = self.buffer();
            if let Some(slot) = self.packets.slot(buffer) {
                self.packets.bytes_mut(slot)[..head.len()].copy_from_slice(head);
            }
        }
        Pending {
            buffer,
            len: len as u32,
            have: head.len() as u32,
            frames: 1,
            congestion,
        }
    }

    /// A new buffer. If none is free, the oldest packet of the least trusted streams gives way.
    fn buffer(&mut self) -> Buffer {
        let remote = self.key.remote;
        let victim = match self.packets.room(remote) {
            Room::Free => None,
            Room::Instead(slot) => Some(slot),
            Room::None => {
                self.tally.discard(DropReason::BufferLimit);
                return Buffer::NONE;
            }
        };
        if let Some(slot) = victim {
            self.tally.discard(DropReason::BufferLimit);
            self.packets.give(slot);
        }
        let owner = Owner::new(self.at, remote, self.rank, self.now);
        let buffer = self.packets.take(owner, Pending::NONE);
        buffer.unwrap_or(Buffer::NONE)
    }
}

/// Ends the pending packet, if there is one. Returns whether it could still have been delivered:
/// a packet that is skipped was counted at its start.
pub(super) fn abandon(pending: &mut Pending, packets: &mut Pool<Pending>) -> bool {
    let buffer = core::mem::take(pending).buffer;
    match packets.slot(buffer) {
        Some(slot) => packets.give(slot),
        None => return false,
    }
    true
}
