//! Every key of the configuration file: the one list behind the check for unknown keys.

/// The sections of the file with their keys. Array elements are written `[]`.
pub(super) const SECTIONS: &[(&str, &[&str])] = &[
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
            "next_hop",
            "mtu",
            "source_port",
        ],
    ),
];

/// The keys of `section` (with `[]` for array elements); empty for a section that is not in the list.
pub(super) fn of(section: &str) -> &'static [&'static str] {
    SECTIONS
        .iter()
        .find(|(name, _)| *name == section)
        .map_or(&[], |(_, keys)| keys)
}

/// Whether `name` (with `[]` for array elements) is a section.
pub(super) fn is_section(name: &str) -> bool {
    SECTIONS.iter().any(|(section, _)| *section == name)
}

/// The remedy for `unknown`, which is not a key of `section`.
pub(super) fn advice(section: &str, unknown: &str) -> String {
    let here = of(section);
    let nearest = here
        .iter()
        .map(|key| (distance(unknown, key), *key))
        .min()
        .filter(|(distance, key)| *distance <= 1 + key.len() / 4);
    if let Some((_, key)) = nearest {
        return format!("unknown key; did you mean \"{key}\"?");
    }
    let elsewhere = SECTIONS
        .iter()
        .find(|(name, keys)| *name != section && keys.contains(&unknown));
    if let Some((name, _)) = elsewhere {
        return match *name {
            "" => format!("unknown key; \"{unknown}\" belongs at the top level of the file"),
            "remote[]" => "unknown key here; it belongs in [[remote]]".to_owned(),
            "remote[].path[]" => "unknown key here; it belongs in [[remote.path]]".to_owned(),
            name => format!("unknown key here; it belongs in [{name}]"),
        };
    }
    format!("unknown key; remove it or use one of: {}", here.join(", "))
}

/// Levenshtein distance, in characters; long words are not worth comparing.
fn distance(a: &str, b: &str) -> usize {
    const LONGEST: usize = 64;
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        if i >= LONGEST {
            return usize::MAX;
        }
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substitute = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_key_is_recognised() {
        assert_eq!(
            advice("dataplane", "worker"),
            "unknown key; did you mean \"workers\"?"
        );
        assert_eq!(
            advice("gateway", "isd-as"),
            "unknown key; did you mean \"isd_as\"?"
        );
    }

    #[test]
    fn a_key_of_another_section_is_sent_there() {
        assert_eq!(
            advice("gateway", "workers"),
            "unknown key here; it belongs in [dataplane]"
        );
        assert_eq!(
            advice("gateway", "next_hop"),
            "unknown key here; it belongs in [[remote.path]]"
        );
    }

    #[test]
    fn a_key_like_no_other_gets_the_list() {
        assert_eq!(
            advice("metrics", "colour"),
            "unknown key; remove it or use one of: prometheus, allow_remote"
        );
    }

    #[test]
    fn endless_keys_are_no_trouble() {
        advice("gateway", &"x".repeat(1_000_000));
    }
}
