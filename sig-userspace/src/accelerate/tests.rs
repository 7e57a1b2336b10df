use std::collections::{HashMap, HashSet};

use sig_common::accelerate::{MAX_HEADERS, MAX_PATHS, NO_PATH, Path, STREAM_BIT, Sighting, kind};
use sig_common::addr::IsdAs;
use sig_common::maps::RemoteKey;
use sig_common::wire::{
    ethernet, ipv4, sig_frame,
    template::{Endpoints, FrameFields, NextHop, Template},
    udp,
};
use sig_linux::Error;

use super::{
    headers::{Headers, Unsuited},
    learn::{Learner, SessionKey, Tables},
};

const SECOND: u64 = 1_000_000_000;

/// The maps of the programs.
#[derive(Default)]
struct Maps {
    paths: HashMap<u32, Path>,
    frames: HashMap<u64, u32>,
    ways: HashMap<u64, u64>,
    remotes: HashMap<RemoteKey, u32>,
    locals: Vec<RemoteKey>,
    /// Until when frames were left to the gateway.
    held: u64,
    /// Packets by place.
    sent: HashMap<u32, u64>,
}

fn put<K: std::hash::Hash + Eq, V>(map: &mut HashMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    };
}

impl Tables for Maps {
    fn set_path(&mut self, number: u32, path: Option<&Path>) -> Result<(), Error> {
        put(&mut self.paths, number, path.copied());
        Ok(())
    }

    fn set_frame(&mut self, frame: u64, path: Option<u32>) -> Result<(), Error> {
        put(&mut self.frames, frame, path);
        Ok(())
    }

    fn set_way(&mut self, way: u64, time: u64) -> Result<(), Error> {
        self.ways.insert(way, time);
        Ok(())
    }

    fn way(&self, way: u64) -> Option<u64> {
        self.ways.get(&way).copied()
    }

    fn set_remote(&mut self, remote: RemoteKey, place: Option<u32>) -> Result<(), Error> {
        put(&mut self.remotes, remote, place);
        Ok(())
    }

    fn set_local(&mut self, local: RemoteKey, is_ours: bool) -> Result<(), Error> {
        self.locals.retain(|known| *known != local);
        if is_ours {
            self.locals.push(local);
        }
        Ok(())
    }

    fn path(&self, number: u32) -> Option<Path> {
        self.paths.get(&number).copied()
    }

    fn hold_inbound(&mut self, now: u64) -> Result<(), Error> {
        self.held = now;
        Ok(())
    }

    fn sent(&self, place: u32) -> u64 {
        self.sent.get(&place).copied().unwrap_or_default()
    }

    fn delivered(&self, place: u32) -> u64 {
        self.sent(place)
    }
}

const DATA: [u16; 2] = [65533, 30056];
const PROBE: [u16; 2] = [65532, 30856];

fn template([local, remote]: [u16; 2], way: u8, session: u8) -> Template {
    let ends = Endpoints {
        local_isd_as: IsdAs(0x0001_ff00_0000_0110),
        local: ([10, 10, 0, 2], local).into(),
        remote_isd_as: IsdAs(0x0001_ff00_0000_0111),
        remote: ([10, 11, 0, 2], remote).into(),
    };
    let next_hop = NextHop {
        address: ([10, 10, 0, way], 30042).into(),
        source_mac: [2; 6],
        destination_mac: [4; 6],
    };
    Template::new(&ends, &next_hop, 0, &[], session).unwrap()
}

/// A sighting of a frame with `payload` bytes, or of a probe with as many.
fn sighting(
    kind: u32,
    template: &Template,
    way: u8,
    session: u8,
    payload: usize,
    time: u64,
) -> Sighting {
    let mut frame = vec![0; template.len() + payload];
    let fields = FrameFields {
        traffic_class: 0,
        flow_hash: 77,
        stream: 9,
        sequence: 12,
        index: 0,
    };
    template.write(&mut frame, &fields).unwrap();
    let headers = match kind {
        kind::FRAME => template.len(),
        // What is a SIG header in the template is the message of the probe.
        _ => template.len() - sig_frame::HEADER_LEN,
    };
    let mut bytes = [0; MAX_HEADERS];
    bytes[..headers].copy_from_slice(&frame[..headers]);
    Sighting {
        time,
        way: u64::from(session) << 8 | u64::from(way),
        frame: u64::from(way) << 8 | u64::from(session),
        kind,
        headers: headers as u32,
        payload: (frame.len() - headers) as u32,
        session: session.into(),
        bytes,
    }
}

