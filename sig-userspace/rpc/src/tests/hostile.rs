//! Peers that are broken, busy or malicious.

use bytes::Bytes;
use http::{Request, StatusCode, header::CONTENT_TYPE};

use super::{
    messages::{GatewaysResponse, Prefix, PrefixesRequest, PrefixesResponse, ProbeResponse},
    quic::{CONNECT, QuicSocket, Replies},
    *,
};
use crate::sockets::Via;
use sig_core::peer::UnderlaySources;

const BOTH: [RpcProtocols; 2] = [RpcProtocols::Connect, RpcProtocols::Grpc];

/// The error of a call for prefixes that a server answers with this message.
async fn error_after<A: prost::Message + Clone + 'static>(
    protocols: RpcProtocols,
    limits: &PeerLimits,
    answer: A,
) -> String {
    let router = Router::new().unary(PREFIXES, move |_, _: PrefixesRequest| Ok(answer.clone()));
    let (_server, address) = server(RpcProtocols::All, router);
    let border = BorderRouter::start(None).await;
    let path = border.path();
    let client = client_with(protocols, limits);
    let answer = client.prefixes(theirs(), address, &path, "").await;
    answer.expect_err("an error").to_string()
}

#[tokio::test]
async fn answers_beyond_the_limits_are_refused() {
    let prefix = Prefix {
        prefix: vec![10, 0, 0, 0],
        mask: 8,
    };
    let list = PrefixesResponse {
        prefixes: vec![prefix; 101],
        etag: String::new(),
        protection: None,
    };
    for protocols in BOTH {
        let short = PeerLimits {
            message_bytes: 100,
            ..LIMITS
        };
        let error = error_after(protocols, &short, list.clone()).await;
        assert!(error.ends_with("the answer exceeds 100 bytes"), "{error}");
    }
}

#[tokio::test]
async fn answers_that_are_another_message_are_refused() {
    for protocols in BOTH {
        let answer = ProbeResponse {
            session_id: 5,
            data: Vec::new(),
        };
        let error = error_after(protocols, &LIMITS, answer).await;
        assert!(error.contains("malformed answer"), "{error}");
    }
}

#[tokio::test]
async fn more_gateways_than_allowed_are_refused() {
    let router = Router::new().unary(GATEWAYS, |_, _: messages::GatewaysRequest| {
        Ok(GatewaysResponse {
            gateways: vec![gateway("10.0.0.1"); 17],
        })
    });
    let (_server, address) = server(RpcProtocols::All, router);
    let border = BorderRouter::start(Some(address)).await;
    let gateways = client(RpcProtocols::All)
        .gateways(theirs(), &border.path())
        .await;
    assert_eq!(
        gateways,
        Err(RpcError::TooMany {
            what: "gateways",
            limit: 16
        })
    );
}

/// A connection of a client that does what it wants.
async fn connection(alpn: &[u8], to: SocketAddr) -> (quinn::Endpoint, quinn::Connection) {
    let socket = Arc::new(QuicSocket::new(socket(ours()), Replies::Chosen, 8));
    let peer = Peer {
        isd_as: theirs(),
        address: to,
    };
    socket.set_way(
        peer,
        Via {
            path_type: 0,
            raw: Arc::default(),
            next_hop: to,
        },
    );
    let endpoint = quic::client(socket).expect("an endpoint");
    let config = quic::client_config(alpn).expect("a configuration");
    let connection = endpoint
        .connect_with(config, peer.synthetic(), "127.0.0.1")
        .expect("an attempt")
        .await
        .expect("a connection");
    (endpoint, connection)
}

/// The HTTP status of the answer to a request over HTTP/3.
async fn status_of(to: SocketAddr, request: Request<()>, body: &[u8]) -> StatusCode {
    let (_endpoint, quic) = connection(CONNECT, to).await;
    let (mut driver, mut send) = h3::client::new(h3_quinn::Connection::new(quic))
        .await
        .expect("HTTP/3");
    tokio::spawn(async move { std::future::poll_fn(|cx| driver.poll_close(cx)).await });
    let mut stream = send.send_request(request).await.expect("a stream");
    // The server may have answered and closed the stream before it has read everything.
    let _ = stream.send_data(Bytes::copy_from_slice(body)).await;
    let _ = stream.finish().await;
    stream.recv_response().await.expect("an answer").status()
}

