//! The examples of `docs/policies.md` are read, and do what the page says.

use std::{collections::BTreeMap, fs, net::SocketAddr, path::Path as FilePath};

use ipnet::IpNet;
use sig_common::{addr::IsdAs, wire::inner::InnerPacket};
use sig_core::{
    policy::{
        routing::{self, RoutingPolicy},
        traffic::{self, AsPolicy, SessionPolicy, TrafficPolicy},
    },
    scion::{Interface, Path},
};

/// A fenced block of the page: its kind, the line it starts at, and its text.
struct Block {
    kind: String,
    line: usize,
    text: String,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut inside = false;
    for (line, text) in (1..).zip(page.lines()) {
        match text.strip_prefix("```") {
            Some(kind) if !inside => blocks.push(Block {
                kind: kind.to_owned(),
                line,
                text: String::new(),
            }),
            Some(_) => {}
            None => {
                if let (true, Some(block)) = (inside, blocks.last_mut()) {
                    block.text.push_str(text);
                    block.text.push('\n');
                }
                continue;
            }
        }
        inside = !inside;
    }
    blocks
}

/// What the blocks read so far have defined.
#[derive(Default)]
struct Page {
    traffic: TrafficPolicy,
    routing: RoutingPolicy,
    paths: BTreeMap<String, Path>,
}

impl Page {
    fn run(&mut self, block: &Block) {
        let file = format!("docs/policies.md, block at line {}", block.line);
        match block.kind.as_str() {
            "json traffic-policy" => {
                let (policy, warnings) =
                    traffic::check(&block.text, &file).unwrap_or_else(|errors| panic!("{errors}"));
                assert_eq!(warnings, []);
                self.traffic = policy;
                self.paths.clear();
            }
            "text routing-policy" => {
                self.routing =
                    routing::check(&block.text, &file).unwrap_or_else(|errors| panic!("{errors}"));
            }
            "text packets" => block.text.lines().for_each(|line| self.packet(line)),
            "text paths" => self.paths.extend(block.text.lines().map(path)),
            "text used" => block.text.lines().for_each(|line| self.used(line)),
            "text announcements" => block.text.lines().for_each(|line| self.announcement(line)),
            other => panic!("{file}: nothing is known of blocks of {other}"),
        }
    }

