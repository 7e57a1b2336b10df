//! From a configuration, and what is around, to the tables of the programs.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
    time::Instant,
};

use ipnet::{IpNet, Ipv6Net};
use sig_common::{
    maps::Ip,
    mark::Mark,
    srv6::{
        Behavior, Flavors, Sid,
        filter::Row,
        hmac::HmacKey,
        maps::{Adjacency, ENGINE, Function, MAX_HEADERS, Peer, Policy, Port, TUNNEL},
    },
    wire::{
        TTL, ipv6,
        srv6::{Header, Hmac, MAX_MAC, NEXT_IPV6, Tlv, View},
    },
};
use sig_linux::{
    bpf::{Rules, Sr},
    link::Link,
    neighbours::{Resolution, Resolved},
};

use super::{
    config::{
        HmacRule, HopLimit, ProbeKind, Remembered, Service, ServiceAddress, Srv6, Steering, Target,
    },
    shared::Changes,
};

/// What the configuration does not say.
#[derive(Default)]
pub(crate) struct Around {
    /// Devices by name.
    pub(crate) links: BTreeMap<String, Link>,
    /// Neighbours.
    pub(crate) next_hops: HashMap<IpAddr, Resolution>,
    /// Devices with the program.
    pub(crate) attached: BTreeSet<String>,
    /// Devices that packets may leave by.
    pub(crate) sending: BTreeSet<String>,
    /// How often headers of functions change.
    pub(crate) changes: Changes,
    /// Functions that run in the process.
    pub(crate) running: BTreeSet<String>,
    /// Functions that do not answer probes, and since when.
    pub(crate) silent: BTreeMap<String, Instant>,
}

impl Around {
    fn carries(&self, name: &str) -> Option<&Link> {
        self.links.get(name).filter(|link| link.up && link.carrier)
    }

    fn resolved(&self, address: IpAddr) -> Option<&Resolved> {
        self.next_hops.get(&address)?.resolved()
    }
}

/// The gateway that a node is part of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beside {
    /// Its tunnel device, and the index of that: the name may change.
    pub(crate) tunnel: String,
    pub(crate) tunnel_index: u32,
    /// LAN interfaces: the gateway's program runs there, and leaves to that of the node what is not its own.
    pub(crate) lan: Vec<String>,
    /// Devices that copies of packets leave by.
    pub(crate) mirrors: BTreeSet<String>,
}

/// What things are called in the maps: a number for each, which stays while it is configured.
#[derive(Default)]
pub(crate) struct Numbers {
    policies: Given<String>,
    functions: Given<String>,
    adjacencies: Given<Neighbour>,
    slots: Given<Counted>,
    flows: Flows,
    /// Functions in the process, which know their numbers.
    reserved: BTreeSet<String>,
}

/// What the flows of functions are remembered under. No number is given twice: the entries of a function that is gone stay until
/// there are newer ones.
#[derive(Default)]
struct Flows {
    numbers: BTreeMap<String, u32>,
    last: u32,
}

impl Flows {
    fn number(&mut self, function: &str) -> u32 {
        if let Some(number) = self.numbers.get(function) {
            return *number;
        }
        self.last += 1;
        self.numbers.insert(function.to_owned(), self.last);
        self.last
    }
}

/// What packets are sent to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Neighbour {
    /// A neighbour.
    Of(IpAddr),
    /// A device that copies leave by.
    Mirror(String),
}

/// What has counters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Counted {
    Sid(Ipv6Addr),
    Policy(String),
    Function(String),
    Rule(String),
}

/// Numbers from 1 on.
struct Given<K> {
    numbers: BTreeMap<K, u32>,
    /// Below the highest that was ever given.
    free: BTreeSet<u32>,
}

impl<K> Default for Given<K> {
    fn default() -> Self {
        Self {
            numbers: BTreeMap::new(),
            free: BTreeSet::new(),
        }
    }
}

