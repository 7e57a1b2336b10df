//! From facts to findings: pure, so that every judgement can be tried with a made-up host.

mod interfaces;

use std::collections::HashSet;
use std::fmt::Write;
use std::net::IpAddr;

use serde::Serialize;

use crate::control::config::{
    Config, EXPIRES_SOON, Pin, Preference, TunnelDevice, UnderlayPort, XdpMode,
};
use sig_core::notation::rfc3339;
use sig_core::port::umem::JUMBO_SIZE;
use sig_linux::af_xdp::{PacketBuffers, RingSizes};
use sig_linux::capabilities::{self, Capability};
use sig_linux::facts::{
    self, CAP_BPF, CAP_IPC_LOCK, CAP_NET_ADMIN, CAP_NET_RAW, Facts, Feature, OLDEST_KERNEL,
    TESTED_KERNELS,
};
use sig_linux::link::MAX_XDP_MTU;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// As it should be.
    Good,
    /// Works, but deserves a look.
    Warning,
    /// The gateway cannot run like this.
    Bad,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// How much it matters
    pub level: Level,
    /// What it belongs to: `kernel`, `privileges`, `interface eth0`, ...
    pub area: String,
    /// What was found
    pub text: String,
    /// What to do about it
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Finding {
    pub(crate) fn good(area: &str, text: impl Into<String>) -> Self {
        Self {
            level: Level::Good,
            area: area.into(),
            text: text.into(),
            remedy: None,
        }
    }

    pub(crate) fn warning(area: &str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            level: Level::Warning,
            remedy: Some(remedy.into()),
            ..Self::good(area, text)
        }
    }

    pub(crate) fn bad(area: &str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            level: Level::Bad,
            remedy: Some(remedy.into()),
            ..Self::good(area, text)
        }
    }
}

/// First kernel that forwards IPv6 per interface (`force_forwarding`).
const FORCE_FORWARDING_KERNEL: (u32, u32) = (6, 17);

const CHUNK: u64 = 4096;
/// A packet being put together (9 KiB, the largest path MTU).
const REASSEMBLY_SLOT: u64 = 9216;
const HUGE_PAGE: u64 = 2 << 20;
const MIB: u64 = 1 << 20;

/// Judges the facts: what any gateway needs, or what the one with this configuration needs.
pub(super) fn findings(facts: &Facts, config: Option<&Config>) -> Vec<Finding> {
    let mut out = Vec::new();
    kernel(&mut out, facts, config);
    privileges(&mut out, facts, capabilities::GATEWAY, config);
    locked_memory(&mut out, facts, config);
    memory(&mut out, facts, config);
    cpus(&mut out, facts, config);
    stack(&mut out, facts, config);
    match config {
        None => {
            for interface in &facts.interfaces {
                interfaces::general(&mut out, facts, interface);
            }
            let of_all = facts
                .bypassed
                .iter()
                .filter(|found| found.interface().is_none());
            out.extend(of_all.map(interfaces::bypassed));
        }
        Some(config) => {
            paths(&mut out, config, facts.time);
            interfaces::tunnel(&mut out, facts, config);
            interfaces::configured(&mut out, facts, config);
        }
    }
    out
}

/// Judges the facts for a border router: that with this topology, or any.
pub(super) fn router_findings(facts: &Facts, own: Option<&[IpAddr]>) -> Vec<Finding> {
    let mut out = Vec::new();
    kernel(&mut out, facts, None);
    // It has no AF_XDP sockets.
    out.retain(|finding| !finding.text.starts_with("AF_XDP"));
    privileges(&mut out, facts, capabilities::ROUTER, None);
    let holds = |address: &IpAddr| {
        let mut interfaces = facts.interfaces.iter();
        interfaces.any(|interface| interface.link.has_address(*address))
    };
    for address in own.unwrap_or_default() {
        if !holds(address) {
            out.push(Finding::bad(
                "addresses",
                format!("no interface carries {address} of this router in the topology"),
                "`ip addr add` it, or correct the topology",
            ));
        }
    }
    for interface in &facts.interfaces {
        let is_used = |own: &[IpAddr]| own.iter().any(|own| interface.link.has_address(*own));
        if own.is_none_or(is_used) {
            interfaces::of_router(&mut out, facts, interface);
        }
    }
    out
}

