//! The shared memory.

use std::{
    any::Any,
    io,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use rand::{RngCore as _, SeedableRng as _, rngs::SmallRng};
use sig_common::{
    fast_path::{
        FLOW_SLOTS, MAX_PATHS, MAX_STREAMS, PAIR_SLOTS, StreamKey, control, has_returned,
        remote_of_pair, sender, slot, stream, tickets,
    },
    wire::{flow::flow_hash, inner::InnerPacket},
};

use crate::dataplane::Tables;

/// Words that the programs read and write too.
pub struct Words {
    start: NonNull<AtomicU64>,
    len: usize,
    /// Keeps the memory.
    _owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the memory is accessed through atomics only, and lives as long as the owner, which can be sent and shared.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// Words on the heap, all 0: for tests, and for programs that are simulated.
    #[must_use]
    pub fn on_heap(len: usize) -> Self {
        let words: Arc<[AtomicU64]> = (0..len).map(|_| AtomicU64::new(0)).collect();
        Words {
            start: NonNull::from(&*words).cast(),
            len,
            _owner: Arc::new(words),
        }
    }

    /// `len` words at `start`, which `owner` keeps.
    ///
    /// # Safety
    ///
    /// The memory must be readable, writable, initialised and aligned as long as `owner` lives, and be accessed by others in this
    /// process through atomics only.
    pub unsafe fn new(start: NonNull<u64>, len: usize, owner: Arc<dyn Any + Send + Sync>) -> Self {
        Words {
            start: start.cast(),
            len,
            _owner: owner,
        }
    }

    /// All words.
    #[inline]
    #[must_use]
    pub fn all(&self) -> &[AtomicU64] {
        // SAFETY: by the contract of `new`; `on_heap` keeps it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The words of an element of `N`; of the first one, if there is no such element.
    #[inline]
    fn element<const N: usize>(&self, place: usize) -> &[AtomicU64; N] {
        let elements = self.all().as_chunks().0;
        elements.get(place).unwrap_or(&elements[0])
    }
}

/// Tells the programs which streams they may deliver.
pub trait StreamIndex: Send + Sync {
    /// The state of the stream is at this place from now on.
    ///
    /// # Errors
    ///
    /// If the kernel does not take it.
    fn insert(&self, key: &StreamKey, place: u32) -> io::Result<()>;

    /// The programs deliver nothing of the stream any more.
    fn remove(&self, key: &StreamKey);
}

/// All of it.
pub struct Shared {
    /// [`sig_common::fast_path::FLOWS`].
    pub flows: Words,
    /// [`sig_common::fast_path::FLOWS_USED`]: eight slots a word.
    pub flows_used: Words,
    /// [`sig_common::fast_path::PAIRS`].
    pub pairs: Words,
    /// [`sig_common::fast_path::PAIRS_USED`]: eight slots a word.
    pub pairs_used: Words,
    /// [`sig_common::fast_path::STREAM_SLOTS`].
    pub streams: Words,
    /// [`sig_common::fast_path::TICKETS`].
    pub tickets: Words,
    /// [`sig_common::fast_path::SENDERS`].
    pub senders: Words,
    /// [`sig_common::fast_path::CONTROL`].
    pub control: Words,
    /// Which streams are the programs'.
    pub index: Box<dyn StreamIndex>,
}

impl Shared {
    /// Memory of its own, for so many sockets: for tests.
    #[must_use]
    pub fn on_heap(sockets: u32, index: Box<dyn StreamIndex>) -> Self {
        let words = |elements: u32, words: usize| Words::on_heap(elements as usize * words);
        Shared {
            flows: words(FLOW_SLOTS, slot::WORDS),
            flows_used: words(FLOW_SLOTS / 8, 1),
            pairs: words(PAIR_SLOTS, slot::WORDS),
            pairs_used: words(PAIR_SLOTS / 8, 1),
            streams: words(MAX_STREAMS, stream::WORDS),
            tickets: words(sockets, tickets::WORDS),
            senders: words(MAX_PATHS * sockets, sender::WORDS),
            control: words(1, control::WORDS),
            index,
        }
    }

    /// How many sockets have streams of their own.
    #[must_use]
    pub fn sockets(&self) -> u32 {
        (self.senders.all().len() / (MAX_PATHS as usize * sender::WORDS)) as u32
    }

    #[inline]
    pub(super) fn flow(&self, place: u32) -> &[AtomicU64; slot::WORDS] {
        self.flows.element(place as usize)
    }

    #[inline]
    pub(super) fn pair(&self, place: u32) -> &[AtomicU64; slot::WORDS] {
        self.pairs.element(place as usize)
    }

    #[inline]
    pub(super) fn stream(&self, place: u32) -> &[AtomicU64; stream::WORDS] {
        self.streams.element(place as usize)
    }

    #[inline]
    pub(super) fn socket(&self, socket: u32) -> &[AtomicU64; tickets::WORDS] {
        self.tickets.element(socket as usize)
    }

    /// The stream of a socket on a path: its id, and the word with its next sequence number.
    #[inline]
    pub(crate) fn sender(&self, path: u32, socket: u32) -> (u32, &AtomicU64) {
        let place = sender::place(path, socket) as usize;
        let words: &[AtomicU64; sender::WORDS] = self.senders.element(place);
        let stream = words[sender::STREAM].load(Ordering::Relaxed) as u32;
        (stream, &words[sender::SEQUENCE])
    }

    /// A path begins: every socket has a stream on it. `stream`: the id of each.
    pub fn begin_path(&self, path: u32, stream: impl Fn(u32) -> u32) {
        for socket in 0..self.sockets() {
            let place = sender::place(path, socket) as usize;
            let words: &[AtomicU64; sender::WORDS] = self.senders.element(place);
            words[sender::SEQUENCE].store(0, Ordering::Relaxed);
            words[sender::STREAM].store(stream(socket).into(), Ordering::Release);
        }
    }

    /// Makes the decisions of the generation `before` anew by these tables, which are to come into force: flows that they say the same about go on
    /// without a worker.
    pub fn renew(&self, before: u16, tables: &Tables) {
        let mut rng = SmallRng::from_os_rng();
        let generation = tables.fast_generation;
        let by_flow = tables.filter.by_flow();
        let was_by_flow =
            self.control.all()[control::BY_FLOW].swap(by_flow.into(), Ordering::Relaxed) != 0;
        let mut renew = |slots: &Words, decide: &dyn Fn(&[u64; 5]) -> Option<u32>| {
            let slots: &[[AtomicU64; slot::WORDS]] = slots.all().as_chunks().0;
            for place in slots {
                let [first, _, key @ ..] = read(place);
                if first == 0 || first as u16 == generation {
                    continue;
                }
                let key = key.map(|word| word ^ first);
                match decide(&key).filter(|_| first as u16 == before) {
                    Some(state) => write(place, generation, state, &key, || rng.next_u64()),
                    // Or else it would hold again when the generations have come round.
                    None => {
                        let sealed = place.iter().take(slot::SEALED);
                        sealed.for_each(|word| word.store(0, Ordering::Relaxed));
                    }
                }
            }
        };
        renew(&self.flows, &|key| {
            let packet = InnerPacket::of_flow(key);
            let path = tables.path_of(&packet, flow_hash(&packet), has_returned(key));
            let path = path.ok()?;
            tables.paths.get(usize::from(path))?.fast
        });
        renew(&self.pairs, &|key| {
            let packet = InnerPacket::of_flow(key);
            if by_flow != was_by_flow {
                return None;
            }
            let place = tables.place_for(remote_of_pair(key, by_flow), &packet)?;
            let hop = *tables.fast_hops.get(place as usize)?;
            (hop != 0).then_some(hop)
        });
    }

    /// Puts the decisions of this generation into force; 0: none, packets go through the engine.
    pub fn set_generation(&self, generation: u16) {
        self.control.all()[control::GENERATION].store(generation.into(), Ordering::Release);
    }

    /// From how many packets that wait in a socket on its worker is taken to be behind.
    pub fn set_backlog(&self, packets: u64) {
        self.control.all()[control::BACKLOG].store(packets, Ordering::Relaxed);
    }
}

/// Writes a decision, unless it is there already.
pub(super) fn write(
    place: &[AtomicU64; slot::WORDS],
    generation: u16,
    state: u32,
    key: &[u64; 5],
    nonce: impl FnOnce() -> u64,
) {
    let now = read(place);
    if now[0] as u16 == generation && slot::open(&now, generation, key) == Some(state) {
        return;
    }
    for (word, value) in place
        .iter()
        .zip(slot::seal(nonce(), generation, state, key))
    {
        word.store(value, Ordering::Relaxed);
    }
}

/// The words of a slot that the engine writes.
pub(super) fn read(place: &[AtomicU64; slot::WORDS]) -> [u64; slot::SEALED] {
    std::array::from_fn(|word| place[word].load(Ordering::Relaxed))
}
