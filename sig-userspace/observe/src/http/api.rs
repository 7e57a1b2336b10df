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
use serde_json::Value;

use super::{JSON, Text, texts};
use crate::{
    operator::Operator,
    pages::{self, Page, View},
};

/// What every service of SCION has, described for programs (OpenAPI 3.0).
pub(super) const OPENAPI: &str = include_str!("openapi.json");

/// That description with `more`, JSON too, in its objects.
#[must_use]
pub fn openapi(more: &str) -> String {
    fn add(value: &mut Value, more: Value) {
        match (value, more) {
            (Value::Object(fields), Value::Object(more)) => {
                for (name, field) in more {
                    add(fields.entry(name).or_insert(Value::Null), field);
                }
            }
            (Value::Array(items), Value::Array(mut more)) => items.append(&mut more),
            (value, more) => *value = more,
        }
    }
    let read = |text| serde_json::from_str(text).unwrap_or_default();
    let mut all: Value = read(OPENAPI);
    add(&mut all, read(more));
    all.to_string()
}

/// The pages, their description, and an index of them for people.
pub(super) fn routes<S: Clone + Send + Sync + 'static>(
    title: &str,
    openapi: String,
    pages: Vec<Text>,
) -> Router<S> {
    let description = Text {
        path: "/openapi.json",
        about: "this description for programs (OpenAPI)",
        content_type: JSON,
        text: Arc::new(move || openapi.clone()),
        set_level: None,
    };
    let pages: Vec<Text> = pages.into_iter().chain([description]).collect();
    let index = pages::links(title, pages.iter().map(|page| (page.path, page.about)));
    texts(pages)
        .route("/", get(|| async { Html(index) }))
        .layer(middleware::from_fn(share))
}

/// What a gateway shows.
pub(super) fn pages(operator: &Arc<dyn Operator>) -> Vec<Text> {
    let page = |path, page: Page| {
        let asked = operator.clone();
        let told = operator.clone();
        Text {
            path,
            about: page.about(),
            content_type: page.content_type(),
            text: Arc::new(move || page.render(&View::of(&*asked))),
            set_level: match page {
                Page::LogLevel => Some(Arc::new(move |level| told.set_log_level(level))),
                _ => None,
            },
        }
    };
    vec![
        page("/api/v1/info", Page::Info),
        page("/api/v1/config", Page::Config),
        page("/api/v1/log/level", Page::LogLevel),
    ]
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
