//! Liveness of links and siblings: Bidirectional Forwarding Detection (RFC 5880), asynchronous mode, as the reference
//! speaks it. Pure: packets, time and randomness are arguments.
//!
//! What differs from the RFC, because the reference does:
//!
//! - A session is known by its link, not by "your discriminator": the reference keeps an old one until its detection
//!   time is over, and would never hear of a router that restarts faster.
//! - No poll sequence is begun, because the reference throws such packets away. One that a neighbour begins is ended.
//! - At the end a router says that the session is down, not that it is administratively down: the reference
//!   would stay in that state for good.
//! - No authentication, no echo, no demand mode: packets with them are thrown away.

mod control;
mod damping;
mod envelope;
mod session;
#[cfg(test)]
mod tests;

pub use control::{Control, Refused, State};
pub use damping::Damping;
pub use envelope::Envelope;
pub use session::Session;
