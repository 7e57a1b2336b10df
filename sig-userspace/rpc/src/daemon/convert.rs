//! From the daemon's messages to what the gateway works with.

use std::{
    collections::HashMap,
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, SystemTime},
};

use scion_protobuf::{
    buffa_types::google::protobuf::{self, Timestamp},
    proto::daemon::v1 as proto,
};
use sig_common::{
    addr::IsdAs,
    wire::scion::{MAX_HEADER_LEN, path::ScionPath},
};
use tokio::time::Instant;

use sig_core::scion::{self, Interface};

/// Paths of an answer that are looked at.
const MAX_PATHS: usize = 1024;
/// A SCION path has up to 64 hop fields.
const MAX_INTERFACES: usize = 128;
/// Discovery services that are looked at.
const MAX_DISCOVERY: usize = 16;
/// Host names of an answer that are resolved.
const MAX_NAMES: usize = 16;
/// The longest DNS name, a colon and a port.
const MAX_NAME_LEN: usize = 260;

/// What has become of the paths of an answer.
#[derive(Debug, Default)]
pub(super) struct Paths {
    /// Those that can be used.
    pub(super) paths: Vec<scion::Path>,
    /// How many cannot.
    pub(super) skipped: u64,
    /// What is wrong with the first of them.
    pub(super) problem: Option<&'static str>,
}

/// An MTU. SCION packets are not longer than 16 bits tell.
pub(super) fn mtu(mtu: u32) -> u16 {
    u16::try_from(mtu).unwrap_or(u16::MAX)
}

/// The underlay address in an interface; empty if there is none.
pub(super) fn underlay(interface: proto::Interface) -> String {
    interface
        .address
        .into_option()
        .map(|underlay| underlay.address)
        .unwrap_or_default()
}

/// Paths from `local` to `destination`. Names that are not resolved by `deadline` are as good as unknown.
pub(super) async fn paths(
    answer: Vec<proto::Path>,
    local: IsdAs,
    destination: IsdAs,
    deadline: Instant,
) -> Paths {
    let mut names = Names {
        known: HashMap::new(),
        deadline,
    };
    let mut converted = Paths::default();
    if let Some(more) = answer.len().checked_sub(MAX_PATHS)
        && more > 0
    {
        converted.skipped = more as u64;
        converted.problem = Some("there are too many paths");
    }
    for path in answer.into_iter().take(MAX_PATHS) {
        match one(path, local, destination, &mut names).await {
            Ok(path) => converted.paths.push(path),
            Err(problem) => {
                converted.skipped += 1;
                converted.problem.get_or_insert(problem);
            }
        }
    }
    converted
}

async fn one(
    path: proto::Path,
    local: IsdAs,
    destination: IsdAs,
    names: &mut Names,
) -> Result<scion::Path, &'static str> {
    if path.interfaces.len() > MAX_INTERFACES {
        return Err("a path has too many interfaces");
    }
    let interfaces: Vec<_> = path
        .interfaces
        .iter()
        .map(|interface| Interface {
            isd_as: IsdAs(interface.isd_as),
            id: interface.id,
        })
        .collect();
    let ends = interfaces.first().zip(interfaces.last());
    let (raw, next_hop) = match ends {
        None if local == destination => (Vec::new(), SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))),
        None => return Err("a path to another AS has no interfaces"),
        Some(_) if interfaces.len() % 2 != 0 => return Err("an interface of a path has no AS"),
        Some((first, _)) if first.isd_as != local => return Err("a path starts in another AS"),
        Some((_, last)) if last.isd_as != destination => return Err("a path ends in another AS"),
        Some(_) => {
            is_at_its_start(&path.raw)?;
            let address = path.interface.into_option().map(underlay);
            let next_hop = names.resolve(&address.unwrap_or_default()).await;
            (
                path.raw,
                next_hop.ok_or("the next hop of a path is not an address")?,
            )
        }
    };
    let expiry = path
        .expiration
        .into_option()
        .map(|time| instant(&time).ok_or("a path's expiry is not a valid time"))
        .transpose()?;
    let announced = path.discovery_information.get(&destination.0);
    let mut discovery = Vec::new();
    for address in announced
        .into_iter()
        .flat_map(|information| &information.discovery_service_addresses)
        .take(MAX_DISCOVERY)
    {
        discovery.extend(names.resolve(address).await);
    }
    Ok(scion::Path {
        raw: raw.into(),
        next_hop,
        mtu: mtu(path.mtu),
        expiry,
        announced_latency: latency(&path.latency, interfaces.len()),
        discovery: discovery.into(),
        fingerprint: scion::Path::fingerprint_of(&interfaces),
        interfaces: interfaces.into(),
    })
}

/// Only a path header on which no hop has been taken can be sent as it is.
fn is_at_its_start(raw: &[u8]) -> Result<(), &'static str> {
    let path = ScionPath::new_checked(raw).map_err(|_| "a path header is malformed")?;
    let meta = path.meta();
    if meta.current_info != 0 || meta.current_hop != 0 {
        return Err("a path header does not point to its start");
    }
    // The shortest addresses: whether longer ones fit shows when frames are built.
    if raw.len() > MAX_HEADER_LEN - 12 - 24 {
        return Err("a path header is too long");
    }
    Ok(())
}

fn instant(time: &Timestamp) -> Option<SystemTime> {
    let since_epoch = duration(time.seconds, time.nanos)?;
    SystemTime::UNIX_EPOCH.checked_add(since_epoch)
}

/// None if negative.
fn duration(seconds: i64, nanos: i32) -> Option<Duration> {
    let nanos = u32::try_from(nanos)
        .ok()
        .filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Duration::new(u64::try_from(seconds).ok()?, nanos))
}

/// The sum of the latencies between neighbouring interfaces, if all are known: a negative one stands for unknown.
fn latency(parts: &[protobuf::Duration], interfaces: usize) -> Option<Duration> {
    if interfaces == 0 || parts.len() != interfaces - 1 {
        return None;
    }
    parts.iter().try_fold(Duration::ZERO, |sum, part| {
        sum.checked_add(duration(part.seconds, part.nanos)?)
    })
}

/// Resolves `HOST:PORT`, each name once.
struct Names {
    known: HashMap<String, Option<SocketAddr>>,
    deadline: Instant,
}

impl Names {
    async fn resolve(&mut self, text: &str) -> Option<SocketAddr> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Some(address).filter(is_usable);
        }
        if let Some(known) = self.known.get(text) {
            return *known;
        }
        if text.len() > MAX_NAME_LEN || self.known.len() >= MAX_NAMES {
            return None;
        }
        let found =
            match tokio::time::timeout_at(self.deadline, tokio::net::lookup_host(text)).await {
                // IPv4 comes first, as with the reference.
                Ok(Ok(addresses)) => addresses.filter(is_usable).min_by_key(SocketAddr::is_ipv6),
                _ => None,
            };
        self.known.insert(text.to_owned(), found);
        found
    }
}

fn is_usable(address: &SocketAddr) -> bool {
    address.port() != 0 && !address.ip().is_unspecified() && !address.ip().is_multicast()
}