#[tokio::test]
async fn requests_that_are_none_of_connect_are_answered_as_http_wants_it() {
    let (_server, address) = server(RpcProtocols::All, serving(&["10.0.0.0/8"]));
    let request = |method: &str, path: &str, content_type: &str| {
        Request::builder()
            .method(method)
            .uri(format!("https://scion{path}"))
            .header(CONTENT_TYPE, content_type)
    };
    let proto = "application/proto";
    for (request, body, expected) in [
        (request("POST", PREFIXES, proto), &b""[..], 200),
        (request("GET", PREFIXES, proto), b"", 405),
        (request("POST", PREFIXES, "application/json"), b"{}", 415),
        (request("POST", "/nowhere", proto), b"", 501),
        (request("POST", PREFIXES, proto), b"lol", 400),
        (
            request("POST", PREFIXES, proto).header("content-encoding", "gzip"),
            b"",
            501,
        ),
        (
            request("POST", PREFIXES, proto).header("connect-protocol-version", "2"),
            b"",
            400,
        ),
        (request("POST", PREFIXES, proto), &[0; 65 << 10], 429),
    ] {
        let request = request.body(()).expect("a request");
        let text = format!("{request:?}");
        let status = status_of(address, request, body).await;
        assert_eq!(status.as_u16(), expected, "{text}");
    }
}

#[tokio::test]
async fn an_endless_frame_of_http3_ends_its_stream() {
    let (_server, address) = server(RpcProtocols::All, serving(&[]));
    let (_endpoint, quic) = connection(CONNECT, address).await;
    let (mut send, _receive) = quic.open_bi().await.expect("a stream");
    // A HEADERS frame of 2^30 - 1 bytes.
    send.write_all(&[0x01, 0xbf, 0xff, 0xff, 0xff])
        .await
        .expect("written");
    let piece = [0; 1 << 10];
    let mut written = 0;
    while send.write_all(&piece).await.is_ok() {
        written += piece.len();
        assert!(written < 4 << 20, "the server takes it all");
    }
}

#[tokio::test]
async fn clients_that_say_nothing_do_not_keep_others_out() {
    let (server, address) = server(RpcProtocols::All, serving(&["10.0.0.0/8"]));
    let mut silent = Vec::new();
    for _ in 0..16 {
        silent.push(connection(CONNECT, address).await);
    }
    assert_eq!(server.counts().open, 16, "a quarter of all places");
    // Another one from the same AS is told that the server is busy, and waits.
    let late = client(RpcProtocols::Connect);
    let path = Path::configured(&[], address, 1280);
    let call = late.prefixes(theirs(), address, &path, "");
    let mut call = std::pin::pin!(call);
    while server.counts().refused < 3 {
        tokio::select! {
            answer = &mut call => panic!("there is no place: {answer:?}"),
            () = tokio::time::sleep(Duration::from_millis(1)) => {}
        }
    }
    // Another AS gets in.
    let elsewhere = "2-ff00:0:210".parse().unwrap();
    let other = RpcClient::new(socket(elsewhere), RpcProtocols::All, &LIMITS).expect("a client");
    let prefixes = other.prefixes(theirs(), address, &path, "").await;
    assert_eq!(all(prefixes.expect("an answer")).len(), 1);
    // So does the first one as soon as there is a place.
    drop(silent.pop());
    assert_eq!(all(call.await.expect("an answer")).len(), 1);
}

