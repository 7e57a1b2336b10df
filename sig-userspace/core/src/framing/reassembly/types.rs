//! What goes in and comes out.

use core::ops::Range;

use sig_common::reason::DropReason;

use crate::framing::STREAM_MASK;

/// What tells one stream from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamKey {
    /// Number of the remote gateway (its ISD-AS and host), below [`Limits::remotes`](super::Limits::remotes).
    pub remote: u16,
    /// UDP/SCION source port.
    pub src_port: u16,
    /// Session of the frame header.
    pub session: u8,
    /// Stream id of the frame header; bits above the low 20 are ignored.
    pub stream: u32,
}

impl StreamKey {
    #[inline]
    pub(super) const fn pack(self) -> u64 {
        (self.remote as u64) << 44
            | (self.src_port as u64) << 28
            | (self.session as u64) << 20
            | (self.stream & STREAM_MASK) as u64
    }

    #[inline]
    pub(super) const fn unpack(key: u64) -> Self {
        Self {
            remote: (key >> 44) as u16,
            src_port: (key >> 28) as u16,
            session: (key >> 20) as u8,
            stream: key as u32 & STREAM_MASK,
        }
    }
}

/// A received frame.
#[derive(Clone, Copy, Debug)]
pub struct FrameRef<'a> {
    /// Sequence number of the frame header.
    pub sequence: u64,
    /// Index of the frame header.
    pub index: u16,
    /// The outer packet was marked Congestion Experienced.
    pub congestion: bool,
    /// What follows the frame header.
    pub payload: &'a [u8],
}

/// A whole IP packet: its header was checked as by [`packet_len`](crate::framing::packet_len), it is
/// exactly as long as it announces and at most [`Limits::max_packet`](super::Limits::max_packet).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// It lies in the payload given in this call, there.
    InFrame(Range<usize>),
    /// It was put together, or lay in a held frame; valid during the call.
    Assembled(&'a [u8]),
}

/// What became of a frame, and of those it set free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Outcome {
    /// Packets delivered.
    pub delivered: u32,
    /// Discards counted.
    pub discarded: u32,
    /// The reason of the first discard.
    pub reason: Option<DropReason>,
    /// The frame is held until the ones before it have come or are given up.
    pub held: bool,
}

/// Sums since construction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Frames given.
    pub frames: u64,
    /// Packets delivered.
    pub packets: u64,
    /// Frames that were held.
    pub held: u64,
    /// Gaps in sequence numbers that were given up.
    pub gaps: u64,
    /// Frames that came after they were given up.
    pub late: u64,
    /// Streams begun.
    pub streams_opened: u64,
    /// Streams that gave way to another of the same remote.
    pub streams_evicted: u64,
    /// Discards (of a frame, a packet, or a part of one) by [`DropReason`].
    pub discards: [u64; DropReason::COUNT],
}

/// What is in use at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Streams known.
    pub streams: usize,
    /// Packets being put together.
    pub packets: usize,
    /// Frames held.
    pub held: usize,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            frames: 0,
            packets: 0,
            held: 0,
            gaps: 0,
            late: 0,
            streams_opened: 0,
            streams_evicted: 0,
            discards: [0; DropReason::COUNT],
        }
    }
}
