//! Probes of functions: whether they answer, or let packets through.

use std::{
    collections::BTreeMap,
    io::{self, Read as _},
    net::{IpAddr, SocketAddr, SocketAddrV6},
    time::Instant,
};

use sig_common::{
    srv6::maps::{Adjacency, IPV4_PROBE_AT, IPV6_PROBE_AT, ProbeToken},
    wire::{PROTO_UDP, checksum, ethernet, ipv4, ipv6, udp},
};
use sig_linux::{capture, neighbours::Resolved};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::{
    config::{ProbeKind, Service},
    tables::{Around, is_linked, neighbour, way_to},
};

/// So many in a row without an answer, and the function is down.
const MISSES: u32 = 3;

/// So many answers in a row, and it is up again.
const ANSWERS: u32 = 2;

/// Hop limit of probes through functions: enough for one router, and no more.
const HOPS: u8 = 2;

/// UDP port of probes through functions, both ways: discard (RFC 863).
const PORT: u16 = 9;

/// Packets that are looked at for the reply to a ping.
const LOOKED_AT: usize = 64;

/// All that are under way, and what became of those before.
pub(super) struct Probes {
    token: ProbeToken,
    /// Of the last one sent.
    sequence: u32,
    functions: BTreeMap<String, Probed>,
}

struct Probed {
    kind: ProbeKind,
    verdict: Verdict,
    /// When the next one is.
    due: Instant,
    sent: Option<Attempt>,
}

enum Attempt {
    Echo { socket: Socket, sequence: u32 },
    Connection(Socket),
    Through { sequence: u32, is_back: bool },
    NotSent,
}

impl Probes {
    /// `token`: what the programs know probes by.
    pub(super) const fn new(token: ProbeToken) -> Self {
        Self {
            token,
            sequence: 0,
            functions: BTreeMap::new(),
        }
    }

    /// When [`Self::run`] has something to do.
    pub(super) fn due(&self) -> Option<Instant> {
        self.functions.values().map(|probed| probed.due).min()
    }

    /// Looks for answers, and sends what is due. `has_program`: whether the program runs at an interface.
    pub(super) fn run(
        &mut self,
        now: Instant,
        functions: &[Service],
        around: &Around,
        has_program: impl Fn(&str) -> bool,
    ) {
        let mut old = std::mem::take(&mut self.functions);
        for function in functions {
            let Some(probe) = &function.probe else {
                continue;
            };
            let before = old.remove(&function.name);
            let before = before.filter(|probed| probed.kind == probe.kind);
            let is_linked = is_linked(function, around);
            let mut probed = match before {
                Some(probed) => probed,
                // Nobody has asked it before: it counts as up.
                None if is_linked => Probed {
                    kind: probe.kind,
                    verdict: Verdict::new(now),
                    due: now,
                    sent: None,
                },
                None => continue,
            };
            if !is_linked {
                probed.sent = None;
                probed.verdict.lose();
            }
            if probed.due <= now {
                match probed
                    .sent
                    .take()
                    .map(|attempt| attempt.is_answered(self.token))
                {
                    Some(true) => probed.verdict.answer(now),
                    Some(false) => probed.verdict.miss(),
                    None => {}
                }
                // Without the program its host would take what comes back for any packet.
                if is_linked && has_program(&function.return_interface) {
                    probed.sent = Some(self.send(function, probe.kind, around));
                }
                probed.due = now + probe.interval;
            }
            self.functions.insert(function.name.clone(), probed);
        }
    }

    /// Functions that are down by their probes, and since when they have not answered.
    pub(super) fn silent(&self) -> BTreeMap<String, Instant> {
        let silent = self
            .functions
            .iter()
            .filter(|(_, probed)| !probed.verdict.is_up);
        silent
            .map(|(name, probed)| (name.clone(), probed.verdict.heard))
            .collect()
    }

    /// A packet, from its IP header on, that the programs took for a probe.
    pub(super) fn came_back(&mut self, packet: &[u8]) {
        let at = match packet.first() {
            Some(first) if first >> 4 == 4 => IPV4_PROBE_AT,
            _ => IPV6_PROBE_AT,
        };
        let payload = packet.get(at..).unwrap_or_default();
        let Some((_, rest)) = payload.split_first_chunk::<{ size_of::<ProbeToken>() }>() else {
            return;
        };
        let Some(number) = rest.first_chunk().map(|bytes| u32::from_be_bytes(*bytes)) else {
            return;
        };
        for probed in self.functions.values_mut() {
            if let Some(Attempt::Through { sequence, is_back }) = &mut probed.sent {
                *is_back |= *sequence == number;
            }
        }
    }

