//! Pings and what came of them.

use std::{cell::Cell, fs, net::IpAddr, time::Duration};

use anyhow::{Context as _, Result};

use super::{Netns, wait_until};

/// How long a reply may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// The same for a flood, of which some are usually lost.
const PATIENCE_AFTER_FLOOD: Duration = Duration::from_millis(300);

/// Outcome of a series of pings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ping {
    /// Echo requests sent.
    pub sent: u32,
    /// Echo replies received.
    pub received: u32,
    /// Time from the first request to the last reply.
    pub duration: Duration,
    /// Mean time from request to reply; none without a reply.
    pub rtt: Option<Duration>,
    /// Shortest time from request to reply.
    pub rtt_min: Option<Duration>,
    /// Longest time from request to reply.
    pub rtt_max: Option<Duration>,
}

impl Ping {
    /// Share of requests without a reply.
    pub fn loss_percent(&self) -> f64 {
        f64::from(self.sent.saturating_sub(self.received)) * 100.0 / f64::from(self.sent.max(1))
    }
}

/// Sends `count` echo requests with `size` bytes of payload from `from`, one each `interval`.
/// Requests larger than the MTU leave as IP fragments.
///
/// The program `ping` leaves soon after its last request, even if replies are under way on a busy
/// machine, so the kernel's count of replies within two seconds is what is told as received.
///
/// # Errors
/// `ping` cannot run, or prints something unexpected.
pub fn ping(from: &Netns, to: IpAddr, count: u32, size: u32, interval: Duration) -> Result<Ping> {
    let interval = interval.as_secs_f64().to_string();
    series(from, to, count, size, &["-i", &interval], PATIENCE)
}

/// The same as fast as replies come, with up to `outstanding` requests without a reply at a time; if none comes,
/// a hundred a second. Told as received are the replies that come within 300 ms after `ping` has left.
///
/// # Errors
/// As [`ping`].
pub fn flood(from: &Netns, to: IpAddr, count: u32, size: u32, outstanding: u32) -> Result<Ping> {
    series(
        from,
        to,
        count,
        size,
        &["-f", "-l", &outstanding.to_string()],
        PATIENCE_AFTER_FLOOD,
    )
}

fn series(
    from: &Netns,
    to: IpAddr,
    count: u32,
    size: u32,
    pace: &[&str],
    patience: Duration,
) -> Result<Ping> {
    let before = replies(from, to)?;
    let seen = run(from, to, count, size, pace)?;
    let received = Cell::new(seen.received);
    // That they are not all there in time is no error, but the result.
    let _ = wait_until("echo replies", patience, || {
        received.set(u32::try_from(replies(from, to)?.saturating_sub(before))?);
        Ok(received.get() >= seen.sent)
    });
    let received = received.get().min(seen.sent);
    Ok(Ping { received, ..seen })
}

/// Echo replies that the host has received so far.
fn replies(netns: &Netns, family_of: IpAddr) -> Result<u64> {
    let read =
        |file: &str| netns.run(|| fs::read_to_string(format!("/proc/thread-self/net/{file}")));
    let count = match family_of {
        IpAddr::V4(_) => replies_v4(&read("snmp")??),
        IpAddr::V6(_) => replies_v6(&read("snmp6")??),
    };
    count.context("the kernel does not count echo replies")
}

/// From `/proc/net/snmp`: a line with names, and one with values.
fn replies_v4(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Icmp: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let place = names
        .split_whitespace()
        .position(|name| name == "InEchoReps")?;
    values.split_whitespace().nth(place)?.parse().ok()
}

/// From `/proc/net/snmp6`: a name and a value on each line.
fn replies_v6(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Icmp6InEchoReplies"))?;
    line.trim().parse().ok()
}

fn run(from: &Netns, to: IpAddr, count: u32, size: u32, pace: &[&str]) -> Result<Ping> {
    let mut command = from.command("ping");
    command
        .args(["-q", "-n", "-W", "2", "-M", "dont"])
        .args(["-c", &count.to_string()])
        .args(["-s", &size.to_string()])
        .args(pace)
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
    let duration = parts
        .find_map(|part| part.trim().strip_prefix("time ")?.strip_suffix("ms"))
        .and_then(|milliseconds| milliseconds.parse().ok())
        .map(Duration::from_millis)?;
    let times: Vec<Duration> = text
        .lines()
        .find_map(|line| line.strip_prefix("rtt min/avg/max/mdev = "))
        .into_iter()
        .flat_map(|values| values.split(['/', ' ']))
        .map_while(|value| value.parse().ok())
        .map(|milliseconds: f64| Duration::from_secs_f64(milliseconds / 1000.0))
        .collect();
    Some(Ping {
        sent,
        received,
        duration,
        rtt: times.get(1).copied(),
        rtt_min: times.first().copied(),
        rtt_max: times.get(2).copied(),
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
        assert_eq!(ping.duration, Duration::from_millis(960));
        assert_eq!(ping.rtt_min, Some(Duration::from_micros(100)));
        assert_eq!(ping.rtt, Some(Duration::from_micros(250)));
        assert_eq!(ping.rtt_max, Some(Duration::from_micros(500)));
    }

    #[test]
    fn without_replies_there_is_no_time() {
        let text = "3 packets transmitted, 0 received, +3 errors, 100% packet loss, time 20ms\n";
        let ping = parse(text).unwrap();
        assert_eq!((ping.loss_percent(), ping.rtt), (100.0, None));
    }

    #[test]
    fn the_summary_of_a_flood_is_read() {
        let text = "--- 192.168.11.2 ping statistics ---\n\
                    50000 packets transmitted, 50000 received, 0% packet loss, time 1204ms\n\
                    rtt min/avg/max/mdev = 0.034/1.250/9.007/0.050 ms, pipe 65, ipg/ewma 0.024/1.300 ms\n";
        let ping = parse(text).unwrap();
        assert_eq!((ping.received, ping.duration.as_millis()), (50_000, 1204));
        assert_eq!(ping.rtt_max, Some(Duration::from_micros(9007)));
    }

    #[test]
    fn replies_are_counted_by_the_kernel() {
        let snmp = "Ip: Forwarding\nIp: 1\nIcmp: InMsgs InEchos InEchoReps\nIcmp: 9 2 7\nIcmpMsg: InType0\n";
        assert_eq!(replies_v4(snmp), Some(7));
        let snmp6 = "Icmp6InEchos                    \t3\nIcmp6InEchoReplies              \t12\n";
        assert_eq!(replies_v6(snmp6), Some(12));
        assert_eq!((replies_v4(""), replies_v6("")), (None, None));
    }

    #[test]
    fn other_text_is_no_summary() {
        assert_eq!(parse("ping: connect: Network is unreachable\n"), None);
    }
}
