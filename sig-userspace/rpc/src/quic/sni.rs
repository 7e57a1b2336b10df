//! Server names that are none.
//!
//! Clients of the reference send ISD-AS and host as TLS server name, such as `1-ff00:0:110,10.0.0.1`. That is no
//! host name (RFC 6066), and rustls refuses the handshake, whatever the server makes of the name. So a
//! [`Server`] shows rustls another name of the same length. Both sides sign and check a hash of what was said,
//! which has to be that of the client's own words: the hash functions of [`provider`] put them back. Nothing is
//! lost by that: the name means nothing to the server, and nobody verifies certificates.

use std::{
    any::Any,
    collections::HashMap,
    net::IpAddr,
    ops::Range,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
};

use quinn::{
    ConnectionId, Side,
    crypto::{
        self, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, UnsupportedVersion,
        rustls::QuicServerConfig,
    },
};
use quinn_proto::{TransportError, transport_parameters::TransportParameters};
use rustls::{
    SupportedCipherSuite, Tls13CipherSuite,
    crypto::{
        CipherSuiteCommon, CryptoProvider,
        hash::{Context, Hash, HashAlgorithm, Output},
        ring,
    },
    pki_types::DnsName,
};

/// Handshake message type of a client's first message (RFC 8446, section 4), and bytes of the header in front of
/// each message: type and length.
const CLIENT_HELLO: u8 = 1;
const HEADER_LEN: usize = 4;
/// Where the client's random number is in its first message: behind header and version.
const RANDOM: Range<usize> = 6..38;
/// Longest first message that is looked at; a longer one is left to rustls.
const LONGEST_HELLO: usize = 16 << 10;

/// A client's random number, by which its first message is recognised.
type Random = [u8; 32];

/// Names that were taken out of first messages: where they were, and what they were.
type Names = HashMap<Random, (usize, Vec<u8>)>;

static NAMES: LazyLock<Mutex<Names>> = LazyLock::new(Mutex::default);

fn names() -> MutexGuard<'static, Names> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// ring's cryptography, with hash functions that know the clients' own words.
pub(super) fn provider() -> CryptoProvider {
    static SUITES: LazyLock<Vec<SupportedCipherSuite>> = LazyLock::new(|| {
        let suites = ring::default_provider().cipher_suites;
        suites.into_iter().filter_map(with_own_words).collect()
    });
    CryptoProvider {
        cipher_suites: SUITES.clone(),
        ..ring::default_provider()
    }
}

fn with_own_words(suite: SupportedCipherSuite) -> Option<SupportedCipherSuite> {
    let suite = suite.tls13()?;
    let hash: &'static TranscriptHash =
        Box::leak(Box::new(TranscriptHash(suite.common.hash_provider)));
    // Leaked once per process and suite: rustls wants suites that live for ever.
    Some(SupportedCipherSuite::Tls13(Box::leak(Box::new(
        Tls13CipherSuite {
            common: CipherSuiteCommon {
                suite: suite.common.suite,
                hash_provider: hash,
                confidentiality_limit: suite.common.confidentiality_limit,
            },
            hkdf_provider: suite.hkdf_provider,
            aead_alg: suite.aead_alg,
            quic: suite.quic,
        },
    ))))
}

