//! The `[[remote]]` sections with their paths.

use std::net::SocketAddr;
use std::path::Path as FilePath;
use std::time::{SystemTime, UNIX_EPOCH};

use ipnet::IpNet;
use sig_common::addr::IsdAs;

use super::made::made;
use super::model::{Made, Path, Remote};
use super::sections::Gateway;
use super::{DEFAULT_DATA_PORT, EXPIRES_SOON, ReadFile, path};
use sig_core::document::{
    common::isd_as,
    prefix,
    toml::{Item, Place, Placed, Section, list},
    values,
};
use sig_core::notation::rfc3339;
use sig_core::problem::excerpt;

/// Largest SCION packet in bytes that peers of the reference implementation receive.
const LARGEST_MTU: u16 = 9188;

/// Smallest useful SIG frame: its header, the 40 bytes without which no packet starts, one more.
const SMALLEST_FRAME: usize = 57;

/// Longest path file that is looked at: more than twice the longest path in hexadecimal.
const LONGEST_PATH_FILE: usize = 4096;

/// A remote as far as it could be read, with the places of what other sections are compared with.
pub(super) struct RemoteAt<'a> {
    pub(super) place: Place<'a>,
    pub(super) isd_as: Option<IsdAs>,
    pub(super) gateway: Option<(SocketAddr, Place<'a>)>,
    pub(super) prefixes: Vec<(IpNet, Place<'a>)>,
    pub(super) next_hops: Vec<SocketAddr>,
    /// `None` when anything is wrong with it.
    pub(super) value: Option<Remote>,
}

/// All remotes of the file.
pub(super) fn remotes<'a>(
    root: &Section<'a>,
    local: Option<&Placed<'a, Gateway>>,
    read_file: ReadFile<'_>,
    now: Option<SystemTime>,
) -> Vec<RemoteAt<'a>> {
    let sections = root.sections("remote");
    sections
        .iter()
        .map(|section| remote(section, local.map(|l| &l.value), read_file, now))
        .collect()
}

fn remote<'a>(
    section: &Section<'a>,
    local: Option<&Gateway>,
    read_file: ReadFile<'_>,
    now: Option<SystemTime>,
) -> RemoteAt<'a> {
    let isd_as = section
        .require(
            "isd_as",
            "the AS of the remote gateway, for example isd_as = \"1-ff00:0:111\"",
        )
        .and_then(|item| isd_as(&item));
    let gateway = section
        .require("gateway", "the SCION host address of the remote gateway, for example gateway = \"10.11.0.2:30056\"")
        .and_then(|item| {
            let address = item.parse("\"10.11.0.2:30056\"", |text| {
                let (host, port) = values::address(text, DEFAULT_DATA_PORT)?;
                let host = host.ok_or("no host; write its address, for example \"10.11.0.2:30056\"")?;
                values::unicast(host).map(|()| SocketAddr::new(host, port))
            });
            Some((address?, item.place))
        });
    let session = section
        .get("session")
        .map_or(Some(0), |item| item.number(0..=255));
    let prefixes = section
        .require(
            "prefixes",
            "the IP prefixes behind this remote, for example prefixes = [\"10.2.0.0/24\"]",
        )
        .and_then(|item| {
            list(&item, "[\"10.2.0.0/24\"]", |element| {
                let prefix = element.parse("\"10.2.0.0/24\"", prefix::inner)?;
                Some((prefix, element.place.clone()))
            })
        });
    if let Some(prefixes) = &prefixes
        && prefixes.is_empty()
        && let Some(item) = section.get("prefixes")
    {
        item.place
            .warn("empty: nothing is sent to this remote and nothing is accepted from it");
    }

    let path_sections = section.sections("path");
    if path_sections.is_empty() && section.get("path").is_none() {
        section.place.error(
            "no path; write at least one [[remote.path]] with raw, file or network, next_hop and mtu",
        );
    }
    let mut next_hops = Vec::new();
    let paths: Vec<Option<Path>> = path_sections
        .iter()
        .enumerate()
        .map(|(i, section)| {
            let context = Context {
                local,
                remote_isd_as: isd_as,
                remote_ip_len: gateway
                    .as_ref()
                    .map(|(g, _)| if g.is_ipv4() { 4 } else { 16 }),
                read_file,
                now,
            };
            one_path(section, i, &context, &mut next_hops)
        })
        .collect();
    let paths: Option<Vec<Path>> = paths.into_iter().collect();
    if let Some(paths) = &paths {
        for (i, path) in paths.iter().enumerate() {
            if let Some(earlier) = paths[..i].iter().position(|p| p.name == path.name) {
                path_sections[i].place.error(format!(
                    "the name \"{}\" is already used by path[{earlier}]; choose another name",
                    path.name
                ));
            }
        }
    }

    let value = match (isd_as, &gateway, session, &prefixes, paths) {
        (Some(isd_as), Some((gateway, _)), Some(session), Some(prefixes), Some(paths)) => {
            Some(Remote {
                isd_as,
                gateway: *gateway,
                session,
                prefixes: prefixes.iter().map(|(prefix, _)| *prefix).collect(),
                paths,
            })
        }
        _ => None,
    };
    RemoteAt {
        place: section.place.clone(),
        isd_as,
        gateway,
        prefixes: prefixes.unwrap_or_default(),
        next_hops,
        value,
    }
}

