//! Segments of TCP that fit a frame: what is cut in two, no program takes.

use aya_ebpf::{bindings::__sk_buff, helpers};
use sig_common::accelerate::Stat;
use sig_common::wire::{Load as _, PROTO_TCP, ipv4, ipv6, tcp};

use super::{count, inner::Inner};
use crate::packet::{Packet, opaque};

/// Longest options.
const MAX_OPTIONS: usize = 40;
/// Kinds of options.
const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const MSS: u8 = 2;
/// With these, the receiver checks that no other option was changed (RFC 2385, RFC 5925).
const MD5: u8 = 19;
const AUTHENTICATION: u8 = 29;

/// Lowers the maximum segment size in a SYN behind the first `offset` bytes, so that segments fit a frame of
/// `frame_size` bytes; whether it did.
#[inline(always)]
pub fn clamp(skb: *mut __sk_buff, offset: usize, inner: &Inner, frame_size: u32) -> bool {
    let protocol = (inner.key[4] >> 32) as u8;
    if inner.odd != 0 || protocol != PROTO_TCP || frame_size == 0 {
        return false;
    }
    let header = match inner.version {
        4 => ipv4::HEADER_LEN,
        _ => ipv6::HEADER_LEN,
    };
    let tcp = offset + header;
    let headers = (header + tcp::HEADER_LEN) as u32;
    let lowered = lower(skb, tcp as u32, frame_size.saturating_sub(headers)) != 0;
    if lowered {
        count(Stat::MssClamped);
    }
    lowered
}

/// 1 if it did. A function of its own: the stack is small.
#[inline(never)]
fn lower(skb: *mut __sk_buff, tcp: u32, limit: u32) -> u32 {
    const SYN: u8 = 2;
    let header = Packet::of_skb(skb, tcp as usize & 0x7f);
    let Some([words, flags]) = header.bytes(12) else {
        return 0;
    };
    let len = opaque((usize::from(words >> 4) * 4).wrapping_sub(tcp::HEADER_LEN));
    if flags & SYN == 0 || len == 0 || len > MAX_OPTIONS || !(88..=0xffff).contains(&limit) {
        return 0;
    }
    let start = tcp + tcp::HEADER_LEN as u32;
    let (mut at, mut found) = (0usize, 0usize);
    for _ in 0..MAX_OPTIONS {
        if at >= len {
            break;
        }
        // From the packet each time: of an offset into the stack, the verifier follows each value on its own.
        let option = Packet::of_skb(skb, (start as usize & 0x7f) + (at & 0x3f));
        let [kind, size] = match option.bytes(0) {
            Some(both) => both,
            // The last byte can only end the options.
            None => break,
        };
        if kind == END {
            break;
        }
        let size = match kind {
            NO_OPERATION => 1,
            _ => usize::from(size),
        };
        let is_bad = kind != NO_OPERATION && size < 2;
        if kind == MD5 || kind == AUTHENTICATION || is_bad || at + size > len {
            return 0;
        }
        if kind == MSS && size == 4 {
            found = at + 2;
        }
        at += size;
    }
    if found == 0 {
        return 0;
    }
    let found = found & 0x3f;
    let option = Packet::of_skb(skb, (start as usize & 0x7f) + found);
    let Some(old) = option.be16(0) else {
        return 0;
    };
    let new = limit as u16;
    if old <= new {
        return 0;
    }
    // At an odd offset the value lies across two words of the sum, which counts its bytes the other way round.
    let (from, to) = match found % 2 {
        0 => (old.to_be(), new.to_be()),
        _ => (old.to_be().swap_bytes(), new.to_be().swap_bytes()),
    };
    let value = new.to_be_bytes();
    // SAFETY: the context is of the running program; two bytes.
    unsafe {
        helpers::bpf_l4_csum_replace(skb.cast(), tcp + 16, from.into(), to.into(), 2);
        helpers::bpf_skb_store_bytes(
            skb.cast(),
            start + found as u32,
            value.as_ptr().cast(),
            2,
            0,
        );
    }
    1
}
