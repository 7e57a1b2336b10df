//! The management API. Pages of any origin may read it; none may change anything through it.

use std::sync::Arc;

use axum::{
    Router,
    extract::Request,
    http::{HeaderValue, Method, StatusCode, header},
    middleware::{self, Next},
    response::{Html, IntoResponse, Response},
    routing::get,
};

use super::answer::{self, Gateway};
use crate::{operator::Operator, pages::Page};

/// The description of the API for programs (OpenAPI 3.0).
const OPENAPI: &str = include_str!("openapi.json");

/// The description for people.
const INDEX: &str = include_str!("api.html");

pub(super) fn routes() -> Router<Arc<dyn Operator>> {
    let page = |page| get(move |operator: Gateway| answer::page(operator, page));
    Router::new()
        .route("/", get(|| async { Html(INDEX) }))
        .route("/openapi.json", get(openapi))
        .route("/api/v1/info", page(Page::Info))
        .route("/api/v1/config", page(Page::Config))
        .route(
            "/api/v1/log/level",
            page(Page::LogLevel).put(answer::set_log_level),
        )
        .layer(middleware::from_fn(share))
}

async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

/// Lets pages of any origin read (CORS).
async fn share(request: Request, next: Next) -> Response {
    let mut response = if request.method() == Method::OPTIONS {
        let methods = (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD");
        (StatusCode::NO_CONTENT, [methods]).into_response()
    } else {
        next.run(request).await
    };
    let any = HeaderValue::from_static("*");
    response
        .headers_mut()
        .insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, any);
    response
}
