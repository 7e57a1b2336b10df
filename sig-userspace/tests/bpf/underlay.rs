//! The real program `sig_underlay` over single frames.

use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Duration;

use crate::frames::{Bench, Expect, Fixture, LO, Stats, check, xdp_socket};
use crate::packets::{Underlay, V1, V2, V3, V4, V5, hex};
use crate::support::netns::root_or_skip;
use sig_common::addr::IsdAs;
use sig_common::maps::{Sockets, Stat};
use sig_common::reason::DropReason;
use sig_common::wire::ethernet::{TPID_8021AD, TPID_8021Q, Tag};
use sig_common::wire::underlay::Local;
use sig_linux::bpf::{Logging, Program, Programs};

const STATS: Stats = Stats {
    redirected: Stat::UnderlayRedirected,
    passed: Stat::UnderlayPassed,
    no_socket: Stat::UnderlayNoSocket,
    dropped: Some(Stat::UnderlayDropped),
};

/// The data port of the gateway under test, which V1 and V2 are sent to.
const PORT: u16 = 30056;
/// The MAC address that frames of the tests are sent to.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const LOCAL: IsdAs = IsdAs::new(1, 0xff00_0000_0111);
const REMOTE: IsdAs = IsdAs::new(1, 0xff00_0000_0110);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A gateway with the address `host` that knows the sender of V1 and V2.
fn gateway(host: &str, end_host_port: bool) -> Bench {
    let mut bench = Bench::new(LO, 1);
    let local = Local::new(LOCAL, ip(host), PORT, end_host_port);
    bench.programs.set_underlay_port(LO, &local, MAC).unwrap();
    bench
        .programs
        .set_remotes([(REMOTE, ip("10.0.0.1"), 0), (REMOTE, ip("fd00::1"), 1)])
        .unwrap();
    bench
}

/// V1 as SCION bytes with one byte changed.
fn v1_with(offset: usize, value: u8) -> Vec<u8> {
    let mut scion = hex(V1);
    scion[offset] = value;
    scion
}

fn v4(scion: &[u8]) -> Vec<u8> {
    Underlay::to("10.0.0.2", PORT).wrap(scion)
}

/// Offsets in V1.
const IP: usize = 14;
const UDP: usize = IP + 20;
mod scion {
    pub(crate) const HEADER_WORDS: usize = 5;
    pub(crate) const NEXT_HEADER: usize = 4;
    pub(crate) const PAYLOAD_LEN: usize = 6;
    pub(crate) const PATH_TYPE: usize = 8;
    pub(crate) const ADDRESS_TYPES: usize = 9;
    pub(crate) const SOURCE_AS_END: usize = 27;
    pub(crate) const DESTINATION_AS_END: usize = 19;
    pub(crate) const DESTINATION_HOST_END: usize = 31;
    pub(crate) const SOURCE_HOST_END: usize = 35;
    pub(crate) const SEGMENT_LENGTHS: usize = 38;
    pub(crate) const L4: usize = 72;
    pub(crate) const FRAME: usize = L4 + 8;
}

#[test]
fn frames_of_known_remotes_go_to_a_worker() {
    if !root_or_skip() {
        return;
    }
    let tag = |tpid, tci| Some(Tag { tpid, tci });
    let to = Underlay::to("10.0.0.2", PORT);
    let mut padded = v4(&hex(V1));
    padded.extend([0; 7]);
    let bench = gateway("10.0.0.2", false);
    check(
        &bench.programs,
        Program::Underlay,
        STATS,
        &[
            Fixture::new("a frame for us", v4(&hex(V1)), Expect::Worker),
            Fixture::new("with padding behind the IP packet", padded, Expect::Worker),
            Fixture::new(
                "with a priority and no VLAN",
                Underlay {
                    tags: [tag(TPID_8021Q, 0x6000), None],
                    ..to.clone()
                }
                .wrap(&hex(V1)),
                Expect::Worker,
            ),
            Fixture::new(
                "a frame without payload",
                {
                    let mut scion = hex(V1);
                    let end = scion::FRAME + 16;
                    scion.truncate(end);
                    scion[scion::PAYLOAD_LEN + 1] = 24;
                    scion[scion::L4 + 5] = 24;
                    v4(&scion)
                },
                Expect::Worker,
            ),
        ],
    );
    let bench = gateway("fd00::2", false);
    let frame = Underlay::to("fd00::2", PORT).wrap(&hex(V2));
    check(
        &bench.programs,
        Program::Underlay,
        STATS,
        &[Fixture::new("a frame over IPv6", frame, Expect::Worker)],
    );
}

