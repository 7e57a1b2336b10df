//! What calls bring, in both variants.

use super::*;

const BOTH: [RpcProtocols; 2] = [RpcProtocols::Connect, RpcProtocols::Grpc];

#[tokio::test]
async fn prefixes_come_over_either_variant() {
    for protocols in BOTH {
        let (server, address) = server(RpcProtocols::All, serving(&["10.2.0.0/24", "fd00:2::/64"]));
        let border = BorderRouter::start(None).await;
        let client = client(protocols);
        let path = border.path();
        let prefixes = client.prefixes(theirs(), address, &path, "").await;
        assert_eq!(
            all(prefixes.expect("an answer")),
            nets(&["10.2.0.0/24", "fd00:2::/64"])
        );
        assert_eq!(server.counts().methods[0].answered, 1);
        assert_eq!(client.counts().prefixes.answered, 1);
    }
}

#[tokio::test]
async fn the_caller_is_known_by_its_as() {
    let router = Router::new().prefixes(|caller| {
        assert_eq!(caller, ours());
        Vec::new()
    });
    let (_server, address) = server(RpcProtocols::All, router);
    let border = BorderRouter::start(None).await;
    for protocols in BOTH {
        let client = client(protocols);
        let path = border.path();
        let prefixes = client.prefixes(theirs(), address, &path, "").await;
        assert_eq!(all(prefixes.expect("an answer")), nets(&[]));
    }
}

#[tokio::test]
async fn four_thousand_prefixes_are_transferred_whole() {
    let many: Vec<IpNet> = (0..4096_u32)
        .map(|n| IpNet::new(IpAddr::from((0x0a00_0000 + (n << 8)).to_be_bytes()), 24).unwrap())
        .collect();
    let served = many.clone();
    let router = Router::new().prefixes(move |_| served.clone());
    let (_server, address) = server(RpcProtocols::All, router);
    let border = BorderRouter::start(None).await;
    for protocols in BOTH {
        let client = client(protocols);
        let path = border.path();
        let prefixes = client.prefixes(theirs(), address, &path, "").await;
        assert_eq!(all(prefixes.expect("an answer")), many);
    }
}

#[tokio::test]
async fn prefixes_that_did_not_change_are_not_sent_again() {
    let (_server, address) = server(RpcProtocols::All, serving(&["10.2.0.0/24"]));
    let border = BorderRouter::start(None).await;
    let client = client(RpcProtocols::All);
    let path = border.path();
    let first = client.prefixes(theirs(), address, &path, "").await;
    let Ok(Announced::Prefixes { etag, .. }) = first else {
        panic!("{first:?}");
    };
    let second = client.prefixes(theirs(), address, &path, &etag).await;
    assert_eq!(second, Ok(Announced::Unchanged));
    let third = client.prefixes(theirs(), address, &path, "other").await;
    assert_eq!(all(third.expect("an answer")), nets(&["10.2.0.0/24"]));
}

#[tokio::test]
async fn gateways_are_asked_of_the_resolved_discovery_service() {
    for protocols in BOTH {
        let router = Router::new().gateways(|_| vec![gateway("10.11.0.2"), gateway("nonsense")]);
        let (_server, address) = server(RpcProtocols::All, router);
        let border = BorderRouter::start(Some(address)).await;
        let client = client(protocols);
        let gateways = client.gateways(theirs(), &border.path()).await;
        let gateways = gateways.expect("an answer");
        assert_eq!(gateways.len(), 1);
        assert_eq!(gateways[0].control, "10.11.0.2:30256".parse().unwrap());
        assert_eq!(gateways[0].allow_interfaces, [41]);
        assert!(border.resolutions.load(Relaxed) >= 1);
        assert_eq!(client.counts().ignored, 1);
    }
}

#[tokio::test]
async fn grpc_goes_straight_to_a_discovery_service_that_the_path_names() {
    let (_server, address) = server(RpcProtocols::All, Router::new().gateways(|_| Vec::new()));
    let border = BorderRouter::start(None).await;
    let mut path = border.path();
    path.discovery = [address].into();
    let gateways = client(RpcProtocols::Grpc).gateways(theirs(), &path).await;
    assert_eq!(gateways, Ok(Vec::new()));
    assert_eq!(border.resolutions.load(Relaxed), 0);
}

