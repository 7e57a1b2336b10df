//! The client's side of Connect.

use std::{future::poll_fn, time::Duration};

use bytes::{Buf as _, Bytes, BytesMut};
use h3::client::{RequestStream, SendRequest};
use http::{Request, Response, StatusCode, header::CONTENT_TYPE};
use serde::Deserialize;

use super::{
    JSON, MAX_HEADERS, PROTO, TIMEOUT, VERSION, is_plain, media_type,
    streams::{Bounded, Streams, budget},
};
use crate::{Code, RpcError, Status, quic::Peer};

type Opener = Streams<h3_quinn::OpenStreams>;
type Stream = RequestStream<Bounded<h3_quinn::BidiStream<Bytes>>, Bytes>;

/// Calls over one connection.
pub(crate) struct Client {
    send: SendRequest<Opener, Bytes>,
    authority: String,
    max_answer: u32,
}

impl Client {
    pub(crate) async fn new(
        quic: quinn::Connection,
        peer: Peer,
        max_answer: u32,
    ) -> Result<Self, RpcError> {
        let (mut connection, send) = h3::client::builder()
            .max_field_section_size(MAX_HEADERS.into())
            .send_grease(false)
            .build(Streams::new(quic, budget(max_answer)))
            .await
            .map_err(RpcError::transport)?;
        // Ends with the connection.
        tokio::spawn(async move { poll_fn(|cx| connection.poll_close(cx)).await });
        Ok(Client {
            send,
            authority: peer.authority(),
            max_answer,
        })
    }

    /// Sends a message to a method and returns the answer. `timeout` is told to the server.
    pub(crate) async fn unary(
        &self,
        method: &str,
        message: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, RpcError> {
        let request = Request::post(format!("https://{}{method}", self.authority))
            .header(CONTENT_TYPE, PROTO)
            .header(VERSION, "1")
            .header(TIMEOUT, timeout.as_millis().to_string())
            .body(())
            .map_err(RpcError::transport)?;
        let mut send = self.send.clone();
        let mut stream = send
            .send_request(request)
            .await
            .map_err(RpcError::transport)?;
        if !message.is_empty() {
            stream
                .send_data(message)
                .await
                .map_err(RpcError::transport)?;
        }
        stream.finish().await.map_err(RpcError::transport)?;
        let response = stream.recv_response().await.map_err(RpcError::transport)?;
        self.answer(&response, &mut stream).await
    }

    async fn answer(
        &self,
        response: &Response<()>,
        stream: &mut Stream,
    ) -> Result<Bytes, RpcError> {
        if !is_plain(response.headers()) {
            return Err(RpcError::malformed("the answer is compressed"));
        }
        let media_type = media_type(response.headers());
        if response.status() != StatusCode::OK {
            let body = if media_type == JSON {
                read(stream, MAX_HEADERS).await?
            } else {
                Bytes::new()
            };
            return Err(RpcError::Remote(error(response.status(), &body)));
        }
        if media_type != PROTO {
            let text = format!("the content type is {media_type:.64?}");
            return Err(RpcError::Malformed(text));
        }
        read(stream, self.max_answer).await
    }
}

async fn read(stream: &mut Stream, limit: u32) -> Result<Bytes, RpcError> {
    let mut body = BytesMut::new();
    while let Some(mut piece) = stream.recv_data().await.map_err(RpcError::transport)? {
        if body.len() + piece.remaining() > limit as usize {
            return Err(RpcError::TooLarge(limit));
        }
        body.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
    }
    Ok(body.freeze())
}

/// The error in the body of an answer, or what the HTTP status means.
fn error(status: StatusCode, body: &[u8]) -> Status {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Error {
        code: String,
        message: String,
    }
    let error: Error = serde_json::from_slice(body).unwrap_or_default();
    match Code::from_name(&error.code) {
        Some(code) => Status::from_peer(code, &error.message),
        None => Status::new(
            Code::from_http_status(status.as_u16()),
            format!("HTTP status {}", status.as_u16()),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_read_from_the_body_or_else_from_the_http_status() {
        let read = |status: u16, body: &str| {
            let status = StatusCode::from_u16(status).unwrap();
            error(status, body.as_bytes()).to_string()
        };
        assert_eq!(
            read(429, r#"{"code":"resource_exhausted","message":"busy"}"#),
            "resource_exhausted (busy)"
        );
        assert_eq!(read(500, r#"{"code":"internal"}"#), "internal");
        assert_eq!(
            read(404, "404 page not found"),
            "unimplemented (HTTP status 404)"
        );
        assert_eq!(read(503, ""), "unavailable (HTTP status 503)");
        assert_eq!(
            read(500, r#"{"code":"teapot","message":"hot"}"#),
            "unknown (HTTP status 500)"
        );
        assert_eq!(read(500, r#"{"code":7}"#), "unknown (HTTP status 500)");
    }
}
