//! Packets of an interface, as `sig dissect --interface` reads them.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use pcap_file::pcap::PcapReader;
use serde_json::Value;
use sig_common::wire::ipv6;
use sig_common::wire::srv6::{Header, NEXT_IPV4};
use sig_linux::capture::{Begin, Capture};

use crate::support::netns::{Netns, root_or_skip, veth, wait_until};
use crate::support::wire::PacketSocket;

/// No test waits this long unless something is broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// EtherType of experiments.
const ETHERTYPE: u16 = 0x88b5;
/// Addresses by which our frames are told from those of the kernel.
const MACS: [u8; 12] = [2, 0, 0, 0, 0, 0x78, 2, 0, 0, 0, 0, 0x77];

/// Two ends of a wire.
struct Wire {
    here: Netns,
    there: Netns,
    near: PacketSocket,
    far: PacketSocket,
}

impl Wire {
    fn new(label: &str) -> Self {
        let (here, there) = (Netns::new(label), Netns::new("far"));
        veth((&here, "v0"), (&there, "v1"));
        Self {
            near: PacketSocket::open(&here, "v0", ETHERTYPE),
            far: PacketSocket::open(&there, "v1", ETHERTYPE),
            here,
            there,
        }
    }

    fn dissect(&self, arguments: &[&str]) -> Child {
        self.here.run(|| {
            Command::new(env!("CARGO_BIN_EXE_sig"))
                .args(["dissect", "--interface", "v0"])
                .args(arguments)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("the binary runs")
        })
    }

    /// Sends a packet with tag 1 from there, one with tag 2 from here and a SIG frame from there, again and again, while
    /// `work` runs.
    fn sending<T>(&self, work: impl FnOnce() -> T) -> T {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    self.far.send(&srv6(1));
                    self.near.send(&srv6(2));
                    self.far.send(&sig_frame());
                    thread::sleep(Duration::from_millis(5));
                }
            });
            let _stops = Stops(&stop);
            work()
        })
    }
}

/// Ends the sender, also if the test panics.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// An Ethernet frame with an empty IPv4 packet on its way along two segments.
fn srv6(tag: u16) -> Vec<u8> {
    let header = Header {
        next_header: NEXT_IPV4,
        segments: &[[0xfc; 16], [0xfd; 16]],
        reduced: false,
        flags: 0,
        tag,
        tlvs: &[],
    };
    let mut srh = vec![0; header.len().unwrap()];
    header.emit(&mut srh).unwrap();
    let mut packet = vec![0; ipv6::HEADER_LEN];
    let outer = ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len: srh.len() as u16 + 20,
        next_header: ipv6::ROUTING,
        hop_limit: 64,
        source: [0xfe; 16],
        destination: [0xfc; 16],
    };
    outer.emit(&mut packet).unwrap();
    let inner = [
        0x45, 0, 0, 20, 0, 0, 0, 0, 64, 253, 0, 0, 10, 1, 0, 1, 10, 2, 0, 1,
    ];
    [&MACS[..], &[0x86, 0xdd], &packet, &srh, &inner].concat()
}

/// The first frame of the reference's gateway.
fn sig_frame() -> Vec<u8> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/data/data-single-v4.pcap"
    );
    let mut reader = PcapReader::new(File::open(path).unwrap()).unwrap();
    let mut frame = reader.next_packet().unwrap().unwrap().data.into_owned();
    frame[..12].copy_from_slice(&MACS);
    frame
}

/// The next frame of ours.
fn next(capture: &mut Capture) -> Vec<u8> {
    let mut found = None;
    wait_until("a frame is captured", PATIENCE, || {
        while let Some(captured) = capture.read().unwrap() {
            if captured.data.starts_with(&MACS) {
                assert_eq!(captured.original_len as usize, captured.data.len());
                assert!(captured.time > 1_700_000_000_000_000_000);
                found = Some(captured.data.to_vec());
                return true;
            }
        }
        capture.wait(Duration::from_millis(10)).unwrap();
        false
    });
    found.unwrap()
}

#[test]
fn both_directions_are_read_and_tags_are_where_they_were() {
    if !root_or_skip() {
        return;
    }
    let wire = Wire::new("tags");
    wire.here.run(|| {
        let mut capture = Capture::open("v0").unwrap();
        assert_eq!(capture.begin(), Begin::Ethernet);
        for tags in [
            &[][..],
            &[0x81, 0, 0x60, 5],
            &[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2],
        ] {
            let frame = [&MACS[..], tags, &[0x88, 0xb5], &[7; 60]].concat();
            wire.far.send(&frame);
            assert_eq!(next(&mut capture), frame);
            wire.near.send(&frame);
            assert_eq!(next(&mut capture), frame);
        }
        assert_eq!(capture.lost().unwrap(), 0);
        assert!(capture.read().is_ok());
    });
}

#[test]
fn dissect_shows_frames_and_srv6_of_both_directions_and_ends_with_the_count() {
    if !root_or_skip() {
        return;
    }
    let wire = Wire::new("count");
    let child = wire.dissect(&["--json", "--count", "30"]);
    let output = wire.sending(|| child.wait_with_output().unwrap());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*errors), (Some(0), ""));
    let text = String::from_utf8(output.stdout).unwrap();
    let objects: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(objects.len(), 30);
    for tag in [1, 2] {
        let is_ours = |object: &&Value| object["kind"] == "srv6" && object["tag"] == tag;
        let found = objects.iter().find(is_ours).expect("a packet of this way");
        assert_eq!(found["inner"]["dst"], "10.2.0.1");
    }
    assert!(objects.iter().any(|object| object["sequence"].is_u64()));
}

#[test]
fn dissect_shows_packets_at_once_and_sums_when_it_is_ended() {
    if !root_or_skip() {
        return;
    }
    for signal in ["-TERM", "-INT"] {
        let wire = Wire::new("signal");
        let mut child = wire.dissect(&[]);
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        wire.sending(|| out.read_line(&mut line).unwrap());
        assert!(line.starts_with("  "), "{line}");
        let kill = Command::new("kill")
            .args([signal, &child.id().to_string()])
            .status();
        assert!(kill.unwrap().success());
        let mut rest = String::new();
        out.read_to_string(&mut rest).unwrap();
        assert!(rest.contains("\nv0\n"), "{rest}");
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn dissect_says_that_the_interface_went_down() {
    if !root_or_skip() {
        return;
    }
    let wire = Wire::new("down");
    let mut child = wire.dissect(&["--json"]);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    wire.sending(|| out.read_line(&mut String::new()).unwrap());
    wire.there.ip("link del v1");
    out.read_to_end(&mut Vec::new()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "sig: v0: the interface is down or gone\n"
    );
}

#[test]
fn dissect_says_which_capability_is_missing() {
    if !root_or_skip() {
        return;
    }
    let output = Command::new("setpriv")
        .args(["--bounding-set", "-net_raw", "--inh-caps", "-net_raw"])
        .arg(env!("CARGO_BIN_EXE_sig"))
        .args(["dissect", "--interface", "lo"])
        .output()
        .expect("`setpriv` of util-linux is installed");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "sig: no permission to capture on lo: run as root or with the capability CAP_NET_RAW\n"
    );
}
