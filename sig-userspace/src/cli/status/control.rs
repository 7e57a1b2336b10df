//! What the control plane knows: daemon, remote ASes, their gateways and paths, sessions, traffic classes.

use std::io::{self, Write};

use super::join;
use crate::cli::table::Table;
use sig_core::status::{Control, Remote, Status};

pub(super) fn write(status: &Status, control: &Control, out: &mut dyn Write) -> io::Result<()> {
    write_own(control, out)?;
    write_ases(control, out)?;
    write_gateways(control, out)?;
    write_protection(control, out)?;
    write_watched_paths(control, out)?;
    write_sessions(&status.remotes, out)?;
    write_classes(control, out)?;
    write_contested(control, out)?;
    write_refused(control, out)
}

fn write_own(control: &Control, out: &mut dyn Write) -> io::Result<()> {
    let daemon = &control.daemon;
    writeln!(out, "\nControl plane")?;
    writeln!(
        out,
        "  daemon {}: {}, {} requests, {} failed",
        daemon.address,
        if daemon.reachable {
            "reachable"
        } else {
            "not reachable"
        },
        daemon.requests,
        daemon.failures
    )?;
    if let Some(problem) = &daemon.problem {
        writeln!(out, "  daemon: {problem}")?;
    }
    writeln!(
        out,
        "  prefixes served at {}, session probes answered at {}, end host port: {}",
        control.ctrl_addr, control.probe_addr, control.endhost_port
    )?;
    for advertised in &control.advertised {
        writeln!(
            out,
            "  advertised to {}: {} (asked {} times)",
            advertised.isd_as,
            join_or(&advertised.prefixes, "none"),
            advertised.requests
        )?;
    }
    Ok(())
}

fn write_ases(control: &Control, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\nRemote ASes")?;
    if control.ases.is_empty() {
        return writeln!(out, "  none: list remote ASes in the traffic policy file");
    }
    let mut table = Table::new(&[
        "ISD-AS",
        ">gateways",
        ">paths",
        ">alive",
        ">probes",
        ">answers",
        "discovered",
        "static prefixes",
    ]);
    for found in &control.ases {
        let alive = found.paths.iter().filter(|path| path.alive).count();
        table.row([
            found.isd_as.clone(),
            found.gateways.len().to_string(),
            found.paths.len().to_string(),
            alive.to_string(),
            found.probes_sent.to_string(),
            found.probes_received.to_string(),
            ago(found.discovered_ms_ago),
            join_or(&found.static_prefixes, "-"),
        ]);
    }
    table.write(out)?;
    for found in &control.ases {
        if let Some(problem) = &found.discovery_problem {
            writeln!(out, "  {} discovery failed: {problem}", found.isd_as)?;
        }
        if let Some(problem) = &found.paths_problem {
            writeln!(out, "  {} path lookup failed: {problem}", found.isd_as)?;
        }
    }
    Ok(())
}

fn write_gateways(control: &Control, out: &mut dyn Write) -> io::Result<()> {
    let mut table = Table::new(&[
        "ISD-AS",
        "control",
        "data",
        "interfaces",
        "asked",
        ">accepted",
        ">rejected",
        "prefixes",
    ]);
    let mut problems = Vec::new();
    for found in &control.ases {
        for gateway in &found.gateways {
            if let Some(problem) = &gateway.fetch_problem {
                problems.push(format!(
                    "{},{} prefix fetch failed: {problem}",
                    found.isd_as, gateway.addresses.control
                ));
            }
            table.row([
                found.isd_as.clone(),
                gateway.addresses.control.to_string(),
                gateway.addresses.data.to_string(),
                join_or(&gateway.addresses.allow_interfaces, "all"),
                ago(gateway.fetched_ms_ago),
                gateway.prefixes_accepted.to_string(),
                gateway.prefixes_rejected.to_string(),
                join_or(&gateway.accepted, "none"),
            ]);
        }
    }
    if table.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nRemote gateways")?;
    table.write(out)?;
    problems
        .iter()
        .try_for_each(|problem| writeln!(out, "  {problem}"))
}

fn write_protection(control: &Control, out: &mut dyn Write) -> io::Result<()> {
    let mut table = Table::new(&[
        "ISD-AS", "control", "to it", "from it", "key age", "pinned", "identity",
    ]);
    let mut problems = Vec::new();
    for found in &control.ases {
        for gateway in &found.gateways {
            let protection = &gateway.protection;
            if !protection.problem.is_empty() {
                problems.push(format!(
                    "{},{}: {}",
                    found.isd_as, gateway.addresses.control, protection.problem
                ));
            }
            let from = match (protection.strict, protection.receives) {
                (true, true) => "protected",
                (true, false) => "required",
                (false, true) => "mixed",
                (false, false) => "open",
            };
            table.row([
                found.isd_as.clone(),
                gateway.addresses.control.to_string(),
                if protection.sends {
                    "protected"
                } else {
                    "open"
                }
                .to_owned(),
                from.to_owned(),
                protection
                    .key_age_s
                    .map_or_else(|| "-".to_owned(), |age| format!("{age} s")),
                if protection.pinned { "yes" } else { "no" }.to_owned(),
                match protection.identity.as_str() {
                    "" => "-".to_owned(),
                    identity => identity.to_owned(),
                },
            ]);
        }
    }
    if table.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nProtection of frames")?;
    if !control.identity.is_empty() {
        writeln!(out, "  this gateway: {}", control.identity)?;
    }
    table.write(out)?;
    problems
        .iter()
        .try_for_each(|problem| writeln!(out, "  {problem}"))
}

