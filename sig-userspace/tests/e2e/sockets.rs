//! Gateways without XDP on the underlay, or without any BPF.

use std::fs;
use std::time::Duration;

use testbed::{Family, Options, Site, Underlay, wait_until};

use crate::bed::{Bed, assert_pings};
use crate::traffic::exchange_files;

const SIZES: [u32; 3] = [64, 1472, 8972];

/// By role, how packets get to the ports.
fn modes(site: &Site) -> Vec<(String, String)> {
    let ports = site.status().expect("the status").ports.into_iter();
    ports.map(|port| (port.role, port.mode)).collect()
}

fn pair(role: &str, mode: &str) -> (String, String) {
    (role.to_owned(), mode.to_owned())
}

fn all_crosses(bed: &Bed) {
    for family in Family::ALL {
        for size in SIZES {
            assert_pings(&bed.network, family, 20, size);
        }
    }
    exchange_files(&bed.network.a, &bed.network.b, Family::V4);
    exchange_files(&bed.network.b, &bed.network.a, Family::V6);
}

fn options(tunnel: &str) -> Options {
    Options {
        dataplane: "workers = 2\nunderlay_port = \"socket\"".to_owned(),
        tunnel: format!("device = \"{tunnel}\""),
        ..Options::default()
    }
}

#[test]
fn everything_crosses_by_sockets_and_tun_devices() {
    let bed = Bed::running(&Options {
        underlay: Underlay::V6,
        path_mtu: 1452,
        ..options("tun")
    });
    all_crosses(&bed);
    let modes = modes(&bed.network.a);
    assert!(modes.contains(&pair("underlay", "socket")), "{modes:?}");
    assert!(modes.contains(&pair("tunnel", "tun")), "{modes:?}");
}

#[test]
fn a_gateway_with_sockets_works_with_one_with_xdp() {
    let mut bed = Bed::new(&options("veth"));
    let file = bed.network.b.config_file();
    let text = fs::read_to_string(&file).expect("the configuration");
    fs::write(&file, text.replace("\"socket\"", "\"xdp\"")).expect("the configuration");
    bed.network
        .start_gateways()
        .unwrap_or_else(|e| panic!("{e:#}"));
    all_crosses(&bed);
    let modes = [&bed.network.a, &bed.network.b].map(modes);
    assert!(modes[0].contains(&pair("underlay", "socket")), "{modes:?}");
    assert!(modes[1].contains(&pair("underlay", "native")), "{modes:?}");
}

#[test]
fn gateways_need_nothing_but_cap_net_admin() {
    let mut bed = Bed::new(&Options {
        dataplane: "workers = 2".to_owned(),
        ..Options::default()
    });
    for site in [&mut bed.network.a, &mut bed.network.b] {
        site.run_under(&["setpriv", "--bounding-set", "-all,+net_admin"]);
    }
    bed.network
        .start_gateways()
        .unwrap_or_else(|e| panic!("{e:#}"));
    all_crosses(&bed);
    let expected = [pair("underlay", "socket"), pair("tunnel", "tun")];
    assert_eq!(modes(&bed.network.a), expected);
    let log = bed.network.a.process().expect("it runs").log();
    assert!(log.contains("sending frames by UDP sockets"), "{log}");
    assert!(log.contains("lacks CAP_BPF"), "{log}");
}

#[test]
fn an_underlay_device_that_comes_back_is_used_again() {
    let bed = Bed::running(&options("veth"));
    let (gateway, router) = (&bed.network.a.gateway, &bed.network.a.router);
    assert_pings(&bed.network, Family::V4, 5, 64);
    let text = gateway.ip("link show dev underlay").expect("the device");
    let mac = text
        .split("link/ether ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let mac = mac.expect("its address");
    gateway.ip("link del underlay").expect("it goes");
    let lines = format!(
        "link add underlay address {mac} type veth peer name inside netns {}\nlink set underlay up\n\
         address add 10.10.0.2/24 dev underlay",
        router.name()
    );
    gateway.ip(&lines).expect("another one");
    router
        .ip("link set inside up\naddress add 10.10.0.1/24 dev inside")
        .expect("its other end");
    gateway
        .exec("ethtool -K underlay gro on tx off")
        .expect("offloads");
    let to = bed.network.b.client_ip(Family::V4);
    wait_until("packets cross again", Duration::from_secs(20), || {
        let client = &bed.network.a.client;
        let ping = testbed::ping(client, to, 5, 64, Duration::from_millis(20))?;
        Ok(ping.received == ping.sent)
    })
    .unwrap_or_else(|e| panic!("{e:#}: {:#?}", bed.network.a.status()));
}

#[test]
fn the_border_router_may_run_on_the_gateways_host() {
    let bed = Bed::running(&Options {
        one_host: true,
        ..Options::default()
    });
    all_crosses(&bed);
    let modes = [&bed.network.a, &bed.network.b].map(modes);
    assert!(modes[0].contains(&pair("underlay", "socket")), "{modes:?}");
    assert!(modes[0].contains(&pair("tunnel", "native")), "{modes:?}");
    assert!(modes[1].contains(&pair("underlay", "native")), "{modes:?}");
}
