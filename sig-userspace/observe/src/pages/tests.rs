use serde_json::Value;

use super::*;
use crate::example;

fn view(status: Status) -> View {
    View {
        status,
        process: Process {
            pid: 7,
            user_group: Some((0, 988)),
            command: vec![
                "sig".to_owned(),
                "run".to_owned(),
                "--config".to_owned(),
                "a \"b\".toml".to_owned(),
            ],
            ..Process::default()
        },
        config: "[gateway]\nid = \"west\"\n".to_owned(),
        log_level: LogLevel::Debug,
    }
}

fn json(page: Page) -> Value {
    serde_json::from_str(&page.render(&view(example::found()))).unwrap()
}

#[test]
fn the_status_has_the_references_shape_with_latency_jitter_and_loss() {
    assert_eq!(
        Page::Status.render(&view(example::found())),
        "ISD-AS 1-ff00:0:111
  SESSION 0, POLICY_ID 0, REMOTE: 10.11.0.2:30856, HEALTHY true
    PATHS:
     STATE                                  REVOKED  LATENCY  JITTER  DROPRATE  PATH
     -->                                    false    12.35ms  0.68ms  0.25%     Hops: [1-ff00:0:110 1>41 1-ff00:0:111] MTU: 1472 NextHop: 10.10.0.1:30042
     dead (probes are not passing through)           -        -       100.00%   Hops: [1-ff00:0:110 2>1 1-ff00:0:112 2>3 1-ff00:0:111] MTU: 1472 NextHop: 10.10.0.1:30042
     rejected by path policy                         12.35ms  0.68ms  0.25%     Hops: [1-ff00:0:110 3>1 1-ff00:0:113 2>4 1-ff00:0:111] MTU: 1472 NextHop: 10.10.0.1:30042

  SESSION 1, POLICY_ID 1, REMOTE: 10.11.0.2:30856, HEALTHY false
    PATHS:
     STATE                                  REVOKED  LATENCY  JITTER  DROPRATE  PATH
                                            false    12.35ms  0.68ms  0.25%     Hops: [1-ff00:0:110 1>41 1-ff00:0:111] MTU: 1472 NextHop: 10.10.0.1:30042
                                            true     12.35ms  0.68ms  0.25%     Hops: [1-ff00:0:110 3>1 1-ff00:0:113 2>4 1-ff00:0:111] MTU: 1472 NextHop: 10.10.0.1:30042
     dead (probes are not passing through)           -        -       100.00%   Hops: [1-ff00:0:110 2>1 1-ff00:0:112 2>3 1-ff00:0:111] MTU: 1472 NextHop: 10.10.0.1:30042



ROUTING TABLE:
10.2.0.0/24 condition: dscp=0x2e
  session: DROP
10.2.0.0/24 condition: BOOL=true
  session: ID: 0
    Hops: [1-ff00:0:110 1>41 1-ff00:0:111] MTU: 1472 NextHop: 10.10.0.1:30042
fd00:2::/64 condition: dscp=0x2e
  session: DROP
fd00:2::/64 condition: BOOL=true
  session: ID: 0
    Hops: [1-ff00:0:110 1>41 1-ff00:0:111] MTU: 1472 NextHop: 10.10.0.1:30042
"
    );
}

#[test]
fn the_status_of_configured_remotes_shows_their_paths() {
    let mut status = example::busy();
    let mut broken = status.remotes[0].paths[0].clone();
    broken.name = "backup".to_owned();
    broken.problem = Some("the next hop does not answer".to_owned());
    status.remotes[0].paths.push(broken);
    assert_eq!(
        Page::Status.render(&view(status)),
        "ISD-AS 1-ff00:0:111
  SESSION 0, POLICY_ID 0, REMOTE: 10.11.0.2:30056, HEALTHY true
    PATHS:
     STATE                         REVOKED  LATENCY  JITTER  DROPRATE  PATH
     -->                           false    -        -       -         Path \"0\" MTU: 1472 NextHop: 10.10.0.1:30042
     the next hop does not answer           -        -       -         Path \"backup\" MTU: 1472 NextHop: 10.10.0.1:30042



ROUTING TABLE:
10.2.0.0/24 condition: BOOL=true
  session: ID: 0
    Path \"0\" MTU: 1472 NextHop: 10.10.0.1:30042
"
    );
    assert_eq!(
        Page::Status.render(&view(example::idle())),
        "\nROUTING TABLE:\n"
    );
}

#[test]
fn ases_are_ordered_by_number_not_by_text() {
    let mut status = example::busy();
    for isd_as in ["10-ff00:0:1", "9-ff00:0:1"] {
        let mut remote = status.remotes[0].clone();
        remote.isd_as = isd_as.to_owned();
        status.remotes.push(remote);
    }
    let text = Page::Status.render(&view(status));
    let ases: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("ISD-AS "))
        .collect();
    assert_eq!(ases, ["1-ff00:0:111", "9-ff00:0:1", "10-ff00:0:1"]);
}

#[test]
fn what_remote_gateways_announce_is_told_as_by_the_reference() {
    assert_eq!(
        Page::PrefixWatcher.render(&view(example::found())),
        r#"{
    "remotes": {
        "1-ff00:0:111": {
            "gateways": {
                "10.11.0.2:30256": {
                    "data_address": "10.11.0.2:30056",
                    "interfaces": [],
                    "prefixes": [
                        "10.2.0.0/24",
                        "fd00:2::/64"
                    ],
                    "probe_address": "10.11.0.2:30856",
                    "timestamp": "2026-11-21T17:44:39Z"
                }
            }
        },
        "2-ff00:0:220": {
            "gateways": {}
        }
    }
}
"#
    );
    let nothing = Page::PrefixWatcher.render(&view(example::idle()));
    assert_eq!(nothing, "{\n    \"remotes\": {}\n}\n");
}

