//! What the demo found, as a table and as JSON.

use std::fmt;

use anyhow::Result;
use serde::Serialize;
use testbed::Status;

/// Less than this is no working connection, even on a slow and busy machine.
const LEAST_MBIT_S: f64 = 5.0;

/// Results with one address family.
#[derive(Clone, Debug, Serialize)]
pub(super) struct FamilyResults {
    #[serde(skip)]
    pub(super) family: &'static str,
    pub(super) ping_loss_percent: f64,
    pub(super) ping_rtt_us: Option<f64>,
    pub(super) page_bytes: usize,
    pub(super) tcp_mbit_s: f64,
    pub(super) tcp_reverse_mbit_s: f64,
    pub(super) udp_pps: f64,
    pub(super) udp_mbit_s: f64,
    pub(super) udp_loss_percent: f64,
    pub(super) udp_reverse_pps: f64,
    pub(super) udp_reverse_mbit_s: f64,
    pub(super) udp_reverse_loss_percent: f64,
    /// By both gateways.
    pub(super) frames_sent: u64,
    /// By both gateways.
    pub(super) frames_discarded: u64,
}

/// All results.
#[derive(Clone, Debug, Default)]
pub(super) struct Results {
    pub(super) families: Vec<FamilyResults>,
    /// Gateway A and gateway B at the end.
    pub(super) gateways: Vec<Status>,
}

impl Results {
    /// What does not hold that should, as sentences.
    pub(super) fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        for results in &self.families {
            let family = results.family;
            if results.ping_loss_percent > 0.0 {
                failures.push(format!(
                    "{family}: {} % of the pings were lost",
                    results.ping_loss_percent
                ));
            }
            if results.frames_discarded > 0 {
                let frames = results.frames_discarded;
                failures.push(format!(
                    "{family}: the gateways discarded {frames} SIG frames"
                ));
            }
            for (what, value) in [
                ("TCP a to b", results.tcp_mbit_s),
                ("TCP b to a", results.tcp_reverse_mbit_s),
                ("UDP a to b", results.udp_mbit_s),
                ("UDP b to a", results.udp_reverse_mbit_s),
            ] {
                if value.is_nan() || value < LEAST_MBIT_S {
                    failures.push(format!("{family}: {what} carried only {value:.2} Mbit/s"));
                }
            }
        }
        failures
    }
}

/// Of the first network, one object per address family; of others the same in an object with their name.
pub(super) fn to_json(networks: &[(&str, Results)]) -> Result<String> {
    let mut all = serde_json::Map::new();
    for (place, (name, results)) in networks.iter().enumerate() {
        let mut families = serde_json::Map::new();
        for of_family in &results.families {
            let key = of_family.family.to_owned();
            families.insert(key, serde_json::to_value(of_family)?);
        }
        if place == 0 {
            all.append(&mut families);
        } else {
            all.insert((*name).to_owned(), families.into());
        }
    }
    Ok(serde_json::to_string_pretty(&all)? + "\n")
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.families.iter().map(|r| r.family).collect();
        row(f, "", &names)?;
        let mut line = |what: &str, show: &dyn Fn(&FamilyResults) -> String| {
            row(f, what, &self.families.iter().map(show).collect::<Vec<_>>())
        };
        line("ping, lost", &|r| format!("{} %", r.ping_loss_percent))?;
        line("ping, round trip", &|r| match r.ping_rtt_us {
            Some(rtt) => format!("{rtt:.0} µs"),
            None => "-".into(),
        })?;
        line("web page", &|r| format!("{} bytes", r.page_bytes))?;
        line("TCP a to b", &|r| format!("{:.0} Mbit/s", r.tcp_mbit_s))?;
        line("TCP b to a", &|r| {
            format!("{:.0} Mbit/s", r.tcp_reverse_mbit_s)
        })?;
        let udp = |pps: f64, mbit_s: f64, loss: f64| {
            format!("{mbit_s:.0} Mbit/s, {pps:.0} packets/s, {loss:.2} % lost")
        };
        line("UDP a to b", &|r| {
            udp(r.udp_pps, r.udp_mbit_s, r.udp_loss_percent)
        })?;
        line("UDP b to a", &|r| {
            udp(
                r.udp_reverse_pps,
                r.udp_reverse_mbit_s,
                r.udp_reverse_loss_percent,
            )
        })?;
        line("SIG frames sent", &|r| r.frames_sent.to_string())?;
        line("SIG frames discarded", &|r| r.frames_discarded.to_string())?;

        writeln!(f)?;
        row(f, "", &["gateway-a", "gateway-b"])?;
        let mut line = |what: &str, show: &dyn Fn(&Status) -> u64| {
            let cells: Vec<_> = self.gateways.iter().map(|s| show(s).to_string()).collect();
            row(f, what, &cells)
        };
        line("IP packets sent", &|s| s.counters.packets_sent)?;
        line("in SIG frames", &|s| s.counters.frames_sent)?;
        line("SIG frames received", &|s| s.counters.frames_received)?;
        line("with IP packets", &|s| s.counters.packets_received)?;
        line("frames missed", &|s| s.counters.gaps)?;
        let mut reasons: Vec<_> = self
            .gateways
            .iter()
            .flat_map(|s| &s.drops)
            .map(|drop| &*drop.reason)
            .collect();
        reasons.sort_unstable();
        reasons.dedup();
        for reason in &reasons {
            line(&format!("dropped: {reason}"), &|s| s.dropped(reason))?;
        }
        if reasons.is_empty() {
            row(f, "dropped", &["nothing", "nothing"])?;
        }
        Ok(())
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, cells: &[impl AsRef<str>]) -> fmt::Result {
    write!(f, "{name:<24}")?;
    for cell in cells {
        write!(f, "  {:<44}", cell.as_ref())?;
    }
    writeln!(f)
}
