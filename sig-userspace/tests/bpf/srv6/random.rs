//! The program and the [`Model`] over random packets, with random tables.
//!
//! `SIG_CASES` sets how many tables are tried, `SIG_SEED` the first of them. A failure prints the seed and the packet.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
};

use ipnet::{IpNet, Ipv6Net};
use sig_common::srv6::{
    Behavior, Flavors, Sid,
    filter::Action,
    hmac::HmacKey,
    maps::{Adjacency, Function, MAX_HEADERS, Policy, Port, Reason},
};
use sig_common::wire::srv6::{Tlv, View};
use sig_core::policy::{
    class::{Condition, Outer},
    rules::Rule,
};
use sig_linux::bpf::Sr;

use super::bed::{Bed, TABLE, in_bed, text};
use super::model::Model;
use super::packets::*;
use super::rules::{FIRST_SLOT, NAME, Ruled, compiled};
use crate::router_model::number;
use crate::router_support::random::Dice;

/// Tables that are tried.
const CASES: u64 = 150;
/// Packets with each.
const PACKETS: usize = 40;
/// Local SIDs, numbered from 1.
const SIDS: usize = 25;
const FUNCTIONS: u32 = 3;
/// Where routes lead, and where none does.
const ELSEWHERE: [&str; 7] = [
    "2001:db8:b::9",
    "2001:db8:b::8",
    "2001:db8:c::9",
    "2001:db8:d::9",
    "2001:db8:e::9",
    "2001:db8:ffff::9",
    "2001:db8:a::ffff",
];
const HOSTS: [&str; 6] = [
    "10.2.0.9", "10.2.1.9", "10.3.0.9", "10.4.0.9", "10.5.0.9", "10.9.0.9",
];

/// Reasons that one packet at a time, over tables in order and without the secret of probes, does not have.
const OTHERS: [Reason; 5] = [
    Reason::TooManySids,
    Reason::Changing,
    Reason::NoPolicy,
    Reason::Probe,
    Reason::MirrorFull,
];

#[test]
fn the_program_does_what_the_model_does() {
    let (first, cases) = (number("SIG_SEED", 0), number("SIG_CASES", CASES));
    in_bed(|bed| {
        let mut seen: BTreeMap<(u32, Vec<Reason>), usize> = BTreeMap::new();
        let mut hits = 0;
        for seed in first..first + cases {
            let mut dice = Dice::new(seed);
            let mut sr = tables(&mut dice, bed, seed);
            let rules = rules(&mut dice);
            sr.rules = compiled(&rules).filter(|_| !rules.is_empty());
            for slot in 0..rules.len() as u32 {
                bed.programs.clear(FIRST_SLOT + slot).expect("a map");
            }
            // Caches of the case before go with their functions.
            bed.set(|now| *now = Sr::default());
            bed.set(|now| *now = sr.clone());
            let mut model = Model::new(sr, rules, bed.out, bed.other);
            for index in 0..PACKETS {
                let port = port(&mut dice);
                bed.port(port.flags, port.function);
                model.sr = bed.sr.clone();
                let mut frame = any_frame(&mut dice, port.flags & Port::RETURN != 0);
                if index % 40 == 39 {
                    frame.splice(12..12, [0x81, 0, 0, 0]);
                }
                let expected = model.run(&frame);
                let found = bed.run(&frame);
                assert!(
                    found == expected,
                    "SIG_SEED={seed}, packet {index}, {port:?}: {}\nexpected {expected:?}\n   found {found:?}",
                    text(&frame)
                );
                assert_eq!(
                    bed.copies(),
                    model.copies,
                    "SIG_SEED={seed}, packet {index}: {}",
                    text(&frame)
                );
                *seen.entry((found.action, found.reasons)).or_default() += 1;
            }
            for (slot, applied) in (FIRST_SLOT..).zip(&model.applied) {
                assert_eq!(
                    bed.traffic(slot),
                    *applied,
                    "SIG_SEED={seed}: {:?}",
                    model.rules
                );
                hits += applied.0;
            }
        }
        println!("{:?}", bed.programs.figures());
        println!("{seen:?}, {hits} times a rule");
        if cases < CASES {
            return;
        }
        assert!(hits > cases, "rules are applied");
        let unseen: Vec<Reason> = Reason::ALL
            .into_iter()
            .filter(|reason| !OTHERS.contains(reason))
            .filter(|reason| !seen.keys().any(|(_, reasons)| reasons.contains(reason)))
            .collect();
        assert!(unseen.is_empty(), "no packet has reached {unseen:?}");
    });
}

