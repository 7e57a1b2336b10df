//! Two gateways back to back in memory, with clocks around `Worker::process` alone.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use ipnet::IpNet;
use sig_common::{
    addr::IsdAs,
    wire::{inner::InnerPacket, sig_frame::PROTECTION_LEN, underlay::Local},
};
use sig_core::{
    dataplane::{
        Action, Input, Output, Path, PathSpec, Routing, Rule, Tables, Worker, WorkerConfig,
    },
    framing::Limits,
    policy::class::Condition,
    port::BATCH,
    port::umem::{Area, Frame, FreeList, HEADROOM, Pool},
    protection::Keyring,
    scion::{Endpoints, NextHop},
};

/// Chunks of a gateway: room for the longest window and all frames made of it.
const CHUNKS: u32 = 16_384;
/// Free chunks that a worker keeps, as in the engine.
const FREE_LIMIT: usize = 512;
/// Nanoseconds between two batches.
const TICK: u64 = 5_000;
/// Ethernet, IPv4, UDP, SCION with a path of two hops, UDP/SCION, SIG frame header.
const HEADERS: usize = 14 + 20 + 8 + 12 + 24 + PATH.len() + 8 + 16;
const ETHERNET_LEN: usize = 14;

/// A SCION path over two ASes: meta header, info field, two hop fields.
const PATH: [u8; 36] = [
    0, 0, 0x20, 0, 1, 0, 0x12, 0x34, 0x66, 0, 0, 0, 0, 0x3f, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 0, 0x3f,
    0, 2, 0, 0, 7, 8, 9, 10, 11, 12,
];

/// What the workers of a gateway share.
struct Site {
    area: Arc<Area>,
    pool: Arc<Pool>,
    tables: Arc<Tables>,
}

/// One worker of a gateway that has the other gateway as its only remote.
struct Gateway {
    area: Arc<Area>,
    worker: Worker,
    tables: Arc<Tables>,
    input: Input,
    output: Output,
}

impl Site {
    /// Gateway 1 or 2, which serves 10.`number`.0.0/16 and fd00:`number`::/32, and sends frames
    /// with payloads of up to `capacity` bytes.
    /// With keys, frames are protected under those of `keys[0]`, and taken under those of `keys[1]`.
    fn new(
        number: u8,
        capacity: usize,
        routes: &[IpNet],
        workers: usize,
        keys: Option<[Arc<Keyring>; 2]>,
    ) -> Self {
        let (area, pool) = Area::on_heap(CHUNKS);
        let (here, there) = (address(number), address(3 - number));
        let local = Local::new(isd_as(number), here.ip(), here.port(), false);
        let mut tables = Tables::empty(local);
        let lpm = |prefixes: &[IpNet]| {
            let prefixes = prefixes.iter().map(|prefix| (*prefix, ()));
            Arc::new(prefixes.collect())
        };
        tables.served = Some(lpm(&prefixes(number)));
        let path = Path::new(PathSpec {
            id: 1,
            ends: Endpoints {
                local_isd_as: isd_as(number),
                local: here,
                remote_isd_as: isd_as(3 - number),
                remote: there,
            },
            next_hop: NextHop {
                address: there,
                source_mac: [2; 6],
                destination_mac: [4; 6],
            },
            path_type: 1,
            path: &PATH,
            session: 0,
            path_mtu: HEADERS - 42 + capacity + keys.as_ref().map_or(0, |_| PROTECTION_LEN),
            link_mtu: HEADERS + capacity + PROTECTION_LEN,
            streams: (77..).take(workers).collect(),
            keyring: keys.as_ref().map(|[send, _]| send.clone()),
            counters: per_worker(workers),
        })
        .expect("a usable path");
        assert_eq!(
            path.packer.capacity(),
            capacity,
            "frames as long as asked for"
        );
        let mut accepted = prefixes(3 - number).to_vec();
        accepted.extend(routes);
        let source = (isd_as(3 - number), there.ip().into());
        tables.add_remote(0, source, lpm(&accepted), per_worker(workers));
        if let Some([_, receive]) = keys {
            tables.protect_remote(source, Some(receive), true);
        }
        let session = tables.add_session(source, vec![path], None);
        let mut routing = Routing::default();
        let rule = Rule {
            condition: Arc::new(Condition::ALWAYS),
            action: Action::Session(session),
        };
        routing.add_site(&accepted, vec![rule]);
        tables.routing = Arc::new(routing);
        Site {
            area,
            pool,
            tables: Arc::new(tables),
        }
    }
}

