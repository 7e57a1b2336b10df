//! Client of the SCION daemon: who we are, which routers the AS has, which paths lead elsewhere.
//!
//! gRPC over HTTP/2 without TLS, as the daemon of the SCION project serves it
//! (`proto.daemon.v1.DaemonService`). The daemon may come later than we do and may be restarted: every request
//! connects if it has to.

mod convert;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    fmt,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use connectrpc::{
    CompressionRegistry, ConnectError, ErrorCode, Protocol,
    client::{CallOptions, ClientConfig, HttpClient},
};
use rand::seq::IteratorRandom as _;
use scion_protobuf::{
    buffa_types::google::protobuf::Empty,
    proto::daemon::v1::{
        ASRequest, DaemonServiceClient, InterfacesRequest, NotifyInterfaceDownRequest,
        PathsRequest, ServicesRequest,
    },
};
use sig_common::addr::IsdAs;
use thiserror::Error;
use tokio::time::Instant;

use sig_core::scion;

/// The daemon may have to ask other ASes.
const PATHS_TIMEOUT: Duration = Duration::from_secs(10);
const INTERFACES_TIMEOUT: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(5);
const DIAGNOSIS_TIMEOUT: Duration = Duration::from_secs(1);

/// Waits between attempts to reach a daemon that is not there.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Largest answer in bytes, the limit of gRPC implementations.
const MAX_ANSWER: usize = 4 << 20;

type Client = DaemonServiceClient<HttpClient>;

/// The local AS as the daemon describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalAs {
    /// Its number.
    pub isd_as: IsdAs,
    /// Whether it is a core AS.
    pub core: bool,
    /// Largest SCION packet within the AS, in bytes.
    pub mtu: u16,
    /// First and last port to which its routers deliver directly; both 0: none. What is for other ports they
    /// deliver to port 30041.
    pub ports: (u16, u16),
    /// Interfaces to other ASes, and the internal underlay addresses of their routers.
    pub interfaces: HashMap<u64, SocketAddr>,
}

/// Why the daemon did not tell.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DaemonError {
    /// The address cannot be one.
    #[error("{0:?} is not an address of a SCION daemon: expected HOST:PORT")]
    Address(String),
    /// No connection, or no answer in time.
    #[error("the SCION daemon at {address} does not answer: {reason}")]
    Unreachable {
        /// Its address.
        address: String,
        /// What was tried or missed.
        reason: String,
    },
    /// It answered with an error.
    #[error("the SCION daemon at {address} answered the {what} with an error: {reason}")]
    Refused {
        /// Its address.
        address: String,
        /// What it was asked for.
        what: &'static str,
        /// Its words.
        reason: String,
    },
    /// It answered something that cannot be.
    #[error("the SCION daemon at {address} answered the {what} with invalid data: {reason}")]
    Answer {
        /// Its address.
        address: String,
        /// What it was asked for.
        what: &'static str,
        /// What is wrong with the answer.
        reason: String,
    },
}

/// How we get on with the daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Its address.
    pub address: String,
    /// Whether the last request was answered, be it with an error.
    pub reachable: bool,
    /// Why the last request failed, if it did.
    pub problem: Option<String>,
    /// Requests sent.
    pub requests: u64,
    /// Requests that failed.
    pub failures: u64,
    /// Paths in answers that could not be used.
    pub paths_skipped: u64,
}

/// The SCION daemon. Clones share connection and counters.
#[derive(Clone)]
pub struct Daemon(Arc<Shared>);

struct Shared {
    /// None: the address cannot be one.
    config: Option<ClientConfig>,
    inner: Mutex<Inner>,
}

struct Inner {
    /// Made anew after a request that got no answer, lest a dead connection be used for as long as TCP believes in
    /// it.
    transport: HttpClient,
    state: State,
}

impl Daemon {
    /// The daemon at `address`, `HOST:PORT`; the host may be a name. Does not connect yet.
    #[must_use]
    pub fn new(address: &str) -> Self {
        let config = http::Uri::builder()
            .scheme("http")
            .authority(address)
            .path_and_query("/")
            .build()
            .ok()
            .filter(|uri| uri.port_u16().is_some_and(|port| port != 0))
            .map(|uri| {
                ClientConfig::new(uri)
                    .with_protocol(Protocol::Grpc)
                    .with_compression(CompressionRegistry::new())
                    .with_default_max_message_size(MAX_ANSWER)
            });
        Self(Arc::new(Shared {
            config,
            inner: Mutex::new(Inner {
                transport: HttpClient::plaintext_http2_only(),
                state: State {
                    address: address.to_owned(),
                    ..State::default()
                },
            }),
        }))
    }

