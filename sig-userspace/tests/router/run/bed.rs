//! Two ASes of one router each: host A, router A, the link, router B, host B, each in a network namespace of its own.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream, UdpSocket},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use sig_common::{
    addr::{HostAddr, IsdAs},
    wire::scion::path::SCION,
};
use sig_core::scion::{
    HopKey,
    network::{As, End, Link, LinkType, Network, Validity},
    packet::{self, Addresses, Endpoint, Packet},
};
use sig_router::status::{Interface, Status};

use crate::support::netns::{Netns, veth, wait_until};

/// Nothing here takes as long, on no machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What the own file of a router says beside its name.
pub(crate) const STANDALONE: &str = "";

pub(crate) struct Bed {
    pub(crate) host_a: Netns,
    pub(crate) router_a: Netns,
    pub(crate) router_b: Netns,
    pub(crate) host_b: Netns,
    folder: PathBuf,
    network: Network,
}

/// A process `sig router run`.
pub(crate) struct Router {
    process: Child,
    folder: PathBuf,
}

pub(crate) fn isd_as(side: char) -> IsdAs {
    let text = if side == 'a' {
        "1-ff00:0:110"
    } else {
        "1-ff00:0:111"
    };
    text.parse().unwrap()
}

/// The host of a side, with a port.
pub(crate) fn host(side: char, port: u16) -> Endpoint {
    let ip = [10, if side == 'a' { 1 } else { 2 }, 0, 2];
    (isd_as(side), HostAddr::V4(ip), port)
}

/// The internal address of a side's router.
pub(crate) fn internal(side: char) -> SocketAddr {
    let network = if side == 'a' { 1 } else { 2 };
    format!("10.{network}.0.1:30042").parse().unwrap()
}

impl Bed {
    pub(crate) fn new() -> Self {
        let [host_a, router_a, router_b, host_b] = ["ha", "ra", "rb", "hb"].map(Netns::new);
        veth((&host_a, "h0"), (&router_a, "i0"));
        veth((&router_a, "x0"), (&router_b, "x0"));
        veth((&router_b, "i0"), (&host_b, "h0"));
        host_a.ip("addr add 10.1.0.2/24 dev h0");
        router_a.ip("addr add 10.1.0.1/24 dev i0");
        router_a.ip("addr add 10.9.0.1/30 dev x0");
        router_b.ip("addr add 10.9.0.2/30 dev x0");
        router_b.ip("addr add 10.2.0.1/24 dev i0");
        host_b.ip("addr add 10.2.0.2/24 dev h0");
        for router in [&router_a, &router_b] {
            router.exec("sysctl -qw net.ipv4.ip_forward=1");
        }
        let folder = std::env::temp_dir().join(host_a.name());
        let new_as = |side| As {
            isd_as: isd_as(side),
            core: side == 'a',
            mtu: 1472,
            key: HopKey::derive(&master(side)),
        };
        let end = |side| End {
            isd_as: isd_as(side),
            interface: 1,
        };
        let link = Link {
            ends: [end('a'), end('b')],
            link_type: LinkType::Child,
            mtu: 1472,
        };
        let network = Network::new(vec![new_as('a'), new_as('b')], vec![link]).unwrap();
        Self {
            host_a,
            router_a,
            router_b,
            host_b,
            folder,
            network,
        }
    }

    /// Starts the router of a side, with more lines for its own file and other values for its topology.
    pub(crate) fn start(&self, side: char, own: &str, bfd: &str) -> Router {
        let folder = self.folder.join(side.to_string());
        fs::create_dir_all(folder.join("keys")).unwrap();
        let key = if side == 'a' {
            KEY_A
        } else {
            "YmJiYmJiYmJiYmJiYmJiYg=="
        };
        write_key(&folder, key);
        let socket = folder.join("router.sock");
        let file = format!(
            "[general]\nid = \"br\"\nconfig_dir = \".\"\n[xdp]\nstatus_socket = \"{}\"\n{own}",
            socket.display()
        );
        fs::write(folder.join("br.toml"), file).unwrap();
        fs::write(folder.join("topology.json"), topology(side, bfd, "")).unwrap();
        let netns = if side == 'a' {
            &self.router_a
        } else {
            &self.router_b
        };
        Router::start(netns, folder)
    }

