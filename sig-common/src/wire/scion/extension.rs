//! SCION extension headers: hop-by-hop, then end-to-end, each at most once.
//!
//! Each starts with next header (1 byte) and length in words of 4 bytes minus one (1 byte). Their
//! options are skipped.

use super::{NEXT_END_TO_END, NEXT_HOP_BY_HOP};
use crate::wire::Load;

/// Skips the extension headers at `offset`; `end` is the end of the SCION payload. Returns the next
/// header value and the offset of what follows, or `None` if they exceed the payload, are repeated
/// or out of order.
///
/// An extension header is at most 1024 bytes long, which bounds the offset for the BPF verifier.
#[inline(always)]
#[must_use]
pub fn skip<L: Load + ?Sized>(
    packet: &L,
    next_header: u8,
    offset: usize,
    end: usize,
) -> Option<(u8, usize)> {
    let (mut next, mut at) = (next_header, offset);
    if next == NEXT_HOP_BY_HOP {
        (next, at) = skip_one(packet, at, end)?;
    }
    if next == NEXT_END_TO_END {
        (next, at) = skip_one(packet, at, end)?;
    }
    if matches!(next, NEXT_HOP_BY_HOP | NEXT_END_TO_END) {
        return None;
    }
    Some((next, at))
}

#[inline(always)]
fn skip_one<L: Load + ?Sized>(packet: &L, offset: usize, end: usize) -> Option<(u8, usize)> {
    let [next, words] = packet.bytes(offset)?;
    let after = offset + (usize::from(words) + 1) * 4;
    if after > end {
        return None;
    }
    Some((next, after))
}
