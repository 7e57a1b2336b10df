//! A hand-made status of a gateway that has much to tell, for tests.

use serde_json::json;

use sig_core::status::{
    Advertised, Contested, Control, Counters, Daemon, DiscoveredGateway, Drop, DropPlace, FastPath,
    Lan, LeftOut, Path, Port, PortMode, Probing, Protection, Queue, Refused, Remote, RemoteAs,
    Rule, SessionPolicy, Site, SiteClass, Status, Traffic, Underlay, Verdict, WatchedPath, Worker,
    srv6,
};
use sig_core::{
    dataplane::counters::WorkerCounts,
    peer::GatewayAddresses,
    port::{Counts, Role},
    scion::SocketCounts,
};

pub const NEAR: &str = "aa00000000000000111111111111111111111111111111111111111111111111";
pub const FAR: &str = "bb00000000000000222222222222222222222222222222222222222222222222";
pub const FORBIDDEN: &str = "cc00000000000000333333333333333333333333333333333333333333333333";

/// A gateway without any remote, that has just started.
pub fn idle() -> Status {
    Status {
        kind: Status::KIND.to_owned(),
        version: "0.1.0".to_owned(),
        id: "west".to_owned(),
        isd_as: "1-ff00:0:110".to_owned(),
        data_addr: "10.10.0.2:30056".parse().unwrap(),
        prefixes: vec![],
        uptime_ms: 61_500,
        reloads: 0,
        reloads_refused: 0,
        draining: false,
        workers: vec![],
        ports: vec![],
        underlay: Underlay::default(),
        fast_path: FastPath::default(),
        rules: vec![],
        chains: None,
        lan: Lan {
            neighbours: 0,
            helped: vec!["everything: no interface in `[dataplane] lan`".to_owned()],
            left_out: vec![],
        },
        remotes: vec![],
        control: None,
        counters: Counters::default(),
        queues: vec![],
        verdicts: vec![],
        drops: vec![],
    }
}

fn counts() -> WorkerCounts {
    WorkerCounts {
        packets_straight: 7,
        packets_via_helper: 2,
        frames_held: 2,
        gaps: 1,
        frames_late: 1,
        sleeps: 4,
        ..WorkerCounts::default()
    }
}

/// A gateway with one configured remote.
pub fn busy() -> Status {
    Status {
        prefixes: vec!["10.1.0.0/24".parse().unwrap()],
        uptime_ms: 200_000_000,
        workers: vec![Worker {
            number: 0,
            cpu: Some(2),
            rx_packets: 30,
            tx_packets: 20,
            counts: counts(),
        }],
        ports: vec![Port {
            role: Role::Underlay,
            interface: "eth0".to_owned(),
            trunk: None,
            driver: Some("veth".to_owned()),
            mode: PortMode::Native,
            zero_copy: false,
            queues: 1,
            mtu: 1500,
            up: false,
            rx_packets: 10,
            tx_packets: 5,
        }],
        underlay: Underlay {
            unchecked: None,
            refused: vec!["10.10.0.66".parse().unwrap()],
        },
        fast_path: FastPath {
            on: true,
            problems: vec!["eth1: packets to hosts behind it take the slower way".to_owned()],
            packets_sent: 12,
            packet_bytes_sent: 1200,
            packets_delivered: 5,
            packet_bytes_delivered: 500,
        },
        rules: vec![Rule {
            name: "web".to_owned(),
            class: "dstport=80-80".to_owned(),
            action: "chain".to_owned(),
            target: Some("inspect / -".to_owned()),
            packets_to_remotes: 8,
            packet_bytes_to_remotes: 800,
            packets_from_remotes: 0,
            packet_bytes_from_remotes: 0,
        }],
        chains: Some(srv6::Status {
            sids: vec![srv6::SidStatus {
                sid: "fd00:5::f".to_owned(),
                behavior: "End.AD4".to_owned(),
                target: "function firewall".to_owned(),
                packets: 8,
                bytes: 1440,
            }],
            policies: vec![srv6::PolicyStatus {
                name: "inspect".to_owned(),
                segments: vec!["fd00:5::f".to_owned(), "fd00:5::a".to_owned()],
                packets: 8,
                bytes: 800,
            }],
            functions: vec![srv6::FunctionStatus {
                name: "firewall".to_owned(),
                is_up: true,
                why_down: None,
                on_failure: "drop".to_owned(),
                packets_returned: 7,
                header_changes: 0,
            }],
            refused: vec![("function_down".to_owned(), 1)],
            ..srv6::Status::default()
        }),
        lan: Lan {
            neighbours: 3,
            helped: vec![],
            left_out: vec![LeftOut {
                interface: "eth2".to_owned(),
                reason: "there is no such interface".to_owned(),
            }],
        },
        remotes: vec![Remote {
            isd_as: "1-ff00:0:111".to_owned(),
            gateway: "10.11.0.2:30056".parse().unwrap(),
            session: 0,
            policy_id: 0,
            probing: None,
            prefixes: vec!["10.2.0.0/24".parse().unwrap()],
            paths: vec![Path {
                name: "0".to_owned(),
                fingerprint: NEAR.to_owned(),
                next_hop: "10.10.0.1:30042".parse().unwrap(),
                problem: None,
                expires_at: Some(1_700_021_600),
                expired: false,
                next_hop_mac: None,
                mtu: 1472,
                streams: vec![77],
                frames_sent: 5,
                bytes_sent: 5000,
                packets_sent: 20,
            }],
            frames_received: 10,
            frame_bytes_received: 1060,
            packets_received: 9,
            packet_bytes_received: 900,
            sent: Traffic {
                frames: 5,
                frame_bytes: 2080,
                packets: 20,
                packet_bytes: 2000,
            },
        }],
        counters: Counters {
            packets_sent: 20,
            packet_bytes_sent: 2000,
            frames_sent: 5,
            frame_bytes_sent: 2080,
            frames_received: 10,
            frame_bytes_received: 1060,
            packets_received: 9,
            packet_bytes_received: 900,
            counts: counts(),
        },
        queues: vec![
            Queue {
                worker: 0,
                role: Role::Underlay,
                interface: "eth0".to_owned(),
                queue: 0,
                counts: Counts {
                    rx_packets: 10,
                    tx_packets: 5,
                    wakeups: 6,
                    ..Counts::default()
                },
                rx_ring_full: 1,
                fill_ring_empty: 2,
                rx_refused: 3,
                rx_invalid_descriptors: 4,
                tx_invalid_descriptors: 5,
            },
            Queue {
                worker: 1,
                role: Role::Tunnel,
                interface: "sig".to_owned(),
                queue: 1,
                counts: Counts {
                    rx_packets: 20,
                    tx_packets: 2,
                    wakeups: 3,
                    ..Counts::default()
                },
                rx_ring_full: 0,
                fill_ring_empty: 0,
                rx_refused: 0,
                rx_invalid_descriptors: 0,
                tx_invalid_descriptors: 7,
            },
        ],
        verdicts: vec![
            Verdict {
                name: "underlay_redirected".to_owned(),
                packets: 10,
            },
            Verdict {
                name: "lan_no_socket".to_owned(),
                packets: 1,
            },
        ],
        drops: vec![
            Drop {
                reason: "unknown_remote".to_owned(),
                place: DropPlace::Kernel,
                count: 3,
            },
            // Told in two parts.
            Drop {
                reason: "no_route".to_owned(),
                place: DropPlace::Engine,
                count: 4,
            },
            Drop {
                reason: "no_route".to_owned(),
                place: DropPlace::Engine,
                count: 1,
            },
            Drop {
                reason: "frame_duplicate".to_owned(),
                place: DropPlace::Engine,
                count: 8,
            },
        ],
        ..idle()
    }
}

