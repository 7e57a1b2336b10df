//! Headers of the gateway's frames and probes, and templates like them.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

use sig_common::{
    accelerate::{MAX_HEADERS, MAX_PATHS, Sighting},
    addr::IsdAs,
    maps::RemoteKey,
    wire::{
        datagram::{self, Datagram},
        ethernet, ipv4, ipv6,
        scion::{View, common},
        sig_frame,
        template::{Endpoints, HeaderTemplate, NextHop, TemplateError},
        udp,
    },
};

/// What was in front of a frame or probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Headers {
    datagram: Datagram,
    ends: Endpoints,
    outer_source: SocketAddr,
    next_hop: NextHop,
    path_type: u8,
    path: Vec<u8>,
    /// As they were seen.
    bytes: Vec<u8>,
}

/// Why frames with these headers are left to the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unsuited {
    /// They cannot be read.
    Malformed,
    /// UDP/SCION and the underlay have different source addresses or ports.
    Sources,
    /// SCION traffic class and that of the underlay differ.
    TrafficClasses,
    /// No template can be made.
    Template(TemplateError),
    /// They are too long.
    Length(usize),
    /// They differ from the template in something else.
    Form,
    /// There is no place for another path.
    Full,
}

impl fmt::Display for Unsuited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("its headers cannot be read"),
            Self::Sources => f.write_str("its SCION and underlay sources differ"),
            Self::TrafficClasses => f.write_str("its SCION and underlay traffic classes differ"),
            Self::Template(error) => error.fmt(f),
            Self::Length(len) => write!(
                f,
                "its headers have {len} bytes, more than the {MAX_HEADERS} that fit"
            ),
            Self::Full => write!(f, "{MAX_PATHS} other paths were used in the last minute"),
            Self::Form => f.write_str("its headers have options that are not understood"),
        }
    }
}

impl Headers {
    /// The headers of a sighting.
    pub(super) fn read(sighting: &Sighting) -> Result<Self, Unsuited> {
        let len = sighting.headers as usize;
        let bytes = sighting.bytes.get(..len).ok_or(Unsuited::Malformed)?;
        // What was behind them is not known, but how much it was.
        let mut packet = bytes.to_vec();
        packet.resize(
            len + (sighting.payload as usize).min(usize::from(u16::MAX)),
            0,
        );
        let mut datagram = Datagram::default();
        datagram::parse(packet.as_slice(), &mut datagram).ok_or(Unsuited::Malformed)?;
        let scion = packet
            .get(datagram.scion as usize..)
            .ok_or(Unsuited::Malformed)?;
        let scion = View::new_checked(scion).map_err(|_| Unsuited::Malformed)?;
        let (source, destination) = outer(&packet).ok_or(Unsuited::Malformed)?;
        let outer_port = datagram.scion as usize - udp::HEADER_LEN + 2;
        let outer_port = packet
            .get(outer_port..)
            .and_then(|rest| rest.first_chunk())
            .map(|bytes| u16::from_be_bytes(*bytes));
        let (Some(outer_port), Some([d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5])) =
            (outer_port, packet.first_chunk().copied())
        else {
            return Err(Unsuited::Malformed);
        };
        Ok(Self {
            ends: Endpoints {
                local_isd_as: IsdAs(datagram.source_isd_as),
                local: SocketAddr::new(IpAddr::from(datagram.source), datagram.source_port),
                remote_isd_as: IsdAs(datagram.destination_isd_as),
                remote: SocketAddr::new(
                    IpAddr::from(datagram.destination),
                    datagram.destination_port,
                ),
            },
            outer_source: SocketAddr::new(source, datagram.outer_source_port),
            next_hop: NextHop {
                address: SocketAddr::new(destination, outer_port),
                source_mac: [s0, s1, s2, s3, s4, s5],
                destination_mac: [d0, d1, d2, d3, d4, d5],
            },
            path_type: datagram.path_type,
            path: scion.path().bytes().to_vec(),
            bytes: bytes.to_vec(),
            datagram,
        })
    }

    /// Who sent it.
    pub(super) fn local(&self) -> RemoteKey {
        RemoteKey::new(self.ends.local_isd_as, self.datagram.source)
    }

