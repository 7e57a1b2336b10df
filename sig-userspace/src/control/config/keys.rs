//! Every key of the configuration file, for the check for unknown keys.

use super::{
    discovery::{Discovery, Rpc},
    protection::General,
    sections::{Dataplane, Gateway, Limits, Tunnel},
};
use sig_core::{
    document::{common::Log, schema::Schema},
    peer::PeerLimits,
};

/// The sections of the file with their keys.
pub(super) const SCHEMA: &Schema = &Schema(&[
    (
        "",
        &[&[
            "features",
            "log",
            "metrics",
            "api",
            "rpc",
            "sciond_connection",
            "gateway",
            "control",
            "protection",
            "tunnel",
            "dataplane",
            "remote",
        ]],
    ),
    (
        "features",
        &[&[
            "appropriate_digest_algorithm",
            "experimental_scmp_authentication",
        ]],
    ),
    ("log", &[&["console"]]),
    (
        "log.console",
        &[Log::KEYS, &["stacktrace_level", "disable_caller"]],
    ),
    ("metrics", &[&["prometheus", "allow_remote"]]),
    ("api", &[&["addr", "allow_remote"]]),
    ("rpc", &[Rpc::KEYS]),
    (
        "sciond_connection",
        &[&["address", "initial_connect_period", "fake_data"]],
    ),
    (
        "gateway",
        &[
            Gateway::KEYS,
            &[
                "isd_as",
                "data_addr",
                "status_socket",
                "ctrl_addr",
                "probe_addr",
                "traffic_policy_file",
                "ip_routing_policy_file",
            ],
        ],
    ),
    ("control", &[Discovery::KEYS, &["limits"]]),
    ("control.limits", &[PeerLimits::KEYS]),
    ("protection", &[General::KEYS, &["remote"]]),
    ("protection.remote[]", &[&["isd_as", "mode", "pins"]]),
    ("tunnel", &[Tunnel::KEYS]),
    ("dataplane", &[Dataplane::KEYS, &["limits"]]),
    ("dataplane.limits", &[Limits::KEYS]),
    (
        "remote[]",
        &[&["isd_as", "gateway", "session", "prefixes", "path"]],
    ),
    (
        "remote[].path[]",
        &[&[
            "name",
            "path_type",
            "raw",
            "file",
            "network",
            "via",
            "next_hop",
            "mtu",
            "source_port",
        ]],
    ),
]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_key_is_recognised() {
        assert_eq!(
            SCHEMA.advice("dataplane", "worker"),
            "unknown key; did you mean \"workers\"?"
        );
        assert_eq!(
            SCHEMA.advice("gateway", "isd-as"),
            "unknown key; did you mean \"isd_as\"?"
        );
    }

    #[test]
    fn a_key_of_another_section_is_sent_there() {
        assert_eq!(
            SCHEMA.advice("gateway", "workers"),
            "unknown key here; it belongs in [dataplane]"
        );
        assert_eq!(
            SCHEMA.advice("gateway", "next_hop"),
            "unknown key here; it belongs in [[remote.path]]"
        );
    }

    #[test]
    fn a_key_like_no_other_gets_the_list() {
        assert_eq!(
            SCHEMA.advice("metrics", "colour"),
            "unknown key; remove it or use one of: prometheus, allow_remote"
        );
    }

    #[test]
    fn endless_keys_are_no_trouble() {
        SCHEMA.advice("gateway", &"x".repeat(1_000_000));
    }
}