#[test]
fn what_is_not_a_frame_for_us_is_left_to_the_kernel() {
    if !root_or_skip() {
        return;
    }
    let changed = |offset: usize, value: u8| {
        let mut frame = v4(&hex(V1));
        frame[offset] = value;
        frame
    };
    let pass = |that: &str, frame| Fixture::new(that, frame, Expect::Pass);
    let mut arp = vec![0; 60];
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    let frame = v4(&hex(V1));
    let tagged = |first: (u16, u16), second: Option<(u16, u16)>| {
        let tag = |(tpid, tci)| Tag { tpid, tci };
        let tags = [Some(tag(first)), second.map(tag)];
        let to = Underlay::to("10.0.0.2", PORT);
        Underlay { tags, ..to }.wrap(&hex(V1))
    };
    let bench = gateway("10.0.0.2", false);
    check(
        &bench.programs,
        Program::Underlay,
        STATS,
        &[
            pass("to the MAC address of another host", changed(5, 3)),
            pass("to the broadcast MAC address", {
                let mut frame = v4(&hex(V1));
                frame[..6].fill(0xff);
                frame
            }),
            pass("to a multicast MAC address", changed(0, 3)),
            pass("in a VLAN", tagged((TPID_8021Q, 0x2005), None)),
            pass("in a service VLAN", tagged((TPID_8021AD, 7), None)),
            pass(
                "in a VLAN of a service VLAN",
                tagged((TPID_8021AD, 7), Some((TPID_8021Q, 5))),
            ),
            pass(
                "in a VLAN under a priority tag",
                tagged((TPID_8021Q, 0), Some((TPID_8021Q, 5))),
            ),
            pass("ARP", arp),
            pass("an Ethernet header alone", frame[..14].to_vec()),
            pass("cut off in the IP header", frame[..30].to_vec()),
            pass("cut off in the UDP header", frame[..UDP + 4].to_vec()),
            pass("TCP", changed(IP + 9, 6)),
            pass("for another host", changed(IP + 19, 3)),
            pass(
                "for another port",
                Underlay::to("10.0.0.2", 30057).wrap(&hex(V1)),
            ),
            pass(
                "at the end host port",
                Underlay::to("10.0.0.2", 30041).wrap(&hex(V1)),
            ),
            pass("over IPv6", Underlay::to("fd00::2", PORT).wrap(&hex(V2))),
            pass("the first IP fragment", changed(IP + 6, 0x20)),
            pass("a later IP fragment", changed(IP + 7, 0x10)),
            pass("SCMP on the data port", v4(&hex(V4))),
            pass("for a SCION service", v4(&hex(V5))),
            pass("for another UDP/SCION port", v4(&hex(V3))),
            pass(
                "for another AS",
                v4(&v1_with(scion::DESTINATION_AS_END, 0x12)),
            ),
            pass(
                "for another SCION host",
                v4(&v1_with(scion::DESTINATION_HOST_END, 3)),
            ),
        ],
    );
}

#[test]
fn frames_of_strangers_are_dropped() {
    if !root_or_skip() {
        return;
    }
    let stranger = |that: &str, scion: Vec<u8>| {
        Fixture::new(that, v4(&scion), Expect::Drop(DropReason::UnknownRemote))
    };
    let mut bench = gateway("10.0.0.2", false);
    let fixtures = [
        stranger("another AS", v1_with(scion::SOURCE_AS_END, 0x12)),
        stranger("another host", v1_with(scion::SOURCE_HOST_END, 9)),
    ];
    check(&bench.programs, Program::Underlay, STATS, &fixtures);

    bench.programs.set_remotes([]).unwrap();
    let fixtures = [stranger("a former remote", hex(V1))];
    check(&bench.programs, Program::Underlay, STATS, &fixtures);
}

