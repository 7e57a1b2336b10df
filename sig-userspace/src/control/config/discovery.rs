//! How a gateway finds its remotes: the sections beside `[[remote]]` and the data plane.

use std::path::PathBuf;
use std::time::Duration;

use super::model::{Control, DefaultRoute, EndhostPort, WrittenAt};
use super::sections::OwnAddresses;
use crate::document::{
    common::{server, time},
    toml::{Section, or, or_if_empty},
};
use crate::peer::{PeerLimits, RpcProtocols};
use crate::problem::excerpt;

const DEFAULT_DAEMON: &str = "127.0.0.1:30255";
const DEFAULT_TRAFFIC_POLICY: &str = "/etc/scion/traffic.policy";

/// Everything that finding remotes needs. Read, and checked, also where `[[remote]]` sections make it
/// unnecessary; then what is written is named in warnings.
pub(super) fn control(
    root: &Section<'_>,
    own: Option<&OwnAddresses>,
    used: bool,
) -> Option<Control> {
    let gateway = root.section("gateway");
    let sciond = root.section("sciond_connection");
    let section = root.section("control");
    if !used {
        for place in [&sciond, &section, &root.section("rpc")]
            .into_iter()
            .filter(|section| section.is_present())
            .map(|section| section.place.clone())
            .chain(
                [
                    "ctrl_addr",
                    "probe_addr",
                    "traffic_policy_file",
                    "ip_routing_policy_file",
                ]
                .into_iter()
                .filter_map(|key| gateway.get(key))
                .map(|item| item.place),
            )
        {
            place.warn("ignored: with [[remote]] sections the file itself names the remotes and their paths");
        }
    }
    let file = |key| match gateway.get(key) {
        Some(item) => item
            .text("\"/etc/scion/traffic.policy\"")
            .map(|text| Some(PathBuf::from(text)).filter(|path| !path.as_os_str().is_empty())),
        None => Some(None),
    };
    let traffic_policy_file = file("traffic_policy_file")
        .map(|path| path.unwrap_or_else(|| PathBuf::from(DEFAULT_TRAFFIC_POLICY)));
    let ip_routing_policy_file = file("ip_routing_policy_file");
    let written_at = |key| {
        let place = match gateway.get(key) {
            Some(item) => item.place,
            None => gateway.place.below(key),
        };
        WrittenAt {
            file: place.file().to_owned(),
            line: place.line(),
            key: place.key,
        }
    };
    let daemon = or_if_empty(&sciond, "address", DEFAULT_DAEMON.to_owned(), |item| {
        item.parse(&format!("\"{DEFAULT_DAEMON}\""), |text| {
            server(text).map(|()| text.to_owned())
        })
    });
    if let Some(item) = sciond.get_unless_empty("initial_connect_period") {
        time(&item, Duration::ZERO, Duration::from_secs(365 * 86400));
    }
    if let Some(item) = sciond.get("fake_data") {
        item.text("\"\"");
    }
    let rpc = root.section("rpc");
    let protocols = |key| {
        or_if_empty(&rpc, key, RpcProtocols::All, |item| {
            Some(match item.text("\"all\"")? {
                "all" => RpcProtocols::All,
                "grpc" => RpcProtocols::Grpc,
                "connectrpc" => RpcProtocols::Connect,
                // The reference's gateway takes any text and always speaks all of them.
                other => {
                    item.place.warn(format!(
                        "\"{}\" is unknown and means \"all\"; write \"all\", \"grpc\" or \"connectrpc\"",
                        excerpt(other)
                    ));
                    RpcProtocols::All
                }
            })
        })
    };
    let (client_protocol, server_protocol) =
        (protocols("client_protocol"), protocols("server_protocol"));
    let endhost_port = or(&section, "endhost_port", EndhostPort::Auto, |item| {
        item.choice(&[
            ("auto", EndhostPort::Auto),
            ("own", EndhostPort::Own),
            ("shared", EndhostPort::Shared),
        ])
    });
    let duration = |key, default, from, to| or(&section, key, default, |item| time(item, from, to));
    let (ms, second) = (Duration::from_millis, Duration::from_secs(1));
    let probe_interval = duration("probe_interval", ms(200), ms(20), 10 * second);
    let probe_timeout = duration("probe_timeout", ms(600), ms(50), 60 * second);
    let switch_delay = duration("switch_delay", 5 * second, Duration::ZERO, 3600 * second);
    let default_route = or(&section, "default_route", DefaultRoute::Accept, |item| {
        item.choice(&[
            ("accept", DefaultRoute::Accept),
            ("refuse", DefaultRoute::Refuse),
        ])
    });
    let path_interval = duration("path_interval", 10 * second, ms(100), 3600 * second);
    let limits = limits(&section.section("limits"));
    let own = own?;
    Some(Control {
        daemon: daemon?,
        ctrl_addr: own.ctrl,
        probe_addr: own.probe,
        traffic_policy_file: traffic_policy_file?,
        traffic_policy_at: written_at("traffic_policy_file"),
        ip_routing_policy_file: ip_routing_policy_file?,
        ip_routing_policy_at: written_at("ip_routing_policy_file"),
        client_protocol: client_protocol?,
        server_protocol: server_protocol?,
        endhost_port: endhost_port?,
        probe_interval: probe_interval?,
        probe_timeout: probe_timeout?,
        switch_delay: switch_delay?,
        default_route: default_route?,
        path_interval: path_interval?,
        limits: limits?,
    })
}

fn limits(section: &Section<'_>) -> Option<PeerLimits> {
    let count = |key, default, most| or(section, key, default, |item| item.number(1..=most));
    let gateways_per_as = count("gateways_per_as", 16, 256);
    let prefixes_per_gateway = count("prefixes_per_gateway", 4096, 1_048_576);
    let message_bytes = count("message_bytes", 1 << 20, 64 << 20);
    let connections = count("connections", 256, 65_536);
    let paths_per_as = count("paths_per_as", 64, 1024);
    Some(PeerLimits {
        gateways_per_as: gateways_per_as?,
        prefixes_per_gateway: prefixes_per_gateway?,
        message_bytes: message_bytes?,
        connections: connections?,
        paths_per_as: paths_per_as?,
    })
}
