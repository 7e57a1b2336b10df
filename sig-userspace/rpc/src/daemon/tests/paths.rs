//! Conversion of paths.

use std::time::SystemTime;

use scion_protobuf::{
    buffa_types::google::protobuf::{self, Timestamp},
    proto::daemon::v1::{DiscoveryInformation, Path, PathInterface},
};

use super::*;

/// One segment with two hops.
const RAW: &str = "000020000100123466000000003f00000001010203040506003f000200000708090a0b0c";

fn raw(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex
        .chars()
        .map(|digit| digit.to_digit(16).unwrap() as u8)
        .collect();
    digits
        .chunks(2)
        .map(|byte| byte[0] << 4 | byte[1])
        .collect()
}

fn seconds(seconds: i64) -> protobuf::Duration {
    protobuf::Duration {
        seconds,
        ..protobuf::Duration::default()
    }
}

fn path(next_hop: &str) -> Path {
    let interface = |isd_as: IsdAs, id| PathInterface {
        isd_as: isd_as.0,
        id,
    };
    Path {
        raw: raw(RAW),
        interface: MessageField::some(at(next_hop)),
        interfaces: vec![interface(LOCAL, 1), interface(REMOTE, 2)],
        mtu: 1472,
        expiration: MessageField::some(Timestamp {
            seconds: 1_700_000_000,
            nanos: 500_000_000,
            ..Timestamp::default()
        }),
        latency: vec![seconds(3)],
        discovery_information: [(
            REMOTE.0,
            DiscoveryInformation {
                discovery_service_addresses: vec![
                    "10.1.0.2:30252".to_owned(),
                    "10.1.0.3".to_owned(),
                ],
                ..DiscoveryInformation::default()
            },
        )]
        .into(),
        ..Path::default()
    }
}

async fn convert(paths: Vec<Path>) -> convert::Paths {
    convert::paths(paths, LOCAL, REMOTE, Instant::now() + PATIENCE).await
}

/// The path as it is, changed by `change`.
async fn changed(change: impl FnOnce(&mut Path)) -> Result<scion::Path, &'static str> {
    let mut path = path("10.0.0.1:30042");
    change(&mut path);
    let mut converted = convert(vec![path]).await;
    assert_eq!(converted.paths.len() as u64 + converted.skipped, 1);
    converted
        .paths
        .pop()
        .ok_or_else(|| converted.problem.unwrap())
}

#[tokio::test]
async fn a_path_keeps_all_that_the_gateway_needs() {
    let path = changed(|_| {}).await.unwrap();
    let interfaces = [(LOCAL, 1), (REMOTE, 2)].map(|(isd_as, id)| scion::Interface { isd_as, id });
    assert_eq!(*path.raw, *raw(RAW));
    assert_eq!(path.next_hop, "10.0.0.1:30042".parse().unwrap());
    assert_eq!(*path.interfaces, interfaces);
    assert_eq!(path.mtu, 1472);
    let expiry = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_500);
    assert_eq!(path.expiry, Some(expiry));
    assert_eq!(path.announced_latency, Some(Duration::from_secs(3)));
    assert_eq!(*path.discovery, ["10.1.0.2:30252".parse().unwrap()]);
    assert_eq!(
        path.fingerprint.to_string(),
        "efb260740020b1046d8699703f18772b2e79df49cd094879276c76dcca887be5"
    );
}

#[tokio::test]
async fn what_a_path_does_not_tell_is_unknown() {
    let path = changed(|path| {
        path.expiration = MessageField::none();
        path.latency.clear();
        path.discovery_information.clear();
    })
    .await
    .unwrap();
    assert_eq!(path.expiry, None);
    assert_eq!(path.announced_latency, None);
    assert!(path.discovery.is_empty());
}

#[tokio::test]
async fn a_negative_or_missing_latency_makes_the_sum_unknown() {
    for latency in [
        vec![seconds(-1)],
        vec![protobuf::Duration {
            nanos: -1,
            ..protobuf::Duration::default()
        }],
        vec![seconds(1), seconds(1)],
        vec![],
    ] {
        let path = changed(|path| path.latency = latency).await.unwrap();
        assert_eq!(path.announced_latency, None);
    }
}

#[tokio::test]
async fn an_mtu_beyond_what_packets_can_have_is_the_largest() {
    let path = changed(|path| path.mtu = 65536).await.unwrap();
    assert_eq!(path.mtu, u16::MAX);
}

#[tokio::test]
async fn next_hops_may_have_names() {
    let path = changed(|path| path.interface = MessageField::some(at("localhost:30042")))
        .await
        .unwrap();
    assert!(path.next_hop.ip().is_loopback());
    assert_eq!(path.next_hop.port(), 30042);
}

#[tokio::test]
async fn the_path_within_an_as_is_empty() {
    let local = Path {
        mtu: 1472,
        ..Path::default()
    };
    let paths = convert::paths(vec![local.clone()], LOCAL, LOCAL, Instant::now()).await;
    assert_eq!(paths.paths[0].path_type(), 0);
    assert_eq!(convert(vec![local]).await.skipped, 1);
}

#[tokio::test]
async fn paths_that_cannot_be_used_are_told_apart() {
    let spoils: [fn(&mut Path); 15] = [
        |path| path.raw.clear(),
        |path| path.raw.truncate(35),
        // CurrHF 1
        |path| path.raw[0] = 1,
        // A hop field more than there is.
        |path| path.raw[2] = 0x30,
        |path| path.interface = MessageField::none(),
        |path| path.interface = MessageField::some(at("")),
        |path| path.interface = MessageField::some(at("10.0.0.1:0")),
        |path| path.interface = MessageField::some(at("0.0.0.0:30042")),
        |path| path.interface = MessageField::some(at(&"a".repeat(500))),
        |path| path.interfaces.truncate(1),
        |path| path.interfaces.swap(0, 1),
        |path| path.interfaces[1].isd_as += 1,
        |path| {
            let last = path.interfaces[1].clone();
            path.interfaces.resize(130, last);
        },
        |path| {
            path.expiration = MessageField::some(Timestamp {
                seconds: -1,
                ..Timestamp::default()
            })
        },
        |path| {
            path.expiration = MessageField::some(Timestamp {
                seconds: i64::MAX,
                nanos: 1_000_000_000,
                ..Timestamp::default()
            })
        },
    ];
    for (number, spoil) in spoils.into_iter().enumerate() {
        assert!(changed(spoil).await.is_err(), "{number}");
    }
}

#[tokio::test]
async fn a_bad_path_is_left_out_and_counted() {
    let good = path("10.0.0.1:30042");
    let bad = path("nowhere");
    let (fake, daemon) = start(Answers {
        paths: Some(PathsResponse {
            paths: vec![good.clone(), bad.clone(), good],
        }),
        ..answers()
    });
    assert_eq!(daemon.paths(LOCAL, REMOTE).await.unwrap().len(), 2);
    assert_eq!(daemon.state().paths_skipped, 1);
    assert_eq!(daemon.state().failures, 0);

    fake.answers().paths = Some(PathsResponse { paths: vec![bad] });
    let error = daemon.paths(LOCAL, REMOTE).await.unwrap_err();
    assert!(matches!(error, DaemonError::Answer { .. }), "{error}");
    assert_eq!(daemon.state().paths_skipped, 2);
    assert_eq!(daemon.state().failures, 1);
}

#[tokio::test]
async fn the_number_of_paths_is_limited() {
    let converted = convert(vec![path("10.0.0.1:30042"); 1030]).await;
    assert_eq!((converted.paths.len(), converted.skipped), (1024, 6));
}
