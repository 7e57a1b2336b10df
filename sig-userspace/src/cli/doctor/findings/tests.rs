//! Made-up hosts.

use std::net::IpAddr;

use rtnetlink::packet_route::route::RouteType;
use sig_common::wire::ethernet::{TPID_8021Q, Tag};

use super::*;
use crate::control::config::{SAMPLE, TunnelDevice, UnderlayPort, check};
use sig_linux::ethtool::Offload;
use sig_linux::facts::{Cpus, Interface, Kernel, Memory, Privileges, Settings};
use sig_linux::link::Link;
use sig_linux::neighbours::{Reason, RouteLookup};
use sig_linux::netdev::XdpFeatures;
use sig_linux::netfilter::Bypassed;
use sig_linux::suited::VlanTags;

fn link(name: &str, ifindex: u32) -> Link {
    Link {
        name: name.into(),
        ifindex,
        mac: Some([2, 0, 0, 0, 0, 1]),
        mtu: 1500,
        max_mtu: 0,
        up: true,
        carrier: true,
        oper_state: "up".into(),
        noarp: false,
        loopback: false,
        tx_queue_len: 1000,
        rx_queues: 1,
        tx_queues: 1,
        driver: Some("ice".into()),
        kind: None,
        ..Link::default()
    }
}

fn interface(link: Link) -> Interface {
    Interface {
        link,
        xdp: Some(XdpFeatures::from_bits(0x2b)),
        offloads: Vec::new(),
        vlan_tags: VlanTags::Seen,
        ipv4_forwarding: Some(1),
        ipv6_forwarding: Some(1),
    }
}

/// A host on which the sample configuration runs without a remark.
fn good_host() -> Facts {
    let mut underlay = link("eth0", 2);
    underlay.addresses.push("10.10.0.2/24".parse().unwrap());
    let on_link = RouteLookup {
        kind: RouteType::Unicast,
        ifindex: Some(2),
        gateway: None,
        source: Some("10.10.0.2".parse().unwrap()),
        mtu: None,
    };
    Facts {
        // Five hours before the path of the tests expires.
        time: 1_711_276_032 + 3600,
        kernel: Kernel {
            release: "6.18.44".into(),
            version: Some((6, 18)),
            bpf: Feature::Present,
            af_xdp: Feature::Present,
            btf: true,
            no_tun: None,
        },
        privileges: Privileges {
            capabilities: u64::MAX,
            memlock: Some(8 << 20),
        },
        cpus: Cpus {
            allowed: vec![0, 1, 2, 3],
            isolated: String::new(),
        },
        memory: Memory {
            available: 4 << 30,
            huge_pages_free: 1000,
        },
        settings: Settings {
            ipv4_forwarding: Some(1),
            ipv6_forwarding: Some(1),
            rp_filter: Some(0),
        },
        interfaces: vec![interface(underlay), interface(link("eth1", 3))],
        routes: vec![("10.10.0.1".parse().unwrap(), Ok(on_link))],
        bypassed: Vec::new(),
        running: None,
    }
}

fn sample() -> Config {
    check(SAMPLE, "sample.toml", &|_| {
        Err(std::io::ErrorKind::NotFound.into())
    })
    .unwrap()
}

/// All that is not good, one line each.
fn complaints(facts: &Facts, config: Option<&Config>) -> Vec<String> {
    findings(facts, config)
        .into_iter()
        .filter(|finding| finding.level != Level::Good)
        .map(|finding| {
            assert!(
                finding.remedy.is_some(),
                "a complaint without remedy: {finding:?}"
            );
            format!(
                "{:?} {}: {} → {}",
                finding.level,
                finding.area,
                finding.text,
                finding.remedy.unwrap_or_default()
            )
        })
        .collect()
}

#[track_caller]
fn complains(facts: &Facts, config: Option<&Config>, level: &str, words: &[&str]) {
    let all = complaints(facts, config);
    assert!(
        all.iter()
            .any(|line| line.starts_with(level) && words.iter().all(|word| line.contains(word))),
        "no {level} finding with {words:?} among {all:#?}"
    );
}