/// First datagrams of clients that say that they are in `ases` ASes, `each` of every one, as SCION packets to a server.
async fn first_datagrams(to: SocketAddr, ases: u64, each: usize) -> Vec<Vec<u8>> {
    let nowhere = UdpSocket::bind((LOCALHOST, 0)).await.expect("a socket");
    let mut datagrams = Vec::new();
    // Those that are dropped say goodbye, which is not to be among the datagrams.
    let mut attempts = Vec::new();
    let mut buffer = vec![0; 9216];
    for n in 0..ases {
        let socket = socket(IsdAs(theirs().0 + 1 + n));
        let socket = Arc::new(QuicSocket::new(socket, Replies::Chosen, 8));
        let peer = Peer {
            isd_as: theirs(),
            address: to,
        };
        socket.set_way(
            peer,
            Via {
                path_type: 0,
                raw: Arc::default(),
                next_hop: nowhere.local_addr().expect("an address"),
            },
        );
        let endpoint = quic::client(socket).expect("an endpoint");
        for _ in 0..each {
            let config = quic::client_config(CONNECT).expect("a configuration");
            let attempt = endpoint
                .connect_with(config, peer.synthetic(), "127.0.0.1")
                .expect("an attempt");
            attempts.push((endpoint.clone(), attempt));
            let (len, _) = nowhere.recv_from(&mut buffer).await.expect("a datagram");
            datagrams.push(buffer[..len].to_vec());
        }
    }
    datagrams
}

