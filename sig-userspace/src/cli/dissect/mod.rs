//! `sig dissect`: decodes SCION/SIG traffic in a capture file.

mod assemble;
mod capture;
mod decode;
mod inner;
mod report;

#[cfg(test)]
mod tests;

use std::io::Write;
use std::path::PathBuf;

use super::Failure;
use super::notation::{Format, Notation};
use crate::control::config::DEFAULT_DATA_PORT;
use assemble::{Assembler, Became};
use capture::{Capture, Ended};
use decode::Decoded;
use inner::InnerFile;
use report::Report;

/// Decode SCION/SIG traffic in a capture file.
///
/// Prints one line per SIG frame, that is, per SCION packet to the UDP data port of the gateways, in
/// capture order. Frames are reassembled and reordered as in a gateway; each line shows how many inner
/// packets the frame completed.
///
/// Reads pcap and pcapng with Ethernet, raw IP or Linux "cooked" link types.
#[derive(clap::Args)]
#[command(
    after_help = "JSON: one object per line and frame, with time (seconds since 1970, to the microsecond), \
     packet (number in the capture, from 1), src_isd_as, dst_isd_as, src, dst, src_port, dst_port, session, \
     stream, sequence, index (65535: no packet starts in the frame), payload_len (bytes after the 16-byte \
     SIG header), checksum_ok, held (the frame waits for an earlier one), completed (inner packets that \
     this frame completed), discarded (null, or why part of the frame was discarded)."
)]
pub(super) struct Args {
    /// The capture file, pcap or pcapng; "-" reads standard input.
    #[arg(value_name = "FILE.pcap")]
    file: PathBuf,
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
    /// Also print a line for every other SCION packet (not with --json).
    #[arg(long)]
    all: bool,
    /// Reassemble frames even if their UDP/SCION checksum is wrong.
    #[arg(long)]
    ignore_checksums: bool,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let shown = args.file.display();
    let mut capture =
        Capture::open(&args.file).map_err(|e| Failure::Failed(format!("{shown}: {e}")))?;
    let inner = match &args.inner {
        Some(path) => Some(
            InnerFile::create(path, &args.file, capture.resolution()).map_err(Failure::Failed)?,
        ),
        None => None,
    };
    let mut assembler = Assembler::new(inner).map_err(Failure::Failed)?;
    let mut report = Report::new(args.notation.format(), args.all, &args.ports, out);
    let ended = loop {
        let packet = match capture.next() {
            Ok(packet) => packet,
            Err(ended) => break ended,
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
    let totals = assembler.finish().map_err(Failure::Failed)?;
    report.summary(&shown.to_string(), &totals)?;
    match ended {
        Ended::Complete => Ok(()),
        Ended::Broken(message) => Err(Failure::Failed(format!("{shown}: {message}"))),
    }
}
