use std::io;

use sig_common::maps::{MAX_QUEUES, MAX_SOCKETS};

use super::socket::Target;
use crate::{capabilities, facts::Privileges};

/// Why AF_XDP ports could not be opened, and what to change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such interface in the namespace.
    #[error(
        "interface `{interface}` does not exist: compare the configured name with `ip link` \
         (names are per network namespace)"
    )]
    NoInterface {
        /// Configured name.
        interface: String,
    },
    /// The interface has fewer queues.
    #[error(
        "interface `{interface}` refuses queue {queue}: `ethtool -l {interface}` shows how many queues \
         it has; configure fewer, or give it more with `ethtool -L {interface} combined N`"
    )]
    NoQueue {
        /// Interface name.
        interface: String,
        /// Queue number, from 0.
        queue: u32,
    },
    /// Somebody else has an AF_XDP socket there.
    #[error(
        "queue {queue} of `{interface}` is in use by another AF_XDP program: stop it, or configure other queues"
    )]
    Busy {
        /// Interface name.
        interface: String,
        /// Queue number, from 0.
        queue: u32,
    },
    /// Zero copy is required but the driver cannot.
    #[error(
        "queue {queue} of `{interface}` does not support zero copy ({source}): allow copy mode (`auto`), \
         or use a card and driver with AF_XDP zero-copy support"
    )]
    NoZeroCopy {
        /// Interface name.
        interface: String,
        /// Queue number, from 0.
        queue: u32,
        /// What the kernel said.
        source: io::Error,
    },
    /// The process lacks privileges.
    #[error("no permission to {action}: {remedy}")]
    Permission {
        /// What was attempted.
        action: String,
        /// The capabilities that are missing.
        remedy: String,
    },
    /// The UMEM exceeds the limit of locked memory.
    #[error(
        "a UMEM of {mebibytes} MiB exceeds the limit of locked memory: raise it (`ulimit -l unlimited`, \
         `LimitMEMLOCK=infinity` in a systemd unit), grant CAP_IPC_LOCK, or configure fewer chunks"
    )]
    LockedMemory {
        /// Size of the UMEM.
        mebibytes: u64,
    },
    /// There is not enough memory.
    #[error(
        "no memory for a UMEM of {mebibytes} MiB: configure fewer `chunks`, `workers` or a smaller `ring_size`, or give the \
         interfaces fewer queues (`ethtool -L INTERFACE combined N`)"
    )]
    TooLarge {
        /// Size of the UMEM.
        mebibytes: u64,
    },
    /// The rings would take all chunks.
    #[error("{chunks} chunks are too few for these rings and ports: configure at least {needed}")]
    TooFewChunks {
        /// Configured number.
        chunks: u32,
        /// The least that works.
        needed: u32,
    },
    /// The maps of the XDP programs hold fewer.
    #[error(
        "{sockets} AF_XDP sockets on {queues} queues would be needed, but no more than {MAX_SOCKETS} sockets and \
         {MAX_QUEUES} queues can be served: configure fewer `workers`, or give the interfaces fewer queues \
         (`ethtool -L INTERFACE combined N`)"
    )]
    TooManySockets {
        /// Receive queues of all interfaces.
        queues: u64,
        /// Sockets on them.
        sockets: u64,
    },
    /// Interfaces that came while the gateway ran have all places for further sockets.
    #[error(
        "no place for the {sockets} AF_XDP sockets of interface `{interface}`: places are set aside at start; restart the gateway"
    )]
    NoPlace {
        /// Interface name.
        interface: String,
        /// Sockets on it.
        sockets: u64,
    },
    /// The process has too many files open.
    #[error(
        "cannot {action}: too many open files; each socket needs a file descriptor: raise the limit (`ulimit -n`, `LimitNOFILE=` in a \
         systemd unit)"
    )]
    OpenFiles {
        /// What was attempted.
        action: String,
    },
    /// A ring size is impossible.
    #[error("{size} is not a valid size for the {ring} ring: use a power of two from 64 to 65536")]
    RingSize {
        /// Which ring.
        ring: &'static str,
        /// Configured number of entries.
        size: u32,
    },
    /// The plan makes no sense as a whole.
    #[error("{0}")]
    Plan(String),
    /// The kernel has no AF_XDP.
    #[error("this kernel has no AF_XDP: it needs CONFIG_XDP_SOCKETS=y")]
    Unsupported,
    /// A system call failed for another reason.
    #[error("cannot {action}: {source}")]
    System {
        /// What was attempted.
        action: String,
        /// What the kernel said.
        source: io::Error,
    },
}

impl Error {
    pub(super) fn system(action: impl Into<String>, source: io::Error) -> Self {
        let action = action.into();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Error::Permission {
                action,
                remedy: capabilities::remedy(capabilities::AF_XDP, &Privileges::read()),
            },
            Some(libc::EAFNOSUPPORT) => Error::Unsupported,
            Some(libc::EMFILE) => Error::OpenFiles { action },
            _ => Error::System { action, source },
        }
    }

    pub(super) fn registering(bytes: u64, source: io::Error) -> Self {
        let mebibytes = bytes >> 20;
        match source.raw_os_error() {
            Some(libc::ENOBUFS) => Error::LockedMemory { mebibytes },
            Some(libc::ENOMEM) => Error::TooLarge { mebibytes },
            _ => Error::system("register the UMEM", source),
        }
    }

    pub(super) fn mapping(source: io::Error) -> Self {
        Error::system("map the rings of an AF_XDP socket", source)
    }

    pub(super) fn binding(target: &Target<'_>, source: io::Error) -> Self {
        let (interface, queue) = (target.interface.to_owned(), target.queue);
        match source.raw_os_error() {
            Some(libc::ENODEV) => Error::NoInterface { interface },
            Some(libc::EINVAL) => Error::NoQueue { interface, queue },
            Some(libc::EBUSY) => Error::Busy { interface, queue },
            _ => Error::system(
                format!("bind an AF_XDP socket to queue {queue} of `{interface}`"),
                source,
            ),
        }
    }
}
