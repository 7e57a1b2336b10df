//! The ethtool ioctl: driver, channels and offloads of an interface.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::bpf::name_of;

const SIOCETHTOOL: libc::c_ulong = 0x8946;
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_SFLAGS: u32 = 0x26;
const ETH_FLAG_TXVLAN: u32 = 1 << 7;
const ETH_FLAG_RXVLAN: u32 = 1 << 8;

/// An offload that can be asked for and switched as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Offload {
    /// Transport checksums are left for the device to fill in (`tx`).
    TxChecksum,
    /// Packets in several memory pieces reach the device (`sg`).
    ScatterGather,
    /// The device cuts TCP segments (`tso`).
    TcpSegmentation,
    /// The stack hands over packets larger than the MTU and cuts them last (`gso`).
    GenericSegmentation,
    /// Received packets are merged before the stack sees them (`gro`).
    GenericReceive,
}

impl Offload {
    /// All of them, in an order in which they can be switched off one by one.
    pub const ALL: [Self; 5] = [
        Self::TcpSegmentation,
        Self::GenericSegmentation,
        Self::ScatterGather,
        Self::TxChecksum,
        Self::GenericReceive,
    ];

    /// The word `ethtool -K` uses.
    pub fn keyword(self) -> &'static str {
        match self {
            Self::TxChecksum => "tx",
            Self::ScatterGather => "sg",
            Self::TcpSegmentation => "tso",
            Self::GenericSegmentation => "gso",
            Self::GenericReceive => "gro",
        }
    }

    fn get_command(self) -> u32 {
        match self {
            Self::TxChecksum => 0x16,
            Self::ScatterGather => 0x18,
            Self::TcpSegmentation => 0x1e,
            Self::GenericSegmentation => 0x23,
            Self::GenericReceive => 0x2b,
        }
    }

    fn set_command(self) -> u32 {
        self.get_command() + 1
    }
}

/// Whether VLAN tags travel beside the packet instead of in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VlanOffloads {
    /// Tags of received packets are taken out (`rxvlan`).
    pub rx: bool,
    /// Tags of packets to be sent are put in last (`txvlan`).
    pub tx: bool,
}

/// Keeps an interface from taking VLAN tags out of the packets that it receives (`rxvlan`). When this is dropped, all is as before.
#[derive(Debug)]
pub struct TagsKept {
    ethtool: Ethtool,
    ifindex: u32,
    before: VlanOffloads,
}

impl TagsKept {
    /// Switches the offload of interface `ifindex` off.
    ///
    /// # Errors
    /// Missing CAP_NET_ADMIN, or the driver does not let it be switched.
    pub fn on(ifindex: u32) -> io::Result<Self> {
        let ethtool = Ethtool::open()?;
        let interface = name_of(ifindex)?;
        let before = ethtool.vlan_offloads(&interface)?;
        let wanted = VlanOffloads {
            rx: false,
            ..before
        };
        ethtool.set_vlan_offloads(&interface, wanted)?;
        let kept = TagsKept {
            ethtool,
            ifindex,
            before,
        };
        match kept.ethtool.vlan_offloads(&interface)?.rx {
            false => Ok(kept),
            true => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        }
    }
}

impl Drop for TagsKept {
    fn drop(&mut self) {
        // It may have another name now, or be gone.
        let Ok(interface) = name_of(self.ifindex) else {
            return;
        };
        match self.ethtool.set_vlan_offloads(&interface, self.before) {
            Ok(()) => tracing::info!(
                interface,
                "the card takes VLAN tags out of received packets again (`rxvlan`)"
            ),
            Err(error) => tracing::warn!(
                interface,
                "`rxvlan` stays off: {error}; `ethtool -K {interface} rxvlan on`"
            ),
        }
    }
}

/// A socket through which the interfaces of one network namespace are asked.
#[derive(Debug)]
pub struct Ethtool {
    socket: OwnedFd,
}

/// `struct ethtool_value` of `linux/ethtool.h`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// `struct ethtool_drvinfo` of `linux/ethtool.h`.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    version: [u8; 32],
    firmware: [u8; 32],
    bus: [u8; 32],
    expansion_rom: [u8; 32],
    reserved: [u8; 12],
    counts: [u32; 5],
}