fn frame(way: u8, session: u8, time: u64) -> Sighting {
    sighting(
        kind::FRAME,
        &template(DATA, way, session),
        way,
        session,
        1400,
        time,
    )
}

fn probe(way: u8, session: u8, time: u64) -> Sighting {
    probe_between(PROBE, way, session, time)
}

fn probe_between(ports: [u16; 2], way: u8, session: u8, time: u64) -> Sighting {
    sighting(
        kind::PROBE,
        &template(ports, way, session),
        way,
        session,
        0,
        time,
    )
}

/// An answer to it: addresses and ports the other way round.
fn answer(session: u8, time: u64) -> Sighting {
    let probe = template(PROBE, 1, session);
    let mut answer = sighting(kind::ANSWER, &probe, 1, session, 0, time);
    let scion = ethernet::HEADER_LEN + ipv4::HEADER_LEN + udp::HEADER_LEN;
    let len = answer.headers as usize;
    for (at, size) in [(scion + 12, 8), (scion + 28, 4), (len - 8, 2)] {
        let (first, second) = answer.bytes[at..].split_at_mut(size);
        first.swap_with_slice(&mut second[..size]);
    }
    answer
}

fn key(session: u8) -> SessionKey {
    let remote = Headers::read(&frame(1, 0, 0)).unwrap().remote();
    SessionKey { remote, session }
}

#[test]
fn templates_are_like_the_frames() {
    let made = template(DATA, 1, 3);
    let headers = Headers::read(&frame(1, 3, 0)).unwrap();
    assert_eq!(headers.template().unwrap().headers(), made.headers());
    assert_eq!(headers.session(), 3);
    assert_eq!(headers.ports(), DATA);
}

#[test]
fn frames_with_anything_unusual_are_not_imitated() {
    let scion = ethernet::HEADER_LEN + ipv4::HEADER_LEN + udp::HEADER_LEN;
    for (at, value, why) in [
        // May be fragmented.
        (ethernet::HEADER_LEN + 6, 0, Unsuited::Form),
        (scion - 8, 0x11, Unsuited::Sources),
        (ethernet::HEADER_LEN + 15, 99, Unsuited::Sources),
        (ethernet::HEADER_LEN + 1, 0x20, Unsuited::TrafficClasses),
        // A reserved bit of the SCION header.
        (scion + 10, 1, Unsuited::Form),
    ] {
        let mut seen = frame(1, 0, 0);
        seen.bytes[at] = value;
        let headers = Headers::read(&seen).unwrap();
        assert_eq!(headers.template().unwrap_err(), why, "byte {at}");
    }
    let mut seen = frame(1, 0, 0);
    for at in 0..seen.headers as usize {
        // No byte makes it panic.
        seen.bytes[at] ^= 0xff;
        let _ = Headers::read(&seen).map(|headers| headers.template());
        seen.bytes[at] ^= 0xff;
    }
    seen.headers = MAX_HEADERS as u32 + 1;
    assert_eq!(Headers::read(&seen), Err(Unsuited::Malformed));
}

#[test]
fn a_frame_teaches_a_path_and_whom_the_gateway_talks_to() {
    let (mut maps, mut learner) = (Maps::default(), Learner::default());
    learner.take(&mut maps, &frame(1, 0, SECOND));
    let path = maps.paths[&1];
    assert_eq!(maps.frames[&0x100], 1);
    assert_eq!((path.way, path.capacity), (1, 1400));
    assert!(path.stream < STREAM_BIT);
    assert_eq!(path.template.headers(), template(DATA, 1, 0).headers());
    assert_eq!(maps.ways[&1], SECOND);
    assert_eq!((path.number, path.serial), (1, 1));
    assert_eq!(maps.remotes.len(), 1);
    assert_eq!(maps.held, SECOND, "frames of it may be in the gateway");
    assert_eq!(maps.locals.len(), 1);
    // Told twice, as before the map was written.
    learner.take(&mut maps, &frame(1, 0, SECOND));
    assert_eq!(maps.paths.len(), 1);
}

