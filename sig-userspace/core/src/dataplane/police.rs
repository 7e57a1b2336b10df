//! Which inner packets are carried: prefixes of the gateway's remotes and of its own. And where they
//! go, because that is asked about the same addresses.

use std::net::IpAddr;

use sig_common::{reason::DropReason, scope::may_cross, wire::inner::InnerPacket};

use super::{
    flow_cache::FlowCache,
    icmp,
    tables::{Tables, Target},
};

/// Where a packet is delivered, or why it is not.
type Verdict = Result<Delivery, DropReason>;

/// Where a packet is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    /// To the next hop at this place of [`Tables::lan`].
    Lan(u32),
    /// The same, for this packet alone: others between the same addresses may be refused.
    LanThisOne(u32),
    /// Where the kernel knows, be it the tunnel again.
    Kernel,
    /// Where the kernel knows, but not into the tunnel: there it would go back to where it came from.
    KernelButNotBack,
}

/// Decides whether packets from remotes are delivered, and where.
#[derive(Default)]
pub(super) struct Police {
    /// Number of the remote, and the verdict.
    decisions: FlowCache<(u16, Verdict)>,
}

impl Police {
    /// Where a packet from remote number `remote` of the tables is delivered, if it may be. `inner` is
    /// its summary.
    ///
    /// # Errors
    ///
    /// The reason why not.
    #[inline]
    pub(super) fn admit(
        &mut self,
        tables: &Tables,
        remote: u16,
        packet: &[u8],
        inner: &InnerPacket,
    ) -> Verdict {
        let (source, destination) = (inner.source, inner.destination);
        let (_, verdict) = self.decisions.get_or_decide(
            tables.generation,
            source,
            destination,
            |(of, _)| *of == remote,
            || (remote, decide(tables, remote, source, destination)),
        );
        match verdict {
            Err(DropReason::InnerSource) => decide_error(tables, remote, packet, inner),
            verdict => verdict,
        }
    }
}

/// Routers on the way report errors from addresses of their own, which nobody announces. Their word is needed
/// to find the path's MTU, and believed about packets that went from here to the remote. Hosts that are at home here
/// have other ways to speak.
#[cold]
fn decide_error(tables: &Tables, slot: u16, packet: &[u8], inner: &InnerPacket) -> Verdict {
    let is_ours = icmp::quoted(packet, inner).is_some_and(|(source, destination)| {
        let accepted = tables.remotes.get(usize::from(slot));
        source == inner.destination
            && accepted.is_some_and(|remote| remote.accepted.get(destination).is_some())
    });
    if !is_ours || is_home(tables, inner.source) {
        return Err(DropReason::InnerSource);
    }
    deliver(tables, slot, inner.destination).map(|delivery| match delivery {
        Delivery::Lan(place) => Delivery::LanThisOne(place),
        delivery => delivery,
    })
}

/// Whether packets of remote number `slot` between these addresses are delivered, and where.
pub(super) fn decide(tables: &Tables, slot: u16, source: IpAddr, destination: IpAddr) -> Verdict {
    if !may_cross(source) || !may_cross(destination) {
        return Err(DropReason::AddressScope);
    }
    let remote = tables
        .remotes
        .get(usize::from(slot))
        .ok_or(DropReason::UnknownRemote)?;
    // A remote may send from a wide prefix, but not in the name of narrower ones that are at home here.
    if is_home(tables, source) || remote.accepted.get(source).is_none() {
        return Err(DropReason::InnerSource);
    }
    deliver(tables, slot, destination)
}

fn is_home(tables: &Tables, source: IpAddr) -> bool {
    matches!(tables.routing.way(source), Some(Target::Home))
}

