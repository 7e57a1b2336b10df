//! Findings about interfaces, and the way to the next hops.

use std::fmt::Write;
use std::net::IpAddr;

use rtnetlink::packet_route::route::RouteType;

use super::{Finding, Level};
use crate::control::config::{
    Config, FastPathUse, LanTransmit, Preference, TunnelDevice, UnderlayPort, XdpMode,
};
use crate::control::host::bypassed::{Taken, concerns};
use sig_linux::capabilities::Capability;
use sig_linux::ethtool::Offload;
use sig_linux::facts::{
    CAP_BPF, CAP_NET_RAW, CAP_PERFMON, CAP_SYS_ADMIN, Facts, Feature, Interface,
};
use sig_linux::link::{Link, MAX_XDP_MTU, lower_mtu, max_mtu_on, mtu_limit};
use sig_linux::neighbours::{Reason, RouteLookup};
use sig_linux::netdev::XdpFeatures;
use sig_linux::netfilter::{Bypassed, REMEDY};
use sig_linux::suited::{self, VlanTags};
use sig_linux::tunnel_pair::ALIAS;

pub(super) fn general(out: &mut Vec<Finding>, facts: &Facts, interface: &Interface) {
    let area = format!("interface {}", interface.link.name);
    out.push(Finding::good(&area, describe(interface)));
    let link = &interface.link;
    if link.mac.is_none() {
        out.push(Finding::warning(
            &area,
            "not Ethernet",
            "it cannot be used as the underlay or a LAN interface",
        ));
        return;
    }
    if let Some((text, remedy)) = too_large_mtu(facts, interface) {
        out.push(Finding::warning(&area, text, remedy));
    }
    if let Some(id) = link.xdp_program {
        out.push(xdp_attached(&area, facts, &link.name, id));
    }
}

/// For a border router, which has no packet buffers that a packet must fit.
pub(super) fn of_router(out: &mut Vec<Finding>, facts: &Facts, interface: &Interface) {
    let area = format!("interface {}", interface.link.name);
    out.push(Finding::good(&area, describe(interface)));
    if let Some(id) = interface.link.xdp_program {
        out.push(xdp_attached(&area, facts, &interface.link.name, id));
    }
}

fn too_large_mtu(facts: &Facts, interface: &Interface) -> Option<(String, String)> {
    let link = &interface.link;
    let max_mtu = max_mtu_on(facts.kernel.version);
    (link.mtu > max_mtu).then(|| {
        (
            format!("MTU {} is too large: {}", link.mtu, mtu_limit(max_mtu)),
            lower_mtu(&link.name, max_mtu),
        )
    })
}

/// Whether packets larger than a packet buffer are carried.
pub(super) fn has_jumbo(facts: &Facts, config: &Config) -> bool {
    let used = used(facts, config).into_iter().flatten();
    used.map(|interface| interface.link.mtu)
        .chain([config.tunnel.mtu.into()])
        .any(|mtu| mtu > MAX_XDP_MTU)
}

fn describe(interface: &Interface) -> String {
    let link = &interface.link;
    let mut text = format!(
        "{}, {}, MTU {}, {} receive and {} transmit queue(s)",
        link.driver
            .as_deref()
            .or(link.kind.as_deref())
            .unwrap_or("unknown driver"),
        if !link.up {
            "down"
        } else if link.carrier {
            "up"
        } else {
            "no carrier"
        },
        link.mtu,
        link.rx_queues,
        link.tx_queues,
    );
    if let Some(xdp) = interface.xdp {
        text += match (xdp.native() && xdp.redirect(), xdp.zero_copy()) {
            (true, true) => ", native XDP with zero copy",
            (true, false) => ", native XDP",
            (false, _) => ", generic XDP only",
        };
    }
    if !interface.offloads.is_empty() {
        let words: Vec<&str> = interface
            .offloads
            .iter()
            .map(|offload| offload.keyword())
            .collect();
        let _ = write!(text, ", offloads {}", words.join(" "));
    }
    text
}

