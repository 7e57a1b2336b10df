//! The border router.
//!
//! Part of the implementation of the library `sig` (package `sig-userspace`), which is what other programs use; here, things
//! change without notice.
//!
//! XDP programs forward what is plain (the fast path, `sig-ebpf/src/router`); what they leave alone passes up the kernel's
//! stack to the sockets of the slow path, which does everything. Both take their orders from an [`AsModel`].
//!
//! | step | where |
//! |---|---|
//! | topology, own configuration, keys | `config` |
//! | what a packet becomes, in every case; pure | `forward` |
//! | liveness of links; pure | `bfd` |
//! | sockets, timers and rate limits of the slow path | `slow` |
//! | the model in the maps of the XDP programs, next hops | `fast` |
//! | everything running | `run` |

#![warn(
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

pub mod bfd;
pub mod config;
#[cfg(feature = "linux")]
pub mod fast;
pub mod forward;
#[cfg(feature = "linux")]
pub mod metrics;
pub mod model;
#[cfg(feature = "linux")]
mod remedy;
#[cfg(feature = "linux")]
pub mod run;
#[cfg(feature = "linux")]
pub mod slow;
pub mod status;

pub use model::{AsModel, Bfd, Interface, Owner, Sibling};
