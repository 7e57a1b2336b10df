//! The HTTP servers: status pages with metrics, and the management API.
//!
//! Both are for the operator: they listen on the loopback interface unless the configuration says otherwise.
//! A page of another origin in the operator's browser cannot change anything.

mod answer;
mod api;
mod origin;
mod status_pages;

use std::{net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use axum::{Router, extract::DefaultBodyLimit};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};

use super::operator::Operator;

/// Longest body of a request, in bytes: a routing policy.
const MAX_BODY: usize = 1 << 20;

/// Longest head of a request, in bytes.
const MAX_HEAD: usize = 16 << 10;

/// What clients can make a server keep.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Connections at the same time; more wait.
    connections: usize,
    /// How long the head of a request may take.
    head: Duration,
    /// After this a connection is closed at the end of the request that it serves.
    lifetime: Duration,
    /// How long that may take.
    grace: Duration,
}

const LIMITS: Limits = Limits {
    connections: 64,
    head: Duration::from_secs(10),
    lifetime: Duration::from_secs(60),
    grace: Duration::from_secs(10),
};

/// The address of a server cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error(
    "{key}: cannot listen on {address}: {source}; write an address of this host with a TCP port that no \
     other program uses"
)]
pub struct Error {
    /// Section and key of the configuration.
    pub key: &'static str,
    /// The address.
    pub address: SocketAddr,
    /// Why not.
    pub source: std::io::Error,
}

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Metrics and status pages: `[metrics] prometheus`.
    StatusPages,
    /// Management API: `[api] addr`.
    Api,
}

impl Service {
    const fn key(self) -> &'static str {
        match self {
            Self::StatusPages => "[metrics] prometheus",
            Self::Api => "[api] addr",
        }
    }

    fn router(self, operator: Arc<dyn Operator>) -> Router {
        let routes = match self {
            Self::StatusPages => status_pages::routes(),
            Self::Api => api::routes(),
        };
        routes
            .layer(DefaultBodyLimit::max(MAX_BODY))
            .layer(axum::middleware::from_fn(answer::guard))
            .with_state(operator)
    }
}

/// A listening server. Dropping it closes it and its connections.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Server {
    /// Listens at `address`. That it is meant to be reached from other machines, if it can be, is a matter of
    /// the configuration.
    ///
    /// # Errors
    ///
    /// If the address cannot be bound.
    pub async fn listen(
        service: Service,
        address: SocketAddr,
        operator: Arc<dyn Operator>,
    ) -> Result<Self, Error> {
        Self::start(service, address, operator, LIMITS).await
    }

    async fn start(
        service: Service,
        address: SocketAddr,
        operator: Arc<dyn Operator>,
        limits: Limits,
    ) -> Result<Self, Error> {
        let fail = |source| Error {
            key: service.key(),
            address,
            source,
        };
        let listener = TcpListener::bind(address).await.map_err(fail)?;
        Ok(Server {
            address: listener.local_addr().map_err(fail)?,
            task: tokio::spawn(accept(listener, service.router(operator), limits)),
        })
    }

    /// Where it listens: with the port that the kernel chose where the configured one is 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, router: Router, limits: Limits) {
    // They end with this task.
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        if connections.len() >= limits.connections {
            connections.join_next().await;
            continue;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.spawn(serve(stream, router.clone(), limits));
            }
            Err(error) => {
                // Such as too many open files: it passes, and must not spin.
                tracing::warn!("cannot accept an HTTP connection: {error}");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

/// Serves a connection. That a client breaks off or sends nonsense is no concern of ours.
async fn serve(stream: TcpStream, router: Router, limits: Limits) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = tokio::time::sleep(limits.lifetime) => connection.as_mut().graceful_shutdown(),
    }
    let _ = tokio::time::timeout(limits.grace, connection).await;
}

#[cfg(test)]
mod tests;
