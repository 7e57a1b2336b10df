//! What the host does with packets of an interface, as the kernel tells it.

use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};

use crate::support::netns::{Netns, root_or_skip, veth};
use sig_linux::netfilter::bypassed;
use sig_linux::netlink::Netlink;

/// A netlink message of nftables, or the begin or end of a batch: kind, flags, family, resource, attributes.
fn message(kind: u16, flags: u16, family: u8, resource: u16, attributes: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend((20 + attributes.len() as u32).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend((flags | 1).to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([family, 0]);
    bytes.extend(resource.to_be_bytes());
    bytes.extend(attributes);
    bytes
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = (4 + value.len() as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// `add table FAMILY filter; add chain FAMILY filter x { type filter hook HOOK priority 0; policy drop; }`, which blocks as a rule
/// does.
fn add_chain(family: u8, hook: u32) {
    const CREATE: u16 = 0x400;
    const TABLES: u16 = 10 << 8;
    let name = attribute(1, b"filter\0");
    let hook = [
        attribute(1, &hook.to_be_bytes()),
        attribute(2, &0u32.to_be_bytes()),
    ];
    let chain = [
        name.clone(),
        attribute(3, b"x\0"),
        attribute(4 | 0x8000, &hook.concat()),
        attribute(5, &0u32.to_be_bytes()),
        attribute(7, b"filter\0"),
    ];
    let batch = [
        message(16, 0, 0, 10, &[]),
        message(TABLES, CREATE, family, 0, &name),
        message(TABLES | 3, CREATE | 4, family, 0, &chain.concat()),
        message(17, 0, 0, 10, &[]),
    ];
    let mut socket = Socket::new(NETLINK_NETFILTER).unwrap();
    socket.bind_auto().unwrap();
    socket.connect(&SocketAddr::new(0, 0)).unwrap();
    socket.send(&batch.concat(), 0).unwrap();
    let (answer, _) = socket.recv_from_full().unwrap();
    let code = i32::from_ne_bytes(answer[16..20].try_into().unwrap());
    assert_eq!(code, 0, "the kernel takes the chain");
}

#[test]
fn rules_queueing_disciplines_and_strict_filtering_are_found() {
    if !root_or_skip() {
        return;
    }
    let (host, other) = (Netns::new("firewall"), Netns::new("firewall"));
    veth((&host, "lan0"), (&other, "o0"));
    veth((&host, "wan0"), (&other, "o1"));
    let found = || {
        let found = host.block_on(async || {
            let netlink = Netlink::open().unwrap();
            let names = ["lan0", "wan0"].map(|name| (index_of(name), name));
            bypassed(&netlink, &names).await
        });
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(found(), Vec::<String>::new());

    host.run(|| {
        add_chain(1, 2);
        // To the host itself: no concern of ours.
        add_chain(10, 1);
        std::fs::write("/proc/sys/net/ipv4/conf/lan0/rp_filter", "1").unwrap();
    });
    host.exec("tc qdisc add dev wan0 root tbf rate 1mbit burst 10kb latency 50ms");
    host.exec("tc qdisc add dev lan0 clsact");
    let rest = "packets that XDP takes or sends do not";
    assert_eq!(
        found(),
        [
            format!("nftables has rules in table inet filter (forward): {rest} pass them"),
            format!("lan0 may have TC filters (queueing discipline clsact): {rest} pass them"),
            format!("wan0 has the queueing discipline tbf: {rest} pass through it"),
            format!("reverse path filtering is strict on lan0 (rp_filter = 1): {rest} meet it"),
        ]
    );
}

/// The index of an interface in this thread's namespace.
fn index_of(name: &str) -> u32 {
    let name = std::ffi::CString::new(name).unwrap();
    // SAFETY: a string that ends with a zero byte.
    unsafe { libc::if_nametoindex(name.as_ptr()) }
}
