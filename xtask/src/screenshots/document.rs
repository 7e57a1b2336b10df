//! A status document that no network of ours has.

use std::fs;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::shell;

/// The document of the tests that has most in it.
const FULL: &str = "sig-userspace/observe/src/http/tests/found.json";

/// What somebody would like to be read as HTML.
const NAME: &str = "<img src=x onerror=alert(1)>";

/// What the page has to show of it.
pub(super) const EXPECTED: [&str; 8] = [
    NAME,
    "no answer",
    "1 alive, 1 dead, 1 rejected",
    "12.35 ms",
    "eth0 is down",
    "the daemon knows no path",
    "No remote announces the destination of the packet.",
    "rejected by policy",
];

/// Reads it, and puts names into it that would like to be HTML.
pub(super) fn full() -> Result<Value> {
    let file = shell::root().join(FULL);
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let mut document: Value = serde_json::from_str(&text).context("a document")?;
    for place in [
        "/id",
        "/isd_as",
        "/remotes/0/isd_as",
        "/ports/0/interface",
        "/queues/0/interface",
        "/rules/0/name",
        "/drops/0/reason",
        "/fast_path/problems/0",
        "/control/ases/0/paths/0/text",
        "/control/sites/0/classes/0/condition",
        "/chains/functions/0/name",
    ] {
        let text = document.pointer_mut(place);
        *text.with_context(|| format!("nothing at {place}"))? = json!(NAME);
    }
    // Its interface has to be the one that is down.
    document["ports"][0]["interface"] = json!("eth0");
    Ok(document)
}

/// Makes a newer document every time.
pub(super) fn feed(first: Value) -> impl FnMut() -> String {
    let mut looks = 0;
    move || {
        let mut document = first.clone();
        grow(&mut document, looks);
        document["uptime_ms"] = json!(1_000_000 + looks * 1000);
        looks += 1;
        document.to_string()
    }
}

/// Adds to all counters.
fn grow(value: &mut Value, times: u64) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let is_counter = ["packets", "bytes", "frames", "count"]
                    .iter()
                    .any(|word| name.contains(word));
                match member.as_u64() {
                    Some(number) if is_counter => *member = json!(number * (1 + times)),
                    _ => grow(member, times),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| grow(item, times)),
        _ => {}
    }
}
