//! All of an SRH.

use super::{FIXED_LEN, Fields, Hmac, HmacText, Problem, SEGMENT_LEN, Tlvs};

/// An SRH, with what follows it.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    fields: Fields,
    list: &'a [[u8; SEGMENT_LEN]],
    tlvs: &'a [u8],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Takes `bytes`, which end with the packet, for an SRH and what follows it. TLVs are checked as they are read.
    ///
    /// # Errors
    /// [`Problem`], except for [`Problem::Tlv`].
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Problem> {
        let fixed = bytes.first_chunk().ok_or(Problem::Truncated)?;
        let fields = Fields::read(*fixed).ok_or(Problem::RoutingType)?;
        fields.check(bytes.len())?;
        let (header, payload) = bytes
            .split_at_checked(fields.len.into())
            .ok_or(Problem::Length)?;
        let list_len = (usize::from(fields.last_entry) + 1) * SEGMENT_LEN;
        let (list, tlvs) = header
            .get(FIXED_LEN..)
            .and_then(|rest| rest.split_at_checked(list_len))
            .ok_or(Problem::LastEntry)?;
        let (list, _) = list.as_chunks();
        Ok(Self {
            fields,
            list,
            tlvs,
            payload,
        })
    }

    /// What follows the SRH.
    #[must_use]
    pub const fn next_header(&self) -> u8 {
        self.fields.next_header
    }

    /// Bytes of the SRH.
    #[expect(clippy::len_without_is_empty, reason = "a header is never empty")]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.fields.len as usize
    }

    /// Segments still to be visited, without the active one.
    #[must_use]
    pub const fn segments_left(&self) -> u8 {
        self.fields.segments_left
    }

    /// Index of the last element of the list.
    #[must_use]
    pub const fn last_entry(&self) -> u8 {
        self.fields.last_entry
    }

    /// Flags.
    #[must_use]
    pub const fn flags(&self) -> u8 {
        self.fields.flags
    }

    /// Tag.
    #[must_use]
    pub const fn tag(&self) -> u16 {
        self.fields.tag
    }

    /// The list as on the wire: the last segment on the way comes first. Never empty.
    #[must_use]
    pub const fn list(&self) -> &'a [[u8; SEGMENT_LEN]] {
        self.list
    }

    /// Whether the active segment is in the destination address alone: the first one of a reduced list (RFC 8754, section
    /// 4.1.1).
    #[must_use]
    pub const fn is_first_left_out(&self) -> bool {
        self.fields.segments_left > self.fields.last_entry
    }

    /// The active segment, as far as it is in the list: where [`View::is_first_left_out`], only the destination address has it.
    #[must_use]
    pub fn active(&self) -> Option<[u8; SEGMENT_LEN]> {
        self.list.get(usize::from(self.segments_left())).copied()
    }

    /// The segments in the order of the way, as far as the packet shows them; `destination` is the address of the IPv6 header,
    /// which comes first where the list leaves the first segment out. Later on the way nothing tells that one is missing.
    pub fn travel(
        &self,
        destination: [u8; SEGMENT_LEN],
    ) -> impl Iterator<Item = [u8; SEGMENT_LEN]> + use<'a> {
        let first = self.is_first_left_out().then_some(destination);
        first.into_iter().chain(self.list.iter().rev().copied())
    }

    /// Which item of [`View::travel`] is the active one, from 0.
    #[must_use]
    pub const fn active_index(&self) -> usize {
        // The list has one more than the last entry says.
        (self.fields.last_entry as usize).saturating_sub(self.fields.segments_left as usize)
    }

    /// The TLVs behind the list.
    #[must_use]
    pub const fn tlvs(&self) -> Tlvs<'a> {
        Tlvs(self.tlvs)
    }

    /// What `hmac`, a TLV of this SRH, authenticates (RFC 8754, section 2.1.2.1). `source` is the source address of the IPv6
    /// header. The authenticator itself is no part of it.
    #[must_use]
    pub const fn hmac_text(&self, source: [u8; SEGMENT_LEN], hmac: &Hmac<'_>) -> HmacText<'a> {
        HmacText {
            source,
            entry_and_flags: [self.fields.last_entry, self.fields.flags],
            bits: hmac.bits.to_be_bytes(),
            key_id: hmac.key_id.to_be_bytes(),
            list: self.list.as_flattened(),
        }
    }

    /// What follows the SRH.
    #[must_use]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }
}
