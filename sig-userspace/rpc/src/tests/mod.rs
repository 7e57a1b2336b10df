//! Clients and servers of two ASes over loopback, with border routers that can be cut off.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use ipnet::IpNet;
use prost::Message as _;
use sig_common::addr::{HostAddr, IsdAs};
use tokio::{net::UdpSocket, task::JoinHandle};

use super::{
    messages::{Gateway, QUIC, ServiceResolutionResponse, Transport},
    *,
};
use crate::sockets::{Local, PortChoice, ScionSocket};
use sig_core::{
    peer::{Announced, PeerLimits, RpcProtocols},
    scion::{
        Path,
        packet::{self, Addresses, Content},
        reverse,
    },
};

mod calls;
mod captures;
mod hostile;
mod kept;
mod protection;

const LOCALHOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
/// A path with one segment and two hop fields.
const RAW_PATH: &str = "000020000100123466000000003f00000001010203040506003f000200000708090a0b0c";

const LIMITS: PeerLimits = PeerLimits {
    gateways_per_as: 16,
    prefixes_per_gateway: 4096,
    message_bytes: 1 << 20,
    connections: 64,
    paths_per_as: 64,
};

fn ours() -> IsdAs {
    "1-ff00:0:110".parse().expect("an ISD-AS")
}

fn theirs() -> IsdAs {
    "1-ff00:0:111".parse().expect("an ISD-AS")
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&text[i..i + 2], 16).expect("hexadecimal"))
        .collect()
}

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts
        .iter()
        .map(|net| net.parse().expect("a prefix"))
        .collect()
}

fn socket(isd_as: IsdAs) -> Arc<ScionSocket> {
    let local = Local::new(isd_as, 0..=0);
    Arc::new(ScionSocket::bind(&local, LOCALHOST, PortChoice::Free).expect("a socket"))
}

/// A server of the other AS that knows all others, and its address.
fn server(protocols: RpcProtocols, router: Router) -> (RpcServer, SocketAddr) {
    let socket = socket(theirs());
    let address = socket.local_addr();
    let server = RpcServer::start(socket, protocols, &LIMITS, router, |_| true).expect("a server");
    (server, address)
}

fn client(protocols: RpcProtocols) -> RpcClient {
    client_with(protocols, &LIMITS)
}

fn client_with(protocols: RpcProtocols, limits: &PeerLimits) -> RpcClient {
    RpcClient::new(socket(ours()), protocols, limits)
        .expect("a client")
        // Slow machines are no failure.
        .with_timeout(Duration::from_secs(60))
}

fn serving(prefixes: &[&str]) -> Router {
    let prefixes = nets(prefixes);
    Router::new().prefixes(move |_| prefixes.clone())
}

fn all(prefixes: Announced) -> Vec<IpNet> {
    match prefixes {
        Announced::Prefixes { prefixes, .. } => prefixes,
        Announced::Unchanged => panic!("the prefixes"),
    }
}

/// A border router between the ASes: hands packets to the SCION destination, answers service resolutions, and stops
/// for good when it is dropped.
struct BorderRouter {
    address: SocketAddr,
    packets: Arc<AtomicU64>,
    resolutions: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl BorderRouter {
    /// `discovery`: what it says about the address of the discovery service.
    async fn start(discovery: Option<SocketAddr>) -> Self {
        let answer = discovery.map(|address| {
            let transport = Transport {
                address: address.to_string(),
            };
            let transports = [(QUIC.to_owned(), transport)].into();
            ServiceResolutionResponse { transports }.encode_to_vec()
        });
        Self::answering(answer).await
    }

    /// `answer`: to service resolutions.
    async fn answering(answer: Option<Vec<u8>>) -> Self {
        let socket = UdpSocket::bind((LOCALHOST, 0)).await.expect("a socket");
        let address = socket.local_addr().expect("an address");
        let [packets, resolutions] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
        let task = tokio::spawn(route(
            socket,
            answer,
            Arc::clone(&packets),
            Arc::clone(&resolutions),
        ));
        BorderRouter {
            address,
            packets,
            resolutions,
            task,
        }
    }

    fn path(&self) -> Path {
        Path::configured(&hex(RAW_PATH), self.address, 1280)
    }
}

impl Drop for BorderRouter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn route(
    socket: UdpSocket,
    answer: Option<Vec<u8>>,
    packets: Arc<AtomicU64>,
    resolutions: Arc<AtomicU64>,
) {
    let mut buffer = vec![0; 9216];
    while let Ok((len, from)) = socket.recv_from(&mut buffer).await {
        let bytes = &buffer[..len];
        assert!(len <= 1280, "a packet of {len} bytes on a path of 1280");
        let received = packet::parse(bytes).expect("a packet");
        let Content::Udp {
            source_port,
            destination_port,
            payload,
        } = received.content
        else {
            continue;
        };
        packets.fetch_add(1, Relaxed);
        if received.destination.1 == HostAddr::SVC_DS {
            assert_eq!((destination_port, payload), (0, &b""[..]));
            resolutions.fetch_add(1, Relaxed);
            let Some(answer) = &answer else {
                continue;
            };
            let (isd_as, host) = received.source;
            let addresses = Addresses {
                source: (received.destination.0, HostAddr::from(LOCALHOST), 0),
                destination: (isd_as, host, source_port),
            };
            let (path_type, raw) = reverse::reply_path(&received.path).expect("a way back");
            let reply = packet::udp(&addresses, path_type, &raw, answer).expect("a packet");
            socket.send_to(&reply, from).await.expect("sent");
        } else if let Some(ip) = received.destination.1.ip() {
            // Who is not there is not there.
            let _ = socket.send_to(bytes, (ip, destination_port)).await;
        }
    }
}

fn gateway(host: &str) -> Gateway {
    Gateway {
        control_address: format!("{host}:30256"),
        data_address: format!("{host}:30056"),
        probe_address: format!("{host}:30856"),
        allow_interfaces: vec![41],
    }
}
