//! SCMP messages (SCION Control Message Protocol).
//!
//! Each begins with type, code and checksum (4 bytes), then a block that depends on the type. Errors end
//! with a quote: the first bytes of the packet they are about.

use sig_common::{
    addr::IsdAs,
    router::delivery,
    wire::{
        PROTO_UDP,
        scion::{
            ENDHOST_PORT, NEXT_SCMP, View,
            scmp::{
                CONNECTIVITY_DOWN, ECHO_REPLY, ECHO_REQUEST, INTERFACE_DOWN, PACKET_TOO_BIG,
                PARAMETER_PROBLEM, TRACEROUTE_REPLY, TRACEROUTE_REQUEST, UNREACHABLE, is_request,
            },
        },
        udp,
    },
};

use super::packet::Host;

/// The most bytes of a SCION packet with an error, so that it passes everywhere.
pub const MAX_ERROR_PACKET: usize = 1232;

/// An SCMP message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scmp {
    /// Something is wrong with a packet or with the way that it took.
    Error {
        /// What.
        problem: Problem,
        /// The packet.
        quote: Quote,
    },
    /// Asks a host for an answer.
    EchoRequest(Echo),
    /// The answer.
    EchoReply(Echo),
    /// Asks a router on the path for an answer: that with the alert flag.
    TracerouteRequest {
        /// Names the asking socket: its port.
        id: u16,
        /// Number of the request.
        sequence: u16,
    },
    /// The answer.
    TracerouteReply {
        /// Of the request.
        id: u16,
        /// Of the request.
        sequence: u16,
        /// The AS of the router.
        isd_as: IsdAs,
        /// The interface of this AS that was asked.
        interface: u64,
    },
}

/// What an echo consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Echo {
    /// Names the asking socket: its port.
    pub id: u16,
    /// Number of the request.
    pub sequence: u16,
    /// Comes back as it is.
    pub data: Vec<u8>,
}

/// What an SCMP error reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The destination is out of reach.
    Unreachable {
        /// Why: 0 no route, 1 denied, 2 beyond scope, 3 address, 4 port, 5 source policy, 6 rejected.
        code: u8,
    },
    /// The packet does not fit the next link.
    PacketTooBig {
        /// Largest SCION packet that does, in bytes.
        mtu: u16,
    },
    /// A field of the packet has a wrong value.
    Parameter {
        /// Which, e.g. 51 the hop field's MAC, 52 an expired path.
        code: u8,
        /// Offset of the field in the packet, in bytes.
        pointer: u16,
    },
    /// The link to the neighbouring AS is down.
    InterfaceDown {
        /// The AS of the router.
        isd_as: IsdAs,
        /// Number of its interface.
        interface: u64,
    },
    /// Two interfaces of an AS do not reach each other.
    ConnectivityDown {
        /// The AS.
        isd_as: IsdAs,
        /// Number of the interface by which the packet came.
        ingress: u64,
        /// Number of the interface by which it would have left.
        egress: u64,
    },
}

/// The beginning of the packet that an error is about, and what can be told from it. All of it is what
/// the reporting router says: nothing proves that such a packet was ever sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quote {
    bytes: Box<[u8]>,
    packet: Option<QuotedPacket>,
}

/// A quoted packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotedPacket {
    /// Who sent it.
    pub source: Host,
    /// Whom to.
    pub destination: Host,
    /// Path type number.
    pub path_type: u8,
    /// The path as it stood in the packet then: its pointers have moved.
    pub path: Box<[u8]>,
    /// What it carried; `None` if that is cut off or something else.
    pub content: Option<QuotedContent>,
}

/// What a quoted packet carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotedContent {
    /// UDP.
    Udp {
        /// Port of the sender.
        source_port: u16,
        /// Port of the receiver.
        destination_port: u16,
    },
    /// An echo or traceroute request.
    Request {
        /// Names the asking socket: its port.
        id: u16,
        /// Number of the request.
        sequence: u16,
    },
}