#[test]
fn when_probes_go_another_way_the_flows_follow() {
    let (mut maps, mut learner) = (Maps::default(), Learner::default());
    learner.take(&mut maps, &probe(1, 0, SECOND));
    learner.take(&mut maps, &frame(1, 0, SECOND));
    learner.take(&mut maps, &frame(1, 5, SECOND));
    learner.take(&mut maps, &probe(2, 0, 2 * SECOND));
    let path = maps.paths[&1];
    assert_eq!(path.way, 2);
    assert_eq!(path.template.headers(), template(DATA, 2, 0).headers());
    assert_eq!(
        path.capacity,
        1280 - path.template.len() as u32,
        "what passes there is not known"
    );
    assert_ne!(path.serial, 1, "who reads it meanwhile can tell");
    assert_ne!(path.peer, maps.paths[&2].peer);
    assert!(!maps.frames.contains_key(&0x100), "learned anew");
    assert!(maps.ways[&1] < SECOND, "not used any more");
    // Of another session nothing is known.
    assert_eq!(maps.paths[&2].way, 0x501);
    // The gateway's frames there are those of this path.
    learner.take(&mut maps, &frame(2, 0, 2 * SECOND));
    assert_eq!(maps.frames[&0x200], 1);
}

#[test]
fn an_answer_to_a_stranger_is_no_probe() {
    let (mut maps, mut learner) = (Maps::default(), Learner::default());
    learner.take(&mut maps, &probe(1, 0, SECOND));
    learner.take(&mut maps, &frame(1, 0, SECOND));
    let before = maps.paths[&1];
    // Over the way that the stranger's probe came.
    for ports in [[30856, 30856], [30856, 40000]] {
        learner.take(&mut maps, &probe_between(ports, 2, 0, 2 * SECOND));
    }
    assert_eq!(maps.paths[&1], before);
    assert_eq!(maps.ways.get(&2), None);
    assert_eq!(learner.sessions[&key(0)].probed, SECOND);
}

#[test]
fn nobody_else_probes_a_session() {
    let (mut maps, mut learner) = (Maps::default(), Learner::default());
    learner.take(&mut maps, &probe(1, 0, SECOND));
    learner.take(&mut maps, &frame(1, 0, SECOND));
    let before = maps.paths[&1];
    // The gateway answers a stranger, and the programs did not see him ask.
    let stranger = |time| probe_between([31856, 30856], 2, 0, time);
    learner.take(&mut maps, &stranger(2 * SECOND));
    assert_eq!(maps.paths[&1], before);
    assert_eq!(learner.sessions[&key(0)].probed, SECOND);
    // A gateway that changes its sessions probes from both ports for a while, then from the new one.
    for quarter in 9..20 {
        let time = quarter * SECOND / 4;
        if quarter <= 16 {
            learner.take(&mut maps, &probe(1, 0, time));
        }
        learner.take(&mut maps, &stranger(time));
        learner.take(&mut maps, &answer(0, time));
        learner.tick(&mut maps, time);
        assert!(maps.paths.contains_key(&1), "{quarter}");
        assert_eq!(maps.paths[&1].way == 2, quarter > 20, "{quarter}");
    }
    learner.take(&mut maps, &stranger(21 * SECOND / 4));
    assert_eq!(maps.paths[&1].way, 2);
    assert!(!maps.frames.values().any(|path| *path == NO_PATH));
    // More sessions than anybody has are not remembered.
    for host in 0..2000u16 {
        let mut probe = probe_between([31856, 30856], 1, 0, 6 * SECOND);
        let source = ethernet::HEADER_LEN + ipv4::HEADER_LEN + udp::HEADER_LEN + 28;
        probe.bytes[source..source + 2].copy_from_slice(&host.to_be_bytes());
        learner.take(&mut maps, &probe);
    }
    assert_eq!(learner.sessions.len(), 1024);
}

#[test]
fn a_stranger_that_is_answered_is_no_remote() {
    let (mut maps, mut learner) = (Maps::default(), Learner::default());
    learner.take(&mut maps, &probe_between([30856, 30856], 1, 0, SECOND));
    assert!(maps.remotes.is_empty() && maps.locals.is_empty());
}

