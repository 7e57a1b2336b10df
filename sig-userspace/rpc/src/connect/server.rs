//! The server's side of Connect.

use std::sync::Arc;

use bytes::{Buf as _, Bytes, BytesMut};
use h3::server::{RequestResolver, RequestStream};
use http::{
    HeaderMap, Method, Request, Response, StatusCode,
    header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, HeaderName},
};
use serde_json::json;
use tokio::{task::JoinSet, time::timeout};

use super::{
    JSON, MAX_HEADERS, PROTO, VERSION, is_plain, media_type,
    streams::{Bounded, Streams, budget},
};
use crate::{
    Code, RpcError, Status,
    server::{AT_ONCE, Calls, REQUEST_TIMEOUT},
};

type Stream = RequestStream<Bounded<h3_quinn::BidiStream<Bytes>>, Bytes>;

/// Answers the calls of a connection until it ends.
pub(crate) async fn serve(quic: quinn::Connection, calls: Arc<Calls>) -> Result<(), RpcError> {
    let mut connection = h3::server::builder()
        .max_field_section_size(MAX_HEADERS.into())
        .send_grease(false)
        .build(Streams::new(quic, budget(calls.max_request())))
        .await
        .map_err(RpcError::transport)?;
    let mut requests = JoinSet::new();
    loop {
        tokio::select! {
            accepted = connection.accept(), if requests.len() < AT_ONCE => {
                let Some(request) = accepted.map_err(RpcError::transport)? else {
                    break;
                };
                let answer = answer(request, Arc::clone(&calls));
                requests.spawn(timeout(REQUEST_TIMEOUT, answer));
            }
            Some(_) = requests.join_next() => {}
        }
    }
    requests.join_all().await;
    Ok(())
}

/// A request that gets no further than HTTP, or an error of Connect.
enum Refusal {
    Http(StatusCode, HeaderName, &'static str),
    Rpc(Status),
}

async fn answer(
    request: RequestResolver<Streams<h3_quinn::Connection>, Bytes>,
    calls: Arc<Calls>,
) -> Result<(), RpcError> {
    let (request, mut stream) = request
        .resolve_request()
        .await
        .map_err(RpcError::transport)?;
    let answer = match read(&request, &mut stream, calls.max_request()).await {
        Ok(message) => calls
            .call(request.uri().path(), &message)
            .map_err(Refusal::Rpc),
        Err(refusal) => Err(refusal),
    };
    let (response, body) = response(answer);
    stream
        .send_response(response)
        .await
        .map_err(RpcError::transport)?;
    if !body.is_empty() {
        stream.send_data(body).await.map_err(RpcError::transport)?;
    }
    stream.finish().await.map_err(RpcError::transport)
}

/// The message in a request.
async fn read(request: &Request<()>, stream: &mut Stream, limit: u32) -> Result<Bytes, Refusal> {
    check(request.method(), request.headers())?;
    let mut body = BytesMut::new();
    loop {
        match stream.recv_data().await {
            Ok(None) => return Ok(body.freeze()),
            Ok(Some(piece)) if body.len() + piece.remaining() > limit as usize => {
                let text = format!("the message exceeds {limit} bytes");
                return Err(Refusal::Rpc(Status::new(Code::ResourceExhausted, text)));
            }
            Ok(Some(mut piece)) => {
                body.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
            }
            Err(error) => {
                let status = Status::new(Code::InvalidArgument, error.to_string());
                return Err(Refusal::Rpc(status));
            }
        }
    }
}

fn check(method: &Method, headers: &HeaderMap) -> Result<(), Refusal> {
    if method != Method::POST {
        return Err(Refusal::Http(StatusCode::METHOD_NOT_ALLOWED, ALLOW, "POST"));
    }
    if media_type(headers) != PROTO {
        return Err(Refusal::Http(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            HeaderName::from_static("accept-post"),
            PROTO,
        ));
    }
    if !is_plain(headers) {
        let status = Status::new(Code::Unimplemented, "compressed messages are not supported");
        return Err(Refusal::Rpc(status));
    }
    if headers.get(VERSION).is_some_and(|version| version != "1") {
        let status = Status::new(
            Code::InvalidArgument,
            "the Connect protocol version must be 1",
        );
        return Err(Refusal::Rpc(status));
    }
    Ok(())
}

fn response(answer: Result<Vec<u8>, Refusal>) -> (Response<()>, Bytes) {
    let (status, name, value, body) = match answer {
        Ok(message) => (StatusCode::OK, CONTENT_TYPE, PROTO, message.into()),
        Err(Refusal::Http(status, name, value)) => (status, name, value, Bytes::new()),
        Err(Refusal::Rpc(status)) => (
            StatusCode::from_u16(status.code.http_status())
                .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            CONTENT_TYPE,
            JSON,
            json!({"code": status.code.name(), "message": status.message})
                .to_string()
                .into(),
        ),
    };
    let mut response = Response::new(());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(name, http::HeaderValue::from_static(value));
    headers.insert(CONTENT_LENGTH, body.len().into());
    (response, body)
}
