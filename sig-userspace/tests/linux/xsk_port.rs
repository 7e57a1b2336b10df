//! AF_XDP ports over real veth pairs in namespaces of their own. Needs root.

use std::{
    os::fd::{AsFd, AsRawFd},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use crate::support::netns::{Netns, veth_with_queues};
use crate::xsk::{PacketSocket, Redirect, frame, serial};
use sig_core::{
    port::Port,
    port::Role,
    port::umem::{Area, Frame, FreeList},
};
use sig_linux::af_xdp::{
    BusyPoll, Error, HugePages, Opened, Plan, PortSpec, RingSizes, WorkerPort, ZeroCopy,
};
use sig_linux::netns::PrivateNetns;

const RINGS: RingSizes = RingSizes {
    receive: 512,
    transmit: 512,
    fill: 512,
    completion: 512,
};

fn spec<'a>(
    role: Role,
    interface: &str,
    queues: u32,
    namespace: Option<&'a PrivateNetns>,
) -> PortSpec<'a> {
    PortSpec {
        role,
        interface: interface.to_owned(),
        ifindex: None,
        namespace,
        queues,
        spread: false,
        zero_copy: ZeroCopy::Auto,
        tag: None,
    }
}

fn plan<'a>(workers: u32, ports: Vec<PortSpec<'a>>) -> Plan<'a> {
    Plan {
        workers,
        ports,
        rings: RINGS,
        chunks: Some(16 * 1024),
        jumbo: false,
        huge_pages: HugePages::Auto,
        later: Vec::new(),
        spare_sockets: 0,
        busy_poll: None,
    }
}

/// Fills the map of `program` with all sockets, in their slots.
fn steer(program: &Redirect, opened: &Opened) {
    for port in opened.workers.iter().flatten() {
        program.set(port.slot, port.port.as_fd().as_raw_fd());
    }
}

/// Repeats `step` until it says that all is done.
fn until(what: &str, mut step: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !step() {
        assert!(Instant::now() < deadline, "gave up waiting: {what}");
    }
}

struct Worker {
    area: Arc<Area>,
    free: FreeList,
    ports: Vec<WorkerPort>,
    batch: Vec<Frame>,
}

impl Worker {
    fn all(opened: Opened) -> Vec<Worker> {
        let (area, pool) = (opened.area, opened.pool);
        let workers = opened.workers.into_iter().map(|ports| Worker {
            area: area.clone(),
            free: FreeList::new(pool.clone(), 256),
            ports,
            batch: Vec::new(),
        });
        let mut workers: Vec<Worker> = workers.collect();
        workers.iter_mut().for_each(Worker::service);
        workers
    }

    fn service(&mut self) {
        for port in &mut self.ports {
            let result = port.port.service(&self.area, &mut self.free);
            result.expect("the kernel takes what the port gives");
        }
    }

    fn role(&self, role: Role) -> usize {
        let place = self.ports.iter().position(|port| port.role == role);
        place.expect("the worker has a port of that role")
    }

    /// Receives on one port, changes each frame and transmits all of them on another.
    fn forward(&mut self, from: usize, to: usize, change: impl Fn(&mut Frame, &Area)) {
        self.ports[from].port.receive(&mut self.batch);
        self.batch
            .iter_mut()
            .for_each(|frame| change(frame, &self.area));
        self.ports[to].port.transmit(&mut self.batch);
        self.service();
    }

    /// Copies of the frames that arrived on one port.
    fn received(&mut self, from: usize) -> Vec<Vec<u8>> {
        let mut batch = Vec::new();
        self.ports[from].port.receive(&mut batch);
        let copies = batch.iter().map(|frame| frame.bytes(&self.area).to_vec());
        let copies = copies.collect();
        batch.into_iter().for_each(|frame| self.free.put(frame));
        self.service();
        copies
    }

    fn send(&mut self, to: usize, bytes: &[u8]) {
        let mut frame = self.free.take().expect("a chunk is free");
        frame.place(512, bytes.len());
        frame.bytes_mut(&self.area).copy_from_slice(bytes);
        let mut frames = vec![frame];
        until("room in the transmit ring", || {
            self.ports[to].port.transmit(&mut frames);
            self.service();
            frames.is_empty()
        });
    }
}

