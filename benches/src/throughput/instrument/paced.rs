//! The generator for even load: AF_XDP, short bursts, asleep in between.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use sig_core::{
    port::Port as _,
    port::Role,
    port::umem::{Area, CHUNK_SIZE, Frame, FreeList, HEADROOM},
};
use sig_linux::af_xdp::{HugePages, Plan, PortSpec, RingSizes, XdpPort, ZeroCopy};
use testbed::Netns;

use super::{Generator, Sent, pace, packet::Load, template::Templates, thread as threads};
use crate::throughput::{
    layout::{Progress, Setup, write},
    trial::Rate,
};

/// Longest frame.
const ROOM: usize = CHUNK_SIZE - HEADROOM;
/// Most frames handed to the kernel at once: the ring of a veth has 256 entries.
const BURST: u64 = 64;
/// Longest time between bursts, unless the rate demands a longer one.
const PAUSE: u64 = 50_000;
/// Shorter pauses are not worth going to sleep.
const SHORTEST_SLEEP: u64 = 20_000;
/// How long it may take until the kernel has sent the last frames.
const PATIENCE: Duration = Duration::from_secs(2);

/// Sends through a device with AF_XDP.
///
/// The packets bypass the device's own queueing discipline; its peer needs nothing. At low rates it
/// leaves the CPU to others between bursts of at most 50 µs and 64 packets.
pub struct Paced {
    cpu: Option<usize>,
    /// None while it runs, and after it failed.
    idle: Option<Box<Worker>>,
    run: Option<Run>,
}

struct Run {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(Box<Worker>, Result<()>)>,
}

struct Worker {
    // The port before the memory that it uses.
    port: XdpPort,
    free: FreeList,
    waiting: Vec<Frame>,
    area: Arc<Area>,
    templates: Templates,
    setup: Setup,
    progress: Progress,
}

impl Paced {
    /// A generator of `load` on queue 0 of `device`, whose thread runs on `cpu`.
    ///
    /// # Errors
    ///
    /// The load is impossible, there is no such device, another AF_XDP socket uses it, or privileges
    /// are missing.
    pub fn new(netns: &Netns, device: &str, load: &Load, cpu: Option<usize>) -> Result<Self> {
        let templates = Templates::new(load)?;
        let plan = Plan {
            workers: 1,
            ports: vec![PortSpec {
                role: Role::Lan,
                interface: device.to_owned(),
                ifindex: None,
                namespace: None,
                queues: 1,
                spread: false,
                zero_copy: ZeroCopy::Never,
                tag: None,
            }],
            rings: RingSizes {
                receive: 64,
                transmit: 256,
                fill: 64,
                completion: 256,
            },
            chunks: None,
            jumbo: false,
            huge_pages: HugePages::Never,
            later: Vec::new(),
            spare_sockets: 0,
            busy_poll: None,
        };
        let opened = netns
            .run(|| plan.open())?
            .with_context(|| format!("cannot send through {device}"))?;
        let port = opened.workers.into_iter().flatten().next();
        let worker = Worker {
            port: port.context("there is no port")?.port,
            free: FreeList::new(opened.pool, 256),
            waiting: Vec::with_capacity(BURST as usize),
            area: opened.area,
            setup: templates.setup,
            templates,
            progress: pace::fresh(),
        };
        Ok(Paced {
            cpu,
            idle: Some(Box::new(worker)),
            run: None,
        })
    }
}

impl Generator for Paced {
    fn start(&mut self, rate: Rate) -> Result<()> {
        ensure!(self.run.is_none(), "the generator is running already");
        let worker = self.idle.as_mut().context("the generator has failed")?;
        worker.setup = pace::setup(worker.setup, rate)?;
        pace::begin(&mut worker.progress);
        let mut worker = self.idle.take().context("the generator has failed")?;
        let stop = Arc::new(AtomicBool::new(false));
        let started = Arc::new(AtomicBool::new(false));
        let (stopped, starting, cpu) = (stop.clone(), started.clone(), self.cpu);
        let thread = thread::Builder::new().name("paced".into()).spawn(move || {
            threads::sleep_exactly();
            let result = match cpu {
                Some(cpu) => threads::pin(0, cpu),
                None => Ok(()),
            };
            // What is measured may share the CPU and use all of it. One that sleeps in between leaves enough.
            let result = result.and_then(|()| match rate {
                Rate::Max => threads::go_first(0),
                Rate::PacketsPerSecond(_) => threads::make_realtime(0, 5),
            });
            let result = result.and_then(|()| worker.run(&starting, &stopped));
            (worker, result)
        })?;
        while !started.load(Ordering::SeqCst) && !thread.is_finished() {
            thread::sleep(Duration::from_micros(50));
        }
        self.run = Some(Run { stop, thread });
        Ok(())
    }

    fn stop(&mut self) -> Result<Sent> {
        let run = self.run.take().context("the generator was not started")?;
        run.stop.store(true, Ordering::SeqCst);
        let now = threads::now();
        let (worker, result) = match run.thread.join() {
            Ok(returned) => returned,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let sent = pace::sent(&worker.progress, now);
        self.idle = Some(worker);
        result.map(|()| sent)
    }
}

impl Drop for Paced {
    fn drop(&mut self) {
        if self.run.is_some() {
            let _ = self.stop();
        }
    }
}

impl Worker {
    fn run(&mut self, started: &AtomicBool, stop: &AtomicBool) -> Result<()> {
        while !stop.load(Ordering::SeqCst) {
            let start = threads::now();
            self.queue(start);
            self.send()?;
            started.store(true, Ordering::SeqCst);
            let (setup, progress) = (&self.setup, &self.progress);
            // Sleep until a burst's worth is due, but not past the longest pause.
            let pause = ((setup.gap * BURST) >> 16).min(PAUSE);
            let wake = progress.due.max(start + pause);
            let now = threads::now();
            if setup.gap != 0 && wake > now + SHORTEST_SLEEP {
                // Not for long, so that it can be stopped.
                thread::sleep(Duration::from_nanos((wake - now).min(20_000_000)));
            }
        }
        let start = Instant::now();
        while !self.waiting.is_empty() || self.port.is_transmitting() {
            self.send()?;
            if start.elapsed() > PATIENCE {
                bail!("the kernel does not send the last frames; is the device up?");
            }
        }
        Ok(())
    }

    /// Takes frames that are due, as many as make a burst.
    fn queue(&mut self, now: u64) {
        while self.waiting.len() < BURST as usize {
            let Some(mut frame) = self.free.take() else {
                return;
            };
            frame.place(HEADROOM, ROOM);
            match self.next(now, &mut frame) {
                Some(len) => {
                    frame.place(HEADROOM, len);
                    self.waiting.push(frame);
                }
                None => {
                    self.free.put(frame);
                    return;
                }
            }
        }
    }

    /// Writes the next frame and returns its length; `None` if it is not due yet.
    fn next(&mut self, now: u64, frame: &mut Frame) -> Option<usize> {
        let Self {
            templates,
            setup,
            progress,
            ..
        } = self;
        let template = templates.frames.get(progress.template as usize)?;
        if !setup.take_turn(progress, now, template.packets.into()) {
            return None;
        }
        let len = write(frame.bytes_mut(&self.area), template, setup, progress, now);
        progress.step(setup);
        len
    }

    fn send(&mut self) -> Result<()> {
        self.port.transmit(&mut self.waiting);
        self.port
            .service(&self.area, &mut self.free)
            .context("the kernel does not send")
    }
}
