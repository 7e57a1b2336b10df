//! What a worker tells the programs: its decisions, and which streams are in order.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use rand::{RngCore as _, SeedableRng as _, rngs::SmallRng};
use sig_common::{
    addr::{HostAddr, IsdAs},
    fast_path::{
        self, MAX_STREAMS, flow_key, flow_place, pair_key, pair_place, returned_key, stream,
        tickets,
    },
    maps::Ip,
    wire::{PROTO_SCTP, PROTO_TCP, PROTO_UDP, inner::InnerPacket, ipv6::UpperLayer},
};

use super::{Shared, shared};
use crate::framing::StreamKey;

/// Between looks at the streams that the programs deliver, nanoseconds.
const LOOK_NS: u64 = 1_000_000_000;
/// Streams that a worker leaves to the programs in one such time: each costs a system call.
const NEW_STREAMS: u32 = 64;
/// How long a stream that brings nothing is left to the programs, nanoseconds: shorter than streams are remembered.
const SILENCE_NS: u64 = 30_000_000_000;

/// One worker's.
pub(crate) struct Teacher {
    shared: Arc<Shared>,
    streams: HashMap<StreamKey, Taught>,
    /// Places for streams: free ones, and those that the programs may still be using.
    free: Vec<u32>,
    leaving: Vec<u32>,
    random: SmallRng,
    look_at: u64,
    budget: u32,
}

/// A stream that the programs may deliver.
struct Taught {
    place: u32,
    key: fast_path::StreamKey,
    /// The number expected next when it was looked at last.
    next: u64,
    /// When that had changed.
    changed: u64,
}

impl Teacher {
    /// Worker `number` of `workers`.
    pub(crate) fn new(shared: Arc<Shared>, number: usize, workers: usize) -> Self {
        let share = MAX_STREAMS / workers.max(1) as u32;
        let first = number as u32 * share;
        Teacher {
            shared,
            streams: HashMap::new(),
            free: (first..first + share).rev().collect(),
            leaving: Vec::new(),
            random: SmallRng::from_os_rng(),
            look_at: 0,
            budget: NEW_STREAMS,
        }
    }

    /// The socket that a packet with this metadata was handed over to, if that is there.
    #[inline]
    pub(crate) fn socket(metadata: u64) -> Option<u32> {
        let (_, socket) = tickets::decompose(metadata);
        socket.checked_sub(1)
    }

    /// The stream of a socket on a path: its id, and the word with its next sequence number.
    #[inline]
    pub(crate) fn sender(&self, path: u32, socket: u32) -> (u32, &AtomicU64) {
        self.shared.sender(path, socket)
    }

    /// Packets of this flow go on a path. `has_returned`: those that have been through their chain.
    #[inline]
    pub(crate) fn flow(
        &mut self,
        generation: u16,
        (packet, has_returned): (&InnerPacket, bool),
        hash: u32,
        path: u32,
    ) {
        if !has_all_of_its_flow(packet) {
            return;
        }
        let key = flow_key(packet);
        let key = if has_returned {
            returned_key(&key)
        } else {
            key
        };
        let slot = self.shared.flow(flow_place(hash, has_returned));
        shared::write(slot, generation, path, &key, || self.random.next_u64());
    }

    /// Packets of a remote between the addresses of this one go to a next hop; `by_flow`: those of its flow.
    #[inline]
    pub(crate) fn pair(
        &mut self,
        generation: u16,
        (packet, by_flow): (&InnerPacket, bool),
        remote: u16,
        hop: u32,
    ) {
        if by_flow && !has_all_of_its_flow(packet) {
            return;
        }
        let key = pair_key(packet, remote.into(), by_flow);
        let slot = self.shared.pair(pair_place(&key));
        shared::write(slot, generation, hop, &key, || self.random.next_u64());
    }

    /// The worker has a frame of this stream: from now on the programs deliver none of it. Returns up to which number they
    /// delivered it, or dropped what a worker that is behind would not have got either; once, as the stream may take another
    /// way with the worker.
    #[inline]
    pub(crate) fn take(&mut self, key: &StreamKey, sequence: u64) -> Option<u64> {
        let taught = self.streams.get(key)?;
        let words = self.shared.stream(taught.place);
        let before = words[stream::NEXT].fetch_or(stream::WITH_ENGINE, Ordering::AcqRel);
        let next = before & !stream::WITH_ENGINE;
        let dropped = words[stream::DROPPED].load(Ordering::Relaxed);
        if dropped > next && dropped <= sequence && dropped - next <= stream::MAX_DROPPED {
            words[stream::NEXT].store(dropped | stream::WITH_ENGINE, Ordering::Relaxed);
            return Some(dropped);
        }
        (before == next).then_some(next)
    }

