//! Rules, one at a time.

use sig_common::srv6::{
    Behavior, Flavors, Sid,
    filter::Action,
    maps::{MAX_HEADERS, Policy, Port, Reason},
};

use super::bed::{Bed, Outcome, SECOND, one_after_the_other};
use super::node::*;
use super::packets::*;
use super::rules::{FIRST_SLOT, Ruled, compiled, ruled};

one_after_the_other! {
    packets_that_meet_rules: node;
    conditions_about_what_is_inside
    conditions_about_headers_and_segments
    what_a_packet_lacks_does_not_hold
    an_inserted_header_leads_to_its_last_segment
    the_first_rule_that_decides_does
    a_sid_is_passed_by
    segments_are_skipped
    the_last_segment_is_the_next
    arguments_decide
    packets_are_steered
    copies_are_of_what_is_inside
    neighbours_meet_no_rules
    what_rules_cannot_read_is_dropped
    strangers_are_refused_before
    rules_change_at_once
}

const OTHER: &str = "2001:db8:b::9";
const PREVIOUS: &str = "2001:db8:9::1";

fn set(bed: &mut Bed, rules: &[Ruled]) {
    bed.set(|sr| sr.rules = Some(compiled(rules).expect("simple rules")));
}

/// IPv4 behind an SRH on its way from `PREVIOUS` by `END` to `FAR`.
fn under_way() -> Vec<u8> {
    let mut packet = routed(64, IPV4, 1, &[FAR, END, PREVIOUS], &small_v4());
    packet[46..48].copy_from_slice(&[0x12, 0x34]);
    packet
}

fn drops(bed: &mut Bed, condition: &str, packet: &[u8]) -> bool {
    set(bed, &[ruled(condition, Action::Drop, 0)]);
    let outcome = bed.run(&frame(packet));
    outcome == Outcome::dropped(Reason::Filtered)
}

fn all_hold(bed: &mut Bed, packet: &[u8], conditions: &[&str]) {
    for condition in conditions {
        assert!(drops(bed, condition, packet), "{condition}");
        let contrary = format!("not({condition})");
        assert!(!drops(bed, &contrary, packet), "{contrary}");
    }
}

fn conditions_about_what_is_inside(bed: &mut Bed) {
    let packet = under_way();
    let inside = [
        "src=10.9.0.0/16",
        "dst=10.2.0.9/32",
        "protocol=UDP",
        "srcport=7",
        "dstport=8-9",
        "dscp=0x0",
        "tos=0x0",
        "all(src=10.9.0.1/32,not(dst=10.2.0.8/32),any(srcport=1,dstport=9))",
    ];
    all_hold(bed, &packet, &inside);
    // The same without headers.
    all_hold(bed, &small_v4(), &inside);
    let packet = routed(64, IPV6, 1, &[FAR, END], &small_v6());
    all_hold(
        bed,
        &packet,
        &[
            "src=2001:db8:5::5/128",
            "dst=2001:db8:b::9/128",
            "srcport=7",
        ],
    );
    // Without an SRH.
    let packet = ipv6(64, IPV4, MAIN, &small_v4());
    all_hold(bed, &packet, &["src=10.9.0.1/32", "sid=2001:db8:a::47/128"]);
}

fn conditions_about_headers_and_segments(bed: &mut Bed) {
    all_hold(
        bed,
        &under_way(),
        &[
            "outersrc=2001:db8:5::/48",
            "sid=2001:db8:a::e/128",
            "previous=2001:db8:9::/48",
            "next=2001:db8:b::/48",
            "last=2001:db8:b::9/128",
            "segmentsleft=1",
            "lastentry=2",
            "headerlength=6",
            "nextheader=IPv4",
            "tag=4660",
            "all(segmentsleft=0-1,tag=4000-5000,not(lastentry=3-255))",
        ],
    );
}

fn what_a_packet_lacks_does_not_hold(bed: &mut Bed) {
    let plain = ipv4(64, "10.9.9.9", &[0; 8]);
    for lacking in [
        "sid=::/0",
        "outersrc=::/0",
        "previous=::/0",
        "tag=0-65535",
        "src=::/0",
    ] {
        assert!(!drops(bed, lacking, &plain), "{lacking}");
        assert!(drops(bed, &format!("not({lacking})"), &plain), "{lacking}");
    }
    let last = routed(64, IPV4, 0, &[MAIN, PREVIOUS], &small_v4());
    assert!(drops(bed, "previous=2001:db8:9::1/128", &last));
    assert!(!drops(bed, "next=::/0", &last));
    let first = routed(64, IPV4, 1, &[FAR, END], &small_v4());
    assert!(!drops(bed, "previous=::/0", &first));
    // An IPv6 packet in one that is not for a SID of ours is that packet's own business.
    let tunnel = ipv6(64, IPV4, OTHER, &small_v4());
    assert!(drops(
        bed,
        "all(src=2001:db8:5::5/128,not(sid=::/0))",
        &tunnel
    ));
}