/// Where packets of remote number `slot` to a destination are delivered, if it is one of ours.
fn deliver(tables: &Tables, slot: u16, destination: IpAddr) -> Verdict {
    if tables.filter.is_sid(destination) {
        return Err(DropReason::AddressScope);
    }
    let served = match &tables.served {
        Some(served) => served.get(destination).is_some(),
        None => matches!(tables.routing.way(destination), None | Some(Target::Home)),
    };
    if !served {
        return Err(DropReason::InnerDestination);
    }
    Ok(match tables.lan.find(destination) {
        Some(place) => Delivery::Lan(place),
        None if tables.leads_to(slot, destination) => Delivery::KernelButNotBack,
        None => Delivery::Kernel,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use etherparse::PacketBuilder;
    use sig_common::wire::underlay::Local;

    use super::*;
    use crate::dataplane::Routing;

    /// We serve 10.1.0.0/16 and fd00:1::/32; remote 0 may send from 10.0.0.0/8 and fd00::/8.
    fn tables() -> Tables {
        let isd_as = |text: &str| text.parse().expect("an ISD-AS");
        let lpm = |nets: [&str; 2]| {
            let nets = nets.map(|net| (net.parse().expect("a prefix"), ()));
            Arc::new(nets.into_iter().collect())
        };
        let address: IpAddr = [192, 0, 2, 1].into();
        let mut tables = Tables::empty(Local::new(isd_as("1-1"), address, 30056, false));
        let served = ["10.1.0.0/16", "fd00:1::/32"];
        let mut routing = Routing::default();
        let remote = ["10.0.0.0/8", "fd00::/8"];
        routing.add_site(
            &remote.map(|net| net.parse().expect("a prefix")),
            Vec::new(),
        );
        for net in served {
            routing.add_home(net.parse().expect("a prefix"));
        }
        tables.routing = Arc::new(routing);
        tables.served = Some(lpm(served));
        let source = (isd_as("1-2"), address.into());
        tables.add_remote(0, source, lpm(remote), Arc::new([Default::default()]));
        tables
    }

    fn verdict(packet: &[u8]) -> Verdict {
        let inner = InnerPacket::parse(packet).expect("a packet");
        // The second time the cache answers.
        let (mut police, tables) = (Police::default(), tables());
        let first = police.admit(&tables, 0, packet, &inner);
        assert_eq!(police.admit(&tables, 0, packet, &inner), first);
        first
    }

    /// An IP packet with any payload.
    fn ip(source: &str, destination: &str, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = Vec::new();
        let addresses = (source.parse(), destination.parse());
        match (addresses.0.expect("an address"), addresses.1.expect("one")) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => PacketBuilder::ipv4(
                source.octets(),
                destination.octets(),
                64,
            )
            .write(&mut packet, protocol.into(), payload),
            (IpAddr::V6(source), IpAddr::V6(destination)) => PacketBuilder::ipv6(
                source.octets(),
                destination.octets(),
                64,
            )
            .write(&mut packet, protocol.into(), payload),
            _ => panic!("addresses of one version"),
        }
        .expect("a packet");
        packet
    }

    /// An ICMP message of this type with a quote.
    fn message(kind: u8, quote: &[u8]) -> Vec<u8> {
        [&[kind, 0, 0, 0, 0, 0, 0, 0], quote].concat()
    }

    /// What a router at 172.16.0.1 or fc00::1 says about a packet.
    fn error(kind: u8, to: &str, quote: &[u8]) -> Vec<u8> {
        match to.contains('.') {
            true => ip("172.16.0.1", to, 1, &message(kind, quote)),
            false => ip("fc00::1", to, 58, &message(kind, quote)),
        }
    }

    const REFUSED: Verdict = Err(DropReason::InnerSource);

    #[test]
    fn a_wide_prefix_gives_no_right_to_send_in_our_name() {
        let udp = |source| verdict(&ip(source, "10.1.0.9", 17, &[0; 8]));
        assert_eq!(udp("10.2.0.1"), Ok(Delivery::Kernel));
        assert_eq!(udp("10.1.0.1"), REFUSED);
        assert_eq!(udp("172.16.0.1"), REFUSED);
    }

    #[test]
    fn errors_of_routers_on_the_way_reach_those_whose_packets_they_quote() {
        for (ours, theirs, kinds) in [
            ("10.1.0.9", "10.2.0.9", &[3, 11, 12][..]),
            ("fd00:1::9", "fd00:2::9", &[1, 2, 3, 4]),
        ] {
            let sent = ip(ours, theirs, 17, &[0; 100]);
            for kind in 0..=255 {
                let expected = if kinds.contains(&kind) {
                    Ok(Delivery::Kernel)
                } else {
                    REFUSED
                };
                assert_eq!(verdict(&error(kind, ours, &sent)), expected, "type {kind}");
            }
            // However much of the packet the router quotes, but not less than its header.
            let header = if ours.contains('.') { 20 } else { 40 };
            for len in 0..=sent.len() {
                let expected = if len >= header {
                    Ok(Delivery::Kernel)
                } else {
                    REFUSED
                };
                let found = verdict(&error(kinds[0], ours, &sent[..len]));
                assert_eq!(found, expected, "{len} bytes quoted");
            }
        }
    }

    #[test]
    fn errors_in_the_name_of_our_own_hosts_are_refused() {
        let quote = ip("10.1.0.9", "10.2.0.9", 17, &[0; 8]);
        let from = |source| verdict(&ip(source, "10.1.0.9", 1, &message(3, &quote)));
        assert_eq!(from("172.16.0.1"), Ok(Delivery::Kernel));
        assert_eq!(from("10.1.0.1"), REFUSED);
    }

    #[test]
    fn errors_about_packets_that_are_not_ours_are_refused() {
        for (ours, other, theirs, outside, kind) in [
            ("10.1.0.9", "10.1.0.8", "10.2.0.9", "192.0.2.9", 3),
            ("fd00:1::9", "fd00:1::8", "fd00:2::9", "2001:db8::9", 1),
        ] {
            let sent = |from: &str, to: &str| ip(from, to, 17, &[0; 8]);
            assert_eq!(
                verdict(&error(kind, ours, &sent(ours, theirs))),
                Ok(Delivery::Kernel)
            );
            for (to, quote) in [
                // To another host than the packet's sender, about packets to and of others, to others.
                (ours, sent(other, theirs)),
                (ours, sent(ours, outside)),
                (ours, sent(theirs, ours)),
                (outside, sent(outside, theirs)),
                // About nothing, garbage, and an error.
                (ours, Vec::new()),
                (ours, vec![0xff; 60]),
                (ours, vec![0x40; 60]),
                (ours, vec![0x60; 60]),
                (ours, error(kind, theirs, &sent(theirs, ours))),
                (
                    ours,
                    ip(
                        ours,
                        theirs,
                        if kind == 3 { 1 } else { 58 },
                        &message(kind, &[]),
                    ),
                ),
                (ours, ip(ours, theirs, if kind == 3 { 1 } else { 58 }, &[])),
            ] {
                let found = verdict(&error(kind, to, &quote));
                assert!(found.is_err(), "to {to} about {quote:02x?}");
            }
            // A fragment of an error cannot be looked into, and another protocol is no error.
            let whole = error(kind, ours, &sent(ours, theirs));
            let mut tcp = whole.clone();
            tcp[if kind == 3 { 9 } else { 6 }] = 6;
            assert_eq!(verdict(&tcp), REFUSED);
            if kind == 3 {
                let mut fragment = whole;
                fragment[6] |= 0x20;
                assert_eq!(verdict(&fragment), REFUSED);
            }
        }
        let mut later = ip("10.1.0.9", "10.2.0.9", 17, &[0; 8]);
        later[7] = 1;
        assert_eq!(verdict(&error(3, "10.1.0.9", &later)), REFUSED);
    }

    #[test]
    fn extension_headers_hide_no_error_about_an_error() {
        let (ours, theirs) = ("fd00:1::9", "fd00:2::9");
        let quote = |options: usize, last: u8, upper: &[u8]| {
            let mut payload = Vec::new();
            for left in (0..options).rev() {
                payload.extend([if left == 0 { last } else { 60 }, 0, 0, 0, 0, 0, 0, 0]);
            }
            payload.extend(upper);
            ip(ours, theirs, if options == 0 { last } else { 60 }, &payload)
        };
        let about = |quote: Vec<u8>| verdict(&error(2, ours, &quote));
        assert_eq!(about(quote(1, 17, &[0; 8])), Ok(Delivery::Kernel));
        assert_eq!(
            about(quote(2, 58, &message(128, &[]))),
            Ok(Delivery::Kernel),
            "an echo request"
        );
        assert_eq!(about(quote(2, 58, &message(1, &[]))), REFUSED);
        assert_eq!(
            about(quote(1, 44, &[17, 0, 0, 1, 0, 0, 0, 1, 0, 0])),
            Ok(Delivery::Kernel)
        );
        assert_eq!(about(quote(40, 17, &[0; 8])), REFUSED, "too many to follow");
        let whole = quote(1, 58, &message(1, &[]));
        for len in 40..whole.len() {
            assert_eq!(about(whole[..len].to_vec()), REFUSED, "{len} bytes quoted");
        }
    }
}
