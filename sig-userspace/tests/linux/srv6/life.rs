//! Nodes that end, follow another configuration, and packets that come by again and again.

use std::{fs, net::IpAddr, process::Stdio, time::Instant};

use testbed::Netns;

use super::net::{Line, Node, PATIENCE, assert_pings, assert_silence};
use crate::support::netns::wait_until;

const HEAD: &str = r#"
[srv6]
source = "fc00:1::1"
locators = ["fc00:22::/48"]
trusted = ["nr", "ns"]
"#;

fn with_sids(sids: &[(&str, &str)]) -> String {
    let sids = sids
        .iter()
        .map(|(sid, rest)| format!("[[srv6.sid]]\nsid = \"fc00:22::{sid}\"\n{rest}\n"));
    format!("{HEAD}{}", sids.collect::<String>())
}

const END: &str = "behavior = \"End\"";
const DT46: &str = "behavior = \"End.DT46\"\ntable = \"main\"";

/// Both families, for a test to name.
fn both(x: u8) -> [(String, IpAddr); 2] {
    Line::destination(x).map(|to| (to.to_string(), to))
}

/// What a node could leave on its host.
fn traces(host: &Netns) -> Vec<String> {
    // Neighbours that the kernel found by itself come and go.
    [
        "ip -o link",
        "ip -o address",
        "ip -4 route show table all",
        "ip -6 route show table all",
        "ip rule",
        "ip -6 rule",
        "ip neigh show nud permanent",
        "tc qdisc show",
    ]
    .map(|command| {
        let shown = host.exec(command).unwrap();
        // How long an address or route is valid still.
        let words = shown.split_whitespace().filter(|word| {
            let is_time = |unit| {
                word.strip_suffix(unit)
                    .is_some_and(|number| number.parse::<u32>().is_ok())
            };
            !is_time("sec")
        });
        words.collect::<Vec<_>>().join(" ")
    })
    .into()
}

#[test]
fn a_killed_node_leaves_nothing_and_the_next_one_goes_on() {
    if !super::net::may_run() {
        return;
    }
    let line = Line::new("kill");
    for (_, to) in both(2) {
        line.kernel_encapsulates(to, "encap", "fc00:22::e,fc00:22::d46");
    }
    let config = with_sids(&[("e", END), ("d46", DT46)]);
    let before = traces(&line.n);
    let node = Node::start(&line.n, &config);
    assert_pings(&line.a, &both(2), &node);
    assert_ne!(traces(&line.n), before, "else this test sees nothing");
    let folder = node.kill();
    let mut left = traces(&line.n);
    let end = Instant::now() + PATIENCE;
    while left != before && Instant::now() < end {
        left = traces(&line.n);
    }
    assert_eq!(left, before);
    // Nobody processes SIDs any more.
    assert_silence(&line.a, both(2).into_iter().map(|(_, to)| to));
    // Over the socket that the killed one could not remove.
    assert!(folder.path().join("node.sock").exists());
    let mut node = Node::start_again(&line.n, &config, folder);
    assert_pings(&line.a, &both(2), &node);
    let (status, left) = node.stop();
    assert!(status.success(), "{}", node.log());
    assert!(!left.exists(), "the socket is left");
    assert_eq!(traces(&line.n), before);
}

#[test]
fn a_reload_changes_what_the_file_changes() {
    if !super::net::may_run() {
        return;
    }
    let line = Line::new("reload");
    for (x, segments) in [
        (2, "fc00:22::e,fc00:22::d46"),
        (3, "fc00:22::e3,fc00:22::d46"),
    ] {
        for (_, to) in both(x) {
            line.kernel_encapsulates(to, "encap", segments);
        }
    }
    let first = with_sids(&[("e", END), ("d46", DT46)]);
    let second = with_sids(&[("d46", DT46), ("e3", END)]);
    let node = Node::start(&line.n, &first);
    assert_pings(&line.a, &both(2), &node);
    let before = node.status();
    assert!(before.sid("fc00:22::e") >= 6 && before.sid("fc00:22::d46") >= 6);

    // A wrong one.
    let wrong = format!("{second}[[srv6.sid]]\nsid = \"fc00:44::e\"\n{END}\n");
    node.reload(&wrong, "nothing is changed");
    assert!(node.log().contains("fc00:44::e"), "{}", node.log());
    assert_eq!(node.status().sid("fc00:22::e"), before.sid("fc00:22::e"));
    assert_pings(&line.a, &both(2), &node);
    let before = node.status();

    // A right one: another SID for one of the two. Packets go on meanwhile, by one that stays.
    let [_, (_, steady)] = both(4);
    line.kernel_encapsulates(steady, "encap", "fc00:22::d46");
    // The program `ping` leaves before late replies, so that those are counted which the kernel has seen.
    let replies = || counter(&line.a, "Icmp6InEchoReplies");
    let expected = replies() + 60;
    let mut pings = line.a.command("ping");
    pings
        .args(["-q", "-n", "-c60", "-i0.005", "-W2"])
        .arg(steady.to_string())
        .stdout(Stdio::null());
    let mut pings = pings.spawn().unwrap();
    node.reload(&second, "follows the file");
    pings.wait().unwrap();
    wait_until("all are answered", PATIENCE, || replies() == expected);
    assert_pings(&line.a, &both(3), &node);
    let after = node.status();
    assert!(
        after.sid("fc00:22::d46") >= before.sid("fc00:22::d46") + 60 + 6,
        "{before:#?}{after:#?}"
    );
    assert_silence(&line.a, both(2).into_iter().map(|(_, to)| to));

    // What is new again begins at nothing.
    node.reload(&first, "follows the file");
    assert_eq!(node.status().sid("fc00:22::e"), 0);
    assert_pings(&line.a, &both(2), &node);
}

