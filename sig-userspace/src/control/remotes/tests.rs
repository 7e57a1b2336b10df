//! Whole stories: a simulated SCION network answers on a virtual clock.

mod prefixes;
mod protection;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::*;
use crate::control::plan::Session as PlanSession;
use sig_core::{policy, scion::Fingerprint};

const LOCAL: &str = "1-ff00:0:110";
const REMOTE: &str = "1-ff00:0:111";
const OTHER: &str = "1-ff00:0:112";

fn isd_as(text: &str) -> IsdAs {
    text.parse().expect("an ISD-AS")
}

fn net(text: &str) -> IpNet {
    text.parse().expect("a prefix")
}

fn interface(text: &str, id: u64) -> Interface {
    Interface {
        isd_as: isd_as(text),
        id,
    }
}

/// A path straight to a remote AS, through interface `local` here and `remote` there.
fn path(to: &str, local: u64, remote: u64) -> Path {
    let interfaces = [interface(LOCAL, local), interface(to, remote)];
    let raw: Vec<u8> = [0_u8, 0, 0x20, 0, 1, 0, 0, 0, 0x66, 0, 0, 0]
        .into_iter()
        .chain([0, 63, 0, 0, 0, local as u8, 1, 2, 3, 4, 5, local as u8])
        .chain([0, 63, 0, remote as u8, 0, 0, 7, 8, 9, 10, 11, remote as u8])
        .collect();
    Path {
        interfaces: interfaces.into(),
        fingerprint: Path::fingerprint_of(&interfaces),
        expiry: None,
        ..Path::configured(&raw, "10.10.0.1:30042".parse().expect("an address"), 1472)
    }
}

fn gateway(host: &str) -> GatewayAddresses {
    let at = |port: u16| SocketAddr::new(host.parse().expect("an address"), port);
    GatewayAddresses {
        control: at(30256),
        data: at(30056),
        probe: at(30856),
        allow_interfaces: Vec::new(),
    }
}

/// What is out there, and how it answers.
struct Net {
    remotes: Remotes,
    now: Now,
    start: Instant,
    paths: BTreeMap<IsdAs, Vec<Path>>,
    cut: BTreeSet<Fingerprint>,
    /// Round trip times in milliseconds, 10 where there is none.
    latency: BTreeMap<Fingerprint, u64>,
    gateways: BTreeMap<IsdAs, Vec<GatewayAddresses>>,
    prefixes: BTreeMap<SocketAddr, Vec<IpNet>>,
    dead: BTreeSet<IpAddr>,
    daemon: bool,
    discovery: bool,
    exchange: bool,
    /// Answers on their way.
    coming: VecDeque<(Instant, Event)>,
    /// Plans with the time since the start, milliseconds.
    plans: Vec<(u64, Plan)>,
    told: Vec<Interface>,
}

