//! Over the loopback interface, with a client that is not ours.

use std::sync::{Barrier, Mutex};

use axum::{
    body::Bytes,
    http::{HeaderMap, Request, StatusCode},
};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::*;
use crate::{
    example,
    pages::{self, Page},
};
use sig_core::{document::common::LogLevel, status::Status};

/// No test waits this long unless something is broken.
const PATIENCE: Duration = Duration::from_secs(60);

struct Gateway {
    level: Mutex<LogLevel>,
    policy: Mutex<String>,
    /// Where a policy that is to take long begins and ends to be put into force.
    work: Barrier,
}

impl Gateway {
    fn new() -> Arc<Self> {
        Arc::new(Gateway {
            level: Mutex::new(LogLevel::Info),
            policy: Mutex::new(String::new()),
            work: Barrier::new(2),
        })
    }
}

impl Operator for Gateway {
    fn status(&self) -> Status {
        let mut status = example::found();
        if let Some(control) = &mut status.control {
            control.routing_policy = self.policy.lock().unwrap().clone();
        }
        status
    }

    fn config(&self) -> String {
        "[gateway]\nid = \"west\"\n".to_owned()
    }

    fn log_level(&self) -> LogLevel {
        *self.level.lock().unwrap()
    }

    fn set_log_level(&self, level: LogLevel) -> Result<(), String> {
        if level == LogLevel::Trace {
            return Err("the log is closed".to_owned());
        }
        *self.level.lock().unwrap() = level;
        Ok(())
    }

    fn set_routing_policy(&self, text: &str) -> Result<(), String> {
        if text == "panic" {
            panic!("of the test");
        }
        if text == "accept slowly" {
            self.work.wait();
            self.work.wait();
        }
        if !text.starts_with("accept") {
            return Err("line 1: no rule".to_owned());
        }
        *self.policy.lock().unwrap() = text.to_owned();
        Ok(())
    }

    fn reload(&self) -> Result<String, String> {
        Err("there is no page for it".to_owned())
    }
}

async fn server_with(service: Service, limits: Limits) -> Server {
    serving(Gateway::new(), service, limits).await
}

async fn serving(gateway: Arc<Gateway>, service: Service, limits: Limits) -> Server {
    let any = Listen {
        address: "127.0.0.1:0".parse().unwrap(),
        allow_remote: false,
    };
    Server::start(service, any, gateway, limits).await.unwrap()
}

