//! The border router's programs and their maps.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use aya::maps::{Array, CpuMap, DevMapHash, HashMap, MapData, PerCpuArray, xdp::XdpMapError};
use sig_common::{
    maps::Ip,
    router::{
        Reason,
        maps::{
            self, Config, Count, Endpoint, EndpointKey, Interface, InterfaceKey, Limit, Port,
            PortKey, SIZE_CLASSES, Sender, ServiceKey, SiblingKey, Tags, Traffic, reason_index,
            traffic_index,
        },
    },
};

use super::{
    errors,
    object::{Attachment, Globals, Object, Program, ProgramFigures, TestOutcome, User, XdpMode},
};
use crate::{Error, cpus};

/// How the programs are loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouterOptions {
    /// Hop fields are not verified, forged ones pass. To measure what verification costs, never in a network.
    pub forged_hops_pass_for_benchmarks: bool,
}

/// One configuration of the fast path, as it is in the maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterTables {
    /// The AS.
    pub config: Config,
    /// Our underlay endpoints by the device that packets come in by, the tags that they have there, and the address.
    pub endpoints: BTreeMap<(u32, Tags, SocketAddr), Endpoint>,
    /// Devices that packets come in by, and VLANs on them.
    pub ports: BTreeMap<(u32, Tags), Port>,
    /// The numbers of the other routers of the AS by internal address.
    pub siblings: BTreeMap<SocketAddr, u16>,
    /// Where the services are that the topology names.
    pub services: BTreeSet<SocketAddr>,
    /// All interfaces of the AS by number.
    pub interfaces: BTreeMap<u16, Interface>,
}

/// Packets that one CPU's queue holds while they wait for it.
const CPU_QUEUE: u32 = 2048;

/// Packets and bytes of one place, by direction and size, summed over the CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotTraffic {
    counts: [[Count; SIZE_CLASSES as usize]; Traffic::ALL.len()],
}

impl SlotTraffic {
    /// Packets of a size class; see [`sig_common::router::maps::size_class`].
    #[must_use]
    pub fn of_size(&self, traffic: Traffic, class: u32) -> Count {
        self.counts[traffic as usize]
            .get(class as usize)
            .copied()
            .unwrap_or_default()
    }

    /// Packets of all sizes.
    #[must_use]
    pub fn total(&self, traffic: Traffic) -> Count {
        sum(self.counts[traffic as usize])
    }
}

/// What was not forwarded of one place, by reason, summed over the CPUs. A packet counts once: over the limit of its
/// reason as [`Reason::RateLimited`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotReasons {
    counts: [u64; Reason::COUNT],
}

impl SlotReasons {
    /// Packets with this reason.
    #[must_use]
    pub const fn of(&self, reason: Reason) -> u64 {
        self.counts[reason as usize]
    }

    /// All reasons with their packets.
    pub fn iter(&self) -> impl Iterator<Item = (Reason, u64)> {
        Reason::ALL.into_iter().zip(self.counts)
    }
}

/// The programs of a border router and their maps, attached to nothing at first.
///
/// Until [`Self::set`] they pass every packet to the kernel.
pub struct RouterPrograms {
    object: Object,
    active: Array<MapData, u32>,
    config: Array<MapData, Config>,
    endpoints: HashMap<MapData, EndpointKey, Endpoint>,
    ports: HashMap<MapData, PortKey, Port>,
    senders: HashMap<MapData, u32, Sender>,
    siblings: HashMap<MapData, SiblingKey, u16>,
    services: HashMap<MapData, ServiceKey, u32>,
    interfaces: HashMap<MapData, InterfaceKey, Interface>,
    clock: Array<MapData, u64>,
    devices: DevMapHash<MapData>,
    cpus: CpuMap<MapData>,
    cpu_numbers: Array<MapData, u32>,
    handed: PerCpuArray<MapData, u64>,
    traffic: PerCpuArray<MapData, Count>,
    reasons: PerCpuArray<MapData, u64>,
    limits: Array<MapData, Limit>,
    generation: u16,
    /// What is in the maps of each generation.
    written: [Option<RouterTables>; 2],
    /// When entries were last replaced or removed.
    replaced: Option<Instant>,
}

/// Packets that found an entry before it was replaced are done with it by then, on an idle machine by far.
const GRACE: Duration = Duration::from_millis(10);