fn sid_address(number: usize) -> String {
    format!("2001:db8:a::{number:x}")
}

fn tables(dice: &mut Dice, bed: &Bed, seed: u64) -> Sr {
    let mut sr = Sr::default();
    sr.locators.insert("2001:db8:a::/48".parse().unwrap(), 0);
    let good = bed.adjacency();
    for number in 1..=4 {
        let adjacency = match dice.below(6) {
            0 => Adjacency { known: 0, ..good },
            1 => Adjacency {
                ifindex: bed.other,
                ..good
            },
            2 => Adjacency { mtu: 100, ..good },
            _ => good,
        };
        sr.adjacencies.insert(number, adjacency);
    }
    for id in 0..2 {
        sr.hmac_keys.insert(id, key(id));
    }
    for number in 1..=4 {
        sr.policies.insert(number, policy(dice));
    }
    for number in 0..FUNCTIONS {
        let kind = dice.one(&[
            Function::CACHED,
            Function::CACHED,
            Function::CONFIGURED,
            Function::MASQUERADED,
        ]);
        let up = if dice.percent(80) { Function::UP } else { 0 };
        let bypass = if dice.percent(50) {
            Function::BYPASS
        } else {
            0
        };
        let last = if dice.percent(30) { Function::LAST } else { 0 };
        let to = match dice.percent(90) {
            true => good,
            false => sr.adjacencies[&(1 + dice.below(4) as u32)],
        };
        let function = Function {
            to,
            flags: kind | up | bypass | last,
            policy: 1 + dice.below(5) as u32,
            slot: 1,
            // Never those of another case.
            flows: match dice.percent(50) {
                true => 1000 + seed as u32 * FUNCTIONS + number,
                false => 0,
            },
        };
        sr.functions.insert(number, function);
    }
    for number in 1..=SIDS {
        // All of them in every table.
        let behavior = Behavior::ALL[(number - 1) % Behavior::ALL.len()];
        let target = match behavior {
            Behavior::End => 0,
            Behavior::EndX | Behavior::EndDx4 | Behavior::EndDx6 => 1 + dice.below(5) as u32,
            Behavior::EndDx2 => dice.one(&[bed.out, bed.out, bed.other]),
            Behavior::EndAs | Behavior::EndAd4 | Behavior::EndAd6 => {
                dice.below(FUNCTIONS as usize + 1) as u32
            }
            Behavior::EndAm | Behavior::EndAn => {
                let number = dice.below(FUNCTIONS as usize + 1) as u32;
                // No configuration has this: while it is down, headers come in front of headers until there is no room.
                let is_static = sr
                    .functions
                    .get(&number)
                    .is_some_and(|function| function.flags & Function::CONFIGURED != 0);
                if is_static { FUNCTIONS } else { number }
            }
            _ => dice.one(&[0, TABLE, TABLE, 77]),
        };
        let flavors = Flavors(dice.byte() & 15);
        let mut sid = Sid::new(behavior, flavors, target, 100 + number as u32);
        let address = sid_address(number).parse::<Ipv6Addr>().unwrap();
        if number == SIDS || dice.percent(30) {
            sid.arguments = address.to_bits().trailing_zeros().min(3) as u8;
        }
        if sid.arguments != 0 {
            let net = Ipv6Net::new(address, 128 - sid.arguments).unwrap();
            sr.locators.insert(net.into(), sid.arguments.into());
        }
        sr.sids.insert(address, sid);
    }
    for net in [
        "10.0.0.0/8",
        "10.2.0.0/16",
        "2001:db8:b::/48",
        "2001:db8:b::9/128",
        "2001:db8:a::/48",
    ] {
        if dice.percent(60) {
            sr.steered
                .insert(net.parse().unwrap(), 1 + dice.below(5) as u32);
        }
    }
    sr
}

