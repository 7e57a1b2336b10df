mod fake;
mod paths;

use std::time::Duration;

use scion_protobuf::{
    buffa::MessageField,
    proto::daemon::v1::{
        ASResponse, Interface, InterfacesResponse, ListService, PathsResponse, PortRangeResponse,
        Service, ServicesResponse, Underlay,
    },
};

use self::fake::{Answers, Fake};
use super::*;

const LOCAL: IsdAs = IsdAs::new(1, 0xff00_0000_0110);
const REMOTE: IsdAs = IsdAs::new(1, 0xff00_0000_0111);

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn at(address: &str) -> Interface {
    Interface {
        address: MessageField::some(Underlay {
            address: address.to_owned(),
        }),
    }
}

fn answers() -> Answers {
    Answers {
        local: ASResponse {
            isd_as: LOCAL.0,
            core: true,
            mtu: 1472,
        },
        ports: PortRangeResponse {
            dispatched_port_start: 31000,
            dispatched_port_end: 32767,
        },
        interfaces: InterfacesResponse {
            interfaces: [(1, at("10.0.0.1:30042")), (2, at("[fd00::1]:30042"))].into(),
        },
        services: ServicesResponse {
            services: [(
                "control".to_owned(),
                ListService {
                    services: vec![
                        Service {
                            uri: "a name:30252".to_owned(),
                        },
                        Service {
                            uri: "10.0.0.2:30252".to_owned(),
                        },
                    ],
                },
            )]
            .into(),
        },
        paths: Some(PathsResponse::default()),
        ..Answers::default()
    }
}

fn start(answers: Answers) -> (Fake, Daemon) {
    let fake = Fake::start(([127, 0, 0, 1], 0).into(), answers);
    let daemon = Daemon::new(&fake.address.to_string());
    (fake, daemon)
}

#[tokio::test]
async fn the_daemon_tells_about_the_local_as() {
    let (fake, daemon) = start(answers());
    let local = daemon.local().await.unwrap();
    let expected = LocalAs {
        isd_as: LOCAL,
        core: true,
        mtu: 1472,
        ports: (31000, 32767),
        interfaces: [
            (1, "10.0.0.1:30042".parse().unwrap()),
            (2, "[fd00::1]:30042".parse().unwrap()),
        ]
        .into(),
    };
    assert_eq!(local, expected);
    let ip = daemon.control_service_ip().await.unwrap();
    assert_eq!(ip, Some([10, 0, 0, 2].into()));
    daemon.notify_interface_down(REMOTE, 7).await.unwrap();
    assert_eq!(fake.answers().down, [(REMOTE.0, 7)]);
    assert!(daemon.paths(LOCAL, REMOTE).await.unwrap().is_empty());
    assert_eq!(fake.answers().asked, [(LOCAL.0, REMOTE.0)]);
    let expected = State {
        address: fake.address.to_string(),
        reachable: true,
        requests: 6,
        ..State::default()
    };
    assert_eq!(daemon.state(), expected);
}

#[tokio::test]
async fn the_daemon_may_have_a_name() {
    let (fake, _) = start(answers());
    let daemon = Daemon::new(&format!("localhost:{}", fake.address.port()));
    assert_eq!(daemon.local().await.unwrap().isd_as, LOCAL);
}

#[tokio::test]
async fn an_as_without_control_service_is_no_error() {
    let (_fake, daemon) = start(Answers {
        services: ServicesResponse::default(),
        ..answers()
    });
    assert_eq!(daemon.control_service_ip().await, Ok(None));
}

