//! What the reference takes, and that files in use may hold.

use super::*;

/// A setting, what it means, and the key that a warning names, if there is one.
type Case = (&'static str, fn(&Config) -> bool, Option<&'static str>);

fn control(config: &Config) -> &Control {
    config
        .control
        .as_ref()
        .expect("a gateway that finds its remotes")
}

const CASES: &[Case] = &[
    // Empty text is the default.
    (
        "[tunnel]\nsrc_ipv4 = \"\"",
        |c| c.tunnel.src_ipv4.is_none(),
        None,
    ),
    (
        "[tunnel]\nsrc_ipv6 = \"\"",
        |c| c.tunnel.src_ipv6.is_none(),
        None,
    ),
    ("[tunnel]\nname = \"\"", |c| c.tunnel.name == "sig", None),
    ("[gateway]\nid = \"\"", |c| c.gateway.id == "gateway", None),
    (
        "[gateway]\nctrl_addr = \"\"",
        |c| control(c).ctrl_addr.port() == 30256,
        None,
    ),
    (
        "[gateway]\ndata_addr = \"\"",
        |c| c.gateway.data_addr.port() == 30056,
        None,
    ),
    (
        "[gateway]\nprobe_addr = \"\"",
        |c| control(c).probe_addr.port() == 30856,
        None,
    ),
    (
        "[gateway]\ntraffic_policy_file = \"\"",
        |c| control(c).traffic_policy_file == FilePath::new("/etc/scion/traffic.policy"),
        None,
    ),
    (
        "[gateway]\nip_routing_policy_file = \"\"",
        |c| control(c).ip_routing_policy_file.is_none(),
        None,
    ),
    (
        "[log.console]\nlevel = \"\"",
        |c| c.log.level == LogLevel::Info,
        None,
    ),
    (
        "[log.console]\nformat = \"\"",
        |c| c.log.format == LogFormat::Human,
        None,
    ),
    ("[log.console]\nstacktrace_level = \"\"", |_| true, None),
    (
        "[metrics]\nprometheus = \"\"",
        |c| c.observe.prometheus.is_none(),
        None,
    ),
    ("[api]\naddr = \"\"", |c| c.observe.api.is_none(), None),
    (
        "[sciond_connection]\naddress = \"\"",
        |c| control(c).daemon == "127.0.0.1:30255",
        None,
    ),
    (
        "[sciond_connection]\ninitial_connect_period = \"\"",
        |_| true,
        None,
    ),
    (
        "[sciond_connection]\ninitial_connect_period = \"0s\"",
        |_| true,
        None,
    ),
    ("[sciond_connection]\nfake_data = \"\"", |_| true, None),
    (
        "[rpc]\nclient_protocol = \"\"\nserver_protocol = \"\"",
        |c| control(c).rpc.client_protocol == RpcProtocols::All,
        None,
    ),
    // Levels in any case, and those of messages that end the process.
    (
        "[log.console]\nlevel = \"INFO\"",
        |c| c.log.level == LogLevel::Info,
        None,
    ),
    (
        "[log.console]\nlevel = \"Warn\"",
        |c| c.log.level == LogLevel::Warn,
        None,
    ),
    (
        "[log.console]\nlevel = \"dpanic\"",
        |c| c.log.level == LogLevel::Error,
        None,
    ),
    (
        "[log.console]\nlevel = \"panic\"",
        |c| c.log.level == LogLevel::Error,
        None,
    ),
    (
        "[log.console]\nlevel = \"FATAL\"",
        |c| c.log.level == LogLevel::Error,
        None,
    ),
    // Keys and sections in any case.
    (
        "[Gateway]\nID = \"west\"",
        |c| c.gateway.id == "west",
        Some("Gateway"),
    ),
    (
        "[gateway]\nCtrl_Addr = \"192.0.2.1\"",
        |c| control(c).ctrl_addr.ip().to_string() == "192.0.2.1",
        Some("gateway.Ctrl_Addr"),
    ),
    (
        "[LOG.Console]\nlevel = \"debug\"",
        |c| c.log.level == LogLevel::Debug,
        Some("LOG"),
    ),
    // Values without effect there.
    (
        "[rpc]\nclient_protocol = \"quic\"",
        |c| control(c).rpc.client_protocol == RpcProtocols::All,
        Some("rpc.client_protocol"),
    ),
    (
        "[rpc]\nserver_protocol = \"GRPC\"",
        |c| control(c).rpc.server_protocol == RpcProtocols::All,
        Some("rpc.server_protocol"),
    ),
    (
        "[tunnel]\nsrc_ipv4 = \"2001:db8::1\"",
        |c| c.tunnel.src_ipv4.is_none(),
        Some("tunnel.src_ipv4"),
    ),
    (
        "[tunnel]\nsrc_ipv6 = \"192.0.2.1\"",
        |c| c.tunnel.src_ipv6.is_none(),
        Some("tunnel.src_ipv6"),
    ),
    // Names that are no file names.
    (
        "[gateway]\nid = \"site A: west\"",
        |c| {
            c.gateway.id == "site A: west"
                && c.gateway.status_socket == FilePath::new("/run/sig/site_A__west.sock")
        },
        Some("gateway.id"),
    ),
    (
        "[gateway]\nid = \"../etc/x\"",
        |c| c.gateway.status_socket == FilePath::new("/run/sig/_._etc_x.sock"),
        Some("gateway.id"),
    ),
    (
        "[gateway]\nid = \"a/b\"\nstatus_socket = \"/run/b.sock\"",
        |_| true,
        None,
    ),
];

#[test]
fn what_the_reference_takes_is_taken() {
    for (text, holds, warning) in CASES {
        let config = good(text);
        assert!(holds(&config), "{text}: {config:#?}");
        let warnings = config.warnings();
        let keys: Vec<_> = warnings.iter().map(|w| w.key.as_str()).collect();
        match warning {
            Some(key) => assert!(keys.contains(key), "{text}: {warnings:#?}"),
            None => assert_eq!(keys, [""; 0], "{text}: {warnings:#?}"),
        }
    }
}

#[test]
fn a_key_in_two_cases_is_one_key_too_many() {
    assert_eq!(
        errors("[gateway]\nid = \"a\"\nID = \"b\"\n"),
        "gateway.toml:2: gateway.id: \"id\" is set twice; remove one\n\
         gateway.toml:3: gateway.ID: \"id\" is set twice; remove one"
    );
}
