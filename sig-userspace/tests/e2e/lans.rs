//! LAN interfaces that come and go while the gateway runs.

use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use crate::bed::{Bed, assert_pings};
use crate::reload::{self, reload};
use sig_core::status::Status;
use testbed::{Family, Netns, Network, Options, Ping, ping, wait_until};

const PATIENCE: Duration = Duration::from_secs(10);

/// A second network behind gateway A, within its prefix: interface `more` of the gateway.
struct Second(Netns);

/// Its host.
const HOST: [u8; 4] = [192, 168, 10, 202];

impl Second {
    fn new() -> Self {
        Second(Netns::new("second").expect("a namespace"))
    }

    /// Plugs it in; `mac` is the last byte of the gateway's address there.
    fn plug_in(&self, network: &Network, mac: u8) {
        self.plug_in_after("", "", network, mac);
    }

    /// Pulls it out and plugs it in again in one go, with an index that stays the same.
    fn replace(&self, network: &Network, mac: u8) {
        self.plug_in_after("link del more\n", "index 4242", network, mac);
    }

    fn plug_in_after(&self, before: &str, index: &str, network: &Network, mac: u8) {
        let gateway = &network.a.gateway;
        let host = &self.0;
        let lines = format!(
            "{before}link add more {index} address 02:00:00:00:77:{mac:02x} type veth peer name lan netns {}\n\
             addr add 192.168.10.201/29 dev more\nlink set more up",
            host.name()
        );
        gateway.ip(&lines).expect("an interface");
        let lines = "addr add 192.168.10.202/29 dev lan\nlink set lan up\nlink set lo up\n\
                     route add default via 192.168.10.201";
        host.ip(lines).expect("the other end");
        // It takes what the gateway's programs send.
        host.exec("ethtool -K lan gro on tx off").expect("ethtool");
    }

    fn unplug(&self, network: &Network) {
        network.a.gateway.ip("link del more").expect("it was there");
    }

    fn ping(&self, to: IpAddr, count: u32) -> Ping {
        ping(&self.0, to, count, 500, Duration::from_millis(5)).expect("ping")
    }
}

fn status(network: &Network) -> Status {
    reload::status(network).expect("an answer of the gateway")
}

/// Waits until interface `more` is in service at gateway A, or no longer.
fn wait_for_service(network: &Network, wanted: bool) {
    let is_there = |status: &Status| status.ports.iter().any(|port| port.interface == "more");
    let done = wait_until("the interface in service or not", PATIENCE, || {
        Ok(reload::status(network).is_some_and(|status| is_there(&status) == wanted))
    });
    done.unwrap_or_else(|e| panic!("{e:#}: {:#?}", status(network).lan));
}

/// With `more` as a second LAN interface of gateway A.
fn with_second(network: &Network, lines: &str) -> String {
    let config = std::fs::read_to_string(network.a.config_file()).expect("a file");
    let more = config.replace(
        "lan = [\"lan\"]",
        &format!("lan = [\"lan\", \"more\"]\n{lines}"),
    );
    assert_ne!(more, config);
    more
}

fn streams(network: &Network) -> Vec<Vec<u32>> {
    let remotes = status(network).remotes;
    let paths = remotes.iter().flat_map(|remote| &remote.paths);
    paths.map(|path| path.streams.clone()).collect()
}

#[test]
fn a_lan_interface_comes_and_goes_without_losing_a_packet_of_the_others() {
    for workers in [1, 2] {
        let mut bed = Bed::new(&Options::default());
        let second = Second::new();
        // What is lost with each interface must come back: without, there would soon be no buffers.
        let few = format!(
            "workers = {workers}\nring_size = 256\nchunks = {}",
            4096 * workers
        );
        let config = with_second(&bed.network, &few);
        std::fs::write(bed.network.a.config_file(), config).expect("the configuration");
        let is_down_at_start = workers == 2;
        if is_down_at_start {
            second.plug_in(&bed.network, 99);
            let set_down = bed.network.a.gateway.ip("link set more down");
            set_down.expect("it is there");
        }
        bed.network
            .start_gateways()
            .unwrap_or_else(|e| panic!("{e:#}"));
        let network = &bed.network;
        assert_pings(network, Family::V4, 5, 64);
        let first = status(network);
        let [left_out] = &first.lan.left_out[..] else {
            panic!("{:#?}", first.lan);
        };
        assert_eq!(
            left_out.reason.contains("is down"),
            is_down_at_start,
            "{left_out:?}"
        );
        if is_down_at_start {
            network
                .a
                .gateway
                .ip("link set more up")
                .expect("it is there");
            wait_for_service(network, true);
            second.unplug(network);
            wait_for_service(network, false);
        }
        let before = streams(network);
        let (to, rounds) = (network.b.client_ip(Family::V4), 12);
        let pinged = thread::scope(|scope| {
            let pinging = scope.spawn(|| {
                ping(&network.a.client, to, 3000, 500, Duration::from_millis(2)).expect("ping")
            });
            for round in 0..rounds {
                second.plug_in(network, round);
                wait_for_service(network, true);
                let answered = || Ok(second.ping(to, 1).received == 1);
                wait_until("an answer to the second network", PATIENCE, answered)
                    .unwrap_or_else(|e| panic!("{e:#}: {:#?}", status(network)));
                let there = second.ping(to, 40);
                assert_eq!(there.received, there.sent, "{:#?}", status(network));
                second.unplug(network);
                wait_for_service(network, false);
            }
            pinging.join().expect("ping")
        });
        assert_eq!(pinged.received, pinged.sent, "{:#?}", status(network));
        assert_eq!(streams(network), before);
        let after = status(network);
        let of_lan = |status: &Status| {
            let received = status.workers.iter().map(|worker| worker.rx_packets);
            received.sum::<u64>()
        };
        assert!(of_lan(&after) >= of_lan(&first), "{after:#?}");
        let process = bed.network.a.process().expect("it runs");
        assert!(!process.log().contains("not back yet"), "{}", process.log());
    }
}

