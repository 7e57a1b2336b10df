//! `sig top`: what a gateway carries per second, again and again.

use std::{
    cell::Cell,
    cmp::Ordering,
    collections::{BTreeMap, HashSet},
    io::{self, Write},
};

use serde::Serialize;

use super::Updates;
use crate::cli::{
    Failure,
    socket::{Choice, Kind},
    table::Table,
};
use sig_core::status::{Path, Remote, Status, WatchedPath};

/// Show per second what a gateway carries, by remote and by path, its fast path and its drops, until interrupted.
#[derive(clap::Args)]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    updates: Updates,
    /// Print each update as a JSON document on a line of its own.
    #[arg(long)]
    json: bool,
    /// Order of remotes and paths: the largest first, or by name. On a terminal, the keys n, s, r, t and l change it; q ends.
    #[arg(long, value_enum, default_value_t = Order::Sent)]
    sort: Order,
    #[command(flatten)]
    gateway: Choice,
}

/// By what remotes and paths are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Order {
    /// ISD-AS, session, path
    Name,
    /// Bits sent
    Sent,
    /// Bits received
    Received,
    /// Round trip
    Rtt,
    /// Loss
    Loss,
}

pub(in crate::cli) fn run(args: &Args) -> Result<(), Failure> {
    let socket = args.gateway.socket()?;
    let order = Cell::new(args.sort);
    let show = |before: &Status, now: &Status, seconds: f64, out: &mut dyn Write| {
        let mut rates = Rates::between(before, now, seconds);
        rates.sort(order.get());
        if args.json {
            serde_json::to_writer(&mut *out, &rates)?;
            return writeln!(out);
        }
        rates.write(out)
    };
    let press = |key| {
        let wanted = Order::of_key(key);
        order.set(wanted.unwrap_or(order.get()));
        wanted.is_some()
    };
    let clears = !args.json;
    super::show_as(&args.updates, clears, &socket, Kind::Gateway, show, press)
}

impl Order {
    fn of_key(key: u8) -> Option<Self> {
        Some(match key {
            b'n' => Self::Name,
            b's' => Self::Sent,
            b'r' => Self::Received,
            b't' => Self::Rtt,
            b'l' => Self::Loss,
            _ => return None,
        })
    }
}

/// Packets and bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct Rate {
    packets: f64,
    bits: f64,
}

/// What happened between two looks at a status; everything per second.
#[derive(Debug, PartialEq, Serialize)]
struct Rates {
    id: String,
    isd_as: String,
    uptime_ms: u64,
    /// Between the two looks.
    seconds: f64,
    sent: Rate,
    received: Rate,
    /// Share of packets that no worker saw; none without packets, or without a fast path.
    fast_path_share: Option<f64>,
    remotes: Vec<RemoteRates>,
    paths: Vec<PathRates>,
    drops: Vec<DropRate>,
}

/// A session with a remote gateway.
#[derive(Debug, PartialEq, Serialize)]
struct RemoteRates {
    isd_as: String,
    gateway: String,
    session: u8,
    state: &'static str,
    /// Mean round trip on the best path in use.
    rtt_us: Option<u64>,
    /// Share of probes lost in the last minute, on the worst path in use.
    loss: Option<f64>,
    sent: Rate,
    /// Counted once for all sessions with a gateway, at the first.
    received: Option<Rate>,
}

/// A path in use.
#[derive(Debug, PartialEq, Serialize)]
struct PathRates {
    isd_as: String,
    session: u8,
    name: String,
    fingerprint: String,
    state: &'static str,
    rtt_us: Option<u64>,
    loss: Option<f64>,
    sent: Rate,
    hops: String,
}

/// Packets dropped for a reason.
#[derive(Debug, PartialEq, Serialize)]
struct DropRate {
    reason: String,
    place: &'static str,
    packets: f64,
    /// Since the start.
    total: u64,
}

