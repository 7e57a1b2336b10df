//! Workers over single frames: those that teach the programs, and those that know of none.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use sig_common::reason::DropReason;
use sig_common::wire::{
    PROTO_UDP,
    checksum::{Sum, ipv4_pseudo_header, ipv6_pseudo_header},
    scion, udp,
};
use sig_core::dataplane::{Input, Output, Tables, Worker, WorkerConfig};
use sig_core::fast_path::{Shared, order::Order};
use sig_core::framing::Limits;
use sig_core::port::Port;
use sig_core::port::umem::{Area, Frame, FreeList, HEADROOM};

use super::model::Owner;
use super::plan::LAN_PORTS;

/// Where a frame came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Lan,
    Tunnel,
    Underlay,
}

/// A frame for a worker.
#[derive(Clone, Copy)]
pub(crate) struct Arrival<'a> {
    pub(crate) side: Side,
    pub(crate) bytes: &'a [u8],
    /// The socket that it was handed over to, and what stood in front of it.
    pub(crate) metadata: Option<(u32, u64)>,
}

impl<'a> Arrival<'a> {
    /// One that no program has seen.
    pub(crate) const fn new(side: Side, bytes: &'a [u8]) -> Self {
        Self {
            side,
            bytes,
            metadata: None,
        }
    }
}

/// What left a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Out {
    pub(crate) underlay: Vec<Vec<u8>>,
    pub(crate) tunnel: Vec<Vec<u8>>,
    pub(crate) lan: Vec<Vec<Vec<u8>>>,
}

impl Out {
    /// What left later follows.
    pub(crate) fn append(&mut self, mut later: Self) {
        self.underlay.append(&mut later.underlay);
        self.tunnel.append(&mut later.tunnel);
        self.lan.resize(later.lan.len(), Vec::new());
        for (frames, mut later) in self.lan.iter_mut().zip(later.lan) {
            frames.append(&mut later);
        }
    }
}

impl fmt::Display for Out {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sides = [("underlay", &self.underlay), ("tunnel", &self.tunnel)];
        let lan = self.lan.iter().map(|frames| ("LAN", frames));
        for (side, frames) in sides.into_iter().chain(lan) {
            for frame in frames {
                write!(f, "[{side} {}]", Hex(frame))?;
            }
        }
        Ok(())
    }
}

/// Bytes for people.
pub(crate) struct Hex<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A worker, and the memory it works in.
pub(crate) struct Engine {
    worker: Worker,
    order: Option<Order>,
    pub(crate) tables: Arc<Tables>,
}

/// What is decided when programs are loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) clamp_mss: bool,
    pub(crate) verify_checksums: bool,
    pub(crate) partial_checksums: bool,
    /// Devices send packets in several buffers.
    pub(crate) buffers: bool,
}

impl Engine {
    pub(crate) fn new(number: usize, settings: Settings, tables: Arc<Tables>) -> Self {
        let (area, pool) = Area::on_heap_with_jumbo(256, 32);
        let limits = Limits {
            remotes: 8,
            streams_total: 64,
            packets_total: 32,
            held_total: 256,
            max_frame_payload: 9216,
            ..Limits::default()
        };
        let config = WorkerConfig {
            limits,
            verify_checksums: settings.verify_checksums,
            partial_checksums: settings.partial_checksums,
            clamp_mss: settings.clamp_mss,
        };
        let free = FreeList::new(pool, 128);
        let worker = Worker::new(number, &config, area, free).expect("valid limits");
        Self {
            worker,
            order: None,
            tables,
        }
    }

    /// It teaches the programs from now on.
    pub(crate) fn teach(mut self, shared: &Arc<Shared>, workers: usize) -> Self {
        self.worker.teach(shared.clone(), workers);
        self.order = Some(Order::new(shared.clone()));
        self
    }

    /// Handles what comes in, if something does.
    pub(crate) fn run(&mut self, now: u64, input: Option<Arrival<'_>>) -> Out {
        let mut frames = Input::default();
        if let Some(Arrival {
            side,
            bytes,
            metadata,
        }) = input
        {
            let (area, free) = self.worker.memory();
            let mut frame = free.take_for(bytes.len()).expect("a free chunk");
            frame.place(HEADROOM, bytes.len());
            frame.bytes_mut(area).copy_from_slice(bytes);
            if let (Some(order), Some((socket, word))) = (&mut self.order, metadata) {
                frame.set_metadata(area, word);
                order.received(
                    Some(socket),
                    std::slice::from_mut(&mut frame),
                    area,
                    None,
                    || 0,
                    0,
                );
                assert_eq!(frame.metadata(area), word, "a ticket that is believed");
            }
            match side {
                Side::Lan => frames.lan.push(frame),
                Side::Tunnel => frames.tunnel.push(frame),
                Side::Underlay => frames.underlay.push(frame),
            }
        }
        let mut output = Output::with_capacity(64, LAN_PORTS);
        self.worker
            .process(now, &self.tables, &mut frames, &mut output);
        let Output {
            underlay,
            tunnel,
            lan,
        } = output;
        Out {
            underlay: self.take(underlay),
            tunnel: self.take(tunnel),
            lan: lan
                .into_iter()
                .map(|frames| self.take(frames.unwrap_or_default()))
                .collect(),
        }
    }

