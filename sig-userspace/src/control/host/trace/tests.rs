use std::{net::IpAddr, sync::Arc};

use super::*;
use crate::control::{Environment, Neighbour, config, plan::Plan};
use sig_linux::neighbours::{Reason, Resolved};

const TEXT: &str = r#"
    [gateway]
    isd_as = "1-ff00:0:110"
    data_addr = "10.10.0.2:30056"
    prefixes = ["192.168.10.0/24"]
    [[remote]]
    isd_as = "1-ff00:0:111"
    gateway = "10.11.0.2:30056"
    prefixes = ["192.168.11.0/24"]
    [[remote.path]]
    raw = "00002000 0100123466000000 003f00000001010203040506 003f000200000708090a0b0c"
    next_hop = "10.10.0.1:30042"
    mtu = 1472
    [[remote.path]]
    raw = "00002000 0100123466000000 003f00000001010203040506 003f000200000708090a0b0d"
    next_hop = "10.10.0.9:30042"
    mtu = 1280
"#;

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn net(text: &str) -> IpNet {
    text.parse().expect("a prefix")
}

fn question(source: &str, destination: &str) -> Question {
    Question {
        source: address(source),
        destination: address(destination),
        protocol: 6,
        source_port: 49152,
        destination_port: 443,
        tos: 0,
        ttl: 64,
        length: 1000,
        from_remote: None,
    }
}

/// A gateway whose next hops are these.
struct Gateway {
    planner: Planner,
    rules: Vec<Rule>,
    hops: Snapshot,
    environment: Environment,
    from_lan: Option<(IpNet, LanRoute)>,
    excluded: Option<IpNet>,
    why_not: Option<&'static str>,
}

impl Gateway {
    fn new(next_hops: &[&str]) -> Self {
        let no_files = |_: &std::path::Path| Err(std::io::ErrorKind::NotFound.into());
        let config = config::check(TEXT, "test.toml", &no_files).expect("a configuration");
        let neighbour = Neighbour {
            interface_mac: [2; 6],
            mac: [4; 6],
            mtu: 1500,
        };
        let all = ["10.10.0.1", "10.10.0.9"].map(|hop| {
            let resolved = Resolved {
                ifindex: 1,
                source: address("10.10.0.2"),
                neighbour: address(hop),
                destination_mac: neighbour.mac,
                interface_mac: neighbour.interface_mac,
                mtu: 1500,
            };
            let resolution = match next_hops.contains(&hop) {
                true => Resolution::Resolved(resolved),
                false => Resolution::Unresolved(Reason::NoAnswer(address(hop))),
            };
            (address(hop), resolution)
        });
        let known = next_hops.iter().map(|hop| (address(hop), neighbour));
        Gateway {
            planner: Planner::new(Arc::new(config), 1),
            rules: Vec::new(),
            hops: Arc::new(all.into()),
            environment: Environment {
                neighbours: known.collect(),
                ..Environment::default()
            },
            from_lan: Some((net("192.168.11.0/24"), LanRoute::TUNNEL)),
            excluded: None,
            why_not: None,
        }
    }

    fn plan(&mut self, change: impl FnOnce(&mut Plan)) {
        let mut plan = self.planner.current().clone();
        change(&mut plan);
        self.planner.set_plan(1, plan);
    }

    fn rule(&mut self, name: &str, condition: &str, action: Action) {
        self.rules.push(Rule {
            name: name.to_owned(),
            condition: Arc::new(condition.parse().expect("a condition")),
            action,
            egress: true,
            ingress: true,
        });
        let rules = crate::control::rules::Rules {
            rules: self.rules.clone(),
            srv6: None,
        };
        let links = Default::default();
        let filter = crate::control::rules::filter(&rules, &links, 1, &mut Default::default());
        self.planner.set_filter(Arc::new(filter));
    }

    fn trace(&mut self, question: &Question) -> Trace {
        let tables = self.planner.tables(1, &self.environment);
        let facts = Facts {
            planner: &self.planner,
            tables: &tables,
            rules: &self.rules,
            why_not: &|_| self.why_not.map(str::to_owned),
            hops: &self.hops,
            probing: &HashMap::new(),
            lan: [(0, "lan0".to_owned())].into(),
            tunnel: "sig",
            from_lan: self.from_lan,
            excluded: self.excluded,
        };
        facts.answer(question).expect("an answer")
    }

    fn ask(&mut self, source: &str, destination: &str) -> Trace {
        self.trace(&question(source, destination))
    }
}

