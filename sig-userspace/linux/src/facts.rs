//! What this host offers to a gateway, gathered without changing or sending anything.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use super::Error;
use super::ethtool::{Ethtool, Offload};
use super::link::{self, Link};
use super::neighbours::{Reason, RouteLookup, lookup};
use super::netdev::{XdpFeatures, xdp_features};
use super::netfilter::{self, Bypassed};
use super::netlink::Netlink;
use super::suited::VlanTags;
use super::sysctl::{self, Family};

/// Everything `sig doctor` looks at, in the network namespace of the calling thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The time, seconds since 1970
    pub time: u64,
    /// Kernel version and features
    pub kernel: Kernel,
    /// What this process may do
    pub privileges: Privileges,
    /// Processors
    pub cpus: Cpus,
    /// Memory
    pub memory: Memory,
    /// Settings of the host's stack
    pub settings: Settings,
    /// All interfaces, without the loopback interface
    pub interfaces: Vec<Interface>,
    /// Routes to the next hops that were asked for
    pub routes: Vec<(IpAddr, Result<RouteLookup, Reason>)>,
    /// What packets of XDP do not meet
    pub bypassed: Vec<Bypassed>,
    /// What else of this project runs here and attaches XDP programs, such as `router`; for the caller to fill in
    pub running: Option<&'static str>,
}

/// Whether the kernel has a feature, as far as this process can tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Feature {
    /// It is there.
    #[default]
    Present,
    /// It is not.
    Absent,
    /// It may be, but this process may not use it.
    Denied,
    /// Trying it failed in another way.
    Unclear(String),
}

/// Kernel version and features.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// As `uname -r` prints it
    pub release: String,
    /// First two numbers of the release
    pub version: Option<(u32, u32)>,
    /// The `bpf` system call
    pub bpf: Feature,
    /// AF_XDP sockets
    pub af_xdp: Feature,
    /// The kernel describes its types to BPF programs
    pub btf: bool,
    /// Why the device that makes TUN devices cannot be opened; `None`: it can
    pub no_tun: Option<String>,
}

/// What this process may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Privileges {
    /// Effective capabilities, bit *n* for capability number *n* of `linux/capability.h`
    pub capabilities: u64,
    /// Bytes of memory that may be locked; `None`: no limit
    pub memlock: Option<u64>,
}

/// Processors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpus {
    /// Numbers of those on which this process may run
    pub allowed: Vec<u16>,
    /// Those kept free of other work at boot, in the kernel's list notation; empty: none
    pub isolated: String,
}

/// Memory in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Free or easily freed
    pub available: u64,
    /// Free huge pages of 2 MiB
    pub huge_pages_free: u64,
}

/// Settings of the host's stack; `None` where this kernel has no such setting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// `net.ipv4.conf.all.forwarding`, the same as `net.ipv4.ip_forward`
    pub ipv4_forwarding: Option<i64>,
    /// `net.ipv6.conf.all.forwarding`
    pub ipv6_forwarding: Option<i64>,
    /// `net.ipv4.conf.all.rp_filter`
    pub rp_filter: Option<i64>,
}

/// One interface and its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// As the kernel describes it
    pub link: Link,
    /// What XDP can do on it; `None` when the kernel does not tell
    pub xdp: Option<XdpFeatures>,
    /// Offloads that are on
    pub offloads: Vec<Offload>,
    /// Whether XDP sees VLAN tags
    pub vlan_tags: VlanTags,
    /// `net.ipv4.conf.NAME.forwarding`
    pub ipv4_forwarding: Option<i64>,
    /// `net.ipv6.conf.NAME.forwarding`
    pub ipv6_forwarding: Option<i64>,
}

/// The oldest kernel that is supported.
pub const OLDEST_KERNEL: (u32, u32) = (6, 1);
/// Kernels on which gateways have been run.
pub const TESTED_KERNELS: &str = "6.1, 6.12, 6.18 and 7.3";

/// Capabilities that matter, by number and name.
pub const CAP_NET_ADMIN: (u32, &str) = (12, "CAP_NET_ADMIN");
/// Raw and AF_XDP sockets.
pub const CAP_NET_RAW: (u32, &str) = (13, "CAP_NET_RAW");
/// Locking memory beyond the limit.
pub const CAP_IPC_LOCK: (u32, &str) = (14, "CAP_IPC_LOCK");
/// Network namespaces.
pub const CAP_SYS_ADMIN: (u32, &str) = (21, "CAP_SYS_ADMIN");
/// BPF programs that read packets.
pub const CAP_PERFMON: (u32, &str) = (38, "CAP_PERFMON");
/// BPF programs and maps.
pub const CAP_BPF: (u32, &str) = (39, "CAP_BPF");

