//! The underlay parser: is this Ethernet frame a SIG frame for us, and where is what in it?
//!
//! The same source runs in the XDP program `sig_underlay` and in the engine. It never panics and
//! makes no assumption about the packet: every load is bounds-checked ([`Load`]), every variable
//! offset is bounded by a constant (a priority tag, header length fields of one byte), there are no
//! loops, as the BPF verifier demands.
//!
//! A verdict has three values: `Ok(Some(_))` = a SIG frame for us, `Ok(None)` = not ours, leave it to
//! the operating system, `Err(reason)` = ours, but bad: count and drop.

use core::net::IpAddr;

use super::scion::address::{self, CODE_IPV4, CODE_IPV6};
use super::scion::path::{self, Meta};
use super::scion::udp::{checksum_is_valid, payload_len};
use super::scion::{self, NEXT_SCMP, common, extension};
use super::{Load, PROTO_UDP, be16, ethernet, ipv4, ipv6, sig_frame, udp};
use crate::addr::{HostAddr, IsdAs};
use crate::reason::DropReason;

/// Where this gateway receives SIG frames: its SCION address, UDP port and underlay ports.
///
/// Plain, 8-byte aligned and without padding, so that it can be the value of a BPF map. Any bytes
/// are valid; bytes that [`Local::new`] did not make match no packet or another address, no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Local {
    isd_as: u64,
    /// IPv4: the first four bytes.
    host: [u8; 16],
    data_port: u16,
    /// Type and length code of SCION.
    host_code: u8,
    endhost_port: u8,
    reserved: [u8; 4],
}

impl Local {
    /// The gateway `isd_as`,`host` with UDP port `data_port`, in SCION and in the underlay. With
    /// `endhost_port`, also packets that arrive at the end host port 30041 of the underlay are
    /// looked at: the border router sends there what is for a port outside of the dispatched range.
    #[must_use]
    pub fn new(isd_as: IsdAs, host: IpAddr, data_port: u16, endhost_port: bool) -> Self {
        let mut bytes = [0; 16];
        let host_code = match host.to_canonical() {
            IpAddr::V4(v4) => {
                let [a, b, c, d] = v4.octets();
                [bytes[0], bytes[1], bytes[2], bytes[3]] = [a, b, c, d];
                CODE_IPV4
            }
            IpAddr::V6(v6) => {
                bytes = v6.octets();
                CODE_IPV6
            }
        };
        Self {
            isd_as: isd_as.0,
            host: bytes,
            data_port,
            host_code,
            endhost_port: endhost_port.into(),
            reserved: [0; 4],
        }
    }

    /// Our ISD-AS.
    #[inline(always)]
    #[must_use]
    pub const fn isd_as(&self) -> IsdAs {
        IsdAs(self.isd_as)
    }

    /// Our host address.
    #[inline(always)]
    #[must_use]
    pub const fn host(&self) -> HostAddr {
        if self.host_code == CODE_IPV4 {
            let [a, b, c, d, ..] = self.host;
            HostAddr::V4([a, b, c, d])
        } else {
            HostAddr::V6(self.host)
        }
    }

    /// UDP port of SIG frames.
    #[inline(always)]
    #[must_use]
    pub const fn data_port(&self) -> u16 {
        self.data_port
    }

    /// Whether port 30041 of the underlay is looked at.
    #[inline(always)]
    #[must_use]
    pub const fn uses_endhost_port(&self) -> bool {
        self.endhost_port != 0
    }

    #[inline(always)]
    const fn is_ipv4(&self, address: [u8; 4]) -> bool {
        let [a, b, c, d, ..] = self.host;
        self.host_code == CODE_IPV4
            && u32::from_ne_bytes(address) == u32::from_ne_bytes([a, b, c, d])
    }

    #[inline(always)]
    const fn is_ipv6(&self, address: [u8; 16]) -> bool {
        self.host_code == CODE_IPV6
            && u128::from_ne_bytes(address) == u128::from_ne_bytes(self.host)
    }
}

#[cfg(feature = "user")]
// SAFETY: `repr(C)`, made of integers only, no padding (checked below), and any bytes are valid.
unsafe impl aya::Pod for Local {}

