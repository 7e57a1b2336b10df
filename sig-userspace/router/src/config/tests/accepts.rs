//! Files that are right.

use super::*;

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

#[test]
fn topology_and_key_make_the_model() {
    let (settings, warnings) = good(OWN, TOPOLOGY);
    assert_eq!(warnings, [""; 0]);
    let model = settings.model;
    assert_eq!(model.router, "br-1");
    assert_eq!(model.isd_as.to_string(), "1-ff00:0:110");
    assert!(model.core);
    assert_eq!(model.mtu, 1472);
    assert_eq!(model.internal, address("10.0.0.1:30042"));
    assert_eq!(model.ports, Some(30000..=32767));
    assert_eq!(model.control_services, [address("10.0.0.9:30252")]);
    assert_eq!(model.discovery_services, [address("[fd00::9]:30252")]);
    assert_eq!(model.key, HopKey::derive(b"testkey_xxxxxxxx"));
    assert_eq!(model.sibling_bfd, Bfd::default());
    let sibling = Sibling {
        name: "br-2".to_owned(),
        internal: address("10.0.0.2:30042"),
    };
    assert_eq!(model.siblings, [sibling]);

    assert_eq!(model.interfaces.keys().collect::<Vec<_>>(), [&1, &2, &3]);
    let first = &model.interfaces[&1];
    let owner = Owner::Here {
        local: address("192.0.2.1:50000"),
        remote: address("192.0.2.2:50001"),
    };
    assert_eq!((first.owner, first.link_type), (owner, LinkType::Child));
    assert_eq!((first.mtu, first.neighbour_interface), (1460, None));
    assert_eq!(first.bfd, Bfd::default());
    let second = &model.interfaces[&2];
    let owner = Owner::Here {
        local: address("[2001:db8::1]:50000"),
        remote: address("[2001:db8::2]:50000"),
    };
    assert_eq!((second.owner, second.link_type), (owner, LinkType::Core));
    // Without one of its own, the link has the MTU of the AS.
    assert_eq!((second.mtu, second.neighbour_interface), (1472, Some(7)));
    let bfd = Bfd {
        detect_mult: 5,
        desired_min_tx: Duration::from_secs(1),
        ..Bfd::default()
    };
    assert_eq!(second.bfd, bfd);
    let third = &model.interfaces[&3];
    assert_eq!(
        (third.owner, third.link_type),
        (Owner::Sibling(0), LinkType::Peer)
    );
    assert!(third.bfd.disabled);
}

#[test]
fn what_is_not_written_has_its_default() {
    let (settings, _) = good(OWN, TOPOLOGY);
    assert_eq!(settings.xdp.mode, Some(XdpMode::Auto));
    assert!(settings.slow_path && settings.xdp.cpus.is_empty());
    assert_eq!(settings.xdp.rate_limits, RateLimits::default());
    assert_eq!(settings.status_socket, Path::new("/run/sig/br-1.sock"));
    assert_eq!(settings.observe, Observe::default());
    assert_eq!(settings.log.level, LogLevel::Info);
    assert_eq!(settings.buffers, Buffers::default());
}

#[test]
fn the_sample_shows_every_key_with_its_default() {
    let sample = SAMPLE.replace("config_dir = \".\"", "config_dir = \"as\"");
    let (plain, warnings) = good(&sample, TOPOLOGY);
    assert_eq!(warnings, [""; 0]);
    // A line that is a key behind a number sign, not prose.
    let key = |line: &str| {
        let word = line.split(' ').next().unwrap_or_default();
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
    };
    let lines = sample.lines().map(|line| match line.strip_prefix('#') {
        Some(rest) if key(rest) => rest,
        _ => line,
    });
    let written: Vec<&str> = lines
        .filter(|line| !line.starts_with("dispatched_port"))
        .collect();
    let written = written.join("\n");
    let (shown, _) = good(&written, TOPOLOGY);
    assert_eq!(shown.xdp, plain.xdp);
    assert_eq!(shown.model.interfaces, plain.model.interfaces);
    assert_eq!(shown.model.sibling_bfd, Bfd::default());
    assert_eq!(shown.status_socket, plain.status_socket);
    assert_eq!(shown.observe, plain.observe);
    for (section, lists) in keys::SCHEMA.0 {
        let keys = lists.concat();
        for key in &keys {
            let header = [section, *key].join(".");
            let is_section = keys::SCHEMA.is_section(header.trim_start_matches('.'));
            // What has no effect is not in the sample.
            let ignored = [
                "features",
                "num_",
                "batch_size",
                "stacktrace_level",
                "disable_caller",
            ];
            let ignored = ignored.iter().any(|word| header.contains(word));
            let line = sample.lines().any(|line| {
                line.trim_start_matches('#')
                    .starts_with(&format!("{key} = "))
            });
            assert!(
                is_section || ignored || section.is_empty() || line,
                "{header}"
            );
        }
    }
}