impl Privileges {
    /// What this process may do.
    #[must_use]
    pub fn read() -> Self {
        privileges()
    }

    /// Whether a capability is in effect. CAP_SYS_ADMIN includes CAP_BPF and CAP_PERFMON.
    pub fn has(&self, capability: (u32, &str)) -> bool {
        let bit = |number: u32| self.capabilities & (1u64 << number) != 0;
        let is_included = [CAP_BPF, CAP_PERFMON].contains(&capability);
        bit(capability.0) || (is_included && bit(CAP_SYS_ADMIN.0))
    }
}

/// Gathers the facts, with the routes of packets from `source`, if this host has it, to `next_hops`. Must be called within a tokio runtime.
///
/// # Errors
/// When the kernel does not list its interfaces. Everything else that cannot be found out is a fact itself.
pub async fn gather(source: Option<IpAddr>, next_hops: &[IpAddr]) -> Result<Facts, Error> {
    let netlink = Netlink::open().map_err(Error::doing("open a netlink socket"))?;
    let ethtool = Ethtool::open().map_err(Error::doing("open an ethtool socket"))?;
    let links = link::all(&netlink).await?;
    let own = |ip: &IpAddr| links.iter().any(|link| link.has_address(*ip));
    let source = source.filter(own);
    let mut routes = Vec::with_capacity(next_hops.len());
    for next_hop in next_hops {
        routes.push((*next_hop, lookup(&netlink, source, *next_hop).await));
    }
    let physical = links.iter().filter(|link| !link.loopback);
    let names: Vec<_> = physical
        .map(|link| (link.ifindex, link.name.as_str()))
        .collect();
    let bypassed = netfilter::bypassed(&netlink, &names).await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    Ok(Facts {
        time: now.unwrap_or_default().as_secs(),
        kernel: kernel(),
        privileges: privileges(),
        cpus: cpus(),
        memory: memory(),
        settings: Settings {
            ipv4_forwarding: setting(Family::V4, "all", "forwarding"),
            ipv6_forwarding: setting(Family::V6, "all", "forwarding"),
            rp_filter: setting(Family::V4, "all", "rp_filter"),
        },
        interfaces: links
            .iter()
            .filter(|link| !link.loopback)
            .map(|link| interface(&ethtool, link.clone(), &links))
            .collect(),
        routes,
        bypassed,
        running: None,
    })
}

fn setting(family: Family, interface: &str, key: &str) -> Option<i64> {
    sysctl::read(family, interface, key).ok().flatten()
}

fn interface(ethtool: &Ethtool, link: Link, all: &[Link]) -> Interface {
    Interface {
        vlan_tags: VlanTags::of(ethtool, &link, all),
        xdp: xdp_features(link.ifindex).ok().flatten(),
        offloads: Offload::ALL
            .into_iter()
            .filter(|offload| ethtool.offload(&link.name, *offload).unwrap_or(false))
            .collect(),
        ipv4_forwarding: setting(Family::V4, &link.name, "forwarding"),
        ipv6_forwarding: setting(Family::V6, &link.name, "forwarding"),
        link,
    }
}

fn kernel() -> Kernel {
    let release = release();
    Kernel {
        version: version(&release),
        release,
        bpf: bpf(),
        af_xdp: af_xdp(),
        btf: fs::exists("/sys/kernel/btf/vmlinux").unwrap_or(false),
        no_tun: crate::tun::try_open().err().map(|error| error.to_string()),
    }
}

fn release() -> String {
    read_trimmed("/proc/sys/kernel/osrelease")
}

/// The first two numbers of the release of the kernel that runs.
pub(crate) fn kernel_version() -> Option<(u32, u32)> {
    version(&release())
}

/// Whether the kernel that runs may hand a packet buffer out twice when several AF_XDP sockets receive from one queue in
/// generic mode (CVE-2025-37920), by its version. Distributors may have mended an older one.
pub fn has_generic_receive_race() -> bool {
    generic_receive_race(&release())
}

/// As [`has_generic_receive_race`], for a release such as `6.12.27-cloud`. Mended in 6.12.28, 6.14.6 and 6.15.
pub fn generic_receive_race(release: &str) -> bool {
    let Some((major, minor)) = version(release) else {
        return false;
    };
    let numbers = release.split(|c: char| !c.is_ascii_digit());
    let patch: u32 = numbers
        .take(3)
        .last()
        .and_then(|n| n.parse().ok())
        .unwrap_or(0);
    match (major, minor) {
        (6, 12) => patch < 28,
        (6, 14) => patch < 6,
        version => version < (6, 15),
    }
}

