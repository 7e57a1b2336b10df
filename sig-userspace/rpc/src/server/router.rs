//! Which method answers what.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use ipnet::IpNet;
use prost::Message;
use sha2::{Digest as _, Sha256};
use sig_common::addr::IsdAs;

use crate::{
    Code, GATEWAYS, PREFIXES, Status, checked,
    messages::{
        Gateway, GatewaysRequest, GatewaysResponse, Prefix, PrefixesRequest, PrefixesResponse,
    },
    protection::Answering,
    quic::Peer,
};
use sig_core::notation::to_hex;

/// Most bytes of a request, whatever the limit of messages is: requests are short.
const MAX_REQUEST: u32 = 64 << 10;

type Handler = dyn Fn(&Caller, &[u8]) -> Result<Vec<u8>, Status> + Send + Sync;

/// Who calls.
pub(crate) struct Caller {
    pub(crate) peer: Peer,
    /// Over which connection.
    pub(crate) channel: Option<quinn::Connection>,
}

/// The methods of a server. Handlers answer from memory: they are called on the threads that carry the network.
#[derive(Default)]
pub struct Router {
    methods: Vec<Method>,
    unknown: AtomicU64,
    limit: u32,
}

struct Method {
    path: &'static str,
    handler: Box<Handler>,
    answered: AtomicU64,
    failed: AtomicU64,
}

/// How often a method was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodCounts {
    /// `/package.Service/Method`.
    pub method: &'static str,
    /// Calls that got an answer.
    pub answered: u64,
    /// Calls that got an error.
    pub failed: u64,
}

impl Router {
    /// Without methods.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a method `/package.Service/Method`.
    #[must_use]
    pub fn unary<Q, A>(
        self,
        method: &'static str,
        handler: impl Fn(Peer, Q) -> Result<A, Status> + Send + Sync + 'static,
    ) -> Self
    where
        Q: Message + Default,
        A: Message,
    {
        self.add(method, move |caller, request| handler(caller.peer, request))
    }

    pub(crate) fn add<Q, A>(
        mut self,
        method: &'static str,
        handler: impl Fn(&Caller, Q) -> Result<A, Status> + Send + Sync + 'static,
    ) -> Self
    where
        Q: Message + Default,
        A: Message,
    {
        let handler = move |caller: &Caller, message: &[u8]| {
            let request = Q::decode(message)
                .map_err(|error| Status::new(Code::InvalidArgument, error.to_string()))?;
            Ok(handler(caller, request)?.encode_to_vec())
        };
        self.methods.push(Method {
            path: method,
            handler: Box::new(handler),
            answered: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        });
        self
    }

    /// Adds the method [`PREFIXES`] of a gateway: `prefixes` are those that an AS is told. Who sends the etag of what
    /// we would answer gets an empty list with that etag; an empty etag, as the reference sends it, always gets the
    /// list.
    #[must_use]
    pub fn prefixes(self, prefixes: impl Fn(IsdAs) -> Vec<IpNet> + Send + Sync + 'static) -> Self {
        self.unary(PREFIXES, move |caller, request: PrefixesRequest| {
            Ok(answer(prefixes(caller.isd_as), &request.etag))
        })
    }

    /// The same, and agrees with those who can on keys for frames.
    #[must_use]
    pub fn prefixes_and_keys(
        self,
        prefixes: impl Fn(IsdAs) -> Vec<IpNet> + Send + Sync + 'static,
        keys: Answering,
    ) -> Self {
        self.add(PREFIXES, move |caller, request: PrefixesRequest| {
            let mut answer = answer(prefixes(caller.peer.isd_as), &request.etag);
            if let Some(channel) = &caller.channel {
                keys.answer(
                    caller.peer,
                    channel,
                    request.protection.as_ref(),
                    &mut answer,
                );
            }
            Ok(answer)
        })
    }

    /// Adds the method [`GATEWAYS`] of a control service: `gateways` are those that an AS is told.
    #[must_use]
    pub fn gateways(
        self,
        gateways: impl Fn(IsdAs) -> Vec<Gateway> + Send + Sync + 'static,
    ) -> Self {
        self.unary(GATEWAYS, move |caller, _: GatewaysRequest| {
            Ok(GatewaysResponse {
                gateways: gateways(caller.isd_as),
            })
        })
    }

    pub(super) fn with_limit(mut self, message_bytes: u32) -> Self {
        self.limit = message_bytes.min(MAX_REQUEST);
        self
    }

    pub(super) fn max_request(&self) -> u32 {
        self.limit
    }

