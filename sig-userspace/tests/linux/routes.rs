//! Routes into the tunnel: there while wanted, also when somebody deletes them, and gone afterwards.

use std::time::Duration;

use crate::support::netns::{Netns, root_or_skip};
use ipnet::IpNet;
use sig_linux::netlink::Netlink;
use sig_linux::routes::{Route, Routes};
use sig_linux::tunnel_pair::{Owner, TunnelPair, TunnelPairConfig};
use sig_linux::watch::Watch;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

/// The main routing table.
const MAIN: u32 = 254;

async fn tunnel() -> (TunnelPair, Routes, Watch) {
    tunnel_in(MAIN).await
}

/// A tunnel device whose routes are in this table.
async fn tunnel_in(table: u32) -> (TunnelPair, Routes, Watch) {
    let config = TunnelPairConfig {
        name: "sig".into(),
        queues: 1,
        mtu: 1500,
        owner: Owner::Gateway,
    };
    let pair = TunnelPair::create(&config).await.unwrap();
    let watch = Watch::open().unwrap();
    let netlink = Netlink::open().unwrap();
    let routes = Routes::start(&netlink, &watch, pair.host().ifindex, table);
    (pair, routes, watch)
}

/// Waits without blocking the keeper, which runs on the same thread.
async fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..600 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("not within three seconds: {what}");
}

#[test]
fn routes_of_both_families_lead_into_the_tunnel_with_metric_15() {
    if !root_or_skip() {
        return;
    }
    let host = Netns::new("routes");
    host.ip("addr add 10.1.0.1/24 dev lo");
    host.block_on(async || {
        let (_pair, routes, _watch) = tunnel().await;
        let hinted = Route {
            prefix: net("10.2.0.0/16"),
            source_hint: Some("10.1.0.1".parse().unwrap()),
        };
        routes.add(hinted).await.unwrap();
        routes.add(net("fd02::/32").into()).await.unwrap();
        let v4 = host.ip("-4 route show 10.2.0.0/16");
        assert!(
            v4.contains("dev sig") && v4.contains("metric 15") && v4.contains("src 10.1.0.1"),
            "{v4}"
        );
        let v6 = host.ip("-6 route show fd02::/32");
        assert!(v6.contains("dev sig") && v6.contains("metric 15"), "{v6}");
        let way = host.ip("route get 10.2.3.4");
        assert!(way.contains("dev sig src 10.1.0.1"), "{way}");
        routes.remove(net("10.2.0.0/16")).await.unwrap();
        assert_eq!(host.ip("-4 route show 10.2.0.0/16"), "");
        assert!(host.ip("-6 route show fd02::/32").contains("sig"));
        routes.close().await.unwrap();
        assert_eq!(host.ip("-6 route show fd02::/32"), "");
    });
}

#[test]
fn adding_and_removing_twice_is_fine() {
    if !root_or_skip() {
        return;
    }
    let host = Netns::new("twice");
    host.block_on(async || {
        let (pair, routes, watch) = tunnel().await;
        let prefix = net("10.2.0.0/16");
        routes.add(prefix.into()).await.unwrap();
        routes.add(net("10.2.3.4/16").into()).await.unwrap();
        // A second keeper does not know of the first one's route, the kernel does.
        let other = Routes::start(&Netlink::open().unwrap(), &watch, pair.host().ifindex, MAIN);
        other.add(prefix.into()).await.unwrap();
        routes.remove(prefix).await.unwrap();
        routes.remove(prefix).await.unwrap();
    });
}

#[test]
fn a_changed_source_hint_replaces_the_route() {
    if !root_or_skip() {
        return;
    }
    let host = Netns::new("hint");
    host.ip("addr add 10.1.0.1/24 dev lo");
    host.block_on(async || {
        let (_pair, routes, _watch) = tunnel().await;
        let prefix = net("10.2.0.0/16");
        routes.add(prefix.into()).await.unwrap();
        routes
            .add(Route {
                prefix,
                source_hint: Some("10.1.0.1".parse().unwrap()),
            })
            .await
            .unwrap();
        let shown = host.ip("-4 route show 10.2.0.0/16");
        assert_eq!(shown.lines().count(), 1, "{shown}");
        assert!(shown.contains("src 10.1.0.1"), "{shown}");
        let foreign = Route {
            prefix: net("10.3.0.0/16"),
            source_hint: Some("192.0.2.1".parse().unwrap()),
        };
        let error = routes.add(foreign).await.unwrap_err().to_string();
        assert!(
            error.contains("192.0.2.1 is not an address of this host"),
            "{error}"
        );
    });
}

#[test]
fn somebody_elses_route_is_left_alone() {
    if !root_or_skip() {
        return;
    }
    let host = Netns::new("conflict");
    host.ip("route add 10.2.0.0/16 dev lo metric 15");
    host.ip("route add 10.3.0.0/16 dev lo metric 20");
    host.block_on(async || {
        let (_pair, routes, _watch) = tunnel().await;
        let error = routes
            .add(net("10.2.0.0/16").into())
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("another route to 10.2.0.0/16 with metric 15"),
            "{error}"
        );
        routes.add(net("10.3.0.0/16").into()).await.unwrap();
        routes.close().await.unwrap();
        assert!(host.ip("-4 route show 10.2.0.0/16").contains("dev lo"));
        assert!(host.ip("-4 route show 10.3.0.0/16").contains("dev lo"));
    });
}