/// A gateway's namespace with one veth pair to a far host.
fn one_wire(queues: u32) -> (Netns, Netns) {
    let (gateway, far) = (Netns::new("gateway"), Netns::new("far"));
    veth_with_queues((&gateway, "d0"), (&far, "g0"), queues);
    (gateway, far)
}

#[test]
fn a_hundred_thousand_frames_come_back_in_order_and_unchanged_and_no_chunk_is_lost() {
    let (gateway, far) = one_wire(1);
    let opened = gateway.run(|| plan(1, vec![spec(Role::Underlay, "d0", 1, None)]).open());
    let opened = opened.expect("the port opens");
    let mut program = Redirect::load(16);
    program.attach(&gateway, "d0");
    steer(&program, &opened);
    let pool = opened.pool.clone();
    let mut worker = Worker::all(opened).remove(0);
    let free_at_rest = worker.free.len() + pool.len();
    let wire = PacketSocket::open(&far, "g0", crate::xsk::ETHERTYPE);

    let (mut sent, mut seen) = (0u32, 0u32);
    let mut echo = |worker: &mut Worker, burst: u32| {
        for _ in 0..burst {
            wire.send(&frame(0, sent, 60 + (sent % 1400) as usize));
            sent += 1;
        }
        until("the echo of a burst", || {
            worker.forward(0, 0, |_, _| ());
            while let Some(back) = wire.receive() {
                assert_eq!(back, frame(0, seen, 60 + (seen % 1400) as usize));
                seen += 1;
            }
            seen == sent
        });
    };
    for _ in 0..1000 {
        echo(&mut worker, 100);
    }
    // The fill ring is topped up by 32 at a time, so the free chunks swing by as many.
    let least = (0..64).map(|_| {
        echo(&mut worker, 1);
        worker.service();
        worker.free.len() + pool.len()
    });
    assert_eq!(least.min(), Some(free_at_rest));
    let statistics = worker.ports[0].port.statistics().expect("the kernel tells");
    assert_eq!(statistics.rx_dropped + statistics.rx_ring_full, 0);
    assert_eq!(
        statistics.rx_invalid_descriptors + statistics.tx_invalid_descriptors,
        0
    );
    assert_eq!(worker.ports[0].port.counters().bad_descriptors.get(), 0);
    assert!(!worker.ports[0].port.is_zero_copy(), "veth cannot");
}

#[test]
fn packets_larger_than_a_chunk_cross_in_several_of_them() {
    let (gateway, far) = one_wire(1);
    gateway.ip("link set d0 mtu 9216");
    far.ip("link set g0 mtu 9216");
    let mut plan = plan(1, vec![spec(Role::Underlay, "d0", 1, None)]);
    plan.jumbo = true;
    let opened = gateway.run(|| plan.open()).expect("the port opens");
    let mut program = Redirect::load(16);
    program.attach(&gateway, "d0");
    steer(&program, &opened);
    let (area, pool) = (opened.area.clone(), opened.pool.clone());
    let mut worker = Worker::all(opened).remove(0);
    let wire = PacketSocket::open(&far, "g0", crate::xsk::ETHERTYPE);
    let lengths = [60, 3584, 3585, 7168, 7169, 9000, 9230, 1500, 4096, 9230];
    for shift in [0, 40, 300] {
        for (serial, len) in (0u32..).zip(lengths.iter().cycle().take(200)) {
            wire.send(&frame(0, serial, *len));
            let mut arrived = None;
            until("the echo", || {
                worker.forward(0, 0, |packet, area| {
                    // As if headers had been put in front: parts begin elsewhere.
                    let bytes = packet.bytes(area).to_vec();
                    packet.place(packet.headroom() - shift, bytes.len());
                    packet.bytes_mut(area).copy_from_slice(&bytes);
                });
                arrived = wire.receive();
                arrived.is_some()
            });
            assert!(arrived == Some(frame(0, serial, *len)), "{len} bytes");
        }
    }
    let port = &worker.ports[0].port;
    let statistics = port.statistics().expect("the kernel tells");
    assert_eq!(statistics.rx_dropped + statistics.rx_ring_full, 0);
    assert_eq!(statistics.tx_invalid_descriptors, 0);
    assert_eq!(port.counters().rx_multi_buffer.get(), 0);
    assert_eq!(port.counters().bad_descriptors.get(), 0);
    // The port keeps some, the worker a few; none is lost.
    let mut kept = Vec::new();
    until("the end of the last transmission", || {
        worker.service();
        kept.extend(std::iter::from_fn(|| worker.free.take_jumbo()));
        kept.len() + 64 == area.jumbo_frames() as usize
    });
    assert_eq!(pool.jumbo_len(), 0);
}

