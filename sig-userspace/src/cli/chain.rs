//! `sig chain`: rules and service chains of a running gateway.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use super::{
    Failure,
    socket::{self, Choice, Kind},
    srv6::status::write_tables,
    table::Table,
    top::{self, Updates},
};
use sig_core::status::Status;

/// Rules and service chains of a running gateway.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Show what rules held for, and the policies, SIDs and functions of chains.
    Status {
        #[command(flatten)]
        gateway: Choice,
        /// Print a JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Show packets per second of rules, policies, SIDs and functions, until interrupted.
    Top {
        #[command(flatten)]
        updates: Updates,
        #[command(flatten)]
        gateway: Choice,
    },
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    match &args.command {
        Command::Status { gateway, json } => {
            let status: Status = socket::fetch(&gateway.socket()?, Kind::Gateway)?;
            if *json {
                let document = serde_json::json!({ "rules": status.rules, "node": status.chains });
                writeln!(out, "{document}")?;
                return Ok(());
            }
            Ok(write(&status, out)?)
        }
        Command::Top { updates, gateway } => {
            top::show(updates, &gateway.socket()?, Kind::Gateway, write_rates)
        }
    }
}

fn write(status: &Status, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "gateway {} of {}", status.id, status.isd_as)?;
    let node = status.chains.as_ref();
    for problem in node.iter().flat_map(|node| &node.problems) {
        writeln!(out, "  {problem}")?;
    }
    if status.rules.is_empty() {
        return writeln!(out, "no rules; see [gateway] rules_file");
    }
    let mut table = Table::new(&[
        "RULE",
        "ACTION",
        "TO",
        ">TO REMOTES",
        ">FROM REMOTES",
        "CLASS",
    ]);
    for rule in &status.rules {
        table.row([
            rule.name.clone(),
            rule.action.clone(),
            rule.target.clone().unwrap_or_default(),
            rule.packets_to_remotes.to_string(),
            rule.packets_from_remotes.to_string(),
            rule.class.clone(),
        ]);
    }
    writeln!(out)?;
    table.write(out)?;
    match node {
        Some(node) => write_tables(node, out),
        None => Ok(()),
    }
}

/// Packets by what they are about, and whose.
fn packets(status: &Status) -> BTreeMap<(&'static str, String), u64> {
    let mut packets = BTreeMap::new();
    let mut add = |kind, name: &str, count| {
        packets.insert((kind, name.to_owned()), count);
    };
    for rule in &status.rules {
        let both = rule.packets_to_remotes + rule.packets_from_remotes;
        add("rule", &rule.name, both);
    }
    let Some(node) = &status.chains else {
        return packets;
    };
    for policy in &node.policies {
        add("policy", &policy.name, policy.packets);
    }
    for sid in &node.sids {
        add("SID", &format!("{} {}", sid.sid, sid.behavior), sid.packets);
    }
    for function in &node.functions {
        add("function", &function.name, function.packets_returned);
    }
    for (reason, count) in node.refused.iter().filter(|(_, count)| *count != 0) {
        add("not forwarded", &reason.replace('_', " "), *count);
    }
    packets
}

fn write_rates(before: &Status, now: &Status, seconds: f64, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "gateway {} of {}, per second", now.id, now.isd_as)?;
    let earlier = packets(before);
    let mut table = Table::new(&["", "", ">packets"]);
    for (key, count) in packets(now) {
        let new = count.saturating_sub(earlier.get(&key).copied().unwrap_or(0));
        let (kind, name) = key;
        table.row([
            kind.to_owned(),
            name,
            format!("{:.0}", new as f64 / seconds),
        ]);
    }
    table.write(out)
}