impl<K: Ord + Clone> Given<K> {
    fn number(&mut self, key: &K) -> u32 {
        if let Some(number) = self.numbers.get(key) {
            return *number;
        }
        let number = match self.free.pop_first() {
            Some(number) => number,
            None => self.numbers.len() as u32 + 1,
        };
        self.numbers.insert(key.clone(), number);
        number
    }

    fn keep(&mut self, is_kept: impl Fn(&K) -> bool) -> Vec<u32> {
        let gone = self.numbers.extract_if(.., |key, _| !is_kept(key));
        let gone: Vec<u32> = gone.map(|(_, number)| number).collect();
        self.free.extend(&gone);
        gone
    }
}

impl Numbers {
    /// Takes back the numbers of what is configured no more, and is in no table. Returns the slots whose counters somebody else
    /// may get.
    pub(crate) fn keep(&mut self, config: &Srv6, beside: Option<&Beside>) -> Vec<u32> {
        let is_policy = |name: &String| config.policies.iter().any(|of| of.name == *name);
        let is_function = |name: &String| config.functions.iter().any(|of| of.name == *name);
        self.policies.keep(is_policy);
        let reserved = &self.reserved;
        self.functions
            .keep(|name| is_function(name) || reserved.contains(name));
        self.flows.numbers.retain(|name, _| {
            let mut functions = config.functions.iter();
            functions.any(|of| of.name == *name && of.headers == Remembered::OfFlows)
        });
        let hops = next_hops(config);
        self.adjacencies.keep(|neighbour| match neighbour {
            Neighbour::Of(address) => hops.contains(address),
            Neighbour::Mirror(device) => beside.is_some_and(|of| of.mirrors.contains(device)),
        });
        self.slots.keep(|counted| match counted {
            Counted::Sid(sid) => config.sids.iter().any(|of| of.sid == *sid),
            Counted::Policy(name) => is_policy(name),
            Counted::Function(name) => is_function(name),
            Counted::Rule(name) => config.rules.iter().any(|of| of.name == *name),
        })
    }

    /// Where something is counted.
    pub(crate) fn slot(&mut self, of: Counted) -> u32 {
        self.slots.number(&of)
    }

    /// The number of a policy.
    pub(crate) fn policy(&mut self, name: &str) -> u32 {
        self.policies.number(&name.to_owned())
    }

    /// The number of a device that copies leave by.
    pub(crate) fn mirror(&mut self, device: &str) -> u32 {
        self.adjacencies
            .number(&Neighbour::Mirror(device.to_owned()))
    }

    /// The number of a function in the process, which stays.
    pub(crate) fn reserve(&mut self, name: &str) -> u32 {
        self.reserved.insert(name.to_owned());
        self.function(name)
    }

    /// The number of a function.
    pub(crate) fn function(&mut self, name: &str) -> u32 {
        self.functions.number(&name.to_owned())
    }
}

/// The neighbours that the configuration names.
pub(crate) fn next_hops(config: &Srv6) -> Vec<IpAddr> {
    let of_sids = config.sids.iter().filter_map(|sid| match sid.target {
        Target::NextHop(address) => Some(address),
        _ => None,
    });
    let of_functions = config.functions.iter().filter_map(|of| match of.address {
        ServiceAddress::NextHop(address) => Some(address),
        ServiceAddress::Mac(_) | ServiceAddress::Process => None,
    });
    let mut all: Vec<_> = of_sids.chain(of_functions).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The devices that packets come in by.
pub(crate) fn ports<'a>(
    config: &'a Srv6,
    beside: Option<&'a Beside>,
) -> impl Iterator<Item = &'a String> {
    let returns = config.functions.iter().map(|of| &of.return_interface);
    let node = &config.node;
    let tunnel = beside.map(|gateway| &gateway.tunnel);
    let known = node.trusted.iter().chain(&node.untrusted);
    known.chain(returns).chain(frames(config)).chain(tunnel)
}

/// The devices whose frames go into policies.
pub(crate) fn frames(config: &Srv6) -> impl Iterator<Item = &String> {
    config.policies.iter().flat_map(|of| &of.frames_from)
}

