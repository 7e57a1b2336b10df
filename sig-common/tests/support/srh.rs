//! What holds for any bytes taken for a segment routing header; shared with the fuzz target `srh`.

use sig_common::wire::srv6::{self, Header, Problem, Reject, Srh, Tlv, View};
use sig_common::wire::{Error, ipv6};

/// `bytes` as an SRH, as an IPv6 packet, and as an SRH in IPv6 packets.
pub(crate) fn check(bytes: &[u8]) {
    header(bytes);
    packet(bytes);
    // Most inputs would not get past the headers in front.
    if bytes.len() <= 4096 {
        for before in [&[][..], &[60], &[0, 60], &[60, 60], &[60, 0], &[0, 60, 60]] {
            packet(&wrap(before, bytes));
        }
    }
}

/// An IPv6 packet with these extension headers, of eight bytes each, then `srh` and what follows it.
pub(crate) fn wrap(before: &[u8], srh: &[u8]) -> Vec<u8> {
    let header = ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len: (before.len() * 8 + srh.len()) as u16,
        next_header: before.first().copied().unwrap_or(ipv6::ROUTING),
        hop_limit: 64,
        source: [0xaa; 16],
        destination: [0xbb; 16],
    };
    let mut packet = vec![0; ipv6::HEADER_LEN];
    header.emit(&mut packet).unwrap();
    for place in 1..=before.len() {
        let next = before.get(place).copied().unwrap_or(ipv6::ROUTING);
        packet.extend([next, 0, 1, 4, 0, 0, 0, 0]);
    }
    packet.extend(srh);
    packet
}

/// Everything of an SRH can be read, and what was read makes the same SRH again.
fn header(bytes: &[u8]) {
    let Ok(view) = View::new_checked(bytes) else {
        return;
    };
    assert_eq!(view.len() + view.payload().len(), bytes.len());
    assert_eq!(view.list().len(), usize::from(view.last_entry()) + 1);
    let destination = [0xdd; 16];
    let travel: Vec<_> = view.travel(destination).collect();
    assert_eq!(
        travel[view.active_index()],
        view.active().unwrap_or(destination)
    );
    assert_eq!(
        travel.len(),
        view.list().len() + usize::from(view.is_first_left_out())
    );
    assert!(view.tlvs().count() <= view.len());
    let Ok(tlvs) = view.tlvs().collect::<Result<Vec<_>, _>>() else {
        return;
    };
    for tlv in &tlvs {
        if let Tlv::Hmac(hmac) = tlv {
            let text = view.hmac_text([0xaa; 16], hmac).parts().concat();
            assert_eq!(text.len(), 24 + 16 * view.list().len());
            assert_eq!(text[16..18], bytes[4..6]);
            assert_eq!(text[24..], bytes[8..8 + 16 * view.list().len()]);
        }
    }
    let again = Header {
        next_header: view.next_header(),
        segments: &travel,
        reduced: view.is_first_left_out(),
        flags: view.flags(),
        tag: view.tag(),
        tlvs: &tlvs,
    };
    let mut out = vec![0xee; view.len()];
    assert_eq!(again.emit(&mut out), Ok(view.len()));
    assert_eq!(again.emit(&mut vec![0; view.len() - 1]), Err(Error::NoRoom));
    out[3] = view.segments_left();
    let mut expected = bytes[..view.len()].to_vec();
    clear_padding(&mut expected[8 + 16 * view.list().len()..]);
    assert_eq!(out, expected);
}

/// Padding is sent as zeros.
fn clear_padding(tlvs: &mut [u8]) {
    let mut at = 0;
    while at < tlvs.len() {
        if tlvs[at] == 0 {
            at += 1;
            continue;
        }
        let end = at + 2 + usize::from(tlvs[at + 1]);
        if tlvs[at] == 4 {
            tlvs[at + 2..end].fill(0);
        }
        at = end;
    }
}

/// The parser and the views say the same of `packet`.
fn packet(packet: &[u8]) {
    let parsed = srv6::parse(packet);
    assert_eq!(parsed, by_views(packet), "{packet:02x?}");
    match parsed {
        Ok(srh) => {
            let view =
                View::new_checked(&packet[srh.offset.into()..srh.packet_len.into()]).unwrap();
            let list = view.list();
            for index in 0..=255 {
                assert_eq!(
                    srh.segment(packet, index),
                    list.get(usize::from(index)).copied()
                );
            }
            let next = srh.segments_left.checked_sub(1);
            assert_eq!(
                srh.next_segment(packet),
                next.map(|index| list[usize::from(index)])
            );
            assert_eq!(srh.is_first_left_out(), view.is_first_left_out());
            assert_eq!(packet[usize::from(srh.announced_at)], ipv6::ROUTING);
            let tlvs = usize::from(srh.after() - srh.tlvs());
            assert_eq!(tlvs, view.len() - 8 - 16 * list.len());
        }
        Err(reject) => {
            let pointer = reject.pointer().map(usize::from);
            assert_eq!(
                pointer.is_some(),
                matches!(reject, Reject::Malformed { .. })
            );
            assert!(pointer.is_none_or(|pointer| pointer < packet.len()));
        }
    }
}

/// The parser once more, by the views.
fn by_views(packet: &[u8]) -> Result<Srh, Reject> {
    const TRUNCATED: Reject = Reject::Packet(Error::Truncated);
    let ip = ipv6::View::new_checked(packet).map_err(Reject::Packet)?;
    let packet_len = u16::try_from(ipv6::HEADER_LEN + ip.payload().len())
        .map_err(|_| Reject::Packet(Error::Length))?;
    let (mut next, mut rest) = (ip.next_header(), ip.payload());
    let mut announced_at = 6;
    let offset = |rest: &[u8]| packet_len - rest.len() as u16;
    for followed in [&[0, 60][..], &[60]] {
        if !followed.contains(&next) {
            break;
        }
        let [following, words, ..] = *rest else {
            return Err(TRUNCATED);
        };
        announced_at = offset(rest);
        next = following;
        rest = rest.get((usize::from(words) + 1) * 8..).unwrap_or_default();
    }
    if next != ipv6::ROUTING {
        return Err(Reject::Absent);
    }
    let offset = offset(rest);
    match View::new_checked(rest) {
        Ok(view) => Ok(Srh {
            offset,
            announced_at,
            len: view.len() as u16,
            packet_len,
            next_header: view.next_header(),
            segments_left: view.segments_left(),
            last_entry: view.last_entry(),
            flags: view.flags(),
            tag: view.tag(),
        }),
        Err(Problem::Truncated) => Err(TRUNCATED),
        Err(Problem::RoutingType) => Err(Reject::Absent),
        Err(problem) => Err(Reject::Malformed { problem, offset }),
    }
}
