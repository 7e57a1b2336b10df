use std::sync::Arc;

use sig_common::{
    maps::{MAX_QUEUES, MAX_SOCKETS},
    wire::ethernet::Tag,
};

use super::{BusyPoll, Error, HugePages, RingSizes, XdpPort, ZeroCopy, opener::Opener, umem::Umem};
use crate::netns::PrivateNetns;
use sig_core::{
    port::BATCH,
    port::Role,
    port::umem::{Area, JUMBO_CHUNKS, Pool},
};

/// Chunks per worker for what it holds itself, when the plan names no number.
const CHUNKS_PER_WORKER: u64 = 1024;

/// Chunks beyond which full rings are not provided for, when the plan names no number: 1 GiB.
const CHUNKS_FOR_RINGS: u64 = 1 << 18;

/// Jumbo frames per worker for what it holds itself: full backlogs of both sides.
const JUMBO_PER_WORKER: u64 = 512;

/// How many chunks a UMEM should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketBuffers {
    /// Fewer do not work: full fill rings, and batches in hand.
    pub least: u64,
    /// Enough for full rings, but not more than a GiB for that unless the least is more; and what workers hold.
    pub default: u64,
    /// Jumbo frames, if there are any: as many as packets can be received into full fill rings and wait for transmission, within
    /// the same bound.
    pub jumbo: u64,
}

impl PacketBuffers {
    /// For this number of workers, receive queues of all interfaces, and sockets on them.
    #[must_use]
    pub fn of(workers: u64, rings: &RingSizes, queues: u64, sockets: u64) -> Self {
        let fill = queues * u64::from(rings.fill);
        let in_hand = workers * CHUNKS_PER_WORKER;
        let least = fill + sockets * 2 * BATCH as u64;
        let full = fill + sockets * u64::from(rings.receive + rings.transmit);
        let stashes = sockets * XdpPort::STASH as u64;
        let jumbo = (fill + sockets * u64::from(rings.transmit)) / JUMBO_CHUNKS as u64;
        PacketBuffers {
            least,
            default: in_hand + full.min(least.max(CHUNKS_FOR_RINGS)),
            jumbo: workers * JUMBO_PER_WORKER
                + stashes
                + jumbo.min(CHUNKS_FOR_RINGS / JUMBO_CHUNKS as u64),
        }
    }
}

/// The sockets wanted on one interface.
#[derive(Clone, Debug)]
pub struct PortSpec<'a> {
    /// What the port is for.
    pub role: Role,
    /// Name of the interface, in its namespace.
    pub interface: String,
    /// Its number there; `None`: that of whichever has the name when the port is opened.
    pub ifindex: Option<u32>,
    /// Network namespace of the interface; `None` is that of the calling thread.
    pub namespace: Option<&'a PrivateNetns>,
    /// Receive queues of the interface that carry traffic: 0 up to this number.
    pub queues: u32,
    /// Gives every worker a socket on every queue, for traffic that the card puts on one queue.
    ///
    /// Without it, queue *q* belongs to worker *q* modulo the number of workers; if there are fewer
    /// queues than workers, worker *w* has its socket on queue *w* modulo the number of queues.
    pub spread: bool,
    /// Copy mode or zero copy.
    pub zero_copy: ZeroCopy,
    /// The port is for this VLAN of the interface: frames are sent with the tag, and come without. Ports of one interface share its
    /// queues.
    pub tag: Option<Tag>,
}

/// All AF_XDP sockets of a gateway.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// Number of workers.
    pub workers: u32,
    /// The interfaces, each once, or once for each VLAN.
    pub ports: Vec<PortSpec<'a>>,
    /// Interfaces that are opened later: packet buffers and places for their sockets are provided.
    pub later: Vec<PortSpec<'a>>,
    /// Sockets beyond, for interfaces that nobody knows of yet.
    pub spare_sockets: u32,
    /// Sizes of all rings.
    pub rings: RingSizes,
    /// Number of chunks of the UMEM; `None` is enough for full rings.
    pub chunks: Option<u32>,
    /// Packets may be larger than a chunk. Needs Linux 6.6.
    pub jumbo: bool,
    /// Where the UMEM lies.
    pub huge_pages: HugePages,
    /// Busy polling on every socket.
    pub busy_poll: Option<BusyPoll>,
}

