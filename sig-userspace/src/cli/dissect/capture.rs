//! Reads packets from pcap and pcapng files.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};

/// A captured packet.
pub(super) struct Packet {
    /// Number in the capture, counted from 1.
    pub(super) number: u64,
    /// Nanoseconds since 1970; 0 where the capture tells no time.
    pub(super) time: u64,
    /// What the bytes start with.
    pub(super) link: DataLink,
    /// The bytes that were captured.
    pub(super) data: Vec<u8>,
    /// Bytes on the wire.
    pub(super) original_len: u32,
}

impl Packet {
    /// The time as a JSON number: seconds since 1970.
    pub(super) fn seconds(&self) -> f64 {
        // Microseconds of today fit a double, nanoseconds do not.
        (self.time / 1000) as f64 / 1e6
    }
}

/// Why there are no more packets.
pub(super) enum Ended {
    /// The end of the file, or the user's wish.
    Complete,
    /// The file is damaged or cut off, or the interface went away: where and how.
    Broken(String),
}

/// A capture file, read packet by packet.
pub(super) struct Capture {
    format: Format,
    packets: u64,
}

enum Format {
    Pcap(PcapReader<Box<dyn Read>>),
    PcapNg(PcapNgReader<Box<dyn Read>>),
}

impl Capture {
    /// Opens the file, or the standard input for `-`.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        if path == Path::new("-") {
            return Self::new(Box::new(io::stdin()));
        }
        let file = File::open(path).map_err(|e| format!("cannot be read: {e}"))?;
        Self::new(Box::new(file))
    }

    /// Recognises the format by its first bytes.
    pub(super) fn new(mut reader: Box<dyn Read>) -> Result<Self, String> {
        let mut magic = Vec::with_capacity(4);
        reader
            .by_ref()
            .take(4)
            .read_to_end(&mut magic)
            .map_err(|e| format!("cannot be read: {e}"))?;
        let found: [u8; 4] = match magic[..].try_into() {
            Ok(found) => found,
            Err(_) => return Err("too short for a capture file; is it empty?".to_owned()),
        };
        let reader: Box<dyn Read> = Box::new(io::Cursor::new(magic).chain(reader));
        let header = |e: PcapError| match e {
            PcapError::IoError(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                "truncated within its header".to_owned()
            }
            e => format!("its header is corrupt: {}", describe(&e)),
        };
        let format = match found {
            [0xa1, 0xb2, 0xc3, 0xd4]
            | [0xd4, 0xc3, 0xb2, 0xa1]
            | [0xa1, 0xb2, 0x3c, 0x4d]
            | [0x4d, 0x3c, 0xb2, 0xa1] => Format::Pcap(PcapReader::new(reader).map_err(header)?),
            [0x0a, 0x0d, 0x0d, 0x0a] => Format::PcapNg(PcapNgReader::new(reader).map_err(header)?),
            [0x1f, 0x8b, ..] => {
                return Err("compressed with gzip; decompress it first, with \"gunzip\"".to_owned());
            }
            _ => {
                return Err("neither pcap nor pcapng; capture with \"tcpdump -w FILE\"".to_owned());
            }
        };
        Ok(Self { format, packets: 0 })
    }

    /// A unit of time that holds all times of the capture.
    pub(super) fn resolution(&self) -> TsResolution {
        match &self.format {
            Format::Pcap(reader) => reader.header().ts_resolution,
            // Each interface has its own, which may come late in the file.
            Format::PcapNg(_) => TsResolution::NanoSecond,
        }
    }

    /// The next packet, or why there is none.
    pub(super) fn next(&mut self) -> Result<Packet, Ended> {
        let number = self.packets + 1;
        let next = match &mut self.format {
            Format::Pcap(reader) => next_of_pcap(reader),
            Format::PcapNg(reader) => next_of_pcapng(reader),
        };
        match next {
            Ok(Some(packet)) => {
                self.packets = number;
                Ok(Packet { number, ..packet })
            }
            Ok(None) => Err(Ended::Complete),
            Err(error) => {
                let message = format!(
                    "packet {number}: {error}; {} packets before it were read",
                    self.packets
                );
                Err(Ended::Broken(message))
            }
        }
    }
}

