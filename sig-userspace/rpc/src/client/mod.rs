//! The client: asks control services of other ASes for their gateways, and gateways for their prefixes.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use sig_common::addr::IsdAs;
use tokio::time::Instant;

use super::{
    GATEWAYS, PREFIXES, RpcError, checked,
    messages::{GatewaysRequest, PrefixesRequest},
    quic::Peer,
};
use crate::{
    protection::{Asking, OwnIdentity},
    sockets::ScionSocket,
};
use sig_core::{
    peer::{Announced, GatewayAddresses, PeerLimits, RpcProtocols},
    protection::{Greeting, Hello},
    scion::Path,
};

mod connection;
mod counters;
mod dial;
mod race;

use connection::{Connection, Variant};
pub use counters::{CallCounts, ClientCounts};
use counters::{Counters, Method};
use dial::Dialer;
use race::{HeadStarts, Message, Race};

/// How long a call may take, as in the reference.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Peers to which the way is known at the same time.
const PEERS: usize = 1 << 14;
/// What is known about a server that nobody asked for this long is forgotten.
const FORGET: Duration = Duration::from_secs(60);

/// A client on a SCION socket. Connections are kept for the next call to the same server.
///
/// Calls may be cancelled by dropping their futures. Several at once are fine.
#[derive(Debug)]
pub struct RpcClient {
    dialer: Arc<Dialer>,
    limits: PeerLimits,
    timeout: Duration,
    head_starts: HeadStarts,
    servers: Mutex<HashMap<Target, Server>>,
    counters: Arc<Counters>,
}

/// Whom a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Target {
    /// The discovery service of an AS, wherever it is.
    Discovery(IsdAs),
    /// The control address of a gateway.
    Gateway(Peer),
}

/// What is kept about a server between calls.
#[derive(Debug)]
struct Server {
    connection: Connection,
    used: Instant,
}

impl RpcClient {
    /// A client that speaks these protocols.
    ///
    /// # Errors
    /// [`RpcError::Endpoint`] if the cryptography library refuses.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(
        socket: Arc<ScionSocket>,
        protocols: RpcProtocols,
        limits: &PeerLimits,
    ) -> Result<Self, RpcError> {
        let counters = Arc::new(Counters::default());
        let dialer = Dialer::new(
            socket,
            protocols,
            limits.message_bytes,
            Arc::clone(&counters),
        )?;
        Ok(RpcClient {
            dialer: Arc::new(dialer),
            limits: *limits,
            timeout: TIMEOUT,
            head_starts: HeadStarts::default(),
            servers: Mutex::default(),
            counters,
        })
    }

    /// With another time for a whole call than five seconds.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        RpcClient { timeout, ..self }
    }

    /// A client that tries another way only when one has failed.
    #[cfg(test)]
    pub(super) fn patient(mut self) -> Self {
        self.head_starts.kept = self.timeout;
        self.head_starts.variant = self.timeout;
        self
    }

    /// The gateways of an AS, from its control service. Entries that cannot be used are left out and counted.
    ///
    /// # Errors
    /// See [`RpcError`].
    pub async fn gateways(
        &self,
        remote: IsdAs,
        path: &Path,
    ) -> Result<Vec<GatewayAddresses>, RpcError> {
        let target = Target::Discovery(remote);
        let result = self
            .call(target, path, GATEWAYS, fixed(&GatewaysRequest {}))
            .await
            .and_then(|(_, answer)| checked::gateways(&answer, self.limits.gateways_per_as));
        let (gateways, ignored) = self.counters.count(Method::Gateways, result)?;
        self.counters.ignore(ignored);
        Ok(gateways)
    }

    /// The prefixes behind the gateway of an AS with this control address. `etag`: that of the last answer, or empty.
    ///
    /// # Errors
    /// See [`RpcError`].
    pub async fn prefixes(
        &self,
        remote: IsdAs,
        control: SocketAddr,
        path: &Path,
        etag: &str,
    ) -> Result<Announced, RpcError> {
        let target = Target::Gateway(Peer {
            isd_as: remote,
            address: control,
        });
        let request = fixed(&PrefixesRequest {
            etag: etag.to_owned(),
            protection: None,
        });
        let result = self
            .call(target, path, PREFIXES, request)
            .await
            .and_then(|(_, answer)| checked::prefixes(&answer, etag));
        self.announced(result)
    }

    /// As [`RpcClient::prefixes`], and says `hello` as the one that `own` is the identity of. `None`: the gateway does not protect
    /// frames, or could not prove who it is.
    ///
    /// # Errors
    /// See [`RpcError`].
    pub async fn exchange(
        &self,
        remote: IsdAs,
        control: SocketAddr,
        path: &Path,
        etag: &str,
        (own, hello): (Arc<OwnIdentity>, Hello),
    ) -> Result<(Announced, Option<Greeting>), RpcError> {
        let target = Target::Gateway(Peer {
            isd_as: remote,
            address: control,
        });
        let spare = hello.fresh.then(|| self.take(target)).flatten();
        let asking = Arc::new(Asking::new(own, hello, etag));
        let request: Message = {
            let asking = Arc::clone(&asking);
            Arc::new(move |channel: &quinn::Connection| asking.request(channel).into())
        };
        let mut greeting = None;
        let mut result = self.call(target, path, PREFIXES, request.clone()).await;
        if let (Err(_), Some(spare)) = (&result, spare) {
            // The server takes no other connection now.
            self.servers().insert(target, spare);
            result = self.call(target, path, PREFIXES, request).await;
        }
        let result = result.and_then(|(channel, answer)| {
            greeting =
                checked::protection(&answer).and_then(|answer| asking.greeting(&channel, &answer));
            checked::prefixes(&answer, etag)
        });
        Ok((self.announced(result)?, greeting))
    }

    fn announced(&self, result: Result<Announced, RpcError>) -> Result<Announced, RpcError> {
        let prefixes = self.counters.count(Method::Prefixes, result)?;
        if let Announced::Prefixes { malformed, .. } = prefixes {
            self.counters.ignore(malformed);
        }
        Ok(prefixes)
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> ClientCounts {
        self.counters.counts()
    }

    async fn call(
        &self,
        target: Target,
        path: &Path,
        method: &'static str,
        message: Message,
    ) -> Result<(quinn::Connection, Bytes), RpcError> {
        let known = self.take(target);
        let (connection, answer) = Race {
            dialer: &self.dialer,
            target,
            path,
            method,
            message,
            timeout: self.timeout,
            head_starts: self.head_starts,
        }
        .run(known)
        .await?;
        let channel = connection.quic().clone();
        self.keep(target, connection);
        Ok((channel, answer))
    }

    /// What is known about a server. Whoever takes it gives it back if it is still good, so that a connection that
    /// fails is never used again.
    fn take(&self, target: Target) -> Option<Server> {
        self.servers().remove(&target)
    }

    fn keep(&self, target: Target, connection: Connection) {
        let now = Instant::now();
        let mut servers = self.servers();
        servers.retain(|_, server| now.duration_since(server.used) < FORGET);
        servers.insert(
            target,
            Server {
                connection,
                used: now,
            },
        );
    }

    fn servers(&self) -> MutexGuard<'_, HashMap<Target, Server>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that is the same over any connection.
fn fixed(request: &impl prost::Message) -> Message {
    let message = Bytes::from(request.encode_to_vec());
    Arc::new(move |_| message.clone())
}
