//! A tiny XDP program and the far end of the wire for the AF_XDP tests.

mod bpf;

pub(crate) use crate::support::wire::PacketSocket;
pub(crate) use bpf::Redirect;

/// EtherType for local experiments (IEEE 802): nothing else on the wire carries it.
pub(crate) const ETHERTYPE: u16 = 0x88b5;

/// An Ethernet frame to `slot` of a [`Redirect`], with a serial number and bytes that follow from it.
pub(crate) fn frame(slot: u8, serial: u32, len: usize) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 1]);
    frame.extend(ETHERTYPE.to_be_bytes());
    frame.push(slot);
    frame.extend(serial.to_be_bytes());
    frame.extend((frame.len()..len).map(|place| (serial as usize * 31 + place) as u8));
    frame
}

/// The serial number of a [`frame`].
pub(crate) fn serial(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[15..19].try_into().expect("four bytes"))
}