/// The keyrings of a sender and of its receiver, with a key.
fn keys(workers: usize) -> [Arc<Keyring>; 2] {
    let (send, receive) = sig_rpc::unagreed_key(workers).expect("a key");
    let rings: [Arc<Keyring>; 2] = Default::default();
    rings[0].set_send(Some(Arc::new(send)));
    rings[1].set_receive(vec![Arc::new(receive)]);
    rings
}

fn per_worker<T: Default>(workers: usize) -> Arc<[T]> {
    (0..workers).map(|_| T::default()).collect()
}

impl Gateway {
    fn new(site: &Site, number: usize) -> Self {
        let config = WorkerConfig {
            limits: Limits::default(),
            verify_checksums: true,
            clamp_mss: true,
            partial_checksums: true,
        };
        let free = FreeList::new(site.pool.clone(), FREE_LIMIT);
        Gateway {
            area: site.area.clone(),
            worker: Worker::new(number, &config, site.area.clone(), free).expect("valid limits"),
            tables: site.tables.clone(),
            input: Input::default(),
            output: Output::default(),
        }
    }

    /// A chunk with these bytes, as a port delivers it.
    fn frame(&mut self, parts: &[&[u8]]) -> Frame {
        let (area, free) = self.worker.memory();
        let mut frame = free.take().expect("a free chunk");
        frame.place(HEADROOM, parts.iter().map(|part| part.len()).sum());
        let mut rest = frame.bytes_mut(area);
        for part in parts {
            let (head, tail) = rest.split_at_mut(part.len());
            head.copy_from_slice(part);
            rest = tail;
        }
        frame
    }

    fn lan_frame(&mut self, packet: &[u8]) -> Frame {
        let ethertype: [u8; 2] = if packet[0] >> 4 == 4 {
            [0x08, 0]
        } else {
            [0x86, 0xdd]
        };
        self.frame(&[&[2; 12], &ethertype, packet])
    }

    fn process(&mut self, now: u64) {
        self.worker
            .process(now, &self.tables, &mut self.input, &mut self.output);
    }

    /// Frees what was transmitted.
    fn sent(&mut self) {
        let (_, free) = self.worker.memory();
        for frame in self
            .output
            .underlay
            .drain(..)
            .chain(self.output.tunnel.drain(..))
        {
            free.put(frame);
        }
    }

    fn drops(&self) -> u64 {
        self.worker
            .counters()
            .drops
            .iter()
            .map(|drop| drop.get())
            .sum()
    }
}

fn isd_as(number: u8) -> IsdAs {
    IsdAs::new(1, 0xff00_0000_0100 | u64::from(number))
}

fn address(number: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, number], 30056))
}

fn prefixes(number: u8) -> [IpNet; 2] {
    [format!("10.{number}.0.0/16"), format!("fd00:{number}::/32")]
        .map(|prefix| prefix.parse().expect("a prefix"))
}

/// Traffic from the hosts of one gateway to those of the other.
///
/// All checks are on: checksums of received frames, partial checksums of hosts, reassembly,
/// policing of both inner addresses, TTL.
pub struct Tunnel {
    near: Gateway,
    far: Gateway,
    packets: Vec<Vec<u8>>,
    window: usize,
    now: u64,
}

impl Tunnel {
    /// A tunnel whose frames carry up to `capacity` bytes and whose gateways know `routes` besides
    /// each other's prefixes.
    ///
    /// `window` packets are put into their chunks at once and then processed in batches, so it says
    /// from which cache the worker reads them.
    ///
    /// # Panics
    ///
    /// If any packet does not arrive as it was sent, with one taken from its TTL.
    #[must_use]
    pub fn new(capacity: usize, routes: &[IpNet], packets: Vec<Vec<u8>>, window: usize) -> Self {
        let mut tunnels = Self::side_by_side(1, capacity, routes, packets, window, false);
        tunnels.pop().expect("one was asked for")
    }

    /// The same several times, with `protected` frames or not, between two gateways: each tunnel has a worker of its own at both, and they
    /// share what the workers of a gateway share.
    ///
    /// # Panics
    ///
    /// As [`Tunnel::new`].
    #[must_use]
    pub fn side_by_side(
        workers: usize,
        capacity: usize,
        routes: &[IpNet],
        packets: Vec<Vec<u8>>,
        window: usize,
        protected: bool,
    ) -> Vec<Self> {
        let keys = || protected.then(|| keys(workers));
        let (there, back) = (keys(), keys());
        let near = there.clone().zip(back.clone());
        let near = near.map(|([send, _], [_, receive])| [send, receive]);
        let far = there
            .zip(back)
            .map(|([_, receive], [send, _])| [send, receive]);
        let [near, far] =
            [(1, near), (2, far)].map(|(n, keys)| Site::new(n, capacity, routes, workers, keys));
        let tunnel = |worker| {
            let mut tunnel = Tunnel {
                near: Gateway::new(&near, worker),
                far: Gateway::new(&far, worker),
                packets: packets.clone(),
                window,
                now: 0,
            };
            tunnel.verify();
            tunnel
        };
        (0..workers).map(tunnel).collect()
    }

