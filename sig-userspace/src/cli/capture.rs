//! `sig capture`: packets that enter and leave the data plane of a running gateway.

use std::{
    borrow::Cow,
    fs::File,
    io::{self, BufWriter, IsTerminal as _, Write},
    path::PathBuf,
    time::Duration,
};

use pcap_file::{
    DataLink, PcapError,
    pcapng::{
        PcapNgBlock as _, PcapNgWriter,
        blocks::{
            enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption},
            interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption},
        },
    },
};
use sig_core::{
    notation::{counted, from_base64},
    tap::{Line, MAX_SNAPLEN, Packet, Wanted},
};

use super::{
    Failure,
    socket::Choice,
    watch::{Limits, Watch, summary, time},
};

/// Show or record the packets that enter and leave the data plane of a running gateway, until interrupted: those of the hosts (inner), SIG
/// frames (outer), and what is dropped.
///
/// Meanwhile all packets go through the workers, not the fast path in the kernel, unless only drops are wanted. What does not fit the queue of
/// the capture is left out, and counted.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Which packets: host, src, dst, net, port, proto and remote with a value, joined by and, or, not and parentheses; for example: host
    /// 10.1.0.5 and port 443.
    filter: Vec<String>,
    /// Packets of the hosts. Without --inner, --outer and --drops: all three.
    #[arg(long)]
    inner: bool,
    /// SIG frames.
    #[arg(long)]
    outer: bool,
    /// What is dropped, with the reason.
    #[arg(long)]
    drops: bool,
    /// Write a pcapng file for Wireshark and tcpdump; "-": to the standard output. It grows until the capture ends: see --count, --seconds
    /// and --snaplen.
    #[arg(short, long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Bytes of each packet that are kept.
    #[arg(short, long, value_name = "BYTES", default_value_t = MAX_SNAPLEN, value_parser = snaplen)]
    snaplen: usize,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    gateway: Choice,
}

fn snaplen(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(bytes) if (64..=MAX_SNAPLEN).contains(&bytes) => Ok(bytes),
        _ => Err(format!("write a number of bytes from 64 to {MAX_SNAPLEN}")),
    }
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let all = !(args.inner || args.outer || args.drops);
    let wanted = Wanted {
        inner: args.inner || all,
        outer: args.outer || all,
        drops: args.drops || all,
        filter: args.filter.join(" "),
        snaplen: args.snaplen,
        drops_per_second: 0,
    };
    wanted
        .filter
        .parse::<sig_core::tap::Filter>()
        .map_err(|error| Failure::Refused(error.to_string()))?;
    let to_stdout = args
        .write
        .as_deref()
        .is_some_and(|path| path.as_os_str() == "-");
    if to_stdout && io::stdout().is_terminal() {
        return Err(Failure::Refused(
            "the standard output is a terminal: pipe it into \"tcpdump -r -\" or \"wireshark -k -i -\"".to_owned(),
        ));
    }
    let socket = args.gateway.socket()?;
    let mut watch = Watch::begin(&socket, &wanted, &args.limits, "capture")?;
    let result = match &args.write {
        None => show(&mut watch, out),
        Some(_) if to_stdout => record(&mut watch, out, args.snaplen, "the standard output"),
        Some(path) => {
            let shown = path.display().to_string();
            let file = File::create(path)
                .map_err(|error| Failure::Failed(format!("{shown}: cannot be written: {error}")))?;
            let mut file = BufWriter::new(file);
            record(&mut watch, &mut file, args.snaplen, &shown)
        }
    };
    let packets = counted(usize::try_from(watch.seen).unwrap_or(usize::MAX), "packet");
    let missed = match watch.missed {
        0 => String::new(),
        count => format!(", {count} more were too many to be captured: use a filter"),
    };
    let _ = writeln!(io::stderr(), "{packets}{missed}");
    result
}

