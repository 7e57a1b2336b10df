//! What happened at the client.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::RpcError;

/// What happened at a client since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCounts {
    /// Connections tried.
    pub dials: u64,
    /// Connections made.
    pub connected: u64,
    /// Calls answered over a connection that was kept.
    pub kept: u64,
    /// Calls for the gateways of an AS.
    pub gateways: CallCounts,
    /// Calls for the prefixes of a gateway.
    pub prefixes: CallCounts,
    /// Entries of answers that were left out because they make no sense.
    pub ignored: u64,
}

/// Calls of one method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCounts {
    /// Brought an answer that can be used.
    pub answered: u64,
    /// Did not.
    pub failed: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) dials: AtomicU64,
    pub(super) connected: AtomicU64,
    pub(super) kept: AtomicU64,
    answered: [AtomicU64; 2],
    failed: [AtomicU64; 2],
    ignored: AtomicU64,
}

#[derive(Clone, Copy)]
pub(super) enum Method {
    Gateways,
    Prefixes,
}

impl Counters {
    /// Counts the result of a call.
    pub(super) fn count<T>(
        &self,
        method: Method,
        result: Result<T, RpcError>,
    ) -> Result<T, RpcError> {
        let counters = match result {
            Ok(_) => &self.answered,
            Err(_) => &self.failed,
        };
        counters[method as usize].fetch_add(1, Relaxed);
        result
    }

    pub(super) fn ignore(&self, entries: u32) {
        self.ignored.fetch_add(entries.into(), Relaxed);
    }

    pub(super) fn counts(&self) -> ClientCounts {
        let calls = |method: Method| CallCounts {
            answered: self.answered[method as usize].load(Relaxed),
            failed: self.failed[method as usize].load(Relaxed),
        };
        ClientCounts {
            dials: self.dials.load(Relaxed),
            connected: self.connected.load(Relaxed),
            kept: self.kept.load(Relaxed),
            gateways: calls(Method::Gateways),
            prefixes: calls(Method::Prefixes),
            ignored: self.ignored.load(Relaxed),
        }
    }
}
