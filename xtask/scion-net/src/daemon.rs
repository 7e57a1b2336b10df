//! The SCION daemon of an AS: gRPC over HTTP/2.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result};
use connectrpc::{
    ConnectError, Encodable, ErrorCode, RequestContext, Response, Router, ServiceRequest,
    ServiceResult,
};
use scion_protobuf::{
    buffa::MessageField,
    buffa_types::google::protobuf::{self, Empty, Timestamp},
    proto::daemon::v1::{
        self as proto, ASRequest, ASResponse, DRKeyASHostRequest, DRKeyASHostResponse,
        DRKeyHostASRequest, DRKeyHostASResponse, DRKeyHostHostRequest, DRKeyHostHostResponse,
        DaemonService, DaemonServiceExt as _, InterfacesRequest, InterfacesResponse,
        NotifyInterfaceDownRequest, NotifyInterfaceDownResponse, PathsRequest, PathsResponse,
        PortRangeResponse, ServicesRequest, ServicesResponse,
    },
};
use sig_common::addr::IsdAs;
use sig_core::scion::Interface;
use testbed::Netns;
use tokio::net::TcpListener;

use crate::{
    link::Link,
    paths::{Lifetime, PathInfo},
    place::{Place, Running},
    topology::{As, Topology},
};

/// Lifetime of paths unless something else is asked for.
const LIFETIME: Duration = Duration::from_secs(6 * 3600);

/// The daemon of an AS. It ends when dropped.
#[derive(Debug)]
pub struct Daemon {
    place: Place,
    address: SocketAddr,
    service: Arc<Service>,
    running: Option<Running>,
}

/// What a daemon was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Destinations of requests for paths, in order.
    pub paths: Vec<IsdAs>,
    /// Interfaces that it was told are down, in order.
    pub down: Vec<Interface>,
}

impl Daemon {
    /// Starts the daemon of `isd_as` at `address` inside `netns`, or in the network namespace of the process.
    ///
    /// # Errors
    /// The AS is not in the topology, or the address cannot be bound.
    pub fn start(
        netns: Option<&Netns>,
        topology: &Arc<Topology>,
        isd_as: IsdAs,
        address: SocketAddr,
    ) -> Result<Self> {
        let own = topology.find(isd_as);
        let own = own.with_context(|| format!("no {isd_as}"))?.clone();
        let mut daemon = Self {
            place: Place::new(netns)?,
            address,
            service: Arc::new(Service {
                topology: Arc::clone(topology),
                own,
                state: Mutex::new(State {
                    lifetime: Lifetime::of(LIFETIME),
                    renewed: None,
                    hidden: Vec::new(),
                    failing: false,
                    asked: Asked::default(),
                }),
            }),
            running: None,
        };
        daemon.restart()?;
        Ok(daemon)
    }

    /// Stops it; connections break.
    pub fn stop(&mut self) {
        self.running = None;
    }

    /// Starts it, after stopping it if it runs. What was set stays.
    ///
    /// # Errors
    /// Its address cannot be bound.
    pub fn restart(&mut self) -> Result<()> {
        self.stop();
        let (address, service) = (self.address, Arc::clone(&self.service));
        let name = format!("daemon {}", service.own.isd_as);
        self.running = Some(self.place.run(&name, async move || {
            let listener = TcpListener::bind(address)
                .await
                .with_context(|| format!("cannot bind {address}"))?;
            let app = service.register(Router::new()).into_axum_router();
            Ok(async move {
                if let Err(error) = axum::serve(listener, app).await {
                    eprintln!("error: daemon at {address}: {error}");
                }
            })
        })?);
        Ok(())
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Paths that are told from now on expire `lifetime` from now.
    pub fn set_lifetime(&self, lifetime: Duration) {
        let mut state = self.service.state();
        state.lifetime = Lifetime::of(lifetime);
        state.renewed = None;
    }

    /// From now on each answer has paths with new hop fields, which expire after `lifetime`: at least a second later than
    /// those of the answer before.
    pub fn set_paths_refresh(&self, lifetime: Duration) {
        let mut state = self.service.state();
        state.lifetime = Lifetime::of(lifetime);
        state.renewed = Some(lifetime);
    }

    /// From now on no paths are told that use one of these links.
    pub fn hide(&self, links: &[Arc<Link>]) {
        self.service.state().hidden = links.to_vec();
    }

    /// Whether requests for paths are answered with an error from now on.
    pub fn set_failing(&self, failing: bool) {
        self.service.state().failing = failing;
    }

    /// What it was asked so far.
    #[must_use]
    pub fn asked(&self) -> Asked {
        self.service.state().asked.clone()
    }
}

#[derive(Debug)]
struct Service {
    topology: Arc<Topology>,
    own: As,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    lifetime: Lifetime,
    /// Lifetime of paths that are new in each answer.
    renewed: Option<Duration>,
    hidden: Vec<Arc<Link>>,
    failing: bool,
    asked: Asked,
}

type Answer<T> = ServiceResult<T>;

impl Service {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell_paths(&self, source: IsdAs, destination: IsdAs) -> Answer<PathsResponse> {
        let mut state = self.state();
        state.asked.paths.push(destination);
        if state.failing {
            return Err(ConnectError::new(ErrorCode::Internal, "told to fail"));
        }
        if source != self.own.isd_as && source != IsdAs(0) {
            let reason = format!("{source} is not the local AS");
            return Err(ConnectError::new(ErrorCode::InvalidArgument, reason));
        }
        if let Some(lifetime) = state.renewed {
            let later = state.lifetime.expiry() + Duration::from_secs(1);
            state.lifetime = Lifetime::until(later.max(SystemTime::now() + lifetime));
        }
        let paths = if destination == self.own.isd_as {
            vec![proto::Path {
                mtu: self.own.mtu.into(),
                expiration: timestamp(state.lifetime.expiry()),
                ..proto::Path::default()
            }]
        } else {
            let hidden = &state.hidden;
            let usable = |link: &Link| !hidden.iter().any(|other| std::ptr::eq(&**other, link));
            let found = self
                .topology
                .paths(self.own.isd_as, destination, state.lifetime, usable);
            let paths = found.into_iter();
            paths.map(|path| self.message(path, destination)).collect()
        };
        Response::ok(PathsResponse { paths })
    }

