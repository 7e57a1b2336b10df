//! Who may see and change things, and whether a browser sends a request for a page of ours.

use std::net::IpAddr;

use axum::http::{HeaderMap, Method, Uri, header, uri::Authority};

use sig_core::document::common::Listen;

/// Who may do what at a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// This host may do all, by an address or as `localhost`: another name may be that of a page of others, which a
    /// browser of this host shows, and whose name was pointed here (DNS rebinding).
    Host,
    /// Everybody may look, nobody may change anything.
    Readers,
    /// Everybody may do all.
    Everybody,
}

impl Access {
    pub(super) fn of(listen: Listen) -> Self {
        match (listen.allow_remote, listen.address.ip().is_loopback()) {
            (true, _) => Self::Everybody,
            (false, true) => Self::Host,
            (false, false) => Self::Readers,
        }
    }

    /// Why a request is refused, if it is.
    pub(super) fn refuses(self, method: &Method, headers: &HeaderMap) -> Option<&'static str> {
        let changes = !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
        if self == Self::Host && !is_local_name(headers) {
            return Some(
                "use an IP address or localhost, or set allow_remote = true for other names\n",
            );
        }
        if self == Self::Readers && changes {
            return Some(
                "set allow_remote = true to allow changes on an address that is not loopback\n",
            );
        }
        (changes && !is_ours(headers)).then_some("a page from another origin cannot change this\n")
    }
}

/// Whether a request is sent to this host by an address or as `localhost`. Programs of old may not say.
fn is_local_name(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST) else {
        return true;
    };
    let host = host.to_str().ok().and_then(|text| text.parse().ok());
    host.is_some_and(|host: Authority| is_no_borrowed_name(host.host()))
}

/// Whether a request that changes something does not come from a page of another origin. Programs that are no
/// browsers send no `Origin`; browsers send it with every `PUT`. It has to be where the request goes, and that has
/// to be an address or `localhost`: any other name may be the other page's own, pointed here for the purpose.
fn is_ours(headers: &HeaderMap) -> bool {
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
    fn names_of_others_see_nothing_on_the_loopback_interface() {
        let refused = |access: Access, method: Method, host: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            access.refuses(&method, &headers).is_some()
        };
        for host in [
            "127.0.0.1:30456",
            "[::1]:30456",
            "LocalHost:30456",
            "10.0.0.1",
        ] {
            assert!(!refused(Access::Host, Method::GET, host), "{host}");
            assert!(!refused(Access::Host, Method::PUT, host), "{host}");
        }
        for host in ["evil.example:30456", "localhost.evil.example", "a b"] {
            assert!(refused(Access::Host, Method::GET, host), "{host}");
            assert!(!refused(Access::Readers, Method::GET, host), "{host}");
            assert!(refused(Access::Readers, Method::PUT, host), "{host}");
            assert!(!refused(Access::Everybody, Method::GET, host), "{host}");
            assert!(!refused(Access::Everybody, Method::PUT, host), "{host}");
        }
        assert_eq!(Access::Host.refuses(&Method::GET, &HeaderMap::new()), None);
    }

    #[test]
    fn a_name_pointed_here_makes_no_page_ours() {
        assert!(!ours(
            Some("http://evil.example:30456"),
            "evil.example:30456"
        ));
    }
}
