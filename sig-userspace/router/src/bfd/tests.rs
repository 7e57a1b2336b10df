//! Two sessions against each other over a link that loses packets, on a virtual clock.

use std::{
    num::NonZeroU32,
    time::{Duration, Instant},
};

use sig_common::wire::scion::View;

use super::*;
use crate::model::Bfd;
use sig_core::scion::HopKey;

const MS: Duration = Duration::from_millis(1);

fn config(mult: u8, tx: u32, rx: u32) -> Bfd {
    Bfd {
        disabled: false,
        detect_mult: mult,
        desired_min_tx: MS * tx,
        required_min_rx: MS * rx,
    }
}

/// Both ends, and a link with a delay of 5 ms.
struct Pair {
    now: Instant,
    ends: [Session; 2],
    /// Whether packets of this end arrive.
    open: [bool; 2],
    /// Every so many packets of both ends are lost; 0: none.
    lossy: u32,
    under_way: Vec<(Instant, usize, Control)>,
    sent: [Vec<Instant>; 2],
    random: u32,
}

impl Pair {
    fn new(left: Bfd, right: Bfd) -> Self {
        let now = Instant::now();
        let session = |config, name| Session::new(config, NonZeroU32::new(name).unwrap(), now);
        Self {
            now,
            ends: [session(left, 1), session(right, 2)],
            open: [true; 2],
            lossy: 0,
            under_way: Vec::new(),
            sent: [Vec::new(), Vec::new()],
            random: 1,
        }
    }

    fn random(&mut self) -> u32 {
        self.random = self
            .random
            .wrapping_mul(1_664_525)
            .wrapping_add(1_013_904_223);
        self.random >> 8
    }

    fn send(&mut self, from: usize, packet: Control) {
        // Everything goes over the wire as bytes.
        let packet = Control::decode(&packet.encode()).expect("a packet that is taken");
        self.sent[from].push(self.now);
        let is_lost = self.lossy != 0 && self.random().is_multiple_of(self.lossy);
        if self.open[from] && !is_lost {
            self.under_way.push((self.now + 5 * MS, 1 - from, packet));
        }
    }