/// Frames are never larger than the interface carries, whatever the path could.
fn path_mtus(out: &mut Vec<Finding>, config: &Config, underlay: &Interface) {
    // IP and UDP header.
    let headers = if config.gateway.data_addr.is_ipv4() {
        28
    } else {
        48
    };
    let carried = underlay.link.mtu.saturating_sub(headers);
    for remote in &config.remotes {
        for path in remote
            .paths
            .iter()
            .filter(|path| u32::from(path.mtu) > carried)
        {
            out.push(Finding::warning(
                &format!("interface {}", underlay.link.name),
                format!(
                    "carries SCION packets of at most {carried} bytes, but path \"{}\" to {} up to {}: \
                     frames are limited to what the interface carries",
                    path.name, remote.isd_as, path.mtu
                ),
                format!("raise the MTU of the interface to {}, or set mtu = {carried} for the path", u32::from(path.mtu) + headers),
            ));
        }
    }
}

/// A foreign program blocks ours. One of a running gateway or router is no reason to worry, but this look then tells little.
fn xdp_attached(area: &str, facts: &Facts, name: &str, id: u32) -> Finding {
    let gateway = running_gateway(facts).map(|alias| format!("gateway ({alias})"));
    match gateway.or(facts.running.map(str::to_owned)) {
        Some(owner) => Finding::warning(
            area,
            format!("XDP program {id} is attached, probably by the running {owner}"),
            "check again after stopping it",
        ),
        None => Finding::bad(
            area,
            format!("XDP program {id} of another owner is attached"),
            format!(
                "find and stop its owner (`bpftool net`), or remove it: `ip link set dev {name} xdp off`"
            ),
        ),
    }
}

fn running_gateway(facts: &Facts) -> Option<&str> {
    facts
        .interfaces
        .iter()
        .filter_map(|interface| interface.link.alias.as_deref())
        .find(|alias| alias.starts_with(ALIAS))
}

pub(super) fn tunnel(out: &mut Vec<Finding>, facts: &Facts, config: &Config) {
    let name = &config.tunnel.name;
    let area = format!("tunnel device {name}");
    out.push(
        match facts
            .interfaces
            .iter()
            .find(|interface| interface.link.name == *name)
        {
            None => Finding::good(&area, "the name is available"),
            Some(interface) => match interface.link.alias.as_deref() {
                Some(alias) if running_gateway(facts) == Some(alias) => Finding::warning(
                    &area,
                    format!("a gateway is already running ({alias})"),
                    "stop it before starting another with this name",
                ),
                _ => Finding::bad(
                    &area,
                    format!(
                        "exists and does not belong to a gateway: {}",
                        describe(interface)
                    ),
                    format!("`ip link del {name}`, or another `name` in [tunnel]"),
                ),
            },
        },
    );
    let mtu = u32::from(config.tunnel.mtu);
    let is_tun = is_tun(facts, config);
    if let Some(why) = facts.kernel.no_tun.as_ref().filter(|_| is_tun) {
        out.push(Finding::bad(
            &area,
            format!("is to be a TUN device, but /dev/net/tun cannot be opened: {why}"),
            "`modprobe tun`; give a container the device, as with `--device /dev/net/tun`",
        ));
    }
    let max_mtu = max_mtu_on(facts.kernel.version);
    if is_tun && mtu > MAX_XDP_MTU {
        out.push(Finding::bad(
            &area,
            format!("MTU {mtu} is too large: a TUN device has at most {MAX_XDP_MTU}"),
            format!("set `mtu` in [tunnel] to {MAX_XDP_MTU} or less"),
        ));
    } else if mtu > max_mtu {
        out.push(Finding::bad(
            &area,
            format!("MTU {mtu} is too large: {}", mtu_limit(max_mtu)),
            format!("set `mtu` in [tunnel] to {max_mtu} or less"),
        ));
    }
    for interface in used(facts, config).into_iter().skip(1).flatten() {
        let lan = interface.link.mtu;
        if lan > mtu {
            out.push(Finding::warning(
                &area,
                format!(
                    "MTU {mtu} is smaller than that of {}, {lan}: larger packets that the kernel has to deliver are dropped, and \
                     their senders told to send smaller ones",
                    interface.link.name
                ),
                format!("set `mtu = {lan}` in [tunnel]"),
            ));
        }
    }
}

