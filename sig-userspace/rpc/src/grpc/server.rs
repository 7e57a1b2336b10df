//! The server's side of gRPC.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{self, ALLOW},
};
use http_body_util::{
    BodyExt as _, Either, Empty, Full, LengthLimitError, Limited, combinators::WithTrailers,
};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{sync::Semaphore, time::timeout};

use super::{CONTENT_TYPE, MAX_HEADERS, MESSAGE, PREFIX, STATUS, frame, percent_encode, unframe};
use crate::{
    Code, RpcError, Status,
    quic::DONE,
    server::{AT_ONCE, Calls, REQUEST_TIMEOUT},
};

/// A client has to open the stream within this time.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(5);
/// Streams of HTTP/2 that a client may have open at the same time.
const STREAMS: u32 = 128;
/// Bytes that a client may send before they are read, in a stream of HTTP/2 and in all of them.
const WINDOW: u32 = 64 << 10;

type Trailers = Ready<Option<Result<HeaderMap, Infallible>>>;
type Body = Either<WithTrailers<Full<Bytes>, Trailers>, Empty<Bytes>>;

/// Answers the calls of a connection until it ends.
pub(crate) async fn serve(quic: quinn::Connection, calls: Arc<Calls>) -> Result<(), RpcError> {
    let (writer, reader) = timeout(ACCEPT_TIMEOUT, quic.accept_bi())
        .await
        .map_err(|_| RpcError::Timeout)?
        .map_err(RpcError::transport)?;
    let at_once = Arc::new(Semaphore::new(AT_ONCE));
    let service = service_fn(move |request| {
        let (calls, at_once) = (Arc::clone(&calls), Arc::clone(&at_once));
        async move {
            let answer = timeout(REQUEST_TIMEOUT, answer(request, &calls, &at_once));
            Ok::<_, Infallible>(answer.await.unwrap_or_else(|_| {
                failure(&Status::new(
                    Code::DeadlineExceeded,
                    "the request took too long",
                ))
            }))
        }
    });
    let result = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(MAX_HEADERS)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .serve_connection(TokioIo::new(tokio::io::join(reader, writer)), service)
        .await;
    quic.close(DONE, b"");
    result.map_err(RpcError::transport)
}

async fn answer(request: Request<Incoming>, calls: &Calls, at_once: &Semaphore) -> Response<Body> {
    if request.method() != Method::POST {
        let mut response = refusal(StatusCode::METHOD_NOT_ALLOWED);
        let post = HeaderValue::from_static("POST");
        response.headers_mut().insert(ALLOW, post);
        return response;
    }
    let is_grpc = request
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().starts_with(CONTENT_TYPE.as_bytes()));
    if !is_grpc {
        return refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
    // Never closed. What is not read yet is bounded by the window.
    let _permit = at_once.acquire().await;
    let (head, body) = request.into_parts();
    let answer = match read(body, calls.max_request()).await {
        Ok(message) => calls.call(head.uri.path(), &message),
        Err(status) => Err(status),
    };
    match answer {
        Ok(message) => success(&message),
        Err(status) => failure(&status),
    }
}

async fn read(body: Incoming, limit: u32) -> Result<Bytes, Status> {
    let body = Limited::new(body, limit as usize + PREFIX)
        .collect()
        .await
        .map_err(|error| {
            if error.is::<LengthLimitError>() {
                let text = format!("the message exceeds {limit} bytes");
                Status::new(Code::ResourceExhausted, text)
            } else {
                Status::new(Code::InvalidArgument, error.to_string())
            }
        })?;
    unframe(body.to_bytes()).map_err(|error| Status::new(Code::Unimplemented, error))
}

fn success(message: &[u8]) -> Response<Body> {
    let mut trailers = HeaderMap::new();
    trailers.insert(STATUS, HeaderValue::from_static("0"));
    let body = Full::new(frame(message)).with_trailers(ready(Some(Ok(trailers))));
    response(StatusCode::OK, Either::Left(body))
}

/// An answer that is only an error: its status is among the headers.
fn failure(status: &Status) -> Response<Body> {
    let mut response = response(StatusCode::OK, Either::Right(Empty::new()));
    let headers = response.headers_mut();
    headers.insert(STATUS, status.code.number().into());
    if let Ok(message) = HeaderValue::from_str(&percent_encode(&status.message)) {
        headers.insert(MESSAGE, message);
    }
    response
}

/// What is no gRPC gets an answer of HTTP.
fn refusal(status: StatusCode) -> Response<Body> {
    response(status, Either::Right(Empty::new()))
}

fn response(status: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(CONTENT_TYPE);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    response
}
