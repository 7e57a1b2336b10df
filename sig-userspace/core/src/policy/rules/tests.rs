use std::net::IpAddr;

use proptest::prelude::*;
use sig_common::srv6::filter::{
    Facts, PrefixKey, Tables as Lookup, first, of_interface, of_ip, select,
};

use super::*;
use crate::policy::class::parse_rule;

/// The tables as the programs see them.
struct Maps<'a>(&'a Tables);

impl Lookup for Maps<'_> {
    fn of_prefix(&self, key: &PrefixKey) -> Option<u16> {
        let [_, field, version, _] = key.table;
        let bytes = key.address.map(u64::to_ne_bytes).concat();
        let address: IpAddr = match version {
            4 => <[u8; 4]>::try_from(&bytes[..4]).unwrap().into(),
            6 => <[u8; 16]>::try_from(bytes).unwrap().into(),
            _ => {
                assert_eq!(field, Field::Interface as u8);
                let name = format!("eth{}", u32::from_be_bytes(bytes[..4].try_into().unwrap()));
                return self.0.interfaces.get(&name).copied();
            }
        };
        let of_field = self.0.prefixes.iter();
        of_field
            .filter(|((of, net), _)| *of as u8 == field && net.contains(&address))
            .max_by_key(|((_, net), _)| net.prefix_len())
            .map(|(_, class)| *class)
    }

    fn of_octet(&self, field: usize, value: u8) -> u16 {
        self.0.head.octets[field][usize::from(value)]
    }

    fn of_number(&self, field: usize, value: u16) -> u16 {
        self.0.numbers[field][usize::from(value)]
    }

    fn absent(&self, field: usize) -> u16 {
        self.0.head.absent[field]
    }

    fn keep(&self, rows: &mut Class, class: u16) {
        let class = &self.0.classes[usize::from(class)];
        rows.iter_mut().zip(class).for_each(|(row, of)| *row &= of);
    }
}

/// Which rules a packet satisfies, by the tables.
fn by_tables(tables: &Tables, facts: &Facts) -> Vec<usize> {
    let mut rows = [0; WORDS];
    select(facts, tables.head.used, &Maps(tables), &mut rows);
    let mut rules = Vec::new();
    let mut from = 0;
    loop {
        let row = first(&rows, from);
        let Some((rule, end)) = tables.rows.get(row as usize) else {
            assert_eq!(row as usize, MAX_ROWS, "no row that no rule has");
            return rules;
        };
        rules.push(*rule);
        from = *end;
    }
}

/// The same, condition by condition.
fn one_by_one(rules: &[Rule], packet: &Packet) -> Vec<usize> {
    let is_satisfied = |rule: &&Rule| {
        (rule.interfaces.is_empty() || rule.interfaces.contains(&format!("eth{}", packet.ifindex)))
            && rule.action.is_for(packet.kind)
            && rule.condition.holds(&|atom| packet.satisfies(atom))
    };
    let all = rules.iter().enumerate();
    all.filter(|(_, rule)| is_satisfied(rule))
        .map(|(place, _)| place)
        .collect()
}

#[derive(Clone, Debug)]
struct Packet {
    ifindex: u32,
    kind: Kind,
    addresses: Vec<Option<IpAddr>>,
    octets: Vec<Option<u8>>,
    numbers: Vec<Option<u16>>,
}

impl Packet {
    fn facts(&self) -> Facts {
        let mut facts = Facts::default();
        for (place, address) in self.addresses.iter().enumerate() {
            let Some(address) = address else { continue };
            let version = if address.is_ipv4() { 4 } else { 6 };
            facts.keys[place] = PrefixKey {
                len: 160,
                table: [0, place as u8, version, 0],
                address: of_ip(*address),
            };
            facts.present |= 1 << place;
        }
        facts.keys[Field::Interface as usize] =
            PrefixKey::new(Field::Interface, 0, of_interface(self.ifindex), 128);
        facts.present |= Field::Interface.bit() | Field::Kind.bit();
        facts.octets[Field::Kind as usize - PREFIXES] = self.kind as u8;
        for (place, value) in self.octets.iter().enumerate() {
            if let Some(value) = value {
                facts.octets[place] = *value;
                facts.present |= 1 << (PREFIXES + place);
            }
        }
        for (place, value) in self.numbers.iter().enumerate() {
            if let Some(value) = value {
                facts.numbers[place] = *value;
                facts.present |= 1 << (PREFIXES + OCTETS + place);
            }
        }
        facts
    }