fn write_watched_paths(control: &Control, out: &mut dyn Write) -> io::Result<()> {
    let mut table = Table::new(&[
        "ISD-AS", "state", ">latency", ">jitter", ">loss", ">MTU", "sessions", "path",
    ]);
    let milliseconds = |microseconds: Option<u64>| match microseconds {
        Some(microseconds) => format!("{:.2} ms", microseconds as f64 / 1e3),
        None => "-".to_owned(),
    };
    for found in &control.ases {
        for path in &found.paths {
            let state = match (path.alive, path.revoked) {
                (true, false) => "alive",
                (true, true) => "alive, revoked",
                (false, false) => "dead",
                (false, true) => "revoked",
            };
            table.row([
                found.isd_as.clone(),
                state.to_owned(),
                milliseconds(path.latency_us),
                milliseconds(path.jitter_us),
                path.loss_ppm.map_or_else(
                    || "-".to_owned(),
                    |ppm| format!("{:.2} %", f64::from(ppm) / 1e4),
                ),
                path.mtu.to_string(),
                join_or(&path.used_by, "-"),
                path.text.clone(),
            ]);
        }
    }
    if table.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nKnown paths")?;
    table.write(out)
}

fn write_sessions(remotes: &[Remote], out: &mut dyn Write) -> io::Result<()> {
    let mut table = Table::new(&[
        "ISD-AS",
        ">session",
        ">policy",
        "gateway",
        "healthy",
        ">probes",
        ">answers",
        ">state changes",
        ">path changes",
        ">alive",
        ">dead",
        ">rejected",
    ]);
    for remote in remotes {
        let Some(probing) = &remote.probing else {
            continue;
        };
        table.row([
            remote.isd_as.clone(),
            remote.session.to_string(),
            remote.policy_id.to_string(),
            remote.gateway.to_string(),
            if probing.healthy { "yes" } else { "no" }.to_owned(),
            probing.probes.to_string(),
            probing.replies.to_string(),
            probing.state_changes.to_string(),
            probing.path_changes.to_string(),
            probing.paths_alive.to_string(),
            probing.paths_timeout.to_string(),
            probing.paths_rejected.to_string(),
        ]);
    }
    writeln!(out, "\nSessions")?;
    if table.is_empty() {
        return writeln!(out, "  none: no remote gateway has announced prefixes yet");
    }
    table.write(out)
}

fn write_classes(control: &Control, out: &mut dyn Write) -> io::Result<()> {
    let mut table = Table::new(&[
        ">class",
        "ISD-AS",
        "condition",
        "session",
        "candidates",
        ">alive",
        "kernel routes",
        "prefixes",
    ]);
    for site in &control.sites {
        for class in &site.classes {
            table.row([
                class.id.to_string(),
                site.isd_as.clone(),
                class.condition.clone(),
                class
                    .current
                    .map_or_else(|| "none".to_owned(), |n| n.to_string()),
                join_or(&class.sessions, "none"),
                class.alive.to_string(),
                if site.exported { "yes" } else { "no" }.to_owned(),
                join_or(&site.prefixes, "none"),
            ]);
        }
    }
    if table.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nTraffic classes")?;
    table.write(out)
}

fn write_contested(control: &Control, out: &mut dyn Write) -> io::Result<()> {
    if control.contested.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nPrefixes claimed by several ASes")?;
    let mut table = Table::new(&["prefix", "ISD-AS", "standby"]);
    for contested in &control.contested {
        table.row([
            contested.prefix.to_string(),
            contested.isd_as.clone(),
            contested.others.join(", "),
        ]);
    }
    table.write(out)
}

fn write_refused(control: &Control, out: &mut dyn Write) -> io::Result<()> {
    if control.refused.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nRejected input from peers")?;
    let mut table = Table::new(&["ISD-AS", "reason", ">count"]);
    for refused in &control.refused {
        table.row([
            refused.isd_as.clone(),
            refused.reason.clone(),
            refused.count.to_string(),
        ]);
    }
    table.write(out)
}

fn join_or<T: ToString>(values: &[T], nothing: &str) -> String {
    if values.is_empty() {
        nothing.to_owned()
    } else {
        join(values)
    }
}

fn ago(milliseconds: Option<u64>) -> String {
    match milliseconds {
        Some(milliseconds) => format!("{:.1} s ago", milliseconds as f64 / 1e3),
        None => "never".to_owned(),
    }
}
