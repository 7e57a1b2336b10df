//! The worker: a batch of frames in, a batch of frames out.

use std::sync::Arc;

use super::{
    context::Context,
    counters::WorkerCounters,
    decap::Decap,
    encap::{Encap, Origin},
    sources::Sources,
    tables::Tables,
};
use crate::{
    fast_path::{Shared, teacher::Teacher},
    framing::{Limits, LimitsError},
    port::BATCH,
    port::umem::{Area, Frame, FreeList},
    tap::{Event, Look, Point, Tap},
};

/// What a worker is made with; the same for all workers of a gateway.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// Reassembly memory of one worker.
    pub limits: Limits,
    /// Whether frames with a wrong UDP/SCION checksum are dropped. A zero checksum says that the
    /// sender computed none.
    pub verify_checksums: bool,
    /// Whether hosts on the LAN may leave transport checksums to their network card, as virtual
    /// Ethernet devices do; the worker then finishes them.
    pub partial_checksums: bool,
    /// Whether TCP connections are kept from agreeing on segments that do not fit a frame.
    pub clamp_mss: bool,
}

/// Received Ethernet frames, by the side they came from.
#[derive(Default)]
pub struct Input {
    /// From LAN ports.
    pub lan: Vec<Frame>,
    /// From the tunnel device.
    pub tunnel: Vec<Frame>,
    /// From the underlay.
    pub underlay: Vec<Frame>,
}

impl Input {
    /// Room for so many frames of each side.
    pub fn with_capacity(frames: usize) -> Self {
        let [lan, tunnel, underlay] = [(); 3].map(|()| Vec::with_capacity(frames));
        Input {
            lan,
            tunnel,
            underlay,
        }
    }
}

/// Ethernet frames to be transmitted, by the side they go to.
#[derive(Default)]
pub struct Output {
    /// SIG frames, to the next hops of their paths.
    pub underlay: Vec<Frame>,
    /// Inner packets, to the tunnel device.
    pub tunnel: Vec<Frame>,
    /// Inner packets, straight to their next hop on each LAN interface. Packets for interfaces that are not here, or `None`,
    /// go to the tunnel device.
    pub lan: Vec<Option<Vec<Frame>>>,
}

impl Output {
    /// Room for so many frames of the underlay, of the tunnel device, and of each of `lan` interfaces.
    pub fn with_capacity(frames: usize, lan: usize) -> Self {
        let side = || Vec::with_capacity(frames);
        Output {
            underlay: side(),
            tunnel: side(),
            lan: (0..lan).map(|_| Some(side())).collect(),
        }
    }
}

/// One worker's state: its streams, its reassembly memory, its free chunks.
pub struct Worker {
    number: usize,
    area: Arc<Area>,
    free: FreeList,
    encap: Encap,
    decap: Decap,
    origin: Origin,
    clamp_mss: bool,
    teacher: Option<Teacher>,
    counters: Arc<WorkerCounters>,
    tap: Option<Arc<Tap>>,
}

impl Worker {
    /// Worker `number`, counting from 0, of a gateway.
    ///
    /// # Errors
    ///
    /// If a reassembly limit is outside its range.
    pub fn new(
        number: usize,
        config: &WorkerConfig,
        area: Arc<Area>,
        free: FreeList,
    ) -> Result<Self, LimitsError> {
        Ok(Worker {
            number,
            decap: Decap::new(config.limits, &area, config.verify_checksums)?,
            area,
            free,
            encap: Encap::new(),
            origin: Origin::Lan {
                partial: config.partial_checksums,
            },
            clamp_mss: config.clamp_mss,
            teacher: None,
            counters: Arc::default(),
            tap: None,
        })
    }

    /// Tells XDP programs what is decided, through this memory. There are so many `workers`.
    pub fn teach(&mut self, shared: Arc<Shared>, workers: usize) {
        self.teacher = Some(Teacher::new(shared, self.number, workers));
    }

    /// Sets whether hosts may leave transport checksums to their network card.
    pub fn set_partial_checksums(&mut self, partial: bool) {
        self.origin = Origin::Lan { partial };
    }

    /// Lets packets be watched.
    pub fn watched_by(&mut self, tap: Arc<Tap>) {
        self.tap = Some(tap);
    }

    /// Refuses frames that are brought by others than these, where no XDP program does so.
    pub fn check_sources(&mut self, sources: Arc<Sources>) {
        self.decap.check_sources(sources);
    }

    /// What this worker has counted so far, and goes on counting.
    pub fn counters(&self) -> Arc<WorkerCounters> {
        self.counters.clone()
    }

