//! What a running router tells: its status, and what a reload changed.

use std::{collections::BTreeMap, net::IpAddr, sync::atomic::Ordering};

use sig_common::router::{Reason, maps::Traffic, reason::Disposition};

use super::{Parts, Running};
use crate::{
    config::Settings,
    fast::FastPath,
    model::Owner,
    slow::{Counted, SessionKey, SessionStatus, SlowPath},
    status::{self, Bfd, Count, Device, Interface, KINDS, Service, Sibling, Status},
};
use sig_linux::bpf::{SlotReasons, SlotTraffic};

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
    also(before.key != after.key, "hop field key: changed");
    also(
        before.internal != after.internal,
        "internal address: changed",
    );
    also(before.ports != after.ports, "dispatched ports: changed");
    also(before.siblings != after.siblings, "other routers: changed");
    also(
        (&before.control_services, &before.discovery_services)
            != (&after.control_services, &after.discovery_services)
            || before.services != after.services,
        "services: changed",
    );
    also(
        old.xdp.rate_limits != new.xdp.rate_limits,
        "rate limits: changed",
    );
    for (differs, key) in [
        (old.xdp.devices != new.xdp.devices, "devices"),
        (old.xdp.exclude != new.xdp.exclude, "exclude"),
        (
            old.xdp.internal_devices != new.xdp.internal_devices,
            "internal_devices",
        ),
        (old.xdp.link_devices != new.xdp.link_devices, "link_devices"),
    ] {
        also(differs, &format!("[xdp] {key}: changed"));
    }
    also(old.buffers != new.buffers, "socket buffers: changed");
    also(old.log.level != new.log.level, "log level: changed");
    let restart = "takes effect only after a restart:";
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
    let is_up = slow.map(SlowPath::is_up);
    let up = |interface| is_up.as_ref().is_none_or(|is_up| is_up(interface));
    let seen = parts.fast.as_ref().map(FastPath::counted);
    let seen = seen.and_then(|seen| seen.map_err(|e| tracing::warn!("{e}")).ok());
    let seen = seen.unwrap_or_default();
    let counted = |interface| Counts {
        fast: seen.get(&interface),
        slow: counted.get(&interface),
    };

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
        let (next_hop_mac, problem) = next_hop(parts, remote.ip());
        interfaces.push(Interface {
            interface: number,
            neighbour: interface.neighbour.to_string(),
            link_type: interface.link_type.name().to_owned(),
            local,
            remote: Some(remote),
            up: up(number),
            bfd: bfd(&sessions, SessionKey::Link(number)),
            next_hop_mac,
            problem,
            traffic: counts.traffic(),
            reasons: counts.reasons(),
        });
    }
    Status {
        kind: Status::KIND.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        id: model.router.clone(),
        isd_as: model.isd_as.to_string(),
        internal: model.internal,
        uptime_ms: running.started.elapsed().as_millis() as u64,
        reloads: running.reloads.load(Ordering::Relaxed),
        reloads_refused: running.reloads_refused.load(Ordering::Relaxed),
        fast_path: parts
            .fast
            .as_ref()
            .map(|fast| fast_path(fast, &parts.settings)),
        slow_path: slow.is_some(),
        interfaces,
        siblings: siblings(parts, &sessions),
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

fn siblings(parts: &Parts, sessions: &BTreeMap<SessionKey, SessionStatus>) -> Vec<Sibling> {
    let model = &parts.model;
    let sibling = |(place, sibling): (usize, &crate::Sibling)| {
        let owned = model.interfaces.iter();
        let owned = owned.filter(|(_, interface)| interface.owner == Owner::Sibling(place));
        let bfd = bfd(sessions, SessionKey::Sibling(sibling.internal));
        let (next_hop_mac, problem) = next_hop(parts, sibling.internal.ip());
        Sibling {
            name: sibling.name.clone(),
            internal: sibling.internal,
            interfaces: owned.map(|(number, _)| *number).collect(),
            up: bfd
                .as_ref()
                .is_none_or(|bfd| bfd.state == "up" && !bfd.flaps),
            bfd,
            next_hop_mac,
            problem,
        }
    };
    model.siblings.iter().enumerate().map(sibling).collect()
}

fn bfd(sessions: &BTreeMap<SessionKey, SessionStatus>, key: SessionKey) -> Option<Bfd> {
    let session = sessions.get(&key)?;
    Some(Bfd {
        state: session.state.as_str().to_owned(),
        changes: session.changes,
        flaps: session.flaps,
        sent: session.sent,
        received: session.received,
    })
}

fn fast_path(fast: &FastPath, settings: &Settings) -> status::FastPath {
    let devices = fast.devices().into_iter().map(|device| Device {
        name: device.name,
        ifindex: device.ifindex,
        mode: device.mode,
        transmits: device.transmits,
        not_sent: device.not_sent,
    });
    status::FastPath {
        devices: devices.collect(),
        cpus: settings.xdp.cpus.clone(),
        not_taken: fast.not_taken().unwrap_or(0),
    }
}

/// The MAC address by which the fast path reaches `remote`, or why it does not.
fn next_hop(parts: &Parts, remote: IpAddr) -> (Option<String>, Option<String>) {
    match parts.fast.as_ref().map(|fast| fast.next_hop(remote)) {
        Some(Ok(mac)) => {
            let bytes = mac.map(|byte| format!("{byte:02x}"));
            (Some(bytes.join(":")), None)
        }
        Some(Err(problem)) => (None, Some(problem)),
        None => (None, None),
    }
}

/// What fast and slow path counted at one place.
struct Counts<'a> {
    fast: Option<&'a (SlotTraffic, SlotReasons)>,
    slow: Option<&'a Counted>,
}

impl Counts<'_> {
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
                let fast = self
                    .fast
                    .map(|(fast, _)| fast.of_size(traffic, class as u32));
                let fast = fast.unwrap_or_default();
                Count {
                    packets: fast.packets.saturating_add(slow.packets),
                    bytes: fast.bytes.saturating_add(slow.bytes),
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
            let fast = self.fast.map_or(0, |(_, reasons)| reasons.of(reason));
            let dropped_there = match reason.disposition() {
                Disposition::Drop => fast,
                Disposition::Slow => 0,
            };
            let dropped = self.slow.map_or(0, |slow| of(&slow.drops));
            status::Reason {
                reason: reason.name().to_owned(),
                fast,
                slow: self.slow.map_or(0, |slow| of(&slow.reasons)),
                dropped: dropped_there.saturating_add(dropped),
            }
        });
        let seen = |reason: &status::Reason| reason.fast + reason.slow + reason.dropped > 0;
        reasons.filter(seen).collect()
    }
}
