//! The control service of an AS, as far as gateways ask it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use scion_protobuf::{
    buffa::Message as _,
    proto::control_plane::v1::{ServiceResolutionResponse, Transport},
};
use sig_common::addr::{HostAddr, IsdAs};
use sig_core::{
    peer::{GatewayAddresses, PeerLimits, RpcProtocols},
    scion::{
        packet::{self, Addresses, Content},
        reverse,
    },
};
use sig_rpc::{
    Router, RpcServer,
    messages::Gateway,
    sockets::{Local, PortChoice, ScionSocket},
};
use testbed::Netns;
use tokio::net::UdpSocket;

use crate::{
    place::{Place, Running},
    topology::{As, Topology},
};

/// The defaults of a gateway.
const LIMITS: PeerLimits = PeerLimits {
    gateways_per_as: 16,
    prefixes_per_gateway: 4096,
    message_bytes: 1 << 20,
    connections: 256,
    paths_per_as: 64,
};

/// The control service of an AS. It ends when dropped.
#[derive(Debug)]
pub struct ControlService {
    place: Place,
    shared: Arc<Shared>,
    running: Option<Running>,
}

#[derive(Debug)]
struct Shared {
    own: As,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    gateways: Vec<GatewayAddresses>,
    protocols: RpcProtocols,
    calls: Calls,
}

/// What a control service was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Service resolution requests that it answered.
    pub resolutions: u64,
    /// ASes that asked for the gateways, in order.
    pub gateways: Vec<IsdAs>,
}

impl ControlService {
    /// Starts the control service of `isd_as` inside `netns`, or in the network namespace of the process.
    ///
    /// # Errors
    /// The AS is not in the topology, or one of its addresses cannot be bound.
    pub fn start(netns: Option<&Netns>, topology: &Topology, isd_as: IsdAs) -> Result<Self> {
        let own = topology.find(isd_as);
        let own = own.with_context(|| format!("no {isd_as}"))?.clone();
        let state = Mutex::new(State {
            gateways: own.gateways.clone(),
            protocols: RpcProtocols::All,
            calls: Calls::default(),
        });
        let mut service = Self {
            place: Place::new(netns)?,
            shared: Arc::new(Shared { own, state }),
            running: None,
        };
        service.restart()?;
        Ok(service)
    }

    /// Stops it; nobody answers.
    pub fn stop(&mut self) {
        self.running = None;
    }

    /// Starts it, after stopping it if it runs. What was set stays.
    ///
    /// # Errors
    /// One of its addresses cannot be bound.
    pub fn restart(&mut self) -> Result<()> {
        self.stop();
        let shared = Arc::clone(&self.shared);
        let name = format!("control service {}", shared.own.isd_as);
        self.running = Some(self.place.run(&name, async move || {
            let address = shared.own.resolution;
            let socket = UdpSocket::bind(address)
                .await
                .with_context(|| format!("cannot bind {address}"))?;
            let server = serve(&shared)?;
            Ok(async move {
                let _server = server;
                resolve(shared, socket).await;
            })
        })?);
        Ok(())
    }

    /// From now on these are the gateways that it tells.
    pub fn set_gateways(&self, gateways: Vec<GatewayAddresses>) {
        self.shared.state().gateways = gateways;
    }

    /// Variants of RPCs that it serves when it is started the next time.
    pub fn set_protocols(&self, protocols: RpcProtocols) {
        self.shared.state().protocols = protocols;
    }

    /// What it was asked so far.
    #[must_use]
    pub fn calls(&self) -> Calls {
        self.shared.state().calls.clone()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer to a service resolution request; `None` if it is something else.
    fn resolution(&self, request: &[u8]) -> Option<Vec<u8>> {
        let packet = packet::parse(request).ok()?;
        let Content::Udp { source_port, .. } = packet.content else {
            return None;
        };
        if !matches!(packet.destination.1, HostAddr::SVC_DS | HostAddr::SVC_CS) {
            return None;
        }
        let quic = Transport {
            address: self.own.control_service.to_string(),
        };
        let response = ServiceResolutionResponse {
            transports: [("QUIC".to_owned(), quic)].into_iter().collect(),
        };
        let (path_type, back) = reverse::reply_path(&packet.path).ok()?;
        let (isd_as, host) = packet.source;
        let addresses = Addresses {
            // The port is that of the reference.
            source: (self.own.isd_as, self.own.resolution.ip().into(), 0),
            destination: (isd_as, host, source_port),
        };
        packet::udp(&addresses, path_type, &back, &response.encode_to_bytes()).ok()
    }
}

/// Serves RPCs.
fn serve(shared: &Arc<Shared>) -> Result<RpcServer> {
    let As {
        isd_as,
        ports: (first, last),
        control_service: address,
        ..
    } = shared.own;
    let local = Local::new(isd_as, first..=last);
    let socket = ScionSocket::bind(&local, address.ip(), PortChoice::Fixed(address.port()))
        .with_context(|| format!("cannot bind {address}"))?;
    let (protocols, asked) = (shared.state().protocols, Arc::clone(shared));
    let router = Router::new().gateways(move |caller| {
        let mut state = asked.state();
        state.calls.gateways.push(caller);
        state.gateways.iter().map(message).collect()
    });
    let server = RpcServer::start(Arc::new(socket), protocols, &LIMITS, router, |_| true);
    server.map_err(|error| anyhow::anyhow!("cannot serve at {address}: {error}"))
}

fn message(gateway: &GatewayAddresses) -> Gateway {
    Gateway {
        control_address: gateway.control.to_string(),
        data_address: gateway.data.to_string(),
        probe_address: gateway.probe.to_string(),
        allow_interfaces: gateway.allow_interfaces.clone(),
    }
}

async fn resolve(shared: Arc<Shared>, socket: UdpSocket) {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let Ok((len, router)) = socket.recv_from(&mut buffer).await else {
            continue;
        };
        if let Some(answer) = shared.resolution(&buffer[..len]) {
            shared.state().calls.resolutions += 1;
            let _ = socket.send_to(&answer, router).await;
        }
    }
}
