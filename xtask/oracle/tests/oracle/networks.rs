//! Random networks: their paths as they are read and reversed, and packets on them from router to router.

use std::{collections::BTreeMap, time::Duration};

use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use sig_common::{
    addr::{HostAddr, IsdAs},
    wire::scion::path::{META_LEN, Path, SCION, ScionPath},
};
use sig_core::scion::{
    HopKey,
    network::{As, End, Link, Network, NetworkPath, Validity},
    packet::{self, Addresses},
    reverse,
};
use sig_router::{
    AsModel, Bfd, Interface, Owner,
    forward::{AllUp, Ingress, Outcome, Reason, Router, Verdict},
    model::LinkType,
};

use super::{
    number,
    peer::{self, Refusal, Side, To, advance},
};

/// Networks that are tried.
const CASES: u64 = 40;
/// Paths that packets take in each.
const PATHS: usize = 30;
const T: u32 = 1_700_000_000;

/// Offset of paths behind two addresses of four bytes.
const PATH: usize = 12 + 24;

fn host(place: usize) -> HostAddr {
    HostAddr::V4([10, place as u8, 0, 100])
}

/// A network in one ISD: every AS outside the core has one or two parents, some have peers.
fn network(dice: &mut StdRng) -> Network {
    let cores = dice.random_range(1..=3);
    let count = cores + dice.random_range(2..=6);
    let ases: Vec<As> = (0..count)
        .map(|place| As {
            isd_as: IsdAs::new(1, 0xff00_0000_0100 + place as u64),
            core: place < cores,
            mtu: 1472,
            key: HopKey::new(dice.random()),
        })
        .collect();
    let mut wanted = Vec::new();
    for place in 1..count {
        if place < cores {
            wanted.push((dice.random_range(0..place), LinkType::Core, place));
            continue;
        }
        for _ in 0..dice.random_range(1..=2) {
            wanted.push((dice.random_range(0..place), LinkType::Child, place));
        }
        let other = dice.random_range(cores..count);
        if other != place && dice.random_ratio(1, 2) {
            wanted.push((place, LinkType::Peer, other));
        }
    }
    let mut numbers: BTreeMap<usize, u16> = BTreeMap::new();
    let mut end = |place: usize, step: u16| {
        let interface = numbers.entry(place).or_default();
        *interface += step;
        End {
            isd_as: ases[place].isd_as,
            interface: *interface,
        }
    };
    let links = wanted
        .into_iter()
        .map(|(a, link_type, b)| Link {
            ends: [a, b].map(|place| end(place, dice.random_range(1..4000))),
            link_type,
            mtu: 1472,
        })
        .collect();
    Network::new(ases, links).expect("a network")
}

/// The only router of an AS.
fn router(network: &Network, of: &As) -> Router {
    let mut interfaces = BTreeMap::new();
    for link in network.links() {
        let [a, b] = link.ends;
        let back = match link.link_type {
            LinkType::Child => LinkType::Parent,
            LinkType::Parent => LinkType::Child,
            other => other,
        };
        for (here, there, link_type) in [(a, b, link.link_type), (b, a, back)] {
            if here.isd_as != of.isd_as {
                continue;
            }
            let interface = Interface {
                owner: Owner::Here {
                    local: ([192, 168, 0, 1], 50000).into(),
                    remote: ([192, 168, 0, 2], 50000).into(),
                },
                neighbour: there.isd_as,
                neighbour_interface: Some(there.interface),
                link_type,
                mtu: 1472,
                bfd: Bfd::default(),
            };
            interfaces.insert(here.interface, interface);
        }
    }
    let model = AsModel {
        router: "br".to_owned(),
        isd_as: of.isd_as,
        core: of.core,
        mtu: 1472,
        internal: ([10, 0, 0, 1], 30001).into(),
        ports: Some(31000..=32767),
        interfaces,
        siblings: Vec::new(),
        control_services: Vec::new(),
        discovery_services: Vec::new(),
        services: Default::default(),
        sibling_bfd: Bfd::default(),
        key: of.key.clone(),
    };
    Router::new(model.into())
}

/// What all is compared: so many times.
#[derive(Debug, Default)]
struct Seen {
    paths: usize,
    shapes: BTreeMap<Vec<(bool, bool)>, usize>,
    hops: usize,
    peering_hops: usize,
    wrong_macs: usize,
    expired: usize,
}