fn kernel(out: &mut Vec<Finding>, facts: &Facts, config: Option<&Config>) {
    const AREA: &str = "kernel";
    let kernel = &facts.kernel;
    let release = &kernel.release;
    let oldest = format!("{}.{}", OLDEST_KERNEL.0, OLDEST_KERNEL.1);
    out.push(match kernel.version {
        Some(version) if version < OLDEST_KERNEL => Finding::bad(
            AREA,
            format!("Linux {release} is too old: {oldest} is the oldest that is supported"),
            format!("boot a newer kernel; {TESTED_KERNELS} were tested"),
        ),
        Some(_) => Finding::good(AREA, format!("Linux {release}")),
        None => Finding::warning(
            AREA,
            format!("cannot read a version from {release:?}"),
            format!("make sure it is Linux {oldest} or newer"),
        ),
    });
    let shares = config.is_some_and(|config| {
        config.dataplane.workers > 1 && config.dataplane.mode != XdpMode::Native
    });
    if shares && facts::generic_receive_race(release) {
        out.push(Finding::warning(
            AREA,
            format!(
                "Linux {release}: in generic mode only one worker can serve a queue (CVE-2025-37920)"
            ),
            "boot Linux 6.12.28, 6.14.6, 6.15 or newer, or use interfaces with native XDP",
        ));
    }
    let missing = missing_bpf(config);
    let mut feature = |name: &str, feature: &Feature, option: &str, capability: &str| {
        out.push(match feature {
            Feature::Present => Finding::good(AREA, format!("{name} can be used")),
            Feature::Absent => {
                missing(AREA, &format!("{name}: not in this kernel"), format!("boot a kernel with {option}"))
            }
            Feature::Denied => missing(
                AREA,
                &format!("{name}: no permission to use it"),
                format!("run as root, or with {capability}; if that is already the case, a seccomp filter or security module denies it"),
            ),
            Feature::Unclear(error) => {
                Finding::warning(AREA, format!("{name}: {error}"), "start the gateway; its error message says more")
            }
        });
    };
    feature("BPF", &kernel.bpf, "CONFIG_BPF_SYSCALL=y", CAP_BPF.1);
    feature(
        "AF_XDP",
        &kernel.af_xdp,
        "CONFIG_XDP_SOCKETS=y",
        CAP_NET_RAW.1,
    );
    out.push(if kernel.btf {
        Finding::good(AREA, "the kernel provides BTF")
    } else {
        Finding::warning(
            AREA,
            "the kernel provides no BTF (no /sys/kernel/btf/vmlinux)",
            "the gateway runs without it; tools that trace drops need CONFIG_DEBUG_INFO_BTF=y",
        )
    });
}

/// How to judge what XDP needs: the gateway does without it, unless it is told not to.
fn missing_bpf(config: Option<&Config>) -> fn(&str, &str, String) -> Finding {
    let does_without = config.is_some_and(|config| {
        config.dataplane.underlay_port != UnderlayPort::Xdp
            && config.tunnel.device != TunnelDevice::Veth
    });
    if does_without {
        |area, text, remedy| {
            let text = format!("{text}; without it, UDP sockets and a TUN device are used");
            Finding::warning(area, text, remedy)
        }
    } else {
        bad_without
    }
}

fn bad_without(area: &str, text: &str, remedy: String) -> Finding {
    Finding::bad(area, text, remedy)
}

const PRIVILEGES: &str = "privileges";

fn privileges(
    out: &mut Vec<Finding>,
    facts: &Facts,
    needed: &[(Capability, &str)],
    config: Option<&Config>,
) {
    for (capability, what) in needed {
        let name = capability.1;
        out.push(if facts.privileges.has(*capability) {
            Finding::good(PRIVILEGES, format!("{name} for {what}"))
        } else {
            let missing = match *capability {
                CAP_NET_ADMIN => bad_without,
                _ => missing_bpf(config),
            };
            missing(
                PRIVILEGES,
                &format!("{name} is missing: {what}"),
                format!("run as root, or add {name} to AmbientCapabilities= of the systemd unit"),
            )
        });
    }
}

fn locked_memory(out: &mut Vec<Finding>, facts: &Facts, config: Option<&Config>) {
    const AREA: &str = PRIVILEGES;
    let privileges = &facts.privileges;
    let needed = packet_memory(facts, config);
    out.push(match privileges.memlock {
        _ if privileges.has(CAP_IPC_LOCK) => Finding::good(AREA, "CAP_IPC_LOCK: no limit on locked memory"),
        None => Finding::good(AREA, "no limit on locked memory"),
        Some(limit) if limit >= needed => {
            Finding::good(AREA, format!("{} MiB of memory may be locked, {} MiB are needed", limit / MIB, needed.div_ceil(MIB)))
        }
        Some(limit) => Finding::bad(
            AREA,
            format!(
                "only {} MiB of memory may be locked, but the packet buffers take {} MiB",
                limit / MIB,
                needed.div_ceil(MIB)
            ),
            "add CAP_IPC_LOCK, or LimitMEMLOCK=infinity in the systemd unit (`ulimit -l unlimited` in a shell)",
        ),
    });
}

