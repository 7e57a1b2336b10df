//! Any bytes as one SIG frame: what is delivered are packets of the frame, and what was decoded
//! survives another encoding and decoding.

use sig_core::framing::{
    Encoder, FRAME_HEADER_LEN, FrameRef, FrameView, Limits, MIN_CAPACITY, Occupancy, Piece,
    Reassembler, StreamKey, packet_len,
};

/// Takes `data` for a frame.
///
/// # Panics
/// If the framing breaks a promise.
pub(crate) fn run(data: &[u8]) {
    let Ok(view) = FrameView::new_checked(data) else {
        assert!(data.len() < FRAME_HEADER_LEN || data[0] != 0);
        return;
    };
    let mut header = [0; FRAME_HEADER_LEN];
    header.copy_from_slice(&data[..FRAME_HEADER_LEN]);
    // The reserved bits are not kept.
    header[4] = 0;
    header[5] &= 0x0f;
    assert_eq!(view.header().encode(), header);

    let packets = decode(&[data]);
    let capacity = view.payload().len().clamp(MIN_CAPACITY, 1_400);
    let mut encoder = Encoder::new(0, 0, capacity).expect("a valid capacity");
    let mut frames = Vec::new();
    for packet in &packets {
        encoder
            .push(packet, |frame| frames.push(frame.to_vec()))
            .expect("a delivered packet is valid and was in one frame");
    }
    encoder.flush(|frame| frames.push(frame.to_vec()));
    let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    assert_eq!(decode(&frames), packets);
}

fn decode(frames: &[&[u8]]) -> Vec<Vec<u8>> {
    let limits = Limits {
        max_packet: 65_575,
        max_frame_payload: 2_048,
        remotes: 1,
        streams_total: 1,
        packets_total: 1,
        held_total: 2,
        ..Limits::default()
    };
    let mut reassembler = Reassembler::new(limits, 1).expect("valid limits");
    let mut packets = Vec::new();
    for frame in frames {
        let view = FrameView::new_checked(frame).expect("a frame");
        let (header, payload) = (view.header(), view.payload());
        let key = StreamKey {
            remote: 0,
            src_port: 0,
            session: header.session,
            stream: header.stream,
        };
        let frame = FrameRef {
            sequence: header.sequence,
            index: header.index,
            congestion: false,
            payload,
        };
        let mut end = 0;
        let outcome = reassembler.insert(0, key, frame, |of, piece, congestion| {
            assert_eq!((of, congestion), (key, false));
            packets.push(match piece {
                Piece::InFrame(range) => {
                    assert!(range.start >= end && range.start >= usize::from(header.index));
                    end = range.end;
                    payload[range].to_vec()
                }
                Piece::Assembled(packet) => packet.to_vec(),
            });
        });
        assert_eq!(outcome.reason.is_some(), outcome.discarded > 0);
        assert_eq!(reassembler.audit(), Ok(()));
    }
    reassembler.poll(u64::MAX, |_, piece, _| match piece {
        Piece::InFrame(_) => panic!("a timer has no frame of the caller"),
        Piece::Assembled(packet) => packets.push(packet.to_vec()),
    });
    assert_eq!(reassembler.audit(), Ok(()));
    assert_eq!(reassembler.occupancy(), Occupancy::default());
    for packet in &packets {
        assert_eq!(packet_len(packet), Ok(packet.len()));
    }
    packets
}