/// One socket of a worker.
pub struct WorkerPort {
    /// What it is for.
    pub role: Role,
    /// Place of its interface in [`Plan::ports`].
    pub spec: usize,
    /// Number of the interface in its namespace.
    pub ifindex: u32,
    /// Queue number, from 0.
    pub queue: u32,
    /// Where its socket belongs in the XSKMAP, for [`Steering`] to hold.
    pub slot: u32,
    /// The socket.
    pub port: XdpPort,
}

/// Which sockets receive from a queue: slot `first` and the `count - 1` behind it, in the order of
/// their workers. If `count` is the number of workers, worker *w* has slot `first + w`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steering {
    /// Place of the interface in [`Plan::ports`].
    pub spec: usize,
    /// Number of the interface, which is unique in its own namespace only.
    pub ifindex: u32,
    /// Queue number, from 0.
    pub queue: u32,
    /// First slot in the XSKMAP.
    pub first: u32,
    /// Number of slots.
    pub count: u32,
}

/// What [`Plan::open`] makes. Interfaces are free again when area and ports are dropped.
pub struct Opened {
    /// The memory of all ports.
    pub area: Arc<Area>,
    /// Its chunks.
    pub pool: Arc<Pool>,
    /// Whether it lies in huge pages.
    pub huge_pages: bool,
    /// The ports of each worker, in the order of the plan, then of the queues.
    pub workers: Vec<Vec<WorkerPort>>,
    /// What the XDP programs need to know, one entry per queue.
    pub steering: Vec<Steering>,
    /// Slots in the XSKMAP are below this, also those of interfaces that are opened later.
    pub slots: u32,
    /// `None`: the memory is for ports of other kinds alone.
    pub opener: Option<Opener>,
}

impl Plan<'_> {
    /// Makes the UMEM and all sockets.
    ///
    /// Blocks up to about five seconds per queue that another process is just leaving.
    ///
    /// # Errors
    ///
    /// The first thing that is impossible, with what to change; nothing stays open then.
    pub fn open(&self) -> Result<Opened, Error> {
        self.check()?;
        let umem = Umem::new((self.chunks()?, self.jumbo()), self.rings, self.huge_pages)?;
        let slots = self.sockets().saturating_add(self.spare_sockets.into());
        let opener = Opener::new(self, umem, limit(slots).min(MAX_SOCKETS));
        let mut opened = Opened {
            area: opener.umem.area().clone(),
            pool: opener.umem.pool().clone(),
            huge_pages: opener.umem.huge_pages(),
            workers: (0..self.workers).map(|_| Vec::new()).collect(),
            steering: Vec::new(),
            slots: opener.slots(),
            opener: None,
        };
        for (index, spec) in self.ports.iter().enumerate() {
            let open = || opener.open_for_good(spec);
            let sockets = match spec.namespace {
                None => open(),
                Some(namespace) => namespace.run(open).unwrap_or_else(|source| {
                    Err(Error::system("work in the network namespace", source))
                }),
            }?;
            opened.take(index, sockets);
        }
        opened.opener = Some(opener);
        Ok(opened)
    }

    /// Makes the memory alone, for ports of other kinds.
    ///
    /// # Errors
    ///
    /// If there are too few chunks.
    pub fn without_sockets(&self) -> Result<Opened, Error> {
        let (area, pool) = Area::on_heap(self.chunks()?);
        Ok(Opened {
            area,
            pool,
            huge_pages: false,
            workers: (0..self.workers).map(|_| Vec::new()).collect(),
            steering: Vec::new(),
            slots: 0,
            opener: None,
        })
    }

    /// The same with so many chunks more, for ports of another kind; a number that was given stays.
    ///
    /// # Errors
    ///
    /// If the number that was given is too small.
    pub fn with_more_chunks(mut self, more: u32) -> Result<Self, Error> {
        let chunks = self.chunks()?;
        self.chunks = self.chunks.or(Some(chunks.saturating_add(more)));
        Ok(self)
    }

    fn check(&self) -> Result<(), Error> {
        self.rings.check()?;
        if self.workers == 0 {
            return Err(Error::Plan(
                "a gateway needs at least one worker".to_owned(),
            ));
        }
        let all: Vec<_> = self.ports.iter().chain(&self.later).collect();
        for (index, spec) in all.iter().enumerate() {
            let is_same =
                |other: &&PortSpec<'_>| other.shares_queues(spec) && other.tag == spec.tag;
            if all[..index].iter().any(is_same) {
                return Err(listed_twice(&spec.interface));
            }
            if spec.queues == 0 {
                return Err(Error::Plan(format!(
                    "interface `{}` needs at least one queue",
                    spec.interface
                )));
            }
        }
        check_number(self.queues(), self.sockets())
    }

    /// Receive queues of all interfaces.
    fn queues(&self) -> u64 {
        let all: Vec<_> = self.ports.iter().chain(&self.later).collect();
        let first = all.iter().enumerate().filter(|(index, spec)| {
            let mut before = all[..*index].iter();
            !before.any(|other| other.shares_queues(spec))
        });
        first.map(|(_, spec)| u64::from(spec.queues)).sum()
    }

    /// Sockets on all of them.
    fn sockets(&self) -> u64 {
        let ports = self.ports.iter().chain(&self.later);
        ports.map(|spec| spec.sockets(self.workers)).sum()
    }

    fn buffers(&self) -> PacketBuffers {
        let workers = u64::from(self.workers);
        PacketBuffers::of(workers, &self.rings, self.queues(), self.sockets())
    }

    fn jumbo(&self) -> u32 {
        match self.jumbo {
            true => limit(self.buffers().jumbo),
            false => 0,
        }
    }

    /// The number of chunks, checked or computed.
    fn chunks(&self) -> Result<u32, Error> {
        let buffers = self.buffers();
        let chunks = self.chunks.unwrap_or(limit(buffers.default));
        check_chunks(chunks, &buffers)?;
        Ok(chunks)
    }
}

