use std::net::IpAddr;

use proptest::prelude::*;
use sig_common::wire::inner::InnerPacket;

use super::*;

/// What the reference makes of texts: its canonical form.
const ACCEPTED: &[(&str, &str)] = &[
    ("src=12.12.12.0/26", "src=12.12.12.0/26"),
    ("src=12.12.12.5/26", "src=12.12.12.0/26"),
    ("src = 12.12.12.5/26", "src=12.12.12.0/26"),
    ("SRC=1.2.3.4/0", "src=0.0.0.0/0"),
    ("dscp=0x2", "dscp=0x2"),
    ("dscp =0x2", "dscp=0x2"),
    ("dscp=0x 2", "dscp=0x2"),
    ("dscp=0x02", "dscp=0x2"),
    ("dscp=0x0002", "dscp=0x2"),
    ("dscp=0xfF", "dscp=0xff"),
    ("tos=0xad", "tos=0xad"),
    ("TOS=0x0", "tos=0x0"),
    ("protocol=tcp", "protocol=TCP"),
    ("protocol=Tcp", "protocol=TCP"),
    ("protocol= tcp", "protocol=TCP"),
    ("protocol=GRE", "protocol=GRE"),
    ("protocol=IPSecAH", "protocol=IPSecAH"),
    ("protocol=MPLS", "protocol=MPLS"),
    ("srcport=0", "srcport=0-0"),
    ("srcport=1-2", "srcport=1-2"),
    ("srcport=2-1", "srcport=2-1"),
    ("srcport= 1 - 2", "srcport=1-2"),
    ("srcport=65535", "srcport=65535-65535"),
    ("any(bool=true)", "any(BOOL=true)"),
    ("all (bool=true , bool=false)", "all(BOOL=true,BOOL=false)"),
    (
        "ALL(ANY(bool=true),NOT(BOOL=false))",
        "all(any(BOOL=true),not(BOOL=false))",
    ),
    ("bool = true", "BOOL=true"),
    (" bool=true", "BOOL=true"),
];

/// What the reference refuses.
const REFUSED: &[&str] = &[
    "",
    "src=12.12.12.5 /26",
    "src=12.12.12.5/33",
    "src=012.12.12.5/3",
    "src=12.12.12.5/08",
    "src=300.12.12.5/8",
    "Src=1.2.3.4/0",
    "dst=1.2.3.4",
    "dscp=0X2",
    "dscp= 0x2",
    "dscp=0x100",
    "dscp=0x",
    "dscp=0xg",
    "dscp=0xag",
    "dscp=0xbool",
    "tos=0xadd",
    "protocol=MPLSInIP",
    "protocol=all",
    "protocol=UnknownIPProtocol",
    "protocol=bad",
    "srcport=00",
    "srcport=080",
    "srcport=1-2f",
    "srcport=65536",
    "srcport=-1",
    "DSTPORT=1-",
    "cls =1",
    "CLS=1",
    "all()",
    "all(bool=true,)",
    "all(bool=true bool=true)",
    "not(bool=true,bool=false)",
    "bool=True",
    "bool=TRUE",
    "bool=true bool=true",
    "bool=true)",
    "(bool=true)",
    "all(bool=true",
    "allbool=true",
];

