//! The files that the reference implementation reads.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};
use testbed::{Family, Network, Site};

use super::super::End;
use crate::throughput::reference::Programs;

macro_rules! templates {
    ($($name:literal),*) => {
        [$(($name, include_str!(concat!("../../../../reference/", $name)))),*]
    };
}

/// Files of an AS, and templates of what is in them.
const FILES: [(&str, &str); 8] = templates![
    "topology.json",
    "router.toml",
    "control.toml",
    "daemon.toml",
    "dispatcher.toml",
    "gateway.toml",
    "traffic.policy",
    "ip-routing.policy"
];

/// For certificates and keys.
const CRYPTO: &str = include_str!("../../../../reference/network.topo");

/// Sixteen bytes in base64. They protect nothing: the network is for measuring.
const MASTER_KEYS: [(&str, &str); 2] = [
    ("master0.key", "AAECAwQFBgcICQoLDA0ODw=="),
    ("master1.key", "EBESExQVFhcYGRobHB0eHw=="),
];

/// Writes everything and returns the folders of both ASes, in which the programs run.
pub(super) fn write(network: &Network, programs: &Programs) -> Result<[PathBuf; 2]> {
    let crypto = make_crypto(network, programs)?;
    let folder = |end: End| -> Result<PathBuf> {
        let own = end.site(network);
        let folder = network.folder().join(format!("as-{}", as_number(own)));
        for part in ["cache", "keys", "certs"] {
            fs::create_dir_all(folder.join(part))?;
        }
        for (name, key) in MASTER_KEYS {
            fs::write(folder.join("keys").join(name), key)?;
        }
        let of_as = crypto.join(format!("AS{}", as_number(own)));
        copy(&of_as.join("crypto"), &folder.join("crypto"))?;
        copy(&crypto.join("trcs"), &folder.join("certs"))?;
        let facts = facts(network, end);
        for (name, template) in FILES {
            fs::write(folder.join(name), fill(template, &facts)?)?;
        }
        Ok(folder)
    };
    Ok([folder(End::A)?, folder(End::B)?])
}

/// Has certificates and keys made.
fn make_crypto(network: &Network, programs: &Programs) -> Result<PathBuf> {
    let folder = network.folder().join("crypto");
    let topology = network.folder().join("network.topo");
    fs::write(&topology, fill(CRYPTO, &facts(network, End::A))?)?;
    let output = Command::new(programs.path("scion-pki"))
        .arg("testcrypto")
        .arg("--topo")
        .arg(&topology)
        .arg("--out")
        .arg(&folder)
        .output()
        .context("`scion-pki` of the reference does not start")?;
    if !output.status.success() {
        bail!(
            "`scion-pki testcrypto`: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(folder)
}

/// What stands between `@` in the templates.
fn facts(network: &Network, end: End) -> Vec<(&'static str, String)> {
    let (own, far) = match end {
        End::A => (&network.a, &network.b),
        End::B => (&network.b, &network.a),
    };
    let of_end = |a: &str, b: &str| match end {
        End::A => a.to_owned(),
        End::B => b.to_owned(),
    };
    let prefixes = |site: &Site| Family::ALL.map(|family| site.prefix(family)).join(",");
    vec![
        ("A", network.a.isd_as().into()),
        ("B", network.b.isd_as().into()),
        ("OWN", own.isd_as().into()),
        ("FAR", far.isd_as().into()),
        ("ATTRIBUTES", of_end("\"core\"", "")),
        ("INTERFACE", of_end("1", "41")),
        ("LINK_TO", of_end("CHILD", "PARENT")),
        ("CA", of_end("in-process", "disabled")),
        ("ROUTER", own.router_inside().ip().to_string()),
        ("INSIDE", own.router_inside().to_string()),
        ("OUTSIDE", own.router_outside().to_string()),
        ("FAR_OUTSIDE", far.router_outside().to_string()),
        ("GATEWAY", own.data_addr().ip().to_string()),
        ("DATA", own.data_addr().to_string()),
        ("OWN_PREFIXES", prefixes(own)),
        ("FAR_PREFIXES", prefixes(far)),
    ]
}

/// Puts the facts into a template.
fn fill(template: &str, facts: &[(&str, String)]) -> Result<String> {
    let mut text = template.to_owned();
    for (name, value) in facts {
        text = text.replace(&format!("@{name}@"), value);
    }
    if let Some(rest) = text.split('@').nth(1) {
        bail!("a template of the reference has an unknown name: {rest}");
    }
    Ok(text)
}

/// `1-ff00:0:110` in names of files: `ff00_0_110`.
fn as_number(site: &Site) -> String {
    let (_, number) = site.isd_as().split_once('-').unwrap_or_default();
    number.replace(':', "_")
}

/// Copies a folder with what is in it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    let entries = fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))?;
    for entry in entries {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_filled_in_and_unknown_ones_found() {
        let facts = [("A", "1-ff00:0:110".to_owned()), ("B", "x".to_owned())];
        let text = fill("a = \"@A@\" # @B@@A@", &facts).unwrap();
        assert_eq!(text, "a = \"1-ff00:0:110\" # x1-ff00:0:110");
        let error = fill("@C@", &facts).unwrap_err();
        assert!(error.to_string().ends_with("name: C"), "{error}");
    }
}