    fn satisfies(&self, atom: &Condition) -> bool {
        let address = |place: usize, net: &IpNet| {
            self.addresses[place].is_some_and(|address| net.contains(&address))
        };
        let octet = |place: usize| self.octets[place].map(u16::from);
        let within = |value: Option<u16>, range: &RangeInclusive<u16>| {
            value.is_some_and(|value| range.contains(&value))
        };
        match atom {
            Condition::Source(net) => address(0, net),
            Condition::Destination(net) => address(1, net),
            Condition::Dscp(code) => octet(0).is_some_and(|tos| tos / 4 == u16::from(*code)),
            Condition::Tos(tos) => octet(0) == Some(u16::from(*tos)),
            Condition::Protocol(number) => octet(1) == Some(u16::from(*number)),
            Condition::SourcePort(range) => within(self.numbers[0], range),
            Condition::DestinationPort(range) => within(self.numbers[1], range),
            Condition::Outer(outer) => match outer {
                Outer::Source(net) => address(2, net),
                Outer::Sid(net) => address(3, net),
                Outer::Previous(net) => address(4, net),
                Outer::Next(net) => address(5, net),
                Outer::Last(net) => address(6, net),
                Outer::SegmentsLeft(range) => within(octet(2), range),
                Outer::LastEntry(range) => within(octet(3), range),
                Outer::HeaderLength(range) => within(octet(4), range),
                Outer::NextHeader(number) => octet(5) == Some(u16::from(*number)),
                Outer::Tag(range) => within(self.numbers[2], range),
            },
            _ => panic!("{atom} has parts"),
        }
    }
}

/// Few addresses, so that prefixes contain each other and packets are in them.
fn address() -> impl Strategy<Value = IpAddr> {
    (any::<bool>(), 0..4_u8, 0..3_u8).prop_map(|(is_v4, high, low)| match is_v4 {
        true => IpAddr::from([10, high << 6, 0, low]),
        false => {
            let mut octets = [0; 16];
            (octets[0], octets[1], octets[15]) = (0x20, high << 6, low);
            IpAddr::from(octets)
        }
    })
}

fn net() -> impl Strategy<Value = IpNet> {
    (
        address(),
        prop::sample::select(vec![0, 7, 8, 9, 10, 30, 31, 32, 126, 128]),
    )
        .prop_map(|(address, len): (IpAddr, u8)| {
            let most = if address.is_ipv4() { 32 } else { 128 };
            IpNet::new(address, len.min(most)).unwrap().trunc()
        })
}

fn range() -> impl Strategy<Value = RangeInclusive<u16>> {
    let edge = || prop::sample::select(vec![0, 1, 2, 3, 7, 8, 254, 255, 256, 65_534, 65_535]);
    (edge(), edge()).prop_map(|(first, last)| first..=last)
}

fn number() -> impl Strategy<Value = u16> {
    prop::sample::select(vec![
        0, 1, 2, 3, 4, 6, 7, 8, 9, 253, 254, 255, 256, 65_534, 65_535,
    ])
}

fn octet() -> impl Strategy<Value = u8> {
    number().prop_map(|number| number as u8)
}

fn condition() -> impl Strategy<Value = Condition> {
    let leaf = (0..17, net(), range(), octet()).prop_map(|(kind, net, range, octet)| match kind {
        0 => Condition::Source(net),
        1 => Condition::Destination(net),
        2 => Condition::Dscp(octet >> 2),
        3 => Condition::Tos(octet),
        4 => Condition::Protocol(octet),
        5 => Condition::SourcePort(range),
        6 => Condition::DestinationPort(range),
        7 => Condition::Bool(octet % 2 == 0),
        kind => Condition::Outer(match kind {
            8 => Outer::Source(net),
            9 => Outer::Sid(net),
            10 => Outer::Previous(net),
            11 => Outer::Next(net),
            12 => Outer::Last(net),
            13 => Outer::SegmentsLeft(range),
            14 => Outer::LastEntry(range),
            15 => Outer::NextHeader(octet),
            _ => Outer::Tag(range),
        }),
    });
    leaf.prop_recursive(4, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Condition::All),
            prop::collection::vec(inner.clone(), 0..4).prop_map(Condition::Any),
            inner.prop_map(|part| Condition::Not(Box::new(part))),
        ]
    })
}

