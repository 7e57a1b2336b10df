//! All sections but the remotes: values, defaults, ranges.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::model::{Dataplane, Gateway, LanTransmit, Limits, Pin, Tunnel, Wish};
use crate::peer::UnderlaySources;
use sig_common::addr::IsdAs;

use super::{DEFAULT_DATA_PORT, XdpMode};
use crate::document::{
    common::{XDP_MODES, isd_as, socket_path, time},
    toml::{Item, Placed, Section, list, or, or_if_empty},
    values,
};
use crate::problem::excerpt;

const DEFAULT_CTRL_PORT: u16 = 30256;
const DEFAULT_PROBE_PORT: u16 = 30856;

/// Largest MTU of the tunnel device, a veth pair: a packet must fit one buffer of the data plane.
const MAX_TUNNEL_MTU: u16 = 3506;

const WISHES: [(&str, Wish); 3] = [
    ("auto", Wish::Auto),
    ("never", Wish::Never),
    ("require", Wish::Require),
];

/// `[gateway]`. With `discovers`, the remotes are found rather than written, and so can be the own AS and
/// address.
pub(super) fn gateway<'a>(
    root: &Section<'a>,
    own: Option<&OwnAddresses>,
    discovers: bool,
) -> Option<Placed<'a, Gateway>> {
    let section = root.section("gateway");
    let id = or_if_empty(&section, "id", "gateway".to_owned(), |item| {
        item.parse("\"gateway\"", values::id)
    });
    let isd_as = match section.get("isd_as") {
        None if discovers => Some(IsdAs(0)),
        _ => section
            .require(
                "isd_as",
                "the AS of this gateway, for example isd_as = \"1-ff00:0:110\"",
            )
            .and_then(|item| isd_as(&item)),
    };
    let prefixes = match section.get("prefixes") {
        Some(item) => list(&item, "[\"10.1.0.0/24\"]", |element| {
            element.parse("\"10.1.0.0/24\"", values::prefix)
        }),
        None => Some(Vec::new()),
    };
    let socket = section.get("status_socket");
    let status_socket = match (&socket, &id) {
        (Some(item), _) => socket_path(item, "\"/run/sig/gateway.sock\""),
        (None, Some(id)) => {
            let name = values::file_name_of(id);
            if let (true, Some(item)) = (name != *id, section.get("id")) {
                item.place.warn(format!(
                    "not usable as a file name: `sig status` finds this gateway as /run/sig/{name}.sock"
                ));
            }
            Some(PathBuf::from(format!("/run/sig/{name}.sock")))
        }
        (None, None) => None,
    };
    Some(Placed {
        value: Gateway {
            id: id?,
            isd_as: isd_as?,
            data_addr: own?.data,
            prefixes: prefixes?,
            status_socket: status_socket?,
        },
        place: section.place,
    })
}

/// The gateway's own addresses. An unspecified one is to be found out.
pub(super) struct OwnAddresses {
    pub(super) ctrl: SocketAddr,
    pub(super) data: SocketAddr,
    pub(super) probe: SocketAddr,
}

