//! SCION hosts of the reference, without gateways.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use testbed::{Network, Ping};

use super::{Base, DAEMON, READY, Routers, wait_loss_free};
use crate::throughput::{
    chain::{Chain, End, Host, Pace, Pings},
    experiment::Family,
    subject::Refusal,
};

/// Hosts where the gateways would be.
pub(in crate::throughput::chain) struct Scion {
    base: Base,
}

impl Scion {
    pub(in crate::throughput::chain) fn build() -> Result<Self, Refusal> {
        let chain = Self {
            base: Base::build(Routers::Reference, None)?,
        };
        wait_loss_free(&chain, READY)?;
        Ok(chain)
    }
}

impl Chain for Scion {
    fn network(&self) -> &Network {
        &self.base.network
    }

    fn client(&self, _: End, _: Family) -> Result<Host<'_>, Refusal> {
        Err(Refusal::NotHere(
            "SCION hosts do not speak IP, and of the tools of the reference only `scion ping` measures something".into(),
        ))
    }

    fn families(&self) -> &'static [Family] {
        &[Family::Ipv4]
    }

    fn gateways(&self) -> Vec<u32> {
        Vec::new()
    }

    fn restart(&mut self, _: End) -> Result<(), Refusal> {
        Err(Refusal::NotHere(
            "there is no gateway between SCION hosts".into(),
        ))
    }

    /// With `scion ping`; the payload is that of IP packets of the size.
    fn ping(&self, pings: &Pings) -> Result<Ping, Refusal> {
        let Pace::Every(interval) = pings.pace else {
            return Err(Refusal::NotHere(
                "`scion ping` sends at fixed intervals: it has no flood".into(),
            ));
        };
        if pings.family == Family::Ipv6 {
            return Err(Refusal::NotHere(
                "the SCION network is over IPv4 alone".into(),
            ));
        }
        let (a, b) = (&self.base.network.a, &self.base.network.b);
        let to = format!("{},{}", b.isd_as(), b.data_addr().ip());
        let output = a
            .gateway
            .command(self.base.programs.path("scion"))
            .args(["ping", &to, "--sciond", DAEMON, "--format", "json"])
            .args(["--count", &pings.count.to_string()])
            .args(["--payload-size", &pings.payload().to_string()])
            .args(["--interval", &format!("{}us", interval.as_micros())])
            .output()
            .context("`scion` of the reference does not start")?;
        let ping = parse(&output.stdout).with_context(|| {
            format!(
                "`scion ping {to}`: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            )
        })?;
        Ok(ping)
    }
}

/// What `scion ping --format json` prints, as far as it is looked at.
#[derive(Deserialize)]
struct Document {
    statistics: Statistics,
}

/// Times in milliseconds.
#[derive(Deserialize)]
struct Statistics {
    sent: u32,
    received: u32,
    time: f64,
    min_rtt: f64,
    avg_rtt: f64,
    max_rtt: f64,
}

fn parse(document: &[u8]) -> Result<Ping> {
    let Document { statistics } = serde_json::from_slice(document)?;
    let duration = |milliseconds: f64| Duration::try_from_secs_f64(milliseconds / 1000.0);
    let time = |milliseconds: f64| {
        let time = duration(milliseconds).ok()?;
        (statistics.received > 0).then_some(time)
    };
    Ok(Ping {
        sent: statistics.sent,
        received: statistics.received,
        duration: duration(statistics.time)?,
        rtt: time(statistics.avg_rtt),
        rtt_min: time(statistics.min_rtt),
        rtt_max: time(statistics.max_rtt),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statistics_of_scion_ping_are_read() {
        let document = br#"{"path": {"hops": []}, "replies": [{"round_trip_time": 0.5}],
            "statistics": {"sent": 4, "received": 3, "packet_loss": 25, "time": 1001.5,
                           "min_rtt": 0.25, "avg_rtt": 0.5, "max_rtt": 2.0, "mdev_rtt": 0.6}}"#;
        let ping = parse(document).unwrap();
        assert_eq!((ping.sent, ping.received), (4, 3));
        assert_eq!(ping.duration, Duration::from_micros(1_001_500));
        assert_eq!(ping.rtt_min, Some(Duration::from_micros(250)));
        assert_eq!(ping.rtt, Some(Duration::from_micros(500)));
        assert_eq!(ping.rtt_max, Some(Duration::from_millis(2)));
        assert!(parse(b"").is_err());
    }
}
