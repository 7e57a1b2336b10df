//! Functions that know nothing of segment routing, behind proxies. The functions are routers of the kernel.

use std::net::IpAddr;

use etherparse::PacketBuilder;
use testbed::Netns;

use super::net::{Line, Node, PATIENCE, assert_pings, assert_silence, namespace, socket, wire};
use crate::support::netns::wait_until;

/// What a function does, and where.
struct Function {
    behavior: &'static str,
    sid: &'static str,
    is_v4: bool,
    bypass: bool,
    /// In addresses and names of devices: `iN` and `oN` at the node, `fN` and `gN` at the function.
    number: u8,
}

const FUNCTIONS: [Function; 8] = [
    function("End.AD4", "fc00:22::41", true, false, 1),
    function("End.AD6", "fc00:22::61", false, false, 2),
    function("End.AM", "fc00:22::a1", false, false, 3),
    function("End.AS", "fc00:22::51", true, false, 4),
    function("End.AD4", "fc00:22::42", true, true, 5),
    function("End.AD6", "fc00:22::62", false, true, 6),
    function("End.AM", "fc00:22::a2", false, true, 7),
    // It has a chain of its own for what its function returns, and packets go on along that without the function too.
    function("End.AS", STATIC, true, true, 8),
];

const STATIC: &str = "fc00:22::52";

const fn function(
    behavior: &'static str,
    sid: &'static str,
    is_v4: bool,
    bypass: bool,
    number: u8,
) -> Function {
    Function {
        behavior,
        sid,
        is_v4,
        bypass,
        number,
    }
}

impl Function {
    fn name(&self) -> String {
        format!("f{}", self.number)
    }

    /// The destination whose packets pass it.
    fn destination(&self) -> IpAddr {
        let [v4, v6] = Line::destination(10 + self.number);
        match self.is_v4 {
            true => v4,
            false => v6,
        }
    }

    /// The function's neighbourhood: its wires, and in its namespace what sends all that comes in by one out by the other.
    fn build(&self, node: &Netns, functions: &Netns) {
        let x = self.number;
        wire(
            (node, &format!("i{x}"), 0x80 + x),
            (functions, &format!("f{x}"), 0x90 + x),
        );
        wire(
            (functions, &format!("g{x}"), 0xa0 + x),
            (node, &format!("o{x}"), 0xb0 + x),
        );
        node.ip(&format!(
            "addr add 10.7.{x}.1/24 dev i{x}\n\
             addr add fc00:7:{x}::1/64 dev i{x} nodad\n\
             addr add 10.70.{x}.1/24 dev o{x}\n\
             addr add fc00:70:{x}::1/64 dev o{x} nodad"
        ))
        .unwrap();
        functions
            .ip(&format!(
                "addr add 10.7.{x}.2/24 dev f{x}\n\
                 addr add fc00:7:{x}::2/64 dev f{x} nodad\n\
                 addr add 10.70.{x}.2/24 dev g{x}\n\
                 addr add fc00:70:{x}::2/64 dev g{x} nodad\n\
                 route add default via 10.70.{x}.1 table {x}\n\
                 route add default via fc00:70:{x}::1 table {x}"
            ))
            .unwrap();
        for family in ["-4", "-6"] {
            functions
                .exec(&format!("ip {family} rule add iif f{x} table {x}"))
                .unwrap();
        }
    }

    fn config(&self) -> String {
        let x = self.number;
        let next_hop = match self.is_v4 {
            true => format!("10.7.{x}.2"),
            false => format!("fc00:7:{x}::2"),
        };
        let on_failure = match self.bypass {
            true => "bypass",
            false => "drop",
        };
        let policy = match self.behavior {
            "End.AS" => "policy = \"back\"\n",
            _ => "",
        };
        format!(
            "[[srv6.sid]]\nsid = \"{}\"\nbehavior = \"{}\"\nfunction = \"f{x}\"\n\
             [[srv6.function]]\nname = \"f{x}\"\ninterface = \"i{x}\"\nreturn_interface = \"o{x}\"\n\
             next_hop = \"{next_hop}\"\non_failure = \"{on_failure}\"\n{policy}",
            self.sid, self.behavior
        )
    }

    /// The kernel at r sends packets to the destination past the function.
    fn steer(&self, line: &Line) {
        let to = self.destination();
        match self.behavior {
            "End.AM" => line.kernel_encapsulates(to, "inline", self.sid),
            _ => {
                let last = if self.is_v4 { "d4" } else { "d6" };
                let segments = format!("{},fc00:33::{last}", self.sid);
                line.kernel_encapsulates(to, "encap", &segments);
            }
        }
    }
}

