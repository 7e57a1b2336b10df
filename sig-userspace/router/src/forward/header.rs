//! Common and address header of a packet, and where its path and payload are.

use std::ops::Range;

use sig_common::{
    addr::{HostAddr, IsdAs},
    router::passage::FIXED_LEN,
    wire::{
        Load as _,
        scion::{
            address,
            common::{self, Common},
            extension,
        },
    },
};

/// The headers of a packet in front of its path. Lengths of header and path lie within the packet.
pub(super) struct Header<'a> {
    common: Common,
    pub(super) destination_isd_as: IsdAs,
    pub(super) source_isd_as: IsdAs,
    /// `None`: of an unknown type.
    pub(super) destination: Option<HostAddr>,
    /// `None`: of an unknown type.
    pub(super) source: Option<HostAddr>,
    /// Offset of the path.
    path: usize,
    path_bytes: &'a [u8],
    /// Everything behind the path, whatever the payload length says.
    payload: &'a [u8],
}

impl<'a> Header<'a> {
    /// Reads what is in front of the path, as far as there is something that could be answered: of other versions it is
    /// unknown what is where, that of version 0 is the best guess. What is wrong is for
    /// [`sig_common::router::passage::Passage::read_header`] to say.
    pub(super) fn parse(packet: &'a [u8]) -> Option<Self> {
        let mut first: [u8; common::HEADER_LEN] = packet.bytes(0)?;
        first[0] &= 0x0f;
        let common = Common::decode(&first).ok()?;
        let (to, from) = (common.address_types >> 4, common.address_types & 0x0f);
        let path = FIXED_LEN + address_len(to) + address_len(from);
        let (header, payload) = packet.split_at_checked(common.header_len())?;
        let (front, path_bytes) = header.split_at_checked(path)?;
        let isd_as = |offset| front.bytes(offset).map(IsdAs::from_bytes);
        Some(Self {
            common,
            destination_isd_as: isd_as(common::HEADER_LEN)?,
            source_isd_as: isd_as(common::HEADER_LEN + 8)?,
            destination: address::host(front, to, FIXED_LEN).ok(),
            source: address::host(front, from, FIXED_LEN + address_len(to)).ok(),
            path,
            path_bytes,
            payload,
        })
    }

    pub(super) const fn path_type(&self) -> u8 {
        self.common.path_type
    }

    pub(super) const fn traffic_class(&self) -> u8 {
        self.common.traffic_class
    }

    pub(super) const fn flow_id(&self) -> u32 {
        self.common.flow_id
    }

    pub(super) const fn payload_len(&self) -> u16 {
        self.common.payload_len
    }

    /// The path as on the wire.
    pub(super) const fn path_bytes(&self) -> &'a [u8] {
        self.path_bytes
    }

    /// Offset of the path in the packet.
    pub(super) const fn path_offset(&self) -> usize {
        self.path
    }

    /// Whether the payload has the length that the header says.
    pub(super) fn has_right_payload_length(&self) -> bool {
        self.payload.len() == usize::from(self.common.payload_len)
    }

    /// What is behind the path in `packet`, from which this was read.
    pub(super) fn payload_range(&self, packet: &[u8]) -> Range<usize> {
        packet.len() - self.payload.len()..packet.len()
    }

    /// The upper layer behind the extension headers: its next header value and bytes. `None` if those are malformed.
    pub(super) fn upper_layer(&self) -> Option<(u8, &'a [u8])> {
        let end = self.payload.len();
        let (protocol, offset) = extension::skip(self.payload, self.common.next_header, 0, end)?;
        Some((protocol, self.payload.get(offset..)?))
    }
}

/// Bytes of a host address with this type and length, known or not: the two low bits count words of four bytes, less one.
const fn address_len(code: u8) -> usize {
    4 * ((code as usize & 0x3) + 1)
}
