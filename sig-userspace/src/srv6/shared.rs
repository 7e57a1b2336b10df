//! Functions whose headers keep changing: packets of several chains pass what can serve one.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// More changes a second than a chain that is changed by hand has, or a flow that takes another way.
pub(crate) const MANY: u64 = 10;

/// Looks in a row with so many: a reload alone is no reason.
const LOOKS: u32 = 3;

/// Looks that are closer together tell nothing.
const APART: Duration = Duration::from_millis(500);

/// What the counts of changes were.
#[derive(Default)]
pub(crate) struct Changes {
    functions: BTreeMap<String, Seen>,
}

struct Seen {
    count: u64,
    at: Instant,
    /// Looks in a row that found many.
    busy: u32,
}

impl Changes {
    /// Takes the count of each function as it is now.
    pub(crate) fn look(&mut self, now: Instant, counts: impl Iterator<Item = (String, u64)>) {
        let mut old = std::mem::take(&mut self.functions);
        for (name, count) in counts {
            let seen = match old.remove(&name) {
                // Counting begins anew with another function of the name.
                Some(seen) if count >= seen.count => seen,
                _ => Seen {
                    count,
                    at: now,
                    busy: 0,
                },
            };
            self.functions.insert(name, seen.at(now, count));
        }
    }

    /// Whether the headers of a function keep changing.
    pub(crate) fn are_many(&self, function: &str) -> bool {
        self.functions
            .get(function)
            .is_some_and(|seen| seen.busy >= LOOKS)
    }
}

impl Seen {
    fn at(self, now: Instant, count: u64) -> Self {
        let elapsed = now.saturating_duration_since(self.at);
        if elapsed < APART {
            return self;
        }
        let is_busy =
            u128::from(count - self.count) * 1000 > u128::from(MANY) * elapsed.as_millis();
        Self {
            count,
            at: now,
            busy: if is_busy {
                (self.busy + 1).min(LOOKS)
            } else {
                0
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether it is told after each second, with so many changes in each.
    fn told(changes: &[u64]) -> Vec<bool> {
        let start = Instant::now();
        let mut seen = Changes::default();
        let mut count = 0;
        let mut look = |second: usize, count| {
            let now = start + Duration::from_secs(second as u64);
            seen.look(now, [("f".to_owned(), count)].into_iter());
            // Looks at other occasions change nothing.
            seen.look(now, [("f".to_owned(), count)].into_iter());
            seen.are_many("f")
        };
        look(0, 0);
        changes
            .iter()
            .enumerate()
            .map(|(second, more)| {
                count += more;
                look(second + 1, count)
            })
            .collect()
    }

    #[test]
    fn many_changes_for_seconds_are_told() {
        assert_eq!(
            told(&[11, 11, 11, 900, 10]),
            [false, false, true, true, false]
        );
        assert_eq!(told(&[10, 10, 10, 10]), [false; 4], "a flow now and then");
        assert_eq!(told(&[900, 0, 900, 900]), [false; 4], "reloads");
    }

    #[test]
    fn another_function_of_the_name_begins_anew() {
        let start = Instant::now();
        let mut seen = Changes::default();
        for (second, count) in [(0, 0), (1, 900), (2, 1800), (3, 2700), (4, 5)] {
            let now = start + Duration::from_secs(second);
            seen.look(now, [("f".to_owned(), count)].into_iter());
            assert_eq!(seen.are_many("f"), second == 3);
        }
    }
}
