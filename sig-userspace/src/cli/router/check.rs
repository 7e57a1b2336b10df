//! `sig router check`: whether the configuration is right, and what the router will do.

use std::{
    io::{self, Write},
    net::SocketAddr,
    path::PathBuf,
};

use crate::cli::{Failure, checked, table::Table};
use sig_router::{
    AsModel, Bfd, Owner,
    config::{self, Settings, XdpMode},
};

/// Check the configuration of a border router, and show what it will do.
///
/// Reads the configuration file and the topology and key it refers to, without touching the system. Shows each problem
/// with file, line, key and remedy; the exit code is then 2. Warnings go to standard error and do not change the exit
/// code.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The configuration file of the router.
    #[arg(value_name = "FILE", required_unless_present = "config")]
    file: Option<PathBuf>,
    /// The same.
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
    /// Print a JSON object with the verdict, errors and warnings.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let file = args.file.as_ref().or(args.config.as_ref());
    let file = file.ok_or_else(|| Failure::Refused("write the name of a file".to_owned()))?;
    let (settings, loaded) = match config::load(file) {
        Ok((settings, warnings)) => (Some(settings), Ok((String::new(), warnings))),
        Err(errors) => (None, Err(errors)),
    };
    checked::print(file, &loaded, args.json, out)?;
    match settings {
        Some(settings) if !args.json => Ok(show(&settings, out)?),
        _ => Ok(()),
    }
}

fn show(settings: &Settings, out: &mut dyn Write) -> io::Result<()> {
    let model = &settings.model;
    let core = if model.core { "core AS" } else { "AS" };
    let mut line = |name: &str, value: String| writeln!(out, "  {name:<20} {value}");
    line(
        "router",
        format!(
            "{} of {core} {}, MTU {}",
            model.router, model.isd_as, model.mtu
        ),
    )?;
    line("internal address", model.internal.to_string())?;
    line(
        "dispatched ports",
        match &model.ports {
            Some(ports) => format!("{}-{}, others to 30041", ports.start(), ports.end()),
            None => "none, all to 30041".to_owned(),
        },
    )?;
    line("control services", list(&model.control_services))?;
    line("discovery services", list(&model.discovery_services))?;
    let mode = match settings.xdp.mode {
        None => "off",
        Some(XdpMode::Auto) => "auto",
        Some(XdpMode::Native) => "native",
        Some(XdpMode::Generic) => "generic",
    };
    line("XDP", format!("{mode}{}", cpus(&settings.xdp.cpus)))?;
    let slow = if settings.slow_path {
        "here"
    } else {
        "another router on this host"
    };
    line("slow path", slow.to_owned())?;
    line(
        "status socket",
        settings.status_socket.display().to_string(),
    )?;
    links(model, out)
}

fn list(addresses: &[SocketAddr]) -> String {
    if addresses.is_empty() {
        return "none".to_owned();
    }
    let addresses: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    addresses.join(", ")
}

fn cpus(cpus: &[u32]) -> String {
    if cpus.is_empty() {
        return String::new();
    }
    let cpus: Vec<String> = cpus.iter().map(u32::to_string).collect();
    format!(", spread over the CPUs {}", cpus.join(", "))
}

fn links(model: &AsModel, out: &mut dyn Write) -> io::Result<()> {
    let mut own = Table::new(&[
        ">INTERFACE",
        "NEIGHBOUR",
        "LINK TO",
        "LOCAL",
        "REMOTE",
        ">MTU",
        "BFD",
    ]);
    for (number, interface, local, remote) in model.links() {
        own.row([
            number.to_string(),
            interface.neighbour.to_string(),
            interface.link_type.name().to_owned(),
            local.to_string(),
            remote.to_string(),
            interface.mtu.to_string(),
            bfd(interface.bfd),
        ]);
    }
    if !own.is_empty() {
        writeln!(out, "\nlinks of this router")?;
        own.write(out)?;
    }
    let mut others = Table::new(&[">INTERFACE", "NEIGHBOUR", "LINK TO", "ROUTER", "ADDRESS"]);
    for (number, interface) in &model.interfaces {
        let Owner::Sibling(sibling) = interface.owner else {
            continue;
        };
        let Some(sibling) = model.siblings.get(sibling) else {
            continue;
        };
        others.row([
            number.to_string(),
            interface.neighbour.to_string(),
            interface.link_type.name().to_owned(),
            sibling.name.clone(),
            sibling.internal.to_string(),
        ]);
    }
    if !others.is_empty() {
        writeln!(
            out,
            "\nlinks of other routers; BFD with them: {}",
            bfd(model.sibling_bfd)
        )?;
        others.write(out)?;
    }
    Ok(())
}

fn bfd(bfd: Bfd) -> String {
    if bfd.disabled {
        return "off".to_owned();
    }
    format!(
        "{} x {:?}/{:?}",
        bfd.detect_mult, bfd.desired_min_tx, bfd.required_min_rx
    )
}
