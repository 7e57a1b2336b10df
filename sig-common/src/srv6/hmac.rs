//! Keys of HMACs (RFC 8754, section 2.1.2; RFC 2104) with SHA-256.

use core::{fmt, iter};

use crate::wire::srv6::{HmacText, MAX_MAC};

/// Bytes that SHA-256 takes at a time.
pub const BLOCK: usize = 64;

/// Segments of an SRH whose HMAC is verified at most.
pub const MAX_SEGMENTS: usize = 16;

/// What SHA-256 begins with (FIPS 180-4, section 5.3.3).
const INITIAL: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// Constants of the rounds (FIPS 180-4, section 4.2.2).
const ROUNDS: [u32; 64] = [
    0x428a_2f98,
    0x7137_4491,
    0xb5c0_fbcf,
    0xe9b5_dba5,
    0x3956_c25b,
    0x59f1_11f1,
    0x923f_82a4,
    0xab1c_5ed5,
    0xd807_aa98,
    0x1283_5b01,
    0x2431_85be,
    0x550c_7dc3,
    0x72be_5d74,
    0x80de_b1fe,
    0x9bdc_06a7,
    0xc19b_f174,
    0xe49b_69c1,
    0xefbe_4786,
    0x0fc1_9dc6,
    0x240c_a1cc,
    0x2de9_2c6f,
    0x4a74_84aa,
    0x5cb0_a9dc,
    0x76f9_88da,
    0x983e_5152,
    0xa831_c66d,
    0xb003_27c8,
    0xbf59_7fc7,
    0xc6e0_0bf3,
    0xd5a7_9147,
    0x06ca_6351,
    0x1429_2967,
    0x27b7_0a85,
    0x2e1b_2138,
    0x4d2c_6dfc,
    0x5338_0d13,
    0x650a_7354,
    0x766a_0abb,
    0x81c2_c92e,
    0x9272_2c85,
    0xa2bf_e8a1,
    0xa81a_664b,
    0xc24b_8b70,
    0xc76c_51a3,
    0xd192_e819,
    0xd699_0624,
    0xf40e_3585,
    0x106a_a070,
    0x19a4_c116,
    0x1e37_6c08,
    0x2748_774c,
    0x34b0_bcb5,
    0x391c_0cb3,
    0x4ed8_aa4a,
    0x5b9c_ca4f,
    0x682e_6ff3,
    0x748f_82ee,
    0x78a5_636f,
    0x84c8_7814,
    0x8cc7_0208,
    0x90be_fffa,
    0xa450_6ceb,
    0xbef9_a3f7,
    0xc671_78f2,
];

/// A key, as SHA-256 is when it has taken in the block made of it: what is left to do for a packet are the blocks of its text and one
/// more.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct HmacKey {
    /// After the inner key.
    pub inner: [u32; 8],
    /// After the outer one.
    pub outer: [u32; 8],
    /// Bits, see below.
    pub flags: u32,
}

impl fmt::Debug for HmacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It is as secret as what it is made of.
        f.debug_struct("HmacKey")
            .field("flags", &self.flags)
            .finish_non_exhaustive()
    }
}

impl HmacKey {
    /// As Linux has it (`net/ipv6/seg6_hmac.c`), after an early draft: the text is without the 16 bits in front of the key id, the SRH has
    /// [`HmacKey::LINUX_FLAG`], and the TLV ends it.
    pub const LINUX: u32 = 1;
    /// The flag of an SRH that Linux looks for an HMAC in.
    pub const LINUX_FLAG: u8 = 8;

    /// The key with this secret.
    #[must_use]
    pub fn new(secret: &[u8], flags: u32) -> Self {
        let mut key = [0; BLOCK];
        let hashed;
        let short = match secret.len() > BLOCK {
            true => {
                hashed = finish(INITIAL, 0, &[secret]);
                &hashed[..]
            }
            false => secret,
        };
        for (byte, given) in key.iter_mut().zip(short) {
            *byte = *given;
        }
        let after = |pad: u8| {
            let mut state = INITIAL;
            compress(&mut state, &mut words(&key.map(|byte| byte ^ pad)));
            state
        };
        Self {
            inner: after(0x36),
            outer: after(0x5c),
            flags,
        }
    }

    /// The HMAC of a text.
    #[must_use]
    pub fn mac(&self, text: &HmacText<'_>) -> [u8; MAX_MAC] {
        let [source, entry_and_flags, bits, key_id, list] = text.parts();
        let bits = match self.flags & Self::LINUX {
            0 => bits,
            _ => &[],
        };
        self.mac_of(&[source, entry_and_flags, bits, key_id, list])
    }