    /// Lets time go on until `until` holds, at most for `most`; says whether it does.
    fn run(&mut self, most: Duration, until: impl Fn(&Self) -> bool) -> bool {
        let end = self.now + most;
        loop {
            if until(self) {
                return true;
            }
            let arrivals = self.under_way.iter().map(|(at, ..)| *at);
            let deadlines = self.ends.iter().map(Session::deadline);
            let next = arrivals.chain(deadlines).min().expect("a deadline");
            if next > end {
                self.now = end;
                return false;
            }
            self.now = self.now.max(next);
            let due: Vec<_> = self
                .under_way
                .extract_if(.., |(at, ..)| *at <= self.now)
                .collect();
            for (_, to, packet) in due {
                if let Some(answer) = self.ends[to].handle(&packet, self.now) {
                    self.send(to, answer);
                }
            }
            for end in 0..2 {
                let random = self.random();
                if let Some(packet) = self.ends[end].poll(self.now, random) {
                    self.send(end, packet);
                }
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        self.run(time, |_| false);
    }

    fn states(&self) -> [State; 2] {
        [self.ends[0].state(), self.ends[1].state()]
    }

    fn both_up(&self) -> bool {
        self.states() == [State::Up; 2]
    }
}

#[test]
fn two_sessions_come_up_and_stay_up() {
    let mut pair = Pair::new(Bfd::default(), Bfd::default());
    assert!(pair.run(Duration::from_secs(2), Pair::both_up));
    let changes = [pair.ends[0].changes(), pair.ends[1].changes()];
    pair.pass(Duration::from_secs(600));
    assert!(pair.both_up());
    assert_eq!(changes, [pair.ends[0].changes(), pair.ends[1].changes()]);
}

#[test]
fn packets_are_spread_within_the_last_quarter_of_the_agreed_interval() {
    for (mult, least, most) in [(3, 150, 200), (1, 150, 180)] {
        let mut pair = Pair::new(config(mult, 200, 50), config(mult, 50, 100));
        pair.run(Duration::from_secs(5), Pair::both_up);
        pair.pass(Duration::from_secs(1));
        pair.sent = [Vec::new(), Vec::new()];
        pair.pass(Duration::from_secs(60));
        let gaps: Vec<Duration> = pair.sent[0].windows(2).map(|w| w[1] - w[0]).collect();
        assert!(gaps.len() > 250);
        assert!(
            gaps.iter()
                .all(|gap| (MS * least..=MS * most).contains(gap)),
            "{gaps:?}"
        );
        let different = gaps.iter().filter(|gap| **gap != gaps[0]).count();
        assert!(different > gaps.len() / 2);
    }
}

#[test]
fn a_slow_receiver_is_sent_less() {
    let mut pair = Pair::new(config(3, 200, 200), config(3, 200, 1000));
    pair.run(Duration::from_secs(5), Pair::both_up);
    pair.pass(Duration::from_secs(1));
    pair.sent = [Vec::new(), Vec::new()];
    pair.pass(Duration::from_secs(60));
    assert!((60..=81).contains(&pair.sent[0].len()));
    assert!((300..=401).contains(&pair.sent[1].len()));
}

#[test]
fn silence_takes_the_link_down_within_the_detection_time() {
    let mut pair = Pair::new(Bfd::default(), Bfd::default());
    assert!(pair.run(Duration::from_secs(2), Pair::both_up));
    pair.pass(Duration::from_secs(10));
    pair.open = [false; 2];
    pair.under_way.clear();
    let cut = pair.now;
    assert!(pair.run(Duration::from_secs(2), |p| p.states() == [State::Down; 2]));
    let took = pair.now - cut;
    assert!(took > 400 * MS && took <= 600 * MS, "{took:?}");
    pair.pass(Duration::from_secs(60));
    assert_eq!(pair.states(), [State::Down; 2]);
    pair.sent = [Vec::new(), Vec::new()];
    pair.pass(Duration::from_secs(60));
    assert!(pair.sent[0].len() <= 81, "at most each 750 ms while down");

    pair.open = [true; 2];
    assert!(pair.run(Duration::from_secs(5), Pair::both_up));
}

#[test]
fn who_was_held_up_does_not_take_the_other_end_for_silent() {
    let mut pair = Pair::new(Bfd::default(), Bfd::default());
    assert!(pair.run(Duration::from_secs(2), Pair::both_up));
    let late = Duration::from_secs(5);
    pair.now += late;
    pair.ends[0].held_up(late, pair.now);
    pair.ends[0].poll(pair.now, 0);
    assert!(pair.ends[0].is_up());
}

#[test]
fn who_is_always_held_up_sees_nevertheless_that_the_other_end_is_gone() {
    for late in [60, 300, 5_000] {
        let mut pair = Pair::new(Bfd::default(), Bfd::default());
        assert!(pair.run(Duration::from_secs(2), Pair::both_up));
        let mut turns = 0;
        while pair.ends[0].is_up() {
            pair.now += MS * late;
            pair.ends[0].held_up(MS * late, pair.now);
            pair.ends[0].poll(pair.now, 0);
            turns += 1;
            assert!(turns < 100, "{late} ms");
        }
        // Two detection times, and one turn for each of them to be noticed.
        assert!(turns * late <= 1_200 + 2 * late, "{turns} times {late} ms");
    }
}

#[test]
fn one_direction_is_not_enough() {
    let mut pair = Pair::new(Bfd::default(), Bfd::default());
    pair.open = [true, false];
    pair.pass(Duration::from_secs(60));
    assert!(!pair.ends[0].is_up() && !pair.ends[1].is_up());
    pair.open = [true; 2];
    assert!(pair.run(Duration::from_secs(5), Pair::both_up));
    pair.open = [false, true];
    assert!(pair.run(Duration::from_secs(2), |p| !p.ends[0].is_up()
        && !p.ends[1].is_up()));
}

#[test]
fn a_lost_packet_now_and_then_does_not_matter() {
    let mut pair = Pair::new(config(5, 200, 200), config(5, 200, 200));
    pair.lossy = 100;
    assert!(pair.run(Duration::from_secs(20), Pair::both_up));
    let changes = pair.ends[0].changes();
    pair.pass(Duration::from_secs(600));
    assert!(pair.both_up());
    assert_eq!(pair.ends[0].changes(), changes);
}

#[test]
fn much_loss_is_survived() {
    let mut pair = Pair::new(Bfd::default(), Bfd::default());
    pair.lossy = 2;
    pair.pass(Duration::from_secs(600));
    assert!(pair.ends[0].changes() > 2);
    pair.lossy = 0;
    assert!(pair.run(Duration::from_secs(10), Pair::both_up));
}

#[test]
fn the_last_word_takes_the_other_end_down_at_once() {
    let mut pair = Pair::new(Bfd::default(), Bfd::default());
    assert!(pair.run(Duration::from_secs(2), Pair::both_up));
    let last = pair.ends[0].stop();
    assert_eq!(
        last.state,
        State::Down,
        "the reference never leaves AdminDown"
    );
    assert_eq!(pair.ends[0].state(), State::AdminDown);
    pair.ends[1].handle(&last, pair.now);
    assert_eq!(pair.ends[1].state(), State::Down);
}

#[test]
fn a_neighbour_that_says_admin_down_is_down() {
    let mut pair = Pair::new(Bfd::default(), Bfd::default());
    assert!(pair.run(Duration::from_secs(2), Pair::both_up));
    let packet = Control {
        state: State::AdminDown,
        ..pair.ends[0].clone().stop()
    };
    pair.ends[1].handle(&packet, pair.now);
    assert_eq!(pair.ends[1].state(), State::Down);
    pair.ends[1].handle(&packet, pair.now);
    assert_eq!(pair.ends[1].state(), State::Down);
}

#[test]
fn a_restarted_end_is_heard_although_the_other_one_names_its_predecessor() {
    let mut pair = Pair::new(Bfd::default(), Bfd::default());
    assert!(pair.run(Duration::from_secs(2), Pair::both_up));
    pair.ends[0] = Session::new(Bfd::default(), NonZeroU32::new(77).unwrap(), pair.now);
    let up = |p: &Pair| p.both_up() && p.ends[1].changes() > 2;
    assert!(pair.run(Duration::from_secs(10), up));
}

#[test]
fn a_poll_is_answered_at_once() {
    let mut pair = Pair::new(Bfd::default(), Bfd::default());
    assert!(pair.run(Duration::from_secs(2), Pair::both_up));
    let packet = pair.ends[0].clone().stop();
    let poll = Control {
        state: State::Up,
        poll: true,
        ..packet
    };
    let answer = pair.ends[1].handle(&poll, pair.now).expect("an answer");
    assert!(answer.last && !answer.poll);
    assert_eq!(
        pair.ends[1].handle(
            &Control {
                poll: false,
                ..poll
            },
            pair.now
        ),
        None
    );
}

#[test]
fn links_and_siblings_have_the_envelope_of_the_reference() {
    let control = Session::new(Bfd::default(), NonZeroU32::new(9).unwrap(), Instant::now()).stop();
    let key = HopKey::new(*b"testkey_xxxxxxxx");
    let link = Envelope::Link {
        isd_as: "1-ff00:0:110".parse().unwrap(),
        neighbour: "1-ff00:0:111".parse().unwrap(),
        interface: 5,
        local: "10.99.0.1".parse().unwrap(),
        remote: "10.99.0.2".parse().unwrap(),
    };
    let packet = link.seal(&control, &key, 1_700_000_010).unwrap();
    // Version 0, traffic class 0xb8, flow id 0xdead; next header, header length, payload length; path type.
    assert_eq!(packet[..9], [0x0b, 0x80, 0xde, 0xad, 203, 17, 0, 24, 2]);
    let view = View::new_checked(&packet).unwrap();
    assert_eq!(
        view.addresses().source.ip(),
        Some("10.99.0.1".parse().unwrap())
    );
    assert_eq!(
        view.addresses().destination.ip(),
        Some("10.99.0.2".parse().unwrap())
    );
    assert_eq!(
        view.addresses().destination_isd_as,
        "1-ff00:0:111".parse().unwrap()
    );
    let mac = key.mac(&sig_core::scion::MacInput {
        segment_id: 0,
        timestamp: 1_700_000_000,
        expiry: 63,
        ingress: 0,
        egress: 5,
    });
    let mut path = vec![1, 0, 0, 0, 0x65, 0x53, 0xf1, 0x00, 0, 63, 0, 0, 0, 5];
    path.extend(mac);
    path.resize(32, 0);
    assert_eq!(view.path().bytes(), path);
    assert_eq!(Control::decode(view.upper_layer().unwrap().1), Ok(control));

    let sibling = Envelope::Sibling {
        isd_as: "1-ff00:0:110".parse().unwrap(),
        local: "fd00::1".parse().unwrap(),
        remote: "fd00::2".parse().unwrap(),
    };
    let packet = sibling.seal(&control, &key, 1_700_000_010).unwrap();
    assert_eq!(packet[..9], [0x0b, 0x80, 0xde, 0xad, 203, 15, 0, 24, 0]);
    let view = View::new_checked(&packet).unwrap();
    assert_eq!(
        view.addresses().source_isd_as,
        view.addresses().destination_isd_as
    );
    assert_eq!(Control::decode(view.upper_layer().unwrap().1), Ok(control));
}
