//! Pings and what came of them.

use std::{net::IpAddr, time::Duration};

use anyhow::{Context as _, Result};

use super::Netns;

/// Outcome of a series of pings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ping {
    /// Echo requests sent.
    pub sent: u32,
    /// Echo replies received.
    pub received: u32,
    /// Mean time from request to reply; none without a reply.
    pub rtt: Option<Duration>,
}

impl Ping {
    /// Share of requests without a reply.
    pub fn loss_percent(&self) -> f64 {
        f64::from(self.sent.saturating_sub(self.received)) * 100.0 / f64::from(self.sent.max(1))
    }
}

/// Sends `count` echo requests with `size` bytes of payload from `from`, one each `interval`, and
/// waits at most two seconds for each reply. Requests larger than the MTU leave as IP fragments.
///
/// # Errors
/// `ping` cannot run, or prints something unexpected.
pub fn ping(from: &Netns, to: IpAddr, count: u32, size: u32, interval: Duration) -> Result<Ping> {
    let mut command = from.command("ping");
    command
        .args(["-q", "-n", "-W", "2", "-M", "dont"])
        .args(["-c", &count.to_string()])
        .args(["-s", &size.to_string()])
        .args(["-i", &interval.as_secs_f64().to_string()])
        .arg(to.to_string());
    let output = command.output().context("`ping` does not start")?;
    // It fails when a reply is missing, but tells the same.
    let text = String::from_utf8_lossy(&output.stdout);
    parse(&text).with_context(|| {
        format!(
            "`ping {to}` in {}: {text}{}",
            from.name(),
            String::from_utf8_lossy(&output.stderr)
        )
    })
}

/// Reads the summary of `ping -q` of iputils.
fn parse(text: &str) -> Option<Ping> {
    let counts = text
        .lines()
        .find(|line| line.contains("packets transmitted"))?;
    let number = |part: &str| part.split_whitespace().next()?.parse().ok();
    let mut parts = counts.split(',');
    let sent = number(parts.next()?)?;
    let received = number(parts.next()?)?;
    let rtt = text
        .lines()
        .find_map(|line| line.strip_prefix("rtt min/avg/max/mdev = "))
        .and_then(|values| values.split('/').nth(1)?.parse().ok())
        .map(|milliseconds: f64| Duration::from_secs_f64(milliseconds / 1000.0));
    Some(Ping {
        sent,
        received,
        rtt,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_of_ping_is_read() {
        let text = "PING 192.168.11.2 (192.168.11.2) 56(84) bytes of data.\n\n\
                    --- 192.168.11.2 ping statistics ---\n\
                    20 packets transmitted, 19 received, 5% packet loss, time 960ms\n\
                    rtt min/avg/max/mdev = 0.100/0.250/0.500/0.050 ms\n";
        let ping = parse(text).unwrap();
        assert_eq!((ping.sent, ping.received), (20, 19));
        assert_eq!(ping.loss_percent(), 5.0);
        assert_eq!(ping.rtt, Some(Duration::from_micros(250)));
    }

    #[test]
    fn without_replies_there_is_no_time() {
        let text = "3 packets transmitted, 0 received, +3 errors, 100% packet loss, time 20ms\n";
        let ping = parse(text).unwrap();
        assert_eq!((ping.loss_percent(), ping.rtt), (100.0, None));
    }

    #[test]
    fn other_text_is_no_summary() {
        assert_eq!(parse("ping: connect: Network is unreachable\n"), None);
    }
}
