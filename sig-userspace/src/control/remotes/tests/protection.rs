//! Two gateways that ask each other, and agree on keys or not.

use super::*;
use crate::control::config::{General, ProtectionMode, RemoteProtection};
use sig_common::wire::sig_frame::{Header, PROTECTION_LEN};
use sig_core::protection::{Identity, Refusal, SendKey};

/// Milliseconds that a message is on its way.
const WAY: u64 = 20;

/// One of the two gateways.
struct Side {
    remotes: Remotes,
    identity: Identity,
    isd_as: IsdAs,
    address: GatewayAddresses,
    /// It answers nothing about protection, as the reference.
    is_plain: bool,
    /// Whether it is there.
    runs: bool,
}

/// What is on its way to a side.
enum Coming {
    Event(Event),
    /// A question for prefixes, and the control address that it asked.
    Question(Option<Hello>, SocketAddr),
}

struct Two {
    sides: [Side; 2],
    now: Now,
    start: Instant,
    coming: Vec<(Instant, usize, Coming)>,
    /// The side whose questions do not arrive.
    mute: Option<usize>,
    /// On the host of side 1 is another gateway, which protects nothing.
    has_neighbour: bool,
}

const OURS: Identity = Identity([1; 32]);
const THEIRS: Identity = Identity([2; 32]);

fn auto() -> Protection {
    Protection::default()
}

fn mode(mode: ProtectionMode) -> Protection {
    Protection {
        general: General {
            mode,
            ..General::default()
        },
        ..Protection::default()
    }
}

/// Pins the other one's identity.
fn pinning(isd_as_of: &str, identity: Identity) -> Protection {
    let remote = RemoteProtection {
        mode: ProtectionMode::Auto,
        pins: vec![identity],
    };
    Protection {
        remotes: BTreeMap::from([(isd_as(isd_as_of), remote)]),
        ..Protection::default()
    }
}

const NAMES: [&str; 2] = [LOCAL, REMOTE];
const HOSTS: [&str; 2] = ["10.10.0.2", "10.11.0.2"];

