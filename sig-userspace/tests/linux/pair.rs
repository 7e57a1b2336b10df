//! The inner veth pair: as the engine needs it, and gone with its process.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::netns::{Netns, root_or_skip, wait_until};
use sig_core::port::Role;
use sig_linux::af_xdp::{HugePages, Opened, Plan, PortSpec, RingSizes, ZeroCopy};
use sig_linux::bpf::{Attachment, Logging, Program, Programs, TcAttachment};
use sig_linux::ethtool::{Ethtool, Offload};
use sig_linux::netns::run_in;
use sig_linux::routes::{Route, Routes};
use sig_linux::tunnel_pair::{Owner, PEER_NAME, TunnelPair, TunnelPairConfig};
use sig_linux::watch::Watch;
use sig_linux::{link, netlink::Netlink};

const CHILD_NETNS: &str = "SIG_TEST_PAIR_HOLDER_NETNS";

fn config() -> TunnelPairConfig {
    TunnelPairConfig {
        name: "sig".into(),
        queues: 2,
        mtu: 1500,
        owner: Owner::Gateway,
    }
}

#[test]
fn the_pair_has_the_queues_mtu_flags_and_offloads_that_the_engine_needs() {
    if !root_or_skip() {
        return;
    }
    let host = Netns::new("pair");
    host.block_on(async || {
        let pair = TunnelPair::create(&config()).await.unwrap();
        let inside = pair.netns().netlink().unwrap();
        let sig = link::by_name(&Netlink::open().unwrap(), "sig")
            .await
            .unwrap();
        let peer = link::by_name(&inside, PEER_NAME).await.unwrap();
        for link in [&sig, &peer] {
            assert!(link.up && link.carrier && link.noarp, "{link:?}");
            assert_eq!(link.mtu, 1500);
            assert_eq!(link.tx_queue_len, 1000);
            assert_eq!(link.kind.as_deref(), Some("veth"));
            assert_eq!(
                link.addresses,
                [],
                "nobody gave it an address, the kernel must not either"
            );
            assert!(link.peer_elsewhere);
        }
        assert_eq!((sig.rx_queues, sig.tx_queues), (2, 2));
        assert_eq!(
            (sig.ifindex, sig.mac),
            (pair.host().ifindex, Some(pair.host().mac))
        );
        assert_eq!(
            (peer.ifindex, peer.mac),
            (pair.peer().ifindex, Some(pair.peer().mac))
        );
        for offload in Offload::ALL {
            let word = offload.keyword();
            assert!(
                !Ethtool::open().unwrap().offload("sig", offload).unwrap(),
                "{word} is on on sig"
            );
            let peers = run_in(pair.netns(), || {
                Ethtool::open()
                    .unwrap()
                    .offload(PEER_NAME, offload)
                    .unwrap()
            });
            assert!(!peers.unwrap(), "{word} is on on the peer");
        }
        let peer_queues = run_in(pair.netns(), || {
            Ethtool::open().unwrap().channels(PEER_NAME).unwrap()
        })
        .unwrap();
        assert_eq!((peer_queues.rx, peer_queues.tx), (2, 2));
        pair.delete().await.unwrap();
    });
}

