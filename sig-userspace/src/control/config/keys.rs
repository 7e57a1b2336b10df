//! Every key of the configuration file: the one list behind the check for unknown keys.

use crate::document::schema::Schema;

/// The sections of the file with their keys.
pub(super) const SCHEMA: &Schema = &Schema(&[
    (
        "",
        &[
            "features",
            "log",
            "metrics",
            "api",
            "rpc",
            "sciond_connection",
            "gateway",
            "control",
            "tunnel",
            "dataplane",
            "remote",
        ],
    ),
    (
        "features",
        &[
            "appropriate_digest_algorithm",
            "experimental_scmp_authentication",
        ],
    ),
    ("log", &["console"]),
    (
        "log.console",
        &["level", "format", "stacktrace_level", "disable_caller"],
    ),
    ("metrics", &["prometheus", "allow_remote"]),
    ("api", &["addr", "allow_remote"]),
    ("rpc", &["client_protocol", "server_protocol"]),
    (
        "sciond_connection",
        &["address", "initial_connect_period", "fake_data"],
    ),
    (
        "gateway",
        &[
            "id",
            "isd_as",
            "data_addr",
            "prefixes",
            "status_socket",
            "ctrl_addr",
            "probe_addr",
            "traffic_policy_file",
            "ip_routing_policy_file",
        ],
    ),
    (
        "control",
        &[
            "endhost_port",
            "probe_interval",
            "probe_timeout",
            "switch_delay",
            "default_route",
            "path_interval",
            "limits",
        ],
    ),
    (
        "control.limits",
        &[
            "gateways_per_as",
            "prefixes_per_gateway",
            "message_bytes",
            "connections",
            "paths_per_as",
        ],
    ),
    ("tunnel", &["name", "mtu", "table", "src_ipv4", "src_ipv6"]),
    (
        "dataplane",
        &[
            "underlay",
            "underlay_sources",
            "lan",
            "workers",
            "lan_transmit",
            "mode",
            "zero_copy",
            "ring_size",
            "chunks",
            "huge_pages",
            "busy_poll",
            "pin",
            "verify_checksums",
            "reorder_frames",
            "reorder_wait",
            "limits",
        ],
    ),
    (
        "dataplane.limits",
        &[
            "streams_per_remote",
            "streams_total",
            "packets_per_remote",
            "packets_total",
            "held_per_remote",
            "held_total",
            "packet_timeout",
            "stream_timeout",
        ],
    ),
    (
        "remote[]",
        &["isd_as", "gateway", "session", "prefixes", "path"],
    ),
    (
        "remote[].path[]",
        &[
            "name",
            "path_type",
            "raw",
            "file",
            "network",
            "via",
            "next_hop",
            "mtu",
            "source_port",
        ],
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
