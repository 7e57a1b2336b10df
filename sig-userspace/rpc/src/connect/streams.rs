//! QUIC streams for HTTP/3 that a peer cannot fill without end.
//!
//! The HTTP/3 library gathers a frame until it is whole, however long it claims to be. Here every stream has a
//! budget.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h3::{
    error::Code,
    quic::{
        self, ConnectionErrorIncoming, OpenStreams, RecvStream, SendStream, StreamErrorIncoming,
        StreamId, WriteBuf,
    },
};

/// What a piece of a stream costs beside its bytes: what it takes to remember it.
const PIECE: usize = 64;
/// Bytes that streams in one direction may bring while the connection lives: settings and little else.
const CONTROL: usize = 64 << 10;

/// Pieces come one per packet, so this lets through a message of `len` bytes with its headers.
pub(super) fn budget(len: u32) -> usize {
    let len = len as usize;
    len + len / 8 + 2 * super::MAX_HEADERS as usize
}

/// A stream that may bring so much and no more.
pub(super) struct Bounded<S> {
    stream: S,
    left: usize,
}

impl<S: RecvStream<Buf = Bytes>> RecvStream for Bounded<S> {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        let Some(piece) = ready!(self.stream.poll_data(cx))? else {
            return Poll::Ready(Ok(None));
        };
        let Some(left) = self.left.checked_sub(piece.len() + PIECE) else {
            self.left = 0;
            let error = "the stream exceeds its size limit";
            return Poll::Ready(Err(StreamErrorIncoming::Unknown(error.into())));
        };
        self.left = left;
        // A copy: the piece is part of a whole packet, which would stay in memory with it.
        Poll::Ready(Ok(Some(Bytes::copy_from_slice(&piece))))
    }

    fn stop_sending(&mut self, error_code: u64) {
        self.stream.stop_sending(error_code);
    }

    fn recv_id(&self) -> StreamId {
        self.stream.recv_id()
    }
}

impl<S: SendStream<Bytes>> SendStream<Bytes> for Bounded<S> {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.stream.poll_ready(cx)
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.stream.send_data(data)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.stream.poll_finish(cx)
    }

    fn reset(&mut self, reset_code: u64) {
        self.stream.reset(reset_code);
    }

    fn send_id(&self) -> StreamId {
        self.stream.send_id()
    }
}

/// A QUIC connection, or what opens its streams, whose streams are bounded.
#[derive(Clone)]
pub(super) struct Streams<C> {
    inner: C,
    budget: usize,
}

impl Streams<h3_quinn::Connection> {
    /// `budget`: bytes that each stream of a request or response may bring.
    pub(super) fn new(connection: quinn::Connection, budget: usize) -> Self {
        Streams {
            inner: h3_quinn::Connection::new(connection),
            budget,
        }
    }
}

impl<C> Streams<C> {
    fn bounded<S>(&self, stream: S) -> Bounded<S> {
        Bounded {
            stream,
            left: self.budget,
        }
    }
}

impl<C: OpenStreams<Bytes>> OpenStreams<Bytes> for Streams<C>
where
    C::BidiStream: RecvStream<Buf = Bytes>,
{
    type BidiStream = Bounded<C::BidiStream>;
    type SendStream = C::SendStream;

    fn poll_open_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::BidiStream, StreamErrorIncoming>> {
        let stream = ready!(self.inner.poll_open_bidi(cx))?;
        Poll::Ready(Ok(self.bounded(stream)))
    }

    fn poll_open_send(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::SendStream, StreamErrorIncoming>> {
        self.inner.poll_open_send(cx)
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        self.inner.close(code, reason);
    }
}

impl<C: quic::Connection<Bytes>> quic::Connection<Bytes> for Streams<C>
where
    C::BidiStream: RecvStream<Buf = Bytes>,
    C::RecvStream: RecvStream<Buf = Bytes>,
{
    type RecvStream = Bounded<C::RecvStream>;
    type OpenStreams = Streams<C::OpenStreams>;

    fn poll_accept_recv(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::RecvStream, ConnectionErrorIncoming>> {
        let stream = ready!(self.inner.poll_accept_recv(cx))?;
        Poll::Ready(Ok(Bounded {
            stream,
            left: CONTROL,
        }))
    }

    fn poll_accept_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::BidiStream, ConnectionErrorIncoming>> {
        let stream = ready!(self.inner.poll_accept_bidi(cx))?;
        Poll::Ready(Ok(self.bounded(stream)))
    }

    fn opener(&self) -> Self::OpenStreams {
        Streams {
            inner: self.inner.opener(),
            budget: self.budget,
        }
    }
}
