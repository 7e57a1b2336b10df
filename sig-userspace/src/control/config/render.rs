//! A configuration as a file again, with every default filled in.

use std::collections::BTreeSet;
use std::fmt::{Display, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use toml::Value;

use super::model::{
    Config, Control, Dataplane, DefaultRoute, EndhostPort, LanTransmit, Path, Pin, Remote, Wish,
};
use super::{LogFormat, Observe, XdpMode};
use crate::notation::{show_duration, to_hex};
use crate::peer::{RpcProtocols, UnderlaySources};

impl Config {
    /// The configuration as TOML, in the order of the sample. Reading it gives the same configuration; path
    /// files are written out.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut file = File(String::new());
        self.write_gateway(&mut file);
        if let Some(control) = &self.control {
            write_control(&mut file, control);
        }
        let tunnel = &self.tunnel;
        file.section("[tunnel]");
        file.text("name", &tunnel.name);
        file.set("mtu", i64::from(tunnel.mtu));
        file.set("table", i64::from(tunnel.table));
        file.maybe("src_ipv4", tunnel.src_ipv4);
        file.maybe("src_ipv6", tunnel.src_ipv6);
        write_dataplane(&mut file, &self.dataplane);
        file.section("[log.console]");
        file.text("level", self.log.level.as_str());
        file.text(
            "format",
            match self.log.format {
                LogFormat::Human => "human",
                LogFormat::Json => "json",
            },
        );
        write_observe(&mut file, &self.observe);
        for remote in &self.remotes {
            write_remote(&mut file, remote);
        }
        file.0
    }

    /// The keys whose values differ from those of `other`, such as `dataplane.workers`.
    #[must_use]
    pub fn differences(&self, other: &Config) -> Vec<String> {
        let [ours, others] = [self, other].map(|config| {
            let table = config.to_toml().parse::<toml::Table>();
            // What is written here can be read.
            table.unwrap_or_default()
        });
        let mut keys = Vec::new();
        differences(&ours, &others, "", &mut keys);
        keys
    }

    fn write_gateway(&self, file: &mut File) {
        let gateway = &self.gateway;
        file.section("[gateway]");
        file.text("id", &gateway.id);
        // 0-0: the daemon knows.
        if !(self.control.is_some() && gateway.isd_as.0 == 0) {
            file.text("isd_as", gateway.isd_as);
        }
        file.text("data_addr", own_address(gateway.data_addr));
        if let Some(control) = &self.control {
            file.text("ctrl_addr", own_address(control.ctrl_addr));
            file.text("probe_addr", own_address(control.probe_addr));
            file.text("traffic_policy_file", control.traffic_policy_file.display());
            let routing = control.ip_routing_policy_file.as_deref();
            file.maybe(
                "ip_routing_policy_file",
                routing.map(std::path::Path::display),
            );
        }
        file.list("prefixes", &gateway.prefixes);
        file.text("status_socket", gateway.status_socket.display());
    }
}

fn differences(a: &toml::Table, b: &toml::Table, path: &str, keys: &mut Vec<String>) {
    let all: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let empty = toml::Table::new();
    for key in all {
        let path = format!("{path}{key}");
        match (a.get(key), b.get(key)) {
            (Some(Value::Table(a)), Some(Value::Table(b))) => {
                differences(a, b, &format!("{path}."), keys);
            }
            (Some(Value::Table(table)), None) | (None, Some(Value::Table(table))) => {
                differences(table, &empty, &format!("{path}."), keys);
            }
            (a, b) if a != b => keys.push(path),
            _ => {}
        }
    }
}

fn write_control(file: &mut File, control: &Control) {
    file.section("[sciond_connection]");
    file.text("address", &control.daemon);
    file.section("[rpc]");
    let protocols = |protocols| match protocols {
        RpcProtocols::Grpc => "grpc",
        RpcProtocols::Connect => "connectrpc",
        RpcProtocols::All => "all",
    };
    file.text("client_protocol", protocols(control.client_protocol));
    file.text("server_protocol", protocols(control.server_protocol));
    file.section("[control]");
    file.text(
        "endhost_port",
        match control.endhost_port {
            EndhostPort::Auto => "auto",
            EndhostPort::Own => "own",
            EndhostPort::Shared => "shared",
        },
    );
    file.time("probe_interval", control.probe_interval);
    file.time("probe_timeout", control.probe_timeout);
    file.time("switch_delay", control.switch_delay);
    file.text(
        "default_route",
        match control.default_route {
            DefaultRoute::Accept => "accept",
            DefaultRoute::Refuse => "refuse",
        },
    );
    file.time("path_interval", control.path_interval);
    let limits = &control.limits;
    file.section("[control.limits]");
    file.set("gateways_per_as", i64::from(limits.gateways_per_as));
    file.set(
        "prefixes_per_gateway",
        i64::from(limits.prefixes_per_gateway),
    );
    file.set("message_bytes", i64::from(limits.message_bytes));
    file.set("connections", i64::from(limits.connections));
    file.set("paths_per_as", i64::from(limits.paths_per_as));
}

