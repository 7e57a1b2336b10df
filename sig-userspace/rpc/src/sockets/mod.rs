//! The sockets of the control plane: UDP sockets that carry SCION packets.
//!
//! A [`ScionSocket`] has one UDP/SCION address and one reader. What it shares with all others of the
//! gateway is in [`Local`]. Packets for ports outside of the AS's dispatched range come to the end host
//! port: an [`EndhostPort`] hands them to the sockets here, or another program owns that port and relays
//! them.

mod endhost;
mod local;
mod socket;

pub use endhost::EndhostPort;
pub use local::Local;
pub use socket::{Payload, PortChoice, Received, ScionSocket, Via};

/// Bytes of the largest datagram that is received; the reference receives a little less.
const MAX_DATAGRAM: usize = 9216;

#[cfg(test)]
mod tests;
