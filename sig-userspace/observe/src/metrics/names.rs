//! The metrics, with the names of the reference where it has them.

use super::text::{Kind, Metric};
use sig_core::{dataplane::counters::WorkerCounts, port::Counts, scion::SocketCounts};

/// Returns every metric of a gateway.
pub fn all() -> impl Iterator<Item = Metric> {
    let tables = [WorkerCounts::ROWS, SocketCounts::ROWS, Counts::ROWS];
    ALL.iter()
        .copied()
        .chain(tables.into_iter().flatten().map(Metric::from))
}

/// Declares the metrics that are not in a table of counters.
macro_rules! metrics {
    ($($kind:ident $constant:ident $name:literal $help:literal;)+) => {
        $(pub(super) const $constant: Metric =
            Metric { name: $name, kind: Kind::$kind, help: $help };)+

        /// The metrics of this list.
        const ALL: &[Metric] = &[$($constant,)+];
    };
}

metrics! {
    // Traffic.
    Counter IPPKT_BYTES_SENT "gateway_ippkt_bytes_sent_total"
        "Bytes of IP packets sent to remote gateways.";
    Counter IPPKTS_SENT "gateway_ippkts_sent_total"
        "IP packets sent to remote gateways.";
    Counter IPPKT_BYTES_RECEIVED "gateway_ippkt_bytes_received_total"
        "Bytes of IP packets received from remote gateways.";
    Counter IPPKTS_RECEIVED "gateway_ippkts_received_total"
        "IP packets received from remote gateways.";
    Counter IPPKT_BYTES_LOCAL_SENT "gateway_ippkt_bytes_local_sent_total"
        "Bytes of IP packets delivered to the local network.";
    Counter IPPKTS_LOCAL_SENT "gateway_ippkts_local_sent_total"
        "IP packets delivered to the local network.";
    Counter IPPKT_BYTES_LOCAL_RECEIVED "gateway_ippkt_bytes_local_received_total"
        "Bytes of IP packets from the local network that entered the tunnel.";
    Counter IPPKTS_LOCAL_RECEIVED "gateway_ippkts_local_received_total"
        "IP packets from the local network that entered the tunnel.";
    Counter FRAME_BYTES_SENT "gateway_frame_bytes_sent_total"
        "Bytes of SIG frames sent to remote gateways.";
    Counter FRAMES_SENT "gateway_frames_sent_total"
        "SIG frames sent to remote gateways.";
    Counter FRAME_BYTES_RECEIVED "gateway_frame_bytes_received_total"
        "Bytes of SIG frames received from remote gateways.";
    Counter FRAMES_RECEIVED "gateway_frames_received_total"
        "SIG frames received from remote gateways.";
    Counter FRAMES_DISCARDED "gateway_frames_discarded_total"
        "SIG frames from remote gateways that were discarded.";
    Counter IPPKTS_DISCARDED "gateway_ippkts_discarded_total"
        "IP packets from the local network that were discarded.";
    Counter SEND_EXTERNAL_ERRORS "gateway_send_external_errors_total"
        "Frames that could not be sent on the SCION side.";
    Counter SEND_LOCAL_ERRORS "gateway_send_local_errors_total"
        "IP packets that could not be sent on the IP side.";
    Counter RECEIVE_EXTERNAL_ERRORS "gateway_receive_external_errors_total"
        "Packets on the SCION side that the kernel could not hand to the gateway.";
    Counter RECEIVE_LOCAL_ERRORS "gateway_receive_local_errors_total"
        "Packets on the IP side that the kernel could not hand to the gateway.";

    // Paths.
    Gauge PATHS_MONITORED "gateway_paths_monitored"
        "Paths being monitored.";
    Counter PATH_PROBES_SENT "gateway_path_probes_sent"
        "Path probes sent.";
    Counter PATH_PROBES_RECEIVED "gateway_path_probes_received"
        "Answers to path probes.";
    Counter PATH_PROBES_SEND_ERRORS "gateway_path_probes_send_errors"
        "Path probes that could not be sent.";
    Gauge PATH_ALIVE "gateway_path_alive"
        "Whether the probes of a path are answered.";
    Gauge PATH_REVOKED "gateway_path_revoked"
        "Whether an interface on a path was reported down.";
    Gauge PATH_LATENCY "gateway_path_latency_seconds"
        "Mean round trip time of a path to its last router.";
    Gauge PATH_JITTER "gateway_path_jitter_seconds"
        "Mean deviation of the round trip time of a path.";
    Gauge PATH_LOSS "gateway_path_loss_ratio"
        "Fraction of a path's probes of the last minute that were not answered.";
    Gauge PATH_EXPIRY "gateway_path_expiry_timestamp_seconds"
        "Expiry of a path in use, in seconds since 1970.";
    Gauge PATH_MTU "gateway_path_mtu_bytes"
        "Largest SCION packet that a path carries.";

    // Sessions.
    Counter SESSION_PROBES "gateway_session_probes"
        "Session probes sent.";
    Counter SESSION_PROBE_REPLIES "gateway_session_probe_replies"
        "Answers to session probes.";
    Gauge SESSION_IS_HEALTHY "gateway_session_is_healthy"
        "Whether the remote gateway of a session answers.";
    Counter SESSION_STATE_CHANGES "gateway_session_state_changes"
        "Changes of a session between healthy and not.";
    Counter SESSION_PATH_CHANGES "gateway_session_path_changes"
        "Changes of the paths that a session uses.";
    Gauge SESSION_PATHS_AVAILABLE "gateway_session_paths_available"
        "Paths that a session policy accepts or rejects.";

    // Remote gateways and their prefixes.
    Gauge REMOTES "gateway_remotes"
        "Remote gateways that were discovered.";
    Counter REMOTES_CHANGES "gateway_remotes_changes"
        "Changes of the set of remote gateways.";
    Counter DISCOVERY_ERRORS "gateway_remote_discovery_errors_total"
        "Discoveries of remote gateways that failed.";
    Counter PREFIX_FETCH_ERRORS "gateway_prefix_fetch_errors_total"
        "Requests for prefixes that failed.";
    Gauge PREFIXES_ADVERTISED "gateway_prefixes_advertised"
        "IP prefixes advertised to a remote AS.";
    Gauge PREFIXES_ACCEPTED "gateway_prefixes_accepted"
        "IP prefixes announced by a remote AS that were accepted.";
    Gauge PREFIXES_REJECTED "gateway_prefixes_rejected"
        "IP prefixes announced by a remote AS that were rejected.";
    Gauge PROTECTED "gateway_protected"
        "Remote gateways with which frames are protected, by direction.";
    Counter PEER_INPUT_REFUSED "gateway_peer_input_refused_total"
        "Rejected input from peers.";

    // Routing chains.
    Gauge CHAIN_HEALTHINESS "gateway_routing_chain_healthiness"
        "Whether a traffic class of a site has a session.";
    Gauge CHAIN_ALIVE_SESSIONS "gateway_routing_chain_alive_sessions"
        "Healthy sessions that may carry a traffic class of a site.";
    Counter CHAIN_SESSION_CHANGES "gateway_routing_chain_session_changes"
        "Changes of the session of a traffic class of a site.";
    Counter CHAIN_STATE_CHANGES "gateway_routing_chain_state_changes"
        "Changes of a traffic class of a site between having a session and having none.";

    // Control plane.
    Gauge DAEMON_REACHABLE "gateway_daemon_reachable"
        "Whether the SCION daemon answered the last request.";
    Counter DAEMON_REQUESTS "gateway_daemon_requests_total"
        "Requests to the SCION daemon.";
    Counter DAEMON_FAILURES "gateway_daemon_failures_total"
        "Requests to the SCION daemon that failed.";
    Counter DAEMON_PATHS_SKIPPED "gateway_daemon_paths_skipped_total"
        "Paths in answers of the SCION daemon that could not be used.";
    Counter RELOADS "gateway_config_reloads_total"
        "Reloads of the configuration.";

    // Data plane.
    Counter XDP_PACKETS "gateway_xdp_packets_total"
        "Packets seen by the BPF programs, by verdict.";
    Counter XDP_DROPS "gateway_xdp_drops_total"
        "Packets dropped by the BPF programs, or between them and the workers.";
    Counter ENGINE_DROPS "gateway_engine_drops_total"
        "Packets and frames dropped by the workers.";
    Counter QUEUE_DROPS "gateway_queue_drops_total"
        "Packets that a socket of a port dropped.";
    Counter QUEUE_INVALID_DESCRIPTORS "gateway_queue_invalid_descriptors_total"
        "AF_XDP ring entries that the kernel refused.";
    Counter RULE_PACKETS "gateway_rule_packets_total"
        "IP packets that a rule held for, beside those of the fast path.";
    Counter RULE_BYTES "gateway_rule_bytes_total"
        "Bytes of IP packets that a rule held for, beside those of the fast path.";
    Counter SID_PACKETS "gateway_srv6_sid_packets_total"
        "Packets to a SID of the gateway's SR node.";
    Counter POLICY_PACKETS "gateway_srv6_policy_packets_total"
        "Packets put behind the segments of a policy.";
    Counter FUNCTION_PACKETS "gateway_srv6_function_packets_total"
        "Packets that a function returned.";
    Gauge FUNCTION_UP "gateway_srv6_function_up"
        "Whether a function is alive.";
    Counter NODE_PACKETS "gateway_srv6_not_forwarded_total"
        "Packets that the SR node did not forward, or not by itself.";
    Gauge INTERFACE_UP "gateway_interface_up"
        "Whether the link of an interface is up. Mode \"none\": a LAN interface of the configuration that is not in service.";

    Gauge DRAINING "gateway_draining"
        "Whether the gateway is draining (sig drain).";
    Gauge FAST_PATH_ON "gateway_fast_path_on"
        "Whether packets take the fast path.";
    Gauge FAST_PATH_PROBLEMS "gateway_fast_path_problems"
        "How many things keep packets from the fast path; the status names them.";

    // Process.
    Gauge BUILD_INFO "scion_build_info"
        "Version of the program; the value is always 1.";
    Gauge ELEM_ID "scion_elem_id"
        "Name of the service; the value is always 1.";
    Counter PROCESS_CPU "process_cpu_seconds_total"
        "User and system CPU time spent in seconds.";
    Gauge PROCESS_START "process_start_time_seconds"
        "Start time of the process since 1970 in seconds.";
    Gauge PROCESS_RESIDENT "process_resident_memory_bytes"
        "Resident memory size in bytes.";
    Gauge PROCESS_VIRTUAL "process_virtual_memory_bytes"
        "Virtual memory size in bytes.";
    Gauge PROCESS_OPEN_FILES "process_open_fds"
        "Open file descriptors.";
    Gauge PROCESS_MAX_FILES "process_max_fds"
        "Limit on open file descriptors.";
}
