//! What threads share, under every order of their steps.
//!
//! A source file is compiled here once more, over the primitives of loom instead of those of the standard library: it takes
//! them from a module `sync` beside it. So nothing else has to be built twice.
//!
//! `dataplane::mark` is not here: loom lets an exchange read a value that is not the last one where plain stores race with
//! it, which no processor and no compiler does.

#[allow(
    clippy::duplicate_mod,
    dead_code,
    unreachable_pub,
    reason = "that is the point, and not all of it is shared"
)]
#[path = "port/umem.rs"]
mod umem;

mod sync {
    pub(super) use loom::sync::{Arc, Mutex, MutexGuard};
    pub(super) use std::sync::PoisonError;
}

use std::collections::BTreeSet;

use loom::{sync::Arc, thread};

use umem::{Area, CHUNK_SIZE, Frame, FreeList, HEADROOM, Pool};

/// Takes up to so many chunks, writes to all of them and, if nobody else has, gives them back.
fn use_chunks(area: &Area, pool: Arc<Pool>, most: usize, name: u8) -> usize {
    let mut free = FreeList::new(pool, 0);
    let mut held: Vec<Frame> = std::iter::from_fn(|| free.take()).take(most).collect();
    for frame in &mut held {
        frame.place(HEADROOM, 1);
        frame.bytes_mut(area)[0] = name;
    }
    thread::yield_now();
    let count = held.len();
    for frame in held {
        assert_eq!(frame.bytes(area), [name], "another worker has the chunk");
        free.put(frame);
    }
    count
}

#[test]
fn no_chunk_is_lost_or_had_twice_while_workers_exchange_them() {
    const CHUNKS: u32 = 200;
    loom::model(|| {
        let (area, pool) = Area::on_heap(CHUNKS);
        let other = {
            let (area, pool) = (area.clone(), pool.clone());
            thread::spawn(move || use_chunks(&area, pool, 65, 2))
        };
        // More than its list may keep, so that it returns some before it ends.
        let count = use_chunks(&area, pool.clone(), 130, 1);
        assert!(count > 0, "the other does not need all");
        other.join().expect("the worker ends well");

        assert_eq!(pool.len(), CHUNKS as usize);
        let mut free = FreeList::new(pool, 0);
        let chunks: BTreeSet<u64> = std::iter::from_fn(|| free.take())
            .map(|frame| frame.into_address() / CHUNK_SIZE as u64)
            .collect();
        assert_eq!(chunks.len(), CHUNKS as usize);
    });
}
