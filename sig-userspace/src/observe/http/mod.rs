//! The HTTP servers: status pages with metrics, and the management API.
//!
//! Both are for the operator: they listen on the loopback interface unless the configuration says otherwise.
//! A page of another origin in the operator's browser cannot change anything.

mod answer;
mod api;
mod origin;
mod status_pages;

use std::{net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::DefaultBodyLimit,
    http::{StatusCode, header},
    routing::get,
};
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

/// A page of plain text.
pub struct Text {
    /// Where it is: `/metrics`.
    pub path: &'static str,
    /// Its media type.
    pub content_type: &'static str,
    /// Makes it; may block for a moment.
    pub text: Arc<dyn Fn() -> String + Send + Sync>,
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

    /// Listens at `address`, the value of `key`, and shows these pages and a list of them.
    ///
    /// # Errors
    ///
    /// If the address cannot be bound.
    pub async fn texts(
        key: &'static str,
        address: SocketAddr,
        pages: Vec<Text>,
    ) -> Result<Self, Error> {
        let list: String = pages
            .iter()
            .map(|page| format!("{}\n", page.path))
            .collect();
        let mut router = Router::new().fallback(get(move || async move { list }));
        for Text {
            path,
            content_type,
            text,
        } in pages
        {
            let show = get(move || async move {
                let text = tokio::task::spawn_blocking(move || text())
                    .await
                    .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
                Ok::<_, StatusCode>(([(header::CONTENT_TYPE, content_type)], text))
            });
            router = router.route(path, show);
        }
        let router = router.layer(axum::middleware::from_fn(answer::guard));
        Self::serve(key, address, router, LIMITS).await
    }

    async fn start(
        service: Service,
        address: SocketAddr,
        operator: Arc<dyn Operator>,
        limits: Limits,
    ) -> Result<Self, Error> {
        Self::serve(service.key(), address, service.router(operator), limits).await
    }

    async fn serve(
        key: &'static str,
        address: SocketAddr,
        router: Router,
        limits: Limits,
    ) -> Result<Self, Error> {
        let fail = |source| Error {
            key,
            address,
            source,
        };
        let listener = TcpListener::bind(address).await.map_err(fail)?;
        Ok(Server {
            address: listener.local_addr().map_err(fail)?,
            task: tokio::spawn(accept(listener, router, limits)),
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
                connections.spawn(converse(stream, router.clone(), limits));
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
async fn converse(stream: TcpStream, router: Router, limits: Limits) {
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
