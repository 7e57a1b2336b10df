//! Frames that cannot be forged: keys that two gateways have agreed on, and what is done with them per frame.
//!
//! Where the keys come from is the control plane's matter. A [`Keyring`] holds those of one remote gateway; the control plane
//! changes it, workers read it. A frame is bound to its key by its header and number, which are authenticated in the clear
//! ([`sig_frame`](sig_common::wire::sig_frame) says where what is), so whoever changes any of it, outside of the headers that the network writes, is
//! found out before anything is done with the frame.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use arc_swap::{ArcSwap, ArcSwapOption};
use sig_common::{
    reason::DropReason,
    wire::sig_frame::{EXTENSION_LEN, Extension, HEADER_LEN, Header, TAG_LEN},
};

mod exchange;
mod window;

pub use exchange::{Greeting, Hello, Identity, Offer, Refusal, Reply};
use window::Window;

/// Bytes of the nonces of an AEAD.
pub const NONCE_LEN: usize = 12;
/// Most workers that number frames under one key.
pub const MAX_LANES: usize = 64;
/// Frames that one worker may send under one key, far more than are sent before the next key comes.
const MAX_FRAMES: u64 = 1 << 36;

/// What is authenticated in the clear.
type Head = [u8; HEADER_LEN + EXTENSION_LEN];

/// An AEAD with its key. Nonces must not be used twice for sealing.
pub trait Cipher: Send + Sync {
    /// Encrypts `data` where it is, and returns the tag over it and `head`; `None` if there is too much of it.
    fn seal(&self, nonce: [u8; NONCE_LEN], head: &[u8], data: &mut [u8]) -> Option<[u8; TAG_LEN]>;

    /// Decrypts `data`, at whose end the tag is, where it is. Whether it is authentic; if not, `data` is of no use afterwards.
    fn open(&self, nonce: [u8; NONCE_LEN], head: &[u8], data: &mut [u8]) -> bool;
}

/// What both sides need of a key.
pub struct Key {
    /// The AEAD.
    pub cipher: Box<dyn Cipher>,
    /// Makes nonces from the numbers of frames.
    pub iv: [u8; NONCE_LEN],
    /// Under which the receiver knows it.
    pub number: u32,
}

impl Key {
    fn nonce(&self, number: u64) -> [u8; NONCE_LEN] {
        let mut nonce = self.iv;
        for (byte, with) in nonce[NONCE_LEN - 8..].iter_mut().zip(number.to_be_bytes()) {
            *byte ^= with;
        }
        nonce
    }
}

impl fmt::Debug for Key {
    /// Without what is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:08x})", self.number)
    }
}

/// A key for frames to a remote gateway.
#[derive(Debug)]
pub struct SendKey {
    key: Key,
    lanes: Box<[Lane]>,
}

/// How many frames a worker has sent. Aligned so that workers do not share cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Lane(AtomicU64);

impl SendKey {
    /// Nothing has been sent under the key, and so many workers may, at most [`MAX_LANES`].
    #[must_use]
    pub fn new(key: Key, workers: usize) -> Self {
        SendKey {
            key,
            lanes: (0..workers.min(MAX_LANES))
                .map(|_| Lane::default())
                .collect(),
        }
    }

    /// Under which the receiver knows it.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.key.number
    }

    /// Frames sent under it.
    #[must_use]
    pub fn sent(&self) -> u64 {
        let lanes = self.lanes.iter();
        lanes.map(|lane| lane.0.load(Ordering::Relaxed)).sum()
    }

    /// Protects a frame of this worker. `frame` is what follows its header: room for the extension, the payload, room for the tag.
    /// `None` if no number is left, or there is no room; the frame must then not be sent.
    #[inline]
    pub fn seal(&self, worker: usize, header: &Header, frame: &mut [u8]) -> Option<()> {
        let lane = self.lanes.get(worker)?;
        // A worker is alone on its lane; if it were not, numbers would still not be used twice.
        let count = lane.0.fetch_add(1, Ordering::Relaxed);
        if count >= MAX_FRAMES {
            lane.0.store(MAX_FRAMES, Ordering::Relaxed);
            return None;
        }
        let extension = Extension {
            key: self.key.number,
            number: (worker as u64) << 56 | count,
        };
        let (room, rest) = frame.split_first_chunk_mut::<EXTENSION_LEN>()?;
        let (payload, tag) = rest.split_last_chunk_mut::<TAG_LEN>()?;
        *room = extension.encode();
        let head = head(header, room);
        *tag = self
            .key
            .cipher
            .seal(self.key.nonce(extension.number), &head, payload)?;
        Some(())
    }
}

