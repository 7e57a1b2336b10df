//! The MAC of hop fields, and the key it is made with.

use aes::Aes128;
use cmac::{Cmac, KeyInit as _, Mac as _};
use pbkdf2::pbkdf2_hmac;
use sha2::Sha256;
pub use sig_common::wire::scion::path::MacInput;

/// The key that an AS signs its hop fields with: 16 bytes for AES-128. It is not shown in debug output.
#[derive(Clone, PartialEq, Eq)]
pub struct HopKey([u8; 16]);

impl HopKey {
    /// A key that is used as it is.
    #[must_use]
    pub const fn new(key: [u8; 16]) -> Self {
        Self(key)
    }

    /// The key that routers and control services of the reference derive from an AS's master key: PBKDF2 with
    /// HMAC-SHA256 over the salt `Derive OF Key`, 1000 rounds.
    #[must_use]
    pub fn derive(master: &[u8]) -> Self {
        let mut key = [0; 16];
        pbkdf2_hmac::<Sha256>(master, b"Derive OF Key", 1000, &mut key);
        Self(key)
    }

    /// The bytes of the key.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// AES-CMAC (RFC 4493) over the input; hop fields hold the first six bytes, and the first two of them change the
    /// segment identifier for the next hop.
    #[must_use]
    pub fn cmac(&self, input: &MacInput) -> [u8; 16] {
        let mut mac = Cmac::<Aes128>::new(&self.0.into());
        mac.update(&input.block());
        mac.finalize().into_bytes().into()
    }

    /// The MAC as in a hop field.
    #[must_use]
    pub fn mac(&self, input: &MacInput) -> [u8; 6] {
        let [a, b, c, d, e, f, ..] = self.cmac(input);
        [a, b, c, d, e, f]
    }
}

impl std::fmt::Debug for HopKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HopKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
            .collect()
    }

    #[test]
    fn forwarding_keys_are_derived_as_by_the_reference() {
        for (master, key) in [
            ([b'2'; 16], "3edc0e61bca74aa9c267607c6f5b20ac"),
            (*b"testkey_xxxxxxxx", "93c3d81b1feaddd2a58cb3c29469d0c4"),
        ] {
            assert_eq!(HopKey::derive(&master).bytes()[..], hex(key));
        }
    }

    #[test]
    fn macs_are_those_of_the_reference() {
        const T: u32 = 1_700_000_000;
        let derived = *HopKey::derive(&[b'2'; 16]).bytes();
        // Key; segment identifier, timestamp, expiry, ingress, egress; CMAC.
        let vectors = [
            (
                [b'2'; 16],
                (0, 0, 0, 0, 0),
                "631055019e98e9795c6454ff1688dbaf",
            ),
            (
                [b'2'; 16],
                (0x1234, T, 63, 0, 1),
                "28646287d16526063db85dc3c407e9d1",
            ),
            (
                derived,
                (0x1234, T, 63, 0, 1),
                "d049bf297501e141283dca602d4b5fa0",
            ),
            (
                *b"testkey_xxxxxxxx",
                (0x0111, T, 63, 1, 2),
                "b02fc90ae0d53aafb8b2243a93150c32",
            ),
            (
                [b'2'; 16],
                (0xffff, u32::MAX, 255, 0xffff, 0xffff),
                "2fcbfeb36f8d0c773f6a3ffe4237e3d6",
            ),
            (
                [b'1'; 16],
                (0x1234, T, 63, 0, 1),
                "36c47fc60c5cbdadae60939d48629327",
            ),
            (
                [b'2'; 16],
                (0x24f0, T, 63, 1, 2),
                "94aacc16fd710b0797dc229dcd5eed1c",
            ),
            (
                [b'3'; 16],
                (0xb05a, T, 63, 1, 0),
                "4e75bd76b46c6404583f7dc617074d72",
            ),
            (
                [b'2'; 16],
                (0xb05a, T, 63, 5, 2),
                "c030b747531d847abd800ce8e2bc694c",
            ),
        ];
        for (key, (segment_id, timestamp, expiry, ingress, egress), cmac) in vectors {
            let key = HopKey::new(key);
            let input = MacInput {
                segment_id,
                timestamp,
                expiry,
                ingress,
                egress,
            };
            assert_eq!(key.cmac(&input)[..], hex(cmac), "{input:?}");
            assert_eq!(key.mac(&input)[..], hex(cmac)[..6]);
        }
    }

    #[test]
    fn keys_are_not_shown() {
        assert_eq!(format!("{:?}", HopKey::new([7; 16])), "HopKey(..)");
    }
}
