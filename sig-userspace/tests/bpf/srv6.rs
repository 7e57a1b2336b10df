//! The SR node's program over single packets.
//!
//! [`endpoint`], [`decap`], [`refused`], [`encap`], [`engine`], [`hmac`] and [`proxies`] hold packets written by hand after RFC 8754, RFC 8986
//! and draft-ietf-spring-sr-service-programming, [`filter`] rules; [`random`] compares the program with [`model`] over many others.

mod bed;
mod decap;
mod encap;
mod endpoint;
mod engine;
mod filter;
mod headers;
mod hmac;
mod model;
mod node;
mod packets;
mod proxies;
mod random;
mod refused;
mod rules;
