//! The engine: one thread per worker that moves frames between its ports and its
//! [`Worker`], wakes the kernel, and sleeps when there is nothing to do.

mod idle;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, Sender, TryRecvError},
    },
    thread::JoinHandle,
    time::Instant,
};

use arc_swap::ArcSwap;
use sig_common::reason::DropReason;

use crate::{
    dataplane::{Input, Output, Sources, Tables, Worker, WorkerConfig, counters::WorkerCounters},
    fast_path::{Shared, order::Order},
    port::BATCH,
    port::Port,
    port::umem::{Area, Frame, FreeList, Pool},
    tap::Tap,
};
use idle::Idle;

/// Free chunks that a worker keeps for itself before it gives some back to the shared pool.
const FREE_LIMIT: usize = 512;

/// Room for frames that wait for a transmit ring, so that it need not grow.
const CAPACITY: usize = 4096;

/// A worker stops receiving while this many finished frames wait for the transmit ring: what it
/// does not take stays in the receive ring, and the loss, if there is one, happens there.
const BACKLOG: usize = 4 * BATCH;

/// The ports of one worker. Frames leave through the first port of a side, or of a LAN interface.
#[derive(Default)]
pub struct WorkerPorts {
    /// Towards the SCION network. At least one.
    pub underlay: Vec<Box<dyn Port>>,
    /// Towards the hosts: the ports on each LAN interface, in the order in which the tables number the
    /// interfaces. May be empty; [`Engine::set_lan`] changes them.
    pub lan: Vec<Vec<Box<dyn Port>>>,
    /// The peer of the tunnel device. At least one.
    pub tunnel: Vec<Box<dyn Port>>,
}

/// How the threads behave.
#[derive(Clone)]
pub struct EngineConfig {
    /// What each worker is made with.
    pub worker: WorkerConfig,
    /// Never sleep: lowest latency for one core per worker.
    pub busy_poll: bool,
    /// CPUs for the workers, in their order; empty leaves the choice to the scheduler.
    pub cpus: Vec<usize>,
    /// Memory shared with XDP programs that send and deliver by themselves what they are told to.
    pub fast_path: Option<Arc<Shared>>,
    /// Who may bring frames, where no XDP program looks at that.
    pub sources: Option<Arc<Sources>>,
    /// Where packets are copied for those who watch.
    pub tap: Arc<Tap>,
}

/// A port side without a port.
#[derive(Debug, thiserror::Error)]
#[error("worker {worker} has no {side} port")]
pub struct MissingPort {
    worker: usize,
    side: &'static str,
}

/// The CPUs that this process may use, in ascending order; none if the kernel does not tell.
pub fn allowed_cpus() -> Vec<usize> {
    idle::allowed_cpus()
}

/// The running workers. Dropping it stops them.
pub struct Engine {
    threads: Vec<Thread>,
    counters: Vec<Arc<WorkerCounters>>,
}

struct Thread {
    handle: JoinHandle<()>,
    /// The thread ends when this is gone.
    commands: Option<Sender<SetLan>>,
    /// There is a command, or there will be none any more.
    attention: Arc<AtomicBool>,
}

/// Other ports on a LAN interface for a worker.
struct SetLan {
    number: usize,
    ports: Vec<Box<dyn Port>>,
    partial_checksums: bool,
    /// Takes those that were there before.
    answer: Sender<Vec<Box<dyn Port>>>,
}

