//! Between kernel routers: ours processes what the kernel encapsulated and the kernel what ours encapsulated.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    process::Stdio,
    thread,
};

use testbed::{Folder, Netns};

use super::net::{Line, Node, PATIENCE, assert_pings, assert_silence, wire};

/// What a has packets to a destination of their own for.
struct Case {
    /// What is tried.
    name: &'static str,
    /// The mode of the kernel's encapsulation at r; none: a policy of ours puts the packets behind segments.
    kernel: Option<&'static str>,
    /// For IPv4 packets; none: not for them.
    v4: Option<&'static str>,
    /// For IPv6 packets.
    v6: Option<&'static str>,
    /// Ours inserts the segments.
    inserts: bool,
}

impl Case {
    /// The kernel encapsulates, ours is on the way or at its end.
    const fn kernel(name: &'static str, v4: &'static str, v6: &'static str) -> Self {
        Self {
            name,
            kernel: Some("encap"),
            v4: Some(v4),
            v6: Some(v6),
            inserts: false,
        }
    }

    /// Ours encapsulates.
    const fn ours(name: &'static str, v4: &'static str, v6: &'static str) -> Self {
        Self {
            kernel: None,
            ..Self::kernel(name, v4, v6)
        }
    }

    /// Ours inserts.
    const fn inserts(name: &'static str, v6: &'static str) -> Self {
        Self {
            inserts: true,
            ..Self::ours(name, "", v6).only_v6()
        }
    }

    const fn mode(self, mode: &'static str) -> Self {
        Self {
            kernel: Some(mode),
            ..self
        }
    }

    const fn only_v6(self) -> Self {
        Self { v4: None, ..self }
    }

    const fn only_v4(self) -> Self {
        Self { v6: None, ..self }
    }
}

const CASES: &[Case] = &[
    // The kernel's H.Encaps, End.DX4 and End.DT6 with ours between.
    Case::kernel("End", "fc00:22::e,fc00:33::d4", "fc00:22::e,fc00:33::d6"),
    Case::kernel(
        "End.X",
        "fc00:22::ea,fc00:33::d4",
        "fc00:22::ea,fc00:33::da",
    ),
    Case::kernel(
        "End.T",
        "fc00:22::eb,fc00:33::d4",
        "fc00:22::eb,fc00:33::d6",
    ),
    Case::kernel(
        "End with PSP",
        "fc00:22::ec,fc00:33::d4",
        "fc00:22::ec,fc00:33::d6",
    ),
    Case::kernel(
        "End.X with PSP",
        "fc00:22::ed,fc00:33::d4",
        "fc00:22::ed,fc00:33::da",
    ),
    Case::kernel("the end of End with USD", "fc00:22::ee", "fc00:22::ee"),
    Case::kernel("End.DX4 and End.DX6", "fc00:22::d4", "fc00:22::d6"),
    Case::kernel("End.DT4 and End.DT6", "fc00:22::d7", "fc00:22::d8"),
    Case::kernel("End.DT46, main table", "fc00:22::d46", "fc00:22::d46"),
    Case::kernel("End.DT46, another table", "fc00:22::d47", "fc00:22::d47"),
    Case::kernel(
        "two SIDs of ours",
        "fc00:22::e,fc00:22::d46",
        "fc00:22::e,fc00:22::d46",
    ),
    Case::kernel(
        "five SIDs of ours",
        "fc00:22::e,fc00:22::eb,fc00:22::ec,fc00:22::e,fc00:22::d46",
        "fc00:22::e,fc00:22::e,fc00:22::e,fc00:22::e,fc00:22::d46",
    ),
    Case::kernel(
        "there and back between two nodes",
        "fc00:22::e,fc00:33::e,fc00:22::e,fc00:33::e,fc00:22::ea,fc00:33::d4",
        "fc00:22::e,fc00:33::e,fc00:22::e,fc00:33::e,fc00:22::ea,fc00:33::d6",
    ),
    Case::kernel(
        "reduced",
        "fc00:22::e,fc00:33::d4",
        "fc00:22::e,fc00:33::d6",
    )
    .mode("encap.red"),
    Case::kernel("without an SRH", "fc00:22::d4", "fc00:22::d6").mode("encap.red"),
    Case::kernel("without an SRH, DT46", "fc00:22::d46", "fc00:22::d46").mode("encap.red"),
    Case::kernel("without an SRH, USD", "fc00:22::ee", "fc00:22::ee").mode("encap.red"),
    Case::kernel("inline", "", "fc00:22::e")
        .mode("inline")
        .only_v6(),
    Case::kernel("inline with PSP", "", "fc00:22::ec")
        .mode("inline")
        .only_v6(),
    Case::kernel("inline, longer", "", "fc00:22::e,fc00:33::e,fc00:22::ea")
        .mode("inline")
        .only_v6(),
    // The kernel decapsulates frames with ours between. These reach b's device, which has r's address, as they left a.
    Case::kernel(
        "frames past ours",
        "fc00:22::e,fc00:33::d2",
        "fc00:22::e,fc00:33::d2",
    )
    .mode("l2encap"),
    // Ours encapsulates, the kernel is on the way or at its end.
    Case::ours("ours to End.DX4 and End.DT6", "fc00:33::d4", "fc00:33::d6"),
    Case::ours("ours to End.DX6", "", "fc00:33::da").only_v6(),
    Case::ours(
        "ours past End",
        "fc00:33::e,fc00:22::d46",
        "fc00:33::e,fc00:22::d46",
    ),
    Case::ours(
        "ours past End.X",
        "fc00:33::ea,fc00:22::d4",
        "fc00:33::ea,fc00:22::d6",
    ),
    Case::ours(
        "ours past End.T",
        "fc00:33::eb,fc00:22::d7",
        "fc00:33::eb,fc00:22::d8",
    ),
    Case::ours(
        "ours, End, ours, to the kernel",
        "fc00:33::e,fc00:22::e,fc00:33::d4",
        "fc00:33::e,fc00:22::e,fc00:33::d6",
    ),
    // b's kernel takes packets with an SRH at its end.
    Case::inserts("ours inserts, End", "fc00:33::e"),
    Case::inserts("ours inserts, reduced", "fc00:33::e"),
    Case::inserts("ours inserts, End with PSP", "fc00:33::ec"),
    Case::inserts("ours inserts, there and back", "fc00:33::e,fc00:22::ec"),
    // With nobody else.
    Case::ours("ours alone, IPv4", "fc00:22::e,fc00:22::d46", "").only_v4(),
    Case::ours("ours alone, IPv6", "", "fc00:22::e,fc00:22::d46").only_v6(),
];