pub(super) fn configured(out: &mut Vec<Finding>, facts: &Facts, config: &Config) {
    let data_ip = config.gateway.data_addr.ip();
    let carries = |interface: &&Interface| carries(interface, data_ip);
    let underlay = match &config.dataplane.underlay {
        Some(name) => {
            let found = by_name(out, facts, name, Level::Bad);
            if let Some(interface) =
                found.filter(|interface| !data_ip.is_unspecified() && !carries(interface))
            {
                out.push(Finding::bad(
                    &format!("interface {name}"),
                    format!("`data_addr` {data_ip} is not an address of this interface"),
                    format!("`ip addr add {data_ip}/PREFIXLEN dev {name}`, or correct `underlay` or `data_addr`"),
                ));
                Some(interface)
            } else {
                found
            }
        }
        // The daemon helps to find it, at start.
        None if data_ip.is_unspecified() => {
            out.push(Finding::warning(
                "underlay",
                "the configuration does not set the local address, so the underlay interface is not checked",
                "write `ctrl_addr` in [gateway] to have it checked",
            ));
            None
        }
        None => {
            let found = facts.interfaces.iter().find(carries);
            if found.is_none() {
                out.push(Finding::bad(
                    "underlay",
                    format!("no interface carries `data_addr` {data_ip}"),
                    "add the address to the interface towards the border router, or correct `data_addr` in [gateway]",
                ));
            }
            found
        }
    };
    let sockets = why_sockets(facts, config, underlay);
    match (&sockets, underlay) {
        (Some(why), _) => out.push(Finding::good(
            "underlay",
            format!("frames leave by UDP sockets: {why}"),
        )),
        (None, Some(interface)) => used_interface(out, facts, config, interface, "underlay"),
        (None, None) => {}
    }
    if let Some(interface) = underlay {
        path_mtus(out, config, interface);
    }
    for name in &config.dataplane.lan {
        if underlay.is_some_and(|underlay| underlay.link.name == *name) {
            out.push(Finding::bad(
                &format!("interface {name}"),
                "is both the underlay interface and listed in `lan`",
                "write the interface towards the IP hosts in `lan`, or `lan = []` if there is only this one",
            ));
            continue;
        }
        if let Some(interface) = by_name(out, facts, name, Level::Warning) {
            used_interface(out, facts, config, interface, "LAN");
            lan_forwarding(out, interface);
            let below = below(facts, config, interface);
            out.push(lan_transmit(config, interface, below));
        }
    }
    let taken = taken(facts, config, underlay.filter(|_| sockets.is_none()));
    let concerns = |found: &&Bypassed| concerns(found, &taken, config.dataplane.lan_transmit);
    out.extend(facts.bypassed.iter().filter(concerns).map(bypassed));
    let mut seen: Vec<IpAddr> = Vec::new();
    for (next_hop, route) in &facts.routes {
        if !seen.contains(next_hop) {
            seen.push(*next_hop);
            // Sockets send by whatever way there is.
            let only = underlay.filter(|_| sockets.is_none());
            out.push(match route {
                Ok(route) if sockets.is_some() && route.kind == RouteType::Local => {
                    Finding::good(&format!("next hop {next_hop}"), "on this host")
                }
                route => next_hop_route(*next_hop, route, only),
            });
        }
    }
}

