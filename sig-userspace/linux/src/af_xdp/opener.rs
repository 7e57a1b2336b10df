//! Ports that are opened and closed while others over the same memory are in use.

use std::{
    io,
    num::NonZeroU16,
    ops::Range,
    os::fd::AsFd as _,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{Ordering, fence},
    },
    time::Duration,
};

use super::{
    BusyPoll, Error, RingSizes, XdpPort, ZeroCopy,
    plan::{
        PacketBuffers, Plan, PortSpec, Steering, WorkerPort, check_chunks, check_number, limit,
        listed_twice, steer,
    },
    queue::QueueRings,
    socket::{BUSY_PATIENCE, Socket, Target},
    sys,
    umem::Umem,
};
use sig_common::{maps::MAX_QUEUES, wire::ethernet::Tag};
use sig_core::{
    port::BATCH,
    port::umem::{Borrower, FreeList},
};

/// Opens and closes ports while others over the same memory are in use.
pub struct Opener {
    pub(super) umem: Umem,
    workers: u32,
    rings: RingSizes,
    jumbo: bool,
    busy_poll: Option<BusyPoll>,
    used: Mutex<Used>,
}

/// What ports are open.
struct Used {
    ports: Vec<Taken>,
    /// Ports that were closed, from which not everything is back.
    closed: Vec<Taken>,
    /// By slot, whether a port has it.
    slots: Vec<bool>,
    /// By number less one, whether a queue has it.
    numbers: Vec<bool>,
}

/// What an open port takes. To be given back with [`Opener::close`] once the port is dropped.
#[derive(Debug)]
pub struct Lease(Taken);

#[derive(Clone, Debug)]
struct Taken {
    interface: String,
    ifindex: u32,
    /// Whether the interface is in another network namespace than the gateway.
    is_elsewhere: bool,
    /// The VLAN that it is for.
    tag: Option<Tag>,
    slots: Range<u32>,
    /// Those of a closed port are the ones that no other port of the interface uses.
    queues: Vec<Queue>,
}

/// A queue with sockets, of one port or of several.
#[derive(Clone, Debug)]
struct Queue {
    /// On the interface.
    queue: u32,
    /// Among all queues with sockets.
    number: NonZeroU16,
    /// Whether its interface may go while the gateway runs. Then its packet buffers are lent to it.
    may_go: bool,
    /// They are there as long as a port uses them.
    rings: Weak<QueueRings>,
}

impl Queue {
    fn borrower(&self) -> Option<Borrower> {
        self.may_go.then(|| Borrower::new(self.number))
    }
}

impl Taken {
    /// Whether a thread may still use its queues. Once none does, all that they did with them happened before.
    fn is_in_use(&self) -> bool {
        let is_in_use = self
            .queues
            .iter()
            .any(|queue| queue.rings.strong_count() > 0);
        // Who drops rings releases what was done with them.
        fence(Ordering::Acquire);
        is_in_use
    }

    /// The queue of the interface with this number, if it has sockets.
    fn open_queue(&self, number: u32) -> Option<&Queue> {
        let mut queues = self.queues.iter();
        queues.find(|open| open.queue == number && open.rings.strong_count() > 0)
    }
}

/// What [`Opener::open`] makes.
pub struct OpenedPort {
    /// The ports of each worker, in the order of the queues. Their `spec` is 0.
    pub workers: Vec<Vec<WorkerPort>>,
    /// What the XDP programs need to know, one entry per queue.
    pub steering: Vec<Steering>,
    /// What it takes.
    pub lease: Lease,
}

impl Opener {
    pub(super) fn new(plan: &Plan<'_>, umem: Umem, slots: u32) -> Self {
        Opener {
            umem,
            workers: plan.workers,
            rings: plan.rings,
            jumbo: plan.jumbo,
            busy_poll: plan.busy_poll,
            used: Mutex::new(Used {
                ports: Vec::new(),
                closed: Vec::new(),
                slots: vec![false; slots as usize],
                numbers: vec![false; MAX_QUEUES as usize],
            }),
        }
    }

