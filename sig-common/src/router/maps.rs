//! Names, keys and values of the border router's BPF maps.
//!
//! As in [`crate::maps`]: `repr(C)`, no implicit padding, valid for any bits; numbers in host byte order, addresses in
//! network byte order.
//!
//! **Two generations.** What a configuration says is in the maps twice at most: every key has a generation, 0 or 1, and
//! [`ACTIVE`] names the one that packets see. A new configuration is written beside the old one and comes into force
//! with one atomic write. What changes by itself (link state, link-layer addresses) is written into the active one.

use crate::maps::Ip;

/// Which generation is in force: one `u32`, 0 or 1.
pub const ACTIVE: &str = "R_ACTIVE";
/// The AS: generation to [`Config`].
pub const CONFIG: &str = "R_CONFIG";
/// Our underlay endpoints: [`EndpointKey`] to [`Endpoint`].
pub const ENDPOINTS: &str = "R_ENDPOINTS";
/// Devices and VLANs on them that packets come in by: [`PortKey`] to [`Port`].
pub const PORTS: &str = "R_PORTS";
/// Internal addresses of the other routers of the AS: [`SiblingKey`] to its number, a `u16`, 1 and up.
pub const SIBLINGS: &str = "R_SIBLINGS";
/// Addresses of services that the topology names: [`ServiceKey`] to `u32`, which is 0. Packets for them keep their port also
/// if it is not dispatched.
pub const SERVICES: &str = "R_SERVICES";
/// All interfaces of the AS, of siblings as well: [`InterfaceKey`] to [`Interface`].
pub const INTERFACES: &str = "R_INTERFACES";
/// Nanoseconds to add to the kernel's boot clock to get those since 1970: one `u64`.
pub const CLOCK: &str = "R_CLOCK";
/// Devices that packets may leave by: interface index to interface index. Of a VLAN device: to that of its carrier.
pub const DEVICES: &str = "R_DEVICES";
/// What is particular about the devices of [`DEVICES`]: interface index to [`Sender`].
pub const SENDERS: &str = "R_SENDERS";
/// CPUs that packets are spread over, if [`Config::cpus`] is not 0: CPU number to queue and program.
pub const CPUS: &str = "R_CPUS";
/// Which CPUs these are: index below [`Config::cpus`] to CPU number, a `u32`.
pub const CPU_NUMBERS: &str = "R_CPU_NUMBERS";
/// Packets given to other CPUs, and taken by them, per CPU: [`HANDED_OVER`] and [`TAKEN_OVER`] to `u64` packets.
pub const HANDED: &str = "R_HANDED";
/// Packets and bytes per CPU: [`traffic_index`] to [`Count`].
pub const TRAFFIC: &str = "R_TRAFFIC";
/// What was not forwarded, per CPU: [`reason_index`] to `u64` packets.
pub const REASONS: &str = "R_REASONS";
/// State of the rate limits: [`reason_index`] to [`Bucket`], and for BFD of siblings [`sibling_bucket`].
pub const BUCKETS: &str = "R_BUCKETS";
/// Rate limits: [`crate::router::Reason`] to [`Limit`].
pub const LIMITS: &str = "R_LIMITS";

/// Entries of [`ENDPOINTS`] and [`INTERFACES`], both generations together.
pub const MAX_INTERFACES: u32 = 4096;
/// Entries of [`SIBLINGS`], both generations together.
pub const MAX_SIBLINGS: u32 = 1024;
/// Entries of [`SERVICES`], both generations together.
pub const MAX_SERVICES: u32 = 1024;
/// Entries of [`PORTS`], both generations together.
pub const MAX_PORTS: u32 = 4096;
/// Entries of [`DEVICES`] and [`SENDERS`].
pub const MAX_DEVICES: u32 = 1024;
/// Entries of [`CPU_NUMBERS`], the most that [`Config::cpus`] may be.
pub const MAX_CPU_NUMBERS: u32 = 64;

/// Of [`HANDED`]: packets given to another CPU.
pub const HANDED_OVER: u32 = 0;
/// Of [`HANDED`]: packets that the other CPU has begun with.
pub const TAKEN_OVER: u32 = 1;

/// VLAN tags, the outer one first, zeros where there is none: tag protocol identifier in the upper 16 bits, VLAN id in
/// the lower 12.
pub type Tags = [u32; 2];

/// Of a tag as it is in a frame: what [`Tags`] hold of it, without priority and drop eligibility.
pub const TAG_MASK: u32 = 0xffff_0fff;

/// [`EndpointKey::ifindex`] of endpoints that are on no device in particular.
pub const ANY_DEVICE: u32 = 0;

/// Places for counters. A link of this router has one of its own; 0 is that of the AS's inside.
pub const SLOTS: u32 = 256;
/// Counter slot of the inside.
pub const INSIDE_SLOT: u16 = 0;

