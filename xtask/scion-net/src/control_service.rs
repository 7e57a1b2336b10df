//! The control service of an AS, as far as gateways ask it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use scion_protobuf::{
    buffa::Message as _,
    proto::control_plane::v1::{ServiceResolutionResponse, Transport},
};
use sig::scion::{
    packet::{self, Addresses, Content},
    reverse,
};
use sig_common::addr::{HostAddr, IsdAs};
use testbed::Netns;
use tokio::net::UdpSocket;

use crate::{
    place::{Place, Running},
    topology::{As, GatewayEntry, Topology},
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
    gateways: Vec<GatewayEntry>,
    resolutions: u64,
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
            resolutions: 0,
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
            Ok(resolve(shared, socket))
        })?);
        Ok(())
    }

    /// From now on these are the gateways that it tells.
    pub fn set_gateways(&self, gateways: Vec<GatewayEntry>) {
        self.shared.state().gateways = gateways;
    }

    /// How many service resolution requests it answered.
    #[must_use]
    pub fn resolutions(&self) -> u64 {
        self.shared.state().resolutions
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

async fn resolve(shared: Arc<Shared>, socket: UdpSocket) {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let Ok((len, router)) = socket.recv_from(&mut buffer).await else {
            continue;
        };
        if let Some(answer) = shared.resolution(&buffer[..len]) {
            shared.state().resolutions += 1;
            let _ = socket.send_to(&answer, router).await;
        }
    }
}
