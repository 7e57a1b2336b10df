//! ISD-AS numbers and host addresses.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// An ISD-AS number: the ISD in the 16 high bits, the AS in the 48 low bits, in host byte order.
///
/// Text form `ISD-AS`: an AS up to 2^32-1 in decimal, larger ones as three groups of up to four
/// hexadecimal digits (`1-ff00:0:110`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct IsdAs(pub u64);

impl IsdAs {
    const AS_MASK: u64 = (1 << 48) - 1;

    /// Joins an ISD and the low 48 bits of an AS number.
    #[must_use]
    pub const fn new(isd: u16, asn: u64) -> Self {
        Self(((isd as u64) << 48) | (asn & Self::AS_MASK))
    }

    /// The isolation domain.
    #[must_use]
    pub const fn isd(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// The AS number, 48 bits.
    #[must_use]
    pub const fn asn(self) -> u64 {
        self.0 & Self::AS_MASK
    }

    /// From the eight bytes of a SCION address header (network byte order).
    #[inline]
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(u64::from_be_bytes(bytes))
    }

    /// The eight bytes of a SCION address header (network byte order).
    #[inline]
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}

impl fmt::Display for IsdAs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asn = self.asn();
        if asn <= u64::from(u32::MAX) {
            write!(f, "{}-{asn}", self.isd())
        } else {
            let group = |shift: u32| (asn >> shift) & 0xffff;
            write!(
                f,
                "{}-{:x}:{:x}:{:x}",
                self.isd(),
                group(32),
                group(16),
                group(0)
            )
        }
    }
}

/// Text that is not an ISD-AS number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseIsdAsError;

impl fmt::Display for ParseIsdAsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an ISD-AS number: expected a form like 1-ff00:0:110 or 1-64512")
    }
}

impl core::error::Error for ParseIsdAsError {}

impl FromStr for IsdAs {
    type Err = ParseIsdAsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (isd, asn) = text.split_once('-').ok_or(ParseIsdAsError)?;
        let isd = number(isd, 10, u64::from(u16::MAX))?;
        let asn = if asn.contains(':') {
            let mut value = 0;
            let mut groups = 0;
            for group in asn.split(':') {
                groups += 1;
                if groups > 3 || group.len() > 4 {
                    return Err(ParseIsdAsError);
                }
                value = (value << 16) | number(group, 16, 0xffff)?;
            }
            if groups != 3 {
                return Err(ParseIsdAsError);
            }
            value
        } else {
            number(asn, 10, u64::from(u32::MAX))?
        };
        Ok(Self::new(isd as u16, asn))
    }
}

/// Digits only: `from_str_radix` would also take a sign.
fn number(text: &str, radix: u32, max: u64) -> Result<u64, ParseIsdAsError> {
    if text.starts_with('+') {
        return Err(ParseIsdAsError);
    }
    match u64::from_str_radix(text, radix) {
        Ok(value) if value <= max => Ok(value),
        _ => Err(ParseIsdAsError),
    }
}

/// A host address of the SCION address header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HostAddr {
    /// IPv4, network byte order.
    V4([u8; 4]),
    /// IPv6, network byte order.
    V6([u8; 16]),
    /// A service number, e.g. [`HostAddr::SVC_CS`].
    Svc(u16),
}

impl HostAddr {
    /// Discovery service.
    pub const SVC_DS: Self = Self::Svc(0x0001);
    /// Control service.
    pub const SVC_CS: Self = Self::Svc(0x0002);
    /// Any service.
    pub const SVC_WILDCARD: Self = Self::Svc(0x0010);
    /// No service.
    pub const SVC_NONE: Self = Self::Svc(0xffff);

    const SVC_MULTICAST: u16 = 0x8000;

    /// The IP address; a service has none.
    #[must_use]
    pub const fn ip(self) -> Option<IpAddr> {
        match self {
            Self::V4(a) => Some(IpAddr::V4(Ipv4Addr::from_octets(a))),
            Self::V6(a) => Some(IpAddr::V6(Ipv6Addr::from_octets(a))),
            Self::Svc(_) => None,
        }
    }

