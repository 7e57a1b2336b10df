//! What AF_XDP ports leave behind: nothing. Needs root.

use std::{env, fs, process::Command};

use crate::support::netns::{Netns, veth_with_queues};
use sig_core::port::Role;
use sig_linux::af_xdp::{HugePages, Plan, PortSpec, RingSizes, ZeroCopy};

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd")
        .expect("proc is mounted")
        .count()
}

/// Mappings of AF_XDP rings and of UMEM memory.
fn mappings() -> usize {
    let maps = fs::read_to_string("/proc/self/maps").expect("proc is mounted");
    let ours = |line: &&str| {
        line.contains("socket:") || line.contains("/dev/zero") || line.contains("hugepage")
    };
    maps.lines().filter(ours).count()
}

/// What a process holds is counted in one that does nothing else.
#[test]
fn closed_ports_leave_no_descriptor_and_no_mapping() {
    let alone = Command::new(env::current_exe().expect("this program"))
        .args(["--exact", "xsk_leak::alone", "--ignored"])
        .output()
        .expect("this program runs");
    let said = String::from_utf8_lossy(&alone.stdout);
    assert!(
        alone.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&alone.stderr)
    );
}

#[test]
#[ignore = "started by the test above, in a process of its own"]
fn alone() {
    let [gateway, hidden, far] = ["gateway", "hidden", "far"].map(Netns::new);
    veth_with_queues((&gateway, "d0"), (&far, "g0"), 2);
    veth_with_queues((&hidden, "d1"), (&far, "g1"), 1);
    let port = |interface: &str, queues, hidden: Option<_>| PortSpec {
        role: Role::Lan,
        interface: interface.to_owned(),
        ifindex: None,
        namespace: hidden,
        queues,
        spread: true,
        zero_copy: ZeroCopy::Auto,
        tag: None,
    };
    let inside = hidden.thread();
    let open = |last: &str| {
        let ports = vec![port("d0", 2, None), port(last, 1, Some(&inside))];
        let plan = Plan {
            workers: 3,
            ports,
            rings: RingSizes::default(),
            chunks: None,
            jumbo: false,
            huge_pages: HugePages::Auto,
            later: Vec::new(),
            spare_sockets: 0,
            busy_poll: None,
        };
        gateway.run(|| plan.open())
    };
    drop(open("d1").expect("all ports open"));
    let before = (descriptors(), mappings());
    for _ in 0..3 {
        let opened = open("d1").expect("all ports open");
        assert!(
            mappings() >= before.1 + 10,
            "the test looks at the right lines"
        );
        drop(opened);
        assert_eq!((descriptors(), mappings()), before);
        // Also if the last interface is missing.
        assert!(open("d2").is_err());
        assert_eq!((descriptors(), mappings()), before);
    }
}
