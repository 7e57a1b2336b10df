//! Files that are no captures, or damaged ones.

use proptest::prelude::*;

use super::*;

/// The message for a file with these contents, without the name of the file.
fn message(contents: &[u8]) -> String {
    let file = File::with(contents);
    let message = dissect(&[&file.0]).1.unwrap_err();
    message
        .strip_prefix(&format!("{}: ", file.0))
        .unwrap()
        .to_owned()
}

#[test]
fn what_is_no_capture() {
    assert_eq!(message(b""), "too short for a capture file; is it empty?");
    assert_eq!(
        message(b"hello"),
        "neither pcap nor pcapng; capture with \"tcpdump -w FILE\""
    );
    assert_eq!(
        message(b"\x1f\x8b\x08\x00"),
        "compressed with gzip; decompress it first, with \"gunzip\""
    );
    assert_eq!(message(b"\xd4\xc3\xb2\xa1"), "truncated within its header");
    assert_eq!(
        dissect(&["/nowhere/a.pcap"]).1.unwrap_err(),
        "/nowhere/a.pcap: cannot be read: No such file or directory (os error 2)"
    );
}

#[test]
fn a_capture_that_is_cut_off_after_reporting_what_was_read() {
    let whole = std::fs::read(captured("data-single-v4")).unwrap();
    let file = File::with(&whole[..whole.len() - 1]);
    let (out, result) = dissect(&[&file.0]);
    assert_eq!(
        result.unwrap_err(),
        format!(
            "{}: packet 40: the file is truncated or corrupt; 39 packets before it were read",
            file.0
        )
    );
    assert!(
        out.contains("\n  SIG frames        39  3276 bytes of payload\n"),
        "{out}"
    );
}

#[test]
fn to_overwrite_the_capture() {
    let file = File::with(&pcap(&[]));
    assert_eq!(
        dissect(&[&file.0, "--inner", &file.0]).1.unwrap_err(),
        format!(
            "{}: is the capture itself; choose another file for --inner",
            file.0
        )
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Damage anywhere in a capture is no reason to panic.
    #[test]
    fn damaged_captures_are_survived(
        damage in proptest::collection::vec((0usize..60_000, any::<u8>()), 1..40),
        cut in 0usize..70_000,
    ) {
        let mut bytes = std::fs::read(captured("data-fragmented-v4")).unwrap();
        for (at, value) in damage {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        bytes.truncate(cut.max(24));
        let file = File::with(&bytes);
        let _ = dissect(&[&file.0, "--all"]);
    }

    /// Neither is damage in a pcapng.
    #[test]
    fn damaged_pcapng_is_survived(
        damage in proptest::collection::vec((0usize..300, any::<u8>()), 0..6),
        cut in 12usize..400,
    ) {
        let mut writer = PcapNgWriter::new(Vec::new()).unwrap();
        let link = InterfaceDescriptionBlock {
            linktype: DataLink::RAW,
            snaplen: 0,
            options: vec![InterfaceDescriptionOption::IfTsResol(9)],
        };
        writer.write_pcapng_block(link).unwrap();
        for sequence in 0..2 {
            let data = frame(sequence, 0, &inner(40, 1));
            let packet = EnhancedPacketBlock {
                interface_id: 0,
                timestamp: Duration::from_nanos(sequence),
                original_len: data.len() as u32,
                data: data.into(),
                options: vec![],
            };
            writer.write_pcapng_block(packet).unwrap();
        }
        let mut bytes = writer.into_inner();
        for (at, value) in damage {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        bytes.truncate(cut);
        let file = File::with(&bytes);
        let _ = dissect(&[&file.0, "--all"]);
    }
}
