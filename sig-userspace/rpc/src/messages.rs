//! The protobuf messages between gateways, and between a gateway and the control service of another AS.
//!
//! Field numbers and types are those of the packages `proto.gateway.v1`, `proto.discovery.v1` and
//! `proto.control_plane.v1` of the SCION project. All of it is what a peer claims and has to be checked.

use std::collections::BTreeMap;

use prost::Message;

/// Asks a control service for the gateways of its AS.
#[derive(Clone, PartialEq, Message)]
pub struct GatewaysRequest {}

/// The gateways of an AS.
#[derive(Clone, PartialEq, Message)]
pub struct GatewaysResponse {
    /// In the order of the control service.
    #[prost(message, repeated, tag = "1")]
    pub gateways: Vec<Gateway>,
}

/// A gateway as its control service announces it. Addresses are text, `ip:port` or `[ip]:port`.
#[derive(Clone, PartialEq, Message)]
pub struct Gateway {
    /// Where it serves its prefixes (QUIC).
    #[prost(string, tag = "1")]
    pub control_address: String,
    /// Where it receives SIG frames.
    #[prost(string, tag = "2")]
    pub data_address: String,
    /// Where it answers session probes.
    #[prost(string, tag = "3")]
    pub probe_address: String,
    /// Interfaces of its AS through which paths to it must enter; empty: any.
    #[prost(uint64, repeated, tag = "4")]
    pub allow_interfaces: Vec<u64>,
}

/// Asks a gateway for the IP prefixes behind it.
#[derive(Clone, PartialEq, Message)]
pub struct PrefixesRequest {
    /// [`PrefixesResponse::etag`] of the last answer; empty: send all prefixes.
    #[prost(string, tag = "1")]
    pub etag: String,
    /// Not of the SCION project, whose gateways skip it.
    #[prost(message, optional, tag = "7446")]
    pub protection: Option<ProtectionOffer>,
}

/// The IP prefixes behind a gateway.
#[derive(Clone, PartialEq, Message)]
pub struct PrefixesResponse {
    /// Empty if the etag is that of the request: nothing changed.
    #[prost(message, repeated, tag = "1")]
    pub prefixes: Vec<Prefix>,
    /// Names this set of prefixes; empty from a server without etags, as the reference is.
    #[prost(string, tag = "2")]
    pub etag: String,
    /// As in [`PrefixesRequest::protection`]; only in answers to such.
    #[prost(message, optional, tag = "7446")]
    pub protection: Option<ProtectionAnswer>,
}

/// What a gateway that can protect frames says about itself, and the key that it wants for frames to the other one.
#[derive(Clone, PartialEq, Message)]
pub struct ProtectionOffer {
    /// Who it is.
    #[prost(message, optional, tag = "1")]
    pub proof: Option<IdentityProof>,
    /// Numbers of the keys that it knows for frames from the other one.
    #[prost(fixed32, repeated, tag = "2")]
    pub holding: Vec<u32>,
    /// AEADs that it has, best first, if it wants a key; those of which the number is unknown are skipped.
    #[prost(uint32, repeated, tag = "3")]
    pub ciphers: Vec<u32>,
    /// Random bytes that make the key another one than others of the same connection.
    #[prost(bytes = "vec", tag = "4")]
    pub salt: Vec<u8>,
    /// Its workers, which number frames by themselves.
    #[prost(uint32, tag = "5")]
    pub workers: u32,
}

/// The answer to a [`ProtectionOffer`].
#[derive(Clone, PartialEq, Message)]
pub struct ProtectionAnswer {
    /// Who it is.
    #[prost(message, optional, tag = "1")]
    pub proof: Option<IdentityProof>,
    /// Numbers of the keys that it knows for frames from the other one.
    #[prost(fixed32, repeated, tag = "2")]
    pub holding: Vec<u32>,
    /// The AEAD of the new key, 0 if there is none.
    #[prost(uint32, tag = "3")]
    pub cipher: u32,
    /// The number of the new key in frames.
    #[prost(fixed32, tag = "4")]
    pub key: u32,
    /// Why there is none: 1 to ask again soon, 2 for good.
    #[prost(uint32, tag = "5")]
    pub refusal: u32,
}

/// Proof of who is at this end of a TLS connection.
#[derive(Clone, PartialEq, Message)]
pub struct IdentityProof {
    /// Public key, Ed25519.
    #[prost(bytes = "vec", tag = "1")]
    pub public_key: Vec<u8>,
    /// Over what only the ends of this connection know, and which end this is.
    #[prost(bytes = "vec", tag = "2")]
    pub signature: Vec<u8>,
}

