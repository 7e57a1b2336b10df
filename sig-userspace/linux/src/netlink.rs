//! A route netlink connection, and requests over it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use rtnetlink::packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::sys::AsyncSocket as _;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use sig_core::task::Task;

/// Requests that may be under way at once: their acknowledgements fit the receive buffer.
const PIPELINE: usize = 128;
/// Bytes of it, as far as the kernel allows: dumps share it with acknowledgements, and what does not fit is lost.
const RECEIVE_BUFFER: libc::c_int = 1 << 20;
/// The kernel answers while it takes a request in, and goes on with a dump when it is read. After a silence of this
/// length the answer is lost.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a dump is tried that a change of the tables interrupts.
const DUMP_ATTEMPTS: u32 = 10;

/// A connection to the kernel's route netlink (RFC 3549), tied to the network namespace in which it was opened.
/// Clones share the connection; it closes with the last of them.
#[derive(Clone, Debug)]
pub struct Netlink {
    handle: rtnetlink::Handle,
    /// The kernel refuses (EBUSY) a second dump over a socket while one is under way.
    dumps: Arc<Mutex<()>>,
    task: Arc<Task>,
}

impl Netlink {
    /// Opens a connection in the network namespace of the calling thread. Must be called within a tokio runtime.
    pub fn open() -> io::Result<Self> {
        let (mut connection, handle, _) = rtnetlink::new_connection()?;
        // Only they tell that nothing is missing.
        connection.set_forward_done(true);
        connection.set_forward_ack(true);
        let socket = connection.socket_mut().socket_mut();
        socket.set_rx_buf_sz(RECEIVE_BUFFER)?;
        Ok(Self {
            handle,
            dumps: Arc::default(),
            task: Arc::new(Task::spawn("the netlink connection", connection)),
        })
    }

    /// Waits until the connection cannot be used any more, and says so.
    pub fn ended(&self) -> impl Future<Output = String> + Send + use<> {
        self.task.ended()
    }

    /// Sends one request and waits for its acknowledgement. `flags` are added to `NLM_F_REQUEST | NLM_F_ACK`.
    pub async fn execute(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.request(message, flags).await.map(drop)
    }

    /// Asks for one object. `Ok(None)` when the kernel has nothing to say.
    pub async fn get(
        &self,
        message: RouteNetlinkMessage,
    ) -> io::Result<Option<RouteNetlinkMessage>> {
        Ok(self.request(message, 0).await?.into_iter().next())
    }

