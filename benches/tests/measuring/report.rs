//! Targets and reports from records that were made up.

use std::fs;

use crate::support::{figure, not_run, records};
use benches::throughput::{
    experiment::{Behavior, Case, Family, Size},
    record::{self, Metric, Record},
    report::{markdown, plot, view::View},
    subject::Subject,
    targets::{Target, targets},
};
use testbed::Folder;

fn row<'a>(targets: &'a [Target], name: &str) -> &'a Target {
    targets
        .iter()
        .find(|target| target.name == name)
        .expect(name)
}

fn near(value: Option<f64>, expected: f64) -> bool {
    value.is_some_and(|value| (value - expected).abs() < 1e-9 * expected.abs().max(1.0))
}

#[test]
fn ratios_are_of_medians_and_more_is_better() {
    let records = records();
    let targets = targets(&records);
    let of = |name: &str| row(&targets, name).ratio;
    assert!(near(of("encapsulate 100 B / AF_XDP forward"), 0.95));
    assert!(near(of("encapsulate 100 B packed / AF_XDP forward"), 3.0));
    assert!(near(
        of("two workers / one worker, a core each, in memory"),
        1.9
    ));
    assert!(near(of("chain PDR 100 B / reference default"), 40.0));
    // 0.6 one way, 0.15 the other.
    assert!(near(of("chain TCP / plain IP"), 0.3));
    // Less is better: inverted.
    assert!(near(
        of("CPU time per packet added to plain IP, reference default / sig"),
        35.0
    ));
    assert!(near(
        of("flood ping average RTT, reference default / sig"),
        8.0
    ));
    assert!(near(of("restart outage, reference default / sig"), 20.0));
    // 50 µs with plain IP, 90 with both gateways.
    assert!(near(
        of("idle RTT, plain IP / added by both gateways"),
        1.25
    ));
    assert!(near(of("pipeline encapsulate 100 B / 10 Mpps"), 1.4));
    let flood = row(&targets, "flood ping average RTT, reference default / sig");
    assert_eq!(flood.is_reached(), Some(false));
    assert!(
        flood.how.contains("chain-reference / chain-sig"),
        "{}",
        flood.how
    );
}

#[test]
fn sr_nodes_are_compared_by_behavior_and_family() {
    let case = |family, name: Option<&str>| Case {
        family,
        behavior: name.map(|name| Behavior::try_from(name.to_owned()).expect(name)),
        ..Case::of(64)
    };
    let mut records = Vec::new();
    let mut add = |subject, case: Case, value| {
        let is_rate = case.behavior.is_some_and(|of| of.name().starts_with("End"));
        let metric = match is_rate {
            true => Metric::Pdr,
            false => Metric::PerCpuSecond,
        };
        records.push(figure("sr", subject, case, metric, &[value]));
    };
    for (family, ours, kernel) in [(Family::Ipv4, 8e5, 2e5), (Family::Ipv6, 9e5, 1e5)] {
        let encaps = case(family, Some("H.Encaps"));
        add(Subject::Srv6, encaps.clone(), ours);
        add(Subject::Srv6Kernel, encaps, kernel);
    }
    let end = case(Family::Ipv6, Some("End"));
    add(Subject::Srv6, end, 1e6);
    let proxy = case(Family::Ipv6, Some("End.AD6"));
    add(Subject::Srv6, proxy, 6e5);
    let redirect = case(Family::Ipv6, None);
    add(Subject::XdpRedirect, redirect, 1.8e6);
    let targets = targets(&records);
    let of = |rest: &str| row(&targets, &format!("SR node {rest}")).ratio;
    assert!(near(of("H.Encaps, IPv4 64 B inside / kernel"), 4.0));
    assert!(near(of("H.Encaps, IPv6 64 B inside / kernel"), 9.0));
    assert!(near(of("H.Encaps, IPv6 64 B inside / XDP redirect"), 0.5));
    assert!(near(of("End.AD6, IPv6 64 B inside, PDR / End"), 0.6));
    // Without the redirect over IPv4, and what a second of CPU time carries of End.
    assert_eq!(targets.len(), 4);
}

#[test]
fn what_could_not_be_measured_has_no_ratio_but_a_reason() {
    let mut records = records();
    records.push(not_run(
        "chain",
        Subject::ChainReferenceTuned,
        "REF_BIN is not set",
    ));
    let targets = targets(&records);
    let tuned = row(&targets, "chain PDR 100 B / reference tuned");
    assert_eq!((tuned.ratio, tuned.is_reached()), (None, None));
    let reason = tuned.reason.as_deref().expect("a reason");
    assert_eq!(reason, "chain-reference-tuned: REF_BIN is not set");
    let json = serde_json::to_value(tuned).expect("JSON");
    assert!(json["ratio"].is_null(), "{json}");
    assert_eq!(json["target"], 15.0);
}

