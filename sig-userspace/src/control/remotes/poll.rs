//! A question that is asked again and again, once at a time.

use std::time::{Duration, Instant};

/// When to ask next, and how it went so far.
#[derive(Debug)]
pub(super) struct Poll {
    interval: Duration,
    due: Instant,
    asked: bool,
    answered: Option<Instant>,
    problem: Option<String>,
    errors: u64,
}

impl Poll {
    /// To be asked at once, and then every `interval`.
    pub(super) fn new(now: Instant, interval: Duration) -> Self {
        Poll {
            interval,
            due: now,
            asked: false,
            answered: None,
            problem: None,
            errors: 0,
        }
    }

    /// Whether to ask now; the question then counts as asked.
    pub(super) fn ask(&mut self, now: Instant) -> bool {
        let ask = !self.asked && self.due <= now;
        if ask {
            self.asked = true;
            // Counted from the question: a slow answer does not make the rhythm slower.
            self.due = now + self.interval;
        }
        ask
    }

    /// Asks again at this time, if it would be later otherwise.
    pub(super) fn hurry(&mut self, at: Instant) {
        self.due = self.due.min(at);
    }

    /// Takes note of how it went. Whether that is news: the first failure in a row, or the first answer
    /// after one.
    pub(super) fn answer(&mut self, now: Instant, result: Result<(), &str>) -> bool {
        self.asked = false;
        let news = match &result {
            Ok(()) => self.problem.is_some(),
            Err(problem) => self.problem.as_deref() != Some(problem),
        };
        match result {
            Ok(()) => {
                self.answered = Some(now);
                self.problem = None;
            }
            Err(problem) => {
                self.errors += 1;
                self.problem = Some(problem.to_owned());
            }
        }
        news
    }

    /// When to ask next.
    pub(super) fn deadline(&self) -> Option<Instant> {
        (!self.asked).then_some(self.due)
    }

    pub(super) fn answered(&self) -> Option<Instant> {
        self.answered
    }

    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    pub(super) fn errors(&self) -> u64 {
        self.errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_asked_once_at_a_time_in_its_rhythm() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut poll = Poll::new(start, Duration::from_secs(5));
        assert!(poll.ask(at(0)));
        assert!(!poll.ask(at(9)), "not answered yet");
        assert_eq!(poll.deadline(), None);
        assert!(poll.answer(at(9), Err("no path")));
        assert!(poll.ask(at(9)));
        assert!(!poll.answer(at(9), Err("no path")), "known already");
        assert!(!poll.ask(at(13)));
        assert!(poll.ask(at(14)));
        assert!(poll.answer(at(15), Ok(())), "it works again");
        assert_eq!((poll.errors(), poll.answered()), (2, Some(at(15))));
        assert_eq!(poll.deadline(), Some(at(19)));
    }
}
