//! Pages in the JSON of the reference: its names, its nesting, its notation of addresses and prefixes.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use ipnet::IpNet;
use serde::Serialize;
use serde_json::{Value, json, ser::PrettyFormatter};

use super::{
    sessions::{self, Session},
    status::routing_table,
};
use sig_core::{
    notation::{base64, rfc3339},
    status::{DiscoveredGateway, Status},
};

/// `/engine`: several documents, each with a line in front of it that says what it is.
pub(super) fn engine(status: &Status) -> String {
    let sessions = sessions::all(status);
    format!(
        "{}Last seen session configs:\n{}Control-plane routing table:\n{}\n\
         Data-plane routing table:\n{}\n",
        pretty(&json!({
            "SessionStates": sessions.iter().map(|session| json!({
                "ID": session.remote.session,
                "Healthy": session.is_healthy(),
            })).collect::<Vec<_>>(),
            "SessionPaths": sessions.iter().map(|s| session_paths(status, s)).collect::<Vec<_>>(),
        })),
        pretty(&sessions.iter().map(session_config).collect::<Vec<_>>()),
        pretty(&control_plane_table(status, &sessions)),
        routing_table(status, &sessions),
    )
}

fn session_paths(status: &Status, session: &Session<'_>) -> Value {
    let paths = session.paths();
    let info: Vec<Value> = paths
        .iter()
        .map(|path| {
            json!({
                "Path": path.text,
                "Rejected": !path.rejected.is_empty(),
                "RejectReason": path.rejected,
                "Current": path.current,
                "Revoked": path.revoked,
            })
        })
        .collect();
    let used = session.remote.paths.iter().map(|path| {
        let watched = paths.iter().filter_map(|known| known.watched);
        let expiry = watched
            .filter(|known| known.fingerprint == path.fingerprint)
            .find_map(|known| known.expires_at)
            .or(path.expires_at);
        json!({
            "Src": status.isd_as,
            "Dst": session.remote.isd_as,
            "NextHop": address(path.next_hop),
            "Meta": { "MTU": path.mtu, "Expiry": expiry.map(rfc3339) },
        })
    });
    json!({
        "ID": session.remote.session,
        "PathInfo": info,
        "Paths": used.collect::<Vec<_>>(),
    })
}

