//! The server of metrics and status pages.

use std::sync::Arc;

use axum::{
    Router,
    body::Bytes,
    http::{StatusCode, header},
    response::{Html, IntoResponse, Response},
    routing::{MethodRouter, get},
};

use super::answer::{self, Gateway};
use crate::observe::{
    operator::Operator,
    pages::{self, Page},
};

/// Every page at its path, the index everywhere else.
pub(super) fn routes() -> Router<Arc<dyn Operator>> {
    let mut routes = Router::new().route("/all", get(all)).fallback(get(index));
    for page in Page::ALL {
        routes = routes.route(page.path(), methods(page));
    }
    routes
}

fn methods(page: Page) -> MethodRouter<Arc<dyn Operator>> {
    let show = get(move |operator: Gateway| answer::page(operator, page));
    match page {
        Page::LogLevel => show.put(answer::set_log_level),
        Page::RoutingPolicy => show.put(set_routing_policy),
        _ => show,
    }
}

async fn index(operator: Gateway) -> Result<Html<String>, StatusCode> {
    let status = answer::ask(operator, |operator| operator.status()).await?;
    Ok(Html(pages::index(&status.id)))
}

async fn all(operator: Gateway) -> Result<Response, StatusCode> {
    let text = pages::all(&answer::view(operator).await?);
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response())
}

async fn set_routing_policy(operator: Gateway, body: Bytes) -> Result<Response, StatusCode> {
    let Ok(text) = String::from_utf8(body.into()) else {
        return Ok((StatusCode::BAD_REQUEST, "Error parsing: not UTF-8 text\n").into_response());
    };
    let result = answer::ask(operator, move |operator| operator.set_routing_policy(&text)).await?;
    Ok(match result {
        Ok(()) => StatusCode::OK.into_response(),
        Err(error) => {
            (StatusCode::BAD_REQUEST, format!("Error parsing: {error}\n")).into_response()
        }
    })
}
