//! What happens at the control plane's SCION sockets.

use crate::counter::{SharedCounter, counters};

counters! {
    /// Counters of all SCION sockets of a gateway together.
    pub struct SocketCounters: SharedCounter {}
    /// What was counted at the SCION sockets.
    pub struct SocketCounts;

    listens "lib_snet_listens_total" [] "SCION sockets opened.";
    closes "lib_snet_closes_total" [] "SCION sockets closed.";
    // Whoever opens one counts it.
    dials "lib_snet_dials_total" [] "QUIC connections opened.";
    read_packets "lib_snet_read_total_pkts" [] "Packets received on SCION sockets.";
    read_bytes "lib_snet_read_total_bytes" [] "Bytes received on SCION sockets.";
    written_packets "lib_snet_write_total_pkts" [] "Packets sent on SCION sockets.";
    written_bytes "lib_snet_write_total_bytes" [] "Bytes sent on SCION sockets.";
    underlay_errors "lib_snet_underlay_error_total" [] "Errors of the UDP sockets under SCION sockets.";
    parse_errors "lib_snet_parse_error_total" []
        "Invalid SCION packets received on SCION sockets.";
    scmp_errors "lib_snet_scmp_error_total" [] "SCMP error messages received.";
    strays "gateway_socket_strays_total" []
        "Packets received on SCION sockets that were for another host or had no return path.";
    // From other ASes, packets come from a border router; from this AS, from the host that is their source.
    forged "gateway_socket_forged_total" []
        "Packets on SCION sockets that came neither from a border router nor, within the AS, from their source.";
    overflows "gateway_socket_overflows_total" []
        "Packets to the end host port dropped because the queue of their socket was full.";
}
