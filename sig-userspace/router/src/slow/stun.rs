//! STUN binding requests (RFC 8489), by which a host behind an address translator learns the address that the router
//! sees.

use std::net::{IpAddr, SocketAddr};

use sig_common::wire::stun::{COOKIE, HEADER_LEN};

const BINDING_REQUEST: [u8; 2] = [0x00, 0x01];
const BINDING_SUCCESS: [u8; 2] = [0x01, 0x01];
const XOR_MAPPED_ADDRESS: [u8; 2] = [0x00, 0x20];
const FINGERPRINT: [u8; 2] = [0x80, 0x28];
const FINGERPRINT_LEN: usize = 8;

/// The answer to a datagram of `from`; `None` if it is no binding request.
pub(super) fn answer(datagram: &[u8], from: SocketAddr) -> Option<Vec<u8>> {
    let (header, attributes) = datagram.split_first_chunk::<HEADER_LEN>()?;
    let [t0, t1, l0, l1, transaction @ ..] = *header;
    let is_request = [t0, t1] == BINDING_REQUEST
        && transaction.starts_with(&COOKIE)
        && usize::from(u16::from_be_bytes([l0, l1])) == attributes.len()
        && fingerprint_is_right(datagram);
    if !is_request {
        return None;
    }
    let (family, address) = match from.ip() {
        IpAddr::V4(ip) => (1, ip.octets().to_vec()),
        IpAddr::V6(ip) => (2, ip.octets().to_vec()),
    };
    let mut answer = Vec::with_capacity(HEADER_LEN + 8 + address.len());
    answer.extend(BINDING_SUCCESS);
    answer.extend((8 + address.len() as u16).to_be_bytes());
    answer.extend(transaction);
    answer.extend(XOR_MAPPED_ADDRESS);
    answer.extend((4 + address.len() as u16).to_be_bytes());
    answer.extend([0, family]);
    let port = from.port().to_be_bytes();
    answer.extend(port.iter().zip(transaction).map(|(a, b)| a ^ b));
    // The key starts with the cookie and goes on with the transaction id, as these bytes do.
    answer.extend(address.iter().zip(transaction).map(|(a, b)| a ^ b));
    Some(answer)
}

/// Whether the fingerprint at the end, if there is one, is that of the message.
fn fingerprint_is_right(message: &[u8]) -> bool {
    match message.split_last_chunk::<FINGERPRINT_LEN>() {
        Some((before, [k0, k1, 0, 4, crc @ ..])) if [*k0, *k1] == FINGERPRINT => {
            u32::from_be_bytes(*crc) == crc32(before) ^ 0x5354_554e
        }
        _ => true,
    }
}

/// CRC-32 as in ITU V.42. Requests are short and rare.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRANSACTION: [u8; 12] = *b"abcdefghijkl";

    fn request(attributes: &[u8]) -> Vec<u8> {
        let length = (attributes.len() as u16).to_be_bytes();
        [
            &BINDING_REQUEST[..],
            &length,
            &COOKIE,
            &TRANSACTION,
            attributes,
        ]
        .concat()
    }

    fn fingerprint(before: &[u8]) -> [u8; 8] {
        let crc = crc32(before) ^ 0x5354_554e;
        let mut attribute = [0x80, 0x28, 0, 4, 0, 0, 0, 0];
        attribute[4..].copy_from_slice(&crc.to_be_bytes());
        attribute
    }

    #[test]
    fn the_checksum_is_crc_32() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn requests_are_answered_with_the_address_they_came_from() {
        let from = "192.0.2.1:32853".parse().unwrap();
        let answer = answer(&request(&[]), from).unwrap();
        let mut expected = vec![1, 1, 0, 12, 0x21, 0x12, 0xa4, 0x42];
        expected.extend(TRANSACTION);
        // As in the example of RFC 5769, whose address this is.
        expected.extend([0, 0x20, 0, 8, 0, 1, 0xa1, 0x47, 0xe1, 0x12, 0xa6, 0x43]);
        assert_eq!(answer, expected);

        let from = "[2001:db8::1]:1".parse().unwrap();
        let answer = super::answer(&request(&[]), from).unwrap();
        assert_eq!(answer[2..4], [0, 24]);
        assert_eq!(
            answer[20..32],
            [0, 0x20, 0, 20, 0, 2, 0x21, 0x13, 0x01, 0x13, 0xa9, 0xfa]
        );
        assert_eq!(answer[32..], *b"abcdefghijkm");
    }

    #[test]
    fn a_fingerprint_has_to_be_right() {
        let from = "192.0.2.1:1".parse().unwrap();
        let mut whole = request(&[0; 8]);
        let crc = fingerprint(&whole[..HEADER_LEN]);
        whole[HEADER_LEN..].copy_from_slice(&crc);
        assert!(answer(&whole, from).is_some());
        *whole.last_mut().unwrap() ^= 1;
        assert!(answer(&whole, from).is_none());
    }

    #[test]
    fn everything_else_is_left_alone() {
        let from = "192.0.2.1:1".parse().unwrap();
        let whole = request(&[]);
        for len in 0..whole.len() {
            assert!(answer(&whole[..len], from).is_none());
        }
        for at in 0..8 {
            let mut other = whole.clone();
            other[at] ^= 0x40;
            assert!(answer(&other, from).is_none(), "byte {at}");
        }
        assert!(answer(&[&whole[..], &[0]].concat(), from).is_none());
    }
}
