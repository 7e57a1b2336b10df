//! Keys for frames, from the TLS connections over which gateways ask each other for prefixes.
//!
//! Certificates prove nothing here ([crate]). So each side signs, with the key that is its identity, something that only the
//! two ends of this very connection can compute (an exporter of TLS 1.3, RFC 8446 section 7.5, as for channel bindings,
//! RFC 9266): who sits in the middle has two connections, and a signature for one is wrong on the other.
//!
//! A key is exported from the connection on both sides, with random bytes and its number as the context. The one who asked sends under
//! it, the one who was asked receives.

use std::sync::Arc;

use prost::Message as _;
use rand::{Rng as _, SeedableRng as _};
use ring::{
    aead::{AES_128_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey},
    rand::SystemRandom,
    signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey},
};
use sig_common::wire::sig_frame::TAG_LEN;
use sig_core::protection::{
    Cipher, Greeting, Hello, Identity, Key, MAX_LANES, NONCE_LEN, Offer, ReceiveKey, Refusal,
    Reply, SendKey,
};

use crate::{
    RpcError,
    messages::{
        IdentityProof, PrefixesRequest, PrefixesResponse, ProtectionAnswer, ProtectionOffer,
    },
    quic::Peer,
};

/// What identities are proven with.
const IDENTITY_LABEL: &[u8] = b"EXPORTER-sig-gateway-identity";
/// What keys are made of.
const KEY_LABEL: &[u8] = b"EXPORTER-sig-frame-key";
/// In front of what is signed, with the side behind it.
const SIGNED: &[u8] = b"sig gateway identity 1: ";
/// Random bytes in an offer.
const SALT_LEN: usize = 16;
/// Longest key of an AEAD.
const MAX_KEY_LEN: usize = 32;
/// Numbers of keys that are read in a message.
const MAX_HOLDING: usize = 16;

/// Which end of a connection.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Client,
    Server,
}

impl Side {
    const fn name(self) -> &'static [u8] {
        match self {
            Side::Client => b"client",
            Side::Server => b"server",
        }
    }
}

/// The secret of a gateway by which others know it.
pub struct OwnIdentity(Ed25519KeyPair);

impl OwnIdentity {
    /// A new one, and the PKCS #8 document that holds it.
    ///
    /// # Errors
    /// [`RpcError::Endpoint`] without random numbers.
    pub fn generate() -> Result<(Self, Vec<u8>), RpcError> {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new())
            .map_err(|_| RpcError::Endpoint("there are no random numbers".to_owned()))?;
        let identity = Self::read(document.as_ref()).map_err(RpcError::Endpoint)?;
        Ok((identity, document.as_ref().to_vec()))
    }

    /// That of a PKCS #8 document.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(document: &[u8]) -> Result<Self, String> {
        Ed25519KeyPair::from_pkcs8_maybe_unchecked(document)
            .map(OwnIdentity)
            .map_err(|error| format!("this is no Ed25519 key in PKCS #8 ({error})"))
    }

    /// What others know it by.
    #[must_use]
    pub fn public(&self) -> Identity {
        let mut key = [0; 32];
        let public = self.0.public_key().as_ref();
        // Always as long.
        for (to, from) in key.iter_mut().zip(public) {
            *to = *from;
        }
        Identity(key)
    }

    fn prove(&self, channel: &quinn::Connection, side: Side) -> Option<IdentityProof> {
        Some(IdentityProof {
            public_key: self.public().0.to_vec(),
            signature: self.0.sign(&signed(channel, side)?).as_ref().to_vec(),
        })
    }
}

impl std::fmt::Debug for OwnIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OwnIdentity({})", self.public())
    }
}

/// What the end of a connection signs; `None` before it has been established.
fn signed(channel: &quinn::Connection, side: Side) -> Option<Vec<u8>> {
    let mut binding = [0; 32];
    channel
        .export_keying_material(&mut binding, IDENTITY_LABEL, b"")
        .ok()?;
    Some([SIGNED, side.name(), b"\0", &binding].concat())
}

/// Who is at the other end of a connection, if that is proven.
pub(crate) fn proven(
    channel: &quinn::Connection,
    side: Side,
    proof: Option<&IdentityProof>,
) -> Option<Identity> {
    let proof = proof?;
    let identity = Identity(proof.public_key.as_slice().try_into().ok()?);
    UnparsedPublicKey::new(&ED25519, &identity.0)
        .verify(&signed(channel, side)?, &proof.signature)
        .ok()?;
    Some(identity)
}

