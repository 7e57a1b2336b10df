//! How long an IP packet says it is: all that the framing reads of a packet.

/// Smallest IPv4 header, bytes.
const IPV4_HEADER: usize = 20;
/// IPv6 header, bytes.
const IPV6_HEADER: usize = 40;

/// Why no packet can be read where one must start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The version nibble is neither 4 nor 6, or an IPv4 header contradicts itself.
    #[error("neither an IPv4 nor an IPv6 packet")]
    NotIp,
    /// Fewer bytes than the fixed header of the version: 20 (IPv4) or 40 (IPv6).
    #[error("too short for an IP header")]
    HeaderCut,
}

/// The length in bytes, header included, that the packet starting at `bytes[0]` announces;
/// `bytes` may hold less or more than that.
///
/// IPv4: the Total Length, which must be at least the header length of at least 20 (RFC 791).
/// IPv6: 40 + Payload Length (RFC 8200); a jumbogram (RFC 2675) counts as a packet of 40 bytes.
///
/// # Errors
/// [`Malformed`] if the fixed header is incomplete or contradicts itself.
#[inline]
pub fn packet_len(bytes: &[u8]) -> Result<usize, Malformed> {
    match announced(bytes)? {
        (4, len) => {
            let header = usize::from(bytes[0] & 0x0f) * 4;
            if header < IPV4_HEADER || len < header {
                return Err(Malformed::NotIp);
            }
            Ok(len)
        }
        (_, len) => Ok(len),
    }
}

/// Version (4 or 6) and announced length, which for IPv4 may contradict the header length.
#[inline]
pub(super) fn announced(bytes: &[u8]) -> Result<(u8, usize), Malformed> {
    match bytes.first().map(|first| first >> 4) {
        Some(4) => {
            if bytes.len() < IPV4_HEADER {
                return Err(Malformed::HeaderCut);
            }
            Ok((4, usize::from(u16::from_be_bytes([bytes[2], bytes[3]]))))
        }
        Some(6) => {
            if bytes.len() < IPV6_HEADER {
                return Err(Malformed::HeaderCut);
            }
            let payload = usize::from(u16::from_be_bytes([bytes[4], bytes[5]]));
            Ok((6, IPV6_HEADER + payload))
        }
        Some(_) => Err(Malformed::NotIp),
        None => Err(Malformed::HeaderCut),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_packet_is_as_long_as_its_total_length() {
        let mut packet = [0; 24];
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&1500u16.to_be_bytes());
        assert_eq!(packet_len(&packet), Ok(1500));
        packet[3] = 19;
        packet[2] = 0;
        assert_eq!(packet_len(&packet), Err(Malformed::NotIp));
        packet[0] = 0x46;
        packet[3] = 20;
        assert_eq!(packet_len(&packet), Err(Malformed::NotIp));
        packet[3] = 24;
        assert_eq!(packet_len(&packet), Ok(24));
        packet[0] = 0x44;
        assert_eq!(packet_len(&packet), Err(Malformed::NotIp));
    }

    #[test]
    fn an_ipv6_packet_is_40_bytes_longer_than_its_payload_length() {
        let mut packet = [0; 40];
        packet[0] = 0x6f;
        assert_eq!(packet_len(&packet), Ok(40));
        packet[4] = 0xff;
        packet[5] = 0xff;
        assert_eq!(packet_len(&packet), Ok(65_575));
    }

    #[test]
    fn a_cut_header_tells_no_length() {
        assert_eq!(packet_len(&[]), Err(Malformed::HeaderCut));
        assert_eq!(packet_len(&[0x45; 19]), Err(Malformed::HeaderCut));
        assert_eq!(packet_len(&[0x60; 39]), Err(Malformed::HeaderCut));
        assert_eq!(packet_len(&[0x50; 64]), Err(Malformed::NotIp));
        assert_eq!(packet_len(&[0; 64]), Err(Malformed::NotIp));
    }
}
