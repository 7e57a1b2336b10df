//! VLANs of one interface: `sig_trunk` and sockets for each VLAN, over a veth pair. There are no VLAN devices: the programs know them
//! by number only. Needs root.

use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use sig_common::maps::{LanRoute, Sockets, TrunkPort};
use sig_common::wire::ethernet::{self, TPID_8021Q, Tag};
use sig_core::port::{
    Port as _, Role,
    umem::{Area, FreeList},
};
use sig_linux::af_xdp::{
    HugePages, OpenedPort, Plan, PortSpec, RingSizes, Steering, WorkerPort, ZeroCopy,
};
use sig_linux::bpf::{LoadOptions, Logging, Program, Programs, XdpMode};
use sig_linux::capture::Capture;

use crate::support::netns::{Netns, root_or_skip, veth_with_queues};
use crate::support::wire::PacketSocket;

const RING: u32 = 512;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// VLANs, 0 for none.
const VLANS: [u16; 3] = [10, 20, 0];
const FRAMES: u8 = 200;
/// The addresses of what comes back.
const ECHO: [u8; 12] = [2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 2];

/// An IPv4 packet to a remote, if `is_ours`, with a number in it.
fn frame(vlan: u16, number: u8, is_ours: bool) -> Vec<u8> {
    let mut frame = vec![0; 14 + 4];
    let tag = (vlan != 0).then_some(Tag {
        tpid: TPID_8021Q,
        tci: vlan,
    });
    let header = ethernet::Header {
        destination: MAC,
        source: [2, 0, 0, 0, 0, 1],
        tags: [tag, None],
        ethertype: ethernet::ETHERTYPE_IPV4,
    };
    let len = header.emit(&mut frame).unwrap();
    frame.truncate(len);
    let third = if is_ours { 2 } else { 3 };
    frame.extend([0x45, 0, 0, 60, 0, 0, 0, 0, 64, 253, 0, 0]);
    frame.extend([10, 1, 0, 1, 10, third, 0, number]);
    frame.extend([number; 40]);
    frame
}

fn spec(vlan: u16) -> PortSpec<'static> {
    PortSpec {
        role: Role::Lan,
        interface: "d0".to_owned(),
        ifindex: None,
        namespace: None,
        queues: 1,
        spread: false,
        zero_copy: ZeroCopy::Never,
        tag: (vlan != 0).then_some(Tag {
            tpid: TPID_8021Q,
            tci: vlan,
        }),
    }
}