impl Engine {
    /// Starts one worker per element of `ports`, over the memory that these ports were made with.
    /// All look up in `tables`, whatever it holds at the time.
    ///
    /// # Errors
    ///
    /// If a worker lacks a port or a thread cannot be started.
    pub fn start(
        config: &EngineConfig,
        area: &Arc<Area>,
        pool: &Arc<Pool>,
        ports: Vec<WorkerPorts>,
        tables: &Arc<ArcSwap<Tables>>,
    ) -> io::Result<Engine> {
        let mut engine = Engine {
            threads: Vec::with_capacity(ports.len()),
            counters: Vec::with_capacity(ports.len()),
        };
        let workers = ports.len();
        for (number, ports) in ports.into_iter().enumerate() {
            for (side, missing) in [
                ("underlay", ports.underlay.is_empty()),
                ("tunnel", ports.tunnel.is_empty()),
            ] {
                if missing {
                    return Err(io::Error::other(MissingPort {
                        worker: number,
                        side,
                    }));
                }
            }
            let lan = ports.lan.len();
            if ports.lan.iter().any(Vec::is_empty) {
                return Err(io::Error::other(MissingPort {
                    worker: number,
                    side: "LAN",
                }));
            }
            let free = FreeList::new(pool.clone(), FREE_LIMIT);
            let mut worker = Worker::new(number, &config.worker, area.clone(), free)
                .map_err(io::Error::other)?;
            let order = config.fast_path.as_ref().map(|shared| {
                worker.teach(shared.clone(), workers);
                Order::new(shared.clone())
            });
            worker.watched_by(config.tap.clone());
            if let Some(sources) = &config.sources {
                worker.check_sources(sources.clone());
            }
            engine.counters.push(worker.counters());
            let mut thread = WorkerThread {
                worker,
                ports,
                input: Input::with_capacity(BATCH * 8),
                output: Output::with_capacity(CAPACITY, lan),
                tables: arc_swap::Cache::new(tables.clone()),
                idle: Idle::new(config.busy_poll),
                order,
                start: Instant::now(),
            };
            let cpu = config.cpus.get(number).copied();
            let (commands, told) = mpsc::channel();
            let attention = Arc::new(AtomicBool::new(false));
            let called = attention.clone();
            let handle = std::thread::Builder::new()
                .name(format!("sig-worker-{number}"))
                .spawn(move || {
                    idle::take_precedence();
                    if let Some(cpu) = cpu {
                        idle::pin_to(cpu);
                    }
                    thread.run(&called, &told);
                })?;
            engine.threads.push(Thread {
                handle,
                commands: Some(commands),
                attention,
            });
        }
        Ok(engine)
    }

    /// Counters of each worker.
    pub fn counters(&self) -> &[Arc<WorkerCounters>] {
        &self.counters
    }

    /// Makes these the ports on the LAN interface with this number, an element for each worker. Nothing stops for it: each worker changes its
    /// ports between two batches, within a tenth of a second, and goes on with its streams. Without ports, packets to the interface go to
    /// the tunnel device, and what waited for transmission there is dropped. `partial_checksums`: hosts on LAN interfaces may leave
    /// transport checksums to their network card.
    ///
    /// # Errors
    ///
    /// If a worker has ended: the engine is not healthy any more.
    pub fn set_lan(
        &self,
        number: usize,
        ports: Vec<Vec<Box<dyn Port>>>,
        partial_checksums: bool,
    ) -> io::Result<LanChange> {
        let (answer, answers) = mpsc::channel();
        let ports = ports.into_iter().chain(std::iter::repeat_with(Vec::new));
        let mut all_told = Ok(());
        for (thread, ports) in self.threads.iter().zip(ports) {
            let command = SetLan {
                number,
                ports,
                partial_checksums,
                answer: answer.clone(),
            };
            let commands = thread.commands.as_ref().ok_or_else(ended);
            let told = commands.and_then(|commands| commands.send(command).map_err(|_| ended()));
            thread.attention.store(true, Ordering::Release);
            // The others change all the same.
            all_told = all_told.and(told);
        }
        all_told?;
        let workers = self.threads.len();
        Ok(LanChange { answers, workers })
    }

    /// Whether all workers are running.
    pub fn is_healthy(&self) -> bool {
        self.threads.iter().all(|of| !of.handle.is_finished())
    }
}

/// Workers are about to change their ports on a LAN interface.
#[must_use]
pub struct LanChange {
    answers: Receiver<Vec<Box<dyn Port>>>,
    workers: usize,
}

