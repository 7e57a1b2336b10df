//! A reader of the text format that accepts nothing doubtful.

use std::collections::{BTreeMap, HashMap};

pub(super) type Labels = BTreeMap<String, String>;

pub(super) struct Metric {
    pub(super) kind: String,
    pub(super) series: HashMap<Labels, f64>,
}

/// Panics at whatever is not as the format says.
pub(super) fn parse(text: &str) -> BTreeMap<String, Metric> {
    assert!(text.ends_with('\n'), "the last line has no end");
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    // What the lines from here on are about.
    let mut helped: Option<String> = None;
    let mut current: Option<String> = None;
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').expect("a help text");
            assert!(is_name(name) && !text.is_empty(), "{line}");
            assert!(!metrics.contains_key(name), "{name} comes twice");
            helped = Some(name.to_owned());
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a type");
            assert!(["counter", "gauge"].contains(&kind), "{line}");
            assert_eq!(
                helped.take().as_deref(),
                Some(name),
                "no help before {line}"
            );
            let metric = Metric {
                kind: kind.to_owned(),
                series: HashMap::new(),
            };
            assert!(metrics.insert(name.to_owned(), metric).is_none(), "{line}");
            current = Some(name.to_owned());
        } else {
            let (name, labels, value) = sample(line);
            assert_eq!(current.as_deref(), Some(name), "{line} is out of place");
            let metric = metrics.get_mut(name).expect("its type");
            assert!(value.is_finite(), "{line}");
            assert!(metric.kind != "counter" || value >= 0.0, "{line}");
            assert!(
                metric.series.insert(labels, value).is_none(),
                "{line} comes twice"
            );
        }
    }
    assert!(helped.is_none(), "a help without a type");
    let empty = metrics.iter().find(|(_, metric)| metric.series.is_empty());
    assert!(empty.is_none(), "a type without series");
    metrics
}

fn is_name(name: &str) -> bool {
    let mut characters = name.chars();
    characters
        .next()
        .is_some_and(|c| c.is_ascii_lowercase() || c == '_')
        && characters.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

fn sample(line: &str) -> (&str, Labels, f64) {
    let end = line.find(['{', ' ']).expect("a value");
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name), "{line}");
    let mut labels = Labels::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, behind) = rest.split_once("=\"").expect("a label");
            assert!(is_name(label), "{line}");
            let (value, behind) = quoted(behind);
            assert!(labels.insert(label.to_owned(), value).is_none(), "{line}");
            rest = behind;
            if let Some(behind) = rest.strip_prefix('}') {
                rest = behind;
                break;
            }
            rest = rest.strip_prefix(',').expect("a comma");
        }
    }
    let value = rest.strip_prefix(' ').expect("a space");
    assert!(!value.contains(' '), "{line}");
    (name, labels, value.parse().expect("a number"))
}

/// The text up to the closing quote, and what is behind it.
fn quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.push(match characters.next() {
                Some((_, 'n')) => '\n',
                Some((_, c @ ('\\' | '"'))) => c,
                other => panic!("{other:?} behind a backslash"),
            }),
            c => value.push(c),
        }
    }
    panic!("no closing quote in {text}");
}
