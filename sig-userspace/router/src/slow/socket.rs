//! UDP sockets of the underlay.

use std::{
    collections::BTreeSet,
    io, mem,
    net::{IpAddr, SocketAddr},
    os::fd::{AsRawFd, RawFd},
    ptr,
};

use sig_common::wire::{
    PROTO_UDP, ipv6,
    scion::{NEXT_BFD, common, path},
};
use socket2::{Domain, Protocol, Type};
use tokio::{io::Interest, net::UdpSocket, runtime::Handle};

use crate::config::Buffers;

/// Bytes that a buffer has unless configured: what comes in while the process waits for the processor.
const BUFFER: u32 = 4 << 20;

/// The same for BFD, of which more than a few packets are none that a neighbour sends: some hundred of them.
const BFD_BUFFER: u32 = 256 << 10;

/// An address cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("{what}: cannot listen on UDP {address}: {source}{}", remedy(source))]
pub struct BindError {
    /// What the address is for.
    what: String,
    address: SocketAddr,
    source: io::Error,
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another router is running here: stop it, or set `slow_path = false` to run next to it"
        }
        io::ErrorKind::AddrNotAvailable => {
            "; assign the address to an interface of this host, or correct the topology"
        }
        _ => "",
    }
}

/// Which packets of an address a socket gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// BFD.
    Bfd,
    /// All others.
    Plain,
}

/// An address of ours: two sockets, between which the kernel sorts what arrives. However full one is, the other has
/// room.
///
/// They are not connected: who sent a datagram is for the receiver to check. The kernel would not let us connect before there
/// is a route to the other end, and would tell errors of earlier datagrams where they are of no use.
pub(super) struct Socket {
    pub(super) plain: Half,
    pub(super) bfd: Half,
    _guard: Option<std::net::UdpSocket>,
}

/// One of the sockets. Sending is a plain system call: it need not wait for the runtime to learn that there is room.
pub(super) struct Half {
    receiver: UdpSocket,
    sender: std::net::UdpSocket,
}

impl Socket {
    /// Opens the sockets at `local`; that of BFD is for tasks of the runtime `bfd`. `what` names the address in errors. Must be
    /// called within a tokio runtime.
    ///
    /// # Errors
    /// See [`BindError`].
    pub(super) fn open(
        what: &str,
        local: SocketAddr,
        buffers: Buffers,
        bfd: &Handle,
    ) -> Result<Self, BindError> {
        let open = || {
            // Alone at first, which fails if any other program has the address.
            let plain = bind(local, false)?;
            // With the port that the kernel chose, if it was to.
            let local = plain.local_addr()?.as_socket().unwrap_or(local);
            plain.set_reuse_port(true)?;
            let beside = bind(local, true)?;
            steer(&plain, &BTreeSet::new(), path::EMPTY)?;
            let guard = guard(local);
            for socket in [&plain, &beside] {
                fragment(socket, local)?;
                tell_device(socket, local)?;
            }
            let plain = Half::new(plain)?;
            let _within = bfd.enter();
            let bfd = Half::new(beside)?;
            let socket = Self {
                plain,
                bfd,
                _guard: guard,
            };
            socket.set_buffers(buffers)?;
            Ok(socket)
        };
        open().map_err(|source| BindError {
            what: what.to_owned(),
            address: local,
            source,
        })
    }

    /// Sizes of the buffers.
    ///
    /// # Errors
    /// The kernel refuses them.
    pub(super) fn set_buffers(&self, buffers: Buffers) -> io::Result<()> {
        let send = buffers.send.unwrap_or(BUFFER);
        set_buffers(&self.plain.sender, buffers.receive.unwrap_or(BUFFER), send)?;
        set_buffers(&self.bfd.sender, BFD_BUFFER, send)
    }

    /// Takes BFD from these alone, along a path of this type, for such; what others send as BFD does not fill the buffer for
    /// it.
    ///
    /// # Errors
    /// The kernel refuses the filter.
    pub(super) fn hear(&self, peers: &BTreeSet<SocketAddr>, path_type: u8) -> io::Result<()> {
        steer(&self.plain.sender, peers, path_type)
    }

    pub(super) const fn half(&self, kind: Kind) -> &Half {
        match kind {
            Kind::Bfd => &self.bfd,
            Kind::Plain => &self.plain,
        }
    }
}

impl Half {
    fn new(socket: socket2::Socket) -> io::Result<Self> {
        let sender = std::net::UdpSocket::from(socket);
        let receiver = UdpSocket::from_std(sender.try_clone()?)?;
        Ok(Self { receiver, sender })
    }

    /// Waits for a datagram.
    pub(super) async fn readable(&self) -> io::Result<()> {
        self.receiver.readable().await
    }

