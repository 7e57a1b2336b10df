//! Which underlay addresses may bring frames of remotes, for ports that no XDP program filters for.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    sync::{Mutex, PoisonError},
};

use arc_swap::{ArcSwap, ArcSwapOption};
use ipnet::IpNet;
use sig_common::wire::{
    scion::ENDHOST_PORT,
    udp,
    underlay::{Local, Parsed},
};

use super::lpm::Lpm;

/// Refused addresses that are remembered.
const REFUSED: usize = 16;

/// Who may bring frames: set by the control plane, asked by the workers.
#[derive(Debug)]
pub struct Sources {
    /// `None`: anybody.
    allowed: ArcSwapOption<Lpm<()>>,
    /// Indexes of interfaces that no border router is behind.
    closed: ArcSwap<Vec<u32>>,
    refused: Mutex<BTreeSet<IpAddr>>,
}

impl Default for Sources {
    /// Nobody, but for hosts of the AS that send frames of their own.
    fn default() -> Self {
        Sources {
            allowed: ArcSwapOption::from_pointee(Lpm::default()),
            closed: ArcSwap::default(),
            refused: Mutex::default(),
        }
    }
}

impl Sources {
    /// The default, with interfaces that no frame may come in by, by their indexes.
    #[must_use]
    pub fn closed_to(interfaces: Vec<u32>) -> Self {
        let sources = Sources::default();
        sources.close_to(interfaces);
        sources
    }

    /// Makes these the interfaces that no frame may come in by.
    pub fn close_to(&self, interfaces: Vec<u32>) {
        self.closed.store(interfaces.into());
    }

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

    /// Whether a frame comes from where frames come from: a border router, within the AS the sender itself, or a program of
    /// this host that relays from the end host port. The XDP program of the underlay decides likewise, but sees nothing of this
    /// host. `bytes`: what was parsed, with the index of the interface in place of the source MAC address.
    #[inline]
    pub(super) fn may_bring(&self, frame: &Parsed, bytes: &[u8], local: &Local) -> bool {
        if arrived_by(bytes).is_some_and(|interface| self.closed.load().contains(&interface)) {
            return false;
        }
        let allowed = self.allowed.load();
        let Some(allowed) = allowed.as_ref() else {
            return true;
        };
        if frame.is_from_internal_host(local) || is_relayed(frame, bytes, local) {
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

/// Which interface a datagram came in by, as ports over sockets note it.
fn arrived_by(bytes: &[u8]) -> Option<u32> {
    let index = bytes.get(SOURCE_MAC)?.first_chunk()?;
    Some(u32::from_be_bytes(*index))
}

/// Where the source MAC address is.
const SOURCE_MAC: std::ops::Range<usize> = 6..12;

/// Whether a program of this host, such as a dispatcher, relays it from the end host port.
fn is_relayed(frame: &Parsed, bytes: &[u8], local: &Local) -> bool {
    let udp = usize::from(frame.scion) - udp::HEADER_LEN;
    frame.underlay_source == local.host()
        && bytes.get(udp..udp + 2) == Some(&ENDHOST_PORT.to_be_bytes())
}