/// What XDP takes on this host.
fn taken<'a>(facts: &Facts, config: &'a Config, underlay: Option<&'a Interface>) -> Taken<'a> {
    let needed = [CAP_BPF, CAP_PERFMON, CAP_NET_RAW];
    let kernel = &facts.kernel;
    let has_bpf = needed.iter().all(|needed| facts.privileges.has(*needed))
        && [&kernel.bpf, &kernel.af_xdp]
            .iter()
            .all(|feature| **feature == Feature::Present);
    let lan = match has_bpf {
        true => config.dataplane.lan.iter().map(String::as_str).collect(),
        false => Vec::new(),
    };
    Taken {
        underlay: underlay
            .into_iter()
            .map(|underlay| underlay.link.name.as_str())
            .collect(),
        lan,
        has_tun: match config.tunnel.device {
            TunnelDevice::Auto => !has_bpf,
            device => device == TunnelDevice::Tun,
        },
    }
}

/// Why frames leave by UDP sockets, if they do, as the gateway decides at its start.
fn why_sockets(facts: &Facts, config: &Config, underlay: Option<&Interface>) -> Option<String> {
    match config.dataplane.underlay_port {
        UnderlayPort::Xdp => return None,
        UnderlayPort::Socket => return Some("`underlay_port = \"socket\"`".into()),
        UnderlayPort::Auto => {}
    }
    if let Some(name) = missing(facts, &FOR_BPF) {
        return Some(format!("{name} is missing"));
    }
    let underlay = &underlay?.link;
    if underlay.mac.is_none() {
        return Some(format!("{} is not Ethernet", underlay.name));
    }
    let routes = facts.routes.iter();
    let mut routes = routes.filter_map(|(hop, route)| Some((hop, route.as_ref().ok()?)));
    let is_elsewhere = |route: &RouteLookup| {
        let by = route.ifindex;
        route.kind == RouteType::Local || by.is_some_and(|by| by != underlay.ifindex)
    };
    let (next_hop, route) = routes.next()?;
    if !is_elsewhere(route) || routes.any(|(_, route)| !is_elsewhere(route)) {
        return None;
    }
    Some(match route.kind {
        RouteType::Local => format!("{next_hop} is an address of this host"),
        _ => format!(
            "the route to {next_hop} does not lead over {}",
            underlay.name
        ),
    })
}

/// What BPF programs and AF_XDP sockets need.
const FOR_BPF: [Capability; 3] = [CAP_BPF, CAP_PERFMON, CAP_NET_RAW];

/// The first of these that is missing.
fn missing(facts: &Facts, needed: &[Capability]) -> Option<&'static str> {
    let mut needed = needed.iter();
    let missing = needed.find(|needed| !facts.privileges.has(**needed));
    missing.map(|(_, name)| *name)
}

/// Whether the tunnel device will be a TUN device, as the gateway decides at its start.
fn is_tun(facts: &Facts, config: &Config) -> bool {
    match config.tunnel.device {
        TunnelDevice::Tun => true,
        TunnelDevice::Veth => false,
        TunnelDevice::Auto => {
            missing(facts, &FOR_BPF).is_some() || missing(facts, &[CAP_SYS_ADMIN]).is_some()
        }
    }
}

/// Receive queues of the underlay interface, then of the LAN interfaces, with the index of the interface that has them: VLANs share
/// those of a trunk. One for interfaces that are missing.
pub(super) fn queues(facts: &Facts, config: &Config) -> Vec<(Option<u32>, u64)> {
    let queues = |interface: &Interface| {
        let link = &below(facts, config, interface).link;
        (Some(link.ifindex), u64::from(link.rx_queues))
    };
    let used = used(facts, config).into_iter();
    used.map(|found| found.map_or((None, 1), queues)).collect()
}

/// The underlay interface, then the LAN interfaces, as far as they are there.
fn used<'a>(facts: &'a Facts, config: &Config) -> Vec<Option<&'a Interface>> {
    let data_ip = config.gateway.data_addr.ip();
    let named = |name: &str| {
        facts
            .interfaces
            .iter()
            .find(|found| found.link.name == name)
    };
    let underlay = match &config.dataplane.underlay {
        Some(name) => named(name),
        None => facts
            .interfaces
            .iter()
            .find(|interface| carries(interface, data_ip)),
    };
    let lan = config.dataplane.lan.iter().map(|name| named(name));
    std::iter::once(underlay).chain(lan).collect()
}

