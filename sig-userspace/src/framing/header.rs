//! The 16-byte header of a SIG frame (doc/sig of SCION).

/// Length of the frame header, bytes.
pub const FRAME_HEADER_LEN: usize = 16;
/// The index of a frame in which no packet starts.
pub const NO_START: u16 = 0xffff;
/// The 20 bits of a stream id; the 12 bits above are reserved, sent as 0 and ignored.
pub const STREAM_MASK: u32 = 0x000f_ffff;

/// The fields of a frame header; the version is always 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameHeader {
    /// Session the frame belongs to (offset 1, 8 bits).
    pub session: u8,
    /// Payload offset of the first packet that starts here, or [`NO_START`] (offset 2, 16 bits).
    pub index: u16,
    /// Stream id (offset 4, the low 20 of 32 bits).
    pub stream: u32,
    /// Sequence number in the stream, from 0 (offset 8, 64 bits).
    pub sequence: u64,
}

impl FrameHeader {
    /// The header as on the wire, all fields big-endian.
    #[inline]
    #[must_use]
    pub fn to_bytes(self) -> [u8; FRAME_HEADER_LEN] {
        let mut bytes = [0; FRAME_HEADER_LEN];
        bytes[1] = self.session;
        bytes[2..4].copy_from_slice(&self.index.to_be_bytes());
        bytes[4..8].copy_from_slice(&(self.stream & STREAM_MASK).to_be_bytes());
        bytes[8..].copy_from_slice(&self.sequence.to_be_bytes());
        bytes
    }

    /// Splits a frame into header and payload; `None` if it is shorter than a header or its
    /// version is not 0. Reserved bits are ignored.
    #[inline]
    #[must_use]
    pub fn parse(frame: &[u8]) -> Option<(Self, &[u8])> {
        let (header, payload) = frame.split_first_chunk::<FRAME_HEADER_LEN>()?;
        let [version, session, i0, i1, s0, s1, s2, s3, sequence @ ..] = *header;
        (version == 0).then_some((
            Self {
                session,
                index: u16::from_be_bytes([i0, i1]),
                stream: u32::from_be_bytes([s0, s1, s2, s3]) & STREAM_MASK,
                sequence: u64::from_be_bytes(sequence),
            },
            payload,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_the_wire() {
        let header = FrameHeader {
            session: 1,
            index: 2,
            stream: 0x000a_bcde,
            sequence: 0x0102_0304_0506_0708,
        };
        let mut frame = header.to_bytes().to_vec();
        assert_eq!(
            frame,
            [0, 1, 0, 2, 0, 0x0a, 0xbc, 0xde, 1, 2, 3, 4, 5, 6, 7, 8]
        );
        frame[4] = 0xff;
        frame[5] |= 0xf0;
        frame.push(9);
        assert_eq!(FrameHeader::parse(&frame), Some((header, &[9][..])));
    }

    #[test]
    fn short_frames_and_other_versions_are_refused() {
        assert_eq!(FrameHeader::parse(&[0; 15]), None);
        assert!(FrameHeader::parse(&[0; 16]).is_some());
        let mut other = [0; 16];
        other[0] = 1;
        assert_eq!(FrameHeader::parse(&other), None);
    }
}
