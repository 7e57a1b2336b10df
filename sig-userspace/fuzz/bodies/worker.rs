//! Any bytes from any side through a whole worker: it never panics, loses no chunk of the UMEM, and hands to the
//! kernel and to the hosts nothing but sound packets between the prefixes that it was told.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, OnceLock},
};

use sig::{
    config::{self, Config},
    engine::{Environment, Neighbour},
    internals::Planner,
};
use sig_common::wire::inner::InnerPacket;
use sig_core::{
    dataplane::{
        Input, Output, Tables, Worker, WorkerConfig,
        icmp::Sources,
        lan::{LanFacts, LanNeighbour, LanRoute, LanTable},
    },
    framing::Limits,
    port::umem::{Area, Frame, FreeList, HEADROOM, JUMBO_SIZE},
    scion::{Endpoints, FrameFields, NextHop, Template},
};

const CHUNKS: u32 = 128;
const JUMBO: u32 = 4;
const LAN_MTU: u16 = 300;
const HOST_MAC: [u8; 6] = [8; 6];
const ICMP_SOURCE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 0, 1));

const CONFIG: &str = r#"
    [gateway]
    isd_as = "1-ff00:0:110"
    data_addr = "192.0.2.1:30056"
    prefixes = ["10.1.0.0/16", "fd00:1::/32"]
    [[remote]]
    isd_as = "1-ff00:0:111"
    gateway = "192.0.2.2:30056"
    prefixes = ["10.2.0.0/16", "fd00:2::/32"]
    [[remote.path]]
    raw = "00002000 0100123466000000 003f00000001010203040506 003f000200000708090a0b0c"
    next_hop = "192.0.2.9:30042"
    mtu = 500
"#;

fn config() -> &'static Arc<Config> {
    static PARSED: OnceLock<Arc<Config>> = OnceLock::new();
    PARSED.get_or_init(|| {
        let none = |_: &std::path::Path| Err(std::io::ErrorKind::NotFound.into());
        Arc::new(config::check(CONFIG, "fuzz", &none).expect("a valid configuration"))
    })
}

fn tables() -> Tables {
    let neighbour = Neighbour {
        interface_mac: [2; 6],
        mac: [4; 6],
        mtu: 1500,
    };
    let hop = IpAddr::from([192, 0, 2, 9]);
    let IpAddr::V4(source) = ICMP_SOURCE else {
        unreachable!("an IPv4 address")
    };
    Planner::new(config().clone(), 1).tables(
        0,
        &Environment {
            neighbours: HashMap::from([(hop, neighbour)]),
            home: Vec::new(),
            tunnel_macs: [6; 12],
            icmp: Sources {
                v4: Some(source),
                v6: None,
            },
            lan: Arc::new(lan_table()),
        },
    )
}

/// Hosts that are reached without the kernel: 10.1.0.0 to 10.1.0.255.
fn lan_table() -> LanTable {
    let neighbour = LanNeighbour {
        mac: HOST_MAC,
        interface_mac: [3; 6],
        mtu: LAN_MTU,
    };
    LanTable::new(&LanFacts {
        routes: config()
            .gateway
            .prefixes
            .iter()
            .map(|net| (*net, LanRoute::OnLink { port: 0 }))
            .collect(),
        neighbours: (0..=255)
            .map(|host| ((0, IpAddr::from([10, 1, 0, host])), neighbour))
            .collect(),
        ..LanFacts::default()
    })
}

/// Writes what the remote gateway sends.
fn template() -> &'static Template {
    static MADE: OnceLock<Template> = OnceLock::new();
    MADE.get_or_init(|| {
        let (here, remote) = (config().gateway.data_addr, &config().remotes[0]);
        let ends = Endpoints {
            local_isd_as: remote.isd_as,
            local: SocketAddr::new(remote.gateway.ip(), 30056),
            remote_isd_as: config().gateway.isd_as,
            remote: here,
        };
        let hop = NextHop {
            address: here,
            source_mac: [4; 6],
            destination_mac: [2; 6],
        };
        Template::new(&ends, &hop, 1, &remote.paths[0].raw, 0).expect("a template")
    })
}