impl LanChange {
    /// Waits until they have, and returns the ports that were there before, emptied of the chunks that they held themselves.
    ///
    /// # Errors
    ///
    /// If a worker has ended: the engine is not healthy any more.
    pub fn wait(self) -> io::Result<Vec<Box<dyn Port>>> {
        let mut before = Vec::new();
        for _ in 0..self.workers {
            before.extend(self.answers.recv().map_err(|_| ended())?);
        }
        Ok(before)
    }
}

fn ended() -> io::Error {
    io::Error::other("a worker thread has ended")
}

impl Drop for Engine {
    fn drop(&mut self) {
        for thread in &mut self.threads {
            thread.commands = None;
            thread.attention.store(true, Ordering::Release);
        }
        for thread in self.threads.drain(..) {
            // A worker that panicked has been reported by the panic itself.
            let _ = thread.handle.join();
        }
    }
}

struct WorkerThread {
    worker: Worker,
    ports: WorkerPorts,
    input: Input,
    output: Output,
    tables: arc_swap::Cache<Arc<ArcSwap<Tables>>, Arc<Tables>>,
    idle: Idle,
    order: Option<Order>,
    start: Instant,
}

impl WorkerThread {
    fn run(&mut self, attention: &AtomicBool, commands: &Receiver<SetLan>) {
        let counters = self.worker.counters();
        // The receive sides get their first chunks.
        self.service(&counters);
        loop {
            if attention.load(Ordering::Relaxed) && !self.obey(attention, commands, &counters) {
                return;
            }
            counters.rounds.add(1);
            if self.round(&counters) {
                self.idle.reset();
                continue;
            }
            let timeout = self
                .worker
                .next_deadline()
                .map(|at| at.saturating_sub(self.now()));
            let patience = self.order.as_mut().and_then(Order::patience);
            let timeout = timeout.into_iter().chain(patience).min();
            if self.idle.wait(&self.ports, timeout) {
                counters.sleeps.add(1);
            }
        }
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Carries out commands; whether there may be more.
    #[cold]
    fn obey(
        &mut self,
        attention: &AtomicBool,
        commands: &Receiver<SetLan>,
        counters: &WorkerCounters,
    ) -> bool {
        // Before the commands are looked at: who sends one afterwards sets it again.
        attention.swap(false, Ordering::AcqRel);
        loop {
            match commands.try_recv() {
                Ok(command) => self.set_lan(command, counters),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn set_lan(&mut self, command: SetLan, counters: &WorkerCounters) {
        let SetLan {
            number,
            ports,
            partial_checksums,
            answer,
        } = command;
        let count = self.ports.lan.len().max(number + 1);
        self.ports.lan.resize_with(count, Vec::new);
        self.output.lan.resize_with(count, || None);
        let waiting = &mut self.output.lan[number];
        let (_, free) = self.worker.memory();
        for frame in waiting.iter_mut().flat_map(|waiting| waiting.drain(..)) {
            counters.drop(DropReason::LinkDown);
            free.put(frame);
        }
        match ports.is_empty() {
            true => *waiting = None,
            false => *waiting = Some(Vec::with_capacity(CAPACITY)),
        }
        let mut before = std::mem::replace(&mut self.ports.lan[number], ports);
        let (area, free) = self.worker.memory();
        for port in &mut before {
            port.give_up(area, free);
        }
        if let Some(order) = &mut self.order {
            order.change_ports(before.iter().filter_map(|port| port.socket()));
        }
        self.worker.set_partial_checksums(partial_checksums);
        // Whoever asked may have gone.
        let _ = answer.send(before);
        // New receive sides get their first chunks.
        self.service(counters);
    }

    /// One batch through the worker; whether there was anything to do.
    fn round(&mut self, counters: &WorkerCounters) -> bool {
        let now = self.now();
        let has_room = |waiting: &Vec<Frame>| waiting.len() < BACKLOG;
        // What rules send into chains, and copies, leave by the tunnel device.
        let has_tunnel_room = has_room(&self.output.tunnel);
        let may_go_there = self.tables.load().filter.looks_at_egress();
        if has_room(&self.output.underlay) && (has_tunnel_room || !may_go_there) {
            for port in self.ports.lan.iter_mut().flatten() {
                receive(
                    port,
                    &mut self.input.lan,
                    &mut self.order,
                    &mut self.worker,
                    now,
                );
            }
            for port in &mut self.ports.tunnel {
                receive(
                    port,
                    &mut self.input.tunnel,
                    &mut self.order,
                    &mut self.worker,
                    now,
                );
            }
        }
        if has_tunnel_room && self.output.lan.iter().flatten().all(has_room) {
            for port in &mut self.ports.underlay {
                receive(
                    port,
                    &mut self.input.underlay,
                    &mut self.order,
                    &mut self.worker,
                    now,
                );
            }
        }
        let received = self.input.lan.len() + self.input.tunnel.len() + self.input.underlay.len();
        let due = self
            .worker
            .next_deadline()
            .is_some_and(|deadline| deadline <= now);
        if received > 0 || due {
            self.worker
                .process(now, self.tables.load(), &mut self.input, &mut self.output);
        }
        let mut waiting = false;
        for (ports, frames) in sides(&mut self.ports, &mut self.output) {
            if let (Some(port), false) = (ports.first_mut(), frames.is_empty()) {
                waiting = true;
                port.transmit(frames);
            }
        }
        let busy = self.service(counters);
        if self.order.is_some() {
            self.tell_progress(now);
        }
        received > 0 || waiting || busy
    }

    /// Tells the XDP programs which packets have been sent. What the kernel got does not count: programs send nothing that
    /// goes that way, and there a packet may wait seconds for a host that does not answer ARP.
    fn tell_progress(&mut self, now: u64) {
        let Some(order) = &mut self.order else {
            return;
        };
        let (ports, output) = (&self.ports, &self.output);
        let ports = ports.lan.iter().chain([&ports.underlay]);
        let lan = output.lan.iter().map(Option::as_ref);
        let waiting = lan.chain([Some(&output.underlay)]);
        let first = ports.zip(waiting).filter_map(|(ports, waiting)| {
            let port: &dyn Port = &**ports.first()?;
            Some((port, waiting?.len()))
        });
        order.advance(now, first);
    }

    /// Serves all rings; whether frames still wait for transmission.
    fn service(&mut self, counters: &WorkerCounters) -> bool {
        let (area, free) = self.worker.memory();
        let mut busy = false;
        for (ports, waiting) in sides(&mut self.ports, &mut self.output) {
            for port in ports {
                match port.service(area, free) {
                    Ok(()) => busy |= port.is_transmitting(),
                    Err(_) => {
                        counters.port_errors.add(1);
                        // The link is down: what waits for it is lost, the rest goes on.
                        for frame in waiting.drain(..) {
                            counters.drop(DropReason::LinkDown);
                            free.put(frame);
                        }
                    }
                }
            }
            busy |= !waiting.is_empty();
        }
        busy
    }
}

/// Receives from a port.
fn receive(
    port: &mut Box<dyn Port>,
    into: &mut Vec<Frame>,
    order: &mut Option<Order>,
    worker: &mut Worker,
    now: u64,
) {
    let Some(order) = order else {
        port.receive(into);
        return;
    };
    let before = into.len();
    let given = order.given(port.socket());
    let count = port.receive(into);
    let none_waits = (count < BATCH).then_some(given);
    let (area, _) = worker.memory();
    let frames = &mut into[before..];
    let lost = || port.lost();
    order.received(port.socket(), frames, area, none_waits, lost, now);
}

/// The ports that frames leave through, and what waits for them.
fn sides<'a>(
    ports: &'a mut WorkerPorts,
    output: &'a mut Output,
) -> impl Iterator<Item = (&'a mut Vec<Box<dyn Port>>, &'a mut Vec<Frame>)> {
    let lan = ports.lan.iter_mut().zip(&mut output.lan);
    let lan = lan.filter_map(|(ports, waiting)| Some((ports, waiting.as_mut()?)));
    std::iter::once((&mut ports.underlay, &mut output.underlay))
        .chain(lan)
        .chain(std::iter::once((&mut ports.tunnel, &mut output.tunnel)))
}

#[cfg(test)]
mod tests {
    use sig_common::{
        fast_path::{StreamKey, tickets},
        wire::underlay::Local,
    };

    use super::*;
    use crate::{
        fast_path::StreamIndex,
        framing::Limits,
        port::{Progress, umem::HEADROOM},
    };

    struct NoIndex;

    impl StreamIndex for NoIndex {
        fn insert(&self, _: &StreamKey, _: u32) -> io::Result<()> {
            Ok(())
        }

        fn remove(&self, _: &StreamKey) {}
    }

    const SOCKET: u32 = 1;

    /// A port that has these frames, and has made this progress.
    struct Fixed(Vec<Frame>, Progress);

    impl Port for Fixed {
        fn receive(&mut self, into: &mut Vec<Frame>) -> usize {
            let count = self.0.len();
            into.append(&mut self.0);
            count
        }

        fn transmit(&mut self, _: &mut Vec<Frame>) {}

        fn service(&mut self, _: &Area, _: &mut FreeList) -> io::Result<()> {
            Ok(())
        }

        fn fd(&self) -> Option<std::os::fd::RawFd> {
            None
        }

        fn is_transmitting(&self) -> bool {
            false
        }

        fn progress(&self) -> Progress {
            self.1
        }

        fn socket(&self) -> Option<u32> {
            Some(SOCKET)
        }
    }

    /// The ticket that is done when a worker got a packet, and these ports have yet to send something.
    fn done(underlay: bool, lan: bool, tunnel: bool) -> u64 {
        let (area, pool) = Area::on_heap(1024);
        let mut free = FreeList::new(pool, 128);
        let mut frame = free.take().expect("a chunk is free");
        frame.place(HEADROOM, 60);
        frame.set_metadata(&area, tickets::compose(1, SOCKET));
        let port = |frames, is_late| -> Box<dyn Port> {
            let sent = u64::from(is_late);
            Box::new(Fixed(frames, Progress { sent, completed: 0 }))
        };
        let shared = Arc::new(Shared::on_heap(SOCKET + 1, Box::new(NoIndex)));
        let words = shared.tickets.all();
        let first = SOCKET as usize * tickets::WORDS;
        words[first + tickets::GIVEN].store(1, Ordering::Relaxed);
        let config = WorkerConfig {
            limits: Limits::default(),
            verify_checksums: true,
            partial_checksums: false,
            clamp_mss: false,
        };
        let worker = Worker::new(0, &config, area, free).expect("valid limits");
        let local = "1-1".parse().expect("an ISD-AS");
        let local = Local::new(local, [192, 0, 2, 1].into(), 30056, false);
        let mut thread = WorkerThread {
            worker,
            ports: WorkerPorts {
                underlay: vec![port(Vec::new(), underlay)],
                lan: vec![vec![port(vec![frame], lan)]],
                tunnel: vec![port(Vec::new(), tunnel)],
            },
            input: Input::with_capacity(8),
            output: Output::with_capacity(8, 1),
            tables: arc_swap::Cache::new(Arc::new(ArcSwap::from_pointee(Tables::empty(local)))),
            idle: Idle::new(false),
            order: Some(Order::new(shared.clone())),
            start: Instant::now(),
        };
        let counters = thread.worker.counters();
        thread.round(&counters);
        words[first + tickets::DONE].load(Ordering::Relaxed)
    }

    #[test]
    fn packets_of_the_kernel_keep_no_flow_from_the_fast_path() {
        assert_eq!(done(false, false, false), 1);
        assert_eq!(done(true, false, false), 0);
        assert_eq!(done(false, true, false), 0);
        assert_eq!(done(false, false, true), 1);
    }
}
