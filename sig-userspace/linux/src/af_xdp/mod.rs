//! Ports over AF_XDP.
//!
//! [`Plan::open`] makes the UMEM and every socket of a gateway and tells where they belong in the
//! maps of the XDP programs. It loads no program and fills no map.
//!
//! # Who does what
//!
//! `xsk-rs` makes the memory, registers it as UMEM and makes the first copy-mode socket of every
//! queue. Three things it (or the libxdp below it) cannot do are done here with plain system calls:
//!
//! - **Descriptors.** Its `FrameDesc` has no way to move the start of a packet, which is what
//!   encapsulation in place is made of. The kernel lets the rings of a bound socket be mapped any
//!   number of times, so `ring` maps them once more and is the only one that uses them; the
//!   library's own ring objects stay alive, untouched, as owners of the socket.
//! - **Several sockets on one queue.** libxdp always names the UMEM's first socket as the one to
//!   share with, which the kernel refuses for any queue but that socket's own. Further sockets are
//!   bound here, naming the first socket of their own queue.
//! - **Zero copy beside copy mode.** A UMEM shared between queues forces the mode of its first
//!   socket on all others, so a zero-copy card and a veth cannot share one. A zero-copy queue
//!   registers the same memory once more, as a UMEM of its own. Chunk addresses are offsets into the
//!   memory and mean the same in every registration, so chunks wander freely between all ports.

mod error;
mod opener;
mod plan;
mod queue;
mod ring;
mod socket;
mod sys;
mod umem;
mod xdp_port;

pub use error::Error;
pub use opener::{Lease, OpenedPort, Opener};
pub use plan::{Opened, PacketBuffers, Plan, PortSpec, Steering, WorkerPort};
pub use xdp_port::XdpPort;

pub(crate) use sys::{interface_index, set_option};

/// Whether a port uses zero copy, where the driver reads and writes the UMEM itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroCopy {
    /// If the driver can; copy mode otherwise.
    #[default]
    Auto,
    /// Copy mode.
    Never,
    /// Fail if the driver cannot.
    Require,
}

/// Whether the UMEM lies in huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// If enough 2 MiB pages are free; ordinary pages otherwise.
    #[default]
    Auto,
    /// Ordinary pages.
    Never,
}

/// Entries of the rings. Each is a power of two from 64 to 65536.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSizes {
    /// Received packets waiting for their worker, per socket.
    pub receive: u32,
    /// Packets waiting for transmission, per socket.
    pub transmit: u32,
    /// Chunks waiting for packets, per queue.
    pub fill: u32,
    /// Chunks of transmitted packets waiting for collection, per queue.
    pub completion: u32,
}

impl Default for RingSizes {
    fn default() -> Self {
        RingSizes::all(2048)
    }
}

impl RingSizes {
    /// All of this size.
    #[must_use]
    pub const fn all(size: u32) -> Self {
        RingSizes {
            receive: size,
            transmit: size,
            fill: size,
            completion: size,
        }
    }

    fn check(&self) -> Result<(), Error> {
        let rings = [
            ("receive", self.receive),
            ("transmit", self.transmit),
            ("fill", self.fill),
            ("completion", self.completion),
        ];
        for (ring, size) in rings {
            if !size.is_power_of_two() || !(64..=65536).contains(&size) {
                return Err(Error::RingSize { ring, size });
            }
        }
        Ok(())
    }
}

/// Busy polling: the worker drives the card's receive processing instead of its interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// How long one poll spins, in microseconds.
    pub micros: u32,
    /// How many packets one poll takes at most.
    pub budget: u16,
}