/// Cuts `data` into records of one byte that says what it is, one byte of time, two of length, and that many bytes.
///
/// # Panics
/// If the worker breaks a promise.
pub(crate) fn run(data: &[u8]) {
    let (area, pool) = Area::on_heap_with_jumbo(CHUNKS, JUMBO);
    let limits = Limits {
        max_frame_payload: 1024,
        remotes: 1,
        streams_total: 4,
        streams_per_remote: 4,
        packets_total: 3,
        packets_per_remote: 3,
        held_total: 8,
        held_per_remote: 8,
        ..Limits::default()
    };
    let settings = WorkerConfig {
        limits,
        verify_checksums: data.len().is_multiple_of(2),
        clamp_mss: data.len().is_multiple_of(3),
        partial_checksums: data.len().is_multiple_of(3),
    };
    let free = FreeList::new(pool.clone(), 128);
    let mut worker = Worker::new(0, &settings, area.clone(), free).expect("valid limits");
    let tables = tables();
    let mut now = 0;
    let mut rest = data;
    while let Some((&[what, time, high, low], behind)) = rest.split_first_chunk() {
        let len = usize::from(u16::from_be_bytes([high, low])).min(behind.len());
        let (bytes, behind) = behind.split_at(len);
        rest = behind;
        now += u64::from(time) * 100_000;
        let mut input = Input::default();
        if let Some(frame) = frame(&mut worker, what, bytes) {
            match what % 4 {
                0 => input.lan.push(frame),
                1 => input.tunnel.push(frame),
                _ => input.underlay.push(frame),
            }
        }
        process(&mut worker, now, &tables, &mut input);
    }
    process(
        &mut worker,
        now + 120_000_000_000,
        &tables,
        &mut Input::default(),
    );
    drop(worker);
    let left = (pool.len(), pool.jumbo_len());
    assert_eq!(left, (CHUNKS as usize, JUMBO as usize), "chunks were lost");
}

/// A received frame: the bytes as they are, or as what follows a frame's sequence and index.
fn frame(worker: &mut Worker, what: u8, bytes: &[u8]) -> Option<Frame> {
    let bytes = match (what % 4, bytes.split_first_chunk()) {
        (3, Some((&[stream, sequence, high, low], payload))) => {
            let headers = template().len();
            let mut frame = vec![0; headers];
            frame.extend(payload);
            let fields = FrameFields {
                traffic_class: what >> 2,
                flow_hash: 1,
                stream: u32::from(stream % 8),
                sequence: u64::from(sequence % 64),
                index: u16::from_be_bytes([high, low]),
            };
            template().write(&mut frame, &fields)?;
            frame
        }
        _ => bytes.to_vec(),
    };
    if bytes.len() > JUMBO_SIZE - HEADROOM {
        return None;
    }
    let (area, free) = worker.memory();
    let mut frame = free.take_for(bytes.len())?;
    frame.place(HEADROOM, bytes.len());
    frame.bytes_mut(area).copy_from_slice(&bytes);
    Some(frame)
}

fn process(worker: &mut Worker, now: u64, tables: &Tables, input: &mut Input) {
    let mut output = Output::with_capacity(16, 1);
    worker.process(now, tables, input, &mut output);
    let (area, free) = worker.memory();
    for frame in output.lan.into_iter().flatten().flatten() {
        let (ethernet, packet) = frame.bytes(area).split_at(14);
        let inner = InnerPacket::parse(packet).expect("a sound packet");
        assert_eq!(ethernet[..6], HOST_MAC);
        assert!(inner.ttl > 0 && inner.total_len <= LAN_MTU && inner.header_len == 20);
        assert!(config().remotes[0].prefixes[0].contains(&inner.source));
        free.put(frame);
    }
    for frame in output.tunnel {
        let packet = &frame.bytes(area)[14..];
        let inner = InnerPacket::parse(packet).expect("a sound packet");
        assert_eq!(usize::from(inner.total_len), packet.len());
        let from = |nets: &[ipnet::IpNet], ip: &IpAddr| nets.iter().any(|net| net.contains(ip));
        let remote = &config().remotes[0].prefixes;
        assert!(
            inner.source == ICMP_SOURCE
                || from(remote, &inner.source)
                    && from(&config().gateway.prefixes, &inner.destination)
        );
        free.put(frame);
    }
    for frame in output.underlay {
        // The path's MTU, and Ethernet, IPv4 and UDP around it.
        assert!(frame.len() <= 500 + 14 + 20 + 8);
        free.put(frame);
    }
}
