//! One end of a session (RFC 5880, section 6.8).

use std::{
    num::NonZeroU32,
    time::{Duration, Instant},
};

use super::control::{Control, State};
use crate::model::Bfd;

/// How often we send at most while the session is not up (RFC 5880, section 6.8.3).
const SLOW: Duration = Duration::from_secs(1);

/// Diagnostics (RFC 5880, section 4.1).
const DETECTION_TIME_EXPIRED: u8 = 1;
const NEIGHBOUR_WENT_DOWN: u8 = 3;
const ADMINISTRATIVELY_DOWN: u8 = 7;

/// One end of a session.
#[derive(Clone, Debug)]
pub struct Session {
    config: Bfd,
    discriminator: NonZeroU32,
    state: State,
    diagnostic: u8,
    /// The other end's name for the session; 0: not known.
    neighbour: u32,
    /// How often the other end is ready to receive.
    neighbour_min_rx: Duration,
    send_at: Instant,
    /// When the other end counts as gone.
    gone_at: Option<Instant>,
    /// How much longer the other end may be silent because we did not listen; see [`Self::held_up`].
    grace: Duration,
    changes: u64,
}

impl Session {
    /// A session that is down. It sends its first packet at once.
    #[must_use]
    pub const fn new(config: Bfd, discriminator: NonZeroU32, now: Instant) -> Self {
        Self {
            config,
            discriminator,
            state: State::Down,
            diagnostic: 0,
            neighbour: 0,
            neighbour_min_rx: Duration::ZERO,
            send_at: now,
            gone_at: None,
            grace: Duration::ZERO,
            changes: 0,
        }
    }

    /// Its state.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// Whether packets get through in both directions.
    #[must_use]
    pub const fn is_up(&self) -> bool {
        matches!(self.state, State::Up)
    }

    /// How often its state changed.
    #[must_use]
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// Takes other intervals and another multiplier. The state stays.
    pub const fn configure(&mut self, config: Bfd) {
        self.config = config;
    }

    /// We could not look at packets for a while, until `now`: the other end gets as much more time. All in all that is one
    /// detection time from now on, or a machine that is always late would never see that a link is dead.
    pub fn held_up(&mut self, late: Duration, now: Instant) {
        let Some(gone) = self.gone_at else {
            return;
        };
        let until = (gone + late).min(now + self.grace);
        if until > gone {
            self.grace = self.grace.saturating_sub(until - gone.max(now));
            self.gone_at = Some(until);
        }
    }

    /// When to call [`Self::poll`] at the latest.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.gone_at
            .map_or(self.send_at, |gone| gone.min(self.send_at))
    }

    /// A packet of the other end. Returns an answer if it wants one; what else is to be sent comes from
    /// [`Self::poll`], which is to be called next.
    pub fn handle(&mut self, packet: &Control, now: Instant) -> Option<Control> {
        self.neighbour = packet.my_discriminator;
        self.neighbour_min_rx = packet.required_min_rx;
        let interval = self.config.required_min_rx.max(packet.desired_min_tx);
        let detection_time = interval * u32::from(packet.detect_mult);
        self.gone_at = Some(now + detection_time);
        self.grace = detection_time;
        let next = match (self.state, packet.state) {
            (State::AdminDown, _) => State::AdminDown,
            (_, State::AdminDown) => State::Down,
            (State::Down, State::Down) => State::Init,
            (State::Down | State::Init | State::Up, State::Init) => State::Up,
            (State::Init | State::Up, State::Up) => State::Up,
            (State::Down, State::Up) => State::Down,
            (State::Init, State::Down) => State::Init,
            (State::Up, State::Down) => State::Down,
        };
        if next == State::Down && next != self.state {
            self.diagnostic = NEIGHBOUR_WENT_DOWN;
        }
        self.change_to(next, now);
        packet.poll.then(|| Control {
            last: true,
            ..self.packet()
        })
    }

    /// Does what is due: notices that the other end is gone, and returns a packet if one is to be sent. `random`, any
    /// number, spreads the packets in time (RFC 5880, section 6.8.7).
    pub fn poll(&mut self, now: Instant, random: u32) -> Option<Control> {
        if self.gone_at.is_some_and(|gone| gone <= now) {
            self.gone_at = None;
            self.neighbour = 0;
            if matches!(self.state, State::Init | State::Up) {
                self.diagnostic = DETECTION_TIME_EXPIRED;
                self.change_to(State::Down, now);
            }
        }
        if self.send_at > now {
            return None;
        }
        self.send_at = now + self.interval(random);
        Some(self.packet())
    }

    /// Ends the session: returns the last packet, upon which the other end takes the link down at once.
    pub fn stop(&mut self) -> Control {
        self.diagnostic = ADMINISTRATIVELY_DOWN;
        self.state = State::Down;
        let packet = self.packet();
        self.state = State::AdminDown;
        packet
    }

    /// The other end learns of a new state at once.
    fn change_to(&mut self, next: State, now: Instant) {
        if next == self.state {
            return;
        }
        if next == State::Up {
            self.diagnostic = 0;
        }
        self.state = next;
        self.changes += 1;
        self.send_at = now;
    }

    /// How often we would like to send. Like the reference we are fast from the moment when the other end is heard.
    fn desired_min_tx(&self) -> Duration {
        match self.state {
            State::AdminDown | State::Down => self.config.desired_min_tx.max(SLOW),
            State::Init | State::Up => self.config.desired_min_tx,
        }
    }

    /// Time until the next packet: up to a quarter less than agreed, at least a tenth less if a single lost packet counts.
    fn interval(&self, random: u32) -> Duration {
        let agreed = self.desired_min_tx().max(self.neighbour_min_rx);
        let least = if self.config.detect_mult == 1 { 10 } else { 0 };
        let percent = least + random % (26 - least);
        agreed * (100 - percent) / 100
    }

    fn packet(&self) -> Control {
        Control {
            diagnostic: self.diagnostic,
            state: self.state,
            poll: false,
            last: false,
            detect_mult: self.config.detect_mult,
            my_discriminator: self.discriminator.get(),
            your_discriminator: self.neighbour,
            desired_min_tx: self.desired_min_tx(),
            required_min_rx: self.config.required_min_rx,
        }
    }
}
