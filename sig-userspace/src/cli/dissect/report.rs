//! What `sig dissect` prints.

use std::collections::BTreeMap;
use std::io::{self, Write};

use pcap_file::DataLink;
use serde::Serialize;
use sig_common::reason::DropReason;
use sig_common::wire::sig_frame::NO_PACKET_STARTS;

use super::Format;
use super::assemble::{Became, Totals};
use super::capture::Packet;
use super::decode::{Decoded, Ends, Frame};
use super::srv6::{self, Srv6};
use crate::cli::table::Table;

/// Prints packets as they come and counts what it does not print.
pub(super) struct Report<'a> {
    format: Format,
    all: bool,
    ports: &'a [u16],
    out: &'a mut dyn Write,
    start: Option<u64>,
    lines: u64,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    packets: u64,
    frames: u64,
    frame_bytes: u64,
    scion: u64,
    fragments: u64,
    /// Packets of which the capture holds only the start, and which could not be decoded.
    cut: u64,
    bad_scion: u64,
    /// With a segment routing header.
    srv6: u64,
    bad_srv6: u64,
    /// Packets that an interface had, but that came faster than they were read.
    lost: u64,
    discards: BTreeMap<DropReason, u64>,
    /// UDP/SCION destination ports of other packets.
    other_ports: BTreeMap<u16, u64>,
    unknown_links: BTreeMap<u32, u64>,
}

/// A frame in JSON.
#[derive(Serialize)]
struct JsonFrame {
    time: f64,
    packet: u64,
    src_isd_as: String,
    dst_isd_as: String,
    src: String,
    dst: String,
    src_port: u16,
    dst_port: u16,
    session: u8,
    stream: u32,
    sequence: u64,
    index: u16,
    payload_len: usize,
    checksum_ok: bool,
    held: bool,
    completed: u32,
    discarded: Option<&'static str>,
}

impl<'a> Report<'a> {
    pub(super) fn new(format: Format, all: bool, ports: &'a [u16], out: &'a mut dyn Write) -> Self {
        Self {
            format,
            all,
            ports,
            out,
            start: None,
            lines: 0,
            counts: Counts::default(),
        }
    }

    /// Reports the next packet of the capture.
    pub(super) fn packet(
        &mut self,
        packet: &Packet,
        decoded: &Decoded<'_>,
        became: &Became,
    ) -> io::Result<()> {
        self.start.get_or_insert(packet.time);
        self.counts.packets += 1;
        let is_cut = packet.data.len() < packet.original_len as usize;
        match decoded {
            Decoded::Sig(frame) => {
                self.counts.frames += 1;
                self.counts.frame_bytes += frame.payload.len() as u64;
                self.counts.scion += 1;
                if !frame.checksum_ok && became.discarded == Some(DropReason::BadChecksum) {
                    self.discard(DropReason::BadChecksum);
                }
                self.lines += 1;
                match self.format {
                    Format::Human => self.human(packet, frame, became),
                    Format::Json => self.json(packet, frame, became),
                }
            }
            Decoded::BadFrame(ends, reason) => {
                self.counts.scion += 1;
                self.discard(*reason);
                self.other(
                    packet,
                    Some(ends),
                    &format!("no SIG frame: {}", reason.name()),
                )
            }
            Decoded::Scion(ends, what, port) => {
                self.counts.scion += 1;
                if let Some(port) = port {
                    *self.counts.other_ports.entry(*port).or_default() += 1;
                }
                self.other(packet, Some(ends), what)
            }
            Decoded::BadScion(_) | Decoded::Other if is_cut => {
                self.counts.cut += 1;
                Ok(())
            }
            Decoded::BadScion(what) => {
                self.counts.bad_scion += 1;
                self.other(packet, None, what)
            }
            Decoded::Srv6(srv6) => {
                if srv6.has_srh() {
                    self.counts.srv6 += 1;
                    self.counts.bad_srv6 += u64::from(srv6.is_malformed());
                } else if !self.all {
                    return Ok(());
                }
                self.srv6(packet, srv6)
            }
            Decoded::Fragment => {
                self.counts.fragments += 1;
                Ok(())
            }
            Decoded::Other => {
                if !is_known(packet.link) {
                    let number = u32::from(packet.link);
                    *self.counts.unknown_links.entry(number).or_default() += 1;
                }
                Ok(())
            }
        }
    }