    /// A datagram that is there already, who sent it, and by which device it came in.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        let fd = self.receiver.as_raw_fd();
        let receive = || receive(fd, buffer);
        self.receiver.try_io(Interest::READABLE, receive)
    }

    /// Forgets what waits to be received.
    pub(super) fn discard(&self) {
        /// More than the buffer holds: others may go on sending.
        const MOST: u32 = 1 << 16;
        let waits = |_: &u32| self.sender.recv(&mut []).is_ok();
        (0..MOST).take_while(waits).for_each(drop);
    }

    /// Sends a datagram. A full buffer loses it.
    pub(super) fn send(&self, datagram: &[u8], to: SocketAddr) -> io::Result<()> {
        self.sender.send_to(datagram, to).map(drop)
    }
}

/// A socket at an address, beside others of this process if it is `shared`.
fn bind(local: SocketAddr, shared: bool) -> io::Result<socket2::Socket> {
    let socket = socket2::Socket::new(
        Domain::for_address(local),
        Type::DGRAM.nonblocking(),
        Some(Protocol::UDP),
    )?;
    socket.set_reuse_port(shared)?;
    socket.bind(&local.into())?;
    Ok(socket)
}

/// Keeps other programs away: sockets that share an address let in everybody of their user who shares as well, such as
/// another router, unless one of them does not share (any more). This one gets no packets, as it is connected to a port
/// of ours that nothing sends from.
fn guard(local: SocketAddr) -> Option<std::net::UdpSocket> {
    const DISCARD: u16 = 9;
    let guard = bind(local, true).ok()?;
    guard.set_reuse_port(false).ok()?;
    guard
        .connect(&SocketAddr::new(local.ip(), DISCARD).into())
        .ok()?;
    Some(guard.into())
}

/// Has the kernel sort datagrams between the sockets that share the address: classic BPF over the headers that gives the
/// number of the socket, in the order in which they were bound. BFD is what comes from `peers`, which are of the family of
/// the address, along a path of the type that their sessions have.
fn steer(first: &impl AsRawFd, peers: &BTreeSet<SocketAddr>, path_type: u8) -> io::Result<()> {
    const PLAIN: u32 = 0;
    const BFD: u32 = 1;
    /// Where the IP header begins.
    const IP: u32 = libc::SKF_NET_OFF.cast_unsigned();
    let load = |mode, offset| op(libc::BPF_LD | mode, 0, 0, offset);
    // Skips so many operations if it holds, and so many if it does not.
    let equal = |value: u32, yes, no| op(libc::BPF_JMP | libc::BPF_JEQ, yes, no, value);
    let give = |socket| op(libc::BPF_RET, 0, 0, socket);
    let mut program = vec![
        load(libc::BPF_W | libc::BPF_LEN, 0),
        op(
            libc::BPF_JMP | libc::BPF_JGE,
            0,
            4,
            common::HEADER_LEN as u32,
        ),
        load(libc::BPF_B | libc::BPF_ABS, 4),
        equal(NEXT_BFD.into(), 0, 2),
        load(libc::BPF_B | libc::BPF_ABS, 8),
        equal(path_type.into(), 1, 0),
        give(PLAIN),
    ];
    // The index register: where the UDP header begins.
    let index = |mode, value| op(libc::BPF_LDX | mode, 0, 0, value);
    match peers.first() {
        Some(SocketAddr::V4(_)) => program.push(index(libc::BPF_B | libc::BPF_MSH, IP)),
        Some(SocketAddr::V6(_)) => program.extend([
            load(libc::BPF_B | libc::BPF_ABS, IP + 6),
            equal(PROTO_UDP.into(), 1, 0),
            give(PLAIN),
            index(libc::BPF_IMM, ipv6::HEADER_LEN as u32),
        ]),
        None => {}
    }
    for peer in peers {
        let (source, words) = match peer.ip() {
            IpAddr::V4(ip) => (12, vec![u32::from(ip)]),
            IpAddr::V6(ip) => {
                let octets = ip.octets();
                let words = octets.as_chunks::<4>().0.iter();
                (8, words.map(|word| u32::from_be_bytes(*word)).collect())
            }
        };
        // What is left of this peer after each comparison: the others, that of the port, and the verdict.
        let left = (0..words.len() as u8).rev().map(|others| 2 * others + 3);
        for ((word, offset), left) in words.iter().zip((IP + source..).step_by(4)).zip(left) {
            program.extend([
                load(libc::BPF_W | libc::BPF_ABS, offset),
                equal(*word, 0, left),
            ]);
        }
        program.extend([
            load(libc::BPF_H | libc::BPF_IND, IP),
            equal(peer.port().into(), 0, 1),
            give(BFD),
        ]);
    }
    program.push(give(PLAIN));
    let program = libc::sock_fprog {
        len: libc::c_ushort::try_from(program.len()).map_err(io::Error::other)?,
        filter: program.as_mut_ptr(),
    };
    set_option(
        first,
        libc::SOL_SOCKET,
        libc::SO_ATTACH_REUSEPORT_CBPF,
        &program,
    )
}

