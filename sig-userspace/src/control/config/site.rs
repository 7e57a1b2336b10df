//! A tunnel in one short file, of which the configuration of a gateway is made.
//!
//! ```toml
//! lan      = "eth1"
//! prefixes = ["192.168.10.0/24"]
//! topology = ["AS110/topology.json", "AS111/topology.json"]
//!
//! [peer]
//! isd_as   = "1-ff00:0:111"
//! gateway  = "10.11.0.2"
//! prefixes = ["192.168.11.0/24"]
//! ```

use std::{
    cell::Cell,
    fmt::Write as _,
    io,
    net::{IpAddr, SocketAddr, UdpSocket},
    path::Path as FilePath,
    time::SystemTime,
};

use super::{Config, DEFAULT_DATA_PORT, Errors, Problem, ReadFile, check_at};
use sig_core::{
    document::{
        self,
        common::isd_as,
        schema::Schema,
        toml::{Item, Section},
        values,
    },
    network::{self, Description},
    problem::Report,
    scion::network::NetworkPath,
};

const SCHEMA: &Schema = &Schema(&[
    (
        "",
        &[&["lan", "prefixes", "topology", "keys", "address", "peer"]],
    ),
    ("peer", &[&["isd_as", "gateway", "prefixes"]]),
]);

/// The name by which the configuration calls the description of the network.
const NETWORK: &str = "network.toml";

/// The address of this host that packets to a border router come from.
type OwnAddress<'a> = &'a dyn Fn(SocketAddr) -> io::Result<IpAddr>;

/// The files that a short one stands for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// The configuration of the gateway.
    pub(crate) config: String,
    /// The description of the network, which that names `network.toml`.
    pub(crate) network: String,
}

/// Whether this is such a file, and no whole configuration.
pub(super) fn is_site(text: &str) -> bool {
    let table = text.parse::<toml::Table>().unwrap_or_default();
    ["peer", "topology"]
        .iter()
        .any(|key| table.contains_key(*key))
}

/// The configuration that such a file stands for. Arguments are those of [`check_at`], but for `own_address`.
///
/// # Errors
///
/// As there; problems have the keys and lines of the short file.
pub(super) fn check(
    text: &str,
    file: &str,
    read_file: ReadFile<'_>,
    own_address: OwnAddress<'_>,
    now: Option<SystemTime>,
) -> Result<(Config, Written), Errors> {
    let report = Report::new(file, text);
    let Some(table) = document::toml::parse(&report, text, document::LONGEST_FILE) else {
        return Err(Errors::new(report.take().0));
    };
    let root = Section::root(&report, table.get_ref(), SCHEMA);
    let no_way = Cell::new(false);
    let own_address = |to| own_address(to).inspect_err(|_| no_way.set(true));
    let found = write(&root, file, read_file, &own_address);
    let errors = report.take().0;
    let (written, mut more) = match found {
        Ok(written) => (written, Vec::new()),
        Err(problems) => (None, problems),
    };
    more.extend(errors);
    let Some(written) = written.filter(|_| more.is_empty()) else {
        let is_alone = more.len() == 1;
        let errors = Errors::new(more);
        return Err(if no_way.get() && is_alone {
            errors.of_host()
        } else {
            errors
        });
    };
    let read = |name: &FilePath| match name.to_str() {
        Some(NETWORK) => Ok(written.network.clone().into_bytes()),
        _ => read_file(name),
    };
    match check_at(&written.config, file, &read, now) {
        Ok(mut config) => {
            let warnings = std::mem::take(&mut config.warnings);
            config.warnings = in_site(&root, warnings);
            Ok((config, written))
        }
        Err(errors) => {
            let warnings = in_site(&root, errors.warnings().to_vec());
            let errors = in_site(&root, errors.problems().to_vec());
            Err(Errors::new(errors).with_warnings(warnings))
        }
    }
}

/// The id of its gateway: the name of the file.
pub(super) fn id(file: &FilePath) -> String {
    let stem = file.file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}

