//! Connect's unary calls over HTTP/3: one POST each, with the message as body. Errors are JSON.

mod client;
mod server;
mod streams;

pub(super) use client::Client;
pub(super) use server::serve;

/// Content type of messages.
const PROTO: &str = "application/proto";
/// Content type of errors.
const JSON: &str = "application/json";
/// Names the version of the protocol, which is "1".
const VERSION: &str = "connect-protocol-version";
/// Milliseconds after which the client is no longer interested.
const TIMEOUT: &str = "connect-timeout-ms";
/// Most bytes of headers, and of an error.
const MAX_HEADERS: u32 = 16 << 10;

/// The media type without its parameters, in lower case.
fn media_type(headers: &http::HeaderMap) -> String {
    let value = headers.get(http::header::CONTENT_TYPE);
    let text = value.and_then(|value| value.to_str().ok()).unwrap_or("");
    let media_type = text.split(';').next().unwrap_or("");
    media_type.trim().to_ascii_lowercase()
}

/// Whether the body is as it is, not compressed.
fn is_plain(headers: &http::HeaderMap) -> bool {
    headers
        .get(http::header::CONTENT_ENCODING)
        .is_none_or(|encoding| encoding == "identity")
}
