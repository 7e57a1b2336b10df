//! What two gateways tell each other to agree on keys, as it is known to be authentic.

use std::{fmt, str::FromStr, sync::Arc};

use base64::{Engine as _, prelude::BASE64_STANDARD};

use super::SendKey;

/// A public key that a gateway proves to have the private one of: who it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity(pub [u8; 32]);

/// What stands in front of a public key in text.
const PREFIX: &str = "ed25519:";

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", BASE64_STANDARD.encode(self.0))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Identity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let key = text
            .strip_prefix(PREFIX)
            .and_then(|key| BASE64_STANDARD.decode(key).ok());
        let key = key.and_then(|key| key.try_into().ok());
        key.map(Identity).ok_or_else(|| {
            format!(
                "\"{}\" is no identity of a gateway; write what \"sig identity\" shows there, as {PREFIX}...",
                crate::problem::excerpt(text)
            )
        })
    }
}

/// What we say when we ask a gateway for its prefixes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// A key for frames to it is wanted.
    pub wants_key: bool,
    /// Not from a connection that there is: what one day is found out about an old key says nothing about a new one.
    pub fresh: bool,
    /// Numbers of the keys that we know for frames from it.
    pub holding: Vec<u32>,
    /// Our workers.
    pub workers: usize,
}

/// What the gateway answered.
#[derive(Clone, Debug)]
pub struct Greeting {
    /// Who it is.
    pub identity: Identity,
    /// Numbers of the keys that it knows for frames from us.
    pub holding: Vec<u32>,
    /// The key that was wanted, which it knows by now.
    pub key: Option<Arc<SendKey>>,
    /// Why there is none, if one was wanted.
    pub refusal: Option<Refusal>,
}

/// Why a gateway gives no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It does not know yet who asks, and finds out by asking back: it is worth trying again soon.
    NotYet,
    /// It will not.
    Refused,
}

/// What a gateway says that asks us for our prefixes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Who it is.
    pub identity: Identity,
    /// Numbers of the keys that it knows for frames from us.
    pub holding: Vec<u32>,
    /// It wants a key for frames to us.
    pub wants_key: bool,
}

/// What it is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Numbers of the keys that we know for frames from it.
    pub holding: Vec<u32>,
    /// Whether the key that it wanted is among them.
    pub decision: Result<(), Refusal>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_read_as_they_are_shown() {
        let identity = Identity(std::array::from_fn(|n| n as u8));
        let text = identity.to_string();
        assert_eq!(text, "ed25519:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=");
        assert_eq!(text.parse(), Ok(identity));
        for bad in [
            "",
            "ed25519:",
            "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
            "ed25519:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHg==",
        ] {
            let error = bad.parse::<Identity>().unwrap_err();
            assert!(error.contains("sig identity"), "{error}");
        }
    }
}
