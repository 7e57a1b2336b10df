//! The border router on devices: packets over veth pairs, handled where they come in or spread over CPUs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::router_bed::{Bed, FAR, OTHER, Packet, Path, Segment, Sent, from_link, index_of, model};
use crate::support::netns::{Netns, root_or_skip, veth, wait_until};
use crate::support::wire::PacketSocket;
use sig_common::router::Reason;
use sig_common::router::maps::Traffic;
use sig_common::wire::ethernet;
use sig_linux::bpf::{Logging, Programs, RouterOptions, RouterPrograms, XdpMode};

/// What the sockets at the far ends of the wires listen to.
const ETHERTYPE: u16 = ethernet::ETHERTYPE_IPV4;

/// Where the MAC of the second hop field is in the packets.
const CURRENT_MAC: usize = 36 + 4 + 8 + 12 + 6;

const FLOWS: u32 = 16;
const PACKETS: u32 = 8;

/// A packet of a flow, and what it has become behind the router.
fn transit(flow: u32, number: u32) -> (Vec<u8>, Vec<u8>) {
    let segment = Segment::new(true, &[(0, 7), (1, 2), (9, 0)]);
    let bytes = |hop| {
        let path = Path::new(std::slice::from_ref(&segment), hop, true);
        let mut packet = Packet::new(FAR, OTHER, &path);
        packet.payload.extend(number.to_be_bytes());
        let mut bytes = packet.bytes();
        bytes[..4].copy_from_slice(&flow.to_be_bytes());
        bytes
    };
    (bytes(1), bytes(2))
}

/// The flow and the number in it.
fn read(scion: &[u8]) -> (u32, u32) {
    let number = scion.last_chunk().unwrap();
    (
        u32::from_be_bytes(*scion.first_chunk().unwrap()),
        u32::from_be_bytes(*number),
    )
}

#[test]
fn no_cpu_map_has_more_entries_than_the_machine_may_have_cpus() {
    if !root_or_skip() {
        return;
    }
    // A kernel refuses one that has more than it was built for, and that may be as few as these.
    let possible = sig_linux::cpus::possible();
    let _router = RouterPrograms::load(RouterOptions::default()).unwrap();
    let _gateway = Programs::load(Logging::Off).unwrap();
    let mut entries: Vec<u32> = aya::maps::loaded_maps()
        .filter_map(Result::ok)
        .filter(|map| map.name_as_str() == Some("R_CPUS"))
        .map(|map| map.max_entries())
        .collect();
    entries.sort();
    entries.dedup();
    assert!(entries.contains(&1), "that of a gateway: {entries:?}");
    assert!(
        entries.contains(&possible),
        "that of a router: {entries:?}, {possible} CPUs"
    );
}

#[test]
fn packets_that_no_cpu_takes_are_counted() {
    if !root_or_skip() {
        return;
    }
    let mut bed = Bed::new();
    bed.programs.set_cpus(&[0]).unwrap();
    bed.configure(model(), 1);
    let frame = from_link(1, &transit(1, 0).0);
    for lost in 1..=3 {
        // A test run tells where the packet is to go, and takes it nowhere.
        let outcome = bed.netns.run(|| bed.programs.test_run(&frame, None));
        assert_eq!(outcome.unwrap().action, crate::frames::XDP_REDIRECT);
        assert_eq!(bed.programs.not_taken().unwrap(), lost);
    }
}

#[test]
fn packets_are_forwarded_between_devices_on_one_cpu_or_several_and_flows_stay_in_order() {
    if !root_or_skip() {
        return;
    }
    let mut bed = Bed::new();
    let (left, right) = (Netns::new("left"), Netns::new("right"));
    veth((&bed.netns, "in"), (&left, "far"));
    veth((&bed.netns, "out"), (&right, "far"));
    // The far end of a veth pair takes frames in native mode only when it has a program of its own.
    let mut taker = RouterPrograms::load(RouterOptions::default()).unwrap();
    let _taker = right
        .run(|| taker.attach(index_of("far"), Some(XdpMode::Native)))
        .unwrap();
    let (ingress, egress) = bed.netns.run(|| (index_of("in"), index_of("out")));
    bed.conditions.ingress = ingress;
    bed.conditions.ifindex = egress;
    let netns = &bed.netns;
    let programs = &mut bed.programs;
    let _router = netns
        .run(|| {
            programs.add_device(egress)?;
            programs.attach(ingress, Some(XdpMode::Native))
        })
        .unwrap();
    let (sender, receiver) = (
        PacketSocket::open(&left, "far", ETHERTYPE),
        PacketSocket::open(&right, "far", ETHERTYPE),
    );
    let cpus: Vec<u32> = (0..std::thread::available_parallelism().unwrap().get() as u32).collect();
    bed.programs.set_cpus(&cpus).unwrap();
    let (inside, outside) = (bed.slots.of(1), bed.slots.of(2));
    let mut rounds = 0;
    for spread in [0, 1, cpus.len() as u16, 0] {
        bed.configure(model(), spread);
        for number in 0..PACKETS {
            for flow in 1..=FLOWS {
                sender.send(&from_link(1, &transit(flow, number).0));
            }
        }
        rounds += 1;
        let forwarded = rounds * u64::from(FLOWS * PACKETS);
        let mut received: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let start = Instant::now();
        let mut count = 0;
        while count < FLOWS * PACKETS {
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "{count} on {spread} CPUs"
            );
            let Some(frame) = receiver.receive() else {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            let sent = Sent::read(&frame);
            let (flow, number) = read(&sent.scion);
            assert_eq!(sent, Sent::by_link(2, transit(flow, number).1));
            received.entry(flow).or_default().push(number);
            count += 1;
        }
        let in_order: Vec<u32> = (0..PACKETS).collect();
        for (flow, numbers) in received {
            assert_eq!(numbers, in_order, "flow {flow} on {spread} CPUs");
        }
        // What is not forwarded passes from there as well.
        let (mut forged, _) = transit(1, 0);
        forged[CURRENT_MAC] ^= 1;
        sender.send(&from_link(1, &forged));
        wait_until("the counters", Duration::from_secs(60), || {
            let total = |slot, traffic| bed.programs.traffic(slot).unwrap().total(traffic).packets;
            total(inside, Traffic::Input) == forwarded + rounds
                && total(outside, Traffic::BrTransit) == forwarded
                && bed.programs.reasons(inside).unwrap().of(Reason::InvalidMac) == rounds
        });
        assert_eq!(receiver.receive(), None);
        assert_eq!(bed.programs.not_taken().unwrap(), 0);
    }
}
