//! AES-128 (FIPS 197) by tables, and what the MAC of a hop field needs of AES-CMAC (RFC 4493): one call of the cipher.
//!
//! For XDP programs, which have neither processor instructions for AES nor libraries. The tables are 4 KiB; which of
//! their entries are read depends on key and data, so that who shares a processor cache with the router could learn
//! about the key by timing. User space takes the crate `aes` instead.
//!
//! Words are big endian: the first of the 16 bytes is the highest of word 0.

use super::maps::Config;
use crate::wire::scion::path::MacInput;

/// Words of round keys for AES-128: one key more than the ten rounds.
pub const ROUND_KEYS: usize = 44;

/// The S-box of a round and the column mixing after it, for one byte of a column; further tables are turned by a byte.
static TABLES: [[u32; 256]; 4] = tables();

/// The round keys of a key.
#[must_use]
pub const fn expand(key: [u8; 16]) -> [u32; ROUND_KEYS] {
    let mut keys = [0; ROUND_KEYS];
    let mut i = 0;
    while i < 4 {
        let at = 4 * i;
        keys[i] = u32::from_be_bytes([key[at], key[at + 1], key[at + 2], key[at + 3]]);
        i += 1;
    }
    let sbox = sbox();
    let mut constant = 1;
    while i < ROUND_KEYS {
        let mut word = keys[i - 1];
        if i % 4 == 0 {
            let [a, b, c, d] = word.rotate_left(8).to_be_bytes();
            word = u32::from_be_bytes([
                sbox[a as usize],
                sbox[b as usize],
                sbox[c as usize],
                sbox[d as usize],
            ]) ^ (constant as u32) << 24;
            constant = double(constant);
        }
        keys[i] = keys[i - 4] ^ word;
        i += 1;
    }
    keys
}

/// The subkey K1 of AES-CMAC for messages of whole blocks.
#[must_use]
pub fn subkey(round_keys: &[u32; ROUND_KEYS]) -> [u32; 4] {
    let [w0, w1, w2, w3] = encrypt(round_keys, [0; 4]);
    let high = (w0 as u64) << 32 | w1 as u64;
    let low = (w2 as u64) << 32 | w3 as u64;
    let carry = if high >> 63 == 0 { 0 } else { 0x87 };
    let (high, low) = (high << 1 | low >> 63, low << 1 ^ carry);
    [
        (high >> 32) as u32,
        high as u32,
        (low >> 32) as u32,
        low as u32,
    ]
}

/// Encrypts a block.
#[inline(always)]
#[must_use]
pub fn encrypt(round_keys: &[u32; ROUND_KEYS], block: [u32; 4]) -> [u32; 4] {
    let [mut a, mut b, mut c, mut d] = block;
    a ^= round_keys[0];
    b ^= round_keys[1];
    c ^= round_keys[2];
    d ^= round_keys[3];
    let mut at = 4;
    while at < ROUND_KEYS - 4 {
        (a, b, c, d) = (
            mixed(a, b, c, d) ^ round_keys[at],
            mixed(b, c, d, a) ^ round_keys[at + 1],
            mixed(c, d, a, b) ^ round_keys[at + 2],
            mixed(d, a, b, c) ^ round_keys[at + 3],
        );
        at += 4;
    }
    [
        substituted(a, b, c, d) ^ round_keys[at],
        substituted(b, c, d, a) ^ round_keys[at + 1],
        substituted(c, d, a, b) ^ round_keys[at + 2],
        substituted(d, a, b, c) ^ round_keys[at + 3],
    ]
}

/// A column of a round: each byte comes from another column of the one before.
#[inline(always)]
fn mixed(a: u32, b: u32, c: u32, d: u32) -> u32 {
    TABLES[0][byte(a, 24)] ^ TABLES[1][byte(b, 16)] ^ TABLES[2][byte(c, 8)] ^ TABLES[3][byte(d, 0)]
}

/// A column of the last round, which mixes nothing: the S-box stands in the tables as well.
#[inline(always)]
fn substituted(a: u32, b: u32, c: u32, d: u32) -> u32 {
    TABLES[2][byte(a, 24)] & 0xff00_0000
        ^ TABLES[3][byte(b, 16)] & 0x00ff_0000
        ^ TABLES[0][byte(c, 8)] & 0x0000_ff00
        ^ TABLES[1][byte(d, 0)] & 0x0000_00ff
}

