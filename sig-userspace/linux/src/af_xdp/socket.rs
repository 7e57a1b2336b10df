//! Opening AF_XDP sockets. Everything here happens in the network namespace of the calling thread.
//!
//! Rings are mapped before the socket is bound, for which older kernels ask. The library binds first, so it is left out there.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use aya::util::KernelVersion;
use xsk_rs::{
    CompQueue, FillQueue, RxQueue, TxQueue,
    config::{BindFlags, Interface, LibxdpFlags, SocketConfig},
};

use super::{
    Error, RingSizes, ZeroCopy,
    ring::{Consumer, Descriptor, Layout, Producer},
    sys,
    umem::{Umem, os_error, queue_size},
};

/// The kernel releases the queues of a program that ended a little later, under the lock of all changes
/// of interfaces, for which it may have to wait.
pub(super) const BUSY_PATIENCE: Duration = Duration::from_secs(5);
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// The first kernel that maps the rings of a bound socket.
const MAPS_BOUND: KernelVersion = KernelVersion::new(6, 4, 0);

/// One queue of one interface.
pub(super) struct Target<'a> {
    pub(super) interface: &'a str,
    pub(super) ifindex: u32,
    pub(super) queue: u32,
    /// Packets of several chunks are taken and sent: Linux 6.6. Few drivers do that with zero copy.
    pub(super) in_parts: bool,
}

impl Target<'_> {
    fn flags(&self) -> u16 {
        const XDP_USE_SG: u16 = 1 << 4;
        libc::XDP_USE_NEED_WAKEUP | if self.in_parts { XDP_USE_SG } else { 0 }
    }
}

type LibraryRings = (TxQueue, RxQueue, Option<(FillQueue, CompQueue)>);

/// Receive and transmit ring of a socket.
pub(super) type OwnRings = (Consumer<Descriptor>, Producer<Descriptor>);

/// Fill and completion ring of a queue.
pub(super) type FillAndCompletion = (Producer<u64>, Consumer<u64>);

/// The owner of an open socket.
pub(super) enum Socket {
    /// The library's rings, unused, keep its socket open.
    Library(Box<LibraryRings>),
    Raw(OwnedFd),
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            // SAFETY: the socket is open as long as the library's rings, which `self` owns.
            Socket::Library(rings) => unsafe { BorrowedFd::borrow_raw(rings.1.fd().as_raw_fd()) },
            Socket::Raw(fd) => fd.as_fd(),
        }
    }
}

impl Socket {
    /// The first socket on a queue: it comes with the queue's fill and completion rings.
    pub(super) fn first(
        umem: &Umem,
        target: &Target<'_>,
        mode: ZeroCopy,
        by_library: bool,
        patience: Duration,
    ) -> Result<(Self, OwnRings, FillAndCompletion), Error> {
        if mode != ZeroCopy::Never {
            match Self::registering(umem, target, libc::XDP_ZEROCOPY, patience) {
                Ok(opened) => return Ok(opened),
                Err(Failure::Bind(error)) if error.raw_os_error() == Some(libc::EBUSY) => {
                    return Err(Error::binding(target, error));
                }
                Err(Failure::Bind(source)) if mode == ZeroCopy::Require => {
                    return Err(Error::NoZeroCopy {
                        interface: target.interface.to_owned(),
                        queue: target.queue,
                        source,
                    });
                }
                Err(Failure::Other(error)) if mode == ZeroCopy::Require => return Err(error),
                // Whatever else is wrong shows again in copy mode.
                Err(_) => {}
            }
        }
        let maps_bound = KernelVersion::current().is_ok_and(|kernel| kernel >= MAPS_BOUND);
        if maps_bound && by_library {
            let socket = Self::by_library(umem, target, patience)?;
            let (own, queue) = socket.map(umem.rings()).map_err(Error::mapping)?;
            return Ok((socket, own, queue));
        }
        Self::registering(umem, target, libc::XDP_COPY, patience)
            .map_err(|failure| failure.explain(target))
    }