#[tokio::test]
async fn answers_about_the_local_as_that_cannot_be_are_errors() {
    let (fake, daemon) = start(answers());
    let spoils: [fn(&mut Answers); 7] = [
        |answers| answers.local.isd_as = IsdAs::new(1, 0).0,
        |answers| answers.local.isd_as = IsdAs::new(0, 7).0,
        |answers| answers.ports.dispatched_port_end = 30999,
        |answers| answers.ports.dispatched_port_end = 65536,
        |answers| answers.ports.dispatched_port_start = 0,
        |answers| {
            answers.interfaces.interfaces.insert(3, at("10.0.0.1"));
        },
        |answers| {
            let none = Interface::default();
            answers.interfaces.interfaces.insert(3, none);
        },
    ];
    for spoil in spoils {
        let mut spoilt = answers();
        spoil(&mut spoilt);
        *fake.answers() = spoilt;
        let answer = daemon.local().await;
        assert!(
            matches!(answer, Err(DaemonError::Answer { .. })),
            "{answer:?}"
        );
        assert!(daemon.state().problem.is_some());
        assert!(daemon.state().reachable);
    }
}

#[tokio::test]
async fn an_as_may_have_no_dispatched_ports() {
    let (_fake, daemon) = start(Answers {
        ports: PortRangeResponse::default(),
        ..answers()
    });
    assert_eq!(daemon.local().await.unwrap().ports, (0, 0));
}

#[tokio::test]
async fn addresses_that_cannot_be_are_told_apart() {
    for address in [
        "",
        "localhost",
        "127.0.0.1:",
        "127.0.0.1:0",
        "a b:1",
        "a/b:1",
        "::1:30255",
    ] {
        let daemon = Daemon::new(address);
        assert_eq!(
            daemon.local().await,
            Err(DaemonError::Address(address.to_owned()))
        );
        assert!(daemon.state().problem.is_some(), "{address}");
    }
}

#[tokio::test]
async fn errors_of_the_daemon_are_passed_on() {
    let (_fake, daemon) = start(Answers {
        paths: None,
        ..answers()
    });
    let error = daemon.paths(LOCAL, REMOTE).await.unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("for paths with an error: no segments"),
        "{error}"
    );
    let state = daemon.state();
    assert!(state.reachable);
    assert_eq!((state.requests, state.failures), (1, 1));
}

#[tokio::test]
async fn a_daemon_that_comes_later_is_waited_for() {
    let (fake, _) = start(answers());
    let address = fake.address;
    drop(fake);
    let daemon = Daemon::new(&address.to_string());
    let waiting = tokio::spawn({
        let daemon = daemon.clone();
        async move { daemon.wait_for(|_| {}).await }
    });
    while daemon.state().failures < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!daemon.state().reachable);
    let problem = daemon.state().problem.expect("a problem");
    assert!(problem.contains("refused"), "{problem}");
    let _fake = Fake::start(address, answers());
    let local = tokio::time::timeout(PATIENCE, waiting).await.unwrap();
    assert_eq!(local.unwrap().isd_as, LOCAL);
    assert!(daemon.state().reachable);
    assert_eq!(daemon.state().problem, None);
}

#[tokio::test]
async fn a_restarted_daemon_is_found_again() {
    let (fake, daemon) = start(answers());
    daemon.local().await.unwrap();
    let address = fake.address;
    drop(fake);
    let error = daemon.local().await.unwrap_err();
    assert!(matches!(error, DaemonError::Unreachable { .. }), "{error}");
    assert!(!daemon.state().reachable);
    let _fake = Fake::start(address, answers());
    daemon.local().await.unwrap();
    assert!(daemon.state().reachable);
}

#[tokio::test]
async fn a_daemon_that_hangs_costs_a_limited_time_and_its_connection() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let daemon = Daemon::new(&listener.local_addr().unwrap().to_string());
    for _ in 0..2 {
        let (answer, connection) = tokio::join!(daemon.interfaces(), async {
            listener.accept().await.unwrap()
        });
        assert!(
            matches!(answer, Err(DaemonError::Unreachable { .. })),
            "{answer:?}"
        );
        drop(connection);
    }
}

#[tokio::test]
async fn what_is_no_daemon_is_an_error() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let daemon = Daemon::new(&listener.local_addr().unwrap().to_string());
    let (answer, ()) = tokio::join!(daemon.interfaces(), async {
        use tokio::io::AsyncWriteExt as _;
        let (mut connection, _) = listener.accept().await.unwrap();
        let page = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
        connection.write_all(page).await.unwrap();
    });
    assert!(answer.is_err());
    assert_eq!(daemon.state().failures, 1);
}
