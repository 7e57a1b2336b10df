//! What an operator sees: counters and status, and the pages made of them.
//!
//! Part of the implementation of the library `sig` (package `sig-userspace`), which is what other programs use; here, things
//! change without notice.

#![warn(
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

/// Statuses for tests of whatever shows them.
#[cfg(any(test, feature = "example"))]
#[allow(clippy::unwrap_used, reason = "for tests")]
#[doc(hidden)]
pub mod example;
pub mod http;
pub mod log;
pub mod metrics;
pub mod operator;
pub mod pages;
pub mod process;
pub mod service;
pub mod socket;