/// Some of ours list their first segment in the SRH too, which makes a difference to the kernel.
fn is_reduced(x: u8) -> bool {
    x.is_multiple_of(2)
}

/// What all of these have in common.
const SIDS: &str = r#"
[srv6]
source = "fc00:1::1"
locators = ["fc00:22::/48"]
trusted = ["nr", "ns"]
hop_limit = 64
allow_insert = true
sid = [
    { sid = "fc00:22::e", behavior = "End" },
    { sid = "fc00:22::ea", behavior = "End.X", next_hop = "fc00:2::2" },
    { sid = "fc00:22::eb", behavior = "End.T", table = 100 },
    { sid = "fc00:22::ec", behavior = "End", flavors = ["PSP"] },
    { sid = "fc00:22::ed", behavior = "End.X", next_hop = "fc00:2::2", flavors = ["PSP"] },
    { sid = "fc00:22::ee", behavior = "End", flavors = ["USD"] },
    { sid = "fc00:22::ef", behavior = "End", flavors = ["USP"] },
    { sid = "fc00:22::d4", behavior = "End.DX4", next_hop = "10.9.0.2" },
    { sid = "fc00:22::d6", behavior = "End.DX6", next_hop = "fc00:2::2" },
    { sid = "fc00:22::d7", behavior = "End.DT4", table = 100 },
    { sid = "fc00:22::d8", behavior = "End.DT6", table = 100 },
    { sid = "fc00:22::d46", behavior = "End.DT46", table = "main" },
    { sid = "fc00:22::d47", behavior = "End.DT46", table = 100 },
]
"#;