/// The devices that packets may leave by.
pub(crate) fn outputs<'a>(
    config: &'a Srv6,
    beside: Option<&'a Beside>,
) -> impl Iterator<Item = &'a String> {
    let of_gateway = beside.into_iter().flat_map(|gateway| {
        let devices = gateway.mirrors.iter().chain([&gateway.tunnel]);
        devices.chain(&gateway.lan)
    });
    let of_sids = config.sids.iter().filter_map(|sid| match &sid.target {
        Target::Interface(name) => Some(name),
        _ => None,
    });
    let of_functions = config.functions.iter().map(|of| &of.interface);
    let node = &config.node;
    node.trusted
        .iter()
        .chain(&node.untrusted)
        .chain(of_sids)
        .chain(of_functions)
        .chain(of_gateway)
}

/// Whether a function is alive, as far as devices, neighbours and probes tell.
pub(crate) fn is_up(function: &Service, around: &Around) -> bool {
    let is_running =
        function.address != ServiceAddress::Process || around.running.contains(&function.name);
    is_running && is_linked(function, around) && !around.silent.contains_key(&function.name)
}

/// Whether it is, as far as devices and neighbours tell.
pub(crate) fn is_linked(function: &Service, around: &Around) -> bool {
    let back = &function.return_interface;
    way_to(function, around).is_some()
        && around.carries(back).is_some()
        && around.attached.contains(back)
        && around.sending.contains(&function.interface)
}

/// Why a function is down.
pub(crate) fn why_down(function: &Service, around: &Around, now: Instant) -> Option<String> {
    if function.address == ServiceAddress::Process && !around.running.contains(&function.name) {
        return Some("process: not running".to_owned());
    }
    for name in [&function.interface, &function.return_interface] {
        if around.carries(name).is_none() {
            return Some(format!("link: {name}"));
        }
    }
    if !around.sending.contains(&function.interface) {
        return Some(format!(
            "{} does not send packets of XDP programs",
            function.interface
        ));
    }
    if !around.attached.contains(&function.return_interface) {
        return Some(format!("no program on {}", function.return_interface));
    }
    if way_to(function, around).is_none() {
        return Some("neighbour: no answer".to_owned());
    }
    let since = around.silent.get(&function.name)?;
    let seconds = now.saturating_duration_since(*since).as_secs();
    Some(format!("probe: no answer for {seconds} s"))
}

/// A function as a neighbour behind its device.
pub(crate) fn neighbour<'a>(function: &Service, around: &'a Around) -> Option<&'a Resolved> {
    let ServiceAddress::NextHop(address) = function.address else {
        return None;
    };
    let link = around.links.get(&function.interface)?;
    around
        .resolved(address)
        .filter(|resolved| resolved.ifindex == link.ifindex)
}

/// The way to a function.
pub(crate) fn way_to(function: &Service, around: &Around) -> Option<Adjacency> {
    let link = around.carries(&function.interface)?;
    let (mac, mtu) = match function.address {
        ServiceAddress::Mac(mac) => (mac, link.mtu),
        // Its number is what it goes by: see `tables`.
        ServiceAddress::Process => ([0; 6], link.mtu),
        ServiceAddress::NextHop(_) => {
            let resolved = neighbour(function, around)?;
            (resolved.destination_mac, resolved.mtu)
        }
    };
    Some(adjacency(link.ifindex, mac, link.mac?, mtu))
}

fn adjacency(ifindex: u32, destination: [u8; 6], source: [u8; 6], mtu: u32) -> Adjacency {
    let mut macs = [0; 12];
    macs[..6].copy_from_slice(&destination);
    macs[6..].copy_from_slice(&source);
    Adjacency {
        ifindex,
        mtu,
        macs,
        known: 1,
    }
}

