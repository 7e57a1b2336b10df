//! Connections that are kept between calls.

use super::*;

#[tokio::test]
async fn calls_share_one_connection() {
    for protocols in [RpcProtocols::Connect, RpcProtocols::Grpc] {
        let (server, address) = server(RpcProtocols::All, serving(&["10.2.0.0/24"]));
        let border = BorderRouter::start(None).await;
        let client = client(protocols).patient();
        for _ in 0..10 {
            let path = border.path();
            let prefixes = client.prefixes(theirs(), address, &path, "").await;
            assert_eq!(all(prefixes.expect("an answer")).len(), 1);
        }
        let counts = client.counts();
        assert_eq!((counts.dials, counts.kept), (1, 9));
        assert_eq!(server.counts().accepted, 1);
        assert_eq!(server.counts().open, 1);
    }
}

#[tokio::test]
async fn discovery_is_resolved_once_while_its_connection_lives() {
    let (server, address) = server(RpcProtocols::All, Router::new().gateways(|_| Vec::new()));
    let border = BorderRouter::start(Some(address)).await;
    let client = client(RpcProtocols::Connect).patient();
    assert_eq!(client.gateways(theirs(), &border.path()).await, Ok(vec![]));
    let resolutions = border.resolutions.load(Relaxed);
    for _ in 0..5 {
        assert_eq!(client.gateways(theirs(), &border.path()).await, Ok(vec![]));
    }
    assert_eq!(border.resolutions.load(Relaxed), resolutions);
    assert_eq!(server.counts().accepted, 1);
}

#[tokio::test]
async fn a_change_of_path_keeps_the_connection() {
    for protocols in [RpcProtocols::Connect, RpcProtocols::Grpc] {
        let (server, address) = server(RpcProtocols::All, serving(&["10.2.0.0/24"]));
        let client = client(protocols).patient();
        for _ in 0..3 {
            // The border router of the call before is gone.
            let border = BorderRouter::start(None).await;
            let path = border.path();
            let prefixes = client.prefixes(theirs(), address, &path, "").await;
            assert_eq!(all(prefixes.expect("an answer")).len(), 1);
            // To the server and back.
            assert!(border.packets.load(Relaxed) >= 2);
        }
        assert_eq!(client.counts().dials, 1);
        assert_eq!(server.counts().accepted, 1);
    }
}

#[tokio::test]
async fn a_server_that_restarts_is_found_again() {
    for protocols in [RpcProtocols::Connect, RpcProtocols::Grpc, RpcProtocols::All] {
        let first_socket = socket(theirs());
        let address = first_socket.local_addr();
        let start = |socket, prefixes: &[&str]| {
            RpcServer::start(
                socket,
                RpcProtocols::All,
                &LIMITS,
                serving(prefixes),
                |_| true,
            )
            .expect("a server")
        };
        let border = BorderRouter::start(None).await;
        let client = client(protocols);
        let first = start(first_socket, &["10.1.0.0/24"]);
        let path = border.path();
        let prefixes = client.prefixes(theirs(), address, &path, "").await;
        assert_eq!(all(prefixes.expect("an answer")), nets(&["10.1.0.0/24"]));
        drop(first);
        let second_socket = rebound(address).await;
        let _second = start(second_socket, &["10.2.0.0/24"]);
        let prefixes = client.prefixes(theirs(), address, &path, "").await;
        assert_eq!(all(prefixes.expect("an answer")), nets(&["10.2.0.0/24"]));
    }
}

/// The server's endpoint gives up its socket when it has told its clients that it ends.
async fn rebound(address: SocketAddr) -> Arc<ScionSocket> {
    let local = Local::new(theirs(), 0..=0);
    loop {
        match ScionSocket::bind(&local, address.ip(), PortChoice::Fixed(address.port())) {
            Ok(socket) => return Arc::new(socket),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_server_that_died_without_a_word_is_found_again() {
    let (first, address) = server(RpcProtocols::All, serving(&["10.1.0.0/24"]));
    let (_second, other_address) = server(RpcProtocols::All, serving(&["10.2.0.0/24"]));
    let client = client(RpcProtocols::All);
    let border = BorderRouter::start(None).await;
    let path = border.path();
    let prefixes = client.prefixes(theirs(), address, &path, "").await;
    assert_eq!(all(prefixes.expect("an answer")), nets(&["10.1.0.0/24"]));
    // From now on another server gets what is for the first one, and knows nothing of its connections.
    let detour = Detour::start(address, other_address).await;
    let path = Path::configured(&[], detour.address, 1280);
    let prefixes = client.prefixes(theirs(), address, &path, "").await;
    assert_eq!(all(prefixes.expect("an answer")), nets(&["10.2.0.0/24"]));
    assert_eq!(first.counts().accepted, 1);
}

/// Brings the packets for one server to another one, and the answers back.
struct Detour {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Detour {
    async fn start(seen: SocketAddr, real: SocketAddr) -> Self {
        let socket = UdpSocket::bind((LOCALHOST, 0)).await.expect("a socket");
        let address = socket.local_addr().expect("an address");
        let task = tokio::spawn(async move {
            let mut buffer = vec![0; 9216];
            let mut client = None;
            while let Ok((len, from)) = socket.recv_from(&mut buffer).await {
                let packet = packet::parse(&buffer[..len]).expect("a packet");
                let Content::Udp {
                    source_port,
                    destination_port,
                    payload,
                } = packet.content
                else {
                    continue;
                };
                let (mut source, mut destination) = (source_port, destination_port);
                let to = if from == real {
                    source = seen.port();
                    client
                } else {
                    client = Some(from);
                    destination = real.port();
                    Some(real)
                };
                let addresses = Addresses {
                    source: (packet.source.0, packet.source.1, source),
                    destination: (packet.destination.0, packet.destination.1, destination),
                };
                let packet = packet::udp(&addresses, 0, &[], payload).expect("a packet");
                if let Some(to) = to {
                    socket.send_to(&packet, to).await.expect("sent");
                }
            }
        });
        Detour { address, task }
    }
}

impl Drop for Detour {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test]
async fn a_cancelled_call_leaves_a_client_that_works() {
    let border = BorderRouter::start(None).await;
    let (_server, address) = server(RpcProtocols::All, serving(&["10.2.0.0/24"]));
    let client = client(RpcProtocols::All);
    let path = border.path();
    let nobody = "127.0.0.1:9".parse().unwrap();
    for target in [nobody, address] {
        let call = client.prefixes(theirs(), target, &path, "");
        let _ = tokio::time::timeout(Duration::from_millis(1), call).await;
    }
    let prefixes = client.prefixes(theirs(), address, &path, "").await;
    assert_eq!(all(prefixes.expect("an answer")).len(), 1);
}
