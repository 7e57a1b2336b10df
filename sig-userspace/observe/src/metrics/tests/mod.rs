//! Beside the text as it should be, what any reader of the format insists on.

mod parser;

use std::collections::BTreeSet;

use super::*;
use crate::example;
use parser::parse;

fn process() -> Process {
    Process {
        pid: 7,
        cpu_seconds: Some(0.25),
        start_time: Some(1_795_283_058.94),
        resident: Some(38_432_768),
        virtual_memory: Some(1_458_008_064),
        open_files: Some(19),
        max_files: None,
        ..Process::default()
    }
}

#[test]
fn the_text_is_the_expected_one() {
    assert_eq!(
        render(&example::found(), &process()),
        include_str!("found.prom")
    );
}

#[test]
fn a_strict_reader_accepts_it() {
    for status in [example::idle(), example::busy(), example::found()] {
        parse(&render(&status, &process()));
        parse(&render(&status, &Process::read()));
    }
}

#[test]
fn names_from_peers_and_files_cannot_break_out_of_a_label() {
    let mut status = example::found();
    let evil = "a\"} 1\nevil_total{b=\"\\";
    status.isd_as = evil.to_owned();
    status.version = evil.to_owned();
    status.ports[0].interface = evil.to_owned();
    if let Some(control) = &mut status.control {
        control.refused[0].reason = evil.to_owned();
        control.ases[0].paths[0].fingerprint = format!("é{evil}{evil}");
    }
    let page = parse(&render(&status, &process()));
    assert!(!page.contains_key("evil_total"));
    let labels = page["scion_build_info"].series.keys().next().unwrap();
    assert_eq!(labels["version"], evil);
}

#[test]
fn a_session_that_is_gone_leaves_no_series() {
    let mut status = example::found();
    let sessions = |status: &Status| {
        let page = parse(&render(status, &process()));
        page["gateway_session_probes"].series.len()
    };
    assert_eq!(sessions(&status), 2);
    status.remotes.pop();
    assert_eq!(sessions(&status), 1);
}

#[test]
fn sessions_of_one_policy_are_summed_and_their_paths_are_not() {
    let mut status = example::found();
    let mut second = status.remotes[0].clone();
    second.session = 7;
    second.probing.as_mut().unwrap().paths_alive = 3;
    status.remotes.push(second);
    let page = parse(&render(&status, &process()));
    let value = |metric: &str, label: &str, text: &str| {
        let series = &page[metric].series;
        let mut found = series.iter().filter(|(labels, _)| {
            labels["policy_id"] == "0" && labels.get(label).is_some_and(|value| value == text)
        });
        let (_, value) = found.next().unwrap();
        assert!(found.next().is_none());
        *value
    };
    let sent = value("gateway_ippkts_sent_total", "remote_isd_as", "1-ff00:0:111");
    assert_eq!(sent, 40.0);
    assert_eq!(
        value("gateway_session_paths_available", "status", "alive"),
        3.0
    );
    assert_eq!(value("gateway_session_is_healthy", "session_id", "7"), 1.0);
}

#[test]
fn what_a_gateway_sent_is_counted_once_whatever_the_number_of_its_sessions() {
    let mut status = example::found();
    let received = |status: &Status| {
        let page = parse(&render(status, &process()));
        [
            "gateway_ippkts_received_total",
            "gateway_ippkt_bytes_received_total",
            "gateway_frames_received_total",
            "gateway_frame_bytes_received_total",
        ]
        .map(|metric| page[metric].series.clone())
    };
    let before = received(&status);
    let mut second = status.remotes[0].clone();
    (second.session, second.policy_id) = (7, 1);
    status.remotes.push(second);
    assert_eq!(received(&status), before);
    status.remotes[2].gateway.set_ip([10, 11, 0, 99].into());
    assert_ne!(received(&status), before, "another gateway");
}

#[test]
fn every_metric_is_in_the_documentation_and_has_a_series_of_its_own() {
    let documentation = include_str!("../../../../../docs/observability.md");
    let mut full = process();
    full.max_files = Some(1024);
    let page = parse(&render(&example::found(), &full));
    for metric in all() {
        let row = format!("| `{}` | {} |", metric.name, metric.kind.as_str());
        assert!(documentation.contains(&row), "no row {row}");
        assert!(
            page.contains_key(metric.name),
            "{} has no series",
            metric.name
        );
    }
    let names: BTreeSet<&str> = all().map(|metric| metric.name).collect();
    assert_eq!(page.len(), names.len());
}