/// Segments of two nodes in turns: the list ends, and so does the hop limit.
#[test]
fn lists_that_come_by_again_end() {
    if !super::net::may_run() {
        return;
    }
    const TURNS: usize = 6;
    let line = Line::new("turns");
    let turns = ["fc00:22::e,fc00:33::1"; TURNS].join(",");
    for (_, to) in both(2) {
        line.kernel_encapsulates(to, "encap", &format!("{turns},fc00:33::46"));
    }
    let n = Node::start(&line.n, &with_sids(&[("e", END)]));
    let s = Node::start(
        &line.s,
        r#"
[srv6]
source = "fc00:2::2"
locators = ["fc00:33::/48"]
trusted = ["sn", "sb"]
sid = [
    { sid = "fc00:33::1", behavior = "End" },
    { sid = "fc00:33::46", behavior = "End.DT46", table = "main" },
]
"#,
    );
    assert_pings(&line.a, &both(2), &n);
    let passed = n.status().sid("fc00:22::e");
    assert!(passed >= 6 * TURNS as u64, "{:#?}", n.status());
    assert_eq!(passed % TURNS as u64, 0, "each packet came by that often");
    assert_eq!(s.status().sid("fc00:33::1"), passed);

    // The kernel copies the hop limit of an IPv6 packet to the outside, and counts r itself.
    let [_, (_, to)] = both(2);
    let exceeded = counter(&line.r, "Icmp6InTimeExcds");
    let ping = line.a.exec(&format!("ping -q -n -c1 -W0.2 -t8 {to}"));
    assert!(ping.is_err());
    wait_until("r is told", PATIENCE, || {
        counter(&line.r, "Icmp6InTimeExcds") == exceeded + 1
    });
    // Seven hops: three at n and three at s, and the last one is refused at n.
    assert_eq!(n.status().sid("fc00:22::e"), passed + 4);
    assert_eq!(s.status().sid("fc00:33::1"), passed + 3);
    assert_eq!(n.status().refused("hop_limit"), 1, "{:#?}", n.status());
}

/// Two nodes that send a packet to each other for ever: each takes what the other decapsulated for one to put behind a segment of the
/// other's.
#[test]
fn packets_that_are_reflected_end() {
    if !super::net::may_run() {
        return;
    }
    let line = Line::new("reflect");
    let destinations = "destinations = [\"10.2.0.2/32\", \"fd00:2::2/128\"]";
    let n = Node::start(
        &line.n,
        &format!(
            "{HEAD}[[srv6.policy]]\nname = \"there\"\nsegments = [\"fc00:33::46\"]\n{destinations}\n"
        ),
    );
    let s = Node::start(
        &line.s,
        r#"
[srv6]
source = "fc00:2::2"
locators = ["fc00:33::/48"]
trusted = ["sn"]
sid = [{ sid = "fc00:33::46", behavior = "End.DT46", table = 100 }]
"#,
    );
    line.s
        .ip("route add default via 10.9.0.1 table 100\n\
             neigh replace 10.9.0.1 lladdr 02:00:00:00:00:23 dev sn\n\
             neigh replace fc00:2::1 lladdr 02:00:00:00:00:23 dev sn")
        .unwrap();
    let exceeded = |name| counter(&line.a, name);
    for (_, to) in both(2) {
        assert!(line.a.exec(&format!("ping -q -n -c1 -W0.2 {to}")).is_err());
    }
    wait_until("a is told, IPv6", PATIENCE, || {
        exceeded("Icmp6InTimeExcds") == 1
    });
    let v4 = || {
        let text = line
            .a
            .run(|| fs::read_to_string("/proc/thread-self/net/snmp"));
        let text = text.unwrap().unwrap();
        let mut lines = text.lines().filter(|line| line.starts_with("Icmp: "));
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let mut both = names.split(' ').zip(values.split(' '));
        both.any(|(name, value)| name == "InTimeExcds" && value == "1")
    };
    wait_until("a is told, IPv4", PATIENCE, v4);
    // 64 hops, of which r takes one, and both take one each time.
    let (there, back) = (n.status().policy("there"), s.status().sid("fc00:33::46"));
    assert_eq!(there, back);
    assert!((60..=64).contains(&there), "{there}");
}

/// A counter of `/proc/net/snmp6`.
fn counter(host: &Netns, name: &str) -> u64 {
    let text = host.run(|| fs::read_to_string("/proc/thread-self/net/snmp6"));
    let text = text.unwrap().unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap().trim().parse().unwrap()
}