    fn mac_of(&self, parts: &[&[u8]]) -> [u8; MAX_MAC] {
        let inner = finish(self.inner, BLOCK, parts);
        finish(self.outer, BLOCK, &[&inner])
    }
}

/// Takes a block in, of words in native byte order, which are used up (FIPS 180-4, section 6.2.2). The crate `sha2` needs more stack than
/// a BPF program has.
#[inline(always)]
pub fn compress(state: &mut [u32; 8], block: &mut [u32; 16]) {
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for (round, constant) in ROUNDS.iter().enumerate() {
        if round >= 16 {
            let early = block[(round + 1) & 15];
            let late = block[(round + 14) & 15];
            let early = early.rotate_right(7) ^ early.rotate_right(18) ^ early >> 3;
            let late = late.rotate_right(17) ^ late.rotate_right(19) ^ late >> 10;
            block[round & 15] = block[round & 15]
                .wrapping_add(early)
                .wrapping_add(block[(round + 9) & 15])
                .wrapping_add(late);
        }
        let first = h
            .wrapping_add(e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25))
            .wrapping_add(e & f ^ !e & g)
            .wrapping_add(*constant)
            .wrapping_add(block[round & 15]);
        let second = (a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22))
            .wrapping_add(a & b ^ a & c ^ b & c);
        (h, g, f, e) = (g, f, e, d.wrapping_add(first));
        (d, c, b, a) = (c, b, a, first.wrapping_add(second));
    }
    for (word, more) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *word = word.wrapping_add(more);
    }
}

/// The words of a block.
fn words(block: &[u8; BLOCK]) -> [u32; 16] {
    let (words, _) = block.as_chunks();
    let mut all = [0; 16];
    for (word, bytes) in all.iter_mut().zip(words) {
        *word = u32::from_be_bytes(*bytes);
    }
    all
}

/// The hash of `before` bytes, whole blocks, that have been taken in already, and of `parts` behind them.
fn finish(mut state: [u32; 8], before: usize, parts: &[&[u8]]) -> [u8; MAX_MAC] {
    let len = before + parts.iter().map(|part| part.len()).sum::<usize>();
    let zeros = (BLOCK + 55 - len % BLOCK) % BLOCK;
    let mut bytes = parts
        .iter()
        .copied()
        .flatten()
        .copied()
        .chain(iter::once(0x80))
        .chain(iter::repeat_n(0, zeros))
        .chain((len as u64 * 8).to_be_bytes());
    let mut block = [0; BLOCK];
    while let Some(first) = bytes.next() {
        for (place, byte) in block.iter_mut().zip(iter::once(first).chain(&mut bytes)) {
            *place = byte;
        }
        compress(&mut state, &mut words(&block));
    }
    let mut mac = [0; MAX_MAC];
    for (place, byte) in mac
        .iter_mut()
        .zip(state.into_iter().flat_map(u32::to_be_bytes))
    {
        *place = byte;
    }
    mac
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::{format, string::String, vec::Vec};

    use sha2::{Digest as _, Sha256};

    use super::*;

    fn hex(mac: [u8; 32]) -> String {
        mac.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// RFC 4231, sections 4.2, 4.3 and 4.8; texts in parts, and of the lengths around a block.
    #[test]
    fn macs_are_those_of_rfc_4231() {
        let mac = |secret: &[u8], parts: &[&[u8]]| hex(HmacKey::new(secret, 0).mac_of(parts));
        assert_eq!(
            mac(&[0x0b; 20], &[&b"Hi "[..], b"", b"There"]),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
        );
        assert_eq!(
            mac(b"Jefe", &[b"what do ya want for nothing?"]),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        let text = b"This is a test using a larger than block-size key and a larger than block-size data. \
                     The key needs to be hashed before being used by the HMAC algorithm.";
        assert_eq!(
            mac(&[0xaa; 131], &[text]),
            "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"
        );
    }

    /// As the crate `sha2`, for every length around one, two and three blocks.
    #[test]
    fn hashes_are_those_of_others() {
        let text: Vec<u8> = (0..200_u8).map(|byte| byte.wrapping_mul(37)).collect();
        for len in 0..text.len() {
            let (whole, half) = (&text[..len], len / 2);
            let ours = finish(INITIAL, 0, &[&whole[..half], &whole[half..]]);
            assert_eq!(ours, <[u8; 32]>::from(Sha256::digest(whole)), "{len} bytes");
        }
    }

    #[test]
    fn a_key_is_not_shown() {
        let key = HmacKey::new(b"secret", HmacKey::LINUX);
        assert_eq!(format!("{key:?}"), "HmacKey { flags: 1, .. }");
    }
}