#[test]
fn every_hop_of_every_path_is_the_same() {
    let (first, cases) = (number("SIG_SEED", 0), number("SIG_CASES", CASES));
    let mut seen = Seen::default();
    for seed in first..first + cases {
        println!("SIG_SEED={seed}");
        let mut dice = StdRng::seed_from_u64(seed);
        let network = network(&mut dice);
        let routers: BTreeMap<IsdAs, Router> = network
            .ases()
            .iter()
            .map(|of| (of.isd_as, router(&network, of)))
            .collect();
        for _ in 0..PATHS {
            let count = network.ases().len();
            let (from, to) = (dice.random_range(0..count), dice.random_range(0..count));
            let validity = Validity {
                timestamp: T + dice.random_range(0..1000),
                expiry: dice.random(),
            };
            let ends = [from, to].map(|place| network.ases()[place].isd_as);
            let paths = network.paths(ends[0], ends[1], validity).expect("paths");
            if paths.is_empty() {
                continue;
            }
            let path = &paths[dice.random_range(0..paths.len())];
            read(path, &mut seen);
            let walk = Walk {
                network: &network,
                routers: &routers,
                validity,
                ends: [(ends[0], host(from)), (ends[1], host(to))],
            };
            walk.there_and_back(path, &mut seen);
        }
    }
    println!("{seen:?}");
    if cases < CASES {
        return;
    }
    let shapes: Vec<_> = seen.shapes.keys().cloned().collect();
    let (up, down) = ((false, false), (true, false));
    for shape in [
        vec![up],
        vec![down],
        vec![up, down],
        vec![up, up],
        vec![up, up, down],
        vec![(false, true), (true, true)],
    ] {
        assert!(shapes.contains(&shape), "no path is {shape:?}");
    }
    assert!(
        seen.hops > 3000 && seen.wrong_macs > 3000 && seen.expired > 3000,
        "{seen:?}"
    );
}

/// A path says the same to both, and its way back is the same from every hop.
fn read(path: &NetworkPath, seen: &mut Seen) {
    let mut raw = path.raw.clone();
    let ours = ScionPath::new_checked(&path.raw).expect("a path");
    let theirs = peer::view(&mut raw);
    let meta = ours.meta();
    assert_eq!(
        (meta.current_info, meta.current_hop, meta.segments),
        (
            theirs.curr_info_field_idx(),
            theirs.curr_hop_field_idx(),
            [theirs.seg0_len(), theirs.seg1_len(), theirs.seg2_len()]
        )
    );
    assert_eq!(ours.infos().len(), theirs.info_fields().len());
    for (ours, theirs) in ours.infos().zip(theirs.info_fields()) {
        assert_eq!(
            (
                ours.construction_direction,
                ours.peering,
                ours.segment_id,
                ours.timestamp
            ),
            (
                theirs.flags().cons_dir(),
                theirs.flags().peering(),
                theirs.segment_id(),
                theirs.timestamp()
            )
        );
    }
    assert_eq!(ours.hops().len(), theirs.hop_fields().len());
    for (ours, theirs) in ours.hops().zip(theirs.hop_fields()) {
        assert_eq!(
            (ours.ingress_alert, ours.egress_alert, ours.expiry),
            (
                theirs.flags().cons_ingress_router_alert(),
                theirs.flags().cons_egress_router_alert(),
                theirs.exp_time()
            )
        );
        assert_eq!(
            (ours.ingress, ours.egress, ours.mac),
            (
                theirs.cons_ingress(),
                theirs.cons_egress(),
                *theirs.mac().as_bytes()
            )
        );
    }
    assert_eq!(path.expiry, u64::from(theirs.expiration()));
    let shape = ours
        .infos()
        .map(|info| (info.construction_direction, info.peering))
        .collect();
    *seen.shapes.entry(shape).or_default() += 1;
    seen.paths += 1;

    let mut hop = 0;
    for (info, len) in meta.segments.into_iter().enumerate() {
        for _ in 0..len {
            let mut raw = path.raw.clone();
            raw[0] = (info as u8) << 6 | hop;
            assert_eq!(back(&raw), peer::reversed(&raw));
            hop += 1;
        }
    }
}

/// The way back of a SCION path.
fn back(raw: &[u8]) -> Vec<u8> {
    let path = Path::new_checked(SCION, raw).expect("a path");
    let (path_type, back) = reverse::reply_path(&path).expect("a way back");
    assert_eq!(path_type, SCION);
    back
}

type Host = (IsdAs, HostAddr);

struct Walk<'a> {
    network: &'a Network,
    routers: &'a BTreeMap<IsdAs, Router>,
    validity: Validity,
    ends: [Host; 2],
}