/// A hash function that hashes first messages as they were sent.
struct TranscriptHash(&'static dyn Hash);

impl Hash for TranscriptHash {
    fn start(&self) -> Box<dyn Context> {
        Box::new(Words(self.0.start()))
    }

    fn hash(&self, data: &[u8]) -> Output {
        match as_sent(data) {
            Some(sent) => self.0.hash(&sent),
            None => self.0.hash(data),
        }
    }

    fn output_len(&self) -> usize {
        self.0.output_len()
    }

    fn algorithm(&self) -> HashAlgorithm {
        self.0.algorithm()
    }
}

struct Words(Box<dyn Context>);

impl Context for Words {
    fn fork_finish(&self) -> Output {
        self.0.fork_finish()
    }

    fn fork(&self) -> Box<dyn Context> {
        Box::new(Words(self.0.fork()))
    }

    fn finish(self: Box<Self>) -> Output {
        self.0.finish()
    }

    fn update(&mut self, data: &[u8]) {
        match as_sent(data) {
            Some(sent) => self.0.update(&sent),
            None => self.0.update(data),
        }
    }
}

/// A first message with the name that its client sent, if it shows another one.
fn as_sent(message: &[u8]) -> Option<Vec<u8>> {
    if message.first() != Some(&CLIENT_HELLO) {
        return None;
    }
    let random: Random = message.get(RANDOM)?.try_into().ok()?;
    let (at, name) = names().get(&random)?.clone();
    let mut sent = message.to_vec();
    sent.get_mut(at..at + name.len())?.copy_from_slice(&name);
    Some(sent)
}

/// The TLS of a QUIC server that does not mind what clients call it. Its rustls has to be that of [`provider`].
pub(super) struct Server(pub(super) Arc<QuicServerConfig>);

impl crypto::ServerConfig for Server {
    fn initial_keys(&self, version: u32, id: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        crypto::ServerConfig::initial_keys(&*self.0, version, id)
    }

    fn retry_tag(&self, version: u32, original: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.0.retry_tag(version, original, packet)
    }

    fn start_session(
        self: Arc<Self>,
        version: u32,
        params: &TransportParameters,
    ) -> Box<dyn crypto::Session> {
        Box::new(Session {
            inner: self.0.clone().start_session(version, params),
            hello: Some(Vec::new()),
            random: None,
        })
    }
}

/// A handshake, and what it protects.
struct Session {
    inner: Box<dyn crypto::Session>,
    /// What has come of the client's first message; none once it has been passed on.
    hello: Option<Vec<u8>>,
    /// The key in [`NAMES`].
    random: Option<Random>,
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(random) = &self.random {
            names().remove(random);
        }
    }
}