impl Rates {
    fn between(before: &Status, now: &Status, seconds: f64) -> Self {
        let per = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let rate = |packets: [u64; 2], bytes: [u64; 2]| Rate {
            packets: per(packets[0], packets[1]),
            bits: per(bytes[0], bytes[1]) * 8.0,
        };
        let both = |of: fn(&Status) -> u64| per(of(now), of(before));
        let fast = both(|s| s.fast_path.packets_sent + s.fast_path.packets_delivered);
        let all = both(|s| s.counters.packets_sent + s.counters.packets_received);
        let (c, was) = (&now.counters, &before.counters);
        let mut rates = Self {
            id: now.id.clone(),
            isd_as: now.isd_as.clone(),
            uptime_ms: now.uptime_ms,
            seconds,
            sent: rate(
                [c.packets_sent, was.packets_sent],
                [c.packet_bytes_sent, was.packet_bytes_sent],
            ),
            received: rate(
                [c.packets_received, was.packets_received],
                [c.packet_bytes_received, was.packet_bytes_received],
            ),
            fast_path_share: (now.fast_path.on && all > 0.0).then_some((fast / all).min(1.0)),
            remotes: Vec::new(),
            paths: Vec::new(),
            drops: drops(before, now, per),
        };
        let mut seen = HashSet::new();
        for remote in &now.remotes {
            let is_it = |r: &&Remote| {
                (&r.isd_as, r.gateway, r.session)
                    == (&remote.isd_as, remote.gateway, remote.session)
            };
            // What is new has been counted from 0.
            let was = before.remotes.iter().find(is_it);
            let earlier = |of: fn(&Remote) -> u64| [of(remote), was.map_or(0, of)];
            let used = watched(now, remote);
            let first = seen.insert((&remote.isd_as, remote.gateway));
            rates.remotes.push(RemoteRates {
                isd_as: remote.isd_as.clone(),
                gateway: remote.gateway.to_string(),
                session: remote.session,
                state: session_state(remote),
                rtt_us: used.iter().filter_map(|path| path.latency_us).min(),
                loss: used
                    .iter()
                    .filter_map(|path| path.loss_ppm)
                    .max()
                    .map(share),
                sent: rate(
                    earlier(|r| r.sent.packets),
                    earlier(|r| r.sent.packet_bytes),
                ),
                received: first.then(|| {
                    rate(
                        earlier(|r| r.packets_received),
                        earlier(|r| r.packet_bytes_received),
                    )
                }),
            });
            for path in &remote.paths {
                let paths = was.iter().flat_map(|remote| &remote.paths);
                let was = paths.clone().find(|was| same(was, path));
                let found = used.iter().find(|w| w.fingerprint == path.fingerprint);
                rates.paths.push(PathRates {
                    isd_as: remote.isd_as.clone(),
                    session: remote.session,
                    name: path.name.clone(),
                    fingerprint: path.fingerprint.clone(),
                    state: path_state(path, found.copied()),
                    rtt_us: found.and_then(|path| path.latency_us),
                    loss: found.and_then(|path| path.loss_ppm).map(share),
                    sent: rate(
                        [path.packets_sent, was.map_or(0, |was| was.packets_sent)],
                        [path.bytes_sent, was.map_or(0, |was| was.bytes_sent)],
                    ),
                    hops: found.map_or_else(|| path.name.clone(), |path| hops(&path.text)),
                });
            }
        }
        rates
    }