    fn take(&mut self, frames: Vec<Frame>) -> Vec<Vec<u8>> {
        let (area, free) = self.worker.memory();
        let bytes = |frame: Frame| {
            let bytes = frame.bytes(area).to_vec();
            free.put(frame);
            bytes
        };
        frames.into_iter().map(bytes).collect()
    }

    /// What it dropped so far.
    pub(crate) fn drops(&self) -> String {
        let counters = self.worker.counters();
        let drops = counters.drops.iter().zip(DropReason::ALL);
        let drops = drops.filter(|(count, _)| count.get() != 0);
        drops
            .map(|(count, reason)| format!(" {reason:?} {}", count.get()))
            .collect()
    }

    /// Everything has left: the programs may go on.
    pub(crate) fn publish(&mut self, now: u64) {
        let order = self.order.as_mut().expect("a worker that teaches");
        order.advance(now, std::iter::empty::<(&dyn Port, usize)>());
    }
}

/// A worker that teaches, the one that it is compared with, and what waits in the rings of the former.
pub(crate) struct Pair {
    pub(crate) engine: Engine,
    pub(crate) oracle: Engine,
    pub(crate) waiting: VecDeque<Waiting>,
}

/// What a worker is to be given.
pub(crate) struct Waiting {
    pub(crate) side: Side,
    pub(crate) frame: Vec<u8>,
    /// Socket, and what stands in front of the frame.
    pub(crate) metadata: (u32, u64),
    /// Counts what came in.
    pub(crate) arrival: u64,
    pub(crate) that: String,
    pub(crate) owner: Option<Owner>,
}

/// Where the parts of a SIG frame begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    ip: usize,
    udp: usize,
    scion: usize,
    path: usize,
    pub(crate) l4: usize,
    pub(crate) sig: usize,
}

impl Parts {
    /// Of a frame that a gateway has made, in which all that is said is true.
    pub(crate) fn of(frame: &[u8]) -> Self {
        let ip = 14;
        let udp = ip + if frame[ip] >> 4 == 4 { 20 } else { 40 };
        let scion = udp + 8;
        let hosts = [frame[scion + 9] >> 4, frame[scion + 9]];
        let hosts: usize = hosts
            .map(|code| 4 * (1 + usize::from(code & 3)))
            .iter()
            .sum();
        let l4 = scion + 4 * usize::from(frame[scion + 5]);
        Self {
            ip,
            udp,
            scion,
            path: scion + scion::common::HEADER_LEN + 16 + hosts,
            l4,
            sig: l4 + 8,
        }
    }

    pub(crate) fn stream(&self, frame: &[u8]) -> u32 {
        u32::from_be_bytes(
            frame[self.sig + 4..self.sig + 8]
                .try_into()
                .expect("four bytes"),
        )
    }

    pub(crate) fn sequence(&self, frame: &[u8]) -> u64 {
        u64::from_be_bytes(
            frame[self.sig + 8..self.sig + 16]
                .try_into()
                .expect("eight bytes"),
        )
    }

    /// Marks the outer IP header: congestion was experienced.
    pub(crate) fn mark_outside(&self, frame: &mut [u8]) {
        match self.udp - self.ip {
            20 => frame[self.ip + 1] |= 3,
            _ => frame[self.ip + 1] |= 0x30,
        }
    }

    /// Marks the SCION header.
    pub(crate) fn mark_scion(&self, frame: &mut [u8]) {
        frame[self.scion + 1] |= 0x30;
    }

    /// Computes both UDP checksums anew, from every byte that they cover.
    pub(crate) fn seal(&self, frame: &mut [u8]) {
        let (headers, message) = frame.split_at_mut(self.l4);
        let addresses = &headers[self.scion + scion::common::HEADER_LEN..self.path];
        scion::udp::fill_checksum(addresses, message).expect("a datagram");
        let len = frame.len() - self.udp;
        let pseudo = match self.udp - self.ip {
            20 => {
                let [source, destination] =
                    [12, 16].map(|at| *frame[self.ip + at..].first_chunk().expect("an address"));
                ipv4_pseudo_header(source, destination, len as u16, PROTO_UDP)
            }
            _ => {
                let [source, destination] =
                    [8, 24].map(|at| *frame[self.ip + at..].first_chunk().expect("an address"));
                ipv6_pseudo_header(&source, &destination, len as u32, PROTO_UDP)
            }
        };
        frame[self.udp + 6..self.udp + 8].fill(0);
        let sum: Sum = pseudo.add_bytes(&frame[self.udp..]);
        let checksum = udp::checksum(sum);
        frame[self.udp + 6..self.udp + 8].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Gives the frame another place in another stream.
    pub(crate) fn renumber(&self, frame: &mut [u8], stream: u32, sequence: u64) {
        frame[self.sig + 4..self.sig + 8].copy_from_slice(&stream.to_be_bytes());
        frame[self.sig + 8..self.sig + 16].copy_from_slice(&sequence.to_be_bytes());
        self.seal(frame);
    }
}
