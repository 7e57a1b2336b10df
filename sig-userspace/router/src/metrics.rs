//! Metrics of the router for Prometheus, with names and labels of the reference where it has them.

use sig_common::router::{Reason, reason::Disposition};

use super::status::{INPUT, Interface, KINDS, SIZES, Status};
use sig_observe::{
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
        "Packets processed by the router, by outcome.";
    Counter DROPPED "router_dropped_pkts_total"
        "Packets dropped because they were invalid or exceeded the capacity of the slow path.";
    Gauge INTERFACE_UP "router_interface_up"
        "Whether the interface may send packets.";
    Counter BFD_CHANGES "router_bfd_state_changes_total"
        "State changes of the BFD session with the neighbour.";
    Counter BFD_SENT "router_bfd_sent_packets_total"
        "BFD packets sent to the neighbour.";
    Counter BFD_RECEIVED "router_bfd_received_packets_total"
        "BFD packets received from the neighbour.";
    Gauge SIBLING_REACHABLE "router_sibling_reachable"
        "Whether the other router of the AS is reachable.";
    Counter SIBLING_BFD_CHANGES "router_bfd_sibling_state_changes_total"
        "State changes of the BFD session with the other router of the AS.";
    Counter SIBLING_BFD_SENT "router_bfd_sent_sibling_packets_total"
        "BFD packets sent to the other router of the AS.";
    Counter SIBLING_BFD_RECEIVED "router_bfd_received_sibling_packets_total"
        "BFD packets received from the other router of the AS.";
    Gauge SERVICE_INSTANCES "router_service_instance_count"
        "Addresses to which packets for the service are delivered.";

    // Without a counterpart in the reference.
    Counter BY_REASON "router_reason_pkts_total"
        "Packets that left the fast path or were handled by the slow path, by reason and path (fast or slow).";
    Counter DROPS_BY_REASON "router_reason_drops_total"
        "Packets that were neither forwarded nor answered, by reason.";
    Gauge DEVICE_ATTACHED "router_xdp_device"
        "1 if the fast path sends through the device, 0 if packets to it take the slow path.";
    Counter NOT_SENT "router_xdp_device_not_sent_pkts_total"
        "Packets that the device could not send, if its driver counts them.";
    Counter NOT_TAKEN "router_xdp_cpus_not_taken_pkts_total"
        "Packets lost or in flight between the receiving CPU and the CPU that handles them.";
    Gauge NEXT_HOP_KNOWN "router_next_hop_known"
        "Whether the fast path knows the link-layer address of the other end.";
    Counter RELOADS "router_reloads_total"
        "Configuration reloads, by result.";
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
        page.add(NOT_SENT, &labels[..2], device.not_sent);
    }
    if let Some(fast) = &status.fast_path {
        page.add(NOT_TAKEN, &[isd_as], fast.not_taken);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{Bfd, Count, Device, FastPath, Reason as Seen, Service, Sibling};

    fn status() -> Status {
        let bfd = Some(Bfd {
            state: "up".to_owned(),
            flaps: false,
            changes: 1,
            sent: 20,
            received: 19,
        });
        let mut sizes = vec![Count::default(); SIZES.len()];
        sizes[1] = Count {
            packets: 3,
            bytes: 300,
        };
        let traffic = |kind: &str| super::super::status::Traffic {
            kind: kind.to_owned(),
            sizes: sizes.clone(),
        };
        let link = Interface {
            interface: 7,
            neighbour: "1-ff00:0:111".to_owned(),
            link_type: "child".to_owned(),
            local: "10.9.0.1:50000".parse().unwrap(),
            remote: Some("10.9.0.2:50000".parse().unwrap()),
            up: true,
            bfd: bfd.clone(),
            next_hop_mac: Some("02:00:00:00:00:01".to_owned()),
            problem: None,
            traffic: vec![traffic(INPUT), traffic("br_transit")],
            reasons: vec![
                Seen {
                    reason: "invalid_mac".to_owned(),
                    fast: 9,
                    slow: 5,
                    dropped: 1,
                },
                Seen {
                    reason: "rate_limited".to_owned(),
                    fast: 4,
                    slow: 0,
                    dropped: 4,
                },
            ],
        };
        Status {
            kind: Status::KIND.to_owned(),
            version: "1.2.3".to_owned(),
            id: "br-1".to_owned(),
            isd_as: "1-ff00:0:110".to_owned(),
            internal: "10.0.0.1:30042".parse().unwrap(),
            uptime_ms: 1000,
            reloads: 2,
            reloads_refused: 1,
            fast_path: Some(FastPath {
                devices: vec![Device {
                    name: "eth1".to_owned(),
                    ifindex: 3,
                    mode: "native".to_owned(),
                    transmits: true,
                    not_sent: 5,
                }],
                cpus: Vec::new(),
                not_taken: 6,
            }),
            slow_path: true,
            interfaces: vec![link],
            siblings: vec![Sibling {
                name: "br-2".to_owned(),
                internal: "10.0.0.2:30042".parse().unwrap(),
                interfaces: vec![3],
                up: false,
                bfd,
                next_hop_mac: None,
                problem: Some("no route".to_owned()),
            }],
            services: vec![Service {
                service: "CS".to_owned(),
                instances: vec!["10.0.0.9:30252".parse().unwrap()],
            }],
        }
    }

    #[test]
    fn series_have_the_names_and_labels_of_the_reference() {
        let page = render(&status(), &Process::default());
        for line in [
            r#"router_input_pkts_total{interface="7",isd_as="1-ff00:0:110",neighbor_isd_as="1-ff00:0:111",sizeclass="64_127"} 3"#,
            r#"router_output_bytes_total{interface="7",isd_as="1-ff00:0:110",neighbor_isd_as="1-ff00:0:111",sizeclass="64_127",type="br_transit"} 300"#,
            r#"router_interface_up{interface="7",isd_as="1-ff00:0:110",neighbor_isd_as="1-ff00:0:111"} 1"#,
            r#"router_bfd_received_packets_total{interface="7",isd_as="1-ff00:0:110",neighbor_isd_as="1-ff00:0:111"} 19"#,
            r#"router_sibling_reachable{isd_as="1-ff00:0:110",sibling="br-2"} 0"#,
            r#"router_service_instance_count{isd_as="1-ff00:0:110",service="CS"} 1"#,
            r#"router_dropped_pkts_total{interface="7",isd_as="1-ff00:0:110",neighbor_isd_as="1-ff00:0:111",reason="busy_slow_path",sizeclass="any"} 4"#,
            r#"router_dropped_pkts_total{interface="7",isd_as="1-ff00:0:110",neighbor_isd_as="1-ff00:0:111",reason="invalid",sizeclass="any"} 1"#,
            r#"router_reason_pkts_total{interface="7",isd_as="1-ff00:0:110",neighbor_isd_as="1-ff00:0:111",path="fast",reason="invalid_mac"} 9"#,
            r#"router_reloads_total{isd_as="1-ff00:0:110",result="refused"} 1"#,
        ] {
            assert!(page.lines().any(|l| l == line), "no line {line} in\n{page}");
        }
    }

    #[test]
    fn every_metric_is_in_the_documentation_and_has_a_series() {
        let documentation = include_str!("../../../docs/observability.md");
        let page = render(&status(), &Process::default());
        for metric in ALL {
            let row = format!("| `{}` | {} |", metric.name, metric.kind.as_str());
            assert!(documentation.contains(&row), "no row {row}");
            let head = format!("# TYPE {} ", metric.name);
            assert!(page.contains(&head), "{} has no series", metric.name);
        }
    }
}
