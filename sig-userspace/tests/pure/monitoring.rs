//! Dashboards and alert rules ask for metrics and labels that there are.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use serde_json::Value;

const DASHBOARDS: [&str; 2] = ["grafana/gateway.json", "grafana/router.json"];
const RULES: &str = "prometheus/alerts.yml";

/// What Prometheus adds.
const TARGET: [&str; 2] = ["instance", "job"];

fn source(path: &str) -> String {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(path);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Every metric with its labels, of the documentation: that it has all of them is tested where they are made.
fn metrics() -> BTreeMap<String, BTreeSet<String>> {
    let mut metrics = BTreeMap::new();
    let mut labels = BTreeSet::new();
    for line in source("docs/observability.md").lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, name, "counter" | "gauge", named, ..] = cells[..] else {
            continue;
        };
        let name = name.trim_matches('`').to_owned();
        if named != "same" {
            labels = named
                .split('`')
                .skip(1)
                .step_by(2)
                .map(str::to_owned)
                .collect();
        }
        let mut labels = labels.clone();
        if ["gateway_", "router_"]
            .iter()
            .any(|of| name.starts_with(of))
            && !named.contains('–')
        {
            labels.insert("isd_as".to_owned());
        }
        labels.extend(TARGET.map(str::to_owned));
        metrics.insert(name, labels);
    }
    assert!(metrics.len() > 100, "{}", metrics.len());
    metrics
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Names of metrics in a text, with what is in braces behind them.
fn asked(text: &str) -> Vec<(&str, Option<&str>)> {
    let mut asked = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(is_word) {
        let word = &rest[start..];
        let end = word.find(|c| !is_word(c)).unwrap_or(word.len());
        let (name, behind) = word.split_at(end);
        rest = behind;
        let is_metric = ["gateway_", "router_", "process_", "lib_snet_", "scion_"]
            .iter()
            .any(|of| name.starts_with(of));
        if is_metric {
            let braces = behind
                .strip_prefix('{')
                .and_then(|behind| behind.split_once('}'));
            asked.push((name, braces.map(|(inside, _)| inside)));
        }
    }
    asked
}

/// Labels in the braces behind a metric.
fn labels(braces: &str) -> impl Iterator<Item = &str> {
    braces
        .split(',')
        .map(|matcher| matcher.trim().split(['=', '!']).next().unwrap_or_default())
}

/// Checks an expression; tells whether it asks for anything.
fn check(expression: &str, metrics: &BTreeMap<String, BTreeSet<String>>) -> bool {
    let asked = asked(expression);
    let mut reachable = BTreeSet::new();
    for (name, braces) in &asked {
        let known = metrics.get(*name);
        let known = known.unwrap_or_else(|| panic!("no metric {name}: {expression}"));
        for label in braces.iter().flat_map(|braces| labels(braces)) {
            assert!(
                known.contains(label),
                "{name} has no label {label}: {expression}"
            );
        }
        reachable.extend(known);
    }
    for words in ["by (", "on (", "without ("] {
        for behind in expression.split(words).skip(1) {
            let inside = behind.split(')').next().unwrap_or_default();
            for label in inside.split(',').map(|label| label.trim().to_owned()) {
                assert!(reachable.contains(&label), "no label {label}: {expression}");
            }
        }
    }
    !asked.is_empty()
}

#[test]
fn dashboards_ask_for_what_there_is() {
    let metrics = metrics();
    for file in DASHBOARDS {
        let text = source(&format!("deploy/{file}"));
        let dashboard: Value = serde_json::from_str(&text).unwrap();
        let mut ids = BTreeSet::new();
        let mut panels = 0;
        for panel in dashboard["panels"].as_array().unwrap() {
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{file}: {panel}");
            for target in panel["targets"].as_array().into_iter().flatten() {
                let expression = target["expr"].as_str().unwrap();
                assert!(check(expression, &metrics), "{file}: {expression}");
                panels += 1;
            }
        }
        assert!(panels > 15, "{file}");
        for variable in dashboard["templating"]["list"].as_array().unwrap() {
            if let Some(query) = variable["definition"].as_str() {
                assert!(check(query, &metrics), "{file}: {query}");
            }
        }
    }
}

#[test]
fn alert_rules_ask_for_what_there_is() {
    let metrics = metrics();
    let text = source(&format!("deploy/{RULES}"));
    let mut alerts = BTreeSet::new();
    for rule in text.split("- alert: ").skip(1) {
        let (name, rule) = rule.split_once('\n').unwrap();
        assert!(alerts.insert(name), "{name} is there twice");
        let (expression, rest) = rule
            .split_once("labels:")
            .unwrap_or_else(|| panic!("{name} has no labels"));
        assert!(check(expression, &metrics), "{name}: {expression}");
        for part in ["severity: ", "summary: ", "description: "] {
            assert!(rest.contains(part), "{name} has no {part}");
        }
        // What annotations show comes from the expression.
        let known = asked(expression);
        for used in rest.split("{{ $labels.").skip(1) {
            let label = used.split(' ').next().unwrap_or_default();
            let has = |(name, _): &(&str, _)| metrics[*name].contains(label);
            assert!(known.iter().any(has), "{name}: no label {label}");
        }
    }
    assert!(alerts.len() > 20);
}

#[test]
fn what_is_asked_for_is_found_in_an_expression() {
    let expression = r#"sum by (reason) (rate(gateway_engine_drops_total{reason!~"a|b", isd_as="x"}[5m])) / gateway_remotes"#;
    let found = asked(expression);
    assert_eq!(found.len(), 2);
    assert_eq!(found[1], ("gateway_remotes", None));
    let (name, braces) = found[0];
    assert_eq!(name, "gateway_engine_drops_total");
    assert_eq!(
        labels(braces.unwrap()).collect::<Vec<_>>(),
        ["reason", "isd_as"]
    );
}