fn control_plane_table(status: &Status, sessions: &[Session<'_>]) -> Value {
    let sites = status.control.iter().flat_map(|control| &control.sites);
    let classes: Vec<_> = sites.flat_map(|site| &site.classes).collect();
    let indices = classes
        .iter()
        .map(|class| (class.id, base64(&class.sessions)));
    let current = classes
        .iter()
        .filter_map(|class| Some((class.id, class.current?)));
    let states = sessions
        .iter()
        .map(|session| (session.remote.session, u8::from(session.is_healthy())));
    json!({
        "RoutingTableIndices": indices.collect::<BTreeMap<_, _>>(),
        "CurrentSessions": current.collect::<BTreeMap<_, _>>(),
        "SessionStates": states.collect::<BTreeMap<_, _>>(),
    })
}

/// `/sessionconfigurator`: what sessions are made of, and the sessions.
pub(super) fn session_configurator(status: &Status) -> String {
    let control = status.control.as_ref();
    let policies: Vec<Value> = control
        .iter()
        .flat_map(|control| &control.policies)
        .map(|policy| {
            json!({
                "IA": policy.isd_as,
                "ID": policy.id,
                "TrafficMatcher": policy.traffic_matcher,
                "PerfPolicy": perf_policy(&policy.perf_policy),
                "PathPolicy": path_policy(&policy.path_policy),
                "PathCount": policy.path_count,
                "Prefixes": prefixes(&policy.prefixes),
            })
        })
        .collect();
    let gateways: BTreeMap<&str, Vec<Value>> = control
        .iter()
        .flat_map(|control| &control.ases)
        .filter(|found| !found.gateways.is_empty())
        .map(|found| {
            let gateways = found.gateways.iter().map(|gateway| {
                json!({
                    "Gateway": self::gateway(gateway),
                    "Prefixes": prefixes(&gateway.accepted),
                })
            });
            (&*found.isd_as, gateways.collect())
        })
        .collect();
    let sessions = sessions::all(status);
    pretty(&json!({
        "SessionPolicies": policies,
        "RemoteGateways": { "Gateways": gateways },
        "SessionConfigs": sessions.iter().map(session_config).collect::<Vec<_>>(),
    }))
}

fn session_config(session: &Session<'_>) -> Value {
    let remote = session.remote;
    let policy = session.policy;
    let gateway = session.gateway.map_or_else(
        || json!({"Control": null, "Probe": null, "Data": address(remote.gateway), "Interfaces": null}),
        gateway,
    );
    json!({
        "ID": remote.session,
        "PolicyID": remote.policy_id,
        "IA": remote.isd_as,
        "TrafficMatcher": policy.map_or(&Value::Bool(true), |policy| &policy.traffic_matcher),
        "PerfPolicy": perf_policy(policy.map_or(&Value::Null, |policy| &policy.perf_policy)),
        "PathPolicy": path_policy(policy.map_or(&Value::Null, |policy| &policy.path_policy)),
        "PathCount": policy.map_or(1, |policy| policy.path_count),
        "Gateway": gateway,
        "Prefixes": prefixes(&remote.prefixes),
    })
}

fn gateway(gateway: &DiscoveredGateway) -> Value {
    let interfaces = &gateway.addresses.allow_interfaces;
    json!({
        "Control": address(gateway.addresses.control),
        "Probe": address(gateway.addresses.probe),
        "Data": address(gateway.addresses.data),
        "Interfaces": (!interfaces.is_empty()).then_some(interfaces),
    })
}

fn perf_policy(policy: &Value) -> Value {
    if policy.is_null() {
        json!({})
    } else {
        policy.clone()
    }
}

fn path_policy(policy: &Value) -> Value {
    if policy.is_null() {
        json!({"acl": ["+"]})
    } else {
        policy.clone()
    }
}

fn address(address: SocketAddr) -> Value {
    json!({ "IP": address.ip(), "Port": address.port(), "Zone": "" })
}

fn prefixes(prefixes: &[IpNet]) -> Vec<Value> {
    let prefix = |prefix: &IpNet| {
        let mask = match prefix.netmask() {
            IpAddr::V4(mask) => base64(&mask.octets()),
            IpAddr::V6(mask) => base64(&mask.octets()),
        };
        json!({ "IP": prefix.network(), "Mask": mask })
    };
    prefixes.iter().map(prefix).collect()
}

/// `/diagnostics/prefixwatcher`: what remote gateways announce.
pub(super) fn prefix_watcher(status: &Status) -> String {
    let mut remotes = BTreeMap::new();
    for found in status.control.iter().flat_map(|control| &control.ases) {
        let gateways: BTreeMap<String, Value> = found
            .gateways
            .iter()
            .map(|gateway| {
                let facts = json!({
                    "data_address": gateway.addresses.data,
                    "probe_address": gateway.addresses.probe,
                    "interfaces": gateway.addresses.allow_interfaces,
                    "prefixes": gateway.accepted,
                    "timestamp": gateway.fetched_at.map_or_else(never, rfc3339),
                });
                (gateway.addresses.control.to_string(), facts)
            })
            .collect();
        remotes.insert(&*found.isd_as, json!({ "gateways": gateways }));
    }
    pretty(&json!({ "remotes": remotes }))
}

/// The reference's notation for no time at all.
fn never() -> String {
    "0001-01-01T00:00:00Z".to_owned()
}

/// `/diagnostics/sgrp`: prefixes advertised by the routing policy, and those in the kernel's routing table.
pub(super) fn sgrp(status: &Status) -> String {
    let control = status.control.as_ref();
    let policy = control.map_or("", |control| &control.routing_policy);
    let mut learned: Vec<IpNet> = control
        .iter()
        .flat_map(|control| &control.sites)
        .filter(|site| site.exported)
        .flat_map(|site| site.prefixes.clone())
        .collect();
    learned.sort();
    learned.dedup();
    pretty(&json!({
        "advertise": { "static": advertised(policy) },
        "learned": { "dynamic": learned },
    }))
}

/// The prefixes of the `advertise` rules of a policy in the form of its file, each once. A negated list
/// advertises nothing.
fn advertised(policy: &str) -> Vec<&str> {
    let mut advertised = Vec::new();
    for line in policy.lines() {
        let rule = line.split_once('#').map_or(line, |(rule, _)| rule);
        let mut columns = rule.split_whitespace();
        if columns.next() != Some("advertise") {
            continue;
        }
        let networks = columns.nth(2).filter(|networks| !networks.starts_with('!'));
        for network in networks.into_iter().flat_map(|list| list.split(',')) {
            if !advertised.contains(&network) {
                advertised.push(network);
            }
        }
    }
    advertised
}

/// A value as JSON, indented by four spaces as the reference has it, with a line end.
pub fn pretty(value: &impl Serialize) -> String {
    let mut text = Vec::new();
    let mut serializer =
        serde_json::Serializer::with_formatter(&mut text, PrettyFormatter::with_indent(b"    "));
    // Writing JSON values into memory has no way to fail.
    let _ = value.serialize(&mut serializer);
    text.push(b'\n');
    String::from_utf8_lossy(&text).into_owned()
}