#[test]
fn received_packets_leave_room_for_headers_and_leave_on_another_port_in_another_namespace() {
    let [gateway, hidden, lan, wan] = ["gateway", "hidden", "lan", "wan"].map(Netns::new);
    veth_with_queues((&gateway, "d0"), (&lan, "g0"), 1);
    veth_with_queues((&hidden, "d1"), (&wan, "s0"), 1);
    let inside = hidden.thread();
    // Whichever side is opened first.
    for hidden_first in [false, true] {
        let mut ports = vec![
            spec(Role::Lan, "d0", 1, None),
            spec(Role::Tunnel, "d1", 1, Some(&inside)),
        ];
        if hidden_first {
            ports.reverse();
        }
        let opened = gateway
            .run(|| plan(1, ports).open())
            .expect("both ports open");
        let mut program = Redirect::load(16);
        program.attach(&gateway, "d0");
        program.attach(&hidden, "d1");
        steer(&program, &opened);
        let slots: Vec<u8> = opened.workers[0]
            .iter()
            .map(|port| port.slot as u8)
            .collect();
        let mut worker = Worker::all(opened).remove(0);
        let (near, inner) = (worker.role(Role::Lan), worker.role(Role::Tunnel));
        let (left, right) = (
            PacketSocket::open(&lan, "g0", crate::xsk::ETHERTYPE),
            PacketSocket::open(&wan, "s0", crate::xsk::ETHERTYPE),
        );

        let header: Vec<u8> = frame(0, 0, 200);
        for number in 0..500 {
            left.send(&frame(slots[near], number, 100));
            let mut arrived = None;
            until("the frame with its header", || {
                worker.forward(near, inner, |frame, area| {
                    assert!(frame.headroom() >= 512);
                    let (start, len) = (frame.headroom() - 200, frame.len() + 200);
                    frame.place(start, len);
                    frame.bytes_mut(area)[..200].copy_from_slice(&header);
                });
                arrived = right.receive();
                arrived.is_some()
            });
            let expected = [header.clone(), frame(slots[near], number, 100)].concat();
            assert_eq!(arrived, Some(expected));

            right.send(&frame(slots[inner], number, 300));
            until("the frame without its first bytes", || {
                worker.forward(inner, near, |packet, area| {
                    let (start, len) = (packet.headroom() + 40, packet.len() - 40);
                    packet.place(start, len);
                    packet.bytes_mut(area)[..14].copy_from_slice(&header[..14]);
                });
                arrived = left.receive();
                arrived.is_some()
            });
            let arrived = arrived.take().expect("just arrived");
            assert_eq!(arrived[14..], frame(slots[inner], number, 300)[54..]);
        }
    }
}