    pub(super) fn slots(&self) -> u32 {
        self.used().slots.len() as u32
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the sockets of an interface that stays as long as the gateway runs.
    pub(super) fn open_for_good(
        &self,
        spec: &PortSpec<'_>,
    ) -> Result<Vec<(u32, WorkerPort)>, Error> {
        let mut taken = self.lease(spec, false)?;
        let sockets = self.open_port(spec, &mut taken, BUSY_PATIENCE)?;
        self.used().note(&taken);
        Ok(sockets)
    }

    /// Opens the sockets of an interface of the calling thread's network namespace, which may go while the gateway runs. On queues that have
    /// sockets already, for another VLAN, they share fill and completion ring with those.
    ///
    /// If `is_patient`, it blocks up to about five seconds per queue that another process is just leaving.
    ///
    /// # Errors
    ///
    /// The first thing that is impossible, with what to change; nothing stays open then.
    pub fn open(&self, spec: &PortSpec<'_>, is_patient: bool) -> Result<OpenedPort, Error> {
        self.reclaim_closed();
        let mut taken = self.lease(spec, true)?;
        let patience = if is_patient {
            BUSY_PATIENCE
        } else {
            Duration::ZERO
        };
        let sockets = match self.open_port(spec, &mut taken, patience) {
            Ok(sockets) => sockets,
            Err(error) => {
                self.close(Lease(taken));
                return Err(error);
            }
        };
        self.used().note(&taken);
        let mut opened = OpenedPort {
            workers: (0..self.workers).map(|_| Vec::new()).collect(),
            steering: Vec::new(),
            lease: Lease(taken),
        };
        for (worker, port) in sockets {
            steer(&mut opened.steering, &port);
            opened.workers[worker as usize].push(port);
        }
        Ok(opened)
    }

    /// Takes back what a port had, once the kernel has let go of its queues. What cannot be taken back now is when the next port is opened or
    /// closed. Queues that other ports use stay with them, and with the queues what has been lent there.
    ///
    /// Blocks up to about five seconds for a port whose queues stay in use.
    pub fn close(&self, Lease(mut lease): Lease) {
        self.reclaim_closed();
        self.used().remove(&mut lease);
        match self.reclaim(&lease, BUSY_PATIENCE) {
            Ok(()) => self.used().free(&lease),
            Err(error) => {
                tracing::warn!(
                    interface = lease.interface,
                    "the packet buffers of an interface that was given up are not back yet; the gateway takes them back when the next \
                     interface comes or goes: {error}"
                );
                self.used().closed.push(lease);
            }
        }
    }

    /// From now on, nothing waits for queues that are in use: the gateway is about to end.
    pub fn hurry(&self) {
        self.umem.in_a_hurry.store(true, Ordering::Relaxed);
    }

    /// Tries again what was not possible when ports were closed.
    fn reclaim_closed(&self) {
        let closed = std::mem::take(&mut self.used().closed);
        for lease in closed {
            match self.reclaim(&lease, Duration::ZERO) {
                Ok(()) => self.used().free(&lease),
                Err(_) => self.used().closed.push(lease),
            }
        }
    }

    /// Takes back what a port had.
    fn reclaim(&self, lease: &Taken, mut patience: Duration) -> Result<(), Error> {
        if lease.is_in_use() {
            let error = io::Error::from_raw_os_error(libc::EBUSY);
            return Err(Error::system("take a port that is in use", error));
        }
        let mut all = Ok(());
        for open in &lease.queues {
            // It was never opened, perhaps because somebody else has it, or everything is back.
            let is_lent = |borrower: &Borrower| self.umem.area().is_lent_to(*borrower);
            let Some(borrower) = open.borrower().filter(is_lent) else {
                continue;
            };
            let target = Target {
                interface: &lease.interface,
                ifindex: lease.ifindex,
                queue: open.queue,
                in_parts: self.jumbo,
            };
            if let Err(error) = Socket::wait_for_queue(&self.umem, &target, patience) {
                all = all.and(Err(error));
                patience = Duration::ZERO;
                continue;
            }
            // SAFETY: no thread uses the rings of the queue any more, see above, and the kernel, with it the driver, has let go of the
            // queue: it is there for others, or gone. Nobody else has the borrower's number, which is that of the queue: it is free only
            // afterwards.
            let frames = unsafe { self.umem.area().reclaim(borrower) };
            self.umem.pool().put(frames);
        }
        all
    }

    /// Reserves what the sockets of an interface need.
    fn lease(&self, spec: &PortSpec<'_>, may_go: bool) -> Result<Taken, Error> {
        let interface = spec.interface.as_str();
        let ifindex = match spec.ifindex {
            Some(ifindex) => ifindex,
            None => sys::interface_index(interface).map_err(|_| Error::NoInterface {
                interface: interface.to_owned(),
            })?,
        };
        let is_elsewhere = spec.namespace.is_some();
        let mut used = self.used();
        // By index: the interface may have had another name.
        let same = |open: &&Taken| {
            let is_here = !is_elsewhere && !open.is_elsewhere;
            is_here && open.ifindex == ifindex
        };
        let mut on_same = used.ports.iter().filter(same);
        if on_same.any(|open| open.tag == spec.tag) {
            return Err(listed_twice(interface));
        }
        let shared = |number| {
            let mut on_same = used.ports.iter().filter(same);
            on_same.find_map(|open| open.open_queue(number)).cloned()
        };
        let shared: Vec<Option<Queue>> = (0..spec.queues).map(shared).collect();
        let new = shared.iter().filter(|queue| queue.is_none()).count() as u64;
        let queues = new + used.queues();
        let open = used.ports.iter().chain(&used.closed);
        let needed = spec.sockets(self.workers);
        let sockets = needed + open.map(|open| open.slots.len() as u64).sum::<u64>();
        check_number(queues, sockets)?;
        if may_go {
            let workers = self.workers.into();
            let buffers = PacketBuffers::of(workers, &self.rings, queues, sockets);
            check_chunks(self.umem.area().chunks(), &buffers)?;
        }
        let Some(slots) = used.reserve(limit(needed)) else {
            return Err(Error::NoPlace {
                interface: interface.to_owned(),
                sockets: needed,
            });
        };
        let mut open = Vec::new();
        for (queue, shared) in (0..).zip(shared) {
            let new = || {
                used.take_number().map(|number| Queue {
                    queue,
                    number,
                    may_go,
                    rings: Weak::new(),
                })
            };
            // There are enough numbers for all queues.
            open.extend(shared.or_else(new));
        }
        let taken = Taken {
            interface: interface.to_owned(),
            ifindex,
            is_elsewhere,
            tag: spec.tag,
            slots,
            queues: open,
        };
        used.ports.push(taken.clone());
        Ok(taken)
    }

    /// Opens the sockets of one interface, queue by queue, with the workers they are for.
    fn open_port(
        &self,
        spec: &PortSpec<'_>,
        lease: &mut Taken,
        patience: Duration,
    ) -> Result<Vec<(u32, WorkerPort)>, Error> {
        let umem = &self.umem;
        let interface = spec.interface.as_str();
        let ifindex = lease.ifindex;
        let mut ports = Vec::new();
        let mut free = FreeList::new(umem.pool().clone(), BATCH);
        let mut zero_copy = spec.zero_copy;
        for open in &mut lease.queues {
            let queue = open.queue;
            let target = Target {
                interface,
                ifindex,
                queue,
                in_parts: self.jumbo,
            };
            let workers = spec.workers_on(self.workers, queue);
            let mut sockets = Vec::with_capacity(workers.len());
            let shared = match open.rings.upgrade() {
                Some(shared) => shared,
                None => {
                    let borrower = open.borrower();
                    // The library keeps a queue until the memory goes.
                    let by_library =
                        borrower.is_none() && (spec.namespace.is_none() || umem.is_library_bound());
                    let (first, own, rings) =
                        Socket::first(umem, &target, zero_copy, by_library, patience)?;
                    if zero_copy == ZeroCopy::Auto && !first.is_zero_copy()? {
                        // The other queues are no better, and trying is slow: it locks the memory again.
                        zero_copy = ZeroCopy::Never;
                    }
                    let fd = first.as_fd().try_clone_to_owned();
                    let fd = fd.map_err(|error| Error::system("copy a socket", error))?;
                    let shared = Arc::new(QueueRings::new(rings, borrower, fd));
                    open.rings = Arc::downgrade(&shared);
                    // Before the XDP program is attached, with which a driver starts to receive: one that finds nothing to receive
                    // into may not ask for it.
                    shared.refill(umem.area(), &mut free);
                    sockets.push((first, own));
                    shared
                }
            };
            while sockets.len() < workers.len() {
                sockets.push(Socket::further(shared.socket(), &target, &self.rings)?);
            }
            for (worker, (socket, own)) in workers.into_iter().zip(sockets) {
                let mut port = XdpPort::new(
                    socket,
                    own,
                    shared.clone(),
                    umem.area().clone(),
                    &self.rings,
                    self.busy_poll,
                )?;
                port.set_tag(spec.tag);
                let slot = lease.slots.start + ports.len() as u32;
                let role = spec.role;
                ports.push((
                    worker,
                    WorkerPort {
                        role,
                        spec: 0,
                        ifindex,
                        queue,
                        slot,
                        port,
                    },
                ));
            }
        }
        Ok(ports)
    }
}

impl Used {
    /// Takes so many slots side by side, if they are free.
    fn reserve(&mut self, count: u32) -> Option<Range<u32>> {
        let count = count as usize;
        let mut runs = self.slots.windows(count);
        let first = runs.position(|slots| !slots.contains(&true))?;
        self.slots[first..first + count].fill(true);
        Some(first as u32..(first + count) as u32)
    }

