//! Keys for frames, and who has them.

use std::sync::Mutex;

use sig_common::wire::sig_frame::{Header, PROTECTION_LEN};
use sig_core::protection::{Greeting, Hello, Keyring, Offer, ReceiveKey, Refusal, Reply};

use super::*;
use crate::{
    messages::{PrefixesRequest, PrefixesResponse},
    protection::{Side, proven},
};

const BOTH: [RpcProtocols; 2] = [RpcProtocols::Connect, RpcProtocols::Grpc];

fn identity() -> Arc<OwnIdentity> {
    Arc::new(OwnIdentity::generate().expect("random numbers").0)
}

fn hello(wants_key: bool) -> Hello {
    Hello {
        wants_key,
        fresh: false,
        holding: vec![7],
        workers: 2,
    }
}

/// What a server has decided about.
#[derive(Default)]
struct Seen {
    offers: Mutex<Vec<Option<Offer>>>,
    key: Mutex<Option<Arc<ReceiveKey>>>,
}

/// A server that decides so.
fn deciding(
    own: Arc<OwnIdentity>,
    decision: Result<(), Refusal>,
) -> (RpcServer, SocketAddr, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    let decide = {
        let seen = Arc::clone(&seen);
        move |caller: Peer,
              offer: Option<&Offer>,
              make: &mut dyn FnMut() -> Option<Arc<ReceiveKey>>| {
            assert_eq!(caller.isd_as, ours());
            seen.offers.lock().unwrap().push(offer.cloned());
            if offer?.wants_key && decision.is_ok() {
                *seen.key.lock().unwrap() = make();
            }
            let holding = vec![1, 2];
            Some(Reply { holding, decision })
        }
    };
    let keys = Answering::new(own, Box::new(|_| true), Box::new(decide));
    let router = Router::new().prefixes_and_keys(|_| nets(&["10.2.0.0/24"]), keys);
    let (server, address) = server(RpcProtocols::All, router);
    (server, address, seen)
}

async fn exchange(
    client: &RpcClient,
    address: SocketAddr,
    path: &Path,
    own: &Arc<OwnIdentity>,
    hello: Hello,
) -> Option<Greeting> {
    let own = Arc::clone(own);
    let answer = client.exchange(theirs(), address, path, "", (own, hello));
    let (prefixes, greeting) = answer.await.expect("an answer");
    assert_eq!(all(prefixes), nets(&["10.2.0.0/24"]));
    greeting
}

#[tokio::test]
async fn both_ends_get_the_same_key_and_know_each_other() {
    for protocols in BOTH {
        let (us, them) = (identity(), identity());
        let (_server, address, seen) = deciding(Arc::clone(&them), Ok(()));
        let border = BorderRouter::start(None).await;
        let (client, path) = (client(protocols), border.path());
        let mut numbers = Vec::new();
        for fresh in [false, false, true] {
            let hello = Hello {
                fresh,
                ..hello(true)
            };
            let greeting = exchange(&client, address, &path, &us, hello).await;
            let greeting = greeting.expect("a greeting");
            assert_eq!(greeting.identity, them.public());
            assert_eq!((greeting.holding, greeting.refusal), (vec![1, 2], None));
            let offer = seen.offers.lock().unwrap().pop().flatten();
            let expected = Offer {
                identity: us.public(),
                holding: vec![7],
                wants_key: true,
            };
            assert_eq!(offer, Some(expected));
            let (sender, receiver) = (Keyring::default(), Keyring::default());
            let send = greeting.key.expect("a key");
            let receive = seen.key.lock().unwrap().take().expect("a key");
            assert_eq!(send.number(), receive.number());
            numbers.push(send.number());
            sender.set_send(Some(send));
            receiver.set_receive(vec![receive]);
            let mut frame = [0x55; 100 + PROTECTION_LEN];
            let header = Header::default();
            sender.seal(1, &header, &mut frame).expect("sealed");
            assert_ne!(frame[12..112], [0x55; 100]);
            receiver.open(&header, &mut frame).expect("authentic");
            assert_eq!(frame[12..112], [0x55; 100]);
        }
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 3, "each key has a number of its own");
        assert_eq!(
            client.counts().dials,
            2,
            "the last one wanted a connection of its own"
        );
    }
}

