//! UDP sockets of the underlay.

use std::{io, mem, net::SocketAddr, os::fd::AsRawFd, ptr};

use tokio::net::UdpSocket;

use crate::router::config::Buffers;

/// Bytes that a buffer has unless configured: what comes in while the process waits for the processor.
const BUFFER: u32 = 4 << 20;

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

/// A socket. Sending is a plain system call: it need not wait for the runtime to learn that there is room.
///
/// It is not connected: who sent a datagram is for the receiver to check. The kernel would not let us connect before there
/// is a route to the other end, and would tell errors of earlier datagrams where they are of no use.
pub(super) struct Socket {
    receiver: UdpSocket,
    sender: std::net::UdpSocket,
}

impl Socket {
    /// Opens a socket at `local`. `what` names it in errors. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// See [`BindError`].
    pub(super) fn open(what: &str, local: SocketAddr, buffers: Buffers) -> Result<Self, BindError> {
        let open = || {
            let sender = std::net::UdpSocket::bind(local)?;
            for (bytes, forced, usual) in [
                (buffers.receive, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
                (buffers.send, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
            ] {
                let bytes = bytes.unwrap_or(BUFFER);
                // At most the system's limit (`net.core.rmem_max`), where the process may not exceed it.
                set_buffer(&sender, forced, bytes)
                    .or_else(|_| set_buffer(&sender, usual, bytes))?;
            }
            sender.set_nonblocking(true)?;
            let receiver = UdpSocket::from_std(sender.try_clone()?)?;
            Ok(Self { receiver, sender })
        };
        open().map_err(|source| BindError {
            what: what.to_owned(),
            address: local,
            source,
        })
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

fn set_buffer(socket: &std::net::UdpSocket, option: libc::c_int, bytes: u32) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    // SAFETY: the kernel reads one int from a live reference.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            ptr::from_ref(&bytes).cast(),
            mem::size_of_val(&bytes) as libc::socklen_t,
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

    #[tokio::test]
    async fn a_taken_address_says_what_to_do() {
        let open =
            |what, address: &str| Socket::open(what, address.parse().unwrap(), Buffers::default());
        let first = open("internal address", "127.0.0.1:0").ok().unwrap();
        let address = first.sender.local_addr().unwrap().to_string();
        let text = open("internal address", &address)
            .err()
            .unwrap()
            .to_string();
        let expected = format!("internal address: cannot listen on UDP {address}:");
        assert!(text.starts_with(&expected), "{text}");
        assert!(text.contains("another router runs here"), "{text}");

        let text = open("link 1", "192.0.2.1:50000").err().unwrap().to_string();
        assert!(
            text.starts_with("link 1: cannot listen on UDP 192.0.2.1:50000"),
            "{text}"
        );
        assert!(text.contains("correct the topology"), "{text}");
    }
}