impl Net {
    /// Two paths to one remote AS with one gateway.
    fn new(traffic: &str, routing: &str) -> Self {
        let start = Instant::now();
        let now = Now {
            monotonic: start,
            wall: SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000),
        };
        let settings = Settings {
            isd_as: isd_as(LOCAL),
            data_addr: "10.10.0.2:30056".parse().expect("an address"),
            control_addrs: vec!["10.77.0.1".parse().expect("an address")],
            served: vec![net("192.168.10.0/24")],
            default_route: DefaultRoute::Accept,
            paths: sig_core::paths::Settings::default(),
            path_interval: Duration::from_secs(10),
            switch_delay: Duration::from_secs(5),
            limits: PeerLimits {
                gateways_per_as: 4,
                prefixes_per_gateway: 8,
                message_bytes: 1 << 20,
                connections: 16,
                paths_per_as: 8,
            },
            protection: Protection::default(),
            workers: 1,
        };
        let remote = isd_as(REMOTE);
        let mut this = Net {
            remotes: Remotes::new(now, settings),
            now,
            start,
            paths: BTreeMap::from([(remote, vec![path(REMOTE, 1, 41), path(REMOTE, 2, 42)])]),
            cut: BTreeSet::new(),
            latency: BTreeMap::new(),
            gateways: BTreeMap::from([(remote, vec![gateway("10.11.0.2")])]),
            prefixes: BTreeMap::new(),
            dead: BTreeSet::new(),
            daemon: true,
            discovery: true,
            exchange: true,
            coming: VecDeque::new(),
            plans: Vec::new(),
            told: Vec::new(),
        };
        this.load(traffic, routing);
        this
    }

    fn load(&mut self, traffic: &str, routing: &str) {
        let (traffic, _) =
            policy::traffic::check(traffic, "traffic.json").expect("a traffic policy");
        let routing = policy::routing::check(routing, "routing.policy").expect("a routing policy");
        self.remotes.set_policies(self.now, &traffic, routing);
    }

    fn elapsed(&self) -> u64 {
        (self.now.monotonic - self.start).as_millis() as u64
    }

    /// Lets so many milliseconds pass.
    fn run(&mut self, ms: u64) {
        let end = self.now.monotonic + Duration::from_millis(ms);
        let mut looks = 0;
        loop {
            for action in self.remotes.poll(self.now) {
                self.act(action);
            }
            let deadline = self.remotes.deadline(self.now);
            let next = self.coming.iter().map(|(at, _)| *at).min();
            let next = next.map_or(deadline, |at| at.min(deadline));
            // What one look brings about may need another one, but more would be a busy loop.
            looks = if deadline > self.now.monotonic {
                0
            } else {
                looks + 1
            };
            assert!(looks < 3, "a deadline that has passed stays one");
            let next = next.max(self.now.monotonic);
            if next > end {
                self.pass(end);
                return;
            }
            self.pass(next);
            let due = |(at, _): &(Instant, Event)| *at <= next;
            while let Some(place) = self.coming.iter().position(due) {
                if let Some((_, event)) = self.coming.remove(place) {
                    self.remotes.handle(self.now, event);
                }
            }
        }
    }

    fn pass(&mut self, to: Instant) {
        self.now.wall += to - self.now.monotonic;
        self.now.monotonic = to;
    }

    fn answer(&mut self, after_ms: u64, event: Event) {
        let at = self.now.monotonic + Duration::from_millis(after_ms);
        self.coming.push_back((at, event));
    }

    fn works(&self, path: &Path) -> bool {
        !self.cut.contains(&path.fingerprint)
    }

    fn act(&mut self, action: Action) {
        let failure = || "time-out".to_owned();
        match action {
            Action::AskPaths(isd_as) => {
                let known = self.paths.get(&isd_as).cloned().unwrap_or_default();
                let result = if self.daemon {
                    Ok(known)
                } else {
                    Err(failure())
                };
                self.answer(5, Event::Paths { isd_as, result });
            }
            Action::AskGateways { isd_as, path } => {
                let known = self.gateways.get(&isd_as).cloned().unwrap_or_default();
                let works = self.discovery && self.works(&path);
                let result = if works { Ok(known) } else { Err(failure()) };
                self.answer(
                    if works { 30 } else { 5000 },
                    Event::Gateways { isd_as, result },
                );
            }
            Action::AskPrefixes {
                isd_as,
                control,
                path,
                ..
            } => {
                let works =
                    self.exchange && self.works(&path) && !self.dead.contains(&control.ip());
                let prefixes = self.prefixes.get(&control).cloned().unwrap_or_default();
                let result = if works {
                    Ok(Announced::Prefixes {
                        prefixes,
                        malformed: 0,
                        etag: String::new(),
                    })
                } else {
                    Err(failure())
                };
                let event = Event::Prefixes {
                    isd_as,
                    control,
                    result,
                    greeting: None,
                };
                self.answer(if works { 30 } else { 5000 }, event);
            }
            Action::ProbePath {
                isd_as,
                path,
                sequence,
            } => {
                if self.works(&path) {
                    let latency = self.latency.get(&path.fingerprint);
                    let latency = latency.copied().unwrap_or(10);
                    self.answer(latency, Event::PathReply { isd_as, sequence });
                }
            }
            Action::ProbeSession {
                isd_as,
                address,
                session,
                path,
            } => {
                if self.works(&path) && !self.dead.contains(&address.ip()) {
                    let event = Event::SessionReply {
                        isd_as,
                        host: address.ip(),
                        session: session.into(),
                    };
                    self.answer(12, event);
                }
            }
            Action::ReportToDaemon(interface) => self.told.push(interface),
            Action::Apply(plan) => self.plans.push((self.elapsed(), plan)),
        }
    }

    fn plan(&self) -> &Plan {
        self.remotes.current_plan()
    }

    fn exported(&self) -> Vec<IpNet> {
        let sites = self.plan().sites.iter().filter(|site| site.exported);
        let mut prefixes: Vec<IpNet> = sites.flat_map(|site| site.prefixes.clone()).collect();
        prefixes.sort_unstable();
        prefixes
    }

    fn session(&self) -> &PlanSession {
        &self.plan().sessions[0]
    }

    /// Interfaces here that the paths of the first session leave by.
    fn leaves_by(&self) -> Vec<u64> {
        let paths = self.session().paths.iter();
        paths.map(|path| path.path.interfaces[0].id).collect()
    }
}