fn carries(interface: &Interface, ip: IpAddr) -> bool {
    interface.link.has_address(ip)
}

/// The interface called `name`; a finding of this level if there is none.
fn by_name<'a>(
    out: &mut Vec<Finding>,
    facts: &'a Facts,
    name: &str,
    level: Level,
) -> Option<&'a Interface> {
    let found = facts
        .interfaces
        .iter()
        .find(|interface| interface.link.name == name);
    if found.is_none() {
        let names: Vec<&str> = facts
            .interfaces
            .iter()
            .map(|interface| interface.link.name.as_str())
            .collect();
        let may_come = match level {
            Level::Warning => "it is taken into service once it is there; if it is not to come, ",
            _ => "",
        };
        let finding = Finding::bad(
            &format!("interface {name}"),
            "does not exist",
            format!(
                "{may_come}correct the name in [dataplane]; existing interfaces: {}",
                names.join(", ")
            ),
        );
        out.push(Finding { level, ..finding });
    }
    found
}

fn used_interface(
    out: &mut Vec<Finding>,
    facts: &Facts,
    config: &Config,
    interface: &Interface,
    role: &str,
) {
    let link = &interface.link;
    let name = &link.name;
    let area = format!("interface {name}");
    out.push(Finding::good(
        &area,
        format!("{role}: {}", describe(interface)),
    ));
    if !link.up && role == "LAN" {
        out.push(Finding::warning(
            &area,
            "is down",
            format!("it is taken into service once it is up: `ip link set dev {name} up`"),
        ));
    } else if !link.up {
        out.push(Finding::bad(
            &area,
            "is down",
            format!("`ip link set dev {name} up`"),
        ));
    } else if !link.carrier {
        out.push(Finding::bad(
            &area,
            "has no carrier",
            "connect the cable, or bring the other side up",
        ));
    }
    if link.mac.is_none() {
        out.push(Finding::bad(
            &area,
            "is not Ethernet",
            "choose another interface in [dataplane]",
        ));
    }
    if let Some((text, remedy)) = too_large_mtu(facts, interface) {
        out.push(Finding::bad(&area, text, remedy));
    }
    suits(out, facts, config, interface);
    if let Some(id) = link.xdp_program {
        out.push(xdp_attached(&area, facts, name, id));
    }
    let below = below(facts, config, interface);
    let rx_queues = below.link.rx_queues;
    let workers = u32::from(config.dataplane.workers);
    if rx_queues < workers {
        out.push(Finding::warning(
            &area,
            format!("{workers} workers share {rx_queues} receive queue(s)"),
            "this works because XDP spreads the flows; more queues (`ethtool -L`) are faster",
        ));
    }
    if let Some(xdp) = below.xdp {
        xdp_wishes(out, config, &area, xdp);
        // Drivers of cards tell that they transmit only once a program is attached.
        let is_virtual = below.link.driver.as_deref() == Some("veth");
        if is_virtual && !xdp.transmit() && config.dataplane.fast_path != FastPathUse::Off {
            out.push(Finding::warning(
                &area,
                "the other end of the pair takes no packets from XDP programs: what leaves here does not take the fast path",
                "`ethtool -K DEVICE gro on` for the other end, in its network namespace",
            ));
        }
    }
    if config.dataplane.mode == XdpMode::Generic
        && interface.offloads.contains(&Offload::GenericReceive)
    {
        out.push(Finding::warning(
            &area,
            "merges received packets (`gro`) into packets that are too large for generic XDP",
            format!("`ethtool -K {name} gro off`"),
        ));
    }
}