/// A frame of `source` on the underlay.
fn brought_by(source: &str, scion: &[u8]) -> Vec<u8> {
    Underlay {
        source: ip(source),
        ..Underlay::to("10.0.0.2", PORT)
    }
    .wrap(scion)
}

/// V1 without a path, from a host of this AS.
fn v1_within_the_as() -> Vec<u8> {
    let mut scion = v1_with(scion::SOURCE_AS_END, 0x11);
    scion[scion::PATH_TYPE] = 0;
    scion.drain(scion::SOURCE_HOST_END + 1..scion::L4);
    scion[scion::HEADER_WORDS] = 9;
    scion
}

#[test]
fn only_border_routers_bring_frames_of_remotes() {
    if !root_or_skip() {
        return;
    }
    let mut bench = gateway("10.0.0.2", true);
    let net = |text: &str| text.parse::<ipnet::IpNet>().unwrap();
    let worker = |that: &str, frame| Fixture::new(that, frame, Expect::Worker);
    let refused =
        |that: &str, frame| Fixture::new(that, frame, Expect::Drop(DropReason::UnderlaySource));
    bench
        .programs
        .set_sources(Some([net("10.0.0.99/32"), net("10.0.7.0/24")]))
        .unwrap();
    check(
        &bench.programs,
        Program::Underlay,
        STATS,
        &[
            worker("from a border router", v4(&hex(V1))),
            worker("from a prefix", brought_by("10.0.7.200", &hex(V1))),
            refused("from another host", brought_by("10.0.0.66", &hex(V1))),
            refused("from beside the prefix", brought_by("10.0.8.0", &hex(V1))),
            refused(
                "from the sender's own address",
                brought_by("10.0.0.1", &hex(V1)),
            ),
            refused("from another host, at the end host port", {
                let mut frame = brought_by("10.0.0.66", &hex(V1));
                frame[UDP + 2..UDP + 4].copy_from_slice(&30041u16.to_be_bytes());
                frame
            }),
        ],
    );
    assert_eq!(bench.programs.refused_sources().unwrap(), [ip("10.0.0.66")]);

    let router = [net("10.0.0.99/32")];
    bench.programs.set_sources(Some(router)).unwrap();
    let fixtures = [refused(
        "a former prefix",
        brought_by("10.0.7.200", &hex(V1)),
    )];
    check(&bench.programs, Program::Underlay, STATS, &fixtures);
    bench.programs.set_sources(None::<[_; 0]>).unwrap();
    let fixtures = [worker(
        "when anybody may",
        brought_by("10.0.0.66", &hex(V1)),
    )];
    check(&bench.programs, Program::Underlay, STATS, &fixtures);

    let mut bench = gateway("fd00::2", false);
    let frame = || Underlay::to("fd00::2", PORT).wrap(&hex(V2));
    bench
        .programs
        .set_sources(Some([net("fd00::98/128")]))
        .unwrap();
    let fixtures = [refused("from another IPv6 host", frame())];
    check(&bench.programs, Program::Underlay, STATS, &fixtures);
    bench
        .programs
        .set_sources(Some([net("fd00::99/128")]))
        .unwrap();
    let fixtures = [worker("from an IPv6 border router", frame())];
    check(&bench.programs, Program::Underlay, STATS, &fixtures);
}

#[test]
fn within_the_as_a_frame_comes_from_the_host_that_it_names() {
    if !root_or_skip() {
        return;
    }
    let mut bench = gateway("10.0.0.2", false);
    let remotes = [(LOCAL, ip("10.0.0.1"), 0), (REMOTE, ip("10.0.0.1"), 1)];
    bench.programs.set_remotes(remotes).unwrap();
    bench.programs.set_sources(Some([])).unwrap();
    let refused =
        |that: &str, frame| Fixture::new(that, frame, Expect::Drop(DropReason::UnderlaySource));
    let mut of_another_as = v1_within_the_as();
    of_another_as[scion::SOURCE_AS_END] = 0x10;
    check(
        &bench.programs,
        Program::Underlay,
        STATS,
        &[
            Fixture::new(
                "from the host itself",
                brought_by("10.0.0.1", &v1_within_the_as()),
                Expect::Worker,
            ),
            refused(
                "from another host",
                brought_by("10.0.0.66", &v1_within_the_as()),
            ),
            refused(
                "with no path, but of another AS",
                brought_by("10.0.0.1", &of_another_as),
            ),
            refused("with a path", brought_by("10.0.0.1", &hex(V1))),
        ],
    );
}