impl Two {
    fn new(protections: [Protection; 2]) -> Self {
        let start = Instant::now();
        let now = Now {
            monotonic: start,
            wall: SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000),
        };
        let [ours, theirs] = protections;
        Two {
            sides: [
                Side::new(now, 0, OURS, ours),
                Side::new(now, 1, THEIRS, theirs),
            ],
            now,
            start,
            coming: Vec::new(),
            mute: None,
            has_neighbour: false,
        }
    }

    /// The process of a side ends, and another one starts.
    fn restart(&mut self, side: usize, identity: Identity, protection: Protection) {
        self.sides[side] = Side::new(self.now, side, identity, protection);
        self.coming.retain(|(_, to, _)| *to != side);
    }

    fn run(&mut self, ms: u64) {
        let end = self.now.monotonic + Duration::from_millis(ms);
        loop {
            for side in 0..2 {
                if self.sides[side].runs {
                    for action in self.sides[side].remotes.poll(self.now) {
                        self.act(side, action);
                    }
                }
            }
            let deadlines = self.sides.iter().filter(|side| side.runs);
            let deadlines = deadlines.map(|side| side.remotes.deadline(self.now));
            let next = deadlines
                .chain(self.coming.iter().map(|(at, ..)| *at))
                .min();
            let next = next.expect("a deadline").max(self.now.monotonic);
            let to = next.min(end);
            self.now.wall += to - self.now.monotonic;
            self.now.monotonic = to;
            if next > end {
                return;
            }
            let due = |(at, ..): &(Instant, usize, Coming)| *at <= next;
            while let Some(place) = self.coming.iter().position(due) {
                let (_, side, coming) = self.coming.remove(place);
                self.take(side, coming);
            }
            if to == end && next == end && self.coming.iter().all(|coming| !due(coming)) {
                for side in &mut self.sides {
                    assert!(side.remotes.deadline(self.now) >= self.start);
                }
            }
        }
    }

    fn later(&mut self, ms: u64, side: usize, coming: Coming) {
        let at = self.now.monotonic + Duration::from_millis(ms);
        self.coming.push((at, side, coming));
    }

    fn act(&mut self, side: usize, action: Action) {
        let other = &self.sides[1 - side];
        let (there, runs) = (other.address.clone(), other.runs);
        let event = match action {
            Action::AskPaths(isd_as) => Event::Paths {
                isd_as,
                result: Ok(vec![way(side)]),
            },
            Action::AskGateways { isd_as, .. } => Event::Gateways {
                isd_as,
                result: Ok(match self.has_neighbour && side == 0 {
                    true => vec![there.clone(), neighbour(there)],
                    false => vec![there],
                }),
            },
            Action::AskPrefixes {
                isd_as, control, ..
            } if self.mute == Some(side) => Event::Prefixes {
                isd_as,
                control,
                result: Err("time-out".to_owned()),
                greeting: None,
            },
            Action::AskPrefixes { control, hello, .. } => {
                return self.later(WAY, 1 - side, Coming::Question(hello, control));
            }
            Action::ProbePath {
                isd_as, sequence, ..
            } => Event::PathReply { isd_as, sequence },
            Action::ProbeSession {
                isd_as, session, ..
            } if runs => Event::SessionReply {
                isd_as,
                host: there.probe.ip(),
                session: session.into(),
            },
            _ => return,
        };
        self.later(2 * WAY, side, Coming::Event(event));
    }

    fn take(&mut self, side: usize, coming: Coming) {
        match coming {
            Coming::Event(event) => self.sides[side].remotes.handle(self.now, event),
            Coming::Question(hello, control) => {
                let asking = 1 - side;
                let is_itself = self.sides[side].address.control == control;
                let answer = self.sides[side].runs.then(|| {
                    let asked = is_itself.then(|| self.ask(side, hello));
                    asked.flatten()
                });
                let result = match &answer {
                    Some(_) => Ok(Announced::Prefixes {
                        prefixes: Vec::new(),
                        malformed: 0,
                        etag: String::new(),
                    }),
                    None => Err("time-out".to_owned()),
                };
                let event = Event::Prefixes {
                    isd_as: self.sides[side].isd_as,
                    control,
                    result,
                    greeting: answer.flatten(),
                };
                // Who asked somebody who is not there waits in vain.
                let way = if self.sides[side].runs { WAY } else { 4900 };
                self.later(way, asking, Coming::Event(event));
            }
        }
    }

    /// What a side answers the other one.
    fn ask(&mut self, side: usize, hello: Option<Hello>) -> Option<Greeting> {
        let asking = &self.sides[1 - side];
        let from = (asking.isd_as, asking.address.control.ip());
        let offer = hello.as_ref().filter(|_| !asking.is_plain);
        let offer = offer.map(|hello| Offer {
            identity: asking.identity,
            holding: hello.holding.clone(),
            wants_key: hello.wants_key,
        });
        let mut made: Option<Arc<SendKey>> = None;
        let mut make = || {
            let (send, receive) = sig_rpc::unagreed_key(1).expect("a key");
            made = Some(Arc::new(send));
            Some(Arc::new(receive))
        };
        let side = &mut self.sides[side];
        if side.is_plain {
            return None;
        }
        let (reply, _) = side
            .remotes
            .greet(self.now, from, offer.as_ref(), &mut make);
        let reply = reply?;
        let wants_key = offer.is_some_and(|offer| offer.wants_key);
        Some(Greeting {
            identity: side.identity,
            holding: reply.holding,
            refusal: reply.decision.err().filter(|_| wants_key),
            key: made.filter(|_| reply.decision.is_ok()),
        })
    }

    /// Whether a frame from a side to the other one is taken there, and protected.
    fn frame(&self, from: usize) -> (bool, bool) {
        let session = self.sides[from].remotes.current_plan().sessions.first();
        let gateway = self.sides[1 - from].remotes.current_plan().gateways.first();
        let (Some(session), Some(gateway)) = (session, gateway) else {
            return (false, false);
        };
        let Some(keyring) = &session.keyring else {
            return (!gateway.is_strict, false);
        };
        let (header, mut frame) = (Header::default(), [0; PROTECTION_LEN + 10]);
        let sealed = keyring.seal(0, &header, &mut frame).is_some();
        let opened = gateway
            .keyring
            .as_ref()
            .is_some_and(|keyring| keyring.open(&header, &mut frame).is_ok());
        (sealed && opened, true)
    }

    fn frames(&self) -> [(bool, bool); 2] {
        [self.frame(0), self.frame(1)]
    }

    fn strict(&self, side: usize) -> bool {
        self.sides[side].remotes.current_plan().gateways[0].is_strict
    }

    fn exports(&self, side: usize) -> bool {
        let sites = &self.sides[side].remotes.current_plan().sites;
        sites.iter().any(|site| site.exported)
    }

    /// Runs for ten seconds, with frames in both directions.
    fn settle(&mut self) {
        self.run(1000);
        self.frames();
        self.run(9000);
    }

    /// Runs until frames of both directions are taken; milliseconds that this took.
    fn until_frames_pass(&mut self, most: u64) -> u64 {
        for passed in (0..most).step_by(10) {
            if self.frames().iter().all(|(taken, _)| *taken) {
                return passed;
            }
            self.run(10);
        }
        panic!("{:?} after {most} ms", self.frames());
    }

    fn shown(&mut self, side: usize) -> sig_core::status::Protection {
        let told = self.sides[side].remotes.snapshot(self.now);
        told.ases[0].gateways[0].protection.clone()
    }
}

