//! A question that is asked again and again, once at a time.

use std::time::{Duration, Instant};

/// When to ask next, and how it went so far.
#[derive(Debug)]
pub(super) struct Poll {
    interval: Duration,
    due: Instant,
    asked: bool,
    /// Questions that are not waited for any more, and may still fail.
    abandoned: u32,
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
            abandoned: 0,
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
    pub(super) fn sooner(&mut self, at: Instant) {
        self.due = self.due.min(at);
    }

    /// The same, and without waiting for a question that was asked before: of somebody
    /// who was not there then, the answer will be long in coming.
    pub(super) fn hurry(&mut self, at: Instant) {
        self.sooner(at);
        if std::mem::take(&mut self.asked) {
            self.abandoned += 1;
        }
    }

    /// Takes note of how it went. Whether that is news: the first failure in a row, or the first answer
    /// after one.
    pub(super) fn answer(&mut self, now: Instant, result: Result<(), &str>) -> bool {
        if result.is_err() && self.abandoned > 0 {
            self.abandoned -= 1;
            return false;
        }
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

    #[test]
    fn in_a_hurry_it_is_asked_again_and_the_failure_before_does_not_count() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut poll = Poll::new(start, Duration::from_secs(5));
        assert!(poll.ask(at(0)));
        poll.hurry(at(1));
        assert_eq!(poll.deadline(), Some(at(1)));
        assert!(poll.ask(at(1)) && !poll.ask(at(2)));
        assert!(!poll.answer(at(2), Ok(())));
        assert!(!poll.answer(at(5), Err("time-out")), "of the first one");
        assert_eq!((poll.errors(), poll.problem()), (0, None));
        assert!(poll.ask(at(6)));
        assert!(poll.answer(at(7), Err("time-out")));
        assert_eq!(poll.errors(), 1);
    }
}
