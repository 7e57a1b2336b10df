mod elsewhere;
mod forged;
mod order;
mod packets;
mod reference;
mod shares;
mod wild;

use sig_common::reason::DropReason;

use super::*;

pub(super) const MS: u64 = 1_000_000;

/// What was delivered, copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Delivered {
    pub(super) key: StreamKey,
    pub(super) packet: Vec<u8>,
    pub(super) congestion: bool,
}

/// A reassembler with a clock and a memory of what it delivered.
pub(super) struct Receiver {
    pub(super) inner: Reassembler,
    pub(super) now: u64,
    pub(super) out: Vec<Delivered>,
    /// Whether the invariants are checked each time, which takes long with real limits.
    pub(super) audited: bool,
}

pub(super) fn small() -> Limits {
    Limits {
        max_packet: 2_000,
        max_frame_payload: 1_500,
        remotes: 4,
        streams_total: 8,
        streams_per_remote: 3,
        packets_total: 4,
        packets_per_remote: 2,
        held_total: 40,
        held_per_remote: 34,
        reorder_frames: 32,
        reorder_wait_ns: MS,
        ..Limits::default()
    }
}

impl Receiver {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            inner: Reassembler::new(limits, 0x5eed).expect("valid limits"),
            now: 0,
            out: Vec::new(),
            audited: true,
        }
    }

    pub(super) fn without_window() -> Self {
        Self::new(Limits {
            reorder_frames: 0,
            ..small()
        })
    }

    pub(super) fn frame_of(
        &mut self,
        key: StreamKey,
        sequence: u64,
        index: u16,
        congestion: bool,
        payload: &[u8],
    ) -> Outcome {
        let out = &mut self.out;
        let frame = FrameRef {
            sequence,
            index,
            congestion,
            payload,
        };
        let outcome = self
            .inner
            .insert(self.now, key, frame, |key, piece, congestion| {
                let packet = match piece {
                    Piece::InFrame(range) => payload[range].to_vec(),
                    Piece::Assembled(packet) => packet.to_vec(),
                };
                out.push(Delivered {
                    key,
                    packet,
                    congestion,
                });
            });
        self.check("invariants hold after a frame");
        outcome
    }

    /// A frame of stream 1 of remote 0.
    pub(super) fn frame(&mut self, sequence: u64, index: u16, payload: &[u8]) -> Outcome {
        self.frame_of(key(0, 1), sequence, index, false, payload)
    }

    pub(super) fn wait(&mut self, ns: u64) {
        self.now += ns;
        let out = &mut self.out;
        self.inner.poll(self.now, |key, piece, congestion| {
            let Piece::Assembled(packet) = piece else {
                panic!("a timer has no frame of the caller")
            };
            out.push(Delivered {
                key,
                packet: packet.to_vec(),
                congestion,
            });
        });
        self.check("invariants hold after a timer");
        assert!(
            self.inner.next_deadline().is_none_or(|at| at > self.now),
            "nothing is overdue after a poll"
        );
    }

    fn check(&self, when: &str) {
        if self.audited {
            self.inner.audit().expect(when);
        }
    }

    /// The packets delivered since the last call.
    pub(super) fn taken(&mut self) -> Vec<Vec<u8>> {
        self.out.drain(..).map(|d| d.packet).collect()
    }

    pub(super) fn discards(&self, reason: DropReason) -> u64 {
        self.inner.counters().discards[reason as usize]
    }

    /// All discards so far, by reason.
    pub(super) fn all_discards(&self) -> Vec<(DropReason, u64)> {
        DropReason::ALL
            .into_iter()
            .zip(self.inner.counters().discards)
            .filter(|&(_, count)| count > 0)
            .collect()
    }
}

pub(super) fn key(remote: u16, stream: u32) -> StreamKey {
    StreamKey {
        remote,
        src_port: 30_056,
        session: 1,
        stream,
    }
}

/// An IPv4 packet of `len` bytes, all payload bytes `fill`.
pub(super) fn ipv4(len: u16, fill: u8) -> Vec<u8> {
    let mut packet = vec![0; usize::from(len)];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&len.to_be_bytes());
    packet[20..].fill(fill);
    packet
}

/// An IPv6 packet of `len` bytes, all payload bytes `fill`.
pub(super) fn ipv6(len: usize, fill: u8) -> Vec<u8> {
    let mut packet = vec![0; len];
    packet[0] = 0x60;
    packet[4..6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
    packet[40..].fill(fill);
    packet
}