#[test]
fn prefixes_advertised_and_learned_are_told_as_by_the_reference() {
    assert_eq!(
        Page::Sgrp.render(&view(example::found())),
        r#"{
    "advertise": {
        "static": [
            "10.1.0.0/24"
        ]
    },
    "learned": {
        "dynamic": [
            "10.2.0.0/24",
            "fd00:2::/64"
        ]
    }
}
"#
    );
}

#[test]
fn a_site_without_kernel_routes_is_not_learned() {
    let mut status = example::found();
    status.control.as_mut().unwrap().sites[0].exported = false;
    let page: Value = serde_json::from_str(&Page::Sgrp.render(&view(status))).unwrap();
    assert_eq!(page["learned"]["dynamic"], serde_json::json!([]));
}

#[test]
fn sessions_and_what_they_are_made_of_are_told_as_by_the_reference() {
    let page = json(Page::SessionConfigurator);
    assert_eq!(page["SessionPolicies"][0]["TrafficMatcher"], true);
    assert_eq!(
        page["SessionPolicies"][0]["PathPolicy"]["acl"][0],
        "- 1-ff00:0:113"
    );
    assert_eq!(page["SessionPolicies"][1]["PathPolicy"]["acl"][0], "+");
    let gateway = &page["RemoteGateways"]["Gateways"]["1-ff00:0:111"][0];
    assert_eq!(gateway["Gateway"]["Control"]["IP"], "10.11.0.2");
    assert_eq!(gateway["Gateway"]["Control"]["Port"], 30256);
    assert_eq!(gateway["Gateway"]["Interfaces"], Value::Null);
    assert_eq!(gateway["Prefixes"][0]["IP"], "10.2.0.0");
    assert_eq!(gateway["Prefixes"][0]["Mask"], "////AA==");
    assert_eq!(gateway["Prefixes"][1]["Mask"], "//////////8AAAAAAAAAAA==");
    let session = &page["SessionConfigs"][1];
    assert_eq!(session["ID"], 1);
    assert_eq!(session["PolicyID"], 1);
    assert_eq!(session["PathCount"], 2);
    assert_eq!(session["Gateway"]["Probe"]["Port"], 30856);
}

#[test]
fn the_engine_page_is_json_documents_between_lines_of_text() {
    let text = Page::Engine.render(&view(example::found()));
    let (states, rest) = text.split_once("Last seen session configs:\n").unwrap();
    let (configs, rest) = rest.split_once("Control-plane routing table:\n").unwrap();
    let (control, data) = rest.split_once("\nData-plane routing table:\n").unwrap();
    let states: Value = serde_json::from_str(states).unwrap();
    assert_eq!(states["SessionStates"][0]["Healthy"], true);
    let path = &states["SessionPaths"][0]["PathInfo"][1];
    assert_eq!(path["Rejected"], true);
    assert_eq!(
        path["RejectReason"],
        "dead (probes are not passing through)"
    );
    let used = &states["SessionPaths"][0]["Paths"][0];
    assert_eq!(used["NextHop"]["Port"], 30042);
    assert_eq!(used["Meta"]["Expiry"], "2026-11-21T23:44:18Z");
    let configs: Value = serde_json::from_str(configs).unwrap();
    assert_eq!(configs[1]["PathCount"], 2);
    let control: Value = serde_json::from_str(control).unwrap();
    assert_eq!(control["RoutingTableIndices"]["2"], "AAE=");
    assert_eq!(control["CurrentSessions"], serde_json::json!({"2": 0}));
    assert_eq!(
        control["SessionStates"],
        serde_json::json!({"0": 1, "1": 0})
    );
    assert!(data.starts_with("10.2.0.0/24 condition: dscp=0x2e\n  session: DROP\n"));
}

#[test]
fn the_process_is_described() {
    assert_eq!(
        Page::Info.render(&view(example::idle())),
        "  Scion version: 0.1.0
  In docker:     false
  pid:           7
  euid/egid:     0 988
  cmd line:      [\"sig\" \"run\" \"--config\" \"a \\\"b\\\".toml\"]
"
    );
}

#[test]
fn the_index_links_to_every_page_and_shows_the_id_as_text() {
    let page = index("<script>\"&");
    assert!(
        page.contains("<title>&lt;script&gt;&quot;&amp;</title>"),
        "{page}"
    );
    for page_of in Page::ALL {
        let link = format!("<a href=\"{}\">", page_of.path());
        assert!(page.contains(&link), "{link}");
    }
}

#[test]
fn all_is_every_page_with_the_metrics_at_the_end() {
    let view = view(example::found());
    let text = all(&view);
    let mut places: Vec<usize> = Page::ALL
        .iter()
        .map(|page| {
            let name = page.path().trim_start_matches('/');
            let title = format!(
                "\n\n{name}\n{}\n\n{}",
                "=".repeat(name.len()),
                page.render(&view)
            );
            text.find(&title).unwrap()
        })
        .collect();
    let metrics = places.remove(7);
    assert!(places.is_sorted());
    assert!(places.iter().all(|place| *place < metrics));
}

#[test]
fn policy_and_log_level_are_told() {
    let view = view(example::found());
    assert!(
        Page::RoutingPolicy
            .render(&view)
            .starts_with("advertise    1-ff00:0:110")
    );
    assert_eq!(Page::LogLevel.render(&view), "{\"level\":\"debug\"}\n");
    assert_eq!(Page::Config.render(&view), view.config);
}