    /// Lines printed so far, without the sums.
    pub(super) fn lines(&self) -> u64 {
        self.lines
    }

    /// Shows all that was printed.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// So many packets were lost before they were read.
    pub(super) fn lost(&mut self, count: u64) {
        self.counts.lost += count;
    }

    fn discard(&mut self, reason: DropReason) {
        *self.counts.discards.entry(reason).or_default() += 1;
    }

    /// Number and time since the first packet.
    fn prefix(&self, packet: &Packet) -> String {
        let start = self.start.unwrap_or(packet.time);
        let (sign, elapsed) = match packet.time.checked_sub(start) {
            Some(elapsed) => ("", elapsed),
            None => ("-", start - packet.time),
        };
        let elapsed = format!(
            "{sign}{}.{:06}",
            elapsed / 1_000_000_000,
            elapsed % 1_000_000_000 / 1000
        );
        format!("{:>6} {elapsed:>12}", packet.number)
    }

    fn srv6(&mut self, packet: &Packet, srv6: &Srv6<'_>) -> io::Result<()> {
        self.lines += 1;
        match self.format {
            Format::Human => {
                let prefix = self.prefix(packet);
                writeln!(self.out, "{prefix}  {}", srv6::text(srv6))
            }
            Format::Json => {
                serde_json::to_writer(&mut *self.out, &srv6::json(packet, srv6))?;
                writeln!(self.out)
            }
        }
    }

    fn human(&mut self, packet: &Packet, frame: &Frame<'_>, became: &Became) -> io::Result<()> {
        let ends = &frame.ends;
        let h = &frame.header;
        let index = match h.index {
            NO_PACKET_STARTS => "-".to_owned(),
            index => index.to_string(),
        };
        write!(
            self.out,
            "{}  {},{}:{} > {},{}:{}  session {} stream {} seq {} index {index} payload {} completed {}",
            self.prefix(packet),
            ends.source_isd_as,
            ends.source,
            frame.source_port,
            ends.destination_isd_as,
            ends.destination,
            frame.destination_port,
            h.session,
            h.stream,
            h.sequence,
            frame.payload.len(),
            became.completed,
        )?;
        if became.held {
            write!(self.out, ", waits for an earlier frame")?;
        }
        if !frame.checksum_ok {
            write!(self.out, ", checksum wrong")?;
        }
        if let Some(reason) = became.discarded {
            write!(self.out, ", {}", reason.name())?;
        }
        writeln!(self.out)
    }

    fn json(&mut self, packet: &Packet, frame: &Frame<'_>, became: &Became) -> io::Result<()> {
        let ends = &frame.ends;
        let object = JsonFrame {
            time: packet.seconds(),
            packet: packet.number,
            src_isd_as: ends.source_isd_as.to_string(),
            dst_isd_as: ends.destination_isd_as.to_string(),
            src: ends.source.to_string(),
            dst: ends.destination.to_string(),
            src_port: frame.source_port,
            dst_port: frame.destination_port,
            session: frame.header.session,
            stream: frame.header.stream,
            sequence: frame.header.sequence,
            index: frame.header.index,
            payload_len: frame.payload.len(),
            checksum_ok: frame.checksum_ok,
            held: became.held,
            completed: became.completed,
            discarded: became.discarded.map(DropReason::name),
        };
        serde_json::to_writer(&mut *self.out, &object)?;
        writeln!(self.out)
    }

    fn other(&mut self, packet: &Packet, ends: Option<&Ends>, what: &str) -> io::Result<()> {
        if !self.all || self.format == Format::Json {
            return Ok(());
        }
        self.lines += 1;
        let prefix = self.prefix(packet);
        match ends {
            Some(e) => writeln!(
                self.out,
                "{prefix}  {},{} > {},{}  {what}",
                e.source_isd_as, e.source, e.destination_isd_as, e.destination
            ),
            None => writeln!(self.out, "{prefix}  {what}"),
        }
    }

