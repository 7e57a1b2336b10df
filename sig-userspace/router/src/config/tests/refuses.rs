//! Files that are wrong: every message names file, line and key.

use super::*;

/// The messages after one change to the topology.
fn topology_errors(from: &str, to: &str) -> String {
    errors(OWN, &with(from, to), KEY)
}

#[test]
fn unknown_keys_are_named_with_a_remedy() {
    let own = format!("{OWN}[xdp]\nmodes = \"auto\"\n");
    assert_eq!(
        errors(&own, TOPOLOGY, KEY),
        "conf/br.toml:5: xdp.modes: unknown key; did you mean \"mode\"?"
    );
    let own = format!("{OWN}[xdp.rate_limits]\nwrong_peer = 1\n");
    let text = errors(&own, TOPOLOGY, KEY);
    assert!(
        text.starts_with("conf/br.toml:5: xdp.rate_limits.wrong_peer: unknown key"),
        "{text}"
    );
    // Ignored where everything else is right, but here it may be the mistake.
    assert_eq!(
        topology_errors("\"link_to\": \"CHILD\"", "\"linkto\": \"CHILD\""),
        "conf/as/topology.json:12: border_routers.br-1.interfaces.1.link_to: missing; write \"core\", \"parent\", \
         \"child\" or \"peer\"\n\
         conf/as/topology.json:14: border_routers.br-1.interfaces.1.linkto: unknown key, which has no effect; did you \
         mean \"link_to\"?"
    );
}

#[test]
fn problems_of_all_files_are_told_at_once() {
    let own = "[general]\nconfig_dir = \"as\"\n";
    assert_eq!(
        errors(own, &with("\"10.0.0.2:30042\"", "7"), "?"),
        "conf/br.toml:1: general.id: missing; write the name of this router in the topology, for example id = \"br-1\"\n\
         conf/as/keys/master0.key:1: \"?\" is not a digit of base64; write the master key of the AS in base64\n\
         conf/as/topology.json:24: border_routers.br-2.internal_addr: 7 found; write \"192.0.2.1:30042\""
    );
}

#[test]
fn files_that_are_not_there_are_named() {
    let own = OWN.replace("\"as\"", "\"elsewhere\"");
    let text = errors(&own, TOPOLOGY, KEY);
    for file in ["topology.json", "keys/master0.key"] {
        let start = format!("conf/elsewhere/{file}:1: cannot be read: ");
        assert!(text.contains(&start), "{text}");
    }
}

#[test]
fn a_router_that_the_topology_does_not_have_is_named() {
    assert_eq!(
        errors(&OWN.replace("br-1", "br-9"), TOPOLOGY, KEY),
        "conf/br.toml:2: general.id: the topology has no such router; write one of: \"br-1\", \"br-2\""
    );
}

#[test]
fn an_end_of_a_link_that_is_missing_is_named() {
    assert_eq!(
        topology_errors("\"local\": \"192.0.2.1:50000\", ", ""),
        "conf/as/topology.json:13: border_routers.br-1.interfaces.1.underlay.local: missing; \
         write our address on the link, for example \"192.0.2.1:50000\""
    );
    let text = topology_errors(
        "\"underlay\": {\"local\": \"192.0.2.1:50000\", \"remote\": \"192.0.2.2:50001\"},",
        "",
    );
    assert!(text.contains("interfaces.1.underlay: missing"), "{text}");
}

#[test]
fn names_of_hosts_are_refused() {
    assert_eq!(
        topology_errors("192.0.2.2:50001", "router.example:50001"),
        "conf/as/topology.json:13: border_routers.br-1.interfaces.1.underlay.remote: \
         \"router.example:50001\" is a host name, which is not supported; write its IP address"
    );
}

#[test]
fn addresses_are_of_one_family_and_of_two_hosts() {
    let text = topology_errors("192.0.2.2:50001", "[2001:db8::9]:1");
    assert!(text.contains("mix IPv4 and IPv6"), "{text}");
    let text = topology_errors("192.0.2.2:50001", "192.0.2.1:50000");
    assert!(
        text.contains("underlay.remote: 192.0.2.1:50000 is the local end"),
        "{text}"
    );
    let text = topology_errors("192.0.2.1:50000", ":50000");
    assert!(
        text.contains("has no IP address; write this router's address on the link"),
        "{text}"
    );
    for local in [
        "[fe80::1]:50000",
        "[fe80::1%eth1]:50000",
        "[fe80::1%3]:50000",
    ] {
        let text = topology_errors("192.0.2.1:50000", local);
        assert!(
            text.contains("link-local address; give both ends"),
            "{text}"
        );
    }
    for wrong in [
        "0.0.0.0:1",
        "224.0.0.1:1",
        "192.0.2.2:0",
        "192.0.2.2",
        "[::ffff:1.2.3.4]:5",
        "x",
    ] {
        let text = topology_errors("192.0.2.2:50001", wrong);
        assert!(text.contains("interfaces.1.underlay.remote: "), "{text}");
    }
}

