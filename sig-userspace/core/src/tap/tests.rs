use std::{sync::Arc, time::Duration};

use etherparse::PacketBuilder;
use sig_common::{reason::DropReason, wire::underlay::Local};

use super::*;

const NOW: Duration = Duration::ZERO;

fn tables() -> Tables {
    let isd_as = "1-ff00:0:110".parse().expect("an ISD-AS");
    Tables::empty(Local::new(isd_as, [192, 0, 2, 1].into(), 30056, false))
}

/// UDP from 10.1.0.5, port 1000, to 10.2.0.6, port 53.
fn packet() -> Vec<u8> {
    let mut packet = vec![6; 12];
    packet.extend([8, 0]);
    PacketBuilder::ipv4([10, 1, 0, 5], [10, 2, 0, 6], 64)
        .udp(1000, 53)
        .write(&mut packet, &[7; 100])
        .expect("a packet");
    packet
}

fn wanted(inner: bool, drops: bool, filter: &str) -> Wanted {
    Wanted {
        inner,
        drops,
        filter: filter.to_owned(),
        ..Wanted::default()
    }
}

#[test]
fn nobody_watches_unless_asked_to() {
    let tap = Arc::new(Tap::default());
    assert!(tap.look(1, 0).is_none());
    let watching = tap.watch(&wanted(true, false, "")).expect("room");
    let look = tap.look(7, 3).expect("somebody watches");
    assert!(look.passing());
    let point = Point::Lan(Some(1));
    look.pass(&tables(), point, Event::In, &packet());
    look.pass(&tables(), Point::Underlay, Event::In, &packet());
    look.drop(&tables(), point, DropReason::NoRoute, &packet(), true);
    let seen = watching.next(NOW).expect("a packet");
    assert_eq!((seen.at, seen.worker, seen.point), (7, Some(3), point));
    assert_eq!((seen.event, seen.len as usize), (Event::In, packet().len()));
    assert_eq!(*seen.data, packet());
    assert!(
        watching.next(NOW).is_err(),
        "frames and drops were not asked for"
    );
    drop(watching);
    assert!(tap.look(1, 0).is_none());
}

#[test]
fn what_is_dropped_is_shown_with_an_ethernet_header() {
    let tap = Arc::new(Tap::default());
    let watching = tap
        .watch(&wanted(false, true, "host 10.2.0.6"))
        .expect("room");
    let look = tap.look(1, 0).expect("somebody watches");
    assert!(!look.passing());
    let (tables, reason) = (tables(), DropReason::NoRoute);
    look.drop(&tables, Point::Tunnel, reason, &packet()[14..], false);
    let seen = watching.next(NOW).expect("a packet");
    assert_eq!(seen.event, Event::Drop(reason));
    assert_eq!(seen.data[..14], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0]);
    assert_eq!(seen.data[14..], packet()[14..]);
    // What is no packet at all harms nobody.
    look.drop(&tables, Point::Underlay, reason, &[], true);
    look.drop(&tables, Point::Underlay, reason, &[1; 20], true);
    assert!(watching.next(NOW).is_err());
}

#[test]
fn of_what_the_kernel_dropped_there_is_the_beginning() {
    let tap = Arc::new(Tap::default());
    let watching = tap.watch(&wanted(false, true, "port 53")).expect("room");
    let whole = packet();
    let at = (5, Point::Lan(Some(0)));
    tap.show_drop(
        &tables(),
        at,
        DropReason::QueueFull,
        (&whole[..50], whole.len()),
    );
    let seen = watching.next(NOW).expect("a packet");
    assert_eq!((seen.at, seen.worker), (5, None));
    assert_eq!(
        (&*seen.data, seen.len as usize),
        (&whole[..50], whole.len())
    );
}

#[test]
fn memory_is_bounded_and_what_is_missed_is_counted() {
    let tap = Arc::new(Tap::default());
    let short = Wanted {
        snaplen: 20,
        ..wanted(true, false, "")
    };
    let watching = tap.watch(&short).expect("room");
    let look = tap.look(1, 0).expect("somebody watches");
    for _ in 0..QUEUE + 5 {
        look.pass(&tables(), Point::Tunnel, Event::Out, &packet());
    }
    assert_eq!(watching.missed(), 5);
    assert_eq!(watching.watcher.waiting.load(Ordering::Relaxed), QUEUE);
    let seen = watching.next(NOW).expect("a packet");
    assert_eq!((seen.data.len(), seen.len as usize), (20, packet().len()));
    let others: Vec<Watching> = (1..MAX_WATCHERS)
        .map(|_| tap.watch(&short).expect("room"))
        .collect();
    assert!(tap.watch(&short).is_err());
    drop(others);
    assert!(tap.watch(&short).is_ok());
}

