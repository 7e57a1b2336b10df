//! What the border router's XDP programs and user space share: map layouts, and the names of what can happen to a
//! packet.

pub mod aes;
pub mod maps;
pub mod reason;

pub use reason::Reason;