const STATIC: &str = r#"{"ASes": {"1-ff00:0:111": {"Nets": ["192.168.11.0/24", "fd00:11::/64"]}}}"#;
const DYNAMIC: &str = r#"{"ASes": {"1-ff00:0:111": {"Nets": []}}, "ConfigVersion": 1}"#;
const ACCEPT: &str = "reject 0-0 1-ff00:0:110 172.16.0.0/12\n\
                      accept 1-ff00:0:111 1-ff00:0:110 192.168.0.0/16,::/0,10.0.0.0/8,0.0.0.0/0\n\
                      advertise 1-ff00:0:110 0-0 192.168.10.0/24\n";

#[test]
fn static_prefixes_are_reached_within_a_second() {
    let mut net = Net::new(STATIC, "");
    net.run(1000);
    assert_eq!(net.exported().len(), 2);
    let [session] = &net.plan().sessions[..] else {
        panic!("one session")
    };
    assert_eq!((session.number, session.policy_id), (0, 0));
    assert_eq!(
        session.data_addr,
        "10.11.0.2:30056".parse().expect("an address")
    );
    assert_eq!(session.paths.len(), 1);
    let [gateway] = &net.plan().gateways[..] else {
        panic!("one gateway")
    };
    assert_eq!(gateway.accepted.len(), 2);
}

#[test]
fn a_cut_path_is_replaced_within_a_second_and_the_session_stays_up() {
    let mut net = Net::new(STATIC, "");
    net.run(5000);
    let used = net.session().paths[0].path.clone();
    let (before, key) = (net.plans.len(), net.session().key);
    net.cut.insert(used.fingerprint);
    let cut_at = net.elapsed();
    net.run(5000);
    let (at, plan) = &net.plans[before];
    assert!(at - cut_at < 1000, "replaced after {} ms", at - cut_at);
    assert_ne!(plan.sessions[0].paths[0].path.fingerprint, used.fingerprint);
    assert_eq!(net.plans.len(), before + 1, "nothing else has changed");
    assert_eq!(net.session().key, key);
    assert_eq!(net.exported().len(), 2);
    // It comes back, and since it is the better one it is used again, but not at once.
    net.cut.clear();
    net.run(2000);
    assert_ne!(net.session().paths[0].path.fingerprint, used.fingerprint);
    net.run(60_000);
    assert_eq!(net.session().paths[0].path.fingerprint, used.fingerprint);
}