/// Memory of the packet buffers in bytes.
fn packet_memory(facts: &Facts, config: Option<&Config>) -> u64 {
    chunk_memory(facts, config) + jumbo_memory(facts, config)
}

/// Memory of the chunks in bytes: as configured, else enough to fill every ring.
fn chunk_memory(facts: &Facts, config: Option<&Config>) -> u64 {
    let chunks = config.and_then(|config| config.dataplane.chunks);
    match chunks {
        Some(chunks) => u64::from(chunks) * CHUNK,
        None => buffers(facts, config).default * CHUNK,
    }
}

/// Memory of the jumbo frames in bytes, if there are any.
fn jumbo_memory(facts: &Facts, config: Option<&Config>) -> u64 {
    match config {
        Some(found) if interfaces::has_jumbo(facts, found) => {
            buffers(facts, config).jumbo * JUMBO_SIZE as u64
        }
        _ => 0,
    }
}

fn buffers(facts: &Facts, config: Option<&Config>) -> PacketBuffers {
    // Without a configuration: one worker, one underlay and one LAN interface, default rings.
    let (workers, ring) = config.map_or((1, 2048), |config| {
        let dataplane = &config.dataplane;
        (u64::from(dataplane.workers), dataplane.ring_size)
    });
    // The underlay first, then the LAN interfaces, by their receive queues; the tunnel port has one per worker.
    let mut ports = config.map_or(vec![(None, 1); 2], |config| {
        interfaces::queues(facts, config)
    });
    ports.push((None, workers));
    // Where few queues feed several workers, each of them has a socket on every queue.
    let sockets = |port: usize, queues: u64| {
        if port == 0 || queues < workers {
            queues * workers
        } else {
            queues
        }
    };
    let mut seen = HashSet::new();
    let is_new = |(ifindex, _): &&(Option<u32>, u64)| ifindex.is_none_or(|of| seen.insert(of));
    let queues = ports.iter().filter(is_new).map(|(_, queues)| queues).sum();
    let sockets = (0..)
        .zip(&ports)
        .map(|(port, (_, queues))| sockets(port, *queues));
    let rings = RingSizes::all(ring);
    PacketBuffers::of(workers, &rings, queues, sockets.sum())
}

/// Memory of the reassembly in bytes.
fn reassembly_memory(facts: &Facts, config: Option<&Config>) -> u64 {
    config.map_or(0, |config| {
        let held = match interfaces::has_jumbo(facts, config) {
            true => REASSEMBLY_SLOT,
            false => CHUNK,
        };
        let limits = &config.dataplane.limits;
        u64::from(config.dataplane.workers)
            * (u64::from(limits.packets_total) * REASSEMBLY_SLOT
                + u64::from(limits.held_total) * held)
    })
}

fn memory(out: &mut Vec<Finding>, facts: &Facts, config: Option<&Config>) {
    const AREA: &str = "memory";
    let packets = packet_memory(facts, config);
    let reassembly = reassembly_memory(facts, config);
    let needed = packets + reassembly;
    let available = facts.memory.available;
    let text = format!(
        "about {} MiB needed, {} MiB available",
        needed.div_ceil(MIB),
        available / MIB
    );
    out.push(if available >= needed {
        Finding::good(AREA, text)
    } else {
        Finding::bad(
            AREA,
            text,
            "lower `workers`, `ring_size` or `chunks` in [dataplane], or the number of queues (`ethtool -L`), or add memory",
        )
    });
    let jumbo = jumbo_memory(facts, config);
    if let (1.., Some(config)) = (jumbo, config) {
        let workers = u64::from(config.dataplane.workers);
        out.push(Finding::good(
            AREA,
            format!(
                "for an MTU above {MAX_XDP_MTU}: {} MiB per worker, of which {} MiB are jumbo frames and {} MiB reassembly",
                needed.div_ceil(MIB * workers),
                jumbo.div_ceil(MIB * workers),
                reassembly.div_ceil(MIB * workers),
            ),
        ));
    }
    let pages = packets.div_ceil(HUGE_PAGE);
    let free = facts.memory.huge_pages_free;
    let text = format!("{free} huge pages of 2 MiB are free, the packet buffers need {pages}");
    let remedy = format!("`sysctl -w vm.nr_hugepages={pages}`, preferably at boot");
    match config.map_or(Preference::Auto, |config| config.dataplane.huge_pages) {
        Preference::Never => {}
        _ if free >= pages => out.push(Finding::good(AREA, text)),
        Preference::Auto => out.push(Finding::warning(
            AREA,
            format!("{text}: falling back to 4 KiB pages"),
            format!("{remedy}; the gateway works without them"),
        )),
        Preference::Require => out.push(Finding::bad(AREA, text, remedy)),
    }
}