#[test]
fn a_deleted_route_comes_back_and_a_removed_one_does_not() {
    if !root_or_skip() {
        return;
    }
    let host = Netns::new("restore");
    host.block_on(async || {
        let (_pair, routes, _watch) = tunnel().await;
        for prefix in ["10.2.0.0/16", "10.3.0.0/16", "fd02::/32"] {
            routes.add(net(prefix).into()).await.unwrap();
        }
        routes.remove(net("10.3.0.0/16")).await.unwrap();
        host.ip("-4 route del 10.2.0.0/16 dev sig");
        until("the IPv4 route is back", || {
            host.ip("-4 route show 10.2.0.0/16").contains("sig")
        })
        .await;
        host.ip("-6 route del fd02::/32 dev sig");
        until("the IPv6 route is back", || {
            host.ip("-6 route show fd02::/32").contains("sig")
        })
        .await;
        assert_eq!(host.ip("-4 route show 10.3.0.0/16"), "");
    });
}

#[test]
fn routes_come_back_after_the_device_was_down() {
    if !root_or_skip() {
        return;
    }
    let host = Netns::new("down");
    host.block_on(async || {
        let (_pair, routes, _watch) = tunnel().await;
        routes.add(net("10.2.0.0/16").into()).await.unwrap();
        routes.add(net("fd02::/32").into()).await.unwrap();
        host.ip("link set sig down");
        until("the kernel dropped them", || host.ip("-4 route").is_empty()).await;
        host.ip("link set sig up");
        until("both are back", || {
            host.ip("-4 route").contains("sig")
                && host.ip("-6 route show fd02::/32").contains("sig")
        })
        .await;
    });
}

#[test]
fn a_route_replaced_by_somebody_returns_when_the_replacement_goes() {
    if !root_or_skip() {
        return;
    }
    let host = Netns::new("replaced");
    host.block_on(async || {
        let (_pair, routes, _watch) = tunnel().await;
        routes.add(net("10.2.0.0/16").into()).await.unwrap();
        host.ip("route replace 10.2.0.0/16 dev lo metric 15");
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(
            host.ip("-4 route show 10.2.0.0/16").contains("dev lo"),
            "we do not fight an existing route"
        );
        host.ip("route del 10.2.0.0/16 dev lo metric 15");
        until("ours is back", || {
            host.ip("-4 route show 10.2.0.0/16").contains("sig")
        })
        .await;
    });
}

#[test]
fn a_set_of_routes_is_made_exactly_that() {
    if !root_or_skip() {
        return;
    }
    let host = Netns::new("set");
    host.block_on(async || {
        let (_pair, routes, _watch) = tunnel().await;
        let many: Vec<Route> = (0..=255u8)
            .map(|n| net(&format!("10.{n}.0.0/16")).into())
            .collect();
        routes.set(many.clone()).await.unwrap();
        assert_eq!(host.ip("-4 route show dev sig").lines().count(), 256);
        routes.set(many[..3].to_vec()).await.unwrap();
        assert_eq!(host.ip("-4 route show dev sig").lines().count(), 3);
        routes
            .set(vec![net("::/0").into(), net("0.0.0.0/0").into()])
            .await
            .unwrap();
        assert!(host.ip("-4 route").starts_with("default dev sig"));
        assert!(host.ip("-6 route").contains("default dev sig"));
        assert_eq!(host.ip("-4 route").lines().count(), 1);
    });
}

#[test]
fn routes_live_in_a_table_of_their_own_if_wanted() {
    if !root_or_skip() {
        return;
    }
    for table in [100, 70_000] {
        let host = Netns::new("table");
        host.block_on(async || {
            let (_pair, routes, _watch) = tunnel_in(table).await;
            let prefixes = ["10.2.0.0/16", "fd02::/32"];
            // Somebody else's route in the main table is not in the way.
            host.ip("route add 10.2.0.0/16 dev lo metric 15");
            let wanted = prefixes.map(|prefix| net(prefix).into()).to_vec();
            routes.set(wanted).await.unwrap();
            let shown = |prefix: &str| {
                let family = if prefix.contains(':') { 6 } else { 4 };
                host.ip(&format!("-{family} route show {prefix} table {table}"))
            };
            for prefix in prefixes {
                assert!(shown(prefix).contains("sig"), "{}", shown(prefix));
                let family = if prefix.contains(':') { 6 } else { 4 };
                let main = host.ip(&format!("-{family} route show {prefix}"));
                assert!(!main.contains("sig"), "{main}");
                host.ip(&format!(
                    "-{family} route del {prefix} dev sig table {table}"
                ));
                until("it is back", || shown(prefix).contains("sig")).await;
            }
            routes.close().await.unwrap();
            assert_eq!(prefixes.map(shown).concat(), "");
        });
    }
}

#[test]
fn a_refused_route_is_added_as_soon_as_the_kernel_takes_it() {
    if !root_or_skip() {
        return;
    }
    let host = Netns::new("refused");
    host.block_on(async || {
        let (_pair, routes, _watch) = tunnel().await;
        host.ip("route add 10.2.0.0/16 dev lo metric 15");
        let hinted = Route {
            prefix: net("10.3.0.0/16"),
            source_hint: Some("192.0.2.1".parse().unwrap()),
        };
        let wanted = vec![net("10.2.0.0/16").into(), hinted, net("10.4.0.0/16").into()];
        let error = routes.set(wanted).await.unwrap_err().to_string();
        assert!(error.contains("another route to 10.2.0.0/16"), "{error}");
        let shown = |prefix| host.ip(&format!("-4 route show {prefix} dev sig"));
        assert_ne!(shown("10.4.0.0/16"), "", "one refused route stops no other");
        assert_eq!(shown("10.2.0.0/16") + &shown("10.3.0.0/16"), "");

        host.ip("route del 10.2.0.0/16 dev lo metric 15");
        until("its place is free", || !shown("10.2.0.0/16").is_empty()).await;
        host.ip("address add 192.0.2.1/24 dev lo");
        until("its source hint is ours", || {
            shown("10.3.0.0/16").contains("src 192.0.2.1")
        })
        .await;
    });
}