/// The AS, and how its packets are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Config {
    /// ISD-AS.
    pub isd_as: u64,
    /// Internal address of this router.
    pub internal: Ip,
    /// Port of the internal address.
    pub internal_port: u16,
    /// First port that packets for hosts are dispatched to; with [`Config::last_port`] 0: none.
    pub first_port: u16,
    /// Last such port.
    pub last_port: u16,
    /// How many entries of [`CPU_NUMBERS`] packets are spread over; 0: each is handled where it comes in.
    pub cpus: u16,
    /// Start of the hash by which they are spread.
    pub seed: u64,
    /// Subkey K1 of AES-CMAC (RFC 4493): four words as the cipher takes them, big endian.
    pub subkey: [u32; 4],
    /// Round keys of AES-128 (FIPS 197), 44 words, big endian.
    pub round_keys: [u32; 44],
}

/// A UDP endpoint of this router in the underlay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct EndpointKey {
    /// Our IP address.
    pub ip: Ip,
    /// Interface index of the device that packets come in by, or [`ANY_DEVICE`].
    pub ifindex: u32,
    /// The tags that they have. None for [`ANY_DEVICE`].
    pub tags: Tags,
    /// Our UDP port.
    pub port: u16,
    /// 0 or 1.
    pub generation: u16,
}

/// What is received at an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Endpoint {
    /// The only address that packets of a link come from. Unspecified for the internal address.
    pub remote: Ip,
    /// Its port.
    pub remote_port: u16,
    /// SCION interface; 0: the internal address.
    pub interface: u16,
    /// Where packets are counted.
    pub slot: u16,
    /// Not 0: the address is not where the packet came in, and it is dropped.
    pub refused: u16,
    /// MAC address that frames are for: its bytes as a number, big endian. With [`ANY_DEVICE`], [`Port::mac`] counts.
    pub mac: u64,
}

/// A device that packets come in by, or a VLAN on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C)]
pub struct PortKey {
    /// Interface index of the device.
    pub ifindex: u32,
    /// The tags that frames have.
    pub tags: Tags,
    /// 0 or 1.
    pub generation: u32,
}

/// See [`PortKey`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Port {
    /// Its MAC address, as in [`Endpoint::mac`].
    pub mac: u64,
}

/// A device that packets leave by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Sender {
    /// The tags that frames get: those of a VLAN device.
    pub tags: Tags,
    /// Not 0: it sends frames in several buffers.
    pub fragments: u32,
}

/// Internal address of another router of the AS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct SiblingKey {
    /// IP address.
    pub ip: Ip,
    /// UDP port.
    pub port: u16,
    /// 0 or 1.
    pub generation: u16,
}

/// Address of a service of the AS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct ServiceKey {
    /// IP address.
    pub ip: Ip,
    /// UDP port.
    pub port: u16,
    /// 0 or 1.
    pub generation: u16,
}

/// An interface of the AS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct InterfaceKey {
    /// SCION interface, 1 and up.
    pub interface: u16,
    /// 0 or 1.
    pub generation: u16,
}

/// What is known of an interface, and how packets leave by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Interface {
    /// 0: a link of this router. Otherwise the number of the router that has it in [`SIBLINGS`].
    pub owner: u16,
    /// Where packets that leave by it are counted.
    pub slot: u16,
    /// A [`LinkType`].
    pub link_type: u8,
    /// Not 0: packets may leave by it.
    pub up: u8,
    /// Zero.
    pub reserved: u16,
    /// The other end of the link, or the sibling.
    pub next_hop: NextHop,
}

/// Where packets go in the underlay. Both addresses are of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct NextHop {
    /// IP source: ours.
    pub source: Ip,
    /// IP destination.
    pub destination: Ip,
    /// UDP source port: ours.
    pub source_port: u16,
    /// UDP destination port.
    pub destination_port: u16,
    /// Interface index of the device to send through.
    pub ifindex: u32,
    /// The tags that frames get, in place of those that they came with. A tag has the priority of the packet's first one.
    pub tags: Tags,
    /// MAC source.
    pub source_mac: [u8; 6],
    /// MAC destination.
    pub destination_mac: [u8; 6],
    /// Largest IP packet that the device sends, bytes; 0: not known.
    pub mtu: u16,
    /// Not 0: device and MAC addresses are known.
    pub valid: u8,
    /// Not 0: the device sends frames in several buffers.
    pub fragments: u8,
}

/// What kind of AS is at the other end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LinkType {
    /// A core AS, seen from a core AS.
    Core,
    /// A provider.
    Parent,
    /// A customer.
    Child,
    /// A peer.
    Peer,
}

impl LinkType {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Core, Self::Parent, Self::Child, Self::Peer];

    /// The type with this number.
    #[inline(always)]
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Core),
            1 => Some(Self::Parent),
            2 => Some(Self::Child),
            3 => Some(Self::Peer),
            _ => None,
        }
    }

    /// The word for it in topologies.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Parent => "parent",
            Self::Child => "child",
            Self::Peer => "peer",
        }
    }
}

/// Packets and bytes. Bytes are those of SCION packets: what the UDP datagram carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// What is counted at a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Traffic {
    /// Received.
    Input,
    /// Sent: from another AS to a host of ours.
    In,
    /// Sent: from a host of ours to another AS.
    Out,
    /// Sent: in transit, to a sibling.
    InTransit,
    /// Sent: in transit, from a sibling.
    OutTransit,
    /// Sent: in transit, from link to link of this router.
    BrTransit,
}

