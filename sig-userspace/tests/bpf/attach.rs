//! Attaching the real programs to real devices.

use std::os::fd::AsFd as _;
use std::time::Duration;

use crate::frames::{LO, xdp_socket};
use crate::support::netns::{Netns, root_or_skip, veth, wait_until};
use crate::tcx::tcx_programs;
use sig_common::addr::IsdAs;
use sig_common::maps::{LanRoute, MAX_SOCKETS};
use sig_linux::bpf::{Logging, Program, Programs, XdpMode};
use sig_linux::netns::{PrivateNetns, run_in};

/// Programs leave with the last file descriptor of their attachment. A process that another test is just starting has
/// a copy of it for a moment, until it executes its program.
const AT_ONCE: Duration = Duration::from_secs(2);

/// A namespace with one end of a veth pair, `eth`, whose other end is in another namespace.
fn device() -> (Netns, Netns, u32) {
    let (here, there) = (Netns::new("here"), Netns::new("there"));
    veth((&here, "eth"), (&there, "eth"));
    let ifindex = here.run(|| index("eth"));
    (here, there, ifindex)
}

fn index(name: &str) -> u32 {
    let name = std::ffi::CString::new(name).unwrap();
    // SAFETY: a string with its end mark.
    unsafe { libc::if_nametoindex(name.as_ptr()) }
}

#[test]
fn xdp_programs_attach_in_both_modes_and_leave_with_their_attachment() {
    if !root_or_skip() {
        return;
    }
    let (here, _there, ifindex) = device();
    let mut programs = Programs::load(Logging::Debug).unwrap();
    for program in [Program::Underlay, Program::Lan, Program::Tunnel] {
        for (mode, shown) in [(XdpMode::Native, "xdp "), (XdpMode::Generic, "xdpgeneric ")] {
            let attached = here
                .run(|| programs.attach_xdp(program, ifindex, Some(mode)))
                .unwrap();
            assert_eq!(attached.mode(), mode);
            let link = here.ip("-details link show eth");
            assert!(link.contains(shown), "{program:?} {mode}: {link}");
            drop(attached);
            wait_until("the program leaves the device", AT_ONCE, || {
                !here.ip("-details link show eth").contains("prog/xdp")
            });
        }
    }
}

#[test]
fn native_mode_is_taken_where_the_driver_has_it_and_generic_mode_elsewhere() {
    if !root_or_skip() {
        return;
    }
    let (here, _there, ifindex) = device();
    let mut programs = Programs::load(Logging::Off).unwrap();
    let attached = here
        .run(|| programs.attach_xdp(Program::Lan, ifindex, None))
        .unwrap();
    assert_eq!(attached.mode(), XdpMode::Native);
    assert!(attached.no_native().is_none());

    let attached = here
        .run(|| programs.attach_xdp(Program::Lan, LO, None))
        .unwrap();
    assert_eq!(attached.mode(), XdpMode::Generic);
    let reason = attached.no_native().unwrap();
    assert_eq!(reason.raw_os_error(), Some(libc::EOPNOTSUPP), "{reason}");
}

#[test]
fn one_gateway_serves_devices_of_two_namespaces() {
    if !root_or_skip() {
        return;
    }
    let (here, there, ifindex) = device();
    let mut programs = Programs::load(Logging::Off).unwrap();
    let _lan = here
        .run(|| programs.attach_xdp(Program::Lan, ifindex, None))
        .unwrap();
    let peer = there.run(|| index("eth"));
    let _inner = there
        .run(|| programs.attach_xdp(Program::Tunnel, peer, None))
        .unwrap();
    for netns in [&here, &there] {
        let link = netns.ip("link show eth");
        assert!(link.contains("prog/xdp"), "{link}");
    }
    drop(programs);
}

