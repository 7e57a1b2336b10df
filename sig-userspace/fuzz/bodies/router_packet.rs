//! Any bytes as a SCION packet for a border router: the engine writes to what it forwards only, its answers are packets,
//! and as root the XDP program does what the engine does.
//!
//! The first three bytes choose the AS, where the packet comes in, and how: whether its hop fields are signed first, and
//! how it is wrapped.

use sig_core::scion::packet;
use sig_router::forward::{Ingress, Router, Verdict};

use support::{
    asys::NOW,
    random::{Arrival, Dice, Place, place, sign, underlay_host},
};

#[path = "../../tests/router_support/mod.rs"]
pub(crate) mod support;

/// ASes that packets are for, one with each address family inside.
const PLACES: [u64; 2] = [1, 2];

/// Takes `data` for a packet.
///
/// # Panics
/// If a promise is broken.
pub(crate) fn run(data: &[u8]) {
    let Some(([which, ingress, how], packet)) = data.split_first_chunk() else {
        return;
    };
    if packet.len() > 2000 {
        return;
    }
    thread_local! {
        static BEDS: [Bed; PLACES.len()] = PLACES.map(Bed::new);
    }
    BEDS.with(|beds| {
        let bed = &beds[usize::from(*which) % beds.len()];
        let mut arrival = Arrival {
            packet: packet.to_vec(),
            ingress: bed.ingress(*ingress),
        };
        if how & 1 != 0 {
            sign(&mut arrival, &bed.place.model.key);
        }
        bed.check(&arrival, *how);
    });
}

struct Bed {
    place: &'static Place,
    router: Router,
    #[cfg(feature = "xdp")]
    pair: Option<support::compare::Pair<'static>>,
}

impl Bed {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let place: &'static Place = Box::leak(Box::new(place(&mut dice)));
        Self {
            place,
            router: Router::new(place.model.clone().into()),
            #[cfg(feature = "xdp")]
            pair: pair(place, &mut dice),
        }
    }

    fn ingress(&self, choice: u8) -> Ingress {
        let model = &self.place.model;
        let mut all = vec![Ingress::Internal(underlay_host(model))];
        all.extend(model.siblings.iter().map(|s| Ingress::Internal(s.internal)));
        all.extend(model.links().map(|(number, ..)| Ingress::External(number)));
        all[usize::from(choice) % all.len()]
    }

    fn check(&self, arrival: &Arrival, how: u8) {
        let mut after = arrival.packet.clone();
        let outcome = self
            .router
            .process(&mut after, arrival.ingress, NOW, self.place);
        match &outcome.verdict {
            Verdict::Forward { .. } | Verdict::Sibling(_) | Verdict::Deliver(_) => {
                assert_eq!(after.len(), arrival.packet.len());
            }
            verdict => {
                assert_eq!(after, arrival.packet, "it was written to");
                assert!(outcome.reason.is_some() && outcome.fast.is_some());
                if let Verdict::Answer(answer) = verdict {
                    packet::parse(answer).expect("an answer is a packet");
                }
            }
        }
        #[cfg(feature = "xdp")]
        if let Some(pair) = &self.pair {
            let wrapping = support::compare::Wrapping {
                tags: vec![5; usize::from(how >> 1 & 1)],
                options: 4 * usize::from(how >> 2 & 1),
                padding: usize::from(how >> 3 & 1),
                no_checksum: how & 0x10 != 0,
                wrong_peer: false,
            };
            if let Err(difference) = pair.check(&arrival.packet, arrival.ingress, &wrapping) {
                panic!("{difference}");
            }
        }
        #[cfg(not(feature = "xdp"))]
        let _ = how;
    }
}

/// The program of a place, if we may load it.
#[cfg(feature = "xdp")]
fn pair(place: &'static Place, dice: &mut Dice) -> Option<support::compare::Pair<'static>> {
    use support::compare::{Hosts, Pair, load};

    // SAFETY: no arguments, cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return None;
    }
    let programs = Box::leak(Box::new(load(Hosts::Unknown)));
    Some(Pair::new(programs, place, Hosts::Unknown, dice))
}