#[test]
fn two_workers_share_single_queues_and_split_the_others() {
    let [gateway, hidden] = ["gateway", "hidden"].map(Netns::new);
    let far = ["wan", "lan", "inner"].map(Netns::new);
    veth_with_queues((&gateway, "wan"), (&far[0], "far"), 1);
    veth_with_queues((&gateway, "lan"), (&far[1], "far"), 1);
    veth_with_queues((&hidden, "inner"), (&far[2], "far"), 2);
    let inside = hidden.thread();
    let spread = |spec: PortSpec<'static>| PortSpec {
        spread: true,
        ..spec
    };
    let ports = vec![
        spread(spec(Role::Underlay, "wan", 1, None)),
        spread(spec(Role::Lan, "lan", 1, None)),
        spec(Role::Tunnel, "inner", 2, Some(&inside)),
    ];
    let opened = gateway
        .run(|| plan(2, ports).open())
        .expect("all ports open");
    let shape: Vec<_> = opened
        .steering
        .iter()
        .map(|s| (s.spec, s.queue, s.first, s.count))
        .collect();
    assert_eq!(
        shape,
        [(0, 0, 0, 2), (1, 0, 2, 2), (2, 0, 4, 1), (2, 1, 5, 1)]
    );
    let mut program = Redirect::load(16);
    program.attach(&gateway, "wan");
    program.attach(&gateway, "lan");
    program.attach(&hidden, "inner");
    steer(&program, &opened);
    let wires: Vec<_> = far
        .iter()
        .map(|far| PacketSocket::open(far, "far", crate::xsk::ETHERTYPE))
        .collect();
    let workers = Worker::all(opened);

    // Both workers at once, each on its own thread, send on all their ports and receive from the two
    // wires whose program knows them. No more is under way than the rings of a veth can hold.
    const COUNT: u32 = 5000;
    const WINDOW: u32 = 50;
    let received: [AtomicU32; 2] = Default::default();
    let arrived: [AtomicU32; 2] = Default::default();
    let done = thread::scope(|scope| {
        let mut threads = Vec::new();
        for (index, mut worker) in workers.into_iter().enumerate() {
            let (received, arrived) = (&received[index], &arrived[index]);
            threads.push(scope.spawn(move || {
                let (mut sent, mut got) = (0, [0u32; 2]);
                until("frames from both wires", || {
                    if sent < COUNT.min(arrived.load(Relaxed) + WINDOW) {
                        for port in 0..3 {
                            worker.send(port, &frame(index as u8, sent, 80));
                        }
                        sent += 1;
                    }
                    for (port, got) in got.iter_mut().enumerate() {
                        for packet in worker.received(port) {
                            assert_eq!(u32::from(packet[14]), worker.ports[port].slot);
                            assert_eq!(serial(&packet), *got, "in order");
                            *got += 1;
                        }
                    }
                    received.store(got[0].min(got[1]), Relaxed);
                    sent == COUNT && got == [COUNT; 2]
                });
                worker
            }));
        }
        let (mut sent, mut seen) = (0, [[0u32; 2]; 3]);
        until("frames from both workers on all wires", || {
            let slowest = received.iter().map(|count| count.load(Relaxed)).min();
            if sent < COUNT.min(slowest.unwrap_or(0) + WINDOW) {
                for slot in 0..4 {
                    wires[usize::from(slot / 2)].send(&frame(slot, sent, 90));
                }
                sent += 1;
            }
            for (wire, seen) in wires.iter().zip(&mut seen) {
                while let Some(packet) = wire.receive() {
                    let worker = usize::from(packet[14]);
                    assert_eq!(serial(&packet), seen[worker], "in order");
                    seen[worker] += 1;
                }
            }
            for (worker, arrived) in arrived.iter().enumerate() {
                let slowest = seen.iter().map(|seen| seen[worker]).min();
                arrived.store(slowest.unwrap_or(0), Relaxed);
            }
            sent == COUNT && seen == [[COUNT; 2]; 3]
        });
        let join = |thread: thread::ScopedJoinHandle<'_, Worker>| thread.join().expect("no panic");
        threads.into_iter().map(join).collect::<Vec<_>>()
    });
    for port in done.iter().flat_map(|worker| &worker.ports) {
        let statistics = port.port.statistics().expect("the kernel tells");
        assert_eq!(
            statistics.rx_dropped + statistics.rx_ring_full,
            0,
            "slot {}",
            port.slot
        );
        assert_eq!(port.port.counters().bad_descriptors.get(), 0);
    }
}

#[test]
fn every_queue_has_its_own_socket_and_its_own_traffic() {
    let (gateway, far) = one_wire(2);
    for busy_poll in [
        None,
        Some(BusyPoll {
            micros: 20,
            budget: 64,
        }),
    ] {
        let plan = Plan {
            busy_poll,
            ..plan(2, vec![spec(Role::Lan, "d0", 2, None)])
        };
        let opened = gateway.run(|| plan.open()).expect("both queues open");
        let mut program = Redirect::load(16);
        program.attach(&gateway, "d0");
        // Frames go to the socket of their queue only, so one of the two slots gets each.
        steer(&program, &opened);
        let wire = PacketSocket::open(&far, "g0", crate::xsk::ETHERTYPE);
        let mut workers = Worker::all(opened);
        for (index, worker) in workers.iter_mut().enumerate() {
            assert_eq!(worker.ports.len(), 1);
            assert_eq!(worker.ports[0].queue, index as u32);
            worker.send(0, &frame(0, index as u32, 64));
            let mut arrived = None;
            until("the frame on the wire", || {
                arrived = wire.receive();
                arrived.is_some()
            });
            assert_eq!(arrived, Some(frame(0, index as u32, 64)));
        }
        let mut got = Vec::new();
        until("a frame from the wire", || {
            (0..2).for_each(|slot| wire.send(&frame(slot, 9, 64)));
            got.extend(workers.iter_mut().flat_map(|worker| worker.received(0)));
            !got.is_empty()
        });
        assert!(
            got.iter()
                .all(|packet| packet[15..] == frame(0, 9, 64)[15..])
        );
    }
}

