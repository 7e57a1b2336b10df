//! Functions in the process: the shared-memory proxy of draft-ietf-spring-sr-service-programming.
//!
//! ```text
//!   node's network namespace              private namespace
//!   sig_srv6 ──> sig-functions ═════════ sig-x ──> AF_XDP socket, thread
//! ```
//!
//! The program advances the list of segments and sends the packet, with all its headers, down one end of a pair of devices. What the thread
//! sends back comes in by the same end and goes on as any packet with a new destination.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    os::fd::{AsFd as _, OwnedFd},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use sig_common::{
    srv6::maps::Function as Known,
    wire::{
        Load as _, checksum, ethernet, ipv4, ipv6,
        srv6::{self, NEXT_IPV4, NEXT_IPV6},
    },
};
use sig_core::port::{
    Port as _, Role,
    umem::{Area, Frame, FreeList},
};
use sig_linux::{
    Error,
    af_xdp::{HugePages, Plan, PortSpec, RingSizes, XdpPort, ZeroCopy},
    bpf::{Attachment, SrPrograms},
    tunnel_pair::{MTUS, Owner, TunnelPair, TunnelPairConfig},
};
use tokio::{io::unix::AsyncFd, sync::Notify};

/// The end of the pair in the node's network namespace.
pub(crate) const DEVICE: &str = "sig-functions";

/// Packets that wait for functions, or for the device, at most.
const RING: u32 = 1024;

/// How soon what did not fit is offered again.
const AGAIN: Duration = Duration::from_millis(1);

/// A function in the process. It sees the packets to its SID, whose behavior is End.AN, one after the other and in order.
pub trait Function: Send {
    /// What becomes of a packet. A function that panics is down from then on.
    fn process(&mut self, packet: &mut InPlace<'_>) -> Verdict;
}

impl<F: FnMut(&mut InPlace<'_>) -> Verdict + Send> Function for F {
    fn process(&mut self, packet: &mut InPlace<'_>) -> Verdict {
        self(packet)
    }
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on to its next segment.
    Forward,
    /// It is dropped.
    Drop,
}

/// A packet where it lies in memory, with all its headers: the next segment is its destination already.
pub struct InPlace<'a> {
    frame: &'a mut Frame,
    area: &'a Area,
    /// Offset of what is behind the segment routing header, from the start of the Ethernet frame.
    payload_at: usize,
    payload_len: usize,
    next_header: u8,
}

impl<'a> InPlace<'a> {
    /// `None` if the frame is no packet with a segment routing header.
    fn new(frame: &'a mut Frame, area: &'a Area) -> Option<Self> {
        let bytes = frame.bytes(area);
        let packet = bytes.get(ethernet::HEADER_LEN..)?;
        let srh = srv6::parse(packet).ok()?;
        let payload_len: [u8; 2] = packet.bytes(4)?;
        let end = ipv6::HEADER_LEN + usize::from(u16::from_be_bytes(payload_len));
        let payload_at = usize::from(srh.after());
        if payload_at > end || end > packet.len() {
            return None;
        }
        let mut packet = Self {
            frame,
            area,
            payload_at: ethernet::HEADER_LEN + payload_at,
            payload_len: end - payload_at,
            next_header: srh.next_header,
        };
        // Without padding.
        packet.set_len(end - payload_at);
        Some(packet)
    }

    /// The outer IPv6 header and its extension headers, up to the segment routing header with its list and TLVs.
    #[must_use]
    pub fn headers(&self) -> &[u8] {
        let bytes = self.frame.bytes(self.area);
        bytes
            .get(ethernet::HEADER_LEN..self.payload_at)
            .unwrap_or_default()
    }

    /// What the payload is: the next header value of the segment routing header, such as 4 for IPv4 or 41 for IPv6.
    #[must_use]
    pub const fn next_header(&self) -> u8 {
        self.next_header
    }

