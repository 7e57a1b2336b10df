//! Tunnels of one short file.

use std::path::PathBuf;
use std::process::Output;

use crate::bed::{Bed, assert_pings, sig};
use testbed::{Family, Network, Options, Site};

/// A site with its file. Its gateway ends with it.
struct Quick<'a> {
    site: &'a Site,
    file: PathBuf,
}

impl<'a> Quick<'a> {
    fn new(network: &'a Network, letters: [char; 2]) -> Self {
        let (site, peer) = match letters {
            ['a', _] => (&network.a, &network.b),
            _ => (&network.b, &network.a),
        };
        let prefixes = |site: &Site| {
            let families = [Family::V4, Family::V6];
            format!("{:?}", families.map(|family| site.prefix(family)))
        };
        let text = format!(
            "lan = \"lan\"\nprefixes = {}\ntopology = {:?}\n[peer]\nisd_as = \"{}\"\ngateway = \"{}\"\nprefixes = {}\n",
            prefixes(site),
            letters.map(|letter| format!("router-{letter}/topology.json")),
            peer.isd_as(),
            peer.data_addr().ip(),
            prefixes(peer),
        );
        let name = format!("sigt-{}-{}.toml", std::process::id(), letters[0]);
        let file = network.folder().join(name);
        std::fs::write(&file, text).expect("the file");
        Self { site, file }
    }

    fn run(&self, what: &str) -> Output {
        let mut command = self.site.gateway.command(sig());
        command.args(["quick", what]).arg(&self.file);
        command.output().expect("it runs")
    }

    /// What it printed, with success.
    fn told(&self, what: &str) -> String {
        let output = self.run(what);
        assert!(output.status.success(), "{what}: {output:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    }
}

impl Drop for Quick<'_> {
    fn drop(&mut self) {
        self.run("down");
        let name = self.file.file_stem().expect("a name").to_string_lossy();
        let _ = std::fs::remove_file(format!("/run/sig/{name}.log"));
    }
}

#[test]
fn two_short_files_are_a_tunnel() {
    let bed = Bed::new(&Options::default());
    let network = &bed.network;
    let (a, b) = (
        Quick::new(network, ['a', 'b']),
        Quick::new(network, ['b', 'a']),
    );
    for site in [&a, &b] {
        let told = site.told("up");
        assert!(told.starts_with("up: process "), "{told}");
    }
    for family in [Family::V4, Family::V6] {
        assert_pings(network, family, 20, 500);
    }
    let shown = a.told("show");
    let address = format!("data_addr = \"{}\"", network.a.data_addr());
    assert!(
        shown.contains(&address) && shown.contains("[[as]]"),
        "{shown}"
    );

    // Up again, it follows the file.
    assert_eq!(a.told("up"), "nothing changed\n");
    let text = std::fs::read_to_string(&a.file).expect("the file");
    let more = text.replace("\nprefixes = [", "\nprefixes = [\"10.77.0.0/24\", ");
    std::fs::write(&a.file, more.replacen("10.77", "10.78", 1)).expect("the file");
    let told = a.told("up");
    assert!(
        told.contains(": prefixes changed") && told.contains("served"),
        "{told}"
    );
    let route = network
        .a
        .gateway
        .exec("ip route show 10.77.0.0/24")
        .expect("`ip`");
    assert!(route.contains("dev sig"), "{route}");

    std::fs::write(&a.file, "lan = 5\ntopology = \"\"").expect("the file");
    let refused = a.run("up");
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        error.contains(".toml:1: lan: the number 5 found"),
        "{error}"
    );
    for site in [&a, &b] {
        assert_eq!(site.told("down"), "down\n");
        let left = site.site.gateway.interfaces().expect("`ip`");
        assert!(!left.iter().any(|name| name == "sig"), "{left:?}");
    }
    assert_eq!(a.run("down").status.code(), Some(1));
}
