//! The question what a gateway would do with a packet, and its answer.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use sig_common::wire::{PROTO_SCTP, PROTO_TCP, PROTO_UDP};

/// A packet that is not sent, only asked about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Source address.
    pub source: IpAddr,
    /// Destination address, of the same version.
    pub destination: IpAddr,
    /// Protocol number.
    pub protocol: u8,
    /// Ports of TCP, UDP and SCTP.
    #[serde(default)]
    pub source_port: u16,
    /// See `source_port`.
    #[serde(default)]
    pub destination_port: u16,
    /// Type of service or traffic class: DSCP and ECN.
    #[serde(default)]
    pub tos: u8,
    /// Time to live or hop limit.
    #[serde(default = "ttl")]
    pub ttl: u8,
    /// Bytes of the whole packet; it has as many as its headers at least.
    #[serde(default)]
    pub length: u16,
    /// The AS whose gateway sends it; `None`: a host of the LAN does.
    #[serde(default)]
    pub from_remote: Option<String>,
}

const fn ttl() -> u8 {
    64
}

/// What a gateway would do with the packet of a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// The packet.
    pub packet: Question,
    /// What decides, in the order in which it is looked at.
    pub steps: Vec<Step>,
    /// What becomes of it.
    pub verdict: Verdict,
    /// Why it is dropped or not taken: the name of a drop reason.
    pub reason: Option<String>,
    /// What that means.
    pub meaning: Option<String>,
    /// What to do about it.
    pub remedy: Option<String>,
    /// The remote AS.
    pub remote: Option<String>,
    /// Number of the session.
    pub session: Option<u8>,
    /// Part of the session's flows, 0 to 255, where these are spread over several paths.
    pub bucket: Option<u8>,
    /// Name of the path.
    pub path: Option<String>,
    /// Fingerprint of the path, hexadecimal.
    pub fingerprint: Option<String>,
    /// Where frames go first.
    pub next_hop: Option<SocketAddr>,
    /// Frames that it is sent in.
    pub frames: Option<u32>,
    /// Bytes of the longest of these as an Ethernet frame.
    pub frame_bytes: Option<u32>,
    /// Whether packets of the flow take the fast path after the first one.
    pub fast_path: Option<bool>,
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It is sent to the remote.
    Sent,
    /// It is delivered to a host, or to the kernel for one.
    Delivered,
    /// It goes through a service chain.
    Chain,
    /// It is not the gateway's: the kernel routes it as any other.
    NotTaken,
    /// It is dropped.
    Dropped,
}

/// Something that decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// What it is, one word or two.
    pub step: String,
    /// How it decides.
    pub outcome: Outcome,
    /// In words.
    pub text: String,
}

/// How a step decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The packet goes on.
    Pass,
    /// It goes on, but something is likely to go wrong.
    Warning,
    /// Its way ends here.
    Stop,
}

impl Question {
    /// The packet, as far as it is looked at: without checksums.
    ///
    /// # Errors
    /// The addresses are of different IP versions.
    pub fn packet(&self) -> Result<Vec<u8>, String> {
        let upper = match self.protocol {
            PROTO_TCP => 20,
            PROTO_UDP => 8,
            PROTO_SCTP => 12,
            // ICMP and whatever else: the packet is not looked at any further.
            _ => 8,
        };
        let mut packet = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let length = self.length.max(20 + upper);
                let mut header = vec![0x45, self.tos];
                header.extend(length.to_be_bytes());
                header.extend([0, 0, 0, 0, self.ttl, self.protocol, 0, 0]);
                header.extend(source.octets());
                header.extend(destination.octets());
                header.resize(length.into(), 0);
                (header, 20)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let length = self.length.max(40 + upper);
                let mut header = vec![6 << 4 | self.tos >> 4, self.tos << 4, 0, 0];
                header.extend((length - 40).to_be_bytes());
                header.extend([self.protocol, self.ttl]);
                header.extend(source.octets());
                header.extend(destination.octets());
                header.resize(length.into(), 0);
                (header, 40)
            }
            (source, destination) => {
                return Err(format!(
                    "{source} and {destination} are of different IP versions"
                ));
            }
        };
        if matches!(self.protocol, PROTO_TCP | PROTO_UDP | PROTO_SCTP) {
            let (bytes, at) = (&mut packet.0, packet.1);
            bytes[at..at + 2].copy_from_slice(&self.source_port.to_be_bytes());
            bytes[at + 2..at + 4].copy_from_slice(&self.destination_port.to_be_bytes());
        }
        if self.protocol == PROTO_TCP {
            // An acknowledgement without options.
            packet.0[packet.1 + 12] = 5 << 4;
            packet.0[packet.1 + 13] = 1 << 4;
        }
        Ok(packet.0)
    }
}