/// None in half of the cases.
fn rules(dice: &mut Dice) -> Vec<Ruled> {
    let count = dice.one(&[0, 0, 0, 1, 2, 5, 12]);
    let mut rules: Vec<_> = (0..count)
        .map(|_| Ruled {
            rule: Rule {
                condition: condition(dice, 3),
                interfaces: dice.one(&[
                    vec![],
                    vec![],
                    vec![NAME.to_owned()],
                    vec!["eth9".to_owned()],
                ]),
                action: match dice.percent(20) {
                    true => Action::EvalArguments,
                    false => dice.one(&Action::ALL),
                },
            },
            policy: 1 + dice.below(5) as u32,
        })
        .collect();
    while compiled(&rules).is_none() {
        rules.pop();
    }
    rules
}

fn condition(dice: &mut Dice, depth: usize) -> Condition {
    if depth > 0 && dice.percent(60) {
        let parts = (0..dice.one(&[1, 2, 2, 3])).map(|_| condition(dice, depth - 1));
        let parts = parts.collect();
        return match dice.below(3) {
            0 => Condition::All(parts),
            1 => Condition::Any(parts),
            _ => Condition::Not(Box::new(Condition::All(parts))),
        };
    }
    let mut net = || {
        let address = match dice.percent(60) {
            true => segment(dice).parse::<IpAddr>().unwrap(),
            false => dice
                .one(&["10.9.0.1", "10.2.0.9", "10.3.0.9", "2001:db8:5::5"])
                .parse()
                .unwrap(),
        };
        let most = if address.is_ipv4() { 32 } else { 128 };
        let len = dice.one(&[0, 8, 14, 16, 32, 48, 124, 127, 128]);
        IpNet::new(address, len.min(most)).unwrap().trunc()
    };
    let net = net();
    let octet = dice.one(&[0, 1, 2, 4, 6, 17, 41, 43, 58, 60]);
    let (low, high) = (
        dice.one(&[0, 1, 2, 7, 9]),
        dice.one(&[0, 1, 2, 3, 8, 9, 255]),
    );
    match dice.below(18) {
        0 => Condition::Bool(dice.percent(50)),
        1 => Condition::Source(net),
        2 => Condition::Destination(net),
        3 => Condition::Dscp(dice.byte() >> 5),
        4 => Condition::Tos(octet),
        5 => Condition::Protocol(octet),
        6 => Condition::SourcePort(low..=high),
        7 => Condition::DestinationPort(low..=high),
        8 => Condition::Outer(Outer::Source(net)),
        9 => Condition::Outer(Outer::Sid(net)),
        10 => Condition::Outer(Outer::Previous(net)),
        11 => Condition::Outer(Outer::Next(net)),
        12 => Condition::Outer(Outer::Last(net)),
        13 => Condition::Outer(Outer::SegmentsLeft(low..=high)),
        14 => Condition::Outer(Outer::LastEntry(low..=high)),
        15 => Condition::Outer(Outer::HeaderLength(low..=high)),
        16 => Condition::Outer(Outer::NextHeader(octet)),
        _ => Condition::Outer(Outer::Tag(low..=high)),
    }
}

fn segment(dice: &mut Dice) -> String {
    match dice.percent(50) {
        // Behind the last one are its arguments.
        true => sid_address(1 + dice.below(SIDS + 7)),
        false => dice.one(&ELSEWHERE).to_owned(),
    }
}

fn segments(dice: &mut Dice, count: usize) -> Vec<String> {
    (0..count).map(|_| segment(dice)).collect()
}