/// The tables.
pub(crate) fn tables(
    config: &Srv6,
    beside: Option<&Beside>,
    numbers: &mut Numbers,
    around: &Around,
) -> Sr {
    let mut sr = Sr::default();
    for locator in &config.node.locators {
        sr.locators.insert((*locator).into(), 0);
    }
    let steers = config
        .policies
        .iter()
        .any(|policy| !policy.destinations.is_empty())
        || config.rules.iter().any(|rule| rule.policy().is_some());
    let steered = if steers { Port::STEERED } else { 0 };
    let verified = match config.node.hmac {
        HmacRule::Ignore => 0,
        HmacRule::Check => Port::VERIFIED,
        HmacRule::Require => Port::VERIFIED | Port::AUTHENTIC,
    };
    sr.hmac_keys.extend(config.hmac_keys.iter().copied());
    for (names, flags) in [
        (&config.node.trusted, steered | verified | Port::TRUSTED),
        (&config.node.untrusted, steered),
    ] {
        for link in names.iter().filter_map(|name| around.links.get(name)) {
            sr.ports.insert(link.ifindex, port(link, flags, 0));
        }
    }
    for policy in &config.policies {
        let number = numbers.policy(&policy.name);
        let slot = numbers.slot(Counted::Policy(policy.name.clone()));
        if let Some(made) = headers(config, policy, slot) {
            sr.policies.insert(number, made);
            let links = policy
                .frames_from
                .iter()
                .filter_map(|name| around.links.get(name));
            sr.ports
                .extend(links.map(|link| (link.ifindex, port(link, Port::FRAMES, number))));
            sr.steered
                .extend(policy.destinations.iter().map(|net| (*net, number)));
        }
    }
    if steers || !config.rules.is_empty() {
        spare_the_host(&mut sr, around);
    }
    for address in next_hops(config) {
        let resolved = around
            .resolved(address)
            .map(|to| adjacency(to.ifindex, to.destination_mac, to.interface_mac, to.mtu));
        let number = numbers.adjacencies.number(&Neighbour::Of(address));
        sr.adjacencies.insert(number, resolved.unwrap_or_default());
    }
    if let Some(gateway) = beside {
        between_engine(&mut sr, gateway, numbers, around);
    }
    for sid in &config.sids {
        let target = match &sid.target {
            Target::Main => Some(0),
            Target::Table(table) => Some(*table),
            Target::Tunnel => Some(TUNNEL),
            Target::NextHop(address) => Some(numbers.adjacencies.number(&Neighbour::Of(*address))),
            Target::Interface(name) => around.links.get(name).map(|link| link.ifindex),
            Target::Function(name) => Some(numbers.function(name)),
        };
        let slot = numbers.slot(Counted::Sid(sid.sid));
        // Without its device a frame has nowhere to go, and the program says so.
        let value = Sid::new(sid.behavior, sid.flavors, target.unwrap_or(0), slot);
        let arguments = sid.arguments;
        sr.sids.insert(sid.sid, Sid { arguments, ..value });
        if arguments != 0
            && let Ok(net) = Ipv6Net::new(sid.sid, 128 - arguments)
        {
            sr.locators.insert(net.into(), arguments.into());
        }
    }
    for function in &config.functions {
        let number = numbers.function(&function.name);
        let served = config
            .sids
            .iter()
            .filter(|sid| matches!(&sid.target, Target::Function(name) if *name == function.name));
        let kind = match served.clone().next().map(|sid| sid.behavior) {
            Some(Behavior::EndAm) => Function::MASQUERADED,
            Some(Behavior::EndAs) => Function::CONFIGURED,
            Some(Behavior::EndAn) => 0,
            _ => Function::CACHED,
        };
        let mut flags = kind;
        if served.clone().any(|sid| sid.flavors.has(Flavors::LAST)) {
            flags |= Function::LAST;
        }
        if function.bypass {
            flags |= Function::BYPASS;
        }
        if is_up(function, around) {
            flags |= Function::UP;
        }
        let policy = function.policy.as_ref();
        let is_process = function.address == ServiceAddress::Process;
        let mut to = way_to(function, around).unwrap_or_default();
        if is_process && let Some(mac) = to.macs.first_chunk_mut::<6>() {
            *mac = Function::mac(number);
        }
        sr.functions.insert(
            number,
            Function {
                to,
                flags,
                policy: policy.map_or(0, |name| numbers.policy(name)),
                slot: numbers.slot(Counted::Function(function.name.clone())),
                flows: match function.headers {
                    Remembered::OfFlows => numbers.flows.number(&function.name),
                    Remembered::Latest => 0,
                },
            },
        );
        if let Some(link) = around.links.get(&function.return_interface) {
            sr.ports.insert(
                link.ifindex,
                match is_process {
                    true => port(link, Port::PROCESS, 0),
                    false => port(link, Port::RETURN, number),
                },
            );
        }
    }
    for function in &config.functions {
        let asks = function
            .probe
            .is_some_and(|probe| !matches!(probe.kind, ProbeKind::Through { .. }));
        if asks
            && let Some(to) = neighbour(function, around)
            && let Some(port) = sr.ports.get_mut(&to.ifindex)
            && port.flags & Port::RETURN != 0
        {
            port.flags |= Port::PEERS;
            let peer = Peer {
                ifindex: to.ifindex,
                reserved: 0,
                function: mapped(to.neighbour),
                node: mapped(to.source),
            };
            sr.peers.insert(peer, 1);
        }
    }
    sr.rules = rules(config, numbers, around);
    sr
}

