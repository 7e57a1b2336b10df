//! Writing an SRH.

use super::tlv::{HMAC, PAD1, PADN};
use super::{FIXED_LEN, MAX_LEN, ROUTING_TYPE, SEGMENT_LEN, Tlv};
use crate::wire::Error;

/// An SRH to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// What follows the SRH.
    pub next_header: u8,
    /// The segments in the order of the way. The first is the destination address of the packet.
    pub segments: &'a [[u8; SEGMENT_LEN]],
    /// Leave the first segment out of the list (RFC 8754, section 4.1.1). A single one stays: no value of Last Entry stands for
    /// an empty list.
    pub reduced: bool,
    /// Flags, 0 unless agreed otherwise.
    pub flags: u8,
    /// Tag, 0 unless agreed otherwise.
    pub tag: u16,
    /// The TLVs; padding to a multiple of 8 bytes is added at the end.
    pub tlvs: &'a [Tlv<'a>],
}

/// Bytes of an SRH with so many segments and so many bytes of TLVs without the padding at the end. `None` without segments,
/// and above [`MAX_LEN`].
#[must_use]
pub const fn len(segments: usize, reduced: bool, tlvs: usize) -> Option<usize> {
    if segments == 0 || segments > MAX_LEN || tlvs > MAX_LEN {
        return None;
    }
    let listed = segments - (reduced && segments > 1) as usize;
    let len = FIXED_LEN + listed * SEGMENT_LEN + tlvs.next_multiple_of(8);
    if len > MAX_LEN { None } else { Some(len) }
}

impl Header<'_> {
    /// Bytes the header takes; `None` if there is no such SRH.
    #[expect(clippy::len_without_is_empty, reason = "a header is never empty")]
    #[must_use]
    pub fn len(&self) -> Option<usize> {
        let tlvs = self.tlvs.iter().map(Tlv::len);
        len(
            self.segments.len(),
            self.reduced,
            tlvs.fold(0, usize::saturating_add),
        )
    }

    /// Writes the header to the start of `out`, on its way to the first segment; returns the bytes written.
    ///
    /// # Errors
    /// [`Error::NoRoom`], also without segments, above 2048 bytes, and for TLVs that no SRH can have.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, Error> {
        let len = self.len().ok_or(Error::NoRoom)?;
        let mut to = Writer(out.get_mut(..len).ok_or(Error::NoRoom)?);
        let segments_left = self.segments.len() - 1;
        let listed = match self.segments {
            [_, rest @ ..] if self.reduced && !rest.is_empty() => rest,
            all => all,
        };
        let [t0, t1] = self.tag.to_be_bytes();
        to.put(&[
            self.next_header,
            (len / 8 - 1) as u8,
            ROUTING_TYPE,
            segments_left as u8,
            (listed.len() - 1) as u8,
            self.flags,
            t0,
            t1,
        ])?;
        for segment in listed.iter().rev() {
            to.put(segment)?;
        }
        for tlv in self.tlvs {
            to.tlv(tlv)?;
        }
        match to.0.len() {
            0 => {}
            1 => to.tlv(&Tlv::Pad1)?,
            padding => to.tlv(&Tlv::PadN((padding - 2) as u8))?,
        }
        Ok(len)
    }
}

/// What is still to be written.
struct Writer<'a>(&'a mut [u8]);

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let room = core::mem::take(&mut self.0);
        let (place, rest) = room
            .split_at_mut_checked(bytes.len())
            .ok_or(Error::NoRoom)?;
        place.copy_from_slice(bytes);
        self.0 = rest;
        Ok(())
    }

    fn tlv(&mut self, tlv: &Tlv<'_>) -> Result<(), Error> {
        match *tlv {
            Tlv::Pad1 => self.put(&[PAD1]),
            Tlv::PadN(more) => {
                self.put(&[PADN, more])?;
                self.put([0; 255].get(..more.into()).unwrap_or_default())
            }
            Tlv::Hmac(hmac) if hmac.is_possible() => {
                self.put(&[HMAC, 6 + hmac.mac.len() as u8])?;
                self.put(&hmac.bits.to_be_bytes())?;
                self.put(&hmac.key_id.to_be_bytes())?;
                self.put(hmac.mac)
            }
            Tlv::Other { kind, value } if !matches!(kind, PAD1 | PADN | HMAC) => {
                let len = u8::try_from(value.len()).map_err(|_| Error::NoRoom)?;
                self.put(&[kind, len])?;
                self.put(value)
            }
            Tlv::Hmac(_) | Tlv::Other { .. } => Err(Error::NoRoom),
        }
    }
}
