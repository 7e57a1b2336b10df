//! `sig dissect`: decodes SCION/SIG and SRv6 traffic in a capture file, or on an interface.

mod assemble;
mod capture;
mod decode;
mod inner;
pub(super) mod live;
mod report;
mod srv6;

#[cfg(test)]
mod tests;

use std::io::Write;
use std::path::{Path, PathBuf};

use pcap_file::TsResolution;

use super::Failure;
use super::notation::{Format, Notation};
use crate::control::config::DEFAULT_DATA_PORT;
use assemble::{Assembler, Became};
use capture::{Capture, Ended, Packet};
use decode::Decoded;
use inner::InnerFile;
use live::Live;
use report::Report;

/// Decode SCION/SIG and SRv6 traffic in a capture file or on an interface.
///
/// Prints one line per SIG frame, that is, per SCION packet to the UDP data port of the gateways, in
/// capture order. Frames are reassembled and reordered as in a gateway; each line shows how many inner
/// packets the frame completed.
///
/// Prints one line per IPv6 packet with a segment routing header (SRH, RFC 8754), unless it carries SCION: the
/// segments in the order of the way, the active one in brackets, and the packet inside.
///
/// Reads pcap and pcapng with Ethernet, raw IP or Linux "cooked" link types; or, with --interface, the packets
/// that an interface of this host receives and sends, except those that an XDP program takes before.
#[derive(clap::Args)]
#[command(
    after_help = "JSON: one object per line and frame, with time (seconds since 1970, to the microsecond), \
     packet (number in the capture, from 1), src_isd_as, dst_isd_as, src, dst, src_port, dst_port, session, \
     stream, sequence, index (65535: no packet starts in the frame), payload_len (bytes after the 16-byte \
     SIG header), checksum_ok, held (the frame waits for an earlier one), completed (inner packets that \
     this frame completed), discarded (null, or why part of the frame was discarded).\n\n\
     JSON of other packets has a field kind: \"srv6\" for packets with an SRH, and, with --all, \"ipv6_tunnel\" \
     for IPv4, IPv6 and Ethernet in IPv6 without one. Its other fields: time, packet, src, dst, traffic_class, \
     flow_label and hop_limit of the IPv6 header; segments (in the order of the way), active (index of the active \
     one, from 0), reduced (the first segment is the destination address, and not in the list), segments_left, \
     last_entry, flags, tag, tlvs (objects with type, length (bytes with type and length), key_id and d (of an HMAC), \
     value (hexadecimal)), next_header (behind the SRH); inner: kind (\"ipv4\", \"ipv6\", \"ethernet\", \"upper_layer\", \
     \"fragment\"), src_mac, dst_mac, vlans, ethertype, src, dst, protocol, src_port, dst_port, length (bytes); \
     error (null, or what is malformed). What a packet does not have is null."
)]
pub(super) struct Args {
    /// The capture file, pcap or pcapng; "-" reads standard input.
    #[arg(
        value_name = "FILE.pcap",
        required_unless_present = "interface",
        conflicts_with = "interface"
    )]
    file: Option<PathBuf>,
    /// Read the packets of this interface, until SIGINT or SIGTERM; needs CAP_NET_RAW. Nothing is sent or changed.
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// End after this many printed lines.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    #[command(flatten)]
    notation: Notation,
    /// Write every inner packet that could be completed to this file, in order of completion, as
    /// raw-IP pcap (link type 101) with the time of the frame that completed it.
    #[arg(long, value_name = "OUT.pcap")]
    inner: Option<PathBuf>,
    /// UDP/SCION destination port of SIG frames; may be given several times.
    #[arg(long = "port", value_name = "PORT", default_values_t = [DEFAULT_DATA_PORT],
          value_parser = clap::value_parser!(u16).range(1..))]
    ports: Vec<u16>,
    /// Also print a line for every other SCION packet (not with --json), and for IPv4, IPv6 and Ethernet in IPv6
    /// without a segment routing header.
    #[arg(long)]
    all: bool,
    /// Reassemble frames even if their UDP/SCION checksum is wrong.
    #[arg(long)]
    ignore_checksums: bool,
}

/// Where packets come from.
enum Source {
    File(Capture),
    Interface(Live),
}

impl Source {
    /// Opens what the arguments ask for; with its name in messages.
    fn open(args: &Args) -> Result<(Self, String), Failure> {
        if let Some(interface) = &args.interface {
            let live = Live::open(interface).map_err(Failure::Failed)?;
            return Ok((Self::Interface(live), interface.clone()));
        }
        // The command line has one of both.
        let file = args.file.as_deref().unwrap_or(Path::new("-"));
        let shown = file.display().to_string();
        match Capture::open(file) {
            Ok(capture) => Ok((Self::File(capture), shown)),
            Err(error) => Err(Failure::Failed(format!("{shown}: {error}"))),
        }
    }

    /// A unit of time that holds all times of the packets.
    fn resolution(&self) -> TsResolution {
        match self {
            Self::File(capture) => capture.resolution(),
            Self::Interface(_) => TsResolution::NanoSecond,
        }
    }

    /// The next packet. While there is none, `idle` is called.
    fn next(&mut self, mut idle: impl FnMut() -> Result<(), Failure>) -> Result<Packet, Stop> {
        let live = match self {
            Self::File(capture) => return capture.next().map_err(Stop::Ended),
            Self::Interface(live) => live,
        };
        loop {
            if let Some(packet) = live.next().map_err(Stop::Ended)? {
                return Ok(packet);
            }
            idle().map_err(Stop::Failed)?;
            live.wait().map_err(Stop::Ended)?;
        }
    }
}

/// Why the next packet is not read.
enum Stop {
    Ended(Ended),
    Failed(Failure),
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let (mut source, shown) = Source::open(args)?;
    let inner = match &args.inner {
        Some(path) => Some(
            InnerFile::create(path, args.file.as_deref(), source.resolution())
                .map_err(Failure::Failed)?,
        ),
        None => None,
    };
    let mut assembler = Assembler::new(inner).map_err(Failure::Failed)?;
    let mut report = Report::new(args.notation.format(), args.all, &args.ports, out);
    let ended = loop {
        if args.count.is_some_and(|count| report.lines() >= count) {
            break Ended::Complete;
        }
        let packet = match source.next(|| Ok(report.flush()?)) {
            Ok(packet) => packet,
            Err(Stop::Ended(ended)) => break ended,
            Err(Stop::Failed(failure)) => return Err(failure),
        };
        let decoded = decode::packet(packet.link, &packet.data, &args.ports);
        let became = match &decoded {
            Decoded::Sig(frame) if frame.checksum_ok || args.ignore_checksums => {
                assembler.insert(packet.time, frame)
            }
            Decoded::Sig(_) => Became::bad_checksum(),
            _ => Became::default(),
        };
        if let Some(error) = assembler.write_error() {
            return Err(Failure::Failed(error));
        }
        report.packet(&packet, &decoded, &became)?;
    };
    if let Source::Interface(live) = &source {
        report.lost(live.lost());
    }
    let totals = assembler.finish().map_err(Failure::Failed)?;
    report.summary(&shown, &totals)?;
    match ended {
        Ended::Complete => Ok(()),
        Ended::Broken(message) => Err(Failure::Failed(format!("{shown}: {message}"))),
    }
}
