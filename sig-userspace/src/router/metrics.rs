//! Metrics of the router for Prometheus, with names and labels of the reference where it has them.

use sig_common::router::{Reason, reason::Disposition};

use super::status::{INPUT, Interface, KINDS, SIZES, Status};
use crate::observe::{
    metrics::{self, Exposition, Kind, Metric},
    process::Process,
};

macro_rules! metrics {
    ($($kind:ident $constant:ident $name:literal $help:literal;)+) => {
        $(const $constant: Metric = Metric { name: $name, kind: Kind::$kind, help: $help };)+

        /// Every metric of the router itself.
        pub const ALL: &[Metric] = &[$($constant,)+];
    };
}

metrics! {
    Counter INPUT_PACKETS "router_input_pkts_total"
        "Packets received.";
    Counter INPUT_BYTES "router_input_bytes_total"
        "Bytes of packets received.";
    Counter OUTPUT_PACKETS "router_output_pkts_total"
        "Packets sent, by kind of traffic.";
    Counter OUTPUT_BYTES "router_output_bytes_total"
        "Bytes of packets sent, by kind of traffic.";
    Counter PROCESSED "router_processed_pkts_total"
        "Packets that the router has decided about.";
    Counter DROPPED "router_dropped_pkts_total"
        "Packets dropped: invalid ones, and those that were too many for the slow path.";
    Gauge INTERFACE_UP "router_interface_up"
        "Whether packets may leave by the interface.";
    Counter BFD_CHANGES "router_bfd_state_changes_total"
        "State changes of the BFD session with the neighbour.";
    Counter BFD_SENT "router_bfd_sent_packets_total"
        "BFD packets sent to the neighbour.";
    Counter BFD_RECEIVED "router_bfd_received_packets_total"
        "BFD packets received from the neighbour.";
    Gauge SIBLING_REACHABLE "router_sibling_reachable"
        "Whether the other router of the AS is within reach.";
    Counter SIBLING_BFD_CHANGES "router_bfd_sibling_state_changes_total"
        "State changes of the BFD session with the other router of the AS.";
    Counter SIBLING_BFD_SENT "router_bfd_sent_sibling_packets_total"
        "BFD packets sent to the other router of the AS.";
    Counter SIBLING_BFD_RECEIVED "router_bfd_received_sibling_packets_total"
        "BFD packets received from the other router of the AS.";
    Gauge SERVICE_INSTANCES "router_service_instance_count"
        "Instances of the service that packets are delivered to.";

    // Without a counterpart in the reference.
    Counter BY_REASON "router_reason_pkts_total"
        "Packets that were more than plainly forwarded, by reason and by who saw them: fast or slow path.";
    Counter DROPS_BY_REASON "router_reason_drops_total"
        "Packets that went nowhere and were not answered, by reason.";
    Gauge DEVICE_ATTACHED "router_xdp_device"
        "Devices with the XDP program; 0 where packets leave by the kernel's sockets only.";
    Gauge NEXT_HOP_KNOWN "router_next_hop_known"
        "Whether the fast path knows the link-layer address of the other end.";
    Counter RELOADS "router_reloads_total"
        "Configurations read anew, by result.";
}

/// The metrics of a router, in the text format of Prometheus, version 0.0.4.
#[must_use]
pub fn render(status: &Status, process: &Process) -> String {
    let mut page = Exposition::default();
    let isd_as = ("isd_as", &*status.isd_as);
    for interface in &status.interfaces {
        traffic(&mut page, status, interface);
        reasons(&mut page, status, interface);
        if interface.interface != 0 {
            link(&mut page, status, interface);
        }
    }
    for sibling in &status.siblings {
        let labels = [isd_as, ("sibling", &*sibling.name)];
        page.raise(SIBLING_REACHABLE, &labels, u8::from(sibling.up));
        if let Some(bfd) = &sibling.bfd {
            page.add(SIBLING_BFD_CHANGES, &labels, bfd.changes);
            page.add(SIBLING_BFD_SENT, &labels, bfd.sent);
            page.add(SIBLING_BFD_RECEIVED, &labels, bfd.received);
        }
    }
    for service in &status.services {
        let labels = [isd_as, ("service", &*service.service)];
        page.raise(SERVICE_INSTANCES, &labels, service.instances.len() as f64);
    }
    for device in status.fast_path.iter().flat_map(|fast| &fast.devices) {
        let labels = [isd_as, ("device", &*device.name), ("mode", &*device.mode)];
        page.raise(DEVICE_ATTACHED, &labels, u8::from(device.transmits));
    }
    page.add(RELOADS, &[isd_as, ("result", "applied")], status.reloads);
    let refused = [isd_as, ("result", "refused")];
    page.add(RELOADS, &refused, status.reloads_refused);
    metrics::process(&mut page, &status.version, "router", process);
    page.to_string()
}

