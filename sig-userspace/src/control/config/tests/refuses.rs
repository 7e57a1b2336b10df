//! Files that are wrong: the messages, word by word.

use super::*;

#[test]
fn host_bits_in_a_prefix() {
    assert_eq!(
        errors_after("10.2.0.0/24\"", "10.2.0.1/24\""),
        "gateway.toml:9: remote[0].prefixes[0]: \"10.2.0.1/24\" has host bits set; \
         write \"10.2.0.0/24\""
    );
}

#[test]
fn prefixes_whose_addresses_the_data_plane_drops() {
    assert_eq!(
        errors_after("10.2.0.0/24\"", "240.0.0.0/4\", \"::/96\""),
        "gateway.toml:9: remote[0].prefixes[0]: \"240.0.0.0/4\" is reserved (RFC 1112), which is never \
         tunnelled; remove it\n\
         gateway.toml:9: remote[0].prefixes[1]: \"::/96\" is reserved for loopback and embedded IPv4 \
         addresses (RFC 4291), which is never tunnelled; remove it"
    );
    assert_eq!(
        errors("[gateway]\nprefixes = [\"169.254.7.0/24\"]\n")
            .lines()
            .next(),
        Some(
            "gateway.toml:2: gateway.prefixes[0]: \"169.254.7.0/24\" is link-local, which is never \
             tunnelled; remove it"
        )
    );
}

#[test]
fn an_unknown_key_with_the_one_that_was_meant() {
    assert_eq!(
        errors_after("next_hop", "nexthop"),
        "gateway.toml:10: remote[0].path[0].next_hop: missing; write the underlay address of \
         the border router, for example next_hop = \"10.10.0.1:30042\"\n\
         gateway.toml:12: remote[0].path[0].nexthop: unknown key; did you mean \"next_hop\"?"
    );
    assert_eq!(
        errors(&format!("{SMALL}\n[dataplan]\nworkers = 2\n")),
        "gateway.toml:15: dataplan: unknown key; did you mean \"dataplane\"?"
    );
}

#[test]
fn a_tun_device_with_jumbo_frames() {
    assert_eq!(
        errors(&format!(
            "{SMALL}\n[tunnel]\ndevice = \"tun\"\nmtu = 3507\n"
        )),
        "gateway.toml:17: tunnel.mtu: a TUN device has an MTU of at most 3506; write that or less, or \
         device = \"veth\""
    );
}

#[test]
fn what_is_missing() {
    assert_eq!(
        errors(&SMALL[SMALL.find("[[remote]]").unwrap()..]),
        "gateway.toml:1: gateway.data_addr: no address; write the address of this host in its \
         AS, for example data_addr = \"192.0.2.10:30056\"\n\
         gateway.toml:1: gateway.isd_as: missing; write the AS of this gateway, \
         for example isd_as = \"1-ff00:0:110\""
    );
    assert_eq!(
        errors(&SMALL[..SMALL.find("[[remote.path]]").unwrap()]),
        "gateway.toml:6: remote[0]: no path; write at least one [[remote.path]] with raw, \
         file or network, next_hop and mtu"
    );
}

#[test]
fn metrics_and_api_at_one_address() {
    assert_eq!(
        errors("[metrics]\nprometheus = \"127.0.0.1:1\"\n[api]\naddr = \"127.0.0.1:1\"\n"),
        "gateway.toml:4: api.addr: 127.0.0.1:1 is already used by [metrics] prometheus; write another port"
    );
}

#[test]
fn own_addresses_that_are_the_same() {
    assert_eq!(
        errors("[gateway]\nctrl_addr = \"192.0.2.1:30056\"\n"),
        "gateway.toml:2: gateway.ctrl_addr: 192.0.2.1:30056 is already used by data_addr; write another port"
    );
}