/// A line for each packet.
fn show(watch: &mut Watch, out: &mut dyn Write) -> Result<(), Failure> {
    while let Some(line) = watch.next(|| Ok(out.flush()?))? {
        match &line {
            Line::Packet(packet) => {
                let data = from_base64(&packet.data).unwrap_or_default();
                writeln!(out, "{} {}", time(packet.at), text(packet, &data))?;
            }
            Line::Dropped {
                at,
                reason,
                place,
                count,
            } => writeln!(
                out,
                "{} drop {} without a copy, {place}, {reason}",
                time(*at),
                counted(usize::try_from(*count).unwrap_or(usize::MAX), "packet"),
            )?,
            Line::More { .. } | Line::Alive { .. } => {}
        }
    }
    Ok(out.flush()?)
}

fn text(packet: &Packet, data: &[u8]) -> String {
    let Packet {
        interface,
        event,
        kind,
        length,
        ..
    } = packet;
    let comment = comment(packet);
    let separator = if comment.is_empty() { "" } else { ", " };
    format!(
        "{event} {interface} {kind} {}, {length} bytes{separator}{comment}",
        summary(data)
    )
}

/// What is known of a packet beside its bytes.
fn comment(packet: &Packet) -> String {
    let mut parts = Vec::new();
    if let Some(reason) = &packet.reason {
        parts.push(format!("dropped: {reason}"));
    }
    if let Some(remote) = &packet.remote {
        parts.push(format!("remote {remote}"));
    }
    if let Some(session) = packet.session {
        parts.push(format!("session {session}"));
    }
    if let Some(path) = &packet.path {
        parts.push(format!("path {path}"));
    }
    if let (Some(stream), Some(sequence)) = (packet.stream, packet.sequence) {
        parts.push(format!("stream {stream} frame {sequence}"));
    }
    parts.join(", ")
}

fn record(
    watch: &mut Watch,
    out: &mut dyn Write,
    snaplen: usize,
    shown: &str,
) -> Result<(), Failure> {
    let mut file = Recording::new(out, snaplen).map_err(|error| failed(error, shown))?;
    loop {
        let line = watch.next(|| file.flush().map_err(|error| failed(error, shown)))?;
        let Some(line) = line else {
            break;
        };
        if let Line::Packet(packet) = line {
            file.write(&packet).map_err(|error| failed(error, shown))?;
        }
    }
    // A file without interfaces is none for tcpdump.
    if file.interfaces.is_empty() {
        file.interface("?").map_err(|error| failed(error, shown))?;
    }
    file.flush().map_err(|error| failed(error, shown))
}

fn failed(error: PcapError, shown: &str) -> Failure {
    match error {
        PcapError::IoError(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            Failure::OutputClosed
        }
        PcapError::IoError(error) => {
            Failure::Failed(format!("{shown}: cannot be written: {error}"))
        }
        error => Failure::Failed(format!("{shown}: cannot be written: {error}")),
    }
}

/// A pcapng file. All interfaces are Ethernet with the same length, as tcpdump wants it.
struct Recording<'a> {
    writer: PcapNgWriter<&'a mut dyn Write>,
    snaplen: u32,
    interfaces: Vec<String>,
}

impl<'a> Recording<'a> {
    fn new(out: &'a mut dyn Write, snaplen: usize) -> Result<Self, PcapError> {
        Ok(Recording {
            writer: PcapNgWriter::new(out)?,
            snaplen: u32::try_from(snaplen).unwrap_or(u32::MAX),
            interfaces: Vec::new(),
        })
    }

