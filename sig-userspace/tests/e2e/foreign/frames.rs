//! Packets and frames of the stand-in.

use std::net::{SocketAddr, UdpSocket};
use std::time::{SystemTime, UNIX_EPOCH};

use sig_common::addr::{HostAddr, IsdAs};
use sig_common::wire::scion::path::SCION;
use sig_core::framing::{Encoder, FRAME_HEADER_LEN, FrameView, NO_START, packet_len};
use sig_core::scion::packet::{Addresses, Content, Packet, parse, udp};
use sig_core::scion::reverse::reply_path;

use super::Session;

/// Largest SCION packet.
const PATH_MTU: usize = 1472;

/// Where packets for another gateway go.
#[derive(Clone, Copy)]
pub(super) struct Peer {
    pub(super) local: (IsdAs, HostAddr),
    pub(super) remote: (IsdAs, HostAddr),
    pub(super) data_port: u16,
    pub(super) next_hop: SocketAddr,
}

/// A new stream.
pub(super) fn encoder(session: &Session, peer: Peer) -> Encoder {
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    let stream = time.expect("a time after 1970").subsec_nanos() & 0xffff;
    let headers = packet_to(peer, 0, 0, &session.path, &[]).len() + FRAME_HEADER_LEN;
    Encoder::new(session.number, stream, PATH_MTU - headers).expect("room for packets")
}

fn packet_to(peer: Peer, from: u16, to: u16, path: &[u8], payload: &[u8]) -> Vec<u8> {
    let end = |(isd_as, host), port| (isd_as, host, port);
    let addresses = Addresses {
        source: end(peer.local, from),
        destination: end(peer.remote, to),
    };
    udp(&addresses, SCION, path, payload).expect("a packet that fits")
}

pub(super) fn send_to(socket: &UdpSocket, peer: Peer, port: u16, path: &[u8], payload: &[u8]) {
    let from = socket.local_addr().expect("its address").port();
    // What the kernel does not take is lost.
    let _ = socket.send_to(&packet_to(peer, from, port, path, payload), peer.next_hop);
}

/// A datagram with its source port and payload.
pub(super) fn datagram(bytes: &[u8]) -> Option<(Packet<'_>, u16, &[u8])> {
    let packet = parse(bytes).ok()?;
    match packet.content {
        Content::Udp {
            source_port,
            payload,
            ..
        } => Some((packet, source_port, payload)),
        Content::Scmp(_) => None,
    }
}

/// The answer to a session probe: the same, back the way it came.
pub(super) fn answer(probe: &[u8]) -> Option<Vec<u8>> {
    let packet = parse(probe).ok()?;
    let Content::Udp {
        source_port,
        destination_port,
        payload,
    } = packet.content
    else {
        return None;
    };
    let (path_type, path) = reply_path(&packet.path).ok()?;
    let addresses = Addresses {
        source: (packet.destination.0, packet.destination.1, destination_port),
        destination: (packet.source.0, packet.source.1, source_port),
    };
    udp(&addresses, path_type, &path, payload).ok()
}

/// Of a stream: the beginning of a packet whose next part is in frame `next`.
#[derive(Default)]
pub(super) struct Pending {
    next: u64,
    begun: Vec<u8>,
}

impl Pending {
    pub(super) fn take(&mut self, frame: &FrameView<'_>, mut deliver: impl FnMut(&[u8])) {
        let (header, payload) = (frame.header(), frame.payload());
        let start = match header.index {
            NO_START => payload.len(),
            index => usize::from(index).min(payload.len()),
        };
        if !self.begun.is_empty() {
            if header.sequence < self.next {
                return;
            }
            // What is missing of a packet behind a gap is lost.
            let mut begun = std::mem::take(&mut self.begun);
            if header.sequence == self.next {
                begun.extend(&payload[..start]);
                match packet_len(&begun) {
                    Ok(len) if len == begun.len() => deliver(&begun),
                    Ok(len) if len > begun.len() && header.index == NO_START => self.begun = begun,
                    _ => {}
                }
            }
        }
        self.next = header.sequence + 1;
        let mut rest = &payload[start..];
        while let Ok(len) = packet_len(rest) {
            let Some((packet, behind)) = rest.split_at_checked(len) else {
                self.begun = rest.to_vec();
                return;
            };
            deliver(packet);
            rest = behind;
        }
    }
}
