//! What an operator sees: counters and status, and the pages made of them.

/// Statuses for tests of whatever shows them.
#[cfg(any(test, feature = "example"))]
#[doc(hidden)]
pub mod example;
pub mod http;
pub mod log;
pub mod metrics;
pub mod operator;
pub mod pages;
pub mod process;
pub mod socket;
