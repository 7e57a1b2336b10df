//! The generator for high rates: XDP live frames.
//!
//! One call of `BPF_PROG_TEST_RUN` runs the program `generate` over and over on recycled pages, until
//! a signal ends it. The program keeps the pace itself.

use std::{
    os::unix::thread::JoinHandleExt as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use aya::{
    Ebpf, TestRun as _, TestRunOptions,
    maps::{Array, DevMap, MapData},
    programs::{ProgramError, TestRunAttrs, Xdp},
};
use testbed::Netns;

use super::{
    Generator, Sent, pace, packet::Load, programs, template::Templates, thread as threads,
};
use crate::throughput::{
    layout::{Progress, Setup, Template},
    trial::Rate,
};

/// Frames of one batch, between which the kernel looks for signals and other threads.
const BATCH: u32 = 64;
/// Passes of one call: the kernel counts them in 32 bits.
const PASSES: u32 = u32::MAX >> 1;
/// How long the first packet and the end of a call may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Sends through a device with XDP live frames: several million packets per second from one CPU.
///
/// The packets bypass the device's own queueing discipline. If the device is a veth, its peer must
/// have an XDP program, or GRO switched on.
pub struct LiveFrames {
    pub(super) setup: Array<MapData, Setup>,
    progress: Array<MapData, Progress>,
    // Not used again, but the program names them.
    _maps: (Array<MapData, Template>, DevMap<MapData>),
    pub(super) ebpf: Arc<Ebpf>,
    /// What the pages hold at first.
    pub(super) page: Vec<u8>,
    pub(super) plan: Setup,
    cpu: Option<usize>,
    run: Option<Run>,
}

struct Run {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), ProgramError>>,
}

impl LiveFrames {
    /// A generator of `load` on `device`, whose thread runs on `cpu`.
    ///
    /// # Errors
    ///
    /// The load is impossible, there is no such device, or privileges are missing.
    pub fn new(netns: &Netns, device: &str, load: &Load, cpu: Option<usize>) -> Result<Self> {
        let templates = Templates::new(load)?;
        let mut ebpf = programs::load()?;
        let ifindex = programs::index_of(netns, device)?;
        let mut devices: DevMap<_> = programs::map(&mut ebpf, "GENERATE_TO")?;
        // The kernel looks the device up in the namespace of the caller.
        netns
            .run(|| devices.set(0, ifindex, None, 0))?
            .with_context(|| format!("cannot send through {device}"))?;
        let mut frames: Array<_, Template> = programs::map(&mut ebpf, "TEMPLATES")?;
        for (number, frame) in (0..).zip(&templates.frames) {
            frames.set(number, frame, 0)?;
        }
        let setup = programs::map(&mut ebpf, "SETUP")?;
        let mut progress: Array<_, Progress> = programs::map(&mut ebpf, "PROGRESS")?;
        progress.set(0, pace::fresh(), 0)?;
        programs::load_xdp(&mut ebpf, "generate")?;
        let longest = templates.longest().context("a load of no frames")?;
        Ok(LiveFrames {
            setup,
            progress,
            _maps: (frames, devices),
            ebpf: Arc::new(ebpf),
            page: longest.bytes[..longest.len as usize].to_vec(),
            plan: templates.setup,
            cpu,
            run: None,
        })
    }

    fn wait_for_the_first(&self) -> Result<()> {
        let start = Instant::now();
        while self.progress.get(&0, 0)?.first == 0 {
            if self.run.as_ref().is_none_or(|run| run.thread.is_finished()) {
                bail!("the generator ended at once");
            }
            ensure!(start.elapsed() < PATIENCE, "the generator sends nothing");
            thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        let Some(run) = self.run.take() else {
            return Ok(());
        };
        run.stop.store(true, Ordering::SeqCst);
        let signal = threads::wake_signal();
        let start = Instant::now();
        while !run.thread.is_finished() {
            // Again and again: it may come just before the call that it is to end.
            // SAFETY: the thread was not joined yet, so its handle is valid.
            unsafe { libc::pthread_kill(run.thread.as_pthread_t(), signal) };
            ensure!(start.elapsed() < PATIENCE, "the generator does not stop");
            thread::sleep(Duration::from_micros(200));
        }
        match run.thread.join() {
            Ok(result) => result.context("live frames were refused"),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl Generator for LiveFrames {
    fn start(&mut self, rate: Rate) -> Result<()> {
        ensure!(self.run.is_none(), "the generator is running already");
        self.plan = pace::setup(self.plan, rate)?;
        self.setup.set(0, self.plan, 0)?;
        let mut progress = self.progress.get(&0, 0)?;
        pace::begin(&mut progress);
        self.progress.set(0, progress, 0)?;

        threads::wake_signal();
        let stop = Arc::new(AtomicBool::new(false));
        let (ebpf, page, cpu) = (self.ebpf.clone(), self.page.clone(), self.cpu);
        let stopped = stop.clone();
        let thread = thread::Builder::new()
            .name("live-frames".into())
            .spawn(move || {
                let place = || -> Result<()> {
                    threads::go_first(0)?;
                    cpu.map_or(Ok(()), |cpu| threads::pin(0, cpu))
                };
                place().map_err(|e| ProgramError::IOError(io_error(&e)))?;
                generate(&ebpf, &page, &stopped)
            })?;
        self.run = Some(Run { stop, thread });
        let started = self.wait_for_the_first();
        if started.is_err() {
            // What the thread says is the better reason.
            self.end()?;
        }
        started
    }

    fn stop(&mut self) -> Result<Sent> {
        ensure!(self.run.is_some(), "the generator was not started");
        // The program sends no more from here on, though its call still lasts.
        self.plan.stop = 1;
        self.setup.set(0, self.plan, 0)?;
        let now = threads::now();
        self.end()?;
        Ok(pace::sent(&self.progress.get(&0, 0)?, now))
    }
}

impl Drop for LiveFrames {
    fn drop(&mut self) {
        self.plan.stop = 1;
        let _ = self.setup.set(0, self.plan, 0);
        let _ = self.end();
    }
}

fn generate(ebpf: &Ebpf, page: &[u8], stop: &AtomicBool) -> Result<(), ProgramError> {
    let program: &Xdp = ebpf
        .program("generate")
        .ok_or(ProgramError::NotLoaded)?
        .try_into()?;
    while !stop.load(Ordering::SeqCst) {
        let result = program.test_run(TestRunOptions {
            data_in: Some(page),
            repeat: PASSES,
            attrs: TestRunAttrs::new().xdp_live_frames(BATCH),
            ..TestRunOptions::new()
        });
        match result {
            Err(ProgramError::SyscallError(error))
                if error.io_error.raw_os_error() == Some(libc::EINTR) => {}
            Err(error) => return Err(error),
            Ok(_) => {}
        }
    }
    Ok(())
}

fn io_error(error: &anyhow::Error) -> std::io::Error {
    std::io::Error::other(format!("{error:#}"))
}
