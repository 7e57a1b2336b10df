//! A route netlink connection, and requests over it.

use std::io;
use std::sync::Arc;

use futures_util::{Stream, StreamExt};
use rtnetlink::packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use rtnetlink::packet_route::RouteNetlinkMessage;
use tokio::{sync::Mutex, task::JoinHandle};

/// Requests that may be under way at once: their acknowledgements fit the socket's receive buffer of default size.
const PIPELINE: usize = 128;
/// How often a dump is tried that a change of the tables interrupts.
const DUMP_ATTEMPTS: u32 = 10;

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
        let (mut connection, handle, _) = rtnetlink::new_connection()?;
        // The end of a dump may be what says that it was interrupted.
        connection.set_forward_done(true);
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

    /// Sends many requests, and waits for their acknowledgements, which are returned in the same order. Unlike with
    /// [`Netlink::execute`], the next request does not wait for the answer to the one before.
    pub(crate) async fn execute_all(
        &self,
        messages: Vec<RouteNetlinkMessage>,
        flags: u16,
    ) -> Vec<io::Result<()>> {
        let mut results = Vec::with_capacity(messages.len());
        let mut messages = messages.into_iter();
        loop {
            let sent = messages.by_ref().take(PIPELINE);
            let sent: Vec<_> = sent
                .map(|message| self.send(message, NLM_F_REQUEST | NLM_F_ACK | flags))
                .collect();
            if sent.is_empty() {
                return results;
            }
            for answers in sent {
                results.push(match answers {
                    Ok(answers) => receive(answers).await.map(drop),
                    Err(error) => Err(error),
                });
            }
        }
    }

    /// Asks for all objects of a kind. A dump that a change interrupts, so that objects may be missing or be there
    /// twice, is repeated.
    pub(crate) async fn dump(
        &self,
        message: RouteNetlinkMessage,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        let _alone = self.dumps.lock().await;
        let mut attempt = 1;
        loop {
            let answers = self.send(message.clone(), NLM_F_REQUEST | NLM_F_DUMP)?;
            let answer = receive(answers).await?;
            if !answer.interrupted {
                return Ok(answer.messages);
            }
            if attempt == DUMP_ATTEMPTS {
                return Err(io::Error::other(
                    "the kernel's tables change too fast to be read as a whole",
                ));
            }
            attempt += 1;
        }
    }

    async fn request(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        Ok(receive(self.send(message, flags)?).await?.messages)
    }

    fn send(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<impl Stream<Item = NetlinkMessage<RouteNetlinkMessage>> + Unpin + use<>> {
        let mut request = NetlinkMessage::from(message);
        request.header.flags = flags;
        self.handle.clone().request(request).map_err(|_| {
            io::Error::new(
                io::ErrorKind::BrokenPipe,
                "the netlink connection has ended",
            )
        })
    }
}

#[derive(Debug, Default)]
struct Answer {
    messages: Vec<RouteNetlinkMessage>,
    /// Something changed while the kernel wrote it.
    interrupted: bool,
}

async fn receive(
    mut answers: impl Stream<Item = NetlinkMessage<RouteNetlinkMessage>> + Unpin,
) -> io::Result<Answer> {
    let mut answer = Answer::default();
    while let Some(message) = answers.next().await {
        answer.interrupted |= message.header.flags & NLM_F_DUMP_INTR != 0;
        match message.payload {
            NetlinkPayload::InnerMessage(message) => answer.messages.push(message),
            NetlinkPayload::Error(error) if error.code.is_some() => {
                return Err(io::Error::from_raw_os_error(error.raw_code().abs()));
            }
            _ => {}
        }
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use rtnetlink::packet_core::{DoneMessage, NLM_F_MULTIPART, NetlinkHeader};
    use rtnetlink::packet_route::link::LinkMessage;

    use super::*;

    #[tokio::test]
    async fn an_interruption_is_noticed_in_any_part_of_a_dump() {
        let part = |payload, flags| {
            let mut header = NetlinkHeader::default();
            header.flags = NLM_F_MULTIPART | flags;
            NetlinkMessage::new(header, payload)
        };
        let link = || {
            let link = RouteNetlinkMessage::NewLink(LinkMessage::default());
            NetlinkPayload::InnerMessage(link)
        };
        for (flags, interrupted) in [
            ([0, 0], false),
            ([NLM_F_DUMP_INTR, 0], true),
            ([0, NLM_F_DUMP_INTR], true),
        ] {
            let done = NetlinkPayload::Done(DoneMessage::default());
            let parts = [part(link(), flags[0]), part(done, flags[1])];
            let answer = receive(stream::iter(parts)).await.expect("no error in it");
            assert_eq!(
                (answer.messages.len(), answer.interrupted),
                (1, interrupted)
            );
        }
    }
}