    fn send(&mut self, function: &Service, kind: ProbeKind, around: &Around) -> Attempt {
        self.sequence = self.sequence.wrapping_add(1);
        let (token, sequence) = (self.token, self.sequence);
        let attempt = match (kind, neighbour(function, around)) {
            (ProbeKind::Ping, Some(to)) => {
                ping(function, to, token, sequence).map(|socket| Attempt::Echo { socket, sequence })
            }
            (ProbeKind::Tcp(port), Some(to)) => {
                connect(function, to, port).map(Attempt::Connection)
            }
            (
                ProbeKind::Through {
                    source,
                    destination,
                },
                _,
            ) => match way_to(function, around) {
                Some(way) => match frame(&way, source, destination, token, sequence) {
                    Some(frame) => capture::send(way.ifindex, &frame).map(|()| Attempt::Through {
                        sequence,
                        is_back: false,
                    }),
                    None => Ok(Attempt::NotSent),
                },
                None => Ok(Attempt::NotSent),
            },
            _ => Ok(Attempt::NotSent),
        };
        attempt.unwrap_or_else(|error| {
            tracing::debug!("cannot probe function {}: {error}", function.name);
            Attempt::NotSent
        })
    }
}

/// What follows from answers and the lack of them.
struct Verdict {
    is_up: bool,
    /// In a row.
    misses: u32,
    answers: u32,
    /// When it last answered; at first, when probing began.
    heard: Instant,
}

impl Verdict {
    const fn new(now: Instant) -> Self {
        Self {
            is_up: true,
            misses: 0,
            answers: 0,
            heard: now,
        }
    }

    const fn answer(&mut self, now: Instant) {
        self.misses = 0;
        self.heard = now;
        self.answers += 1;
        if self.is_up || self.answers >= ANSWERS {
            self.is_up = true;
            self.answers = 0;
        }
    }

    const fn miss(&mut self) {
        self.answers = 0;
        self.misses += 1;
        if self.misses >= MISSES {
            self.is_up = false;
            self.misses = 0;
        }
    }

    /// Its links or its neighbour are gone: what comes next has to show that it works.
    const fn lose(&mut self) {
        self.is_up = false;
        self.misses = 0;
        self.answers = 0;
    }
}

impl Attempt {
    fn is_answered(&self, token: ProbeToken) -> bool {
        match self {
            Self::Echo { socket, sequence } => {
                let expected = echo(token, *sequence);
                (0..LOOKED_AT)
                    .map_while(|_| receive(socket).ok())
                    .any(|reply| {
                        let icmp = match reply.first() {
                            // Of IPv4 the header comes too.
                            Some(first) if first >> 4 == 4 => {
                                reply.get(ipv4::header_len(*first)..).unwrap_or_default()
                            }
                            _ => &reply[..],
                        };
                        matches!(icmp, [0 | 129, 0, _, _, rest @ ..] if *rest == expected)
                    })
            }
            // An error has closed it.
            Self::Connection(socket) => {
                matches!(socket.take_error(), Ok(None)) && socket.peer_addr().is_ok()
            }
            Self::Through { is_back, .. } => *is_back,
            Self::NotSent => false,
        }
    }
}

/// A socket that is bound to the device towards a function, and to the address that this host has there.
fn socket(function: &Service, to: &Resolved, kind: Type, protocol: Protocol) -> io::Result<Socket> {
    let domain = match to.neighbour {
        IpAddr::V4(_) => Domain::IPV4,
        IpAddr::V6(_) => Domain::IPV6,
    };
    let socket = Socket::new(domain, kind, Some(protocol))?;
    socket.set_nonblocking(true)?;
    socket.bind_device(Some(function.interface.as_bytes()))?;
    socket.bind(&address(to.source, 0, to.ifindex))?;
    Ok(socket)
}

fn address(address: IpAddr, port: u16, ifindex: u32) -> SockAddr {
    match address {
        IpAddr::V6(address) if address.is_unicast_link_local() => {
            SockAddr::from(SocketAddrV6::new(address, port, 0, ifindex))
        }
        address => SockAddr::from(SocketAddr::new(address, port)),
    }
}

/// Identifier, sequence number and data of an ICMP echo message: not what the programs take for a probe through a function.
fn echo(token: ProbeToken, sequence: u32) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&sequence.to_be_bytes());
    bytes[4..].copy_from_slice(&(!token).to_ne_bytes());
    bytes
}

fn ping(function: &Service, to: &Resolved, token: ProbeToken, sequence: u32) -> io::Result<Socket> {
    let (protocol, kind) = match to.neighbour {
        IpAddr::V4(_) => (Protocol::ICMPV4, 8),
        IpAddr::V6(_) => (Protocol::ICMPV6, 128),
    };
    let socket = socket(function, to, Type::RAW, protocol)?;
    socket.connect(&address(to.neighbour, 0, to.ifindex))?;
    let mut message = [&[kind, 0, 0, 0][..], &echo(token, sequence)].concat();
    // Of ICMPv6 the kernel writes it.
    let sum = checksum::Sum::of(&message).checksum().to_be_bytes();
    if let Some(place) = message.get_mut(2..4) {
        place.copy_from_slice(&sum);
    }
    socket.send(&message)?;
    Ok(socket)
}

/// The next packet, as far as it matters.
fn receive(socket: &Socket) -> io::Result<Vec<u8>> {
    let mut packet = vec![0; 128];
    let len = (&mut &*socket).read(&mut packet)?;
    packet.truncate(len);
    Ok(packet)
}

