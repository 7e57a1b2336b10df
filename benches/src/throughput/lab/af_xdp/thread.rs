//! The forwarding thread.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use xsk_rs::FrameDesc;

use super::sockets::{BATCH, Out, RING, Sockets, batch};
use crate::throughput::instrument::thread;

/// What becomes of packets.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    /// Their chunks are given back at once.
    Drop,
    /// They are sent with this destination and source MAC address.
    Forward([u8; 12]),
}

/// Longest sleep, so that a request to stop is seen.
const SLEEP_MS: i32 = 100;

/// Counters of a thread.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) received: AtomicU64,
    pub(super) sent: AtomicU64,
}

/// A running thread. It ends when this is dropped.
pub(super) struct Forwarder {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    pub(super) counts: Arc<Counts>,
    /// Its number in `/proc`.
    pub(super) id: u32,
}

impl Forwarder {
    /// Starts a thread on `cpu` that looks for packets for as long as `spin` after the last one before it
    /// sleeps.
    pub(super) fn start(sockets: Sockets, task: Task, cpu: u16, spin: Duration) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let counts = Arc::new(Counts::default());
        let (ready, waiting) = mpsc::channel();
        let mut running = Running {
            sockets,
            task,
            spin,
            counts: counts.clone(),
            sent: batch(),
        };
        let until = stop.clone();
        let thread = std::thread::Builder::new()
            .name("af-xdp".into())
            .spawn(move || {
                // SAFETY: takes no pointer.
                let id = unsafe { libc::gettid() } as u32;
                let placed = thread::pin(0, cpu.into()).and_then(|()| thread::go_first(0));
                let failed = placed.is_err();
                let _ = ready.send(placed.map(|()| id));
                if failed {
                    return;
                }
                if let Err(error) = running.run(&until) {
                    // The trial then shows that nothing arrives.
                    eprintln!("the AF_XDP thread has ended: {error}");
                }
            })?;
        let mut forwarder = Forwarder {
            stop,
            thread: Some(thread),
            counts,
            id: 0,
        };
        forwarder.id = waiting.recv().context("the thread has ended")??;
        Ok(forwarder)
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic has been reported by itself.
            let _ = thread.join();
        }
    }
}

struct Running {
    sockets: Sockets,
    task: Task,
    spin: Duration,
    counts: Arc<Counts>,
    /// For chunks that come back.
    sent: [FrameDesc; BATCH],
}

impl Running {
    fn run(&mut self, stop: &AtomicBool) -> io::Result<()> {
        let mut packets = batch();
        let mut last = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            self.reclaim();
            // SAFETY: the descriptors are overwritten; none of them is in use here.
            let count = unsafe { self.sockets.receive.consume(&mut packets) };
            if count > 0 {
                self.counts
                    .received
                    .fetch_add(count as u64, Ordering::Relaxed);
                self.handle(&mut packets[..count], stop)?;
                if !self.spin.is_zero() {
                    last = Instant::now();
                }
                continue;
            }
            if self.sockets.fill.needs_wakeup() {
                self.sockets.receive.poll(0)?;
            }
            if self.is_waiting() {
                self.wake()?;
            }
            if self.spin.is_zero() || last.elapsed() > self.spin {
                self.sockets.receive.poll(SLEEP_MS)?;
                last = Instant::now();
            }
        }
        Ok(())
    }

    fn handle(&mut self, packets: &mut [FrameDesc], stop: &AtomicBool) -> io::Result<()> {
        let Task::Forward(addresses) = self.task else {
            self.give_back(packets);
            return Ok(());
        };
        for packet in packets.iter_mut() {
            // SAFETY: the packet was received and not given back: its chunk is ours alone.
            let mut data = unsafe { self.sockets.umem.data_mut(packet) };
            if let Some(start) = data.contents_mut().get_mut(..addresses.len()) {
                start.copy_from_slice(&addresses);
            }
        }
        loop {
            let Some(out) = &mut self.sockets.out else {
                return Ok(());
            };
            // SAFETY: the chunks are ours, and are not touched again before they come back completed.
            if unsafe { out.transmit.produce(packets) } > 0 {
                break;
            }
            self.wake()?;
            self.reclaim();
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
        self.counts
            .sent
            .fetch_add(packets.len() as u64, Ordering::Relaxed);
        self.wake()
    }

    /// Whether the kernel has not taken all packets out of the transmit ring.
    fn is_waiting(&mut self) -> bool {
        let out = self.sockets.out.as_mut();
        out.is_some_and(|out| out.transmit.nb_free(RING) < RING)
    }

    /// Has the kernel send, if it wants to be told.
    fn wake(&mut self) -> io::Result<()> {
        match &self.sockets.out {
            Some(Out { transmit, .. }) if transmit.needs_wakeup() => transmit.wakeup(),
            _ => Ok(()),
        }
    }

    /// Gives chunks of sent packets back to the receive side.
    fn reclaim(&mut self) {
        let Sockets { fill, out, .. } = &mut self.sockets;
        while let Some(out) = out {
            // SAFETY: the descriptors are overwritten; none of them is in use here.
            let count = unsafe { out.completed.consume(&mut self.sent) };
            // SAFETY: as in `give_back`.
            unsafe { fill.produce(&self.sent[..count]) };
            if count < BATCH {
                return;
            }
        }
    }

    fn give_back(&mut self, chunks: &[FrameDesc]) {
        // SAFETY: the chunks are ours and are not touched afterwards. The ring has room for all chunks.
        unsafe { self.sockets.fill.produce(chunks) };
    }
}