    /// Bytes on the wire: 4, or 16 for IPv6.
    #[inline]
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "an address is never empty")]
    pub const fn len(self) -> usize {
        match self {
            Self::V4(_) | Self::Svc(_) => 4,
            Self::V6(_) => 16,
        }
    }

    /// The 4-bit type and length code of the SCION common header.
    #[inline]
    #[must_use]
    pub const fn type_code(self) -> u8 {
        match self {
            Self::V4(_) => 0x0,
            Self::V6(_) => 0x3,
            Self::Svc(_) => 0x4,
        }
    }
}

impl From<IpAddr> for HostAddr {
    /// An IPv4-mapped IPv6 address becomes IPv4, as SCION senders do.
    fn from(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            IpAddr::V4(a) => Self::V4(a.octets()),
            IpAddr::V6(a) => Self::V6(a.octets()),
        }
    }
}

impl fmt::Display for HostAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::V4(a) => Ipv4Addr::from(a).fmt(f),
            Self::V6(a) => Ipv6Addr::from(a).fmt(f),
            Self::SVC_NONE => f.write_str("None"),
            Self::Svc(number) => {
                match Self::Svc(number & !Self::SVC_MULTICAST) {
                    Self::SVC_DS => f.write_str("DS")?,
                    Self::SVC_CS => f.write_str("CS")?,
                    Self::SVC_WILDCARD => f.write_str("Wildcard")?,
                    _ => return write!(f, "<SVC:0x{number:04x}>"),
                }
                if number & Self::SVC_MULTICAST != 0 {
                    f.write_str("_M")?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::string::ToString;

    #[test]
    fn isd_as_prints_small_numbers_in_decimal_and_large_ones_in_groups() {
        assert_eq!(IsdAs::new(1, 0xff00_0000_0110).to_string(), "1-ff00:0:110");
        assert_eq!(IsdAs::new(64, 64512).to_string(), "64-64512");
        assert_eq!(IsdAs::new(0, 0).to_string(), "0-0");
        assert_eq!(
            IsdAs::new(65535, u64::from(u32::MAX)).to_string(),
            "65535-4294967295"
        );
        assert_eq!(IsdAs::new(1, 1 << 32).to_string(), "1-1:0:0");
    }

    #[test]
    fn isd_as_reads_what_it_prints() {
        for isd_as in [
            IsdAs(0),
            IsdAs(u64::MAX),
            IsdAs::new(1, 0xff00_0000_0110),
            IsdAs::new(1, u64::from(u32::MAX)),
            IsdAs::new(2, 1 << 32),
        ] {
            assert_eq!(isd_as.to_string().parse(), Ok(isd_as));
            assert_eq!(IsdAs::from_bytes(isd_as.to_bytes()), isd_as);
        }
        assert_eq!("1-0:0:5".parse(), Ok(IsdAs::new(1, 5)));
        assert_eq!("1-FF00:0:110".parse(), Ok(IsdAs::new(1, 0xff00_0000_0110)));
    }

    #[test]
    fn isd_as_refuses_other_text() {
        for text in [
            "",
            "1",
            "-",
            "1-",
            "-1",
            "65536-1",
            "1-4294967296",
            "1-1:2",
            "1-1:2:3:4",
            "1-10000:0:0",
            "1-00001:0:0",
            "1-+1",
            "+1-1",
            "1-1:+2:3",
            "1-a",
            "1-1::2",
            " 1-1",
            "1-1 ",
            "1-1-1",
            "1--1",
        ] {
            assert_eq!(text.parse::<IsdAs>(), Err(ParseIsdAsError), "{text:?}");
        }
    }

    #[test]
    fn host_addresses_print_as_addresses_or_service_names() {
        assert_eq!(HostAddr::V4([10, 0, 0, 1]).to_string(), "10.0.0.1");
        assert_eq!(
            HostAddr::from("fd00::1".parse::<IpAddr>().unwrap()).to_string(),
            "fd00::1"
        );
        assert_eq!(HostAddr::SVC_DS.to_string(), "DS");
        assert_eq!(HostAddr::Svc(0x8002).to_string(), "CS_M");
        assert_eq!(HostAddr::Svc(0x1234).to_string(), "<SVC:0x1234>");
        assert_eq!(HostAddr::SVC_NONE.to_string(), "None");
    }

    #[test]
    fn mapped_ipv6_addresses_become_ipv4() {
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
        assert_eq!(HostAddr::from(mapped), HostAddr::V4([10, 0, 0, 1]));
    }
}