const _: () = assert!(size_of::<Local>() == 32 && align_of::<Local>() == 8);

/// A SIG frame for us. Offsets count from the start of the Ethernet frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// Offset of the outer IP header.
    pub ip: u16,
    /// Offset of the SCION common header.
    pub scion: u16,
    /// Offset of the path: the end of the address header.
    pub path: u16,
    /// Offset of the UDP/SCION header, behind any extension headers.
    pub l4: u16,
    /// Offset of the SIG frame header.
    pub frame: u16,
    /// Bytes of SIG frame header and payload; at least 16, and all within the packet.
    pub frame_len: u16,
    /// Type of service or traffic class of the outer IP header: DSCP and ECN.
    pub outer_tos: u8,
    /// SCION traffic class.
    pub traffic_class: u8,
    /// SCION path type, a defined one.
    pub path_type: u8,
    /// Source of the outer IP header, never a service: who sent the packet on the underlay.
    pub underlay_source: HostAddr,
    /// Source ISD-AS.
    pub source_isd_as: IsdAs,
    /// Source host, never a service.
    pub source: HostAddr,
    /// UDP/SCION source port.
    pub source_port: u16,
    /// UDP/SCION destination port: our data port.
    pub destination_port: u16,
    /// SIG frame header.
    pub header: sig_frame::Header,
    /// Whether the frame is protected. Its payload then begins with the rest of what is authenticated, and ends with the tag:
    /// at least [`sig_frame::PROTECTION_LEN`] bytes are there.
    pub is_protected: bool,
}

impl Parsed {
    /// The range of the SIG frame's payload: raw IP packets and parts of packets.
    #[inline]
    #[must_use]
    pub const fn payload(&self) -> core::ops::Range<usize> {
        let frame = self.frame as usize;
        frame + sig_frame::HEADER_LEN..frame + self.frame_len as usize
    }

    /// Whether the frame needed no border router: it has an empty path, and comes from the very host of
    /// the AS of `local` that it names as its source.
    #[inline(always)]
    #[must_use]
    pub fn is_from_internal_host(&self, local: &Local) -> bool {
        self.path_type == path::EMPTY
            && self.source_isd_as == local.isd_as()
            && self.underlay_source == self.source
    }

    /// Whether the UDP/SCION checksum is correct. `packet` is the frame this was parsed from.
    #[inline]
    #[must_use]
    pub fn checksum_is_valid(&self, packet: &[u8]) -> bool {
        let addresses = usize::from(self.scion) + common::HEADER_LEN..usize::from(self.path);
        let message = usize::from(self.l4)..usize::from(self.frame) + usize::from(self.frame_len);
        match (packet.get(addresses), packet.get(message)) {
            (Some(addresses), Some(message)) => checksum_is_valid(addresses, message),
            _ => false,
        }
    }
}

/// Looks at an Ethernet frame.
///
/// Ours is what is in no VLAN, is not an outer IP fragment, is sent to our host address and to our
/// data port (or to port 30041, if that is looked at), is SCION version 0 with our ISD-AS, host and
/// data port as destination, and carries UDP. Left to the operating system is everything else; of
/// what arrives at the data port that is: outer fragments, SCMP, and sound packets for other SCION
/// addresses or ports. A tag with VLAN id 0 holds a priority and no VLAN (IEEE 802.1Q section 6.9.3). Malformed packets to the data port are errors; at port 30041, which other programs use
/// too, they are left to the operating system.
///
/// Outer lengths must be consistent with the packet; padding behind the outer IP packet is
/// ignored. The checksums are not verified: see [`Parsed::checksum_is_valid`]. Neither the sources
/// nor the MAC addresses are looked at.
///
/// # Errors
/// The reason, when the packet is ours but bad.
#[inline(always)]
pub fn parse<L: Load + ?Sized>(packet: &L, local: &Local) -> Result<Option<Parsed>, DropReason> {
    let Some(outer) = parse_outer(packet, local) else {
        return Ok(None);
    };
    match parse_scion(packet, local, &outer) {
        Err(_) if outer.at_endhost_port => Ok(None),
        verdict => verdict,
    }
}