#[test]
fn a_frame_on_another_path_puts_the_others_of_its_session_in_doubt() {
    let (mut maps, mut learner) = (Maps::default(), Learner::default());
    learner.take(&mut maps, &frame(1, 0, SECOND));
    learner.take(&mut maps, &frame(1, 5, SECOND));
    learner.take(&mut maps, &frame(2, 0, 2 * SECOND));
    assert!(maps.ways[&1] < SECOND);
    assert_eq!(maps.ways[&2], 2 * SECOND);
    assert_eq!(maps.paths.len(), 3);
}

#[test]
fn a_session_without_answers_is_the_gateways() {
    let (mut maps, mut learner) = (Maps::default(), Learner::default());
    learner.take(&mut maps, &probe(1, 0, SECOND));
    learner.take(&mut maps, &frame(1, 0, SECOND));
    learner.take(&mut maps, &answer(0, SECOND));
    for half in 3..6 {
        learner.take(&mut maps, &probe(1, 0, half * SECOND / 2));
        learner.tick(&mut maps, half * SECOND / 2);
        assert_eq!(maps.paths.len(), 1);
    }
    learner.take(&mut maps, &probe(1, 0, 3 * SECOND));
    learner.tick(&mut maps, 3 * SECOND + 1);
    assert!(maps.paths.is_empty() && !learner.sessions[&key(0)].is_up);
    // What the gateway still sends teaches nothing.
    learner.take(&mut maps, &frame(1, 0, 3 * SECOND));
    assert_eq!(maps.frames[&0x100], NO_PATH);
    // An answer to another session changes nothing, one to this does.
    learner.take(&mut maps, &answer(5, 4 * SECOND));
    assert_eq!(maps.frames[&0x100], NO_PATH);
    learner.take(&mut maps, &answer(0, 4 * SECOND));
    learner.take(&mut maps, &frame(1, 0, 4 * SECOND));
    assert_eq!(maps.paths.len(), 1);
}

#[test]
fn what_was_not_seen_for_long_is_forgotten() {
    let (mut maps, mut learner) = (Maps::default(), Learner::default());
    learner.take(&mut maps, &frame(1, 0, SECOND));
    learner.tick(&mut maps, 10 * SECOND);
    assert_eq!(maps.remotes.len(), 1);
    learner.tick(&mut maps, 12 * SECOND);
    assert!(maps.remotes.is_empty() && maps.locals.is_empty());
    assert_eq!(maps.paths.len(), 1);
    learner.tick(&mut maps, 62 * SECOND);
    assert!(maps.paths.is_empty() && maps.frames.is_empty());
    learner.take(&mut maps, &frame(1, 0, 70 * SECOND));
    assert!(maps.paths.contains_key(&2), "numbers are not used twice");
    learner.forget_all(&mut maps).unwrap();
    assert!(maps.paths.is_empty() && maps.frames.is_empty());
    assert!(maps.remotes.is_empty() && maps.locals.is_empty());
}

#[test]
fn a_path_that_comes_and_goes_stays_one() {
    let (mut maps, mut learner) = (Maps::default(), Learner::default());
    learner.take(&mut maps, &probe(1, 0, SECOND));
    learner.take(&mut maps, &frame(1, 0, SECOND));
    for time in 2..9 {
        let way = 1 + (time % 2 == 0) as u8;
        // Its frames are seen first, then the probe.
        learner.take(&mut maps, &frame(way, 0, time * SECOND));
        learner.take(&mut maps, &frame(way, 0, time * SECOND));
        assert_eq!(maps.paths.len(), 2);
        learner.take(&mut maps, &probe(way, 0, time * SECOND));
        assert_eq!(maps.paths.len(), 1);
        let path = maps.paths[&1];
        assert_eq!((path.way, path.capacity), (way.into(), 1400));
        assert_eq!(maps.frames, HashMap::from([(u64::from(way) << 8, 1)]));
    }
}

#[test]
fn a_session_that_is_probed_no_more_has_no_paths() {
    let (mut maps, mut learner) = (Maps::default(), Learner::default());
    learner.take(&mut maps, &probe(1, 0, SECOND));
    learner.take(&mut maps, &frame(1, 0, SECOND));
    learner.take(&mut maps, &frame(1, 5, SECOND));
    learner.take(&mut maps, &answer(0, 3 * SECOND));
    learner.tick(&mut maps, 4 * SECOND);
    assert!(learner.sessions.is_empty());
    assert_eq!(maps.paths.keys().collect::<Vec<_>>(), [&2]);
    assert_eq!(maps.frames, HashMap::from([(0x105, 2)]));
}