impl Opened {
    /// Takes the ports of one interface, in the order of their slots.
    fn take(&mut self, index: usize, sockets: Vec<(u32, WorkerPort)>) {
        for (worker, port) in sockets {
            let port = WorkerPort {
                spec: index,
                ..port
            };
            steer(&mut self.steering, &port);
            self.workers[worker as usize].push(port);
        }
    }
}

/// Adds a socket, which comes behind those before, to what the programs need to know.
pub(super) fn steer(steering: &mut Vec<Steering>, port: &WorkerPort) {
    match steering.last_mut() {
        Some(last) if (last.spec, last.queue) == (port.spec, port.queue) => last.count += 1,
        _ => steering.push(Steering {
            spec: port.spec,
            ifindex: port.ifindex,
            queue: port.queue,
            first: port.slot,
            count: 1,
        }),
    }
}

pub(super) fn listed_twice(interface: &str) -> Error {
    Error::Plan(format!(
        "interface `{interface}` is listed twice: a queue has one set of sockets, so each role needs an interface of its own, on a \
         second card or in a VLAN"
    ))
}

pub(super) fn check_number(queues: u64, sockets: u64) -> Result<(), Error> {
    if queues > u64::from(MAX_QUEUES) || sockets > u64::from(MAX_SOCKETS) {
        return Err(Error::TooManySockets { queues, sockets });
    }
    Ok(())
}

pub(super) fn check_chunks(chunks: u32, buffers: &PacketBuffers) -> Result<(), Error> {
    if u64::from(chunks) < buffers.least {
        let needed = limit(buffers.least);
        return Err(Error::TooFewChunks { chunks, needed });
    }
    Ok(())
}

impl PortSpec<'_> {
    /// Whether they are for the same interface.
    fn shares_queues(&self, other: &Self) -> bool {
        let namespace = |spec: &Self| spec.namespace.map(std::ptr::from_ref);
        self.interface == other.interface && namespace(self) == namespace(other)
    }

    /// The workers with a socket on a queue, in rising order; at least one.
    pub(super) fn workers_on(&self, workers: u32, queue: u32) -> Vec<u32> {
        let all = 0..workers;
        if self.spread {
            all.collect()
        } else if self.queues >= workers {
            vec![queue % workers]
        } else {
            all.filter(|worker| worker % self.queues == queue).collect()
        }
    }

    /// Sockets on all its queues.
    pub(super) fn sockets(&self, workers: u32) -> u64 {
        let (workers, queues) = (u64::from(workers), u64::from(self.queues));
        match self.spread {
            true => queues * workers,
            false => queues.max(workers),
        }
    }
}

