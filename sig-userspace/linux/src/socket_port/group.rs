//! The sockets that share an address.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

use sig_common::wire::{PROTO_UDP, scion::common, sig_frame::STREAM_MASK, udp};
use socket2::{Domain, Protocol, Socket, Type};

use crate::af_xdp::set_option;

/// Bytes of packets that a socket keeps for its worker.
const RECEIVE_BUFFER: libc::c_int = 8 << 20;
/// Bytes that the kernel takes before it says that it has no room. Little, since what waits there cannot be dropped any more.
const SEND_BUFFER: libc::c_int = 1 << 20;

/// The sockets at one address.
#[derive(Debug)]
pub struct Group {
    /// Of the workers, in their order.
    pub workers: Vec<UdpSocket>,
    /// Takes what is not a SIG frame, where that was wanted.
    pub rest: Option<UdpSocket>,
    /// Keeps other programs away.
    pub guard: Option<UdpSocket>,
}

impl Group {
    /// Takes the address for this number of workers, at least one, which get frames for the UDP/SCION port `data_port`; `with_rest`: there is somebody to read what is not a SIG frame.
    ///
    /// # Errors
    /// Of the operating system: [`io::ErrorKind::AddrInUse`] if another program has the address.
    pub fn open(
        address: SocketAddr,
        data_port: u16,
        workers: u16,
        with_rest: bool,
    ) -> io::Result<Self> {
        // Alone at first, which fails if any other program has the address.
        let first = bind(address, false)?;
        let address = first.local_addr()?.as_socket().unwrap_or(address);
        first.set_reuse_port(true)?;
        let mut sockets = vec![first];
        let others = 1..usize::from(workers) + usize::from(with_rest);
        for _ in others {
            sockets.push(bind(address, true)?);
        }
        if let [first, _, ..] = &*sockets {
            steer(first, u32::from(workers), with_rest, data_port)?;
        }
        for socket in &sockets {
            configure(socket, address)?;
        }
        let mut workers: Vec<UdpSocket> = sockets.into_iter().map(UdpSocket::from).collect();
        Ok(Self {
            rest: if with_rest { workers.pop() } else { None },
            workers,
            guard: guard(address),
        })
    }
}

fn bind(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    socket.set_reuse_port(shared)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Sockets that share an address let in everybody of their user who shares as well, such as another gateway, unless one of them
/// does not share any more. This one gets nothing, as it is connected to a port of ours that nobody sends from.
fn guard(address: SocketAddr) -> Option<UdpSocket> {
    const DISCARD: u16 = 9;
    let guard = bind(address, true).ok()?;
    guard.set_reuse_port(false).ok()?;
    let nobody = SocketAddr::new(address.ip(), DISCARD);
    guard.connect(&nobody.into()).ok()?;
    Some(guard.into())
}

fn configure(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    let fd = socket.as_fd();
    for (forced, usual, bytes) in [
        (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, RECEIVE_BUFFER),
        (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, SEND_BUFFER),
    ] {
        set_option(fd, libc::SOL_SOCKET, forced, &bytes)
            .or_else(|_| set_option(fd, libc::SOL_SOCKET, usual, &bytes))?;
    }
    // Frames are made to fit the path; a router on the way is not to cut them, nor may anybody's ICMP message shrink them. And
    // the kernel tells DSCP, ECN and the interface.
    let (level, options) = match address {
        SocketAddr::V4(_) => (
            libc::IPPROTO_IP,
            [
                (libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE),
                (libc::IP_RECVTOS, 1),
                (libc::IP_PKTINFO, 1),
            ],
        ),
        SocketAddr::V6(_) => (
            libc::IPPROTO_IPV6,
            [
                (libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE),
                (libc::IPV6_RECVTCLASS, 1),
                (libc::IPV6_RECVPKTINFO, 1),
            ],
        ),
    };
    for (option, value) in options {
        set_option(fd, level, option, &value)?;
    }
    Ok(())
}

/// Has the kernel sort datagrams between the sockets, by classic BPF over what is behind the UDP header, which gives the number of
/// the socket. A load from beyond the end gives 0.
fn steer(first: &Socket, workers: u32, with_rest: bool, data_port: u16) -> io::Result<()> {
    let mut program = steering(workers, with_rest, data_port);
    let program = libc::sock_fprog {
        len: program.len() as libc::c_ushort,
        filter: program.as_mut_ptr(),
    };
    set_option(
        first.as_fd(),
        libc::SOL_SOCKET,
        libc::SO_ATTACH_REUSEPORT_CBPF,
        &program,
    )
}

/// *Stream id mod workers* for what is for the UDP/SCION port `data_port`. Frames behind extension headers, which no gateway
/// sends, go where the rest goes.
fn steering(workers: u32, with_rest: bool, data_port: u16) -> [libc::sock_filter; 12] {
    /// Offset of the length of the header, in words.
    const HEADER_WORDS: u32 = 5;
    /// The accumulator, as what is returned.
    const BPF_A: u32 = 0x10;
    /// Behind the SCION header.
    const DESTINATION_PORT: u32 = 2;
    const STREAM: u32 = (udp::HEADER_LEN + 4) as u32;
    let load = |mode, at| op(libc::BPF_LD | mode, 0, at);
    let compute = |what, value| op(libc::BPF_ALU | what, 0, value);
    // To the last operation, if not.
    let must_be = |value, skip| op(libc::BPF_JMP | libc::BPF_JEQ, skip, value);
    let rest = if with_rest { workers } else { 0 };
    [
        load(
            libc::BPF_B | libc::BPF_ABS,
            common::NEXT_HEADER_OFFSET as u32,
        ),
        must_be(PROTO_UDP.into(), 9),
        load(libc::BPF_B | libc::BPF_ABS, HEADER_WORDS),
        compute(libc::BPF_LSH, 2),
        op(libc::BPF_MISC | libc::BPF_TAX, 0, 0),
        load(libc::BPF_H | libc::BPF_IND, DESTINATION_PORT),
        must_be(data_port.into(), 4),
        load(libc::BPF_W | libc::BPF_IND, STREAM),
        compute(libc::BPF_AND, STREAM_MASK),
        compute(libc::BPF_MOD, workers),
        op(libc::BPF_RET | BPF_A, 0, 0),
        op(libc::BPF_RET, 0, rest),
    ]
}

/// An operation of classic BPF; `skip`: how many to skip if a comparison fails.
const fn op(code: u32, skip: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: skip,
        k,
    }
}

/// Datagrams that found no room in the buffer of a socket.
pub(super) fn overflows(socket: BorrowedFd<'_>) -> io::Result<u64> {
    const SO_MEMINFO: libc::c_int = 55;
    /// Place of the count among the numbers, as in `linux/sock_diag.h`.
    const DROPS: usize = 8;
    let mut numbers = [0u32; DROPS + 1];
    let mut len = size_of_val(&numbers) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `numbers`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_MEMINFO,
            numbers.as_mut_ptr().cast(),
            &mut len,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(numbers[DROPS].into())
}
