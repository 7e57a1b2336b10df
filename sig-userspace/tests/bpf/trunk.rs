//! The real program `sig_trunk`, and those that it goes on with, over single packets.

use std::os::fd::AsFd as _;

use proptest::prelude::*;
use sig_common::{
    addr::IsdAs,
    maps::{LanRoute, Sockets, Stat, TrunkPort},
    reason::DropReason,
    wire::{
        ethernet::{TPID_8021AD, TPID_8021Q, Tag},
        underlay::Local,
    },
};
use sig_linux::bpf::{FastPathOptions, LoadOptions, Logging, Program, Programs};

use crate::{
    frames::{LO, XDP_DROP, XDP_PASS, XDP_REDIRECT, xdp_socket},
    packets::{Underlay, V1, hex},
    support::netns::root_or_skip,
};

/// The trunk is `lo`. Nothing has these indexes: the programs know VLAN devices by them.
const UNDERLAY: u32 = 1_000;
const LAN: u32 = 1_001;
/// Their VLANs.
const UNDERLAY_VLAN: u16 = 100;
const LAN_VLAN: u16 = 0xffe;

/// The data port that V1 is sent to.
const PORT: u16 = 30056;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

#[test]
fn programs_with_trunks_load_with_a_fast_path_too() {
    if !root_or_skip() {
        return;
    }
    for logging in [Logging::Off, Logging::Debug] {
        let how = LoadOptions {
            logging,
            trunks: true,
        };
        let options = FastPathOptions {
            sockets: 2,
            clamp_mss: true,
            verify_checksums: true,
        };
        Programs::load_with_fast_path(how, options).unwrap();
    }
}

/// Programs with trunks, and what keeps their sockets open.
fn programs() -> (Programs, Vec<std::os::fd::OwnedFd>) {
    let mut programs = Programs::load(LoadOptions {
        logging: Logging::Off,
        trunks: true,
    })
    .unwrap();
    let sockets: Vec<_> = (0..2).map(|_| xdp_socket()).collect();
    for (index, (port, socket)) in (0..).zip([UNDERLAY, LAN].iter().zip(&sockets)) {
        programs.set_socket(index, socket.as_fd()).unwrap();
        let sockets = Sockets {
            first: index,
            count: 1,
        };
        programs.set_steering(*port, 0, sockets).unwrap();
    }
    let home = IsdAs::new(1, 0xff00_0000_0111);
    let remote = IsdAs::new(1, 0xff00_0000_0110);
    let local = Local::new(home, "10.0.0.2".parse().unwrap(), PORT, false);
    programs.set_underlay_port(UNDERLAY, &local, MAC).unwrap();
    programs
        .set_remotes([(remote, "10.0.0.1".parse().unwrap(), 0)])
        .unwrap();
    programs.set_lan_port(LAN, MAC, true, 1500).unwrap();
    programs
        .set_lan_routes([("10.2.0.0/16".parse().unwrap(), LanRoute::TUNNEL)])
        .unwrap();
    for (vlan, ifindex, program) in [
        (UNDERLAY_VLAN, UNDERLAY, TrunkPort::UNDERLAY),
        (LAN_VLAN, LAN, TrunkPort::LAN),
    ] {
        let port = TrunkPort { ifindex, program };
        programs.set_vlan(LO, vlan, Some(port)).unwrap();
    }
    (programs, sockets)
}

const fn tag(tci: u16) -> Option<Tag> {
    Some(Tag {
        tpid: TPID_8021Q,
        tci,
    })
}

/// A SIG frame for the gateway, in these VLANs.
fn frame(tags: [Option<Tag>; 2]) -> Vec<u8> {
    let to = Underlay::to("10.0.0.2", PORT);
    Underlay { tags, ..to }.wrap(&hex(V1))
}

/// A packet of the LAN to this address, in these VLANs.
fn packet(destination: &str, tags: [Option<Tag>; 2]) -> Vec<u8> {
    let to = Underlay::to(destination, 53);
    Underlay { tags, ..to }.wrap(b"hello")
}

fn without_tag(frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &frame[16..]].concat()
}

/// What the programs counted since `before`.
fn counted(programs: &Programs, before: &sig_linux::bpf::Counters) -> Vec<(Stat, u64)> {
    let now = programs.counters().unwrap();
    let moved = now
        .stats()
        .map(|(stat, count)| (stat, count - before.stat(stat)));
    moved.filter(|(_, count)| *count > 0).collect()
}