fn mapped(address: IpAddr) -> Ip {
    match address {
        IpAddr::V4(address) => Ip::v4(address.octets()),
        IpAddr::V6(address) => Ip(address.octets()),
    }
}

/// The tunnel device, and the devices that copies leave by.
fn between_engine(sr: &mut Sr, gateway: &Beside, numbers: &mut Numbers, around: &Around) {
    if let Some(link) = around.links.get(&gateway.tunnel) {
        let mac = link.mac.unwrap_or_default();
        let engine = adjacency(link.ifindex, Mark::Returned.address(), mac, link.mtu);
        sr.adjacencies.insert(ENGINE, engine);
        sr.ports.insert(link.ifindex, port(link, Port::ENGINE, 0));
    }
    for device in &gateway.mirrors {
        if let Some(link) = around.links.get(device) {
            let mac = link.mac.unwrap_or_default();
            // Nobody but a sniffer takes what is addressed so.
            let copies = adjacency(link.ifindex, Mark::Mirror(0).address(), mac, link.mtu);
            sr.adjacencies.insert(numbers.mirror(device), copies);
        }
    }
}

/// The rules, with what the configuration does not say.
fn rules(config: &Srv6, numbers: &mut Numbers, around: &Around) -> Option<Rules> {
    let tables = config.tables.as_ref()?;
    let row = |(place, end): &(usize, u32)| {
        let rule = config.rules.get(*place)?;
        // Without its device a copy is lost, as interfaces have indexes from 1 on.
        let mirror = rule.mirror().and_then(|name| around.links.get(name));
        let policy = rule.policy().map(|name| numbers.policies.number(name));
        Some(Row {
            action: rule.rule.action as u32,
            target: mirror.map(|link| link.ifindex).or(policy).unwrap_or(0),
            slot: numbers.slot(Counted::Rule(rule.name.clone())),
            end: *end,
            mac: mirror.and_then(|link| link.mac).unwrap_or_default(),
            reserved: 0,
        })
    };
    let rows = tables.rows.iter().filter_map(row).collect();
    let interfaces = tables.interfaces.iter().filter_map(|(name, class)| {
        let link = around.links.get(name)?;
        Some((link.ifindex, *class))
    });
    Some(Rules {
        tables: Arc::clone(tables),
        interfaces: interfaces.collect(),
        rows,
    })
}

/// What is for this host, or for the link alone, is not steered, whatever prefix it is in.
fn spare_the_host(sr: &mut Sr, around: &Around) {
    /// No policy has this number.
    const NONE: u32 = 0;
    let addresses = around.links.values().flat_map(|link| &link.addresses);
    sr.steered
        .extend(addresses.map(|net| (IpNet::from(net.addr()), NONE)));
    for prefix in ["fe80::/10", "ff00::/8", "169.254.0.0/16", "224.0.0.0/3"] {
        sr.steered
            .extend(prefix.parse::<IpNet>().map(|net| (net, NONE)));
    }
}