#[test]
fn a_good_host_gives_no_complaint_with_and_without_configuration() {
    assert_eq!(complaints(&good_host(), None), Vec::<String>::new());
    assert_eq!(
        complaints(&good_host(), Some(&sample())),
        Vec::<String>::new()
    );
}

#[test]
fn an_old_kernel_is_bad() {
    let mut host = good_host();
    host.kernel.version = Some((5, 15));
    let words = ["too old", "6.1 is the oldest", "6.12, 6.18 and 7.3"];
    complains(&host, None, "Bad", &words);
    host.kernel.version = None;
    complains(&host, None, "Warning", &["version", "6.1 or newer"]);
}

#[test]
fn the_documentation_names_the_same_kernels() {
    for text in [
        include_str!("../../../../../README.md"),
        include_str!("../../../../../docs/operations.md"),
    ] {
        let (major, minor) = OLDEST_KERNEL;
        assert!(text.contains(&format!("Linux {major}.{minor} or newer")));
        assert!(text.contains(TESTED_KERNELS));
    }
}

/// A gateway with a remote in its file, whose path expires at 0x66000000 and 6 h.
fn with_remote() -> Config {
    let text = r#"
        [gateway]
        isd_as = "1-ff00:0:110"
        data_addr = "10.10.0.2"
        prefixes = ["192.168.10.0/24"]
        [[remote]]
        isd_as = "1-ff00:0:111"
        gateway = "10.11.0.2"
        prefixes = ["192.168.11.0/24"]
        [[remote.path]]
        raw = "00002000 0100123466000000 003f00000001010203040506 003f000200000708090a0b0c"
        next_hop = "10.10.0.1:30042"
        mtu = 1472
    "#;
    check(text, "remote.toml", &|_| {
        Err(std::io::ErrorKind::NotFound.into())
    })
    .unwrap()
}

#[test]
fn configured_paths_that_expire_are_named() {
    let mut host = good_host();
    let config = with_remote();
    assert_eq!(complaints(&host, Some(&config)), Vec::<String>::new());
    host.time = 1_711_276_032 + 18_001;
    let words = &[
        "path \"0\" to 1-ff00:0:111",
        "expires soon, at 2024-03-24T16:27:12Z",
        "sig reload",
    ];
    complains(&host, Some(&config), "Warning", words);
    host.time = 1_711_276_032 + 21_600;
    complains(
        &host,
        Some(&config),
        "Bad",
        &["expired at 2024-03-24T16:27:12Z"],
    );
}

#[test]
fn a_path_that_takes_larger_packets_than_the_interface_deserves_a_look() {
    let mut config = with_remote();
    config.remotes[0].paths[0].mtu = 1473;
    let words = &[
        "carries SCION packets of at most 1472 bytes",
        "up to 1473",
        "mtu = 1472",
    ];
    complains(&good_host(), Some(&config), "Warning", words);
}

#[test]
fn the_underlay_interface_is_no_lan_interface() {
    let mut config = with_remote();
    config.dataplane.lan = vec!["eth0".into()];
    complains(
        &good_host(),
        Some(&config),
        "Bad",
        &["eth0", "underlay interface"],
    );
}

#[test]
fn missing_kernel_features_name_the_option_or_the_capability() {
    let mut host = good_host();
    host.kernel.af_xdp = Feature::Absent;
    host.kernel.bpf = Feature::Denied;
    host.kernel.btf = false;
    complains(&host, None, "Bad", &["AF_XDP", "CONFIG_XDP_SOCKETS"]);
    complains(&host, None, "Bad", &["BPF", "CAP_BPF", "seccomp"]);
    complains(&host, None, "Warning", &["CONFIG_DEBUG_INFO_BTF"]);
    host.kernel.bpf = Feature::Unclear("odd".into());
    complains(&host, None, "Warning", &["BPF: odd"]);
}