#[test]
fn several_mistakes_at_once_in_the_order_of_lines() {
    let text = SMALL
        .replacen("1-ff00:0:110", "1-ff00:110", 1)
        .replacen("10.1.0.0/24", "10.1.0.0", 1)
        .replacen("mtu = 1472", "mtu = \"1472\"", 1);
    assert_eq!(
        errors(&text),
        "gateway.toml:2: gateway.isd_as: \"1-ff00:110\" is not an ISD-AS number; \
         write for example \"1-ff00:0:110\" or \"1-64512\"\n\
         gateway.toml:4: gateway.prefixes[0]: \"10.1.0.0\" has no prefix length; \
         write \"10.1.0.0/32\"\n\
         gateway.toml:13: remote[0].path[0].mtu: the string \"1472\" found; \
         write a number from 1 to 9188"
    );
}

#[test]
fn what_is_not_toml() {
    assert_eq!(
        errors_after("mtu = 1472", "mtu = "),
        "gateway.toml:13: not TOML: string values must be quoted, expected literal string"
    );
    assert!(
        errors_after("mtu = 1472", "mtu = 1\nmtu = 2")
            .starts_with("gateway.toml:14: not TOML: duplicate key")
    );
}

#[test]
fn wildcards_as_an_as() {
    assert_eq!(
        errors_after("1-ff00:0:111", "1-0"),
        "gateway.toml:7: remote[0].isd_as: 1-0 is a wildcard; write the number of one AS, \
         for example \"1-ff00:0:110\""
    );
}

#[test]
fn addresses_that_no_host_has() {
    assert_eq!(
        errors_after("data_addr = \"10.10.0.2\"", "data_addr = \"0.0.0.0:30056\""),
        "gateway.toml:3: gateway.data_addr: 0.0.0.0 is the unspecified address; \
         write the address of one host"
    );
    assert_eq!(
        errors_after("gateway = \"10.11.0.2\"", "gateway = \"gw.example.org\""),
        "gateway.toml:8: remote[0].gateway: \"gw.example.org\" is a host \
         name, which is not supported; write its IP address"
    );
}

#[test]
fn a_router_of_the_other_family_or_without_a_port() {
    assert_eq!(
        errors_after("10.10.0.1:30042", "[fd00::1]:30042"),
        "gateway.toml:12: remote[0].path[0].next_hop: [fd00::1]:30042 is IPv6 but data_addr \
         10.10.0.2:30056 is IPv4; write a router address of the same family"
    );
    assert_eq!(
        errors_after("10.10.0.1:30042", "10.10.0.1"),
        "gateway.toml:12: remote[0].path[0].next_hop: no port; write the port of the router \
         too, for example \"10.10.0.1:30042\""
    );
    assert_eq!(
        errors_after("10.10.0.1:30042", "10.10.0.2:30056"),
        "gateway.toml:12: remote[0].path[0].next_hop: 10.10.0.2:30056 is this gateway's \
         own address; write the border router's"
    );
}

#[test]
fn a_path_that_is_damaged() {
    assert_eq!(
        errors_after("0b0c\"", "0b\""),
        "gateway.toml:11: remote[0].path[0].raw: 35 bytes found, but 1 segment with 2 hop \
         fields take 36; the path is truncated or has trailing bytes"
    );
    assert_eq!(
        errors_after("0b0c\"", "0b0g\""),
        "gateway.toml:11: remote[0].path[0].raw: \"g\" at position 75 is not a hexadecimal \
         digit; write only 0-9 and a-f"
    );
}

#[test]
fn a_path_file_that_is_not_there() {
    let line = SMALL.lines().find(|l| l.starts_with("raw")).unwrap();
    assert_eq!(
        errors_after(line, "file = \"a.path\""),
        "gateway.toml:11: remote[0].path[0].file: \"a.path\" cannot be read: entity not \
         found; write a name relative to the configuration file"
    );
}