/// Whether XDP sees what it must see.
fn suits(out: &mut Vec<Finding>, facts: &Facts, config: &Config, interface: &Interface) {
    let area = format!("interface {}", interface.link.name);
    let links: Vec<_> = facts.interfaces.iter().map(|i| i.link.clone()).collect();
    let is_native = config.dataplane.mode == XdpMode::Native;
    if let Err(why) = suited::check_aggregate(&interface.link, &links, is_native) {
        out.push(Finding::bad(&area, why.text, why.remedy));
    }
    match trunk(facts, config, interface) {
        Some(Ok(below)) => out.push(Finding::good(&area, served_on(below))),
        Some(Err(why)) if is_native => out.push(Finding::bad(
            &area,
            format!("cannot have native mode: {why}"),
            "set `mode = \"auto\"` in [dataplane]",
        )),
        Some(Err(why)) => out.push(Finding::warning(
            &area,
            format!("the VLAN device will be served in the slower generic mode: {why}"),
            "optional: native mode on the parent interface is faster",
        )),
        None => {}
    }
    let is_trunk = || {
        let mut used = used(facts, config).into_iter().flatten();
        used.any(|user| {
            let below = trunk(facts, config, user).and_then(Result::ok);
            below.is_some_and(|below| below.link.ifindex == interface.link.ifindex)
        })
    };
    let tags = match interface.vlan_tags {
        VlanTags::TakenOut if is_trunk() => VlanTags::Seen,
        tags => tags,
    };
    if let Err(why) = suited::check_vlans(&interface.link, &links, tags) {
        out.push(match tags {
            VlanTags::Unknown => Finding::warning(&area, why.text, why.remedy),
            _ => Finding::bad(&area, why.text, why.remedy),
        });
    }
}

/// The interface below a VLAN device, if the gateway will serve the device there, or why not; see [`suited::trunk`]. `None` also where
/// generic mode is wanted.
fn trunk<'a>(
    facts: &'a Facts,
    config: &Config,
    interface: &Interface,
) -> Option<Result<&'a Interface, String>> {
    if config.dataplane.mode == XdpMode::Generic {
        return None;
    }
    let of = |ifindex| facts.interfaces.iter().find(|i| i.link.ifindex == ifindex);
    let links: Vec<_> = facts
        .interfaces
        .iter()
        .map(|interface| {
            let mut link = interface.link.clone();
            // That of a running gateway says nothing.
            link.xdp_program
                .take_if(|_| facts.running.is_some() || running_gateway(facts).is_some());
            link
        })
        .collect();
    let tags = |link: &Link| of(link.ifindex).map_or(VlanTags::Seen, |found| found.vlan_tags);
    let native = |link: &Link| {
        let xdp = of(link.ifindex).and_then(|found| found.xdp);
        xdp.map(|xdp| xdp.native() && xdp.redirect())
    };
    let max_mtu = max_mtu_on(facts.kernel.version);
    match suited::trunk(&interface.link, &links, max_mtu, tags, native)? {
        Ok(below) => of(below.ifindex).map(Ok),
        Err(why) => Some(Err(why)),
    }
}

/// The interface on which programs and sockets will be: usually this one.
fn below<'a>(facts: &'a Facts, config: &Config, interface: &'a Interface) -> &'a Interface {
    match trunk(facts, config, interface) {
        Some(Ok(below)) => below,
        _ => interface,
    }
}

fn served_on(below: &Interface) -> String {
    let name = &below.link.name;
    let mut text = format!(
        "the VLAN device will be served on its parent {name}: {}",
        describe(below)
    );
    if below.vlan_tags == VlanTags::TakenOut {
        text += "; while the gateway runs, `rxvlan` is off there";
    }
    text
}

/// What the configuration requires of the driver.
fn xdp_wishes(out: &mut Vec<Finding>, config: &Config, area: &str, xdp: XdpFeatures) {
    if config.dataplane.zero_copy == Preference::Require && !xdp.zero_copy() {
        out.push(Finding::bad(
            area,
            "the driver does not support zero copy",
            "set `zero_copy = \"auto\"` in [dataplane], or use another NIC",
        ));
    }
    let native = xdp.native() && xdp.redirect();
    if config.dataplane.mode == XdpMode::Native && !native {
        out.push(Finding::bad(
            area,
            "the driver does not support native XDP",
            "set `mode = \"auto\"` in [dataplane], or use another NIC",
        ));
    }
    if config.dataplane.mode == XdpMode::Auto && !native {
        out.push(Finding::warning(
            area,
            "the driver does not support native XDP: the slower generic mode will be used",
            "optional: a NIC with native XDP is faster",
        ));
    }
}

