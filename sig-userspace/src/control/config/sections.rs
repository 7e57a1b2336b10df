//! The sections that are not about finding remotes: keys, defaults, ranges.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use sig_common::addr::IsdAs;
use sig_core::peer::UnderlaySources;

use super::model::{FastPathUse, LanTransmit, Pin, Preference, TunnelDevice, UnderlayPort};
use super::{DEFAULT_DATA_PORT, XdpMode};
use sig_core::document::{
    common::{XDP_MODES, isd_as, socket_path},
    prefix,
    section::{
        Boolean, Checked, List, Number, Special, Text, Time, UnlessEmpty, Words, WordsOr, auto,
    },
    toml::{Item, Placed, Section},
    values,
};
use sig_core::problem::excerpt;
use sig_core::section;

pub(super) const DEFAULT_CTRL_PORT: u16 = 30256;
pub(super) const DEFAULT_PROBE_PORT: u16 = 30856;

/// Largest MTU of the tunnel device, a veth pair: a packet must fit one buffer of the data plane.
const MAX_TUNNEL_MTU: u16 = 9216;

const PREFERENCE: Words<Preference> = Words(&[
    ("auto", Preference::Auto),
    ("never", Preference::Never),
    ("require", Preference::Require),
]);

const COUNT: Number<u32> = Number(1..=1_048_576);

section! {
    /// `[gateway]`: the gateway itself.
    pub struct Gateway {
        /// The AS the gateway stands in; no wildcard, except that 0-0 stands for "the daemon knows" where
        /// [`Config::control`](super::Config::control) is set.
        pub isd_as: IsdAs,
        /// Where SIG frames arrive: address on the underlay interface and UDP/SCION port (default
        /// 30056). Also the source address of our own frames. An unspecified address where
        /// [`Config::control`](super::Config::control) is set: that of [`Control::ctrl_addr`](super::Control::ctrl_addr).
        pub data_addr: SocketAddr,
        /// Unix socket that `sig status` asks. Default, to which an empty one is set: `/run/sig/<id>.sock`.
        pub status_socket: PathBuf,
    }

    /// Name of this gateway in logs and file names.
    id: String = "gateway".to_owned(), UnlessEmpty(Text("\"gateway\"", values::id));
    /// IP prefixes served here: packets from remotes are accepted only towards them. Canonical. Prefixes that
    /// the routing policy advertises are served as well.
    prefixes: Vec<IpNet> = Vec::new(), List("[\"10.1.0.0/24\"]", Text("\"10.1.0.0/24\"", prefix::inner));
    /// What is done with packets beside carrying them (TOML); `None`: nothing.
    rules_file: Option<PathBuf> = None, UnlessEmpty(Special(
        |item| item.text("\"/etc/sig/rules.toml\"").map(|text| Some(PathBuf::from(text))),
        |path| path.as_ref().map(|path| path.display().to_string().into()),
    ));
}

section! {
    /// `[tunnel]`: the tunnel device for whatever the kernel routes.
    pub struct Tunnel {}

    /// Interface name, at most 15 bytes.
    name: String = "sig".to_owned(), UnlessEmpty(Text("\"sig\"", values::interface));
    /// What the device is.
    device: TunnelDevice = TunnelDevice::Auto, Words(&[
        ("auto", TunnelDevice::Auto),
        ("veth", TunnelDevice::Veth),
        ("tun", TunnelDevice::Tun),
    ]);
    /// MTU of the tunnel device in bytes.
    mtu: u16 = 1500, Number(1280..=MAX_TUNNEL_MTU);
    /// Routing table of the routes into the tunnel; 254 is `main`.
    table: u32 = 254, WordsOr {
        words: [("main", 254)],
        kind: Checked(Number(1..=u32::MAX), not_local),
        wrap: |table| table,
        unwrap: |table| Some(table),
    };
    // The reference takes either family in both keys.
    /// Preferred source address of the kernel's IPv4 routes into the tunnel.
    src_ipv4: Option<Ipv4Addr> = None, UnlessEmpty(Special(
        |item| match item.parse("\"192.0.2.10\"", source)? {
            IpAddr::V4(ip) => Some(Some(ip)),
            ip @ IpAddr::V6(_) => other_family(item, ip, "src_ipv6"),
        },
        |ip| ip.map(|ip| ip.to_string().into()),
    ));
    /// Preferred source address of the kernel's IPv6 routes into the tunnel.
    src_ipv6: Option<Ipv6Addr> = None, UnlessEmpty(Special(
        |item| match item.parse("\"2001:db8::10\"", source)? {
            IpAddr::V6(ip) => Some(Some(ip)),
            ip @ IpAddr::V4(_) => other_family(item, ip, "src_ipv4"),
        },
        |ip| ip.map(|ip| ip.to_string().into()),
    ));
}