fn cpus(out: &mut Vec<Finding>, facts: &Facts, config: Option<&Config>) {
    const AREA: &str = "processors";
    let allowed = &facts.cpus.allowed;
    let mut text = format!("{} can be used", allowed.len());
    if !facts.cpus.isolated.is_empty() {
        let _ = write!(text, "; isolated: {}", facts.cpus.isolated);
    }
    let Some(config) = config else {
        out.push(Finding::good(AREA, text));
        return;
    };
    let workers = usize::from(config.dataplane.workers);
    if let Pin::Cpus(wanted) = &config.dataplane.pin {
        for cpu in wanted.iter().filter(|cpu| !allowed.contains(cpu)) {
            out.push(Finding::bad(
                AREA,
                format!("CPU {cpu} in `pin` does not exist or may not be used"),
                format!("choose from {allowed:?}"),
            ));
        }
    }
    out.push(if workers > allowed.len() {
        Finding::warning(
            AREA,
            format!("{text}, fewer than the {workers} workers"),
            format!("set `workers` in [dataplane] to {} or less", allowed.len()),
        )
    } else if workers == allowed.len() && config.dataplane.busy_poll {
        Finding::warning(
            AREA,
            format!("{text}, all used by workers with `busy_poll`"),
            "leave one for the rest of the host: use fewer `workers`, or `busy_poll = false`",
        )
    } else {
        Finding::good(AREA, format!("{text} by {workers} worker(s)"))
    });
}

/// Whether configured paths can still be used; `now` is in seconds since 1970.
fn paths(out: &mut Vec<Finding>, config: &Config, now: u64) {
    for remote in &config.remotes {
        for path in &remote.paths {
            let Some(expires_at) = path.expires_at() else {
                continue;
            };
            let area = format!("path \"{}\" to {}", path.name, remote.isd_as);
            let at = rfc3339(expires_at);
            let remedy = "replace it, for example with \"sig path make\", and run \"sig reload\"";
            out.push(match expires_at.checked_sub(now) {
                None | Some(0) => Finding::bad(
                    &area,
                    format!("expired at {at}: routers drop its packets"),
                    remedy,
                ),
                Some(left) if left < EXPIRES_SOON.as_secs() => {
                    Finding::warning(&area, format!("expires soon, at {at}"), remedy)
                }
                Some(_) => Finding::good(&area, format!("valid until {at}")),
            });
        }
    }
}

/// Settings of the kernel's stack, which carries what the fast way does not.
fn stack(out: &mut Vec<Finding>, facts: &Facts, config: Option<&Config>) {
    const AREA: &str = "kernel's stack";
    let settings = &facts.settings;
    out.push(match settings.ipv4_forwarding {
        Some(0) if config.is_none_or(|config| config.dataplane.lan.is_empty()) => Finding::warning(
            AREA,
            "this host does not forward IPv4: without a `lan` interface only locally generated packets enter the tunnel",
            "`sysctl -w net.ipv4.ip_forward=1` if it serves other hosts",
        ),
        Some(0) => Finding::warning(
            AREA,
            "this host does not forward IPv4: packets that XDP leaves to the kernel do not enter the tunnel",
            "`sysctl -w net.ipv4.ip_forward=1`",
        ),
        _ => Finding::good(AREA, "IPv4 is forwarded"),
    });
    out.push(match (settings.ipv6_forwarding, facts.kernel.version) {
        (None, _) => Finding::warning(AREA, "no IPv6 in this kernel", "nothing to do unless you use IPv6"),
        (Some(0), Some(version)) if version >= FORCE_FORWARDING_KERNEL => Finding::warning(
            AREA,
            "this host does not forward IPv6: packets from the tunnel are delivered, but packets that XDP leaves to \
             the kernel do not enter it",
            "`sysctl -w net.ipv6.conf.all.forwarding=1` (router advertisements then need accept_ra=2)",
        ),
        (Some(0), _) => Finding::warning(
            AREA,
            "this host does not forward IPv6: the first packets to a LAN host and all packets that XDP leaves \
             to the kernel are lost",
            "`sysctl -w net.ipv6.conf.all.forwarding=1` (router advertisements then need accept_ra=2)",
        ),
        _ => Finding::good(AREA, "IPv6 is forwarded"),
    });
    out.push(match settings.rp_filter {
        Some(1) => Finding::warning(
            AREA,
            "strict reverse path filtering on all interfaces (net.ipv4.conf.all.rp_filter = 1): packets from a \
             remote are dropped while its prefix is routed elsewhere",
            "`sysctl -w net.ipv4.conf.all.rp_filter=0` and enable it per interface where you need it",
        ),
        _ => Finding::good(AREA, "reverse path filtering does not interfere"),
    });
}

#[cfg(test)]
mod tests;
