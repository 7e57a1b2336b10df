//! The SCION address header: destination ISD-AS, source ISD-AS, destination host, source host.
//!
//! Types and lengths of the hosts are in the common header, 4 bits each: 0 IPv4, 3 IPv6, 4 service
//! (two bytes of number, two of zeros). All other codes are undefined.

use crate::addr::{HostAddr, IsdAs};
use crate::wire::{Error, Load, be16, split, split_mut};

/// Bytes of both ISD-AS numbers.
pub const ISD_AS_LEN: usize = 16;

/// Type and length code of IPv4.
pub const CODE_IPV4: u8 = 0x0;
/// Type and length code of IPv6.
pub const CODE_IPV6: u8 = 0x3;
/// Type and length code of a service.
pub const CODE_SVC: u8 = 0x4;

/// Bytes of a host address of type and length `code`, if that is a defined one.
#[inline(always)]
#[must_use]
pub const fn host_len(code: u8) -> Option<usize> {
    match code {
        CODE_IPV4 | CODE_SVC => Some(4),
        CODE_IPV6 => Some(16),
        _ => None,
    }
}

/// The addresses of a SCION packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressHeader {
    /// Destination ISD-AS.
    pub destination_isd_as: IsdAs,
    /// Source ISD-AS.
    pub source_isd_as: IsdAs,
    /// Destination host.
    pub destination: HostAddr,
    /// Source host.
    pub source: HostAddr,
}

impl AddressHeader {
    /// Reads the address header at the start of `bytes`; returns its length too. `types` is the
    /// byte of the common header.
    ///
    /// # Errors
    /// [`Error::AddressType`], [`Error::HeaderLength`] if `bytes` is too short.
    pub fn decode(types: u8, bytes: &[u8]) -> Result<(Self, usize), Error> {
        let (destination_isd_as, rest) = split(bytes).map_err(|_| Error::HeaderLength)?;
        let (source_isd_as, _) = split(rest).map_err(|_| Error::HeaderLength)?;
        let destination = host(bytes, types >> 4, ISD_AS_LEN)?;
        let offset = ISD_AS_LEN + destination.len();
        let source = host(bytes, types & 0x0f, offset)?;
        let header = Self {
            destination_isd_as: IsdAs::from_bytes(*destination_isd_as),
            source_isd_as: IsdAs::from_bytes(*source_isd_as),
            destination,
            source,
        };
        Ok((header, offset + source.len()))
    }

    /// The byte of the common header with types and lengths.
    #[must_use]
    pub const fn types(&self) -> u8 {
        self.destination.type_code() << 4 | self.source.type_code()
    }

    /// Bytes on the wire.
    #[expect(clippy::len_without_is_empty, reason = "a header is never empty")]
    #[must_use]
    pub const fn len(&self) -> usize {
        ISD_AS_LEN + self.destination.len() + self.source.len()
    }

    /// Writes the header to the start of `out`; returns the bytes written.
    ///
    /// # Errors
    /// [`Error::NoRoom`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, Error> {
        let (isd_as, rest) = split_mut(out)?;
        *isd_as = self.destination_isd_as.to_bytes();
        let (isd_as, rest) = split_mut(rest)?;
        *isd_as = self.source_isd_as.to_bytes();
        let rest = emit_host(self.destination, rest)?;
        emit_host(self.source, rest)?;
        Ok(self.len())
    }
}

/// Reads the host address of type `code` at `offset`.
///
/// # Errors
/// [`Error::AddressType`]; [`Error::HeaderLength`] if it is out of reach.
#[inline(always)]
pub fn host<L: Load + ?Sized>(packet: &L, code: u8, offset: usize) -> Result<HostAddr, Error> {
    let host = match code {
        CODE_IPV4 => packet.bytes(offset).map(HostAddr::V4),
        CODE_IPV6 => packet.bytes(offset).map(HostAddr::V6),
        CODE_SVC => packet
            .bytes(offset)
            .map(|[n0, n1, _, _]: [u8; 4]| HostAddr::Svc(be16(n0, n1))),
        _ => return Err(Error::AddressType),
    };
    host.ok_or(Error::HeaderLength)
}

fn emit_host(host: HostAddr, out: &mut [u8]) -> Result<&mut [u8], Error> {
    match host {
        HostAddr::V4(address) => {
            let (bytes, rest) = split_mut(out)?;
            *bytes = address;
            Ok(rest)
        }
        HostAddr::V6(address) => {
            let (bytes, rest) = split_mut(out)?;
            *bytes = address;
            Ok(rest)
        }
        HostAddr::Svc(number) => {
            let (bytes, rest) = split_mut(out)?;
            let [n0, n1] = number.to_be_bytes();
            *bytes = [n0, n1, 0, 0];
            Ok(rest)
        }
    }
}
