//! So many lines a minute about what strangers cause.

use std::time::{Duration, Instant};

const PERIOD: Duration = Duration::from_secs(60);

/// Limits the lines about one thing.
#[derive(Debug)]
pub(crate) struct LogLimit {
    most: u64,
    /// Of the current period.
    since: Instant,
    count: u64,
}

/// What to log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Say {
    /// The thing.
    Line,
    /// That no more is logged for now.
    Last,
    /// It has been said.
    Nothing,
}

impl LogLimit {
    /// `most` lines a minute, the last one included.
    pub(crate) fn new(most: u64, now: Instant) -> Self {
        LogLimit {
            most,
            since: now,
            count: 0,
        }
    }

    /// Something has happened again.
    pub(crate) fn next(&mut self, now: Instant) -> Say {
        if now.saturating_duration_since(self.since) >= PERIOD {
            (self.since, self.count) = (now, 0);
        }
        self.count += 1;
        match self.count.cmp(&self.most) {
            std::cmp::Ordering::Less => Say::Line,
            std::cmp::Ordering::Equal => Say::Last,
            std::cmp::Ordering::Greater => Say::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_limited_for_a_while_and_not_for_ever() {
        let start = Instant::now();
        let mut limit = LogLimit::new(3, start);
        let mut said = |seconds| {
            let now = start + Duration::from_secs(seconds);
            [(); 4].map(|()| limit.next(now))
        };
        let some = [Say::Line, Say::Line, Say::Last, Say::Nothing];
        assert_eq!(said(1), some);
        assert_eq!(said(59), [Say::Nothing; 4]);
        assert_eq!(said(60), some);
    }
}
