use super::config::{SAMPLE, SCHEMA, check};

#[test]
fn the_sample_is_correct() {
    let (config, warnings) = check(SAMPLE, "sample").unwrap_or_else(|errors| panic!("{errors}"));
    assert!(warnings.is_empty());
    assert_eq!(
        (
            config.srv6.sids.len(),
            config.srv6.policies.len(),
            config.srv6.functions.len(),
            config.srv6.rules.len(),
        ),
        (7, 2, 2, 4)
    );
}

#[test]
fn a_function_with_headers_per_flow_serves_several_sids() {
    let text = SAMPLE.replace("headers = \"latest\"", "headers = \"flow\"");
    let more =
        "[[srv6.sid]]\nsid = \"2001:db8:a::f6\"\nbehavior = \"End.AD6\"\nfunction = \"firewall\"\n";
    let (config, _) =
        check(&format!("{text}{more}"), "node.toml").unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(config.srv6.sids.len(), 8);
}

/// The sample with something else in it.
fn refused(old: &str, new: &str) -> String {
    assert!(SAMPLE.contains(old), "{old} is in the sample");
    let text = SAMPLE.replacen(old, new, 1);
    check(&text, "node.toml")
        .expect_err("it is wrong")
        .to_string()
}

#[test]
fn what_is_wrong_is_named_with_line_and_key() {
    for (old, new, said) in [
        (
            "source = ",
            "# ",
            "srv6.source: missing; write the address of this node",
        ),
        (
            "\"2001:db8:a::/48\"]",
            "\"2001:db8:c::/48\"]",
            "srv6.sid[0].sid: 2001:db8:a::e is in none of the locators",
        ),
        (
            "table = 100",
            "next_hop = \"10.0.0.1\"",
            "End.DT46 has no next_hop; write table",
        ),
        (
            "next_hop = \"10.1.0.2\"",
            "next_hop = \"2001:db8::1\"",
            "End.DX4 forwards IPv4 packets",
        ),
        (
            "function = \"firewall\"",
            "function = \"wall\"",
            "no [[srv6.function]] with the name \"wall\"",
        ),
        (
            "policy = \"back\"",
            "",
            "a static proxy needs headers for what its function returns",
        ),
        (
            "on_failure = \"drop\"",
            "",
            "on_failure: missing; write what is done while the function is down",
        ),
        (
            "behavior = \"End\"",
            "behavior = \"End.B6\"",
            "srv6.sid[0].behavior",
        ),
        (
            "return_interface = \"sh-out\"",
            "return_interface = \"fw-out\"",
            "return interface of function \"firewall\" already",
        ),
        (
            "return_interface = \"sh-out\"",
            "return_interface = \"eth0\"",
            "belongs to its chain",
        ),
        (
            "untrusted = []",
            "untrusted = [\"eth0\"]",
            "\"eth0\" is trusted as well",
        ),
        (
            "behavior = \"End.AS\"\nfunction = \"shaper\"",
            "behavior = \"End.AD4\"\nfunction = \"firewall\"",
            "SID 2001:db8:a::f has this function already",
        ),
        (
            "policy = \"back\"",
            "policy = \"back\"\nheaders = \"flow\"",
            "headers = \"flow\", which is for End.AD4 and End.AD6",
        ),
        (
            "flavors = [\"PSP\", \"USD\"]",
            "flavors = [\"last\"]",
            "End does not have all of these flavors",
        ),
        (
            "name = \"inspect\"",
            "name = \"back\"",
            "\"back\" is there twice",
        ),
        (
            "sid=2001:db8:a::f/128",
            "sid=10.0.0.0/8",
            "srv6.rule[1].class: at character 24: 10.0.0.0/8 is an IPv4 prefix",
        ),
        (
            "interfaces = [\"eth0\"]",
            "interfaces = [\"fw-out\"]",
            "srv6.rule[0].interfaces: \"fw-out\" is neither in [srv6] trusted nor in untrusted",
        ),
        (
            "mirror = \"ids0\"",
            "",
            "srv6.rule[0].mirror: missing; write the device that copies leave by",
        ),
        (
            "action = \"go-next\"",
            "action = \"go-next\"\npolicy = \"inspect\"",
            "srv6.rule[1].policy: this is for action = \"steer\"",
        ),
        (
            "policy = \"inspect\"",
            "policy = \"inspekt\"",
            "srv6.rule[2].policy: there is no [[srv6.policy]] with the name \"inspekt\"",
        ),
        (
            "sid = \"2001:db8:a::e00:0\"",
            "sid = \"2001:db8:a::e00:1\"",
            "srv6.sid[6].arguments: the last 8 bits of 2001:db8:a::e00:1 are not all zero",
        ),
        (
            "name = \"guests\"",
            "name = \"trusted\"",
            "srv6.rule: \"trusted\" is there twice",
        ),
        (
            "class = \"src=10.1.9.0/24\"",
            &format!(
                "class = \"all({})\"",
                ["any(srcport=1,dstport=1)"; 10].join(",")
            ),
            "srv6.rule[2].class: with this rule there are more than 512 alternatives",
        ),
        (
            "mac = \"02:00:00:00:00:01\"\n",
            "mac = \"03:00:00:00:00:01\"\n",
            "not the address of one device",
        ),
    ] {
        let errors = refused(old, new);
        assert!(errors.contains(said), "{new}: {errors}");
        assert!(errors.starts_with("node.toml:"), "{errors}");
    }
}

#[test]
fn every_key_is_in_the_sample_and_the_documentation() {
    let documentation = include_str!("../../../docs/chains.md");
    for section in [
        "general",
        "srv6",
        "srv6.sid[]",
        "srv6.policy[]",
        "srv6.function[]",
        "srv6.rule[]",
    ] {
        for key in SCHEMA.keys(section) {
            assert!(
                SAMPLE.contains(&format!("{key} = "))
                    || SAMPLE.contains(&format!("[[srv6.{key}]]")),
                "{key} is in the sample"
            );
            assert!(
                documentation.contains(&format!("| `{key}` |"))
                    || documentation.contains(&format!("`[[srv6.{key}]]`:")),
                "{key} is in docs/chains.md"
            );
        }
    }
}

#[test]
fn every_reason_is_in_the_documentation() {
    let documentation = include_str!("../../../docs/chains.md");
    for reason in sig_common::srv6::maps::Reason::ALL {
        let name = reason.name();
        assert!(documentation.contains(&format!("`{name}`")), "{name}");
    }
}