/// What a path is compared with.
struct Context<'a> {
    local: Option<&'a Gateway>,
    remote_isd_as: Option<IsdAs>,
    remote_ip_len: Option<usize>,
    read_file: ReadFile<'a>,
    /// Paths are not to have expired by then.
    now: Option<SystemTime>,
}

fn one_path(
    section: &Section<'_>,
    index: usize,
    context: &Context<'_>,
    next_hops: &mut Vec<SocketAddr>,
) -> Option<Path> {
    let name = match section.get("name") {
        None => Some(index.to_string()),
        Some(item) => item.parse("\"via ISP A\"", |text| {
            if text.is_empty() || text.chars().count() > 64 || text.chars().any(char::is_control) {
                return Err("not usable as a name; write 1 to 64 printable characters".to_owned());
            }
            Ok(text.to_owned())
        }),
    };
    let header = header(section, context);
    let raw = header.as_ref().map(|header| &header.raw);
    let known = header.as_ref().and_then(|header| header.next_hop);
    let next_hop = match (section.get("next_hop"), section.get("network"), known) {
        (None, Some(item), Some(next_hop)) => Some((next_hop, item)),
        // What is wrong with the path is told already.
        (None, Some(_), None) if header.is_none() => None,
        _ => section
            .require(
                "next_hop",
                "the underlay address of the border router, for example next_hop = \"10.10.0.1:30042\"",
            )
            .and_then(|item| {
                let next_hop = item.parse("\"10.10.0.1:30042\"", values::socket_address)?;
                Some((next_hop, item))
            }),
    };
    let next_hop = next_hop.and_then(|(next_hop, item)| {
        next_hops.push(next_hop);
        if let Some(local) = context.local {
            check_next_hop(&item, next_hop, local.data_addr)?;
        }
        Some(next_hop)
    });
    let mtu = match (section.get("mtu"), section.get("network")) {
        (None, Some(network)) => header
            .as_ref()
            .and_then(|header| Some((header.mtu?.min(LARGEST_MTU), network.place))),
        _ => section
            .require(
                "mtu",
                "the largest SCION packet of this path in bytes, for example mtu = 1472",
            )
            .and_then(|item| Some((item.number(1..=LARGEST_MTU)?, item.place))),
    };
    let mtu = mtu.and_then(|(mtu, place)| {
        if let (Some(local), Some(remote_ip_len), Some(raw)) =
            (context.local, context.remote_ip_len, raw)
        {
            let local_ip_len = if local.data_addr.is_ipv4() { 4 } else { 16 };
            let headers = 12 + 16 + local_ip_len + remote_ip_len + raw.len() + 8;
            if usize::from(mtu) < headers + SMALLEST_FRAME {
                place.error(format!(
                    "{mtu} leaves no room for a frame: this path's headers take {headers} \
                     bytes and a frame at least {SMALLEST_FRAME}; write {} or more",
                    headers + SMALLEST_FRAME
                ));
                return None;
            }
        }
        Some(mtu)
    });
    let source_port = match section.get("source_port") {
        Some(item) => item.number(1..=u16::MAX),
        // Without [gateway] the whole file is refused anyway.
        None => Some(
            context
                .local
                .map_or(DEFAULT_DATA_PORT, |l| l.data_addr.port()),
        ),
    };
    let header = header?;
    Some(Path {
        name: name?,
        raw: header.raw,
        made: header.made,
        next_hop: next_hop?,
        mtu: mtu?,
        source_port: source_port?,
    })
}

fn check_next_hop(item: &Item<'_>, next_hop: SocketAddr, data_addr: SocketAddr) -> Option<()> {
    if next_hop.is_ipv4() != data_addr.is_ipv4() {
        let version = |a: SocketAddr| if a.is_ipv4() { "IPv4" } else { "IPv6" };
        item.place.error(format!(
            "{next_hop} is {} but data_addr {data_addr} is {}; write a router address of the \
             same family",
            version(next_hop),
            version(data_addr)
        ));
        return None;
    }
    if next_hop == data_addr {
        item.place.error(format!(
            "{next_hop} is this gateway's own address; write the border router's"
        ));
        return None;
    }
    Some(())
}

/// A path header and where it is from.
struct Header {
    raw: Vec<u8>,
    made: Option<Made>,
    /// Largest SCION packet where the file need not say it.
    mtu: Option<u16>,
    /// The border router where the file need not say it.
    next_hop: Option<SocketAddr>,
}

