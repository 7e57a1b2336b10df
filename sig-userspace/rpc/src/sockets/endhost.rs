//! The end host port.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use sig_common::wire::scion::ENDHOST_PORT;
use tokio::net::UdpSocket;

use super::{Local, MAX_DATAGRAM};
use sig_core::{
    scion::packet::{self, Content},
    task::Task,
};

/// How long a failing socket is left alone.
const PAUSE: Duration = Duration::from_millis(10);

/// The owner of the end host port of an address: where border routers deliver SCMP requests and what is
/// for ports outside of the dispatched range.
///
/// It answers SCMP echo requests and hands everything else to the [`ScionSocket`](super::ScionSocket) that
/// a border router would have chosen. It works until it is dropped.
#[derive(Debug)]
pub struct EndhostPort {
    address: SocketAddr,
    _task: Task,
}

impl EndhostPort {
    /// Takes the port at an address of this host.
    ///
    /// # Errors
    /// Of the operating system: [`io::ErrorKind::AddrInUse`] if another program owns the port. It is
    /// expected to relay what is for our sockets, which then work without an owner here.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn open(local: &Arc<Local>, ip: IpAddr) -> io::Result<Self> {
        let address = SocketAddr::new(ip.to_canonical(), ENDHOST_PORT);
        Self::over(local, std::net::UdpSocket::bind(address)?)
    }

    /// Takes the port by a socket that is bound there.
    ///
    /// # Errors
    /// Of the operating system.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn over(local: &Arc<Local>, socket: std::net::UdpSocket) -> io::Result<Self> {
        let address = socket.local_addr()?;
        socket.set_nonblocking(true)?;
        let socket = UdpSocket::from_std(socket)?;
        let serve = serve(Arc::clone(local), socket, address.ip());
        Ok(Self {
            address,
            _task: Task::spawn("the end host port", serve),
        })
    }

    /// Its address.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

async fn serve(local: Arc<Local>, socket: UdpSocket, ip: IpAddr) {
    let mut buffer = vec![0; MAX_DATAGRAM];
    loop {
        match socket.recv_from(&mut buffer).await {
            Ok((len, from)) => {
                if let Some(bytes) = buffer.get(..len) {
                    handle(&local, &socket, ip, bytes, from);
                }
            }
            Err(_) => {
                local.counters.underlay_errors.add(1);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

fn handle(local: &Local, socket: &UdpSocket, ip: IpAddr, bytes: &[u8], from: SocketAddr) {
    let counters = &local.counters;
    let read = || {
        counters.read_packets.add(1);
        counters.read_bytes.add(bytes.len() as u64);
    };
    let Ok(packet) = packet::parse(bytes) else {
        read();
        counters.parse_errors.add(1);
        return;
    };
    if !local.is_at(&packet, ip) {
        read();
        counters.strays.add(1);
        return;
    }
    if let Some(reply) = packet.echo_reply() {
        read();
        // An answer for which there is no room is lost, as it may be anywhere.
        match socket.try_send_to(&reply, from) {
            Ok(len) => {
                counters.written_packets.add(1);
                counters.written_bytes.add(len as u64);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => counters.underlay_errors.add(1),
        }
        return;
    }
    match packet.underlay_port() {
        Some(port) => {
            let is_scmp = matches!(packet.content, Content::Scmp(_));
            let packet = (Bytes::copy_from_slice(bytes), from);
            local.deliver(ip, port, is_scmp, packet);
        }
        None => counters.strays.add(1),
    }
}