impl crypto::Session for Session {
    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        let Some(mut hello) = self.hello.take() else {
            return self.inner.read_handshake(buf);
        };
        hello.extend_from_slice(buf);
        if let &[CLIENT_HELLO, a, b, c, ..] = hello.as_slice() {
            let len = HEADER_LEN + u32::from_be_bytes([0, a, b, c]) as usize;
            if hello.len() < len && len <= LONGEST_HELLO {
                self.hello = Some(hello);
                return Ok(false);
            }
            self.random = replace_name(&mut hello);
        } else if hello.len() < HEADER_LEN {
            self.hello = Some(hello);
            return Ok(false);
        }
        self.inner.read_handshake(&hello)
    }

    fn initial_keys(&self, id: &ConnectionId, side: Side) -> Keys {
        self.inner.initial_keys(id, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.inner.handshake_data()
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.inner.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.inner.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.inner.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.inner.transport_parameters()
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        self.inner.write_handshake(buf)
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        self.inner.next_1rtt_keys()
    }

    fn is_valid_retry(&self, original: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.inner.is_valid_retry(original, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.inner.export_keying_material(output, label, context)
    }
}

/// Puts a host name in the place of a server name that is none, and remembers what was there, under the client's
/// random number.
fn replace_name(hello: &mut [u8]) -> Option<Random> {
    let at = name_in(hello)?;
    let name = hello.get(at.clone())?;
    let text = std::str::from_utf8(name).ok();
    if text.is_some_and(|text| DnsName::try_from(text).is_ok() || text.parse::<IpAddr>().is_ok()) {
        return None;
    }
    let random: Random = hello.get(RANDOM)?.try_into().ok()?;
    names().insert(random, (at.start, name.to_vec()));
    let len = at.len();
    for (place, byte) in hello.get_mut(at)?.iter_mut().enumerate() {
        // Labels have at most 63 bytes, and none is empty.
        *byte = if place % 64 == 63 && place + 1 < len {
            b'.'
        } else {
            b'x'
        };
    }
    Some(random)
}

/// Where the host name is in a client's first message (RFC 8446, section 4.1.2, and RFC 6066, section 3).
fn name_in(hello: &[u8]) -> Option<Range<usize>> {
    let byte = |at: usize| hello.get(at).map(|byte| usize::from(*byte));
    let short = |at: usize| Some(byte(at)? << 8 | byte(at + 1)?);
    let mut at = RANDOM.end;
    at += 1 + byte(at)?; // session id
    at += 2 + short(at)?; // cipher suites
    at += 1 + byte(at)?; // compression methods
    let end = at + 2 + short(at)?;
    at += 2;
    while at < end {
        let (kind, len) = (short(at)?, short(at + 2)?);
        at += 4;
        if kind == 0 {
            // The list's length, the kind of name (0: host), the name's length.
            let name = at + 5;
            let range = name..name + short(at + 3)?;
            return (byte(at + 2)? == 0 && range.end <= at + len && range.end <= hello.len())
                .then_some(range);
        }
        at += len;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A first message with nothing but a server name.
    fn hello(random: u8, name: &[u8]) -> Vec<u8> {
        let short = |value: usize| (value as u16).to_be_bytes();
        let mut body = vec![3, 3];
        body.extend([random; 32]);
        body.push(0);
        body.extend([0, 2, 0x13, 0x01, 1, 0]);
        // Another extension first.
        let mut extensions = vec![0, 43, 0, 3, 2, 3, 4, 0, 0];
        extensions.extend(short(name.len() + 5));
        extensions.extend(short(name.len() + 3));
        extensions.push(0);
        extensions.extend(short(name.len()));
        extensions.extend(name);
        body.extend(short(extensions.len()));
        body.extend(extensions);
        let mut message = vec![CLIENT_HELLO, 0];
        message.extend(short(body.len()));
        message.extend(body);
        message
    }

    #[test]
    fn a_name_that_is_none_is_replaced_and_hashed_as_it_was() {
        let long = [b','; 200];
        for (random, name) in [(1, &b"1-ff00:0:110,10.0.0.1"[..]), (2, b"\xff"), (3, &long)] {
            let sent = hello(random, name);
            let mut shown = sent.clone();
            assert_eq!(replace_name(&mut shown), Some([random; 32]));
            let at = name_in(&shown).expect("a name");
            let text = std::str::from_utf8(&shown[at]).expect("text");
            assert!(DnsName::try_from(text).is_ok(), "{text}");
            assert_eq!(as_sent(&shown), Some(sent.clone()));
            for suite in provider().cipher_suites {
                let own = suite.tls13().expect("TLS 1.3").common.hash_provider;
                let plain = ring::default_provider().cipher_suites;
                let plain = plain.iter().find(|plain| plain.suite() == suite.suite());
                let plain = plain
                    .and_then(|plain| plain.tls13())
                    .expect("the same suite");
                let wanted = plain.common.hash_provider.hash(&sent);
                assert_eq!(own.hash(&shown).as_ref(), wanted.as_ref());
                let mut context = own.start();
                context.update(&shown);
                assert_eq!(context.finish().as_ref(), wanted.as_ref());
            }
            names().remove(&[random; 32]);
            assert_eq!(as_sent(&shown), None);
        }
    }

    #[test]
    fn host_names_and_addresses_stay() {
        for name in [&b"gateway.example.org"[..], b"10.0.0.1"] {
            let mut message = hello(9, name);
            assert_eq!(replace_name(&mut message), None);
            assert_eq!(message, hello(9, name));
        }
    }

    #[test]
    fn messages_that_are_cut_off_have_no_name() {
        let message = hello(9, b"a,b");
        for len in 0..message.len() {
            assert_eq!(name_in(&message[..len]), None, "{len}");
        }
    }
}