fn write_dataplane(file: &mut File, dataplane: &Dataplane) {
    let wish = |wish| match wish {
        Wish::Auto => "auto",
        Wish::Never => "never",
        Wish::Require => "require",
    };
    file.section("[dataplane]");
    file.text("underlay", dataplane.underlay.as_deref().unwrap_or("auto"));
    match &dataplane.underlay_sources {
        UnderlaySources::Routers => file.text("underlay_sources", "routers"),
        UnderlaySources::Any => file.text("underlay_sources", "any"),
        UnderlaySources::RoutersAnd(prefixes) => file.list("underlay_sources", prefixes),
    }
    file.list("lan", &dataplane.lan);
    file.text(
        "lan_transmit",
        match dataplane.lan_transmit {
            LanTransmit::Auto => "auto",
            LanTransmit::Helper => "helper",
            LanTransmit::Kernel => "kernel",
        },
    );
    file.set("workers", i64::from(dataplane.workers));
    file.text(
        "mode",
        match dataplane.mode {
            XdpMode::Auto => "auto",
            XdpMode::Native => "native",
            XdpMode::Generic => "generic",
        },
    );
    file.text("zero_copy", wish(dataplane.zero_copy));
    file.set("ring_size", i64::from(dataplane.ring_size));
    match dataplane.chunks {
        Some(chunks) => file.set("chunks", i64::from(chunks)),
        None => file.text("chunks", "auto"),
    }
    file.text("huge_pages", wish(dataplane.huge_pages));
    file.set("busy_poll", dataplane.busy_poll);
    match &dataplane.pin {
        Pin::Auto => file.text("pin", "auto"),
        Pin::Never => file.text("pin", "never"),
        Pin::Cpus(cpus) => {
            let cpus = cpus.iter().map(|cpu| Value::Integer(i64::from(*cpu)));
            file.set("pin", Value::Array(cpus.collect()));
        }
    }
    file.set("verify_checksums", dataplane.verify_checksums);
    file.set("reorder_frames", i64::from(dataplane.reorder_frames));
    file.time("reorder_wait", dataplane.reorder_wait);
    let limits = &dataplane.limits;
    file.section("[dataplane.limits]");
    file.set("streams_per_remote", i64::from(limits.streams_per_remote));
    file.set("streams_total", i64::from(limits.streams_total));
    file.set("packets_per_remote", i64::from(limits.packets_per_remote));
    file.set("packets_total", i64::from(limits.packets_total));
    file.set("held_per_remote", i64::from(limits.held_per_remote));
    file.set("held_total", i64::from(limits.held_total));
    file.time("packet_timeout", limits.packet_timeout);
    file.time("stream_timeout", limits.stream_timeout);
}

fn write_observe(file: &mut File, observe: &Observe) {
    let servers = [
        ("[metrics]", "prometheus", observe.prometheus),
        ("[api]", "addr", observe.api),
    ];
    for (section, key, address) in servers {
        let Some(listen) = address else {
            continue;
        };
        file.section(section);
        file.text(key, listen.address);
        file.set("allow_remote", listen.allow_remote);
    }
}

fn write_remote(file: &mut File, remote: &Remote) {
    file.section("[[remote]]");
    file.text("isd_as", remote.isd_as);
    file.text("gateway", remote.gateway);
    file.set("session", i64::from(remote.session));
    file.list("prefixes", &remote.prefixes);
    for Path {
        name,
        raw,
        made,
        next_hop,
        mtu,
        source_port,
    } in &remote.paths
    {
        file.section("[[remote.path]]");
        file.text("name", name);
        if let Some(made) = made {
            file.text("network", made.file.display());
            file.list("via", &made.via);
        } else if raw.is_empty() {
            file.text("path_type", "empty");
        } else {
            file.text("raw", to_hex(raw));
        }
        file.text("next_hop", next_hop);
        file.set("mtu", i64::from(*mtu));
        file.set("source_port", i64::from(*source_port));
    }
}

/// An unspecified address is to be found out, which an empty host says.
fn own_address(address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        format!(":{}", address.port())
    } else {
        address.to_string()
    }
}

/// A file being written.
struct File(String);

impl File {
    fn section(&mut self, header: &str) {
        let gap = if self.0.is_empty() { "" } else { "\n" };
        let _ = writeln!(self.0, "{gap}{header}");
    }

    fn set(&mut self, key: &str, value: impl Into<Value>) {
        let _ = writeln!(self.0, "{key} = {}", value.into());
    }

    fn text(&mut self, key: &str, value: impl Display) {
        self.set(key, value.to_string());
    }

    fn maybe(&mut self, key: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.text(key, value);
        }
    }

    fn time(&mut self, key: &str, value: Duration) {
        self.text(key, show_duration(value));
    }

    fn list(&mut self, key: &str, values: &[impl Display]) {
        let values = values.iter().map(|value| Value::String(value.to_string()));
        self.set(key, Value::Array(values.collect()));
    }
}
