//! Tells the programs how far a worker has come with the packets that were handed over to it.
//!
//! A packet has left the worker when what became of it has left the transmit rings: until then, the programs must not send
//! a later one of its flow. Rings are looked at as a whole, now and then: an *epoch* ends when all that was in them at its beginning has
//! been sent.

use std::sync::{Arc, atomic::Ordering};

use sig_common::fast_path::tickets;

use super::Shared;
use crate::port::{
    Port,
    umem::{Area, Frame},
};

/// How long an epoch may take, nanoseconds. Some drivers tell of a transmission at the next one only.
const PATIENCE_NS: u64 = 100_000_000;
/// First wait for the end of an epoch, nanoseconds.
const FIRST_WAIT_NS: u64 = 30_000;

/// The tickets of one worker.
pub struct Order {
    shared: Arc<Shared>,
    sockets: Vec<Socket>,
    epoch: Option<Epoch>,
}

/// A socket whose packets have tickets.
struct Socket {
    number: u32,
    /// Of the packet received last.
    seen: u64,
    /// The last one that the current epoch is about.
    asked: u64,
}

struct Epoch {
    began: u64,
    /// What each port has to complete.
    sent: Vec<u64>,
    wait: u64,
}

impl Order {
    /// Nothing has been received.
    #[must_use]
    pub fn new(shared: Arc<Shared>) -> Self {
        Order {
            shared,
            sockets: Vec::new(),
            epoch: None,
        }
    }

    /// Takes the tickets of packets that a port received. What has none, because the programs could not put one in front, has
    /// no metadata afterwards.
    pub fn received(&mut self, socket: Option<u32>, frames: &mut [Frame], area: &Area) {
        let Some(socket) = socket else {
            for frame in frames {
                frame.set_metadata(area, 0);
            }
            return;
        };
        if frames.is_empty() {
            return;
        }
        let known = self.sockets.iter().position(|known| known.number == socket);
        let place = known.unwrap_or_else(|| {
            self.sockets.push(Socket {
                number: socket,
                seen: 0,
                asked: 0,
            });
            self.sockets.len() - 1
        });
        let given = self.shared.socket(socket)[tickets::GIVEN].load(Ordering::Acquire);
        let seen = &mut self.sockets[place].seen;
        for frame in frames {
            // What stands there otherwise may be any bytes, also those of a sender's choice.
            let (ticket, of) = tickets::decompose(frame.metadata(area));
            if *seen < ticket && ticket <= given && of == socket + 1 {
                *seen = ticket;
            } else {
                frame.set_metadata(area, 0);
            }
        }
    }

    /// To be called after transmission, at the monotonic time `now` in nanoseconds. `is_empty`: nothing waits for the
    /// rings of `ports`, those that the worker sends through.
    pub fn advance<'a>(
        &mut self,
        now: u64,
        is_empty: bool,
        ports: impl Iterator<Item = &'a dyn Port> + Clone,
    ) {
        if self.epoch.is_none() && is_empty && self.sockets.iter().any(|s| s.seen > s.asked) {
            for socket in &mut self.sockets {
                socket.asked = socket.seen;
            }
            self.epoch = Some(Epoch {
                began: now,
                sent: ports.clone().map(|port| port.progress().sent).collect(),
                wait: FIRST_WAIT_NS,
            });
        }
        let Some(epoch) = &self.epoch else {
            return;
        };
        let mut progress = epoch.sent.iter().zip(ports);
        let is_over = progress.all(|(sent, port)| port.progress().completed >= *sent);
        if is_over || now.saturating_sub(epoch.began) > PATIENCE_NS {
            for socket in &self.sockets {
                let done = &self.shared.socket(socket.number)[tickets::DONE];
                done.store(socket.asked, Ordering::Release);
            }
            self.epoch = None;
        }
    }

    /// How long the worker may sleep at most, nanoseconds; longer each time.
    pub fn patience(&mut self) -> Option<u64> {
        let epoch = self.epoch.as_mut()?;
        let wait = epoch.wait;
        epoch.wait *= 2;
        Some(wait)
    }
}
