//! Names, keys and values of the BPF maps.
//!
//! Programs and loader share these layouts through memory of the kernel, so every type is
//! `repr(C)`, has no implicit padding (a hash map compares keys bytewise, padding included) and
//! is valid for any bits. Numbers are in host byte order, addresses in network byte order, unless
//! a field says otherwise.

use core::net::IpAddr;

use crate::addr::{HostAddr, IsdAs};
use crate::reason::reasons;
use crate::wire::underlay::Local;

/// Port number that stands for the tunnel port in [`STEERING`].
///
/// Ports are told apart by the interface index of their device. The device of the tunnel port
/// lives in a network namespace of its own, where the index may be that of another port; no
/// device has the index 0.
pub const TUNNEL_PORT: u32 = 0;

/// Our endpoint per underlay interface: `u32` interface index to [`UnderlayPort`].
pub const LOCAL: &str = "LOCAL";
/// Who else but internal hosts may send frames on the underlay: longest prefix of an [`Ip`] to `u32`, any value.
pub const SOURCES: &str = "SOURCES";
/// Per CPU, the underlay source that was refused last: an [`Ip`], all zero before the first one.
pub const REFUSED: &str = "REFUSED";
/// Remote gateways whose frames are admitted: [`RemoteKey`] to [`RemoteValue`].
pub const REMOTES: &str = "REMOTES";
/// Sockets per receive queue: [`QueueKey`] to [`Sockets`].
pub const STEERING: &str = "STEERING";
/// The program for packets that `sig_lan` leaves to the kernel, if there is one.
pub const NEXT: &str = "NEXT";
/// AF_XDP sockets of all workers: index to socket.
pub const XSKS: &str = "XSKS";
/// LAN interfaces: `u32` interface index to [`LanPort`].
pub const PORTS: &str = "PORTS";
/// IPv4 destinations: longest prefix to [`LanRoute`].
pub const LAN_V4: &str = "LAN_V4";
/// IPv6 destinations: longest prefix to [`LanRoute`].
pub const LAN_V6: &str = "LAN_V6";
/// VLANs of trunks, and trunks themselves for frames without one: [`TrunkKey`] to [`TrunkPort`].
pub const TRUNKS: &str = "TRUNKS";
/// The programs that `sig_trunk` goes on with, by [`TrunkPort::program`].
pub const TRUNK_PROGRAMS: &str = "TRUNK_PROGRAMS";
/// Drops per CPU: [`crate::reason::DropReason`] to `u64` packets.
pub const DROPS: &str = "DROPS";
/// Verdicts per CPU: [`Stat`] to `u64` packets.
pub const STATS: &str = "STATS";

/// Whether somebody wants copies of dropped packets: one `u32`, 0 or 1.
pub const DROPS_WANTED: &str = "DROPS_WANTED";
/// A ring of copies of dropped packets: [`Dropped`], then the beginning of the packet.
pub const DROPPED: &str = "DROPPED";

/// Bytes of [`DROPPED`].
pub const DROPPED_BYTES: u32 = 1 << 17;
/// Bytes of a dropped packet that are copied at most.
pub const DROPPED_PACKET: usize = 256;

/// What is said about the copy of a dropped packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Dropped {
    /// When, nanoseconds of the monotonic clock.
    pub at: u64,
    /// Number of the [`DropReason`](crate::reason::DropReason).
    pub reason: u32,
    /// Index of the interface, or [`TUNNEL_PORT`].
    pub ifindex: u32,
    /// Bytes of the whole packet.
    pub len: u32,
    /// Zero.
    pub reserved: u32,
}

const _: () = assert!(size_of::<Dropped>() == 24);

/// Entries of [`LOCAL`] and [`PORTS`].
pub const MAX_PORTS: u32 = 64;
/// Entries of [`TRUNKS`].
pub const MAX_VLANS: u32 = MAX_PORTS;
/// Entries of [`REMOTES`].
pub const MAX_REMOTES: u32 = 65536;
/// Entries of [`SOURCES`].
pub const MAX_SOURCES: u32 = 16384;
/// Entries of [`STEERING`].
pub const MAX_QUEUES: u32 = 1024;
/// Entries of [`XSKS`].
pub const MAX_SOCKETS: u32 = 1024;
/// Entries of [`LAN_V4`] and of [`LAN_V6`].
pub const MAX_PREFIXES: u32 = 1 << 20;

/// An IP address in one form for both families: IPv4 as IPv4-mapped IPv6 (RFC 4291).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Ip(pub [u8; 16]);

impl Ip {
    /// The mapped form of an IPv4 address.
    #[inline(always)]
    #[must_use]
    pub const fn v4(a: [u8; 4]) -> Self {
        // As one number: put together of bytes, XDP programs would write it byte by byte.
        Self((0xffff_0000_0000 | u32::from_be_bytes(a) as u128).to_be_bytes())
    }