fn lan_forwarding(out: &mut Vec<Finding>, interface: &Interface) {
    let name = &interface.link.name;
    let area = format!("interface {name}");
    if interface.ipv4_forwarding == Some(0) {
        out.push(Finding::warning(
            &area,
            "IPv4 packets that XDP leaves to the kernel are not forwarded on this interface",
            format!("`sysctl -w net.ipv4.conf.{name}.forwarding=1`"),
        ));
    }
    if interface.ipv6_forwarding == Some(0) {
        out.push(Finding::warning(
            &area,
            "IPv6 packets that XDP leaves to the kernel are not forwarded on this interface",
            format!("`sysctl -w net.ipv6.conf.{name}.forwarding=1`"),
        ));
    }
}

/// What packets of XDP do not meet.
pub(super) fn bypassed(found: &Bypassed) -> Finding {
    let area = match found.interface() {
        Some(name) => format!("interface {name}"),
        None => "firewall".to_owned(),
    };
    let remedy = match found {
        Bypassed::Qdisc { kind, .. } if !matches!(&**kind, "ingress" | "clsact") => {
            "on a LAN interface, `lan_transmit = \"helper\"` in [dataplane] has packets pass through it"
        }
        _ => REMEDY,
    };
    Finding::warning(&area, found.to_string(), remedy)
}

/// How packets from remotes will reach the hosts.
fn lan_transmit(config: &Config, interface: &Interface, below: &Interface) -> Finding {
    let native = below.xdp.is_none_or(|xdp| xdp.native() && xdp.redirect());
    let area = format!("interface {}", interface.link.name);
    let text = match (config.dataplane.lan_transmit, config.dataplane.mode) {
        (LanTransmit::Helper, _) => {
            "packets from remotes are routed by the kernel (`lan_transmit = \"helper\"`)"
        }
        (LanTransmit::Kernel, _) => {
            "packets from remotes pass through the kernel's stack, including netfilter (`lan_transmit = \"kernel\"`)"
        }
        (LanTransmit::Auto, XdpMode::Generic) => {
            "packets from remotes are routed by the kernel (generic mode)"
        }
        (LanTransmit::Auto, XdpMode::Auto) if !native => {
            "packets from remotes are routed by the kernel (generic mode)"
        }
        (LanTransmit::Auto, _) => {
            "packets from remotes to known neighbours are sent directly, bypassing queueing disciplines and TC programs"
        }
    };
    Finding::good(&area, text)
}

fn next_hop_route(
    next_hop: IpAddr,
    route: &Result<RouteLookup, Reason>,
    underlay: Option<&Interface>,
) -> Finding {
    let area = format!("next hop {next_hop}");
    let bad = |reason: Reason| {
        Finding::bad(
            &area,
            reason.to_string(),
            "correct `next_hop` in [[remote.path]], or the host's routes",
        )
    };
    match route {
        Err(reason) => bad(reason.clone()),
        Ok(route) if route.kind == RouteType::Local => bad(Reason::LocalAddress),
        Ok(route) if route.kind != RouteType::Unicast => bad(Reason::NoRoute),
        Ok(route) => match (route.ifindex, underlay) {
            (Some(ifindex), Some(underlay)) if ifindex != underlay.link.ifindex => {
                bad(Reason::OtherInterface(ifindex))
            }
            (None, _) => bad(Reason::NoRoute),
            _ => Finding::good(
                &area,
                match route.gateway {
                    Some(gateway) => format!("routed over {gateway} (not probed)"),
                    None => "on-link (not probed)".into(),
                },
            ),
        },
    }
}