impl Traffic {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 6] = [
        Self::Input,
        Self::In,
        Self::Out,
        Self::InTransit,
        Self::OutTransit,
        Self::BrTransit,
    ];
}

/// Classes of packet size: below 64 bytes, then one for each power of two; the last one holds all the rest.
pub const SIZE_CLASSES: u32 = 9;

/// The class of a SCION packet of `len` bytes.
#[inline(always)]
#[must_use]
pub const fn size_class(len: u32) -> u32 {
    let bits = u32::BITS - len.leading_zeros();
    if bits <= 6 {
        0
    } else if bits - 6 >= SIZE_CLASSES {
        SIZE_CLASSES - 1
    } else {
        bits - 6
    }
}

/// Entries of [`TRAFFIC`].
pub const TRAFFIC_ENTRIES: u32 = SLOTS * Traffic::ALL.len() as u32 * SIZE_CLASSES;

/// Where packets of a size class are counted in [`TRAFFIC`].
#[inline(always)]
#[must_use]
pub const fn traffic_index(slot: u16, traffic: Traffic, class: u32) -> u32 {
    (slot as u32 * Traffic::ALL.len() as u32 + traffic as u32) * SIZE_CLASSES + class
}

/// Entries of [`REASONS`].
pub const REASON_ENTRIES: u32 = SLOTS * super::Reason::COUNT as u32;

/// Entries of [`BUCKETS`].
pub const BUCKET_ENTRIES: u32 = REASON_ENTRIES + MAX_SIBLINGS;

/// The limit of what the sibling with this number sends of BFD: all of them come in at one slot, and none takes what
/// another one needs.
#[inline(always)]
#[must_use]
pub const fn sibling_bucket(number: u16) -> u32 {
    REASON_ENTRIES + number as u32
}

/// Where packets that came in at `slot` are counted in [`REASONS`], and their limit is in [`BUCKETS`].
#[inline(always)]
#[must_use]
pub const fn reason_index(slot: u16, reason: super::Reason) -> u32 {
    slot as u32 * super::Reason::COUNT as u32 + reason as u32
}

/// A rate limit. Each slot has the rate to itself; all CPUs together use it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Limit {
    /// Nanoseconds per packet; 0: no limit.
    pub interval: u64,
    /// Nanoseconds' worth of packets that may come at once.
    pub burst: u64,
}

/// State of a rate limit: when the next packet is due, in nanoseconds of the boot clock (GCRA).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Bucket {
    /// Theoretical arrival time of the next packet.
    pub due: u64,
}

#[cfg(feature = "user")]
mod pod {
    use super::*;

    macro_rules! pod {
        ($($name:ident)+) => {
            $(
                // SAFETY: `repr(C)` over integers and arrays of them, Copy, 'static, without padding (asserted below).
                unsafe impl aya::Pod for $name {}
            )+
        };
    }
    pod!(Config EndpointKey Endpoint PortKey Port Sender SiblingKey ServiceKey InterfaceKey Interface NextHop Count Limit Bucket);
}

// Sizes are the sums of the fields: there is no implicit padding.
const _: () = {
    assert!(size_of::<Config>() == 8 + 16 + 4 * 2 + 8 + 4 * 4 + 4 * 44);
    assert!(size_of::<EndpointKey>() == 16 + 4 + 8 + 2 + 2);
    assert!(size_of::<Endpoint>() == 16 + 4 * 2 + 8);
    assert!(size_of::<PortKey>() == 4 + 8 + 4);
    assert!(size_of::<Port>() == 8);
    assert!(size_of::<Sender>() == 8 + 4);
    assert!(size_of::<SiblingKey>() == 16 + 2 + 2);
    assert!(size_of::<ServiceKey>() == 16 + 2 + 2);
    assert!(size_of::<InterfaceKey>() == 2 + 2);
    assert!(size_of::<NextHop>() == 16 + 16 + 2 + 2 + 4 + 8 + 6 + 6 + 2 + 1 + 1);
    assert!(size_of::<Interface>() == 2 + 2 + 1 + 1 + 2 + size_of::<NextHop>());
    assert!(size_of::<Count>() == 16);
    assert!(size_of::<Limit>() == 16);
    assert!(size_of::<Bucket>() == 8);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_classed_by_powers_of_two() {
        let classes = [0, 63, 64, 127, 128, 1472, 8191, 8192, 16384, 70000].map(size_class);
        assert_eq!(classes, [0, 0, 1, 1, 2, 5, 7, 8, 8, 8]);
    }

    #[test]
    fn every_slot_class_and_size_has_a_counter_of_its_own() {
        let mut seen = [false; TRAFFIC_ENTRIES as usize];
        for slot in 0..SLOTS as u16 {
            for traffic in Traffic::ALL {
                for class in 0..SIZE_CLASSES {
                    let index = traffic_index(slot, traffic, class) as usize;
                    assert!(!core::mem::replace(&mut seen[index], true));
                }
            }
        }
    }
}
