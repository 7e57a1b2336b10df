//! A node with a SID of every behavior but proxies.

use sig_common::srv6::{
    Behavior, Flavors, Sid,
    maps::{Port, Reason},
};

use super::bed::{Bed, OUT, Outcome, TABLE};
use super::packets::*;

/// Behind the second router; by the other table, behind the fourth.
pub(crate) const FAR: &str = "2001:db8:b::9";
pub(crate) const END: &str = "2001:db8:a::e";
pub(crate) const PSP: &str = "2001:db8:a::e1";
pub(crate) const USP: &str = "2001:db8:a::e2";
pub(crate) const USD: &str = "2001:db8:a::e4";
pub(crate) const X: &str = "2001:db8:a::a0";
pub(crate) const T: &str = "2001:db8:a::70";
pub(crate) const DX2: &str = "2001:db8:a::d2";
pub(crate) const DX4: &str = "2001:db8:a::d4";
pub(crate) const DX6: &str = "2001:db8:a::d6";
pub(crate) const DT4: &str = "2001:db8:a::f4";
pub(crate) const DT6: &str = "2001:db8:a::f6";
pub(crate) const DT46: &str = "2001:db8:a::46";
/// `End.DT46` by the main table.
pub(crate) const MAIN: &str = "2001:db8:a::47";
/// Slot of counters of [`END`].
pub(crate) const SLOT: u32 = 9;

pub(crate) fn node(bed: &mut Bed) {
    bed.port(Port::TRUSTED, 0);
    let (adjacency, out) = (bed.adjacency(), bed.out);
    bed.set(|sr| {
        sr.adjacencies.insert(1, adjacency);
        sr.locators.insert("2001:db8:a::/48".parse().unwrap(), 0);
        for (address, behavior, flavors, target) in [
            (END, Behavior::End, Flavors(0), 0),
            (PSP, Behavior::End, Flavors::PSP, 0),
            (USP, Behavior::End, Flavors::USP, 0),
            (USD, Behavior::End, Flavors::USD, 0),
            (X, Behavior::EndX, Flavors::USD, 1),
            (T, Behavior::EndT, Flavors(0), TABLE),
            (DX2, Behavior::EndDx2, Flavors(0), out),
            (DX4, Behavior::EndDx4, Flavors(0), 1),
            (DX6, Behavior::EndDx6, Flavors(0), 1),
            (DT4, Behavior::EndDt4, Flavors(0), TABLE),
            (DT6, Behavior::EndDt6, Flavors(0), TABLE),
            (DT46, Behavior::EndDt46, Flavors(0), TABLE),
            (MAIN, Behavior::EndDt46, Flavors(0), 0),
        ] {
            sr.sids.insert(
                address.parse().unwrap(),
                Sid::new(behavior, flavors, target, SLOT),
            );
        }
    });
}

/// A packet with an SRH, at the segment that so many are left after.
pub(crate) fn routed(hops: u8, next: u8, left: u8, list: &[&str], inside: &[u8]) -> Vec<u8> {
    ipv6(
        hops,
        ROUTING,
        list[usize::from(left)],
        &[&srh(next, left, list), inside].concat(),
    )
}

pub(crate) fn to(router: [u8; 6], packet: &[u8]) -> Outcome {
    Outcome::sent(ether(router, OUT, packet))
}

pub(crate) fn told(reason: Reason, value: u32, packet: &[u8]) -> Outcome {
    Outcome::told(reason, value, packet)
}