impl RouterPrograms {
    /// Loads the programs into the kernel.
    ///
    /// # Errors
    /// Missing privileges (CAP_BPF, CAP_NET_ADMIN), or a kernel that does not take the programs.
    pub fn load(options: RouterOptions) -> Result<Self, Error> {
        let mut object = Object::new(&Globals {
            forged_hops_pass: options.forged_hops_pass_for_benchmarks,
            user: User::Router {
                cpus: cpus::possible(),
            },
            ..Globals::default()
        })?;
        object.load(&[Program::Router, Program::RouterCpu])?;
        Ok(Self {
            active: object.map(maps::ACTIVE)?,
            config: object.map(maps::CONFIG)?,
            endpoints: object.map(maps::ENDPOINTS)?,
            ports: object.map(maps::PORTS)?,
            senders: object.map(maps::SENDERS)?,
            siblings: object.map(maps::SIBLINGS)?,
            services: object.map(maps::SERVICES)?,
            interfaces: object.map(maps::INTERFACES)?,
            clock: object.map(maps::CLOCK)?,
            devices: object.map(maps::DEVICES)?,
            cpus: object.map(maps::CPUS)?,
            cpu_numbers: object.map(maps::CPU_NUMBERS)?,
            handed: object.map(maps::HANDED)?,
            traffic: object.map(maps::TRAFFIC)?,
            reasons: object.map(maps::REASONS)?,
            limits: object.map(maps::LIMITS)?,
            generation: 0,
            written: [None, None],
            replaced: None,
            object,
        })
    }

    /// Puts a configuration into force, all of it at once. Packets see the one before or this one.
    ///
    /// # Errors
    /// More entries than the maps hold. Then the one before stays in force.
    pub fn set(&mut self, tables: &RouterTables) -> Result<(), Error> {
        let generation = 1 - self.generation;
        wait_for_packets(&mut self.replaced);
        self.clear(generation)?;
        // From here on, whatever is written is to be cleared, also after an error.
        self.written[usize::from(generation)] = Some(tables.clone());
        for (place, value) in &tables.endpoints {
            let key = endpoint_key(*place, generation);
            put(&mut self.endpoints, key, *value, "add an endpoint")?;
        }
        for (place, value) in &tables.ports {
            let key = port_key(*place, generation);
            put(&mut self.ports, key, *value, "add a device")?;
        }
        for (address, value) in &tables.siblings {
            let key = sibling_key(*address, generation);
            put(&mut self.siblings, key, *value, "add a sibling")?;
        }
        for address in &tables.services {
            let key = service_key(*address, generation);
            put(&mut self.services, key, 0, "add a service")?;
        }
        for (number, value) in &tables.interfaces {
            let key = interface_key(*number, generation);
            put(&mut self.interfaces, key, *value, "add an interface")?;
        }
        self.config
            .set(u32::from(generation), tables.config, 0)
            .map_err(|e| errors::of_map("set the AS".into(), e))?;
        self.active
            .set(0, u32::from(generation), 0)
            .map_err(|e| errors::of_map("activate a configuration".into(), e))?;
        self.generation = generation;
        Ok(())
    }

    /// The configuration in force, with what was changed in it since.
    #[must_use]
    pub fn tables(&self) -> Option<&RouterTables> {
        self.written[usize::from(self.generation)].as_ref()
    }

    /// Changes one interface of the configuration in force: its state, or its next hop. Nothing is written if nothing changes.
    ///
    /// # Errors
    /// There is no such interface, or the kernel does not let us write.
    pub fn update_interface(
        &mut self,
        number: u16,
        change: impl FnOnce(&mut Interface),
    ) -> Result<(), Error> {
        let interface = self.written[usize::from(self.generation)]
            .as_mut()
            .and_then(|tables| tables.interfaces.get_mut(&number))
            .ok_or_else(|| Error::Refused(format!("there is no interface {number}")))?;
        let mut new = *interface;
        change(&mut new);
        if new != *interface {
            wait_for_packets(&mut self.replaced);
            let key = interface_key(number, self.generation);
            put(&mut self.interfaces, key, new, "change an interface")?;
            *interface = new;
        }
        Ok(())
    }

    /// Sets what the boot clock lacks to the time since 1970, in nanoseconds.
    ///
    /// # Errors
    /// The kernel does not let us write.
    pub fn set_clock(&mut self, offset: u64) -> Result<(), Error> {
        self.clock
            .set(0, offset, 0)
            .map_err(|e| errors::of_map("set the clock".into(), e))
    }

    /// Lets packets out through a device of the calling thread's network namespace. In native mode, a veth device sends
    /// only if its other end has an XDP program or GRO.
    ///
    /// # Errors
    /// No such device, or too many.
    pub fn add_device(&mut self, ifindex: u32) -> Result<(), Error> {
        self.add_sender(ifindex, ifindex, Sender::default())
    }

    /// As [`Self::add_device`], for a device whose frames `carrier` sends: itself, or that below a VLAN device, whose tags
    /// `sender` has.
    ///
    /// # Errors
    /// As there.
    pub fn add_sender(&mut self, ifindex: u32, carrier: u32, sender: Sender) -> Result<(), Error> {
        put(&mut self.senders, ifindex, sender, "add a device")?;
        self.devices
            .insert(ifindex, carrier, None, 0)
            .map_err(|e| of_xdp_map(format!("send through {}", errors::device(ifindex)), e))
    }