    /// The packet inside, from its first header on.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        let bytes = self.frame.bytes(self.area);
        bytes.get(self.payload_at..).unwrap_or_default()
    }

    /// The same, to be changed. Checksums are up to who changes it.
    #[must_use]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let bytes = self.frame.bytes_mut(self.area);
        bytes.get_mut(self.payload_at..).unwrap_or_default()
    }

    /// Makes the payload longer, by zeros at its end, or shorter. The lengths in the outer header and in an IPv4 or IPv6 header at the front
    /// of the payload follow, with the checksum of the former; lengths and checksums behind them do not. `false`, and nothing is changed, if
    /// there is no room, or that header would be cut.
    #[must_use]
    pub fn resize(&mut self, len: usize) -> bool {
        let old = self.payload_len;
        let header = match self.next_header {
            NEXT_IPV4 => ipv4::HEADER_LEN,
            NEXT_IPV6 => ipv6::HEADER_LEN,
            _ => 0,
        };
        let outer = self.payload_at - ethernet::HEADER_LEN + len;
        let longest = *MTUS.end() as usize;
        let has_room = len <= old || len - old <= self.frame.tailroom();
        if len < header || outer > longest || !has_room {
            return false;
        }
        self.set_len(len);
        if let Some(more) = self.payload_mut().get_mut(old..) {
            more.fill(0);
        }
        let outer = (outer - ipv6::HEADER_LEN) as u16;
        self.put(ethernet::HEADER_LEN + 4, outer);
        match self.next_header {
            NEXT_IPV4 => {
                let at = self.payload_at;
                let before = self.get(at + 2).unwrap_or_default();
                let sum = self.get(at + 10).unwrap_or_default();
                self.put(at + 2, len as u16);
                self.put(at + 10, checksum::update(sum, before, len as u16));
            }
            NEXT_IPV6 => self.put(self.payload_at + 4, (len - ipv6::HEADER_LEN) as u16),
            _ => {}
        }
        true
    }

    fn set_len(&mut self, len: usize) {
        self.payload_len = len;
        let start = self.frame.headroom();
        self.frame.place(start, self.payload_at + len);
    }

    fn get(&self, at: usize) -> Option<u16> {
        self.frame
            .bytes(self.area)
            .bytes(at)
            .map(u16::from_be_bytes)
    }

    fn put(&mut self, at: usize, value: u16) {
        let bytes = self.frame.bytes_mut(self.area);
        if let Some(place) = bytes.get_mut(at..at + 2) {
            place.copy_from_slice(&value.to_be_bytes());
        }
    }
}

/// Functions by name.
pub(super) type Functions = BTreeMap<String, Box<dyn Function>>;

/// Which of them run, for whoever wants to know.
#[derive(Default)]
pub(super) struct Running {
    names: Mutex<BTreeSet<String>>,
    /// One has ended.
    pub(super) changed: Notify,
}

