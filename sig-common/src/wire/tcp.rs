//! The maximum segment size that TCP connections agree on (RFC 9293, section 3.7.1).

use super::{be16, checksum};

/// Bytes of the header without options.
pub const HEADER_LEN: usize = 20;

/// Offset of the data offset in the header.
const DATA_OFFSET: usize = 12;
/// Offset of the flags in the header.
const FLAGS: usize = 13;
/// Offset of the checksum in the header.
const CHECKSUM: usize = 16;
/// Flag of the segments that open a connection; only these carry the option.
const SYN: u8 = 0x02;

/// Kinds of options.
const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const MSS: u8 = 2;
/// Of these, the receiver checks that no other option was changed (RFC 2385, RFC 5925).
const MD5: u8 = 19;
const AUTHENTICATION: u8 = 29;

/// Lowers the maximum segment size that the sender of a SYN announces to `limit`, in bytes of TCP
/// payload, keeping the checksum right. Returns whether it did.
///
/// `segment` begins with the TCP header and carries a finished checksum. Segments without SYN, without
/// the option, with a smaller value, with authenticated or with malformed options are left as they are.
#[inline]
pub fn clamp_mss(segment: &mut [u8], limit: u16) -> bool {
    let Some(at) = mss(segment) else {
        return false;
    };
    let Some([high, low]) = segment.get_mut(at..at + 2) else {
        return false;
    };
    let old = be16(*high, *low);
    if old <= limit {
        return false;
    }
    [*high, *low] = limit.to_be_bytes();
    // At an odd offset the value lies across two words of the sum, which counts its bytes the other way round.
    let (old, new) = match at % 2 {
        0 => (old, limit),
        _ => (old.swap_bytes(), limit.swap_bytes()),
    };
    if let Some([high, low]) = segment.get_mut(CHECKSUM..CHECKSUM + 2) {
        [*high, *low] = checksum::update(be16(*high, *low), old, new).to_be_bytes();
    }
    true
}

/// Offset of the value of the option in a SYN that nothing keeps from being changed.
#[inline]
fn mss(segment: &[u8]) -> Option<usize> {
    if segment.get(FLAGS)? & SYN == 0 {
        return None;
    }
    let header_len = usize::from(segment[DATA_OFFSET] >> 4) * 4;
    let options = segment.get(HEADER_LEN..header_len)?;
    let (mut at, mut found) = (0, None);
    while let Some(kind) = options.get(at) {
        match *kind {
            END => break,
            NO_OPERATION => at += 1,
            MD5 | AUTHENTICATION => return None,
            kind => {
                let len = usize::from(*options.get(at + 1)?);
                // A length that does not even cover kind and length would never end.
                if len < 2 || at + len > options.len() {
                    return None;
                }
                if kind == MSS && len == 4 {
                    found = Some(HEADER_LEN + at + 2);
                }
                at += len;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    extern crate std;

    use etherparse::{TcpHeader, TcpOptionElement as Element};
    use proptest::prelude::*;
    use std::vec::Vec;

    use super::*;
    use crate::wire::checksum::Sum;

    fn syn(options: &[Element]) -> Vec<u8> {
        let mut header = TcpHeader::new(40000, 443, 7, 65535);
        header.syn = true;
        header.set_options(options).expect("options");
        sealed(header.to_bytes().to_vec())
    }

    /// With a checksum, of a pseudo header that sums to zero.
    fn sealed(mut segment: Vec<u8>) -> Vec<u8> {
        segment[CHECKSUM..CHECKSUM + 2].fill(0);
        let checksum = Sum::of(&segment).checksum();
        segment[CHECKSUM..CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
        segment
    }

    fn announced(segment: &[u8]) -> Option<u16> {
        let header = TcpHeader::from_slice(segment).expect("a header").0;
        let mut options = header.options_iterator();
        options.find_map(|option| match option {
            Ok(Element::MaximumSegmentSize(value)) => Some(value),
            _ => None,
        })
    }

    #[test]
    fn a_larger_size_is_lowered_and_the_checksum_stays_right() {
        for options in [
            &[Element::MaximumSegmentSize(1460)][..],
            &[
                Element::SelectiveAcknowledgementPermitted,
                Element::MaximumSegmentSize(1460),
            ],
            // At an odd offset.
            &[Element::Noop, Element::MaximumSegmentSize(1460)],
            &[Element::WindowScale(7), Element::MaximumSegmentSize(1460)],
        ] {
            let mut segment = syn(options);
            assert!(clamp_mss(&mut segment, 1316));
            assert_eq!(announced(&segment), Some(1316), "{options:?}");
            assert!(Sum::of(&segment).is_valid(), "{options:?}");
            assert!(!clamp_mss(&mut segment, 1316), "once is enough");
        }
    }

    #[test]
    fn all_else_stays_as_it_is() {
        let mut established = syn(&[Element::MaximumSegmentSize(1460)]);
        established[FLAGS] = 0x10;
        let mut endless = syn(&[Element::MaximumSegmentSize(1460)]);
        endless[HEADER_LEN..].copy_from_slice(&[254, 0, 2, 4]);
        let signed = |kind: u8| {
            let mut segment = syn(&[Element::MaximumSegmentSize(1460), Element::WindowScale(7)]);
            segment[HEADER_LEN + 4..HEADER_LEN + 6].copy_from_slice(&[kind, 4]);
            segment
        };
        let mut cut = syn(&[Element::MaximumSegmentSize(1460)]);
        cut.truncate(HEADER_LEN + 3);
        for segment in [
            syn(&[]),
            syn(&[Element::MaximumSegmentSize(1200)]),
            syn(&[Element::WindowScale(7)]),
            established,
            endless,
            signed(MD5),
            signed(AUTHENTICATION),
            cut,
        ] {
            let mut clamped = segment.clone();
            assert!(!clamp_mss(&mut clamped, 1316));
            assert_eq!(clamped, segment);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic_and_no_right_checksum_becomes_wrong(
            bytes in proptest::collection::vec(any::<u8>(), 0..80),
            limit in any::<u16>(),
        ) {
            let mut segment = bytes;
            if segment.len() >= HEADER_LEN {
                segment = sealed(segment);
            }
            let was_valid = Sum::of(&segment).is_valid();
            clamp_mss(&mut segment, limit);
            prop_assert_eq!(was_valid, Sum::of(&segment).is_valid());
        }
    }
}
