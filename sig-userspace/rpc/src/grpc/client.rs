//! The client's side of gRPC.

use std::{error::Error, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::{
    body::Incoming,
    client::conn::http2::{self, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

use super::{
    CONTENT_TYPE, MAX_HEADERS, MESSAGE, PREFIX, STATUS, TIMEOUT, frame, percent_decode, unframe,
};
use crate::{
    Code, RpcError, Status,
    quic::{DONE, Peer},
};

/// Calls over one connection.
pub(crate) struct Client {
    send: SendRequest<Full<Bytes>>,
    authority: String,
    max_answer: u32,
}

impl Client {
    pub(crate) async fn new(
        quic: quinn::Connection,
        peer: Peer,
        max_answer: u32,
    ) -> Result<Self, RpcError> {
        let (writer, reader) = quic.open_bi().await.map_err(RpcError::transport)?;
        let (send, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_header_list_size(MAX_HEADERS)
            .handshake(TokioIo::new(tokio::io::join(reader, writer)))
            .await
            .map_err(RpcError::transport)?;
        tokio::spawn(async move {
            // Ends when the client is dropped or the stream ends. The stream is finished by then.
            let _ = connection.await;
            quic.close(DONE, b"");
        });
        Ok(Client {
            send,
            authority: peer.authority(),
            max_answer,
        })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.send.is_closed()
    }

    /// Sends a message to a method and returns the answer. `timeout` is told to the server.
    pub(crate) async fn unary(
        &self,
        method: &str,
        message: &[u8],
        timeout: Duration,
    ) -> Result<Bytes, RpcError> {
        let request = Request::post(format!("https://{}{method}", self.authority))
            .header(header::CONTENT_TYPE, CONTENT_TYPE)
            .header(header::TE, "trailers")
            .header(TIMEOUT, format!("{}m", timeout.as_millis().min(99_999_999)))
            .body(Full::new(frame(message)))
            .map_err(RpcError::transport)?;
        let response = self.send.clone().send_request(request).await;
        let (head, body) = response.map_err(RpcError::transport)?.into_parts();
        if head.status != StatusCode::OK {
            return Err(RpcError::Remote(Status::new(
                Code::from_http_status(head.status.as_u16()),
                format!("HTTP status {}", head.status.as_u16()),
            )));
        }
        // An answer that is only an error has its status among the headers.
        if let Some(result) = status(&head.headers) {
            result?;
        }
        let (message, trailers) = self.read(body).await?;
        status(&trailers).ok_or_else(|| RpcError::malformed("the answer has no status"))??;
        unframe(message).map_err(RpcError::malformed)
    }

    async fn read(&self, body: Incoming) -> Result<(Bytes, HeaderMap), RpcError> {
        let limit = self.max_answer as usize + PREFIX;
        let body = Limited::new(body, limit).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() {
                RpcError::TooLarge(self.max_answer)
            } else {
                RpcError::Transport(chain(error.as_ref()))
            }
        })?;
        let trailers = body.trailers().cloned().unwrap_or_default();
        Ok((body.to_bytes(), trailers))
    }
}

/// What the headers or trailers say about success; `None` if nothing.
fn status(headers: &HeaderMap) -> Option<Result<(), RpcError>> {
    let number = headers.get(STATUS)?.to_str().ok()?.parse().ok()?;
    if number == 0 {
        return Some(Ok(()));
    }
    let message = headers.get(MESSAGE).map_or(&b""[..], |m| m.as_bytes());
    let status = Status::from_peer(Code::from_number(number), &percent_decode(message));
    Some(Err(RpcError::Remote(status)))
}

/// An error with its causes: the outermost of hyper's says little.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
