//! Rings and packet memory of one forwarding thread, straight from xsk-rs.

use std::{
    os::fd::AsRawFd as _,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow};
use xsk_rs::{
    CompQueue, FillQueue, FrameDesc, RxQueue, Socket, TxQueue, Umem,
    config::{BindFlags, FrameSize, Interface, LibxdpFlags, QueueSize, SocketConfig, UmemConfig},
};

/// The sizes that the kernel's own sample programs use.
const CHUNKS: u32 = 4096;
const CHUNK_SIZE: u32 = 4096;
/// Entries of receive and transmit rings.
pub(super) const RING: u32 = 2048;
/// Chunks that a call may send in copy mode; the kernel's default of 32 is less than a batch.
const SEND_BUDGET: u32 = 256;
/// An earlier owner's sockets leave a queue a moment after its end.
const QUEUE_PATIENCE: Duration = Duration::from_secs(1);

/// The receive side of one queue, and if packets are sent, the transmit side of another.
pub(super) struct Sockets {
    pub(super) umem: Umem,
    pub(super) receive: RxQueue,
    pub(super) fill: FillQueue,
    /// Of the receiving socket, unused.
    _transmit: TxQueue,
    /// Of the receiving socket, unused.
    _completed: CompQueue,
    pub(super) out: Option<Out>,
}

/// The transmit side.
pub(super) struct Out {
    pub(super) transmit: TxQueue,
    pub(super) completed: CompQueue,
    /// Unused.
    _receive: RxQueue,
    /// Unused, but completions cannot be had without.
    _fill: FillQueue,
}

impl Sockets {
    /// Opens the only queue of the device `from` and, to send, of the device `to`, in the network namespace of
    /// the calling thread. All chunks go to the fill ring.
    pub(super) fn open(from: &str, to: Option<&str>) -> Result<Self> {
        let umem_config = UmemConfig::builder()
            .frame_size(FrameSize::new(CHUNK_SIZE)?)
            .fill_queue_size(QueueSize::new(CHUNKS)?)
            .comp_queue_size(QueueSize::new(CHUNKS)?)
            .build()?;
        let count = CHUNKS.try_into().context("chunks")?;
        let (umem, chunks) = Umem::new(umem_config, count, false)?;
        let (transmit, receive, mut fill, completed) = bind(&umem, from)?;
        let out = match to {
            None => None,
            Some(to) => {
                let (transmit, receive, fill, completed) = bind(&umem, to)?;
                widen(transmit.fd().as_raw_fd());
                Some(Out {
                    transmit,
                    completed,
                    _receive: receive,
                    _fill: fill,
                })
            }
        };
        // SAFETY: the chunks are those of this memory, and nobody has used one yet.
        unsafe { fill.produce(&chunks) };
        Ok(Sockets {
            umem,
            receive,
            fill,
            _transmit: transmit,
            _completed: completed,
            out,
        })
    }
}

type Rings = (TxQueue, RxQueue, FillQueue, CompQueue);

/// Zero copy where the driver offers it, else copy.
fn bind(umem: &Umem, device: &str) -> Result<Rings> {
    let config = SocketConfig::builder()
        .rx_queue_size(QueueSize::new(RING)?)
        .tx_queue_size(QueueSize::new(RING)?)
        .bind_flags(BindFlags::XDP_USE_NEED_WAKEUP)
        .libxdp_flags(LibxdpFlags::XSK_LIBXDP_FLAGS_INHIBIT_PROG_LOAD)
        .build();
    let interface: Interface = device.parse()?;
    let start = Instant::now();
    let (transmit, receive, rings) = loop {
        // SAFETY: libxdp loads no program, as the flag says.
        match unsafe { Socket::new(config, umem, &interface, 0) } {
            Ok(socket) => break socket,
            Err(_) if start.elapsed() < QUEUE_PATIENCE => thread::sleep(Duration::from_millis(10)),
            Err(error) => {
                return Err(anyhow!(error))
                    .with_context(|| format!("no AF_XDP socket on {device}"));
            }
        }
    };
    let (fill, completed) = rings.context("the queue has a socket of ours already")?;
    Ok((transmit, receive, fill, completed))
}

/// Lets copy mode send a whole batch in one call, where the kernel can.
fn widen(socket: libc::c_int) {
    const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;
    let bytes = (RING * CHUNK_SIZE) as libc::c_int;
    let budget = SEND_BUDGET as libc::c_int;
    for (level, option, value) in [
        (libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes),
        (libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &budget),
    ] {
        // SAFETY: the value lives through the call and has the size given.
        unsafe {
            libc::setsockopt(
                socket,
                level,
                option,
                std::ptr::from_ref(value).cast(),
                size_of_val(value) as libc::socklen_t,
            )
        };
    }
}

/// Descriptors of a batch.
pub(super) const BATCH: usize = 64;

/// Room for a batch.
pub(super) fn batch() -> [FrameDesc; BATCH] {
    [FrameDesc::default(); BATCH]
}