#[test]
fn an_empty_path_to_another_as() {
    let line = SMALL.lines().find(|l| l.starts_with("raw")).unwrap();
    assert_eq!(
        errors_after(line, "raw = \"\""),
        "gateway.toml:11: remote[0].path[0].raw: an empty path only works within \
         1-ff00:0:110, and the remote is in 1-ff00:0:111; write the raw path to it"
    );
}

#[test]
fn an_mtu_without_room_for_a_frame() {
    assert_eq!(
        errors_after("mtu = 1472", "mtu = 136"),
        "gateway.toml:13: remote[0].path[0].mtu: 136 leaves no room for a frame: \
         this path's headers take 80 bytes and a frame at least 57; write 137 or more"
    );
    assert_eq!(
        good(&SMALL.replacen("mtu = 1472", "mtu = 137", 1)).path_count(),
        1
    );
    assert_eq!(
        errors_after("mtu = 1472", "mtu = 65000"),
        "gateway.toml:13: remote[0].path[0].mtu: 65000 is out of range; \
         write a number from 1 to 9188"
    );
}

#[test]
fn prefixes_that_swallow_the_underlay() {
    assert_eq!(
        errors_after("10.2.0.0/24", "10.0.0.0/8"),
        "gateway.toml:9: remote[0].prefixes[0]: 10.0.0.0/8 contains this gateway's address \
         10.10.0.2: frames would be sent into the tunnel itself; write prefixes without it"
    );
    assert_eq!(
        errors_after("10.2.0.0/24", "10.10.0.0/31"),
        "gateway.toml:9: remote[0].prefixes[0]: 10.10.0.0/31 contains the next hop 10.10.0.1: \
         frames would be sent into the tunnel itself; write prefixes without it"
    );
}

#[test]
fn the_same_prefix_on_both_sides() {
    assert_eq!(
        errors_after("10.2.0.0/24", "10.1.0.0/24"),
        "gateway.toml:9: remote[0].prefixes[0]: 10.1.0.0/24 is already listed as gateway.prefixes[0]; list \
         each prefix once"
    );
}

#[test]
fn the_same_remote_twice() {
    let remote = SMALL[SMALL.find("[[remote]]").unwrap()..].replacen(
        "10.2.0.0/24\", \"fd00:2::/64",
        "10.3.0.0/24",
        1,
    );
    assert_eq!(
        errors(&format!("{SMALL}{remote}")),
        "gateway.toml:16: remote[1].gateway: 1-ff00:0:111,10.11.0.2 is already configured as remote[0] \
         (line 6); merge their prefixes and paths there"
    );
}

#[test]
fn itself_as_a_remote() {
    let text =
        SMALL
            .replacen("1-ff00:0:111", "1-ff00:0:110", 1)
            .replacen("10.11.0.2", "10.10.0.2", 1);
    assert_eq!(
        errors(&text),
        "gateway.toml:8: remote[0].gateway: 1-ff00:0:110,10.10.0.2 is this gateway itself; \
         remove the remote"
    );
}

#[test]
fn interfaces_that_collide() {
    let text = format!(
        "{SMALL}\n[dataplane]\nunderlay = \"eth0\"\nlan = [\"eth1\", \"eth0\"]\n[tunnel]\nname = \"eth1\"\n"
    );
    assert_eq!(
        errors(&text),
        "gateway.toml:17: dataplane.lan: \"eth0\" is also the underlay interface; \
         write the interface towards the IP hosts\n\
         gateway.toml:19: tunnel.name: \"eth1\" is also an interface of [dataplane], but the \
         tunnel device is created at start; write another name"
    );
}