fn an_inserted_header_leads_to_its_last_segment(bed: &mut Bed) {
    let packet = routed(64, UDP, 1, &[FAR, END], &udp(4));
    all_hold(
        bed,
        &packet,
        &["all(src=2001:db8:5::5/128,dst=2001:db8:b::9/128,dstport=9,protocol=UDP)"],
    );
}

fn the_first_rule_that_decides_does(bed: &mut Bed) {
    let rules = [
        ruled("bool=true", Action::Count, 0),
        ruled("any(srcport=7,src=10.0.0.0/8)", Action::Count, 0),
        ruled("dst=10.3.0.0/16", Action::Drop, 0),
        ruled("dst=10.2.0.0/16", Action::Accept, 0),
        ruled("bool=true", Action::Drop, 0),
    ];
    let sent = bed.run(&frame(&under_way()));
    set(bed, &rules);
    for slot in 0..5 {
        bed.programs.clear(FIRST_SLOT + slot).unwrap();
    }
    assert_eq!(bed.run(&frame(&under_way())), sent);
    let other = routed(64, IPV4, 1, &[FAR, END], &ipv4(64, "10.4.0.9", &udp(4)));
    bed.check(
        "dropped",
        &frame(&other),
        &Outcome::dropped(Reason::Filtered),
    );
    let counted = (0..5).map(|rule| bed.traffic(FIRST_SLOT + rule).0);
    assert_eq!(counted.collect::<Vec<_>>(), [2, 2, 0, 1, 1]);
    assert_eq!(bed.traffic(FIRST_SLOT + 3).1, under_way().len() as u64);
}

/// Behind the second router, as after `End`; the list as it was.
fn advanced(list: &[&str], left: u8) -> Outcome {
    to(SECOND, &routed(63, IPV4, left, list, &small_v4()))
}

fn a_sid_is_passed_by(bed: &mut Bed) {
    set(bed, &[ruled("sid=2001:db8:a::46/128", Action::GoNext, 0)]);
    let list = [FAR, DT46];
    let packet = routed(64, IPV4, 1, &list, &small_v4());
    bed.check("passed by", &frame(&packet), &advanced(&list, 0));
    let packet = routed(1, IPV4, 1, &list, &small_v4());
    bed.check("hops", &frame(&packet), &told(Reason::HopLimit, 0, &packet));
    // As at `End`, nothing is to be done at the end.
    let packet = routed(64, IPV4, 0, &[DT46], &small_v4());
    bed.check(
        "end",
        &frame(&packet),
        &told(Reason::UpperLayer, 64, &packet),
    );
}

fn segments_are_skipped(bed: &mut Bed) {
    set(bed, &[ruled("bool=true", Action::SkipNext, 0)]);
    let list = [OTHER, FAR, PREVIOUS, DT46];
    let packet = routed(64, IPV4, 3, &list, &small_v4());
    bed.check("one skipped", &frame(&packet), &advanced(&list, 1));
    let packet = routed(64, IPV4, 1, &[FAR, DT46], &small_v4());
    bed.check(
        "none left",
        &frame(&packet),
        &told(Reason::BadHeader, 43, &packet),
    );
}

fn the_last_segment_is_the_next(bed: &mut Bed) {
    set(bed, &[ruled("bool=true", Action::GoLast, 0)]);
    let list = [FAR, PREVIOUS, PREVIOUS, DT46];
    let packet = routed(64, IPV4, 3, &list, &small_v4());
    bed.check("the last", &frame(&packet), &advanced(&list, 0));
}

