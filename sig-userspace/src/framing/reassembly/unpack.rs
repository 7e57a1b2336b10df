//! One frame in its turn: the end of the pending packet, whole packets, the start of the next.

use sig_common::reason::DropReason;

use super::list::NIL;
use super::pool::{Owner, Pool};
use super::stream::{Pending, Stream};
use super::{Limits, Piece, StreamKey, Tally};
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

/// The parts of the reassembly that a frame touches.
pub(super) struct Unpack<'a, F> {
    pub(super) limits: &'a Limits,
    pub(super) packets: &'a mut Pool,
    pub(super) tally: &'a mut Tally,
    pub(super) deliver: &'a mut F,
    pub(super) now: u64,
    pub(super) key: StreamKey,
    pub(super) at: u32,
    pub(super) stream: &'a mut Stream,
}

impl<F: FnMut(StreamKey, Piece<'_>, bool)> Unpack<'_, F> {
    /// Takes the frame `stream.next` in.
    #[inline]
    pub(super) fn frame(&mut self, frame: Payload<'_>) {
        self.stream.advance();
        let start = if self.stream.pending.len != 0 {
            self.resume(frame)
        } else if frame.index == 0 {
            Some(0)
        } else {
            self.tally.discard(DropReason::FrameGap);
            Some(usize::from(frame.index))
        };
        if let Some(start) = start
            && frame.index != NO_START
        {
            self.packets_from(frame, start);
        }
    }

    /// Continues the pending packet with the first bytes of the frame; where to go on, if
    /// anything may follow.
    fn resume(&mut self, frame: Payload<'_>) -> Option<usize> {
        let pending = &mut self.stream.pending;
        let missing = (pending.len - pending.have) as usize;
        let index = usize::from(frame.index);
        let bytes = if frame.index == NO_START && frame.bytes.len() <= missing {
            frame.bytes
        } else if index == missing && index <= frame.bytes.len() {
            &frame.bytes[..missing]
        } else {
            abandon(self.stream, self.packets);
            self.tally.discard(DropReason::IndexMismatch);
            return Some(index);
        };
        let have = pending.have as usize;
        pending.have += bytes.len() as u32;
        pending.frames += 1;
        pending.congestion |= frame.congestion;
        let Pending {
            buffer, congestion, ..
        } = *pending;
        if pending.frames as usize > MAX_FRAMES_PER_PACKET {
            abandon(self.stream, self.packets);
            self.tally.discard(DropReason::FrameTooManyParts);
            return Some(index);
        }
        if buffer != NIL {
            self.packets.bytes_mut(buffer)[have..have + bytes.len()].copy_from_slice(bytes);
        }
        if bytes.len() < missing {
            return None;
        }
        if buffer != NIL {
            let packet = &self.packets.bytes(buffer)[..have + missing];
            self.tally.delivered();
            (self.deliver)(self.key, Piece::Assembled(packet), congestion);
        }
        abandon(self.stream, self.packets);
        // A frame may end with the tail and yet carry its length as index.
        (frame.bytes.len() > missing).then_some(missing)
    }

    #[inline]
    fn packets_from(&mut self, frame: Payload<'_>, start: usize) {
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
                self.begin(len, &payload[at..], frame.congestion);
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
    fn begin(&mut self, len: usize, head: &[u8], congestion: bool) {
        let buffer = if len > self.limits.max_packet {
            self.tally.discard(DropReason::PacketTooBig);
            NIL
        } else {
            let owner = Owner {
                stream: self.at,
                remote: self.key.remote,
                since: self.now,
            };
            match self.packets.take(owner) {
                Some(buffer) => {
                    self.packets.bytes_mut(buffer)[..head.len()].copy_from_slice(head);
                    buffer
                }
                None => {
                    self.tally.discard(DropReason::BufferLimit);
                    NIL
                }
            }
        };
        self.stream.pending = Pending {
            buffer,
            len: len as u32,
            have: head.len() as u32,
            frames: 1,
            congestion,
        };
    }
}

/// Ends the pending packet, if there is one. Returns whether it could still have been delivered:
/// a packet that is skipped was counted at its start.
pub(super) fn abandon(stream: &mut Stream, packets: &mut Pool) -> bool {
    let buffer = core::mem::replace(&mut stream.pending, Pending::NONE).buffer;
    if buffer != NIL {
        packets.give(buffer);
    }
    buffer != NIL
}