#[test]
fn numbers_and_words_out_of_range() {
    let text = format!(
        "{SMALL}\n[dataplane]\nworkers = 0\nring_size = 1000\nmode = \"fast\"\nbusy_poll = 1\n\
         reorder_wait = \"2s\"\nchunks = \"many\"\n[dataplane.limits]\npackets_total = \"64\"\n"
    );
    assert_eq!(
        errors(&text),
        "gateway.toml:16: dataplane.workers: 0 is out of range; write a number from 1 to 64\n\
         gateway.toml:17: dataplane.ring_size: 1000 is not a power of two; write 512 or 1024\n\
         gateway.toml:18: dataplane.mode: \"fast\" is unknown; \
         write \"auto\", \"native\" or \"generic\"\n\
         gateway.toml:19: dataplane.busy_poll: the number 1 found; write true or false\n\
         gateway.toml:20: dataplane.reorder_wait: \"2s\" is out of range; \
         write a duration from \"0s\" to \"1s\"\n\
         gateway.toml:21: dataplane.chunks: the string \"many\" found; \
         write a number from 1024 to 1048576\n\
         gateway.toml:23: dataplane.limits.packets_total: the string \"64\" found; \
         write a number from 1 to 1048576"
    );
}

#[test]
fn settings_that_contradict_each_other() {
    let text = format!(
        "{SMALL}\n[dataplane]\nworkers = 2\npin = [3]\nmode = \"generic\"\n\
         zero_copy = \"require\"\n[dataplane.limits]\npackets_per_remote = 1000\n"
    );
    assert_eq!(
        errors(&text),
        "gateway.toml:17: dataplane.pin: 1 CPU for 2 workers; write one CPU for each worker\n\
         gateway.toml:19: dataplane.zero_copy: zero copy is not available with mode = \"generic\"; \
         write zero_copy = \"auto\" or another mode\n\
         gateway.toml:21: dataplane.limits.packets_per_remote: one remote may use 1000, but all \
         remotes together only 512; write packets_per_remote up to packets_total"
    );
}

#[test]
fn a_section_that_is_a_value_and_a_value_that_is_a_section() {
    assert_eq!(
        errors("tunnel = 5\nremote = [7]\n[gateway]\nisd_as = \"1-1\"\ndata_addr.x = 1\n"),
        "gateway.toml:1: tunnel: the number 5 found; write a section: [tunnel]\n\
         gateway.toml:2: remote[0]: the number 7 found; write one [[remote]] section each\n\
         gateway.toml:5: gateway.data_addr: a table found; write a string, for example \
         \"192.0.2.10:30056\""
    );
}

#[test]
fn keys_of_endless_depth() {
    let deep = vec!["a"; 200_000].join(".");
    for text in [
        format!("{deep} = 1"),
        format!("[{deep}]"),
        format!("x = {{ {deep} = 1 }}"),
    ] {
        assert!(read(&text).is_err());
    }
    let nested = "x = ".to_owned() + &"[".repeat(100_000);
    assert!(read(&nested).is_err());
}

#[test]
fn what_is_wrong_about_protection_is_named() {
    let found = errors(
        r#"[protection]
mode = "on"
[[protection.remote]]
mode = "off"
[[protection.remote]]
isd_as = "1-ff00:0:111"
pins = ["sha256:00"]
[[protection.remote]]
isd_as = "1-ff00:0:112"
[[protection.remote]]
isd_as = "1-ff00:0:112"
"#,
    );
    for expected in [
        "gateway.toml:2: protection.mode: ",
        "\"require\"",
        "gateway.toml:3: protection.remote[0]",
        "gateway.toml:7: protection.remote[1].pins[0]: \"sha256:00\" is no identity",
        "gateway.toml:11: protection.remote[3].isd_as: there is another [[protection.remote]] with 1-ff00:0:112",
    ] {
        assert!(found.contains(expected), "{expected}\n{found}");
    }
    let off = "[[protection.remote]]\nisd_as = \"1-ff00:0:111\"\nmode = \"off\"\n\
               pins = [\"ed25519:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\"]\n";
    let [warning] = &warnings(off)[..] else {
        panic!("one warning: {:?}", warnings(off));
    };
    assert!(warning.contains("the pins have no effect"), "{warning}");
}