#[test]
fn the_device_forwards_both_families_and_says_nothing_by_itself() {
    if !root_or_skip() {
        return;
    }
    let host = Netns::new("sysctl");
    host.block_on(async || {
        let _pair = TunnelPair::create(&config()).await.unwrap();
        let read = |name: &str| {
            std::fs::read_to_string(format!("/proc/sys/net/{name}"))
                .unwrap()
                .trim()
                .to_owned()
        };
        for (name, value) in [
            ("ipv4/conf/sig/forwarding", "1"),
            ("ipv4/conf/sig/accept_local", "1"),
            ("ipv4/conf/sig/rp_filter", "0"),
            ("ipv4/conf/sig/send_redirects", "0"),
            ("ipv6/conf/sig/forwarding", "1"),
            ("ipv6/conf/sig/addr_gen_mode", "1"),
            ("ipv6/conf/sig/accept_ra", "0"),
            ("ipv6/conf/sig/disable_ipv6", "0"),
        ] {
            assert_eq!(read(name), value, "{name}");
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        let statistics = host.ip("-s -j link show dev sig");
        assert!(
            statistics.contains(r#""rx":{"bytes":0,"packets":0"#),
            "the peer spoke: {statistics}"
        );
    });
}

#[test]
fn deleting_the_pair_leaves_nothing_and_the_name_is_free_at_once() {
    if !root_or_skip() {
        return;
    }
    let host = Netns::new("delete");
    host.block_on(async || {
        for _ in 0..3 {
            let pair = TunnelPair::create(&config()).await.unwrap();
            pair.delete().await.unwrap();
            assert_eq!(host.interfaces(), Vec::<String>::new());
        }
    });
}

#[test]
fn dropping_the_pair_without_delete_removes_it_too() {
    if !root_or_skip() {
        return;
    }
    let host = Netns::new("drop");
    host.block_on(async || drop(TunnelPair::create(&config()).await.unwrap()));
    let took = wait_until("the pair is gone", Duration::from_secs(3), || {
        host.interfaces().is_empty()
    });
    eprintln!("a dropped pair was gone after {took:?}");
}

#[test]
fn a_foreign_device_of_the_same_name_is_left_alone_and_named_in_the_error() {
    if !root_or_skip() {
        return;
    }
    let host = Netns::new("foreign");
    host.ip("link add sig type veth peer name other");
    let error =
        host.block_on(async || TunnelPair::create(&config()).await.unwrap_err().to_string());
    assert!(
        error.contains("interface sig exists and does not belong to a gateway (veth)"),
        "{error}"
    );
    assert_eq!(host.interfaces().len(), 2);
}

#[test]
fn a_second_gateway_with_the_same_name_is_refused() {
    if !root_or_skip() {
        return;
    }
    let host = Netns::new("second");
    host.block_on(async || {
        let first = TunnelPair::create(&config()).await.unwrap();
        let start = Instant::now();
        let error = TunnelPair::create(&config()).await.unwrap_err().to_string();
        assert!(error.contains("belongs to a gateway that runs"), "{error}");
        assert!(
            error.contains(&format!("process {}", std::process::id())),
            "{error}"
        );
        assert!(start.elapsed() < Duration::from_secs(5));
        assert_eq!(host.interfaces(), ["sig"]);
        first.delete().await.unwrap();
    });
}

#[test]
fn the_pair_of_an_accelerator_says_so_and_gives_each_flow_a_cpu() {
    if !root_or_skip() {
        return;
    }
    let host = Netns::new("accelerator");
    host.block_on(async || {
        let config = TunnelPairConfig {
            owner: Owner::Accelerator,
            ..config()
        };
        let pair = TunnelPair::create(&config).await.unwrap();
        let link = link::by_name(&Netlink::open().unwrap(), "sig")
            .await
            .unwrap();
        let alias = link.alias.unwrap();
        assert!(alias.starts_with("SCION-IP accelerator"), "{alias}");
        let error = TunnelPair::create(&config).await.unwrap_err().to_string();
        assert!(error.contains("stop the accelerator"), "{error}");
        // New devices take it over; what they have is only seen through a mount of the namespace.
        let path = "/proc/sys/net/core/rps_default_mask";
        let mask = run_in(pair.netns(), || std::fs::read_to_string(path));
        if let Ok(mask) = mask.unwrap() {
            assert!(mask.trim().chars().any(|c| c != '0' && c != ','), "{mask}");
        }
    });
}

#[test]
fn unusable_settings_are_refused_with_a_remedy() {
    if !root_or_skip() {
        return;
    }
    let host = Netns::new("refused");
    for (config, word) in [
        (
            TunnelPairConfig {
                name: "seventeen-letters".into(),
                ..config()
            },
            "name of an interface",
        ),
        (
            TunnelPairConfig {
                name: "a/b".into(),
                ..config()
            },
            "name of an interface",
        ),
        (
            TunnelPairConfig {
                name: String::new(),
                ..config()
            },
            "name of an interface",
        ),
        (
            TunnelPairConfig {
                mtu: 9217,
                ..config()
            },
            "9216",
        ),
        (
            TunnelPairConfig {
                mtu: 576,
                ..config()
            },
            "1280",
        ),
        (
            TunnelPairConfig {
                queues: 0,
                ..config()
            },
            "queues",
        ),
    ] {
        let error =
            host.block_on(async || TunnelPair::create(&config).await.unwrap_err().to_string());
        assert!(error.contains(word), "{error}");
    }
    assert_eq!(host.interfaces(), Vec::<String>::new());
}

/// A pair as a running gateway has it: programs attached at both ends, AF_XDP sockets on every queue, routes.
struct Running {
    pair: TunnelPair,
    /// How long the pair took
    created: Duration,
    _inject: TcAttachment,
    _inner: Attachment,
    _opened: Opened,
    _programs: Programs,
    _routes: Routes,
    _watch: Watch,
}

impl Running {
    async fn start() -> Self {
        let start = Instant::now();
        let pair = TunnelPair::create(&config()).await.unwrap();
        let created = start.elapsed();
        let watch = Watch::open().unwrap();
        let routes = Routes::start(&Netlink::open().unwrap(), &watch, pair.host().ifindex, 254);
        for prefix in ["10.9.0.0/16", "fd09::/32"] {
            routes
                .add(Route::from(prefix.parse::<ipnet::IpNet>().unwrap()))
                .await
                .unwrap();
        }
        let mut programs = Programs::load(Logging::Off).unwrap();
        let inject = programs.attach_inject(pair.host().ifindex).unwrap();
        let inner = run_in(pair.netns(), || {
            programs.attach_xdp(Program::Tunnel, pair.peer().ifindex, None)
        })
        .unwrap()
        .unwrap();
        let plan = Plan {
            workers: 2,
            ports: vec![PortSpec {
                role: Role::Tunnel,
                interface: pair.peer().name.clone(),
                ifindex: None,
                namespace: Some(pair.netns()),
                queues: 2,
                spread: false,
                zero_copy: ZeroCopy::Auto,
                tag: None,
            }],
            rings: RingSizes::default(),
            chunks: None,
            jumbo: false,
            huge_pages: HugePages::Auto,
            later: Vec::new(),
            spare_sockets: 0,
            busy_poll: None,
        };
        let opened = plan.open().unwrap();
        Self {
            pair,
            created,
            _inject: inject,
            _inner: inner,
            _opened: opened,
            _programs: programs,
            _routes: routes,
            _watch: watch,
        }
    }
}

/// Not a test: the process that [`spawn_holder`] starts and the tests kill.
#[test]
#[ignore = "started by other tests"]
fn pair_holder() {
    let Ok(path) = std::env::var(CHILD_NETNS) else {
        return;
    };
    let netns = std::fs::File::open(path).unwrap();
    run_in(&netns, || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let _running = Running::start().await;
            eprintln!("holding");
            std::future::pending::<()>().await;
        });
    })
    .unwrap();
}

