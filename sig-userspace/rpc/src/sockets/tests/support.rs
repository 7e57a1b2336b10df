//! Two ASes on the loopback device.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
    time::Duration,
};

use sig_common::{
    addr::{HostAddr, IsdAs},
    wire::scion::path::{EMPTY, SCION},
};
use tokio::{net::UdpSocket, time::timeout};

use crate::sockets::{Local, Received, ScionSocket, Via};
use sig_core::{
    counter::SharedCounter,
    scion::packet::{self, Addresses, Endpoint, Host},
};

pub(super) const US: IsdAs = IsdAs::new(1, 0xff00_0000_0111);
pub(super) const PEER: IsdAs = IsdAs::new(1, 0xff00_0000_0110);
pub(super) const PEER_HOST: HostAddr = HostAddr::V4([10, 0, 0, 1]);
/// The interface by which packets with [`ARRIVED`] come in.
pub(super) const INTERFACE: u64 = 2;
/// A path as it arrives.
pub(super) const ARRIVED: [u8; 36] = *b"\x01\0\x20\0\x01\0\x12\x34\x66\0\0\0\
    \0\x3f\0\0\0\x01\x01\x02\x03\x04\x05\x06\0\x3f\0\x02\0\0\x07\x08\x09\x0a\x0b\x0c";
/// The way back along [`ARRIVED`].
pub(super) const REVERSED: [u8; 36] = *b"\0\0\x20\0\0\0\x12\x34\x66\0\0\0\
    \0\x3f\0\x02\0\0\x07\x08\x09\x0a\x0b\x0c\0\x3f\0\0\0\x01\x01\x02\x03\x04\x05\x06";

/// A loopback address that no other test uses, also none of another process.
pub(super) fn own_ip() -> IpAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let pid = std::process::id();
    let [_, _, high, low] = pid.to_be_bytes();
    Ipv4Addr::new(127, high, low, NEXT.fetch_add(1, Relaxed)).into()
}

/// An address of either family.
pub(super) fn both_families() -> [IpAddr; 2] {
    [own_ip(), Ipv6Addr::LOCALHOST.into()]
}

/// Our AS without dispatched ports.
pub(super) fn local() -> Arc<Local> {
    Local::new(US, 0..=0)
}

/// Something else than a gateway: a router, a relay.
pub(super) async fn plain(ip: IpAddr, port: u16) -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind((ip, port)).await.expect("a socket");
    let address = socket.local_addr().expect("an address");
    (socket, address)
}

pub(super) async fn receive(socket: &ScionSocket) -> Received {
    timeout(Duration::from_secs(60), socket.recv())
        .await
        .expect("a packet in time")
}

pub(super) async fn receive_plain(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = vec![0; 65536];
    let (len, from) = timeout(Duration::from_secs(60), socket.recv_from(&mut buffer))
        .await
        .expect("a packet in time")
        .expect("a packet");
    buffer.truncate(len);
    (buffer, from)
}

pub(super) fn host(ip: IpAddr) -> Host {
    (US, ip.into())
}

/// A datagram of the peer's port 7000 that arrives along [`ARRIVED`].
pub(super) fn datagram(to: Endpoint, payload: &[u8]) -> Vec<u8> {
    let addresses = Addresses {
        source: (PEER, PEER_HOST, 7000),
        destination: to,
    };
    packet::udp(&addresses, SCION, &ARRIVED, payload).expect("a packet")
}

/// To a neighbour on the same link, without a path.
pub(super) fn straight(next_hop: SocketAddr) -> Via {
    Via {
        path_type: EMPTY,
        raw: Arc::default(),
        next_hop,
    }
}

pub(super) fn get(counter: &SharedCounter) -> u64 {
    counter.get()
}