#[test]
fn the_references_own_file_is_taken() {
    let own = r#"
[general]
id = "br-1"
config_dir = "as"
[features]
experimental_scmp_authentication = false
[log.console]
level = "debug"
[metrics]
prometheus = "127.0.0.1:30442"
[router]
receive_buffer_size = 1048576
send_buffer_size = 0
num_processors = 4
num_slow_processors = 1
batch_size = 256
dispatched_port_start = 0
dispatched_port_end = 0
[router.bfd]
disable = true
detect_mult = 0
required_min_rx_interval = "1s"
"#;
    let (settings, warnings) = good(own, TOPOLOGY);
    let ignored =
        "ignored: the router has no configurable number or batch size of packet processors";
    assert_eq!(
        warnings,
        [
            format!("conf/br.toml:14: router.num_processors: {ignored}"),
            format!("conf/br.toml:15: router.num_slow_processors: {ignored}"),
            format!("conf/br.toml:16: router.batch_size: {ignored}"),
        ]
    );
    let buffers = Buffers {
        receive: Some(1 << 20),
        send: None,
    };
    assert_eq!(settings.buffers, buffers);
    assert_eq!(settings.model.ports, None);
    let default = Bfd {
        disabled: true,
        required_min_rx: Duration::from_secs(1),
        ..Bfd::default()
    };
    assert_eq!(settings.model.sibling_bfd, default);
    assert_eq!(settings.model.interfaces[&1].bfd, default);
    assert_eq!(settings.model.interfaces[&2].bfd.detect_mult, 5);
    assert!(settings.model.interfaces[&2].bfd.disabled);
}

#[test]
fn ports_are_written_as_the_reference_writes_them() {
    for (text, ports) in [
        ("", None),
        ("-", None),
        ("all", Some(1..=65535)),
        ("ALL", Some(1..=65535)),
        ("1024-65535", Some(1024..=65535)),
        ("7-7", Some(7..=7)),
    ] {
        let topology = with("30000-32767", text);
        assert_eq!(good(OWN, &topology).0.model.ports, ports, "{text:?}");
    }
    let topology = with("\"dispatched_ports\": \"30000-32767\",", "");
    let (settings, warnings) = good(OWN, &topology);
    assert_eq!(settings.model.ports, None);
    assert!(
        warnings[0].starts_with("conf/as/topology.json:1: dispatched_ports: missing"),
        "{warnings:?}"
    );
    assert_eq!(warnings.len(), 1);
    let own = format!("{OWN}[router]\ndispatched_port_start = 5\ndispatched_port_end = 6\n");
    assert_eq!(good(&own, &topology).0.model.ports, Some(5..=6));
}