    /// A number for a queue, if one is free.
    fn take_number(&mut self) -> Option<NonZeroU16> {
        let place = self.numbers.iter().position(|is_taken| !is_taken)?;
        let number = u16::try_from(place + 1).ok().and_then(NonZeroU16::new)?;
        self.numbers[place] = true;
        Some(number)
    }

    /// How many queues have sockets, or keep packet buffers.
    fn queues(&self) -> u64 {
        self.numbers.iter().filter(|is_taken| **is_taken).count() as u64
    }

    /// Notes the rings of a port that is open now, for others to share.
    fn note(&mut self, taken: &Taken) {
        let mut ports = self.ports.iter_mut();
        if let Some(port) = ports.find(|port| port.slots == taken.slots) {
            port.queues.clone_from(&taken.queues);
        }
    }

    /// Takes a port off the list, and from it the queues that other ports use.
    fn remove(&mut self, taken: &mut Taken) {
        self.ports.retain(|port| port.slots != taken.slots);
        let others = || self.ports.iter().flat_map(|port| &port.queues);
        taken
            .queues
            .retain(|queue| !others().any(|other| other.number == queue.number));
    }

    fn free(&mut self, taken: &Taken) {
        self.slots[taken.slots.start as usize..taken.slots.end as usize].fill(false);
        for queue in &taken.queues {
            self.numbers[usize::from(queue.number.get()) - 1] = false;
        }
    }
}