    fn sort(&mut self, order: Order) {
        let largest = |a: Option<f64>, b: Option<f64>| {
            let value = |of: Option<f64>| of.unwrap_or(-1.0);
            value(b).total_cmp(&value(a))
        };
        let rtt = |us: Option<u64>| us.map(|us| us as f64);
        // Sorting is stable: equal ones stay in the order of the status.
        self.remotes.sort_by(|a, b| match order {
            Order::Name => (&a.isd_as, a.session).cmp(&(&b.isd_as, b.session)),
            Order::Sent => b.sent.bits.total_cmp(&a.sent.bits),
            Order::Received => largest(a.received.map(|r| r.bits), b.received.map(|r| r.bits)),
            Order::Rtt => largest(rtt(a.rtt_us), rtt(b.rtt_us)),
            Order::Loss => largest(a.loss, b.loss),
        });
        self.paths.sort_by(|a, b| match order {
            Order::Name => (&a.isd_as, a.session, &a.name).cmp(&(&b.isd_as, b.session, &b.name)),
            Order::Sent => b.sent.bits.total_cmp(&a.sent.bits),
            Order::Received => Ordering::Equal,
            Order::Rtt => largest(rtt(a.rtt_us), rtt(b.rtt_us)),
            Order::Loss => largest(a.loss, b.loss),
        });
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "gateway \"{}\" of {}, per second",
            self.id, self.isd_as
        )?;
        let fast_path = match self.fast_path_share {
            Some(share) => format!(", fast path {:.1} %", share * 100.0),
            None => String::new(),
        };
        writeln!(
            out,
            "sent {} packets, {} Mbit; received {} packets, {} Mbit{fast_path}",
            packets(self.sent),
            megabits(self.sent),
            packets(self.received),
            megabits(self.received),
        )?;
        self.write_remotes(out)?;
        self.write_paths(out)?;
        self.write_drops(out)
    }

    fn write_remotes(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "\nRemotes")?;
        if self.remotes.is_empty() {
            return writeln!(out, "  none: see \"sig status\"");
        }
        let mut table = Table::new(&[
            "session",
            "state",
            ">rtt ms",
            ">loss %",
            ">sent",
            ">Mbit",
            ">received",
            ">Mbit",
        ]);
        for remote in &self.remotes {
            let received = |of: fn(Rate) -> String| remote.received.map_or("-".to_owned(), of);
            table.row([
                format!("{} {}", remote.isd_as, remote.session),
                remote.state.to_owned(),
                milliseconds(remote.rtt_us),
                percent(remote.loss),
                packets(remote.sent),
                megabits(remote.sent),
                received(packets),
                received(megabits),
            ]);
        }
        table.write(out)
    }

    fn write_paths(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.paths.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nPaths in use")?;
        let mut table = Table::new(&[
            "session", "state", ">rtt ms", ">loss %", ">sent", ">Mbit", "path",
        ]);
        for path in &self.paths {
            table.row([
                format!("{} {}", path.isd_as, path.session),
                path.state.to_owned(),
                milliseconds(path.rtt_us),
                percent(path.loss),
                packets(path.sent),
                megabits(path.sent),
                path.hops.clone(),
            ]);
        }
        table.write(out)
    }

    fn write_drops(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.drops.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nDrops")?;
        let mut table = Table::new(&["reason", "where", ">packets", ">since the start"]);
        for drop in &self.drops {
            table.row([
                drop.reason.clone(),
                drop.place.to_owned(),
                format!("{:.0}", drop.packets),
                drop.total.to_string(),
            ]);
        }
        table.write(out)
    }
}

/// Drops between two looks, the most first. A reason may be told in several parts.
fn drops(before: &Status, now: &Status, per: impl Fn(u64, u64) -> f64) -> Vec<DropRate> {
    let sums = |status: &Status| {
        let mut sums = BTreeMap::new();
        for drop in &status.drops {
            let sum: &mut u64 = sums
                .entry((drop.reason.clone(), drop.place.as_str()))
                .or_default();
            *sum = sum.saturating_add(drop.count);
        }
        sums
    };
    let earlier = sums(before);
    let drops = sums(now).into_iter().map(|((reason, place), total)| {
        let key = (reason, place);
        let packets = per(total, earlier.get(&key).copied().unwrap_or(0));
        DropRate {
            reason: key.0,
            place,
            packets,
            total,
        }
    });
    let mut drops: Vec<_> = drops.filter(|drop| drop.packets > 0.0).collect();
    drops.sort_by(|a, b| b.packets.total_cmp(&a.packets));
    drops
}

/// The paths that a session uses, as far as they are watched.
fn watched<'a>(status: &'a Status, remote: &Remote) -> Vec<&'a WatchedPath> {
    let ases = status.control.iter().flat_map(|control| &control.ases);
    let paths = ases
        .filter(|found| found.isd_as == remote.isd_as)
        .flat_map(|found| &found.paths);
    paths
        .filter(|path| path.used_by.contains(&remote.session))
        .collect()
}

fn same(a: &Path, b: &Path) -> bool {
    (&a.name, &a.fingerprint) == (&b.name, &b.fingerprint)
}

fn session_state(remote: &Remote) -> &'static str {
    let can_send = remote
        .paths
        .iter()
        .any(|path| path.next_hop_mac.is_some() && !path.expired);
    match remote.probing {
        Some(probing) if !probing.healthy => "NO ANSWER",
        _ if !can_send => "NO PATH",
        Some(_) => "healthy",
        None => "ready",
    }
}