impl Quote {
    /// Quotes a packet. More than [`MAX_ERROR_PACKET`] bytes of it are never quoted.
    #[must_use]
    pub fn new(packet: &[u8]) -> Self {
        let bytes = packet.get(..MAX_ERROR_PACKET).unwrap_or(packet);
        Self {
            bytes: bytes.into(),
            packet: quoted_packet(bytes),
        }
    }

    /// The bytes of the packet that are quoted.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The packet; `None` if its SCION header is cut off or malformed.
    #[must_use]
    pub fn packet(&self) -> Option<&QuotedPacket> {
        self.packet.as_ref()
    }

    /// The port of the socket that sent the packet, as border routers tell it.
    #[must_use]
    pub fn sender_port(&self) -> Option<u16> {
        delivery::quoted_port(&*self.bytes, 0, self.bytes.len()).ok()
    }
}

fn quoted_packet(bytes: &[u8]) -> Option<QuotedPacket> {
    let view = View::new_quoted(bytes).ok()?;
    let addresses = view.addresses();
    Some(QuotedPacket {
        source: (addresses.source_isd_as, addresses.source),
        destination: (addresses.destination_isd_as, addresses.destination),
        path_type: view.common().path_type,
        path: view.path().bytes().into(),
        content: view
            .upper_layer()
            .ok()
            .and_then(|(protocol, bytes)| quoted_content(protocol, bytes)),
    })
}

fn quoted_content(protocol: u8, bytes: &[u8]) -> Option<QuotedContent> {
    // Both headers have as many bytes as matter here.
    let header = bytes.first_chunk::<{ udp::HEADER_LEN }>()?;
    match protocol {
        PROTO_UDP => {
            let header = udp::Header::decode(header);
            Some(QuotedContent::Udp {
                source_port: header.source_port,
                destination_port: header.destination_port,
            })
        }
        NEXT_SCMP => {
            let &[kind, _, _, _, i0, i1, s0, s1] = header;
            is_request(kind).then_some(QuotedContent::Request {
                id: u16::from_be_bytes([i0, i1]),
                sequence: u16::from_be_bytes([s0, s1]),
            })
        }
        _ => None,
    }
}

