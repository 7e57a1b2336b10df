//! Three hosts in a row: generator, device under test, sink.
//!
//! ```text
//!   generator            device under test              sink
//!        g0 ───────────── d0           d1 ───────────── s0
//!          left, network 10             right, network 11
//! ```

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4},
    sync::atomic::{AtomicU32, Ordering},
    time::SystemTime,
};

use anyhow::Result;
use testbed::{Folder, Netns};

use super::refuse::MTU;
use crate::throughput::experiment::Family;

/// What a port of the device under test is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// IP hosts: 192.168.n.0/24, fd00:n::/64.
    Lan,
    /// A border router: 10.n.0.0/24.
    Underlay,
}

/// One of the two links.
#[derive(Clone, Debug)]
pub(super) struct Link {
    /// Interface of the generator or sink.
    pub(super) tester: String,
    /// Interface of the device under test.
    pub(super) device: String,
    /// MAC address of the tester's end.
    pub(super) tester_mac: [u8; 6],
    /// MAC address of the device's end.
    pub(super) device_mac: [u8; 6],
    number: u8,
}

impl Link {
    fn new(number: u8, ends: [char; 2], id: u32) -> Self {
        let mac = |end| [2, 0, 0, 1, number, end];
        // Unique on the whole machine: threads of NAPI have no other name than that of the device.
        let name = |end: char| format!("{end}{}-{}-{id}", number - LEFT, std::process::id());
        let [tester, device] = ends;
        Link {
            tester: name(tester),
            device: name(device),
            tester_mac: mac(1),
            device_mac: mac(2),
            number,
        }
    }

    /// Address of the device under test in a LAN.
    pub(super) fn device_ip(&self, family: Family) -> IpAddr {
        self.lan_ip(family, 1)
    }

    /// Address of the tester in a LAN.
    pub(super) fn tester_ip(&self, family: Family) -> IpAddr {
        self.lan_ip(family, 2)
    }

    /// Prefix of the LAN.
    pub(super) fn prefix(&self, family: Family) -> String {
        let net = self.lan_ip(family, 0);
        match family {
            Family::Ipv4 => format!("{net}/24"),
            Family::Ipv6 => format!("{net}/64"),
        }
    }

    fn lan_ip(&self, family: Family, host: u8) -> IpAddr {
        match family {
            Family::Ipv4 => Ipv4Addr::new(192, 168, self.number, host).into(),
            Family::Ipv6 => {
                Ipv6Addr::new(0xfd00, self.number.into(), 0, 0, 0, 0, 0, host.into()).into()
            }
        }
    }

    /// Address of the device under test in an underlay.
    pub(super) fn device_underlay(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, self.number, 0, 2)
    }

    /// Address and port of the border router that the tester plays.
    pub(super) fn router(&self) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::new(10, self.number, 0, 1), 30042)
    }
}

const LEFT: u8 = 10;
const RIGHT: u8 = 11;

/// The three hosts and their links. Everything goes when it is dropped.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) generator: Netns,
    pub(super) device: Netns,
    pub(super) sink: Netns,
    pub(super) left: Link,
    pub(super) right: Link,
    /// When it was made, seconds since 1970.
    pub(super) born: u32,
    /// For configurations, logs and sockets.
    pub(super) folder: Folder,
}

/// What is needed of the links.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    /// Between generator and device.
    pub(super) left: Side,
    /// Between device and sink.
    pub(super) right: Side,
    /// MTU of the left link, bytes.
    pub(super) left_mtu: u16,
    /// MTU of the right link, bytes.
    pub(super) right_mtu: u16,
}

impl Links {
    /// Plain IP on both sides.
    pub(super) const PLAIN: Self = Links {
        left: Side::Lan,
        right: Side::Lan,
        left_mtu: MTU,
        right_mtu: MTU,
    };
}

impl Network {
    /// Makes namespaces, links, addresses and neighbours.
    pub(super) fn new(links: &Links) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let id = COUNT.fetch_add(1, Ordering::Relaxed);
        let netns = |role: &str| Netns::new(&format!("lab{id}-{role}"));
        let network = Network {
            generator: netns("generator")?,
            device: netns("device")?,
            sink: netns("sink")?,
            left: Link::new(LEFT, ['g', 'd'], id),
            right: Link::new(RIGHT, ['s', 'd'], id),
            born: SystemTime::UNIX_EPOCH.elapsed()?.as_secs() as u32,
            folder: Folder::new(&format!("lab{id}"))?,
        };
        network.device.set_sysctls(&[
            ("net/ipv4/ip_forward", "1"),
            ("net/ipv6/conf/all/forwarding", "1"),
            ("net/ipv4/conf/all/send_redirects", "0"),
        ])?;
        network.connect(
            &network.left,
            &network.generator,
            links.left,
            links.left_mtu,
        )?;
        network.connect(&network.right, &network.sink, links.right, links.right_mtu)?;
        Ok(network)
    }

    fn connect(&self, link: &Link, tester: &Netns, side: Side, mtu: u16) -> Result<()> {
        let (near, far) = (&link.device, &link.tester);
        let (near_mac, far_mac) = (mac(link.device_mac), mac(link.tester_mac));
        self.device.ip(&format!(
            "link add {near} mtu {mtu} address {near_mac} type veth \
             peer name {far} mtu {mtu} address {far_mac} netns {}",
            tester.name()
        ))?;
        // What the kernel leaves to the network card would reach the other end unfinished.
        tester.exec(&format!("ethtool -K {far} tx off"))?;
        let addresses = match side {
            Side::Lan => [Family::Ipv4, Family::Ipv6]
                .map(|family| (link.device_ip(family), link.tester_ip(family)))
                .to_vec(),
            Side::Underlay => vec![(link.device_underlay().into(), (*link.router().ip()).into())],
        };
        let mut ours = format!("link set {near} up\n");
        for (device, tester) in addresses {
            let (length, nodad) = match device {
                IpAddr::V4(_) => (24, ""),
                IpAddr::V6(_) => (64, "nodad"),
            };
            ours += &format!(
                "address add {device}/{length} dev {near} {nodad}\n\
                 neigh replace {tester} lladdr {far_mac} nud permanent dev {near}\n"
            );
        }
        self.device.ip(&ours)?;
        // Without an address: whatever the tester's kernel sent by itself would be counted too.
        tester.set_sysctls(&[("net/ipv6/conf/all/disable_ipv6", "1")])?;
        tester.ip(&format!("link set {far} up")).map(drop)
    }
}

/// As `ip` writes it.
fn mac(address: [u8; 6]) -> String {
    address.map(|byte| format!("{byte:02x}")).join(":")
}
