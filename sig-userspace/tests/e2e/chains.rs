//! Rules and service chains: packets of a class pass a function beside gateway A, which knows nothing of segment routing.

use std::process::Command;
use std::time::Duration;

use crate::bed::{Bed, assert_pings, sig};
use serde_json::Value;
use sig_linux::ethtool::{Ethtool, Offload};
use testbed::{Family, Netns, Network, Options, ping, wait_until};

const PATIENCE: Duration = Duration::from_secs(15);

/// The SR node of gateway A; `on_failure` of its function.
fn node(on_failure: &str) -> String {
    let mut text = "[srv6]\nsource = \"fd00:5::1\"\nlocators = [\"fd00:5::/48\"]\n".to_owned();
    for (name, to, from, hop, sid) in [
        ("there", "fw-in", "fw-out", "10.77.1.2", "f"),
        ("back", "fw-out", "fw-in", "10.77.2.2", "fb"),
    ] {
        text += &format!(
            "[[srv6.function]]\nname = \"{name}\"\ninterface = \"{to}\"\nreturn_interface = \"{from}\"\n\
             next_hop = \"{hop}\"\non_failure = \"{on_failure}\"\n\
             [[srv6.sid]]\nsid = \"fd00:5::{sid}\"\nbehavior = \"End.AD4\"\nfunction = \"{name}\"\n"
        );
    }
    for (policy, first, last, table) in [
        ("inspect", "f", "a", "tunnel"),
        ("return", "fb", "b", "main"),
    ] {
        text += &format!(
            "[[srv6.sid]]\nsid = \"fd00:5::{last}\"\nbehavior = \"End.DT46\"\ntable = \"{table}\"\n\
             [[srv6.policy]]\nname = \"{policy}\"\nsegments = [\"fd00:5::{first}\", \"fd00:5::{last}\"]\n"
        );
    }
    text
}

const CHAIN: &str = "[[rule]]\nname = \"watched\"\nclass = \"protocol=ICMP\"\naction = \"chain\"\n\
                     egress = \"inspect\"\ningress = \"return\"\n";

/// A router of the kernel between `fw-in` and `fw-out` of gateway A.
fn function(gateway: &Netns) -> Netns {
    let function = Netns::new("function").expect("a namespace");
    function
        .set_sysctls(&[
            ("net/ipv4/ip_forward", "1"),
            ("net/ipv4/conf/all/rp_filter", "0"),
            ("net/ipv4/conf/default/rp_filter", "0"),
        ])
        .expect("settings");
    for (number, near, far) in [(1, "fw-in", "f1"), (2, "fw-out", "f2")] {
        let name = function.name();
        gateway
            .ip(&format!(
                "link add {near} type veth peer name {far} netns {name}\n\
                 link set {near} up\naddr add 10.77.{number}.1/24 dev {near}"
            ))
            .expect("a wire");
        function
            .ip(&format!(
                "link set {far} up\naddr add 10.77.{number}.2/24 dev {far}"
            ))
            .expect("a wire");
        let polls = || {
            let ethtool = Ethtool::open().expect("ethtool");
            for on in [false, true] {
                let set = ethtool.set_offload(far, Offload::GenericReceive, on);
                set.expect("an offload");
            }
        };
        function.run(polls).expect("the namespace");
    }
    function
        .ip(
            "route add default via 10.77.2.1 table 1\nroute add default via 10.77.1.1 table 2\n\
             rule add iif f1 table 1\nrule add iif f2 table 2",
        )
        .expect("routes");
    function
}

/// Gateway A with these rules from now on: what `sig reload` says.
fn rules(network: &Network, text: &str) -> String {
    std::fs::write(network.folder().join("rules.toml"), text).expect("a file");
    let output = Command::new(sig())
        .args(["reload", "--config"])
        .arg(network.a.config_file())
        .output()
        .expect("it runs");
    String::from_utf8([output.stdout, output.stderr].concat()).expect("UTF-8")
}