#[test]
fn a_burst_that_fills_the_ring_leaves_in_order_and_the_rest_waits() {
    let (gateway, far) = one_wire(1);
    let opened = gateway.run(|| plan(1, vec![spec(Role::Lan, "d0", 1, None)]).open());
    let mut worker = Worker::all(opened.expect("the port opens")).remove(0);
    let wire = PacketSocket::open(&far, "g0", crate::xsk::ETHERTYPE);
    let mut frames = Vec::new();
    for number in 0..700 {
        let mut chunk = worker.free.take().expect("a chunk is free");
        let bytes = frame(0, number, 64);
        chunk.place(256, bytes.len());
        chunk.bytes_mut(&worker.area).copy_from_slice(&bytes);
        frames.push(chunk);
    }
    worker.ports[0].port.transmit(&mut frames);
    assert_eq!(frames.len(), 700 - 512);
    assert!(worker.ports[0].port.is_transmitting());
    let mut next = 0;
    until("all frames", || {
        worker.service();
        worker.ports[0].port.transmit(&mut frames);
        while let Some(packet) = wire.receive() {
            assert_eq!(serial(&packet), next);
            next += 1;
        }
        next == 700
    });
    assert!(!worker.ports[0].port.is_transmitting());
}

#[test]
fn a_frame_without_room_for_an_ethernet_header_is_counted_and_its_chunk_comes_back() {
    let (gateway, _far) = one_wire(1);
    let opened = gateway.run(|| plan(1, vec![spec(Role::Lan, "d0", 1, None)]).open());
    let opened = opened.expect("the port opens");
    let pool = opened.pool.clone();
    let mut worker = Worker::all(opened).remove(0);
    let before = worker.free.len() + pool.len();
    let mut frames = vec![worker.free.take().expect("a chunk is free")];
    worker.ports[0].port.transmit(&mut frames);
    assert!(frames.is_empty());
    worker.service();
    assert_eq!(worker.free.len() + pool.len(), before);
    assert_eq!(worker.ports[0].port.counters().tx_too_short.get(), 1);
}

#[test]
fn while_the_interface_is_down_service_says_so_and_frames_wait() {
    let (gateway, far) = one_wire(1);
    let opened = gateway.run(|| plan(1, vec![spec(Role::Lan, "d0", 1, None)]).open());
    let mut worker = Worker::all(opened.expect("the port opens")).remove(0);
    gateway.ip("link set d0 down");
    let mut frames = vec![worker.free.take().expect("a chunk is free")];
    let bytes = frame(0, 7, 64);
    frames[0].place(512, 64);
    frames[0].bytes_mut(&worker.area).copy_from_slice(&bytes);
    worker.ports[0].port.transmit(&mut frames);
    let error = worker.ports[0].port.service(&worker.area, &mut worker.free);
    let code = error.expect_err("the interface is down").raw_os_error();
    assert_eq!(code, Some(libc::ENETDOWN));
    assert!(worker.ports[0].port.is_transmitting());
    gateway.ip("link set d0 up");
    let wire = PacketSocket::open(&far, "g0", crate::xsk::ETHERTYPE);
    until("the frame", || {
        worker.service();
        wire.receive().is_some_and(|packet| packet == bytes)
    });
}