fn rule() -> impl Strategy<Value = Rule> {
    let interfaces = prop::collection::vec(prop::sample::select(vec!["eth1", "eth2"]), 0..2);
    let action = prop::sample::select(Action::ALL.to_vec());
    (condition(), interfaces, action).prop_map(|(condition, interfaces, action)| Rule {
        condition,
        interfaces: interfaces.into_iter().map(str::to_owned).collect(),
        action,
    })
}

fn packet() -> impl Strategy<Value = Packet> {
    (
        0..4_u32,
        prop::sample::select(vec![Kind::Plain, Kind::Sid, Kind::Arguments]),
        prop::collection::vec(prop::option::weighted(0.8, address()), PREFIXES - 1),
        prop::collection::vec(prop::option::weighted(0.8, octet()), OCTETS - 1),
        prop::collection::vec(prop::option::weighted(0.8, number()), NUMBERS),
    )
        .prop_map(|(ifindex, kind, addresses, octets, numbers)| Packet {
            ifindex,
            kind,
            addresses,
            octets,
            numbers,
        })
}

proptest! {
    #[test]
    fn the_tables_say_what_the_conditions_say(
        rules in prop::collection::vec(rule(), 1..12),
        packets in prop::collection::vec(packet(), 20),
    ) {
        let Ok(tables) = compile(&rules) else {
            return Err(TestCaseError::reject("too complex"));
        };
        for packet in packets {
            prop_assert_eq!(
                by_tables(&tables, &packet.facts()),
                one_by_one(&rules, &packet),
                "{:?}", packet
            );
        }
    }

    #[test]
    fn what_is_printed_is_read_back(condition in condition()) {
        // A list without parts has no text, nor have numbers above an octet.
        if let Ok(read) = parse_rule(&condition.to_string()) {
            prop_assert_eq!(read, condition);
        }
    }
}

fn rule_of(text: &str, action: Action) -> Rule {
    Rule {
        condition: parse_rule(text).unwrap_or_else(|error| panic!("{error}")),
        interfaces: Vec::new(),
        action,
    }
}

#[test]
fn alternatives_about_one_field_are_one_row() {
    let rows = |text: &str| compile(&[rule_of(text, Action::Drop)]).unwrap().rows.len();
    for (text, count) in [
        ("any(src=10.0.0.0/8,src=11.0.0.0/8,not(src=12.0.0.0/8))", 1),
        ("any(src=10.0.0.0/8,dst=11.0.0.0/8,src=12.0.0.0/8)", 2),
        (
            "not(all(any(dscp=0x1,tos=0xff),srcport=1,segmentsleft=2-255))",
            3,
        ),
        (
            "all(any(srcport=1,dstport=1),any(src=::/0,tag=7),not(any(dst=::/0,protocol=TCP)))",
            4,
        ),
        ("all(any(src=10.0.0.0/8,srcport=1),bool=false)", 0),
    ] {
        assert_eq!(rows(text), count, "{text}");
    }
}

#[test]
fn what_is_too_much_names_the_rule() {
    let pair = "any(srcport=1,dstport=1)";
    let many = format!("all({})", [pair; 10].join(","));
    let rules = [
        rule_of("bool=true", Action::Accept),
        rule_of(&many, Action::Drop),
    ];
    let error = compile(&rules).unwrap_err();
    assert_eq!((error.rule, error.most), (1, MAX_ROWS));
    let counts = vec![rule_of("bool=true", Action::Count); MAX_NOTING + 1];
    assert_eq!(compile(&counts).unwrap_err().rule, MAX_NOTING);
    assert!(compile(&counts[1..]).is_ok());
}

#[test]
fn numbers_have_their_bounds_and_segments_are_ipv6() {
    for (text, said) in [
        ("segmentsleft=256", "expected a number from 0 to 255"),
        ("tag=65536", "expected a tag from 0 to 65535"),
        ("sid=10.0.0.0/8", "is an IPv4 prefix"),
        ("cls=1", "no named classes"),
        ("left=1", "segmentsleft="),
    ] {
        let error = parse_rule(text).unwrap_err().to_string();
        assert!(error.contains(said), "{text}: {error}");
    }
    let error = "all(bool=true,sid=::/0)".parse::<Condition>().unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("at character 15: sid= is about SRv6 headers"),
        "{error}"
    );
}