#[test]
fn every_missing_capability_is_named_with_a_remedy() {
    let mut host = good_host();
    host.privileges.capabilities = 0;
    for name in [
        "CAP_NET_ADMIN",
        "CAP_BPF",
        "CAP_PERFMON",
        "CAP_NET_RAW",
        "CAP_SYS_ADMIN",
    ] {
        complains(&host, None, "Bad", &[name, "AmbientCapabilities"]);
    }
    complains(
        &host,
        None,
        "Bad",
        &["8 MiB of memory may be locked", "76 MiB", "CAP_IPC_LOCK"],
    );
    host.privileges.memlock = None;
    assert!(
        !complaints(&host, None)
            .iter()
            .any(|line| line.contains("locked"))
    );
}

#[test]
fn memory_is_counted_for_the_configuration() {
    let mut host = good_host();
    host.memory.available = 10 << 20;
    complains(
        &host,
        Some(&sample()),
        "Bad",
        &["97 MiB needed", "10 MiB available", "ring_size"],
    );
    let mut config = sample();
    config.dataplane.workers = 2;
    host.interfaces[0].link.rx_queues = 4;
    complains(&host, Some(&config), "Bad", &["297 MiB needed"]);
    let mut config = sample();
    config.dataplane.chunks = Some(1024);
    config.dataplane.limits.packets_total = 1;
    config.dataplane.limits.held_total = 1;
    assert_eq!(complaints(&host, Some(&config)), Vec::<String>::new());
}

#[test]
fn huge_pages_are_asked_for_as_much_as_the_configuration_wants_them() {
    let mut host = good_host();
    host.memory.huge_pages_free = 0;
    let mut config = sample();
    complains(&host, Some(&config), "Warning", &["vm.nr_hugepages=38"]);
    config.dataplane.huge_pages = Preference::Require;
    complains(&host, Some(&config), "Bad", &["vm.nr_hugepages=38"]);
    config.dataplane.huge_pages = Preference::Never;
    assert_eq!(complaints(&host, Some(&config)), Vec::<String>::new());
}

#[test]
fn workers_need_processors() {
    let host = good_host();
    let mut config = sample();
    config.dataplane.workers = 5;
    complains(
        &host,
        Some(&config),
        "Warning",
        &["fewer than the 5 workers"],
    );
    config.dataplane.workers = 4;
    config.dataplane.busy_poll = true;
    complains(&host, Some(&config), "Warning", &["busy_poll"]);
    config.dataplane.workers = 1;
    config.dataplane.pin = Pin::Cpus(vec![7]);
    complains(&host, Some(&config), "Bad", &["CPU 7", "[0, 1, 2, 3]"]);
}

#[test]
fn a_stack_that_does_not_forward_is_mentioned_per_family_and_interface() {
    let mut host = good_host();
    host.settings = Settings {
        ipv4_forwarding: Some(0),
        ipv6_forwarding: Some(0),
        rp_filter: Some(1),
    };
    host.interfaces[1].ipv4_forwarding = Some(0);
    host.interfaces[1].ipv6_forwarding = Some(0);
    let config = sample();
    complains(
        &host,
        Some(&config),
        "Warning",
        &["does not forward IPv4", "net.ipv4.ip_forward=1"],
    );
    complains(
        &host,
        Some(&config),
        "Warning",
        &["does not forward IPv6", "net.ipv6.conf.all.forwarding=1"],
    );
    complains(
        &host,
        Some(&config),
        "Warning",
        &["reverse path", "net.ipv4.conf.all.rp_filter=0"],
    );
    complains(
        &host,
        Some(&config),
        "Warning",
        &["net.ipv4.conf.eth1.forwarding=1"],
    );
    complains(
        &host,
        Some(&config),
        "Warning",
        &["net.ipv6.conf.eth1.forwarding=1"],
    );
    host.settings.ipv6_forwarding = None;
    complains(&host, None, "Warning", &["no IPv6 in this kernel"]);
}

