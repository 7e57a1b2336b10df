//! The kernel side: network namespaces, links, routes, neighbours and BPF programs.
//!
//! Everything here belongs to the network namespace of the thread that opens it. Interface settings under `/proc/sys`
//! are looked up in the namespace of the *calling* thread, so all threads of the tokio runtime must share one namespace
//! (which they do unless somebody moved one of them).
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

pub mod af_xdp;
pub mod bpf;
pub mod capabilities;
pub mod capture;
pub mod cpus;
pub mod ethtool;
pub mod facts;
pub mod lan;
pub mod link;
pub mod neighbours;
pub mod netdev;
pub mod netfilter;
pub mod netlink;
pub mod netns;
pub mod networks;
pub mod process;
pub mod routes;
pub mod socket_port;
pub mod suited;
pub mod sysctl;
pub mod terminal;
pub mod tun;
pub mod tunnel_pair;
pub mod watch;

use std::{borrow::Cow, io};

/// Why the kernel did not do what was asked. The text says what was tried, what the kernel answered and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused a request.
    #[error("cannot {doing}: {source}{}", remedy(source))]
    Kernel {
        /// What was tried, as the rest of a sentence that starts with "cannot".
        doing: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// We do not even ask the kernel, because the request cannot work here.
    #[error("{0}")]
    Refused(String),
    /// A background task of ours has ended, so the request has nobody to serve it.
    #[error("{0} is closed")]
    Closed(&'static str),
}

impl Error {
    /// Returns a function that wraps an [`io::Error`] for `map_err`.
    pub fn doing<D: Into<String>>(what: D) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Kernel {
            doing: what.into(),
            source,
        }
    }

    /// The kernel's error number, if the kernel refused.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Kernel { source, .. } => source.raw_os_error(),
            Self::Refused(_) | Self::Closed(_) => None,
        }
    }
}

fn remedy(error: &io::Error) -> Cow<'static, str> {
    if let Some(remedy) = capabilities::remedy_for(error, &[facts::CAP_NET_ADMIN]) {
        return format!("; {remedy}").into();
    }
    match error.raw_os_error() {
        Some(libc::EMFILE) => {
            "; raise the limit of open files (`ulimit -n`, `LimitNOFILE=` in a systemd unit)"
        }
        Some(libc::EROFS) => {
            "; /proc/sys is mounted read-only here, as in an unprivileged container: mount it writable"
        }
        _ => "",
    }
    .into()
}
