//! How a gateway finds its remotes: the sections beside `[[remote]]` and the data plane.

use std::path::PathBuf;
use std::time::Duration;

use super::model::{Control, DefaultRoute, EndhostPort, Protection, WrittenAt};
use super::protection;
use super::sections::OwnAddresses;
use sig_core::document::{
    common::{server, time},
    section::{Kind as _, Special, Time, UnlessEmpty, Words},
    toml::{Section, or_if_empty},
};
use sig_core::peer::{PeerLimits, RpcProtocols};
use sig_core::problem::excerpt;
use sig_core::section;

pub(super) const DEFAULT_DAEMON: &str = "127.0.0.1:30255";
pub(super) const DEFAULT_TRAFFIC_POLICY: &str = "/etc/scion/traffic.policy";

const PROTOCOLS: Words<RpcProtocols> = Words(&[
    ("all", RpcProtocols::All),
    ("grpc", RpcProtocols::Grpc),
    ("connectrpc", RpcProtocols::Connect),
]);

/// The reference's gateway takes any text and always speaks all of them.
const ANY_PROTOCOLS: UnlessEmpty<Special<RpcProtocols>> = UnlessEmpty(Special(
    |item| {
        let text = item.text("\"all\"")?;
        let known = PROTOCOLS.0.iter().find(|(word, _)| *word == text);
        if known.is_none() {
            item.place.warn(format!(
                "\"{}\" is unknown and treated as \"all\"; write \"all\", \"grpc\" or \"connectrpc\"",
                excerpt(text)
            ));
        }
        Some(known.map_or(RpcProtocols::All, |(_, protocols)| *protocols))
    },
    |protocols| PROTOCOLS.write(protocols),
));

const HOUR: Duration = Duration::from_secs(3600);

section! {
    /// `[rpc]`: the RPC variants that are spoken.
    pub struct Rpc {}

    /// As a client.
    client_protocol: RpcProtocols = RpcProtocols::All, ANY_PROTOCOLS;
    /// As a server.
    server_protocol: RpcProtocols = RpcProtocols::All, ANY_PROTOCOLS;
}

section! {
    /// `[control]`: how remotes and paths are found and watched.
    pub struct Discovery {
        /// What peers can make us keep.
        pub limits: PeerLimits,
    }

    /// Who listens on the end host port 30041.
    endhost_port: EndhostPort = EndhostPort::Auto, Words(&[
        ("auto", EndhostPort::Auto),
        ("own", EndhostPort::Own),
        ("shared", EndhostPort::Shared),
    ]);
    /// How often a path in use is probed.
    probe_interval: Duration = Duration::from_millis(200), Time(Duration::from_millis(20), Duration::from_secs(10));
    /// A path in use without an answer for this long is dead (longer if its round trip time is).
    probe_timeout: Duration = Duration::from_millis(600), Time(Duration::from_millis(50), Duration::from_secs(60));
    /// How long a better path must have been alive and better before it replaces one in use.
    switch_delay: Duration = Duration::from_secs(5), Time(Duration::ZERO, HOUR);
    /// Whether default routes that remotes announce are learned.
    default_route: DefaultRoute = DefaultRoute::Accept, Words(&[
        ("accept", DefaultRoute::Accept),
        ("refuse", DefaultRoute::Refuse),
    ]);
    /// How often the daemon is asked for paths; the environment variable
    /// `SCION_EXPERIMENTAL_GATEWAY_PATH_UPDATE_INTERVAL` overrides it.
    path_interval: Duration = Duration::from_secs(10), Time(Duration::from_millis(100), HOUR);
}

impl Default for Discovery {
    /// Returns the defaults of the configuration file.
    fn default() -> Self {
        Self::with_defaults(PeerLimits::default())
    }
}

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
        for place in [
            &sciond,
            &section,
            &root.section("rpc"),
            &root.section("protection"),
        ]
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
        ) {
            place.warn("ignored: the [[remote]] sections already list the remotes and their paths");
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
    let section_of_protection = root.section("protection");
    let protection = protection::read(&section_of_protection);
    if !used && protection.as_ref().is_some_and(Protection::requires) {
        section_of_protection.place.error(
            "the remotes of [[remote]] sections exchange no keys, so frames to and from them are not protected; remove [[remote]], or \
             the pins and mode = \"require\"",
        );
    }
    let rpc = Rpc::read(&root.section("rpc"));
    let limits = PeerLimits::read(&section.section("limits"));
    let discovery = Discovery::read(&section, limits);
    let own = own?;
    Some(Control {
        daemon: daemon?,
        ctrl_addr: own.ctrl,
        probe_addr: own.probe,
        traffic_policy_file: traffic_policy_file?,
        traffic_policy_at: written_at("traffic_policy_file"),
        ip_routing_policy_file: ip_routing_policy_file?,
        ip_routing_policy_at: written_at("ip_routing_policy_file"),
        rpc: rpc?,
        discovery: discovery?,
        protection: protection?,
    })
}
