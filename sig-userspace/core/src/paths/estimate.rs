//! Round trip times and losses of the probes of one path.

use std::time::{Duration, Instant};

/// Length of a slot of the window.
const SLOT: Duration = Duration::from_secs(5);
/// Slots of the window: together a minute.
const SLOTS: usize = 12;

/// Mean and mean deviation, smoothed as for TCP (RFC 6298, section 2), except that the deviation starts at 0.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip {
    mean: Option<Duration>,
    deviation: Duration,
}

impl RoundTrip {
    pub(super) fn add(&mut self, sample: Duration) {
        let Some(mean) = self.mean else {
            self.mean = Some(sample);
            return;
        };
        self.deviation = (self.deviation * 3 + mean.abs_diff(sample)) / 4;
        self.mean = Some((mean * 7 + sample) / 8);
    }

    pub(super) fn mean(&self) -> Option<Duration> {
        self.mean
    }

    /// Mean deviation; 0 after the first sample.
    pub(super) fn deviation(&self) -> Option<Duration> {
        self.mean.map(|_| self.deviation)
    }

    /// What nearly all round trips take at most; 0 while nothing is known.
    pub(super) fn upper(&self) -> Duration {
        self.mean
            .map_or(Duration::ZERO, |mean| mean + self.deviation * 4)
    }
}

/// Probes of about the last minute, by the time of sending.
#[derive(Clone, Debug)]
pub(super) struct Window {
    start: Instant,
    slots: [Slot; SLOTS],
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// Slots since the start, counted from 1; 0: never used.
    number: u64,
    sent: u32,
    answered: u32,
    fastest: Option<Duration>,
}

impl Window {
    pub(super) fn new(start: Instant) -> Self {
        Window {
            start,
            slots: [Slot::default(); SLOTS],
        }
    }

    pub(super) fn sent(&mut self, at: Instant) {
        let number = self.number(at);
        let slot = self.slot(number);
        if slot.number != number {
            *slot = Slot {
                number,
                ..Slot::default()
            };
        }
        slot.sent += 1;
    }

    /// A probe sent `at` that time was answered.
    pub(super) fn answered(&mut self, at: Instant, round_trip: Duration) {
        let number = self.number(at);
        let slot = self.slot(number);
        if slot.number == number {
            slot.answered += 1;
            slot.fastest = Some(slot.fastest.map_or(round_trip, |f| f.min(round_trip)));
        }
    }

    /// Parts per million of the probes without an answer, apart from `pending` young ones. `None`: too early
    /// to say.
    pub(super) fn loss_ppm(&self, now: Instant, pending: u64) -> Option<u32> {
        let (sent, answered) = self.recent(now).fold((0, 0), |(sent, answered), slot| {
            (
                sent + u64::from(slot.sent),
                answered + u64::from(slot.answered),
            )
        });
        let decided = sent.saturating_sub(pending).max(answered);
        let lost = decided - answered;
        (lost * 1_000_000)
            .checked_div(decided)
            .and_then(|ppm| u32::try_from(ppm).ok())
    }

    /// Shortest round trip time.
    pub(super) fn fastest(&self, now: Instant) -> Option<Duration> {
        self.recent(now).filter_map(|slot| slot.fastest).min()
    }

    fn recent(&self, now: Instant) -> impl Iterator<Item = &Slot> {
        let oldest = self.number(now).saturating_sub(SLOTS as u64 - 1);
        self.slots
            .iter()
            .filter(move |slot| slot.number > 0 && slot.number >= oldest)
    }

    fn number(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.start).as_secs() / SLOT.as_secs() + 1
    }

    fn slot(&mut self, number: u64) -> &mut Slot {
        &mut self.slots[(number % SLOTS as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_mean_follows_the_samples_and_steady_samples_have_no_deviation() {
        let mut round_trip = RoundTrip::default();
        assert_eq!(round_trip.mean(), None);
        assert_eq!(round_trip.upper(), Duration::ZERO);
        (0..50).for_each(|_| round_trip.add(20 * MS));
        assert_eq!(round_trip.mean(), Some(20 * MS));
        assert_eq!(round_trip.deviation(), Some(Duration::ZERO));
        (0..50).for_each(|_| round_trip.add(80 * MS));
        let mean = round_trip.mean().expect("samples");
        assert!(mean > 79 * MS && mean <= 80 * MS, "{mean:?}");
    }

    #[test]
    fn alternating_samples_have_their_distance_from_the_mean_as_deviation() {
        let mut round_trip = RoundTrip::default();
        for n in 0..200 {
            round_trip.add(if n % 2 == 0 { 10 * MS } else { 30 * MS });
        }
        let deviation = round_trip.deviation().expect("samples");
        assert!(deviation > 8 * MS && deviation < 13 * MS, "{deviation:?}");
        assert!(round_trip.upper() > 50 * MS);
    }

    #[test]
    fn loss_is_that_of_the_last_minute() {
        let start = Instant::now();
        let mut window = Window::new(start);
        assert_eq!(window.loss_ppm(start, 0), None);
        for second in 0..30 {
            window.sent(start + Duration::from_secs(second));
        }
        for second in 30..60 {
            let at = start + Duration::from_secs(second);
            window.sent(at);
            window.answered(at, 5 * MS);
        }
        let at = |second| start + Duration::from_secs(second);
        assert_eq!(window.loss_ppm(at(59), 0), Some(500_000));
        assert_eq!(window.loss_ppm(at(89), 0), Some(0));
        assert_eq!(window.fastest(at(89)), Some(5 * MS));
        assert_eq!(window.loss_ppm(at(300), 0), None);
        assert_eq!(window.fastest(at(300)), None);
    }

    #[test]
    fn probes_that_may_still_be_answered_are_not_lost() {
        let start = Instant::now();
        let mut window = Window::new(start);
        (0..4).for_each(|_| window.sent(start));
        window.answered(start, MS);
        assert_eq!(window.loss_ppm(start, 3), Some(0));
        assert_eq!(window.loss_ppm(start, 2), Some(500_000));
        assert_eq!(window.loss_ppm(start, 4), Some(0));
    }
}