/// `struct ethtool_channels` of `linux/ethtool.h`.
#[repr(C)]
#[derive(Default)]
struct ChannelCounts {
    command: u32,
    max: [u32; 4],
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

/// Queues in use, as `ethtool -l` reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channels {
    /// Receive queues
    pub rx: u32,
    /// Transmit queues
    pub tx: u32,
}

impl Ethtool {
    /// Opens a socket in the network namespace of the calling thread; needs no privilege.
    pub fn open() -> io::Result<Self> {
        // SAFETY: plain system call without pointers.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just opened and belongs to nobody else.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { socket })
    }

    /// The driver's name, such as `virtio_net` or `veth`.
    pub fn driver(&self, interface: &str) -> io::Result<String> {
        // SAFETY: all-zero bytes are a valid value of this struct of integers.
        let mut info: DriverInfo = unsafe { std::mem::zeroed() };
        info.command = ETHTOOL_GDRVINFO;
        self.ioctl(interface, &mut info)?;
        let name = CStr::from_bytes_until_nul(&info.driver).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidData, "driver name is not terminated")
        })?;
        Ok(name.to_string_lossy().into_owned())
    }

    /// The queues in use. `EOPNOTSUPP` when the driver cannot tell.
    pub fn channels(&self, interface: &str) -> io::Result<Channels> {
        let mut counts = ChannelCounts {
            command: ETHTOOL_GCHANNELS,
            ..ChannelCounts::default()
        };
        self.ioctl(interface, &mut counts)?;
        Ok(Channels {
            rx: counts.rx.saturating_add(counts.combined),
            tx: counts.tx.saturating_add(counts.combined),
        })
    }

    /// Whether an offload is on.
    pub fn offload(&self, interface: &str, offload: Offload) -> io::Result<bool> {
        let mut value = Value {
            command: offload.get_command(),
            data: 0,
        };
        self.ioctl(interface, &mut value)?;
        Ok(value.data != 0)
    }

    /// Which VLAN offloads are on.
    pub fn vlan_offloads(&self, interface: &str) -> io::Result<VlanOffloads> {
        let flags = self.flags(interface)?;
        Ok(VlanOffloads {
            rx: flags & ETH_FLAG_RXVLAN != 0,
            tx: flags & ETH_FLAG_TXVLAN != 0,
        })
    }

    /// Switches the VLAN offloads. Drivers may have further conditions, such as both being the same: what they do not take stays as it
    /// is. Needs CAP_NET_ADMIN.
    pub fn set_vlan_offloads(&self, interface: &str, wanted: VlanOffloads) -> io::Result<()> {
        let mut flags = self.flags(interface)? & !(ETH_FLAG_RXVLAN | ETH_FLAG_TXVLAN);
        for (flag, on) in [(ETH_FLAG_RXVLAN, wanted.rx), (ETH_FLAG_TXVLAN, wanted.tx)] {
            flags |= if on { flag } else { 0 };
        }
        let mut value = Value {
            command: ETHTOOL_SFLAGS,
            data: flags,
        };
        self.ioctl(interface, &mut value)
    }

    fn flags(&self, interface: &str) -> io::Result<u32> {
        let mut flags = Value {
            command: ETHTOOL_GFLAGS,
            data: 0,
        };
        self.ioctl(interface, &mut flags)?;
        Ok(flags.data)
    }

    /// Switches an offload. Needs CAP_NET_ADMIN.
    pub fn set_offload(&self, interface: &str, offload: Offload, on: bool) -> io::Result<()> {
        self.ioctl(
            interface,
            &mut Value {
                command: offload.set_command(),
                data: u32::from(on),
            },
        )
    }

    /// `argument` must be the struct that its first field, the command, names.
    fn ioctl<T>(&self, interface: &str, argument: &mut T) -> io::Result<()> {
        // SAFETY: all-zero bytes are a valid `ifreq`.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        let name = interface.as_bytes();
        if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains(&0) {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name) {
            *to = from.cast_signed();
        }
        request.ifr_ifru.ifru_data = std::ptr::from_mut(argument).cast();
        // SAFETY: `request` is a valid `ifreq` whose data points to a live, exclusively borrowed struct of the layout
        // that the command in its first field stands for, so the kernel writes only inside it.
        let result =
            unsafe { libc::ioctl(self.socket.as_raw_fd(), SIOCETHTOOL as _, &mut request) };
        if result < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }
}
