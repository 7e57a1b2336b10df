//! Whether a browser sends a request for a page of ours.

use std::net::IpAddr;

use axum::http::{HeaderMap, Uri, header, uri::Authority};

/// Whether a request that changes something does not come from a page of another origin. Programs that are no
/// browsers send no `Origin`; browsers send it with every `PUT`. It has to be where the request goes, and that has
/// to be an address or `localhost`: any other name may be the other page's own, pointed here for the purpose.
pub(super) fn is_ours(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else {
        return true;
    };
    let origin = origin
        .to_str()
        .ok()
        .and_then(|text| text.parse::<Uri>().ok());
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let host = host.and_then(|text| text.parse::<Authority>().ok());
    match (origin.as_ref().and_then(Uri::authority), host) {
        (Some(origin), Some(host)) => *origin == host && is_no_borrowed_name(host.host()),
        _ => false,
    }
}

fn is_no_borrowed_name(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    address.parse::<IpAddr>().is_ok() || host.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(origin: Option<&'static str>, host: &'static str) -> bool {
        let mut headers = HeaderMap::new();
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        headers.insert(header::HOST, host.parse().unwrap());
        is_ours(&headers)
    }

    #[test]
    fn programs_without_an_origin_may_change_things() {
        assert!(ours(None, "127.0.0.1:30456"));
        assert!(ours(None, "gateway.example:30456"));
    }

    #[test]
    fn pages_of_ours_may_change_things() {
        assert!(ours(Some("http://127.0.0.1:30456"), "127.0.0.1:30456"));
        assert!(ours(Some("http://[::1]:30456"), "[::1]:30456"));
        assert!(ours(Some("http://LOCALHOST:30456"), "localhost:30456"));
    }

    #[test]
    fn pages_of_others_may_not() {
        assert!(!ours(Some("http://evil.example"), "127.0.0.1:30456"));
        assert!(!ours(Some("http://127.0.0.1:8080"), "127.0.0.1:30456"));
        assert!(!ours(Some("null"), "127.0.0.1:30456"));
        assert!(!ours(Some("file:///tmp/page.html"), "127.0.0.1:30456"));
    }

    #[test]
    fn a_name_pointed_here_makes_no_page_ours() {
        assert!(!ours(
            Some("http://evil.example:30456"),
            "evil.example:30456"
        ));
    }
}