fn read(text: &str) -> Condition {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn problem(text: &str) -> String {
    match text.parse::<Condition>() {
        Ok(condition) => panic!("{text} is read as {condition}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_reference_and_this_parser_take_the_same_texts_for_the_same_conditions() {
    for (text, canonical) in ACCEPTED {
        assert_eq!(read(text).to_string(), *canonical, "{text}");
        assert_eq!(read(canonical), read(text), "{canonical}");
    }
}

#[test]
fn what_the_reference_refuses_is_refused() {
    for text in REFUSED {
        problem(text);
    }
}

#[test]
fn stray_characters_that_the_reference_skips_are_refused() {
    assert_eq!(
        problem("bool=true;"),
        "at character 10: \";\" found; expected nothing more"
    );
    assert!(problem("bool=;true").contains("expected true or false"));
    assert!(problem(";bool=true").contains("expected all(…)"));
    assert!(problem("ß").contains("\"ß\" found"));
}

#[test]
fn ipv6_prefixes_and_protocols_by_number_are_an_extension() {
    assert_eq!(
        read("any(src=2001:DB8::5/32,dst=::/0,protocol=47,protocol=253)").to_string(),
        "any(src=2001:db8::/32,dst=::/0,protocol=GRE,protocol=253)"
    );
    assert_eq!(read("protocol=icmpv6"), Condition::Protocol(58));
    assert_eq!(read("protocol=icmp").to_string(), "protocol=ICMPv4");
    problem("protocol=256");
    assert_eq!(
        problem("src=::ffff:10.1.0.0/112"),
        "at character 5: \"::ffff:10.1.0.0/112\" is an IPv4 prefix; write \"10.1.0.0/16\""
    );
}

#[test]
fn the_tree_is_the_one_that_is_written() {
    let net = "12.12.12.0/26".parse().expect("a prefix");
    assert_eq!(
        read("ANY(dscp=0x2,ALL(dst=12.12.12.0/26,dscp=0x2, NOT(src=12.12.12.0/26)))"),
        Condition::Any(vec![
            Condition::Dscp(2),
            Condition::All(vec![
                Condition::Destination(net),
                Condition::Dscp(2),
                Condition::Not(Box::new(Condition::Source(net))),
            ]),
        ])
    );
}

#[test]
fn named_classes_are_replaced_by_what_they_stand_for() {
    let class = |name: &str| match name {
        "1" => Ok(read("dscp=0x2e")),
        "voice-1.b_c" => Ok(read("not(tos=0x1)")),
        _ => Err(format!("no class {name}")),
    };
    let read = |text: &str| parse(text, &class).map(|condition| condition.to_string());
    assert_eq!(
        read("any(cls=1, cls= voice-1.b_c)"),
        Ok("any(dscp=0x2e,not(tos=0x1))".to_owned())
    );
    assert_eq!(
        read("all(cls=1,cls=2)").map_err(|error| error.to_string()),
        Err("at character 15: no class 2".to_owned())
    );
    assert_eq!(names("any(cls=1,not(cls=b),src=x,cls=c)"), ["1", "b"]);
}

#[test]
fn silly_nesting_and_endless_lists_are_refused() {
    let nested =
        |levels: usize| format!("{}bool=true{}", "not(".repeat(levels), ")".repeat(levels));
    assert_eq!(read(&nested(MAX_DEPTH - 1)).depth(), MAX_DEPTH);
    assert!(problem(&nested(MAX_DEPTH)).contains("64 levels"));
    assert!(problem(&nested(100_000)).contains("64 levels"));
    let list = |len: usize| format!("all({}bool=true)", "bool=true,".repeat(len - 1));
    assert_eq!(read(&list(MAX_CONDITIONS - 1)).size(), MAX_CONDITIONS);
    assert!(problem(&list(MAX_CONDITIONS)).contains("4096 conditions"));
}

#[test]
fn named_classes_count_against_the_limits() {
    let wide = read(&format!("all({}bool=true)", "bool=true,".repeat(2000)));
    let deep = read(&format!("{}bool=true{}", "not(".repeat(40), ")".repeat(40)));
    let class = |name: &str| {
        Ok(if name == "wide" {
            wide.clone()
        } else {
            deep.clone()
        })
    };
    assert!(parse("any(cls=wide,cls=wide)", &class).is_ok());
    let error = parse("any(cls=wide,cls=wide,cls=wide)", &class).expect_err("too many");
    assert!(error.message.contains("4096 conditions"), "{error}");
    let text = format!("{}cls=deep{}", "not(".repeat(30), ")".repeat(30));
    let error = parse(&text, &class).expect_err("too deep");
    assert!(error.message.contains("64 levels"), "{error}");
}

/// An IPv4 packet with 4 bytes of ports behind its header.
fn ipv4(protocol: u8, tos: u8, ports: [u16; 2]) -> Vec<u8> {
    let mut packet = vec![0x45, tos, 0, 24, 0, 0, 0, 0, 64, protocol, 0, 0];
    packet.extend([192, 168, 14, 3, 192, 168, 14, 2]);
    packet.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
    packet
}

/// An IPv6 packet with a hop-by-hop header in front of the ports.
fn ipv6(protocol: u8, tos: u8, ports: [u16; 2]) -> Vec<u8> {
    let mut packet = vec![0x60 | tos >> 4, tos << 4, 0, 0, 0, 12, 0, 64];
    for last in [3, 2] {
        packet.extend([
            0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last,
        ]);
    }
    packet.extend([protocol, 0, 1, 4, 0, 0, 0, 0]);
    packet.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
    packet
}

fn holds(text: &str, packet: &[u8]) -> bool {
    let summary = InnerPacket::parse(packet).expect("a packet");
    read(text).matches(&summary)
}

#[test]
fn conditions_look_at_both_versions_of_ip() {
    let packets = [ipv4(17, 0xb9, [150, 200]), ipv6(17, 0xb9, [150, 200])];
    for packet in &packets {
        for text in [
            "dscp=0x2e",
            "tos=0xb9",
            "protocol=udp",
            "srcport=100-199",
            "dstport=200",
            "not(srcport=151-199)",
            "any(src=192.168.14.0/24,src=2001:db8::3/128)",
            "any(dst=192.168.14.2/32,dst=2001:db8::2/127)",
        ] {
            assert!(holds(text, packet), "{text}: {packet:x?}");
        }
        for text in [
            "dscp=0xb8",
            "tos=0xb8",
            "protocol=tcp",
            "protocol=0",
            "dstport=100-199",
            "srcport=199-100",
            "dst=10.0.0.0/8",
            "dst=2001:db9::/32",
        ] {
            assert!(!holds(text, packet), "{text}: {packet:x?}");
        }
    }
    assert!(!holds("src=::/0", &packets[0]));
    assert!(!holds("src=0.0.0.0/0", &packets[1]));
}

#[test]
fn only_tcp_and_udp_that_are_not_in_fragments_have_ports() {
    assert!(holds("srcport=0-65535", &ipv4(6, 0, [1, 2])));
    assert!(!holds("srcport=0-65535", &ipv4(1, 0, [1, 2])));
    assert!(!holds("srcport=0-65535", &ipv6(58, 0, [1, 2])));
    let mut fragment = ipv4(17, 0, [1, 2]);
    fragment[6] = 0x20;
    assert!(!holds("srcport=0-65535", &fragment));
    let mut empty = ipv4(17, 0, [1, 2]);
    empty[3] = 20;
    assert!(
        !holds("srcport=0-65535", &empty),
        "ports out of the padding"
    );
}

#[test]
fn conditions_without_parts_hold() {
    let packet = ipv4(17, 0, [1, 2]);
    let packet = InnerPacket::parse(&packet[..]).expect("a packet");
    assert!(Condition::All(vec![]).matches(&packet));
    assert!(Condition::Any(vec![]).matches(&packet));
    assert!(!read("any(bool=false)").matches(&packet));
    assert!(read("any(bool=false,bool=true,bool=false)").matches(&packet));
    assert!(!read("all(bool=true,bool=false)").matches(&packet));
}

fn conditions() -> impl Strategy<Value = Condition> {
    let prefix = (any::<IpAddr>(), 0..=128_u8).prop_map(|(address, length)| {
        let length = if address.is_ipv4() {
            length.min(32)
        } else {
            length.min(95)
        };
        IpNet::new(address, length).expect("a length").trunc()
    });
    let ports = any::<(u16, u16)>().prop_map(|(first, last)| first..=last);
    let leaf = prop_oneof![
        any::<bool>().prop_map(Condition::Bool),
        prefix.clone().prop_map(Condition::Source),
        prefix.prop_map(Condition::Destination),
        any::<u8>().prop_map(Condition::Dscp),
        any::<u8>().prop_map(Condition::Tos),
        any::<u8>().prop_map(Condition::Protocol),
        ports.clone().prop_map(Condition::SourcePort),
        ports.prop_map(Condition::DestinationPort),
    ];
    leaf.prop_recursive(6, 40, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(Condition::All),
            prop::collection::vec(inner.clone(), 1..4).prop_map(Condition::Any),
            inner.prop_map(|part| Condition::Not(Box::new(part))),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_printed_is_read_back(condition in conditions()) {
        prop_assert_eq!(read(&condition.to_string()), condition);
    }

    #[test]
    fn no_text_is_a_panic(text in "[a-zA-Z0-9=(),.:/ ;ä-]{0,40}|(all|any|not|cls|src|dscp|=0x|=|[(),0-9]| ){0,12}") {
        let _ = text.parse::<Condition>();
        let _ = names(&text);
    }
}
