//! Any bytes as what follows the headers of protected frames, between true ones: nothing is opened that was not sealed as it is, and
//! nothing twice.

use std::{collections::BTreeSet, sync::Arc};

use sig_common::wire::sig_frame::{
    EXTENSION_LEN, Extension, HEADER_LEN, Header, PROTECTION_LEN, ProtectedView, TAG_LEN,
};
use sig_core::protection::{Cipher, Key, Keyring, NONCE_LEN, ReceiveKey, SendKey};

/// Not secret, and its tag can be forged by whoever knows how it is made: that does not matter here.
struct Toy;

impl Toy {
    fn tag(nonce: [u8; NONCE_LEN], head: &[u8], data: &[u8]) -> [u8; TAG_LEN] {
        let bytes = nonce.iter().chain(head).chain(data);
        let hash = bytes.fold(
            0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128,
            |hash, byte| {
                (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
            },
        );
        hash.to_be_bytes()
    }
}

impl Cipher for Toy {
    fn seal(&self, nonce: [u8; NONCE_LEN], head: &[u8], data: &mut [u8]) -> Option<[u8; TAG_LEN]> {
        data.iter_mut().for_each(|byte| *byte ^= nonce[11]);
        Some(Self::tag(nonce, head, data))
    }

    fn open(&self, nonce: [u8; NONCE_LEN], head: &[u8], data: &mut [u8]) -> bool {
        let Some((data, tag)) = data.split_last_chunk_mut::<TAG_LEN>() else {
            return false;
        };
        let is_right = Self::tag(nonce, head, data) == *tag;
        data.iter_mut().for_each(|byte| *byte ^= nonce[11]);
        is_right
    }
}

fn key() -> Key {
    Key {
        cipher: Box::new(Toy),
        iv: [3; NONCE_LEN],
        number: 0x0102_0304,
    }
}

/// Takes `data` for frames: a byte that says what each is, another one with its length, its bytes.
///
/// # Panics
/// If a frame is opened that must not be.
pub(crate) fn run(data: &[u8]) {
    if let Ok(view) = ProtectedView::new_checked(data) {
        assert_eq!(
            data.len(),
            HEADER_LEN + EXTENSION_LEN + view.sealed().len(),
            "nothing is left over"
        );
        let mut header = view.header().encode_protected();
        header[4] = data[4];
        header[5] |= data[5] & 0xf0;
        assert_eq!(header, data[..HEADER_LEN]);
        assert_eq!(
            view.extension().encode(),
            data[HEADER_LEN..][..EXTENSION_LEN]
        );
    }
    let (sender, receiver) = (Keyring::default(), Keyring::default());
    sender.set_send(Some(Arc::new(SendKey::new(key(), 2))));
    receiver.set_receive(vec![Arc::new(ReceiveKey::new(key(), 2))]);
    let header = Header::default();
    let (mut opened, mut known) = (BTreeSet::new(), Vec::<Vec<u8>>::new());
    let mut rest = data;
    while let Some((&[what, len], behind)) = rest.split_first_chunk() {
        let (bytes, behind) = behind.split_at(usize::from(len).min(behind.len()));
        rest = behind;
        let mut is_new = false;
        let mut frame = match what % 4 {
            // Sealed just now, by one of two workers.
            0 => {
                let mut frame = vec![0; EXTENSION_LEN];
                frame.extend(bytes);
                frame.resize(bytes.len() + PROTECTION_LEN, 0);
                let worker = usize::from(what / 4 % 2);
                let sealed = sender.seal(worker, &header, &mut frame);
                assert!(sealed.is_some());
                known.push(frame.clone());
                is_new = true;
                frame
            }
            // An earlier one, perhaps changed.
            1 => {
                let Some(mut frame) = known.get(usize::from(what / 4)).cloned() else {
                    continue;
                };
                for (place, with) in bytes.iter().enumerate().take(frame.len()) {
                    frame[place] ^= with;
                }
                frame
            }
            _ => bytes.to_vec(),
        };
        let number = frame.first_chunk().map(|it| Extension::decode(it).number);
        let result = receiver.open(&header, &mut frame);
        assert!(result.is_ok() || !is_new, "{result:?}");
        if result.is_ok() {
            assert!(opened.insert(number), "opened twice");
            let payload = &frame[EXTENSION_LEN..frame.len() - TAG_LEN];
            assert!(!is_new || payload == bytes);
        }
    }
}