impl Walk<'_> {
    fn there_and_back(&self, path: &NetworkPath, seen: &mut Seen) {
        let [from, to] = self.ends;
        let arrived = self.walk(path.raw.clone(), from, to, seen);
        assert_eq!(back(&arrived), peer::reversed(&arrived));
        let returned = self.walk(back(&arrived), to, from, seen);
        assert_eq!(back(&returned).len(), path.raw.len());
    }

    /// Carries a packet; both implementations move it on at each hop. Returns its path as it arrives.
    fn walk(&self, mut path: Vec<u8>, from: Host, to: Host, seen: &mut Seen) -> Vec<u8> {
        let mut place = from.0;
        let mut ingress = Ingress::Internal(([10, 0, 0, 9], 40000).into());
        loop {
            let at = At {
                walk: self,
                router: &self.routers[&place],
                ingress,
                from,
                to,
            };
            let (outcome, after) = at.check(&path, seen);
            path = after;
            match outcome.verdict {
                Verdict::Forward { interface } => {
                    let end = End {
                        isd_as: place,
                        interface,
                    };
                    let far = self.network.links().iter().find_map(|link| {
                        let [a, b] = link.ends;
                        (a == end).then_some(b).or((b == end).then_some(a))
                    });
                    let far = far.expect("a link");
                    (place, ingress) = (far.isd_as, Ingress::External(far.interface));
                }
                Verdict::Deliver(_) => {
                    assert_eq!(place, to.0);
                    return path;
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// A packet at a router.
struct At<'a> {
    walk: &'a Walk<'a>,
    router: &'a Router,
    ingress: Ingress,
    from: Host,
    to: Host,
}

impl At<'_> {
    /// What our router makes of a path, and how the path is then.
    fn ours(&self, path: &[u8], now: Duration) -> (Outcome, Vec<u8>) {
        let addresses = Addresses {
            source: (self.from.0, self.from.1, 32000),
            destination: (self.to.0, self.to.1, 32000),
        };
        let mut packet = packet::udp(&addresses, SCION, path, b"payload").expect("a packet");
        let outcome = self.router.process(&mut packet, self.ingress, now, &AllUp);
        (outcome, packet[PATH..PATH + path.len()].to_vec())
    }

    /// The same of theirs.
    fn theirs(&self, path: &[u8], now: Duration) -> (Result<peer::Moved, Refusal>, Vec<u8>) {
        let side = match self.ingress {
            Ingress::External(_) => Side::Link,
            Ingress::Internal(_) => Side::Inside,
        };
        let mut path = path.to_vec();
        let key = self.router.model().key.bytes();
        let moved = advance(peer::view(&mut path), key, now, side, |_| true);
        (moved, path)
    }

    fn check(&self, path: &[u8], seen: &mut Seen) -> (Outcome, Vec<u8>) {
        let validity = self.walk.validity;
        let until = Duration::from_secs(validity.expires_at());
        let (outcome, after) = self.ours(path, until);
        if peer::is_at_peering_link(peer::view(&mut path.to_vec())) {
            seen.peering_hops += 1;
            return (outcome, after);
        }
        seen.hops += 1;
        let (moved, their_after) = self.theirs(path, until);
        let moved = moved.unwrap_or_else(|refusal| panic!("{refusal}: {outcome:?} {path:?}"));
        let to = match outcome.verdict {
            Verdict::Forward { interface } => To::Interface(interface),
            Verdict::Deliver(_) => To::Here,
            ref other => panic!("{other:?}"),
        };
        assert_eq!((to, &after), (moved.to, &their_after));
        let ingress = match self.ingress {
            Ingress::External(interface) => Some(interface),
            Ingress::Internal(_) => None,
        };
        assert_eq!((ingress, None), (moved.ingress, moved.alert));

        let late = until + Duration::from_secs(1);
        assert_eq!(self.ours(path, late).0.reason, Some(Reason::Expired));
        let theirs = self.theirs(path, late).0;
        assert!(matches!(theirs, Err(Refusal::Expired(_))), "{theirs:?}");
        seen.expired += 1;

        // Any bit of what is signed; also of the hop behind it, if this router changes segments there.
        for (at, bit) in signed(path) {
            let mut wrong = path.to_vec();
            wrong[at] ^= bit;
            assert_eq!(
                self.ours(&wrong, until).0.reason,
                Some(Reason::InvalidMac),
                "byte {at}"
            );
            let theirs = self.theirs(&wrong, until).0;
            assert!(
                matches!(theirs, Err(Refusal::Mac(_))),
                "byte {at}: {theirs:?}"
            );
            seen.wrong_macs += 1;
        }
        (outcome, after)
    }
}

/// Bits that a router finds changed by the MAC alone: of the MAC itself, of the segment identifier, and of the interface
/// that is not looked at before.
fn signed(raw: &[u8]) -> Vec<(usize, u8)> {
    let path = ScionPath::new_checked(raw).expect("a path");
    let meta = path.meta();
    let info = META_LEN + 8 * usize::from(meta.current_info);
    let hop = META_LEN + 8 * meta.infos() + 12 * usize::from(meta.current_hop);
    let direction = path
        .infos()
        .nth(meta.current_info.into())
        .expect("an info field")
        .construction_direction;
    let other = if direction { 5 } else { 3 };
    let mut bits = vec![
        (info + 2, 0x80),
        (info + 3, 0x01),
        (hop + 6, 0x10),
        (hop + 11, 0x02),
        (hop + other, 0x04),
    ];
    let [first, second, _] = meta.segments;
    let next = meta.current_hop + 1;
    if usize::from(next) < meta.hops() && (next == first || next == first + second) {
        bits.extend([(info + 8 + 2, 0x40), (hop + 12 + 9, 0x08)]);
    }
    bits
}
