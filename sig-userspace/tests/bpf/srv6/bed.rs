//! A node in a network namespace, and what it does with frames that come in by `lo`.
//!
//! Behind the device `out` are the routers ::2 and ::4 (10.1.0.2 and 10.1.0.4), whose MAC addresses are known, and ::3, whose is
//! not. XDP programs must not send by the device `other`.

use std::{fmt, fs};

use sig_common::srv6::maps::{Adjacency, Reason, Traffic};
use sig_linux::bpf::{Copies, Events, Sr, SrPrograms};
use tokio::runtime::{self, Runtime};

use super::rules::MIRROR;
use crate::{
    frames::{LO, XDP_DROP, XDP_PASS, XDP_REDIRECT},
    router_bed::index_of,
    support::netns::{Netns, root_or_skip, veth},
};

pub(crate) const OUT: [u8; 6] = [2, 0, 0, 0, 1, 1];
pub(crate) const SECOND: [u8; 6] = [2, 0, 0, 0, 1, 2];
pub(crate) const FOURTH: [u8; 6] = [2, 0, 0, 0, 1, 4];
/// A routing table besides the main one.
pub(crate) const TABLE: u32 = 100;
/// MTU of the routes to 10.3.0.0/16, and of those to 2001:db8:e::/48.
pub(crate) const MTU: [u32; 2] = [600, 1280];

/// What became of a frame.
#[derive(PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) action: u32,
    /// Of a dropped frame, nothing.
    pub(crate) frame: Vec<u8>,
    /// What was counted.
    pub(crate) reasons: Vec<Reason>,
    pub(crate) told: Option<Told>,
}

/// An event.
#[derive(PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) reason: Reason,
    pub(crate) value: u32,
    pub(crate) ifindex: u32,
    pub(crate) address: [u8; 16],
    pub(crate) packet: Vec<u8>,
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "action {} {:?} {}",
            self.action,
            self.reasons,
            text(&self.frame)
        )?;
        match &self.told {
            Some(told) => write!(f, " told {told:?}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            reason,
            value,
            ifindex,
            ..
        } = self;
        write!(
            f,
            "{reason:?} {value} of {ifindex}, {} {}",
            text(&self.address),
            text(&self.packet)
        )
    }
}

/// Hexadecimal digits.
pub(crate) fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Outcome {
    pub(crate) fn sent(frame: Vec<u8>) -> Self {
        Self::of(XDP_REDIRECT, frame, &[])
    }

    /// To the kernel.
    pub(crate) fn passed(frame: Vec<u8>, reasons: &[Reason]) -> Self {
        Self::of(XDP_PASS, frame, reasons)
    }

    pub(crate) fn dropped(reason: Reason) -> Self {
        Self::of(XDP_DROP, Vec::new(), &[reason])
    }

    pub(crate) fn told(reason: Reason, value: u32, packet: &[u8]) -> Self {
        Self::told_of(reason, value, packet, 0, [0; 16])
    }

    pub(crate) fn told_of(
        reason: Reason,
        value: u32,
        packet: &[u8],
        ifindex: u32,
        address: [u8; 16],
    ) -> Self {
        let packet = packet[..packet.len().min(1232)].to_vec();
        Self {
            told: Some(Told {
                reason,
                value,
                ifindex,
                address,
                packet,
            }),
            ..Self::dropped(reason)
        }
    }

    fn of(action: u32, frame: Vec<u8>, reasons: &[Reason]) -> Self {
        Self {
            action,
            frame,
            reasons: reasons.to_vec(),
            told: None,
        }
    }
}

/// Tests of a node, in one bed: to load the programs takes longer than all of them together.
macro_rules! one_after_the_other {
    ($name:ident: $node:ident; $($test:ident)+) => {
        #[test]
        fn $name() {
            $crate::srv6::bed::in_bed(|bed| {
                $(
                    println!("{}", stringify!($test));
                    bed.set(|sr| *sr = Default::default());
                    $node(bed);
                    $test(bed);
                )+
            });
        }
    };
}
pub(crate) use one_after_the_other;

pub(crate) struct Bed {
    pub(crate) programs: SrPrograms,
    events: Events,
    copies: Copies,
    _runtime: Runtime,
    counted: Vec<u64>,
    /// What the program follows.
    pub(crate) sr: Sr,
    pub(crate) out: u32,
    pub(crate) other: u32,
    /// What flows through a function were last remembered under: the map outlives tests.
    pub(crate) flows: u32,
}

