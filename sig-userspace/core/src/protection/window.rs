//! Which frames of a sender's worker have come.

use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers that a word stands for.
const PER_WORD: u64 = 32;
/// Words of a window, a power of two. A path may be slower than another one by as many frames as they stand for: 260 ms at a million
/// frames a second.
const WORDS: u64 = 1 << 13;
/// Numbers that are remembered.
#[cfg(test)]
pub(super) const NUMBERS: u64 = WORDS * PER_WORD;

/// Remembers the last numbers, so that none is taken twice, by whatever threads.
///
/// Each word stands for 32 numbers in a row: which of them came is in its lower half, and which 32 they are of those that the word can stand for in
/// its upper half, which only grows. So a number that was taken is taken again neither while its word stands for it, as its bit is set,
/// nor later; and there is no state that several words have to agree on.
pub(super) struct Window(Box<[AtomicU64]>);

impl Default for Window {
    fn default() -> Self {
        // SAFETY: zero is a valid value of an `AtomicU64`.
        Window(unsafe { Box::new_zeroed_slice(WORDS as usize).assume_init() })
    }
}

impl std::fmt::Debug for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Window")
    }
}

impl Window {
    /// The word, which 32 numbers it has to stand for, and the bit.
    #[inline]
    fn find(&self, number: u64) -> Option<(&AtomicU64, u32, u64)> {
        let place = number / PER_WORD;
        let word = self.0.get((place % WORDS) as usize)?;
        let era = u32::try_from(place / WORDS).ok()?;
        Some((word, era, 1 << (number % PER_WORD)))
    }

    /// The word with this number taken; `None` if it cannot be taken.
    #[inline]
    fn with(word: u64, era: u32, bit: u64) -> Option<u64> {
        let stands_for = (word >> 32) as u32;
        if stands_for == era {
            (word & bit == 0).then_some(word | bit)
        } else {
            (stands_for < era).then_some(u64::from(era) << 32 | bit)
        }
    }

    /// Whether the number has not come, as far as is known now.
    #[inline]
    pub(super) fn would_take(&self, number: u64) -> bool {
        self.find(number).is_some_and(|(word, era, bit)| {
            Self::with(word.load(Ordering::Relaxed), era, bit).is_some()
        })
    }

    /// Takes a number. Of all who try with the same number, at most one is told that it was not there.
    #[inline]
    pub(super) fn take(&self, number: u64) -> bool {
        // Nothing else is published by this word, and each change builds on the one before.
        self.find(number).is_some_and(|(word, era, bit)| {
            word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
                Self::with(word, era, bit)
            })
            .is_ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, sync::atomic::AtomicUsize};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_taken_once_and_only_as_long_as_they_are_remembered() {
        let window = Window::default();
        assert!(window.take(0) && !window.take(0));
        assert!(window.take(NUMBERS + 40), "a jump");
        assert!(window.take(NUMBERS - 1), "what is late");
        assert!(window.take(1), "another word than that of the jump");
        assert!(!window.would_take(33) && !window.take(33), "too old");
        assert!(window.take(NUMBERS) && !window.take(0));
        // As far as numbers go.
        let last = (1 << 40) - 1;
        assert!(window.take(last) && !window.take(last));
        assert!(!window.take(u64::MAX), "no number");
    }

    proptest! {
        #[test]
        fn nothing_is_taken_twice_and_nothing_recent_is_refused(
            steps in prop::collection::vec((0..3 * NUMBERS, 0..80_u64), 1..300)
        ) {
            let window = Window::default();
            let mut taken = HashSet::new();
            let mut highest = 0;
            for (base, offset) in steps {
                let number = base + offset;
                let is_recent = number + NUMBERS > highest + PER_WORD;
                let is_new = !taken.contains(&number);
                let would = window.would_take(number);
                let took = window.take(number);
                prop_assert_eq!(would, took);
                prop_assert!(!took || is_new);
                prop_assert!(took || !is_new || !is_recent, "{} below {}", number, highest);
                if took {
                    taken.insert(number);
                    highest = highest.max(number);
                }
            }
        }
    }

    #[test]
    fn of_several_threads_one_gets_a_number() {
        let window = Window::default();
        let taken = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let got = (0..10_000).filter(|number| window.take(*number)).count();
                    taken.fetch_add(got, Ordering::Relaxed);
                });
            }
        });
        assert_eq!(taken.into_inner(), 10_000);
    }
}
