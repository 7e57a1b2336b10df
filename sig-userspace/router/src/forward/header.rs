//! Common and address header of a packet, and where its path and payload are.

use std::ops::Range;

use sig_common::{
    addr::{HostAddr, IsdAs},
    router::Reason,
    wire::{
        Load as _,
        scion::{
            address::{self, ISD_AS_LEN},
            common::{self, Common},
            extension,
        },
    },
};

use super::{code, halt::Rejection, parameter};

/// Where the types of the host addresses are in a packet.
const TYPES_OFFSET: usize = 9;

/// The headers of a packet in front of its path. Lengths of header and path lie within the packet.
pub(super) struct Header<'a> {
    version: u8,
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
    /// Reads what is in front of the path.
    ///
    /// # Errors
    /// Why there is nothing that could be answered.
    pub(super) fn parse(packet: &'a [u8]) -> Result<Self, Reason> {
        let mut first: [u8; common::HEADER_LEN] = packet.bytes(0).ok_or(Reason::HeaderLength)?;
        let version = first[0] >> 4;
        let structure = if version == 0 {
            Reason::HeaderLength
        } else {
            Reason::Version
        };
        // Of other versions it is unknown what is where; that of version 0 is the best guess.
        first[0] &= 0x0f;
        let common = Common::decode(&first).map_err(|_| Reason::Version)?;
        let (to, from) = (common.address_types >> 4, common.address_types & 0x0f);
        let hosts = common::HEADER_LEN + ISD_AS_LEN;
        let path = hosts + address_len(to) + address_len(from);
        let known = |code| {
            matches!(
                code,
                address::CODE_IPV4 | address::CODE_IPV6 | address::CODE_SVC
            )
        };
        let structure = if version == 0 && !(known(to) && known(from)) {
            Reason::AddressType
        } else {
            structure
        };
        let (header, payload) = packet
            .split_at_checked(common.header_len())
            .ok_or(structure)?;
        let (front, path_bytes) = header.split_at_checked(path).ok_or(structure)?;
        let isd_as = |offset| front.bytes(offset).map(IsdAs::from_bytes).ok_or(structure);
        Ok(Self {
            version,
            common,
            destination_isd_as: isd_as(common::HEADER_LEN)?,
            source_isd_as: isd_as(common::HEADER_LEN + 8)?,
            destination: address::host(front, to, hosts).ok(),
            source: address::host(front, from, hosts + address_len(to)).ok(),
            path,
            path_bytes,
            payload,
        })
    }

    /// What is wrong with it at first glance, as its sender is told.
    pub(super) fn check(&self) -> Result<(), Rejection> {
        if self.version != 0 {
            let problem = parameter(code::UNKNOWN_VERSION, 0);
            return Err(Rejection::report(Reason::Version, problem));
        }
        if self.destination.is_none() || self.source.is_none() {
            let problem = parameter(code::UNKNOWN_ADDRESS_FORMAT, TYPES_OFFSET);
            return Err(Rejection::report(Reason::AddressType, problem));
        }
        Ok(())
    }

    pub(super) const fn path_type(&self) -> u8 {
        self.common.path_type
    }

    pub(super) const fn next_header(&self) -> u8 {
        self.common.next_header
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

/// Bytes of a host address with this type and length: the two low bits count words of four bytes, less one.
const fn address_len(code: u8) -> usize {
    4 * ((code as usize & 0x3) + 1)
}
