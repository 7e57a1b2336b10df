//! A whole gateway as another program starts it, as far as that needs no privileges.

use std::{fs, path::Path, time::Duration};

use sig::{
    Config, Gateway,
    config::Control,
    gateway::{Error, Handle},
};
use testbed::Folder;

const POLICY: &str = r#"{ "ASes": { "1-ff00:0:111": { "Nets": [] } }, "ConfigVersion": 1 }"#;

/// A gateway whose SCION daemon is not there.
fn config(folder: &Path) -> Config {
    let policy = folder.join("traffic.policy");
    fs::write(&policy, POLICY).unwrap();
    Config::builder(
        "1-ff00:0:110".parse().unwrap(),
        "127.0.0.2:30056".parse().unwrap(),
    )
    .status_socket(folder.join("sig.sock"))
    .control(Control {
        daemon: "127.0.0.1:1".into(),
        traffic_policy_file: policy,
        ..Control::default()
    })
    .build()
    .unwrap()
}

async fn state(handle: &Handle, expected: &str) {
    let wait = async {
        while !handle.status().unwrap_err().to_string().contains(expected) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), wait).await;
    waited.unwrap_or_else(|_| panic!("{:?}", handle.status()));
}

#[test]
fn a_gateway_that_starts_can_be_asked_reloaded_and_given_up() {
    let folder = Folder::new("gateway-given-up").unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let builder = Gateway::builder(config(folder.path())).unwrap();
        let handle = builder.handle();
        let starting = tokio::spawn(builder.start());
        state(&handle, "waiting for the SCION daemon").await;
        let told = handle.reload().await.unwrap();
        assert!(told.contains("re-reading all files"), "{told}");

        let policy = folder.path().join("traffic.policy");
        fs::write(&policy, "no JSON").unwrap();
        let error = handle.reload().await.unwrap_err().to_string();
        assert!(error.contains("traffic.policy:1"), "{error}");
        state(&handle, "waiting for the SCION daemon").await;

        starting.abort();
        state(&handle, "the gateway has ended").await;
        let error = handle.reload().await.unwrap_err();
        assert_eq!(error.to_string(), "the gateway has ended");
    });
    assert!(!folder.path().join("sig.sock").exists());
}

#[test]
fn a_runtime_that_does_not_do_is_an_error() {
    let folder = Folder::new("gateway-runtime").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    let builder = Gateway::builder(config(folder.path())).unwrap();
    let error = runtime.block_on(builder.start()).err();
    assert!(matches!(error, Some(Error::Runtime)), "{error:?}");
}

#[test]
fn problems_of_the_files_come_before_the_start() {
    let folder = Folder::new("gateway-problems").unwrap();
    let file = folder.path().join("gateway.toml");
    fs::write(&file, "[gateway]\nisd_as = \"0-0\"\n").unwrap();
    let error = Gateway::load(&file).err().unwrap().to_string();
    assert!(error.contains("gateway.toml:2: gateway.isd_as"), "{error}");
}