#[test]
fn the_kernel_and_ours_understand_each_other() {
    if !super::net::may_run() {
        return;
    }
    let line = Line::new("interop");
    let mut policies = String::new();
    let mut destinations = Vec::new();
    for (case, x) in CASES.iter().zip(2..) {
        for (to, segments) in Line::destination(x).into_iter().zip([case.v4, case.v6]) {
            let Some(segments) = segments else {
                continue;
            };
            destinations.push((format!("{}, {to}", case.name), to));
            match case.kernel {
                Some(mode) => line.kernel_encapsulates(to, mode, segments),
                None => {
                    let segments = segments.replace(',', "\", \"");
                    policies += &format!(
                        "[[srv6.policy]]\nname = \"{x}-{}\"\nsegments = [\"{segments}\"]\nmtu = 1800\n\
                         reduced = {}\ninsert = {}\ndestinations = [\"{to}/{}\"]\n",
                        to.is_ipv4(),
                        is_reduced(x),
                        case.inserts,
                        if to.is_ipv4() { 32 } else { 128 },
                    );
                }
            }
        }
    }
    let node = Node::start(&line.n, &format!("{SIDS}{policies}"));
    assert_pings(&line.a, &destinations, &node);
    let status = node.status();
    for sid in [
        "e", "ea", "eb", "ec", "ed", "ee", "d4", "d6", "d7", "d8", "d46", "d47",
    ] {
        assert!(status.sid(&format!("fc00:22::{sid}")) >= 3, "{sid}");
    }
    for (case, x) in CASES.iter().zip(2_u8..) {
        for segments in [case.v4, case.v6].iter().zip([true, false]) {
            if let (None, (Some(_), is_v4)) = (case.kernel, segments) {
                assert!(status.policy(&format!("{x}-{is_v4}")) >= 3, "{}", case.name);
            }
        }
    }
    // The program knew all ways: nothing was left to the kernel, let alone dropped.
    assert!(status.reasons().is_empty(), "{status:#?}");

    transfers(&line, Line::destination(2));
    // Ours to the kernel.
    let first = CASES.iter().position(|case| case.kernel.is_none()).unwrap();
    transfers(&line, Line::destination(2 + first as u8));
}

/// A megabyte by TCP there and back, and a hundred datagrams.
fn transfers(line: &Line, to: [IpAddr; 2]) {
    for to in to {
        let at = SocketAddr::new(to, 7001);
        let listener = line.b.run(|| TcpListener::bind(at)).unwrap().unwrap();
        let echo = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            stream.write_all(&all).unwrap();
        });
        let connected = line.a.run(|| TcpStream::connect_timeout(&at, PATIENCE));
        let mut stream = connected.unwrap().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let sent: Vec<u8> = (0..1_u32 << 18).flat_map(u32::to_be_bytes).collect();
        stream.write_all(&sent).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        assert!(received == sent, "to {to}");
        echo.join().unwrap();

        let receiver = line.b.run(|| UdpSocket::bind(at)).unwrap().unwrap();
        receiver.set_read_timeout(Some(PATIENCE)).unwrap();
        let any: IpAddr = match to {
            IpAddr::V4(_) => [0; 4].into(),
            IpAddr::V6(_) => [0; 16].into(),
        };
        let sender = line.a.run(|| UdpSocket::bind((any, 0))).unwrap().unwrap();
        for number in 0..100_u8 {
            let datagram = vec![number; 1 + usize::from(number) * 14];
            sender.send_to(&datagram, at).unwrap();
            let mut buffer = [0; 2000];
            let len = receiver.recv(&mut buffer).unwrap();
            assert!(buffer[..len] == datagram, "datagram {number} to {to}");
        }
    }
}