    /// Lets no more packets out through a device.
    ///
    /// # Errors
    /// The kernel does not let us write. It is none that the device was not there.
    pub fn remove_device(&mut self, ifindex: u32) -> Result<(), Error> {
        remove(&mut self.senders, &ifindex)?;
        match self.devices.remove(ifindex) {
            Ok(()) => Ok(()),
            Err(e) if errors::errno(&e) == Some(libc::ENOENT) => Ok(()),
            Err(e) => {
                let device = errors::device(ifindex);
                Err(errors::of_map(format!("stop sending through {device}"), e))
            }
        }
    }

    /// Sets the CPUs that packets are spread over, as many as [`Config::cpus`] says of the tables to come. Each gets a
    /// kernel thread with a queue of its own.
    ///
    /// # Errors
    /// No such CPU, or more than [`maps::MAX_CPU_NUMBERS`].
    pub fn set_cpus(&mut self, cpus: &[u32]) -> Result<(), Error> {
        let program = self.object.program_fd(Program::RouterCpu)?;
        for (index, cpu) in (0..).zip(cpus) {
            self.cpus
                .set(*cpu, CPU_QUEUE, Some(&program), 0)
                .map_err(|e| of_xdp_map(format!("use CPU {cpu}"), e))?;
            self.cpu_numbers
                .set(index, *cpu, 0)
                .map_err(|e| errors::of_map(format!("use CPU {cpu}"), e))?;
        }
        Ok(())
    }

    /// Limits the packets of a reason that pass to the slow path, at each slot.
    ///
    /// # Errors
    /// The kernel does not let us write.
    pub fn set_limit(&mut self, reason: Reason, limit: Limit) -> Result<(), Error> {
        self.limits
            .set(reason as u32, limit, 0)
            .map_err(|e| errors::of_map(format!("limit {}", reason.name()), e))
    }

    /// Packets that were given to other CPUs and that these have not begun with: lost because a queue was full, but for
    /// those that are waiting.
    ///
    /// # Errors
    /// The kernel does not let us read.
    pub fn not_taken(&self) -> Result<u64, Error> {
        // First those taken, so that none that moves meanwhile makes the difference negative.
        let [taken, given] = [maps::TAKEN_OVER, maps::HANDED_OVER].map(|index| {
            let values = self.handed.get(&index, 0);
            let values = values.map_err(|e| errors::of_map("read BPF counters".into(), e))?;
            Ok(values.iter().fold(0, |a: u64, b| a.wrapping_add(*b)))
        });
        Ok(given?.saturating_sub(taken?))
    }

    /// Reads what was received and sent at a slot.
    ///
    /// # Errors
    /// The kernel does not let us read.
    pub fn traffic(&self, slot: u16) -> Result<SlotTraffic, Error> {
        let mut counts = [[Count::default(); SIZE_CLASSES as usize]; Traffic::ALL.len()];
        for (traffic, counts) in Traffic::ALL.into_iter().zip(&mut counts) {
            // The sizes of one kind of traffic are next to each other.
            let first = traffic_index(slot, traffic, 0);
            for (index, count) in (first..).zip(counts) {
                let values = self
                    .traffic
                    .get(&index, 0)
                    .map_err(|e| errors::of_map("read BPF counters".into(), e))?;
                *count = sum(values.iter().copied());
            }
        }
        Ok(SlotTraffic { counts })
    }

    /// Reads what came in at a slot and was not forwarded.
    ///
    /// # Errors
    /// The kernel does not let us read.
    pub fn reasons(&self, slot: u16) -> Result<SlotReasons, Error> {
        let mut counts = [0; Reason::COUNT];
        for (reason, count) in Reason::ALL.into_iter().zip(&mut counts) {
            *count = self.count(slot, reason)?;
        }
        Ok(SlotReasons { counts })
    }

    /// As [`Self::reasons`], for a single reason.
    ///
    /// # Errors
    /// The kernel does not let us read.
    pub fn count(&self, slot: u16, reason: Reason) -> Result<u64, Error> {
        let values = self
            .reasons
            .get(&reason_index(slot, reason), 0)
            .map_err(|e| errors::of_map("read BPF counters".into(), e))?;
        Ok(values.iter().fold(0, |a: u64, b| a.wrapping_add(*b)))
    }

    /// Attaches the program to a device of the calling thread's network namespace. `mode` `None` is native mode if the
    /// driver has it, else generic.
    ///
    /// # Errors
    /// As [`super::Programs::attach_xdp`].
    pub fn attach(&mut self, ifindex: u32, mode: Option<XdpMode>) -> Result<Attachment, Error> {
        self.object.attach_xdp(Program::Router, ifindex, mode)
    }