    fn message(&self, path: PathInfo, destination: IsdAs) -> proto::Path {
        let announced = self.topology.find(destination);
        let discovery = announced
            .filter(|remote| remote.announces_discovery)
            .map(|remote| {
                let addresses = vec![remote.control_service.to_string()];
                let information = proto::DiscoveryInformation {
                    control_service_addresses: addresses.clone(),
                    discovery_service_addresses: addresses,
                };
                (destination.0, information)
            });
        let unknown = protobuf::Duration {
            seconds: -1,
            ..protobuf::Duration::default()
        };
        let latency = path.latency.iter().map(|part| match part {
            Some(part) => protobuf::Duration {
                seconds: part.as_secs() as i64,
                nanos: part.subsec_nanos() as i32,
                ..protobuf::Duration::default()
            },
            None => unknown.clone(),
        });
        proto::Path {
            interface: MessageField::some(at(path.next_hop)),
            interfaces: path
                .interfaces
                .iter()
                .map(|interface| proto::PathInterface {
                    isd_as: interface.isd_as.0,
                    id: interface.id,
                })
                .collect(),
            mtu: path.mtu.into(),
            expiration: timestamp(path.expiry),
            latency: latency.collect(),
            discovery_information: discovery.into_iter().collect(),
            raw: path.raw,
            ..proto::Path::default()
        }
    }
}

fn at(address: SocketAddr) -> proto::Interface {
    proto::Interface {
        address: MessageField::some(proto::Underlay {
            address: address.to_string(),
        }),
    }
}

fn timestamp(time: SystemTime) -> MessageField<Timestamp> {
    let since_epoch = time.duration_since(SystemTime::UNIX_EPOCH);
    let since_epoch = since_epoch.unwrap_or_default();
    MessageField::some(Timestamp {
        seconds: since_epoch.as_secs() as i64,
        nanos: since_epoch.subsec_nanos() as i32,
        ..Timestamp::default()
    })
}

#[expect(refining_impl_trait, reason = "the messages themselves")]
impl DaemonService for Service {
    async fn paths(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, PathsRequest>,
    ) -> Answer<PathsResponse> {
        let (source, destination) = (request.source_isd_as, request.destination_isd_as);
        self.tell_paths(IsdAs(source), IsdAs(destination))
    }

    async fn r#as(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, ASRequest>,
    ) -> Answer<ASResponse> {
        if request.isd_as != 0 && request.isd_as != self.own.isd_as.0 {
            return Err(ConnectError::new(ErrorCode::NotFound, "not the local AS"));
        }
        Response::ok(ASResponse {
            isd_as: self.own.isd_as.0,
            core: self.own.core,
            mtu: self.own.mtu.into(),
        })
    }

    async fn interfaces(
        &self,
        _: RequestContext,
        _: ServiceRequest<'_, InterfacesRequest>,
    ) -> Answer<InterfacesResponse> {
        let links = self.topology.links_of(self.own.isd_as);
        let interfaces = links.map(|(link, end)| link.ends[end].interface.into());
        Response::ok(InterfacesResponse {
            interfaces: interfaces.map(|id| (id, at(self.own.router))).collect(),
        })
    }

    async fn services(
        &self,
        _: RequestContext,
        _: ServiceRequest<'_, ServicesRequest>,
    ) -> Answer<ServicesResponse> {
        let control = proto::ListService {
            services: vec![proto::Service {
                uri: self.own.control_service.to_string(),
            }],
        };
        Response::ok(ServicesResponse {
            services: [("control".to_owned(), control)].into(),
        })
    }

    async fn notify_interface_down(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, NotifyInterfaceDownRequest>,
    ) -> Answer<NotifyInterfaceDownResponse> {
        self.state().asked.down.push(Interface {
            isd_as: IsdAs(request.isd_as),
            id: request.id,
        });
        Response::ok(NotifyInterfaceDownResponse::default())
    }

    async fn port_range(
        &self,
        _: RequestContext,
        _: ServiceRequest<'_, Empty>,
    ) -> Answer<PortRangeResponse> {
        let (first, last) = self.own.ports;
        Response::ok(PortRangeResponse {
            dispatched_port_start: first.into(),
            dispatched_port_end: last.into(),
        })
    }

    async fn dr_key_as_host(
        &self,
        _: RequestContext,
        _: ServiceRequest<'_, DRKeyASHostRequest>,
    ) -> Answer<DRKeyASHostResponse> {
        no_keys()
    }

    async fn dr_key_host_as(
        &self,
        _: RequestContext,
        _: ServiceRequest<'_, DRKeyHostASRequest>,
    ) -> Answer<DRKeyHostASResponse> {
        no_keys()
    }

    async fn dr_key_host_host(
        &self,
        _: RequestContext,
        _: ServiceRequest<'_, DRKeyHostHostRequest>,
    ) -> Answer<DRKeyHostHostResponse> {
        no_keys()
    }
}

fn no_keys<T: Encodable<T>>() -> Answer<T> {
    Err(ConnectError::new(ErrorCode::Unimplemented, "no keys"))
}