fn arguments_decide(bed: &mut Bed) {
    bed.set(|sr| {
        let sid = Sid {
            arguments: 4,
            ..Sid::new(Behavior::EndDt46, Flavors(0), 0, SLOT)
        };
        sr.sids.insert("2001:db8:a::1230".parse().unwrap(), sid);
        sr.locators
            .insert("2001:db8:a::1230/124".parse().unwrap(), 4);
    });
    set(bed, &[ruled("bool=true", Action::EvalArguments, 0)]);
    let packet = |arguments: u8, left| {
        let active = format!("2001:db8:a::123{arguments:x}");
        let list = [FAR, OTHER, active.as_str()];
        match left {
            0 => ipv6(64, IPV4, &active, &small_v4()),
            _ => routed(64, IPV4, left, &list, &small_v4()),
        }
    };
    let decapsulated = bed.run(&frame(&ipv6(64, IPV4, MAIN, &small_v4())));
    bed.check("accept", &frame(&packet(0, 0)), &decapsulated);
    bed.check(
        "drop",
        &frame(&packet(1, 0)),
        &Outcome::dropped(Reason::Filtered),
    );
    for (arguments, left) in [(2, 1), (3, 0), (4, 0)] {
        let mut expected = packet(arguments, 2);
        expected[7] = 63;
        expected[24..40].copy_from_slice(&address(if left == 1 { OTHER } else { FAR }));
        expected[43] = left;
        bed.check(
            "go on",
            &frame(&packet(arguments, 2)),
            &to(SECOND, &expected),
        );
    }
    let unknown = packet(5, 2);
    bed.check(
        "unknown",
        &frame(&unknown),
        &told(Reason::BadArguments, 24, &unknown),
    );
    // A SID of its own comes first, and has none.
    bed.set(|sr| {
        let sid = Sid::new(Behavior::EndDt46, Flavors(0), 0, SLOT);
        sr.sids.insert("2001:db8:a::1231".parse().unwrap(), sid);
    });
    bed.check("exact", &frame(&packet(1, 0)), &decapsulated);
}

fn packets_are_steered(bed: &mut Bed) {
    bed.port(Port::TRUSTED | Port::STEERED, 0);
    let headers = |first: &str| {
        let outer = ipv6(64, IPV4, first, &[]);
        let mut headers = [0; MAX_HEADERS];
        headers[..40].copy_from_slice(&outer);
        Policy {
            headers,
            len: 40,
            next_header_at: 6,
            flags: 0,
            slot: 3,
            mtu: 1500,
        }
    };
    bed.set(|sr| {
        sr.policies.insert(1, headers(FAR));
        sr.policies.insert(2, headers("2001:db8:b::2"));
        sr.steered.insert("10.2.0.0/16".parse().unwrap(), 1);
        sr.steered.insert("10.2.0.1/32".parse().unwrap(), 0);
    });
    let destination = |bed: &mut Bed, host: &str| {
        let outcome = bed.run(&frame(&ipv4(64, host, &udp(4))));
        outcome.frame[38..54].to_vec()
    };
    assert_eq!(destination(bed, "10.2.0.9"), address(FAR));
    set(
        bed,
        &[
            ruled("dst=10.2.0.8/32", Action::Accept, 0),
            ruled("srcport=7", Action::Steer, 2),
        ],
    );
    assert_eq!(destination(bed, "10.2.0.9"), address("2001:db8:b::2"));
    assert_eq!(destination(bed, "10.9.0.9"), address("2001:db8:b::2"));
    assert_eq!(destination(bed, "10.2.0.8"), address(FAR));
    let own = frame(&ipv4(64, "10.2.0.1", &udp(4)));
    bed.check("this host", &own, &Outcome::passed(own.clone(), &[]));
    // What is for a SID is not steered.
    let packet = ipv6(64, IPV4, MAIN, &small_v4());
    let outcome = bed.run(&frame(&packet));
    assert_eq!(outcome.frame[12..14], [8, 0]);
}

fn copies_are_of_what_is_inside(bed: &mut Bed) {
    let rules = [
        ruled(
            "all(any(srcport=7,src=10.0.0.0/8),protocol=UDP)",
            Action::Mirror,
            0,
        ),
        ruled("bool=true", Action::Drop, 0),
    ];
    set(bed, &rules);
    let mut padded = frame(&under_way());
    padded.extend([0xee; 20]);
    bed.run(&padded);
    assert_eq!(bed.copies(), [(0x0800, small_v4())]);
    bed.run(&frame(&routed(64, IPV6, 1, &[FAR, END], &small_v6())));
    assert_eq!(bed.copies(), [(0x86dd, small_v6())]);
    // Nothing is inside.
    let inserted = routed(64, UDP, 1, &[FAR, END], &udp(4));
    bed.run(&frame(&inserted));
    assert_eq!(bed.copies(), [(0x86dd, inserted)]);
    let long = ipv4(64, "10.9.9.9", &udp(1400));
    bed.run(&frame(&long));
    assert_eq!(bed.copies(), [(0x0800, long)]);
    bed.run(&frame(&ipv6(64, ICMPV6, END, &[128, 0, 0, 0])));
    assert!(bed.copies().is_empty());
    // Nobody takes them any more: it is the copies that are lost.
    let long = frame(&ipv4(64, "10.9.9.9", &udp(1400)));
    let full = (0..4000).find(|_| bed.run(&long).reasons.contains(&Reason::MirrorFull));
    assert!(full.is_some());
    assert_eq!(
        bed.run(&long).reasons,
        [Reason::Filtered, Reason::MirrorFull]
    );
    assert!(bed.copies().len() > 2000);
}

