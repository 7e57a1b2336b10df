//! Networks small enough to see all their paths.

use sig_common::wire::scion::path::{HopField, InfoField, ScionPath};

use super::{combine::Piece, segment::Segment, *};
use crate::scion::MacInput;

const T: u32 = 1_700_000_000;
pub(crate) const VALIDITY: Validity = Validity {
    timestamp: T,
    expiry: 63,
};

pub(crate) fn number(name: &str) -> IsdAs {
    let (isd, asn) = name.split_once('-').unwrap_or(("1", name));
    let asn = u64::from_str_radix(asn, 16).unwrap();
    IsdAs::new(isd.parse().unwrap(), 0xff00_0000_0000 + asn)
}

/// ASes by name, core ASes with a `*`, and links as `a 1 child 2 b`.
fn network(ases: &str, links: &[&str]) -> Network {
    try_network(ases, links).unwrap()
}

fn try_network(ases: &str, links: &[&str]) -> Result<Network, Vec<Misfit>> {
    let ases = ases.split(' ').map(|name| As {
        isd_as: number(name.trim_end_matches('*')),
        core: name.ends_with('*'),
        mtu: 1472,
        key: HopKey::new([name.as_bytes()[0]; 16]),
    });
    let links = links.iter().map(|link| {
        let words: Vec<&str> = link.split(' ').collect();
        let end = |name, interface: &str| End {
            isd_as: number(name),
            interface: interface.parse().unwrap(),
        };
        Link {
            ends: [end(words[0], words[1]), end(words[4], words[3])],
            link_type: match words[2] {
                "core" => LinkType::Core,
                "child" => LinkType::Child,
                "parent" => LinkType::Parent,
                _ => LinkType::Peer,
            },
            mtu: 1400 + u16::from(words[0].as_bytes()[0] & 7),
        }
    });
    Network::new(ases.collect(), links.collect())
}

/// The paths, as `a 1>2 b` for each link, the hop fields of each segment and the flags of it.
fn ways(network: &Network, from: &str, to: &str) -> Vec<String> {
    let paths = network.paths(number(from), number(to), VALIDITY).unwrap();
    paths.iter().map(show).collect()
}

fn show(path: &NetworkPath) -> String {
    let links = path.interfaces.chunks(2).map(|ends| {
        let name = |end: &Interface| format!("{:x}", end.isd_as.asn() & 0xfff);
        format!(
            "{}#{}>{}#{}",
            name(&ends[0]),
            ends[0].id,
            name(&ends[1]),
            ends[1].id
        )
    });
    let header = ScionPath::new_checked(&path.raw).unwrap();
    let segments = header
        .infos()
        .zip(header.meta().segments)
        .map(|(info, hops)| {
            let direction = if info.construction_direction {
                "down"
            } else {
                "up"
            };
            let peering = if info.peering { " peering" } else { "" };
            format!("{hops} {direction}{peering}")
        });
    format!(
        "{}: {}",
        links.collect::<Vec<_>>().join(" "),
        segments.collect::<Vec<_>>().join(", ")
    )
}

/// The ASes of the reference's vectors: keys `1`, `2`, `3` (sixteen times), one below the other, and a peer of the second.
pub fn vectors() -> Network {
    network(
        "1* 2 3 4",
        &[
            "1 1 child 1 2",
            "2 2 child 1 3",
            "2 5 peer 6 4",
            "1 9 child 1 4",
        ],
    )
}

fn segment() -> Segment {
    Segment {
        ases: vec![0, 1, 2],
        links: vec![0, 1],
    }
}

fn signed(piece: &Piece<'_>) -> (InfoField, Vec<HopField>) {
    sign::sign(&vectors(), piece, 0x1234, VALIDITY)
}

fn macs(fields: &[HopField]) -> Vec<String> {
    fields
        .iter()
        .map(|hop| crate::notation::to_hex(&hop.mac))
        .collect()
}

const C: [&str; 3] = ["36c47fc60c5c", "94aacc16fd71", "4e75bd76b46c"];
const P1: &str = "c030b747531d";

#[test]
fn hop_fields_are_those_of_the_reference_in_both_directions() {
    let segment = segment();
    let mut piece = Piece {
        segment: &segment,
        first: 0,
        in_construction_direction: true,
        peering: None,
    };
    let (info, fields) = signed(&piece);
    assert_eq!(macs(&fields), C);
    assert_eq!(
        (info.segment_id, info.construction_direction),
        (0x1234, true)
    );
    let interfaces: Vec<_> = fields.iter().map(|hop| (hop.ingress, hop.egress)).collect();
    assert_eq!(interfaces, [(0, 1), (1, 2), (1, 0)]);
    assert!(fields.iter().all(|hop| hop.expiry == 63));

    piece.in_construction_direction = false;
    let (info, fields) = signed(&piece);
    assert_eq!(macs(&fields), [C[2], C[1], C[0]]);
    assert_eq!(
        (info.segment_id, info.construction_direction),
        (0xb05a, false)
    );
}

