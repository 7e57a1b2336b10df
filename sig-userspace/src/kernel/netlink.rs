//! A route netlink connection, and requests over it.

use std::io;
use std::sync::Arc;

use futures_util::StreamExt;
use rtnetlink::packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use rtnetlink::packet_route::RouteNetlinkMessage;
use tokio::{sync::Mutex, task::JoinHandle};

/// A connection to the kernel's route netlink (RFC 3549), tied to the network namespace in which it was opened.
/// Clones share the connection; it closes with the last of them.
#[derive(Clone, Debug)]
pub struct Netlink {
    handle: rtnetlink::Handle,
    /// The kernel refuses (EBUSY) a second dump over a socket while one is under way.
    dumps: Arc<Mutex<()>>,
    _task: Arc<Task>,
}

/// A tokio task that ends when its owner goes away.
#[derive(Debug)]
pub(crate) struct Task(JoinHandle<()>);

impl Task {
    pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(future))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Netlink {
    /// Opens a connection in the network namespace of the calling thread. Must be called within a tokio runtime.
    pub fn open() -> io::Result<Self> {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        Ok(Self {
            handle,
            dumps: Arc::default(),
            _task: Arc::new(Task::spawn(connection)),
        })
    }

    /// Sends one request and waits for its acknowledgement. `flags` are added to `NLM_F_REQUEST | NLM_F_ACK`.
    pub(crate) async fn execute(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.request(message, NLM_F_REQUEST | NLM_F_ACK | flags)
            .await
            .map(drop)
    }

    /// Asks for one object. `Ok(None)` when the kernel answers nothing at all.
    pub(crate) async fn get(
        &self,
        message: RouteNetlinkMessage,
    ) -> io::Result<Option<RouteNetlinkMessage>> {
        Ok(self
            .request(message, NLM_F_REQUEST)
            .await?
            .into_iter()
            .next())
    }

    /// Asks for all objects of a kind.
    pub(crate) async fn dump(
        &self,
        message: RouteNetlinkMessage,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        let _alone = self.dumps.lock().await;
        self.request(message, NLM_F_REQUEST | NLM_F_DUMP).await
    }

    async fn request(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        let mut request = NetlinkMessage::from(message);
        request.header.flags = flags;
        let mut answers = self.handle.clone().request(request).map_err(|_| {
            io::Error::new(
                io::ErrorKind::BrokenPipe,
                "the netlink connection has ended",
            )
        })?;
        let mut found = Vec::new();
        while let Some(answer) = answers.next().await {
            match answer.payload {
                NetlinkPayload::InnerMessage(message) => found.push(message),
                NetlinkPayload::Error(error) if error.code.is_some() => {
                    return Err(io::Error::from_raw_os_error(error.raw_code().abs()));
                }
                _ => {}
            }
        }
        Ok(found)
    }
}
