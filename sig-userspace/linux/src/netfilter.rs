//! What the host does with packets of an interface that those do not meet which XDP takes or sends: rules of nftables and
//! iptables, queueing disciplines with their filters, reverse path filtering.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;

use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::tc::{TcAttribute, TcMessage};
use rtnetlink::sys::protocols::NETLINK_NETFILTER;
use rtnetlink::sys::{Socket, SocketAddr};

use super::netdev::{attribute, attributes as attributes_of};
use super::netlink::Netlink;
use super::sysctl::{self, Family};

/// Something that packets pass by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bypassed {
    /// Rules of nftables, or of iptables over it, which concern packets that the host forwards.
    Nftables {
        /// Family and name of the table, such as `inet filter`.
        table: String,
        /// Hooks with rules, such as `forward`.
        hooks: Vec<&'static str>,
        /// The interface, if they are about one alone.
        device: Option<String>,
    },
    /// Rules of iptables in a table of its own kind.
    Iptables {
        /// `iptables` or `ip6tables`.
        program: &'static str,
        /// Such as `filter`.
        table: String,
    },
    /// A queueing discipline that somebody has set.
    Qdisc {
        /// The interface.
        interface: String,
        /// Such as `htb`; `ingress` and `clsact` hold filters.
        kind: String,
    },
    /// Strict reverse path filtering.
    ReversePath {
        /// The interface.
        interface: String,
    },
}

impl Bypassed {
    /// The interface that it is about, if it is about one alone.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        match self {
            Self::Nftables { device, .. } => device.as_deref(),
            Self::Iptables { .. } => None,
            Self::Qdisc { interface, .. } | Self::ReversePath { interface } => Some(interface),
        }
    }
}

impl fmt::Display for Bypassed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DO_NOT: &str = "packets that XDP takes or sends do not";
        match self {
            Self::Nftables {
                table,
                hooks,
                device,
            } => {
                write!(
                    f,
                    "nftables has rules in table {table} ({}",
                    hooks.join(", ")
                )?;
                if let Some(device) = device {
                    write!(f, " on {device}")?;
                }
                write!(f, "): {DO_NOT} pass them")
            }
            Self::Iptables { program, table } => {
                write!(
                    f,
                    "{program} has rules in table {table}: {DO_NOT} pass them"
                )
            }
            Self::Qdisc { interface, kind } if matches!(&**kind, "ingress" | "clsact") => write!(
                f,
                "{interface} may have TC filters (queueing discipline {kind}): {DO_NOT} pass them"
            ),
            Self::Qdisc { interface, kind } => write!(
                f,
                "{interface} has the queueing discipline {kind}: {DO_NOT} pass through it"
            ),
            Self::ReversePath { interface } => write!(
                f,
                "reverse path filtering is strict on {interface} (rp_filter = 1): {DO_NOT} meet it"
            ),
        }
    }
}

/// What to do about any of them.
pub const REMEDY: &str = "use the gateway's own rules (docs/rules.md), or lan = [] with lan_transmit = \"kernel\", which is slower";

/// Queueing disciplines that interfaces have without anybody's wish, and plain queues.
pub const ORDINARY_QDISCS: [&str; 7] = [
    "noqueue",
    "noop",
    "mq",
    "pfifo",
    "pfifo_fast",
    "fq_codel",
    "fq",
];

/// Looks for all of it in the network namespace of the calling thread; of interfaces, at these (index and name). What may not be
/// looked at, for lack of rights, or is not in this kernel counts as absent.
pub async fn bypassed(netlink: &Netlink, interfaces: &[(u32, &str)]) -> Vec<Bypassed> {
    let mut found = nftables().unwrap_or_default();
    for (program, names, level) in [
        ("iptables", "/proc/net/ip_tables_names", libc::SOL_IP),
        ("ip6tables", "/proc/net/ip6_tables_names", libc::SOL_IPV6),
    ] {
        // Asking for a table that is not there would make it.
        let names = fs::read_to_string(names).unwrap_or_default();
        let tables = names
            .lines()
            .filter(|name| has_rules(level, name).unwrap_or(false));
        found.extend(tables.map(|table| Bypassed::Iptables {
            program,
            table: table.to_owned(),
        }));
    }
    let get = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
    let qdiscs = netlink.dump(get).await.unwrap_or_default();
    for (ifindex, name) in interfaces {
        found.extend(
            qdiscs
                .iter()
                .filter_map(|message| qdisc(message, *ifindex, name)),
        );
        let rp_filter = |of: &str| sysctl::read(Family::V4, of, "rp_filter").ok().flatten();
        if rp_filter(name).max(rp_filter("all")) == Some(1) {
            let interface = (*name).to_owned();
            found.push(Bypassed::ReversePath { interface });
        }
    }
    found.sort();
    found.dedup();
    found
}