fn path_state(path: &Path, watched: Option<&WatchedPath>) -> &'static str {
    match watched {
        _ if path.expired => "EXPIRED",
        Some(watched) if !watched.alive => "DEAD",
        _ if path.next_hop_mac.is_none() => "NO HOP",
        Some(watched) if watched.revoked => "revoked",
        _ => "in use",
    }
}

/// `Hops: [1-ff00:0:110 1>2 1-ff00:0:111] MTU: …` without the rest.
fn hops(text: &str) -> String {
    let text = text.strip_prefix("Hops: [").unwrap_or(text);
    text.split(']').next().unwrap_or(text).to_owned()
}

fn share(ppm: u32) -> f64 {
    f64::from(ppm) / 1e6
}

fn packets(rate: Rate) -> String {
    format!("{:.0}", rate.packets)
}

fn megabits(rate: Rate) -> String {
    format!("{:.1}", rate.bits / 1e6)
}

fn milliseconds(us: Option<u64>) -> String {
    us.map_or_else(|| "-".to_owned(), |us| format!("{:.2}", us as f64 / 1e3))
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.2}", share * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sig_observe::example::found;

    /// A second later, with traffic in between.
    fn rates() -> Rates {
        let before = found();
        let mut now = found();
        now.uptime_ms += 2000;
        now.counters.packets_sent += 3000;
        now.counters.packet_bytes_sent += 2_500_000;
        now.counters.packets_received += 1000;
        now.counters.packet_bytes_received += 500_000;
        now.fast_path.packets_sent += 2800;
        now.fast_path.packets_delivered += 800;
        let remote = &mut now.remotes[0];
        remote.sent.packets += 3000;
        remote.sent.packet_bytes += 2_500_000;
        remote.packets_received += 1000;
        remote.packet_bytes_received += 500_000;
        remote.paths[0].packets_sent += 3000;
        remote.paths[0].bytes_sent += 3_000_000;
        remote.paths[0].next_hop_mac = Some("02:00:00:00:00:01".to_owned());
        now.drops[2].count += 10;
        Rates::between(&before, &now, 2.0)
    }

    #[test]
    fn rates_are_shown_by_remote_and_path() {
        let mut out = Vec::new();
        rates().write(&mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "gateway \"west\" of 1-ff00:0:110, per second
sent 1500 packets, 10.0 Mbit; received 500 packets, 2.0 Mbit, fast path 90.0 %

Remotes
  session         state      rtt ms  loss %  sent  Mbit  received  Mbit
  1-ff00:0:111 0  healthy     12.35    0.25  1500  10.0       500   2.0
  1-ff00:0:111 1  NO ANSWER       -       -     0   0.0         -     -

Paths in use
  session         state   rtt ms  loss %  sent  Mbit  path
  1-ff00:0:111 0  in use   12.35    0.25  1500  12.0  1-ff00:0:110 1>41 1-ff00:0:111

Drops
  reason    where   packets  since the start
  no_route  engine        5               15
"
        );
    }

    #[test]
    fn a_document_has_the_same() {
        let document = serde_json::to_value(rates()).unwrap();
        assert_eq!(document["seconds"], 2.0);
        assert_eq!(document["sent"]["bits"], 10_000_000.0);
        assert_eq!(document["remotes"][0]["received"]["packets"], 500.0);
        assert!(document["remotes"][1]["received"].is_null());
        assert_eq!(document["paths"][0]["rtt_us"], 12_345);
        assert_eq!(document["drops"][0]["total"], 15);
    }

    #[test]
    fn the_largest_come_first_or_names() {
        let mut rates = rates();
        let sessions = |rates: &Rates| rates.remotes.iter().map(|r| r.session).collect::<Vec<_>>();
        rates.remotes[1].sent.bits = 1e9;
        rates.sort(Order::Sent);
        assert_eq!(sessions(&rates), [1, 0]);
        rates.sort(Order::Received);
        assert_eq!(sessions(&rates), [0, 1]);
        rates.remotes[1].loss = Some(0.5);
        rates.sort(Order::Loss);
        assert_eq!(sessions(&rates), [1, 0]);
        rates.sort(Order::Name);
        assert_eq!(sessions(&rates), [0, 1]);
    }

    #[test]
    fn without_packets_there_is_no_share_of_the_fast_path() {
        let rates = Rates::between(&found(), &found(), 1.0);
        assert_eq!(rates.fast_path_share, None);
        assert!(rates.drops.is_empty());
    }
}
