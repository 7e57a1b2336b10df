use proptest::prelude::*;
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use sig_common::wire::sig_frame::PROTECTION_LEN;

use super::*;

/// AES-GCM, for tests.
struct Gcm(LessSafeKey);

impl Cipher for Gcm {
    fn seal(&self, nonce: [u8; NONCE_LEN], head: &[u8], data: &mut [u8]) -> Option<[u8; TAG_LEN]> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self
            .0
            .seal_in_place_separate_tag(nonce, Aad::from(head), data);
        tag.ok()?.as_ref().try_into().ok()
    }

    fn open(&self, nonce: [u8; NONCE_LEN], head: &[u8], data: &mut [u8]) -> bool {
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.0.open_in_place(nonce, Aad::from(head), data).is_ok()
    }
}

fn key(number: u32) -> Key {
    let secret = [number as u8; 16];
    let key = UnboundKey::new(&AES_128_GCM, &secret).expect("a key");
    Key {
        cipher: Box::new(Gcm(LessSafeKey::new(key))),
        iv: [number as u8 ^ 0x5a; NONCE_LEN],
        number,
    }
}

/// Both ends of a key with this number.
pub(crate) fn pair(number: u32, workers: usize) -> (Arc<SendKey>, Arc<ReceiveKey>) {
    (
        Arc::new(SendKey::new(key(number), workers)),
        Arc::new(ReceiveKey::new(key(number), workers)),
    )
}

/// Keyrings of a sender and of a receiver that have these keys.
fn rings(send: &Arc<SendKey>, receive: &[&Arc<ReceiveKey>]) -> (Keyring, Keyring) {
    let (sender, receiver) = (Keyring::default(), Keyring::default());
    sender.set_send(Some(send.clone()));
    receiver.set_receive(receive.iter().copied().cloned().collect());
    (sender, receiver)
}

const HEADER: Header = Header {
    session: 3,
    index: 0,
    stream: 77,
    sequence: 5,
};

/// A frame with this payload, behind its header.
fn sealed(sender: &Keyring, worker: usize, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; EXTENSION_LEN];
    frame.extend(payload);
    frame.resize(payload.len() + PROTECTION_LEN, 0);
    sender
        .seal(worker, &HEADER, &mut frame)
        .expect("a number is left");
    frame
}

fn opened(receiver: &Keyring, header: &Header, frame: &[u8]) -> Result<Vec<u8>, DropReason> {
    let mut frame = frame.to_vec();
    receiver.open(header, &mut frame)?;
    Ok(frame[EXTENSION_LEN..frame.len() - TAG_LEN].to_vec())
}

#[test]
fn what_was_sealed_is_opened_once() {
    let (send, receive) = pair(1, 1);
    let (sender, receiver) = rings(&send, &[&receive]);
    assert!(!receive.is_in_use());
    for payload in [&b"IP packets"[..], b"", &[7; 1400]] {
        let frame = sealed(&sender, 0, payload);
        assert!(payload.is_empty() || frame[EXTENSION_LEN..][..payload.len()] != *payload);
        assert_eq!(opened(&receiver, &HEADER, &frame).as_deref(), Ok(payload));
        let again = opened(&receiver, &HEADER, &frame);
        assert_eq!(again, Err(DropReason::Replayed));
    }
    assert!(receive.is_in_use());
    assert_eq!(send.sent(), 3);
}

#[test]
fn no_byte_can_be_changed_and_what_was_changed_does_not_keep_the_true_frame_out() {
    let (send, receive) = pair(1, 1);
    let (sender, receiver) = rings(&send, &[&receive]);
    let frame = sealed(&sender, 0, b"a payload");
    for place in 0..frame.len() {
        for bit in 0..8 {
            let mut changed = frame.clone();
            changed[place] ^= 1 << bit;
            let result = opened(&receiver, &HEADER, &changed);
            assert!(result.is_err(), "bit {bit} of byte {place}");
        }
    }
    for len in 0..frame.len() {
        assert!(opened(&receiver, &HEADER, &frame[..len]).is_err());
    }
    for header in [
        Header {
            session: 4,
            ..HEADER
        },
        Header { index: 1, ..HEADER },
        Header {
            stream: 76,
            ..HEADER
        },
        Header {
            sequence: 6,
            ..HEADER
        },
    ] {
        let result = opened(&receiver, &header, &frame);
        assert_eq!(result, Err(DropReason::Forged), "{header:?}");
    }
    assert!(!receive.is_in_use());
    assert!(opened(&receiver, &HEADER, &frame).is_ok());
}

