//! What both servers have in common.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::json;

use super::{Access, JSON};
use crate::{
    operator::Operator,
    pages::{self, Page, View},
};
use sig_core::document::common::LogLevel;

/// The operator, as handlers get it.
pub(super) type Gateway = State<Arc<dyn Operator>>;

/// Refuses what the server's `access` does not allow, and keeps answers out of caches.
pub(super) async fn guard(State(access): State<Access>, request: Request, next: Next) -> Response {
    let mut response = match access.refuses(request.method(), request.headers()) {
        Some(why) => (StatusCode::FORBIDDEN, why).into_response(),
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Asks the operator, which may block.
pub(super) async fn ask<T: Send + 'static>(
    State(operator): Gateway,
    question: impl FnOnce(&dyn Operator) -> T + Send + 'static,
) -> Result<T, StatusCode> {
    tokio::task::spawn_blocking(move || question(&*operator))
        .await
        .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

/// What pages are made of, now.
pub(super) async fn view(operator: Gateway) -> Result<View, StatusCode> {
    ask(operator, View::of).await
}

/// A page.
pub(super) async fn page(operator: Gateway, page: Page) -> Result<Response, StatusCode> {
    let text = page.render(&view(operator).await?);
    Ok(([(header::CONTENT_TYPE, page.content_type())], text).into_response())
}

/// `{"level": …}` or, as the reference understands as well, `level=…` from a form. `set` may block.
pub(super) async fn set_log_level(
    set: impl FnOnce(LogLevel) -> Result<(), String> + Send + 'static,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Response, StatusCode> {
    let level = match wanted_level(headers, body) {
        Ok(level) => level,
        Err(error) => return Ok(refusal(StatusCode::BAD_REQUEST, &error)),
    };
    let result = tokio::task::spawn_blocking(move || set(level)).await;
    Ok(
        match result.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)? {
            Ok(()) => ([(header::CONTENT_TYPE, JSON)], pages::log_level(level)).into_response(),
            Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &error),
        },
    )
}

fn wanted_level(headers: &HeaderMap, body: &[u8]) -> Result<LogLevel, String> {
    #[derive(Deserialize)]
    struct Wanted {
        level: Option<String>,
    }

    let content_type = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let is_form =
        content_type.is_some_and(|value| value.starts_with(b"application/x-www-form-urlencoded"));
    let word = if is_form {
        let form = str::from_utf8(body).map_err(|_| "not UTF-8 text")?;
        let mut pairs = form.trim_ascii().split('&');
        pairs.find_map(|pair| pair.strip_prefix("level=").map(str::to_owned))
    } else {
        let wanted: Wanted = serde_json::from_slice(body)
            .map_err(|error| format!("not the expected JSON: {error}"))?;
        wanted.level
    };
    let word = word
        .filter(|word| !word.is_empty())
        .ok_or("must specify logging level")?;
    LogLevel::from_word(&word).ok_or_else(|| format!("unrecognized level: {word:?}"))
}

/// An error as JSON, in the reference's shape.
fn refusal(status: StatusCode, error: &str) -> Response {
    let text = format!("{}\n", json!({ "error": error }));
    (status, [(header::CONTENT_TYPE, JSON)], text).into_response()
}
