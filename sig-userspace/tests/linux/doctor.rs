//! `sig doctor` on a real host: finds what is there and leaves everything as it was.

use std::path::PathBuf;
use std::process::Output;

use crate::support::netns::{Netns, root_or_skip, veth_with_queues};
use serde_json::Value;
use sig_linux::ethtool::{Ethtool, TagsKept};
use sig_linux::link;
use sig_linux::netlink::Netlink;
use sig_linux::suited::VlanTags;

const SIG: &str = env!("CARGO_BIN_EXE_sig");

/// A gateway with its remotes in the file, so that there are next hops to look at.
const CONFIGURATION: &str = r#"
[gateway]
isd_as = "1-ff00:0:110"
data_addr = "10.10.0.2:30056"
prefixes = ["192.168.10.0/24"]
[dataplane]
lan = ["eth1"]
[[remote]]
isd_as = "1-ff00:0:111"
gateway = "10.11.0.2:30056"
prefixes = ["192.168.11.0/24"]
[[remote.path]]
raw = "00002000 01001234ffffffff 003f00000001010203040506 003f000200000708090a0b0c"
next_hop = "10.10.0.1:30042"
mtu = 1472
"#;

/// The configuration in a file of this test.
fn configuration(label: &str) -> PathBuf {
    let name = format!("sig-doctor-{}-{label}.toml", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, CONFIGURATION).unwrap();
    path
}

/// All that doctor could have changed.
fn state(netns: &Netns) -> String {
    ["link", "addr", "route", "-6 route", "neigh"]
        .map(|what| netns.ip(what))
        .concat()
}

/// The findings of a level as "area: text".
fn of_level(output: &Output, level: &str) -> Vec<String> {
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["ok"], output.status.success());
    let findings = report["findings"].as_array().unwrap();
    findings
        .iter()
        .filter(|finding| finding["level"] == level)
        .map(|finding| {
            assert!(
                level == "good" || finding["remedy"].is_string(),
                "{finding}"
            );
            format!(
                "{}: {}",
                finding["area"].as_str().unwrap(),
                finding["text"].as_str().unwrap()
            )
        })
        .collect()
}

#[test]
fn doctor_judges_the_host_for_a_configuration_and_changes_nothing() {
    if !root_or_skip() {
        return;
    }
    let (gateway, other) = (Netns::new("doctor"), Netns::new("doctor"));
    veth_with_queues((&gateway, "eth0"), (&other, "o0"), 2);
    veth_with_queues((&gateway, "eth1"), (&other, "o1"), 1);
    gateway.ip("addr add 10.10.0.2/24 dev eth0");
    let config = configuration("judge");
    let doctor = || {
        gateway.try_exec(&format!(
            "{SIG} doctor --format json --config {}",
            config.display()
        ))
    };

    let before = state(&gateway);
    let output = doctor();
    assert_eq!(state(&gateway), before);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(of_level(&output, "bad"), Vec::<String>::new());
    let good = of_level(&output, "good").join("\n");
    for words in [
        "AF_XDP can be used",
        "BPF can be used",
        "next hop 10.10.0.1: on-link",
    ] {
        assert!(good.contains(words), "{words} not in {good}");
    }
    let warnings = of_level(&output, "warning").join("\n");
    assert!(warnings.contains("does not forward IPv4"), "{warnings}");

    gateway.ip("link set eth0 mtu 9000");
    let good = of_level(&doctor(), "good").join("\n");
    assert!(good.contains("MiB are jumbo frames"), "{good}");

    other.ip("link set o1 down");
    gateway.ip("link set eth0 mtu 9600");
    let output = doctor();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let bad = of_level(&output, "bad").join("\n");
    assert!(bad.contains("interface eth1: has no carrier"), "{bad}");
    assert!(
        bad.contains("interface eth0: MTU 9600 is too large"),
        "{bad}"
    );
    std::fs::remove_file(config).unwrap();
}

#[test]
fn doctor_without_configuration_describes_every_interface() {
    if !root_or_skip() {
        return;
    }
    let (left, right) = (Netns::new("plain"), Netns::new("plain"));
    veth_with_queues((&left, "a0"), (&right, "b0"), 3);
    let output = left.try_exec(&format!("{SIG} doctor"));
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains(
            "interface a0\n  ✓ veth, up, MTU 1500, 3 receive and 3 transmit queue(s), native XDP"
        ),
        "{text}"
    );
    assert!(text.contains("0 to fix"), "{text}");
}

#[test]
fn doctor_with_an_invalid_configuration_ends_with_exit_code_2() {
    let path = configuration("invalid");
    std::fs::write(&path, "nonsense = 1\n").unwrap();
    let output = std::process::Command::new(SIG)
        .arg("doctor")
        .arg("--config")
        .arg(&path)
        .output()
        .unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains(":1: nonsense"),
        "{output:?}"
    );
}

#[test]
fn vlan_tags_of_a_veth_pair_are_hidden_by_its_other_end() {
    if !root_or_skip() {
        return;
    }
    let (here, there) = (Netns::new("tags"), Netns::new("tags"));
    veth_with_queues((&here, "a0"), (&here, "a1"), 1);
    veth_with_queues((&here, "b0"), (&there, "b1"), 1);
    let tags = here.block_on(async || {
        let netlink = Netlink::open().unwrap();
        let links = link::all(&netlink).await.unwrap();
        let ethtool = Ethtool::open().unwrap();
        ["a0", "b0"].map(|name| {
            let link = links.iter().find(|link| link.name == name).unwrap();
            VlanTags::of(&ethtool, link, &links)
        })
    });
    assert_eq!(tags, [VlanTags::LeftOut, VlanTags::Unknown]);
}

#[test]
fn an_interface_leaves_tags_in_packets_as_long_as_it_has_to() {
    if !root_or_skip() {
        return;
    }
    let netns = Netns::new("tags");
    veth_with_queues((&netns, "a0"), (&netns, "a1"), 1);
    netns.run(|| {
        let offloads = || Ethtool::open().unwrap().vlan_offloads("a0").unwrap();
        let before = offloads();
        assert!(before.rx, "{before:?}");
        let name = c"a0";
        // SAFETY: a string with its end mark.
        let ifindex = unsafe { libc::if_nametoindex(name.as_ptr()) };
        let kept = TagsKept::on(ifindex).unwrap();
        assert!(!offloads().rx);
        drop(kept);
        assert_eq!(offloads(), before);
        assert!(TagsKept::on(77_777).is_err());
    });
}