    /// The packets of one iteration.
    #[must_use]
    pub fn packets(&self) -> &[Vec<u8>] {
        &self.packets
    }

    /// What the receiving gateway listens to.
    #[must_use]
    pub fn receiver(&self) -> Local {
        self.far.tables.local
    }

    /// The Ethernet frames that carry the packets.
    #[must_use]
    pub fn frames(&mut self) -> Vec<Vec<u8>> {
        let packets = std::mem::take(&mut self.packets);
        self.carry(&packets);
        self.packets = packets;
        let (_, free) = self.far.worker.memory();
        let take = |frame: Frame| {
            let bytes = frame.bytes(&self.far.area).to_vec();
            free.put(frame);
            bytes
        };
        self.far.input.underlay.drain(..).map(take).collect()
    }

    fn verify(&mut self) {
        let packets = std::mem::take(&mut self.packets);
        for window in packets.chunks(self.window) {
            self.carry(window);
            self.far.process(self.now);
            let output = std::mem::take(&mut self.far.output);
            assert_eq!(output.tunnel.len(), window.len(), "every packet arrives");
            for (frame, packet) in output.tunnel.iter().zip(window) {
                let mut expected = packet.clone();
                let mut summary = InnerPacket::parse(&expected[..]).expect("an IP packet");
                let may_travel = summary.decrement_ttl(&mut expected[..]);
                assert!(may_travel, "the packet may travel");
                let arrived = &frame.bytes(&self.far.area)[ETHERNET_LEN..];
                assert!(arrived == expected, "packets arrive as they were sent");
            }
            self.far.output = output;
            self.far.sent();
        }
        self.packets = packets;
    }

    /// Encapsulates packets, without a clock; their frames are then in the far gateway's chunks.
    fn carry(&mut self, packets: &[Vec<u8>]) {
        self.now += TICK;
        for packet in packets {
            let frame = self.near.lan_frame(packet);
            self.near.input.lan.push(frame);
        }
        self.near.process(self.now);
        for frame in &self.near.output.underlay {
            let frame = self.far.frame(&[frame.bytes(&self.near.area)]);
            self.far.input.underlay.push(frame);
        }
        self.near.sent();
    }

    /// Time that the sending worker takes for all packets, `iterations` times.
    ///
    /// # Panics
    ///
    /// If a packet is dropped.
    #[must_use]
    pub fn encapsulate(&mut self, iterations: u64) -> Duration {
        let mut time = Duration::ZERO;
        let mut batches: Vec<Input> = Vec::new();
        for _ in 0..iterations {
            for window in self.packets.chunks(self.window) {
                self.now += TICK;
                for batch in window.chunks(BATCH) {
                    let lan = batch
                        .iter()
                        .map(|packet| self.near.lan_frame(packet))
                        .collect();
                    batches.push(Input {
                        lan,
                        ..Input::default()
                    });
                }
                let (now, near) = (self.now, &mut self.near);
                let start = Instant::now();
                for batch in &mut batches {
                    near.worker
                        .process(now, &near.tables, batch, &mut near.output);
                }
                time += start.elapsed();
                batches.clear();
                near.sent();
            }
        }
        assert_eq!(self.near.drops(), 0, "no packet is dropped");
        time
    }

    /// Time that the receiving worker takes for the frames of all packets, `iterations` times.
    ///
    /// # Panics
    ///
    /// If a packet is lost.
    #[must_use]
    pub fn decapsulate(&mut self, iterations: u64) -> Duration {
        let mut time = Duration::ZERO;
        let mut batches: Vec<Input> = Vec::new();
        let packets = std::mem::take(&mut self.packets);
        for _ in 0..iterations {
            for window in packets.chunks(self.window) {
                self.carry(window);
                let mut frames = self.far.input.underlay.drain(..).peekable();
                while frames.peek().is_some() {
                    let underlay = frames.by_ref().take(BATCH).collect();
                    batches.push(Input {
                        underlay,
                        ..Input::default()
                    });
                }
                drop(frames);
                let (now, far) = (self.now, &mut self.far);
                let start = Instant::now();
                for batch in &mut batches {
                    far.worker.process(now, &far.tables, batch, &mut far.output);
                }
                time += start.elapsed();
                batches.clear();
                assert_eq!(
                    far.output.tunnel.len(),
                    window.len(),
                    "every packet arrives"
                );
                far.sent();
            }
        }
        self.packets = packets;
        time
    }
}