    pub(super) fn call(
        &self,
        caller: &Caller,
        path: &str,
        message: &[u8],
    ) -> Result<Vec<u8>, Status> {
        let Some(method) = self.methods.iter().find(|method| method.path == path) else {
            self.unknown.fetch_add(1, Relaxed);
            return Err(Status::new(Code::Unimplemented, "no such method"));
        };
        let answer = (method.handler)(caller, message);
        let counter = match answer {
            Ok(_) => &method.answered,
            Err(_) => &method.failed,
        };
        counter.fetch_add(1, Relaxed);
        answer
    }

    /// Calls by method, and those of unknown methods.
    pub(super) fn counts(&self) -> (Vec<MethodCounts>, u64) {
        let methods = self.methods.iter().map(|method| MethodCounts {
            method: method.path,
            answered: method.answered.load(Relaxed),
            failed: method.failed.load(Relaxed),
        });
        (methods.collect(), self.unknown.load(Relaxed))
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.methods.iter().map(|method| method.path))
            .finish()
    }
}

fn answer(mut prefixes: Vec<IpNet>, known: &str) -> PrefixesResponse {
    prefixes.sort_unstable();
    prefixes.dedup();
    let prefixes: Vec<_> = prefixes.iter().map(checked::prefix_message).collect();
    let etag = etag(&prefixes);
    PrefixesResponse {
        prefixes: if known == etag { Vec::new() } else { prefixes },
        etag,
        protection: None,
    }
}

/// Names a list of prefixes; never empty.
fn etag(prefixes: &[Prefix]) -> String {
    let mut hash = Sha256::new();
    for prefix in prefixes {
        hash.update([prefix.prefix.len() as u8, prefix.mask as u8]);
        hash.update(&prefix.prefix);
    }
    to_hex(&hash.finalize()[..16])
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLER: &str = "1-ff00:0:111";

    fn caller() -> Caller {
        Caller {
            peer: Peer {
                isd_as: CALLER.parse().unwrap(),
                address: "10.0.0.1:1".parse().unwrap(),
            },
            channel: None,
        }
    }

    fn ask(router: &Router, etag: &str) -> PrefixesResponse {
        let request = PrefixesRequest {
            etag: etag.to_owned(),
            protection: None,
        };
        let answer = router.call(&caller(), PREFIXES, &request.encode_to_vec());
        PrefixesResponse::decode(answer.expect("an answer").as_slice()).expect("a message")
    }

    fn serving(prefixes: &[&str]) -> Router {
        let prefixes: Vec<IpNet> = prefixes.iter().map(|p| p.parse().unwrap()).collect();
        Router::new().with_limit(1000).prefixes(move |isd_as| {
            assert_eq!(isd_as.to_string(), CALLER);
            prefixes.clone()
        })
    }

    #[test]
    fn an_empty_etag_always_gets_the_whole_list() {
        let router = serving(&["127.0.1.0/24", "127.0.0.0/24", "::/64"]);
        for _ in 0..2 {
            let answer = ask(&router, "");
            assert_eq!(answer.prefixes.len(), 3);
            assert_eq!(answer.prefixes[0].prefix, [127, 0, 0, 0]);
            assert_eq!(answer.prefixes[0].mask, 24);
            assert_eq!(answer.prefixes[2].prefix, [0; 16]);
        }
        assert_eq!(router.counts().0[0].answered, 2);
    }

    #[test]
    fn the_etag_of_the_list_gets_no_list_and_another_one_does() {
        let before = serving(&["10.0.0.0/8"]);
        let etag = ask(&before, "").etag;
        let unchanged = ask(&before, &etag);
        assert!(unchanged.prefixes.is_empty());
        assert_eq!(unchanged.etag, etag);
        let after = serving(&["10.0.0.0/9"]);
        assert_eq!(ask(&after, &etag).prefixes.len(), 1);
        assert_ne!(ask(&after, &etag).etag, etag);
    }

    #[test]
    fn nobody_is_told_nothing_without_an_error() {
        let answer = ask(&serving(&[]), "");
        assert!(answer.prefixes.is_empty());
        assert!(!answer.etag.is_empty());
    }

    #[test]
    fn order_and_repetitions_do_not_change_the_etag() {
        let etag = |prefixes: &[&str]| ask(&serving(prefixes), "").etag;
        assert_eq!(
            etag(&["10.0.0.0/8", "fd00::/8"]),
            etag(&["fd00::/8", "10.0.0.0/8", "10.0.0.0/8"])
        );
    }

    #[test]
    fn bad_requests_and_unknown_methods_are_errors() {
        let router = serving(&[]);
        let code = |path, message: &[u8]| router.call(&caller(), path, message).unwrap_err().code;
        assert_eq!(code(PREFIXES, b"lol"), Code::InvalidArgument);
        assert_eq!(code(GATEWAYS, b""), Code::Unimplemented);
        let (methods, unknown) = router.counts();
        assert_eq!((methods[0].failed, unknown), (1, 1));
    }
}
