//! Any bytes as a SCION packet of the slow path: what is understood can be built again, and nothing that
//! is asked of it panics.

use sig_core::scion::packet::{self, Addresses, Content, Packet, ParseError};
use sig_core::scion::reverse;
use sig_core::scion::scmp::{MAX_ERROR_PACKET, Quote, Scmp};

/// Takes `data` for a packet, for the packet of a quote and for an SCMP message.
///
/// # Panics
/// If a promise is broken.
pub(crate) fn run(data: &[u8]) {
    let quote = Quote::new(data);
    assert!(quote.bytes().len() <= MAX_ERROR_PACKET);
    let _ = (quote.sender_port(), reverse::with_alert_at_last_hop(data));
    if let Some(message) = Scmp::decode(data) {
        let again = Scmp::decode(&message.encode());
        assert_eq!(again, Some(message));
    }
    match packet::parse(data) {
        Ok(packet) => check(&packet),
        // Few inputs have a right checksum.
        Err(ParseError::Checksum) => {
            if let Some(packet) = packet::parse(&without_checksum(data)).ok().as_ref() {
                check(packet);
            }
        }
        Err(_) => {}
    }
}

fn without_checksum(data: &[u8]) -> Vec<u8> {
    use sig_common::wire::{PROTO_UDP, scion};

    let mut data = data.to_vec();
    let view = scion::View::new_checked(&data).expect("it had a checksum");
    let (protocol, upper) = view.upper_layer().expect("it had a checksum");
    let payload_end = view.common().header_len() + view.payload().len();
    let at = payload_end - upper.len() + if protocol == PROTO_UDP { 6 } else { 2 };
    data[at..at + 2].fill(0);
    data
}

fn check(packet: &Packet<'_>) {
    let _ = (packet.underlay_port(), reverse::arrived_by(&packet.path));
    if let Ok((path_type, back)) = reverse::reply_path(&packet.path) {
        let back = sig_common::wire::scion::path::Path::new_checked(path_type, &back);
        reverse::reply_path(&back.expect("a path back")).expect("the way back has a way back");
    }
    if let Some(reply) = packet.echo_reply() {
        let reply = packet::parse(&reply).expect("a packet");
        assert_eq!(reply.source, packet.destination);
        assert_eq!(reply.destination, packet.source);
        assert_eq!(reply.echo_reply(), None);
    }
    let (path_type, raw) = (packet.path.path_type(), packet.path.bytes());
    let (source, destination) = (packet.source, packet.destination);
    let again = match &packet.content {
        Content::Udp {
            source_port,
            destination_port,
            payload,
        } => {
            let addresses = Addresses {
                source: (source.0, source.1, *source_port),
                destination: (destination.0, destination.1, *destination_port),
            };
            packet::udp(&addresses, path_type, raw, payload)
        }
        Content::Scmp(message) => packet::scmp(source, destination, path_type, raw, message),
    }
    .expect("what was understood can be built");
    let again = packet::parse(&again).expect("a packet");
    match (&packet.content, &again.content) {
        // Longer quotes are cut.
        (
            Content::Scmp(Scmp::Error { problem, quote }),
            Content::Scmp(Scmp::Error {
                problem: again,
                quote: cut,
            }),
        ) => {
            assert_eq!(problem, again);
            assert!(quote.bytes().starts_with(cut.bytes()));
        }
        _ => assert_eq!(*packet, again),
    }
}