#[test]
fn parts_of_segments_begin_with_their_own_identifiers() {
    let segment = segment();
    for (in_construction_direction, id, expected) in
        [(true, 0x24f0, [C[1], C[2]]), (false, 0xb05a, [C[2], C[1]])]
    {
        let piece = Piece {
            segment: &segment,
            first: 1,
            in_construction_direction,
            peering: None,
        };
        let (info, fields) = signed(&piece);
        assert_eq!(
            (info.segment_id, &macs(&fields)[..]),
            (id, &expected.map(str::to_owned)[..])
        );
    }
}

#[test]
fn hop_fields_of_peering_links_are_those_of_the_reference() {
    let segment = segment();
    for (in_construction_direction, expected) in [(true, [P1, C[2]]), (false, [C[2], P1])] {
        let piece = Piece {
            segment: &segment,
            first: 1,
            in_construction_direction,
            peering: Some(2),
        };
        let (info, fields) = signed(&piece);
        assert_eq!(macs(&fields), expected);
        assert_eq!((info.segment_id, info.peering), (0xb05a, true));
    }
    // Its own AS is all that a path has of the segment: the identifier is the one that follows.
    let segment = Segment {
        ases: vec![0, 1],
        links: vec![0],
    };
    let piece = Piece {
        segment: &segment,
        first: 1,
        in_construction_direction: false,
        peering: Some(2),
    };
    let (info, fields) = signed(&piece);
    let ordinary = MacInput {
        segment_id: 0x24f0,
        timestamp: T,
        expiry: 63,
        ingress: 1,
        egress: 0,
    };
    let [first, second, ..] = HopKey::new([b'2'; 16]).mac(&ordinary);
    let id = 0x24f0 ^ u16::from_be_bytes([first, second]);
    assert_eq!(
        (info.segment_id, fields[0].ingress, fields[0].egress),
        (id, 5, 0)
    );
    let input = MacInput {
        segment_id: id,
        ingress: 5,
        ..ordinary
    };
    assert_eq!(fields[0].mac, HopKey::new([b'2'; 16]).mac(&input));
}

#[test]
fn a_path_is_one_segment_between_an_as_and_its_core() {
    let network = vectors();
    assert_eq!(ways(&network, "1", "3"), ["1#1>2#1 2#2>3#1: 3 down"]);
    assert_eq!(ways(&network, "3", "1"), ["3#1>2#2 2#1>1#1: 3 up"]);
}

#[test]
fn segments_are_combined_at_the_core() {
    let network = network(
        "1* 2* 3 4",
        &["1 1 core 2 2", "1 3 child 4 3", "2 5 child 6 4"],
    );
    assert_eq!(
        ways(&network, "3", "4"),
        ["3#4>1#3 1#1>2#2 2#5>4#6: 2 up, 2 up, 2 down"]
    );
    assert_eq!(ways(&network, "1", "4"), ["1#1>2#2 2#5>4#6: 2 up, 2 down"]);
    assert_eq!(ways(&network, "3", "2"), ["3#4>1#3 1#1>2#2: 2 up, 2 up"]);
    assert_eq!(ways(&network, "2", "1"), ["2#2>1#1: 2 up"]);
}

#[test]
fn shortcuts_and_peering_links_need_no_core() {
    let network = network(
        "1* 2 3 4 5",
        &[
            "1 1 child 1 2",
            "2 2 child 1 3",
            "4 1 parent 3 2",
            "1 2 child 1 5",
            "5 3 peer 4 2",
            "5 2 peer 2 3",
        ],
    );
    // By the AS that both have above them, not by the core; the peer of that AS is no way around.
    assert_eq!(ways(&network, "3", "4")[0], "3#1>2#2 2#3>4#1: 2 up, 2 down");
    // To and from an AS that is above the other, one segment is enough.
    assert_eq!(ways(&network, "3", "2")[0], "3#1>2#2: 2 up");
    assert_eq!(ways(&network, "2", "3")[0], "2#2>3#1: 2 down");
    // All ways from 3 to 5: by its own peering link, by that of the AS above, and by the core.
    assert_eq!(
        ways(&network, "3", "5"),
        [
            "3#2>5#2: 1 up peering, 1 down peering",
            "3#1>2#2 2#4>5#3: 2 up peering, 1 down peering",
            "3#1>2#2 2#1>1#1 1#2>5#1: 3 up, 2 down",
        ]
    );
}