impl Scmp {
    /// Whether it is an error: those are never answered.
    #[must_use]
    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error { .. })
    }

    /// The underlay port at which the destination host gets the message, as border routers choose it:
    /// that of the socket whose packet it answers, and the end host port for requests. `None` for an error
    /// about a packet that cannot be told.
    #[must_use]
    pub fn underlay_port(&self) -> Option<u16> {
        match self {
            Self::Error { quote, .. } => quote.sender_port(),
            Self::EchoReply(echo) => Some(echo.id),
            Self::TracerouteReply { id, .. } => Some(*id),
            Self::EchoRequest(_) | Self::TracerouteRequest { .. } => Some(ENDHOST_PORT),
        }
    }

    /// Reads a message; its checksum is not looked at. `None` for a type that is not defined and for a
    /// message that is cut off.
    #[must_use]
    pub fn decode(message: &[u8]) -> Option<Self> {
        let (&[kind, code, _, _], mut rest) = message.split_first_chunk()?;
        let rest = &mut rest;
        let error = |problem, quote: &[u8]| Self::Error {
            problem,
            quote: Quote::new(quote),
        };
        Some(match kind {
            UNREACHABLE => {
                take::<4>(rest)?;
                error(Problem::Unreachable { code }, rest)
            }
            PACKET_TOO_BIG => {
                take::<2>(rest)?;
                let mtu = u16::from_be_bytes(take(rest)?);
                error(Problem::PacketTooBig { mtu }, rest)
            }
            PARAMETER_PROBLEM => {
                take::<2>(rest)?;
                let pointer = u16::from_be_bytes(take(rest)?);
                error(Problem::Parameter { code, pointer }, rest)
            }
            INTERFACE_DOWN => {
                let isd_as = IsdAs::from_bytes(take(rest)?);
                let interface = u64::from_be_bytes(take(rest)?);
                error(Problem::InterfaceDown { isd_as, interface }, rest)
            }
            CONNECTIVITY_DOWN => {
                let isd_as = IsdAs::from_bytes(take(rest)?);
                let ingress = u64::from_be_bytes(take(rest)?);
                let egress = u64::from_be_bytes(take(rest)?);
                let problem = Problem::ConnectivityDown {
                    isd_as,
                    ingress,
                    egress,
                };
                error(problem, rest)
            }
            ECHO_REQUEST | ECHO_REPLY => {
                let echo = Echo {
                    id: u16::from_be_bytes(take(rest)?),
                    sequence: u16::from_be_bytes(take(rest)?),
                    data: rest.to_vec(),
                };
                if kind == ECHO_REQUEST {
                    Self::EchoRequest(echo)
                } else {
                    Self::EchoReply(echo)
                }
            }
            TRACEROUTE_REQUEST | TRACEROUTE_REPLY => {
                let id = u16::from_be_bytes(take(rest)?);
                let sequence = u16::from_be_bytes(take(rest)?);
                let isd_as = IsdAs::from_bytes(take(rest)?);
                let interface = u64::from_be_bytes(take(rest)?);
                if kind == TRACEROUTE_REQUEST {
                    Self::TracerouteRequest { id, sequence }
                } else {
                    Self::TracerouteReply {
                        id,
                        sequence,
                        isd_as,
                        interface,
                    }
                }
            }
            _ => return None,
        })
    }

    /// The message with a checksum of zero.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut message = Vec::with_capacity(64);
        match self {
            Self::Error { problem, quote } => {
                problem.encode(&mut message);
                message.extend(&quote.bytes);
            }
            Self::EchoRequest(echo) => echo.encode(ECHO_REQUEST, &mut message),
            Self::EchoReply(echo) => echo.encode(ECHO_REPLY, &mut message),
            Self::TracerouteRequest { id, sequence } => {
                message.extend([TRACEROUTE_REQUEST, 0, 0, 0]);
                message.extend(id.to_be_bytes());
                message.extend(sequence.to_be_bytes());
                message.extend([0; 16]);
            }
            Self::TracerouteReply {
                id,
                sequence,
                isd_as,
                interface,
            } => {
                message.extend([TRACEROUTE_REPLY, 0, 0, 0]);
                message.extend(id.to_be_bytes());
                message.extend(sequence.to_be_bytes());
                message.extend(isd_as.to_bytes());
                message.extend(interface.to_be_bytes());
            }
        }
        message
    }
}

impl Problem {
    fn encode(&self, message: &mut Vec<u8>) {
        match *self {
            Self::Unreachable { code } => message.extend([UNREACHABLE, code, 0, 0, 0, 0, 0, 0]),
            Self::PacketTooBig { mtu } => {
                message.extend([PACKET_TOO_BIG, 0, 0, 0, 0, 0]);
                message.extend(mtu.to_be_bytes());
            }
            Self::Parameter { code, pointer } => {
                message.extend([PARAMETER_PROBLEM, code, 0, 0, 0, 0]);
                message.extend(pointer.to_be_bytes());
            }
            Self::InterfaceDown { isd_as, interface } => {
                message.extend([INTERFACE_DOWN, 0, 0, 0]);
                message.extend(isd_as.to_bytes());
                message.extend(interface.to_be_bytes());
            }
            Self::ConnectivityDown {
                isd_as,
                ingress,
                egress,
            } => {
                message.extend([CONNECTIVITY_DOWN, 0, 0, 0]);
                message.extend(isd_as.to_bytes());
                message.extend(ingress.to_be_bytes());
                message.extend(egress.to_be_bytes());
            }
        }
    }
}

impl Echo {
    fn encode(&self, kind: u8, message: &mut Vec<u8>) {
        message.extend([kind, 0, 0, 0]);
        message.extend(self.id.to_be_bytes());
        message.extend(self.sequence.to_be_bytes());
        message.extend(&self.data);
    }
}

/// Takes the first `N` bytes off `bytes`.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}