    /// Sends many requests, and waits for their acknowledgements, which are returned in the same order. Unlike with
    /// [`Netlink::execute`], the next request does not wait for the answer to the one before.
    pub async fn execute_all(
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
            let mut deadline = Instant::now() + PATIENCE;
            for answers in sent {
                results.push(match answers {
                    Ok(answers) => receive(answers, &mut deadline).await.map(drop),
                    Err(error) => Err(error),
                });
            }
            let last = results.last().and_then(|result| result.as_ref().err());
            if last.is_some_and(|error| error.kind() == io::ErrorKind::TimedOut) {
                // Nobody answers: the others need not wait for it, too.
                results.extend(messages.map(|_| Err(lost())));
                return results;
            }
        }
    }

    /// Asks for all objects of a kind. A dump that a change interrupts, so that objects may be missing or be there
    /// twice, is repeated.
    pub async fn dump(&self, message: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
        let _alone = self.dumps.lock().await;
        let mut attempt = 1;
        loop {
            let answers = self.send(message.clone(), NLM_F_REQUEST | NLM_F_DUMP)?;
            let answer = receive(answers, &mut (Instant::now() + PATIENCE)).await?;
            if !answer.interrupted {
                return Ok(answer.messages);
            }
            if attempt == DUMP_ATTEMPTS {
                return Err(io::Error::other(
                    "the kernel's tables change too fast to read a consistent dump",
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
        let answers = self.send(message, NLM_F_REQUEST | NLM_F_ACK | flags)?;
        let answer = receive(answers, &mut (Instant::now() + PATIENCE)).await?;
        Ok(answer.messages)
    }

    fn send(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<impl Stream<Item = NetlinkMessage<RouteNetlinkMessage>> + Unpin + use<>> {
        let mut request = NetlinkMessage::from(message);
        request.header.flags = flags;
        self.handle
            .clone()
            .request(request)
            .map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "the netlink connection closed"))
    }
}

fn lost() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the kernel's answer was lost")
}

#[derive(Debug, Default)]
struct Answer {
    messages: Vec<RouteNetlinkMessage>,
    /// Something changed while the kernel wrote it.
    interrupted: bool,
}

/// Everything up to the acknowledgement or the end of the dump. Whatever the kernel says moves the deadline, which
/// answers that are awaited together share.
async fn receive(
    mut answers: impl Stream<Item = NetlinkMessage<RouteNetlinkMessage>> + Unpin,
    deadline: &mut Instant,
) -> io::Result<Answer> {
    let mut answer = Answer::default();
    loop {
        let message = timeout_at(*deadline, answers.next()).await;
        let message = message.map_err(|_| lost())?;
        let message = message.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the kernel's answer is incomplete",
            )
        })?;
        *deadline = Instant::now() + PATIENCE;
        answer.interrupted |= message.header.flags & NLM_F_DUMP_INTR != 0;
        let code = match message.payload {
            NetlinkPayload::InnerMessage(message) => {
                answer.messages.push(message);
                continue;
            }
            NetlinkPayload::Error(error) => error.raw_code(),
            NetlinkPayload::Done(done) => done.code,
            _ => continue,
        };
        return match code {
            0 => Ok(answer),
            code => Err(io::Error::from_raw_os_error(code.saturating_abs())),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroI32;

    use futures_util::stream;
    use rtnetlink::packet_core::{DoneMessage, ErrorMessage, NLM_F_MULTIPART, NetlinkHeader};
    use rtnetlink::packet_route::link::LinkMessage;

    use super::*;

    type Payload = NetlinkPayload<RouteNetlinkMessage>;

    fn part(payload: Payload, flags: u16) -> NetlinkMessage<RouteNetlinkMessage> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_MULTIPART | flags;
        NetlinkMessage::new(header, payload)
    }

    fn link() -> Payload {
        Payload::InnerMessage(RouteNetlinkMessage::NewLink(LinkMessage::default()))
    }

    fn done(code: i32) -> Payload {
        let mut done = DoneMessage::default();
        done.code = code;
        Payload::Done(done)
    }

    fn verdict(code: i32) -> Payload {
        let mut error = ErrorMessage::default();
        error.code = NonZeroI32::new(code);
        Payload::Error(error)
    }

    async fn received(parts: Vec<NetlinkMessage<RouteNetlinkMessage>>) -> io::Result<Answer> {
        receive(stream::iter(parts), &mut (Instant::now() + PATIENCE)).await
    }

    #[tokio::test]
    async fn an_interruption_is_noticed_in_any_part_of_a_dump() {
        for (flags, interrupted) in [
            ([0, 0], false),
            ([NLM_F_DUMP_INTR, 0], true),
            ([0, NLM_F_DUMP_INTR], true),
        ] {
            let parts = vec![part(link(), flags[0]), part(done(0), flags[1])];
            let answer = received(parts).await.expect("no error in it");
            assert_eq!(
                (answer.messages.len(), answer.interrupted),
                (1, interrupted)
            );
        }
    }

    #[tokio::test]
    async fn an_answer_without_its_end_is_none() {
        let cases = [
            (vec![], None),
            (vec![link()], None),
            (vec![link(), done(0)], Some(0)),
            (vec![link(), done(-libc::ENOBUFS)], Some(libc::ENOBUFS)),
            (vec![verdict(0)], Some(0)),
            (vec![link(), verdict(0)], Some(0)),
            (vec![verdict(-libc::EEXIST)], Some(libc::EEXIST)),
        ];
        for (payloads, expected) in cases {
            let parts = payloads.into_iter().map(|payload| part(payload, 0));
            let found = match received(parts.collect()).await {
                Ok(_) => Some(0),
                Err(error) => error.raw_os_error(),
            };
            assert_eq!(found, expected);
        }
    }

    #[tokio::test]
    async fn nobody_waits_for_ever_for_an_answer_that_is_lost() {
        let mut now = Instant::now();
        let error = receive(stream::pending(), &mut now).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        // What has come meanwhile counts, and moves the deadline for those after it.
        let parts = stream::iter([part(verdict(0), 0)]);
        receive(parts, &mut now).await.expect("it is there");
        assert!(now > Instant::now());
    }
}
