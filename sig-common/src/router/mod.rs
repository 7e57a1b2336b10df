//! What the border router's XDP programs and user space share: what is done with a packet, map layouts, and the names of
//! what can happen to a packet.

pub mod aes;
pub mod delivery;
pub mod maps;
pub mod passage;
pub mod procedure;
pub mod reason;

pub use reason::Reason;