/// An IP prefix.
#[derive(Clone, PartialEq, Message)]
pub struct Prefix {
    /// 4 or 16 bytes, network byte order.
    #[prost(bytes = "vec", tag = "1")]
    pub prefix: Vec<u8>,
    /// Length of the prefix in bits.
    #[prost(uint32, tag = "2")]
    pub mask: u32,
}

/// Where the instance of a service is reached that a service address led to. The request is empty.
#[derive(Clone, PartialEq, Message)]
pub struct ServiceResolutionResponse {
    /// By name of the transport: [`QUIC`].
    #[prost(btree_map = "string, message", tag = "1")]
    pub transports: BTreeMap<String, Transport>,
}

/// Key of RPCs over QUIC in [`ServiceResolutionResponse::transports`].
pub const QUIC: &str = "QUIC";

/// An address of a service.
#[derive(Clone, PartialEq, Message)]
pub struct Transport {
    /// Text, `ip:port` or `[ip]:port`.
    #[prost(string, tag = "1")]
    pub address: String,
}

/// What one gateway asks another in a datagram.
#[derive(Clone, PartialEq, Message)]
pub struct ControlRequest {
    /// The only kind of request there is.
    #[prost(message, optional, tag = "1")]
    pub probe: Option<ProbeRequest>,
}

/// Answer to a [`ControlRequest`].
#[derive(Clone, PartialEq, Message)]
pub struct ControlResponse {
    /// The only kind of response there is.
    #[prost(message, optional, tag = "1")]
    pub probe: Option<ProbeResponse>,
}

/// Asks whether a gateway is there.
#[derive(Clone, PartialEq, Message)]
pub struct ProbeRequest {
    /// Session of the sender.
    #[prost(uint32, tag = "1")]
    pub session_id: u32,
    /// Comes back in the answer.
    #[prost(bytes = "vec", tag = "2")]
    pub data: Vec<u8>,
}

/// Answer to a [`ProbeRequest`], with the same contents.
#[derive(Clone, PartialEq, Message)]
pub struct ProbeResponse {
    /// That of the request.
    #[prost(uint32, tag = "1")]
    pub session_id: u32,
    /// That of the request.
    #[prost(bytes = "vec", tag = "2")]
    pub data: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len())
            .step_by(2)
            .map(|i| u8::from_str_radix(&text[i..i + 2], 16).expect("hexadecimal"))
            .collect()
    }

    fn is_written_as<M: Message + Default + PartialEq + std::fmt::Debug>(message: &M, wire: &str) {
        assert_eq!(message.encode_to_vec(), hex(wire));
        assert_eq!(
            &M::decode(hex(wire).as_slice()).expect("a message"),
            message
        );
    }

    #[test]
    fn probes_are_written_as_the_reference_writes_them() {
        let probe = |session_id| ControlRequest {
            probe: Some(ProbeRequest {
                session_id,
                data: Vec::new(),
            }),
        };
        is_written_as(&probe(0), "0a00");
        is_written_as(&probe(5), "0a020805");
        is_written_as(&probe(200), "0a0308c801");
        let response = ControlResponse {
            probe: Some(ProbeResponse {
                session_id: 5,
                data: vec![0xaa, 0xbb],
            }),
        };
        is_written_as(&response, "0a0608051202aabb");
    }

    #[test]
    fn service_resolutions_are_written_as_the_reference_writes_them() {
        let transport = Transport {
            address: "10.0.0.3:30254".to_owned(),
        };
        is_written_as(
            &ServiceResolutionResponse {
                transports: [(QUIC.to_owned(), transport)].into(),
            },
            "0a180a045155494312100a0e31302e302e302e333a3330323534",
        );
    }

    #[test]
    fn prefixes_are_written_as_the_reference_writes_them() {
        let mut v6 = vec![0; 16];
        v6[..4].copy_from_slice(&[0xfd, 0, 0, 2]);
        is_written_as(
            &PrefixesResponse {
                prefixes: vec![
                    Prefix {
                        prefix: vec![10, 2, 0, 0],
                        mask: 24,
                    },
                    Prefix {
                        prefix: v6,
                        mask: 64,
                    },
                ],
                etag: String::new(),
                protection: None,
            },
            "0a080a040a02000010180a140a10fd0000020000000000000000000000001040",
        );
    }
}