    fn remote<'a>(&self, line: &'a str) -> (&AsPolicy, &'a str) {
        let (isd_as, rest) = line.split_once(' ').expect(line);
        (
            &self.traffic.ases[&isd_as.parse().expect(line)],
            rest.trim_start(),
        )
    }

    /// `ISD-AS  udp|tcp SOURCE > DESTINATION [tos 0xHH]  NAME OF POLICY`
    fn packet(&self, line: &str) {
        let (remote, rest) = self.remote(line);
        let (packet, name) = rest.split_once("  ").expect(line);
        let words: Vec<&str> = packet.split(' ').collect();
        let (kind, source, destination, tos) = match words[..] {
            [kind, source, ">", destination] => (kind, source, destination, "0x0"),
            [kind, source, ">", destination, "tos", tos] => (kind, source, destination, tos),
            _ => panic!("{line}"),
        };
        let protocol = match kind {
            "tcp" => 6,
            "udp" => 17,
            _ => panic!("{line}"),
        };
        let tos = u8::from_str_radix(&tos[2..], 16).expect(line);
        let ends = (
            source.parse().expect(line),
            destination.parse().expect(line),
        );
        let bytes = ip_packet(protocol, tos, ends.0, ends.1);
        let packet = InnerPacket::parse(&bytes[..]).expect(line);
        let mut policies = remote.policies.iter();
        let policy = policies.find(|policy| policy.condition.matches(&packet));
        assert_eq!(
            policy.map(|policy| policy.name.as_str()),
            Some(name.trim()),
            "{line}"
        );
    }

    /// `ISD-AS NAME-OF-POLICY  NAMES OF PATHS`
    fn used(&self, line: &str) {
        let (remote, rest) = self.remote(line);
        let mut words = rest.split_whitespace();
        let name = words.next().expect(line);
        let policy = remote.policies.iter().find(|policy| policy.name == name);
        let weight = |path: &Path| {
            policy
                .map(|policy: &SessionPolicy| policy.weigh(path))
                .expect(line)
        };
        let best = self.paths.values().filter_map(weight).max();
        let used = self
            .paths
            .iter()
            .filter(|(_, path)| best.is_some() && weight(path) == best);
        let mut used: Vec<&str> = used.map(|(name, _)| name.as_str()).collect();
        let mut expected: Vec<&str> = words.collect();
        used.sort_unstable();
        expected.sort_unstable();
        assert_eq!(used, expected, "{line}");
    }

    /// `FROM > TO  PREFIXES  believed: PREFIXES` or `FROM > TO  announced: PREFIXES`
    fn announcement(&self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [from, ">", to, rest @ ..] = &words[..] else {
            panic!("{line}")
        };
        let (from, to): (IsdAs, IsdAs) = (from.parse().expect(line), to.parse().expect(line));
        let nets = |words: &[&str]| -> Vec<IpNet> {
            words.iter().map(|word| word.parse().expect(line)).collect()
        };
        let at = rest
            .iter()
            .position(|word| word.ends_with(':'))
            .expect(line);
        let (before, expected) = (nets(&rest[..at]), nets(&rest[at + 1..]));
        match rest[at] {
            "believed:" => {
                assert_eq!(
                    self.routing.accept(from, to, &before).prefixes,
                    expected,
                    "{line}"
                );
            }
            "announced:" => assert_eq!(self.routing.advertised(from, to), expected, "{line}"),
            _ => panic!("{line}"),
        }
    }
}

/// `NAME  INTERFACES`
fn path(line: &str) -> (String, Path) {
    let (name, interfaces) = line.split_once(' ').expect(line);
    let interfaces = interfaces.split_whitespace().map(|interface| {
        let (isd_as, id) = interface.split_once('#').expect(line);
        Interface {
            isd_as: isd_as.parse().expect(line),
            id: id.parse().expect(line),
        }
    });
    let path = Path {
        interfaces: interfaces.collect(),
        ..Path::configured(&[], "192.0.2.1:30042".parse().expect("an address"), 1400)
    };
    (name.to_owned(), path)
}

fn ip_packet(protocol: u8, tos: u8, source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let mut packet = match (source, destination) {
        (SocketAddr::V4(source), SocketAddr::V4(destination)) => {
            let mut header = vec![0x45, tos, 0, 28, 0, 0, 0, 0, 64, protocol, 0, 0];
            header.extend(source.ip().octets());
            header.extend(destination.ip().octets());
            header
        }
        (SocketAddr::V6(source), SocketAddr::V6(destination)) => {
            let mut header = vec![0x60 | tos >> 4, tos << 4, 0, 0, 0, 8, protocol, 64];
            header.extend(source.ip().octets());
            header.extend(destination.ip().octets());
            header
        }
        _ => panic!("{source} and {destination} are of different versions"),
    };
    packet.extend(source.port().to_be_bytes());
    packet.extend(destination.port().to_be_bytes());
    packet.extend([0; 4]);
    packet
}

#[test]
fn the_examples_do_what_the_page_says() {
    let file = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("../docs/policies.md");
    let text = fs::read_to_string(&file).expect("docs/policies.md");
    let mut page = Page::default();
    let blocks = blocks(&text);
    for block in &blocks {
        page.run(block);
    }
    let count = |kind: &str| blocks.iter().filter(|block| block.kind == kind).count();
    // So that a page without examples does not pass.
    for (kind, least) in [
        ("json traffic-policy", 5),
        ("text packets", 3),
        ("text used", 2),
        ("text routing-policy", 1),
        ("text announcements", 1),
    ] {
        assert!(count(kind) >= least, "{kind}");
    }
}
