//! Namespaces, wires between them, and SR nodes in them.

use std::{
    collections::BTreeMap,
    fs,
    net::{IpAddr, Ipv6Addr},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    time::Duration,
};

use serde_json::Value;
use sig_linux::ethtool::{Ethtool, Offload};
use testbed::{Folder, Netns, Process};

use crate::support::{netns::wait_until, wire::PacketSocket};

/// No test waits this long unless something is broken.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// EtherType for a socket that sees all frames.
const ALL: u16 = 3;

pub(super) fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

/// Whether the test can run; what killed tests left is removed first.
pub(super) fn may_run() -> bool {
    let may = crate::support::netns::root_or_skip();
    if may {
        testbed::sweep();
    }
    may
}

/// A namespace that forwards and accepts segment routing headers at all devices made later.
pub(super) fn namespace(test: &str, name: &str) -> Netns {
    let netns = Netns::new(&format!("{test}-{name}")).unwrap();
    netns
        .set_sysctls(&[
            ("net/ipv4/ip_forward", "1"),
            ("net/ipv6/conf/all/forwarding", "1"),
            ("net/ipv6/conf/default/forwarding", "1"),
            ("net/ipv6/conf/all/seg6_enabled", "1"),
            ("net/ipv6/conf/default/seg6_enabled", "1"),
            // Functions are killed by taking a device down; their addresses are to be there afterwards.
            ("net/ipv6/conf/all/keep_addr_on_down", "1"),
            ("net/ipv6/conf/default/keep_addr_on_down", "1"),
            // Tests provoke more errors than a host sends.
            ("net/ipv6/icmp/ratelimit", "0"),
            ("net/ipv4/icmp_ratelimit", "0"),
        ])
        .unwrap();
    netns
}

/// One end of a wire: namespace, device and the last byte of its MAC address.
pub(super) type End<'a> = (&'a Netns, &'a str, u8);

pub(super) const fn mac(last: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, last]
}

fn mac_text(last: u8) -> String {
    format!("02:00:00:00:00:{last:02x}")
}

/// Bytes of IP packets on all wires: room for headers around packets of 1500 bytes.
pub(super) const MTU: u32 = 1800;

/// A wire that carries packets of XDP programs both ways, and no open checksums.
pub(super) fn wire(left: End<'_>, right: End<'_>) {
    left.0
        .ip(&format!(
            "link add {} address {} mtu {MTU} type veth peer name {} address {} mtu {MTU} netns {}",
            left.1,
            mac_text(left.2),
            right.1,
            mac_text(right.2),
            right.0.name(),
        ))
        .unwrap();
    for (netns, device, _) in [left, right] {
        netns.ip(&format!("link set {device} up")).unwrap();
        netns.run(|| offload(device)).unwrap();
    }
}

/// What comes out of an XDP program enters a veth pair only if the other end polls, which it does with GRO switched on while it is up.
fn offload(device: &str) {
    let ethtool = Ethtool::open().unwrap();
    let off = [
        Offload::GenericSegmentation,
        Offload::TcpSegmentation,
        Offload::TxChecksum,
        Offload::GenericReceive,
    ];
    for offload in off {
        ethtool.set_offload(device, offload, false).unwrap();
    }
    ethtool
        .set_offload(device, Offload::GenericReceive, true)
        .unwrap();
}

/// A socket that sees all frames that come in by a device.
pub(super) fn socket(netns: &Netns, device: &str) -> PacketSocket {
    netns.run(|| PacketSocket::open_here(device, ALL)).unwrap()
}

/// The first frame that satisfies `is_it`.
pub(super) fn frame_of(
    socket: &PacketSocket,
    what: &str,
    is_it: impl Fn(&[u8]) -> bool,
) -> Vec<u8> {
    let mut found = None;
    wait_until(what, PATIENCE, || {
        while let Some(frame) = socket.receive() {
            if is_it(&frame) {
                found = Some(frame);
                return true;
            }
        }
        false
    });
    found.unwrap()
}

/// Hosts `a` and `b`, kernel routers `r` and `s` beside them, and a node `n` of ours between those:
///
/// ```text
/// a ── r ── n ── s ── b
/// ```
///
/// a is 10.1.0.2 and fd00:1::2. b is 10.2.0.x and fd00:2::x for all x from 2 to [`Line::LAST`], so that every case can have a
/// destination of its own. Locators: fc00:11::/48 of r, fc00:22::/48 of n, fc00:33::/48 of s. Between r and n are fc00:1::2 and
/// fc00:1::1, between n and s fc00:2::1 and fc00:2::2; likewise 10.8.0.2 and .1, 10.9.0.1 and .2.
pub(super) struct Line {
    pub(super) a: Netns,
    pub(super) r: Netns,
    pub(super) n: Netns,
    pub(super) s: Netns,
    pub(super) b: Netns,
}