#[test]
fn nothing_is_compared_across_experiments_or_cases() {
    let mut records = vec![
        figure(
            "one",
            Subject::Encapsulate,
            Case::of(100),
            Metric::PerCpuSecond,
            &[1e6],
        ),
        figure(
            "two",
            Subject::AfXdpForward,
            Case::of(100),
            Metric::PerCpuSecond,
            &[1e6],
        ),
    ];
    let name = "encapsulate 100 B / AF_XDP forward";
    assert_eq!(row(&targets(&records), name).ratio, None);
    let other = Case {
        flows: 64,
        ..Case::of(100)
    };
    records.push(figure(
        "one",
        Subject::AfXdpForward,
        other,
        Metric::PerCpuSecond,
        &[1e6],
    ));
    assert_eq!(row(&targets(&records), name).ratio, None);
    records.push(figure(
        "one",
        Subject::AfXdpForward,
        Case::of(100),
        Metric::PerCpuSecond,
        &[2e6],
    ));
    assert!(near(row(&targets(&records), name).ratio, 0.5));
}

#[test]
fn gateways_that_add_nothing_measurable_have_a_finite_ratio() {
    let records = [
        figure(
            "rtt",
            Subject::ChainSig,
            Case::of(100),
            Metric::RttIdle,
            &[49.0],
        ),
        figure(
            "rtt",
            Subject::ChainIp,
            Case::of(100),
            Metric::RttIdle,
            &[50.0],
        ),
    ];
    let targets = targets(&records);
    let rtt = row(&targets, "idle RTT, plain IP / added by both gateways");
    assert!(near(rtt.ratio, 100.0), "{:?}", rtt.ratio);
}

#[test]
fn plots_are_complete_svg_files() {
    let view = View::of(&records());
    let mut count = 0;
    for chart in view
        .experiments
        .iter()
        .flat_map(|experiment| &experiment.charts)
    {
        let svg = plot::svg(chart).into_string();
        let document = roxmltree::Document::parse(&svg).expect("well-formed");
        assert_eq!(document.root_element().tag_name().name(), "svg");
        assert!(
            !svg.contains("NaN") && !svg.contains("inf"),
            "{}: {svg}",
            chart.name
        );
        let elements = |name: &str| {
            let all = document.descendants();
            all.filter(|node| node.has_tag_name(("http://www.w3.org/2000/svg", name)))
                .count()
        };
        let points: usize = chart.series.iter().map(|series| series.points.len()).sum();
        assert!(
            elements("circle") + elements("rect") > points,
            "one mark each: {}",
            chart.name
        );
        count += 1;
    }
    assert!(count >= 8);
}

#[test]
fn the_markdown_tables_have_as_many_cells_in_every_row() {
    let text = markdown::text(&View::of(&records()));
    let mut width = None;
    let mut rows = 0;
    for line in text.lines() {
        if !line.starts_with('|') {
            width = None;
            continue;
        }
        let cells = line.replace("\\|", "").matches('|').count();
        assert_eq!(*width.get_or_insert(cells), cells, "{line}");
        rows += 1;
    }
    assert!(rows > 20, "{text}");
    assert!(text.contains("encapsulate 100 B / AF_XDP forward") && text.contains("≥ 0.9  reached"));
    assert!(text.contains("A <fast> processor & more, 2 CPUs"));
    assert!(text.contains("REF_BIN is not set"));
    assert!(text.contains("5.00 Mpps ± 0.00 pps"));
}

#[test]
fn records_survive_a_file_and_an_interrupted_line() {
    let records = records();
    let mut text: String = records
        .iter()
        .map(|record| serde_json::to_string(record).expect("JSON") + "\n")
        .collect();
    text += "{\"record\":\"figure\",\"key\"";
    let folder = Folder::new("records").expect("a folder");
    let file = folder.path().join("results.jsonl");
    fs::write(&file, text).expect("written");
    assert!(record::read(&file).expect("readable") == records);
    fs::write(&file, "{\"record\":\n{}\n").expect("written");
    let error = record::read(&file).expect_err("broken");
    assert!(error.to_string().contains(":1: "), "{error}");
}

#[test]
fn mixes_have_a_place_in_tables_but_not_on_the_scale() {
    let imix = Case {
        size: Size::Mix(benches::throughput::experiment::Mix::Imix),
        ..Case::of(100)
    };
    let records: Vec<Record> = [Case::of(64), Case::of(512), Case::of(1500), imix]
        .into_iter()
        .map(|case| figure("x", Subject::XdpDrop, case, Metric::Mrr, &[1e6]))
        .collect();
    let view = View::of(&records);
    let chart = &view.experiments[0].charts[0];
    assert_eq!(chart.places().len(), 4);
    assert_eq!(plot::svg(chart).into_string().matches("<circle").count(), 3);
    assert!(markdown::text(&view).contains("IMIX"));
}
