//! Gateway and border router on one host, the router in a network namespace of its own, as the script beside the units sets it up.

use crate::bed::{Bed, assert_pings};
use crate::reload::status;
use sig_core::port::Role;
use sig_core::status::PortMode;
use testbed::{Family, Netns, Options};

/// Starts the router of the host with the gateway in namespace `$OWN`, and any other one as it is.
const START: &str = r#"
set -e
if ip link show dev lan > /dev/null 2>&1; then
    gateway=$(ip -o -4 address show dev underlay | awk '{ print $4 }')
    router=$(ip -o -4 address show dev lo scope global | awk '{ print $4 }')
    ip address del "$gateway" dev underlay
    ip address del "$router" dev lo
    SIG_ROUTER_NETNS=$OWN "$SCRIPT" up outside "$gateway" "$router"
    exec ip netns exec "$OWN" "$@"
fi
exec "$@"
"#;

#[test]
fn gateway_and_router_on_one_host_are_joined_in_the_fast_path() {
    // The script makes it, but not from within a namespace.
    let own = Netns::new("own").expect("a namespace");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/systemd/sig-router-netns");
    let by = [
        "env",
        &format!("OWN={}", own.name()),
        &format!("SCRIPT={script}"),
        "sh",
        "-c",
        START,
        "sh",
    ];
    let mut bed = Bed::new(&Options {
        one_host: true,
        routers_by: by.map(str::to_owned).into(),
        ..Options::default()
    });
    let file = bed.network.a.config_file();
    let config = std::fs::read_to_string(&file).expect("a file");
    let config = config.replace("underlay = \"underlay\"", "underlay = \"to-router\"");
    std::fs::write(&file, config).expect("the configuration");
    bed.network
        .start_gateways()
        .unwrap_or_else(|e| panic!("{e:#}"));
    let network = &bed.network;
    assert_pings(network, Family::V4, 100, 500);
    let status = status(network).expect("an answer");
    let mut ports = status.ports.iter();
    let port = ports.find(|port| port.role == Role::Underlay);
    let port = port.expect("an underlay");
    assert_eq!(
        (&*port.interface, port.mode),
        ("to-router", PortMode::Native)
    );
    assert_eq!(status.fast_path.problems, [""; 0]);
    let fast = &status.fast_path;
    assert!(
        fast.packets_sent >= 50 && fast.packets_delivered >= 50,
        "{fast:#?}"
    );
    // The router leaves nothing to its slow path but what is about itself.
    let slow = network.routers()[0]
        .status()
        .expect("an answer of the router");
    let reasons = slow.interfaces.iter().flat_map(|of| &of.reasons);
    let mut no_way = reasons.filter(|of| of.reason == "no_fast_way");
    assert!(no_way.all(|of| of.slow < 10), "{slow:#?}");
}
