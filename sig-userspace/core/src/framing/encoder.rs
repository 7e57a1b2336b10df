//! Packets to frames, byte-wise.

use super::packet::{Malformed, announced};
use super::{
    CapacityError, Closed, FRAME_HEADER_LEN, FrameHeader, Packer, Placement, STREAM_MASK, TooLong,
};

/// Why a packet was not encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// It does not begin with an IPv4 or IPv6 header.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// Its header announces another length than it has.
    #[error("the header announces {announced} bytes, the packet has {actual}")]
    Length {
        /// Bytes by the header.
        announced: usize,
        /// Bytes given.
        actual: usize,
    },
    /// It would need too many frames.
    #[error(transparent)]
    TooLong(#[from] TooLong),
}

/// Encodes the packets of one stream into frames.
///
/// ```
/// use sig_core::framing::Encoder;
///
/// let mut frames = Vec::new();
/// let mut encoder = Encoder::new(1, 2, 1364)?;
/// let mut packet = [0; 100];
/// packet[0] = 0x45;
/// packet[3] = 100;
/// for _ in 0..20 {
///     encoder.push(&packet, |frame| frames.push(frame.to_vec()))?;
/// }
/// encoder.flush(|frame| frames.push(frame.to_vec()));
/// assert_eq!(frames.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Encoder {
    session: u8,
    stream: u32,
    sequence: u64,
    packer: Packer,
    /// Header and payload of the open frame.
    frame: Box<[u8]>,
}

impl Encoder {
    /// `stream`: 20 bits; `capacity`: payload bytes of a frame, without the 16-byte header.
    ///
    /// # Errors
    /// If the capacity is impossible, see [`Packer::new`].
    pub fn new(session: u8, stream: u32, capacity: usize) -> Result<Self, CapacityError> {
        Ok(Self {
            session,
            stream: stream & STREAM_MASK,
            sequence: 0,
            packer: Packer::new(capacity)?,
            frame: vec![0; FRAME_HEADER_LEN + capacity].into_boxed_slice(),
        })
    }

    /// The sequence number of the next frame to be emitted.
    #[must_use]
    pub const fn next_sequence(&self) -> u64 {
        self.sequence
    }

    /// Adds a packet; `emit` gets every frame (header and payload) this completes.
    ///
    /// # Errors
    /// If the packet is not an IPv4 or IPv6 packet of exactly the length it announces, or too
    /// long; nothing has been added then.
    pub fn push(&mut self, packet: &[u8], mut emit: impl FnMut(&[u8])) -> Result<(), PacketError> {
        let (_, announced) = announced(packet)?;
        if announced != packet.len() {
            return Err(PacketError::Length {
                announced,
                actual: packet.len(),
            });
        }
        match self.packer.place(packet.len())? {
            Placement::Append { offset } => self.write(offset, packet),
            Placement::Fresh { closed } => {
                self.emit(closed, &mut emit);
                self.write(0, packet);
            }
            Placement::Split(parts) => {
                for part in parts {
                    self.emit(part.closed, &mut emit);
                    self.write(part.offset, &packet[part.range]);
                }
            }
        }
        Ok(())
    }

    /// Emits the frame that is being filled, if there is one.
    pub fn flush(&mut self, mut emit: impl FnMut(&[u8])) {
        let closed = self.packer.close();
        self.emit(closed, &mut emit);
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let start = FRAME_HEADER_LEN + offset;
        self.frame[start..start + bytes.len()].copy_from_slice(bytes);
    }

    fn emit(&mut self, closed: Option<Closed>, emit: &mut impl FnMut(&[u8])) {
        let Some(Closed { index, len }) = closed else {
            return;
        };
        let header = FrameHeader {
            session: self.session,
            index,
            stream: self.stream,
            sequence: self.sequence,
        };
        self.sequence = self.sequence.wrapping_add(1);
        self.frame[..FRAME_HEADER_LEN].copy_from_slice(&header.encode());
        emit(&self.frame[..FRAME_HEADER_LEN + len]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::NO_START;
    use super::*;

    fn ipv4(len: u16, payload: impl IntoIterator<Item = u8>) -> Vec<u8> {
        let mut packet = vec![0x40, 0];
        packet.extend(len.to_be_bytes());
        packet.resize(20, 0);
        packet.extend(payload);
        packet
    }

    fn ipv6(payload_len: u16, payload: impl IntoIterator<Item = u8>) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0];
        packet.extend(payload_len.to_be_bytes());
        packet.resize(40, 0);
        packet.extend(payload);
        packet
    }