fn connect(function: &Service, to: &Resolved, port: u16) -> io::Result<Socket> {
    let socket = socket(function, to, Type::STREAM, Protocol::TCP)?;
    // It is under way, or has failed and will not be there later.
    let _ = socket.connect(&address(to.neighbour, port, to.ifindex));
    Ok(socket)
}

/// A probe through a function.
fn frame(
    way: &Adjacency,
    source: IpAddr,
    destination: IpAddr,
    token: ProbeToken,
    sequence: u32,
) -> Option<Vec<u8>> {
    let payload = [&token.to_ne_bytes()[..], &sequence.to_be_bytes()].concat();
    let len = (udp::HEADER_LEN + payload.len()) as u16;
    let mut header = udp::Header {
        source_port: PORT,
        destination_port: PORT,
        length: len,
        checksum: 0,
    };
    let (ethertype, pseudo, ip) = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let ip = ipv4::Header {
                tos: 0,
                total_len: ipv4::HEADER_LEN as u16 + len,
                identification: sequence as u16,
                dont_fragment: true,
                ttl: HOPS,
                protocol: PROTO_UDP,
                source: source.octets(),
                destination: destination.octets(),
            };
            (
                ethernet::ETHERTYPE_IPV4,
                checksum::ipv4_pseudo_header(ip.source, ip.destination, len, PROTO_UDP),
                ip.encode().to_vec(),
            )
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let ip = ipv6::Header {
                traffic_class: 0,
                flow_label: 0,
                payload_len: len,
                next_header: PROTO_UDP,
                hop_limit: HOPS,
                source: source.octets(),
                destination: destination.octets(),
            };
            let mut bytes = vec![0; ipv6::HEADER_LEN];
            ip.emit(&mut bytes).ok()?;
            (
                ethernet::ETHERTYPE_IPV6,
                checksum::ipv6_pseudo_header(&ip.source, &ip.destination, len.into(), PROTO_UDP),
                bytes,
            )
        }
        _ => return None,
    };
    let sum = pseudo.add_bytes(&header.encode()).add_bytes(&payload);
    header.checksum = udp::checksum(sum);
    Some(
        [
            &way.macs[..],
            &ethertype.to_be_bytes(),
            &ip,
            &header.encode(),
            &payload,
        ]
        .concat(),
    )
}

#[cfg(test)]
mod tests {
    use sig_common::wire::inner::InnerPacket;

    use super::*;

    /// Whether it is up after each probe: `+` answered, `-` not, `x` its links gone.
    fn states(probes: &str) -> String {
        let mut verdict = Verdict::new(Instant::now());
        let states = probes.chars().map(|probe| {
            match probe {
                '+' => verdict.answer(Instant::now()),
                '-' => verdict.miss(),
                _ => verdict.lose(),
            }
            if verdict.is_up { 'u' } else { 'd' }
        });
        states.collect()
    }

    #[test]
    fn three_misses_are_down_and_two_answers_up() {
        assert_eq!(states("+++"), "uuu");
        assert_eq!(states("--+--+---"), "uuuuuuuud");
        assert_eq!(states("---+-+-++-"), "uuddddddu".to_owned() + "u");
        assert_eq!(states("x++"), "ddu");
        assert_eq!(states("x+x+---++"), "ddddddddu");
    }

    #[test]
    fn a_probe_is_known_by_what_it_carries() {
        for (source, destination, len) in [
            ("192.0.2.1", "192.0.2.2", 40),
            ("2001:db8::1", "2001:db8::2", 60),
        ] {
            let way = Adjacency::default();
            let token = 0x0102_0304_0506_0708;
            let frame = frame(
                &way,
                source.parse().unwrap(),
                destination.parse().unwrap(),
                token,
                7,
            );
            let frame = frame.unwrap();
            let packet = &frame[ethernet::HEADER_LEN..];
            assert_eq!(packet.len(), len);
            let inner = InnerPacket::parse(packet).unwrap();
            assert_eq!(inner.ports(), Some([PORT, PORT]));
            let payload = inner.payload(packet).unwrap();
            let pseudo = match (inner.source, inner.destination) {
                (IpAddr::V4(a), IpAddr::V4(b)) => {
                    checksum::ipv4_pseudo_header(a.octets(), b.octets(), 20, PROTO_UDP)
                }
                (IpAddr::V6(a), IpAddr::V6(b)) => {
                    checksum::ipv6_pseudo_header(&a.octets(), &b.octets(), 20, PROTO_UDP)
                }
                _ => panic!("one version"),
            };
            assert!(pseudo.add_bytes(payload).is_valid());
            let mut probes = Probes::new(token);
            for sequence in [7, 8] {
                let probed = Probed {
                    kind: ProbeKind::Ping,
                    verdict: Verdict::new(Instant::now()),
                    due: Instant::now(),
                    sent: Some(Attempt::Through {
                        sequence,
                        is_back: false,
                    }),
                };
                probes.functions.insert(sequence.to_string(), probed);
            }
            probes.came_back(packet);
            probes.came_back(&packet[..len - 1]);
            let is_back = |name: &str| {
                let sent = probes.functions[name].sent.as_ref();
                sent.unwrap().is_answered(token)
            };
            assert!(is_back("7") && !is_back("8"));
        }
    }
}