const CONFIG: &str = r#"
[srv6]
source = "fc00:1::1"
locators = ["fc00:22::/48"]
trusted = ["nr", "ns"]
policy = [{ name = "back", segments = ["fc00:33::e", "fc00:22::d46"], mtu = 1800 }]
[[srv6.sid]]
sid = "fc00:22::d46"
behavior = "End.DT46"
table = "main"
"#;

/// The line with all functions, and the node.
fn running(test: &str) -> (Line, Netns, Node) {
    let line = Line::new(test);
    let functions = namespace(test, "f");
    let mut config = CONFIG.to_owned();
    for function in &FUNCTIONS {
        function.build(&line.n, &functions);
        function.steer(&line);
        config += &function.config();
    }
    line.kernel_encapsulates(without_srh().1, "encap.red", STATIC);
    let node = Node::start(&line.n, &config);
    (line, functions, node)
}

/// A destination beside those of the functions: packets to it have no SRH when they come to [`STATIC`].
fn without_srh() -> (String, IpAddr) {
    let [to, _] = Line::destination(30);
    ("End.AS without an SRH".to_owned(), to)
}

fn destinations() -> Vec<(String, IpAddr)> {
    FUNCTIONS
        .iter()
        .map(|function| (function.behavior.to_owned(), function.destination()))
        .chain([without_srh()])
        .collect()
}

#[test]
fn packets_pass_functions_and_what_is_down_is_left_out_or_stops_them() {
    if !super::net::may_run() {
        return;
    }
    let (line, functions, node) = running("proxies");
    assert_pings(&line.a, &destinations(), &node);
    let returned = || FUNCTIONS.map(|function| node.status().returned(&function.name()));
    let passed = returned();
    assert!(passed.iter().all(|count| *count >= 3), "{passed:?}");
    assert!(node.status().reasons().is_empty(), "{:#?}", node.status());

    // Killed: by one wire each, some by that towards them and some by that from them.
    for function in &FUNCTIONS {
        let (end, x) = (
            if function.number % 2 == 0 { "g" } else { "f" },
            function.number,
        );
        functions.ip(&format!("link set {end}{x} down")).unwrap();
    }
    let are_all = |up: bool| {
        let status = node.status();
        FUNCTIONS
            .iter()
            .all(|function| status.is_up(&function.name()) == up)
    };
    wait_until("all functions are down", PATIENCE, || are_all(false));
    let (around, stopped): (Vec<_>, Vec<_>) =
        FUNCTIONS.iter().partition(|function| function.bypass);
    let around: Vec<_> = around
        .iter()
        .map(|function| (function.behavior.to_owned(), function.destination()))
        .chain([without_srh()])
        .collect();
    assert_pings(&line.a, &around, &node);
    let before = node.status().refused("function_down");
    assert_silence(&line.a, stopped.iter().map(|of| of.destination()));
    let dropped = node.status().refused("function_down") - before;
    assert_eq!(dropped, 3 * stopped.len() as u64, "{:#?}", node.status());
    assert_eq!(returned(), passed, "nothing passes what is down");

    for function in &FUNCTIONS {
        let x = function.number;
        functions
            .ip(&format!("link set f{x} up\nlink set g{x} up"))
            .unwrap();
        // The routes went with the device.
        functions
            .ip(&format!(
                "route replace default via 10.70.{x}.1 table {x}\n\
                 route replace default via fc00:70:{x}::1 table {x}"
            ))
            .unwrap();
    }
    wait_until("all functions are up", PATIENCE, || are_all(true));
    assert_pings(&line.a, &destinations(), &node);
    assert!(
        returned()
            .iter()
            .zip(passed)
            .all(|(now, before)| *now >= before + 3),
        "{:#?}",
        node.status()
    );
}