#[test]
fn a_flood_of_one_reason_hides_no_other() {
    let tap = Arc::new(Tap::default());
    let limited = Wanted {
        drops_per_second: 2,
        ..wanted(true, true, "port 53")
    };
    let watching = tap.watch(&limited).expect("room");
    let tables = tables();
    let drop = |second: u64, reason, packet: &[u8]| {
        let look = tap.look(second * 1_000_000_000, 0);
        let look = look.expect("somebody watches");
        look.drop(&tables, Point::Lan(None), reason, packet, true);
        look.pass(&tables, Point::Lan(None), Event::In, packet);
    };
    for _ in 0..5 {
        drop(3, DropReason::NoRoute, &packet());
        // What the filter does not take is not counted.
        drop(3, DropReason::NoRoute, &[0; 60]);
    }
    drop(3, DropReason::NoPath, &packet());
    drop(4, DropReason::NoRoute, &packet());
    // One of a worker that is late.
    drop(3, DropReason::NoRoute, &packet());
    drop(4, DropReason::NoRoute, &packet());
    let seen = std::iter::from_fn(|| watching.next(NOW).ok());
    let dropped = seen.filter_map(|seen| match seen.event {
        Event::Drop(reason) => Some((seen.at / 1_000_000_000, reason)),
        Event::In | Event::Out => None,
    });
    let (no_route, no_path) = (DropReason::NoRoute, DropReason::NoPath);
    assert_eq!(
        dropped.collect::<Vec<_>>(),
        [
            (3, no_route),
            (3, no_route),
            (3, no_path),
            (4, no_route),
            (3, no_route)
        ]
    );
    let more = watching.more_drops().filter(|(_, count)| *count > 0);
    assert_eq!(more.collect::<Vec<_>>(), [(no_route, 4)]);
    assert_eq!(watching.missed(), 0);
}

#[test]
fn filters_take_what_they_say() {
    let packet = packet();
    let takes = |text: &str| {
        let filter: Filter = text
            .parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"));
        filter.takes(&packet[14..], (false, true), &tables())
    };
    for text in [
        "",
        "host 10.1.0.5",
        "dst 10.2.0.0/16",
        "src 10.1.0.5 and port 53",
        "port 80 or port 1000",
        "proto udp and not host 10.3.0.1",
        "not (proto tcp or port 80)",
        "net 10.0.0.0/8 and (port 1 or (port 2 or port 53))",
        "proto tcp and port 1 or proto udp",
        "not remote 1-ff00:0:111",
    ] {
        assert!(takes(text), "{text}");
    }
    for text in [
        "host 10.1.0.6",
        "src 10.2.0.6",
        "proto 47",
        "not port 53",
        "host fd00::1",
        "proto udp and (port 1 or port 2)",
        "remote 1-ff00:0:111",
    ] {
        assert!(!takes(text), "{text}");
    }
}

#[test]
fn what_is_wrong_with_a_filter_is_said() {
    let deep = "(".repeat(40);
    let many = "not ".repeat(100);
    for (text, said) in [
        ("host", "\"host\" needs an address or prefix"),
        ("port 70000", "\"port\" takes a port, not \"70000\""),
        (
            "port 1 port 2",
            "\"port\" where \"and\" or \"or\" is expected",
        ),
        ("(port 1", "a \")\" is missing"),
        ("port 1 and", "ends where a condition is expected"),
        ("tcp", "\"tcp\" is none of host"),
        ("remote 1", "\"remote\" takes an ISD-AS, not \"1\""),
        (&deep, "nested more than 16 deep"),
        (&many, "nested more than 16 deep"),
        (&"x".repeat(600), "longer than 512 bytes"),
    ] {
        let error = text.parse::<Filter>().expect_err(text).to_string();
        assert!(error.contains(said), "{text}: {error}");
    }
}

#[test]
fn what_is_cut_off_is_as_long_as_it_claims() {
    let packet = &packet()[14..];
    for kept in [0, 1, 3, 19, 20, 28, packet.len()] {
        let whole = whole(&packet[..kept]);
        let expected = if kept < 20 { kept } else { packet.len() };
        assert_eq!(whole.len(), expected, "{kept}");
        assert_eq!(whole[..kept], packet[..kept]);
    }
    let mut v6 = [0; 40];
    (v6[0], v6[5]) = (0x60, 8);
    assert_eq!(whole(&v6).len(), 48);
}