/// Runs a frame through the trunk: what it is afterwards, and what was counted.
#[track_caller]
fn check(programs: &Programs, that: &str, frame: &[u8], expected: (u32, &[u8], Option<Stat>)) {
    let (action, out, stat) = expected;
    let before = programs.counters().unwrap();
    let outcome = programs.test_run(Program::Trunk, frame).unwrap();
    let stats: Vec<_> = stat.map(|stat| (stat, 1)).into_iter().collect();
    assert_eq!(counted(programs, &before), stats, "{that}");
    assert_eq!(outcome.action, action, "{that}");
    assert_eq!(outcome.frame, out, "{that}");
}

#[test]
fn frames_of_known_vlans_go_to_workers_without_their_tag() {
    if !root_or_skip() {
        return;
    }
    let (programs, _sockets) = programs();
    // With a priority and drop eligible, too.
    for more in [0, 0x7000, 0xf000] {
        let frame = frame([tag(more | UNDERLAY_VLAN), None]);
        let out = without_tag(&frame);
        let expected = (XDP_REDIRECT, out.as_slice(), Some(Stat::UnderlayRedirected));
        check(&programs, "a SIG frame", &frame, expected);
        let packet = packet("10.2.0.1", [tag(more | LAN_VLAN), None]);
        let out = without_tag(&packet);
        let expected = (XDP_REDIRECT, out.as_slice(), Some(Stat::LanRedirected));
        check(&programs, "a packet to a remote", &packet, expected);
    }
}

#[test]
fn what_is_left_to_the_kernel_has_its_tag_again() {
    if !root_or_skip() {
        return;
    }
    let (mut programs, _sockets) = programs();
    let none = [None, None];
    let (underlay, lan) = (
        [tag(0x3000 | UNDERLAY_VLAN), None],
        [tag(0x3000 | LAN_VLAN), None],
    );
    let ad = |tci| {
        Some(Tag {
            tpid: TPID_8021AD,
            tci,
        })
    };
    let passed_underlay = Some(Stat::UnderlayPassed);
    let passed_lan = Some(Stat::LanPassed);
    for (that, frame, stat) in [
        ("no VLAN", frame(none), None),
        ("a priority only", frame([tag(0x6000), None]), None),
        ("an unknown VLAN", frame([tag(101), None]), None),
        ("a service VLAN", frame([ad(UNDERLAY_VLAN), None]), None),
        (
            "a VLAN in the VLAN",
            frame([tag(UNDERLAY_VLAN), tag(7)]),
            None,
        ),
        (
            "a priority in the VLAN",
            frame([tag(UNDERLAY_VLAN), tag(0x6000)]),
            None,
        ),
        (
            "a VLAN in a service VLAN",
            frame([ad(7), tag(UNDERLAY_VLAN)]),
            None,
        ),
        ("a SIG frame in the LAN's VLAN", frame(lan), passed_lan),
        (
            "a LAN packet in the underlay's VLAN",
            packet("10.2.0.1", underlay),
            passed_underlay,
        ),
        ("a packet to nobody", packet("10.3.0.1", lan), passed_lan),
        (
            "a packet to another port",
            Underlay {
                tags: underlay,
                ..Underlay::to("10.0.0.2", 53)
            }
            .wrap(b"hello"),
            passed_underlay,
        ),
    ] {
        check(&programs, that, &frame, (XDP_PASS, &frame, stat));
    }
    // No worker listens, or it has ended.
    for (count, stat) in [
        (0, [Stat::UnderlayNoSocket, Stat::LanNoSocket]),
        (1, [Stat::UnderlayNoSocket, Stat::LanNoSocket]),
    ] {
        let nobody = Sockets { first: 9, count };
        for port in [UNDERLAY, LAN] {
            programs.set_steering(port, 0, nobody).unwrap();
        }
        let frame = frame(underlay);
        check(
            &programs,
            "no worker",
            &frame,
            (XDP_PASS, &frame, Some(stat[0])),
        );
        let frame = packet("10.2.0.1", lan);
        check(
            &programs,
            "no worker",
            &frame,
            (XDP_PASS, &frame, Some(stat[1])),
        );
    }
    // The VLAN device is down.
    for vlan in [LAN_VLAN, LAN_VLAN, 5] {
        programs.set_vlan(LO, vlan, None).unwrap();
    }
    let frame = packet("10.2.0.1", lan);
    check(
        &programs,
        "a VLAN that is down",
        &frame,
        (XDP_PASS, &frame, None),
    );
}

