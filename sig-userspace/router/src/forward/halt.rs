//! Why a packet goes no further, and what its sender is told.

use sig_common::router::Reason;

use sig_core::scion::scmp::Problem;

/// A packet goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rejection {
    pub(super) reason: Reason,
    /// The reason that the fast path has to leave it alone.
    pub(super) fast: Reason,
    pub(super) reply: Reply,
}

/// What the sender of a packet is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Nothing,
    /// An SCMP error.
    Problem(Problem),
    /// This interface, if it asks for it with a traceroute request.
    Traceroute {
        interface: u16,
        alert: Alert,
    },
    /// An echo reply.
    Echo,
}

/// A router alert flag that has been set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Alert {
    /// Offset in the packet of the byte that it is in.
    pub(super) offset: usize,
    /// The bit.
    pub(super) flag: u8,
}

impl Rejection {
    pub(super) const fn silent(reason: Reason) -> Self {
        Self::new(reason, Reply::Nothing)
    }

    pub(super) const fn report(reason: Reason, problem: Problem) -> Self {
        Self::new(reason, Reply::Problem(problem))
    }

    pub(super) const fn new(reason: Reason, reply: Reply) -> Self {
        Self {
            reason,
            fast: reason,
            reply,
        }
    }

    /// The fast path stops for another reason, before it would find this one.
    pub(super) const fn behind(self, fast: Reason) -> Self {
        Self { fast, ..self }
    }
}