#[inline(always)]
const fn byte(word: u32, shift: u32) -> usize {
    (word >> shift) as u8 as usize
}

const fn tables() -> [[u32; 256]; 4] {
    let sbox = sbox();
    let mut tables = [[0; 256]; 4];
    let mut i = 0;
    while i < 256 {
        let once = sbox[i];
        let twice = double(once);
        let column = u32::from_be_bytes([twice, once, once, once ^ twice]);
        tables[0][i] = column;
        tables[1][i] = column.rotate_right(8);
        tables[2][i] = column.rotate_right(16);
        tables[3][i] = column.rotate_right(24);
        i += 1;
    }
    tables
}

/// The S-box: inverses in the field, then an affine transformation.
const fn sbox() -> [u8; 256] {
    let mut sbox = [0; 256];
    // `p` runs through all elements but 0 as powers of 3, `q` through their inverses.
    let (mut p, mut q) = (1u8, 1u8);
    loop {
        p ^= double(p);
        q ^= q << 1;
        q ^= q << 2;
        q ^= q << 4;
        if q & 0x80 != 0 {
            q ^= 0x09;
        }
        sbox[p as usize] =
            q ^ q.rotate_left(1) ^ q.rotate_left(2) ^ q.rotate_left(3) ^ q.rotate_left(4) ^ 0x63;
        if p == 1 {
            break;
        }
    }
    sbox[0] = 0x63;
    sbox
}

/// Twice a number in the field of AES.
const fn double(number: u8) -> u8 {
    number << 1 ^ if number & 0x80 == 0 { 0 } else { 0x1b }
}

impl Config {
    /// Sets the key that hop fields of the AS are signed with.
    #[must_use]
    pub fn with_key(mut self, key: [u8; 16]) -> Self {
        self.round_keys = expand(key);
        self.subkey = subkey(&self.round_keys);
        self
    }

    /// The MAC of a hop field in the low 48 bits: the first six bytes of the AES-CMAC over its one block.
    #[inline(always)]
    #[must_use]
    pub fn hop_mac(&self, input: &MacInput) -> u64 {
        let [k0, k1, k2, k3] = self.subkey;
        let [b0, b1, b2, b3] = input.words();
        let [w0, w1, ..] = encrypt(&self.round_keys, [k0 ^ b0, k1 ^ b1, k2 ^ b2, k3 ^ b3]);
        (w0 as u64) << 16 | w1 as u64 >> 16
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::maps::Ip;
    use aes::cipher::{Block, BlockCipherEncrypt as _, KeyInit as _};
    use cmac::Mac as _;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn config(key: [u8; 16]) -> Config {
        let config = Config {
            isd_as: 0,
            internal: Ip([0; 16]),
            internal_port: 0,
            first_port: 0,
            last_port: 0,
            cpus: 0,
            seed: 0,
            subkey: [0; 4],
            round_keys: [0; ROUND_KEYS],
        };
        config.with_key(key)
    }

    fn words(bytes: [u8; 16]) -> [u32; 4] {
        core::array::from_fn(|i| u32::from_be_bytes(core::array::from_fn(|at| bytes[4 * i + at])))
    }

    fn bytes(words: [u32; 4]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_be_bytes()).collect()
    }

    const KEY: u128 = 0x2b7e1516_28aed2a6_abf71588_09cf4f3c;

    #[test]
    fn round_keys_are_those_of_fips_197() {
        let keys = expand(KEY.to_be_bytes());
        assert_eq!(keys[4..8], [0xa0fafe17, 0x88542cb1, 0x23a33939, 0x2a6c7605]);
        assert_eq!(keys[40..], [0xd014f9a8, 0xc9ee2589, 0xe13f0cc8, 0xb6630ca6]);
    }