fn header(section: &Section<'_>, context: &Context<'_>) -> Option<Header> {
    let Some(network) = section.get("network") else {
        if let Some(via) = section.get("via") {
            via.place.error(
                "only works with a network to choose paths from; add network = \"network.toml\"",
            );
        }
        return raw_path(section, context).map(|raw| Header {
            raw,
            made: None,
            mtu: None,
            next_hop: None,
        });
    };
    for key in ["raw", "file", "path_type"] {
        if let Some(item) = section.get(key) {
            item.place.error(format!(
                "{} is also set; remove one of the two",
                network.place.key
            ));
            return None;
        }
    }
    let ends = (
        context.local.map(|local| local.isd_as),
        context.remote_isd_as,
    );
    let (made, path) = made(section, &network, ends, context.read_file)?;
    Some(Header {
        next_hop: made.description.next_hop(&path),
        raw: path.raw,
        made: Some(made),
        mtu: Some(path.mtu),
    })
}

/// The bytes of the path header, from `raw` or `file`, in accord with `path_type`.
fn raw_path(section: &Section<'_>, context: &Context<'_>) -> Option<Vec<u8>> {
    const EXAMPLE: &str = "\"00002000…\"";
    let empty = match section.get("path_type") {
        None => None,
        Some(item) => Some((
            item.choice(&[("scion", false), ("empty", true)])?,
            item.place,
        )),
    };
    let (bytes, place) = match (section.get("raw"), section.get("file")) {
        (Some(raw), Some(file)) => {
            file.place.error(format!(
                "{} is also set; remove one of the two",
                raw.place.key
            ));
            return None;
        }
        (Some(item), None) => (item.parse(EXAMPLE, values::hex)?, item.place),
        (None, Some(item)) => (from_file(&item, context.read_file)?, item.place),
        (None, None) => match &empty {
            Some((true, place)) => (Vec::new(), place.clone()),
            _ => {
                section.require(
                    "raw",
                    "the path header in hexadecimal, raw = \"00002000…\", or a file with it, file = \
                     \"a.path\", or a network description to make it from, network = \"network.toml\"",
                );
                return None;
            }
        },
    };
    match &empty {
        Some((true, _)) if !bytes.is_empty() => {
            place.error("path_type is \"empty\", but path bytes are given; remove one of the two");
            return None;
        }
        Some((false, _)) if bytes.is_empty() => {
            place.error("path_type is \"scion\", but the path has no bytes; write path_type = \"empty\" for a remote in the local AS");
            return None;
        }
        _ => {}
    }
    if bytes.is_empty() {
        let own = context.local.map(|local| local.isd_as);
        if let (Some(own), Some(remote)) = (own, context.remote_isd_as)
            && own != remote
        {
            place.error(format!(
                "an empty path only works within {own}, and the remote is in {remote}; \
                 write the raw path to it"
            ));
            return None;
        }
    } else {
        match path::check(&bytes) {
            Ok(expires_at) => {
                if let Some(now) = context.now {
                    check_expiry(&place, expires_at, now);
                }
            }
            Err(message) => {
                place.error(message);
                return None;
            }
        }
    }
    Some(bytes)
}

fn check_expiry(place: &Place<'_>, expires_at: u64, now: SystemTime) {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    if expires_at <= now {
        place.error(format!(
            "the path expired at {}: routers drop its packets; replace it, for example with \"sig path make\"",
            rfc3339(expires_at)
        ));
    } else if expires_at - now < EXPIRES_SOON.as_secs() {
        place.warn(format!(
            "the path expires soon, at {}; replace it and run \"sig reload\"",
            rfc3339(expires_at)
        ));
    }
}

/// A path file holds the raw bytes, or the same in hexadecimal.
fn from_file(item: &Item<'_>, read_file: ReadFile<'_>) -> Option<Vec<u8>> {
    let name = item.text("\"a.path\"")?;
    let shown = excerpt(name);
    let contents = match read_file(FilePath::new(name)) {
        Ok(contents) => contents,
        Err(error) => {
            item.place.error(format!(
                "\"{shown}\" cannot be read: {error}; write a name relative to the configuration file"
            ));
            return None;
        }
    };
    if contents.len() > LONGEST_PATH_FILE {
        item.place.error(format!(
            "\"{shown}\" has {} bytes, more than any path can have; name the file with the raw path",
            contents.len()
        ));
        return None;
    }
    // PathMeta starts with CurrINF and CurrHF, both 0: no hexadecimal digit is a zero byte.
    if contents.first() == Some(&0) {
        return Some(contents);
    }
    match str::from_utf8(&contents)
        .map_err(|_| "neither raw bytes of a path at its sender nor hexadecimal text".to_owned())
        .and_then(values::hex)
    {
        Ok(bytes) => Some(bytes),
        Err(message) => {
            item.place.error(format!("\"{shown}\": {message}"));
            None
        }
    }
}
