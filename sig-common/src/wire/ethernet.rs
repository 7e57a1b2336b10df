//! Ethernet II with up to two VLAN tags (IEEE 802.1Q, 802.1ad "QinQ").

use core::net::IpAddr;

use super::{Error, be16, split, split_mut};

/// Bytes of the header without tags.
pub const HEADER_LEN: usize = 14;
/// Bytes of one VLAN tag.
pub const TAG_LEN: usize = 4;
/// How many VLAN tags are read.
pub const MAX_TAGS: usize = 2;

/// EtherType of IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
/// Tag protocol identifier of IEEE 802.1Q.
pub const TPID_8021Q: u16 = 0x8100;
/// Tag protocol identifier of IEEE 802.1ad.
pub const TPID_8021AD: u16 = 0x88a8;

/// EtherType of IP packets with addresses of this version.
#[inline(always)]
#[must_use]
pub const fn ethertype(address: IpAddr) -> u16 {
    match address {
        IpAddr::V4(_) => ETHERTYPE_IPV4,
        IpAddr::V6(_) => ETHERTYPE_IPV6,
    }
}

/// Whether this EtherType announces a VLAN tag.
#[inline(always)]
#[must_use]
pub const fn is_tag(ethertype: u16) -> bool {
    matches!(ethertype, TPID_8021Q | TPID_8021AD)
}

/// A VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag {
    /// Tag protocol identifier, [`TPID_8021Q`] or [`TPID_8021AD`].
    pub tpid: u16,
    /// Tag control information: priority (3 bits), drop eligible (1), VLAN id (12).
    pub tci: u16,
}

impl Tag {
    /// The VLAN id.
    #[must_use]
    pub const fn id(self) -> u16 {
        self.tci & 0x0fff
    }
}

/// An Ethernet frame.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    fixed: &'a [u8; HEADER_LEN],
    tags: [Option<Tag>; MAX_TAGS],
    ethertype: u16,
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Takes `frame` for an Ethernet frame without frame check sequence.
    ///
    /// # Errors
    /// [`Error::Truncated`].
    pub fn new_checked(frame: &'a [u8]) -> Result<Self, Error> {
        let (fixed, mut payload) = split::<HEADER_LEN>(frame)?;
        let mut ethertype = be16(fixed[12], fixed[13]);
        let mut tags = [None; MAX_TAGS];
        for tag in &mut tags {
            if !is_tag(ethertype) {
                break;
            }
            let (&[t0, t1, e0, e1], rest) = split::<TAG_LEN>(payload)?;
            *tag = Some(Tag {
                tpid: ethertype,
                tci: be16(t0, t1),
            });
            ethertype = be16(e0, e1);
            payload = rest;
        }
        Ok(Self {
            fixed,
            tags,
            ethertype,
            payload,
        })
    }

    /// Destination MAC address.
    #[must_use]
    pub const fn destination(&self) -> [u8; 6] {
        let [a, b, c, d, e, f, ..] = *self.fixed;
        [a, b, c, d, e, f]
    }

    /// Source MAC address.
    #[must_use]
    pub const fn source(&self) -> [u8; 6] {
        let [_, _, _, _, _, _, a, b, c, d, e, f, ..] = *self.fixed;
        [a, b, c, d, e, f]
    }

    /// The VLAN tags, outermost first.
    #[must_use]
    pub const fn tags(&self) -> [Option<Tag>; MAX_TAGS] {
        self.tags
    }

    /// The EtherType after the tags. Still a tag's if there are more than two.
    #[must_use]
    pub const fn ethertype(&self) -> u16 {
        self.ethertype
    }

    /// What follows the header, with the padding of short frames.
    #[must_use]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The header in plain form.
    #[must_use]
    pub const fn header(&self) -> Header {
        Header {
            destination: self.destination(),
            source: self.source(),
            tags: self.tags,
            ethertype: self.ethertype,
        }
    }
}

/// An Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Destination MAC address.
    pub destination: [u8; 6],
    /// Source MAC address.
    pub source: [u8; 6],
    /// VLAN tags, outermost first.
    pub tags: [Option<Tag>; MAX_TAGS],
    /// EtherType of the payload.
    pub ethertype: u16,
}

impl Header {
    /// Bytes the header takes.
    #[expect(clippy::len_without_is_empty, reason = "a header is never empty")]
    #[must_use]
    pub fn len(&self) -> usize {
        HEADER_LEN + TAG_LEN * self.tags.iter().flatten().count()
    }

    /// Writes the header to the start of `out`; returns the bytes written.
    ///
    /// # Errors
    /// [`Error::NoRoom`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, Error> {
        let (destination, out) = split_mut::<6>(out)?;
        *destination = self.destination;
        let (source, mut out) = split_mut::<6>(out)?;
        *source = self.source;
        for tag in self.tags.iter().flatten() {
            let (tpid, rest) = split_mut::<2>(out)?;
            *tpid = tag.tpid.to_be_bytes();
            let (tci, rest) = split_mut::<2>(rest)?;
            *tci = tag.tci.to_be_bytes();
            out = rest;
        }
        let (ethertype, _) = split_mut::<2>(out)?;
        *ethertype = self.ethertype.to_be_bytes();
        Ok(self.len())
    }
}
