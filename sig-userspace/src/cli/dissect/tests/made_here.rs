//! Captures made here: lost, late and damaged frames, formats.

use super::*;

#[test]
fn frames_that_overtook_each_other_are_put_in_order() {
    let packet = inner(300, 1);
    let file = File::with(&pcap(&[
        frame(0, 0, &inner(100, 0)),
        frame(2, 100, &packet[200..]),
        frame(1, 0, &packet[..200]),
    ]));
    let out = File::new();
    let text = good(&[&file.0, "--inner", &out.0]);
    let lines: Vec<_> = text.lines().take(3).collect();
    assert!(
        lines[1].ends_with("seq 2 index 100 payload 100 completed 0, waits for an earlier frame"),
        "{text}"
    );
    assert!(
        lines[2].ends_with("seq 1 index 0 payload 200 completed 1"),
        "{text}"
    );
    let third = Duration::from_secs(100) + Duration::from_micros(20);
    assert_eq!(packets(&out)[1], (third, packet));
}

#[test]
fn a_lost_frame_is_named_and_costs_no_whole_packet() {
    let packet = inner(300, 1);
    let file = File::with(&pcap(&[
        frame(0, 0, &packet[..200]),
        frame(2, 0, &inner(100, 2)),
    ]));
    let out = File::new();
    let text = good(&[&file.0, "--inner", &out.0]);
    let second = Duration::from_secs(100) + Duration::from_micros(10);
    assert_eq!(packets(&out), [(second, inner(100, 2))]);
    assert!(
        text.contains("\n  gaps               1  missing frames in the middle of a stream\n"),
        "{text}"
    );
    assert!(text.contains(
            "\n  frame_evicted      1  Buffered frames were discarded because a later frame ended the wait for a missing one.\n"
        ), "{text}");
}

#[test]
fn a_packet_whose_end_is_missing_is_called_unfinished() {
    let file = File::with(&pcap(&[frame(0, 0, &inner(300, 1)[..200])]));
    let text = good(&[&file.0]);
    assert!(
        text.contains("\n  unfinished packets      1  their end is not in the capture\n"),
        "{text}"
    );
}

#[test]
fn a_wrong_checksum_keeps_a_frame_out_unless_ignored() {
    let mut damaged = frame(0, 0, &inner(100, 1));
    *damaged.last_mut().unwrap() ^= 1;
    let file = File::with(&pcap(&[damaged]));
    let text = good(&[&file.0]);
    assert!(
        text.lines()
            .next()
            .unwrap()
            .ends_with("completed 0, checksum wrong, bad_checksum"),
        "{text}"
    );
    let text = good(&[&file.0, "--ignore-checksums"]);
    assert!(
        text.lines()
            .next()
            .unwrap()
            .ends_with("completed 1, checksum wrong"),
        "{text}"
    );
}

#[test]
fn what_goes_to_the_data_port_but_is_no_frame_is_counted() {
    let mut version = frame(0, 0, &inner(100, 1));
    let sig = version.len() - 116;
    version[sig] = 1;
    let mut noise = frame(0, 0, &inner(100, 1));
    noise[28] = 0xf0;
    let file = File::with(&pcap(&[version, noise]));
    let text = good(&[&file.0, "--all"]);
    let lines: Vec<_> = text.lines().collect();
    assert!(
        lines[0]
            .ends_with("1-64512,10.0.0.1 > 1-ff00:0:110,fd00::2  no SIG frame: bad_frame_version"),
        "{text}"
    );
    assert!(
        lines[1].ends_with("0.000010  not a SCION packet: unexpected version"),
        "{text}"
    );
    assert!(
        text.contains(
            "  bad_frame_version      1  A SIG frame has a version that is neither 0 nor"
        ),
        "{text}"
    );
}

#[test]
fn another_port_can_be_chosen() {
    let file = captured("data-single-v4");
    let lines = |arguments: &[&str]| good(arguments).lines().count();
    assert_eq!(lines(&[&file, "--format", "json", "--port", "1"]), 0);
    assert_eq!(
        lines(&[&file, "--format", "json", "--port", "1", "--port", "30056"]),
        40
    );
}

#[test]
fn pcapng_keeps_its_clock() {
    let link = InterfaceDescriptionBlock {
        linktype: DataLink::RAW,
        snaplen: 0,
        options: vec![InterfaceDescriptionOption::IfTsResol(3)],
    };
    let mut writer = PcapNgWriter::new(Vec::new()).unwrap();
    writer.write_pcapng_block(link).unwrap();
    let data = frame(0, 0, &inner(100, 1));
    let packet = EnhancedPacketBlock {
        interface_id: 0,
        timestamp: Duration::from_nanos(123_456), // ticks of a millisecond
        original_len: data.len() as u32,
        data: data.into(),
        options: vec![],
    };
    writer.write_pcapng_block(packet).unwrap();
    let file = File::with(&writer.into_inner());
    let out = File::new();
    good(&[&file.0, "--inner", &out.0]);
    assert_eq!(
        packets(&out),
        [(Duration::from_millis(123_456), inner(100, 1))]
    );
}

#[test]
fn vlan_tags_and_cooked_headers_are_skipped() {
    let raw = frame(0, 0, &inner(100, 1));
    let ethernet = [&[2; 12][..], &[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 8, 0], &raw].concat();
    let cooked = [&[0; 14][..], &[8, 0], &raw].concat();
    let cooked2 = [&[8, 0][..], &[0; 18], &raw].concat();
    for (link, data) in [
        (DataLink::ETHERNET, ethernet),
        (DataLink::LINUX_SLL, cooked),
        (DataLink::LINUX_SLL2, cooked2),
    ] {
        let decoded = decode::packet(link, &data, &[30056]);
        assert!(matches!(decoded, Decoded::Sig(_)), "{link:?}");
    }
}

#[test]
fn packets_longer_than_the_snapshot_length_are_counted_as_cut() {
    let header = PcapHeader {
        datalink: DataLink::RAW,
        snaplen: 96,
        endianness: Endianness::Little,
        ..PcapHeader::default()
    };
    let mut bytes = PcapWriter::with_header(Vec::new(), header)
        .unwrap()
        .into_writer();
    let packet = frame(0, 0, &inner(100, 1));
    for field in [1, 0, 96, packet.len() as u32] {
        bytes.extend(u32::to_le_bytes(field));
    }
    bytes.extend(&packet[..96]);
    let text = good(&[&File::with(&bytes).0]);
    assert!(
        text.contains("\n  cut packets        1  truncated by the capture, not decoded: capture with \"tcpdump -s 0\"\n"),
        "{text}"
    );
}