    /// Ends the human form with sums.
    pub(super) fn summary(&mut self, source: &str, totals: &Totals) -> io::Result<()> {
        if self.format == Format::Json {
            return Ok(());
        }
        let c = &self.counts;
        if c.packets > 0 && (self.lines > 0 || self.all) {
            writeln!(self.out)?;
        }
        writeln!(self.out, "{source}")?;
        let mut table = Table::new(&["", ">count", ""]);
        let mut row = |name: &str, count: u64, note: String| {
            table.row([name.to_owned(), count.to_string(), note]);
        };
        row("packets", c.packets, String::new());
        row("SCION packets", c.scion, String::new());
        row(
            "SIG frames",
            c.frames,
            format!("{} bytes of payload", c.frame_bytes),
        );
        if c.srv6 > 0 {
            let note = match c.bad_srv6 {
                0 => String::new(),
                malformed => format!("{malformed} of them malformed"),
            };
            row("SRv6 packets", c.srv6, note);
        }
        row("streams", totals.streams, String::new());
        row(
            "inner packets",
            totals.completed,
            format!("completed, {} bytes", totals.completed_bytes),
        );
        if totals.unfinished > 0 {
            row(
                "unfinished packets",
                totals.unfinished as u64,
                "their end is not in the capture".to_owned(),
            );
        }
        if totals.gaps > 0 {
            row(
                "gaps",
                totals.gaps,
                "missing frames in the middle of a stream".to_owned(),
            );
        }
        if c.fragments > 0 {
            row(
                "fragments",
                c.fragments,
                "of underlay packets, not decoded: lower the path MTU".to_owned(),
            );
        }
        if c.cut > 0 {
            row(
                "cut packets",
                c.cut,
                "truncated by the capture, not decoded: capture with \"tcpdump -s 0\"".to_owned(),
            );
        }
        if c.lost > 0 {
            row(
                "lost packets",
                c.lost,
                "came faster than they were read".to_owned(),
            );
        }
        if c.bad_scion > 0 {
            row(
                "malformed packets",
                c.bad_scion,
                "to the data port, but not SCION: --all shows them".to_owned(),
            );
        }
        for (link, count) in &c.unknown_links {
            row(
                "not decoded",
                *count,
                format!("link type {link}: capture Ethernet or raw IP"),
            );
        }
        table.write(self.out)?;

        let mut discards = Table::new(&["discards", ">count", "meaning"]);
        for reason in DropReason::ALL {
            let own = c.discards.get(&reason).copied().unwrap_or(0);
            let count = own + totals.discards[reason as usize];
            if count > 0 {
                discards.row([
                    reason.name().to_owned(),
                    count.to_string(),
                    reason.describe().to_owned(),
                ]);
            }
        }
        if !discards.is_empty() {
            writeln!(self.out)?;
            discards.write(self.out)?;
        }
        if c.frames == 0 && c.srv6 == 0 {
            self.no_frames()?;
        }
        Ok(())
    }

    /// What to try when nothing was found.
    fn no_frames(&mut self) -> io::Result<()> {
        let ports: Vec<_> = self.ports.iter().map(u16::to_string).collect();
        let ports = ports.join(", ");
        let others = &self.counts.other_ports;
        if others.is_empty() {
            return writeln!(
                self.out,
                "\nNo SIG frames to UDP/SCION port {ports}, and no other UDP/SCION packets: capture on the \
                 underlay interface of a gateway."
            );
        }
        let mut most: Vec<_> = others.iter().map(|(port, count)| (*count, *port)).collect();
        most.sort_by_key(|(count, port)| (std::cmp::Reverse(*count), *port));
        let list: Vec<_> = most
            .iter()
            .take(5)
            .map(|(count, port)| format!("{port} ({count})"))
            .collect();
        writeln!(
            self.out,
            "\nNo SIG frames to UDP/SCION port {ports}. UDP/SCION ports in the capture: {}. \
             Choose the data port of the gateways with --port.",
            list.join(", ")
        )
    }
}

/// Whether the link type is one that is decoded.
fn is_known(link: DataLink) -> bool {
    matches!(
        link,
        DataLink::ETHERNET
            | DataLink::RAW
            | DataLink::IPV4
            | DataLink::IPV6
            | DataLink::LINUX_SLL
            | DataLink::LINUX_SLL2
    )
}