/// Runs a test on a thread in the namespace.
pub(crate) fn in_bed(test: impl FnOnce(&mut Bed) + Send) {
    if !root_or_skip() {
        return;
    }
    let (netns, far) = (Netns::new("sr"), Netns::new("far"));
    veth((&netns, "out"), (&far, "in"));
    veth((&netns, "other"), (&far, "another"));
    netns.ip("link set out address 02:00:00:00:01:01");
    netns.ip("addr add 10.1.0.1/24 dev out");
    netns.ip("addr add 2001:db8:1::1/64 dev out nodad");
    for (last, mac) in [(2, "02:00:00:00:01:02"), (4, "02:00:00:00:01:04")] {
        for router in [format!("10.1.0.{last}"), format!("2001:db8:1::{last}")] {
            netns.ip(&format!(
                "neigh add {router} lladdr {mac} dev out nud permanent"
            ));
        }
    }
    for (table, router) in [("main", 2), ("100", 4)] {
        for (net, router, more) in [
            ("10.2.0.0/16", router, ""),
            ("10.3.0.0/16", router, "mtu lock 600"),
            ("10.4.0.0/16", 3, ""),
            ("2001:db8:b::/48", router, ""),
            ("2001:db8:e::/48", router, "mtu lock 1280"),
            ("2001:db8:c::/48", 3, ""),
        ] {
            let router = match net.starts_with('1') {
                true => format!("10.1.0.{router}"),
                false => format!("2001:db8:1::{router}"),
            };
            netns.ip(&format!(
                "route add {net} via {router} dev out table {table} {more}"
            ));
        }
        for net in ["10.5.0.0/16", "2001:db8:d::/48"] {
            netns.ip(&format!("route add {net} dev other table {table}"));
        }
    }
    for (host, mac) in [
        ("10.5.0.9", "02:00:00:00:02:09"),
        ("2001:db8:d::9", "02:00:00:00:02:09"),
    ] {
        netns.ip(&format!(
            "neigh add {host} lladdr {mac} dev other nud permanent"
        ));
    }
    netns.run(|| {
        for family in ["ipv4", "ipv6"] {
            for device in ["all", "lo", "out", "other"] {
                let file = format!("/proc/sys/net/{family}/conf/{device}/forwarding");
                fs::write(file, "1").expect("a setting of the kernel");
            }
        }
        test(&mut Bed::new());
    });
}

impl Bed {
    fn new() -> Self {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let (mut programs, events) = {
            let _entered = runtime.enter();
            SrPrograms::load().expect("the kernel takes the programs")
        };
        let copies = programs.take_copies().expect("the ring of copies");
        let (out, other) = (index_of("out"), index_of("other"));
        programs.add_device(out).expect("a device");
        Self {
            programs,
            events,
            copies,
            _runtime: runtime,
            counted: vec![0; Reason::COUNT],
            sr: Sr::default(),
            out,
            other,
            flows: 0,
        }
    }

    /// Makes what the program follows something else.
    pub(crate) fn set(&mut self, change: impl FnOnce(&mut Sr)) {
        change(&mut self.sr);
        self.programs.set(&self.sr).expect("room");
    }

    pub(crate) fn run(&mut self, frame: &[u8]) -> Outcome {
        let outcome = self.programs.test_run(frame).expect("a run");
        let mut reasons = Vec::new();
        for (reason, counted) in Reason::ALL.into_iter().zip(&mut self.counted) {
            let now = self.programs.refused(reason).expect("counters");
            reasons.extend((*counted..now).map(|_| reason));
            *counted = now;
        }
        let told = self.event();
        self.programs.refill().expect("a map");
        Outcome {
            action: outcome.action,
            frame: match outcome.action {
                XDP_DROP => Vec::new(),
                _ => outcome.frame,
            },
            reasons,
            told,
        }
    }

    /// The copies since the last time: EtherType and packet.
    pub(crate) fn copies(&mut self) -> Vec<(u16, Vec<u8>)> {
        let mut copies = Vec::new();
        while self.copies.next(|copied, packet| {
            assert_eq!((copied.ifindex, copied.mac), (MIRROR.ifindex, MIRROR.mac));
            copies.push((u16::from_be_bytes(copied.ethertype), packet.to_vec()));
        }) {}
        copies
    }

    fn event(&mut self) -> Option<Told> {
        let mut told = Vec::new();
        self.events.now(8, |event, packet| {
            told.push(Told {
                reason: Reason::ALL[event.reason as usize],
                value: event.value,
                ifindex: event.ifindex,
                address: event.address,
                packet: packet.to_vec(),
            });
        });
        assert!(told.len() <= 1, "{told:?}");
        told.pop()
    }

    /// All that becomes of a frame must be as expected.
    pub(crate) fn check(&mut self, that: &str, frame: &[u8], expected: &Outcome) {
        let found = self.run(frame);
        assert_eq!(found, *expected, "{that}");
    }

    pub(crate) fn traffic(&self, slot: u32) -> (u64, u64) {
        let Traffic { packets, bytes } = self.programs.traffic(slot).expect("counters");
        (packets, bytes)
    }

    /// To the fourth router.
    pub(crate) fn adjacency(&self) -> Adjacency {
        let mut macs = [0; 12];
        macs[..6].copy_from_slice(&FOURTH);
        macs[6..].copy_from_slice(&OUT);
        Adjacency {
            ifindex: self.out,
            mtu: 1500,
            macs,
            known: 1,
        }
    }

    /// A device that packets come in by.
    pub(crate) fn port(&mut self, flags: u32, function: u32) {
        let port = sig_common::srv6::maps::Port {
            mac: super::packets::OURS,
            reserved: 0,
            flags,
            function,
        };
        self.set(|sr| {
            sr.ports.insert(LO, port);
        });
    }
}
