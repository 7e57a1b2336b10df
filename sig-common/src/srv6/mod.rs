//! What an SR node does with a packet whose destination is one of its segment identifiers (SIDs): RFC 8986, and
//! draft-ietf-spring-sr-service-programming for proxies.
//!
//! [`process()`] reads the packet and says what is to be done, as a [`Step`] of plain numbers. XDP programs and the engine run
//! this source; they differ in how they change packets and where they find routes and neighbours.

mod endpoint;
pub mod filter;
pub mod hmac;
pub mod maps;
mod sid;
#[cfg(test)]
mod tests;

pub use endpoint::{Cause, Refusal, Step, Way, process};
pub use sid::{Behavior, Flavors, Jump, Sid};
