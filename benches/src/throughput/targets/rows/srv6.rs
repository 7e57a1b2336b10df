//! Rows of the SR node.

use sig_common::srv6::Behavior as Sid;

use super::{Cell, Ratio, Side, cell, side};
use crate::throughput::{
    experiment::{Behavior, Family},
    record::Metric,
    subject::Subject,
};

/// Inside: as in the figures of SRPerf.
const SIZE: u16 = 64;

/// What the kernel can be compared in, and what needs no function.
const BEHAVIORS: [(Family, &[Behavior]); 2] = {
    use Behavior::{Encaps, EncapsFrames, Insert, Sid as Of};
    [
        (Family::Ipv4, &[Encaps, Of(Sid::EndDx4), Of(Sid::EndDt4)]),
        (
            Family::Ipv6,
            &[
                Encaps,
                EncapsFrames,
                Insert,
                Of(Sid::End),
                Of(Sid::EndX),
                Of(Sid::EndT),
                Of(Sid::EndDx2),
                Of(Sid::EndDx6),
                Of(Sid::EndDt6),
            ],
        ),
    ]
};

/// Of every behavior what a second of its CPU time carries, over that of the kernel and of a plain redirect.
/// Not rates: the tester's core is at its limit before most of these are, which would spare some and hold down others. Proxies by the
/// rate, over that of `End`: with more than they carry, time goes into packets that are lost on the way to the function.
pub(super) fn rows(row: &mut impl FnMut(&str, f64, Ratio)) {
    let redirect = side(Subject::XdpRedirect);
    let of = |subject, behavior| Side {
        behavior: Some(behavior),
        ..side(subject)
    };
    let (ours, kernel) = (
        |behavior| of(Subject::Srv6, behavior),
        |behavior| of(Subject::Srv6Kernel, behavior),
    );
    for (family, behaviors) in BEHAVIORS {
        let cell = Cell {
            family,
            ..cell(SIZE)
        };
        let inside = match family {
            Family::Ipv4 => "IPv4",
            Family::Ipv6 => "IPv6",
        };
        for &behavior in behaviors {
            let name = format!("SR node {behavior}, {inside} {SIZE} B inside");
            let ratio = Ratio::Of(
                &[Metric::PerCpuSecond],
                cell,
                ours(behavior),
                kernel(behavior),
            );
            row(&format!("{name} / kernel"), 3.0, ratio);
            let ratio = Ratio::Of(&[Metric::PerCpuSecond], cell, ours(behavior), redirect);
            row(&format!("{name} / XDP redirect"), 0.5, ratio);
        }
    }
    let cell = Cell {
        family: Family::Ipv6,
        ..cell(SIZE)
    };
    let ruled = |subject| of(subject, Behavior::Sid(Sid::End));
    for (name, target, one, other) in [
        (
            "1 basic rule / none",
            0.95,
            Subject::Srv6Basic1,
            Subject::Srv6,
        ),
        (
            "100 basic rules / 1",
            0.8,
            Subject::Srv6Basic100,
            Subject::Srv6Basic1,
        ),
        (
            "100 advanced rules / 1",
            0.8,
            Subject::Srv6Advanced100,
            Subject::Srv6Advanced1,
        ),
    ] {
        let ratio = Ratio::Of(&[Metric::Mrr], cell, ruled(one), ruled(other));
        row(
            &format!("SR node End, IPv6 {SIZE} B inside, {name}"),
            target,
            ratio,
        );
    }
    let end = ours(Behavior::Sid(Sid::End));
    for proxy in [
        Behavior::Sid(Sid::EndAd6),
        Behavior::ProxyOfFlows,
        Behavior::Sid(Sid::EndAm),
    ] {
        let ratio = Ratio::Of(&[Metric::Pdr], cell, ours(proxy), end);
        let name = format!("SR node {proxy}, IPv6 {SIZE} B inside, PDR / End");
        row(&name, 0.8, ratio);
    }
}
