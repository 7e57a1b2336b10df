//! The live page: what the status document says, in tables and plots, in any browser.
//!
//! It is one file without anything from elsewhere, and nothing of the document is ever read as HTML. What the browser is told
//! to allow says so again.

use std::sync::LazyLock;

use axum::{
    Router,
    http::{HeaderName, HeaderValue, header},
    response::{Html, IntoResponse, Response},
    routing::get,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

/// Where it is.
pub(crate) const PATH: &str = "/ui";

/// What it shows, for indexes.
pub(crate) const ABOUT: &str = "live view: tables and plots";

/// Where the page finds the status document.
pub const STATUS: &str = "/status.json";

/// Where the page finds what [`reasons`] makes.
pub const REASONS: &str = "/reasons.json";

const TEMPLATE: &str = include_str!("ui/page.html");
const STYLE: &str = include_str!("ui/page.css");
const SCRIPT: &str = include_str!("ui/page.js");

/// The page, and what it may do.
struct Page {
    html: String,
    policy: HeaderValue,
}

static PAGE: LazyLock<Page> = LazyLock::new(Page::new);

impl Page {
    fn new() -> Self {
        let (style, script) = (packed(STYLE), packed(SCRIPT));
        let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)));
        let policy = format!(
            "default-src 'none'; style-src {}; script-src {}; connect-src 'self'; img-src data:; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
            hash(&style),
            hash(&script)
        );
        let html = TEMPLATE.replacen("{style}", &style, 1);
        Self {
            html: html.replacen("{script}", &script, 1),
            // It has no other characters than these, and the fallback allows nothing at all.
            policy: HeaderValue::from_str(&policy)
                .unwrap_or(HeaderValue::from_static("default-src 'none'")),
        }
    }
}

/// The same without indentation, and without lines that hold nothing but a comment. Lines stay lines.
fn packed(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| {
        let is_comment = ["//", "/**", "* "]
            .iter()
            .any(|start| line.starts_with(start));
        !(line.is_empty() || is_comment || *line == "*/")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The page at its place.
pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route(PATH, get(show))
}

async fn show() -> Response {
    let headers: [(HeaderName, HeaderValue); 3] = [
        (header::CONTENT_SECURITY_POLICY, PAGE.policy.clone()),
        (
            header::REFERRER_POLICY,
            HeaderValue::from_static("no-referrer"),
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            HeaderValue::from_static("same-origin"),
        ),
    ];
    (headers, Html(PAGE.html.as_str())).into_response()
}

/// A reason that the status document has a count for: its name, what it means, and what to do; nothing, if that is empty.
pub type Explained = (&'static str, &'static str, &'static str);

/// The document at [`REASONS`]: reasons by what they are of.
#[must_use]
pub fn reasons<const N: usize>(kinds: [(&str, Vec<Explained>); N]) -> String {
    let kinds = kinds.into_iter().map(|(kind, reasons)| {
        let reasons = reasons.into_iter().map(|(name, meaning, remedy)| {
            let explained = json!({ "meaning": meaning, "remedy": remedy });
            (name.to_owned(), explained)
        });
        (kind.to_owned(), Value::Object(reasons.collect()))
    });
    Value::Object(kinds.collect::<Map<_, _>>()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_small_and_whole() {
        assert!(PAGE.html.len() < 40_000, "{} bytes", PAGE.html.len());
        for outside in [
            "http://", "https://", "@import", "url(", "{style}", "{script}",
        ] {
            // The name of SVG is no address that anything is loaded from.
            let text = PAGE.html.replace("http://www.w3.org/2000/svg", "");
            assert!(!text.contains(outside), "{outside}");
        }
        assert_eq!(PAGE.html.matches("<script>").count(), 1);
        assert_eq!(PAGE.html.matches("</script>").count(), 1);
        assert_eq!(PAGE.html.matches("</style>").count(), 1);
    }

    #[test]
    fn text_of_others_is_never_read_as_html() {
        for way in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "Function(",
        ] {
            assert!(!SCRIPT.contains(way), "{way}");
        }
    }

    #[test]
    fn the_policy_allows_this_script_and_style_alone() {
        let policy = PAGE.policy.to_str().unwrap();
        let between = |open: &str, close: &str| {
            let start = PAGE.html.find(open).unwrap() + open.len();
            let end = start + PAGE.html[start..].find(close).unwrap();
            STANDARD.encode(Sha256::digest(&PAGE.html[start..end]))
        };
        let (style, script) = (
            between("<style>", "</style>"),
            between("<script>", "</script>"),
        );
        assert!(policy.starts_with("default-src 'none'; "));
        assert!(policy.contains(&format!("; style-src 'sha256-{style}'; ")));
        assert!(policy.contains(&format!("; script-src 'sha256-{script}'; ")));
        assert!(!policy.contains("unsafe"));
    }

    #[test]
    fn only_indentation_and_comments_are_left_out() {
        let text = "a\n  // why\n  /** what */\n  b; // how\n\n/*\n * x\n */\n";
        assert_eq!(packed(text), "a\nb; // how\n/*");
    }
}
