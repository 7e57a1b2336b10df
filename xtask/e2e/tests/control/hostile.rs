//! Remotes that announce what they must not.

use testbed::{Family, Site};

use crate::bed::{self, Bed, Files, status, traffic, wait};

/// Prefixes that harm a site if it believes that they are elsewhere.
fn harmful_to(victim: &Site) -> Vec<String> {
    vec![
        "0.0.0.0/0".to_owned(),
        "::/0".to_owned(),
        format!("{}/32", victim.data_addr().ip()),
        format!("{}/32", victim.router_inside().ip()),
        victim.prefix(Family::V4),
        victim.prefix(Family::V6),
    ]
}

#[test]
fn a_remote_that_announces_too_much_is_believed_where_it_does_no_harm() {
    let mut bed = Bed::new(&bed::options());
    let (a, b) = (&bed.net.network.a, &bed.net.network.b);
    let bad = harmful_to(a);
    let advertise = |own: &Site, remote: &Site, more: &[String]| {
        let mut prefixes: Vec<_> = Family::ALL.map(|family| own.prefix(family)).into();
        prefixes.extend_from_slice(more);
        let prefixes = prefixes.join(",");
        format!(
            "advertise {} {} {prefixes}\n",
            own.isd_as(),
            remote.isd_as()
        )
    };
    // The policy of A forbids nothing.
    let accept = format!("accept {} {} 0.0.0.0/0,::/0\n", b.isd_as(), a.isd_as());
    let trusting = Files {
        traffic: traffic(b, &[], 1),
        routing: Some(accept + &advertise(a, b, &[])),
        ..Files::default()
    }
    .and("[control]\ndefault_route = \"refuse\"\n");
    bed.write(a, &trusting);
    let hostile = Files {
        routing: Some(advertise(b, a, &bad)),
        ..Files::with_nets(a)
    };
    bed.write(b, &hostile);
    bed.start();
    bed.assert_pings(20);

    let a = &bed.net.network.a;
    let control = status(a).control.expect("it finds its remotes");
    let gateway = &control.ases[0].gateways[0];
    let accepted = gateway.accepted.iter().map(ToString::to_string);
    let mut accepted: Vec<String> = accepted.collect();
    accepted.sort();
    let b = &bed.net.network.b;
    // Host routes to the data address and the router pass here: the networks of the host keep them out.
    let outside = [a.data_addr(), a.router_inside()].map(|address| format!("{}/32", address.ip()));
    let mut expected: Vec<String> = Family::ALL.map(|family| b.prefix(family)).into();
    expected.extend(outside);
    expected.sort();
    assert_eq!(accepted, expected);
    assert_eq!(
        gateway.prefixes_rejected,
        bad.len() as u64 - 2,
        "{gateway:#?}"
    );
    for reason in ["default_route", "overlaps_served"] {
        let of_reason = control
            .refused
            .iter()
            .find(|refused| refused.reason == reason);
        let refused = of_reason.unwrap_or_else(|| panic!("{reason}: {:#?}", control.refused));
        assert_eq!(refused.isd_as, b.isd_as());
        assert!(refused.count >= 2, "{refused:#?}");
    }
    for family in ["-4", "-6"] {
        let routes = a.gateway.exec(&format!("ip {family} route show dev sig"));
        let routes = routes.expect("`ip route`");
        let of_b = b.prefix(if family == "-4" {
            Family::V4
        } else {
            Family::V6
        });
        let others = routes
            .lines()
            .filter(|route| !route.starts_with(&of_b) && !route.starts_with("fe80:"));
        assert_eq!(others.collect::<Vec<_>>(), Vec::<&str>::new());
    }
    let fetched = || {
        let control = status(a).control.expect("it finds its remotes");
        control.ases[0].gateways[0].fetched_at
    };
    let first = fetched();
    wait("another exchange", || fetched() > first);
    bed.assert_pings(10);
}