pub(super) fn limit(chunks: u64) -> u32 {
    u32::try_from(chunks).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(workers: u32, queues: u32, spread: bool) -> Plan<'static> {
        Plan {
            workers,
            ports: vec![PortSpec {
                role: Role::Underlay,
                interface: "none".to_owned(),
                ifindex: None,
                namespace: None,
                queues,
                spread,
                zero_copy: ZeroCopy::Auto,
                tag: None,
            }],
            later: Vec::new(),
            spare_sockets: 0,
            rings: RingSizes::default(),
            chunks: None,
            jumbo: false,
            huge_pages: HugePages::Auto,
            busy_poll: None,
        }
    }

    fn workers(plan: &Plan<'_>) -> Vec<Vec<u32>> {
        let spec = &plan.ports[0];
        (0..spec.queues)
            .map(|queue| spec.workers_on(plan.workers, queue))
            .collect()
    }

    #[test]
    fn a_queue_belongs_to_one_worker_if_there_are_enough_queues() {
        assert_eq!(
            workers(&plan(2, 5, false)),
            [vec![0], vec![1], vec![0], vec![1], vec![0]]
        );
    }

    #[test]
    fn every_worker_has_one_socket_if_there_are_fewer_queues() {
        assert_eq!(workers(&plan(2, 1, false)), [vec![0, 1]]);
        assert_eq!(workers(&plan(3, 2, false)), [vec![0, 2], vec![1]]);
    }

    #[test]
    fn spreading_gives_every_worker_a_socket_on_every_queue() {
        assert_eq!(workers(&plan(2, 2, true)), [vec![0, 1], vec![0, 1]]);
    }

    #[test]
    fn too_few_chunks_for_the_fill_rings_are_refused_with_the_least_number() {
        let mut plan = plan(2, 2, false);
        plan.chunks = Some(4096);
        assert!(matches!(
            plan.open(),
            Err(Error::TooFewChunks {
                chunks: 4096,
                needed: 4352
            })
        ));
    }

    #[test]
    fn sockets_are_counted_as_they_are_opened() {
        for (number, queues, spread) in [(2, 5, false), (2, 1, false), (3, 2, false), (2, 2, true)]
        {
            let plan = plan(number, queues, spread);
            let opened: usize = workers(&plan).iter().map(Vec::len).sum();
            assert_eq!(plan.sockets(), opened as u64, "{number} {queues} {spread}");
        }
    }

    #[test]
    fn many_queues_and_workers_take_bounded_memory() {
        let gibibytes = |workers, queues| {
            let plan = plan(workers, queues, true);
            f64::from(plan.chunks().expect("enough")) * 4096.0 / f64::from(1 << 30)
        };
        assert!(gibibytes(8, 64) < 1.1, "{}", gibibytes(8, 64));
        assert!(gibibytes(1, 128) < 1.1, "{}", gibibytes(1, 128));
        // Rings of an ordinary gateway fit in full.
        let rings = RingSizes::default();
        let full = 2 * (rings.fill + 2 * rings.receive) + 1024;
        assert_eq!(plan(1, 2, true).chunks().ok(), Some(full));
    }

    #[test]
    fn more_sockets_than_the_programs_know_are_refused_with_the_remedy() {
        let error = plan(64, 32, true).open().err().expect("refused");
        let text = error.to_string();
        assert!(text.contains("2048 AF_XDP sockets"), "{text}");
        assert!(text.contains("ethtool -L"), "{text}");
    }

    #[test]
    fn an_interface_listed_twice_is_refused() {
        let mut plan = plan(1, 1, false);
        plan.ports.push(plan.ports[0].clone());
        let error = plan.open().err().expect("refused");
        assert!(error.to_string().contains("listed twice"), "{error}");
    }

    #[test]
    fn vlans_of_an_interface_share_its_queues() {
        let mut plan = plan(2, 4, true);
        let tag = |id| {
            Some(Tag {
                tpid: 0x8100,
                tci: id,
            })
        };
        plan.ports.push(PortSpec {
            tag: tag(10),
            spread: false,
            ..plan.ports[0].clone()
        });
        plan.later.push(PortSpec {
            tag: tag(30),
            ..plan.ports[0].clone()
        });
        plan.check().expect("untagged, and two VLANs");
        assert_eq!((plan.queues(), plan.sockets()), (4, 20));
        plan.ports[0].tag = tag(20);
        plan.check().expect("three VLANs");
        plan.ports[0].tag = tag(10);
        let error = plan.check().expect_err("the same VLAN");
        assert!(error.to_string().contains("listed twice"), "{error}");
    }

    #[test]
    fn a_ring_size_that_is_no_power_of_two_is_refused() {
        let mut plan = plan(1, 1, false);
        plan.rings.fill = 1000;
        assert!(matches!(
            plan.open(),
            Err(Error::RingSize {
                ring: "fill",
                size: 1000
            })
        ));
    }
}
