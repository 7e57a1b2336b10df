//! The system calls of AF_XDP that are made directly.

use std::{
    ffi::CString,
    io,
    mem::MaybeUninit,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    ptr,
};

use super::BusyPoll;
use sig_core::port::Statistics;

// Not in `libc`.
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;
const SO_PREFER_BUSY_POLL: libc::c_int = 69;
const SO_BUSY_POLL_BUDGET: libc::c_int = 70;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Sets a socket option whose value is a plain C value.
pub(crate) fn set_option<T: Copy>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the kernel reads `size_of::<T>()` bytes from a live reference; the structures used have
    // no padding.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    check(result).map(drop)
}

/// # Safety
///
/// `T` is a plain C value for which any bytes, all zero included, are valid.
unsafe fn get_option<T>(socket: BorrowedFd<'_>, name: libc::c_int) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `value`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_XDP,
            name,
            value.as_mut_ptr().cast(),
            &mut len,
        )
    };
    check(result)?;
    if len as usize != size_of::<T>() {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    // SAFETY: zeroed, then written by the kernel, and valid for any bytes by the caller's promise.
    Ok(unsafe { value.assume_init() })
}

pub(super) fn socket() -> io::Result<OwnedFd> {
    // SAFETY: plain system call.
    let fd = check(unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the descriptor was made just now and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// libxdp opens its sockets without this, and a child that inherits one keeps the queue busy.
pub(super) fn close_on_exec(socket: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: plain system call.
    check(unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) }).map(drop)
}

pub(super) fn register_umem(
    socket: BorrowedFd<'_>,
    registration: &libc::xdp_umem_reg,
) -> io::Result<()> {
    set_option(socket, libc::SOL_XDP, libc::XDP_UMEM_REG, registration)
}

/// Sets the number of entries of one ring, named by its option.
pub(super) fn size_ring(socket: BorrowedFd<'_>, ring: libc::c_int, entries: u32) -> io::Result<()> {
    set_option(socket, libc::SOL_XDP, ring, &entries)
}

pub(super) fn bind(
    socket: BorrowedFd<'_>,
    ifindex: u32,
    queue: u32,
    flags: u16,
    shared: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: ifindex,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: shared.map_or(0, |fd| fd.as_raw_fd() as u32),
    };
    // SAFETY: the kernel reads the address, of the length given, from a live local.
    let result = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            ptr::from_ref(&address).cast(),
            size_of_val(&address) as libc::socklen_t,
        )
    };
    check(result).map(drop)
}

pub(super) fn ring_offsets(socket: BorrowedFd<'_>) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: integers only.
    unsafe { get_option(socket, libc::XDP_MMAP_OFFSETS) }
}

pub(super) fn is_zero_copy(socket: BorrowedFd<'_>) -> io::Result<bool> {
    // SAFETY: integers only.
    let options: libc::xdp_options = unsafe { get_option(socket, libc::XDP_OPTIONS) }?;
    Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
}

pub(super) fn statistics(socket: BorrowedFd<'_>) -> io::Result<Statistics> {
    // SAFETY: integers only.
    let raw: libc::xdp_statistics = unsafe { get_option(socket, libc::XDP_STATISTICS) }?;
    Ok(Statistics {
        rx_dropped: raw.rx_dropped,
        rx_invalid_descriptors: raw.rx_invalid_descs,
        tx_invalid_descriptors: raw.tx_invalid_descs,
        rx_ring_full: raw.rx_ring_full,
        fill_ring_empty: raw.rx_fill_ring_empty_descs,
        tx_ring_empty: raw.tx_ring_empty_descs,
    })
}

pub(super) fn busy_poll(socket: BorrowedFd<'_>, poll: BusyPoll) -> io::Result<()> {
    let level = libc::SOL_SOCKET;
    set_option(socket, level, SO_PREFER_BUSY_POLL, &1i32)?;
    set_option(
        socket,
        level,
        libc::SO_BUSY_POLL,
        &i32::try_from(poll.micros).unwrap_or(i32::MAX),
    )?;
    set_option(socket, level, SO_BUSY_POLL_BUDGET, &i32::from(poll.budget))
}

/// Lets copy mode send more per system call and have more bytes under way than the defaults, where
/// the kernel can; it works without.
pub(super) fn widen_transmit(socket: BorrowedFd<'_>, entries: u32) {
    let bytes = entries
        .saturating_mul(2 * sig_core::port::umem::CHUNK_SIZE as u32)
        .min(i32::MAX as u32);
    let _ = set_option(
        socket,
        libc::SOL_SOCKET,
        libc::SO_SNDBUFFORCE,
        &(bytes as i32),
    );
    let _ = set_option(
        socket,
        libc::SOL_XDP,
        XDP_MAX_TX_SKB_BUDGET,
        &entries.min(256),
    );
}

/// Makes the kernel look at the transmit ring; in copy mode it sends from within.
pub(super) fn wake_transmit(socket: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: plain system call, no buffer.
    let result = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            ptr::null(),
            0,
            libc::MSG_DONTWAIT,
            ptr::null(),
            0,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Makes the driver look at the fill ring. What fails here fails for the transmit side too, which
/// reports it.
pub(super) fn wake_receive(socket: BorrowedFd<'_>) {
    // SAFETY: plain system call, no buffer.
    unsafe {
        libc::recvfrom(
            socket.as_raw_fd(),
            ptr::null_mut(),
            0,
            libc::MSG_DONTWAIT,
            ptr::null_mut(),
            ptr::null_mut(),
        )
    };
}

/// Number of an interface in the network namespace of the calling thread.
pub(crate) fn interface_index(name: &str) -> io::Result<u32> {
    let name = CString::new(name)?;
    // SAFETY: a valid C string.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}
