//! Session probes: one datagram each way, a protobuf message without framing, that show whether the gateway at the
//! other end is there.

use prost::Message as _;

use super::messages::{ControlRequest, ControlResponse, ProbeRequest, ProbeResponse};

/// Most bytes of data in a probe that is answered. The reference's probes carry none.
pub const MAX_DATA: usize = 1024;

/// The probe of a session: a datagram for the probe address of a remote gateway. `data` comes back with the answer;
/// at most [`MAX_DATA`] bytes are answered by our own gateways.
#[must_use]
pub fn request(session: u8, data: &[u8]) -> Vec<u8> {
    let probe = ProbeRequest {
        session_id: u32::from(session),
        data: data.to_vec(),
    };
    ControlRequest { probe: Some(probe) }.encode_to_vec()
}

/// The answer to a datagram at our probe address; `None` if it is not a probe. Keeps nothing, and is never longer
/// than the request.
#[must_use]
pub fn answer(request: &[u8]) -> Option<Vec<u8>> {
    let probe = ControlRequest::decode(request).ok()?.probe?;
    (probe.data.len() <= MAX_DATA).then(|| {
        let probe = ProbeResponse {
            session_id: probe.session_id,
            data: probe.data,
        };
        ControlResponse { probe: Some(probe) }.encode_to_vec()
    })
}

/// Session and data of the answer to a [`request`]; `None` if the datagram is none.
#[must_use]
pub fn parse_answer(datagram: &[u8]) -> Option<(u32, Vec<u8>)> {
    let probe = ControlResponse::decode(datagram).ok()?.probe?;
    Some((probe.session_id, probe.data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_comes_back_byte_for_byte() {
        for session in [0, 1, 2, 127, 128, 255] {
            for data in [&b""[..], b"data0", &[0; MAX_DATA]] {
                let request = request(session, data);
                let answer = answer(&request).expect("an answer");
                assert_eq!(answer, request);
                assert_eq!(
                    parse_answer(&answer),
                    Some((u32::from(session), data.to_vec()))
                );
            }
        }
    }

    #[test]
    fn session_zero_is_two_bytes() {
        assert_eq!(request(0, b""), [0x0a, 0x00]);
        assert_eq!(answer(&[0x0a, 0x00]), Some(vec![0x0a, 0x00]));
    }

    #[test]
    fn garbage_is_not_answered() {
        for garbage in [&b""[..], b"lol", b"\x0a\x02\x08", b"\x12\x00", &[0xff; 64]] {
            assert_eq!(answer(garbage), None, "{garbage:02x?}");
            assert_eq!(parse_answer(garbage), None, "{garbage:02x?}");
        }
        assert_eq!(answer(&request(1, &[0; MAX_DATA + 1])), None);
    }

    #[test]
    fn an_answer_is_never_longer_than_its_request() {
        // Session 5 in more bytes than needed, an unknown field, the same field twice.
        for request in [
            &b"\x0a\x04\x08\x85\x80\x00"[..],
            b"\x0a\x05\x08\x05\x1a\x01a",
            b"\x0a\x02\x08\x04\x0a\x02\x08\x05",
        ] {
            let answer = answer(request).expect("an answer");
            assert!(answer.len() <= request.len());
            assert_eq!(parse_answer(&answer), Some((5, Vec::new())));
        }
    }
}