#[test]
fn a_reported_failure_moves_traffic_at_once_and_the_daemon_is_told() {
    let mut net = Net::new(STATIC, "");
    net.run(5000);
    let used = net.leaves_by()[0];
    let down = interface(LOCAL, used);
    net.cut.insert(net.session().paths[0].path.fingerprint);
    net.remotes
        .handle(net.now, Event::Down(Failure::Interface(down)));
    net.run(1);
    assert_ne!(net.leaves_by(), [used]);
    assert_eq!(net.told, [down]);
    // Each packet that is lost brings a report.
    for _ in 0..1000 {
        net.remotes
            .handle(net.now, Event::Down(Failure::Interface(down)));
        net.run(1);
    }
    assert_eq!(net.told, [down], "once is enough for a while");
    // Nobody can claim that something is down which is on no path.
    net.remotes.handle(
        net.now,
        Event::Down(Failure::Interface(interface(OTHER, 7))),
    );
    net.run(1);
    assert_eq!(net.told.len(), 1);
}

#[test]
fn a_silent_gateway_loses_its_routes_until_it_answers_again() {
    let mut net = Net::new(STATIC, "");
    net.run(3000);
    net.dead.insert("10.11.0.2".parse().expect("an address"));
    net.run(1400);
    assert_eq!(net.exported().len(), 2, "one lost answer is no outage");
    net.run(1600);
    assert_eq!(net.exported(), []);
    net.dead.clear();
    net.run(1000);
    assert_eq!(net.exported().len(), 2);
}

#[test]
fn tunnels_carry_on_without_daemon_and_without_control_service() {
    let mut this = Net::new(DYNAMIC, ACCEPT);
    this.prefixes
        .insert(gateway("10.11.0.2").control, vec![net("192.168.11.0/24")]);
    this.run(3000);
    let plans = this.plans.len();
    (this.daemon, this.discovery) = (false, false);
    this.run(60_000);
    assert_eq!(this.plans.len(), plans, "nothing has changed");
    assert_eq!(this.exported(), [net("192.168.11.0/24")]);
    // Whereas prefixes that nobody confirms are forgotten.
    this.exchange = false;
    this.run(24_000);
    assert_eq!(this.exported().len(), 1);
    this.run(12_000);
    assert_eq!(this.exported(), []);
}

#[test]
fn the_first_gateway_carries_what_both_serve_and_the_other_one_takes_over() {
    let mut this = Net::new(STATIC, "");
    let both = vec![gateway("10.11.0.9"), gateway("10.11.0.10")];
    this.gateways.insert(isd_as(REMOTE), both);
    this.run(2000);
    let used = |net: &Net| {
        let session = net.plan().sites[0].rules[0]
            .action
            .session()
            .expect("a session");
        net.plan().sessions[session].data_addr.ip().to_string()
    };
    assert_eq!(used(&this), "10.11.0.10");
    let numbers: Vec<u8> = this
        .plan()
        .sessions
        .iter()
        .map(|session| session.number)
        .collect();
    assert_eq!(numbers, [0, 1]);
    this.dead.insert("10.11.0.10".parse().expect("an address"));
    this.run(1000);
    assert_eq!(used(&this), "10.11.0.9");
    this.run(2000);
    this.dead.clear();
    this.run(3000);
    assert_eq!(used(&this), "10.11.0.9", "it must prove itself first");
    this.run(5000);
    assert_eq!(used(&this), "10.11.0.10");
}

#[test]
fn a_gateway_that_is_found_again_must_prove_itself_first() {
    let mut this = Net::new(STATIC, "");
    let both = vec![gateway("10.11.0.9"), gateway("10.11.0.10")];
    this.gateways.insert(isd_as(REMOTE), both[..1].to_vec());
    this.run(10_000);
    let used = |net: &Net| {
        let session = net.plan().sites[0].rules[0].action.session();
        let session = session.expect("a session");
        net.plan().sessions[session].data_addr.ip().to_string()
    };
    this.gateways.insert(isd_as(REMOTE), both);
    this.run(4_000);
    assert_eq!(this.plan().sessions.len(), 2);
    assert_eq!(used(&this), "10.11.0.9");
    this.run(6_000);
    assert_eq!(used(&this), "10.11.0.10");
}