/// An AEAD by its number in messages.
fn algorithm(number: u32) -> Option<&'static Algorithm> {
    match number {
        1 => Some(&AES_128_GCM),
        2 => Some(&CHACHA20_POLY1305),
        _ => None,
    }
}

/// What we have, best first. Without instructions for AES, that is slower, and not of constant time.
fn own_ciphers() -> Vec<u32> {
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    let has_aes = std::arch::is_x86_feature_detected!("aes")
        && std::arch::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    let has_aes = std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull");
    #[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
    let has_aes = false;
    match has_aes {
        true => vec![1, 2],
        false => vec![2],
    }
}

/// An AEAD of the library, with its key.
struct Sealer(LessSafeKey);

impl Cipher for Sealer {
    #[inline]
    fn seal(&self, nonce: [u8; NONCE_LEN], head: &[u8], data: &mut [u8]) -> Option<[u8; TAG_LEN]> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self
            .0
            .seal_in_place_separate_tag(nonce, Aad::from(head), data);
        tag.ok()?.as_ref().try_into().ok()
    }

    #[inline]
    fn open(&self, nonce: [u8; NONCE_LEN], head: &[u8], data: &mut [u8]) -> bool {
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.0.open_in_place(nonce, Aad::from(head), data).is_ok()
    }
}

/// The key of this material, which has at least as many bytes as it takes.
fn key_of(algorithm: &'static Algorithm, material: &[u8], number: u32) -> Option<Key> {
    let (secret, rest) = material.split_at_checked(algorithm.key_len())?;
    let key = UnboundKey::new(algorithm, secret).ok()?;
    Some(Key {
        cipher: Box::new(Sealer(LessSafeKey::new(key))),
        iv: *rest.first_chunk()?,
        number,
    })
}

/// The key of this number that both ends of a connection can make.
fn derive(channel: &quinn::Connection, salt: &[u8], cipher: u32, number: u32) -> Option<Key> {
    let algorithm = algorithm(cipher)?;
    let context = [salt, &cipher.to_be_bytes(), &number.to_be_bytes()].concat();
    let mut material = [0; MAX_KEY_LEN + NONCE_LEN];
    channel
        .export_keying_material(&mut material, KEY_LABEL, &context)
        .ok()?;
    key_of(algorithm, &material, number)
}

/// Both ends of a key that nobody agreed on: for tests and measurements. So many workers number frames under it.
///
/// # Errors
/// If the cryptography library refuses.
pub fn unagreed_key(workers: usize) -> Result<(SendKey, ReceiveKey), RpcError> {
    unagreed_key_of(rand::random(), workers)
}

/// The same, of this seed. Who seals under a key of a seed twice, as after a restart, protects nothing.
///
/// # Errors
/// If the cryptography library refuses.
pub fn unagreed_key_of(seed: u64, workers: usize) -> Result<(SendKey, ReceiveKey), RpcError> {
    let mut rng = rand::rngs::StdRng::seed_from_u64(seed);
    let mut material = [0; MAX_KEY_LEN + NONCE_LEN];
    rng.fill(&mut material[..]);
    let number = rng.random();
    let cipher = own_ciphers().first().copied().and_then(algorithm);
    let key = || {
        cipher
            .and_then(|cipher| key_of(cipher, &material, number))
            .ok_or_else(|| RpcError::Endpoint("the AEAD is not there".to_owned()))
    };
    Ok((
        SendKey::new(key()?, workers),
        ReceiveKey::new(key()?, workers),
    ))
}

/// The client's part of one exchange.
pub(crate) struct Asking {
    own: Arc<OwnIdentity>,
    hello: Hello,
    salt: [u8; SALT_LEN],
    etag: String,
}

impl Asking {
    pub(crate) fn new(own: Arc<OwnIdentity>, hello: Hello, etag: &str) -> Self {
        Asking {
            own,
            hello,
            salt: rand::random(),
            etag: etag.to_owned(),
        }
    }

    /// The request over this connection.
    pub(crate) fn request(&self, channel: &quinn::Connection) -> Vec<u8> {
        let wants = self.hello.wants_key;
        let proof = self.own.prove(channel, Side::Client);
        PrefixesRequest {
            etag: self.etag.clone(),
            protection: proof.map(|proof| ProtectionOffer {
                proof: Some(proof),
                holding: self.hello.holding.clone(),
                ciphers: if wants { own_ciphers() } else { Vec::new() },
                salt: if wants {
                    self.salt.to_vec()
                } else {
                    Vec::new()
                },
                workers: u32::try_from(self.hello.workers).unwrap_or(u32::MAX),
            }),
        }
        .encode_to_vec()
    }

