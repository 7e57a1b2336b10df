//! What a gateway tells about itself, as counters.

use std::{
    collections::BTreeMap, io::Read as _, net::Shutdown, os::unix::net::UnixStream, path::Path,
    time::Duration,
};

use anyhow::{Context as _, Result};
use serde_json::Value;

/// A gateway that does not answer within this time is stuck.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks the gateway for its status: the document of `sig status --format json`.
///
/// # Errors
///
/// It does not answer.
pub(super) fn ask(socket: &Path) -> Result<Value> {
    let asked = || -> Result<Value> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        // Nothing is to follow: the gateway need not wait for it.
        stream.shutdown(Shutdown::Write)?;
        let mut document = Vec::new();
        stream.read_to_end(&mut document)?;
        Ok(serde_json::from_slice(&document)?)
    };
    asked().with_context(|| format!("status of the gateway at {}", socket.display()))
}

/// Every count of the document under a name of its own: sums over all workers (`gateway packets_sent`), workers
/// (`gateway worker 0 sleeps`), ports by role (`gateway lan tx_packets`), drops (`gateway drop ttl_expired engine`).
///
/// Counters that another version has are taken as they are.
pub(super) fn add_counters(status: &Value, counters: &mut BTreeMap<String, u64>) {
    let mut add = |name: String, value: &Value| {
        if let Some(value) = value.as_u64() {
            *counters.entry(format!("gateway {name}")).or_default() += value;
        }
    };
    for (name, value) in status["counters"].as_object().into_iter().flatten() {
        add(name.clone(), value);
    }
    for worker in status["workers"].as_array().into_iter().flatten() {
        for (name, value) in worker.as_object().into_iter().flatten() {
            if !["number", "cpu"].contains(&name.as_str()) {
                add(format!("worker {} {name}", worker["number"]), value);
            }
        }
    }
    for port in status["ports"].as_array().into_iter().flatten() {
        let role = port["role"].as_str().unwrap_or("port");
        for name in ["rx_packets", "tx_packets"] {
            add(format!("{role} {name}"), &port[name]);
        }
    }
    for drop in status["drops"].as_array().into_iter().flatten() {
        let word = |key: &str| drop[key].as_str().unwrap_or("unknown").to_owned();
        add(
            format!("drop {} {}", word("reason"), word("place")),
            &drop["count"],
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_names_of_their_own() {
        let status = serde_json::json!({
            "counters": {"packets_sent": 7},
            "workers": [{"number": 0, "cpu": 1, "sleeps": 2}, {"number": 1, "cpu": null, "sleeps": 3}],
            "ports": [
                {"role": "lan", "interface": "d0", "rx_packets": 8, "tx_packets": 1},
                {"role": "inner", "interface": "sig", "rx_packets": 0, "tx_packets": 4},
            ],
            "drops": [{"reason": "ttl_expired", "place": "engine", "count": 5}],
        });
        let mut counters = BTreeMap::new();
        add_counters(&status, &mut counters);
        let expected = [
            ("gateway drop ttl_expired engine", 5),
            ("gateway inner rx_packets", 0),
            ("gateway inner tx_packets", 4),
            ("gateway lan rx_packets", 8),
            ("gateway lan tx_packets", 1),
            ("gateway packets_sent", 7),
            ("gateway worker 0 sleeps", 2),
            ("gateway worker 1 sleeps", 3),
        ];
        assert!(
            counters
                .iter()
                .map(|(name, count)| (name.as_str(), *count))
                .eq(expected),
            "{counters:?}"
        );
    }
}