#[test]
fn where_no_gateway_answers_the_one_in_use_stays_until_its_session_is_down() {
    let mut this = Net::new(STATIC, "");
    this.run(2000);
    let sites = this.plan().sites.clone();
    this.dead.insert("10.11.0.2".parse().expect("an address"));
    this.run(1400);
    assert_eq!(this.plan().sites, sites);
    this.run(1000);
    assert_eq!(this.exported(), []);
}

#[test]
fn a_reload_touches_only_what_it_changes() {
    let mut this = Net::new(STATIC, "");
    this.run(3000);
    let (key, sites) = (this.session().key, this.plan().sites.clone());
    let more = r#"{"ASes": {
        "1-ff00:0:111": {"Nets": ["192.168.11.0/24", "fd00:11::/64", "192.168.13.0/24"]},
        "1-ff00:0:112": {"Nets": ["192.168.12.0/24"]}
    }}"#;
    this.paths.insert(isd_as(OTHER), vec![path(OTHER, 3, 31)]);
    this.gateways
        .insert(isd_as(OTHER), vec![gateway("10.12.0.2")]);
    this.load(more, "");
    this.run(2000);
    assert_eq!(this.session().key, key);
    assert_eq!(this.exported().len(), 4);
    assert_eq!(this.plan().sessions.len(), 2);
    this.load(STATIC, "");
    this.run(10);
    assert_eq!(this.session().key, key);
    assert_eq!(this.plan().sites, sites);
    let probes = this.remotes.snapshot(this.now).probing[&key].state_changes;
    assert_eq!(probes, 1, "it has been up all the time");
}

/// A class with a path policy that only the second path satisfies, and one for the rest.
fn classes(fallback: &str) -> String {
    format!(
        r#"{{"ASes": {{"1-ff00:0:111": {{"Nets": ["192.168.11.0/24"], "Policies": [
            {{"Name": "voice", "TrafficClass": "dscp=0x2e", "Fallback": "{fallback}",
              "PathPolicy": {{"acl": ["- 1-ff00:0:111#41", "+"]}}}},
            {{"Name": "rest", "TrafficClass": "BOOL=true"}}
        ]}}}}}}"#
    )
}

#[test]
fn a_class_takes_its_own_path_and_falls_back_as_its_policy_says() {
    for (fallback, expected) in [("drop", [None, Some(1)]), ("any-path", [Some(0), Some(1)])] {
        let mut this = Net::new(&classes(fallback), "");
        this.run(3000);
        assert_eq!(this.leaves_by(), [2]);
        this.cut.insert(path(REMOTE, 2, 42).fingerprint);
        this.run(5000);
        let rules = &this.plan().sites[0].rules;
        let sessions: Vec<_> = rules.iter().map(|rule| rule.action.session()).collect();
        assert_eq!(sessions, expected, "{fallback}");
    }
    let mut this = Net::new(&classes("next"), "");
    this.run(3000);
    assert_eq!(this.plan().sites[0].rules.len(), 2);
    this.cut.insert(path(REMOTE, 2, 42).fingerprint);
    this.run(5000);
    let [rest] = &this.plan().sites[0].rules[..] else {
        panic!("only the class for the rest is left")
    };
    assert_eq!(rest.action.session(), Some(1));
}

#[test]
fn a_packet_too_big_on_the_way_makes_frames_smaller() {
    let mut net = Net::new(STATIC, "");
    net.run(3000);
    let mut travelled = net.session().paths[0].path.raw.to_vec();
    // The pointer has moved, the segment identifier has changed, an alert flag is set.
    travelled[0] = 1;
    travelled[6] = 0x77;
    travelled[12] = 2;
    let event = |path| Event::TooBig {
        isd_as: isd_as(REMOTE),
        path,
        mtu: 1300,
    };
    net.remotes.handle(net.now, event(vec![0; 36]));
    net.run(10);
    assert_eq!(net.session().paths[0].mtu, 1472, "about no path of ours");
    net.remotes.handle(net.now, event(travelled));
    net.run(10);
    assert_eq!(net.session().paths[0].mtu, 1300);
}

