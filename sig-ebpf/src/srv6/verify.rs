//! The HMAC of an SRH (RFC 8754, section 2.1.2.1).

use aya_ebpf::{
    bindings::xdp_md,
    helpers,
    macros::map,
    maps::{HashMap, PerCpuArray},
};
use sig_common::{
    srv6::{
        hmac::{BLOCK, HmacKey, MAX_SEGMENTS, compress},
        maps::{ENTRY, MAX_HMAC_KEYS, Port, Reason},
    },
    wire::{
        Load as _,
        srv6::{self, FIXED_LEN, HMAC, HMAC_D, MAX_MAC, PAD1, SEGMENT_LEN},
    },
};

use super::{S_PORTS, Work, enter, ip, refuse, tell, whole_ip, work};
use crate::packet::{IP, opaque};

#[map]
static S_HMAC_KEYS: HashMap<u32, HmacKey> = HashMap::with_max_entries(MAX_HMAC_KEYS, 0);

#[map]
static S_HASH: PerCpuArray<Hash> = PerCpuArray::with_max_entries(1, 0);

/// TLVs up to that of an HMAC, and itself.
const MAX_TLVS: usize = 8;

/// Bytes of the TLV, and of what is in front of the HMAC in it.
const TLV_LEN: usize = MAC_AT + MAX_MAC;
const MAC_AT: usize = 8;

/// Bytes of the text in front of the list.
const BEFORE_LIST: usize = 24;
/// As Linux has it.
const BEFORE_LIST_LINUX: usize = 22;

/// Blocks of the longest text, with the length behind it.
const BLOCKS: usize = (BEFORE_LIST + MAX_SEGMENTS * SEGMENT_LEN + 9).div_ceil(BLOCK);

/// What is hashed.
#[repr(C, align(8))]
struct Hash {
    text: [[u8; BLOCK]; BLOCKS],
    state: [u32; 8],
}

/// The HMAC is right, or found.
const RIGHT: u32 = 0;
/// There is none.
const MISSING: u32 = 1;
/// It is wrong.
const WRONG: u32 = 2;
/// There is too much in the SRH.
const TOO_LONG: u32 = 3;

/// Processes a packet to a local SID, unless its HMAC is wrong.
#[inline(always)]
pub fn run(ctx: *mut xdp_md) -> u32 {
    // SAFETY: the context is of the running program; the value is only read, and an update replaces it as a whole.
    let is_required = match unsafe { S_PORTS.get((*ctx).ingress_ifindex) } {
        Some(port) => port.flags & Port::AUTHENTIC != 0,
        None => true,
    };
    let Some(work) = work() else {
        return refuse(Reason::TooLong);
    };
    match verify(ctx, work) {
        MISSING if is_required => refuse(Reason::Hmac),
        RIGHT | MISSING => {
            work.is_verified = true;
            let action = enter(ctx, ENTRY);
            // Nobody went on with it.
            work.is_verified = false;
            action
        }
        WRONG => tell(ctx, Reason::Hmac as u32, work.pointer, &[0; 16], 0),
        _ => refuse(Reason::TooLong),
    }
}

#[inline(always)]
fn verify(ctx: *mut xdp_md, work: &mut Work) -> u32 {
    let found = find(ctx, work);
    if found != RIGHT {
        return found;
    }
    let at = opaque(work.pointer as usize) & 0x1fff;
    let Some(key_id) = ip(ctx).be32(at + 4) else {
        return WRONG;
    };
    // SAFETY: as in `run`.
    let Some(key) = (unsafe { S_HMAC_KEYS.get(key_id) }) else {
        return WRONG;
    };
    let Some(hash) = S_HASH.get_ptr_mut(0) else {
        return WRONG;
    };
    // SAFETY: as in `super::work`.
    let hash = unsafe { &mut *hash };
    let blocks = match fill(ctx, work, hash, key.flags & HmacKey::LINUX) {
        0 => return WRONG,
        TOO_MANY => return TOO_LONG,
        blocks => blocks,
    };
    hash.state = key.inner;
    for number in 0..BLOCKS as u32 {
        if number < blocks {
            take_block(hash, number);
        }
    }
    // The outer hash is of a block that is taken in already, and of the inner one.
    let state = hash.state;
    let block = hash.text[0].as_mut_ptr().cast::<u32>();
    // SAFETY: 16 words, aligned as those of eight bytes are.
    unsafe {
        let mut word = 0;
        while word < 8 {
            block.add(word).write(state[word].to_be());
            word += 1;
        }
        block.add(8).write(0x8000_0000_u32.to_be());
        while word < 14 {
            word += 1;
            block.add(word).write(0);
        }
        block.add(15).write((8 * (BLOCK + MAX_MAC) as u32).to_be());
    }
    hash.state = key.outer;
    take_block(hash, 0);
    compare(ctx, hash, at as u32)
}