impl Line {
    /// Number of the last destination.
    pub(super) const LAST: u8 = 60;

    pub(super) fn new(test: &str) -> Self {
        let [a, r, n, s, b] = ["a", "r", "n", "s", "b"].map(|name| namespace(test, name));
        // The devices `ra` and `b0` have the same address: a frame to the one, carried inside packets, can end at the other.
        wire((&a, "a0", 0x0a), (&r, "ra", 0x77));
        wire((&r, "rn", 0x12), (&n, "nr", 0x21));
        wire((&n, "ns", 0x23), (&s, "sn", 0x32));
        wire((&s, "sb", 0x3b), (&b, "b0", 0x77));
        a.ip("link set a0 mtu 1500\n\
             addr add 10.1.0.2/24 dev a0\n\
             addr add fd00:1::2/64 dev a0 nodad\n\
             route add default via 10.1.0.1\n\
             route add default via fd00:1::1")
            .unwrap();
        r.ip("addr add 10.1.0.1/24 dev ra\n\
             addr add fd00:1::1/64 dev ra nodad\n\
             addr add 10.8.0.2/24 dev rn\n\
             addr add fc00:1::2/64 dev rn nodad\n\
             route add default via 10.8.0.1\n\
             route add default via fc00:1::1\n\
             sr tunsrc set fc00:1::2")
            .unwrap();
        // Permanent neighbours: the program then knows every way from the first packet on.
        n.ip("addr add 10.8.0.1/24 dev nr\n\
             addr add fc00:1::1/64 dev nr nodad\n\
             addr add 10.9.0.1/24 dev ns\n\
             addr add fc00:2::1/64 dev ns nodad\n\
             neigh add 10.8.0.2 lladdr 02:00:00:00:00:12 dev nr\n\
             neigh add fc00:1::2 lladdr 02:00:00:00:00:12 dev nr\n\
             neigh add 10.9.0.2 lladdr 02:00:00:00:00:32 dev ns\n\
             neigh add fc00:2::2 lladdr 02:00:00:00:00:32 dev ns\n\
             route add 10.1.0.0/24 via 10.8.0.2\n\
             route add 10.2.0.0/24 via 10.9.0.2\n\
             route add fd00:1::/64 via fc00:1::2\n\
             route add fc00:11::/48 via fc00:1::2\n\
             route add fd00:2::/64 via fc00:2::2\n\
             route add fc00:33::/48 via fc00:2::2\n\
             route add default via fc00:2::2 table 100\n\
             route add default via 10.9.0.2 table 100")
            .unwrap();
        s.ip("addr add 10.9.0.2/24 dev sn\n\
             addr add fc00:2::2/64 dev sn nodad\n\
             addr add 10.2.0.1/24 dev sb\n\
             addr add fd00:2::1/64 dev sb nodad\n\
             route add default via 10.9.0.1\n\
             route add default via fc00:2::1\n\
             route add default via fc00:2::1 table 100\n\
             route add fc00:33::e/128 encap seg6local action End dev sn\n\
             route add fc00:33::ec/128 encap seg6local action End flavors psp dev sn\n\
             route add fc00:33::ea/128 encap seg6local action End.X nh6 fc00:2::1 dev sn\n\
             route add fc00:33::eb/128 encap seg6local action End.T table 100 dev sn\n\
             route add fc00:33::d2/128 encap seg6local action End.DX2 oif sb dev sn\n\
             route add fc00:33::d4/128 encap seg6local action End.DX4 nh4 10.2.0.2 dev sn\n\
             route add fc00:33::d6/128 encap seg6local action End.DT6 table main dev sn\n\
             route add fc00:33::da/128 encap seg6local action End.DX6 nh6 fd00:2::2 dev sn")
            .unwrap();
        let mut addresses = "link set b0 mtu 1500\n".to_owned();
        for x in 2..=Self::LAST {
            addresses += &format!(
                "addr add 10.2.0.{x}/24 dev b0\n\
                 addr add fd00:2::{x:x}/64 dev b0 nodad\n"
            );
        }
        addresses += "route add default via 10.2.0.1\n\
                      route add default via fd00:2::1";
        b.ip(&addresses).unwrap();
        Self { a, r, n, s, b }
    }