#[test]
fn a_reload_adds_and_removes_a_lan_interface() {
    let bed = Bed::running(&Options {
        dataplane: "ring_size = 256\nchunks = 4096".into(),
        ..Options::default()
    });
    let network = &bed.network;
    let second = Second::new();
    second.plug_in(network, 1);
    let config = std::fs::read_to_string(network.a.config_file()).expect("a file");
    let more = with_second(network, "");
    let to = network.b.client_ip(Family::V4);
    let before = streams(network);
    // Until then, the kernel forwards its packets.
    let there = second.ping(to, 10);
    assert!(there.received >= 9, "{there:?}");
    let pinged = thread::scope(|scope| {
        let pinging = scope.spawn(|| {
            ping(&network.a.client, to, 3000, 500, Duration::from_millis(2)).expect("ping")
        });
        for _ in 0..12 {
            let (code, told) = reload(network, &more);
            assert_eq!(code, Some(0), "{told}");
            assert_eq!(told, "LAN interface more: in service\n");
            wait_for_service(network, true);
            let (from, every) = (&network.b.client, Duration::from_millis(20));
            let there = ping(from, HOST.into(), 5, 500, every).expect("ping");
            assert_eq!(there.received, there.sent, "{:#?}", status(network));
            let there = second.ping(to, 20);
            assert_eq!(there.received, there.sent, "{:#?}", status(network));
            let now = status(network);
            let port = now.ports.iter().find(|port| port.interface == "more");
            assert!(port.expect("the port").rx_packets > 0, "{now:#?}");
            let (code, told) = reload(network, &config);
            assert_eq!(code, Some(0), "{told}");
            assert_eq!(told, "LAN interface more: given up\n");
            wait_for_service(network, false);
            let there = second.ping(to, 20);
            assert_eq!(there.received, there.sent, "{:#?}", status(network));
        }
        pinging.join().expect("ping")
    });
    assert_eq!(pinged.received, pinged.sent, "{:#?}", status(network));
    assert_eq!(streams(network), before);

    // One that is down is told, and may come up.
    network.a.gateway.ip("link set more down").expect("a link");
    let (code, told) = reload(network, &more);
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(told, "LAN interface more: it is down\n");
    let left_out = status(network).lan.left_out;
    assert!(left_out[0].reason.contains("is down"), "{left_out:#?}");
    let (code, told) = reload(network, &config);
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(told, "LAN interface more: no longer in the configuration\n");
    // One that cannot be used is an error, again and again, and taken once it can.
    let too_long = network.a.gateway.ip("link set more mtu 9999 up");
    too_long.expect("a link");
    for _ in 0..2 {
        let (code, told) = reload(network, &more);
        assert_eq!(code, Some(1), "{told}");
        assert!(told.contains("MTU"), "{told}");
    }
    let fits = network.a.gateway.ip("link set more mtu 1500");
    fits.expect("a link");
    wait_for_service(network, true);

    // One that is replaced by another with the same index, before anybody looks.
    for mac in 2..6 {
        second.replace(network, mac);
        let answered = || {
            let there = second.ping(to, 20);
            Ok(there.received == there.sent)
        };
        wait_until("answers to the other interface", PATIENCE, answered)
            .unwrap_or_else(|e| panic!("{e:#}: {:#?}", status(network)));
        wait_for_service(network, true);
    }
}