/// End.DX2: the frame inside leaves by a device as it is. The kernel at r makes it of a packet that comes in, so the destination of
/// the frame is r's device; the host behind ours has that address too.
#[test]
fn frames_of_the_kernel_leave_ours_as_they_were() {
    if !super::net::may_run() {
        return;
    }
    let line = Line::new("frames");
    let host = super::net::namespace("frames", "d");
    wire((&line.n, "nd", 0x2d), (&host, "d0", 0x77));
    line.n
        .ip("addr add 10.5.0.1/24 dev nd\naddr add fd00:5::1/64 dev nd nodad")
        .unwrap();
    host.ip("addr add 10.5.0.2/24 dev d0\n\
         addr add fd00:5::2/64 dev d0 nodad\n\
         route add default via 10.5.0.1\n\
         route add default via fd00:5::1")
        .unwrap();
    let to: [IpAddr; 2] = ["10.5.0.2".parse().unwrap(), "fd00:5::2".parse().unwrap()];
    line.kernel_encapsulates(to[0], "l2encap", "fc00:22::e,fc00:22::d2");
    line.kernel_encapsulates(to[1], "l2encap.red", "fc00:22::d2");
    let node = Node::start(
        &line.n,
        r#"
[srv6]
source = "fc00:1::1"
locators = ["fc00:22::/48"]
trusted = ["nr", "ns"]
sid = [
    { sid = "fc00:22::e", behavior = "End" },
    { sid = "fc00:22::d2", behavior = "End.DX2", interface = "nd" },
]
"#,
    );
    let destinations = to.map(|to| (to.to_string(), to));
    assert_pings(&line.a, &destinations, &node);
    let status = node.status();
    assert!(status.sid("fc00:22::d2") >= 6, "{status:#?}");
}

/// H.Encaps.L2 of ours to the kernel's End.DX2, and back: the hosts d and b are on one wire. The kernel's way makes frames of packets that
/// it routes, to the MAC address of its device; d has that address.
#[test]
fn a_wire_between_ours_and_the_kernel() {
    if !super::net::may_run() {
        return;
    }
    let line = Line::new("wire");
    let host = super::net::namespace("wire", "d");
    wire((&line.n, "nd", 0x2d), (&host, "d0", 0x3b));
    host.ip("link set d0 mtu 1500\n\
         addr add 10.2.0.200/24 dev d0\n\
         addr add fd00:2::c8/64 dev d0 nodad\n\
         neigh add 10.2.0.2 lladdr 02:00:00:00:00:77 dev d0\n\
         neigh add fd00:2::2 lladdr 02:00:00:00:00:77 dev d0")
        .unwrap();
    line.b
        .ip("neigh add 10.2.0.200 lladdr 02:00:00:00:00:3b dev b0\n\
             neigh add fd00:2::c8 lladdr 02:00:00:00:00:3b dev b0")
        .unwrap();
    line.s
        .ip(
            "route add 10.2.0.200 encap seg6 mode l2encap segs fc00:22::d2 dev sn\n\
             route add fd00:2::c8 encap seg6 mode l2encap.red segs fc00:22::d2 dev sn",
        )
        .unwrap();
    let node = Node::start(
        &line.n,
        r#"
[srv6]
source = "fc00:1::1"
locators = ["fc00:22::/48"]
trusted = ["nr", "ns"]
sid = [{ sid = "fc00:22::d2", behavior = "End.DX2", interface = "nd" }]
policy = [{ name = "wire", segments = ["fc00:33::e", "fc00:33::d2"], mtu = 1800, frames_from = ["nd"] }]
"#,
    );
    let destinations = Line::destination(2).map(|to| (to.to_string(), to));
    assert_pings(&host, &destinations, &node);
    let status = node.status();
    assert!(status.sid("fc00:22::d2") >= 6, "{status:#?}");
    assert!(status.policy("wire") >= 6, "{status:#?}");
    assert!(status.reasons().is_empty(), "{status:#?}");
}

