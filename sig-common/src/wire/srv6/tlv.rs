//! TLVs behind the segment list (RFC 8754, section 2.1).

use super::{Problem, SEGMENT_LEN};

/// Bytes of the longest HMAC.
pub const MAX_MAC: usize = 32;

/// Type of one byte of padding, which has neither length nor value.
pub const PAD1: u8 = 0;
/// Type of more padding.
pub(super) const PADN: u8 = 4;
/// Type of the HMAC TLV.
pub const HMAC: u8 = 5;

/// The bit that says that the destination address is not to be verified.
pub const HMAC_D: u16 = 0x8000;

/// One TLV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tlv<'a> {
    /// One byte of padding.
    Pad1,
    /// Two bytes and so many more of padding.
    PadN(u8),
    /// Authentication of the SRH.
    Hmac(Hmac<'a>),
    /// Any other.
    Other {
        /// Its type. The high bit says that the value may change on the way.
        kind: u8,
        /// Its value, at most 255 bytes.
        value: &'a [u8],
    },
}

impl Tlv<'_> {
    /// Bytes on the wire.
    #[expect(clippy::len_without_is_empty, reason = "a TLV is never empty")]
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Self::Pad1 => 1,
            Self::PadN(more) => 2 + *more as usize,
            Self::Hmac(hmac) => 8 + hmac.mac.len(),
            Self::Other { value, .. } => 2 + value.len(),
        }
    }
}

/// The HMAC TLV (RFC 8754, section 2.1.2). It is to be aligned to 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hmac<'a> {
    /// The 16 bits behind the length: the D bit and 15 reserved ones, zero when sent.
    pub bits: u16,
    /// Which key and algorithm, by agreement.
    pub key_id: u32,
    /// The authenticator: 8, 16, 24 or 32 bytes.
    pub mac: &'a [u8],
}

impl<'a> Hmac<'a> {
    /// An HMAC TLV to send. `is_reduced`: the first segment is not in the list, so that receivers cannot compare the
    /// destination address with it (the D bit).
    #[must_use]
    pub const fn new(is_reduced: bool, key_id: u32, mac: &'a [u8]) -> Self {
        Self {
            bits: if is_reduced { HMAC_D } else { 0 },
            key_id,
            mac,
        }
    }

    /// Whether the destination address is not to be compared with the active segment.
    #[must_use]
    pub const fn destination_is_unverified(&self) -> bool {
        self.bits & HMAC_D != 0
    }

    /// Whether the authenticator has a length that there is.
    pub(super) const fn is_possible(&self) -> bool {
        matches!(self.mac.len(), 8 | 16 | 24 | MAX_MAC)
    }

    fn decode(value: &'a [u8]) -> Option<Self> {
        let (&[b0, b1, k0, k1, k2, k3], mac) = value.split_first_chunk()?;
        let hmac = Self {
            bits: u16::from_be_bytes([b0, b1]),
            key_id: u32::from_be_bytes([k0, k1, k2, k3]),
            mac,
        };
        hmac.is_possible().then_some(hmac)
    }
}

/// What an HMAC authenticates (RFC 8754, section 2.1.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HmacText<'a> {
    pub(super) source: [u8; SEGMENT_LEN],
    pub(super) entry_and_flags: [u8; 2],
    pub(super) bits: [u8; 2],
    pub(super) key_id: [u8; 4],
    pub(super) list: &'a [u8],
}

impl HmacText<'_> {
    /// The text, to be taken in this order: source address, Last Entry and flags, the 16 bits behind the TLV's length, key id,
    /// segment list. Linux (`net/ipv6/seg6_hmac.c`) leaves the third part out.
    #[must_use]
    pub fn parts(&self) -> [&[u8]; 5] {
        [
            &self.source,
            &self.entry_and_flags,
            &self.bits,
            &self.key_id,
            self.list,
        ]
    }
}

/// The TLVs of an SRH, in order. Ends behind the first that is malformed ([`Problem::Tlv`]).
#[derive(Clone, Debug)]
pub struct Tlvs<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Tlvs<'a> {
    type Item = Result<Tlv<'a>, Problem>;

    fn next(&mut self) -> Option<Self::Item> {
        let (&kind, rest) = self.0.split_first()?;
        if kind == PAD1 {
            self.0 = rest;
            return Some(Ok(Tlv::Pad1));
        }
        let tlv = rest.split_first().and_then(|(&len, rest)| {
            let (value, rest) = rest.split_at_checked(len.into())?;
            self.0 = rest;
            Some(match kind {
                PADN => Tlv::PadN(len),
                HMAC => Tlv::Hmac(Hmac::decode(value)?),
                _ => Tlv::Other { kind, value },
            })
        });
        if tlv.is_none() {
            self.0 = &[];
        }
        Some(tlv.ok_or(Problem::Tlv))
    }
}
