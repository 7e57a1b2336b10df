//! Which underlay addresses may bring frames of remotes.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    sync::{Arc, Mutex, TryLockError},
    time::{Duration, Instant},
};

use ipnet::IpNet;

use super::{Error, Shared, lock};
use crate::control::{
    config::UnderlaySources,
    log_limit::{LogLimit, Say},
};
use sig_core::dataplane::Sources as AtWorkers;
use sig_linux::bpf::Programs;

/// How often refused addresses are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// Lines about refused addresses in a minute; `sig status` shows the latest.
const LINES: u64 = 32;
/// Addresses that are remembered as logged.
const REMEMBERED: usize = 4096;

/// What is known of the border routers.
pub(super) struct Sources {
    wish: UnderlaySources,
    /// What workers ask, where no XDP program looks at who brings frames.
    at_workers: Option<Arc<AtWorkers>>,
    /// Index of the tunnel device.
    tunnel: u32,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Those of the AS; `None` if nobody lists them.
    routers: Option<BTreeSet<IpAddr>>,
    next_hops: BTreeSet<IpAddr>,
}

impl Sources {
    pub(super) fn new(
        wish: UnderlaySources,
        at_workers: Option<Arc<AtWorkers>>,
        tunnel: u32,
    ) -> Self {
        Sources {
            wish,
            at_workers,
            tunnel,
            known: Mutex::default(),
        }
    }

    /// Makes these the interfaces that no border router is behind, where no XDP program looks.
    pub(super) fn close_to(&self, interfaces: impl IntoIterator<Item = u32>) {
        if let Some(workers) = &self.at_workers {
            workers.close_to(interfaces.into_iter().chain([self.tunnel]).collect());
        }
    }

    /// All border routers of the AS, as far as the SCION daemon names any.
    pub(super) fn set_routers(
        &self,
        routers: BTreeSet<IpAddr>,
        programs: &Mutex<Option<Programs>>,
    ) -> Result<(), Error> {
        let mut known = lock(&self.known);
        if known.routers.as_ref() == Some(&routers) {
            return Ok(());
        }
        known.routers = Some(routers);
        self.tell(&known, programs)
    }

    /// Where the paths of the plan go first.
    pub(super) fn set_next_hops(
        &self,
        next_hops: &[IpAddr],
        programs: &Mutex<Option<Programs>>,
    ) -> Result<(), Error> {
        let mut known = lock(&self.known);
        known.next_hops = next_hops.iter().copied().collect();
        self.tell(&known, programs)
    }

    fn tell(&self, known: &Known, programs: &Mutex<Option<Programs>>) -> Result<(), Error> {
        let allowed = known.allowed(&self.wish);
        if let Some(workers) = &self.at_workers {
            workers.set(allowed);
        } else if let Some(programs) = lock(programs).as_mut() {
            programs.set_sources(allowed)?;
        }
        Ok(())
    }

    /// Addresses whose frames have been refused lately; none that the kernel does not let us read.
    pub(super) fn refused(&self, programs: &Mutex<Option<Programs>>) -> Vec<IpAddr> {
        match (&self.at_workers, lock(programs).as_ref()) {
            (Some(workers), _) => workers.refused(),
            (None, Some(programs)) => programs.refused_sources().unwrap_or_default(),
            (None, None) => Vec::new(),
        }
    }

    /// Why any address may bring frames, if that is so.
    pub(super) fn unchecked(&self) -> Option<String> {
        if self.wish == UnderlaySources::Any {
            return Some("`[dataplane] underlay_sources = \"any\"`".into());
        }
        let known = lock(&self.known);
        let nobody_knows = known.routers.as_ref().is_some_and(BTreeSet::is_empty);
        nobody_knows.then(|| "the SCION daemon lists no border routers".into())
    }
}

impl Known {
    /// Who may bring frames; `None`: anybody.
    fn allowed(&self, wish: &UnderlaySources) -> Option<BTreeSet<IpNet>> {
        let more = match wish {
            UnderlaySources::Any => return None,
            UnderlaySources::Routers => &[][..],
            UnderlaySources::RoutersAnd(prefixes) => prefixes,
        };
        // Frames may come by any router of the AS, not only by those that ours leave by.
        if self.routers.as_ref().is_some_and(BTreeSet::is_empty) {
            return None;
        }
        let routers = self.routers.iter().flatten().chain(&self.next_hops);
        let routers = routers.map(|address| IpNet::from(address.to_canonical()));
        Some(routers.chain(more.iter().copied()).collect())
    }
}

/// Logs addresses whose frames are refused, each once as long as there are not too many.
pub(super) async fn watch_refused(shared: Arc<Shared>) {
    let mut logged = BTreeSet::new();
    let mut limit = LogLimit::new(LINES, Instant::now());
    loop {
        tokio::time::sleep(LOOK).await;
        // Whoever attaches a program has it for as long as the driver takes.
        if matches!(shared.programs.try_lock(), Err(TryLockError::WouldBlock)) {
            continue;
        }
        for address in shared.sources.refused(&shared.programs) {
            if logged.contains(&address) {
                continue;
            }
            match limit.next(Instant::now()) {
                Say::Line => {
                    if logged.len() >= REMEMBERED {
                        logged.clear();
                    }
                    logged.insert(address);
                    tracing::warn!(
                        %address,
                        "dropping frames from a remote because the host that forwards them is not a known \
                         border router; if it is one of this AS, add it to `[dataplane] underlay_sources`"
                    );
                }
                Say::Last => tracing::warn!(
                    "dropping frames from a remote that many unknown hosts forward; not logging further hosts for a minute"
                ),
                Say::Nothing => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(routers: Option<&[&str]>, next_hops: &[&str]) -> Known {
        let set = |addresses: &[&str]| addresses.iter().map(|a| a.parse().unwrap()).collect();
        Known {
            routers: routers.map(set),
            next_hops: set(next_hops),
        }
    }

    fn nets(texts: &[&str]) -> Option<BTreeSet<IpNet>> {
        Some(texts.iter().map(|text| text.parse().unwrap()).collect())
    }

    #[test]
    fn any_border_router_of_the_as_may_bring_frames() {
        let known = known(Some(&["10.0.0.1", "fd00::1"]), &["10.0.0.1"]);
        let allowed = known.allowed(&UnderlaySources::Routers);
        assert_eq!(allowed, nets(&["10.0.0.1/32", "fd00::1/128"]));
    }

    #[test]
    fn where_nobody_lists_them_next_hops_and_the_configured_prefixes_may() {
        let known = known(None, &["10.0.0.1"]);
        let more = vec!["10.0.1.0/24".parse().unwrap()];
        assert_eq!(
            known.allowed(&UnderlaySources::RoutersAnd(more)),
            nets(&["10.0.0.1/32", "10.0.1.0/24"])
        );
        assert_eq!(known.allowed(&UnderlaySources::Any), None);
    }

    #[test]
    fn anybody_may_if_a_daemon_names_no_router() {
        let known = known(Some(&[]), &["10.0.0.1"]);
        assert_eq!(known.allowed(&UnderlaySources::Routers), None);
    }
}
