//! Metrics for Prometheus, made anew from the status for every scrape. Gauges of what is gone from the status, such as a
//! retired session, are gone from the metrics; counters stay, see [`Counters`].

mod names;
mod text;

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};

use sig_common::reason::DropReason;

pub use names::all;
pub use text::Exposition;
use text::Ledger;
pub use text::{Kind, Metric};

use super::process::Process;
use names::*;
use sig_core::counter::Row;
use sig_core::port::Role;
use sig_core::status::{Control, DropPlace, RemoteAs, Status, srv6};

/// Media type of [`render`]'s text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What a server has shown of counters, so that they never fall from one scrape to the next.
#[derive(Debug, Default)]
pub struct Counters(Mutex<Ledger>);

impl Counters {
    /// As [`render`], with counters that are never lower than in the page before.
    #[must_use]
    pub fn render(&self, status: impl FnOnce() -> Status, process: &Process) -> String {
        // An older status must not come after a newer one.
        let mut ledger = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut page = page(&status(), process);
        ledger.raise(&mut page);
        page.to_string()
    }
}

/// The metrics of a gateway, in the text format of Prometheus, version 0.0.4.
#[must_use]
pub fn render(status: &Status, process: &Process) -> String {
    page(status, process).to_string()
}

fn page(status: &Status, process: &Process) -> Exposition {
    let mut page = Exposition::default();
    traffic(&mut page, status);
    errors(&mut page, status);
    let isd_as = ("isd_as", &*status.isd_as);
    for (result, count) in [
        ("applied", status.reloads),
        ("refused", status.reloads_refused),
    ] {
        page.add(RELOADS, &[isd_as, ("result", result)], count);
    }
    sessions(&mut page, status);
    data_plane(&mut page, status);
    if let Some(control) = &status.control {
        for remote in &control.ases {
            discovery(&mut page, &status.isd_as, remote);
            paths(&mut page, &status.isd_as, remote);
        }
        routing(&mut page, &status.isd_as, control);
        control_plane(&mut page, &status.isd_as, control);
    }
    self::process(&mut page, &status.version, "gateway", process);
    page
}

fn traffic(page: &mut Exposition, status: &Status) {
    let isd_as = ("isd_as", &*status.isd_as);
    let mut seen = HashSet::new();
    for remote in &status.remotes {
        let policy = remote.policy_id.to_string();
        let from = [isd_as, ("remote_isd_as", &*remote.isd_as)];
        let to = [from[0], from[1], ("policy_id", &*policy)];
        page.add(IPPKT_BYTES_SENT, &to, remote.sent.packet_bytes);
        page.add(IPPKTS_SENT, &to, remote.sent.packets);
        page.add(FRAME_BYTES_SENT, &to, remote.sent.frame_bytes);
        page.add(FRAMES_SENT, &to, remote.sent.frames);
        // What came from a gateway is told with each of its sessions.
        if seen.insert((&remote.isd_as, remote.gateway.ip())) {
            page.add(IPPKT_BYTES_RECEIVED, &from, remote.packet_bytes_received);
            page.add(IPPKTS_RECEIVED, &from, remote.packets_received);
            page.add(FRAME_BYTES_RECEIVED, &from, remote.frame_bytes_received);
            page.add(FRAMES_RECEIVED, &from, remote.frames_received);
        }
    }
    let c = &status.counters;
    page.add(IPPKT_BYTES_LOCAL_SENT, &[isd_as], c.packet_bytes_received);
    page.add(IPPKTS_LOCAL_SENT, &[isd_as], c.packets_received);
    page.add(IPPKT_BYTES_LOCAL_RECEIVED, &[], c.packet_bytes_sent);
    page.add(IPPKTS_LOCAL_RECEIVED, &[], c.packets_sent);
    for worker in &status.workers {
        let number = worker.number.to_string();
        let labels = [("isd_as", &*status.isd_as), ("worker", &*number)];
        table(page, &labels, worker.counts.iter());
    }
}