#[test]
fn interfaces_of_the_configuration_must_exist_be_up_and_fit() {
    let mut host = good_host();
    host.interfaces.remove(1);
    complains(
        &host,
        Some(&sample()),
        "Warning",
        &["interface eth1", "does not exist", "eth0"],
    );
    host.interfaces.remove(0);
    complains(&host, Some(&sample()), "Bad", &["no interface carries"]);
    let mut host = good_host();
    host.interfaces[0].link.up = false;
    host.interfaces[1].link.carrier = false;
    complains(
        &host,
        Some(&sample()),
        "Bad",
        &["eth0", "is down", "ip link set dev eth0 up"],
    );
    complains(&host, Some(&sample()), "Bad", &["eth1", "no carrier"]);
    host.interfaces[1].link.mtu = 9600;
    complains(
        &host,
        Some(&sample()),
        "Bad",
        &["eth1", "MTU 9600", "ip link set dev eth1 mtu 9216"],
    );
    complains(&host, None, "Warning", &["eth1", "MTU 9600"]);
    host.interfaces[1].link.mac = None;
    complains(&host, Some(&sample()), "Bad", &["eth1", "not Ethernet"]);
}

#[test]
fn the_underlay_must_carry_the_data_address() {
    let mut host = good_host();
    host.interfaces[0].link.addresses.clear();
    complains(
        &host,
        Some(&sample()),
        "Bad",
        &["no interface carries", "10.10.0.2"],
    );
    let mut config = sample();
    config.dataplane.underlay = Some("eth0".into());
    complains(
        &host,
        Some(&config),
        "Bad",
        &["eth0", "10.10.0.2 is not an address of this interface"],
    );
}

#[test]
fn an_own_address_that_is_to_be_found_out_is_no_fault() {
    let mut config = sample();
    config.gateway.data_addr = "0.0.0.0:30056".parse().unwrap();
    complains(
        &good_host(),
        Some(&config),
        "Warning",
        &["underlay", "ctrl_addr"],
    );
}

#[test]
fn foreign_xdp_programs_are_bad_and_those_of_a_running_gateway_only_noted() {
    let mut host = good_host();
    host.interfaces[1].link.xdp_program = Some(42);
    complains(
        &host,
        Some(&sample()),
        "Bad",
        &["program 42", "ip link set dev eth1 xdp off"],
    );
    let mut tunnel = link("sig", 9);
    tunnel.alias = Some("SCION-IP gateway, process 7".into());
    host.interfaces.push(interface(tunnel));
    complains(
        &host,
        Some(&sample()),
        "Warning",
        &["program 42", "process 7"],
    );
    complains(
        &host,
        Some(&sample()),
        "Warning",
        &["tunnel device sig", "already running"],
    );
    assert!(
        !complaints(&host, Some(&sample()))
            .iter()
            .any(|line| line.starts_with("Bad"))
    );
}

#[test]
fn the_tunnels_name_must_be_free_and_its_mtu_fit() {
    let mut host = good_host();
    host.interfaces.push(interface(link("sig", 9)));
    complains(
        &host,
        Some(&sample()),
        "Bad",
        &[
            "tunnel device sig",
            "does not belong to a gateway",
            "ip link del sig",
        ],
    );
    let mut config = sample();
    config.tunnel.mtu = 9300;
    complains(&good_host(), Some(&config), "Bad", &["MTU 9300", "9216"]);
}

#[test]
fn jumbo_frames_need_a_new_kernel_memory_and_a_tunnel_that_takes_them() {
    let mut host = good_host();
    host.interfaces[1].link.mtu = 9000;
    let mut config = sample();
    let smaller = [
        "tunnel device sig",
        "1500",
        "eth1, 9000",
        "set `mtu = 9000`",
    ];
    complains(&host, Some(&config), "Warning", &smaller);
    config.tunnel.mtu = 9000;
    let findings = findings(&host, Some(&config));
    let told = |word: &str| findings.iter().find(|finding| finding.text.contains(word));
    let memory = told("MiB per worker").expect("told").text.clone();
    assert!(memory.contains("jumbo frames"), "{memory}");
    assert!(told("smaller than that of").is_none());
    host.kernel.version = Some((6, 1));
    let needs = ["MTU 9000", "Linux 6.6", "mtu 3506"];
    complains(&host, Some(&config), "Bad", &needs);
}