fn policy(dice: &mut Dice) -> Policy {
    let count = 1 + dice.below(10);
    let list = segments(dice, count);
    let list: Vec<&str> = list.iter().map(String::as_str).collect();
    let first = list[count - 1];
    let reduced = dice.percent(50);
    let (packet, next_header_at) = match (reduced, count) {
        (true, 1) => (ipv6(64, 0, first, &[]), 6),
        (true, _) => (
            ipv6(
                64,
                ROUTING,
                first,
                &srh(0, count as u8 - 1, &list[..count - 1]),
            ),
            40,
        ),
        (false, _) => (
            ipv6(64, ROUTING, first, &srh(0, count as u8 - 1, &list)),
            40,
        ),
    };
    let mut headers = [0; MAX_HEADERS];
    headers[..packet.len()].copy_from_slice(&packet);
    let len = match dice.below(20) {
        0 => 39,
        1 => MAX_HEADERS + 1,
        _ => packet.len(),
    };
    Policy {
        headers,
        len: len as u16,
        next_header_at,
        flags: dice.one(&[
            0,
            Policy::INHERIT_HOP_LIMIT,
            Policy::INHERIT_HOP_LIMIT,
            Policy::INSERT,
        ]),
        slot: 3,
        mtu: dice.one(&[1500, 1500, 1500, 200]),
    }
}

fn port(dice: &mut Dice) -> Port {
    let flags = match dice.below(20) {
        0 => 0,
        1 => Port::STEERED,
        2..=6 => Port::RETURN,
        7..=9 => Port::TRUSTED | Port::STEERED,
        10 => Port::FRAMES,
        11..=14 => Port::TRUSTED | Port::VERIFIED,
        15 => Port::TRUSTED | Port::VERIFIED | Port::AUTHENTIC,
        _ => Port::TRUSTED,
    };
    let function = dice.below(FUNCTIONS as usize + 1) as u32;
    Port {
        mac: OURS,
        reserved: 0,
        flags,
        function: if flags & (Port::RETURN | Port::FRAMES) != 0 {
            function
        } else {
            0
        },
    }
}

fn hops(dice: &mut Dice) -> u8 {
    dice.one(&[0, 1, 2, 3, 64, 64, 64, 64, 64, 255])
}

/// What is behind the headers, and its next header value.
fn inside(dice: &mut Dice) -> (u8, Vec<u8>) {
    let size = match dice.below(10) {
        0 => 600 + dice.below(800),
        _ => dice.below(60),
    };
    let data = udp(size);
    match dice.below(12) {
        0..5 => {
            let options: &[u8] = dice.one(&[&[][..], &[], &[1, 1, 1, 0]]);
            let (ttl, host) = (hops(dice), dice.one(&HOSTS));
            (IPV4, ipv4_with(options, ttl, host, &data))
        }
        5..9 => {
            let to = segment(dice);
            let mut packet = match dice.percent(20) {
                true => ipv6(
                    hops(dice),
                    OPTIONS,
                    &to,
                    &[&options(UDP)[..], &data].concat(),
                ),
                false => ipv6(hops(dice), UDP, &to, &data),
            };
            packet[1] = dice.byte();
            (IPV6, packet)
        }
        9 => (ETHERNET, ether([6; 6], [8; 6], &small_v4())),
        10 => (ICMPV6, vec![128, 0, 0, 0, 0, 0, 0, 0]),
        _ => (dice.one(&[UDP, FRAGMENT, OPTIONS, ROUTING, 59]), data),
    }
}

fn any_frame(dice: &mut Dice, is_return: bool) -> Vec<u8> {
    let (next, packet) = inside(dice);
    let bare = (is_return && dice.percent(60) || dice.percent(20)) && matches!(next, IPV4 | IPV6);
    let packet = if bare {
        packet
    } else {
        to_a_sid(dice, next, packet)
    };
    let mut frame = frame(&packet);
    if dice.percent(30) {
        let padding = dice.below(100);
        frame.extend((0..padding).map(|_| 0xee));
    }
    if dice.percent(5) {
        frame[0] ^= 4;
    }
    if dice.percent(20) {
        for _ in 0..1 + dice.below(3) {
            // Rather in the headers, and in those of the SRH.
            let end = dice.one(&[54, 64, 200, 2000]).min(frame.len());
            let at = dice.below(end);
            frame[at] = dice.one(&[0, 1, 4, 255, frame[at].wrapping_add(1), frame[at] ^ 0x40]);
        }
    }
    if dice.percent(5) {
        frame.truncate(14 + dice.below(frame.len() - 13));
    }
    frame
}

