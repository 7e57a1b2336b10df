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
        (8, 3, 3, 4)
    );
}

#[test]
fn a_function_with_headers_per_flow_serves_several_sids() {
    let text = SAMPLE.replace("headers = \"latest\"", "headers = \"flow\"");
    let more =
        "[[srv6.sid]]\nsid = \"2001:db8:a::f6\"\nbehavior = \"End.AD6\"\nfunction = \"firewall\"\n";
    let (config, _) =
        check(&format!("{text}{more}"), "node.toml").unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(config.srv6.sids.len(), 9);
}

#[test]
fn policies_that_share_a_function_are_warned_about() {
    let warnings = |text: &str| -> Vec<String> {
        let (_, warnings) = check(text, "node.toml").unwrap_or_else(|errors| panic!("{errors}"));
        warnings.iter().map(ToString::to_string).collect()
    };
    let policy = |segments: &str| {
        format!("{SAMPLE}\n[[srv6.policy]]\nname = \"too\"\nsegments = [{segments}]\n")
    };
    let same = policy("\"2001:db8:c::e\", \"2001:db8:a::f\", \"2001:db8:b::d46\"");
    assert!(warnings(&same).is_empty());
    let other = policy("\"2001:db8:a::f\", \"2001:db8:b::d4\"");
    let found = warnings(&other);
    let said = "function[0]: policies \"inspect\" and \"too\" lead through this function";
    assert!(
        matches!(&found[..], [one] if one.contains(said)),
        "{found:?}"
    );
    let per_flow = |text: &str| text.replace("headers = \"latest\"", "headers = \"flow\"");
    assert!(warnings(&per_flow(&other)).is_empty());
    let twice = policy("\"2001:db8:a::f\", \"2001:db8:a::f\", \"2001:db8:b::d46\"");
    let found = warnings(&per_flow(&twice));
    let said = "policy \"too\" leads through this function twice";
    assert!(
        matches!(&found[..], [one] if one.contains(said)),
        "{found:?}"
    );
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
            "in_process = true\n",
            "in_process = true\nnext_hop = \"10.0.0.1\"\n",
            "function[1].next_hop: this is not for functions in the process",
        ),
        (
            "function = \"counter\"",
            "function = \"firewall\"",
            "End.AN is for functions in the process",
        ),
        (
            "behavior = \"End.AN\"",
            "behavior = \"End.AM\"",
            "the function is in the process, which is for End.AN",
        ),
        (
            "probe = \"through\"",
            "probe = \"tcp:0\"",
            "\"tcp:0\" is no probe; write",
        ),
        (
            "probe = \"through\"",
            "probe = \"tcp:80\"",
            "probe_source: this is for probe = \"through\"",
        ),
        (
            "probe_source = \"192.0.2.1\"",
            "",
            "function[0].probe: a packet through the function has addresses",
        ),
        (
            "probe_source = \"192.0.2.1\"",
            "probe_source = \"2001:db8::1\"",
            "another IP version than probe_source",
        ),
        (
            "policy = \"back\"",
            "policy = \"back\"\nprobe = \"ping\"",
            "function[2].probe: the function is asked at its address; write next_hop",
        ),
        (
            "policy = \"back\"",
            "policy = \"back\"\nprobe_interval = \"1s\"",
            "function[2].probe_interval: there is no probe",
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
            "\ninsert = false\n",
            "\ninsert = true\n",
            "srv6.policy[1].insert: IPv6 does not let routers insert headers",
        ),
        (
            "\ninsert = false\n",
            "\ninsert = true\n",
            "IPv4 packets have no room for segments",
        ),
        (
            "hmac = \"ignore\"",
            "hmac = \"require\"",
            "srv6.hmac: there is no key to verify with",
        ),
        (
            "# hmac = 7\n",
            "hmac = 7\n",
            "srv6.policy[1].hmac: there is no [[srv6.hmac_key]] with the id 7",
        ),
        (
            "mtu = 1554",
            "insert = true",
            "frames have no room for segments",
        ),
        (
            "segments = [\"2001:db8:b::d46\"]",
            "insert = true\nsegments = [\"2001:db8:b::d46\"]",
            "static proxies put packets behind headers",
        ),
        (
            "frames_from = [\"eth2\"]",
            "frames_from = [\"eth1\"]",
            "the frames of \"eth1\" are those of [srv6] trusted or untrusted, or of a function",
        ),
        (
            "frames_from = [\"eth2\"]",
            "frames_from = [\"eth2\", \"eth2\"]",
            "the frames of \"eth2\" go into policy \"wire\" already",
        ),
        (
            "segments = [\"2001:db8:b::d2\"]\nmtu = 1554",
            "segments = [\"::1:1\", \"::1:2\", \"::1:3\", \"::1:4\", \"::1:5\", \"::1:6\", \"::1:7\", \"::1:8\", \"::1:9\", \"::1:a\"]\nreduced = false\nmtu = 9000",
            "the headers have 208 bytes, and 194 are possible",
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
            "srv6.sid[7].arguments: the last 8 bits of 2001:db8:a::e00:1 are not all zero",
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
        "srv6.hmac_key[]",
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

#[test]
fn secrets_are_read_and_never_shown() {
    let folder = std::env::temp_dir();
    let file = folder.join(format!("sig-srv6-secret-{}", std::process::id()));
    let path = file.display().to_string();
    let text = SAMPLE
        .replace("# [[srv6.hmac_key]]", "[[srv6.hmac_key]]")
        .replace("# id = 7", "id = 7")
        .replace(
            "# secret_file = \"/etc/sig/hmac-7\"",
            &format!("secret_file = \"{path}\""),
        )
        .replace("# hmac = 7\n", "hmac = 7\n");
    let errors = check(&text, "node.toml").expect_err("no file").to_string();
    assert!(errors.contains("srv6.hmac_key[0].secret_file"), "{errors}");
    for wrong in ["", "0", "0g", "00 11", &"00".repeat(256)] {
        std::fs::write(&file, wrong).expect("a folder for files");
        let errors = check(&text, "node.toml")
            .expect_err("no secret")
            .to_string();
        assert!(errors.contains("does not hold a secret"), "{errors}");
    }
    std::fs::write(&file, "0badcafe\n").expect("a folder for files");
    let (config, _) = check(&text, "node.toml").unwrap_or_else(|errors| panic!("{errors}"));
    std::fs::remove_file(&file).expect("it is there");
    let shown = format!("{config:?}").to_lowercase();
    assert!(!shown.contains("badcafe"), "{shown}");
    let key = sig_common::srv6::hmac::HmacKey::new(&[0x0b, 0xad, 0xca, 0xfe], 0);
    assert!(config.srv6.hmac_keys == [(7, key)]);
    assert!(!shown.contains(&key.inner[0].to_string()), "{shown}");
}
