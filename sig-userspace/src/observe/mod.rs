//! What an operator sees: counters and status.

pub mod status;