/// A process that holds a pair with routes in `netns`, ready.
fn spawn_holder(netns: &Netns) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "pair::pair_holder", "--ignored", "--nocapture"])
        .env(CHILD_NETNS, netns.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut said = Vec::new();
    for line in lines {
        let line = line.unwrap();
        if line.contains("holding") {
            return child;
        }
        said.push(line);
    }
    child.wait().unwrap();
    panic!("the holder ended early: {}", said.join("\n"));
}

#[test]
fn kill_9_removes_the_pair_and_its_routes() {
    if !root_or_skip() {
        return;
    }
    let host = Netns::new("kill9");
    let mut child = spawn_holder(&host);
    assert_eq!(host.interfaces(), ["sig"]);
    assert!(host.ip("route").contains("10.9.0.0/16 dev sig"));
    assert!(host.ip("-6 route").contains("fd09::/32 dev sig"));
    child.kill().unwrap();
    child.wait().unwrap();
    let took = wait_until(
        "the killed process's pair is gone",
        Duration::from_secs(3),
        || {
            host.interfaces().is_empty()
                && host.ip("route").is_empty()
                && !host.ip("-6 route").contains("sig")
        },
    );
    eprintln!("after kill -9 the pair and its routes were gone within {took:?}");
}

#[test]
fn a_restart_right_after_kill_9_succeeds() {
    if !root_or_skip() {
        return;
    }
    let host = Netns::new("restart");
    for _ in 0..5 {
        let mut child = spawn_holder(&host);
        child.kill().unwrap();
        child.wait().unwrap();
        let start = Instant::now();
        let (created, running) = host.block_on(async || {
            let running = Running::start().await;
            let times = (running.created, start.elapsed());
            running.pair.delete().await.unwrap();
            times
        });
        eprintln!("the next pair was there {created:?} after the kill, the rest {running:?}");
        assert!(created < Duration::from_secs(2), "{created:?}");
    }
}