/// The steps and the verdict, a line each.
fn lines(trace: &Trace) -> Vec<String> {
    let steps = trace.steps.iter().map(|step| {
        let mark = match step.outcome {
            Outcome::Pass => "",
            Outcome::Warning => "! ",
            Outcome::Stop => "x ",
        };
        format!("{mark}{}: {}", step.step, step.text)
    });
    let reason = trace.reason.iter();
    let verdict = format!("{:?}", trace.verdict);
    let verdict = reason.fold(verdict, |verdict, reason| format!("{verdict} {reason}"));
    steps.chain([verdict]).collect()
}

/// The step that ends the way, and the verdict.
fn end(trace: &Trace) -> String {
    assert!(trace.remedy.is_some() == trace.reason.is_some());
    let lines = lines(trace);
    lines[lines.len() - 2..].join("; ")
}

#[test]
fn a_packet_to_a_remote_is_followed_to_the_next_hop() {
    let mut gateway = Gateway::new(&["10.10.0.1"]);
    let trace = gateway.ask("192.168.10.5", "192.168.11.7");
    assert_eq!(
        lines(&trace),
        [
            "entry: 192.168.11.0/24 comes to the gateway by XDP on lan0, elsewhere by the kernel's route into sig",
            "scope: both addresses may cross",
            "source: 192.168.10.5 is in 192.168.10.0/24, served here",
            "route: 192.168.11.0/24 is behind 1-ff00:0:111",
            "rules: there are none",
            "class: all packets go the same way",
            "session: number 0 with 10.11.0.2:30056",
            "path: \"0\", expires 2024-03-24T16:27:12Z",
            "next hop: 10.10.0.1:30042 at 04:04:04:04:04:04",
            "frames: one of 1138 bytes with Ethernet header; headers take 138, path MTU 1472, so that one holds a packet of 1376",
            "sent by: the fast path in the kernel, after the first packet of the flow",
            "Sent",
        ]
    );
    assert_eq!(trace.remote.as_deref(), Some("1-ff00:0:111"));
    assert_eq!((trace.session, trace.frames), (Some(0), Some(1)));
    assert_eq!((trace.fast_path, trace.bucket), (Some(true), None));
}

#[test]
fn flows_over_several_paths_take_the_path_of_their_bucket() {
    let mut gateway = Gateway::new(&["10.10.0.1", "10.10.0.9"]);
    let mut paths = Vec::new();
    for port in 0..40 {
        let mut question = question("192.168.10.5", "192.168.11.7");
        question.source_port = port;
        let trace = gateway.trace(&question);
        let bucket = trace.bucket.expect("flows are spread");
        let step = trace.steps.iter().find(|step| step.step == "path");
        let text = &step.expect("the step").text;
        let name = trace.path.clone().expect("a path");
        assert_eq!(
            *text,
            format!(
                "\"{name}\", by part {bucket} of 256 of the flows over 2 paths, expires 2024-03-24T16:27:12Z"
            )
        );
        paths.push((name, trace.next_hop.expect("a next hop").ip()));
    }
    paths.sort();
    paths.dedup();
    let hops = ["10.10.0.1", "10.10.0.9"].map(address);
    assert_eq!(paths.iter().map(|(_, hop)| *hop).collect::<Vec<_>>(), hops);
}

#[test]
fn what_keeps_a_packet_from_being_sent_is_named() {
    let mut gateway = Gateway::new(&[]);
    let trace = gateway.ask("192.168.10.5", "192.168.11.7");
    let silent = |hop| {
        format!(
            "next hop {hop}: {hop} does not answer: check that the router is up and on the underlay, `ip neighbour show {hop}`"
        )
    };
    assert_eq!(
        end(&trace),
        format!(
            "x path: 0: {}; 1: {}; Dropped no_path",
            silent("10.10.0.1"),
            silent("10.10.0.9")
        )
    );
    gateway.plan(|plan| {
        for path in &mut plan.sessions[0].paths {
            path.expired = true;
        }
    });
    assert_eq!(
        end(&gateway.ask("192.168.10.5", "192.168.11.7")),
        "x path: 0: it has expired; 1: it has expired; Dropped no_path"
    );
    assert_eq!(
        end(&gateway.ask("192.168.10.5", "224.0.0.1")),
        "x scope: 224.0.0.1 is multicast; Dropped address_scope"
    );
    gateway.plan(|plan| {
        plan.sites[0].rules[0].condition = Arc::new("dstport=80".parse().expect("a condition"));
    });
    assert_eq!(
        end(&gateway.ask("192.168.10.5", "192.168.11.7")),
        "x class: none of the 1 of the site takes it; Dropped no_session"
    );
    gateway.rule("web", "dstport=443", Action::Drop);
    assert_eq!(
        end(&gateway.ask("192.168.10.5", "192.168.11.7")),
        "x rules: \"web\": drop; Dropped filtered"
    );
}

