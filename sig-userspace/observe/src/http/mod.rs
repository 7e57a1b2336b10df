//! The HTTP servers: status pages with metrics, and the management API.
//!
//! Both are for the operator, and there is no authentication. On the loopback interface they can be used by programs of
//! this host and by its browsers, but not by pages of others in these browsers. On other interfaces they can be read,
//! and used only where the configuration allows that.

mod answer;
mod api;
mod connections;
mod origin;
mod status_pages;
pub mod ui;

pub use api::openapi;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Bytes,
    extract::DefaultBodyLimit,
    http::{HeaderMap, StatusCode, header},
    response::Html,
    routing::get,
};
use tokio::{net::TcpListener, task::JoinHandle};

use super::{operator::Operator, pages};
use connections::accept;
use origin::Access;
use sig_core::document::common::{Listen, LogLevel};

/// Longest body of a request, in bytes: a routing policy.
const MAX_BODY: usize = 1 << 20;

/// Longest head of a request, in bytes.
const MAX_HEAD: usize = 16 << 10;

/// What clients can make a server keep.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Connections at the same time. A new one takes the place of the oldest that waits for its client.
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
    head: Duration::from_secs(5),
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

    fn router(self, operator: Arc<dyn Operator>, access: Access) -> Router {
        let routes = match self {
            Self::StatusPages => status_pages::routes(),
            Self::Api => api::routes(
                "Management API of the SCION-IP gateway",
                api::OPENAPI.to_owned(),
                api::pages(&operator),
            ),
        };
        routes
            .layer(DefaultBodyLimit::max(MAX_BODY))
            .layer(axum::middleware::from_fn_with_state(access, answer::guard))
            .with_state(operator)
    }
}

/// A page that is text: plain, JSON, or metrics.
pub struct Text {
    /// Where it is: `/metrics`.
    pub path: &'static str,
    /// What it shows, for the index.
    pub about: &'static str,
    /// Its media type.
    pub content_type: &'static str,
    /// Makes it; may block for a moment.
    pub text: Arc<dyn Fn() -> String + Send + Sync>,
    /// Takes the level of the log that is sent there with `PUT`, as JSON or from a form. `None`: the page takes nothing.
    pub set_level: Option<SetLevel>,
}

/// Changes the level of the log; may block for a moment.
pub type SetLevel = Arc<dyn Fn(LogLevel) -> Result<(), String> + Send + Sync>;

/// Media type of text for people.
pub const PLAIN: &str = "text/plain; charset=utf-8";
/// Media type of JSON.
pub const JSON: &str = "application/json";

/// These pages.
fn texts<S: Clone + Send + Sync + 'static>(pages: Vec<Text>) -> Router<S> {
    let mut router = Router::new();
    for page in pages {
        let Text {
            path,
            content_type,
            text,
            about: _,
            set_level,
        } = page;
        let mut methods = get(move || async move {
            let text = tokio::task::spawn_blocking(move || text())
                .await
                .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
            Ok::<_, StatusCode>(([(header::CONTENT_TYPE, content_type)], text))
        });
        if let Some(set) = set_level {
            methods = methods.put(move |headers: HeaderMap, body: Bytes| async move {
                answer::set_log_level(move |level| set(level), &headers, &body).await
            });
        }
        router = router.route(path, methods);
    }
    router
}

/// A listening server. Dropping it closes it and its connections.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Server {
    /// Listens.
    ///
    /// # Errors
    ///
    /// If the address cannot be bound.
    pub async fn listen(
        service: Service,
        listen: Listen,
        operator: Arc<dyn Operator>,
    ) -> Result<Self, Error> {
        Self::start(service, listen, operator, LIMITS).await
    }

    /// Listens where `key` says, and shows these pages, an index of them, and [the live page](ui), for which
    /// [`ui::STATUS`] and [`ui::REASONS`] have to be among them.
    ///
    /// # Errors
    ///
    /// If the address cannot be bound.
    pub async fn texts(
        key: &'static str,
        listen: Listen,
        id: &str,
        pages: Vec<Text>,
    ) -> Result<Self, Error> {
        let entries = pages.iter().map(|page| (page.path, page.about));
        let index = pages::links(id, [(ui::PATH, ui::ABOUT)].into_iter().chain(entries));
        let router = ui::routes()
            .merge(texts(pages))
            .fallback(get(move || async move { Html(index) }));
        Self::plain(key, listen, router).await
    }

    /// Listens where `key` says, and shows these pages as a management API, which `openapi` describes for programs (OpenAPI 3.0).
    ///
    /// # Errors
    ///
    /// If the address cannot be bound.
    pub async fn api(
        key: &'static str,
        listen: Listen,
        title: &str,
        openapi: String,
        pages: Vec<Text>,
    ) -> Result<Self, Error> {
        Self::plain(key, listen, api::routes(title, openapi, pages)).await
    }

    async fn plain(key: &'static str, listen: Listen, router: Router) -> Result<Self, Error> {
        let access = Access::of(listen);
        let guard = axum::middleware::from_fn_with_state(access, answer::guard);
        let router = router.layer(DefaultBodyLimit::max(MAX_BODY)).layer(guard);
        Self::serve(key, listen.address, router, LIMITS).await
    }

    async fn start(
        service: Service,
        listen: Listen,
        operator: Arc<dyn Operator>,
        limits: Limits,
    ) -> Result<Self, Error> {
        let router = service.router(operator, Access::of(listen));
        Self::serve(service.key(), listen.address, router, limits).await
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

#[cfg(test)]
mod tests;
