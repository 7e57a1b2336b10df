//! What a running router tells: its status, and what a reload changed.

use std::{collections::BTreeMap, sync::atomic::Ordering};

use sig_common::router::{
    Reason,
    maps::{LinkType, Traffic},
};

use super::{Parts, Running};
use crate::router::{
    config::Settings,
    model::{AsModel, Owner},
    slow::{Counted, SessionKey, SessionStatus},
    status::{self, Bfd, Count, Interface, KINDS, Service, Sibling, Status},
};

/// What the configuration `new` changes in `old`, line by line.
pub(super) fn changes(old: &Settings, new: &Settings) -> String {
    let mut told = Vec::new();
    let (before, after) = (&old.model, &new.model);
    for number in before.interfaces.keys().chain(after.interfaces.keys()) {
        let what = match (before.interfaces.get(number), after.interfaces.get(number)) {
            (None, Some(_)) => "new",
            (Some(_), None) => "gone",
            (old, new) if old != new => "changed",
            _ => continue,
        };
        told.push(format!("interface {number}: {what}"));
    }
    told.sort();
    told.dedup();
    let mut also = |differs: bool, what: &str| {
        if differs {
            told.push(what.to_owned());
        }
    };
    also(before.key != after.key, "key of hop fields: changed");
    also(
        before.internal != after.internal,
        "internal address: changed",
    );
    also(before.ports != after.ports, "dispatched ports: changed");
    also(before.siblings != after.siblings, "other routers: changed");
    also(
        (&before.control_services, &before.discovery_services)
            != (&after.control_services, &after.discovery_services),
        "services: changed",
    );
    also(
        old.xdp.rate_limits != new.xdp.rate_limits,
        "rate limits: changed",
    );
    also(old.log.level != new.log.level, "log level: changed");
    let restart = "only a restart changes";
    for (differs, key) in [
        (old.xdp.mode != new.xdp.mode, "[xdp] mode"),
        (old.xdp.cpus != new.xdp.cpus, "[xdp] cpus"),
        (old.slow_path != new.slow_path, "[xdp] slow_path"),
        (
            old.status_socket != new.status_socket,
            "[xdp] status_socket",
        ),
        (
            old.observe.prometheus != new.observe.prometheus,
            "[metrics] prometheus",
        ),
        (old.observe.api != new.observe.api, "[api] addr"),
        (old.log.format != new.log.format, "[log.console] format"),
    ] {
        also(differs, &format!("{restart} {key}"));
    }
    told.iter().map(|line| format!("{line}\n")).collect()
}

/// The status of a router.
pub(super) fn status(running: &Running, parts: &Parts) -> Status {
    let model = &parts.model;
    let slow = parts.slow.as_ref();
    let sessions = slow.map(|slow| slow.sessions()).unwrap_or_default();
    let counted = slow.map(|slow| slow.counted()).unwrap_or_default();
    let up = |interface| slow.is_none_or(|slow| slow.is_up(interface));
    let counted = |interface| Counts::of(counted.get(&interface));

    let inside = counted(0);
    let mut interfaces = vec![Interface {
        interface: 0,
        neighbour: model.isd_as.to_string(),
        link_type: String::new(),
        local: model.internal,
        remote: None,
        up: true,
        bfd: None,
        next_hop_mac: None,
        problem: None,
        traffic: inside.traffic(),
        reasons: inside.reasons(),
    }];
    for (number, interface, local, remote) in model.links() {
        let counts = counted(number);
        interfaces.push(Interface {
            interface: number,
            neighbour: interface.neighbour.to_string(),
            link_type: link_type(interface.link_type).to_owned(),
            local,
            remote: Some(remote),
            up: up(number),
            bfd: bfd(&sessions, SessionKey::Link(number)),
            next_hop_mac: None,
            problem: None,
            traffic: counts.traffic(),
            reasons: counts.reasons(),
        });
    }
    Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        id: model.router.clone(),
        isd_as: model.isd_as.to_string(),
        internal: model.internal,
        uptime_ms: running.started.elapsed().as_millis() as u64,
        reloads: running.reloads.load(Ordering::Relaxed),
        reloads_refused: running.reloads_refused.load(Ordering::Relaxed),
        fast_path: None,
        slow_path: slow.is_some(),
        interfaces,
        siblings: siblings(model, &sessions),
        services: [
            ("CS", &model.control_services),
            ("DS", &model.discovery_services),
        ]
        .map(|(service, instances)| Service {
            service: service.to_owned(),
            instances: instances.clone(),
        })
        .into(),
    }
}

fn siblings(model: &AsModel, sessions: &BTreeMap<SessionKey, SessionStatus>) -> Vec<Sibling> {
    let sibling = |(place, sibling): (usize, &crate::router::Sibling)| {
        let owned = model.interfaces.iter();
        let owned = owned.filter(|(_, interface)| interface.owner == Owner::Sibling(place));
        let bfd = bfd(sessions, SessionKey::Sibling(sibling.internal));
        Sibling {
            name: sibling.name.clone(),
            internal: sibling.internal,
            interfaces: owned.map(|(number, _)| *number).collect(),
            up: bfd.as_ref().is_none_or(|bfd| bfd.state == "up"),
            bfd,
            next_hop_mac: None,
            problem: None,
        }
    };
    model.siblings.iter().enumerate().map(sibling).collect()
}

fn bfd(sessions: &BTreeMap<SessionKey, SessionStatus>, key: SessionKey) -> Option<Bfd> {
    let session = sessions.get(&key)?;
    Some(Bfd {
        state: session.state.as_str().to_owned(),
        changes: session.changes,
        sent: session.sent,
        received: session.received,
    })
}

const fn link_type(link_type: LinkType) -> &'static str {
    match link_type {
        LinkType::Core => "core",
        LinkType::Parent => "parent",
        LinkType::Child => "child",
        LinkType::Peer => "peer",
    }
}

/// What fast and slow path counted at one place.
struct Counts<'a> {
    slow: Option<&'a Counted>,
}

impl<'a> Counts<'a> {
    const fn of(slow: Option<&'a Counted>) -> Self {
        Self { slow }
    }

    fn traffic(&self) -> Vec<status::Traffic> {
        let kinds = Traffic::ALL.into_iter().zip(KINDS);
        let kinds = kinds.map(|(traffic, kind)| {
            let sizes = (0..sig_common::router::maps::SIZE_CLASSES as usize).map(|class| {
                let slow = self.slow.and_then(|slow| {
                    slow.traffic
                        .get(traffic as usize)
                        .and_then(|classes| classes.get(class))
                });
                let slow = slow.copied().unwrap_or_default();
                Count {
                    packets: slow.packets,
                    bytes: slow.bytes,
                }
            });
            status::Traffic {
                kind: kind.to_owned(),
                sizes: sizes.collect(),
            }
        });
        kinds.collect()
    }

    fn reasons(&self) -> Vec<status::Reason> {
        let reasons = Reason::ALL.into_iter().map(|reason| {
            let of = |counts: &[u64; Reason::COUNT]| counts[reason as usize];
            status::Reason {
                reason: reason.name().to_owned(),
                fast: 0,
                slow: self.slow.map_or(0, |slow| of(&slow.reasons)),
                dropped: self.slow.map_or(0, |slow| of(&slow.drops)),
            }
        });
        let seen = |reason: &status::Reason| reason.fast + reason.slow + reason.dropped > 0;
        reasons.filter(seen).collect()
    }
}
