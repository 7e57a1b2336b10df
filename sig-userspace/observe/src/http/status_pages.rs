//! The server of metrics and status pages.

use std::sync::Arc;

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{Html, IntoResponse, Response},
    routing::{MethodRouter, get},
};

use super::{
    JSON, PLAIN,
    answer::{self, Gateway},
    ui,
};
use crate::{
    metrics,
    operator::Operator,
    pages::{self, Page},
    process::Process,
};
use sig_common::{reason::DropReason, srv6::maps::Reason as NodeReason};
use sig_core::remedy::remedy;

/// Every page at its path, the live one beside them, the index everywhere else.
pub(super) fn routes() -> Router<Arc<dyn Operator>> {
    let mut routes = ui::routes()
        .route("/all", get(all))
        .route(ui::STATUS, get(document))
        .route(ui::REASONS, get(reasons))
        .fallback(get(index));
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
        Page::LogLevel => show.put(set_log_level),
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

/// The status document.
async fn document(operator: Gateway) -> Result<Response, StatusCode> {
    let text = answer::ask(operator, |operator| {
        serde_json::to_string(&operator.status())
    });
    let text = text.await?.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(header::CONTENT_TYPE, JSON)], text).into_response())
}

/// What the reasons of the document mean.
async fn reasons() -> Response {
    let drops = DropReason::ALL.map(|reason| (reason.name(), reason.describe(), remedy(reason)));
    let node = NodeReason::ALL.map(|reason| (reason.name(), reason.describe(), ""));
    let text = ui::reasons([("drops", drops.into()), ("srv6", node.into())]);
    ([(header::CONTENT_TYPE, JSON)], text).into_response()
}

async fn index(operator: Gateway) -> Result<Html<String>, StatusCode> {
    let status = answer::ask(operator, |operator| operator.status()).await?;
    Ok(Html(pages::index(&status.id)))
}

async fn all(operator: Gateway) -> Result<Response, StatusCode> {
    let text = pages::all(&answer::view(operator).await?);
    Ok(([(header::CONTENT_TYPE, PLAIN)], text).into_response())
}

async fn set_log_level(
    State(operator): Gateway,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, StatusCode> {
    answer::set_log_level(move |level| operator.set_log_level(level), &headers, &body).await
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