fn port(link: &Link, flags: u32, function: u32) -> Port {
    Port {
        mac: link.mac.unwrap_or_default(),
        reserved: 0,
        flags,
        function,
    }
}

/// The longest packet that fits a policy and the links of its functions, bytes.
pub(crate) fn room(config: &Srv6, name: &str, around: &Around) -> u32 {
    let Some(policy) = config.policies.iter().find(|of| of.name == name) else {
        return 0;
    };
    let functions = policy.segments.iter().filter_map(|segment| {
        let sid = config.sids.iter().find(|sid| sid.sid == *segment)?;
        match &sid.target {
            Target::Function(name) => config.functions.iter().find(|of| of.name == *name),
            _ => None,
        }
    });
    let links = functions.filter_map(|of| around.links.get(&of.interface));
    let made = headers(config, policy, 0);
    let with_headers = made.map_or(0, |made| made.mtu.saturating_sub(made.len.into()));
    links.map(|link| link.mtu).fold(with_headers, u32::min)
}

/// The headers of a policy.
fn headers(config: &Srv6, policy: &Steering, slot: u32) -> Option<Policy> {
    let mut segments: Vec<[u8; 16]> = policy.segments.iter().map(Ipv6Addr::octets).collect();
    let key = match policy.hmac {
        Some(id) => Some((id, config.hmac_keys.iter().find(|(of, _)| *of == id)?.1)),
        None => None,
    };
    let alone = policy.reduced && !policy.insert && key.is_none() && segments.len() == 1;
    if policy.insert {
        // The place of the packet's destination.
        segments.push([0; 16]);
    }
    let mut made = Policy {
        headers: [0; MAX_HEADERS],
        len: 0,
        next_header_at: 6,
        flags: match config.node.hop_limit {
            HopLimit::Inherit => Policy::INHERIT_HOP_LIMIT,
            HopLimit::Of(_) => 0,
        },
        slot,
        mtu: config.mtu(policy),
    };
    let outer = ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len: 0,
        next_header: match alone {
            true => NEXT_IPV6,
            false => ipv6::ROUTING,
        },
        hop_limit: match config.node.hop_limit {
            HopLimit::Inherit => TTL,
            HopLimit::Of(hops) => hops,
        },
        source: config.node.source?.octets(),
        destination: *segments.first()?,
    };
    let mut len = outer.emit(&mut made.headers).ok()?;
    if !alone {
        let srh = Header {
            next_header: NEXT_IPV6,
            segments: &segments,
            reduced: policy.reduced,
            flags: 0,
            tag: 0,
            tlvs: &[],
        };
        made.next_header_at = len as u16;
        let to = made.headers.get_mut(len..)?;
        len += match key {
            Some((id, key)) => sign(&srh, id, &key, outer.source, to)?,
            None => srh.emit(to).ok()?,
        };
    }
    if policy.insert {
        made.flags |= Policy::INSERT;
    }
    made.len = len as u16;
    Some(made)
}

/// Writes an SRH with its HMAC, which is the same for all packets: it covers what they have in common.
fn sign(
    srh: &Header<'_>,
    id: u32,
    key: &HmacKey,
    source: [u8; 16],
    out: &mut [u8],
) -> Option<usize> {
    let is_linux = key.flags & HmacKey::LINUX != 0;
    let is_left_out = srh.reduced && srh.segments.len() > 1 && !is_linux;
    let hmac = Hmac::new(is_left_out, id, &[0; MAX_MAC]);
    let signed = Header {
        next_header: srh.next_header,
        segments: srh.segments,
        reduced: srh.reduced,
        flags: if is_linux { HmacKey::LINUX_FLAG } else { 0 },
        tag: srh.tag,
        tlvs: &[Tlv::Hmac(hmac)],
    };
    let len = signed.emit(out).ok()?;
    let view = View::new_checked(out.get(..len)?).ok()?;
    let mac = key.mac(&view.hmac_text(source, &hmac));
    // The TLV needs no padding behind it.
    let (_, place) = out.get_mut(..len)?.split_last_chunk_mut()?;
    *place = mac;
    Some(len)
}