fn qdisc(message: &RouteNetlinkMessage, ifindex: u32, name: &str) -> Option<Bypassed> {
    let RouteNetlinkMessage::NewQueueDiscipline(message) = message else {
        return None;
    };
    let kind = message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            TcAttribute::Kind(kind) => Some(kind),
            _ => None,
        })?;
    let is_ours = i64::from(message.header.index) == i64::from(ifindex);
    (is_ours && !ORDINARY_QDISCS.contains(&&**kind)).then(|| Bypassed::Qdisc {
        interface: name.to_owned(),
        kind: kind.clone(),
    })
}

/// Whether a table of iptables has more in it than its chains' policies (`IPT_SO_GET_INFO`; for IPv6 it has the same number).
fn has_rules(level: libc::c_int, table: &str) -> io::Result<bool> {
    const GET_INFO: libc::c_int = 64;
    /// `struct ipt_getinfo` and `struct ip6t_getinfo`.
    #[repr(C)]
    #[derive(Default)]
    struct Info {
        name: [u8; 32],
        valid_hooks: u32,
        hook_entry: [u32; 5],
        underflow: [u32; 5],
        num_entries: u32,
        size: u32,
    }
    let mut info = Info::default();
    let name = info
        .name
        .get_mut(..table.len())
        .ok_or(io::ErrorKind::InvalidInput)?;
    name.copy_from_slice(table.as_bytes());
    let socket = match level {
        libc::SOL_IP => std::net::UdpSocket::bind("0.0.0.0:0")?,
        _ => std::net::UdpSocket::bind("[::]:0")?,
    };
    let mut length = size_of::<Info>() as libc::socklen_t;
    // SAFETY: `info` and `length` are live, and `length` is the size of `info`; the socket is open.
    let result = unsafe {
        libc::getsockopt(
            std::os::fd::AsRawFd::as_raw_fd(&socket),
            level,
            GET_INFO,
            (&raw mut info).cast(),
            &mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // A policy for each hook, and an end.
    Ok(info.num_entries > info.valid_hooks.count_ones() + 1)
}

/// Attributes of a chain in `linux/netfilter/nf_tables.h`.
const CHAIN_TABLE: u16 = 1;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const CHAIN_USE: u16 = 6;
const HOOK_NUMBER: u16 = 1;
/// The device, if it is one.
const HOOK_DEVICE: u16 = 3;
/// All of them.
const HOOK_DEVICES: u16 = 4;
const DEVICE_NAME: u16 = 1;

/// Tables with chains at hooks of forwarded packets that are not empty. Needs CAP_NET_ADMIN.
fn nftables() -> io::Result<Vec<Bypassed>> {
    const SUBSYSTEM: u16 = 10;
    const GET_CHAIN: u16 = 4;
    const REQUEST_DUMP: u16 = 1 | 0x300;
    const HEADER: usize = 16;
    const DONE: u16 = 3;
    const ERROR: u16 = 2;

    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut request = Vec::new();
    request.extend((HEADER as u32 + 4).to_ne_bytes());
    request.extend((SUBSYSTEM << 8 | GET_CHAIN).to_ne_bytes());
    request.extend(REQUEST_DUMP.to_ne_bytes());
    request.extend([0; 8]); // sequence number and port: one question
    request.extend([0; 4]); // all families, version 0
    socket.send(&request, 0)?;

    let mut tables = BTreeMap::new();
    loop {
        let (answer, _) = socket.recv_from_full()?;
        let mut rest = &answer[..];
        while let Some(header) = rest.first_chunk::<HEADER>() {
            let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
            let message = rest.get(HEADER..length).unwrap_or_default();
            match u16::from_ne_bytes([header[4], header[5]]) {
                DONE | ERROR => return Ok(of_tables(tables)),
                _ => chain(message, &mut tables),
            }
            rest = rest
                .get(length.next_multiple_of(4).max(HEADER)..)
                .unwrap_or_default();
        }
    }
}

/// Hooks by table and device.
type Tables = BTreeMap<(String, Option<String>), Vec<&'static str>>;

fn of_tables(tables: Tables) -> Vec<Bypassed> {
    let of_table = |((table, device), hooks)| Bypassed::Nftables {
        table,
        hooks,
        device,
    };
    tables.into_iter().map(of_table).collect()
}

/// Adds a chain, if it concerns us.
fn chain(message: &[u8], tables: &mut Tables) {
    let family = message.first().copied().unwrap_or_default();
    let attributes = message.get(4..).unwrap_or_default();
    let number = |attributes, kind| {
        let value = attribute(attributes, kind)?.first_chunk::<4>()?;
        Some(u32::from_be_bytes(*value))
    };
    let as_text = |value: &[u8]| {
        String::from_utf8_lossy(value.strip_suffix(b"\0").unwrap_or(value)).into_owned()
    };
    let text = |attributes, kind| attribute(attributes, kind).map(as_text);
    let Some(hook) = attribute(attributes, CHAIN_HOOK) else {
        return;
    };
    let (name, hook_name) = match (family, number(hook, HOOK_NUMBER)) {
        (family @ (1 | 2 | 10), Some(number)) => {
            let name = match family {
                1 => "inet",
                2 => "ip",
                _ => "ip6",
            };
            let hook = match number {
                0 => "prerouting",
                2 => "forward",
                4 => "postrouting",
                5 => "ingress",
                // Of and to the host itself.
                _ => return,
            };
            (name, hook)
        }
        (5, Some(0)) => ("netdev", "ingress"),
        (5, Some(1)) => ("netdev", "egress"),
        _ => return,
    };
    // Nothing can jump to a chain with a hook, so its users are its rules. The policy may be to drop.
    let is_empty = number(attributes, CHAIN_USE) == Some(0);
    let accepts = number(attributes, CHAIN_POLICY) != Some(0);
    let Some(table) = text(attributes, CHAIN_TABLE).filter(|_| !is_empty || !accepts) else {
        return;
    };
    let several = attribute(hook, HOOK_DEVICES).unwrap_or_default();
    let devices = attributes_of(several).filter(|(kind, _)| *kind == DEVICE_NAME);
    let mut devices: Vec<_> = devices.map(|(_, name)| Some(as_text(name))).collect();
    if devices.is_empty() {
        devices.push(text(hook, HOOK_DEVICE));
    }
    for device in devices {
        let place = (format!("{name} {table}"), device);
        let hooks = tables.entry(place).or_default();
        if !hooks.contains(&hook_name) {
            hooks.push(hook_name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(4 + value.len()).unwrap();
        let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    /// A chain as the kernel tells it.
    fn told(family: u8, hook: Option<(u32, &[u8])>, policy: u32, rules: u32) -> Vec<u8> {
        let mut message = vec![family, 0, 0, 0];
        message.extend(with(CHAIN_TABLE, b"filter\0"));
        if let Some((number, more)) = hook {
            let hook = [&with(HOOK_NUMBER, &number.to_be_bytes()), more].concat();
            message.extend(with(CHAIN_HOOK | 0x8000, &hook));
        }
        message.extend(with(CHAIN_POLICY, &policy.to_be_bytes()));
        message.extend(with(CHAIN_USE, &rules.to_be_bytes()));
        message
    }

    #[test]
    fn chains_with_rules_or_a_policy_to_drop_count_at_hooks_of_forwarded_packets() {
        let device = with(HOOK_DEVICE, b"lan0\0");
        let devices =
            ["lan1", "lan2"].map(|name| with(DEVICE_NAME, format!("{name}\0").as_bytes()));
        let devices = with(HOOK_DEVICES | 0x8000, &devices.concat());
        let mut tables = Tables::new();
        for message in [
            told(1, Some((2, &[])), 1, 3),
            told(1, Some((0, &[])), 1, 1),
            told(2, Some((2, &[])), 0, 0),
            told(5, Some((0, &device)), 1, 1),
            told(5, Some((1, &devices)), 1, 1),
            // Without rules, to the host itself, without a hook, of a bridge.
            told(10, Some((2, &[])), 1, 0),
            told(10, Some((1, &[])), 1, 7),
            told(10, None, 1, 7),
            told(7, Some((2, &[])), 1, 7),
        ] {
            chain(&message, &mut tables);
            for cut in 0..message.len() {
                chain(&message[..cut], &mut Tables::new());
            }
        }
        let texts: Vec<_> = of_tables(tables).iter().map(Bypassed::to_string).collect();
        let rest = ": packets that XDP takes or sends do not pass them";
        assert_eq!(
            texts,
            [
                format!("nftables has rules in table inet filter (forward, prerouting){rest}"),
                format!("nftables has rules in table ip filter (forward){rest}"),
                format!("nftables has rules in table netdev filter (ingress on lan0){rest}"),
                format!("nftables has rules in table netdev filter (egress on lan1){rest}"),
                format!("nftables has rules in table netdev filter (egress on lan2){rest}"),
            ]
        );
    }
}