/// Links and neighbours are there all the time.
#[test]
fn functions_that_do_not_answer_probes_are_down() {
    if !super::net::may_run() {
        return;
    }
    let (line, functions) = (Line::new("probes"), namespace("probes", "f"));
    let mut config = CONFIG.to_owned();
    let [pinged, asked, passed] = [&FUNCTIONS[0], &FUNCTIONS[1], &FUNCTIONS[4]];
    for (function, probe) in [
        (pinged, "probe = \"ping\""),
        (asked, "probe = \"tcp:777\""),
        // Would the probes get out, b would get them.
        (
            passed,
            "probe = \"through\"\nprobe_source = \"10.1.0.2\"\nprobe_destination = \"10.2.0.55\"",
        ),
    ] {
        function.build(&line.n, &functions);
        function.steer(&line);
        config += &function.config();
        config += &format!("{probe}\nprobe_interval = \"100ms\"\n");
    }
    // The other way round, so that replies come in where another function returns packets.
    config += "[[srv6.sid]]\nsid = \"fc00:22::43\"\nbehavior = \"End.AD4\"\nfunction = \"back\"\n\
               [[srv6.function]]\nname = \"back\"\ninterface = \"o1\"\nreturn_interface = \"i1\"\n\
               next_hop = \"10.70.1.2\"\non_failure = \"drop\"\nprobe = \"ping\"\nprobe_interval = \"100ms\"\n";
    let listen = || {
        functions
            .run(|| std::net::TcpListener::bind("[::]:777"))
            .unwrap()
            .unwrap()
    };
    let listener = listen();
    let out = socket(&line.s, "sn");
    let node = Node::start(&line.n, &config);
    let names = ["f1", "back", "f2", "f5"];
    let are = |up: bool| {
        let status = node.status();
        names.iter().all(|name| status.is_up(name) == up)
    };
    let destinations: Vec<_> = [pinged, asked, passed]
        .map(|function| (function.behavior.to_owned(), function.destination()))
        .into();
    // Long enough for the others to be down, were they not answered.
    wait_until("probes are back", PATIENCE, || {
        node.status().refused("probe") >= 6
    });
    assert!(are(true), "{:#?}", node.status());
    assert_pings(&line.a, &destinations, &node);

    drop(listener);
    let ignore = |ignored: &str| {
        functions
            .set_sysctls(&[("net/ipv4/icmp_echo_ignore_all", ignored)])
            .unwrap();
    };
    ignore("1");
    functions.exec("ip rule del iif f5 table 5").unwrap();
    wait_until("all are down", PATIENCE, || are(false));
    let problems = node.status().problems;
    for (name, consequence) in [
        ("f1", "its packets are dropped"),
        ("f5", "packets go on without it"),
    ] {
        let said = format!("function {name} does not answer probes: {consequence}");
        assert!(problems.contains(&said), "{problems:#?}");
    }
    let why = node.status().why_down("f2");
    assert!(why.starts_with("probe: no answer for "), "{why}");
    assert_pings(&line.a, &destinations[2..], &node);
    assert_silence(
        &line.a,
        [pinged, asked].map(Function::destination).into_iter(),
    );

    let _listener = listen();
    ignore("0");
    functions.exec("ip rule add iif f5 table 5").unwrap();
    wait_until("all are up", PATIENCE, || are(true));
    assert_pings(&line.a, &destinations, &node);
    while let Some(frame) = out.receive() {
        assert!(
            !frame.windows(4).any(|bytes| bytes == [10, 2, 0, 55]),
            "{frame:x?}"
        );
    }
}

/// What a function sends of its own: nobody knows where it belongs before something was sent to it.
#[test]
fn what_functions_invent_goes_nowhere() {
    if !super::net::may_run() {
        return;
    }
    let (line, functions, node) = running("invented");
    let (to_b, far) = (Line::destination(50)[0], socket(&line.s, "sn"));
    let IpAddr::V4(to_b) = to_b else {
        unreachable!("the first is IPv4");
    };
    let frame = |to: &str| {
        let mut frame = Vec::new();
        PacketBuilder::ethernet2([2, 0, 0, 0, 0, 0xa1], [2, 0, 0, 0, 0, 0xb1])
            .ipv4(
                [10, 1, 0, 2],
                to.parse::<std::net::Ipv4Addr>().unwrap().octets(),
                64,
            )
            .udp(7, 7)
            .write(&mut frame, b"invented")
            .unwrap();
        frame
    };
    // Of the dynamic proxies; those that masquerade forward by the header that the packet has itself.
    let dynamic: Vec<_> = FUNCTIONS
        .iter()
        .filter(|function| function.behavior.starts_with("End.AD"))
        .collect();
    for (sent, function) in dynamic.iter().enumerate() {
        let out = socket(&functions, &format!("g{}", function.number));
        out.send(&frame(&to_b.to_string()));
        wait_until("dropped", PATIENCE, || {
            node.status().refused("no_headers") == sent as u64 + 1
        });
    }
    // Link-local and multicast is between the function and the kernel beside it, also when there are headers.
    assert_pings(&line.a, &destinations(), &node);
    let passed = node.status().returned("f1");
    let out = socket(&functions, "g1");
    out.send(&frame("224.0.0.9"));
    out.send(&frame("169.254.1.2"));
    // Its own protocol alone is returned to the chain; the last one, so that all are through then.
    let mut other = Vec::new();
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 0xa1], [2, 0, 0, 0, 0, 0xb1])
        .ipv6(
            super::net::v6("fd00:1::2").octets(),
            super::net::v6("fd00:2::2").octets(),
            64,
        )
        .udp(7, 7)
        .write(&mut other, b"invented")
        .unwrap();
    out.send(&other);
    wait_until("dropped", PATIENCE, || {
        node.status().refused("not_returned") == 1
    });
    assert_eq!(node.status().returned("f1"), passed + 1);
    while let Some(frame) = far.receive() {
        assert!(
            !frame.windows(8).any(|bytes| bytes == b"invented"),
            "{frame:x?}"
        );
    }
}
