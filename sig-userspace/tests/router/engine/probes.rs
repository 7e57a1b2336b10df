//! What is to come of certain packets, of which other routers forward some that they should not.

use sig_router::forward::{Reason, Verdict};

use crate::router_support::asys::{A, FROM, LOCAL, Sent, down, ip, ours, theirs, up};

/// Down a segment of three ASes.
fn transit() -> Sent {
    let segment = vec![theirs(0, 9), ours(1, 2), theirs(9, 0)];
    Sent::by(1, vec![down(segment)], 1)
}

/// Over a segment crossing, with segments of three and two hops.
fn crossover() -> Sent {
    let first = up(vec![ours(1, 2), theirs(8, 7), theirs(6, 0)]);
    let second = down(vec![ours(1, 3), theirs(9, 0)]);
    Sent::by(2, vec![first, second], 2)
}

fn reason(sent: &Sent, packet: &mut [u8]) -> Option<Reason> {
    sent.run(packet).fast
}

#[test]
fn the_probes_have_the_results_that_are_required() {
    let sent = transit();
    assert_eq!(reason(&sent, &mut sent.udp()), None, "valid");

    let mut packet = sent.udp();
    packet[sent.hop_offset(1) + 6] ^= 1;
    assert_eq!(reason(&sent, &mut packet), Some(Reason::InvalidMac));

    let mut sent = transit();
    sent.segments[0].timestamp -= 86400;
    assert_eq!(reason(&sent, &mut sent.udp()), Some(Reason::Expired));

    let sent = crossover();
    assert_eq!(reason(&sent, &mut sent.udp()), None, "crossover");
    let mut packet = sent.udp();
    packet[sent.hop_offset(3) + 6] ^= 1;
    assert_eq!(reason(&sent, &mut packet), Some(Reason::InvalidMac));

    let host = ip("fd00::1");
    let sent = transit().source(A, host).to(A, host);
    assert_eq!(reason(&sent, &mut sent.udp()), None, "IPv6 hosts");

    let sent = transit().source(LOCAL, FROM);
    assert_eq!(reason(&sent, &mut sent.udp()), Some(Reason::SourceAddress));

    let mut sent = transit();
    sent.segments[0].hops[1].ingress_alert = true;
    let outcome = sent.run(&mut sent.udp());
    assert_eq!(outcome.fast, Some(Reason::IngressAlert));
    assert_eq!(outcome.verdict, Verdict::Drop(Reason::IngressAlert));
}
