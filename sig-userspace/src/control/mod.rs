//! Everything that decides: configuration, static remotes, the running gateway.

pub mod config;