#[test]
fn workers_without_a_queue_of_their_own_are_mentioned() {
    let mut config = sample();
    config.dataplane.workers = 3;
    complains(
        &good_host(),
        Some(&config),
        "Warning",
        &["3 workers share 1 receive queue"],
    );
    let mut host = good_host();
    host.interfaces[0].link.rx_queues = 8;
    assert_eq!(
        complaints(&host, Some(&sample())),
        Vec::<String>::new(),
        "a worker serves several queues"
    );
}

#[test]
fn a_veth_lan_names_what_veth_lacks() {
    let mut host = good_host();
    host.interfaces[1].link.driver = Some("veth".into());
    host.interfaces[1].offloads = vec![Offload::GenericReceive];
    host.interfaces[1].xdp = Some(XdpFeatures::from_bits(0x23));
    let mut config = sample();
    config.dataplane.zero_copy = Preference::Require;
    complains(&host, Some(&config), "Bad", &["does not support zero copy"]);
    config.dataplane.mode = XdpMode::Generic;
    complains(
        &host,
        Some(&config),
        "Warning",
        &["gro", "ethtool -K eth1 gro off"],
    );
}

#[test]
fn the_other_end_of_a_veth_pair_must_take_packets_of_programs_for_the_fast_path() {
    let mut host = good_host();
    host.interfaces[1].link.driver = Some("veth".into());
    host.interfaces[1].xdp = Some(XdpFeatures::from_bits(0x23));
    let mut config = sample();
    let words = ["eth1", "fast path", "gro on"];
    complains(&host, Some(&config), "Warning", &words);
    config.dataplane.fast_path = crate::control::config::FastPathUse::Off;
    assert_eq!(complaints(&host, Some(&config)), Vec::<String>::new());
    config.dataplane.fast_path = crate::control::config::FastPathUse::On;
    host.interfaces[1].xdp = Some(XdpFeatures::from_bits(0x27));
    assert_eq!(complaints(&host, Some(&config)), Vec::<String>::new());
}

#[test]
fn shaping_on_a_lan_interface_is_passed_by_unless_the_helper_transmits() {
    let mut host = good_host();
    let htb = |interface: &str| Bypassed::Qdisc {
        interface: interface.to_owned(),
        kind: "htb".to_owned(),
    };
    host.bypassed.push(htb("eth1"));
    host.bypassed.push(htb("eth9"));
    let mut config = sample();
    let words = ["eth1", "htb", "lan_transmit"];
    complains(&host, Some(&config), "Warning", &words);
    config.dataplane.lan_transmit = crate::control::config::LanTransmit::Helper;
    assert_eq!(complaints(&host, Some(&config)), Vec::<String>::new());
}

#[test]
fn a_driver_without_native_xdp_is_bad_only_where_it_is_required() {
    let mut host = good_host();
    host.interfaces[0].xdp = Some(XdpFeatures::from_bits(0));
    let mut config = sample();
    complains(&host, Some(&config), "Warning", &["eth0", "generic mode"]);
    config.dataplane.mode = XdpMode::Native;
    complains(
        &host,
        Some(&config),
        "Bad",
        &["eth0", "does not support native XDP"],
    );
    host.interfaces[0].xdp = None;
    assert_eq!(complaints(&host, Some(&config)), Vec::<String>::new());
}

#[test]
fn next_hops_need_a_route_out_of_the_underlay() {
    let next_hop: IpAddr = "10.10.0.1".parse().unwrap();
    let mut host = good_host();
    host.routes = vec![(next_hop, Err(Reason::NoRoute))];
    complains(
        &host,
        Some(&sample()),
        "Bad",
        &["next hop 10.10.0.1", "no route"],
    );
    let mut route = RouteLookup {
        kind: RouteType::Unicast,
        ifindex: Some(3),
        gateway: None,
        source: None,
        mtu: None,
    };
    let mut with_xdp = sample();
    with_xdp.dataplane.underlay_port = UnderlayPort::Xdp;
    host.routes = vec![(next_hop, Ok(route.clone()))];
    complains(&host, Some(&with_xdp), "Bad", &["interface number 3"]);
    // Sockets reach them, if AF_XDP reaches none.
    assert_eq!(complaints(&host, Some(&sample())), Vec::<String>::new());
    host.routes.extend(good_host().routes);
    complains(&host, Some(&sample()), "Bad", &["interface number 3"]);
    route.kind = RouteType::Local;
    host.routes = vec![(next_hop, Ok(route))];
    complains(&host, Some(&with_xdp), "Bad", &["an address of this host"]);
    assert_eq!(complaints(&host, Some(&sample())), Vec::<String>::new());
}

