use std::{
    io,
    num::NonZeroU32,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use xsk_rs::config::{FrameSize, QueueSize, UmemConfig};

use super::{Error, HugePages, RingSizes};
use sig_core::port::umem::{Area, CHUNK_SIZE, HEADROOM, JUMBO_CHUNKS, Pool, area_bytes};

/// Bytes that the kernel itself keeps free in front of a received packet.
const XDP_HEADROOM: usize = 256;

/// Bytes asked for on top, so that received packets start at [`HEADROOM`] or behind it.
pub(super) const FRAME_HEADROOM: u32 = (HEADROOM - XDP_HEADROOM) as u32;

/// Chunks of a 2 MiB page.
const CHUNKS_PER_HUGE_PAGE: u32 = (2 << 20) / CHUNK_SIZE as u32;

/// Memory registered with AF_XDP, and the [`Area`] and [`Pool`] over it.
pub(super) struct Umem {
    pub(super) library: xsk_rs::Umem,
    /// Whether a socket of the library is bound: the first one lives in the network namespace in
    /// which the UMEM was made, the others in that of their thread.
    pub(super) library_bound: AtomicBool,
    /// Nothing waits for queues that are in use.
    pub(super) in_a_hurry: AtomicBool,
    base: NonNull<u8>,
    rings: RingSizes,
    area: Arc<Area>,
    pool: Arc<Pool>,
    huge_pages: bool,
}

// SAFETY: `base` is only an address for further registrations; the memory is reached through
// `Area` alone. All other fields are `Send`.
unsafe impl Send for Umem {}
// SAFETY: as above; the library's handle locks inside, the rest is never changed or atomic.
unsafe impl Sync for Umem {}

impl Umem {
    /// Memory for at least `chunks` chunks (rounded up to whole huge pages, if used) and for `jumbo` jumbo frames, registered in
    /// the network namespace of the calling thread. `rings` gives the sizes of the fill and
    /// completion rings of every queue.
    ///
    /// # Errors
    ///
    /// If the kernel refuses: for lack of memory, of the right to lock it, or of AF_XDP.
    pub(super) fn new(
        (chunks, jumbo): (u32, u32),
        rings: RingSizes,
        huge_pages: HugePages,
    ) -> Result<Umem, Error> {
        rings.check()?;
        if huge_pages == HugePages::Auto {
            let of_jumbo = jumbo.saturating_mul(JUMBO_CHUNKS as u32);
            let all = chunks.saturating_add(of_jumbo);
            let rounded = all.checked_next_multiple_of(CHUNKS_PER_HUGE_PAGE);
            let made = rounded.map(|all| Self::make((all - of_jumbo, jumbo), rings, true));
            // An error of another kind shows again below.
            if let Some(Ok(umem)) = made {
                return Ok(umem);
            }
        }
        Self::make((chunks, jumbo), rings, false)
    }

    fn make(
        (chunks, jumbo): (u32, u32),
        rings: RingSizes,
        huge_pages: bool,
    ) -> Result<Umem, Error> {
        let bytes = area_bytes(chunks, jumbo) as u64;
        let all = u32::try_from(bytes / CHUNK_SIZE as u64).unwrap_or(u32::MAX);
        let count = NonZeroU32::new(all).ok_or(Error::TooFewChunks { chunks, needed: 1 })?;
        let config = UmemConfig::builder()
            .frame_size(FrameSize::new(CHUNK_SIZE as u32).map_err(refused)?)
            .frame_headroom(FRAME_HEADROOM)
            .fill_queue_size(queue_size(rings.fill)?)
            .comp_queue_size(queue_size(rings.completion)?)
            .build()
            .map_err(refused)?;
        let (library, descriptors) =
            xsk_rs::Umem::new(config, count, huge_pages).map_err(|error| {
                let source = os_error(&error);
                if source.raw_os_error() == Some(libc::EINVAL) && bytes > isize::MAX as u64 {
                    Error::TooLarge {
                        mebibytes: bytes >> 20,
                    }
                } else {
                    Error::registering(bytes, source)
                }
            })?;
        let first = descriptors.first().ok_or(Error::Unsupported)?;
        // SAFETY: the descriptor is of this UMEM, and nobody uses the memory yet.
        let packet = unsafe { library.data(first) };
        let address = packet.contents().as_ptr().expose_provenance() - first.addr();
        let base = NonNull::new(std::ptr::with_exposed_provenance_mut::<u8>(address))
            .ok_or(Error::Unsupported)?;
        // SAFETY: the library mapped `area_bytes(chunks, jumbo)` zeroed bytes from `base` on (`addr()` is an
        // offset from there), keeps them until the last clone of its handle is dropped, of which the
        // area owns one, and itself touches them only through descriptors, which are dropped here.
        let (area, pool) =
            unsafe { Area::from_raw(base, (chunks, jumbo), Box::new(library.clone())) };
        Ok(Umem {
            library,
            library_bound: AtomicBool::new(false),
            in_a_hurry: AtomicBool::new(false),
            base,
            rings,
            area,
            pool,
            huge_pages,
        })
    }

    /// The memory, for reaching the bytes of frames.
    pub(super) fn area(&self) -> &Arc<Area> {
        &self.area
    }

    /// The chunks that are in use nowhere.
    pub(super) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Whether the memory lies in huge pages.
    pub(super) fn huge_pages(&self) -> bool {
        self.huge_pages
    }

    pub(super) fn rings(&self) -> &RingSizes {
        &self.rings
    }

    /// The request that registers the same memory for a further socket.
    pub(super) fn registration(&self) -> libc::xdp_umem_reg {
        libc::xdp_umem_reg {
            addr: self.base.as_ptr().expose_provenance() as u64,
            len: self.bytes(),
            chunk_size: CHUNK_SIZE as u32,
            headroom: FRAME_HEADROOM,
            flags: 0,
            tx_metadata_len: 0,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.area.bytes() as u64
    }

    pub(super) fn is_library_bound(&self) -> bool {
        self.library_bound.load(Ordering::Acquire)
    }
}

/// A ring size for the library.
pub(super) fn queue_size(entries: u32) -> Result<QueueSize, Error> {
    QueueSize::new(entries).map_err(refused)
}

fn refused(error: impl std::fmt::Display) -> Error {
    Error::Plan(error.to_string())
}

/// The system's error behind one of the library's.
pub(super) fn os_error(error: &dyn std::error::Error) -> io::Error {
    let code = error
        .source()
        .and_then(|source| source.downcast_ref::<io::Error>())
        .and_then(io::Error::raw_os_error);
    match code {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::other(error.to_string()),
    }
}