/// An operation of classic BPF.
const fn op(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    }
}

/// Has datagrams that are longer than the MTU leave in fragments, also if the way is known to have a smaller one.
fn fragment(socket: &socket2::Socket, local: SocketAddr) -> io::Result<()> {
    let (level, option, value) = match local {
        SocketAddr::V4(_) => (
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_DONT,
        ),
        SocketAddr::V6(_) => (
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_DONT,
        ),
    };
    set_option(socket, level, option, &value)
}

/// Sizes of the buffers in bytes: at most the system's limits (`net.core.rmem_max`), where the process may not exceed
/// them.
fn set_buffers(socket: &impl AsRawFd, receive: u32, send: u32) -> io::Result<()> {
    for (bytes, forced, usual) in [
        (receive, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
        (send, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
    ] {
        let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        set_option(socket, libc::SOL_SOCKET, forced, &bytes)
            .or_else(|_| set_option(socket, libc::SOL_SOCKET, usual, &bytes))?;
    }
    Ok(())
}

/// Has the kernel say by which device each datagram came in.
fn tell_device(socket: &socket2::Socket, local: SocketAddr) -> io::Result<()> {
    let (level, option) = match local {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_PKTINFO),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
    };
    set_option(socket, level, option, &1)
}

fn set_option<T>(
    socket: &impl AsRawFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the kernel reads the value, and an array of operations that it points to; both live until the call returns.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// What is known of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Received {
    /// Its length in bytes.
    pub(super) len: usize,
    /// Who sent it.
    pub(super) from: SocketAddr,
    /// Interface index of the device by which it came in; 0 if the kernel does not tell.
    pub(super) ifindex: u32,
}

/// Room for the control message with the device: `cmsg_len` bytes of at most 20 in a message of 16 more, aligned.
#[repr(C, align(8))]
struct ControlBuffer([u8; 64]);

fn receive(fd: RawFd, buffer: &mut [u8]) -> io::Result<Received> {
    // SAFETY: integers and arrays of them, valid all zero.
    let mut from: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let mut control = ControlBuffer([0; 64]);
    let mut data = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: integers and pointers, valid all zero.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_name = ptr::from_mut(&mut from).cast();
    message.msg_namelen = size_of_val(&from) as libc::socklen_t;
    message.msg_iov = &raw mut data;
    message.msg_iovlen = 1;
    message.msg_control = ptr::from_mut(&mut control).cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: the kernel writes into the buffers above, which live until it returns, and no more than they hold.
    let len = unsafe { libc::recvmsg(fd, &raw mut message, 0) };
    let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
    Ok(Received {
        len,
        from: address(&from).ok_or(io::ErrorKind::InvalidData)?,
        ifindex: device(&message),
    })
}

/// The interface index in the control messages.
fn device(message: &libc::msghdr) -> u32 {
    // SAFETY: the kernel filled in the control messages, whose buffer is alive; the macros stay within its length.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: not null, so it is within the buffer; the type of the data is that of the message, read unaligned.
        unsafe {
            let data = libc::CMSG_DATA(header);
            match ((*header).cmsg_level, (*header).cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                    return info.ipi_ifindex.cast_unsigned();
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    return data
                        .cast::<libc::in6_pktinfo>()
                        .read_unaligned()
                        .ipi6_ifindex;
                }
                _ => header = libc::CMSG_NXTHDR(message, header),
            }
        }
    }
    0
}

