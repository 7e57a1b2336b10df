//! UDP sockets of the underlay.

use std::{io, mem, net::SocketAddr, os::fd::AsRawFd, ptr};

use sig_common::wire::scion::{NEXT_BFD, common, path};
use socket2::{Domain, Protocol, Type};
use tokio::{net::UdpSocket, runtime::Handle};

use crate::router::config::Buffers;

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
            "; another router runs here: stop it, or set `slow_path = false` to work beside it"
        }
        io::ErrorKind::AddrNotAvailable => {
            "; give the address to an interface of this host, or correct the topology"
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
            steer(&plain)?;
            let guard = guard(local);
            for (socket, receive) in [
                (&plain, buffers.receive.unwrap_or(BUFFER)),
                (&beside, BFD_BUFFER),
            ] {
                let send = buffers.send.unwrap_or(BUFFER);
                set_buffers(socket, receive, send)?;
                fragment(socket, local)?;
            }
            let plain = Half::new(plain)?;
            let _within = bfd.enter();
            let bfd = Half::new(beside)?;
            Ok(Self {
                plain,
                bfd,
                _guard: guard,
            })
        };
        open().map_err(|source| BindError {
            what: what.to_owned(),
            address: local,
            source,
        })
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

    /// A datagram that is there already, and who sent it.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.receiver.try_recv_from(buffer)
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

/// Has the kernel sort datagrams between the sockets that share the address: classic BPF over the SCION header that gives
/// the number of the socket, in the order in which they were bound.
fn steer(first: &socket2::Socket) -> io::Result<()> {
    const PLAIN: u32 = 0;
    const BFD: u32 = 1;
    let load = |mode, offset| op(libc::BPF_LD | mode, 0, 0, offset);
    // Skips so many operations if it holds, and so many if it does not.
    let equal = |value: u8, yes, no| op(libc::BPF_JMP | libc::BPF_JEQ, yes, no, value.into());
    let give = |socket| op(libc::BPF_RET, 0, 0, socket);
    let mut program = [
        load(libc::BPF_W | libc::BPF_LEN, 0),
        op(
            libc::BPF_JMP | libc::BPF_JGE,
            0,
            5,
            common::HEADER_LEN as u32,
        ),
        load(libc::BPF_B | libc::BPF_ABS, 4),
        equal(NEXT_BFD, 0, 3),
        load(libc::BPF_B | libc::BPF_ABS, 8),
        equal(path::EMPTY, 2, 0),
        equal(path::ONE_HOP, 1, 0),
        give(PLAIN),
        give(BFD),
    ];
    let program = libc::sock_fprog {
        len: program.len() as libc::c_ushort,
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
fn set_buffers(socket: &socket2::Socket, receive: u32, send: u32) -> io::Result<()> {
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

fn set_option<T>(
    socket: &socket2::Socket,
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
            mem::size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
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
    async fn a_taken_address_says_what_to_do() {
        let first = open("internal address", "127.0.0.1:0").ok().unwrap();
        let address = first.plain.sender.local_addr().unwrap();
        let text = open("internal address", &address.to_string())
            .err()
            .unwrap()
            .to_string();
        let expected = format!("internal address: cannot listen on UDP {address}:");
        assert!(text.starts_with(&expected), "{text}");
        assert!(text.contains("another router runs here"), "{text}");
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
    async fn bfd_has_a_socket_of_its_own() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let socket = open("link 1", any).ok().unwrap();
            let address = socket.plain.sender.local_addr().unwrap();
            let sender = std::net::UdpSocket::bind(any).unwrap();
            let packet = |next_header, path_type| {
                let mut packet = [0; 40];
                (packet[4], packet[8]) = (next_header, path_type);
                packet
            };
            for (kind, packet) in [
                (Kind::Bfd, &packet(NEXT_BFD, path::ONE_HOP)[..]),
                (Kind::Bfd, &packet(NEXT_BFD, path::EMPTY)),
                (
                    Kind::Bfd,
                    &packet(NEXT_BFD, path::EMPTY)[..common::HEADER_LEN],
                ),
                (
                    Kind::Plain,
                    &packet(NEXT_BFD, path::EMPTY)[..common::HEADER_LEN - 1],
                ),
                (Kind::Plain, &packet(NEXT_BFD, path::SCION)),
                (Kind::Plain, &packet(17, path::ONE_HOP)),
                (Kind::Plain, &[1]),
                (Kind::Plain, &[]),
            ] {
                sender.send_to(packet, address).unwrap();
                let half = socket.half(kind);
                half.readable().await.unwrap();
                let mut buffer = [0; 64];
                let (len, from) = half.receive(&mut buffer).unwrap();
                assert_eq!(&buffer[..len], packet, "{kind:?}");
                assert_eq!(from, sender.local_addr().unwrap());
            }
        }
    }
}