    /// Whether this is the mapped form of an IPv4 address.
    #[inline(always)]
    #[must_use]
    pub const fn is_mapped(&self) -> bool {
        // As numbers, for the same reason.
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = self.0;
        u64::from_ne_bytes([a, b, c, d, e, f, g, h]) == 0
            && u32::from_be_bytes([i, j, k, l]) == 0xffff
    }

    /// The IPv4 address, if this is the mapped form of one.
    #[inline(always)]
    #[must_use]
    pub const fn to_v4(self) -> Option<[u8; 4]> {
        match self.0 {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] => Some([a, b, c, d]),
            _ => None,
        }
    }

    /// The address of a SCION host; a service has none.
    #[inline(always)]
    #[must_use]
    pub const fn of_host(host: HostAddr) -> Option<Self> {
        match host {
            HostAddr::V4(a) => Some(Self::v4(a)),
            HostAddr::V6(a) => Some(Self(a)),
            HostAddr::Svc(_) => None,
        }
    }
}

impl From<Ip> for IpAddr {
    fn from(ip: Ip) -> Self {
        IpAddr::from(ip.0).to_canonical()
    }
}

impl From<IpAddr> for Ip {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(a) => Self::v4(a.octets()),
            IpAddr::V6(a) => Self(a.octets()),
        }
    }
}

/// Who sent a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C)]
pub struct RemoteKey {
    /// ISD-AS of the sender.
    pub isd_as: u64,
    /// SCION host address of the sender.
    pub host: Ip,
}

impl RemoteKey {
    /// The key of a gateway.
    #[inline(always)]
    #[must_use]
    pub const fn new(isd_as: IsdAs, host: Ip) -> Self {
        Self {
            isd_as: isd_as.0,
            host,
        }
    }
}

/// What is known of a remote gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RemoteValue {
    /// Number of the remote in the engine's tables.
    pub number: u32,
}

/// A receive queue of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C)]
pub struct QueueKey {
    /// Interface index of the port's device, or [`TUNNEL_PORT`].
    pub port: u32,
    /// Receive queue of the device.
    pub queue: u32,
}

/// Sockets that share a receive queue: `first`, `first + 1`, … of [`XSKS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Sockets {
    /// Index of the first socket.
    pub first: u32,
    /// How many; 0 means that none takes packets now.
    pub count: u32,
}

impl Sockets {
    /// One of these sockets alone, another one for the next queue.
    #[must_use]
    pub const fn only(&self, queue: u32) -> Self {
        match self.pick(queue) {
            Some(first) => Self { first, count: 1 },
            None => *self,
        }
    }

    /// Index of the socket for a hash; `None` without sockets.
    #[inline(always)]
    #[must_use]
    pub const fn pick(&self, hash: u32) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        Some(self.first.wrapping_add(hash % self.count))
    }
}

/// An underlay interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct UnderlayPort {
    /// Our endpoint.
    pub local: Local,
    /// MAC address of the device. Frames to any other are not for this host.
    pub mac: [u8; 6],
    /// The constants of this type, combined.
    pub flags: u16,
}

impl UnderlayPort {
    /// Frames are taken only from internal hosts and from what [`SOURCES`] holds.
    pub const CHECK_SOURCE: u16 = 1;
    /// As [`LanPort::FAST`].
    pub const FAST: u16 = 2;
}

/// A LAN interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct LanPort {
    /// MAC address of the device.
    pub mac: [u8; 6],
    /// The constants of this type, combined.
    pub flags: u16,
    /// Longest Ethernet frame that is taken, bytes. In generic mode the kernel hands over packets
    /// that it merged, or that the sender left to its card to cut: these are left to the kernel,
    /// which cuts them on their way into the tunnel device.
    pub max_len: u32,
}

impl LanPort {
    /// Only packets to [`LanPort::mac`] are taken. Set for a real NIC: what is bridged or flooded
    /// past it belongs to others.
    pub const CHECK_MAC: u16 = 1;
    /// Simple packets may take the [fast path](crate::fast_path): each queue is handled by one CPU at a time.
    pub const FAST: u16 = 2;
    /// Hosts may leave transport checksums to their network card.
    pub const PARTIAL_CHECKSUMS: u16 = 4;
}

/// A VLAN of a trunk: the interface below VLAN devices, on which the programs run in their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C)]
pub struct TrunkKey {
    /// Interface index of the trunk.
    pub trunk: u32,
    /// VLAN id; 0: frames that are in no VLAN.
    pub vlan: u32,
}

/// What frames of a VLAN are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct TrunkPort {
    /// Interface index of the VLAN device, or of the trunk itself: what [`LOCAL`], [`PORTS`] and [`STEERING`] know it by.
    pub ifindex: u32,
    /// One of the constants of this type.
    pub program: u32,
}

impl TrunkPort {
    /// `sig_underlay`.
    pub const UNDERLAY: u32 = 0;
    /// `sig_lan`.
    pub const LAN: u32 = 1;
    /// How many programs there are.
    pub const PROGRAMS: u32 = 2;
}

/// What happens to packets from the LAN to a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct LanRoute {
    /// One of the constants of this type.
    pub action: u32,
}