impl Running {
    pub(super) fn names(&self) -> BTreeSet<String> {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The devices, and the thread. Ends when it is dropped.
pub(super) struct Process {
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
    _attachment: Attachment,
    _pair: TunnelPair,
}

impl Process {
    /// Starts `functions`, by their numbers.
    pub(super) fn start(
        programs: &mut SrPrograms,
        functions: BTreeMap<u32, (String, Box<dyn Function>)>,
        running: Arc<Running>,
        pair: TunnelPair,
    ) -> Result<Self, Error> {
        let opened = Plan {
            workers: 1,
            ports: vec![PortSpec {
                role: Role::Tunnel,
                interface: pair.peer().name.clone(),
                ifindex: None,
                namespace: Some(pair.netns()),
                queues: 1,
                spread: false,
                zero_copy: ZeroCopy::Never,
                tag: None,
            }],
            rings: RingSizes::all(RING),
            chunks: None,
            jumbo: false,
            huge_pages: HugePages::Never,
            later: Vec::new(),
            spare_sockets: 0,
            busy_poll: None,
        }
        .open()
        .map_err(|error| Error::Refused(error.to_string()))?;
        let mut ports = opened.workers.into_iter().flatten();
        let Some(port) = ports.next().map(|opened| opened.port) else {
            return Err(Error::Refused("there is no AF_XDP socket".to_owned()));
        };
        let ifindex = pair.peer().ifindex;
        let fd = port.as_fd().try_clone_to_owned();
        let fd = fd.map_err(Error::doing("copy a socket's file descriptor"))?;
        let attachment = pair
            .netns()
            .run(|| programs.attach_process(ifindex, fd.as_fd()))
            .map_err(Error::doing("work in a private network namespace"))??;
        let stop = Arc::new(Notify::new());
        running
            .lock()
            .extend(functions.values().map(|(name, _)| name.clone()));
        let worker = Worker {
            port,
            area: opened.area,
            free: FreeList::new(opened.pool, RING as usize),
            functions,
            running,
            sent: Vec::new(),
        };
        let stops = Arc::clone(&stop);
        let thread = thread::Builder::new()
            .name("sig-functions".to_owned())
            .spawn(move || worker.run(&stops))
            .map_err(Error::doing("start the thread of functions"))?;
        Ok(Self {
            stop,
            thread: Some(thread),
            _attachment: attachment,
            _pair: pair,
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            // It catches what functions panic with.
            let _ = thread.join();
        }
    }
}

/// The pair of devices.
pub(super) async fn pair() -> Result<TunnelPair, Error> {
    let config = TunnelPairConfig {
        name: DEVICE.to_owned(),
        queues: 1,
        mtu: *MTUS.end(),
        owner: Owner::SrNode,
    };
    TunnelPair::create(&config).await
}

struct Worker {
    port: XdpPort,
    area: Arc<Area>,
    free: FreeList,
    functions: BTreeMap<u32, (String, Box<dyn Function>)>,
    running: Arc<Running>,
    /// What does not fit the ring yet.
    sent: Vec<Frame>,
}

impl Worker {
    fn run(mut self, stop: &Notify) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let result = match runtime {
            Ok(runtime) => runtime.block_on(async {
                let fd = self.port.watch()?;
                tokio::select! {
                    result = self.work(&fd) => result,
                    () = stop.notified() => Ok(()),
                }
            }),
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            tracing::error!("functions in the process end: {error}");
        }
        self.running.lock().clear();
        self.running.changed.notify_one();
    }

    async fn work(&mut self, fd: &AsyncFd<OwnedFd>) -> io::Result<()> {
        let mut frames = Vec::new();
        loop {
            self.service();
            let has_more = !self.sent.is_empty() || self.port.is_transmitting();
            tokio::select! {
                guard = fd.readable() => guard?.clear_ready(),
                () = tokio::time::sleep(AGAIN), if has_more => {}
            }
            while self.port.receive(&mut frames) > 0 {
                for frame in frames.drain(..) {
                    self.take(frame);
                }
                self.service();
                tokio::task::yield_now().await;
            }
        }
    }

    fn service(&mut self) {
        self.port.transmit(&mut self.sent);
        if let Err(error) = self.port.service(&self.area, &mut self.free) {
            tracing::debug!("{DEVICE}: {error}");
        }
    }

    fn take(&mut self, mut frame: Frame) {
        // What the device's own kernel sends is none of a function's.
        let mac = frame.bytes(&self.area).bytes(0);
        let number = mac.map(|mac| (mac, Known::of_mac(mac)));
        let number = number.filter(|(mac, number)| *mac == Known::mac(*number));
        let Some((_, number)) = number else {
            return self.free.put(frame);
        };
        let Some((name, function)) = self.functions.get_mut(&number) else {
            return self.free.put(frame);
        };
        let verdict = match InPlace::new(&mut frame, &self.area) {
            Some(mut packet) => catch_unwind(AssertUnwindSafe(|| function.process(&mut packet))),
            None => Ok(Verdict::Drop),
        };
        match verdict {
            // Full for long: the device is down.
            Ok(Verdict::Forward) if self.sent.len() < RING as usize => self.sent.push(frame),
            Ok(_) => self.free.put(frame),
            Err(_) => {
                tracing::error!("function {name} has panicked and is down");
                self.running.lock().remove(name);
                self.running.changed.notify_one();
                self.functions.remove(&number);
                self.free.put(frame);
            }
        }
    }
}