    /// What the answer over this connection says; `None` if the gateway does not protect frames, or cannot prove who it is.
    pub(crate) fn greeting(
        &self,
        channel: &quinn::Connection,
        answer: &ProtectionAnswer,
    ) -> Option<Greeting> {
        let identity = proven(channel, Side::Server, answer.proof.as_ref())?;
        let (mut key, mut refusal) = (None, None);
        if self.hello.wants_key {
            key = own_ciphers()
                .contains(&answer.cipher)
                .then(|| derive(channel, &self.salt, answer.cipher, answer.key))
                .flatten()
                .map(|key| Arc::new(SendKey::new(key, self.hello.workers)));
            refusal = match (&key, answer.refusal) {
                (Some(_), _) => None,
                (None, 1) => Some(Refusal::NotYet),
                (None, _) => Some(Refusal::Refused),
            };
        }
        Some(Greeting {
            identity,
            holding: answer.holding.iter().copied().take(MAX_HOLDING).collect(),
            key,
            refusal,
        })
    }
}

/// Decides about an offer. A key is made, and from then on taken, only if it is called.
pub type Decide = dyn Fn(Peer, Option<&Offer>, &mut dyn FnMut() -> Option<Arc<ReceiveKey>>) -> Option<Reply>
    + Send
    + Sync;

/// Whether anything may be decided about a caller, as far as can be told by whom it claims to be.
pub type Concerns = dyn Fn(Peer) -> bool + Send + Sync;

/// The server's part: answers offers.
pub struct Answering {
    own: Arc<OwnIdentity>,
    concerns: Box<Concerns>,
    decide: Box<Decide>,
}

impl Answering {
    /// Decisions are those of `decide`, which is also told of callers that offer nothing; `None`: they are answered nothing.
    /// Signatures are checked and made for those only whom it `concerns`.
    pub fn new(own: Arc<OwnIdentity>, concerns: Box<Concerns>, decide: Box<Decide>) -> Self {
        Answering {
            own,
            concerns,
            decide,
        }
    }

    /// Completes the answer to a caller.
    pub(crate) fn answer(
        &self,
        caller: Peer,
        channel: &quinn::Connection,
        offer: Option<&ProtectionOffer>,
        answer: &mut PrefixesResponse,
    ) {
        answer.protection = self.reply(caller, channel, offer);
    }

    fn reply(
        &self,
        caller: Peer,
        channel: &quinn::Connection,
        offer: Option<&ProtectionOffer>,
    ) -> Option<ProtectionAnswer> {
        let Some(message) = offer else {
            (self.decide)(caller, None, &mut || None);
            return None;
        };
        if !(self.concerns)(caller) {
            return None;
        }
        let identity = proven(channel, Side::Client, message.proof.as_ref())?;
        let known = own_ciphers();
        let mut offered = message.ciphers.iter().copied().take(MAX_HOLDING);
        let cipher = offered.find(|cipher| known.contains(cipher));
        let workers = message.workers as usize;
        let is_sound = message.salt.len() == SALT_LEN && (1..=MAX_LANES).contains(&workers);
        let offer = Offer {
            identity,
            holding: message.holding.iter().copied().take(MAX_HOLDING).collect(),
            wants_key: cipher.is_some() && is_sound,
        };
        let number = rand::random();
        let reply = (self.decide)(caller, Some(&offer), &mut || {
            let key = derive(channel, &message.salt, cipher?, number)?;
            Some(Arc::new(ReceiveKey::new(key, workers)))
        })?;
        let is_given = offer.wants_key && reply.decision.is_ok();
        Some(ProtectionAnswer {
            proof: self.own.prove(channel, Side::Server),
            holding: reply.holding,
            cipher: cipher.filter(|_| is_given).unwrap_or_default(),
            key: if is_given { number } else { 0 },
            refusal: match reply.decision {
                Ok(()) => 0,
                Err(Refusal::NotYet) => 1,
                Err(Refusal::Refused) => 2,
            },
        })
    }
}

impl std::fmt::Debug for Answering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answering")
            .field("own", &self.own)
            .finish_non_exhaustive()
    }
}
