//! Internet checksums over bytes whose sum is not known otherwise.

use aya_ebpf::{bindings::xdp_md, programs::XdpContext};
use sig_common::wire::checksum::Sum;

use crate::packet::Packet;

/// Blocks at most: what a packet in one buffer has.
const BLOCKS: usize = 24;
const BLOCK: usize = 64;

/// The sum over `len` bytes behind the first `offset` bytes of the packet; `None` if they are not there.
#[inline(always)]
pub fn of_bytes(ctx: &XdpContext, offset: usize, len: usize) -> Option<Sum> {
    match add_up(ctx.ctx, offset as u32, len as u32) {
        MISSING => None,
        sum => Some(Sum::ZERO.add_u16(sum as u16)),
    }
}

/// The sum over three words of the packet.
#[inline(always)]
pub fn of_words(words: [u64; 3]) -> Sum {
    native(words.map(halves).iter().sum())
}

/// A sum over words in native byte order.
#[inline(always)]
fn native(sum: u64) -> Sum {
    Sum::ZERO.add_u64(u64::from_be(sum))
}

/// No sum: the bytes are not there.
const MISSING: u64 = 1 << 32;

/// The sum over `len` bytes behind the first `offset` bytes of the packet, folded, or [`MISSING`].
///
/// A function of its own, so that the verifier need not follow its loops in every state of its callers.
#[inline(never)]
fn add_up(ctx: *mut xdp_md, offset: u32, len: u32) -> u64 {
    if len > 0x7ff {
        return MISSING;
    }
    let offset = offset as usize & 0x7ff;
    let len = len as usize & 0x7ff;
    let mut rest = Packet::of(ctx, offset);
    let mut left = len;
    let mut sum = 0u64;
    for _ in 0..BLOCKS {
        if left < BLOCK {
            break;
        }
        let Some(words) = rest.words::<{ BLOCK / 8 }>() else {
            return MISSING;
        };
        for word in words {
            sum += halves(word);
        }
        rest = rest.behind(BLOCK);
        left -= BLOCK;
    }
    for _ in 0..BLOCK / 8 {
        if left < 8 {
            break;
        }
        let Some([word]) = rest.words() else {
            return MISSING;
        };
        sum += halves(word);
        rest = rest.behind(8);
        left -= 8;
    }
    if left > 8 {
        return MISSING;
    }
    if left != 0 {
        // The word that ends with the last byte; there is one, as headers come before.
        let Some([word]) = Packet::of(ctx, (offset + len - 8) & 0xfff).words() else {
            return MISSING;
        };
        let known = ((8 - left as u32) & 7) * 8;
        sum += halves(match cfg!(target_endian = "little") {
            true => word >> known,
            false => word << known,
        });
    }
    native(sum).fold().into()
}

#[inline(always)]
const fn halves(word: u64) -> u64 {
    (word & 0xffff_ffff) + (word >> 32)
}