/// What the outer headers of a packet to one of our ports say; lengths not checked yet.
struct Outer {
    ip: usize,
    udp: usize,
    ip_end: usize,
    udp_len: usize,
    tos: u8,
    source: HostAddr,
    at_endhost_port: bool,
}

#[inline(always)]
fn parse_outer<L: Load + ?Sized>(packet: &L, local: &Local) -> Option<Outer> {
    let [e0, e1] = packet.bytes(12)?;
    let mut ethertype = be16(e0, e1);
    let mut ip = ethernet::HEADER_LEN;
    if ethertype == ethernet::TPID_8021Q {
        let [t0, t1, e0, e1] = packet.bytes(ip)?;
        let tag = ethernet::Tag {
            tpid: ethertype,
            tci: be16(t0, t1),
        };
        if tag.id() != 0 {
            return None;
        }
        ethertype = be16(e0, e1);
        ip += ethernet::TAG_LEN;
    }
    let (udp, ip_end, tos, source) = match ethertype {
        ethernet::ETHERTYPE_IPV4 => {
            let header = packet.bytes::<{ ipv4::HEADER_LEN }>(ip)?;
            let [.., s0, s1, s2, s3, d0, d1, d2, d3] = header;
            if !ipv4::is_around_udp(&header) || !local.is_ipv4([d0, d1, d2, d3]) {
                return None;
            }
            let header_len = ipv4::header_len(header[0]);
            let total_len = usize::from(be16(header[2], header[3]));
            let source = HostAddr::V4([s0, s1, s2, s3]);
            (ip + header_len, ip + total_len, header[1], source)
        }
        ethernet::ETHERTYPE_IPV6 => {
            let header = packet.bytes::<8>(ip)?;
            if !ipv6::is_around_udp(&header) || !local.is_ipv6(packet.bytes(ip + 24)?) {
                return None;
            }
            let source = HostAddr::V6(packet.bytes(ip + 8)?);
            let payload = ip + ipv6::HEADER_LEN;
            let payload_len = usize::from(be16(header[4], header[5]));
            let class = header[0] << 4 | header[1] >> 4;
            (payload, payload + payload_len, class, source)
        }
        _ => return None,
    };
    let header = udp::Header::decode(&packet.bytes(udp)?);
    let at_endhost_port =
        local.uses_endhost_port() && header.destination_port == scion::ENDHOST_PORT;
    if !at_endhost_port && header.destination_port != local.data_port {
        return None;
    }
    Some(Outer {
        ip,
        udp,
        ip_end,
        udp_len: usize::from(header.length),
        tos,
        source,
        at_endhost_port,
    })
}

/// Bytes of common header and both ISD-AS numbers.
const FIXED_LEN: usize = common::HEADER_LEN + address::ISD_AS_LEN;

