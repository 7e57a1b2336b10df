//! Golden vectors made with the serialisers of the reference implementation.

mod support;

use sig_common::addr::{HostAddr, IsdAs};
use sig_common::wire::scion::path::{self, Path, ScionPath};
use sig_common::wire::scion::udp as scion_udp;
use sig_common::wire::underlay::{Local, parse};
use sig_common::wire::{PROTO_UDP, checksum, scion, sig_frame};
use support::{Underlay, V1, V2, V3, V4, V5, hex};

const A: IsdAs = IsdAs::new(1, 0xff00_0000_0110);
const B: IsdAs = IsdAs::new(1, 0xff00_0000_0111);

const PATH: &str = "00002000 0100123466000000 003f00000001010203040506 003f000200000708090a0b0c";
const ARRIVED: &str = "01002000 0100123466000000 003f00000001010203040506 003f000200000708090a0b0c";
const REVERSED: &str =
    "00002000 0000123466000000 003f000200000708090a0b0c 003f00000001010203040506";

#[test]
fn every_vector_is_parsed_and_emitted_byte_for_byte() {
    for vector in [V1, V2, V3, V4, V5] {
        let packet = hex(vector);
        let view = scion::View::new_checked(&packet).unwrap();
        assert_eq!(
            (
                view.addresses().source_isd_as,
                view.addresses().destination_isd_as
            ),
            (A, B)
        );
        let mut out = vec![0xaa; packet.len()];
        let written = view.header().emit(&mut out).unwrap();
        assert_eq!(written, packet.len() - view.payload().len());
        let (protocol, upper) = view.upper_layer().unwrap();
        if protocol == PROTO_UDP {
            let udp = scion_udp::View::new_checked(upper).unwrap();
            assert!(udp.checksum_is_valid(view.address_bytes()));
            let mut at = written + udp.header().emit(&mut out[written..]).unwrap();
            out[at..].copy_from_slice(udp.payload());
            if let Ok(frame) = sig_frame::View::new_checked(udp.payload())
                && udp.header().destination_port == 30056
            {
                at += frame.header().emit(&mut out[at..]).unwrap();
                out[at..].copy_from_slice(frame.payload());
            }
        } else {
            assert_eq!(protocol, scion::NEXT_SCMP);
            let sum = checksum::scion_pseudo_header(
                view.address_bytes(),
                upper.len() as u32,
                scion::NEXT_SCMP,
            );
            assert!(sum.add_bytes(upper).is_valid());
            out[written..].copy_from_slice(upper);
        }
        assert_eq!(out, packet);
    }
}

#[test]
fn checksums_are_filled_as_the_reference_does() {
    for (vector, expected) in [(V1, 0xb4e3), (V2, 0xcee1), (V3, 0xe41d), (V5, 0x78b4)] {
        let mut packet = hex(vector);
        let view = scion::View::new_checked(&packet).unwrap();
        let addresses = view.address_bytes().to_vec();
        let at = packet.len() - view.payload().len();
        packet[at + 6..at + 8].fill(0x55);
        scion_udp::fill_checksum(&addresses, &mut packet[at..]).unwrap();
        assert_eq!(packet[at + 6..at + 8], u16::to_be_bytes(expected));
    }
}

#[test]
fn data_frames_are_found_in_the_underlay() {
    for (vector, us, peer) in [(V1, "10.0.0.2", "10.0.0.1"), (V2, "fd00::2", "fd00::1")] {
        let local = Local::new(B, us.parse().unwrap(), 30056, false);
        let packet = Underlay::to(us, 30056).wrap(&hex(vector));
        let parsed = parse(&packet[..], &local)
            .unwrap()
            .expect("a SIG frame for us");
        assert_eq!(parsed.source_isd_as, A);
        assert_eq!(
            parsed.source,
            HostAddr::from(peer.parse::<std::net::IpAddr>().unwrap())
        );
        assert_eq!(
            (parsed.source_port, parsed.destination_port),
            (32000, 30056)
        );
        assert_eq!(
            parsed.header,
            sig_frame::Header {
                session: 1,
                index: 0,
                stream: 2,
                sequence: 0
            }
        );
        assert_eq!(parsed.path_type, path::SCION);
        assert_eq!(parsed.frame_len, 39);
        assert_eq!(parsed.payload(), packet.len() - 23..packet.len());
        assert_eq!(packet[parsed.payload()][..4], [0x40, 0, 0, 0x17]);
        assert!(parsed.checksum_is_valid(&packet));
        let mut damaged = packet.clone();
        damaged[parsed.payload().start + 9] ^= 1;
        assert!(!parsed.checksum_is_valid(&damaged));
    }
}

#[test]
fn probes_traceroutes_and_service_resolution_are_left_to_the_operating_system() {
    let local = Local::new(B, "10.0.0.2".parse().unwrap(), 30056, true);
    for vector in [V3, V4, V5] {
        for port in [30041, 30056, 30856] {
            let packet = Underlay::to("10.0.0.2", port).wrap(&hex(vector));
            assert_eq!(parse(&packet[..], &local), Ok(None));
        }
    }
}

#[test]
fn a_path_is_reversed_as_the_reference_does() {
    let arrived = hex(ARRIVED);
    let mut out = [0; 64];
    let path = ScionPath::new_checked(&arrived).unwrap();
    let len = path.emit_reversed(&mut out).unwrap();
    assert_eq!(out[..len], hex(REVERSED));

    let path = hex(PATH);
    let path = ScionPath::new_checked(&path).unwrap();
    let info = path.infos().next().unwrap();
    assert!(info.construction_direction && !info.peering);
    assert_eq!((info.segment_id, info.timestamp), (0x1234, 0x6600_0000));
    let hops: Vec<_> = path
        .hops()
        .map(|h| (h.expiry, h.ingress, h.egress, h.mac))
        .collect();
    assert_eq!(
        hops,
        [
            (63, 0, 1, [1, 2, 3, 4, 5, 6]),
            (63, 2, 0, [7, 8, 9, 10, 11, 12])
        ]
    );
    let alerting = hex(V4);
    let view = scion::View::new_checked(&alerting).unwrap();
    let Path::Scion(path) = view.path() else {
        panic!("another path type");
    };
    let alerts: Vec<_> = path
        .hops()
        .map(|h| (h.ingress_alert, h.egress_alert))
        .collect();
    assert_eq!(alerts, [(false, false), (true, false)]);
}
