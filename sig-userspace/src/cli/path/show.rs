//! `sig path show`: what is in a raw path.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use sig_common::wire::scion::path::{HopField, InfoField, ScionPath};

use crate::cli::{Failure, table::Table, unix_now};
use sig_core::{
    document::{
        self,
        values::{hex, scion_path},
    },
    network,
    notation::{counted, rfc3339, to_hex},
    problem::excerpt,
    scion::{HopKey, network::Network, segment_ids},
};

/// Decode a raw SCION path: segments, hop fields, expiry, and the current position.
///
/// Ingress and egress of hop fields are in construction direction. With a key or a network description, the MACs
/// are checked. It also accepts paths from packets in transit.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The path in hexadecimal, or a file with the hexadecimal text or the raw bytes.
    #[arg(value_name = "HEX|FILE")]
    path: String,
    /// Mark the hop fields signed with this key: 32 hexadecimal digits, as "sig router key --secret" prints it.
    #[arg(long, value_name = "HEX", conflicts_with = "network")]
    key: Option<String>,
    /// Show which AS signed each hop field, from the network description that "sig path make" takes.
    #[arg(long, value_name = "FILE")]
    network: Option<PathBuf>,
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let refused = |message: String| Failure::Refused(message);
    let makers = Makers::new(args)?;
    let raw = bytes(&args.path).map_err(refused)?;
    let path = scion_path(&raw).map_err(refused)?;
    if args.json {
        writeln!(out, "{}", to_json(&path, &makers))?;
    } else {
        show(&path, &makers, unix_now(), out)?;
    }
    Ok(())
}

/// Who may have made hop fields.
enum Makers {
    Unknown,
    Key(HopKey),
    Network(Network),
}

impl Makers {
    fn new(args: &Args) -> Result<Self, Failure> {
        if let Some(file) = &args.network {
            let description =
                network::load(file).map_err(|errors| Failure::Refused(errors.to_string()))?;
            return Ok(Self::Network(description.network));
        }
        let Some(text) = &args.key else {
            return Ok(Self::Unknown);
        };
        let refused = |what: String| Failure::Refused(format!("--key: {what}"));
        let key = hex(text).map_err(refused)?;
        let key = key.try_into().map_err(|key: Vec<u8>| {
            refused(format!(
                "{} found; write the 16 bytes of the key in hexadecimal",
                counted(key.len(), "byte")
            ))
        })?;
        Ok(Self::Key(HopKey::new(key)))
    }

    /// What is said about who made a hop field.
    fn of(&self, info: &InfoField, hop: &HopField, ids: &[u16]) -> String {
        match self {
            Self::Unknown => String::new(),
            Self::Key(key) if key.has_made(info, hop, ids) => "this key".to_owned(),
            Self::Key(_) => "another key".to_owned(),
            Self::Network(network) => {
                let has = |isd_as, interface| {
                    let mut ends = network.links().iter().flat_map(|link| link.ends);
                    interface == 0
                        || ends.any(|end| end.isd_as == isd_as && end.interface == interface)
                };
                let mut ases = network.ases().iter();
                let maker = ases.find(|one| {
                    one.key.has_made(info, hop, ids)
                        && has(one.isd_as, hop.ingress)
                        && has(one.isd_as, hop.egress)
                });
                maker.map_or("no AS of the network".to_owned(), |one| {
                    one.isd_as.to_string()
                })
            }
        }
    }
}

/// The bytes of a path: from a file if there is one of the name, else from hexadecimal digits.
fn bytes(text: &str) -> Result<Vec<u8>, String> {
    let contents = match document::read(Path::new(text)) {
        Ok(contents) => contents,
        Err(error) => {
            return hex(text).map_err(|message| {
                format!(
                    "\"{}\" is neither a path nor a file: {message}; as a file: {error}",
                    excerpt(text)
                )
            });
        }
    };
    let named = |message| format!("{text}: {message}");
    match str::from_utf8(&contents) {
        // No path has only bytes that are digits.
        Ok(digits) if !digits.contains('\0') => hex(digits).map_err(named),
        _ => Ok(contents),
    }
}