#[inline(always)]
fn parse_scion<L: Load + ?Sized>(
    packet: &L,
    local: &Local,
    outer: &Outer,
) -> Result<Option<Parsed>, DropReason> {
    let scion = outer.udp + udp::HEADER_LEN;
    if outer.ip_end > packet.len() || outer.ip_end < scion {
        return Err(DropReason::BadIp);
    }
    let udp_end = outer.udp + outer.udp_len;
    if outer.udp_len < udp::HEADER_LEN || udp_end > outer.ip_end {
        return Err(DropReason::BadUdp);
    }

    // Common header.
    if udp_end < scion + FIXED_LEN {
        return Err(DropReason::BadScionHeaderLen);
    }
    let header = load(packet, scion, DropReason::BadScionHeaderLen)?;
    let Ok(header) = common::Common::decode(&header) else {
        return Err(DropReason::BadScionVersion);
    };
    if header.next_header == NEXT_SCMP {
        return Ok(None);
    }

    // Address header.
    let addresses = scion + common::HEADER_LEN;
    let isd_as =
        |offset| load(packet, offset, DropReason::BadScionHeaderLen).map(IsdAs::from_bytes);
    if isd_as(addresses)? != local.isd_as() {
        return Ok(None);
    }
    let source_isd_as = isd_as(addresses + 8)?;
    let at = scion + FIXED_LEN;
    let (is_for_us, at) = match header.address_types >> 4 {
        CODE_IPV4 => {
            let address = load(packet, at, DropReason::BadScionHeaderLen)?;
            (local.is_ipv4(address), at + 4)
        }
        CODE_IPV6 => {
            let address = load(packet, at, DropReason::BadScionHeaderLen)?;
            (local.is_ipv6(address), at + 16)
        }
        address::CODE_SVC => return Ok(None),
        _ => return Err(DropReason::BadAddressType),
    };
    if !is_for_us {
        return Ok(None);
    }
    let (source, path) = match header.address_types & 0x0f {
        CODE_IPV4 => (
            HostAddr::V4(load(packet, at, DropReason::BadScionHeaderLen)?),
            at + 4,
        ),
        CODE_IPV6 => (
            HostAddr::V6(load(packet, at, DropReason::BadScionHeaderLen)?),
            at + 16,
        ),
        _ => return Err(DropReason::BadAddressType),
    };

    // Path: its stated length must fill the header.
    let payload = scion + header.header_len();
    if payload < path || payload > udp_end {
        return Err(DropReason::BadScionHeaderLen);
    }
    let path_len = match header.path_type {
        path::EMPTY => Some(0),
        path::ONE_HOP => Some(path::ONE_HOP_LEN),
        path::SCION => Meta::decode(load(packet, path, DropReason::BadPath)?).path_len(),
        path::EPIC => {
            let meta = load(packet, path + path::EPIC_LEN, DropReason::BadPath)?;
            Meta::decode(meta)
                .path_len()
                .map(|len| path::EPIC_LEN + len)
        }
        _ => return Err(DropReason::UnknownPathType),
    };
    if path_len != Some(payload - path) {
        return Err(DropReason::BadPath);
    }

    // Extension headers and UDP.
    let end = payload + usize::from(header.payload_len);
    if end > udp_end {
        return Err(DropReason::BadScionPayloadLen);
    }
    let Some((protocol, l4)) = extension::skip(packet, header.next_header, payload, end) else {
        return Err(DropReason::BadExtension);
    };
    match protocol {
        PROTO_UDP => {}
        NEXT_SCMP => return Ok(None),
        _ => return Err(DropReason::UnsupportedL4),
    }
    if end < l4 + udp::HEADER_LEN {
        return Err(DropReason::BadL4);
    }
    let udp = udp::Header::decode(&load(packet, l4, DropReason::BadL4)?);
    if udp.destination_port != local.data_port {
        return Ok(None);
    }
    let Some(frame_len) = payload_len(udp.length, end - l4) else {
        return Err(DropReason::BadL4);
    };

    // SIG frame.
    if frame_len < sig_frame::HEADER_LEN {
        return Err(DropReason::BadFrameLen);
    }
    let frame = l4 + udp::HEADER_LEN;
    let sig = load(packet, frame, DropReason::BadFrameLen)?;
    let Ok((sig, is_protected)) = sig_frame::Header::decode_any(&sig) else {
        return Err(DropReason::BadFrameVersion);
    };
    if is_protected && frame_len < sig_frame::HEADER_LEN + sig_frame::PROTECTION_LEN {
        return Err(DropReason::BadFrameLen);
    }
    Ok(Some(Parsed {
        ip: outer.ip as u16,
        scion: scion as u16,
        path: path as u16,
        l4: l4 as u16,
        frame: frame as u16,
        frame_len: frame_len as u16,
        outer_tos: outer.tos,
        traffic_class: header.traffic_class,
        path_type: header.path_type,
        underlay_source: outer.source,
        source_isd_as,
        source,
        source_port: udp.source_port,
        destination_port: udp.destination_port,
        header: sig,
        is_protected,
    }))
}

#[inline(always)]
fn load<const N: usize, L: Load + ?Sized>(
    packet: &L,
    offset: usize,
    missing: DropReason,
) -> Result<[u8; N], DropReason> {
    packet.bytes(offset).ok_or(missing)
}