    /// The path header from one side to the other, made `age` seconds ago.
    pub(crate) fn path(&self, from: char, to: char, age: u64) -> Vec<u8> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs();
        let validity = Validity {
            timestamp: (now - age) as u32,
            expiry: 10,
        };
        let paths = self.network.paths(isd_as(from), isd_as(to), validity);
        paths.unwrap().remove(0).raw
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Writes a key file that only its owner can read.
fn write_key(folder: &Path, key: &str) {
    let file = folder.join("keys/master0.key");
    fs::write(&file, key).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
}

fn master(side: char) -> [u8; 16] {
    [side as u8; 16]
}

/// The topology of a side; `more` interfaces begin with a comma.
pub(crate) fn topology(side: char, bfd: &str, more: &str) -> String {
    let (ours, theirs, link_to) = if side == 'a' {
        (1, 2, "CHILD")
    } else {
        (2, 1, "PARENT")
    };
    let core = if side == 'a' { "\"core\"" } else { "" };
    let (own, other) = (isd_as(side), isd_as(if side == 'a' { 'b' } else { 'a' }));
    format!(
        r#"{{
  "isd_as": "{own}", "mtu": 1472, "attributes": [{core}], "dispatched_ports": "31000-65535",
  "border_routers": {{"br": {{
    "internal_addr": "10.{ours}.0.1:30042",
    "interfaces": {{
      "1": {{"underlay": {{"local": "10.9.0.{ours}:50000", "remote": "10.9.0.{theirs}:50000"}},
            "isd_as": "{other}", "link_to": "{link_to}", "mtu": 1472, "bfd": {{{bfd}}}}}{more}
    }}}}}}
}}"#
    )
}

