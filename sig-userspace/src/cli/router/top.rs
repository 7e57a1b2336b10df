//! `sig router top`: packets per second, again and again.

use std::io::{self, Write};

use super::Choice;
use crate::cli::{
    Failure,
    socket::Kind,
    table::Table,
    top::{self, Updates},
};
use sig_router::status::{Count, Interface, KINDS, Status};

/// Show packets per second of each interface, and drops, until interrupted.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    updates: Updates,
    #[command(flatten)]
    router: Choice,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    top::show(&args.updates, &args.router.socket()?, Kind::Router, write)
}

fn write(before: &Status, now: &Status, seconds: f64, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "router \"{}\" of {}, per second", now.id, now.isd_as)?;
    let mut table = Table::new(&[
        ">interface",
        "link",
        ">input",
        ">in",
        ">out",
        ">in transit",
        ">out transit",
        ">through",
        ">Mbit/s in",
        ">Mbit/s out",
        ">dropped",
    ]);
    let mut drops = Vec::new();
    for interface in &now.interfaces {
        let earlier = before
            .interfaces
            .iter()
            .find(|i| i.interface == interface.interface);
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let of =
            |count: &dyn Fn(&Interface) -> u64| rate(count(interface), earlier.map_or(0, count));
        let packets = |kind: &'static str| format!("{:.0}", of(&|i| i.total(kind).packets));
        let megabits = |count: &dyn Fn(&Interface) -> Count| {
            format!("{:.1}", of(&|i| count(i).bytes) * 8.0 / 1e6)
        };
        let [input, kinds @ ..] = KINDS;
        let [a, b, c, d, e] = kinds.map(packets);
        table.row([
            interface.label(),
            if interface.up { "up" } else { "DOWN" }.to_owned(),
            packets(input),
            a,
            b,
            c,
            d,
            e,
            megabits(&|i| i.total(input)),
            megabits(&Interface::sent),
            format!("{:.0}", of(&|i| i.reasons.iter().map(|r| r.dropped).sum())),
        ]);
        for reason in &interface.reasons {
            let known = earlier.and_then(|e| e.reasons.iter().find(|r| r.reason == reason.reason));
            let dropped = rate(reason.dropped, known.map_or(0, |r| r.dropped));
            let seen = rate(
                reason.fast.max(reason.slow),
                known.map_or(0, |r| r.fast.max(r.slow)),
            );
            if dropped > 0.0 || seen > 0.0 {
                drops.push((interface.label(), reason.reason.clone(), seen, dropped));
            }
        }
    }
    table.write(out)?;
    if drops.is_empty() {
        return Ok(());
    }
    drops.sort_by(|a, b| (b.3 + b.2).total_cmp(&(a.3 + a.2)));
    writeln!(out, "\nSlow path and drops")?;
    let mut table = Table::new(&["interface", "reason", ">seen", ">dropped"]);
    for (interface, reason, seen, dropped) in drops {
        table.row([
            interface,
            reason,
            format!("{seen:.0}"),
            format!("{dropped:.0}"),
        ]);
    }
    table.write(out)
}