#[test]
fn no_address_is_taken_twice() {
    assert_eq!(
        topology_errors("10.0.0.2:30042", "10.0.0.1:30042"),
        "conf/as/topology.json:24: border_routers.br-2.internal_addr: 10.0.0.1:30042 is already used by \
         border_routers.br-1.internal_addr; write another"
    );
    let text = topology_errors("192.0.2.1:50000", "10.0.0.1:30042");
    assert!(
        text.contains("interfaces.1.underlay.local: 10.0.0.1:30042 is "),
        "{text}"
    );
    let same = with("[2001:db8::1]:50000", "192.0.2.1:50000")
        .replace("[2001:db8::2]:50000", "192.0.2.9:1");
    let text = errors(OWN, &same, KEY);
    assert!(
        text.contains("interfaces.2.underlay.public: 192.0.2.1:50000 is "),
        "{text}"
    );
}

#[test]
fn interfaces_are_numbered_once() {
    assert_eq!(
        topology_errors("\"3\": {", "\"1\": {"),
        "conf/as/topology.json:26: border_routers.br-2.interfaces.1: interface 1 already belongs to \
         \"br-1\"; interface numbers are unique within an AS, write another"
    );
    let text = topology_errors("\"2\": {", "\"1\": {");
    assert!(
        text.contains("interfaces.1: is set twice; remove one"),
        "{text}"
    );
    for wrong in ["0", "65536", "+1", "", "a"] {
        let text = topology_errors("\"3\": {", &format!("\"{wrong}\": {{"));
        assert!(
            text.contains("an interface is a number from 1 to 65535"),
            "{text}"
        );
    }
}

#[test]
fn kinds_of_links_fit_the_kind_of_as() {
    let text = topology_errors("CHILD", "parent");
    assert!(
        text.contains("interfaces.1.link_to: a core AS has no parents"),
        "{text}"
    );
    let text = topology_errors("[\"core\"]", "[]");
    assert!(
        text.contains("interfaces.2.link_to: only core ASes have core links"),
        "{text}"
    );
    let text = topology_errors("CHILD", "friend");
    assert!(text.contains("link_to: \"friend\" is unknown"), "{text}");
}

#[test]
fn numbers_of_ases_are_real_and_those_of_others() {
    for wrong in ["1-ff00:0:110", "0-5", "1-0", "x"] {
        let text = topology_errors("1-ff00:0:111", wrong);
        assert!(text.contains("interfaces.1.isd_as: "), "{text}");
    }
    let text = topology_errors("1-ff00:0:110", "1-0");
    assert!(
        text.contains("topology.json:2: isd_as: 1-0 is a wildcard"),
        "{text}"
    );
}

#[test]
fn ranges_of_ports_are_read_strictly() {
    for wrong in [
        "5", "0-5", "5-0", "9-5", "1-65536", "1-2-3", "+1-5", " 1-5", "none",
    ] {
        let text = topology_errors("30000-32767", wrong);
        assert!(
            text.contains("topology.json:5: dispatched_ports: "),
            "{text}"
        );
    }
    let own = format!("{OWN}[router]\ndispatched_port_start = 9\n");
    assert!(errors(&own, TOPOLOGY, KEY).contains("dispatched_port_start: the range is incomplete"));
    let own = format!("{own}dispatched_port_end = 8\n");
    assert!(errors(&own, TOPOLOGY, KEY).contains("dispatched_port_end: 8 is before"));
}

#[test]
fn a_router_that_does_nothing_is_refused() {
    let own = format!("{OWN}[xdp]\nmode = \"off\"\nslow_path = false\n");
    assert!(
        errors(&own, TOPOLOGY, KEY)
            .starts_with("conf/br.toml:6: xdp.slow_path: together with mode = \"off\"")
    );
}

#[test]
fn keys_are_in_base64_and_not_empty() {
    for wrong in ["", "\n", "dGVzd", "%", "dGVzdGtleQ=x"] {
        let text = errors(OWN, TOPOLOGY, wrong);
        assert!(text.starts_with("conf/as/keys/master0.key:1: "), "{text}");
    }
}

#[test]
fn what_is_no_json_is_refused_with_its_line() {
    let text = topology_errors("\"mtu\": 1472,", "\"mtu\": 1472");
    assert!(
        text.starts_with("conf/as/topology.json:4: not JSON, column "),
        "{text}"
    );
    assert!(errors(OWN, "[]", KEY).contains("an array found; write an object"));
    let text = topology_errors("\"mtu\": 1472,", "\"mtu\": 0,");
    assert!(
        text.contains(":3: mtu: 0 found; write a whole number from 576 to 65535"),
        "{text}"
    );
}