/// Times are in seconds since 1970.
fn to_json(path: &ScionPath<'_>, makers: &Makers) -> Value {
    let meta = path.meta();
    let ids = segment_ids(path);
    let mut hops = path.hops().zip(&ids);
    let mut first_expiry = u64::MAX;
    let segments = path.infos().zip(meta.segments).map(|(info, length)| {
        let hops = hops.by_ref().take(length.into()).map(|(hop, ids)| {
            let expires_at = expiry(&info, &hop);
            first_expiry = first_expiry.min(expires_at);
            let mut object = json!({
                "ingress": hop.ingress,
                "egress": hop.egress,
                "expires_at": expires_at,
                "mac": to_hex(&hop.mac),
                "ingress_alert": hop.ingress_alert,
                "egress_alert": hop.egress_alert,
            });
            if !matches!(makers, Makers::Unknown) {
                object["made"] = makers.of(&info, &hop, ids).into();
            }
            object
        });
        json!({
            "construction_direction": info.construction_direction,
            "peering": info.peering,
            "identifier": info.segment_id,
            "made_at": info.timestamp,
            "hops": hops.collect::<Vec<Value>>(),
        })
    });
    let segments: Vec<Value> = segments.collect();
    json!({
        "bytes": path.bytes().len(),
        "current_segment": meta.current_info,
        "current_hop": meta.current_hop,
        "expires_at": first_expiry,
        "segments": segments,
    })
}

/// `now` is in seconds since 1970.
fn show(path: &ScionPath<'_>, makers: &Makers, now: u64, out: &mut dyn Write) -> io::Result<()> {
    let meta = path.meta();
    writeln!(
        out,
        "SCION path, {} bytes, at segment {}, hop {}",
        path.bytes().len(),
        meta.current_info,
        meta.current_hop
    )?;
    let ids = segment_ids(path);
    let mut hops = path.hops().zip(&ids).enumerate();
    let mut first_expiry = u64::MAX;
    for (number, (info, length)) in path.infos().zip(meta.segments).enumerate() {
        let direction = if info.construction_direction {
            "in construction direction"
        } else {
            "against construction direction"
        };
        let peering = if info.peering { ", peering" } else { "" };
        writeln!(
            out,
            "\nsegment {number}: {direction}{peering}, identifier {:04x}, created {}",
            info.segment_id,
            rfc3339(info.timestamp.into())
        )?;
        let made = match makers {
            Makers::Unknown => "",
            _ => "SIGNED BY",
        };
        let mut table = Table::new(&[
            "", ">HOP", ">INGRESS", ">EGRESS", "EXPIRES", "MAC", "ALERT", made,
        ]);
        for (place, (hop, ids)) in hops.by_ref().take(length.into()) {
            let expiry = expiry(&info, &hop);
            first_expiry = first_expiry.min(expiry);
            let here = place == usize::from(meta.current_hop);
            table.row([
                if here { ">" } else { "" }.to_owned(),
                place.to_string(),
                hop.ingress.to_string(),
                hop.egress.to_string(),
                rfc3339(expiry),
                to_hex(&hop.mac),
                alert(&hop).to_owned(),
                makers.of(&info, &hop, ids),
            ]);
        }
        table.write(out)?;
    }
    let expires = if first_expiry <= now {
        "EXPIRED"
    } else {
        "expires"
    };
    writeln!(out, "\n{expires} {}", rfc3339(first_expiry))
}

/// Seconds since 1970.
fn expiry(info: &InfoField, hop: &HopField) -> u64 {
    sig_core::scion::network::Validity {
        timestamp: info.timestamp,
        expiry: hop.expiry,
    }
    .expires_at()
}

const fn alert(hop: &HopField) -> &'static str {
    match (hop.ingress_alert, hop.egress_alert) {
        (false, false) => "",
        (true, false) => "ingress",
        (false, true) => "egress",
        (true, true) => "both",
    }
}
