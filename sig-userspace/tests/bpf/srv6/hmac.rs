//! The HMAC of packets to SIDs: RFC 8754, section 2.1.2.

use sha2::{Digest as _, Sha256};
use sig_common::srv6::{
    hmac::HmacKey,
    maps::{Port, Reason},
};

use super::bed::{Bed, Outcome, SECOND, one_after_the_other};
use super::node::{END, FAR, MAIN, to};
use super::packets::*;

const SECRET: &[u8] = b"between us";
const LONG: &[u8] = &[0x5a; 80];

one_after_the_other! {
    packets_with_an_hmac: node;
    what_is_right_goes_on
    any_change_of_what_it_covers_is_wrong
    the_destination_is_the_active_segment_unless_it_is_left_out
    what_has_none_goes_on_unless_it_must
    what_is_no_hmac_of_ours
    among_other_tlvs
    linux_has_another_form
    lists_have_a_longest
}

fn node(bed: &mut Bed) {
    super::node::node(bed);
    bed.port(Port::TRUSTED | Port::VERIFIED | Port::AUTHENTIC, 0);
    bed.set(|sr| {
        sr.hmac_keys.insert(7, HmacKey::new(SECRET, 0));
        sr.hmac_keys.insert(8, HmacKey::new(LONG, 0));
        sr.hmac_keys
            .insert(0x0100_0009, HmacKey::new(SECRET, HmacKey::LINUX));
    });
}

/// RFC 2104.
fn hmac(secret: &[u8], text: &[u8]) -> [u8; 32] {
    let mut key = match secret.len() > 64 {
        true => Sha256::digest(secret).to_vec(),
        false => secret.to_vec(),
    };
    key.resize(64, 0);
    let padded = |pad: u8| key.iter().map(|byte| byte ^ pad).collect::<Vec<u8>>();
    let inner = Sha256::digest([&padded(0x36)[..], text].concat());
    Sha256::digest([&padded(0x5c)[..], &inner[..]].concat()).into()
}

/// The text of section 2.1.2.1; `of_linux`: without the 16 bits.
fn tlv(secret: &[u8], id: u32, bits: u16, flags: u8, list: &[&str], of_linux: bool) -> Vec<u8> {
    let mut text = address("2001:db8:5::5").to_vec();
    text.extend([list.len() as u8 - 1, flags]);
    if !of_linux {
        text.extend(bits.to_be_bytes());
    }
    text.extend(id.to_be_bytes());
    text.extend(list.iter().flat_map(|segment| address(segment)));
    let head = [&[5, 38][..], &bits.to_be_bytes(), &id.to_be_bytes()].concat();
    [head, hmac(secret, &text).to_vec()].concat()
}

/// A packet with these TLVs, of which there are whole words of eight bytes.
fn with(tlvs: &[u8], flags: u8, left: u8, list: &[&str], destination: &str) -> Vec<u8> {
    let mut header = srh(IPV4, left, list);
    header[1] += (tlvs.len() / 8) as u8;
    header[5] = flags;
    let payload = [&header[..], tlvs, &small_v4()].concat();
    ipv6(64, ROUTING, destination, &payload)
}

const LIST: [&str; 2] = [FAR, END];

fn good() -> Vec<u8> {
    with(&tlv(SECRET, 7, 0, 0, &LIST, false), 0, 1, &LIST, END)
}

/// The packet on its way to [`FAR`].
fn sent_on(mut packet: Vec<u8>) -> Outcome {
    packet[7] -= 1;
    packet[43] -= 1;
    packet[24..40].copy_from_slice(&address(FAR));
    to(SECOND, &packet)
}

/// Offset of the TLV behind a list of two.
const AT: u32 = 40 + 8 + 32;

fn what_is_right_goes_on(bed: &mut Bed) {
    for id in [7, 8] {
        let secret = if id == 7 { SECRET } else { LONG };
        for count in 2..=16 {
            let mut list = vec![FAR; count];
            list[count - 1] = END;
            let left = count as u8 - 1;
            let packet = with(&tlv(secret, id, 0, 0, &list, false), 0, left, &list, END);
            bed.check(
                &format!("{count} segments"),
                &frame(&packet),
                &sent_on(packet.clone()),
            );
        }
    }
    // At the end of the list, where it is removed.
    let list = [MAIN, END];
    let packet = with(&tlv(SECRET, 7, 0, 0, &list, false), 0, 0, &list, MAIN);
    let mut inside = small_v4();
    inside[8] -= 1;
    let sum = checksum(&[&inside[..10], &[0, 0], &inside[12..20]].concat());
    inside[10..12].copy_from_slice(&sum.to_be_bytes());
    bed.check("the end", &frame(&packet), &to(SECOND, &inside));
}