    /// How we get on with it.
    #[must_use]
    pub fn state(&self) -> State {
        self.inner().state.clone()
    }

    /// Asks about the local AS.
    ///
    /// # Errors
    /// See [`DaemonError`].
    pub async fn local(&self) -> Result<LocalAs, DaemonError> {
        let what = "request for the local AS";
        let answer = self
            .ask(what, TIMEOUT, |client, options| async move {
                client
                    .r#as_with_options(ASRequest::default(), options)
                    .await
            })
            .await?
            .into_owned();
        let isd_as = IsdAs(answer.isd_as);
        if isd_as.isd() == 0 || isd_as.asn() == 0 {
            return Err(self.nonsense(what, &format_args!("the ISD-AS is {isd_as}")));
        }
        Ok(LocalAs {
            isd_as,
            core: answer.core,
            mtu: convert::mtu(answer.mtu),
            ports: self.ports().await?,
            interfaces: self.interfaces().await?,
        })
    }

    /// Asks about the local AS until there is an answer. Until then, `told` is told why there is none.
    pub async fn wait_for(&self, told: impl Fn(&DaemonError)) -> LocalAs {
        let mut wait = FIRST_WAIT;
        let mut failed = false;
        loop {
            match self.local().await {
                Ok(local) => {
                    if failed {
                        tracing::info!("the SCION daemon is reachable");
                    }
                    return local;
                }
                Err(error) => {
                    told(&error);
                    if !failed {
                        tracing::warn!(%error, "waiting for the SCION daemon");
                    }
                    failed = true;
                }
            }
            tokio::time::sleep(wait).await;
            wait = (2 * wait).min(LONGEST_WAIT);
        }
    }

    async fn ports(&self) -> Result<(u16, u16), DaemonError> {
        let what = "request for the dispatched ports";
        let answer = self
            .ask(what, TIMEOUT, |client, options| async move {
                client
                    .port_range_with_options(Empty::default(), options)
                    .await
            })
            .await?
            .into_owned();
        let (start, end) = (answer.dispatched_port_start, answer.dispatched_port_end);
        match (u16::try_from(start), u16::try_from(end)) {
            (Ok(first), Ok(last)) if first <= last && (first != 0 || last == 0) => {
                Ok((first, last))
            }
            _ => Err(self.nonsense(what, &format_args!("the range is {start} to {end}"))),
        }
    }

    /// Asks for the interfaces of the local AS and the internal underlay addresses of their routers.
    ///
    /// # Errors
    /// See [`DaemonError`]. One bad address makes the whole answer one that cannot be.
    pub async fn interfaces(&self) -> Result<HashMap<u64, SocketAddr>, DaemonError> {
        let what = "request for the interfaces";
        let answer = self
            .ask(what, INTERFACES_TIMEOUT, |client, options| async move {
                client
                    .interfaces_with_options(InterfacesRequest::default(), options)
                    .await
            })
            .await?
            .into_owned();
        answer
            .interfaces
            .into_iter()
            .map(|(id, interface)| {
                let address = convert::underlay(interface);
                match address.parse() {
                    Ok(address) => Ok((id, address)),
                    Err(_) => Err(self.nonsense(
                        what,
                        &format_args!("interface {id} has the address {address:?}"),
                    )),
                }
            })
            .collect()
    }

    /// Asks for the address of a control service of the local AS, any of them. None if there is none, or none with
    /// an IP address.
    ///
    /// # Errors
    /// See [`DaemonError`].
    pub async fn control_service_ip(&self) -> Result<Option<IpAddr>, DaemonError> {
        let answer = self
            .ask(
                "request for the services",
                TIMEOUT,
                |client, options| async move {
                    client
                        .services_with_options(ServicesRequest::default(), options)
                        .await
                },
            )
            .await?
            .into_owned();
        let control = answer.services.get("control");
        Ok(control
            .into_iter()
            .flat_map(|list| &list.services)
            .filter_map(|service| service.uri.parse::<SocketAddr>().ok())
            .choose(&mut rand::rng())
            .map(|address| address.ip()))
    }