    /// Waits until nobody has a queue, whether it is still there or not; the kernel, and the driver, have nothing left then of sockets that
    /// are closed.
    pub(super) fn wait_for_queue(
        umem: &Umem,
        target: &Target<'_>,
        patience: Duration,
    ) -> Result<(), Error> {
        match Self::registering(umem, target, libc::XDP_COPY, patience) {
            Ok(_) => Ok(()),
            // The kernel looks whether a queue is in use before it looks whether there is such a queue.
            Err(Failure::Bind(error))
                if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::EINVAL)) =>
            {
                Ok(())
            }
            Err(failure) => Err(failure.explain(target)),
        }
    }

    /// A socket of the library, in copy mode, on the UMEM shared by all of them.
    fn by_library(umem: &Umem, target: &Target<'_>, patience: Duration) -> Result<Self, Error> {
        let rings = umem.rings();
        let config = SocketConfig::builder()
            .rx_queue_size(queue_size(rings.receive)?)
            .tx_queue_size(queue_size(rings.transmit)?)
            .libxdp_flags(LibxdpFlags::XSK_LIBXDP_FLAGS_INHIBIT_PROG_LOAD)
            .bind_flags(BindFlags::from_bits_retain(libc::XDP_COPY | target.flags()))
            .build();
        let interface = target
            .interface
            .parse::<Interface>()
            .map_err(|_| Error::NoInterface {
                interface: target.interface.to_owned(),
            })?;
        let rings = patiently(umem, patience, || {
            // SAFETY: the flag against loading a program is set.
            unsafe { xsk_rs::Socket::new(config, &umem.library, &interface, target.queue) }
                .map_err(|error| os_error(&error))
        })
        .map_err(|error| Error::binding(target, error))?;
        umem.library_bound.store(true, Ordering::Release);
        let socket = Socket::Library(Box::new(rings));
        sys::close_on_exec(socket.as_fd())
            .map_err(|error| Error::system("prepare an AF_XDP socket", error))?;
        Ok(socket)
    }

    /// A socket that registers the memory of `umem` as a UMEM of its own.
    fn registering(
        umem: &Umem,
        target: &Target<'_>,
        mode: u16,
        patience: Duration,
    ) -> Result<(Self, OwnRings, FillAndCompletion), Failure> {
        let socket = raw_socket(umem.rings())?;
        sys::register_umem(socket.as_fd(), &umem.registration())
            .map_err(|error| Failure::Other(Error::registering(umem.bytes(), error)))?;
        let rings = umem.rings();
        size(&socket, libc::XDP_UMEM_FILL_RING, rings.fill)?;
        size(&socket, libc::XDP_UMEM_COMPLETION_RING, rings.completion)?;
        let socket = Socket::Raw(socket);
        let (own, queue) = socket
            .map(rings)
            .map_err(|error| Failure::Other(Error::mapping(error)))?;
        let flags = mode | target.flags();
        patiently(umem, patience, || {
            sys::bind(socket.as_fd(), target.ifindex, target.queue, flags, None)
        })
        .map_err(Failure::Bind)?;
        Ok((socket, own, queue))
    }

    /// A further socket on the queue of `first`, sharing its UMEM, fill and completion ring.
    pub(super) fn further(
        first: BorrowedFd<'_>,
        target: &Target<'_>,
        rings: &RingSizes,
    ) -> Result<(Self, OwnRings), Error> {
        let socket = raw_socket(rings).map_err(|failure| failure.explain(target))?;
        let socket = Socket::Raw(socket);
        let own = socket.own_rings(rings).map_err(Error::mapping)?;
        let shared = Some(first);
        sys::bind(
            socket.as_fd(),
            target.ifindex,
            target.queue,
            libc::XDP_SHARED_UMEM,
            shared,
        )
        .map_err(|error| Error::binding(target, error))?;
        Ok((socket, own))
    }

    pub(super) fn is_zero_copy(&self) -> Result<bool, Error> {
        sys::is_zero_copy(self.as_fd())
            .map_err(|error| Error::system("read the mode of a socket", error))
    }

    /// Maps the rings of this socket, and those of its queue.
    fn map(&self, rings: &RingSizes) -> io::Result<(OwnRings, FillAndCompletion)> {
        Ok((self.own_rings(rings)?, self.queue_rings(rings)?))
    }

    /// Maps the rings of this socket alone.
    fn own_rings(&self, rings: &RingSizes) -> io::Result<OwnRings> {
        let offsets = sys::ring_offsets(self.as_fd())?;
        let receive = Layout {
            page_offset: libc::XDP_PGOFF_RX_RING,
            offsets: offsets.rx,
            entries: rings.receive,
        };
        let transmit = Layout {
            page_offset: libc::XDP_PGOFF_TX_RING,
            offsets: offsets.tx,
            entries: rings.transmit,
        };
        Ok((
            Consumer::map(self.as_fd(), receive)?,
            Producer::map(self.as_fd(), transmit)?,
        ))
    }

    /// Maps the rings of the queue.
    fn queue_rings(&self, rings: &RingSizes) -> io::Result<FillAndCompletion> {
        let offsets = sys::ring_offsets(self.as_fd())?;
        let fill = Layout {
            page_offset: libc::XDP_UMEM_PGOFF_FILL_RING as i64,
            offsets: offsets.fr,
            entries: rings.fill,
        };
        let completion = Layout {
            page_offset: libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64,
            offsets: offsets.cr,
            entries: rings.completion,
        };
        Ok((
            Producer::map(self.as_fd(), fill)?,
            Consumer::map(self.as_fd(), completion)?,
        ))
    }
}

/// Why a socket could not be had: refused by the interface, or before that.
enum Failure {
    Bind(io::Error),
    Other(Error),
}

impl Failure {
    fn explain(self, target: &Target<'_>) -> Error {
        match self {
            Failure::Bind(error) => Error::binding(target, error),
            Failure::Other(error) => error,
        }
    }
}

fn raw_socket(rings: &RingSizes) -> Result<OwnedFd, Failure> {
    let socket = sys::socket()
        .map_err(|error| Failure::Other(Error::system("open an AF_XDP socket", error)))?;
    size(&socket, libc::XDP_RX_RING, rings.receive)?;
    size(&socket, libc::XDP_TX_RING, rings.transmit)?;
    Ok(socket)
}

fn size(socket: &OwnedFd, ring: libc::c_int, entries: u32) -> Result<(), Failure> {
    sys::size_ring(socket.as_fd(), ring, entries)
        .map_err(|error| Failure::Other(Error::system("allocate the rings of a socket", error)))
}

/// Repeats `bind` while the queue is busy, as long as there is patience.
fn patiently<T>(
    umem: &Umem,
    patience: Duration,
    mut bind: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    let deadline = Instant::now() + patience;
    loop {
        match bind() {
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY)
                    && Instant::now() < deadline
                    && !umem.in_a_hurry.load(Ordering::Relaxed) =>
            {
                thread::sleep(BUSY_PAUSE);
            }
            result => return result,
        }
    }
}
