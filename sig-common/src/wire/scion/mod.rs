//! The SCION header: common header, address header, path, and extension headers
//! (source: SCION header specification).

pub mod address;
pub mod common;
pub mod extension;
pub mod path;
pub mod scmp;
pub mod udp;

use self::address::AddressHeader;
use self::common::Common;
use self::path::Path;
use super::Error;
use crate::addr::{HostAddr, IsdAs};

/// The default port of end hosts in the underlay, where SCMP and packets for ports outside of the
/// dispatched range arrive.
pub const ENDHOST_PORT: u16 = 30041;

/// Next header value of the hop-by-hop extension.
pub const NEXT_HOP_BY_HOP: u8 = 200;
/// Next header value of the end-to-end extension.
pub const NEXT_END_TO_END: u8 = 201;
/// Next header value of SCMP.
pub const NEXT_SCMP: u8 = 202;
/// Next header value of BFD.
pub const NEXT_BFD: u8 = 203;

/// The largest SCION header, in bytes: the length field counts words of 4 bytes in 8 bits.
pub const MAX_HEADER_LEN: usize = 1020;

/// A SCION packet.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    common: Common,
    addresses: AddressHeader,
    address_bytes: &'a [u8],
    path: Path<'a>,
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Takes `packet`, the payload of an underlay datagram, for a SCION packet of version 0. Bytes
    /// beyond its payload length are left out.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::Version`]; [`Error::AddressType`];
    /// [`Error::HeaderLength`] if the header is not longer than the addresses or exceeds the packet;
    /// [`Error::PathType`] and [`Error::Path`]: see [`Path::new_checked`]; [`Error::Length`] if the
    /// payload exceeds the packet.
    pub fn new_checked(packet: &'a [u8]) -> Result<Self, Error> {
        let view = Self::new_quoted(packet)?;
        if view.payload.len() < usize::from(view.common.payload_len) {
            return Err(Error::Length);
        }
        Ok(view)
    }

    /// Takes `packet`, the beginning of a SCION packet as SCMP errors quote it, for that packet: like
    /// [`View::new_checked`], but the end of the payload may be missing.
    ///
    /// # Errors
    /// Those of [`View::new_checked`] except [`Error::Length`].
    pub fn new_quoted(packet: &'a [u8]) -> Result<Self, Error> {
        let common = Common::decode(packet.first_chunk().ok_or(Error::Truncated)?)?;
        let header_len = common.header_len();
        let (header, payload) = packet
            .split_at_checked(header_len)
            .ok_or(Error::HeaderLength)?;
        let rest = header
            .get(common::HEADER_LEN..)
            .ok_or(Error::HeaderLength)?;
        let (addresses, len) = AddressHeader::decode(common.address_types, rest)?;
        let (address_bytes, path) = rest.split_at_checked(len).ok_or(Error::HeaderLength)?;
        let path = Path::new_checked(common.path_type, path)?;
        let payload = payload
            .get(..usize::from(common.payload_len))
            .unwrap_or(payload);
        Ok(Self {
            common,
            addresses,
            address_bytes,
            path,
            payload,
        })
    }

    /// The common header.
    #[must_use]
    pub const fn common(&self) -> Common {
        self.common
    }

    /// The addresses.
    #[must_use]
    pub const fn addresses(&self) -> AddressHeader {
        self.addresses
    }

    /// The address header as on the wire: the first part of the pseudo header of
    /// [`super::checksum::scion_pseudo_header`].
    #[must_use]
    pub const fn address_bytes(&self) -> &'a [u8] {
        self.address_bytes
    }

    /// The path.
    #[must_use]
    pub const fn path(&self) -> Path<'a> {
        self.path
    }

    /// Extension headers and upper layer.
    #[must_use]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The upper layer behind the extension headers: its next header value and bytes.
    ///
    /// # Errors
    /// [`Error::Extension`]: see [`extension::skip`].
    pub fn upper_layer(&self) -> Result<(u8, &'a [u8]), Error> {
        let (protocol, offset) =
            extension::skip(self.payload, self.common.next_header, 0, self.payload.len())
                .ok_or(Error::Extension)?;
        let upper = self.payload.get(offset..).ok_or(Error::Extension)?;
        Ok((protocol, upper))
    }

    /// The header in plain form.
    #[must_use]
    pub const fn header(&self) -> Header<'a> {
        Header {
            traffic_class: self.common.traffic_class,
            flow_id: self.common.flow_id,
            next_header: self.common.next_header,
            payload_len: self.common.payload_len,
            destination_isd_as: self.addresses.destination_isd_as,
            source_isd_as: self.addresses.source_isd_as,
            destination: self.addresses.destination,
            source: self.addresses.source,
            path: self.path,
        }
    }
}

/// A SCION header, to be written.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a> {
    /// Traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Flow id, 20 bits; senders must not use 0.
    pub flow_id: u32,
    /// What follows the header.
    pub next_header: u8,
    /// Bytes after the header.
    pub payload_len: u16,
    /// Destination ISD-AS.
    pub destination_isd_as: IsdAs,
    /// Source ISD-AS.
    pub source_isd_as: IsdAs,
    /// Destination host.
    pub destination: HostAddr,
    /// Source host.
    pub source: HostAddr,
    /// Path.
    pub path: Path<'a>,
}

impl Header<'_> {
    const fn addresses(&self) -> AddressHeader {
        AddressHeader {
            destination_isd_as: self.destination_isd_as,
            source_isd_as: self.source_isd_as,
            destination: self.destination,
            source: self.source,
        }
    }

    /// Bytes the header takes.
    #[expect(clippy::len_without_is_empty, reason = "a header is never empty")]
    #[must_use]
    pub const fn len(&self) -> usize {
        common::HEADER_LEN + self.addresses().len() + self.path.bytes().len()
    }

    /// Writes the header to the start of `out`; returns the bytes written.
    ///
    /// # Errors
    /// [`Error::NoRoom`] if `out` is too small or the header exceeds [`MAX_HEADER_LEN`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, Error> {
        let len = self.len();
        if len > MAX_HEADER_LEN {
            return Err(Error::NoRoom);
        }
        let addresses = self.addresses();
        let common = Common {
            traffic_class: self.traffic_class,
            flow_id: self.flow_id,
            next_header: self.next_header,
            header_words: (len / 4) as u8,
            payload_len: self.payload_len,
            path_type: self.path.path_type(),
            address_types: addresses.types(),
        };
        let (first, rest) = super::split_mut(out)?;
        *first = common.encode();
        let written = addresses.emit(rest)?;
        let path = self.path.bytes();
        rest.get_mut(written..)
            .and_then(|rest| rest.get_mut(..path.len()))
            .ok_or(Error::NoRoom)?
            .copy_from_slice(path);
        Ok(len)
    }
}