async fn server(service: Service) -> Server {
    server_with(service, LIMITS).await
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// Sends a request on a connection of its own.
async fn send(server: &Server, request: Request<Full<Bytes>>) -> Answer {
    let exchange = async {
        let stream = TcpStream::connect(server.address()).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        let connection = tokio::spawn(connection);
        let (head, body) = sender.send_request(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        drop(sender);
        connection.await.unwrap().unwrap();
        Answer {
            status: head.status,
            headers: head.headers,
            text: String::from_utf8(body.into()).unwrap(),
        }
    };
    tokio::time::timeout(PATIENCE, exchange).await.unwrap()
}

/// A request line such as `GET /status`, header lines such as `origin: http://[::1]`, and a body.
async fn ask(server: &Server, line: &str, headers: &[&str], body: &str) -> Answer {
    let (method, path) = line.split_once(' ').unwrap();
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", server.address().to_string());
    for header in headers {
        let (name, value) = header.split_once(": ").unwrap();
        request = request.header(name, value);
    }
    let body = Full::new(Bytes::from(body.to_owned()));
    send(server, request.body(body).unwrap()).await
}

#[tokio::test]
async fn every_page_is_at_its_path() {
    let server = server(Service::StatusPages).await;
    let begins = [
        (Page::Config, "[gateway]\nid = \"west\"\n"),
        (Page::PrefixWatcher, "{\n    \"remotes\": {\n"),
        (Page::Sgrp, "{\n    \"advertise\": {\n"),
        (Page::Engine, "{\n    \"SessionPaths\": ["),
        (Page::Info, "  Scion version: 0.1.0\n"),
        (Page::RoutingPolicy, ""),
        (Page::LogLevel, "{\"level\":\"info\"}\n"),
        (Page::Metrics, "# HELP gateway_"),
        (Page::SessionConfigurator, "{\n    \"RemoteGateways\": {\n"),
        (Page::Status, "ISD-AS 1-ff00:0:111\n"),
    ];
    assert_eq!(begins.map(|(page, _)| page), Page::ALL);
    for (page, begin) in begins {
        let answer = ask(&server, &format!("GET {}", page.path()), &[], "").await;
        assert_eq!(answer.status, StatusCode::OK, "{page:?}");
        assert!(answer.text.starts_with(begin), "{page:?}: {}", answer.text);
        assert_eq!(answer.header("content-type"), Some(page.content_type()));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    let answer = ask(&server, "GET /all", &[], "").await;
    assert!(answer.text.starts_with("\n\nconfig\n======\n\n[gateway]\n"));
}

#[tokio::test]
async fn metrics_have_the_media_type_that_scrapers_know() {
    let server = server(Service::StatusPages).await;
    let answer = ask(
        &server,
        "GET /metrics",
        &["accept: application/openmetrics-text"],
        "",
    )
    .await;
    let expected = "text/plain; version=0.0.4; charset=utf-8";
    assert_eq!(answer.header("content-type"), Some(expected));
    assert!(
        answer
            .text
            .contains("\ngateway_paths_monitored{isd_as=\"1-ff00:0:110\"")
    );
}

#[tokio::test]
async fn unknown_paths_show_the_index() {
    let server = server(Service::StatusPages).await;
    for path in ["GET /", "GET /no/such/page", "GET /status/"] {
        let answer = ask(&server, path, &[], "").await;
        assert_eq!(answer.status, StatusCode::OK, "{path}");
        assert_eq!(answer.text, pages::index("west"));
        assert_eq!(
            answer.header("content-type"),
            Some("text/html; charset=utf-8")
        );
    }
}

#[tokio::test]
async fn the_live_page_is_served_with_a_strict_policy() {
    let server = server(Service::StatusPages).await;
    let answer = ask(&server, "GET /ui", &[], "").await;
    assert_eq!(answer.status, StatusCode::OK);
    assert!(answer.text.starts_with("<!DOCTYPE html>"));
    assert!(answer.text.len() < 40_000);
    let policy = answer.header("content-security-policy").unwrap();
    for part in [
        "default-src 'none'; ",
        "frame-ancestors 'none'; ",
        "require-trusted-types-for 'script'",
    ] {
        assert!(policy.contains(part), "{policy}");
    }
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        assert_eq!(answer.header(name), Some(value));
    }
    let index = ask(&server, "GET /", &[], "").await;
    assert!(index.text.contains("<a href=\"/ui\">"), "{}", index.text);
}

#[tokio::test]
async fn the_status_document_is_that_of_the_socket() {
    let server = server(Service::StatusPages).await;
    let answer = ask(&server, "GET /status.json", &[], "").await;
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.header("access-control-allow-origin"), None);
    let mut status = example::found();
    if let Some(control) = &mut status.control {
        control.routing_policy.clear();
    }
    assert_eq!(answer.text, serde_json::to_string(&status).unwrap());
}

#[test]
fn the_status_document_keeps_its_names() {
    let text = serde_json::to_string_pretty(&example::found()).unwrap();
    assert_eq!(format!("{text}\n"), include_str!("tests/found.json"));
}

#[tokio::test]
async fn every_reason_of_the_document_is_explained() {
    let server = server(Service::StatusPages).await;
    let answer = ask(&server, "GET /reasons.json", &[], "").await;
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let reasons: serde_json::Value = serde_json::from_str(&answer.text).unwrap();
    for drop in example::found().drops {
        let meaning = &reasons["drops"][&drop.reason]["meaning"];
        assert!(meaning.is_string(), "{}", drop.reason);
    }
    assert!(reasons["srv6"]["function_down"]["meaning"].is_string());
}

#[tokio::test]
async fn plain_pages_have_an_index_and_the_live_page_beside_them() {
    let page = Text {
        path: "/status.json",
        about: "the <status>",
        content_type: "application/json",
        text: Arc::new(|| "{}".to_owned()),
        set_level: None,
    };
    let any = Listen {
        address: "127.0.0.1:0".parse().unwrap(),
        allow_remote: false,
    };
    let server = Server::texts("[metrics] prometheus", any, "br-1", vec![page])
        .await
        .unwrap();
    let answer = ask(&server, "GET /status.json", &[], "").await;
    assert_eq!(answer.text, "{}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    for path in ["GET /", "GET /no/such/page"] {
        let index = ask(&server, path, &[], "").await;
        assert_eq!(
            index.header("content-type"),
            Some("text/html; charset=utf-8")
        );
        for part in [
            "<h1>br-1</h1>",
            "<a href=\"/ui\">",
            "<a href=\"/status.json\">[status.json]</a></td><td>the &lt;status&gt;</td>",
        ] {
            assert!(index.text.contains(part), "{}", index.text);
        }
    }
    let live = ask(&server, "GET /ui", &[], "").await;
    assert!(live.header("content-security-policy").is_some());
}

#[tokio::test]
async fn the_log_level_is_set_with_json_and_with_a_form() {
    let server = server(Service::StatusPages).await;
    let form = "content-type: application/x-www-form-urlencoded";
    for (headers, body, level) in [
        (&[] as &[&str], "{\"level\":\"debug\"}", "debug"),
        (
            &["content-type: application/json"],
            "{\"level\": \"WARN\"}",
            "warn",
        ),
        (&[form], "level=error", "error"),
        (&[form], "other=1&level=info", "info"),
    ] {
        let answer = ask(&server, "PUT /log/level", headers, body).await;
        assert_eq!(answer.status, StatusCode::OK, "{body}");
        assert_eq!(answer.text, format!("{{\"level\":\"{level}\"}}\n"));
        let answer = ask(&server, "GET /log/level", &[], "").await;
        assert_eq!(answer.text, format!("{{\"level\":\"{level}\"}}\n"));
    }
}

#[tokio::test]
async fn a_wrong_log_level_is_refused_with_the_reason() {
    let server = server(Service::StatusPages).await;
    let form = "content-type: application/x-www-form-urlencoded";
    for (headers, body, error) in [
        (
            &[] as &[&str],
            "{\"level\":\"loud\"}",
            "unrecognized level: \"loud\"",
        ),
        (&[], "{}", "must specify logging level"),
        (&[form], "level=", "must specify logging level"),
        (&[form], "", "must specify logging level"),
    ] {
        let answer = ask(&server, "PUT /log/level", headers, body).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{body}");
        let text: serde_json::Value = serde_json::from_str(&answer.text).unwrap();
        assert_eq!(text, serde_json::json!({ "error": error }));
    }
    let answer = ask(&server, "PUT /log/level", &[], "level=debug").await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    let answer = ask(&server, "PUT /log/level", &[], "{\"level\":\"trace\"}").await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(answer.text, "{\"error\":\"the log is closed\"}\n");
    let answer = ask(&server, "GET /log/level", &[], "").await;
    assert_eq!(answer.text, "{\"level\":\"info\"}\n");
}

#[tokio::test]
async fn a_routing_policy_is_put_and_a_wrong_one_changes_nothing() {
    let server = server(Service::StatusPages).await;
    let policy = "accept  0-0  1-ff00:0:110  10.2.0.0/16\n";
    let answer = ask(&server, "PUT /ip-routing/policy", &[], policy).await;
    assert_eq!((answer.status, &*answer.text), (StatusCode::OK, ""));
    let answer = ask(&server, "PUT /ip-routing/policy", &[], "nonsense").await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(answer.text, "Error parsing: line 1: no rule\n");
    let answer = ask(&server, "GET /ip-routing/policy", &[], "").await;
    assert_eq!(answer.text, policy);
}

#[tokio::test]
async fn other_methods_are_not_allowed() {
    let server = server(Service::StatusPages).await;
    for line in [
        "POST /log/level",
        "DELETE /ip-routing/policy",
        "POST /ip-routing/policy",
        "PUT /status",
        "PUT /metrics",
        "PUT /no/such/page",
        "OPTIONS /log/level",
    ] {
        let answer = ask(&server, line, &[], "").await;
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{line}");
    }
    let answer = ask(&server, "HEAD /status", &[], "").await;
    assert_eq!((answer.status, &*answer.text), (StatusCode::OK, ""));
}

#[tokio::test]
async fn pages_of_another_origin_change_nothing() {
    for (service, path) in [
        (Service::StatusPages, "PUT /log/level"),
        (Service::StatusPages, "PUT /ip-routing/policy"),
        (Service::Api, "PUT /api/v1/log/level"),
    ] {
        let server = server(service).await;
        let foreign = ["origin: http://evil.example"];
        let answer = ask(&server, path, &foreign, "{\"level\":\"debug\"}").await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    let server = server(Service::StatusPages).await;
    let answer = ask(
        &server,
        "GET /log/level",
        &["origin: http://evil.example"],
        "",
    )
    .await;
    assert_eq!(answer.text, "{\"level\":\"info\"}\n");
    assert_eq!(answer.header("access-control-allow-origin"), None);
    let own = format!("origin: http://{}", server.address());
    let answer = ask(&server, "PUT /log/level", &[&own], "{\"level\":\"debug\"}").await;
    assert_eq!(answer.status, StatusCode::OK);
}

#[tokio::test]
async fn the_api_is_read_by_pages_of_any_origin() {
    let server = server(Service::Api).await;
    for (path, content_type) in [
        ("GET /", "text/html; charset=utf-8"),
        ("GET /openapi.json", "application/json"),
        ("GET /api/v1/info", "text/plain; charset=utf-8"),
        ("GET /api/v1/config", "text/plain; charset=utf-8"),
        ("GET /api/v1/log/level", "application/json"),
    ] {
        let answer = ask(&server, path, &["origin: http://any.example"], "").await;
        assert_eq!(answer.status, StatusCode::OK, "{path}");
        assert_eq!(answer.header("content-type"), Some(content_type), "{path}");
        assert_eq!(
            answer.header("access-control-allow-origin"),
            Some("*"),
            "{path}"
        );
    }
    let preflight = [
        "origin: http://any.example",
        "access-control-request-method: PUT",
    ];
    let answer = ask(&server, "OPTIONS /api/v1/log/level", &preflight, "").await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    assert_eq!(
        answer.header("access-control-allow-methods"),
        Some("GET, HEAD")
    );
    let answer = ask(
        &server,
        "PUT /api/v1/log/level",
        &[],
        "{\"level\":\"debug\"}",
    )
    .await;
    assert_eq!(answer.text, "{\"level\":\"debug\"}\n");
    let answer = ask(&server, "GET /status", &[], "").await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_description_of_the_api_names_what_there_is() {
    let server = server(Service::Api).await;
    let answer = ask(&server, "GET /openapi.json", &[], "").await;
    let description: serde_json::Value = serde_json::from_str(&answer.text).unwrap();
    let base = description["servers"][0]["url"].as_str().unwrap();
    let paths = description["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 3);
    for (path, methods) in paths {
        for method in methods.as_object().unwrap().keys() {
            let line = format!("{} {base}{path}", method.to_uppercase());
            let answer = ask(&server, &line, &[], "{\"level\":\"info\"}").await;
            assert_eq!(answer.status, StatusCode::OK, "{line}");
        }
    }
}

#[tokio::test]
async fn a_body_that_is_too_long_is_refused() {
    let server = server(Service::StatusPages).await;
    let long = "accept ".repeat(MAX_BODY / 7 + 1);
    let answer = ask(&server, "PUT /ip-routing/policy", &[], &long).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
    let answer = ask(&server, "GET /ip-routing/policy", &[], "").await;
    assert_eq!(answer.text, "");
}

#[tokio::test]
async fn a_request_that_meets_a_defect_is_answered_and_so_is_another_client() {
    let server = server(Service::StatusPages).await;
    let answer = ask(&server, "PUT /ip-routing/policy", &[], "panic").await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    let answer = ask(&server, "GET /status", &[], "").await;
    assert_eq!(answer.status, StatusCode::OK);
}

#[tokio::test]
async fn a_client_that_does_not_finish_its_request_is_cut_off() {
    let limits = Limits {
        head: Duration::from_millis(50),
        ..LIMITS
    };
    let server = server_with(Service::StatusPages, limits).await;
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream
        .write_all(b"GET /status HTTP/1.1\r\nhost: 127.0.0.1\r\n")
        .await
        .unwrap();
    let mut rest = Vec::new();
    let end = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
    assert!(end.is_ok(), "still open");
    assert!(!rest.starts_with(b"HTTP/1.1 200"));
}

#[tokio::test]
async fn a_client_that_never_sends_its_body_is_cut_off() {
    let limits = Limits {
        lifetime: Duration::from_millis(50),
        grace: Duration::from_millis(50),
        ..LIMITS
    };
    let server = server_with(Service::StatusPages, limits).await;
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let head = b"PUT /ip-routing/policy HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 100\r\n\r\n";
    stream.write_all(head).await.unwrap();
    let mut rest = Vec::new();
    let end = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
    assert!(end.is_ok(), "still open");
}

#[tokio::test]
async fn clients_that_keep_the_server_waiting_give_way_to_others() {
    let limits = Limits {
        connections: 4,
        head: PATIENCE,
        lifetime: PATIENCE,
        ..LIMITS
    };
    let server = server_with(Service::StatusPages, limits).await;
    let mut slow = Vec::new();
    for begin in [
        "",
        "GET /metr",
        "GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\n",
        "PUT /log/level HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 9\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(begin.as_bytes()).await.unwrap();
        slow.push(stream);
    }
    for _ in 0..8 {
        let answer = ask(&server, "GET /log/level", &[], "").await;
        assert_eq!(answer.status, StatusCode::OK);
    }
    // The oldest had to go.
    let mut rest = Vec::new();
    let end = tokio::time::timeout(PATIENCE, slow[0].read_to_end(&mut rest)).await;
    assert!(end.is_ok(), "still open");
}

#[tokio::test]
async fn a_client_whose_request_is_worked_on_does_not_give_way() {
    let limits = Limits {
        connections: 2,
        head: PATIENCE,
        lifetime: PATIENCE,
        ..LIMITS
    };
    let gateway = Gateway::new();
    let server = serving(Arc::clone(&gateway), Service::StatusPages, limits).await;
    let working = async { ask(&server, "PUT /ip-routing/policy", &[], "accept slowly").await };
    let others = async {
        let wait = |gateway: &Arc<Gateway>| {
            let gateway = Arc::clone(gateway);
            tokio::task::spawn_blocking(move || gateway.work.wait())
        };
        wait(&gateway).await.unwrap();
        let mut silent = Vec::new();
        for _ in 0..4 {
            let answer = ask(&server, "GET /log/level", &[], "").await;
            assert_eq!(answer.status, StatusCode::OK);
            silent.push(TcpStream::connect(server.address()).await.unwrap());
        }
        wait(&gateway).await.unwrap();
    };
    let (answer, ()) = tokio::join!(working, others);
    assert_eq!(answer.status, StatusCode::OK);
}

#[tokio::test]
async fn a_name_that_was_pointed_here_sees_nothing() {
    let server = server(Service::StatusPages).await;
    let request = |host: &str| {
        let request = Request::builder().uri("/config").header("host", host);
        request.body(Full::default()).unwrap()
    };
    let answer = send(&server, request("evil.example:30456")).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    assert!(!answer.text.contains("[gateway]"), "{}", answer.text);
    let answer = send(&server, request("localhost:30456")).await;
    assert_eq!(answer.status, StatusCode::OK);
}

#[tokio::test]
async fn a_dropped_server_closes_its_connections() {
    let server = server(Service::StatusPages).await;
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream
        .write_all(b"GET /log/level HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), b'H');
    let address = server.address();
    drop(server);
    let mut rest = Vec::new();
    let end = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
    assert!(end.is_ok(), "still open");
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn an_address_in_use_is_named() {
    let first = server(Service::StatusPages).await;
    let gateway = Gateway::new();
    let listen = Listen {
        address: first.address(),
        allow_remote: false,
    };
    let second = Server::listen(Service::Api, listen, gateway).await;
    let text = second.unwrap_err().to_string();
    let begin = format!("[api] addr: cannot listen on {}: ", first.address());
    assert!(text.starts_with(&begin), "{text}");
}