/// `sig chain status` of gateway A.
fn status(network: &Network) -> Value {
    let output = Command::new(sig())
        .args(["chain", "status", "--json", "--config"])
        .arg(network.a.config_file())
        .output()
        .expect("it runs");
    serde_json::from_slice(&output.stdout).expect("a document")
}

/// Packets that each function returned.
fn returned(network: &Network) -> Vec<u64> {
    let document = status(network);
    let functions = document["node"]["functions"].as_array().expect("functions");
    let count = |function: &Value| function["packets_returned"].as_u64().expect("a count");
    functions.iter().map(count).collect()
}

fn received(network: &Network) -> u32 {
    let to = network.b.client_ip(Family::V4);
    let interval = Duration::from_millis(20);
    ping(&network.a.client, to, 2, 64, interval)
        .expect("ping")
        .received
}

#[test]
fn packets_of_a_class_pass_a_function_both_ways() {
    let mut bed = Bed::new(&Options::default());
    let function = function(&bed.network.a.gateway);
    let folder = bed.network.folder().to_owned();
    let config = std::fs::read_to_string(bed.network.a.config_file()).expect("a file");
    let rules_file = folder.join("rules.toml");
    let with_rules = config.replacen(
        "[gateway]\n",
        &format!("[gateway]\nrules_file = \"{}\"\n", rules_file.display()),
        1,
    );
    std::fs::write(bed.network.a.config_file(), with_rules).expect("a file");
    std::fs::write(&rules_file, CHAIN.to_owned() + &node("drop")).expect("a file");
    bed.network
        .start_gateways()
        .unwrap_or_else(|e| panic!("{e:#}"));
    let network = &bed.network;
    let is_up = |wanted: bool| {
        wait_until("the functions are as they should be", PATIENCE, || {
            let document = status(network);
            let functions = document["node"]["functions"].as_array().expect("functions");
            Ok(functions
                .iter()
                .all(|of| of["is_up"].as_bool() == Some(wanted)))
        })
        .unwrap_or_else(|e| panic!("{e:#}: {:#}", status(network)));
    };
    is_up(true);

    assert_pings(network, Family::V4, 50, 600);
    let counts = returned(network);
    assert!(
        counts.iter().all(|count| (50..60).contains(count)),
        "{counts:?} {:#}",
        status(network)
    );
    // What is not in the class passes the function by.
    assert_pings(network, Family::V6, 20, 600);
    assert_eq!(returned(network), counts);

    // Without its function, what has to pass it is dropped. The rest goes on.
    function.ip("link set f1 down").expect("a device");
    is_up(false);
    assert_eq!(received(network), 0);
    assert_pings(network, Family::V6, 5, 600);
    let told = rules(network, &(CHAIN.to_owned() + &node("bypass")));
    assert!(told.contains("policies and functions changed"), "{told}");
    assert_pings(network, Family::V4, 20, 600);
    function
        .ip("link set f1 up\nroute replace default via 10.77.1.1 table 2")
        .expect("a device");
    is_up(true);
    let before = returned(network);
    assert_pings(network, Family::V4, 20, 600);
    assert!(returned(network)[0] >= before[0] + 20);

    // Other rules, and what is wrong with them.
    let told = rules(network, &CHAIN.replace("\"return\"", "\"inspect\""));
    assert!(told.contains("there is no [[srv6.policy]]"), "{told}");
    assert_pings(network, Family::V4, 5, 600);
    let drop = "[[rule]]\nname = \"none\"\nclass = \"protocol=ICMP\"\naction = \"drop\"\ndirection = \"ingress\"\n";
    rules(network, drop);
    assert_eq!(received(network), 0);
    let rule = status(network)["rules"][0].clone();
    assert_eq!(rule["packets_from_remotes"], 2, "{rule}");
    rules(network, "");
    assert_pings(network, Family::V4, 5, 600);
}
