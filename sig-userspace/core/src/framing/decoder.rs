//! Frames to packets, byte-wise.

use super::{FrameHeader, FrameRef, Limits, LimitsError, Outcome, Piece, Reassembler, StreamKey};

/// Why a frame was not decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// It is shorter than a header.
    #[error("{0} bytes are no SIG frame: its header has 16")]
    TooShort(usize),
    /// It has another version than 0.
    #[error("not a SIG frame of version 0")]
    Version,
    /// The number of the remote is not below [`Limits::remotes`].
    #[error("remote {0} is not below the limit `remotes`: number remotes from 0, or raise it")]
    Remote(u16),
}

/// Decodes frames into packets: a [`Reassembler`] that takes and gives bytes. The counterpart of
/// [`Encoder`](super::Encoder).
#[derive(Debug)]
pub struct Decoder(Reassembler);

impl Decoder {
    /// `seed`: random, so that peers cannot choose streams that are slow to look up.
    ///
    /// # Errors
    /// If a limit is outside its range.
    pub fn new(limits: Limits, seed: u64) -> Result<Self, LimitsError> {
        Reassembler::new(limits, seed).map(Self)
    }

    /// Takes a frame in, header and payload, and delivers every packet this completes. `now`: monotonic nanoseconds.
    /// `remote`: number of the gateway that sent it, below [`Limits::remotes`]; `src_port`: its UDP/SCION source port.
    ///
    /// # Errors
    /// If it is no frame, or the remote has no such number; nothing is counted then.
    pub fn push(
        &mut self,
        now: u64,
        remote: u16,
        src_port: u16,
        frame: &[u8],
        mut deliver: impl FnMut(&[u8]),
    ) -> Result<Outcome, FrameError> {
        if usize::from(remote) >= self.0.limits().remotes {
            return Err(FrameError::Remote(remote));
        }
        let (header, payload) = frame
            .split_first_chunk()
            .ok_or(FrameError::TooShort(frame.len()))?;
        let header = FrameHeader::decode(header).map_err(|_| FrameError::Version)?;
        let key = StreamKey {
            remote,
            src_port,
            session: header.session,
            stream: header.stream,
        };
        let frame = FrameRef {
            sequence: header.sequence,
            index: header.index,
            congestion: false,
            payload,
        };
        let outcome = self.0.insert(now, key, frame, |_, piece, _| match piece {
            Piece::InFrame(range) => deliver(&payload[range]),
            Piece::Assembled(packet) => deliver(packet),
        });
        Ok(outcome)
    }

    /// Delivers what has waited long enough for frames before it, as [`Reassembler::poll`] does.
    pub fn poll(&mut self, now: u64, mut deliver: impl FnMut(&[u8])) {
        self.0.poll(now, |_, piece, _| {
            if let Piece::Assembled(packet) = piece {
                deliver(packet);
            }
        });
    }

    /// When [`Decoder::poll`] has something to do, nanoseconds.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        self.0.next_deadline()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framing::Encoder;

    #[test]
    fn what_was_encoded_comes_out_and_nothing_panics() {
        let mut decoder = Decoder::new(
            Limits {
                remotes: 2,
                ..Limits::default()
            },
            0,
        )
        .unwrap();
        let mut packet = vec![7; 1500];
        (packet[0], packet[2], packet[3]) = (0x45, 5, 220);
        let mut encoder = Encoder::new(1, 2, 600).unwrap();
        let mut frames = Vec::new();
        encoder
            .push(&packet, |frame| frames.push(frame.to_vec()))
            .unwrap();
        encoder.flush(|frame| frames.push(frame.to_vec()));
        // The second and third change places.
        frames.swap(1, 2);
        let mut received = Vec::new();
        for frame in &frames {
            let outcome = decoder.push(0, 1, 30056, frame, |packet| received.push(packet.to_vec()));
            assert_eq!(outcome.unwrap().discarded, 0);
        }
        assert_eq!(received, [packet]);
        let mut push = |remote, frame: &[u8]| decoder.push(0, remote, 1, frame, |_| {});
        assert_eq!(push(2, &frames[0]), Err(FrameError::Remote(2)));
        assert_eq!(push(0, &[0; 15]), Err(FrameError::TooShort(15)));
        assert_eq!(push(0, &[1; 16]), Err(FrameError::Version));
    }

    #[test]
    fn a_frame_behind_a_gap_is_delivered_when_it_is_due() {
        let mut decoder = Decoder::new(Limits::default(), 0).unwrap();
        let mut packet = [0; 20];
        (packet[0], packet[3]) = (0x45, 20);
        let mut encoder = Encoder::new(1, 2, 600).unwrap();
        let mut frames = Vec::new();
        for _ in 0..3 {
            encoder.push(&packet, |_| {}).unwrap();
            encoder.flush(|frame| frames.push(frame.to_vec()));
        }
        let mut received = 0;
        for number in [0, 2] {
            let frame = &frames[number];
            let _ = decoder.push(0, 0, 1, frame, |_| received += 1).unwrap();
        }
        assert_eq!(received, 1);
        let due = decoder.next_deadline().unwrap();
        decoder.poll(due, |_| received += 1);
        assert_eq!(received, 2);
    }
}