/// A gateway whose control plane found two remote ASes, of which one does not answer.
pub fn found() -> Status {
    let mut status = busy();
    status.remotes[0].probing = Some(Probing {
        healthy: true,
        probes: 100,
        replies: 98,
        state_changes: 1,
        path_changes: 2,
        paths_alive: 1,
        paths_timeout: 1,
        paths_rejected: 1,
    });
    status.remotes.push(Remote {
        session: 1,
        policy_id: 1,
        probing: Some(Probing {
            probes: 7,
            ..Probing::default()
        }),
        paths: vec![],
        sent: Traffic::default(),
        frames_received: 0,
        frame_bytes_received: 0,
        packets_received: 0,
        packet_bytes_received: 0,
        ..status.remotes[0].clone()
    });
    status.control = Some(control());
    (status.reloads, status.reloads_refused) = (2, 1);
    status.draining = true;
    status
}

fn control() -> Control {
    Control {
        daemon: Daemon {
            address: "127.0.0.1:30255".to_owned(),
            reachable: true,
            problem: None,
            requests: 50,
            failures: 1,
            paths_skipped: 2,
        },
        ctrl_addr: "10.10.0.2:30256".to_owned(),
        probe_addr: "10.10.0.2:30856".to_owned(),
        endhost_port: "own".to_owned(),
        identity: "ed25519:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=".to_owned(),
        advertised: vec![Advertised {
            isd_as: "1-ff00:0:111".to_owned(),
            prefixes: vec!["10.1.0.0/24".parse().unwrap()],
            requests: 12,
        }],
        routing_policy: "advertise    1-ff00:0:110    1-ff00:0:111    10.1.0.0/24\n\
                         advertise    1-ff00:0:110    0-0             !10.9.0.0/24\n\
                         accept       1-ff00:0:111    1-ff00:0:110    10.2.0.0/16    # site B\n"
            .to_owned(),
        policies: vec![
            SessionPolicy {
                isd_as: "1-ff00:0:111".to_owned(),
                id: 0,
                traffic_matcher: json!(true),
                path_policy: json!({"acl": ["- 1-ff00:0:113", "+"]}),
                perf_policy: json!(null),
                path_count: 1,
                prefixes: vec![],
            },
            SessionPolicy {
                isd_as: "1-ff00:0:111".to_owned(),
                id: 1,
                traffic_matcher: json!({"CondIPv4": {"MatchDSCP": {"DSCP": "0x2e"}}}),
                path_policy: json!(null),
                perf_policy: json!(null),
                path_count: 2,
                prefixes: vec!["10.2.7.0/24".parse().unwrap()],
            },
        ],
        ases: vec![near_as(), silent_as()],
        sites: vec![Site {
            isd_as: "1-ff00:0:111".to_owned(),
            prefixes: vec![
                "10.2.0.0/24".parse().unwrap(),
                "fd00:2::/64".parse().unwrap(),
            ],
            exported: true,
            classes: vec![
                SiteClass {
                    id: 1,
                    condition: "dscp=0x2e".to_owned(),
                    sessions: vec![1],
                    current: None,
                    alive: 0,
                    session_changes: 0,
                    state_changes: 0,
                },
                SiteClass {
                    id: 2,
                    condition: "BOOL=true".to_owned(),
                    sessions: vec![0, 1],
                    current: Some(0),
                    alive: 1,
                    session_changes: 3,
                    state_changes: 1,
                },
            ],
        }],
        contested: vec![Contested {
            prefix: "10.2.0.0/24".parse().unwrap(),
            isd_as: "1-ff00:0:111".to_owned(),
            others: vec!["2-ff00:0:220".to_owned()],
        }],
        sockets: SocketCounts {
            listens: 6,
            closes: 4,
            dials: 2,
            read_packets: 213,
            read_bytes: 60_485,
            written_packets: 214,
            written_bytes: 62_241,
            parse_errors: 2,
            scmp_errors: 3,
            overflows: 4,
            strays: 5,
            forged: 3,
            ..SocketCounts::default()
        },
        refused: vec![Refused {
            isd_as: "1-ff00:0:111".to_owned(),
            reason: "default_route".to_owned(),
            count: 2,
        }],
    }
}