impl Router {
    fn start(netns: &Netns, folder: PathBuf) -> Self {
        let mut process = Command::new("ip")
            .args(["netns", "exec", netns.name(), env!("CARGO_BIN_EXE_sig")])
            .args(["router", "run", "--config"])
            .arg(folder.join("br.toml"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut lines = BufReader::new(process.stdout.take().unwrap());
        lines.read_line(&mut line).unwrap();
        let router = Self { process, folder };
        assert_eq!(line, "router is ready\n");
        router
    }

    fn ask(&self, command: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_sig"))
            .arg("router")
            .args(command)
            .arg("--socket")
            .arg(self.folder.join("router.sock"))
            .output()
            .unwrap()
    }

    pub(crate) fn status(&self) -> Status {
        let output = self.ask(&["status", "--json"]);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).unwrap()
    }

    pub(crate) fn interface(&self, number: u16) -> Interface {
        let mut interfaces = self.status().interfaces.into_iter();
        interfaces.find(|i| i.interface == number).unwrap()
    }

    /// Waits until the link is up or down.
    pub(crate) fn wait_for_link(&self, up: bool) {
        wait_until("the link changes its state", PATIENCE, || {
            self.interface(1).up == up
        });
    }

    /// Waits until the fast path knows where the other ends of its links are.
    pub(crate) fn wait_for_next_hop(&self) {
        wait_until("the next hops are known", PATIENCE, || {
            let interfaces = self.status().interfaces;
            let mut links = interfaces.iter().filter(|i| i.interface != 0);
            links.all(|link| link.next_hop_mac.is_some())
        });
    }

    /// Packets that the slow path worked on for a reason.
    pub(crate) fn reason(&self, interface: u16, name: &str) -> sig_router::status::Reason {
        let reasons = self.interface(interface).reasons.into_iter();
        let none = sig_router::status::Reason {
            reason: name.to_owned(),
            fast: 0,
            slow: 0,
            dropped: 0,
        };
        reasons
            .filter(|r| r.reason == name)
            .fold(none, |_, found| found)
    }

    /// Writes another topology and has it read.
    pub(crate) fn reload(&self, topology: &str) -> Output {
        fs::write(self.folder.join("topology.json"), topology).unwrap();
        self.ask(&["reload"])
    }

    pub(crate) fn signal(&self, signal: libc::c_int) {
        // SAFETY: no memory is involved; the process is a child that nobody has waited for.
        assert_eq!(unsafe { libc::kill(self.process.id() as i32, signal) }, 0);
    }

    /// Waits for the end, and says whether it was a success.
    pub(crate) fn wait(&mut self) -> bool {
        self.process.wait().unwrap().success()
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The answer to an HTTP request, `GET /path` or with a body behind a line end, of a program in another namespace.
pub(crate) fn http(netns: &Netns, address: &str, request: &str) -> String {
    let mut stream = netns.run(|| TcpStream::connect(address)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let (line, body) = request.split_once('\n').unwrap_or((request, ""));
    let len = body.len();
    let head = format!("{line} HTTP/1.0\r\nContent-Length: {len}\r\n\r\n{body}");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(" 200 "), "{request}: {answer}");
    body.to_owned()
}

/// A UDP socket of a namespace.
pub(crate) fn socket(netns: &Netns, address: &str) -> UdpSocket {
    let socket = netns.run(|| UdpSocket::bind(address)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// What arrives next.
pub(crate) fn receive(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = vec![0; 2048];
    let len = socket.recv(&mut buffer).expect("a packet");
    buffer.truncate(len);
    buffer
}

/// A UDP datagram along a path.
pub(crate) fn datagram(
    source: Endpoint,
    destination: Endpoint,
    path: &[u8],
    text: &[u8],
) -> Vec<u8> {
    let addresses = Addresses {
        source,
        destination,
    };
    packet::udp(&addresses, SCION, path, text).unwrap()
}

pub(crate) fn parse(bytes: &[u8]) -> Packet<'_> {
    packet::parse(bytes).expect("a SCION packet")
}

/// The key file of an AS whose master key is that of [`master`].
const KEY_A: &str = "YWFhYWFhYWFhYWFhYWFhYQ==";

/// An AS of two routers, br-1 with the link to 1-ff00:0:111 and br-2 with that to 1-ff00:0:112; the test plays these.
pub(crate) struct Transit {
    pub(crate) neighbour_1: Netns,
    pub(crate) neighbour_2: Netns,
    routers: [Netns; 2],
    folder: PathBuf,
}

impl Transit {
    pub(crate) fn new() -> Self {
        let [neighbour_1, router_1, router_2, neighbour_2] =
            ["n1", "r1", "r2", "n2"].map(Netns::new);
        veth((&neighbour_1, "x0"), (&router_1, "x0"));
        veth((&router_1, "i0"), (&router_2, "i0"));
        veth((&router_2, "x0"), (&neighbour_2, "x0"));
        neighbour_1.ip("addr add 10.9.1.2/30 dev x0");
        router_1.ip("addr add 10.9.1.1/30 dev x0");
        router_1.ip("addr add fd00:1::1/64 dev i0 nodad");
        router_2.ip("addr add fd00:1::2/64 dev i0 nodad");
        router_2.ip("addr add 10.9.2.1/30 dev x0");
        neighbour_2.ip("addr add 10.9.2.2/30 dev x0");
        Self {
            folder: std::env::temp_dir().join(neighbour_1.name()),
            neighbour_1,
            neighbour_2,
            routers: [router_1, router_2],
        }
    }

    /// Starts br-1 or br-2.
    pub(crate) fn start(&self, number: usize) -> Router {
        let folder = self.folder.join(number.to_string());
        fs::create_dir_all(folder.join("keys")).unwrap();
        write_key(&folder, KEY_A);
        let router = |number: usize| {
            format!(
                r#""br-{number}": {{"internal_addr": "[fd00:1::{number}]:30042", "interfaces": {{"{number}": {{
                    "underlay": {{"local": "10.9.{number}.1:50000", "remote": "10.9.{number}.2:50000"}},
                    "isd_as": "1-ff00:0:11{number}", "link_to": "CHILD", "mtu": 1400, "bfd": {{"disable": true}}}}}}}}"#
            )
        };
        let topology = format!(
            r#"{{"isd_as": "1-ff00:0:110", "mtu": 1400, "attributes": ["core"], "dispatched_ports": "-",
                "border_routers": {{{}, {}}}}}"#,
            router(1),
            router(2)
        );
        fs::write(folder.join("topology.json"), topology).unwrap();
        let socket = folder.join("router.sock");
        let own = format!(
            "[general]\nid = \"br-{number}\"\nconfig_dir = \".\"\n[xdp]\nstatus_socket = \"{}\"\n\
             [router.bfd]\ndetect_mult = 20\n\
             [metrics]\nprometheus = \"10.9.{number}.1:80\"\n[api]\naddr = \"10.9.{number}.1:81\"\nallow_remote = true\n",
            socket.display()
        );
        fs::write(folder.join("br.toml"), own).unwrap();
        Router::start(&self.routers[number - 1], folder)
    }

    /// The path header from 1-ff00:0:111 to 1-ff00:0:112 as it is on the first link.
    pub(crate) fn path(&self) -> Vec<u8> {
        let neighbour = |number: u64| IsdAs::new(1, 0xff00_0000_0110 + number);
        let new_as = |number| As {
            isd_as: neighbour(number),
            core: number == 0,
            mtu: 1400,
            key: HopKey::derive(&master('a')),
        };
        let link = |number| Link {
            ends: [
                End {
                    isd_as: neighbour(0),
                    interface: number as u16,
                },
                End {
                    isd_as: neighbour(number),
                    interface: 9,
                },
            ],
            link_type: LinkType::Child,
            mtu: 1400,
        };
        let network = Network::new(
            vec![new_as(0), new_as(1), new_as(2)],
            vec![link(1), link(2)],
        );
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs();
        let validity = Validity {
            timestamp: now as u32,
            expiry: 10,
        };
        let paths = network.unwrap().paths(neighbour(1), neighbour(2), validity);
        let mut raw = paths.unwrap().remove(0).raw;
        // What the router of the first AS does where a segment goes up: the next hop field becomes the current one.
        raw[0] += 1;
        raw
    }
}

impl Drop for Transit {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