/// Of a socket that would send there.
pub(super) fn own_address(to: SocketAddr) -> io::Result<IpAddr> {
    let any: SocketAddr = match to {
        SocketAddr::V4(_) => ([0; 4], 0).into(),
        SocketAddr::V6(_) => ([0; 16], 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(to)?;
    Ok(socket.local_addr()?.ip())
}

/// `None` if something is reported; an error are problems of the topologies.
fn write(
    root: &Section<'_>,
    file: &str,
    read_file: ReadFile<'_>,
    own_address: OwnAddress<'_>,
) -> Result<Option<Written>, Vec<Problem>> {
    let lan = root
        .require("lan", "the interface towards the IP hosts, lan = \"eth1\"")
        .and_then(|item| texts(&item, "\"eth1\""));
    let prefixes = root
        .require(
            "prefixes",
            "the IP prefixes served here, for example prefixes = [\"192.168.10.0/24\"]",
        )
        .and_then(|item| texts(&item, "[\"192.168.10.0/24\"]"));
    let topology = root.require(
        "topology",
        "the topology files of this AS, of the peer's, and of those between, topology = [\"AS110/topology.json\", \
         \"AS111/topology.json\"]",
    );
    let topologies = topology
        .as_ref()
        .and_then(|item| texts(item, "[\"AS110/topology.json\", \"AS111/topology.json\"]"));
    let keys = match root.get("keys") {
        None => Some(Vec::new()),
        Some(item) => {
            let keys = texts(
                &item,
                "[\"AS110/keys/master0.key\", \"AS111/keys/master0.key\"]",
            );
            keys.filter(|keys| {
                let expected = topologies.as_ref().map_or(keys.len(), Vec::len);
                let fits = keys.len() == expected;
                if !fits {
                    item.place.error(format!(
                        "{} keys for {expected} topologies; write one for each, in the same order",
                        keys.len()
                    ));
                }
                fits
            })
        }
    };
    let address = match root.get("address") {
        None => Some(None),
        Some(item) => item
            .parse("\"10.10.0.2\"", |text| {
                match values::address(text, DEFAULT_DATA_PORT)? {
                    (Some(host), port) => Ok(SocketAddr::new(host, port)),
                    (None, _) => Err(
                        "no host; write the address of this host towards the border router"
                            .to_owned(),
                    ),
                }
            })
            .map(Some),
    };
    let peer = root.section("peer");
    let peer_as = peer
        .require("isd_as", "the peer's AS, isd_as = \"1-ff00:0:111\"")
        .and_then(|item| Some((isd_as(&item)?, item.place)));
    let gateway = peer
        .require(
            "gateway",
            "the address of the peer's gateway, gateway = \"10.11.0.2\"",
        )
        .and_then(|item| item.text("\"10.11.0.2\""));
    let peer_prefixes = peer
        .require(
            "prefixes",
            "the IP prefixes behind the peer, for example prefixes = [\"192.168.11.0/24\"]",
        )
        .and_then(|item| texts(&item, "[\"192.168.11.0/24\"]"));

    let (Some(topologies), Some(keys)) = (&topologies, &keys) else {
        return Ok(None);
    };
    let mut text = String::new();
    for (number, topology) in topologies.iter().enumerate() {
        let _ = writeln!(text, "[[as]]\ntopology = {}", quoted(topology));
        if let Some(key) = keys.get(number) {
            let _ = writeln!(text, "master_key_file = {}", quoted(key));
        }
    }
    // In the folder of the file, as all that it names.
    let network_file = FilePath::new(file).with_file_name(NETWORK);
    let network_file = network_file.display().to_string();
    let description = network::check(&text, &network_file, read_file).map_err(|errors| {
        let problems = errors.problems().to_vec();
        let (ours, others) = problems
            .into_iter()
            .partition(|problem| problem.file == network_file);
        let mut problems = in_site(root, ours);
        problems.extend::<Vec<Problem>>(others);
        problems
    })?;
    let (
        Some(lan),
        Some(prefixes),
        Some(address),
        Some((peer_as, place)),
        Some(gateway),
        Some(peer_prefixes),
    ) = (lan, prefixes, address, peer_as, gateway, peer_prefixes)
    else {
        return Ok(None);
    };
    let Some(own) = description.network.ases().first().map(|own| own.isd_as) else {
        return Ok(None);
    };
    if own == peer_as {
        place.error("is this AS, which the first topology describes; write the peer's AS");
        return Ok(None);
    }
    let address = match first_path(&description, own, peer_as) {
        Err(problem) => {
            place.error(problem);
            return Ok(None);
        }
        Ok(path) => address.map_or_else(|| from_here(&description, &path, own_address), Ok),
    };
    let address = match address {
        Ok(address) => address,
        Err(problem) => {
            root.place.below("address").error(problem);
            return Ok(None);
        }
    };
    let config = format!(
        "[gateway]\nid = {}\nisd_as = \"{own}\"\ndata_addr = \"{address}\"\nprefixes = {}\n\n[dataplane]\nlan = {}\n\n\
         [[remote]]\nisd_as = \"{peer_as}\"\ngateway = {}\nprefixes = {}\n\n[[remote.path]]\nnetwork = \"{NETWORK}\"\n",
        quoted(&id(FilePath::new(file))),
        array(&prefixes),
        array(&lan),
        quoted(gateway),
        array(&peer_prefixes),
    );
    Ok(Some(Written {
        config,
        network: text,
    }))
}

fn first_path(
    description: &Description,
    own: sig_common::addr::IsdAs,
    peer: sig_common::addr::IsdAs,
) -> Result<NetworkPath, String> {
    let paths = description
        .network
        .paths(own, peer, description.validity(0));
    let paths = paths.map_err(|error| format!("{error}; add its topology to `topology`"))?;
    let first = paths.into_iter().next();
    first.ok_or_else(|| {
        format!("there is no path from {own} to {peer}; add the topologies of the ASes between them to `topology`")
    })
}

/// Where the gateway is, if the file does not say it.
fn from_here(
    description: &Description,
    path: &NetworkPath,
    own_address: OwnAddress<'_>,
) -> Result<SocketAddr, String> {
    const REMEDY: &str =
        "write the address of this host towards the border router, address = \"10.10.0.2\"";
    let router = description
        .next_hop(path)
        .ok_or_else(|| format!("missing; {REMEDY}"))?;
    own_address(router)
        .map(|ip| SocketAddr::new(ip, DEFAULT_DATA_PORT))
        .map_err(|error| {
            format!("there is no way to the border router {router} from here ({error}); {REMEDY}")
        })
}

/// A text, or an array of texts.
fn texts<'a>(item: &Item<'a>, example: &str) -> Option<Vec<&'a str>> {
    item.one_or_more(example)?
        .iter()
        .map(|item| item.text(example))
        .collect()
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

fn array(texts: &[&str]) -> String {
    toml::Value::from(texts.to_vec()).to_string()
}

/// Problems of what was made of the file, as those of the file.
fn in_site(root: &Section<'_>, problems: Vec<Problem>) -> Vec<Problem> {
    const PLACES: [(&str, &str, &str); 8] = [
        ("gateway.prefixes", "", "prefixes"),
        ("gateway.data_addr", "", "address"),
        ("dataplane.lan", "", "lan"),
        ("remote[0].path", "", "topology"),
        ("remote[0].isd_as", "peer", "isd_as"),
        ("remote[0].gateway", "peer", "gateway"),
        ("remote[0].prefixes", "peer", "prefixes"),
        ("as[", "", "topology"),
    ];
    let moved = |mut problem: Problem| {
        root.place.file().clone_into(&mut problem.file);
        problem.line = 1;
        let is_key = problem.key.ends_with("].master_key_file");
        let place = PLACES.iter().find(|(key, ..)| problem.key.starts_with(key));
        if let Some((from, section, key)) = place {
            let (rest, key) = match (*from, is_key) {
                ("as[", true) => ("", "keys"),
                ("as[" | "remote[0].path", _) => ("", *key),
                _ => (&problem.key[from.len()..], *key),
            };
            let section = match *section {
                "" => root,
                _ => &root.section("peer"),
            };
            let place = section
                .get(key)
                .map_or(section.place.clone(), |item| item.place);
            problem.line = place.line().max(1);
            problem.key = format!("{}{rest}", section.place.below(key).key);
        }
        problem
    };
    problems.into_iter().map(moved).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"lan = "eth1"
prefixes = ["192.168.10.0/24"]
topology = ["a/topology.json", "b/topology.json"]
[peer]
isd_as = "1-ff00:0:111"
gateway = "10.11.0.2"
prefixes = ["192.168.11.0/24"]
"#;

    fn topology(own: u16, other: u16, link_to: &str) -> Vec<u8> {
        format!(
            r#"{{"isd_as": "1-ff00:0:{own}", "mtu": 1400, "attributes": [{}], "border_routers": {{"br": {{
            "internal_addr": "10.{own}.0.1:30042", "interfaces": {{"1": {{
            "isd_as": "1-ff00:0:{other}", "link_to": "{link_to}"}}}}}}}}}}"#,
            if link_to == "child" { "\"core\"" } else { "" }
        )
        .into_bytes()
    }

    fn read(name: &FilePath) -> io::Result<Vec<u8>> {
        match name.to_str() {
            Some("a/topology.json") => Ok(topology(110, 111, "child")),
            Some("b/topology.json") => Ok(topology(111, 110, "parent")),
            Some("a/keys/master0.key" | "b/keys/master0.key" | "x.key") => Ok(b"MjIyMg==".to_vec()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn site(text: &str) -> Result<(Config, Written), Errors> {
        let own = |to: SocketAddr| {
            assert_eq!(to, "10.110.0.1:30042".parse().unwrap());
            Ok("10.110.0.2".parse().unwrap())
        };
        assert!(is_site(text));
        check(text, "/etc/sig/west.toml", &read, &own, None)
    }

    #[test]
    fn a_short_file_is_a_whole_configuration() {
        let (config, _) = site(GOOD).unwrap();
        assert_eq!(config.gateway.id, "west");
        assert_eq!(config.gateway.isd_as, "1-ff00:0:110".parse().unwrap());
        assert_eq!(
            config.gateway.data_addr,
            "10.110.0.2:30056".parse().unwrap()
        );
        assert_eq!(config.dataplane.lan, ["eth1"]);
        let path = &config.remotes[0].paths[0];
        assert_eq!(
            (path.next_hop, path.mtu),
            ("10.110.0.1:30042".parse().unwrap(), 1400)
        );
        assert!(path.made.is_some() && config.warnings().is_empty());

        let more = GOOD.replace("lan = \"eth1\"", "lan = [\"eth1\", \"eth2\"]\naddress = \"10.110.0.7:77\"\nkeys = [\"x.key\", \"x.key\"]");
        let (config, written) = site(&more).unwrap();
        assert_eq!(config.gateway.data_addr, "10.110.0.7:77".parse().unwrap());
        assert_eq!(config.dataplane.lan.len(), 2);
        assert_eq!(
            written
                .network
                .matches("master_key_file = \"x.key\"")
                .count(),
            2
        );
    }

    #[test]
    fn a_host_without_a_way_to_the_border_router_is_no_mistake_in_the_file() {
        let none = |_| Err(io::ErrorKind::NetworkUnreachable.into());
        let site = |text: &str| check(text, "/etc/sig/west.toml", &read, &none, None).unwrap_err();
        let error = site(GOOD);
        assert!(error.is_of_host());
        let text = error.to_string();
        let place = "west.toml:1: address: there is no way to the border router 10.110.0.1:30042";
        assert!(text.contains(place), "{text}");
        assert!(!site(&GOOD.replacen("lan", "mtu = 5\nlan", 1)).is_of_host());
    }

    #[test]
    fn problems_have_the_lines_and_keys_of_the_short_file() {
        for (from, to, expected) in [
            (
                "lan = \"eth1\"",
                "",
                "/etc/sig/west.toml:1: lan: missing; write the interface",
            ),
            (
                "topology =",
                "topolgy =",
                "3: topolgy: unknown key; did you mean \"topology\"?",
            ),
            (
                "a/topology",
                "c/topology",
                "3: topology: \"c/topology.json\" cannot be read",
            ),
            (
                ", \"b/topology.json\"",
                "",
                "5: peer.isd_as: 1-ff00:0:111 is not an AS of this network; add its topology",
            ),
            ("0:111\"", "0:110\"", "5: peer.isd_as: is this AS"),
            (
                "[\"192.168.10.0/24\"]",
                "[\"192.168.10.3/24\"]",
                "2: prefixes[0]: \"192.168.10.3/24\" has host bits set",
            ),
            (
                "192.168.11.0/24",
                "10.110.0.0/16",
                "7: peer.prefixes[0]: 10.110.0.0/16 contains",
            ),
            ("10.11.0.2", "10.11.0", "6: peer.gateway: "),
            (
                "[peer]",
                "keys = \"x.key\"\n[peer]",
                "4: keys: 1 keys for 2 topologies",
            ),
            (
                "[peer]",
                "keys = [\"x.key\", \"y.key\"]\n[peer]",
                "4: keys: \"y.key\" cannot be read",
            ),
        ] {
            let error = site(&GOOD.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
