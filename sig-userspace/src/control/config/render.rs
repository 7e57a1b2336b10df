//! A configuration as a file again, with every default filled in.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use toml::Value;

use super::Observe;
use super::model::{Config, Control, Path, Remote};
use sig_core::document::section::File;
use sig_core::notation::to_hex;

impl Config {
    /// The configuration as TOML, in the order of the sample. Reading it gives the same configuration; path
    /// files are written out.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut file = File::default();
        self.write_gateway(&mut file);
        if let Some(control) = &self.control {
            write_control(&mut file, control);
        }
        file.section("[tunnel]");
        self.tunnel.write(&mut file);
        file.section("[dataplane]");
        self.dataplane.write(&mut file);
        file.section("[dataplane.limits]");
        self.dataplane.limits.write(&mut file);
        file.section("[log.console]");
        self.log.write(&mut file);
        write_observe(&mut file, &self.observe);
        for remote in &self.remotes {
            write_remote(&mut file, remote);
        }
        file.finish()
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
        gateway.write(file);
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
        if !gateway.status_socket.as_os_str().is_empty() {
            file.text("status_socket", gateway.status_socket.display());
        }
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
    control.rpc.write(file);
    file.section("[control]");
    control.discovery.write(file);
    file.section("[control.limits]");
    control.discovery.limits.write(file);
    file.section("[protection]");
    control.protection.general.write(file);
    for (isd_as, remote) in &control.protection.remotes {
        file.section("[[protection.remote]]");
        file.text("isd_as", isd_as);
        file.text("mode", remote.mode.word());
        file.list("pins", &remote.pins);
    }
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
        if !name.is_empty() {
            file.text("name", name);
        }
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
        if *source_port != 0 {
            file.set("source_port", i64::from(*source_port));
        }
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