fn neighbours_meet_no_rules(bed: &mut Bed) {
    set(bed, &[ruled("bool=true", Action::Drop, 0)]);
    bed.set(|sr| {
        sr.steered.insert("2001:db8:1::1/128".parse().unwrap(), 0);
    });
    let solicitation = ipv6(255, ICMPV6, "2001:db8:1::1", &[135, 0, 0, 0]);
    let local = ipv6(64, UDP, "fe80::1", &udp(4));
    let many = ipv4(64, "224.0.0.5", &udp(4));
    for packet in [solicitation, local, many] {
        let frame = frame(&packet);
        bed.check("passed", &frame, &Outcome::passed(frame.clone(), &[]));
    }
    // No IP packet.
    let arp = ether(OURS, THEIRS, &[]);
    bed.check("no IP", &arp, &Outcome::passed(arp.clone(), &[]));
    let ping = frame(&ipv6(64, ICMPV6, "2001:db8:1::1", &[128, 0, 0, 0]));
    bed.check("ping", &ping, &Outcome::dropped(Reason::Filtered));
}

/// The kernel would forward all of these.
fn what_rules_cannot_read_is_dropped(bed: &mut Bed) {
    let rules = [ruled("dst=2001:db8:1::1/128", Action::Drop, 0)];
    set(bed, &rules);
    let filtered = Outcome::dropped(Reason::Filtered);
    let options = |count: usize| {
        let mut last = UDP;
        let mut payload = udp(4);
        for _ in 0..count {
            payload = [&[last, 0, 1, 4, 0, 0, 0, 0][..], &payload].concat();
            last = 60;
        }
        frame(&ipv6(64, last, "2001:db8:1::1", &payload))
    };
    bed.check("four headers", &options(4), &filtered);
    let malformed = Outcome::dropped(Reason::Malformed);
    bed.check("five headers", &options(5), &malformed);
    // Hop-by-hop options, and a payload length of 0.
    let mut jumbogram = options(1);
    jumbogram[18..21].copy_from_slice(&[0, 0, 0]);
    bed.check("a jumbogram", &jumbogram, &malformed);
    let mut ended = routed(64, IPV6, 0, &[FAR], &[]);
    ended[24..40].copy_from_slice(&address("2001:db8:1::1"));
    bed.check("at its end", &frame(&ended), &filtered);
    let elsewhere = ipv6(255, ICMPV6, "2001:db8:1::1", &[135, 0, 0, 0]);
    bed.check("a neighbour of others", &frame(&elsewhere), &filtered);
    for tags in [&[0x81, 0, 0, 0][..], &[0x88, 0xa8, 0xe0, 0, 0x81, 0, 0, 5]] {
        let mut tagged = options(0);
        tagged.splice(12..12, tags.iter().copied());
        let outcome = Outcome::dropped(Reason::PriorityTag);
        bed.check("a priority tag", &tagged, &outcome);
    }
}

fn strangers_are_refused_before(bed: &mut Bed) {
    bed.port(Port::STEERED, 0);
    set(
        bed,
        &[
            ruled("bool=true", Action::Mirror, 0),
            ruled("bool=true", Action::Accept, 0),
        ],
    );
    bed.check(
        "a SID",
        &frame(&under_way()),
        &Outcome::dropped(Reason::Untrusted),
    );
    assert!(bed.copies().is_empty());
}

fn rules_change_at_once(bed: &mut Bed) {
    let packet = under_way();
    let sent = bed.run(&frame(&packet));
    // Each generation replaces the one before the last.
    for number in 0..6 {
        let other = format!("src=10.{}.0.0/16", 8 + number % 2);
        assert_eq!(drops(bed, &other, &packet), number % 2 == 1, "{other}");
    }
    bed.set(|sr| sr.rules = None);
    assert_eq!(bed.run(&frame(&packet)), sent);
}
