//! The BFD control packet (RFC 5880, section 4.1).

use std::time::Duration;

/// Bytes of a control packet without authentication.
pub(super) const LEN: usize = 24;

const VERSION: u8 = 1;

/// State of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
    /// Switched off by an administrator.
    AdminDown,
    /// No packets of the other end, or it says so itself.
    Down,
    /// The other end is heard, but has not said yet that it hears us.
    Init,
    /// Both ends hear each other.
    Up,
}

impl State {
    /// The word for operators.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AdminDown => "admin-down",
            Self::Down => "down",
            Self::Init => "init",
            Self::Up => "up",
        }
    }

    const fn from_bits(bits: u8) -> Self {
        match bits & 0x3 {
            0 => Self::AdminDown,
            1 => Self::Down,
            2 => Self::Init,
            _ => Self::Up,
        }
    }
}

/// A control packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Why the session went down last; informative.
    pub diagnostic: u8,
    /// State of the sender's session.
    pub state: State,
    /// An answer with [`Self::last`] is wanted.
    pub poll: bool,
    /// The answer to [`Self::poll`].
    pub last: bool,
    /// So many intervals of the sender without a packet mean that it is gone; not 0.
    pub detect_mult: u8,
    /// The sender's name for the session; not 0.
    pub my_discriminator: u32,
    /// The receiver's name for the session; 0 if it is not known.
    pub your_discriminator: u32,
    /// How often the sender would like to send; microseconds on the wire.
    pub desired_min_tx: Duration,
    /// How often the sender is ready to receive; microseconds on the wire.
    pub required_min_rx: Duration,
}

/// Why bytes are not a packet that a session takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Fewer bytes than a packet has, or than it states.
    #[error("truncated")]
    Truncated,
    /// Another version than 1.
    #[error("not version 1")]
    Version,
    /// A length field, multiplier or discriminator that RFC 5880 forbids.
    #[error("a field has a forbidden value")]
    Field,
    /// Authentication, echo, demand or multipoint mode.
    #[error("unsupported feature (authentication, echo, demand or multipoint mode)")]
    Unsupported,
}

impl Control {
    const POLL: u8 = 0x20;
    const FINAL: u8 = 0x10;
    const AUTHENTICATION: u8 = 0x04;
    const DEMAND: u8 = 0x02;
    const MULTIPOINT: u8 = 0x01;

    /// The packet as on the wire. Durations are cut to what the field holds.
    #[must_use]
    pub fn encode(&self) -> [u8; LEN] {
        let micros = |duration: Duration| {
            u32::try_from(duration.as_micros())
                .unwrap_or(u32::MAX)
                .to_be_bytes()
        };
        let mut bytes = [0; LEN];
        let [flags, mult, length] = [
            (self.state as u8) << 6
                | if self.poll { Self::POLL } else { 0 }
                | if self.last { Self::FINAL } else { 0 },
            self.detect_mult,
            LEN as u8,
        ];
        bytes[..4].copy_from_slice(&[VERSION << 5 | self.diagnostic & 0x1f, flags, mult, length]);
        bytes[4..8].copy_from_slice(&self.my_discriminator.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.your_discriminator.to_be_bytes());
        bytes[12..16].copy_from_slice(&micros(self.desired_min_tx));
        bytes[16..20].copy_from_slice(&micros(self.required_min_rx));
        bytes
    }

    /// Takes bytes for a packet that a session takes (RFC 5880, section 6.8.6). What follows the packet is ignored.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Refused> {
        let packet: &[u8; LEN] = bytes.first_chunk().ok_or(Refused::Truncated)?;
        let [first, flags, detect_mult, length, words @ ..] = packet;
        if first >> 5 != VERSION {
            return Err(Refused::Version);
        }
        if usize::from(*length) > bytes.len() {
            return Err(Refused::Truncated);
        }
        let word = |number: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&words[4 * number..][..4]);
            u32::from_be_bytes(word)
        };
        let micros = |number| Duration::from_micros(word(number).into());
        let state = State::from_bits(flags >> 6);
        let your_discriminator = word(1);
        let nameless = your_discriminator == 0 && matches!(state, State::Init | State::Up);
        if usize::from(*length) < LEN || *detect_mult == 0 || word(0) == 0 || nameless {
            return Err(Refused::Field);
        }
        let echo = word(4);
        if flags & (Self::AUTHENTICATION | Self::DEMAND | Self::MULTIPOINT) != 0 || echo != 0 {
            return Err(Refused::Unsupported);
        }
        Ok(Self {
            diagnostic: first & 0x1f,
            state,
            poll: flags & Self::POLL != 0,
            last: flags & Self::FINAL != 0,
            detect_mult: *detect_mult,
            my_discriminator: word(0),
            your_discriminator,
            desired_min_tx: micros(2),
            required_min_rx: micros(3),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: Control = Control {
        diagnostic: 3,
        state: State::Up,
        poll: false,
        last: true,
        detect_mult: 3,
        my_discriminator: 0x0102_0304,
        your_discriminator: 0x0506_0708,
        desired_min_tx: Duration::from_millis(200),
        required_min_rx: Duration::from_micros(300_001),
    };

    #[test]
    fn packets_have_the_layout_of_the_rfc() {
        let bytes = PACKET.encode();
        assert_eq!(
            bytes,
            [
                0x23, 0xd0, 3, 24, 1, 2, 3, 4, 5, 6, 7, 8, 0, 3, 0x0d, 0x40, 0, 4, 0x93, 0xe1, 0,
                0, 0, 0
            ]
        );
        assert_eq!(Control::decode(&bytes), Ok(PACKET));
        let longer: Vec<u8> = bytes.into_iter().chain([7; 9]).collect();
        assert_eq!(Control::decode(&longer), Ok(PACKET));
    }

    #[test]
    fn packets_that_no_session_takes_are_refused() {
        let changed = |at: usize, value: u8| {
            let mut bytes = PACKET.encode();
            bytes[at] = value;
            Control::decode(&bytes)
        };
        assert_eq!(changed(0, 0x43), Err(Refused::Version));
        assert_eq!(changed(3, 25), Err(Refused::Truncated));
        assert_eq!(changed(3, 23), Err(Refused::Field));
        assert_eq!(changed(2, 0), Err(Refused::Field));
        for flag in [0x04, 0x02, 0x01] {
            assert_eq!(changed(1, 0xc0 | flag), Err(Refused::Unsupported));
        }
        assert_eq!(changed(23, 1), Err(Refused::Unsupported));
        for len in 0..LEN {
            assert_eq!(
                Control::decode(&PACKET.encode()[..len]),
                Err(Refused::Truncated)
            );
        }
        let nobody = Control {
            my_discriminator: 0,
            ..PACKET
        };
        assert_eq!(Control::decode(&nobody.encode()), Err(Refused::Field));
        for (state, taken) in [
            (State::AdminDown, true),
            (State::Down, true),
            (State::Init, false),
            (State::Up, false),
        ] {
            let to_nobody = Control {
                state,
                your_discriminator: 0,
                ..PACKET
            };
            assert_eq!(Control::decode(&to_nobody.encode()).is_ok(), taken);
        }
    }

    #[test]
    fn intervals_that_do_not_fit_are_cut() {
        let packet = Control {
            desired_min_tx: Duration::from_secs(5000),
            ..PACKET
        };
        let decoded = Control::decode(&packet.encode()).unwrap();
        assert_eq!(
            decoded.desired_min_tx,
            Duration::from_micros(u32::MAX.into())
        );
    }
}