#[test]
fn the_tc_program_attaches_and_leaves() {
    if !root_or_skip() {
        return;
    }
    let (here, _there, ifindex) = device();
    let mut programs = Programs::load(Logging::Off).unwrap();
    let attached = here.run(|| programs.attach_inject(ifindex)).unwrap();
    let tcx = || here.run(|| tcx_programs("eth"));
    assert_eq!(tcx(), ["sig_inject"]);
    drop(attached);
    wait_until("the program leaves the device", AT_ONCE, || {
        tcx().is_empty()
    });
}

#[test]
fn a_device_of_somebody_else_is_not_taken_over() {
    if !root_or_skip() {
        return;
    }
    let (here, _there, ifindex) = device();
    let mut theirs = Programs::load(Logging::Off).unwrap();
    let _theirs = here
        .run(|| theirs.attach_xdp(Program::Lan, ifindex, None))
        .unwrap();
    let mut ours = Programs::load(Logging::Off).unwrap();
    let error = here
        .run(|| ours.attach_xdp(Program::Lan, ifindex, None))
        .unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("device eth has an XDP program that sig did not attach"),
        "{text}"
    );
    assert!(text.contains("ip link set dev"), "{text}");
}

#[test]
fn a_device_with_a_large_mtu_is_no_problem() {
    if !root_or_skip() {
        return;
    }
    let (here, there, ifindex) = device();
    here.ip("link set eth mtu 9216");
    there.ip("link set eth mtu 9216");
    let mut programs = Programs::load(Logging::Off).unwrap();
    for program in [Program::Lan, Program::Underlay, Program::Tunnel] {
        let attached = here.run(|| programs.attach_xdp(program, ifindex, Some(XdpMode::Native)));
        drop(attached.unwrap());
    }
}

#[test]
fn a_missing_device_is_named() {
    if !root_or_skip() {
        return;
    }
    let netns = PrivateNetns::create().unwrap();
    let mut programs = Programs::load(Logging::Off).unwrap();
    for error in run_in(&netns, || {
        [
            programs
                .attach_xdp(Program::Lan, 4711, None)
                .map(|_| ())
                .unwrap_err(),
            programs.attach_inject(4711).map(|_| ()).unwrap_err(),
        ]
    })
    .unwrap()
    {
        let text = error.to_string();
        assert!(
            text.contains("interface index 4711 does not exist"),
            "{text}"
        );
    }
}

#[test]
fn a_socket_that_is_none_or_out_of_range_is_refused() {
    if !root_or_skip() {
        return;
    }
    let mut programs = Programs::load(Logging::Off).unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    programs.set_socket(0, file.as_fd()).unwrap_err();
    programs
        .set_socket(MAX_SOCKETS, xdp_socket().as_fd())
        .unwrap_err();
}

#[test]
fn many_prefixes_and_remotes_are_written_as_differences() {
    if !root_or_skip() {
        return;
    }
    let mut programs = Programs::load(Logging::Off).unwrap();
    let route = |i: u32| {
        let address = std::net::Ipv4Addr::from(0x0a00_0000 + (i << 8));
        let net = ipnet::Ipv4Net::new(address, 24).unwrap();
        (ipnet::IpNet::V4(net), LanRoute::TUNNEL)
    };
    let remote = |i: u32| {
        let host = std::net::Ipv4Addr::from(0x0a00_0000 + i);
        (IsdAs::new(1, i.into()), host.into(), i)
    };
    programs.set_lan_routes((0..10_000).map(route)).unwrap();
    programs.set_lan_routes((5_000..15_000).map(route)).unwrap();
    programs.set_remotes((0..1_000).map(remote)).unwrap();
    programs.set_remotes((500..1_500).map(remote)).unwrap();
    programs.set_lan_routes([]).unwrap();
    programs.set_remotes([]).unwrap();
}

#[test]
fn messages_of_the_programs_are_offered_once_and_only_when_asked_for() {
    if !root_or_skip() {
        return;
    }
    assert!(
        Programs::load(Logging::Off)
            .unwrap()
            .forward_logs()
            .is_none()
    );
    let mut programs = Programs::load(Logging::Debug).unwrap();
    assert!(programs.forward_logs().is_some());
    assert!(programs.forward_logs().is_none());
}
