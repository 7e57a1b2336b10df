//! The networks of this host: read from the kernel's tables, and followed.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::support::netns::{Netns, root_or_skip, veth};
use ipnet::IpNet;
use sig_linux::link;
use sig_linux::netlink::Netlink;
use sig_linux::networks::{Networks, follow};
use sig_linux::watch::Watch;
use tokio::sync::watch::Receiver;
use tokio::time::timeout;

const MAIN: u32 = 254;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

async fn until(
    networks: &mut Receiver<Arc<Networks>>,
    what: &str,
    condition: impl Fn(&Networks) -> bool,
) {
    let found = timeout(
        Duration::from_secs(3),
        networks.wait_for(|networks| condition(networks)),
    );
    assert!(found.await.is_ok(), "{what}: {:#?}", networks.borrow());
}

#[test]
fn addresses_and_networks_count_from_the_moment_they_are_there() {
    if !root_or_skip() {
        return;
    }
    let (host, other) = (Netns::new("networks"), Netns::new("networks"));
    veth((&host, "mg0"), (&other, "peer"));
    veth((&host, "sig"), (&other, "tun"));
    host.ip("addr add 10.5.0.1/24 dev mg0");
    host.ip("addr add 10.7.0.1/24 dev sig");
    host.ip("route add 10.6.0.0/16 via 10.5.0.9 metric 7");
    host.ip("route add 10.8.0.0/16 dev sig metric 15");
    host.block_on(async || {
        let netlink = Netlink::open().unwrap();
        let watch = Watch::open().unwrap();
        let tunnel = link::by_name(&netlink, "sig").await.unwrap().ifindex;
        let (mut networks, _following) = follow(&netlink, &watch, tunnel, MAIN).await.unwrap();
        {
            let now = networks.borrow();
            let around = |prefix| {
                now.around(&net(prefix))
                    .map(|(net, on)| (net, on.to_owned()))
            };
            let mg0 = |prefix| Some((net(prefix), "mg0".to_owned()));
            assert_eq!(around("10.5.0.128/25"), mg0("10.5.0.0/24"));
            assert_eq!(around("10.7.0.0/25"), None, "the tunnel's own network");
            assert!(around("10.7.0.1/32").is_some(), "but the address is ours");
            assert_eq!(now.routes.get(&net("10.6.0.0/16")), Some(&7));
            assert_eq!(now.routes.get(&net("10.8.0.0/16")), None);
            assert!(now.has(IpAddr::from([10, 5, 0, 1])));
        }

        host.ip("addr add fd00:5::1/64 dev mg0 nodad");
        host.ip("addr add 10.9.9.9/32 dev lo");
        until(&mut networks, "new addresses", |now| {
            now.around(&net("fd00:5::/80")) == Some((net("fd00:5::/64"), "mg0"))
                && now.own.contains_key(&net("fd00:5::1/128"))
                && now.own.contains_key(&net("10.9.9.9/32"))
        })
        .await;
        // As NetworkManager does it: the network is a route that comes after the address.
        host.ip("addr add 10.4.0.1/24 dev mg0 noprefixroute");
        host.ip("route add 10.4.0.0/24 dev mg0 proto kernel scope link src 10.4.0.1 metric 100");
        until(&mut networks, "a network with a metric", |now| {
            now.own.contains_key(&net("10.4.0.0/24"))
        })
        .await;
        host.ip("route add unreachable 10.6.6.0/24");
        until(&mut networks, "a new route", |now| {
            now.routes.contains_key(&net("10.6.6.0/24"))
        })
        .await;
        // The kernel announces no IPv4 routes of a device that goes down.
        host.ip("link set mg0 down");
        until(&mut networks, "nothing but what is left", |now| {
            now.around(&net("10.5.0.0/25")).is_none() && !now.own.contains_key(&net("10.4.0.0/24"))
        })
        .await;
    });
}
