//! Which underlay addresses may bring frames of remotes, for ports that no XDP program filters for.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    sync::{Mutex, PoisonError},
};

use arc_swap::ArcSwapOption;
use ipnet::IpNet;
use sig_common::wire::underlay::{Local, Parsed};

use super::lpm::Lpm;

/// Refused addresses that are remembered.
const REFUSED: usize = 16;

/// Who may bring frames: set by the control plane, asked by the workers.
#[derive(Debug)]
pub struct Sources {
    /// `None`: anybody.
    allowed: ArcSwapOption<Lpm<()>>,
    refused: Mutex<BTreeSet<IpAddr>>,
}

impl Default for Sources {
    /// Nobody, but for hosts of the AS that send frames of their own.
    fn default() -> Self {
        Sources {
            allowed: ArcSwapOption::from_pointee(Lpm::default()),
            refused: Mutex::default(),
        }
    }
}

impl Sources {
    /// Sets who may; `None`: anybody.
    pub fn set(&self, allowed: Option<impl IntoIterator<Item = IpNet>>) {
        let table = allowed.map(|nets| {
            let mut table = Lpm::default();
            for net in nets {
                table.insert(net.trunc(), ());
            }
            table.into()
        });
        self.allowed.store(table);
    }

    /// Whether a frame comes from where frames come from: a border router, or within the AS the sender itself. The XDP
    /// program of the underlay decides likewise.
    #[inline]
    pub(super) fn may_bring(&self, frame: &Parsed, local: &Local) -> bool {
        let allowed = self.allowed.load();
        let Some(allowed) = allowed.as_ref() else {
            return true;
        };
        if frame.is_from_internal_host(local) {
            return true;
        }
        let source = frame.underlay_source.ip();
        let is_known = source.is_some_and(|source| allowed.get(source).is_some());
        if !is_known {
            self.keep(source);
        }
        is_known
    }

    #[cold]
    fn keep(&self, source: Option<IpAddr>) {
        // Whoever reads them just now sees the next one.
        if let (Some(source), Ok(mut refused)) = (source, self.refused.try_lock()) {
            if refused.len() >= REFUSED && !refused.contains(&source) {
                refused.clear();
            }
            refused.insert(source);
        }
    }

    /// Returns addresses that have been refused lately, ascending.
    pub fn refused(&self) -> Vec<IpAddr> {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.iter().copied().collect()
    }
}
