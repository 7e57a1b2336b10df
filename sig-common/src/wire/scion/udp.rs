//! UDP over SCION: the header of UDP with the length rules of SCION receivers.

use crate::wire::checksum::{Sum, scion_pseudo_header};
use crate::wire::udp::{HEADER_LEN, Header};
use crate::wire::{Error, PROTO_UDP, split};

/// Bytes of payload of a datagram of which `available` bytes are there.
///
/// A length of 0 takes all there is, as does one that exceeds it; a length from 1 to 7 is
/// impossible.
#[inline(always)]
#[must_use]
pub const fn payload_len(length: u16, available: usize) -> Option<usize> {
    let Some(available) = available.checked_sub(HEADER_LEN) else {
        return None;
    };
    let length = length as usize;
    if length == 0 {
        return Some(available);
    }
    match length.checked_sub(HEADER_LEN) {
        Some(len) if len < available => Some(len),
        Some(_) => Some(available),
        None => None,
    }
}

/// A UDP datagram over SCION.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: Header,
    payload: &'a [u8],
    message: &'a [u8],
}

impl<'a> View<'a> {
    /// Takes `datagram`, what follows the SCION extension headers, for UDP. Bytes beyond the length
    /// in the header are left out.
    ///
    /// # Errors
    /// [`Error::Truncated`] below 8 bytes, [`Error::Length`]: see [`payload_len`].
    pub fn new_checked(datagram: &'a [u8]) -> Result<Self, Error> {
        let (header, rest) = split(datagram)?;
        let header = Header::decode(header);
        let len = payload_len(header.length, datagram.len()).ok_or(Error::Length)?;
        let payload = rest.get(..len).ok_or(Error::Length)?;
        let message = datagram.get(..HEADER_LEN + len).ok_or(Error::Length)?;
        Ok(Self {
            header,
            payload,
            message,
        })
    }

    /// The header.
    #[must_use]
    pub const fn header(&self) -> Header {
        self.header
    }

    /// The payload.
    #[must_use]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Whether the checksum is correct. `addresses` is the address header of the SCION packet as
    /// on the wire. A checksum of zero has no special meaning in SCION.
    #[must_use]
    pub fn checksum_is_valid(&self, addresses: &[u8]) -> bool {
        checksum_is_valid(addresses, self.message)
    }
}

/// Whether the checksum of a UDP message (header and payload) over SCION is correct.
#[inline]
#[must_use]
pub fn checksum_is_valid(addresses: &[u8], message: &[u8]) -> bool {
    scion_pseudo_header(addresses, message.len() as u32, PROTO_UDP)
        .combine(Sum::of(message))
        .is_valid()
}

/// Fills the checksum of a UDP message over SCION in. The message must begin with its header.
///
/// # Errors
/// [`Error::Truncated`] below 8 bytes.
pub fn fill_checksum(addresses: &[u8], message: &mut [u8]) -> Result<(), Error> {
    let len = message.len() as u32;
    let header = message
        .first_chunk_mut::<HEADER_LEN>()
        .ok_or(Error::Truncated)?;
    [header[6], header[7]] = [0, 0];
    let sum = scion_pseudo_header(addresses, len, PROTO_UDP).add_bytes(message);
    if let Some(header) = message.first_chunk_mut::<HEADER_LEN>() {
        [header[6], header[7]] = sum.checksum().to_be_bytes();
    }
    Ok(())
}