fn address(from: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match libc::c_int::from(from.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that it is of this type, which is smaller and no stricter aligned.
            let from = unsafe { &*ptr::from_ref(from).cast::<libc::sockaddr_in>() };
            let ip = from.sin_addr.s_addr.to_ne_bytes();
            Some((ip, u16::from_be(from.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let from = unsafe { &*ptr::from_ref(from).cast::<libc::sockaddr_in6>() };
            Some((from.sin6_addr.s6_addr, u16::from_be(from.sin6_port)).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(what: &str, address: &str) -> Result<Socket, BindError> {
        let address = address.parse().unwrap();
        Socket::open(what, address, Buffers::default(), &Handle::current())
    }

    #[tokio::test]
    async fn what_waits_can_be_forgotten() {
        let socket = open("internal address", "127.0.0.1:0").ok().unwrap();
        let to = socket.plain.sender.local_addr().unwrap();
        for datagram in [&[1_u8; 40][..], &[], &[2; 1400]] {
            socket.plain.send(datagram, to).unwrap();
        }
        socket.plain.discard();
        socket.plain.send(&[3], to).unwrap();
        let mut buffer = [0; 64];
        assert_eq!(socket.plain.sender.recv(&mut buffer).unwrap(), 1);
        assert_eq!(buffer[0], 3);
    }

    #[tokio::test]
    async fn a_taken_address_says_what_to_do() {
        let first = open("internal address", "127.0.0.1:0").ok().unwrap();
        let address = first.plain.sender.local_addr().unwrap();
        let text = open("internal address", &address.to_string())
            .err()
            .unwrap()
            .to_string();
        let expected = format!("internal address: cannot listen on UDP {address}:");
        assert!(text.starts_with(&expected), "{text}");
        assert!(text.contains("another router is running here"), "{text}");
        // Nor can one that would share the address.
        let error = bind(address, true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(first);
        bind(address, false).unwrap();

        let text = open("link 1", "192.0.2.1:50000").err().unwrap().to_string();
        assert!(
            text.starts_with("link 1: cannot listen on UDP 192.0.2.1:50000"),
            "{text}"
        );
        assert!(text.contains("correct the topology"), "{text}");
    }

    #[tokio::test]
    async fn bfd_has_a_socket_of_its_own_and_both_tell_sender_and_device() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let socket = open("link 1", any).ok().unwrap();
            let address = socket.plain.sender.local_addr().unwrap();
            let sender = std::net::UdpSocket::bind(any).unwrap();
            let peer = sender.local_addr().unwrap();
            // Of many siblings, of one that is another, and of another program of the same host.
            let others: BTreeSet<SocketAddr> = (0..100)
                .map(|number| match peer.ip() {
                    IpAddr::V4(_) => IpAddr::from([10, 0, 1, number as u8]),
                    IpAddr::V6(_) => IpAddr::from([0, 0, 0, 0, 0, 0, number, 0]),
                })
                .map(|ip| SocketAddr::new(ip, peer.port()))
                .chain([SocketAddr::new(peer.ip(), peer.port() ^ 1)])
                .collect();
            let peers = others.iter().copied().chain([peer]).collect();
            let packet = |next_header, path_type| {
                let mut packet = [0; 40];
                (packet[4], packet[8]) = (next_header, path_type);
                packet
            };
            socket.hear(&peers, path::EMPTY).unwrap();
            for (kind, packet) in [
                (Kind::Bfd, &packet(NEXT_BFD, path::EMPTY)[..]),
                (
                    Kind::Bfd,
                    &packet(NEXT_BFD, path::EMPTY)[..common::HEADER_LEN],
                ),
                (
                    Kind::Plain,
                    &packet(NEXT_BFD, path::EMPTY)[..common::HEADER_LEN - 1],
                ),
                (Kind::Plain, &packet(NEXT_BFD, path::ONE_HOP)),
                (Kind::Plain, &packet(NEXT_BFD, path::SCION)),
                (Kind::Plain, &packet(17, path::ONE_HOP)),
                (Kind::Plain, &[1]),
                (Kind::Plain, &[]),
            ] {
                sender.send_to(packet, address).unwrap();
                let half = socket.half(kind);
                half.readable().await.unwrap();
                let mut buffer = [0; 64];
                let received = half.receive(&mut buffer).unwrap();
                let expected = Received {
                    len: packet.len(),
                    from: sender.local_addr().unwrap(),
                    // The loopback interface.
                    ifindex: 1,
                };
                assert_eq!(received, expected, "{kind:?}");
                assert_eq!(&buffer[..received.len], packet, "{kind:?}");
                let error = half.receive(&mut buffer).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            }
            // What a stranger calls BFD does not get into the way of that of neighbours.
            socket.hear(&others, path::EMPTY).unwrap();
            sender
                .send_to(&packet(NEXT_BFD, path::EMPTY), address)
                .unwrap();
            socket.half(Kind::Plain).readable().await.unwrap();
            let mut buffer = [0; 64];
            assert_eq!(socket.plain.receive(&mut buffer).unwrap().len, 40);
            let error = socket.bfd.receive(&mut buffer).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        }
    }

    #[tokio::test]
    async fn buffers_are_changed_at_an_open_socket() {
        let socket = open("link 1", "127.0.0.1:0").ok().unwrap();
        let size = || socket2::SockRef::from(&socket.plain.sender).recv_buffer_size();
        for receive in [100_000, 50_000] {
            let buffers = Buffers {
                receive: Some(receive),
                send: None,
            };
            socket.set_buffers(buffers).unwrap();
            // The kernel counts its own part as well.
            assert_eq!(size().unwrap(), 2 * receive as usize);
        }
    }
}