/// Ours verifies what the kernel signed, and the kernel what ours signed, in the form that the kernel has.
#[test]
fn the_kernel_and_ours_verify_each_other() {
    if !super::net::may_run() {
        return;
    }
    let line = Line::new("hmac");
    let folder = Folder::new("hmac-secret").unwrap();
    let secret = folder.path().join("secret");
    fs::write(&secret, "6265747765656e207573\n").unwrap();
    for netns in [&line.r, &line.s] {
        set_key(netns, 7, "between us");
    }
    set_key(&line.r, 8, "another");
    set_key(&line.s, 8, "another");
    line.s
        .set_sysctls(&[("net/ipv6/conf/sn/seg6_require_hmac", "1")])
        .unwrap();
    let [signed, of_ours, reduced, unsigned] = [2, 3, 4, 5].map(Line::destination);
    let [bare, of_stranger] = [6, 7].map(Line::destination);
    for (to, key) in [(signed, "hmac 7"), (bare, ""), (of_stranger, "hmac 8")] {
        for (to, last) in to.into_iter().zip(["d4", "d6"]) {
            let segments = format!("fc00:22::e,fc00:33::{last} {key}");
            line.kernel_encapsulates(to, "encap", &segments);
        }
    }
    let mut policies = String::new();
    for (name, to, more) in [
        ("plain", of_ours, "hmac = 7, reduced = false"),
        ("reduced", reduced, "hmac = 7"),
        ("unsigned", unsigned, "reduced = false"),
    ] {
        for (to, last) in to.into_iter().zip(["d4", "d6"]) {
            let bits = if to.is_ipv4() { 32 } else { 128 };
            policies += &format!(
                "{{ name = \"{name}-{last}\", segments = [\"fc00:33::e\", \"fc00:33::{last}\"], \
                 mtu = 1800, destinations = [\"{to}/{bits}\"], {more} }},\n"
            );
        }
    }
    let node = Node::start(
        &line.n,
        &format!(
            "[srv6]\nsource = \"fc00:1::1\"\nlocators = [\"fc00:22::/48\"]\n\
             trusted = [\"nr\", \"ns\"]\nhmac = \"require\"\n\
             sid = [{{ sid = \"fc00:22::e\", behavior = \"End\" }}]\n\
             hmac_key = [{{ id = 7, form = \"linux\", secret_file = \"{}\" }}]\n\
             policy = [\n{policies}]\n",
            secret.display()
        ),
    );
    let heard: Vec<_> = [signed, of_ours, reduced]
        .into_iter()
        .flatten()
        .map(|to| (to.to_string(), to))
        .collect();
    assert_pings(&line.a, &heard, &node);
    assert!(node.status().reasons().is_empty(), "{:#?}", node.status());
    let unheard = [unsigned, bare, of_stranger].into_iter().flatten();
    assert_silence(&line.a, unheard);
    let status = node.status();
    assert_eq!(status.policy("unsigned-d4"), 3, "the kernel drops these");
    assert_eq!(status.refused("hmac"), 12, "{status:#?}");
    let shown = format!("{}{status:?}", node.log());
    assert!(!shown.contains("between us") && !shown.contains("626574"));
}

/// As `ip sr hmac set` has it, which asks at the terminal for the secret if there is one.
fn set_key(netns: &Netns, id: u32, secret: &str) {
    let mut command = netns.command("setsid");
    command
        .args([
            "--wait",
            "ip",
            "sr",
            "hmac",
            "set",
            &id.to_string(),
            "sha256",
        ])
        .stdin(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().expect("`setsid` starts");
    let mut input = child.stdin.take().expect("it is a pipe");
    input.write_all(format!("{secret}\n").as_bytes()).unwrap();
    drop(input);
    assert!(child.wait().unwrap().success());
}

/// What ends here without anything inside goes to the kernel, which takes it as any packet to an address of its own: pings to SIDs.
#[test]
fn sids_answer_pings() {
    if !super::net::may_run() {
        return;
    }
    let line = Line::new("sids");
    // The kernel at n takes no packet with an SRH.
    let accept = "net/ipv6/conf/ns/seg6_enabled";
    line.n.set_sysctls(&[(accept, "0")]).unwrap();
    line.n
        .ip("addr add fc00:22::e/128 dev lo nodad\n\
             addr add fc00:22::ef/128 dev lo nodad\n\
             addr add fc00:22::d46/128 dev lo nodad")
        .unwrap();
    let node = Node::start(&line.n, SIDS);
    let [plain, with_usp, decapsulating]: [IpAddr; 3] =
        ["fc00:22::e", "fc00:22::ef", "fc00:22::d46"].map(|sid| sid.parse().unwrap());
    let plain_ones = [plain, with_usp, decapsulating].map(|to| (to.to_string(), to));
    assert_pings(&line.a, &plain_ones, &node);
    line.kernel_encapsulates(with_usp, "inline", "fc00:33::ea");
    line.kernel_encapsulates(plain, "inline", "fc00:33::ea");
    assert_pings(&line.a, &[("USP".to_owned(), with_usp)], &node);
    assert_pings(&line.a, &[("without USP".to_owned(), plain)], &node);
    assert!(node.status().reasons().is_empty(), "{:#?}", node.status());
}
