//! A daemon that answers what it is told to.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use connectrpc::{
    ConnectError, Encodable, ErrorCode, RequestContext, Response, Router, ServiceRequest,
    ServiceResult,
};
use scion_protobuf::{
    buffa_types::google::protobuf::Empty,
    proto::daemon::v1::{
        ASRequest, ASResponse, DRKeyASHostRequest, DRKeyASHostResponse, DRKeyHostASRequest,
        DRKeyHostASResponse, DRKeyHostHostRequest, DRKeyHostHostResponse, DaemonService,
        DaemonServiceExt as _, InterfacesRequest, InterfacesResponse, NotifyInterfaceDownRequest,
        NotifyInterfaceDownResponse, PathsRequest, PathsResponse, PortRangeResponse,
        ServicesRequest, ServicesResponse,
    },
};
use tokio::net::TcpListener;

/// What it answers, and what it was told.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    pub(super) local: ASResponse,
    pub(super) ports: PortRangeResponse,
    pub(super) interfaces: InterfacesResponse,
    pub(super) services: ServicesResponse,
    /// None: refused.
    pub(super) paths: Option<PathsResponse>,
    pub(super) asked: Vec<(u64, u64)>,
    pub(super) down: Vec<(u64, u64)>,
}

/// The server; it stops, with all its connections, when dropped.
pub(super) struct Fake {
    pub(super) address: SocketAddr,
    pub(super) answers: Arc<Mutex<Answers>>,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Fake {
    pub(super) fn start(address: SocketAddr, answers: Answers) -> Self {
        let answers = Arc::new(Mutex::new(answers));
        let service = Arc::new(Service(answers.clone()));
        let app = service.register(Router::new()).into_axum_router();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let socket = std::net::TcpListener::bind(address).unwrap();
        socket.set_nonblocking(true).unwrap();
        let address = socket.local_addr().unwrap();
        runtime.spawn(async move {
            let listener = TcpListener::from_std(socket).unwrap();
            axum::serve(listener, app).await.unwrap();
        });
        Self {
            address,
            answers,
            runtime: Some(runtime),
        }
    }

    pub(super) fn answers(&self) -> std::sync::MutexGuard<'_, Answers> {
        self.answers.lock().unwrap()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        // Dropping a runtime within another one is not allowed.
        if let Some(runtime) = self.runtime.take() {
            std::thread::spawn(move || drop(runtime)).join().unwrap();
        }
    }
}

struct Service(Arc<Mutex<Answers>>);

type Answer<T> = ServiceResult<T>;

#[expect(refining_impl_trait, reason = "the messages themselves")]
impl DaemonService for Service {
    async fn paths(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, PathsRequest>,
    ) -> Answer<PathsResponse> {
        let mut answers = self.0.lock().unwrap();
        answers
            .asked
            .push((request.source_isd_as, request.destination_isd_as));
        match &answers.paths {
            Some(paths) => Response::ok(paths.clone()),
            None => Err(ConnectError::new(ErrorCode::Internal, "no segments")),
        }
    }

    async fn r#as(
        &self,
        _: RequestContext,
        _: ServiceRequest<'_, ASRequest>,
    ) -> Answer<ASResponse> {
        Response::ok(self.0.lock().unwrap().local.clone())
    }

    async fn interfaces(
        &self,
        _: RequestContext,
        _: ServiceRequest<'_, InterfacesRequest>,
    ) -> Answer<InterfacesResponse> {
        Response::ok(self.0.lock().unwrap().interfaces.clone())
    }

    async fn services(
        &self,
        _: RequestContext,
        _: ServiceRequest<'_, ServicesRequest>,
    ) -> Answer<ServicesResponse> {
        Response::ok(self.0.lock().unwrap().services.clone())
    }

    async fn notify_interface_down(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, NotifyInterfaceDownRequest>,
    ) -> Answer<NotifyInterfaceDownResponse> {
        self.0
            .lock()
            .unwrap()
            .down
            .push((request.isd_as, request.id));
        Response::ok(NotifyInterfaceDownResponse::default())
    }

    async fn port_range(
        &self,
        _: RequestContext,
        _: ServiceRequest<'_, Empty>,
    ) -> Answer<PortRangeResponse> {
        Response::ok(self.0.lock().unwrap().ports.clone())
    }

    async fn dr_key_as_host(
        &self,
        _: RequestContext,
        _: ServiceRequest<'_, DRKeyASHostRequest>,
    ) -> Answer<DRKeyASHostResponse> {
        refused()
    }

    async fn dr_key_host_as(
        &self,
        _: RequestContext,
        _: ServiceRequest<'_, DRKeyHostASRequest>,
    ) -> Answer<DRKeyHostASResponse> {
        refused()
    }

    async fn dr_key_host_host(
        &self,
        _: RequestContext,
        _: ServiceRequest<'_, DRKeyHostHostRequest>,
    ) -> Answer<DRKeyHostHostResponse> {
        refused()
    }
}

fn refused<T: Encodable<T>>() -> Answer<T> {
    Err(ConnectError::new(ErrorCode::Unimplemented, "no keys"))
}
