//! Remote procedure calls to and from other ASes: the messages, and session probes, which are single datagrams.

pub mod messages;
pub mod probe;