#[tokio::test]
async fn answers_to_service_resolutions_that_are_none_are_errors() {
    for answer in [
        &b"\x0a"[..],
        b"",
        b"\x0a\x00",
        b"\x0a\x0a\x0a\x04QUIC\x12\x02\x0a\x00",
    ] {
        let border = BorderRouter::answering(Some(answer.to_vec())).await;
        let client = client(RpcProtocols::Connect).with_timeout(Duration::from_millis(500));
        let gateways = client.gateways(theirs(), &border.path()).await;
        let error = gateways.expect_err("no address").to_string();
        let why = if answer.is_empty() {
            "no answer in time"
        } else {
            "service resolution failed: malformed answer"
        };
        assert!(error.contains(why), "{error}");
    }
}

#[tokio::test]
async fn the_other_variant_is_used_where_the_first_is_not_spoken() {
    let (server, address) = server(RpcProtocols::Grpc, serving(&["10.2.0.0/24"]));
    let border = BorderRouter::start(None).await;
    let client = client(RpcProtocols::All).patient();
    let path = border.path();
    for _ in 0..3 {
        let prefixes = client.prefixes(theirs(), address, &path, "").await;
        assert_eq!(all(prefixes.expect("an answer")), nets(&["10.2.0.0/24"]));
    }
    assert_eq!(client.counts().connected, 1);
    assert_eq!(client.counts().kept, 2);
    assert_eq!(server.counts().accepted, 1);
    assert_eq!(server.counts().failed, 1);
}

#[tokio::test]
async fn without_a_common_variant_all_errors_are_told() {
    let (_server, address) = server(RpcProtocols::Grpc, serving(&[]));
    let border = BorderRouter::start(None).await;
    let client = client(RpcProtocols::Connect);
    let path = border.path();
    let error = client.prefixes(theirs(), address, &path, "").await;
    let error = error.expect_err("no protocol").to_string();
    assert!(error.starts_with("Connect: cannot connect: "), "{error}");
    assert_eq!(client.counts().prefixes.failed, 1);
}

#[tokio::test]
async fn both_errors_are_told_if_nobody_answers() {
    let border = BorderRouter::start(None).await;
    let client = client(RpcProtocols::All).with_timeout(Duration::from_secs(1));
    let nobody = "127.0.0.1:9".parse().unwrap();
    let path = border.path();
    let error = client.prefixes(theirs(), nobody, &path, "").await;
    assert_eq!(
        error.expect_err("nobody is there").to_string(),
        "Connect: no answer in time; gRPC: no answer in time"
    );
}

#[tokio::test]
async fn errors_of_the_server_reach_the_caller() {
    for protocols in BOTH {
        let router = Router::new().unary(PREFIXES, |_, _: messages::PrefixesRequest| {
            Err::<messages::PrefixesResponse, _>(Status::new(Code::PermissionDenied, "100 % no"))
        });
        let (_server, address) = server(RpcProtocols::All, router);
        let border = BorderRouter::start(None).await;
        let path = border.path();
        let error = client(protocols)
            .prefixes(theirs(), address, &path, "")
            .await;
        let error = error.expect_err("an error").to_string();
        assert!(error.ends_with("permission_denied (100 % no)"), "{error}");
    }
}

#[tokio::test]
async fn a_method_that_there_is_not_is_an_error_in_both_variants() {
    for protocols in BOTH {
        let (server, address) = server(RpcProtocols::All, Router::new());
        let border = BorderRouter::start(None).await;
        let path = border.path();
        let error = client(protocols)
            .prefixes(theirs(), address, &path, "")
            .await;
        let error = error.expect_err("an error").to_string();
        assert!(error.contains("unimplemented"), "{error}");
        assert_eq!(server.counts().unknown, 1);
    }
}