/// Reads them. As in the reference, an empty host means that of `ctrl_addr`, and an empty one there that
/// the daemon helps to find it.
pub(super) fn own_addresses(root: &Section<'_>, discovers: bool) -> Option<OwnAddresses> {
    let section = root.section("gateway");
    let read = |key, default_port| {
        let Some(item) = section.get(key) else {
            return Some((None, default_port));
        };
        let example = format!("\"192.0.2.10:{default_port}\"");
        item.parse(&example, |text| {
            let (host, port) = values::address(text, default_port)?;
            host.map_or(Ok(()), values::unicast)?;
            Ok((host, port))
        })
    };
    let ctrl = read("ctrl_addr", DEFAULT_CTRL_PORT);
    let data = read("data_addr", DEFAULT_DATA_PORT);
    let probe = read("probe_addr", DEFAULT_PROBE_PORT);
    let (ctrl, data, probe) = (ctrl?, data?, probe?);
    let base = match ctrl.0.or(data.0.filter(|_| !discovers)) {
        Some(ip) => ip,
        // Of the family of what is written.
        None if discovers => match data.0.or(probe.0) {
            Some(IpAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
            _ => Ipv4Addr::UNSPECIFIED.into(),
        },
        None => {
            let place = match section.get("data_addr") {
                Some(item) => item.place,
                None => section.place.below("data_addr"),
            };
            place.error(
                "no address; write the address of this host in its AS, \
                 for example data_addr = \"192.0.2.10:30056\"",
            );
            return None;
        }
    };
    let address = |(host, port): (Option<IpAddr>, u16)| SocketAddr::new(host.unwrap_or(base), port);
    let own = OwnAddresses {
        ctrl: address(ctrl),
        data: address(data),
        probe: address(probe),
    };
    let mut taken = vec![(own.data, "data_addr")];
    for (key, address) in [("ctrl_addr", own.ctrl), ("probe_addr", own.probe)] {
        if let Some((_, other)) = taken.iter().find(|(taken, _)| *taken == address) {
            let place = section
                .get(key)
                .map_or_else(|| section.place.below(key), |item| item.place);
            place.error(format!("{address} is {other} already; write another port"));
            return None;
        }
        taken.push((address, key));
    }
    Some(own)
}

/// `[tunnel]`.
pub(super) fn tunnel<'a>(root: &Section<'a>) -> Option<Placed<'a, Tunnel>> {
    let section = root.section("tunnel");
    let name = or_if_empty(&section, "name", "sig".to_owned(), |item| {
        item.parse("\"sig\"", values::interface)
    });
    let mtu = or(&section, "mtu", 1500, |item| {
        item.number(1280..=MAX_TUNNEL_MTU)
    });
    // 0 and 255 are the kernel's own.
    let table = or(&section, "table", 254, |item| {
        if item.is_word("main") {
            return Some(254);
        }
        let table: u32 = item.number(1..=u32::MAX)?;
        if table == 255 {
            item.place
                .error("table 255 is the kernel's own, local; write another one, or \"main\"");
            return None;
        }
        Some(table)
    });
    // The reference takes either family in both keys.
    let other_family = |item: &Item<'_>, ip: IpAddr, key: &str| {
        item.place.warn(format!(
            "ignored: {ip} is of the other family; write it as {key}"
        ));
    };
    let src_ipv4 = or_if_empty(&section, "src_ipv4", None, |item| {
        Some(match item.parse("\"192.0.2.10\"", source)? {
            IpAddr::V4(ip) => Some(ip),
            ip @ IpAddr::V6(_) => {
                other_family(item, ip, "src_ipv6");
                None
            }
        })
    });
    let src_ipv6 = or_if_empty(&section, "src_ipv6", None, |item| {
        Some(match item.parse("\"2001:db8::10\"", source)? {
            IpAddr::V6(ip) => Some(ip),
            ip @ IpAddr::V4(_) => {
                other_family(item, ip, "src_ipv4");
                None
            }
        })
    });
    Some(Placed {
        value: Tunnel {
            name: name?,
            mtu: mtu?,
            table: table?,
            src_ipv4: src_ipv4?,
            src_ipv6: src_ipv6?,
        },
        place: section.place,
    })
}

fn source(text: &str) -> Result<IpAddr, String> {
    let ip = text
        .parse()
        .map_err(|_| format!("\"{}\" is not an IP address", excerpt(text)))?;
    values::unicast(ip).map(|()| ip)
}

