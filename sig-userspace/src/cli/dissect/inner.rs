//! Writes completed inner packets to a raw-IP pcap file.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, Endianness, TsResolution};

/// Longest inner packet: an IPv6 header and the largest payload length.
const LONGEST: u32 = 65_575;

/// The output file.
pub(super) struct InnerFile {
    path: PathBuf,
    writer: PcapWriter<BufWriter<File>>,
}

impl InnerFile {
    /// Creates the file, or empties it; refuses the capture that is being read, if that is a file.
    pub(super) fn create(
        path: &Path,
        capture: Option<&Path>,
        resolution: TsResolution,
    ) -> Result<Self, String> {
        let shown = path.display();
        if let Some(capture) = capture
            && let (Ok(out), Ok(input)) = (fs::canonicalize(path), fs::canonicalize(capture))
            && out == input
        {
            return Err(format!(
                "{shown}: is the capture itself; choose another file for --inner"
            ));
        }
        let file = File::create(path).map_err(|e| format!("{shown}: cannot be written: {e}"))?;
        let header = PcapHeader {
            datalink: DataLink::RAW,
            snaplen: LONGEST,
            ts_resolution: resolution,
            endianness: Endianness::Little,
            ..PcapHeader::default()
        };
        let writer = PcapWriter::with_header(BufWriter::new(file), header)
            .map_err(|e| format!("{shown}: cannot be written: {e}"))?;
        Ok(Self {
            path: path.to_owned(),
            writer,
        })
    }

    /// Appends an inner packet, completed at `time` (nanoseconds since 1970).
    pub(super) fn write(&mut self, time: u64, packet: &[u8]) -> Result<(), String> {
        let len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
        let record = PcapPacket::new(Duration::from_nanos(time), len, packet);
        match self.writer.write_packet(&record) {
            Ok(_) => Ok(()),
            Err(error) => Err(format!(
                "{}: cannot be written: {error}",
                self.path.display()
            )),
        }
    }

    /// Writes out what is buffered.
    pub(super) fn finish(self) -> Result<(), String> {
        let mut file = self.writer.into_writer();
        file.flush()
            .map_err(|e| format!("{}: cannot be written: {e}", self.path.display()))
    }
}