    /// Asks for paths from the AS `local` to the AS `destination`; within one AS that is the empty path, with an
    /// unspecified next hop. Paths that cannot be used are left out and counted.
    ///
    /// # Errors
    /// See [`DaemonError`]. That no path of several can be used makes the answer one that cannot be; no paths at
    /// all are a valid answer.
    pub async fn paths(
        &self,
        local: IsdAs,
        destination: IsdAs,
    ) -> Result<Vec<scion::Path>, DaemonError> {
        let what = "request for paths";
        let deadline = Instant::now() + PATHS_TIMEOUT;
        let request = PathsRequest {
            source_isd_as: local.0,
            destination_isd_as: destination.0,
            ..PathsRequest::default()
        };
        let answer = self
            .ask(what, PATHS_TIMEOUT, |client, options| async move {
                client.paths_with_options(request, options).await
            })
            .await?
            .into_owned();
        let converted = convert::paths(answer.paths, local, destination, deadline).await;
        self.inner().state.paths_skipped += converted.skipped;
        match converted.problem {
            Some(problem) if converted.paths.is_empty() => Err(self.nonsense(what, &problem)),
            _ => Ok(converted.paths),
        }
    }

    /// Tells the daemon that an interface is out of order, so that it avoids it in its next answers.
    ///
    /// # Errors
    /// See [`DaemonError`].
    pub async fn notify_interface_down(&self, isd_as: IsdAs, id: u64) -> Result<(), DaemonError> {
        let request = NotifyInterfaceDownRequest {
            isd_as: isd_as.0,
            id,
        };
        self.ask(
            "notification of an interface failure",
            TIMEOUT,
            |client, options| async move {
                client
                    .notify_interface_down_with_options(request, options)
                    .await
            },
        )
        .await
        .map(drop)
    }

    /// Sends a request and keeps the books.
    async fn ask<T, F>(
        &self,
        what: &'static str,
        timeout: Duration,
        request: impl FnOnce(Client, CallOptions) -> F,
    ) -> Result<T, DaemonError>
    where
        F: Future<Output = Result<T, ConnectError>>,
    {
        let transport = {
            let mut inner = self.inner();
            inner.state.requests += 1;
            inner.transport.clone()
        };
        let Some(config) = &self.0.config else {
            let error = DaemonError::Address(self.inner().state.address.clone());
            return Err(self.failed(error));
        };
        let client = Client::new(transport, config.clone());
        let options = CallOptions::default().with_timeout(timeout);
        match request(client, options).await {
            Ok(answer) => {
                let mut inner = self.inner();
                inner.state.reachable = true;
                inner.state.problem = None;
                Ok(answer)
            }
            Err(mut error) => {
                if error.code == ErrorCode::Unavailable
                    && let Some(reason) = self.why_unreachable().await
                {
                    error.message = Some(reason);
                }
                Err(self.failed(self.explain(what, error)))
            }
        }
    }

    /// Why there is no connection to the daemon, in the words of the operating system, which the HTTP client keeps for
    /// itself.
    async fn why_unreachable(&self) -> Option<String> {
        let address = self.inner().state.address.clone();
        let connecting = tokio::net::TcpStream::connect(address);
        match tokio::time::timeout(DIAGNOSIS_TIMEOUT, connecting).await {
            Ok(Err(error)) => Some(error.to_string()),
            Ok(Ok(_)) | Err(_) => None,
        }
    }

    fn explain(&self, what: &'static str, error: ConnectError) -> DaemonError {
        let address = self.inner().state.address.clone();
        let code = error.code;
        let reason = error.message.unwrap_or_else(|| code.as_str().to_owned());
        match code {
            ErrorCode::Unavailable | ErrorCode::DeadlineExceeded | ErrorCode::Canceled => {
                DaemonError::Unreachable { address, reason }
            }
            _ => DaemonError::Refused {
                address,
                what,
                reason,
            },
        }
    }

    fn nonsense(&self, what: &'static str, reason: &dyn fmt::Display) -> DaemonError {
        let address = self.inner().state.address.clone();
        self.failed(DaemonError::Answer {
            address,
            what,
            reason: reason.to_string(),
        })
    }

    fn failed(&self, error: DaemonError) -> DaemonError {
        let mut inner = self.inner();
        inner.state.failures += 1;
        inner.state.problem = Some(error.to_string());
        match error {
            DaemonError::Unreachable { .. } => {
                inner.state.reachable = false;
                inner.transport = HttpClient::plaintext_http2_only();
            }
            DaemonError::Address(_) => inner.state.reachable = false,
            DaemonError::Refused { .. } | DaemonError::Answer { .. } => {
                inner.state.reachable = true;
            }
        }
        error
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Daemon").field(&self.state()).finish()
    }
}