fn plan(ports: Vec<PortSpec<'static>>) -> Plan<'static> {
    Plan {
        workers: 1,
        ports,
        later: Vec::new(),
        spare_sockets: 2,
        rings: RingSizes::all(RING),
        chunks: Some(8192),
        jumbo: false,
        huge_pages: HugePages::Never,
        busy_poll: None,
    }
}

/// The gateway's end of a pair with index, and the other.
fn pair() -> (Netns, Netns, u32) {
    let (gateway, far) = (Netns::new("trunk"), Netns::new("far"));
    veth_with_queues((&gateway, "d0"), (&far, "g0"), 1);
    gateway.ip("link set d0 address 02:00:00:00:00:02");
    let trunk = gateway.run(|| {
        // SAFETY: a string with its end mark.
        unsafe { libc::if_nametoindex(c"d0".as_ptr()) }
    });
    (gateway, far, trunk)
}

fn programs() -> Programs {
    let mut programs = Programs::load(LoadOptions {
        logging: Logging::Off,
        trunks: true,
    })
    .unwrap();
    programs
        .set_lan_routes([("10.2.0.0/16".parse().unwrap(), LanRoute::TUNNEL)])
        .unwrap();
    programs
}

/// Lets packets of a VLAN to its socket.
fn steer(programs: &mut Programs, trunk: u32, vlan: u16, steering: &Steering) {
    // Any other numbers for VLAN devices.
    let ifindex = match vlan {
        0 => trunk,
        _ => 5_000 + u32::from(vlan),
    };
    programs.set_lan_port(ifindex, MAC, true, 1500).unwrap();
    let sockets = Sockets {
        first: steering.first,
        count: steering.count,
    };
    programs.set_steering(ifindex, 0, sockets).unwrap();
    let port = TrunkPort {
        ifindex,
        program: TrunkPort::LAN,
    };
    programs.set_vlan(trunk, vlan, Some(port)).unwrap();
}

#[test]
fn each_vlan_of_an_interface_has_sockets_of_its_own_and_the_kernel_gets_the_rest() {
    if !root_or_skip() {
        return;
    }
    let (gateway, far, trunk) = pair();
    let mut programs = programs();
    let plan = plan(VLANS.map(spec).to_vec());
    let mut opened = gateway.run(|| plan.open()).unwrap();
    for steering in &opened.steering {
        steer(&mut programs, trunk, VLANS[steering.spec], steering);
    }
    let mut ports = opened.workers.remove(0);
    for port in &ports {
        programs.set_socket(port.slot, port.port.as_fd()).unwrap();
    }
    let _attached = gateway
        .run(|| programs.attach_xdp(Program::Trunk, trunk, Some(XdpMode::Native)))
        .unwrap();
    let mut left = gateway.run(|| Capture::open("d0")).unwrap();
    let mut back = far.run(|| Capture::open("g0")).unwrap();
    let wire = PacketSocket::open(&far, "g0", TPID_8021Q);

    let mut free = FreeList::new(opened.pool.clone(), 256);
    for port in &mut ports {
        port.port.service(&opened.area, &mut free).unwrap();
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut seen = [0; VLANS.len()];
    let (mut passed, mut echoed) = (Vec::new(), Vec::new());
    let mut batch = Vec::new();
    for number in 0..FRAMES {
        for vlan in [10, 20, 0, 30] {
            wire.send(&frame(vlan, number, true));
            wire.send(&frame(vlan, number, false));
        }
        let sent = usize::from(number) + 1;
        while echoed.len() < 3 * sent || passed.len() < 5 * sent {
            assert!(
                Instant::now() < deadline,
                "of {sent}, received {seen:?}, echoed {}, left to the kernel {}",
                echoed.len(),
                passed.len()
            );
            for (place, port) in ports.iter_mut().enumerate() {
                port.port.receive(&mut batch);
                for received in &mut batch {
                    // Without its tag.
                    let expected = frame(0, seen[place], true);
                    assert_eq!(received.bytes(&opened.area), expected, "port {place}");
                    received.bytes_mut(&opened.area)[..12].copy_from_slice(&ECHO);
                    seen[place] += 1;
                }
                port.port.transmit(&mut batch);
                port.port.service(&opened.area, &mut free).unwrap();
            }
            for (capture, begin, into) in [
                (&mut left, &MAC, &mut passed),
                (&mut back, &ECHO[..6].try_into().unwrap(), &mut echoed),
            ] {
                while let Some(captured) = capture.read().unwrap() {
                    if captured.data.starts_with(begin) {
                        into.push(captured.data.to_vec());
                    }
                }
            }
        }
    }
    assert_eq!(seen, [FRAMES; VLANS.len()]);
    // The kernel's are as they were sent.
    let expected = (0..FRAMES).flat_map(|number| {
        [
            (10, false),
            (20, false),
            (0, false),
            (30, true),
            (30, false),
        ]
        .map(|(vlan, is_ours)| frame(vlan, number, is_ours))
    });
    assert!(passed.into_iter().eq(expected));
    // Ours came back with the tag of the port that they left by, in order.
    for vlan in VLANS {
        let mut expected: Vec<_> = (0..FRAMES).map(|n| frame(vlan, n, true)).collect();
        expected
            .iter_mut()
            .for_each(|frame| frame[..12].copy_from_slice(&ECHO));
        let of_vlan = |frame: &&Vec<u8>| match frame[12..14] {
            [0x81, 0] => u16::from_be_bytes([frame[14], frame[15]]) == vlan,
            _ => vlan == 0,
        };
        let echoed: Vec<_> = echoed.iter().filter(of_vlan).cloned().collect();
        assert_eq!(echoed, expected, "VLAN {vlan}");
    }
}

/// Sends a packet of each VLAN, and sees it come to its port and go back.
fn exchange(
    wire: &PacketSocket,
    back: &mut Capture,
    ports: &mut [(u16, WorkerPort)],
    (area, free): (&Area, &mut FreeList),
) {
    for (vlan, _) in &*ports {
        wire.send(&frame(*vlan, 1, true));
    }
    let deadline = Instant::now() + Duration::from_secs(30);
    let (mut seen, mut echoed) = (0, 0);
    let mut batch = Vec::new();
    while seen < ports.len() || echoed < ports.len() {
        assert!(
            Instant::now() < deadline,
            "received {seen}, echoed {echoed} of {}",
            ports.len()
        );
        for (_, WorkerPort { port, .. }) in &mut *ports {
            port.receive(&mut batch);
            for received in &mut batch {
                assert_eq!(received.bytes(area), frame(0, 1, true));
                received.bytes_mut(area)[..12].copy_from_slice(&ECHO);
                seen += 1;
            }
            port.transmit(&mut batch);
            port.service(area, free).unwrap();
        }
        while let Some(captured) = back.read().unwrap() {
            echoed += usize::from(captured.data.starts_with(&ECHO));
        }
    }
}

/// Waits until all that was sent is back.
fn settle(ports: &mut [(u16, WorkerPort)], (area, free): (&Area, &mut FreeList)) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let mut is_done = true;
        for (_, WorkerPort { port, .. }) in &mut *ports {
            port.service(area, free).unwrap();
            let progress = port.progress();
            is_done &= progress.sent == progress.completed;
        }
        if is_done {
            return;
        }
        assert!(Instant::now() < deadline, "not everything is sent");
    }
}