section! {
    /// `[dataplane]`: interfaces, threads and memory of the data plane.
    pub struct Dataplane {
        /// Memory limits of the reassembly.
        pub limits: Limits,
    }

    /// Interface on the SCION side; `None`: the one that carries the address of `data_addr`.
    underlay: Option<String> = None, auto(Text("\"eth0\"", values::interface));
    /// How frames reach the border routers.
    underlay_port: UnderlayPort = UnderlayPort::Auto, Words(&[
        ("auto", UnderlayPort::Auto),
        ("xdp", UnderlayPort::Xdp),
        ("socket", UnderlayPort::Socket),
    ]);
    /// Which underlay addresses may bring frames of remotes.
    underlay_sources: UnderlaySources = UnderlaySources::Routers, WordsOr {
        words: [("routers", UnderlaySources::Routers), ("any", UnderlaySources::Any)],
        kind: List("[\"10.0.0.1/32\"], or \"routers\" or \"any\"", Text("\"10.0.0.1/32\"", prefix::canonical)),
        wrap: UnderlaySources::RoutersAnd,
        unwrap: |sources| match sources {
            UnderlaySources::RoutersAnd(prefixes) => Some(prefixes),
            UnderlaySources::Routers | UnderlaySources::Any => None,
        },
    };
    /// Interfaces on the IP side. May be empty: then only the kernel's routes feed the tunnel.
    lan: Vec<String> = Vec::new(), List("[\"eth1\"]", Text("\"eth1\"", values::interface));
    /// How decapsulated packets reach the hosts.
    lan_transmit: LanTransmit = LanTransmit::Auto, Words(&[
        ("auto", LanTransmit::Auto),
        ("helper", LanTransmit::Helper),
        ("kernel", LanTransmit::Kernel),
    ]);
    /// Number of worker threads.
    workers: u16 = 1, Number(1..=64);
    /// How the XDP programs are attached.
    mode: XdpMode = XdpMode::Auto, Words(&XDP_MODES);
    /// Whether packets reach user space without a copy.
    zero_copy: Preference = Preference::Auto, PREFERENCE;
    /// Descriptors of each AF_XDP ring; a power of two.
    ring_size: u32 = 2048, Checked(Number(64..=32768), power_of_two);
    /// Number of 4096-byte packet buffers; `None`: what rings and workers need.
    chunks: Option<u32> = None, auto(Number(1024..=1_048_576));
    /// Whether the packet buffers lie in huge pages.
    huge_pages: Preference = Preference::Auto, PREFERENCE;
    /// Workers spin instead of sleeping when idle.
    busy_poll: bool = false, Boolean;
    /// Which CPU runs which worker.
    pin: Pin = Pin::Auto, WordsOr {
        words: [("auto", Pin::Auto), ("never", Pin::Never)],
        kind: List("[2, 3], or \"auto\" or \"never\"", Number(0..=8191)),
        wrap: Pin::Cpus,
        unwrap: |pin| match pin {
            Pin::Cpus(cpus) => Some(cpus),
            Pin::Auto | Pin::Never => None,
        },
    };
    /// Whether XDP programs send and deliver simple packets by themselves.
    fast_path: FastPathUse = FastPathUse::Auto, Words(&[
        ("auto", FastPathUse::Auto),
        ("on", FastPathUse::On),
        ("off", FastPathUse::Off),
    ]);
    /// Check the UDP/SCION checksum of received frames.
    verify_checksums: bool = true, Boolean;
    /// Keep TCP connections from agreeing on segments that do not fit a frame.
    clamp_mss: bool = true, Boolean;
    /// Frames of a stream held back while an earlier one is missing; 0 switches waiting off.
    reorder_frames: u16 = 1024, Number(0..=2048);
    /// Longest time a frame is held back for an earlier one.
    reorder_wait: Duration = Duration::from_millis(50), Time(Duration::ZERO, Duration::from_secs(1));
}