    /// b's addresses with this number, IPv4 and IPv6.
    pub(super) fn destination(x: u8) -> [IpAddr; 2] {
        assert!((2..=Self::LAST).contains(&x));
        [
            IpAddr::from([10, 2, 0, x]),
            v6(&format!("fd00:2::{x:x}")).into(),
        ]
    }

    /// r puts packets to this address behind segments, as `mode` of `ip route ... encap seg6`.
    pub(super) fn kernel_encapsulates(&self, to: IpAddr, mode: &str, segments: &str) {
        self.r
            .ip(&format!(
                "route replace {to} encap seg6 mode {mode} segs {segments} dev rn"
            ))
            .unwrap();
    }
}

/// Three pings from a to each of these at the same time, until all three are answered at the same time.
pub(super) fn assert_pings(from: &Netns, destinations: &[(String, IpAddr)], node: &Node) {
    let mut left: Vec<_> = destinations.iter().collect();
    for _ in 0..20 {
        let answers = ping_all(from, left.iter().map(|(_, to)| *to), "-W1");
        let mut answers = answers.into_iter();
        left.retain(|_| answers.next() != Some(3));
        if left.is_empty() {
            return;
        }
    }
    panic!(
        "not answered: {left:#?}\n{:#?}\n{}",
        node.status(),
        node.log()
    );
}

/// Three pings to each of these, of which none may be answered within a time that is ample here.
pub(super) fn assert_silence(from: &Netns, to: impl Iterator<Item = IpAddr> + Clone) {
    let answers = ping_all(from, to.clone(), "-W0.2");
    let answered: Vec<_> = to.zip(answers).filter(|(_, count)| *count != 0).collect();
    assert!(answered.is_empty(), "{answered:?}");
}

/// How many of three pings to each are answered.
fn ping_all(from: &Netns, to: impl Iterator<Item = IpAddr>, patience: &str) -> Vec<u32> {
    let started: Vec<_> = to
        .map(|to| {
            let mut command = from.command("ping");
            command
                .args(["-q", "-n", "-c3", "-i0.02", patience])
                .arg(to.to_string())
                .stdout(Stdio::piped())
                .stderr(Stdio::null());
            command.spawn().expect("`ip` starts")
        })
        .collect();
    started
        .into_iter()
        .map(|ping| {
            let output = ping.wait_with_output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            let count = text
                .split(", ")
                .find_map(|part| part.strip_suffix(" received"));
            count
                .and_then(|count| count.parse().ok())
                .unwrap_or_else(|| panic!("{text}"))
        })
        .collect()
}

/// A running `sig srv6 run`.
pub(super) struct Node {
    process: Process,
    folder: Folder,
}

impl Node {
    /// Starts one in `netns` and waits until it has no problem. `config`: all but `[general]`.
    pub(super) fn start(netns: &Netns, config: &str) -> Self {
        let folder = Folder::new(&format!("{}-folder", netns.name())).unwrap();
        Self::start_in(netns, config, folder)
    }

    fn start_in(netns: &Netns, config: &str, folder: Folder) -> Self {
        fs::write(folder.path().join("node.toml"), text(&folder, config)).unwrap();
        let mut command = netns.command(env!("CARGO_BIN_EXE_sig"));
        command
            .args(["srv6", "run", "--config"])
            .arg(folder.path().join("node.toml"));
        let process = Process::spawn(command, &folder.path().join("log")).unwrap();
        let mut node = Self { process, folder };
        node.process.wait_for("ready", PATIENCE).unwrap();
        wait_until("it has no problems", PATIENCE, || {
            node.status().problems.is_empty()
        });
        node
    }

    /// Kills it, and waits for its end.
    pub(super) fn kill(mut self) -> Folder {
        self.process.signal(libc::SIGKILL);
        self.process.wait(PATIENCE).unwrap();
        let Self { folder, .. } = self;
        folder
    }

    /// Asks it to end, and waits for that. Returns how it ended, and where its socket was.
    pub(super) fn stop(&mut self) -> (ExitStatus, PathBuf) {
        self.process.signal(libc::SIGTERM);
        let status = self.process.wait(PATIENCE).unwrap();
        (status, self.folder.path().join("node.sock"))
    }

