//! What an operator sees for right and for wrong files.

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use super::*;
use crate::{Bfd, Owner, Sibling, model::LinkType};
use sig_core::scion::HopKey;

mod accepts;
mod refuses;

const OWN: &str = "[general]\nid = \"br-1\"\nconfig_dir = \"as\"\n";

const TOPOLOGY: &str = r#"{
  "isd_as": "1-ff00:0:110",
  "mtu": 1472,
  "attributes": ["core"],
  "dispatched_ports": "30000-32767",
  "control_service": {"cs-1": {"addr": "10.0.0.9:30252"}},
  "discovery_service": {"cs-1": {"addr": "[fd00::9]:30252"}},
  "border_routers": {
    "br-1": {
      "internal_addr": "10.0.0.1:30042",
      "interfaces": {
        "1": {
          "underlay": {"local": "192.0.2.1:50000", "remote": "192.0.2.2:50001"},
          "isd_as": "1-ff00:0:111", "link_to": "CHILD", "mtu": 1460
        },
        "2": {
          "underlay": {"public": "[2001:db8::1]:50000", "remote": "[2001:db8::2]:50000"},
          "isd_as": "2-64512", "link_to": "core", "remote_interface_id": 7,
          "bfd": {"detect_mult": 5, "desired_min_tx_interval": "1s"}
        }
      }
    },
    "br-2": {
      "internal_addr": "10.0.0.2:30042",
      "interfaces": {
        "3": {"isd_as": "1-ff00:0:112", "link_to": "peer", "mtu": 1300, "bfd": {"disable": true}}
      }
    }
  }
}
"#;

const KEY: &str = "dGVzdGtleV94eHh4eHh4eA==\n";

fn read(own: &str, topology: &str, key: &str) -> Result<(Settings, Vec<Problem>), Errors> {
    let files = HashMap::from([
        (PathBuf::from("conf/as/topology.json"), topology),
        (PathBuf::from("conf/as/keys/master0.key"), key),
    ]);
    check(
        own,
        "conf/br.toml",
        &|name| Path::new("conf").join(name),
        &|path| {
            let text = files.get(path);
            text.map(|text| text.as_bytes().to_vec())
                .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
        },
    )
}

fn good(own: &str, topology: &str) -> (Settings, Vec<String>) {
    let (settings, warnings) = read(own, topology, KEY).unwrap_or_else(|errors| panic!("{errors}"));
    (settings, warnings.iter().map(Problem::to_string).collect())
}

/// The messages for wrong files, one per line.
fn errors(own: &str, topology: &str, key: &str) -> String {
    read(own, topology, key)
        .expect_err("the files are wrong")
        .to_string()
}

/// The topology after one change.
fn with(from: &str, to: &str) -> String {
    assert!(TOPOLOGY.contains(from), "{from}");
    TOPOLOGY.replacen(from, to, 1)
}