    /// Runs the program over an Ethernet frame as if it had come in through queue 0 of a device of the calling thread's
    /// network namespace. Of devices, `None` stands for `lo`, whose interface index is 1; others need an XDP program
    /// attached to them.
    ///
    /// # Errors
    /// The kernel does not take the frame or the device.
    pub fn test_run(&self, frame: &[u8], ifindex: Option<u32>) -> Result<TestOutcome, Error> {
        self.object.test_run_on(Program::Router, frame, ifindex)
    }

    /// What the kernel tells of the programs.
    ///
    /// # Errors
    /// It does not let us ask.
    pub fn figures(&self) -> Result<[ProgramFigures; 2], Error> {
        Ok([
            self.object.figures(Program::Router)?,
            self.object.figures(Program::RouterCpu)?,
        ])
    }

    /// Removes the entries of a generation.
    fn clear(&mut self, generation: u16) -> Result<(), Error> {
        let Some(tables) = &self.written[usize::from(generation)] else {
            return Ok(());
        };
        for place in tables.endpoints.keys() {
            remove(&mut self.endpoints, &endpoint_key(*place, generation))?;
        }
        for place in tables.ports.keys() {
            remove(&mut self.ports, &port_key(*place, generation))?;
        }
        for address in tables.siblings.keys() {
            remove(&mut self.siblings, &sibling_key(*address, generation))?;
        }
        for address in &tables.services {
            remove(&mut self.services, &service_key(*address, generation))?;
        }
        for number in tables.interfaces.keys() {
            remove(&mut self.interfaces, &interface_key(*number, generation))?;
        }
        self.written[usize::from(generation)] = None;
        Ok(())
    }
}

/// Waits until programs that were running have ended, if entries were replaced just now: the kernel uses the memory of a
/// replaced entry for the next one that is written, and a packet under way with the former would go the way of the latter.
fn wait_for_packets(replaced: &mut Option<Instant>) {
    const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;
    if replaced.is_some_and(|replaced| replaced.elapsed() < GRACE) {
        // SAFETY: takes no pointer. It waits for a grace period of RCU, in whose critical sections programs run.
        let result = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) };
        if result != 0 {
            // Not on kernels with CPUs without a tick.
            std::thread::sleep(GRACE);
        }
    }
    *replaced = Some(Instant::now());
}

fn ip(address: IpAddr) -> Ip {
    Ip::from(address.to_canonical())
}

fn endpoint_key((ifindex, tags, address): (u32, Tags, SocketAddr), generation: u16) -> EndpointKey {
    EndpointKey {
        ip: ip(address.ip()),
        ifindex,
        tags,
        port: address.port(),
        generation,
    }
}

fn port_key((ifindex, tags): (u32, Tags), generation: u16) -> PortKey {
    PortKey {
        ifindex,
        tags,
        generation: generation.into(),
    }
}

fn sibling_key(address: SocketAddr, generation: u16) -> SiblingKey {
    SiblingKey {
        ip: ip(address.ip()),
        port: address.port(),
        generation,
    }
}

fn service_key(address: SocketAddr, generation: u16) -> ServiceKey {
    ServiceKey {
        ip: ip(address.ip()),
        port: address.port(),
        generation,
    }
}

const fn interface_key(interface: u16, generation: u16) -> InterfaceKey {
    InterfaceKey {
        interface,
        generation,
    }
}

fn sum(counts: impl IntoIterator<Item = Count>) -> Count {
    counts.into_iter().fold(Count::default(), |a, b| Count {
        packets: a.packets.wrapping_add(b.packets),
        bytes: a.bytes.wrapping_add(b.bytes),
    })
}

fn put<K: aya::Pod, V: aya::Pod>(
    map: &mut HashMap<MapData, K, V>,
    key: K,
    value: V,
    doing: &str,
) -> Result<(), Error> {
    map.insert(key, value, 0)
        .map_err(|e| errors::of_map(doing.into(), e))
}

/// Removes an entry that may not have been written.
fn remove<K: aya::Pod, V: aya::Pod>(
    map: &mut HashMap<MapData, K, V>,
    key: &K,
) -> Result<(), Error> {
    match map.remove(key) {
        Ok(()) => Ok(()),
        Err(e) if errors::errno(&e) == Some(libc::ENOENT) => Ok(()),
        Err(e) => Err(errors::of_map("remove an entry".into(), e)),
    }
}

fn of_xdp_map(doing: String, error: XdpMapError) -> Error {
    match error {
        XdpMapError::MapError(e) => errors::of_map(doing, e),
        other => Error::Refused(format!("cannot {doing}: {other}")),
    }
}