impl LanRoute {
    /// Left to the kernel: a local network inside a prefix of a remote.
    pub const PASS: Self = Self { action: 0 };
    /// Taken into the tunnel.
    pub const TUNNEL: Self = Self { action: 1 };
}

reasons! {
    /// What happened to a packet, by program.
    Stat:

    UnderlayRedirected, "underlay_redirected",
        "`sig_underlay`: a frame went to a worker.";
    UnderlayFast, "underlay_fast",
        "`sig_underlay`: the packet in a frame went straight to the LAN.";
    UnderlayPassed, "underlay_passed",
        "`sig_underlay`: not ours, left to the kernel.";
    UnderlayNoSocket, "underlay_no_socket",
        "`sig_underlay`: ours, but no worker listens on the queue: left to the kernel.";
    UnderlayDropped, "underlay_dropped",
        "`sig_underlay`: dropped; the reason is in [`DROPS`].";
    LanRedirected, "lan_redirected",
        "`sig_lan`: a packet went to a worker.";
    LanFast, "lan_fast",
        "`sig_lan`: a packet went straight to the underlay.";
    LanDropped, "lan_dropped",
        "`sig_lan`: dropped; the reason is in [`DROPS`].";
    LanPassed, "lan_passed",
        "`sig_lan`: left to the kernel.";
    LanNoSocket, "lan_no_socket",
        "`sig_lan`: for the tunnel, but no worker listens on the queue: left to the kernel.";
    TunnelRedirected, "tunnel_redirected",
        "`sig_tunnel`: a packet went to a worker.";
    TunnelFast, "tunnel_fast",
        "`sig_tunnel`: a packet went straight to the underlay.";
    TunnelDropped, "tunnel_dropped",
        "`sig_tunnel`: dropped; the reason is in [`DROPS`].";
    TunnelPassed, "tunnel_passed",
        "`sig_tunnel`: left to the kernel, which has no use for it.";
    TunnelNoSocket, "tunnel_no_socket",
        "`sig_tunnel`: for the tunnel, but no worker listens on the queue.";
    InjectRedirected, "inject_redirected",
        "`sig_inject`: sent straight to the outgoing device.";
    InjectResolving, "inject_resolving",
        "`sig_inject`: sent to the outgoing device by way of neighbour resolution.";
    InjectPassed, "inject_passed",
        "`sig_inject`: left to the kernel.";
    InjectDropped, "inject_dropped",
        "`sig_inject`: dropped; the reason is in [`DROPS`].";
}

#[cfg(feature = "user")]
mod pod {
    use super::*;

    macro_rules! pod {
        ($($name:ident)+) => {
            $(
                // SAFETY: `repr(C)` or `repr(transparent)` over integers and arrays of them,
                // Copy, 'static, without padding (asserted in the tests of this module).
                unsafe impl aya::Pod for $name {}
            )+
        };
    }
    pod!(Ip RemoteKey RemoteValue QueueKey Sockets UnderlayPort LanPort LanRoute TrunkKey TrunkPort);
}

// Sizes are the sums of the fields: there is no implicit padding.
const _: () = {
    assert!(size_of::<Ip>() == 16);
    assert!(size_of::<RemoteKey>() == 8 + 16);
    assert!(size_of::<RemoteValue>() == 4);
    assert!(size_of::<QueueKey>() == 4 + 4);
    assert!(size_of::<Sockets>() == 4 + 4);
    assert!(size_of::<UnderlayPort>() == size_of::<Local>() + 6 + 2);
    assert!(size_of::<LanPort>() == 6 + 2 + 4);
    assert!(size_of::<LanRoute>() == 4);
    assert!(size_of::<TrunkKey>() == 4 + 4);
    assert!(size_of::<TrunkPort>() == 4 + 4);
};

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn an_ipv4_address_survives_its_mapped_form() {
        assert_eq!(Ip::v4([10, 0, 0, 1]).to_v4(), Some([10, 0, 0, 1]));
        assert_eq!(
            Ip::from("10.0.0.1".parse::<IpAddr>().unwrap()),
            Ip::v4([10, 0, 0, 1])
        );
        assert_eq!(Ip::from("fd00::1".parse::<IpAddr>().unwrap()).to_v4(), None);
    }

    #[test]
    fn a_service_has_no_ip_address() {
        assert_eq!(Ip::of_host(HostAddr::SVC_CS), None);
        assert_eq!(
            Ip::of_host(HostAddr::V4([1, 2, 3, 4])),
            Some(Ip::v4([1, 2, 3, 4]))
        );
    }

    #[test]
    fn hashes_spread_over_the_sockets_of_a_queue() {
        let sockets = Sockets { first: 4, count: 3 };
        assert_eq!(
            (0..4)
                .map(|h| sockets.pick(h))
                .collect::<std::vec::Vec<_>>(),
            [Some(4), Some(5), Some(6), Some(4)]
        );
        let none = Sockets { first: 4, count: 0 };
        assert_eq!(none.pick(1), None);
        assert_eq!(none.only(1), none);
        assert_eq!(sockets.only(4), Sockets { first: 5, count: 1 });
    }
}