#[test]
fn a_changed_mac_address_is_followed() {
    if !root_or_skip() {
        return;
    }
    let mut bench = gateway("10.0.0.2", false);
    bench.programs.set_sources(Some([])).unwrap();
    let mut frame = brought_by("10.0.0.1", &hex(V1));
    frame[5] = 7;
    let before = [Fixture::new("to another", frame.clone(), Expect::Pass)];
    check(&bench.programs, Program::Underlay, STATS, &before);
    let mac = [2, 0, 0, 0, 0, 7];
    bench.programs.set_underlay_mac(LO, mac).unwrap();
    // Sources are checked as before.
    let refused = Expect::Drop(DropReason::UnderlaySource);
    let after = [Fixture::new("to the new one", frame, refused)];
    check(&bench.programs, Program::Underlay, STATS, &after);
}

#[test]
fn malformed_frames_are_dropped_by_reason() {
    if !root_or_skip() {
        return;
    }
    let drop = |that: &str, frame, reason| Fixture::new(that, frame, Expect::Drop(reason));
    let scion = |that: &str, offset, value, reason| {
        Fixture::new(that, v4(&v1_with(offset, value)), Expect::Drop(reason))
    };
    let outer = |offset: usize, value: u8| {
        let mut frame = v4(&hex(V1));
        frame[offset] = value;
        frame
    };
    let fixtures = [
        drop(
            "IP longer than the frame",
            outer(IP + 2, 1),
            DropReason::BadIp,
        ),
        drop("IP shorter than UDP", outer(IP + 3, 24), DropReason::BadIp),
        drop("UDP longer than IP", outer(UDP + 4, 1), DropReason::BadUdp),
        drop(
            "UDP shorter than its header",
            outer(UDP + 5, 7),
            DropReason::BadUdp,
        ),
        scion("SCION version 1", 0, 0x10, DropReason::BadScionVersion),
        drop("empty datagram", v4(&[]), DropReason::BadScionHeaderLen),
        scion(
            "header longer than the datagram",
            scion::HEADER_WORDS,
            255,
            DropReason::BadScionHeaderLen,
        ),
        scion(
            "header shorter than the addresses",
            scion::HEADER_WORDS,
            8,
            DropReason::BadScionHeaderLen,
        ),
        scion(
            "destination of undefined type",
            scion::ADDRESS_TYPES,
            0x10,
            DropReason::BadAddressType,
        ),
        scion(
            "source that is a service",
            scion::ADDRESS_TYPES,
            0x04,
            DropReason::BadAddressType,
        ),
        scion(
            "segments longer than the path",
            scion::SEGMENT_LENGTHS,
            0x30,
            DropReason::BadPath,
        ),
        scion(
            "undefined path type",
            scion::PATH_TYPE,
            9,
            DropReason::UnknownPathType,
        ),
        scion(
            "payload longer than the datagram",
            scion::PAYLOAD_LEN,
            1,
            DropReason::BadScionPayloadLen,
        ),
        scion(
            "neither UDP nor SCMP",
            scion::NEXT_HEADER,
            6,
            DropReason::UnsupportedL4,
        ),
        drop(
            "extension header longer than the payload",
            {
                let mut scion = hex(V1);
                scion[scion::NEXT_HEADER] = 200;
                scion[scion::L4 + 1] = 255;
                v4(&scion)
            },
            DropReason::BadExtension,
        ),
        scion("UDP/SCION length 5", scion::L4 + 5, 5, DropReason::BadL4),
        scion(
            "frame shorter than its header",
            scion::L4 + 5,
            8 + 15,
            DropReason::BadFrameLen,
        ),
        scion(
            "frame version 1",
            scion::FRAME,
            1,
            DropReason::BadFrameVersion,
        ),
    ];
    let bench = gateway("10.0.0.2", false);
    check(&bench.programs, Program::Underlay, STATS, &fixtures);
}