    /// Whom it is for.
    pub(super) fn remote(&self) -> RemoteKey {
        RemoteKey::new(self.ends.remote_isd_as, self.datagram.destination)
    }

    /// UDP/SCION ports: source and destination.
    pub(super) const fn ports(&self) -> [u16; 2] {
        [self.datagram.source_port, self.datagram.destination_port]
    }

    /// Whether the SCION source is also that of the underlay: then this host sent it for itself.
    pub(super) fn are_of_one_source(&self) -> bool {
        self.outer_source.ip() == self.ends.local.ip()
    }

    /// DSCP and ECN.
    pub(super) const fn traffic_class(&self) -> u8 {
        self.datagram.traffic_class
    }

    /// Where the border router is, or the remote gateway.
    pub(super) const fn next_hop(&self) -> SocketAddr {
        self.next_hop.address
    }

    /// Bytes of the headers up to UDP/SCION.
    pub(super) const fn len(&self) -> usize {
        self.datagram.l4 as usize
    }

    /// The SIG session of a frame.
    pub(super) fn session(&self) -> u8 {
        let at = self.datagram.payload() + 1;
        self.bytes.get(at).copied().unwrap_or_default()
    }

    /// The template of frames with these headers.
    pub(super) fn template(&self) -> Result<HeaderTemplate<MAX_HEADERS>, Unsuited> {
        let template = self.template_of(self.ports(), self.session())?;
        let len = self.datagram.l4 as usize;
        let made = constant(&self.datagram, template.headers(), len);
        match made.is_some() && made == constant(&self.datagram, &self.bytes, len) {
            true => Ok(template),
            false => Err(Unsuited::Form),
        }
    }

    /// The template of frames that go the same way, between these ports.
    pub(super) fn template_of(
        &self,
        [local, remote]: [u16; 2],
        session: u8,
    ) -> Result<HeaderTemplate<MAX_HEADERS>, Unsuited> {
        if self.outer_source != self.ends.local {
            return Err(Unsuited::Sources);
        }
        if self.datagram.outer_class != self.datagram.traffic_class {
            return Err(Unsuited::TrafficClasses);
        }
        let mut ends = self.ends;
        ends.local.set_port(local);
        ends.remote.set_port(remote);
        let len = self.len() + udp::HEADER_LEN + sig_frame::HEADER_LEN;
        if len > MAX_HEADERS {
            return Err(Unsuited::Length(len));
        }
        HeaderTemplate::new(&ends, &self.next_hop, self.path_type, &self.path, session)
            .map_err(Unsuited::Template)
    }
}

/// The first `len` bytes without what differs from frame to frame, and the hop limit.
fn constant(datagram: &Datagram, bytes: &[u8], len: usize) -> Option<Vec<u8>> {
    const IP: usize = ethernet::HEADER_LEN;
    let mut bytes = bytes.get(..len)?.to_vec();
    let scion = datagram.scion as usize;
    let mut zeros = vec![
        scion - 4..scion + common::NEXT_HEADER_OFFSET,
        scion + common::PAYLOAD_LEN_OFFSET..scion + common::PAYLOAD_LEN_OFFSET + 2,
    ];
    match datagram.over_ipv6 {
        // Type of service, length, identification; hop limit; checksum.
        0 => zeros.extend([IP + 1..IP + 6, IP + 8..IP + 9, IP + 10..IP + 12]),
        // Traffic class, flow label, length; hop limit.
        _ => zeros.extend([IP..IP + 6, IP + 7..IP + 8]),
    }
    for zero in zeros {
        bytes.get_mut(zero)?.fill(0);
    }
    Some(bytes)
}

/// Source and destination of the outer IP header of a packet with an Ethernet header.
fn outer(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let ip = packet.get(ethernet::HEADER_LEN..)?;
    match ip.first()? >> 4 {
        4 => {
            let ip = ipv4::View::new_checked(ip).ok()?;
            Some((ip.source().into(), ip.destination().into()))
        }
        _ => {
            let ip = ipv6::View::new_checked(ip).ok()?;
            Some((ip.source().into(), ip.destination().into()))
        }
    }
}