fn next_of_pcap(reader: &mut PcapReader<Box<dyn Read>>) -> Result<Option<Packet>, String> {
    let header = reader.header();
    // The raw form: the checked one refuses packets longer than the snapshot length, which are what
    // a snapshot length makes.
    let Some(packet) = reader.next_raw_packet() else {
        return Ok(None);
    };
    let packet = packet.map_err(|e| describe(&e))?;
    let unit = match header.ts_resolution {
        TsResolution::MicroSecond => 1_000,
        TsResolution::NanoSecond => 1,
    };
    Ok(Some(Packet {
        number: 0,
        time: u64::from(packet.ts_sec) * 1_000_000_000 + u64::from(packet.ts_frac) * unit,
        link: header.datalink,
        original_len: packet.orig_len,
        data: packet.data.into_owned(),
    }))
}

fn next_of_pcapng(reader: &mut PcapNgReader<Box<dyn Read>>) -> Result<Option<Packet>, String> {
    loop {
        let Some(block) = reader.next_block() else {
            return Ok(None);
        };
        // What the file says: units and time zone of the clock belong to the interface.
        let (interface, ticks, original_len, data, swapped) =
            match block.map_err(|e| describe(&e))? {
                Block::EnhancedPacket(b) => {
                    // The reader takes the ticks for nanoseconds.
                    let ticks = u64::try_from(b.timestamp.as_nanos()).unwrap_or(u64::MAX);
                    (
                        b.interface_id,
                        Some(ticks),
                        b.original_len,
                        b.data.into_owned(),
                        false,
                    )
                }
                Block::SimplePacket(b) => {
                    let mut data = b.data.into_owned();
                    // Padding is not told from data but by the length on the wire.
                    data.truncate(b.original_len as usize);
                    (0, None, b.original_len, data, false)
                }
                Block::Packet(b) => (
                    u32::from(b.interface_id),
                    Some(b.timestamp),
                    b.original_len,
                    b.data.into_owned(),
                    true,
                ),
                _ => continue,
            };
        // High and low half of the ticks, each in the byte order of the section.
        let swap = swapped && reader.section().endianness == Endianness::Little;
        let ticks = ticks.map(|t| if swap { t.rotate_left(32) } else { t });
        let Some(description) = reader.interfaces().get(interface as usize) else {
            return Err(format!(
                "it refers to interface {interface}, which the file does not describe"
            ));
        };
        let mut resolution = 6;
        let mut offset = 0;
        for option in &description.options {
            match option {
                InterfaceDescriptionOption::IfTsResol(value) => resolution = *value,
                InterfaceDescriptionOption::IfTsOffset(seconds) => offset = *seconds,
                _ => {}
            }
        }
        let mut data = data;
        if description.snaplen > 0 && ticks.is_none() {
            data.truncate(description.snaplen as usize);
        }
        let time = match ticks {
            None => 0,
            Some(ticks) => nanoseconds(ticks, resolution)
                .and_then(|t| t.checked_add(offset.checked_mul(1_000_000_000)?))
                .ok_or("its timestamp is out of range")?,
        };
        return Ok(Some(Packet {
            number: 0,
            time,
            link: description.linktype,
            data,
            original_len,
        }));
    }
}

/// Ticks of a clock with the resolution of an `if_tsresol` option: a power of ten, or of two with
/// the high bit set.
fn nanoseconds(ticks: u64, resolution: u8) -> Option<u64> {
    let exponent = u32::from(resolution & 0x7f);
    let base: u128 = if resolution & 0x80 == 0 { 10 } else { 2 };
    let per_second = base.checked_pow(exponent)?;
    let time = u128::from(ticks) * 1_000_000_000 / per_second;
    u64::try_from(time).ok()
}

fn describe(error: &PcapError) -> String {
    match error {
        PcapError::IoError(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
            "the file is truncated or corrupt".to_owned()
        }
        PcapError::IoError(e) => e.to_string(),
        PcapError::InvalidField(what) => format!("the file is corrupt ({what})"),
        other => format!("the file is corrupt ({other})"),
    }
}

#[cfg(test)]
mod tests {
    use super::nanoseconds;

    #[test]
    fn clocks_tick_in_powers_of_ten_or_two() {
        assert_eq!(nanoseconds(1_500_000, 6), Some(1_500_000_000));
        assert_eq!(nanoseconds(7, 9), Some(7));
        assert_eq!(nanoseconds(3, 0x80 | 1), Some(1_500_000_000));
        assert_eq!(nanoseconds(u64::MAX, 0), None);
        assert_eq!(nanoseconds(1, 127), None);
        assert_eq!(nanoseconds(1, 0xff), Some(0));
    }
}
