//! The maps of the border router. Names are those of `sig_common::router::maps`.

use aya_ebpf::{
    macros::map,
    maps::{Array, CpuMap, DevMapHash, HashMap, PerCpuArray},
};
use sig_common::router::{
    Reason,
    maps::{
        BUCKET_ENTRIES, Bucket, Config, Count, Endpoint, EndpointKey, Interface, InterfaceKey,
        Limit, MAX_CPU_NUMBERS, MAX_DEVICES, MAX_INTERFACES, MAX_PORTS, MAX_SERVICES, MAX_SIBLINGS,
        Port, PortKey, REASON_ENTRIES, Sender, ServiceKey, SiblingKey, TRAFFIC_ENTRIES,
    },
};

use super::work::{Outer, Work};

#[map]
static R_ACTIVE: Array<u32> = Array::with_max_entries(1, 0);

#[map]
static R_CONFIG: Array<Config> = Array::with_max_entries(2, 0);

#[map]
static R_ENDPOINTS: HashMap<EndpointKey, Endpoint> = HashMap::with_max_entries(MAX_INTERFACES, 0);

#[map]
static R_PORTS: HashMap<PortKey, Port> = HashMap::with_max_entries(MAX_PORTS, 0);

#[map]
static R_SIBLINGS: HashMap<SiblingKey, u16> = HashMap::with_max_entries(MAX_SIBLINGS, 0);

#[map]
static R_SERVICES: HashMap<ServiceKey, u32> = HashMap::with_max_entries(MAX_SERVICES, 0);

#[map]
static R_INTERFACES: HashMap<InterfaceKey, Interface> =
    HashMap::with_max_entries(MAX_INTERFACES, 0);

#[map]
static R_CLOCK: Array<u64> = Array::with_max_entries(1, 0);

#[map]
pub static R_DEVICES: DevMapHash = DevMapHash::with_max_entries(MAX_DEVICES, 0);

#[map]
static R_SENDERS: HashMap<u32, Sender> = HashMap::with_max_entries(MAX_DEVICES, 0);

/// The loader makes it as large as the machine has CPUs.
#[map]
pub static R_CPUS: CpuMap = CpuMap::with_max_entries(1, 0);

#[map]
static R_CPU_NUMBERS: Array<u32> = Array::with_max_entries(MAX_CPU_NUMBERS, 0);

#[map]
pub static R_HANDED: PerCpuArray<u64> = PerCpuArray::with_max_entries(2, 0);

#[map]
pub static R_TRAFFIC: PerCpuArray<Count> = PerCpuArray::with_max_entries(TRAFFIC_ENTRIES, 0);

#[map]
pub static R_REASONS: PerCpuArray<u64> = PerCpuArray::with_max_entries(REASON_ENTRIES, 0);

#[map]
pub static R_BUCKETS: Array<Bucket> = Array::with_max_entries(BUCKET_ENTRIES, 0);

#[map]
static R_LIMITS: Array<Limit> = Array::with_max_entries(Reason::COUNT as u32, 0);

#[map]
static R_WORK: PerCpuArray<Work> = PerCpuArray::with_max_entries(1, 0);

/// What this CPU knows of the packet it is at, until [`release`]; `None` if a program is using it. That happens on real-time
/// kernels alone: there, a program may be preempted by another on the same CPU.
#[inline(always)]
pub fn work() -> Option<&'static mut Work> {
    let work = R_WORK.get_ptr_mut(0)?;
    // SAFETY: the pointer is to this CPU's element, valid for any bits. Volatile, so that it is written before the rest.
    unsafe {
        if core::ptr::read_volatile(&raw const (*work).busy) != 0 {
            return None;
        }
        core::ptr::write_volatile(&raw mut (*work).busy, 1);
    }
    // SAFETY: programs stay on their CPU, and what interrupts this one there finds it busy, so this is the only reference.
    Some(unsafe { &mut *work })
}

/// Gives back what [`work`] gave.
#[inline(always)]
pub fn release(work: &mut Work) {
    // SAFETY: a reference. Volatile, so that it is written after the rest.
    unsafe { core::ptr::write_volatile(&raw mut work.busy, 0) };
}

/// The generation in force.
#[inline(always)]
pub fn generation() -> u16 {
    R_ACTIVE.get(0).map_or(0, |active| *active as u16 & 1)
}

/// The AS.
#[inline(always)]
pub fn config(generation: u16) -> Option<&'static Config> {
    R_CONFIG.get(u32::from(generation))
}

/// What is received at an endpoint.
///
/// Of this and all other entries: the value is only read, and an update in between could mix two of them; the packet would then be
/// lost.
#[inline(always)]
pub fn endpoint(key: &EndpointKey) -> Option<&'static Endpoint> {
    // SAFETY: entries are read only here; see above.
    unsafe { R_ENDPOINTS.get(key) }
}

/// A device that packets come in by.
#[inline(always)]
pub fn port(key: &PortKey) -> Option<&'static Port> {
    // SAFETY: as for endpoints.
    unsafe { R_PORTS.get(key) }
}

/// What is particular about a device that packets leave by.
#[inline(always)]
pub fn sender(ifindex: u32) -> Option<&'static Sender> {
    // SAFETY: as for endpoints.
    unsafe { R_SENDERS.get(ifindex) }
}

/// The number of the sibling that sent the packet, by its internal address.
#[inline(always)]
pub fn sibling(outer: &Outer) -> Option<u16> {
    let key = SiblingKey {
        ip: outer.source,
        port: outer.source_port,
        generation: outer.generation,
    };
    // SAFETY: as for endpoints.
    unsafe { R_SIBLINGS.get(key) }.copied()
}

/// Whether the topology names a service at this address and port.
#[inline(always)]
pub fn is_service(key: &ServiceKey) -> bool {
    // SAFETY: as for endpoints; the value is not looked at.
    unsafe { R_SERVICES.get(key) }.is_some()
}

/// An interface of the AS.
#[inline(always)]
pub fn interface(interface: u16, generation: u16) -> Option<&'static Interface> {
    let key = InterfaceKey {
        interface,
        generation,
    };
    // SAFETY: as for endpoints.
    unsafe { R_INTERFACES.get(key) }
}

/// Nanoseconds from the boot clock to those since 1970.
#[inline(always)]
pub fn clock() -> u64 {
    R_CLOCK.get(0).map_or(0, |offset| *offset)
}

/// The CPU at an index below `Config::cpus`.
#[inline(always)]
pub fn cpu(index: u32) -> Option<u32> {
    R_CPU_NUMBERS.get(index).copied()
}

/// The rate limit of a reason.
#[inline(always)]
pub fn limit(reason: Reason) -> Option<&'static Limit> {
    R_LIMITS.get(reason as u32)
}
