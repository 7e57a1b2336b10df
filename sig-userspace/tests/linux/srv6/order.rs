//! Numbered packets through functions that end, begin anew, and do to packets what they like.

use std::{
    collections::BTreeMap,
    net::{IpAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use testbed::Netns;

use super::net::{Line, Node, PATIENCE, mac, namespace, socket, wire};
use crate::support::{netns::wait_until, wire::PacketSocket};

/// Flows to each destination.
const FLOWS: usize = 3;
/// Source port of the first.
const PORT: u16 = 4000;
/// Between one packet of a flow and the next.
const PACE: Duration = Duration::from_millis(1);

/// Function 1 is on two chains, function 2 on one.
const CONFIG: &str = r#"
[srv6]
source = "fc00:1::1"
locators = ["fc00:22::/48"]
trusted = ["nr", "ns"]
sid = [
    { sid = "fc00:22::41", behavior = "End.AD4", function = "f1" },
    { sid = "fc00:22::42", behavior = "End.AD4", function = "f1" },
    { sid = "fc00:22::43", behavior = "End.AD4", function = "f2" },
]
[[srv6.function]]
name = "f1"
interface = "i1"
return_interface = "o1"
next_hop = "10.7.1.2"
on_failure = "drop"
headers = "flow"
[[srv6.function]]
name = "f2"
interface = "i2"
return_interface = "o2"
next_hop = "10.7.2.2"
on_failure = "drop"
"#;

/// What a function makes of the payload of a packet.
type Treatment = fn(&[u8; 8]) -> Vec<[u8; 8]>;

/// A process of its own in all but name: it forwards between two devices.
struct Process {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Process {
    /// Number `x` of the functions, which begin as if nothing had been before.
    fn start(functions: &Netns, x: u8, treatment: Treatment) -> Self {
        let (from, to) = (
            socket(functions, &format!("f{x}")),
            socket(functions, &format!("g{x}")),
        );
        let ends = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&ends);
        let thread = thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                PacketSocket::wait(&[&from], Duration::from_millis(10));
                while let Some(mut frame) = from.receive() {
                    // IPv4 and UDP, with a payload of 8 bytes.
                    if frame.get(12..14) != Some(&[8, 0]) || frame.len() < 50 || frame[23] != 17 {
                        continue;
                    }
                    frame[..6].copy_from_slice(&mac(0xb0 + x));
                    frame[6..12].copy_from_slice(&mac(0xa0 + x));
                    // No checksum.
                    frame[40..42].fill(0);
                    let payload = frame[42..50].try_into().unwrap();
                    for payload in treatment(&payload) {
                        frame[42..50].copy_from_slice(&payload);
                        // Its device may be down.
                        to.try_send(&frame);
                    }
                }
            }
        });
        Self { ends, thread }
    }

    fn kill(self) {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

/// The line, the functions' namespace, and the node.
fn running(test: &str) -> (Line, Netns, Node) {
    let (line, functions) = (Line::new(test), namespace(test, "f"));
    functions
        .set_sysctls(&[("net/ipv4/ip_forward", "0")])
        .unwrap();
    for x in [1, 2] {
        wire(
            (&line.n, &format!("i{x}"), 0x80 + x),
            (&functions, &format!("f{x}"), 0x90 + x),
        );
        wire(
            (&functions, &format!("g{x}"), 0xa0 + x),
            (&line.n, &format!("o{x}"), 0xb0 + x),
        );
        line.n
            .ip(&format!("addr add 10.7.{x}.1/24 dev i{x}"))
            .unwrap();
        functions
            .ip(&format!("addr add 10.7.{x}.2/24 dev f{x}"))
            .unwrap();
    }
    for (to, segments) in destinations().into_iter().zip([
        "fc00:22::41,fc00:33::d4",
        "fc00:22::42,fc00:33::e,fc00:33::d4",
        "fc00:22::43,fc00:33::d4",
    ]) {
        line.kernel_encapsulates(to, "encap", segments);
    }
    let node = Node::start(&line.n, CONFIG);
    (line, functions, node)
}

fn destinations() -> [IpAddr; 3] {
    [41, 42, 43].map(|x| Line::destination(x)[0])
}

/// Destination and source port.
type Flow = (IpAddr, u16);

/// Sockets of a, and those of b.
struct Hosts {
    from: Vec<UdpSocket>,
    to: Vec<(IpAddr, UdpSocket)>,
    /// Payloads of each flow in the order in which they came.
    received: BTreeMap<Flow, Vec<[u8; 8]>>,
}

impl Hosts {
    fn new(line: &Line) -> Self {
        let open = |address: IpAddr, port: u16| {
            let socket = UdpSocket::bind((address, port)).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        };
        let to = line.b.run(|| destinations().map(|to| (to, open(to, 9))));
        let from = line.a.run(|| {
            let flows = destinations().map(|to| [to; FLOWS]);
            let flows = flows.into_iter().flatten().zip(PORT..);
            flows
                .map(|(to, port)| {
                    let socket = open([10, 1, 0, 2].into(), port);
                    socket.connect((to, 9)).unwrap();
                    socket
                })
                .collect()
        });
        Self {
            from: from.unwrap(),
            to: to.unwrap().into(),
            received: BTreeMap::new(),
        }
    }

    /// One packet of each flow, and what has come by now.
    fn send(&mut self, number: u64) {
        for socket in &self.from {
            socket.send(&number.to_be_bytes()).unwrap();
        }
        self.receive();
        thread::sleep(PACE);
    }

    fn receive(&mut self) {
        let mut payload = [0; 8];
        for (to, socket) in &self.to {
            while let Ok((len, from)) = socket.recv_from(&mut payload) {
                assert_eq!(len, 8);
                let flow = self.received.entry((*to, from.port()));
                flow.or_default().push(payload);
            }
        }
    }

    /// Until the flow has these packets and no other.
    fn expect(&mut self, expected: &[[u8; 8]]) {
        let end = Instant::now() + PATIENCE;
        let flows = self.from.len();
        while Instant::now() < end
            && (self.received.len() < flows
                || self
                    .received
                    .values()
                    .any(|flow| flow.len() < expected.len()))
        {
            self.receive();
            thread::sleep(PACE);
        }
        // What should not come would have come by then, as all take the same way.
        self.receive();
        assert_eq!(self.received.len(), flows);
        for (flow, received) in &self.received {
            assert!(received == expected, "{flow:?}: {received:?}");
        }
    }
}

fn as_it_is(payload: &[u8; 8]) -> Vec<[u8; 8]> {
    vec![*payload]
}

#[test]
fn packets_keep_their_order_when_functions_begin_anew() {
    if !super::net::may_run() {
        return;
    }
    let (line, functions, node) = running("order");
    let mut hosts = Hosts::new(&line);
    let [first, second] = [1, 2].map(|x| Process::start(&functions, x, as_it_is));
    let mut number = 0;
    let mut send = |hosts: &mut Hosts, count: u64| {
        for _ in 0..count {
            hosts.send(number);
            number += 1;
        }
    };
    send(&mut hosts, 150);
    first.kill();
    second.kill();
    functions.ip("link set f2 down").unwrap();
    send(&mut hosts, 150);
    functions.ip("link set f2 up").unwrap();
    let [first, second] = [1, 2].map(|x| Process::start(&functions, x, as_it_is));
    let end = Instant::now() + PATIENCE;
    while !node.status().is_up("f2") && Instant::now() < end {
        send(&mut hosts, 20);
    }
    send(&mut hosts, 150);
    let sent = number;
    let is_last = |flow: &Vec<[u8; 8]>| flow.last() == Some(&(sent - 1).to_be_bytes());
    wait_until("the last ones", PATIENCE, || {
        hosts.receive();
        hosts.received.values().all(is_last)
    });
    assert_eq!(hosts.received.len(), hosts.from.len());
    for (flow, received) in &hosts.received {
        let numbers: Vec<u64> = received.iter().map(|of| u64::from_be_bytes(*of)).collect();
        assert!(
            numbers.windows(2).all(|pair| pair[0] < pair[1]),
            "{flow:?}: {numbers:?}"
        );
        let lost = sent - numbers.len() as u64;
        assert!(lost > 0, "{flow:?}: the function was never away");
        assert!(
            numbers[..150].iter().copied().eq(0..150),
            "{flow:?}: {numbers:?}"
        );
    }
    first.kill();
    second.kill();
}

#[test]
fn functions_drop_change_double_and_invent_packets_and_nothing_else_happens() {
    if !super::net::may_run() {
        return;
    }
    fn treatment(payload: &[u8; 8]) -> Vec<[u8; 8]> {
        let marked = |mark: u8| {
            let mut other = *payload;
            other[0] = mark;
            other
        };
        match payload[7] % 5 {
            0 => vec![],
            1 => vec![marked(b'm')],
            2 => vec![*payload; 2],
            3 => vec![*payload, marked(b'i')],
            _ => vec![*payload],
        }
    }
    let (line, functions, node) = running("deeds");
    let mut hosts = Hosts::new(&line);
    let processes = [1, 2].map(|x| Process::start(&functions, x, treatment));
    let mut expected = Vec::new();
    for number in 0..250_u64 {
        hosts.send(number);
        expected.extend(treatment(&number.to_be_bytes()));
    }
    hosts.expect(&expected);
    let refused: Vec<_> = node.status().reasons().keys().cloned().collect();
    assert!(
        refused.iter().all(|reason| reason == "to_kernel"),
        "{refused:?}"
    );
    processes.into_iter().for_each(Process::kill);
}