#[test]
fn no_path_goes_through_an_as_twice_or_down_and_up() {
    // Two ways up for 3, both of which have 2.
    let network = network(
        "1* 2 3 4",
        &[
            "1 1 child 1 2",
            "2 2 child 1 3",
            "1 2 child 1 4",
            "2 3 child 2 4",
            "4 3 child 2 3",
        ],
    );
    for (from, to) in [("3", "4"), ("4", "3"), ("3", "2"), ("1", "3"), ("2", "4")] {
        let paths = network.paths(number(from), number(to), VALIDITY).unwrap();
        for path in &paths {
            let mut ases: Vec<_> = path.interfaces.iter().map(|end| end.isd_as).collect();
            ases.dedup();
            let count = ases.len();
            ases.sort();
            ases.dedup();
            assert_eq!(ases.len(), count, "{}", show(path));
        }
        let interfaces: Vec<_> = paths.iter().map(|path| path.interfaces.len()).collect();
        assert!(interfaces.is_sorted() && !paths.is_empty());
    }
    // From 2 to 4 there is the link, and the way by the core; not the one by 3, which is below both.
    assert_eq!(
        ways(&network, "2", "4"),
        ["2#3>4#2: 2 down", "2#1>1#1 1#2>4#1: 2 up, 2 down"]
    );
}

#[test]
fn parallel_links_are_paths_of_their_own() {
    let network = network("1* 2", &["1 1 child 1 2", "1 2 child 2 2"]);
    assert_eq!(
        ways(&network, "1", "2"),
        ["1#1>2#1: 2 down", "1#2>2#2: 2 down"]
    );
}

#[test]
fn a_path_is_as_wide_as_its_narrowest_part_and_lives_as_long_as_its_hops() {
    let network = vectors();
    let path = &network.paths(number("1"), number("3"), VALIDITY).unwrap()[0];
    assert_eq!((path.mtu, path.expiry), (1401, u64::from(T) + 21600));
    let short = Validity {
        timestamp: T,
        expiry: 0,
    };
    assert_eq!(short.expires_at(), u64::from(T) + 337);
    let path = &network.paths(number("1"), number("3"), short).unwrap()[0];
    assert_eq!(path.expiry, u64::from(T) + 337);
}

#[test]
fn there_is_no_path_within_an_as_and_none_to_strangers() {
    let network = vectors();
    let stranger = IsdAs::new(7, 7);
    let paths = |from, to| network.paths(from, to, VALIDITY);
    assert_eq!(paths(number("3"), number("3")), Ok(Vec::new()));
    assert_eq!(
        paths(number("3"), stranger),
        Err(PathsError::UnknownAs(stranger))
    );
    assert_eq!(
        paths(stranger, number("3")),
        Err(PathsError::UnknownAs(stranger))
    );
}

#[test]
fn a_network_with_endless_ways_is_given_up() {
    // Every core AS is connected with every other one.
    let names: Vec<String> = (1..=16).map(|name| format!("{name:x}*")).collect();
    let mut links = Vec::new();
    for a in 1..=16 {
        for b in a + 1..=16 {
            links.push(format!("{a:x} {b} core {a} {b:x}"));
        }
    }
    let links: Vec<&str> = links.iter().map(String::as_str).collect();
    let network = network(&names.join(" "), &links);
    assert_eq!(
        network.paths(number("1"), number("2"), VALIDITY),
        Err(PathsError::TooMany)
    );
}

#[test]
fn what_does_not_fit_is_named() {
    let misfits = |ases, links: &[&str]| -> Vec<String> {
        let misfits = try_network(ases, links).unwrap_err();
        misfits
            .iter()
            .map(|misfit| format!("{:?}: {misfit}", misfit.element))
            .collect()
    };
    assert_eq!(
        misfits("1* 1", &[]),
        ["As(1): 1-ff00:0:1 is listed twice; remove one"]
    );
    assert_eq!(
        misfits("1* 2", &["1 1 child 1 2", "1 1 child 0 2", "1 2 child 2 3"]),
        [
            "Link(1): 1-ff00:0:1#1 is listed twice; renumber one",
            "Link(1): 1-ff00:0:2 has no interface 0; write 1 to 65535",
            "Link(2): 1-ff00:0:3 is not an AS of this network; add it",
        ]
    );
    assert_eq!(
        misfits(
            "1* 2 2-3",
            &[
                "1 1 core 1 2",
                "2 2 child 2 1",
                "1 3 child 3 2-3",
                "2 4 peer 5 2"
            ]
        ),
        [
            "Link(0): 1-ff00:0:2 is not a core AS; write type \"child\" or \"peer\"",
            "Link(1): 1-ff00:0:1 is a core AS and has no parent; write type \"core\"",
            "Link(2): parent 1-ff00:0:1 and child 2-ff00:0:3 are in different ISDs; write ASes of the same ISD",
            "Link(3): both ends are in 1-ff00:0:2; write two different ASes",
        ]
    );
}