#[test]
fn a_receiver_sleeps_in_poll_until_a_frame_comes() {
    let (gateway, far) = one_wire(1);
    let opened = gateway.run(|| plan(1, vec![spec(Role::Lan, "d0", 1, None)]).open());
    let opened = opened.expect("the port opens");
    let mut program = Redirect::load(16);
    program.attach(&gateway, "d0");
    steer(&program, &opened);
    let mut worker = Worker::all(opened).remove(0);
    let wire = PacketSocket::open(&far, "g0", crate::xsk::ETHERTYPE);
    let mut poll = libc::pollfd {
        fd: worker.ports[0].port.fd().expect("a socket"),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one live structure.
    assert_eq!(unsafe { libc::poll(&mut poll, 1, 0) }, 0);
    wire.send(&frame(0, 1, 64));
    // SAFETY: as above.
    assert_eq!(unsafe { libc::poll(&mut poll, 1, 5000) }, 1);
    assert_eq!(worker.received(0), [frame(0, 1, 64)]);
}

fn refusal(gateway: &Netns, port: PortSpec<'_>) -> Error {
    match gateway.run(|| plan(1, vec![port]).open()) {
        Ok(_) => panic!("the port opened"),
        Err(error) => error,
    }
}

#[test]
fn refusals_name_the_cause() {
    let (gateway, _far) = one_wire(1);
    let error = refusal(&gateway, spec(Role::Lan, "nowhere", 1, None));
    assert!(matches!(&error, Error::NoInterface { interface } if interface == "nowhere"));
    let error = refusal(&gateway, spec(Role::Lan, "d0", 2, None));
    assert!(matches!(error, Error::NoQueue { queue: 1, .. }), "{error}");
    let zero_copy = PortSpec {
        zero_copy: ZeroCopy::Require,
        ..spec(Role::Lan, "d0", 1, None)
    };
    let error = refusal(&gateway, zero_copy);
    assert!(
        matches!(error, Error::NoZeroCopy { queue: 0, .. }),
        "{error}"
    );
}

#[test]
fn a_queue_in_use_is_reported_and_can_be_had_once_it_is_free() {
    let (gateway, _far) = one_wire(1);
    let open = || gateway.run(|| plan(1, vec![spec(Role::Lan, "d0", 1, None)]).open());
    let first = open().expect("the port opens");
    let error = refusal(&gateway, spec(Role::Lan, "d0", 1, None));
    assert!(matches!(error, Error::Busy { queue: 0, .. }), "{error}");
    drop(first);
    for _ in 0..5 {
        drop(open().expect("free again, if a little later"));
    }
}

#[test]
fn without_privileges_the_error_names_the_capabilities() {
    let (gateway, _far) = one_wire(1);
    let error = gateway.run(|| {
        // SAFETY: plain system call; directly, it concerns this short-lived thread alone.
        let result = unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) };
        assert_eq!(result, 0);
        match plan(1, vec![spec(Role::Lan, "d0", 1, None)]).open() {
            Ok(_) => panic!("the port opened"),
            Err(error) => error,
        }
    });
    assert!(matches!(error, Error::Permission { .. }), "{error}");
    assert!(error.to_string().contains("CAP_NET_RAW"));
}

#[test]
fn a_umem_above_the_limit_of_locked_memory_is_refused_with_its_size() {
    let (gateway, _far) = one_wire(1);
    let error = gateway.run(|| {
        // SAFETY: plain system calls on live structures. The limit concerns the whole process, but
        // only this short-lived thread gives up the capability that lifts it.
        unsafe {
            let mut limit = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            assert_eq!(libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit), 0);
            limit.rlim_cur = 8 << 20;
            assert_eq!(libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit), 0);
            let header = [0x2008_0522u32, 0];
            let mut sets = [0u32; 6];
            let (header, sets_at) = (header.as_ptr(), sets.as_mut_ptr());
            assert_eq!(libc::syscall(libc::SYS_capget, header, sets_at), 0);
            sets[0] &= !(1 << 14); // CAP_IPC_LOCK
            assert_eq!(libc::syscall(libc::SYS_capset, header, sets.as_ptr()), 0);
        }
        match plan(1, vec![spec(Role::Lan, "d0", 1, None)]).open() {
            Ok(_) => panic!("the port opened"),
            Err(error) => error,
        }
    });
    assert!(
        matches!(error, Error::LockedMemory { mebibytes: 64 }),
        "{error}"
    );
}