/// Adds a table of counters. The labels have the values that are not in the rows. Metrics of the reference's library have
/// no labels.
fn table(
    page: &mut Exposition,
    labels: &[(&'static str, &str)],
    counters: impl Iterator<Item = (&'static Row, u64)>,
) {
    for (row, value) in counters {
        let isd_as = [("isd_as", "")];
        let isd_as = isd_as.iter().filter(|_| !row.metric.starts_with("lib_"));
        let named = row.labels.iter().chain(isd_as).map(|(label, value)| {
            let known = labels.iter().find(|(name, _)| name == label);
            (*label, known.map_or(*value, |(_, value)| *value))
        });
        page.add(row.into(), &named.collect::<Vec<_>>(), value);
    }
}

/// The reference's word for a frame dropped for this reason.
fn frame_discarded(reason: DropReason) -> Option<&'static str> {
    use DropReason as R;
    Some(match reason {
        R::FrameOld => "too_old",
        R::FrameDuplicate | R::Replayed => "duplicate",
        R::FrameGap
        | R::FrameEvicted
        | R::FrameExpired
        | R::StreamLimit
        | R::NewStreamLimit
        | R::BufferLimit => "evicted",
        R::BadFrameLen
        | R::BadFrameVersion
        | R::BadChecksum
        | R::Unprotected
        | R::UnknownKey
        | R::Forged
        | R::IndexOutOfRange
        | R::IndexMismatch
        | R::FrameInvalidPacket
        | R::FrameTooManyParts => "invalid",
        _ => return None,
    })
}

/// The reference's word for a packet of the local network dropped for this reason.
fn packet_discarded(reason: DropReason) -> Option<&'static str> {
    match reason {
        DropReason::InvalidPacket => Some("invalid"),
        DropReason::NoRoute | DropReason::NoSession => Some("no_route"),
        _ => None,
    }
}

fn errors(page: &mut Exposition, status: &Status) {
    let isd_as = ("isd_as", &*status.isd_as);
    // Every reason from the start, so that the first drop is an increase.
    for reason in DropReason::ALL {
        let dropped = |place| {
            let drops = status.drops.iter();
            drops
                .filter(|drop| drop.place == place && drop.reason == reason.name())
                .fold(0, |sum: u64, drop| sum.saturating_add(drop.count))
        };
        let (kernel, engine) = (dropped(DropPlace::Kernel), dropped(DropPlace::Engine));
        page.add(XDP_DROPS, &[isd_as, ("reason", reason.name())], kernel);
        page.add(ENGINE_DROPS, &[isd_as, ("reason", reason.name())], engine);
        if let Some(word) = frame_discarded(reason) {
            let labels = [isd_as, ("remote_isd_as", ""), ("reason", word)];
            page.add(FRAMES_DISCARDED, &labels, kernel.saturating_add(engine));
        }
        if let Some(word) = packet_discarded(reason) {
            page.add(IPPKTS_DISCARDED, &[("reason", word)], engine);
        }
    }
    for queue in &status.queues {
        let (send, receive) = match queue.role {
            Role::Underlay => (SEND_EXTERNAL_ERRORS, RECEIVE_EXTERNAL_ERRORS),
            Role::Lan | Role::Tunnel => (SEND_LOCAL_ERRORS, RECEIVE_LOCAL_ERRORS),
        };
        page.add(send, &[isd_as], queue.tx_invalid_descriptors);
        for dropped in [queue.rx_ring_full, queue.fill_ring_empty, queue.rx_refused] {
            page.add(receive, &[isd_as], dropped);
        }
    }
}

fn sessions(page: &mut Exposition, status: &Status) {
    for remote in &status.remotes {
        for path in &remote.paths {
            let labels = [
                ("isd_as", &*status.isd_as),
                ("remote_isd_as", &*remote.isd_as),
                ("fingerprint", shortened(&path.fingerprint)),
                ("path", &*path.name),
            ];
            if let Some(seconds) = path.expires_at {
                page.raise(PATH_EXPIRY, &labels, seconds as f64);
            }
        }
        let Some(probing) = &remote.probing else {
            continue;
        };
        let (session, policy) = (remote.session.to_string(), remote.policy_id.to_string());
        let of_policy = [
            ("isd_as", &*status.isd_as),
            ("remote_isd_as", &*remote.isd_as),
            ("policy_id", &*policy),
        ];
        let [a, b, c] = of_policy;
        let labels = [a, b, c, ("session_id", &*session)];
        page.add(SESSION_PROBES, &labels, probing.probes);
        page.add(SESSION_PROBE_REPLIES, &labels, probing.replies);
        page.add(SESSION_STATE_CHANGES, &labels, probing.state_changes);
        page.add(SESSION_PATH_CHANGES, &labels, probing.path_changes);
        page.raise(SESSION_IS_HEALTHY, &labels, u8::from(probing.healthy));
        for (word, count) in [
            ("alive", probing.paths_alive),
            ("timeout", probing.paths_timeout),
            ("rejected", probing.paths_rejected),
        ] {
            // Sessions of one policy choose among the same paths.
            let labels = [a, b, c, ("status", word)];
            page.raise(SESSION_PATHS_AVAILABLE, &labels, count as f64);
        }
    }
}

fn discovery(page: &mut Exposition, isd_as: &str, remote: &RemoteAs) {
    let labels = [("isd_as", isd_as), ("remote_isd_as", &*remote.isd_as)];
    page.add(REMOTES, &labels, remote.gateways.len() as u64);
    page.add(REMOTES_CHANGES, &labels, remote.gateway_changes);
    page.add(DISCOVERY_ERRORS, &labels, remote.discovery_errors);
    page.add(PREFIX_FETCH_ERRORS, &labels, remote.fetch_errors);
    for gateway in &remote.gateways {
        page.add(PREFIXES_ACCEPTED, &labels, gateway.prefixes_accepted);
        page.add(PREFIXES_REJECTED, &labels, gateway.prefixes_rejected);
        let protection = &gateway.protection;
        let [a, b] = labels;
        for (word, is_so) in [
            ("sent", protection.sends),
            ("received", protection.receives),
        ] {
            page.add(PROTECTED, &[a, b, ("direction", word)], is_so.into());
        }
    }
}

fn paths(page: &mut Exposition, isd_as: &str, remote: &RemoteAs) {
    let labels = [("isd_as", isd_as), ("remote_isd_as", &*remote.isd_as)];
    let [a, b] = labels;
    page.add(PATHS_MONITORED, &labels, remote.paths.len() as u64);
    page.add(PATH_PROBES_SENT, &labels, remote.probes_sent);
    page.add(PATH_PROBES_RECEIVED, &labels, remote.probes_received);
    page.add(PATH_PROBES_SEND_ERRORS, &labels, remote.probe_send_errors);
    let alive = remote.paths.iter().filter(|path| path.alive).count();
    // The control plane takes any path, so its policy rejects none.
    for (word, count) in [
        ("alive", alive),
        ("timeout", remote.paths.len() - alive),
        ("rejected", 0),
    ] {
        let labels = [a, b, ("policy_id", "gateway-watcher"), ("status", word)];
        page.raise(SESSION_PATHS_AVAILABLE, &labels, count as f64);
    }
    for path in &remote.paths {
        let labels = [a, b, ("fingerprint", shortened(&path.fingerprint))];
        page.raise(PATH_ALIVE, &labels, u8::from(path.alive));
        page.raise(PATH_REVOKED, &labels, u8::from(path.revoked));
        page.raise(PATH_MTU, &labels, path.mtu);
        if let Some(microseconds) = path.latency_us {
            page.raise(PATH_LATENCY, &labels, microseconds as f64 / 1e6);
        }
        if let Some(microseconds) = path.jitter_us {
            page.raise(PATH_JITTER, &labels, microseconds as f64 / 1e6);
        }
        if let Some(ppm) = path.loss_ppm {
            page.raise(PATH_LOSS, &labels, f64::from(ppm) / 1e6);
        }
    }
}

/// Enough of a fingerprint to tell paths apart, and to find them in the status.
fn shortened(fingerprint: &str) -> &str {
    fingerprint.get(..16).unwrap_or(fingerprint)
}

fn routing(page: &mut Exposition, isd_as: &str, control: &Control) {
    for class in control.sites.iter().flat_map(|site| &site.classes) {
        let id = class.id.to_string();
        let labels = [("isd_as", isd_as), ("routing_chain_id", &*id)];
        page.raise(
            CHAIN_HEALTHINESS,
            &labels,
            u8::from(class.current.is_some()),
        );
        page.raise(CHAIN_ALIVE_SESSIONS, &labels, class.alive as f64);
        page.add(CHAIN_SESSION_CHANGES, &labels, class.session_changes);
        page.add(CHAIN_STATE_CHANGES, &labels, class.state_changes);
    }
    for advertised in &control.advertised {
        let labels = [("isd_as", isd_as), ("remote_isd_as", &*advertised.isd_as)];
        page.raise(
            PREFIXES_ADVERTISED,
            &labels,
            advertised.prefixes.len() as f64,
        );
    }
}

fn control_plane(page: &mut Exposition, isd_as: &str, control: &Control) {
    let isd_as = ("isd_as", isd_as);
    table(page, &[isd_as], control.sockets.iter());
    let daemon = &control.daemon;
    page.raise(DAEMON_REACHABLE, &[isd_as], u8::from(daemon.reachable));
    page.add(DAEMON_REQUESTS, &[isd_as], daemon.requests);
    page.add(DAEMON_FAILURES, &[isd_as], daemon.failures);
    page.add(DAEMON_PATHS_SKIPPED, &[isd_as], daemon.paths_skipped);
    for refused in &control.refused {
        let labels = [
            isd_as,
            ("remote_isd_as", &*refused.isd_as),
            ("reason", &*refused.reason),
        ];
        page.add(PEER_INPUT_REFUSED, &labels, refused.count);
    }
}

fn data_plane(page: &mut Exposition, status: &Status) {
    let isd_as = ("isd_as", &*status.isd_as);
    for verdict in &status.verdicts {
        let (program, word) = verdict.name.split_once('_').unwrap_or((&verdict.name, ""));
        let labels = [isd_as, ("program", program), ("verdict", word)];
        page.add(XDP_PACKETS, &labels, verdict.packets);
    }
    for socket in &status.queues {
        let (worker, queue) = (socket.worker.to_string(), socket.queue.to_string());
        let [a, b, c, d] = [
            isd_as,
            ("interface", &*socket.interface),
            ("queue", &*queue),
            ("worker", &*worker),
        ];
        let ring = |name| [a, b, c, d, ("ring", name)];
        table(page, &[a, b, c, d], socket.counts.iter());
        let fill = socket.rx_invalid_descriptors;
        page.add(QUEUE_INVALID_DESCRIPTORS, &ring("fill"), fill);
        let tx = socket.tx_invalid_descriptors;
        page.add(QUEUE_INVALID_DESCRIPTORS, &ring("tx"), tx);
        let reason = |name| [a, b, c, d, ("reason", name)];
        page.add(QUEUE_DROPS, &reason("rx_ring_full"), socket.rx_ring_full);
        let empty = socket.fill_ring_empty;
        page.add(QUEUE_DROPS, &reason("fill_ring_empty"), empty);
        page.add(QUEUE_DROPS, &reason("refused"), socket.rx_refused);
    }
    for rule in &status.rules {
        let labels = |direction| {
            let name = ("rule", &*rule.name);
            [
                isd_as,
                name,
                ("action", &*rule.action),
                ("direction", direction),
            ]
        };
        for (direction, packets, bytes) in [
            (
                "egress",
                rule.packets_to_remotes,
                rule.packet_bytes_to_remotes,
            ),
            (
                "ingress",
                rule.packets_from_remotes,
                rule.packet_bytes_from_remotes,
            ),
        ] {
            page.add(RULE_PACKETS, &labels(direction), packets);
            page.add(RULE_BYTES, &labels(direction), bytes);
        }
    }
    if let Some(node) = &status.chains {
        chains(page, isd_as, node);
    }
    for port in &status.ports {
        let labels = [
            isd_as,
            ("interface", &*port.interface),
            ("mode", port.mode.as_str()),
            ("role", port.role.as_str()),
        ];
        page.raise(INTERFACE_UP, &labels, u8::from(port.up));
    }
    for left_out in &status.lan.left_out {
        let labels = [
            isd_as,
            ("interface", &*left_out.interface),
            ("mode", "none"),
            ("role", Role::Lan.as_str()),
        ];
        page.raise(INTERFACE_UP, &labels, 0u8);
    }
    page.raise(DRAINING, &[isd_as], u8::from(status.draining));
    let fast_path = &status.fast_path;
    page.raise(FAST_PATH_ON, &[isd_as], u8::from(fast_path.on));
    let problems = fast_path.problems.len() as f64;
    page.raise(FAST_PATH_PROBLEMS, &[isd_as], problems);
}

fn chains(page: &mut Exposition, isd_as: (&'static str, &str), node: &srv6::Status) {
    for sid in &node.sids {
        let labels = [isd_as, ("sid", &*sid.sid), ("behavior", &*sid.behavior)];
        page.add(SID_PACKETS, &labels, sid.packets);
    }
    for policy in &node.policies {
        let labels = [isd_as, ("policy", &*policy.name)];
        page.add(POLICY_PACKETS, &labels, policy.packets);
    }
    for function in &node.functions {
        let labels = [isd_as, ("function", &*function.name)];
        page.add(FUNCTION_PACKETS, &labels, function.packets_returned);
        page.raise(FUNCTION_UP, &labels, u8::from(function.is_up));
    }
    for (reason, packets) in &node.refused {
        page.add(NODE_PACKETS, &[isd_as, ("reason", reason)], *packets);
    }
}

/// What the operating system tells about the process of a `service`.
pub fn process(page: &mut Exposition, version: &str, service: &str, process: &Process) {
    page.raise(BUILD_INFO, &[("version", version)], 1);
    // The reference has the name of the service here, whatever the id.
    page.raise(ELEM_ID, &[("cfg", service)], 1);
    let times = [
        (PROCESS_CPU, process.cpu_seconds),
        (PROCESS_START, process.start_time),
    ];
    let amounts = [
        (PROCESS_RESIDENT, process.resident),
        (PROCESS_VIRTUAL, process.virtual_memory),
        (PROCESS_OPEN_FILES, process.open_files),
        (PROCESS_MAX_FILES, process.max_files),
    ];
    let amounts = amounts.map(|(metric, value)| (metric, value.map(|value| value as f64)));
    for (metric, value) in times.into_iter().chain(amounts) {
        if let Some(value) = value {
            page.raise(metric, &[], value);
        }
    }
}

#[cfg(test)]
mod tests;