#[test]
fn sessions_whose_probes_are_not_seen_are_told_of() {
    let (mut maps, mut learner) = (Maps::default(), Learner::default());
    learner.take(&mut maps, &frame(1, 5, SECOND));
    assert!(learner.problems(SECOND).is_empty(), "they may still come");
    let problems = learner.problems(5 * SECOND);
    assert!(problems[0].contains("no probes of session 5 with 1-ff00:0:111,10.11.0.2"));
    learner.take(&mut maps, &probe(1, 5, 5 * SECOND));
    assert!(learner.problems(5 * SECOND).is_empty());
}

#[test]
fn paths_beyond_the_last_place_are_left_to_the_gateway() {
    let (mut maps, mut learner) = (Maps::default(), Learner::default());
    let nth = |number: u32| {
        let ports = [4000 + number as u16, 30056];
        let mut seen = sighting(kind::FRAME, &template(ports, 1, 0), 1, 0, 1400, SECOND);
        seen.frame = number.into();
        seen
    };
    for number in 0..MAX_PATHS {
        learner.take(&mut maps, &nth(number));
    }
    let streams: HashSet<u32> = maps.paths.values().map(|path| path.stream).collect();
    assert_eq!(streams.len(), MAX_PATHS as usize, "each has its own");
    learner.take(&mut maps, &nth(MAX_PATHS));
    assert_eq!(maps.frames[&MAX_PATHS.into()], NO_PATH);
    assert!(!learner.problems(SECOND).is_empty());
    learner.tick(&mut maps, 62 * SECOND);
    assert!(maps.frames.is_empty() && learner.problems(62 * SECOND).is_empty());
}

#[test]
fn headers_that_cannot_be_read_are_told_of_for_a_while() {
    let (mut maps, mut learner) = (Maps::default(), Learner::default());
    let mut seen = frame(1, 0, SECOND);
    seen.headers = 20;
    learner.take(&mut maps, &seen);
    assert_eq!(maps.frames[&0x100], NO_PATH);
    assert_eq!(learner.problems(SECOND).len(), 1);
    learner.tick(&mut maps, 62 * SECOND);
    assert!(maps.frames.is_empty() && learner.problems(62 * SECOND).is_empty());
}

#[test]
fn what_another_host_sent_tells_nothing_of_ours() {
    let (mut maps, mut learner) = (Maps::default(), Learner::default());
    let mut seen = probe(1, 0, SECOND);
    // The source of the underlay.
    seen.bytes[ethernet::HEADER_LEN + 15] = 99;
    learner.take(&mut maps, &seen);
    assert!(maps.remotes.is_empty() && maps.locals.is_empty());
}

#[test]
fn packets_are_counted_from_when_a_place_was_taken() {
    let mut learner = Learner::default();
    let sent = HashMap::from([(0, 77)]);
    let mut maps = Maps {
        sent,
        ..Maps::default()
    };
    learner.take(&mut maps, &frame(1, 0, SECOND));
    assert_eq!(learner.paths[&1].sent_before, 77);
    let remote = learner.remotes.values().next().unwrap();
    assert_eq!(remote.delivered_before, 77);
}

#[test]
fn segments_fit_the_smallest_frame() {
    let (mut maps, mut learner) = (Maps::default(), Learner::default());
    assert_eq!(learner.frame_size(&maps, 1500), 0);
    learner.take(&mut maps, &probe(1, 0, SECOND));
    let before = learner.frame_size(&maps, 1500);
    learner.take(&mut maps, &frame(1, 0, SECOND));
    let headers = maps.paths[&1].template.len() as u32 - 14;
    assert_eq!(learner.frame_size(&maps, 1500), 1500 - headers);
    assert_eq!(before, 1500 - headers);
    learner.take(&mut maps, &frame(2, 0, SECOND));
    maps.paths.get_mut(&2).unwrap().full = 1200;
    assert_eq!(learner.frame_size(&maps, 1500), 1200);
}