section! {
    /// `[dataplane.limits]`: limits of the reassembly, per worker. All memory is allocated at start. A share of one
    /// remote is at most the total.
    pub struct Limits {}

    /// Streams known at the same time.
    streams_total: u32 = 4096, COUNT;
    /// Streams of one remote known at the same time.
    streams_per_remote: u32 = streams_total.map_or(256, |total| total.min(256)), COUNT;
    /// Packets being put together at the same time.
    packets_total: u32 = 512, COUNT;
    /// Packets of one remote being put together at the same time.
    packets_per_remote: u32 = packets_total.map_or(64, |total| total.min(64)), COUNT;
    /// Frames held back for an earlier one at the same time.
    held_total: u32 = 4096, COUNT;
    /// Frames of one remote held back for an earlier one at the same time.
    held_per_remote: u32 = held_total.map_or(1024, |total| total.min(1024)), COUNT;
    /// How long the rest of a packet is waited for.
    packet_timeout: Duration = Duration::from_secs(1), Time(Duration::from_millis(10), Duration::from_secs(60));
    /// How long a silent stream is remembered.
    stream_timeout: Duration = Duration::from_secs(60), Time(Duration::from_secs(1), Duration::from_secs(3600));
}

impl Default for Dataplane {
    /// Returns the defaults of the configuration file.
    fn default() -> Self {
        Self::with_defaults(Limits::default())
    }
}

fn not_local(table: u32) -> Result<u32, String> {
    // 0 and 255 are the kernel's own.
    if table == 255 {
        return Err("table 255 is the kernel's local table; write another one, or \"main\"".into());
    }
    Ok(table)
}

fn power_of_two(size: u32) -> Result<u32, String> {
    if size.is_power_of_two() {
        return Ok(size);
    }
    let above = size.next_power_of_two();
    let below = above / 2;
    Err(format!(
        "{size} is not a power of two; write {below} or {above}"
    ))
}

fn source(text: &str) -> Result<IpAddr, String> {
    let ip = text
        .parse()
        .map_err(|_| format!("\"{}\" is not an IP address", excerpt(text)))?;
    values::unicast(ip).map(|()| ip)
}

fn other_family<T>(item: &Item<'_>, ip: IpAddr, key: &str) -> Option<Option<T>> {
    item.place.warn(format!(
        "ignored: {ip} is of the other address family; set {key} to it"
    ));
    Some(None)
}

/// `[gateway]`. With `discovers`, the remotes are found rather than written, and so can be the own AS and
/// address.
pub(super) fn gateway<'a>(
    root: &Section<'a>,
    own: Option<&OwnAddresses>,
    discovers: bool,
) -> Option<Placed<'a, Gateway>> {
    let section = root.section("gateway");
    let isd_as = match section.get("isd_as") {
        None if discovers => Some(IsdAs(0)),
        _ => section
            .require(
                "isd_as",
                "the AS of this gateway, for example isd_as = \"1-ff00:0:110\"",
            )
            .and_then(|item| isd_as(&item)),
    };
    let written = section.get("status_socket");
    let status_socket = match &written {
        Some(item) => socket_path(item, "\"/run/sig/gateway.sock\""),
        None => Some(PathBuf::new()),
    };
    let mut value = Gateway::read(&section, isd_as, own.map(|own| own.data), status_socket)?;
    if written.is_none() {
        let name = values::file_name_of(&value.id);
        if let (true, Some(item)) = (name != value.id, section.get("id")) {
            item.place.warn(format!(
                "not usable as a file name: `sig status` finds this gateway as /run/sig/{name}.sock"
            ));
        }
        value.status_socket = PathBuf::from(format!("/run/sig/{name}.sock"));
    }
    Some(Placed {
        value,
        place: section.place,
    })
}

/// `[tunnel]`.
pub(super) fn tunnel<'a>(root: &Section<'a>) -> Option<Placed<'a, Tunnel>> {
    let section = root.section("tunnel");
    Some(Placed {
        value: Tunnel::read(&section)?,
        place: section.place,
    })
}

/// `[dataplane]`.
pub(super) fn dataplane<'a>(root: &Section<'a>) -> Option<Placed<'a, Dataplane>> {
    let section = root.section("dataplane");
    let limits = Limits::read(&section.section("limits"));
    Some(Placed {
        value: Dataplane::read(&section, limits)?,
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
            place.error(format!(
                "{address} is already used by {other}; write another port"
            ));
            return None;
        }
        taken.push((address, key));
    }
    Some(own)
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
            item.place
                .warn("ignored: this gateway does not have this feature");
        }
    }
}