#[test]
fn a_gateway_does_without_bpf_unless_it_is_told_not_to() {
    let mut host = good_host();
    host.privileges.capabilities = 1 << CAP_NET_ADMIN.0;
    let mut config = sample();
    let words = ["CAP_BPF", "without it, UDP sockets and a TUN device"];
    complains(&host, Some(&config), "Warning", &words);
    config.tunnel.mtu = 9000;
    let words = ["tunnel device sig", "MTU 9000", "to 3506"];
    complains(&host, Some(&config), "Bad", &words);
    host.kernel.no_tun = Some("No such file or directory".into());
    let words = ["/dev/net/tun cannot be opened: No such", "modprobe tun"];
    complains(&host, Some(&config), "Bad", &words);
    config.tunnel.device = TunnelDevice::Veth;
    complains(&host, Some(&config), "Bad", &["CAP_BPF is missing"]);
}

#[test]
fn interfaces_on_which_xdp_does_not_see_what_it_must_are_not_good() {
    let mut host = good_host();
    host.interfaces[1].link.kind = Some("bond".into());
    let words = [
        "interface eth1",
        "AF_XDP sockets receive nothing",
        "\"auto\"",
    ];
    let mut config = sample();
    assert_eq!(complaints(&host, Some(&config)), Vec::<String>::new());
    config.dataplane.mode = XdpMode::Native;
    complains(&host, Some(&config), "Bad", &words);

    let mut host = good_host();
    host.interfaces[1].vlan_tags = VlanTags::TakenOut;
    assert_eq!(complaints(&host, Some(&sample())), Vec::<String>::new());
    let mut vlan = link("eth1.200", 9);
    let tag = Tag {
        tpid: TPID_8021Q,
        tci: 200,
    };
    (vlan.vlan, vlan.peer_ifindex) = (Some(tag), Some(3));
    host.interfaces.push(interface(vlan));
    let words = ["interface eth1", "eth1.200", "ethtool -K eth1 rxvlan off"];
    complains(&host, Some(&sample()), "Bad", &words);
}

#[test]
fn vlan_devices_are_served_on_the_card_below_if_that_is_possible() {
    let mut host = good_host();
    host.interfaces[1].vlan_tags = VlanTags::TakenOut;
    let mut vlan = link("eth1.200", 9);
    let tag = Tag {
        tpid: TPID_8021Q,
        tci: 200,
    };
    (vlan.vlan, vlan.peer_ifindex) = (Some(tag), Some(3));
    vlan.kind = Some("vlan".into());
    host.interfaces.push(Interface {
        xdp: Some(XdpFeatures::from_bits(0)),
        vlan_tags: VlanTags::Above,
        ..interface(vlan)
    });
    let mut config = sample();
    config.dataplane.lan = vec!["eth1.200".into()];
    assert_eq!(complaints(&host, Some(&config)), Vec::<String>::new());
    let found = findings(&host, Some(&config));
    let text = format!("{found:?}");
    for words in ["served on its parent eth1", "`rxvlan` is off there"] {
        assert!(text.contains(words), "{text}");
    }
    // It may be used without a tag, too: they are all in the packets then. Its queues are not more for that.
    let least = buffers(&host, Some(&config)).least;
    config.dataplane.lan.push("eth1".into());
    let more = buffers(&host, Some(&config)).least - least;
    assert!(more < u64::from(config.dataplane.ring_size), "{more}");
    assert_eq!(complaints(&host, Some(&config)), Vec::<String>::new());
    config.dataplane.lan.pop();

    host.interfaces[1].link.kind = Some("bond".into());
    let words = ["eth1.200", "generic mode: its parent eth1 is a bond"];
    complains(&host, Some(&config), "Warning", &words);
    config.dataplane.mode = XdpMode::Native;
    let words = ["eth1.200", "cannot have native mode"];
    complains(&host, Some(&config), "Bad", &words);
}