fn any_change_of_what_it_covers_is_wrong(bed: &mut Bed) {
    let packet = good();
    // Source, Last Entry, flags, both segments, the 16 bits, key id and the HMAC itself.
    for at in [8, 23, 45, 48, 63, 64, 83, 87, 88, 119] {
        let mut changed = packet.clone();
        changed[at] ^= 1;
        if let 64 = at {
            changed[24] ^= 1;
        }
        let found = bed.run(&frame(&changed));
        match at {
            // Not to a SID any more.
            64 => assert_eq!(found.reasons, []),
            _ => assert_eq!(
                found,
                Outcome::told(Reason::Hmac, AT, &changed),
                "byte {at}"
            ),
        }
    }
    // Neither the segments left, nor the tag and the hop limit, which change on the way.
    let mut changed = packet;
    changed[7] = 9;
    changed[46] = 0x77;
    bed.check("the rest", &frame(&changed), &sent_on(changed.clone()));
}

fn the_destination_is_the_active_segment_unless_it_is_left_out(bed: &mut Bed) {
    let list = [FAR, MAIN];
    let unreduced = with(&tlv(SECRET, 7, 0, 0, &list, false), 0, 1, &list, END);
    let expected = Outcome::told(Reason::Hmac, AT, &unreduced);
    bed.check("another segment", &frame(&unreduced), &expected);
    let reduced = [FAR];
    for (bits, is_right) in [(0x8000, true), (0, false)] {
        let packet = with(
            &tlv(SECRET, 7, bits, 0, &reduced, false),
            0,
            1,
            &reduced,
            END,
        );
        let expected = match is_right {
            true => sent_on(packet.clone()),
            false => Outcome::told(Reason::Hmac, AT - 16, &packet),
        };
        bed.check("left out", &frame(&packet), &expected);
    }
}

fn what_has_none_goes_on_unless_it_must(bed: &mut Bed) {
    let bare = with(&[], 0, 1, &LIST, END);
    let inside = ipv6(64, IPV4, MAIN, &small_v4());
    for packet in [&bare, &inside] {
        let expected = Outcome::dropped(Reason::Hmac);
        bed.check("nobody is told", &frame(packet), &expected);
    }
    bed.port(Port::TRUSTED | Port::VERIFIED, 0);
    bed.check("checked", &frame(&bare), &sent_on(bare.clone()));
    let mut wrong = good();
    wrong[88] ^= 1;
    let expected = Outcome::told(Reason::Hmac, AT, &wrong);
    bed.check("checked", &frame(&wrong), &expected);
    bed.port(Port::TRUSTED, 0);
    bed.check("ignored", &frame(&wrong), &sent_on(wrong.clone()));
    bed.port(Port::VERIFIED, 0);
    let expected = Outcome::dropped(Reason::Untrusted);
    bed.check("of a stranger", &frame(&good()), &expected);
}

fn what_is_no_hmac_of_ours(bed: &mut Bed) {
    let unknown = with(&tlv(SECRET, 9, 0, 0, &LIST, false), 0, 1, &LIST, END);
    let expected = Outcome::told(Reason::Hmac, AT, &unknown);
    bed.check("an unknown key", &frame(&unknown), &expected);
    let mut short = tlv(SECRET, 7, 0, 0, &LIST, false);
    short[1] = 30;
    let short = with(&short, 0, 1, &LIST, END);
    bed.check(
        "short",
        &frame(&short),
        &Outcome::told(Reason::Hmac, AT, &short),
    );
    let mut beyond = good();
    beyond[41] -= 1;
    let expected = Outcome::told(Reason::Hmac, AT, &beyond);
    bed.check("longer than the SRH", &frame(&beyond), &expected);
}

fn among_other_tlvs(bed: &mut Bed) {
    let tlv = tlv(SECRET, 7, 0, 0, &LIST, false);
    for before in [
        &[4, 6, 0, 0, 0, 0, 0, 0][..],
        &[124, 2, 1, 2, 0, 0, 4, 0],
        &[0, 0, 0, 0, 124, 2, 5, 38],
    ] {
        let packet = with(&[before, &tlv, before].concat(), 0, 1, &LIST, END);
        bed.check("aligned", &frame(&packet), &sent_on(packet.clone()));
    }
    let packet = with(&[&[0; 8][..], &tlv].concat(), 0, 1, &LIST, END);
    let expected = Outcome::dropped(Reason::TooLong);
    bed.check("behind many", &frame(&packet), &expected);
}

fn linux_has_another_form(bed: &mut Bed) {
    let id = 0x0100_0009;
    let packet = with(&tlv(SECRET, id, 0, 8, &LIST, true), 8, 1, &LIST, END);
    bed.check("without bits", &frame(&packet), &sent_on(packet.clone()));
    let packet = with(&tlv(SECRET, id, 0, 8, &[FAR], true), 8, 1, &[FAR], END);
    bed.check(
        "nor one for what is left out",
        &frame(&packet),
        &sent_on(packet.clone()),
    );
    let packet = with(&tlv(SECRET, id, 0, 8, &LIST, false), 8, 1, &LIST, END);
    let expected = Outcome::told(Reason::Hmac, AT, &packet);
    bed.check("with them", &frame(&packet), &expected);
}

fn lists_have_a_longest(bed: &mut Bed) {
    let mut list = vec![FAR; 17];
    list[16] = END;
    let packet = with(&tlv(SECRET, 7, 0, 0, &list, false), 0, 16, &list, END);
    let expected = Outcome::dropped(Reason::TooLong);
    bed.check("17 segments", &frame(&packet), &expected);
}