#[test]
fn frames_relayed_to_the_end_host_port_are_taken_but_nothing_is_dropped_there() {
    if !root_or_skip() {
        return;
    }
    let at = |scion: &[u8]| Underlay::to("10.0.0.2", 30041).wrap(scion);
    let bench = gateway("10.0.0.2", true);
    check(
        &bench.programs,
        Program::Underlay,
        STATS,
        &[
            Fixture::new("a frame for us", at(&hex(V1)), Expect::Worker),
            Fixture::new("malformed", at(&v1_with(scion::FRAME, 1)), Expect::Pass),
            Fixture::new("SCMP", at(&hex(V4)), Expect::Pass),
        ],
    );
}

#[test]
fn streams_spread_over_the_sockets_of_a_queue() {
    if !root_or_skip() {
        return;
    }
    let mut bench = gateway("10.0.0.2", false);
    // Socket 0 exists, socket 1 does not.
    bench
        .programs
        .set_steering(LO, 0, Sockets { first: 0, count: 2 })
        .unwrap();
    let stream = |stream: u8| v4(&v1_with(scion::FRAME + 7, stream));
    let fixtures = [
        Fixture::new("stream 2", stream(2), Expect::Worker),
        Fixture::new("stream 3", stream(3), Expect::NoSocket),
        Fixture::new("stream 4", stream(4), Expect::Worker),
    ];
    check(&bench.programs, Program::Underlay, STATS, &fixtures);

    let second = xdp_socket();
    bench
        .programs
        .set_socket(1, std::os::fd::AsFd::as_fd(&second))
        .unwrap();
    let fixtures = [Fixture::new("stream 3", stream(3), Expect::Worker)];
    check(&bench.programs, Program::Underlay, STATS, &fixtures);
}

#[test]
fn without_sockets_or_endpoint_frames_are_left_to_the_kernel() {
    if !root_or_skip() {
        return;
    }
    let mut bench = gateway("10.0.0.2", false);
    bench
        .programs
        .set_steering(LO, 0, Sockets { first: 0, count: 0 })
        .unwrap();
    let fixtures = [Fixture::new("no socket", v4(&hex(V1)), Expect::NoSocket)];
    check(&bench.programs, Program::Underlay, STATS, &fixtures);

    let bench = Bench::new(LO, 1);
    let fixtures = [Fixture::new("no endpoint", v4(&hex(V1)), Expect::Pass)];
    check(&bench.programs, Program::Underlay, STATS, &fixtures);
}

#[test]
fn a_closed_socket_leaves_frames_to_the_kernel() {
    if !root_or_skip() {
        return;
    }
    let mut bench = gateway("10.0.0.2", false);
    bench.sockets.clear();
    let fixtures = [Fixture::new("no socket", v4(&hex(V1)), Expect::NoSocket)];
    check(&bench.programs, Program::Underlay, STATS, &fixtures);
}

/// Keeps what is logged.
struct Kept(Mutex<Vec<String>>);

impl log::Log for Kept {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let line = format!("{} {}", record.level(), record.args());
        self.0.lock().unwrap().push(line);
    }

    fn flush(&self) {}
}

#[tokio::test]
async fn with_debug_logging_each_drop_is_told_with_its_reason() {
    static KEPT: Kept = Kept(Mutex::new(Vec::new()));
    if !root_or_skip() {
        return;
    }
    log::set_logger(&KEPT).unwrap();
    log::set_max_level(log::LevelFilter::Debug);
    let mut programs = Programs::load(Logging::Debug).unwrap();
    let local = Local::new(LOCAL, ip("10.0.0.2"), PORT, false);
    programs.set_underlay_port(LO, &local, MAC).unwrap();
    tokio::spawn(programs.forward_logs().unwrap());
    programs.test_run(Program::Underlay, &v4(&hex(V1))).unwrap();
    let told = format!(
        "DEBUG dropped, reason {}: ",
        DropReason::UnknownRemote.name()
    );
    for _ in 0..500 {
        let kept = KEPT.0.lock().unwrap().clone();
        if kept.iter().any(|line| line.starts_with(&told)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not told: {:?}", KEPT.0.lock().unwrap());
}