    fn frame(index: u16, sequence: u8, payload: &[&[u8]]) -> Vec<u8> {
        let [i0, i1] = index.to_be_bytes();
        let mut frame = vec![0, 1, i0, i1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, sequence];
        frame.extend(payload.concat());
        frame
    }

    /// `mtu` counts the frame header, as the reference does.
    fn encode(mtu: usize, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        let mut encoder = Encoder::new(1, 2, mtu - FRAME_HEADER_LEN).expect("a valid capacity");
        for packet in packets {
            encoder
                .push(packet, |frame| frames.push(frame.to_vec()))
                .expect("a valid packet");
        }
        encoder.flush(|frame| frames.push(frame.to_vec()));
        encoder.flush(|_| panic!("nothing is left after a flush"));
        frames
    }

    // The golden cases of the reference's encoder tests.

    #[test]
    fn no_packets_make_no_frames() {
        assert!(encode(1500, &[]).is_empty());
    }

    #[test]
    fn one_ipv4_packet_makes_one_frame() {
        let packet = ipv4(23, [1, 2, 3]);
        assert_eq!(
            encode(1500, std::slice::from_ref(&packet)),
            [frame(0, 0, &[&packet])]
        );
        assert_eq!(packet[..4], [0x40, 0, 0, 0x17]);
    }

    #[test]
    fn one_ipv6_packet_makes_one_frame() {
        let packet = ipv6(3, [1, 2, 3]);
        assert_eq!(
            encode(1500, std::slice::from_ref(&packet)),
            [frame(0, 0, &[&packet])]
        );
    }

    #[test]
    fn two_packets_share_a_frame() {
        let packets = [ipv4(23, [4, 5, 6]), ipv4(22, [7, 8])];
        assert_eq!(
            encode(1500, &packets),
            [frame(0, 0, &[&packets[0], &packets[1]])]
        );
    }

    #[test]
    fn a_packet_larger_than_a_frame_is_split() {
        let packet = ipv4(42, 1..=22);
        assert_eq!(
            encode(56, std::slice::from_ref(&packet)),
            [
                frame(0, 0, &[&packet[..40]]),
                frame(NO_START, 1, &[&[0x15, 0x16]]),
            ]
        );
    }

    #[test]
    fn a_packet_starts_at_a_non_zero_index_behind_a_tail() {
        let packets = [ipv4(44, 1..=24), ipv4(22, [0x19, 0x1a])];
        assert_eq!(
            encode(58, &packets),
            [
                frame(0, 0, &[&packets[0][..42]]),
                frame(2, 1, &[&[0x17, 0x18], &packets[1]]),
            ]
        );
    }

    #[test]
    fn what_is_no_packet_is_refused_and_leaves_no_trace() {
        let mut encoder = Encoder::new(0, 0, 100).unwrap();
        let mut refused = |packet: &[u8]| encoder.push(packet, |_| panic!("emitted")).unwrap_err();
        assert_eq!(refused(&[]), Malformed::HeaderCut.into());
        assert_eq!(refused(&[0x45; 19]), Malformed::HeaderCut.into());
        assert_eq!(refused(&[0x55; 60]), Malformed::NotIp.into());
        assert_eq!(
            refused(&ipv4(24, [1, 2, 3])),
            PacketError::Length {
                announced: 24,
                actual: 23
            }
        );
        assert_eq!(
            refused(&ipv6(2, [1, 2, 3])),
            PacketError::Length {
                announced: 42,
                actual: 43
            }
        );
        assert_eq!(
            refused(&ipv4(10_001, vec![0; 9_981])),
            TooLong(10_001).into()
        );
        encoder.flush(|_| panic!("nothing was added"));
        assert_eq!(encoder.next_sequence(), 0);
    }
}