    /// The stream is in order, and expects this number next: the programs may go on, as soon as they have no more tickets out.
    #[inline]
    pub(crate) fn give(&mut self, now: u64, key: &StreamKey, source: (IsdAs, HostAddr), next: u64) {
        if next >= stream::WITH_ENGINE {
            return;
        }
        match self.streams.get(key) {
            Some(taught) => {
                let word = &self.shared.stream(taught.place)[stream::NEXT];
                word.store(next, Ordering::Release);
            }
            None => self.begin(now, key, source, next),
        }
    }

    #[cold]
    fn begin(&mut self, now: u64, key: &StreamKey, source: (IsdAs, HostAddr), next: u64) {
        let Some(host) = Ip::of_host(source.1) else {
            return;
        };
        let Some(place) = self.free.pop_if(|_| self.budget > 0) else {
            return;
        };
        self.budget -= 1;
        let words = self.shared.stream(place);
        words[stream::DROPPED].store(0, Ordering::Relaxed);
        words[stream::TICKET].store(0, Ordering::Relaxed);
        words[stream::NEXT].store(next, Ordering::Release);
        let name = fast_path::StreamKey::new(source.0, host, key.src_port, key.session, key.stream);
        match self.shared.index.insert(&name, place) {
            Ok(()) => {
                let taught = Taught {
                    place,
                    key: name,
                    next,
                    changed: now,
                };
                self.streams.insert(*key, taught);
            }
            Err(_) => self.free.push(place),
        }
    }

    /// When [`Teacher::look`] has something to do, nanoseconds.
    pub(crate) fn next_look(&self) -> Option<u64> {
        (!self.streams.is_empty() || !self.leaving.is_empty()).then_some(self.look_at)
    }

    /// Looks after the streams once in a while: returns those that the programs go on with, or did until now, and the numbers these expect.
    /// Streams that are silent end.
    pub(crate) fn look(&mut self, now: u64) -> Vec<(StreamKey, u64)> {
        let mut alive = Vec::new();
        if now < self.look_at {
            return alive;
        }
        self.look_at = now + LOOK_NS;
        self.budget = NEW_STREAMS;
        self.free.append(&mut self.leaving);
        let ended = self.retain(|shared, key, taught| {
            let next = shared.stream(taught.place)[stream::NEXT].load(Ordering::Acquire);
            if next != taught.next {
                (taught.next, taught.changed) = (next, now);
                if next < stream::WITH_ENGINE {
                    alive.push((*key, next));
                }
            }
            now.saturating_sub(taught.changed) < SILENCE_NS
        });
        alive.extend(ended);
        alive
    }

    /// The programs deliver nothing of a remote any more.
    pub(crate) fn forget_remote(&mut self, remote: u16) {
        self.retain(|_, key, _| key.remote != remote);
    }

    /// Ends the streams that do not stay. Returns those that the programs went on with, and the numbers these expected.
    fn retain(
        &mut self,
        mut stays: impl FnMut(&Shared, &StreamKey, &mut Taught) -> bool,
    ) -> Vec<(StreamKey, u64)> {
        let mut ended = Vec::new();
        let Teacher {
            shared,
            streams,
            leaving,
            ..
        } = self;
        streams.retain(|key, taught| {
            let stays = stays(shared, key, taught);
            if !stays {
                let words = shared.stream(taught.place);
                let next = words[stream::NEXT].fetch_or(stream::WITH_ENGINE, Ordering::AcqRel);
                if next < stream::WITH_ENGINE {
                    ended.push((*key, next));
                }
                shared.index.remove(&taught.key);
                leaving.push(taught.place);
            }
            stays
        });
        ended
    }
}

/// Whether the packet is no fragment: these have no ports, which is another flow than that with ports of 0, but has the same key.
#[inline]
pub(crate) fn has_all_of_its_flow(packet: &InnerPacket) -> bool {
    match packet.upper() {
        UpperLayer::At {
            protocol: PROTO_TCP | PROTO_UDP | PROTO_SCTP,
            ..
        } => packet.ports().is_some(),
        UpperLayer::At { .. } => true,
        UpperLayer::Fragment | UpperLayer::Unknown(_) => false,
    }
}

impl Drop for Teacher {
    fn drop(&mut self) {
        self.retain(|_, _, _| false);
    }
}