#[test]
fn bad_frames_are_dropped_and_the_next_one_is_as_if_they_had_not_been() {
    if !root_or_skip() {
        return;
    }
    let (programs, _sockets) = programs();
    let mut stranger = hex(V1);
    stranger[27] = 0x33;
    let stranger = Underlay {
        tags: [tag(UNDERLAY_VLAN), None],
        ..Underlay::to("10.0.0.2", PORT)
    }
    .wrap(&stranger);
    let outcome = programs.test_run(Program::Trunk, &stranger).unwrap();
    assert_eq!(outcome.action, XDP_DROP);
    let counters = programs.counters().unwrap();
    assert_eq!(counters.dropped(DropReason::UnknownRemote), 1);
    // One that came in by another device than a trunk: the program knows nothing of `lo` itself.
    let plain = frame([None, None]);
    let outcome = programs.test_run(Program::Underlay, &plain).unwrap();
    assert_eq!((outcome.action, outcome.frame), (XDP_PASS, plain));
}

#[test]
fn a_trunk_may_be_used_without_vlan_too() {
    if !root_or_skip() {
        return;
    }
    let (mut programs, sockets) = programs();
    programs.set_lan_port(LO, MAC, true, 1500).unwrap();
    let port = TrunkPort {
        ifindex: LO,
        program: TrunkPort::LAN,
    };
    programs.set_vlan(LO, 0, Some(port)).unwrap();
    programs.set_socket(2, sockets[1].as_fd()).unwrap();
    let own = Sockets { first: 2, count: 1 };
    programs.set_steering(LO, 0, own).unwrap();
    let frame = packet("10.2.0.1", [None, None]);
    let expected = (XDP_REDIRECT, frame.as_slice(), Some(Stat::LanRedirected));
    check(&programs, "no VLAN", &frame, expected);
    // As without trunks.
    let frame = packet("10.2.0.1", [tag(0x6000), None]);
    let expected = (XDP_PASS, frame.as_slice(), Some(Stat::LanPassed));
    check(&programs, "a priority only", &frame, expected);
    let frame = packet("10.2.0.1", [tag(LAN_VLAN), None]);
    let out = without_tag(&frame);
    let expected = (XDP_REDIRECT, out.as_slice(), Some(Stat::LanRedirected));
    check(&programs, "in the VLAN", &frame, expected);
}

#[test]
fn any_bytes_are_dropped_redirected_without_tag_or_as_they_were() {
    if !root_or_skip() {
        return;
    }
    let (programs, _sockets) = programs();
    let vlan = prop_oneof![Just(UNDERLAY_VLAN), Just(LAN_VLAN), any::<u16>()];
    let tpid = prop_oneof![4 => Just(TPID_8021Q), 1 => any::<u16>()];
    let bytes = proptest::collection::vec(any::<u8>(), 0..200);
    let sample = prop_oneof![
        Just(frame([None, None])),
        Just(packet("10.2.0.1", [None, None])),
        Just(packet("10.2.0.1", [tag(7), None])),
        bytes.prop_map(|bytes| [[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1].as_slice(), &bytes].concat()),
    ];
    let cut = any::<proptest::sample::Index>();
    proptest!(ProptestConfig::with_cases(500), |(vlan in vlan, tpid in tpid, sample in sample, cut in cut, is_cut in any::<bool>())| {
        let [t0, t1] = tpid.to_be_bytes();
        let [v0, v1] = vlan.to_be_bytes();
        let mut frame = [&sample[..12], &[t0, t1, v0, v1], &sample[12..]].concat();
        if is_cut {
            frame.truncate(cut.index(frame.len()));
        }
        frame.resize(frame.len().max(14), 0);
        let outcome = programs.test_run(Program::Trunk, &frame).unwrap();
        match outcome.action {
            XDP_PASS => prop_assert_eq!(outcome.frame, frame),
            XDP_REDIRECT => prop_assert_eq!(outcome.frame, without_tag(&frame)),
            action => prop_assert_eq!(action, XDP_DROP),
        }
    });
}