#[test]
fn a_pinned_gateway_is_reached_through_its_interfaces_only() {
    let mut this = Net::new(STATIC, "");
    let mut pinned = gateway("10.11.0.2");
    pinned.allow_interfaces = vec![42];
    this.gateways.insert(isd_as(REMOTE), vec![pinned]);
    this.run(3000);
    assert_eq!(this.leaves_by(), [2]);
    this.cut.insert(path(REMOTE, 2, 42).fingerprint);
    this.run(4000);
    assert_eq!(this.exported(), []);
}

#[test]
fn answers_that_nobody_asked_for_change_nothing() {
    let mut this = Net::new(STATIC, "");
    this.run(3000);
    let plans = this.plans.len();
    for isd_as in [isd_as(REMOTE), isd_as(OTHER)] {
        for event in [
            Event::SessionReply {
                isd_as,
                host: "10.66.6.6".parse().expect("an address"),
                session: 0,
            },
            Event::SessionReply {
                isd_as,
                host: "10.11.0.2".parse().expect("an address"),
                session: 77,
            },
            Event::PathReply {
                isd_as,
                sequence: 9,
            },
            Event::Gateways {
                isd_as: IsdAs(5),
                result: Ok(vec![gateway("10.66.6.6")]),
            },
            Event::Prefixes {
                isd_as,
                control: "10.66.6.6:30256".parse().expect("an address"),
                greeting: None,
                result: Ok(Announced::Unchanged),
            },
        ] {
            this.remotes.handle(this.now, event);
        }
    }
    this.run(400);
    assert_eq!(this.plans.len(), plans);
    assert!(!this.remotes.snapshot(this.now).refused.is_empty());
}

#[test]
fn more_sessions_than_there_are_numbers_wait_without_a_busy_loop() {
    let classes: Vec<String> = (0..64)
        .map(|n| format!(r#"{{"Name": "{n}", "TrafficClass": "dstport={n}"}}"#))
        .collect();
    let traffic = format!(
        r#"{{"ASes": {{"1-ff00:0:111": {{"Nets": ["192.168.11.0/24"], "Policies": [{}]}}}}}}"#,
        classes.join(",")
    );
    let mut this = Net::new(&traffic, "");
    let hosts = (2..7).map(|n| gateway(&format!("10.11.0.{n}")));
    this.gateways.insert(isd_as(REMOTE), hosts.collect());
    this.run(3000);
    assert_eq!(this.plan().sessions.len(), 256);
    assert_eq!(this.exported().len(), 1);
}

#[test]
fn a_dead_path_is_left_when_it_dies_and_not_at_the_next_look() {
    let mut net = Net::new(STATIC, "");
    net.run(5000);
    let used = net.session().paths[0].path.fingerprint;
    net.cut.insert(used);
    let is_alive = |net: &mut Net| {
        let told = net.remotes.snapshot(net.now);
        let mut paths = told.ases[0].paths.iter();
        let alive = paths.find(|path| path.fingerprint == used.to_string());
        alive.is_some_and(|path| path.alive)
    };
    while is_alive(&mut net) {
        assert_eq!(net.session().paths[0].path.fingerprint, used);
        net.run(1);
    }
    assert_ne!(net.session().paths[0].path.fingerprint, used);
}

#[test]
fn answers_that_change_nothing_cost_no_new_choice() {
    let mut net = Net::new(STATIC, "");
    net.run(5010);
    let mut looks = BTreeSet::new();
    for _ in 0..1000 {
        let event = Event::SessionReply {
            isd_as: isd_as(REMOTE),
            host: "10.11.0.2".parse().expect("an address"),
            session: 0,
        };
        net.remotes.handle(net.now, event);
        assert!(!net.remotes.stale);
        net.run(1);
        looks.insert(net.remotes.select_at);
    }
    assert!(looks.len() <= 5, "{} in a second", looks.len());
}

#[test]
fn of_more_paths_than_are_watched_those_count_that_a_policy_admits() {
    let traffic = r#"{"ASes": {"1-ff00:0:111": {"Nets": ["192.168.11.0/24"], "Policies": [
        {"Name": "all", "TrafficClass": "BOOL=true",
         "PathPolicy": {"acl": ["+ 1-ff00:0:111#77", "- 1-ff00:0:111#0", "+"]}}
    ]}}}"#;
    let mut net = Net::new(traffic, "");
    let others = (1..=20).map(|n| path(REMOTE, n, 20 + n));
    let paths = others.chain([path(REMOTE, 21, 77)]).collect();
    net.paths.insert(isd_as(REMOTE), paths);
    net.run(3000);
    assert_eq!(net.leaves_by(), [21]);
}

