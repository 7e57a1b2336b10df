//! Puts the frames of a capture together, with the reassembly of the gateway.

use std::collections::HashMap;

use sig_common::reason::DropReason;

use super::decode::{Ends, Frame};
use super::inner::InnerFile;
use sig_core::framing::{Counters, FrameRef, Limits, Outcome, Piece, Reassembler, StreamKey};

/// More than enough for one file; pages that are not used take no memory.
const LIMITS: Limits = Limits {
    max_packet: 65_575,
    max_frame_payload: 9_216,
    reorder_frames: 1_024,
    reorder_wait_ns: 50_000_000,
    remotes: REMOTES,
    streams_total: 1 << 16,
    streams_per_remote: 1 << 16,
    packets_total: 1 << 10,
    packets_per_remote: 1 << 10,
    held_total: 1 << 12,
    held_per_remote: 1 << 12,
    pending_timeout_ns: 1_000_000_000,
    idle_timeout_ns: 60_000_000_000,
};

/// Pairs of gateways that are told apart.
const REMOTES: usize = 1 << 10;

/// What became of one packet of the capture.
#[derive(Default)]
pub(super) struct Became {
    /// Inner packets that it completed.
    pub(super) completed: u32,
    /// It waits for an earlier frame.
    pub(super) held: bool,
    /// Why something of it was discarded.
    pub(super) discarded: Option<DropReason>,
}

impl Became {
    pub(super) fn bad_checksum() -> Self {
        Self {
            discarded: Some(DropReason::BadChecksum),
            ..Self::default()
        }
    }
}

/// Sums over the capture.
pub(super) struct Totals {
    /// Inner packets completed.
    pub(super) completed: u64,
    /// Their bytes.
    pub(super) completed_bytes: u64,
    /// Packets whose end is not in the capture.
    pub(super) unfinished: usize,
    /// Streams seen.
    pub(super) streams: u64,
    /// Missing frames between others.
    pub(super) gaps: u64,
    /// Discards of the reassembly, by number of the reason.
    pub(super) discards: [u64; DropReason::COUNT],
}

/// The reassembly of all gateways in a capture.
pub(super) struct Assembler {
    reassembler: Reassembler,
    remotes: HashMap<(Ends, u16), u16>,
    sink: Sink,
    now: u64,
    too_many: u64,
}

/// Where completed packets go.
struct Sink {
    file: Option<InnerFile>,
    /// Time of the last frame of each stream: when held frames are let go later, it is the one
    /// that completed what is in them.
    last: HashMap<StreamKey, u64>,
    completed: u64,
    bytes: u64,
    error: Option<String>,
}

impl Sink {
    fn take(&mut self, key: StreamKey, packet: &[u8]) {
        self.completed += 1;
        self.bytes += packet.len() as u64;
        if self.error.is_none()
            && let Some(file) = &mut self.file
        {
            let time = self.last.get(&key).copied().unwrap_or_default();
            self.error = file.write(time, packet).err();
        }
    }
}

impl Assembler {
    pub(super) fn new(file: Option<InnerFile>) -> Result<Self, String> {
        Ok(Self {
            // The seed keeps peers from choosing slow streams; a file is no peer.
            reassembler: Reassembler::new(LIMITS, 0).map_err(|e| e.to_string())?,
            remotes: HashMap::new(),
            sink: Sink {
                file,
                last: HashMap::new(),
                completed: 0,
                bytes: 0,
                error: None,
            },
            now: 0,
            too_many: 0,
        })
    }

    /// Takes the next frame of the capture in, captured at `time` (nanoseconds since 1970).
    pub(super) fn insert(&mut self, time: u64, frame: &Frame<'_>) -> Became {
        // Clocks of captures jump; the reassembly wants one that does not go back.
        self.now = self.now.max(time);
        let now = self.now;
        let next = self.remotes.len();
        let pair = (frame.ends, frame.destination_port);
        let known = self.remotes.get(&pair).copied();
        let remote = known.or_else(|| u16::try_from(next).ok().filter(|_| next < REMOTES));
        let Some(remote) = remote else {
            self.too_many += 1;
            return Became {
                discarded: Some(DropReason::StreamLimit),
                ..Became::default()
            };
        };
        self.remotes.insert(pair, remote);
        let key = StreamKey {
            remote,
            src_port: frame.source_port,
            session: frame.header.session,
            stream: frame.header.stream,
        };
        let sink = &mut self.sink;
        self.reassembler
            .poll(now, |key, piece, _| sink.piece(key, piece, &[]));
        if sink.file.is_some() {
            sink.last.insert(key, time);
        }
        let Outcome {
            delivered,
            reason,
            held,
            ..
        } = self.reassembler.insert(
            now,
            key,
            FrameRef {
                sequence: frame.header.sequence,
                index: frame.header.index,
                congestion: false,
                payload: frame.payload,
            },
            |key, piece, _| sink.piece(key, piece, frame.payload),
        );
        Became {
            completed: delivered,
            held,
            discarded: reason,
        }
    }

    /// Why inner packets could not be written.
    pub(super) fn write_error(&mut self) -> Option<String> {
        self.sink.error.take()
    }

    /// The capture is at its end: lets go what still waits for a missing frame.
    pub(super) fn finish(mut self) -> Result<Totals, String> {
        let sink = &mut self.sink;
        let unfinished = self
            .reassembler
            .finish(self.now, |key, piece, _| sink.piece(key, piece, &[]));
        let Counters {
            gaps,
            streams_opened,
            mut discards,
            ..
        } = self.reassembler.counters().clone();
        discards[DropReason::StreamLimit as usize] += self.too_many;
        let totals = Totals {
            completed: sink.completed,
            completed_bytes: sink.bytes,
            unfinished,
            streams: streams_opened,
            gaps,
            discards,
        };
        match (self.sink.error, self.sink.file) {
            (Some(error), _) => Err(error),
            (None, Some(file)) => file.finish().map(|()| totals),
            (None, None) => Ok(totals),
        }
    }
}

impl Sink {
    fn piece(&mut self, key: StreamKey, piece: Piece<'_>, payload: &[u8]) {
        match piece {
            Piece::InFrame(range) => self.take(key, payload.get(range).unwrap_or_default()),
            Piece::Assembled(packet) => self.take(key, packet),
        }
    }
}