#[tokio::test]
async fn a_key_may_be_refused_or_not_wanted() {
    let (us, them) = (identity(), identity());
    let border = BorderRouter::start(None).await;
    let client = client(RpcProtocols::All);
    for refusal in [Refusal::NotYet, Refusal::Refused] {
        let (_server, address, _) = deciding(Arc::clone(&them), Err(refusal));
        let greeting = exchange(&client, address, &border.path(), &us, hello(true)).await;
        let greeting = greeting.expect("a greeting");
        assert_eq!(
            (greeting.refusal, greeting.key.is_some()),
            (Some(refusal), false)
        );
    }
    let (_server, address, seen) = deciding(them, Ok(()));
    let greeting = exchange(&client, address, &border.path(), &us, hello(false)).await;
    let greeting = greeting.expect("a greeting");
    assert_eq!((greeting.refusal, greeting.key.is_some()), (None, false));
    assert!(seen.key.lock().unwrap().is_none());
    // Who offers nothing, as the reference, gets no more than the prefixes; it is noticed.
    let prefixes = client.prefixes(theirs(), address, &border.path(), "").await;
    assert_eq!(all(prefixes.expect("an answer")), nets(&["10.2.0.0/24"]));
    assert_eq!(seen.offers.lock().unwrap().last(), Some(&None));
}

#[tokio::test]
async fn a_server_that_knows_nothing_of_protection_answers_as_ever() {
    for protocols in BOTH {
        let (_server, address) = server(RpcProtocols::All, serving(&["10.2.0.0/24"]));
        let border = BorderRouter::start(None).await;
        let client = client(protocols);
        let greeting = exchange(&client, address, &border.path(), &identity(), hello(true)).await;
        assert!(greeting.is_none());
    }
}

/// Somebody between two gateways has a connection with each.
#[tokio::test]
async fn a_proof_is_worth_nothing_on_another_connection() {
    let captured: Arc<Mutex<Vec<_>>> = Arc::default();
    let router = {
        let captured = Arc::clone(&captured);
        Router::new().add(PREFIXES, move |caller, request: PrefixesRequest| {
            let proof = request.protection.and_then(|offer| offer.proof);
            captured
                .lock()
                .unwrap()
                .push((caller.channel.clone().unwrap(), proof.clone()));
            // An answer with the proof of another one: that of the caller itself.
            let mut answer = PrefixesResponse::default();
            answer
                .prefixes
                .push(checked::prefix_message(&nets(&["10.2.0.0/24"])[0]));
            answer.protection = Some(messages::ProtectionAnswer {
                proof,
                cipher: 1,
                ..Default::default()
            });
            Ok(answer)
        })
    };
    let (_server, address) = server(RpcProtocols::All, router);
    let border = BorderRouter::start(None).await;
    let us = identity();
    for _ in 0..2 {
        let client = client(RpcProtocols::Connect);
        let greeting = exchange(&client, address, &border.path(), &us, hello(true)).await;
        assert!(
            greeting.is_none(),
            "what the client signed proves no server"
        );
    }
    let captured = captured.lock().unwrap();
    let [(first, one), (second, other)] = &captured[..] else {
        panic!("two connections");
    };
    let public = Some(us.public());
    assert_eq!(proven(first, Side::Client, one.as_ref()), public);
    assert_eq!(proven(second, Side::Client, other.as_ref()), public);
    assert_eq!(proven(first, Side::Client, other.as_ref()), None);
    assert_eq!(proven(second, Side::Client, one.as_ref()), None);
    assert_eq!(proven(first, Side::Server, one.as_ref()), None);
    assert_eq!(proven(first, Side::Client, None), None);
}

#[test]
fn an_identity_is_read_back_and_nothing_else_is() {
    let (own, document) = OwnIdentity::generate().expect("random numbers");
    let read = OwnIdentity::read(&document).expect("a key");
    assert_eq!(read.public(), own.public());
    for bad in [&document[..document.len() - 1], b"", b"text"] {
        assert!(OwnIdentity::read(bad).is_err());
    }
    assert!(!format!("{own:?}").contains("Ed25519KeyPair"));
}