    fn interface(&mut self, name: &str) -> Result<u32, PcapError> {
        if let Some(place) = self.interfaces.iter().position(|known| known == name) {
            return Ok(place as u32);
        }
        /// Timestamps in nanoseconds.
        const NANOSECONDS: u8 = 9;
        let block = InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: self.snaplen,
            options: vec![
                InterfaceDescriptionOption::IfName(Cow::Borrowed(name)),
                InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
            ],
        };
        self.writer.write_block(&block.into_block())?;
        self.interfaces.push(name.to_owned());
        Ok((self.interfaces.len() - 1) as u32)
    }

    fn write(&mut self, packet: &Packet) -> Result<(), PcapError> {
        let Ok(data) = from_base64(&packet.data) else {
            return Ok(());
        };
        let name = match packet.interface.as_str() {
            "" => "?",
            name => name,
        };
        let comment = format!("{} {name} {}", packet.event, packet.kind);
        let comment = match self::comment(packet) {
            more if more.is_empty() => comment,
            more => format!("{comment}, {more}"),
        };
        let block = EnhancedPacketBlock {
            interface_id: self.interface(name)?,
            timestamp: Duration::from_nanos(packet.at),
            original_len: packet.length,
            data: Cow::Borrowed(&data),
            options: vec![EnhancedPacketOption::Comment(Cow::Owned(comment))],
        };
        self.writer.write_block(&block.into_block())?;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), PcapError> {
        self.writer.get_mut().flush().map_err(PcapError::IoError)
    }
}

#[cfg(test)]
mod tests {
    use pcap_file::pcapng::{Block, PcapNgReader};
    use sig_core::notation::base64;

    use super::*;

    fn packet() -> Packet {
        Packet {
            at: 1_700_000_000_123_456_789,
            interface: "lan0".to_owned(),
            event: "in".to_owned(),
            kind: "inner".to_owned(),
            worker: Some(1),
            remote: Some("1-ff00:0:111".to_owned()),
            session: Some(3),
            path: Some("north".to_owned()),
            length: 1514,
            data: base64(&[1; 61]),
            ..Packet::default()
        }
    }

    #[test]
    fn a_recording_holds_time_interface_and_comment() {
        let mut out = Vec::new();
        let mut file = Recording::new(&mut out, 64).expect("written");
        let mut dropped = packet();
        dropped.interface = "wan0".to_owned();
        dropped.reason = Some("no_path".to_owned());
        "drop".clone_into(&mut dropped.event);
        for packet in [&packet(), &dropped, &packet()] {
            file.write(packet).expect("written");
        }
        let mut reader = PcapNgReader::new(&out[..]).expect("a header");
        let (mut interfaces, mut packets) = (Vec::new(), Vec::new());
        while let Some(block) = reader.next_block() {
            match block.expect("a block") {
                Block::InterfaceDescription(block) => {
                    assert_eq!((block.linktype, block.snaplen), (DataLink::ETHERNET, 64));
                    interfaces.push(format!("{:?}", block.options[0]));
                }
                Block::EnhancedPacket(block) => {
                    assert_eq!((block.data.len(), block.original_len), (61, 1514));
                    packets.push((block.interface_id, format!("{:?}", block.options)));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(interfaces, ["IfName(\"lan0\")", "IfName(\"wan0\")"]);
        let passing = "[Comment(\"in lan0 inner, remote 1-ff00:0:111, session 3, path north\")]";
        assert_eq!(packets[0], (0, passing.to_owned()));
        assert_eq!(packets[2].0, 0);
        let dropped = "[Comment(\"drop wan0 inner, dropped: no_path, remote 1-ff00:0:111, session 3, path north\")]";
        assert_eq!(packets[1], (1, dropped.to_owned()));
    }

    #[test]
    fn a_line_says_what_is_known() {
        let mut frame = vec![0; 14];
        frame.extend([
            0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 0, 5, 10, 2, 0, 6,
        ]);
        frame.extend([0, 53, 0, 80, 0, 0, 0, 0]);
        assert_eq!(
            text(&packet(), &frame),
            "in lan0 inner 10.1.0.5 -> 10.2.0.6 UDP 53 -> 80, 1514 bytes, remote 1-ff00:0:111, session 3, path north"
        );
    }
}
