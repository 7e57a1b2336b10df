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
use crate::{
    metrics,
    operator::Operator,
    pages::{self, Page},
    process::Process,
};

/// Every page at its path, the index everywhere else.
pub(super) fn routes() -> Router<Arc<dyn Operator>> {
    let mut routes = Router::new().route("/all", get(all)).fallback(get(index));
    let pages = Page::ALL.into_iter();
    for page in pages.filter(|page| *page != Page::Metrics) {
        routes = routes.route(page.path(), methods(page));
    }
    let counters = Arc::new(metrics::Counters::default());
    let show = get(move |operator: Gateway| show_metrics(operator, Arc::clone(&counters)));
    routes.route(Page::Metrics.path(), show)
}

fn methods(page: Page) -> MethodRouter<Arc<dyn Operator>> {
    let show = get(move |operator: Gateway| answer::page(operator, page));
    match page {
        Page::LogLevel => show.put(answer::set_log_level),
        Page::RoutingPolicy => show.put(set_routing_policy),
        _ => show,
    }
}

async fn show_metrics(
    operator: Gateway,
    counters: Arc<metrics::Counters>,
) -> Result<Response, StatusCode> {
    let text = answer::ask(operator, move |operator| {
        counters.render(|| operator.status(), &Process::read())
    });
    let content_type = Page::Metrics.content_type();
    Ok(([(header::CONTENT_TYPE, content_type)], text.await?).into_response())
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
