//! Every key of the own file: the one list behind the check for unknown keys.

use super::{limits, own::Xdp};
use sig_core::document::{common::Log, schema::Schema};

/// The sections of the file with their keys.
pub(super) const SCHEMA: &Schema = &Schema(&[
    (
        "",
        &[&[
            "general", "features", "log", "metrics", "api", "router", "xdp",
        ]],
    ),
    ("general", &[&["id", "config_dir"]]),
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
    (
        "router",
        &[&[
            "receive_buffer_size",
            "send_buffer_size",
            "num_processors",
            "num_slow_processors",
            "batch_size",
            "bfd",
            "dispatched_port_start",
            "dispatched_port_end",
        ]],
    ),
    (
        "router.bfd",
        &[&[
            "disable",
            "detect_mult",
            "desired_min_tx_interval",
            "required_min_rx_interval",
        ]],
    ),
    (
        "xdp",
        &[Xdp::KEYS, &["slow_path", "status_socket", "rate_limits"]],
    ),
    ("xdp.rate_limits", &[&limits::KEYS]),
]);