/// Places in [`Behavior::ALL`] of those that have a use for a packet.
const fn fitting(next: u8, is_under_way: bool) -> &'static [usize] {
    match (is_under_way, next) {
        (true, IPV4) => &[0, 1, 2, 9, 10, 12, 13, 14, 15, 16, 24],
        (true, IPV6) => &[0, 1, 2, 9, 11, 12, 13, 14, 15, 16, 23],
        (true, _) => &[0, 1, 2, 12, 13, 14, 15, 16],
        (_, IPV4) => &[0, 1, 4, 6, 8, 9, 10],
        (_, IPV6) => &[0, 2, 5, 7, 8, 9, 11],
        (_, ETHERNET) => &[3, 17],
        _ => &[0],
    }
}

/// The first is of RFC 8754, the second of Linux.
fn key(id: u32) -> HmacKey {
    HmacKey::new(b"a secret", id)
}

/// Adds an HMAC to an SRH, which is right more often than not.
fn sign(dice: &mut Dice, header: &mut Vec<u8>) {
    let id = dice.one(&[0, 0, 0, 1, 1, 2]);
    header[1] += 5;
    header.extend([5, 38, dice.one(&[0, 0, 0, 0x80]), 0, 0, 0, 0, id]);
    header.extend([0; 32]);
    let Ok(view) = View::new_checked(header) else {
        return;
    };
    let Some(Ok(Tlv::Hmac(hmac))) = view.tlvs().find(|tlv| matches!(tlv, Ok(Tlv::Hmac(_)))) else {
        return;
    };
    let text = view.hmac_text(address("2001:db8:5::5"), &hmac);
    let mac = key(id.into()).mac(&text);
    let at = header.len() - 32;
    header[at..].copy_from_slice(&mac);
    if dice.percent(20) {
        header[at + dice.below(32)] ^= 1;
    }
}

fn to_a_sid(dice: &mut Dice, next: u8, inside: Vec<u8>) -> Vec<u8> {
    let (mut next, mut payload) = (next, inside);
    if dice.percent(10) {
        payload = [&options(next)[..], &payload].concat();
        next = OPTIONS;
    }
    let has_srh = dice.percent(80);
    let is_under_way = has_srh && dice.percent(60);
    let number = match dice.below(20) {
        0..14 => 1 + dice.one(fitting(next, is_under_way)),
        14..19 => 1 + dice.below(SIDS),
        _ => SIDS + 1 + dice.below(7),
    };
    let mut destination = sid_address(number);
    if has_srh {
        let count = match dice.below(10) {
            0 => 1 + dice.below(14),
            _ => 1 + dice.below(4),
        };
        let mut list = segments(dice, count);
        let left = match dice.below(30) {
            0 => dice.byte(),
            1..=28 if is_under_way => 1 + dice.below(count) as u8,
            1..=28 => 0,
            _ => dice.below(count + 2) as u8,
        };
        if let Some(active) = list.get_mut(usize::from(left)) {
            active.clone_from(&destination);
        }
        let list: Vec<&str> = list.iter().map(String::as_str).collect();
        let mut header = srh(next, left, &list);
        if dice.percent(10) {
            // A TLV: eight bytes of padding.
            header[1] += 1;
            header.extend([4, 6, 0, 0, 0, 0, 0, 0]);
        }
        if dice.percent(30) {
            sign(dice, &mut header);
        }
        payload = [header, payload].concat();
        next = ROUTING;
    } else if dice.percent(5) {
        destination = dice.one(&ELSEWHERE).to_owned();
    }
    for _ in 0..dice.one(&[0, 0, 0, 0, 0, 0, 0, 1, 2, 3]) {
        let mut header = options(next).to_vec();
        if dice.percent(20) {
            // Long ones.
            header[1] = 20;
            header.resize(168, 0);
        }
        payload = [header, payload].concat();
        next = OPTIONS;
    }
    if dice.percent(5) {
        payload = [&options(next)[..], &payload].concat();
        next = 0;
    }
    ipv6(hops(dice), next, &destination, &payload)
}