/// The labels by which the reference tells interfaces apart.
fn labels<'a>(
    status: &'a Status,
    interface: &'a Interface,
    label: &'a str,
) -> [(&'static str, &'a str); 3] {
    [
        ("interface", label),
        ("isd_as", &status.isd_as),
        ("neighbor_isd_as", &interface.neighbour),
    ]
}

fn traffic(page: &mut Exposition, status: &Status, interface: &Interface) {
    let label = interface.label();
    let [a, b, c] = labels(status, interface, &label);
    for kind in KINDS {
        let known = interface.traffic.iter().find(|t| t.kind == kind);
        for (place, size) in SIZES.into_iter().enumerate() {
            let count = known.and_then(|known| known.sizes.get(place).copied());
            let count = count.unwrap_or_default();
            let size = ("sizeclass", size);
            if kind == INPUT {
                page.add(INPUT_PACKETS, &[a, b, c, size], count.packets);
                page.add(INPUT_BYTES, &[a, b, c, size], count.bytes);
                page.add(PROCESSED, &[a, b, c, size], count.packets);
            } else {
                let kind = ("type", kind);
                page.add(OUTPUT_PACKETS, &[a, b, c, size, kind], count.packets);
                page.add(OUTPUT_BYTES, &[a, b, c, size, kind], count.bytes);
            }
        }
    }
}

/// The reference's word for a packet dropped for this reason.
fn dropped(reason: Reason) -> &'static str {
    match reason {
        Reason::RateLimited => "busy_slow_path",
        _ => "invalid",
    }
}

fn reasons(page: &mut Exposition, status: &Status, interface: &Interface) {
    let label = interface.label();
    let [a, b, c] = labels(status, interface, &label);
    // Every reason from the start, so that the first packet is an increase.
    for reason in Reason::ALL {
        let known = interface.reasons.iter().find(|r| r.reason == reason.name());
        let (fast, slow, drops) = known.map_or((0, 0, 0), |r| (r.fast, r.slow, r.dropped));
        // Sizes of these packets are not kept.
        let reference = [a, b, c, ("sizeclass", "any"), ("reason", dropped(reason))];
        page.add(DROPPED, &reference, drops);
        let name = ("reason", reason.name());
        page.add(BY_REASON, &[a, b, c, name, ("path", "fast")], fast);
        if reason.disposition() != Disposition::Drop || slow > 0 {
            page.add(BY_REASON, &[a, b, c, name, ("path", "slow")], slow);
        }
        page.add(DROPS_BY_REASON, &[a, b, c, name], drops);
    }
}

fn link(page: &mut Exposition, status: &Status, interface: &Interface) {
    let label = interface.label();
    let labels = labels(status, interface, &label);
    page.raise(INTERFACE_UP, &labels, u8::from(interface.up));
    if let Some(bfd) = &interface.bfd {
        page.add(BFD_CHANGES, &labels, bfd.changes);
        page.add(BFD_SENT, &labels, bfd.sent);
        page.add(BFD_RECEIVED, &labels, bfd.received);
    }
    if status.fast_path.is_some() {
        let known = u8::from(interface.next_hop_mac.is_some());
        page.raise(NEXT_HOP_KNOWN, &labels, known);
    }
}