/// Finds the HMAC. Its TLV's offset is `work.pointer` then, also if it has a wrong length, and the SRH that of `work.step`.
#[inline(never)]
fn find(ctx: *mut xdp_md, work: &mut Work) -> u32 {
    let packet = whole_ip(ctx);
    // About a malformed one the sender is told where it is processed.
    let Ok(srh) = srv6::parse(&packet) else {
        return MISSING;
    };
    let end = usize::from(srh.after());
    let mut at = usize::from(srh.tlvs());
    for _ in 0..MAX_TLVS {
        if at + 2 > end {
            return MISSING;
        }
        let Some([kind, len]) = packet.bytes(opaque(at) & 0x1fff) else {
            return MISSING;
        };
        if kind == HMAC {
            work.pointer = at as u32;
            work.step.srh = srh;
            return match usize::from(len) + 2 == TLV_LEN && at + TLV_LEN <= end {
                true => RIGHT,
                false => WRONG,
            };
        }
        at += match kind {
            PAD1 => 1,
            _ => usize::from(len) + 2,
        };
    }
    TOO_LONG
}

/// More blocks than there are.
const TOO_MANY: u32 = BLOCKS as u32 + 1;

/// Writes the text, and what SHA-256 wants behind it. Returns how many blocks that are; [`TOO_MANY`], or 0 if the SRH does not go with
/// the destination address.
#[inline(never)]
fn fill(ctx: *mut xdp_md, work: &Work, hash: &mut Hash, is_linux: u32) -> u32 {
    let packet = ip(ctx);
    let at = opaque(work.pointer as usize) & 0x1fff;
    let srh = &work.step.srh;
    let Some([_, _, b0, b1, k0, k1, k2, k3]) = packet.bytes(at) else {
        return 0;
    };
    let Some(source) = packet.bytes::<16>(8) else {
        return 0;
    };
    let Some(destination) = packet.bytes::<16>(24) else {
        return 0;
    };
    if is_linux == 0 && u16::from_be_bytes([b0, b1]) & HMAC_D == 0 {
        let Some(active) = srh.segment(&packet, srh.segments_left) else {
            return 0;
        };
        if u128::from_ne_bytes(active) != u128::from_ne_bytes(destination) {
            return 0;
        }
    }
    let list_len = opaque((usize::from(srh.last_entry) + 1) * SEGMENT_LEN);
    if !(SEGMENT_LEN..=MAX_SEGMENTS * SEGMENT_LEN).contains(&list_len) {
        return TOO_MANY;
    }
    let list_at = IP + usize::from(srh.offset) + FIXED_LEN;
    let text = hash.text.as_mut_ptr().cast::<u8>();
    let before = match is_linux {
        0 => BEFORE_LIST,
        _ => BEFORE_LIST_LINUX,
    };
    let before = opaque(before);
    if before > BEFORE_LIST {
        return 0;
    }
    let len = opaque(before + list_len);
    if len > BEFORE_LIST + MAX_SEGMENTS * SEGMENT_LEN {
        return 0;
    }
    let blocks = (len + 9).div_ceil(BLOCK);
    let last = opaque(blocks * BLOCK);
    if !(BLOCK..=BLOCKS * BLOCK).contains(&last) {
        return 0;
    }
    let bits = ((BLOCK + len) * 8) as u16;
    // SAFETY: all of it is within the text: the list and one byte more, and the length at the end of the last block. The context is of the
    // running program.
    unsafe {
        let words = text.cast::<u64>();
        let mut word = 0;
        while word < BLOCKS * BLOCK / 8 {
            words.add(word).write_volatile(0);
            word += 1;
        }
        text.cast::<[u8; 16]>().write(source);
        text.add(16).write(srh.last_entry);
        text.add(17).write(srh.flags);
        match is_linux {
            0 => text
                .add(18)
                .cast::<[u8; 6]>()
                .write([b0, b1, k0, k1, k2, k3]),
            _ => text.add(18).cast::<[u8; 4]>().write([k0, k1, k2, k3]),
        }
        let loaded = helpers::bpf_xdp_load_bytes(
            ctx,
            list_at as u32,
            text.add(before).cast(),
            list_len as u32,
        );
        if loaded != 0 {
            return 0;
        }
        text.add(len).write_volatile(0x80);
        text.add(last - 2).write_volatile((bits >> 8) as u8);
        text.add(last - 1).write_volatile(bits as u8);
    }
    blocks as u32
}

/// Takes a block of the text in. A function of its own, as it is long.
#[inline(never)]
fn take_block(hash: &mut Hash, number: u32) -> u32 {
    let number = opaque(number as usize);
    if number >= BLOCKS {
        return 1;
    }
    // Aligned, as the text is.
    let block = hash.text[number].as_mut_ptr().cast::<[u32; 16]>();
    // SAFETY: within the element of the map; of the same size.
    let block = unsafe { &mut *block };
    for word in block.iter_mut() {
        *word = word.to_be();
    }
    compress(&mut hash.state, block);
    0
}

/// Compares the hash with the HMAC in the TLV at `at`, in the same time whatever they are.
#[inline(never)]
fn compare(ctx: *mut xdp_md, hash: &Hash, at: u32) -> u32 {
    let at = opaque(at as usize) & 0x1fff;
    let packet = ip(ctx).behind(at + MAC_AT);
    let Some(words) = packet.words::<4>() else {
        return WRONG;
    };
    let mut differences = 0;
    let mut word = 0;
    while word < 4 {
        let of = |half: usize| u64::from(hash.state[2 * word + half].to_be());
        // Words of the packet are in native byte order: the first half is the lower one.
        differences |= words[word] ^ (of(0) | of(1) << 32);
        word += 1;
    }
    match differences {
        0 => RIGHT,
        _ => WRONG,
    }
}