    #[test]
    fn blocks_are_encrypted_as_in_fips_197() {
        for (key, plain, cipher) in [
            (
                KEY,
                0x3243f6a8_885a308d_313198a2_e0370734_u128,
                0x3925841d_02dc09fb_dc118597_196a0b32_u128,
            ),
            (
                0x00010203_04050607_08090a0b_0c0d0e0f,
                0x00112233_44556677_8899aabb_ccddeeff,
                0x69c4e0d8_6a7b0430_d8cdb780_70b4c55a,
            ),
        ] {
            let out = encrypt(&expand(key.to_be_bytes()), words(plain.to_be_bytes()));
            assert_eq!(bytes(out), cipher.to_be_bytes());
        }
    }

    #[test]
    fn the_subkey_and_the_mac_of_one_block_are_those_of_rfc_4493() {
        let keys = expand(KEY.to_be_bytes());
        let k1 = subkey(&keys);
        assert_eq!(k1, [0xfbeed618, 0x35713366, 0x7c85e08f, 0x7236a8de]);
        let message = words(0x6bc1bee2_2e409f96_e93d7e11_7393172a_u128.to_be_bytes());
        let mac = encrypt(&keys, core::array::from_fn(|i| message[i] ^ k1[i]));
        assert_eq!(mac, [0x070a16b4, 0x6b4d4144, 0xf79bdd9d, 0xd04a287c]);
    }

    #[test]
    fn macs_of_hop_fields_are_those_of_the_reference() {
        const T: u32 = 1_700_000_000;
        const DERIVED: [u8; 16] = 0x3edc0e61_bca74aa9_c267607c_6f5b20ac_u128.to_be_bytes();
        // Key; segment identifier, timestamp, expiry, ingress, egress; MAC.
        for (key, (segment_id, timestamp, expiry, ingress, egress), mac) in [
            ([b'2'; 16], (0, 0, 0, 0, 0), 0x6310_5501_9e98),
            ([b'2'; 16], (0x1234, T, 63, 0, 1), 0x2864_6287_d165),
            (DERIVED, (0x1234, T, 63, 0, 1), 0xd049_bf29_7501),
            (
                *b"testkey_xxxxxxxx",
                (0x0111, T, 63, 1, 2),
                0xb02f_c90a_e0d5,
            ),
            (
                [b'2'; 16],
                (0xffff, u32::MAX, 255, 0xffff, 0xffff),
                0x2fcb_feb3_6f8d,
            ),
            ([b'1'; 16], (0x1234, T, 63, 0, 1), 0x36c4_7fc6_0c5c),
            ([b'2'; 16], (0x24f0, T, 63, 1, 2), 0x94aa_cc16_fd71),
            ([b'3'; 16], (0xb05a, T, 63, 1, 0), 0x4e75_bd76_b46c),
            ([b'2'; 16], (0xb05a, T, 63, 5, 2), 0xc030_b747_531d),
        ] {
            let input = MacInput {
                segment_id,
                timestamp,
                expiry,
                ingress,
                egress,
            };
            assert_eq!(config(key).hop_mac(&input), mac, "{input:?}");
        }
    }

    proptest! {
        #[test]
        fn any_block_is_encrypted_as_by_the_crate_aes(key: [u8; 16], block: [u8; 16]) {
            let mut expected = Block::<aes::Aes128>::from(block);
            aes::Aes128::new(&key.into()).encrypt_block(&mut expected);
            prop_assert_eq!(bytes(encrypt(&expand(key), words(block))), expected.to_vec());
        }

        #[test]
        fn any_hop_field_has_the_mac_of_the_crate_cmac(
            key: [u8; 16], segment_id: u16, timestamp: u32, expiry: u8, ingress: u16, egress: u16,
        ) {
            let mut block = [0; 16];
            block[2..4].copy_from_slice(&segment_id.to_be_bytes());
            block[4..8].copy_from_slice(&timestamp.to_be_bytes());
            block[9] = expiry;
            block[10..12].copy_from_slice(&ingress.to_be_bytes());
            block[12..14].copy_from_slice(&egress.to_be_bytes());
            let mut mac = cmac::Cmac::<aes::Aes128>::new(&key.into());
            mac.update(&block);
            let mac = mac.finalize().into_bytes();
            let input = MacInput { segment_id, timestamp, expiry, ingress, egress };
            prop_assert_eq!(input.block(), block);
            let found = config(key).hop_mac(&input);
            prop_assert_eq!(&found.to_be_bytes()[2..], &mac[..6]);
        }
    }
}