#[test]
fn what_does_not_come_to_the_gateway_is_left_to_the_kernel() {
    let mut gateway = Gateway::new(&["10.10.0.1"]);
    gateway.from_lan = Some((net("192.168.11.0/26"), LanRoute::PASS));
    assert_eq!(
        end(&gateway.ask("192.168.10.5", "192.168.11.7")),
        "x entry: 192.168.11.0/26 is a network or a route of this host, or served here: the kernel has it; NotTaken"
    );
    gateway.from_lan = None;
    assert_eq!(
        end(&gateway.ask("192.168.10.5", "192.168.12.7")),
        "x entry: no remote has 192.168.12.7: the kernel has it; NotTaken no_route"
    );
    assert_eq!(
        end(&gateway.ask("192.168.10.5", "192.168.11.7")),
        "x entry: 192.168.11.7 belongs to 1-ff00:0:111, which has no session that works: the kernel has it meanwhile; NotTaken no_session"
    );
    gateway.excluded = Some(net("192.168.12.0/24"));
    assert!(
        end(&gateway.ask("192.168.10.5", "192.168.12.7")).contains("is excluded from the tunnel")
    );
}

#[test]
fn what_works_but_deserves_a_look_is_told() {
    let mut gateway = Gateway::new(&["10.10.0.1"]);
    gateway.why_not = Some("wan0: packets to remotes take the slower way");
    gateway.rule("seen", "dstport=80", Action::Count);
    let mut question = question("192.168.99.5", "192.168.11.7");
    question.length = 1500;
    let trace = gateway.trace(&question);
    let has = |trace: &Trace, line: &str| {
        let lines = lines(trace);
        assert!(
            lines.iter().any(|of| of.contains(line)),
            "{line}: {lines:#?}"
        );
    };
    has(&trace, "! source: 192.168.99.5 is in no prefix served here");
    has(&trace, "frames: 2 of up to 1514 bytes");
    has(&trace, "rules: none of 1 rule holds: carried");
    has(&trace, "sent by: a worker: it does not fit one frame");
    question.length = 100;
    has(
        &gateway.trace(&question),
        "a worker: wan0: packets to remotes take the slower way",
    );
    question.destination_port = 80;
    let trace = gateway.trace(&question);
    has(&trace, "rules: \"seen\": count");
    has(&trace, "sent by: a worker: a rule counts or copies it");
}

#[test]
fn a_packet_from_a_remote_is_followed_to_the_host() {
    let mut gateway = Gateway::new(&["10.10.0.1"]);
    let mut question = question("192.168.11.7", "192.168.10.5");
    question.from_remote = Some("1-ff00:0:111".to_owned());
    assert_eq!(
        lines(&gateway.trace(&question)),
        [
            "remote: gateway 10.11.0.2 of 1-ff00:0:111",
            "scope: both addresses may cross",
            "source: 192.168.11.7 is in 192.168.11.0/24, accepted from it",
            "destination: 192.168.10.5 is in 192.168.10.0/24, served here",
            "rules: there are none",
            "next hop: no neighbour of the LAN interfaces is known for it, or it needs a router: by sig and the kernel's routes (\"ip route get \
             192.168.10.5\")",
            "Delivered",
        ]
    );
    let base = question.clone();
    let ask = |gateway: &mut Gateway, source: &str, destination: &str| {
        let mut question = base.clone();
        question.source = address(source);
        question.destination = address(destination);
        end(&gateway.trace(&question))
    };
    assert_eq!(
        ask(&mut gateway, "192.168.12.7", "192.168.10.5"),
        "x source: 192.168.12.7 is in no prefix accepted from it; Dropped inner_source"
    );
    assert_eq!(
        ask(&mut gateway, "192.168.11.7", "192.168.12.5"),
        "x destination: 192.168.12.5 is in no prefix served here; Dropped inner_destination"
    );
    question.from_remote = Some("1-ff00:0:119".to_owned());
    assert_eq!(
        end(&gateway.trace(&question)),
        "x remote: no gateway of 1-ff00:0:119 is known; Dropped unknown_remote"
    );
}

#[test]
fn a_question_that_makes_no_sense_is_refused() {
    let mut gateway = Gateway::new(&[]);
    let tables = gateway.planner.tables(1, &gateway.environment);
    let facts = Facts {
        planner: &gateway.planner,
        tables: &tables,
        rules: &[],
        why_not: &|_| None,
        hops: &gateway.hops,
        probing: &HashMap::new(),
        lan: BTreeMap::new(),
        tunnel: "sig",
        from_lan: None,
        excluded: None,
    };
    let mut question = question("10.0.0.1", "fd00::1");
    let error = facts.answer(&question).expect_err("two versions");
    assert!(error.contains("different IP versions"), "{error}");
    question.source = address("fd00::2");
    question.from_remote = Some("1".to_owned());
    let error = facts.answer(&question).expect_err("no ISD-AS");
    assert!(error.contains("is no ISD-AS"), "{error}");
}