#[tokio::test]
async fn a_flood_of_handshakes_with_forged_sources_keeps_nobody_out() {
    let (server, address) = server(RpcProtocols::All, serving(&["10.0.0.0/8"]));
    let attacker = UdpSocket::bind((LOCALHOST, 0)).await.expect("a socket");
    // Of eight ASes, each of which may have a quarter of all places.
    let flood = first_datagrams(address, 8, 32).await;
    for datagram in &flood {
        attacker.send_to(datagram, address).await.expect("sent");
        // The socket's buffer must not overflow: the datagrams are to be handled.
        tokio::task::yield_now().await;
    }
    while server.counts().open + (server.counts().retried + server.counts().refused) as u32 == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let path = Path::configured(&[], address, 1280);
    let prefixes = client(RpcProtocols::All)
        .prefixes(theirs(), address, &path, "")
        .await;
    assert_eq!(all(prefixes.expect("an answer")).len(), 1);
    let counts = server.counts();
    assert_eq!(counts.refused, 0);
    assert!(counts.retried > 0, "{counts:?}");
    assert!(counts.open <= LIMITS.connections / 4, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_datagram_does_not_take_the_answers_of_its_source() {
    let attacker = std::net::UdpSocket::bind((LOCALHOST, 0)).expect("a socket");
    attacker.set_nonblocking(true).expect("a socket");
    let forge = attacker.try_clone().expect("a socket");
    let target = Arc::new(std::sync::OnceLock::<SocketAddr>::new());
    let (to, forged) = (Arc::clone(&target), Arc::new(AtomicU64::new(0)));
    let count = Arc::clone(&forged);
    // While the server works on the answer, a datagram with the source of the client comes another way.
    let router = Router::new().unary(PREFIXES, move |caller: Peer, _: PrefixesRequest| {
        let to = *to.get().expect("the server's address");
        let host = |address: SocketAddr| HostAddr::from(address.ip());
        let addresses = Addresses {
            source: (caller.isd_as, host(caller.address), caller.address.port()),
            destination: (theirs(), host(to), to.port()),
        };
        for first in [0x00, 0x40, 0xc0] {
            let packet = packet::udp(&addresses, 0, &[], &[first; 1200]).expect("a packet");
            forge.send_to(&packet, to).expect("sent");
        }
        count.fetch_add(1, Relaxed);
        // The thread that reads the socket gets its chance.
        std::thread::sleep(Duration::from_millis(20));
        Ok(PrefixesResponse {
            prefixes: Vec::new(),
            etag: "some".to_owned(),
            protection: None,
        })
    });
    let (_server, address) = server(RpcProtocols::All, router);
    target.set(address).expect("the first");
    let path = Path::configured(&[], address, 1280);
    let client = client(RpcProtocols::Connect);
    for _ in 0..10 {
        let answer = client.prefixes(theirs(), address, &path, "").await;
        answer.expect("an answer");
    }
    assert_eq!(forged.load(Relaxed), 10);
    let mut buffer = [0; 2048];
    let stolen = attacker.recv_from(&mut buffer);
    assert!(stolen.is_err(), "{stolen:?}");
}

#[tokio::test]
async fn datagrams_of_other_ases_come_from_border_routers_only() {
    let server_socket = socket(theirs());
    let address = server_socket.local_addr();
    let local = Arc::clone(server_socket.local());
    let border = BorderRouter::start(None).await;
    // This border router has the same IP address as everything else here, the one that is known has another.
    let elsewhere = "127.0.0.99:50000".parse().expect("an address");
    local.interfaces.store(Arc::new([(1, elsewhere)].into()));
    local.sources.store(Arc::new(UnderlaySources::Routers));
    let server = RpcServer::start(
        server_socket,
        RpcProtocols::All,
        &LIMITS,
        serving(&["10.0.0.0/8"]),
        |_| true,
    )
    .expect("a server");
    let flood = first_datagrams(address, 1, 3).await;
    let attacker = UdpSocket::bind((LOCALHOST, 0)).await.expect("a socket");
    for datagram in &flood {
        attacker.send_to(datagram, address).await.expect("sent");
    }
    while local.counters.read_packets.get() < 3 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(local.counters.forged.get(), 3);
    assert_eq!(server.counts().open, 0);
    // By way of a known border router, the same gets an answer.
    local
        .interfaces
        .store(Arc::new([(1, border.address)].into()));
    let prefixes = client(RpcProtocols::All)
        .prefixes(theirs(), address, &border.path(), "")
        .await;
    assert_eq!(all(prefixes.expect("an answer")).len(), 1);
}

#[tokio::test]
async fn datagrams_that_are_no_quic_disturb_nothing() {
    let (_server, address) = server(RpcProtocols::All, serving(&["10.0.0.0/8"]));
    let stranger = socket(ours());
    let to = (theirs(), HostAddr::from(address.ip()), address.port());
    let via = Via {
        path_type: 0,
        raw: Arc::default(),
        next_hop: address,
    };
    for len in [0, 1, 20, 1200, 1472, 1473, 9000] {
        for first in [0x00, 0x40, 0xc0] {
            let mut datagram = vec![0xa5; len];
            if let Some(byte) = datagram.first_mut() {
                *byte = first;
            }
            stranger.send_to(to, &via, &datagram).await.expect("sent");
        }
    }
    let path = Path::configured(&[], address, 1280);
    let prefixes = client(RpcProtocols::All)
        .prefixes(theirs(), address, &path, "")
        .await;
    assert_eq!(all(prefixes.expect("an answer")).len(), 1);
}

#[tokio::test]
async fn a_variant_that_hangs_is_overtaken_by_the_other() {
    // Takes connections of either variant, but answers gRPC only.
    let socket = socket(theirs());
    let address = socket.local_addr();
    let socket = Arc::new(QuicSocket::new(socket, Replies::Reversed, 8));
    let endpoint = quic::server(socket.clone(), RpcProtocols::All, 8).expect("an endpoint");
    tokio::spawn(async move {
        let mut hanging = Vec::new();
        while let Some(incoming) = endpoint.accept().await {
            let caller = socket.peer(incoming.remote_address()).expect("a peer");
            let connection = incoming.await.expect("a connection");
            if server::alpn(&connection).as_deref() == Some(CONNECT) {
                hanging.push(connection);
            } else {
                let calls = server::Calls::new(Arc::new(serving(&["10.0.0.0/8"])), caller, None);
                tokio::spawn(grpc::serve(connection, Arc::new(calls)));
            }
        }
    });
    let path = Path::configured(&[], address, 1280);
    let client = client(RpcProtocols::All);
    let prefixes = client.prefixes(theirs(), address, &path, "").await;
    assert_eq!(all(prefixes.expect("an answer")).len(), 1);
    assert_eq!(client.counts().dials, 2);
}