/// A key for frames from a remote gateway.
#[derive(Debug)]
pub struct ReceiveKey {
    key: Key,
    /// Which frames came, by the sender's worker; made when the first one comes.
    lanes: Box<[OnceLock<Window>]>,
    opened: AtomicBool,
}

impl ReceiveKey {
    /// Nothing has come under the key, and so many workers of the sender use it, at most [`MAX_LANES`].
    #[must_use]
    pub fn new(key: Key, workers: usize) -> Self {
        ReceiveKey {
            key,
            lanes: (0..workers.min(MAX_LANES))
                .map(|_| OnceLock::new())
                .collect(),
            opened: AtomicBool::new(false),
        }
    }

    /// Under which the sender names it.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.key.number
    }

    /// Whether any frame has come under it.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        self.opened.load(Ordering::Relaxed)
    }

    #[inline]
    fn open(&self, header: &Header, frame: &mut [u8]) -> Result<(), DropReason> {
        let (extension, sealed) = frame
            .split_first_chunk_mut::<EXTENSION_LEN>()
            .ok_or(DropReason::BadFrameLen)?;
        let head = head(header, extension);
        let extension = Extension::decode(extension);
        let (lane, count) = (usize::from(extension.lane()), extension.count());
        let window = self.lanes.get(lane).ok_or(DropReason::Forged)?;
        // What would be refused afterwards in any case need not be decrypted.
        let may_come = |window: &Window| window.would_take(count);
        if count >= MAX_FRAMES || !window.get().is_none_or(may_come) {
            return Err(DropReason::Replayed);
        }
        let nonce = self.key.nonce(extension.number);
        if !self.key.cipher.open(nonce, &head, sealed) {
            return Err(DropReason::Forged);
        }
        if !window.get_or_init(Window::default).take(count) {
            return Err(DropReason::Replayed);
        }
        if !self.opened.load(Ordering::Relaxed) {
            self.opened.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

#[inline]
fn head(header: &Header, extension: &[u8; EXTENSION_LEN]) -> Head {
    let mut head = [0; HEADER_LEN + EXTENSION_LEN];
    head[..HEADER_LEN].copy_from_slice(&header.encode_protected());
    head[HEADER_LEN..].copy_from_slice(extension);
    head
}

/// The keys of one remote gateway.
#[derive(Debug, Default)]
pub struct Keyring {
    send: ArcSwapOption<SendKey>,
    /// The one in use, those that came before and may still have frames on their way, and the one to come.
    receive: ArcSwap<Vec<Arc<ReceiveKey>>>,
}

/// Keyrings are the same if changes of one are changes of the other.
impl PartialEq for Keyring {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Keyring {}

impl Keyring {
    /// Sets the key for frames to the remote.
    pub fn set_send(&self, key: Option<Arc<SendKey>>) {
        self.send.store(key);
    }

    /// The key for frames to the remote.
    #[must_use]
    pub fn send(&self) -> Option<Arc<SendKey>> {
        self.send.load_full()
    }

    /// Sets the keys for frames from the remote. Once this returns, frames under these are taken.
    pub fn set_receive(&self, keys: Vec<Arc<ReceiveKey>>) {
        self.receive.store(keys.into());
    }

    /// The keys for frames from the remote.
    #[must_use]
    pub fn receive(&self) -> Arc<Vec<Arc<ReceiveKey>>> {
        self.receive.load_full()
    }

    /// Protects a frame to the remote: see [`SendKey::seal`].
    #[inline]
    pub fn seal(&self, worker: usize, header: &Header, frame: &mut [u8]) -> Option<()> {
        self.send.load().as_ref()?.seal(worker, header, frame)
    }

    /// Opens a frame from the remote, with what follows its header: extension, payload and tag. The payload is then where it was
    /// before, as it was sent.
    ///
    /// # Errors
    ///
    /// Why the frame must be dropped; its payload is of no use then.
    #[inline]
    pub fn open(&self, header: &Header, frame: &mut [u8]) -> Result<(), DropReason> {
        let extension = frame
            .first_chunk::<EXTENSION_LEN>()
            .ok_or(DropReason::BadFrameLen)?;
        let number = Extension::decode(extension).key;
        let keys = self.receive.load();
        let mut known = keys.iter().filter(|key| key.number() == number);
        let key = known.next().ok_or(DropReason::UnknownKey)?;
        key.open(header, frame)
    }
}

#[cfg(test)]
pub(crate) mod tests;
