//! A gateway that is given other plans while packets cross it.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::bed::Bed;
use sig::config;
use sig::internals::host::{Host, HostHandle};
use sig::internals::plan::{Action, Gateway, Plan, Rule, Session, SessionKey, Site};
use sig_core::policy::class::Condition;
use sig_core::status::{Remote, Status};
use testbed::{Family, Network, Options};

/// Starts gateway A within this process and lets `test` change it.
fn with_gateway_a(network: &Network, test: impl AsyncFnOnce(&Host, Plan) + Send) {
    let config = config::load(&network.a.config_file()).expect("a valid configuration");
    let run = || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let plan = Plan::from_config(&config);
            let host = Host::start(config).await.expect("it starts");
            host.ready().await;
            test(&host, plan).await;
            host.stop().await.expect("it stops");
        });
    };
    network.a.gateway.run(run).expect("the namespace");
}

/// Adds a remote of the same AS, behind the same router, with a prefix of its own.
fn add_remote(plan: &mut Plan, number: u8) {
    let (gateway, session) = (plan.gateways.len(), plan.sessions.len());
    let data_addr = format!("10.11.0.{}:30056", 100 + number)
        .parse()
        .expect("an address");
    plan.gateways.push(Gateway {
        isd_as: plan.gateways[0].isd_as,
        host: std::net::SocketAddr::ip(&data_addr),
        accepted: Vec::new(),
        keyring: None,
        is_strict: false,
    });
    plan.sessions.push(Session {
        key: SessionKey(100 + u64::from(number)),
        gateway,
        data_addr,
        ..plan.sessions[0].clone()
    });
    plan.sites.push(Site {
        prefixes: vec![format!("10.77.{number}.0/24").parse().expect("a prefix")],
        rules: vec![Rule {
            condition: Arc::new(Condition::ALWAYS),
            action: Action::Session(session),
        }],
        ..plan.sites[0].clone()
    });
}

/// The session that the configuration names.
fn first(status: &Status) -> Remote {
    let gateway = "10.11.0.2:30056".parse().expect("an address");
    let mut remotes = status.remotes.iter();
    let first = remotes.find(|remote| remote.gateway == gateway);
    first.expect("it stays in every plan").clone()
}

async fn apply(handle: &HostHandle, plan: &Plan) -> Status {
    handle.apply(plan.clone()).await.expect("it takes effect");
    handle.settle().await;
    handle.status()
}

#[test]
fn remotes_that_come_and_go_cost_the_others_no_packet() {
    let mut bed = Bed::new(&Options::default());
    bed.network.b.spawn_gateway().expect("it starts");
    bed.network.b.wait_ready().expect("it is ready");
    let network = &bed.network;
    with_gateway_a(network, async |host, plan| {
        let handle = host.handle();
        let to = network.b.client_ip(Family::V4);
        let route = |prefix: &str| {
            let shown = network.a.gateway.exec(&format!("ip route show {prefix}"));
            shown.expect("`ip route`")
        };
        let before = first(&handle.status());
        let ping = thread::scope(|scope| {
            let pinging = scope.spawn(|| {
                testbed::ping(&network.a.client, to, 1500, 500, Duration::from_millis(2))
            });
            let changes = async {
                for round in 0..20u8 {
                    let mut more = plan.clone();
                    for number in 0..=round {
                        add_remote(&mut more, number);
                    }
                    let status = apply(&handle, &more).await;
                    assert_eq!(status.remotes.len(), usize::from(round) + 2);
                    assert!(route(&format!("10.77.{round}.0/24")).contains("dev sig"));
                    more.sites.last_mut().expect("a site").exported = false;
                    apply(&handle, &more).await;
                    assert_eq!(route(&format!("10.77.{round}.0/24")), "");
                    let status = apply(&handle, &plan).await;
                    assert_eq!(status.remotes.len(), 1);
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            };
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(changes));
            pinging.join().expect("ping").expect("ping")
        });
        assert_eq!(ping.received, ping.sent, "{:#?}", handle.status());
        let after = first(&handle.status());
        assert_eq!(before.paths[0].streams, after.paths[0].streams);
        assert!(after.sent.packets >= 1500, "{after:#?}");
    });
}

#[test]
fn a_session_changes_its_paths_without_losing_a_packet() {
    let mut bed = Bed::new(&Options::default());
    bed.network.b.spawn_gateway().expect("it starts");
    bed.network.b.wait_ready().expect("it is ready");
    let network = &bed.network;
    with_gateway_a(network, async |host, plan| {
        let handle = host.handle();
        let to = network.b.client_ip(Family::V6);
        let mut sent = 0;
        let ping = thread::scope(|scope| {
            let pinging = scope.spawn(|| {
                testbed::ping(&network.a.client, to, 1000, 500, Duration::from_millis(2))
            });
            let changes = async {
                for port in 0..20u16 {
                    let mut other = plan.clone();
                    let paths = &mut other.sessions[0].paths;
                    let mut path = paths[0].clone();
                    path.source_port = 40000 + port;
                    path.name = port.to_string();
                    paths.push(path);
                    let status = apply(&handle, &other).await;
                    let usable = |path: &&sig_core::status::Path| path.problem.is_none();
                    assert_eq!(first(&status).paths.iter().filter(usable).count(), 2);
                    tokio::time::sleep(Duration::from_millis(40)).await;
                    other.sessions[0].paths.remove(usize::from(port % 2));
                    let status = apply(&handle, &other).await;
                    assert!(first(&status).sent.packets >= sent);
                    sent = first(&status).sent.packets;
                    tokio::time::sleep(Duration::from_millis(40)).await;
                }
            };
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(changes));
            pinging.join().expect("ping").expect("ping")
        });
        assert_eq!(ping.received, ping.sent, "{:#?}", handle.status());
    });
}

#[test]
fn prefixes_that_would_capture_the_gateways_own_traffic_get_no_route() {
    let mut bed = Bed::new(&Options::default());
    bed.network.b.spawn_gateway().expect("it starts");
    bed.network.b.wait_ready().expect("it is ready");
    let network = &bed.network;
    with_gateway_a(network, async |host, mut plan| {
        let underlay = ["10.10.0.0/24", "10.10.0.1/32"];
        let mut dangerous = underlay.map(|prefix| prefix.parse().expect("a prefix"));
        plan.sites[0].prefixes.append(&mut dangerous.to_vec());
        dangerous[0] = "192.168.0.0/16".parse().expect("a prefix");
        plan.sites[0].prefixes.push(dangerous[0]);
        apply(&host.handle(), &plan).await;
        let routes = network.a.gateway.exec("ip route").expect("`ip route`");
        let tunnelled: Vec<&str> = routes.lines().filter(|l| l.contains("dev sig")).collect();
        let starts = |prefix: &str| tunnelled.iter().any(|line| line.starts_with(prefix));
        assert!(
            starts("192.168.0.0/16") && starts("192.168.11.0/24"),
            "{routes}"
        );
        assert!(!starts("10.10.0."), "{routes}");
        // The LAN within the wide prefix stays at home, and the tunnel works.
        crate::bed::assert_pings_of(network, network.a.gateway_ip(Family::V4), 20);
        crate::bed::assert_pings_of(network, network.b.client_ip(Family::V4), 20);
    });
}
