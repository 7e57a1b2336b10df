//! Packet I/O behind one small trait.
//!
//! A [`Port`] is one pair of receive and transmit rings on one queue of one interface, used by one
//! worker. [`memory`] holds ports for tests and embedding, the crate `sig-linux` those over AF_XDP, UDP sockets and a TUN device.

pub mod memory;
#[cfg(test)]
mod tests;
pub mod umem;

use std::{io, os::fd::RawFd};

use serde::{Deserialize, Serialize};

use crate::counter::{Counter, counters};
use umem::{Area, Frame, FreeList};

/// What `umem` shares memory with; other primitives in `crate::modelled`.
mod sync {
    pub(super) use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
}

/// How many frames a worker takes from a port at once.
pub const BATCH: usize = 64;

/// What a port is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The SCION side.
    Underlay,
    /// A network card towards the IP hosts.
    Lan,
    /// The peer of the gateway's own device.
    Tunnel,
}

impl Role {
    /// Returns the word of the status document.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Underlay => "underlay",
            Self::Lan => "lan",
            Self::Tunnel => "tunnel",
        }
    }
}

/// A receive and a transmit ring, used by one worker.
///
/// A frame is an Ethernet frame without its check sequence. Whatever is handed over belongs to the
/// other side: received frames to the worker, transmitted ones to the port, which returns their
/// chunks through [`Port::service`].
pub trait Port: Send {
    /// Appends up to [`BATCH`] received frames to `into` and returns how many; [`BATCH`] also if it appended fewer, having dropped
    /// others, and more may wait.
    fn receive(&mut self, into: &mut Vec<Frame>) -> usize;

    /// Queues frames for transmission, from the front of `frames`, in order, and removes those it
    /// took. What does not fit the ring stays, to be offered again.
    fn transmit(&mut self, frames: &mut Vec<Frame>);

    /// Takes the chunks of completed transmissions back to `free`, gives the receive side new ones,
    /// and wakes the kernel where it asks for that.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to transmit, for instance because the interface is down. Queued
    /// frames stay queued.
    fn service(&mut self, area: &Area, free: &mut FreeList) -> io::Result<()>;

    /// Gives back the chunks that the port holds itself, and nothing that it has handed to the kernel. It is not used any more.
    fn give_up(&mut self, _area: &Area, _free: &mut FreeList) {}

    /// Readable when frames can be received; `None` if there is nothing to wait on.
    fn fd(&self) -> Option<RawFd>;

    /// Whether frames wait in the transmit ring or on their way, so that [`Port::service`] must be
    /// called again soon.
    fn is_transmitting(&self) -> bool;

    /// Whether frames wait in the port until [`Port::fd`] is writable: nothing else has to be done for them before.
    fn waits_for_room(&self) -> bool {
        false
    }

    /// How many frames were handed to the kernel, and how many of them it has sent: on the queue of this port, by whatever
    /// socket.
    fn progress(&self) -> Progress {
        Progress::default()
    }

    /// How many packets for this port the kernel has lost. A system call.
    fn lost(&self) -> u64 {
        0
    }

    /// The number of the socket whose tickets the XDP programs put in front of received packets
    /// ([`sig_common::fast_path::tickets`]), if they do.
    fn socket(&self) -> Option<u32> {
        None
    }
}

/// See [`Port::progress`]. Both only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Handed to the kernel.
    pub sent: u64,
    /// Sent by it.
    pub completed: u64,
}

/// Reads what was counted at a port, from any thread, while a worker has the port.
pub trait Monitor: Send + Sync {
    /// What the port counts itself.
    fn counters(&self) -> &Counters;

    /// What is counted below the port.
    ///
    /// # Errors
    ///
    /// If the kernel does not tell.
    fn statistics(&self) -> io::Result<Statistics>;
}

counters! {
    /// What a port counts itself.
    pub struct Counters: Counter {}
    /// What ports counted.
    pub struct Counts;

    // Handed to the worker.
    rx_packets "gateway_queue_packets_total" [interface, queue, worker, ring = "rx"]
        "Packets that passed a socket of a port.";
    // Handed to the kernel.
    tx_packets "gateway_queue_packets_total" [interface, queue, worker, ring = "tx"]
        "Packets that passed a socket of a port.";
    wakeups "gateway_queue_wakeups_total" [interface, queue, worker]
        "System calls made for a socket of a port: to wake the kernel, or to receive and send.";
    // They lie in several chunks, and no jumbo frame was free or large enough.
    rx_multi_buffer "gateway_queue_drops_total" [interface, queue, worker, reason = "multi_buffer"]
        "Packets that a socket of a port dropped.";
    // The kernel took nothing for too long.
    tx_queue_full "gateway_queue_drops_total" [interface, queue, worker, reason = "send_queue_full"]
        "Packets that a socket of a port dropped.";
    // Longer than the kernel lets through to there.
    tx_too_big "gateway_queue_drops_total" [interface, queue, worker, reason = "send_too_big"]
        "Packets that a socket of a port dropped.";
    // No route, no device, or a firewall.
    tx_refused "gateway_queue_drops_total" [interface, queue, worker, reason = "send_refused"]
        "Packets that a socket of a port dropped.";
    tx_too_short "gateway_queue_too_short_total" [interface, queue, worker]
        "Frames that were not sent because they are shorter than an Ethernet header.";
    // A bug of kernel or driver.
    bad_descriptors "gateway_queue_bad_descriptors_total" [interface, queue, worker]
        "AF_XDP ring entries that do not refer to a packet buffer.";
}

/// What the kernel, or whatever else is below a port, counts since the port was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets dropped for other reasons than those below, such as their length.
    pub rx_dropped: u64,
    /// Fill-ring entries the kernel refused.
    pub rx_invalid_descriptors: u64,
    /// Transmit-ring entries the kernel refused.
    pub tx_invalid_descriptors: u64,
    /// Packets dropped because the worker did not keep up.
    pub rx_ring_full: u64,
    /// Packets dropped because there was no chunk to receive into.
    pub fill_ring_empty: u64,
    /// How often the kernel looked for packets to transmit and found none.
    pub tx_ring_empty: u64,
}