    /// Starts one again, with what the folder holds.
    pub(super) fn start_again(netns: &Netns, config: &str, folder: Folder) -> Self {
        Self::start_in(netns, config, folder)
    }

    pub(super) fn log(&self) -> String {
        self.process.log()
    }

    /// Has it read another configuration, and waits until `outcome` is in its log once more.
    pub(super) fn reload(&self, config: &str, outcome: &str) {
        let count = || self.log().matches(outcome).count();
        let before = count();
        let file = self.folder.path().join("node.toml");
        fs::write(file, text(&self.folder, config)).unwrap();
        self.process.signal(libc::SIGHUP);
        wait_until(outcome, PATIENCE, || count() > before);
    }

    pub(super) fn status(&self) -> Status {
        let socket = self.folder.path().join("node.sock");
        read_status(&socket).unwrap_or_else(|error| panic!("{error}\n{}", self.log()))
    }
}

/// The status of the node that listens at `socket`.
pub(super) fn status_at(socket: &Path) -> Status {
    read_status(socket).unwrap()
}

fn read_status(socket: &Path) -> Result<Status, String> {
    let output = Command::new(env!("CARGO_BIN_EXE_sig"))
        .args(["srv6", "status", "--json", "--socket"])
        .arg(socket)
        .output()
        .unwrap();
    match output.status.success() {
        true => Ok(Status::read(
            &serde_json::from_slice(&output.stdout).unwrap(),
        )),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

fn text(folder: &Folder, config: &str) -> String {
    let socket = folder.path().join("node.sock");
    format!(
        "[general]\nid = \"node\"\nstatus_socket = \"{}\"\n{config}",
        socket.display()
    )
}

/// Counters of a node, and what is wrong with it.
#[derive(Debug)]
pub(super) struct Status {
    pub(super) problems: Vec<String>,
    sids: BTreeMap<String, u64>,
    policies: BTreeMap<String, u64>,
    functions: BTreeMap<String, (bool, u64)>,
    down: BTreeMap<String, String>,
    rules: BTreeMap<String, u64>,
    refused: BTreeMap<String, u64>,
}

impl Status {
    fn read(document: &Value) -> Self {
        let array = |name: &str| document[name].as_array().unwrap().clone();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let packets = |name: &str, key: &str| {
            let entries = array(name).into_iter();
            entries
                .map(|entry| (text(&entry[key]), entry["packets"].as_u64().unwrap()))
                .collect()
        };
        let down = array("functions").into_iter().filter_map(|function| {
            let why = function["why_down"].as_str()?;
            Some((text(&function["name"]), why.to_owned()))
        });
        let functions = array("functions").into_iter().map(|function| {
            let returned = function["packets_returned"].as_u64().unwrap();
            let is_up = function["is_up"].as_bool().unwrap();
            (text(&function["name"]), (is_up, returned))
        });
        let refused = array("refused");
        let refused = refused
            .iter()
            .map(|pair| (text(&pair[0]), pair[1].as_u64().unwrap()));
        Self {
            problems: array("problems").iter().map(text).collect(),
            sids: packets("sids", "sid"),
            policies: packets("policies", "name"),
            functions: functions.collect(),
            down: down.collect(),
            rules: packets("rules", "name"),
            refused: refused.filter(|(_, count)| *count != 0).collect(),
        }
    }

    /// Packets to a SID.
    pub(super) fn sid(&self, sid: &str) -> u64 {
        self.sids[&v6(sid).to_string()]
    }

    /// Packets put behind a policy.
    pub(super) fn policy(&self, name: &str) -> u64 {
        self.policies[name]
    }

    /// Packets that a rule was applied to.
    pub(super) fn rule(&self, name: &str) -> u64 {
        self.rules[name]
    }

    /// Whether a function is up.
    pub(super) fn is_up(&self, name: &str) -> bool {
        self.functions[name].0
    }

    /// Why a function is down.
    pub(super) fn why_down(&self, name: &str) -> String {
        self.down[name].clone()
    }

    /// Packets that a function returned.
    pub(super) fn returned(&self, name: &str) -> u64 {
        self.functions[name].1
    }

    /// Packets that did not go on for this reason, or not by themselves.
    pub(super) fn refused(&self, reason: &str) -> u64 {
        self.refused.get(reason).copied().unwrap_or(0)
    }

    /// All reasons for which packets did not go on.
    pub(super) fn reasons(&self) -> &BTreeMap<String, u64> {
        &self.refused
    }
}
