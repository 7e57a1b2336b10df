//! What operators see of a tunnel.

use testbed::Family;

use crate::bed::{Bed, Files, known, options, page, status, wait};

#[test]
fn status_metrics_and_pages_tell_of_the_tunnel() {
    let mut bed = Bed::running(&options(), Files::with_routing_policy);
    let (a, b) = (&bed.net.network.a, &bed.net.network.b);
    let measured = || {
        let known = known(a, b.isd_as()).expect("the AS of the policy");
        known.paths.len() == 2 && known.paths.iter().all(|path| path.latency_us.is_some())
    };
    wait("latencies of both paths", measured);
    bed.assert_pings(50);
    let (a, b) = (&bed.net.network.a, &bed.net.network.b);

    let state = status(a);
    let control = state.control.as_ref().expect("it finds its remotes");
    assert_eq!(state.isd_as, a.isd_as());
    assert!(control.daemon.reachable);
    let found = &control.ases[0];
    assert_eq!(found.isd_as, b.isd_as());
    assert_eq!(found.gateways.len(), 1);
    let gateway = &found.gateways[0];
    assert_eq!(gateway.addresses.data, b.data_addr());
    let prefixes = Family::ALL.map(|family| b.prefix(family).parse().expect("a prefix"));
    let mut accepted = gateway.accepted.clone();
    accepted.sort();
    assert_eq!(accepted, prefixes);
    assert!(
        found.paths.iter().all(|path| path.alive && !path.revoked),
        "{found:#?}"
    );
    let in_use = found.paths.iter().filter(|path| !path.used_by.is_empty());
    assert_eq!(in_use.count(), 1);
    assert!(
        control.sites.iter().all(|site| site.exported),
        "{:#?}",
        control.sites
    );
    assert_eq!(control.advertised[0].isd_as, b.isd_as());
    assert!(control.advertised[0].requests > 0);
    assert!(control.refused.is_empty(), "{:#?}", control.refused);
    assert_eq!(state.remotes.len(), 1);
    assert!(state.remotes[0].sent.packets >= 200, "{:#?}", state.remotes);

    let (code, metrics) = page(a, "/metrics");
    assert_eq!(code, 200);
    let samples: Vec<(&str, f64)> = metrics.lines().filter_map(sample).collect();
    let value = |name: &str| -> Vec<f64> {
        let of_name = |(series, _): &&(&str, f64)| {
            let rest = series.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('{'))
        };
        samples
            .iter()
            .filter(of_name)
            .map(|(_, value)| *value)
            .collect()
    };
    assert_eq!(value("gateway_session_is_healthy"), [1.0], "{metrics}");
    assert!(
        value("gateway_ippkts_sent_total").iter().sum::<f64>() >= 200.0,
        "{metrics}"
    );
    assert!(
        value("gateway_ippkts_received_total").iter().sum::<f64>() >= 200.0,
        "{metrics}"
    );

    let (code, text) = page(a, "/status");
    assert_eq!(code, 200);
    let remote = format!("ISD-AS {}", b.isd_as());
    for expected in [&remote, "HEALTHY true", "-->"] {
        assert!(text.contains(expected), "{expected:?} is not in:\n{text}");
    }
    for json in [
        "/sessionconfigurator",
        "/diagnostics/prefixwatcher",
        "/diagnostics/sgrp",
    ] {
        let (code, text) = page(a, json);
        assert_eq!(code, 200, "{json}");
        let parsed: Result<serde_json::Value, _> = serde_json::from_str(&text);
        assert!(parsed.is_ok(), "{json}: {text}");
    }
}

/// A line of the text format of Prometheus; none for comments. Anything else is an error.
fn sample(line: &str) -> Option<(&str, f64)> {
    if line.starts_with("# ") {
        return None;
    }
    let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line:?}"));
    let value = value.parse().unwrap_or_else(|_| panic!("{line:?}"));
    Some((series, value))
}