    /// The memory and the free chunks, for the ports.
    pub fn memory(&mut self) -> (&Area, &mut FreeList) {
        (&self.area, &mut self.free)
    }

    /// When [`Worker::process`] must be called next even if nothing is received, in nanoseconds.
    pub fn next_deadline(&self) -> Option<u64> {
        let look = self.teacher.as_ref().and_then(Teacher::next_look);
        self.decap.next_deadline().into_iter().chain(look).min()
    }

    /// Handles all frames of `input`, at the monotonic time `now` in nanoseconds, and appends what is
    /// to be transmitted to `output`. Every chunk ends up in `output` or is free again.
    pub fn process(&mut self, now: u64, tables: &Tables, input: &mut Input, output: &mut Output) {
        self.encap.follow(tables, self.number);
        let look = self.tap.as_ref();
        let look = look.and_then(|tap| tap.look(now, self.number));
        let look = look.as_ref();
        let waiting = look
            .filter(|look| look.passing())
            .map(|look| (look, watch_input(look, tables, &self.area, input, output)));
        let mut context = Context {
            now,
            worker: self.number,
            clamp_mss: self.clamp_mss,
            teacher: self.teacher.as_mut(),
            tables,
            area: &self.area,
            free: &mut self.free,
            counters: &self.counters,
            look,
            point: Point::Underlay,
            to_underlay: &mut output.underlay,
            to_tunnel: &mut output.tunnel,
            to_lan: &mut output.lan,
        };
        self.decap.follow(&mut context);
        // A full batch: more waits, and what is not taken in time is lost, whoever sent it.
        self.decap.begin_batch(input.underlay.len() >= BATCH);
        let mut frames = input.underlay.drain(..);
        while let Some(frame) = next(&mut frames, &self.area) {
            self.decap.frame(&mut context, frame);
        }
        self.decap.look_after_streams(&mut context);
        if self
            .decap
            .next_deadline()
            .is_some_and(|deadline| deadline <= now)
        {
            self.decap.poll(&mut context);
        }
        context.point = Point::Lan(None);
        let mut frames = input.lan.drain(..);
        while let Some(frame) = next(&mut frames, &self.area) {
            self.encap.packet(&mut context, frame, self.origin);
        }
        context.point = Point::Tunnel;
        let mut frames = input.tunnel.drain(..);
        while let Some(frame) = next(&mut frames, &self.area) {
            self.encap.packet(&mut context, frame, Origin::Tunnel);
        }
        self.encap.flush(&mut context);
        if let Some((look, waiting)) = waiting {
            watch_output(look, tables, &self.area, output, &waiting);
        }
    }
}

/// Shows what comes in. Returns how many frames wait for transmission on each side, in the order of [`sides`].
#[cold]
fn watch_input(
    look: &Look,
    tables: &Tables,
    area: &Area,
    input: &Input,
    output: &Output,
) -> Vec<usize> {
    for (point, frames) in [
        (Point::Lan(None), &input.lan),
        (Point::Tunnel, &input.tunnel),
        (Point::Underlay, &input.underlay),
    ] {
        for frame in frames {
            look.pass(tables, point, Event::In, frame.bytes(area));
        }
    }
    sides(output).map(|(_, frames)| frames.len()).collect()
}

/// Shows what goes out, but for the frames that had been `waiting`.
#[cold]
fn watch_output(look: &Look, tables: &Tables, area: &Area, output: &Output, waiting: &[usize]) {
    for ((point, frames), waiting) in sides(output).zip(waiting) {
        for frame in frames.iter().skip(*waiting) {
            look.pass(tables, point, Event::Out, frame.bytes(area));
        }
    }
}

fn sides(output: &Output) -> impl Iterator<Item = (Point, &Vec<Frame>)> {
    let lan = output.lan.iter().zip(0u16..);
    lan.filter_map(|(frames, port)| Some((Point::Lan(Some(port)), frames.as_ref()?)))
        .chain([
            (Point::Tunnel, &output.tunnel),
            (Point::Underlay, &output.underlay),
        ])
}

/// How many frames ahead memory is asked for. More would not help: packets start at the same place of
/// their chunks, so that few of them are in the first cache at a time.
const AHEAD: usize = 3;

/// The next frame of a batch.
#[inline]
fn next(frames: &mut std::vec::Drain<'_, Frame>, area: &Area) -> Option<Frame> {
    let frame = frames.next()?;
    if let Some(ahead) = frames.as_slice().get(AHEAD - 1) {
        ahead.prefetch(area);
    }
    Some(frame)
}