#[test]
fn keys_change_without_a_loss() {
    let (old_send, old) = pair(1, 1);
    let (new_send, new) = pair(2, 1);
    let (sender, receiver) = rings(&old_send, &[&old]);
    let late = sealed(&sender, 0, b"late");
    // The receiver knows the new key before the sender uses it, and the old one for a while longer.
    receiver.set_receive(vec![old.clone(), new.clone()]);
    sender.set_send(Some(new_send));
    let first = sealed(&sender, 0, b"first");
    assert!(opened(&receiver, &HEADER, &first).is_ok() && new.is_in_use());
    assert!(opened(&receiver, &HEADER, &late).is_ok());
    receiver.set_receive(vec![new]);
    assert_eq!(
        opened(&receiver, &HEADER, &late),
        Err(DropReason::UnknownKey)
    );
}

#[test]
fn workers_number_their_frames_by_themselves() {
    let (send, receive) = pair(9, 2);
    let (sender, receiver) = rings(&send, &[&receive]);
    let frames: Vec<_> = (0..4).map(|n| sealed(&sender, n % 2, b"x")).collect();
    let numbers: Vec<_> = frames
        .iter()
        .map(|frame| Extension::decode(frame.first_chunk().expect("an extension")))
        .map(|extension| (extension.key, extension.lane(), extension.count()))
        .collect();
    assert_eq!(numbers, [(9, 0, 0), (9, 1, 0), (9, 0, 1), (9, 1, 1)]);
    for frame in frames.iter().rev() {
        assert!(opened(&receiver, &HEADER, frame).is_ok());
    }
    let mut room = [0; 100];
    assert!(
        sender.seal(2, &HEADER, &mut room).is_none(),
        "no such worker"
    );
    assert!(
        sender.seal(0, &HEADER, &mut room[..27]).is_none(),
        "no room"
    );
    // A sender with more workers than it said.
    let (send, _) = pair(9, 3);
    sender.set_send(Some(send));
    let frame = sealed(&sender, 2, b"x");
    let result = opened(&receiver, &HEADER, &frame);
    assert_eq!(result, Err(DropReason::Forged));
}

#[test]
fn a_key_ends_before_its_numbers_repeat() {
    let (send, _) = pair(1, 1);
    send.lanes[0].0.store(MAX_FRAMES - 1, Ordering::Relaxed);
    let mut frame = [0; 100];
    assert!(send.seal(0, &HEADER, &mut frame).is_some());
    for _ in 0..3 {
        assert!(send.seal(0, &HEADER, &mut frame).is_none());
    }
    assert_eq!(send.sent(), MAX_FRAMES);
}

#[test]
fn secrets_are_not_shown() {
    let (send, receive) = pair(0x1234, 1);
    let text = format!("{send:?} {receive:?}");
    assert!(
        text.contains("Key(00001234)") && !text.contains("iv:"),
        "{text}"
    );
}

proptest! {
    #[test]
    fn anything_is_opened_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..100),
        known in any::<bool>(),
    ) {
        let (send, receive) = pair(1, 1);
        let (_, receiver) = rings(&send, &[&receive]);
        let mut bytes = bytes;
        if known && bytes.len() >= 4 {
            bytes[..4].copy_from_slice(&1_u32.to_be_bytes());
        }
        prop_assert!(receiver.open(&HEADER, &mut bytes).is_err());
    }
}