#[test]
fn services_keep_their_ports_and_those_outside_the_range_are_named() {
    let sigs = r#""dispatched_ports": "31000-32767", "sigs": {"sig": {"ctrl_addr": "10.0.0.8:30256",
        "data_addr": "10.0.0.8:31056", "probe_addr": "gateway:30856", "allow_interfaces": [1]}},"#;
    let topology = with("\"dispatched_ports\": \"30000-32767\",", sigs);
    let (settings, warnings) = good(OWN, &topology);
    for (port, dispatched) in [(30256, true), (31056, true), (30255, false)] {
        let host = "10.0.0.8".parse().expect("an address");
        assert_eq!(
            settings.model.host_address(host, port).port() == port,
            dispatched,
            "{port}"
        );
    }
    let controls = "10.0.0.9".parse().expect("an address");
    assert_eq!(settings.model.host_address(controls, 30252).port(), 30252);
    assert_eq!(settings.model.host_address(controls, 30256).port(), 30041);
    let [warning] = &warnings[..] else {
        panic!("{warnings:?}");
    };
    let start = "conf/as/topology.json:7: control_service.cs-1.addr: 10.0.0.8:30256, 10.0.0.9:30252, [fd00::9]:30252 \
                 are not in dispatched_ports 31000-32767: ";
    assert!(warning.starts_with(start), "{warning}");
}

#[test]
fn a_link_too_narrow_for_the_control_plane_is_named() {
    let (_, warnings) = good(OWN, &with("\"mtu\": 1460", "\"mtu\": 1372"));
    let start = "conf/as/topology.json:12: border_routers.br-1.interfaces.1: MTU 1372: ";
    assert!(
        warnings.len() == 1 && warnings[0].starts_with(start),
        "{warnings:?}"
    );
}

#[test]
fn a_short_key_is_named() {
    let (_, warnings) = read(OWN, TOPOLOGY, "MjIyMg==").expect("a key");
    let warnings: Vec<String> = warnings.iter().map(Problem::to_string).collect();
    let start = "conf/as/keys/master0.key:1: the key has 4 bytes";
    assert!(
        warnings.len() == 1 && warnings[0].starts_with(start),
        "{warnings:?}"
    );
}

#[test]
fn fast_path_and_slow_path_can_be_left_out() {
    let (settings, _) = good(&format!("{OWN}[xdp]\nmode = \"off\"\n"), TOPOLOGY);
    assert_eq!((settings.xdp.mode, settings.slow_path), (None, true));
    let own = format!(
        "{OWN}[xdp]\nmode = \"native\"\nslow_path = false\ncpus = [2, 3]\n[xdp.rate_limits]\nexpired = 5\n"
    );
    let (settings, _) = good(&own, TOPOLOGY);
    assert_eq!(
        (settings.xdp.mode, settings.slow_path),
        (Some(XdpMode::Native), false)
    );
    assert_eq!(settings.xdp.cpus, [2, 3]);
    let rate = |reason| settings.xdp.rate_limits.per_second(reason);
    assert_eq!(rate(sig_common::router::Reason::Expired), Some(5));
    assert_eq!(rate(sig_common::router::Reason::WrongPeer), None);
}

#[test]
fn what_the_reference_ignores_is_named() {
    let topology = with("\"mtu\": 1472,", "\"MTU\": 1472, \"colour\": 1,");
    let (_, warnings) = good(OWN, &topology);
    let warning = "conf/as/topology.json:3: colour: unknown key, which has no effect";
    assert_eq!(warnings, [warning]);
    let topology = with("[\"core\"]", "[\"voting\", \"core\", \"issuing\"]");
    assert!(good(OWN, &topology).0.model.core);
}

#[test]
fn the_documentation_has_every_key_and_its_default() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/border-router.md");
    let text = std::fs::read_to_string(path).expect("the documentation");
    for (section, lists) in keys::SCHEMA.0 {
        let keys = lists.concat();
        for key in &keys {
            let name = [section, *key].join(".");
            let is_section = keys::SCHEMA.is_section(name.trim_start_matches('.'));
            assert!(is_section || text.contains(&format!("`{key}`")), "{name}");
        }
    }
    // Rows of rate limits: keys, default.
    let limits = RateLimits::default();
    for reason in sig_common::router::Reason::ALL {
        let Some(row) = text
            .lines()
            .find(|line| line.starts_with("| `") && line.contains(&format!("`{}`", reason.name())))
        else {
            assert_eq!(limits.per_second(reason), None, "{reason:?}");
            continue;
        };
        let default = row.split('|').nth(2).unwrap_or_default().trim();
        let expected = limits.per_second(reason).unwrap_or(0).to_string();
        assert_eq!(default, expected, "{reason:?}");
    }
}