#[test]
fn a_control_service_that_lists_no_gateways_is_believed_after_half_a_minute() {
    let mut this = Net::new(STATIC, "");
    this.run(3000);
    this.gateways.insert(isd_as(REMOTE), Vec::new());
    this.run(25_000);
    assert_eq!(this.exported().len(), 2);
    this.run(12_000);
    assert_eq!(this.exported(), []);
    this.gateways
        .insert(isd_as(REMOTE), vec![gateway("10.11.0.2")]);
    this.run(7_000);
    assert_eq!(this.exported().len(), 2);
}

#[test]
fn a_path_that_wavers_around_a_limit_does_not_take_the_session_up_and_down() {
    let traffic = r#"{"ASes": {"1-ff00:0:111": {"Nets": ["192.168.11.0/24"], "Policies": [
        {"PerformancePolicy": {"MaxLatency": "100ms"}}
    ]}}}"#;
    let mut this = Net::new(traffic, "");
    let only = path(REMOTE, 1, 41);
    this.paths.insert(isd_as(REMOTE), vec![only.clone()]);
    this.run(5000);
    assert_eq!(this.exported().len(), 1);
    let before = this.plans.len();
    for _ in 0..30 {
        for latency in [60, 140] {
            this.latency.insert(only.fingerprint, latency);
            this.run(3000);
        }
    }
    let changes = this.plans.len() - before;
    assert!(changes < 10, "{changes} changes in three minutes");
    this.latency.insert(only.fingerprint, 60);
    this.run(65_000);
    assert_eq!(this.exported().len(), 1, "it has been good for a minute");
    this.latency.insert(only.fingerprint, 140);
    this.run(5000);
    assert_eq!(this.exported().len(), 0, "at once when it is too slow");
}

#[test]
fn of_paths_that_are_equal_by_the_order_of_a_policy_the_shorter_one_is_used() {
    let traffic = r#"{"ASes": {"1-ff00:0:111": {"Nets": ["192.168.11.0/24"], "Policies": [
        {"PerformancePolicy": {"Order": ["latency"]}}
    ]}}}"#;
    // Whatever their fingerprints are.
    for transit in [OTHER, "1-ff00:0:113", "1-ff00:0:114", "1-ff00:0:115"] {
        let mut this = Net::new(traffic, "");
        let interfaces = [
            interface(LOCAL, 7),
            interface(transit, 1),
            interface(transit, 2),
            interface(REMOTE, 47),
        ];
        let long = Path {
            interfaces: interfaces.into(),
            fingerprint: Path::fingerprint_of(&interfaces),
            ..path(REMOTE, 7, 47)
        };
        let paths = vec![path(REMOTE, 1, 41), long];
        this.paths.insert(isd_as(REMOTE), paths);
        this.run(20_000);
        assert_eq!(this.leaves_by(), [1], "over {transit}");
    }
}