/// The first two numbers of a kernel release such as `6.18.44-cloud`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Asks for the first loaded program: reads only, and needs the same right as loading one.
fn bpf() -> Feature {
    const BPF_PROG_GET_NEXT_ID: libc::c_int = 11;
    // `union bpf_attr` as far as this command uses it: start id, next id, flags.
    let mut attributes = [0u32; 4];
    // SAFETY: `attributes` is a live, writable buffer of the size that is passed, and the command reads and writes
    // nothing else.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_PROG_GET_NEXT_ID,
            attributes.as_mut_ptr(),
            size_of_val(&attributes),
        )
    };
    match (result, io::Error::last_os_error()) {
        (0.., _) => Feature::Present,
        (_, error) => match error.raw_os_error() {
            // No program is loaded.
            Some(libc::ENOENT) => Feature::Present,
            Some(libc::ENOSYS) => Feature::Absent,
            Some(libc::EPERM | libc::EACCES) => Feature::Denied,
            _ => Feature::Unclear(error.to_string()),
        },
    }
}

/// Opens an AF_XDP socket that is bound to nothing.
pub(crate) fn af_xdp() -> Feature {
    // SAFETY: plain system call without pointers.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd >= 0 {
        // SAFETY: `fd` was just opened and is used nowhere else.
        unsafe { libc::close(fd) };
        return Feature::Present;
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAFNOSUPPORT) => Feature::Absent,
        Some(libc::EPERM | libc::EACCES) => Feature::Denied,
        _ => Feature::Unclear(error.to_string()),
    }
}

fn privileges() -> Privileges {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let capabilities = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|text| u64::from_str_radix(text.trim(), 16).ok())
        .unwrap_or(0);
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a live, writable `rlimit`.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) } == 0;
    let memlock = (known && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur);
    Privileges {
        capabilities,
        memlock,
    }
}

fn cpus() -> Cpus {
    // SAFETY: all-zero bytes are a valid, empty CPU set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is a live, writable CPU set of the size that is passed; 0 means the calling thread.
    let known = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) } == 0;
    let count = u16::try_from(libc::CPU_SETSIZE).unwrap_or(0);
    // SAFETY: the index is below CPU_SETSIZE, the number of bits in a CPU set.
    let is_set = |cpu: &u16| unsafe { libc::CPU_ISSET(usize::from(*cpu), &set) };
    let allowed = (0..count).filter(|cpu| known && is_set(cpu)).collect();
    Cpus {
        allowed,
        isolated: read_trimmed("/sys/devices/system/cpu/isolated"),
    }
}

fn memory() -> Memory {
    let available = fs::read_to_string("/proc/meminfo")
        .unwrap_or_default()
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|text| {
            text.trim()
                .trim_end_matches("kB")
                .trim()
                .parse::<u64>()
                .ok()
        })
        .map_or(0, |kib| kib.saturating_mul(1024));
    let free = read_trimmed("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    Memory {
        available,
        huge_pages_free: free.parse().unwrap_or(0),
    }
}

fn read_trimmed(path: &str) -> String {
    fs::read_to_string(path)
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_any_release_string() {
        assert_eq!(version("6.18.44"), Some((6, 18)));
        assert_eq!(version("6.6-rc1"), Some((6, 6)));
        assert_eq!(version("5.15.0-91-generic"), Some((5, 15)));
        assert_eq!(version(""), None);
        assert_eq!(version("unknown"), None);
    }

    #[test]
    fn kernels_with_the_race_are_told_by_their_release() {
        for bad in [
            "5.15.0-91-generic",
            "6.6.90",
            "6.12.27",
            "6.13.12",
            "6.14.5-1",
            "6.14-rc3",
        ] {
            assert!(generic_receive_race(bad), "{bad}");
        }
        for good in [
            "6.12.28",
            "6.12.95+deb12",
            "6.14.6",
            "6.15.0",
            "6.18.44",
            "7.3.4",
            "",
        ] {
            assert!(!generic_receive_race(good), "{good}");
        }
    }

    #[test]
    fn cap_sys_admin_includes_cap_bpf_alone() {
        let privileges = Privileges {
            capabilities: 1 << CAP_SYS_ADMIN.0,
            memlock: None,
        };
        assert!(privileges.has(CAP_BPF) && privileges.has(CAP_SYS_ADMIN));
        assert!(!privileges.has(CAP_NET_ADMIN) && !privileges.has(CAP_IPC_LOCK));
    }
}