fn near_as() -> RemoteAs {
    let path = |fingerprint: &str, hops: &str| WatchedPath {
        fingerprint: fingerprint.to_owned(),
        text: format!("Hops: [{hops}] MTU: 1472 NextHop: 10.10.0.1:30042"),
        mtu: 1472,
        expires_at: Some(1_795_304_658),
        alive: true,
        revoked: false,
        latency_us: Some(12_345),
        jitter_us: Some(678),
        loss_ppm: Some(2_500),
        used_by: vec![0],
        rejected_by: vec![],
    };
    RemoteAs {
        isd_as: "1-ff00:0:111".to_owned(),
        static_prefixes: vec!["10.2.7.0/24".parse().unwrap()],
        gateways: vec![DiscoveredGateway {
            addresses: GatewayAddresses {
                control: "10.11.0.2:30256".parse().unwrap(),
                data: "10.11.0.2:30056".parse().unwrap(),
                probe: "10.11.0.2:30856".parse().unwrap(),
                allow_interfaces: vec![],
            },
            accepted: vec![
                "10.2.0.0/24".parse().unwrap(),
                "fd00:2::/64".parse().unwrap(),
            ],
            prefixes_accepted: 2,
            prefixes_rejected: 1,
            fetched_ms_ago: Some(1_500),
            fetched_at: Some(1_795_283_079),
            fetch_problem: None,
            fetch_errors: 4,
            protection: Protection {
                mode: "auto".to_owned(),
                pinned: true,
                identity: THEIR_IDENTITY.to_owned(),
                sends: true,
                receives: true,
                strict: true,
                key_age_s: Some(321),
                problem: String::new(),
            },
        }],
        discovered_ms_ago: Some(2_500),
        discovery_problem: None,
        discovery_errors: 1,
        gateway_changes: 1,
        paths: vec![
            WatchedPath {
                alive: false,
                latency_us: None,
                jitter_us: None,
                loss_ppm: Some(1_000_000),
                used_by: vec![],
                ..path(FAR, "1-ff00:0:110 2>1 1-ff00:0:112 2>3 1-ff00:0:111")
            },
            path(NEAR, "1-ff00:0:110 1>41 1-ff00:0:111"),
            WatchedPath {
                used_by: vec![],
                rejected_by: vec![0],
                revoked: true,
                ..path(FORBIDDEN, "1-ff00:0:110 3>1 1-ff00:0:113 2>4 1-ff00:0:111")
            },
        ],
        probes_sent: 470,
        probes_received: 460,
        probe_send_errors: 1,
        paths_problem: None,
        fetch_errors: 5,
    }
}

fn silent_as() -> RemoteAs {
    RemoteAs {
        isd_as: "2-ff00:0:220".to_owned(),
        discovery_problem: Some("no path to it".to_owned()),
        discovery_errors: 9,
        paths_problem: Some("the daemon knows no path".to_owned()),
        ..RemoteAs::default()
    }
}

const THEIR_IDENTITY: &str = "ed25519:Hx4dHBsaGRgXFhUUExIREA8ODQwLCgkIBwYFBAMCAQA=";