#[test]
fn a_vlan_that_goes_leaves_the_rings_to_those_that_stay_and_the_last_one_gives_them_back() {
    if !root_or_skip() {
        return;
    }
    let (gateway, far, trunk) = pair();
    let mut programs = programs();
    let opened = gateway.run(|| plan(Vec::new()).open()).unwrap();
    let (area, pool) = (&*opened.area, &opened.pool);
    let opener = opened.opener.as_ref().unwrap();
    let all = pool.len();
    let open = |programs: &mut Programs, vlan| {
        let OpenedPort {
            mut workers,
            steering,
            lease,
        } = gateway.run(|| opener.open(&spec(vlan), true)).unwrap();
        let port = workers.remove(0).remove(0);
        programs.set_socket(port.slot, port.port.as_fd()).unwrap();
        steer(programs, trunk, vlan, &steering[0]);
        ((vlan, port), lease)
    };
    let wire = PacketSocket::open(&far, "g0", TPID_8021Q);
    let mut back = far.run(|| Capture::open("g0")).unwrap();
    let mut free = FreeList::new(pool.clone(), 0);

    let (first, first_lease) = open(&mut programs, 10);
    let (second, second_lease) = open(&mut programs, 20);
    let refused = gateway.run(|| opener.open(&spec(20), true));
    let refused = refused.err().expect("it is open").to_string();
    assert!(refused.contains("listed twice"), "{refused}");
    let refused = gateway.run(|| opener.open(&spec(30), true));
    let refused = refused.err().expect("there are two slots").to_string();
    assert!(refused.contains("d0"), "{refused}");
    let _attached = gateway
        .run(|| programs.attach_xdp(Program::Trunk, trunk, Some(XdpMode::Native)))
        .unwrap();
    let mut both = [first, second];
    exchange(&wire, &mut back, &mut both, (area, &mut free));

    // What has come for the one that goes, and was not read, comes back too.
    for number in 0..40 {
        wire.send(&frame(10, number, true));
    }
    let [(_, mut first), second] = both;
    let deadline = Instant::now() + Duration::from_secs(30);
    while !first.port.fd().is_some_and(is_readable) {
        assert!(Instant::now() < deadline, "nothing has come");
    }
    std::thread::sleep(Duration::from_millis(200));
    programs.set_vlan(trunk, 10, None).unwrap();
    first.port.give_up(area, &mut free);
    drop(first);
    gateway.run(|| opener.close(first_lease));
    let mut one = [second];
    settle(&mut one, (area, &mut free));
    free = FreeList::new(pool.clone(), 0);
    let in_ring = all - pool.len();
    // Up to a batch may be missing in the ring.
    assert!(
        (RING as usize - 64..=RING as usize).contains(&in_ring),
        "{in_ring} are away"
    );
    exchange(&wire, &mut back, &mut one, (area, &mut free));

    // One that comes late shares the rings whose first socket has gone.
    let (late, late_lease) = open(&mut programs, 10);
    let [second] = one;
    let mut both = [second, late];
    exchange(&wire, &mut back, &mut both, (area, &mut free));
    settle(&mut both, (area, &mut free));

    for ((vlan, mut port), lease) in both.into_iter().zip([second_lease, late_lease]) {
        programs.set_vlan(trunk, vlan, None).unwrap();
        port.port.give_up(area, &mut free);
        drop(port);
        gateway.run(|| opener.close(lease));
    }
    drop(free);
    assert_eq!(pool.len(), all, "all is back");
}

fn is_readable(fd: std::os::fd::RawFd) -> bool {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry, which lives as long as the call.
    unsafe { libc::poll(&raw mut poll, 1, 0) == 1 && poll.revents & libc::POLLIN != 0 }
}
