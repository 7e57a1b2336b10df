//! Packet I/O behind one small trait.
//!
//! A [`Port`] is one pair of receive and transmit rings on one queue of one interface, used by one
//! worker. [`memory`] holds ports for tests and embedding, `xdp` (with the feature of that name) those over AF_XDP.

pub mod memory;
pub mod umem;
#[cfg(feature = "xdp")]
pub mod xdp;

use std::{io, os::fd::RawFd};

use umem::{Area, Frame, FreeList};

/// How many frames a worker takes from a port at once.
pub const BATCH: usize = 64;

/// A receive and a transmit ring, used by one worker.
///
/// A frame is an Ethernet frame without its check sequence. Whatever is handed over belongs to the
/// other side: received frames to the worker, transmitted ones to the port, which returns their
/// chunks through [`Port::service`].
pub trait Port: Send {
    /// Appends up to [`BATCH`] received frames to `into` and returns how many.
    fn receive(&mut self, area: &Area, into: &mut Vec<Frame>) -> usize;

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

    /// Readable when frames can be received; `None` if there is nothing to wait on.
    fn fd(&self) -> Option<RawFd>;

    /// Whether frames wait in the transmit ring or on their way, so that [`Port::service`] must be
    /// called again soon.
    fn is_transmitting(&self) -> bool;
}