/// `[dataplane]`.
pub(super) fn dataplane<'a>(root: &Section<'a>) -> Option<Placed<'a, Dataplane>> {
    let section = root.section("dataplane");
    let underlay = or(&section, "underlay", None, |item| {
        if item.is_word("auto") {
            return Some(None);
        }
        item.parse("\"eth0\"", values::interface).map(Some)
    });
    let underlay_sources = or(
        &section,
        "underlay_sources",
        UnderlaySources::Routers,
        |item| {
            if item.is_word("routers") {
                return Some(UnderlaySources::Routers);
            }
            if item.is_word("any") {
                return Some(UnderlaySources::Any);
            }
            list(
                item,
                "[\"10.0.0.1/32\"], or \"routers\" or \"any\"",
                |element| element.parse("\"10.0.0.1/32\"", values::prefix),
            )
            .map(UnderlaySources::RoutersAnd)
        },
    );
    let lan = or(&section, "lan", Vec::new(), |item| {
        list(item, "[\"eth1\"]", |element| {
            element.parse("\"eth1\"", values::interface)
        })
    });
    let lan_transmit = or(&section, "lan_transmit", LanTransmit::Auto, |item| {
        item.choice(&[
            ("auto", LanTransmit::Auto),
            ("helper", LanTransmit::Helper),
            ("kernel", LanTransmit::Kernel),
        ])
    });
    let workers = or(&section, "workers", 1, |item| item.number(1..=64));
    let mode = or(&section, "mode", XdpMode::Auto, |item| {
        item.choice(&XDP_MODES)
    });
    let zero_copy = or(&section, "zero_copy", Wish::Auto, |i| i.choice(&WISHES));
    let ring_size = or(&section, "ring_size", 2048, |item| {
        let size: u32 = item.number(64..=32768)?;
        if !size.is_power_of_two() {
            let above = size.next_power_of_two();
            item.place.error(format!(
                "{size} is not a power of two; write {} or {above}",
                above / 2
            ));
            return None;
        }
        Some(size)
    });
    let chunks = or(&section, "chunks", None, |item| {
        if item.is_word("auto") {
            return Some(None);
        }
        item.number(1024..=1_048_576).map(Some)
    });
    let huge_pages = or(&section, "huge_pages", Wish::Auto, |i| i.choice(&WISHES));
    let busy_poll = or(&section, "busy_poll", false, Item::boolean);
    let pin = or(&section, "pin", Pin::Auto, |item| {
        if item.is_word("auto") {
            return Some(Pin::Auto);
        }
        if item.is_word("never") {
            return Some(Pin::Never);
        }
        let cpus = list(item, "[2, 3], or \"auto\" or \"never\"", |element| {
            element.number(0..=8191)
        })?;
        Some(Pin::Cpus(cpus))
    });
    let verify_checksums = or(&section, "verify_checksums", true, Item::boolean);
    let reorder_frames = or(&section, "reorder_frames", 1024, |i| i.number(0..=2048));
    let reorder_wait = or(
        &section,
        "reorder_wait",
        Duration::from_millis(50),
        |item| time(item, Duration::ZERO, Duration::from_secs(1)),
    );
    let limits = limits(&section.section("limits"));
    Some(Placed {
        value: Dataplane {
            underlay: underlay?,
            underlay_sources: underlay_sources?,
            lan: lan?,
            lan_transmit: lan_transmit?,
            workers: workers?,
            mode: mode?,
            zero_copy: zero_copy?,
            ring_size: ring_size?,
            chunks: chunks?,
            huge_pages: huge_pages?,
            busy_poll: busy_poll?,
            pin: pin?,
            verify_checksums: verify_checksums?,
            reorder_frames: reorder_frames?,
            reorder_wait: reorder_wait?,
            limits: limits?,
        },
        place: section.place,
    })
}

fn limits(section: &Section<'_>) -> Option<Limits> {
    let count = |key, default| or(section, key, default, |item| item.number(1..=1_048_576));
    let pair = |part, part_default: u32, total, total_default| {
        let sum = count(total, total_default);
        let share = count(part, part_default.min(sum.unwrap_or(total_default)));
        if let (Some(share), Some(sum)) = (share, sum)
            && share > sum
        {
            let written = section.get(part).or_else(|| section.get(total));
            let place = written.map_or_else(|| section.place.clone(), |item| item.place);
            place.error(format!(
                "one remote may have {share} but all together {sum}; \
                 write {part} up to {total}"
            ));
        }
        Some((share?, sum?))
    };
    let streams = pair("streams_per_remote", 256, "streams_total", 4096);
    let packets = pair("packets_per_remote", 64, "packets_total", 512);
    let held = pair("held_per_remote", 1024, "held_total", 4096);
    let packet_timeout = or(section, "packet_timeout", Duration::from_secs(1), |item| {
        time(item, Duration::from_millis(10), Duration::from_secs(60))
    });
    let stream_timeout = or(section, "stream_timeout", Duration::from_secs(60), |item| {
        time(item, Duration::from_secs(1), Duration::from_secs(3600))
    });
    let (streams_per_remote, streams_total) = streams?;
    let (packets_per_remote, packets_total) = packets?;
    let (held_per_remote, held_total) = held?;
    Some(Limits {
        streams_per_remote,
        streams_total,
        packets_per_remote,
        packets_total,
        held_per_remote,
        held_total,
        packet_timeout: packet_timeout?,
        stream_timeout: stream_timeout?,
    })
}

/// Keys of the reference that are read, so that its files work, and named in the warnings.
pub(super) fn without_effect(root: &Section<'_>) {
    let features = root.section("features");
    for key in [
        "appropriate_digest_algorithm",
        "experimental_scmp_authentication",
    ] {
        if let Some(item) = features.get(key)
            && item.boolean() == Some(true)
        {
            item.place.warn("ignored: the gateway has no such feature");
        }
    }
}