#[test]
fn a_kernel_on_which_workers_cannot_share_a_queue_in_generic_mode_is_named() {
    let mut host = good_host();
    host.kernel.release = "6.12.27".into();
    let mut config = sample();
    assert_eq!(complaints(&host, Some(&config)), Vec::<String>::new());
    config.dataplane.workers = 2;
    complains(
        &host,
        Some(&config),
        "Warning",
        &["CVE-2025-37920", "6.12.28"],
    );
}

#[test]
fn rules_that_packets_bypass_deserve_a_look_unless_the_kernel_forwards() {
    let table = |device: Option<&str>| Bypassed::Nftables {
        table: "inet filter".to_owned(),
        hooks: vec!["forward"],
        device: device.map(str::to_owned),
    };
    let strict = |interface: &str| Bypassed::ReversePath {
        interface: interface.to_owned(),
    };
    let mut host = good_host();
    host.bypassed = vec![
        table(None),
        table(Some("eth7")),
        strict("eth0"),
        strict("eth1"),
    ];
    let mut config = sample();
    let words = ["firewall", "inet filter", "docs/rules.md"];
    complains(&host, None, "Warning", &words);
    complains(&host, Some(&config), "Warning", &words);
    complains(&host, Some(&config), "Warning", &["eth1", "rp_filter"]);
    assert_eq!(complaints(&host, Some(&config)).len(), 2);
    // Nothing is taken by XDP.
    host.kernel.af_xdp = Feature::Absent;
    let found = complaints(&host, Some(&config));
    let about = |words: &str| found.iter().any(|line| line.contains(words));
    assert!(!about("inet filter") && !about("rp_filter"), "{found:?}");
    host.kernel.af_xdp = Feature::Present;
    config.dataplane.lan_transmit = crate::control::config::LanTransmit::Kernel;
    config.dataplane.lan.clear();
    assert_eq!(complaints(&host, Some(&config)), Vec::<String>::new());
}

#[test]
fn a_router_needs_its_own_capabilities_and_addresses() {
    let mut host = good_host();
    host.privileges.capabilities = 1 << CAP_BPF.0;
    let levels = |own: &[IpAddr]| -> Vec<String> {
        let findings = router_findings(&host, Some(own));
        let bad = findings
            .iter()
            .filter(|finding| finding.level == Level::Bad);
        bad.map(|finding| finding.text.clone()).collect()
    };
    let found = levels(&["192.0.2.77".parse().unwrap()]);
    assert!(found[0].contains("CAP_NET_ADMIN is missing"), "{found:?}");
    assert!(found[1].contains("CAP_PERFMON is missing"), "{found:?}");
    assert!(
        found[2].contains("no interface carries 192.0.2.77"),
        "{found:?}"
    );
    assert_eq!(found.len(), 3, "{found:?}");
}

#[test]
fn the_program_of_a_running_router_is_no_foreign_one() {
    let mut host = good_host();
    host.interfaces[0].link.xdp_program = Some(7);
    host.interfaces[0].link.mtu = 60_000;
    let of_router = |host: &Facts| -> Vec<Finding> {
        let findings = router_findings(host, None).into_iter();
        findings.filter(|f| f.level != Level::Good).collect()
    };
    let found = of_router(&host);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].level, Level::Bad);
    host.running = Some("router");
    let found = of_router(&host);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].level, Level::Warning);
    host.interfaces[0].link.mtu = 1500;
    let words = ["eth0", "XDP program 7", "running router"];
    complains(&host, None, "Warning", &words);
    complains(&host, Some(&sample()), "Warning", &words);
}