impl Side {
    fn new(now: Now, number: usize, identity: Identity, protection: Protection) -> Self {
        let settings = Settings {
            isd_as: isd_as(NAMES[number]),
            data_addr: SocketAddr::new(HOSTS[number].parse().expect("an address"), 30056),
            protection,
            ..Net::new(STATIC, "").remotes.settings
        };
        let own = settings.isd_as;
        let mut remotes = Remotes::new(now, settings);
        let other = NAMES[1 - number];
        let nets = [r#"["192.168.11.0/24"]"#, r#"["192.168.10.0/24"]"#][number];
        let traffic = format!(r#"{{"ASes": {{"{other}": {{"Nets": {nets}}}}}}}"#);
        let (traffic, _) = policy::traffic::check(&traffic, "traffic.json").expect("a policy");
        remotes.set_policies(now, &traffic, RoutingPolicy::default());
        Side {
            remotes,
            identity,
            isd_as: own,
            address: gateway(HOSTS[number]),
            is_plain: false,
            runs: true,
        }
    }
}

/// Another gateway on the host of this one.
fn neighbour(of: GatewayAddresses) -> GatewayAddresses {
    let moved = |address: SocketAddr| SocketAddr::new(address.ip(), address.port() + 1);
    GatewayAddresses {
        control: moved(of.control),
        data: moved(of.data),
        ..of
    }
}

/// A path from a side to the other one.
fn way(side: usize) -> Path {
    let path = path(NAMES[1 - side], 1, 41);
    let interfaces = [interface(NAMES[side], 1), interface(NAMES[1 - side], 41)];
    Path {
        interfaces: interfaces.into(),
        fingerprint: Path::fingerprint_of(&interfaces),
        ..path
    }
}

const PROTECTED: (bool, bool) = (true, true);
const PLAIN: (bool, bool) = (true, false);

#[test]
fn two_that_can_protect_their_frames_within_a_second_and_then_refuse_others() {
    let mut two = Two::new([auto(), auto()]);
    two.run(1000);
    assert_eq!(two.frames(), [PROTECTED; 2]);
    assert!(
        !two.strict(0) && !two.strict(1),
        "others may be on their way"
    );
    two.run(4000);
    assert!(two.strict(0) && two.strict(1));
    let shown = two.shown(0);
    assert_eq!(shown.identity, THEIRS.to_string());
    assert!(shown.sends && shown.receives && shown.strict && !shown.pinned);
    assert_eq!((shown.problem.as_str(), shown.key_age_s), ("", Some(4)));
    // Nothing changes as long as nothing happens.
    let plan = two.sides[0].remotes.current_plan().clone();
    two.run(60_000);
    assert_eq!(*two.sides[0].remotes.current_plan(), plan);
}

#[test]
fn keys_are_replaced_without_a_lost_frame() {
    let mut two = Two::new([auto(), auto()]);
    two.run(1000);
    let keyring = two.sides[0].remotes.current_plan().sessions[0]
        .keyring
        .clone();
    let keyring = keyring.expect("keys");
    let number = || keyring.send().expect("a key").number();
    let mut numbers = vec![number()];
    let mut most = 0;
    for _ in 0..4000 {
        two.run(1000);
        assert_eq!(two.frames(), [PROTECTED; 2]);
        if numbers.last() != Some(&number()) {
            numbers.push(number());
        }
        let receive = two.sides[1].remotes.current_plan().gateways[0]
            .keyring
            .clone();
        most = most.max(receive.expect("keys").receive().len());
    }
    assert_eq!(numbers.len(), 3, "{numbers:x?} in 67 minutes");
    assert_eq!(most, 2, "keys are forgotten");
}

#[test]
fn after_a_restart_of_either_side_frames_soon_pass_again() {
    for (side, identity) in [
        (0, OURS),
        (0, Identity([9; 32])),
        (1, THEIRS),
        (1, Identity([9; 32])),
    ] {
        let mut two = Two::new([auto(), auto()]);
        two.settle();
        two.sides[side].runs = false;
        two.run(700);
        two.restart(side, identity, auto());
        let took = two.until_frames_pass(3000);
        assert!(
            took <= 1000,
            "{took} ms after the start of side {side} as {identity}"
        );
        two.run(1000);
        assert_eq!(two.frames(), [PROTECTED; 2]);
        assert!(two.strict(1 - side), "who did not restart remembers");
    }
}

#[test]
fn a_gateway_that_sends_nothing_is_known_to_protect_what_it_will_send() {
    let mut two = Two::new([auto(), auto()]);
    two.run(15_000);
    assert!(two.strict(0) && two.strict(1));
    assert_eq!(two.frames(), [PROTECTED; 2]);
}

#[test]
fn a_gateway_that_has_forgotten_the_keys_and_cannot_ask_is_reached_without() {
    let mut two = Two::new([auto(), auto()]);
    two.settle();
    two.restart(1, THEIRS, auto());
    two.mute = Some(1);
    let took = two.until_frames_pass(20_000);
    assert!(took <= 7_000, "{took} ms");
    assert_eq!(two.frames(), [PLAIN; 2]);
    two.mute = None;
    two.settle();
    two.settle();
    assert_eq!(two.frames(), [PROTECTED; 2]);
    assert!(two.strict(0) && two.strict(1));
}

#[test]
fn beside_a_gateway_on_one_host_another_one_may_protect_nothing() {
    let mut two = Two::new([auto(), auto()]);
    two.has_neighbour = true;
    two.settle();
    assert_eq!(two.frames(), [PROTECTED; 2]);
    assert!(!two.strict(0) && two.strict(1));
    let plan = two.sides[0].remotes.current_plan();
    let keyrings = plan
        .sessions
        .iter()
        .map(|session| session.keyring.is_some());
    assert!(keyrings.eq([true, false]), "{plan:?}");
}

#[test]
fn with_a_gateway_that_knows_nothing_of_it_all_is_as_before() {
    let mut two = Two::new([auto(), auto()]);
    two.sides[1].is_plain = true;
    two.run(10_000);
    assert_eq!(two.frames(), [PLAIN; 2]);
    assert!(!two.strict(0));
    assert_eq!(two.shown(0).problem, "not offered by the gateway");
}

#[test]
fn it_can_be_switched_off_on_either_side() {
    for off in 0..2 {
        let mut protections = [auto(), auto()];
        protections[off] = mode(ProtectionMode::Off);
        let mut two = Two::new(protections);
        two.run(10_000);
        assert_eq!(two.frames(), [PLAIN; 2]);
        assert_eq!(two.shown(off).problem, "switched off here");
    }
}

#[test]
fn a_gateway_that_protects_its_frames_no_longer_is_asked_at_once_and_believed() {
    let mut two = Two::new([auto(), auto()]);
    two.settle();
    assert!(two.strict(0));
    two.restart(1, THEIRS, mode(ProtectionMode::Off));
    let took = two.until_frames_pass(6000);
    assert!(took <= 1000, "{took} ms");
    assert_eq!(two.frames(), [PLAIN; 2]);
    // And back.
    two.restart(1, THEIRS, auto());
    two.settle();
    two.settle();
    assert_eq!(two.frames(), [PROTECTED; 2]);
    assert!(two.strict(0) && two.strict(1));
}

/// Asks side 0 as if the question came from side 1.
fn ask_as(two: &mut Two, offer: Option<&Offer>) -> (Option<Reply>, bool, bool) {
    let from = (two.sides[1].isd_as, two.sides[1].address.control.ip());
    let mut made = false;
    let mut make = || {
        made = true;
        Some(Arc::new(sig_rpc::unagreed_key(1).expect("a key").1))
    };
    let (reply, ask) = two.sides[0].remotes.greet(two.now, from, offer, &mut make);
    (reply, ask, made)
}

#[test]
fn what_strangers_ask_changes_nothing() {
    let mut two = Two::new([auto(), auto()]);
    two.settle();
    let plan = two.sides[0].remotes.current_plan().clone();
    let stranger = Offer {
        identity: Identity([66; 32]),
        holding: Vec::new(),
        wants_key: true,
    };
    let mut asked = 0;
    for _ in 0..100 {
        let (reply, ask, made) = ask_as(&mut two, Some(&stranger));
        let expected = Reply {
            holding: Vec::new(),
            decision: Err(Refusal::NotYet),
        };
        assert_eq!((reply, made), (Some(expected), false));
        asked += u32::from(ask);
        let (reply, ask, _) = ask_as(&mut two, None);
        assert_eq!(reply, None);
        asked += u32::from(ask);
        two.run(100);
        assert_eq!(two.frames(), [PROTECTED; 2]);
    }
    assert!(asked <= 11, "{asked} questions in 10 s");
    assert_eq!(*two.sides[0].remotes.current_plan(), plan);
    // An AS of which nobody has heard.
    let from = (isd_as(OTHER), "10.9.0.1".parse().expect("an address"));
    let (reply, ask) = two.sides[0]
        .remotes
        .greet(two.now, from, Some(&stranger), &mut || None);
    assert!(reply.is_none() && !ask);
}

#[test]
fn pinned_gateways_are_reached_as_themselves_or_not_at_all() {
    let mut two = Two::new([pinning(REMOTE, THEIRS), pinning(LOCAL, OURS)]);
    two.run(2000);
    assert_eq!(two.frames(), [PROTECTED; 2]);
    assert!(two.strict(0), "from the first frame on");
    // Somebody else is in its place.
    two.restart(1, Identity([9; 32]), auto());
    two.run(2000);
    let told = two.sides[0].remotes.snapshot(two.now);
    let problem = told.ases[0].gateways[0]
        .fetch_problem
        .clone()
        .expect("a problem");
    assert!(problem.contains("not among the pins"), "{problem}");
    assert!(!two.frame(1).0 && !two.frame(0).0);
    assert!(two.strict(0));
    let stranger = Offer {
        identity: Identity([9; 32]),
        holding: Vec::new(),
        wants_key: true,
    };
    assert!(!ask_as(&mut two, Some(&stranger)).2);
    // Nor does it help him to offer nothing.
    two.sides[1].is_plain = true;
    two.run(40_000);
    assert_eq!(two.frame(1), (false, false));
    assert!(two.frame(0).1, "nothing leaves in the clear");
}

#[test]
fn where_protection_is_required_nothing_goes_without() {
    let mut two = Two::new([mode(ProtectionMode::Require), mode(ProtectionMode::Off)]);
    two.run(5000);
    assert!(!two.exports(0) && two.strict(0));
    assert!(two.exports(1));
    assert_eq!(two.frame(1), (false, false));
    two.restart(1, THEIRS, auto());
    two.run(2000);
    assert!(two.exports(0));
    assert_eq!(two.frames(), [PROTECTED; 2]);
}
