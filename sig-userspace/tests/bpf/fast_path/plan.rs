//! Random tables of a gateway, and what the XDP programs are told of them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ipnet::IpNet;
use sig_common::addr::{HostAddr, IsdAs};
use sig_common::fast_path::{FastPath, Hop, MAX_HEADERS};
use sig_common::wire::underlay::Local;
use sig_core::dataplane::icmp::Sources;
use sig_core::dataplane::lan::{LanFacts, LanNeighbour, LanRoute, LanTable};
use sig_core::dataplane::{
    Action, BUCKETS, Path, PathCounters, PathSpec, RemoteCounters, Routing, Rule, Spread, Tables,
};
use sig_core::policy::class::Condition;
use sig_core::scion::{Endpoints, NextHop, Template};
use sig_linux::bpf::FastPathMaps;

use super::packets::address;
use crate::router_support::random::Dice;

pub(crate) const WORKERS: usize = 2;
/// LAN ports of each worker. A third one is known to the tables, but not to the workers.
pub(crate) const LAN_PORTS: usize = 2;
pub(crate) const LOCAL_AS: IsdAs = IsdAs::new(1, 0xff00_0000_0111);
pub(crate) const PORT: u16 = 30056;
/// MAC address of the gateway's devices.
pub(crate) const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// The network of the gateway's own hosts, see [`address`].
pub(crate) const HOME: u8 = 1;
/// The networks of the remotes begin here.
pub(crate) const THEIRS: u8 = 11;
/// A network of nobody.
pub(crate) const STRANGE: u8 = 99;
/// Longest headers of packets that the programs send.
const FAST_HEADERS: usize = 226;
/// The top bit of stream ids.
pub(crate) const IN_KERNEL: u32 = 1 << 19;

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) v6: bool,
    /// MTU of the devices.
    pub(crate) mtu: usize,
    pub(crate) remotes: Vec<RemotePlan>,
    served: Option<Vec<IpNet>>,
    lan: LanFacts,
    next_path: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct RemotePlan {
    pub(crate) number: u16,
    pub(crate) isd_as: IsdAs,
    pub(crate) host: IpAddr,
    accepted: Vec<IpNet>,
    routed: Vec<IpNet>,
    sessions: Vec<SessionPlan>,
    /// Conditions, and the sessions of this remote.
    rules: Vec<(Condition, Option<usize>)>,
}

#[derive(Clone, Debug)]
struct SessionPlan {
    paths: Vec<PathPlan>,
    buckets: Arc<[u8; BUCKETS]>,
}

#[derive(Clone, Debug)]
struct PathPlan {
    id: u64,
    hops: usize,
    mtu: usize,
    mac: u8,
}

fn net(v6: bool, net: u8, bits: u8) -> IpNet {
    let len = if v6 { 16 + bits } else { bits };
    IpNet::new(address(v6, net, 0), len)
        .expect("a prefix")
        .trunc()
}

/// Sixteen addresses of the home network, from `first` on.
fn sixteen(v6: bool, first: u8) -> IpNet {
    IpNet::new(address(v6, HOME, first), if v6 { 124 } else { 28 }).expect("a prefix")
}

fn condition(dice: &mut Dice, depth: usize) -> Condition {
    match dice.below(if depth == 0 { 7 } else { 9 }) {
        0 => Condition::DestinationPort(dice.one(&[0..=443, 53..=53, 1..=65535])),
        1 => Condition::SourcePort(dice.one(&[0..=1023, 5000..=5000, 0..=0])),
        2 => Condition::Dscp(dice.one(&[0, 46, 10])),
        3 => Condition::Tos(dice.one(&[0, 1, 2, 3])),
        4 => Condition::Protocol(dice.one(&[1, 6, 17, 50, 58, 132])),
        5 => {
            let v6 = dice.percent(50);
            Condition::Source(sixteen(v6, dice.one(&[0, 16])))
        }
        6 => Condition::Bool(dice.percent(80)),
        7 => Condition::Not(Box::new(condition(dice, depth - 1))),
        _ => Condition::All((0..2).map(|_| condition(dice, depth - 1)).collect()),
    }
}

impl PathPlan {
    fn header(&self) -> Vec<u8> {
        if self.hops == 0 {
            return Vec::new();
        }
        let mut header = (u32::from(self.hops as u8) << 12).to_be_bytes().to_vec();
        header.extend([0, 0, 0x12, 0x34, 0x66, 0, 0, 0]);
        header.extend((0..12 * self.hops).map(|n| n as u8 ^ self.mac));
        header
    }
}

impl Plan {
    pub(crate) fn any(dice: &mut Dice, first_path: u64) -> Self {
        let v6 = dice.percent(40);
        let mut plan = Self {
            v6,
            mtu: dice.one(&[1500, 1500, 3300, 9000]),
            remotes: Vec::new(),
            served: None,
            lan: LanFacts::default(),
            next_path: first_path,
        };
        plan.serve(dice);
        plan.lan = lan(dice, plan.mtu);
        for number in 0..1 + dice.below(3) as u8 {
            let remote = plan.remote(dice, number);
            plan.remotes.push(remote);
        }
        plan
    }

    /// The first path number that this plan has not used.
    pub(crate) const fn next_path(&self) -> u64 {
        self.next_path
    }

    fn serve(&mut self, dice: &mut Dice) {
        self.served = dice.percent(60).then(|| {
            let mut served = vec![net(false, HOME, 16)];
            if dice.percent(80) {
                served.push(net(true, HOME, 16));
            }
            served
        });
    }

    fn path(&mut self, dice: &mut Dice) -> PathPlan {
        self.next_path += 1;
        PathPlan {
            id: self.next_path,
            hops: dice.one(&[0, 2, 2, 3, 5, 9, 10, 14]),
            mtu: dice.one(&[
                self.mtu - 28,
                self.mtu - 28,
                self.mtu - 28,
                1400,
                1280,
                700,
                300,
            ]),
            mac: dice.byte(),
        }
    }

    fn remote(&mut self, dice: &mut Dice, number: u8) -> RemotePlan {
        let sessions = (0..1 + dice.below(3))
            .map(|_| {
                let paths: Vec<_> = (0..dice.one(&[0, 1, 1, 1, 2, 3]))
                    .map(|_| self.path(dice))
                    .collect();
                let most = paths.len().max(1);
                SessionPlan {
                    paths,
                    buckets: Arc::new(std::array::from_fn(|_| dice.below(most) as u8)),
                }
            })
            .collect();
        let mut remote = RemotePlan {
            number: number.into(),
            isd_as: IsdAs::new(1, 0xff00_0000_0200 + u64::from(number)),
            host: address(self.v6, 200, number),
            accepted: Vec::new(),
            routed: [false, true].map(|v6| net(v6, THEIRS + number, 16)).into(),
            sessions,
            rules: Vec::new(),
        };
        remote.vet(dice);
        remote.decide(dice);
        remote
    }

    /// Changes something.
    pub(crate) fn change(&mut self, dice: &mut Dice) {
        let which = dice.below(self.remotes.len());
        match dice.below(8) {
            0 => self.lan = lan(dice, self.mtu),
            1 => self.serve(dice),
            2 => self.remotes[which].vet(dice),
            3 => self.remotes[which].decide(dice),
            // New hop fields and a new next hop, of the same paths.
            4 => {
                for path in self.remotes[which]
                    .sessions
                    .iter_mut()
                    .flat_map(|session| &mut session.paths)
                {
                    path.mac = dice.byte();
                }
            }
            5 => {
                let path = self.path(dice);
                let sessions = &mut self.remotes[which].sessions;
                let session = dice.below(sessions.len());
                let session = &mut sessions[session];
                if session.paths.len() > 2 || (!session.paths.is_empty() && dice.percent(50)) {
                    session.paths.remove(0);
                } else {
                    session.paths.push(path);
                }
                let most = session.paths.len().max(1);
                session.buckets = Arc::new(std::array::from_fn(|_| dice.below(most) as u8));
            }
            6 if self.remotes.len() > 1 => {
                self.remotes.remove(which);
            }
            _ => {
                let number = dice.below(4) as u8;
                let remote = self.remote(dice, number);
                let known = self
                    .remotes
                    .iter()
                    .position(|known| known.number == u16::from(number));
                match known {
                    Some(known) => self.remotes[known] = remote,
                    None => self.remotes.push(remote),
                }
            }
        }
    }

    pub(crate) fn host(&self) -> IpAddr {
        address(self.v6, 201, 1)
    }

    pub(crate) fn local(&self) -> Local {
        Local::new(LOCAL_AS, self.host(), PORT, false)
    }

    /// The headers of what a remote sends to the gateway.
    pub(crate) fn from(&self, isd_as: IsdAs, host: IpAddr, port: u16, session: u8) -> Template {
        let ours = SocketAddr::new(self.host(), PORT);
        let ends = Endpoints {
            local_isd_as: isd_as,
            local: SocketAddr::new(host, port),
            remote_isd_as: LOCAL_AS,
            remote: ours,
        };
        let hop = NextHop {
            address: ours,
            source_mac: [2, 0, 0, 0, 0, 1],
            destination_mac: MAC,
        };
        let path = PathPlan {
            id: 0,
            hops: 2 + usize::from(session % 3),
            mtu: 0,
            mac: 7,
        }
        .header();
        Template::new(&ends, &hop, 1, &path, session).expect("headers")
    }

    /// The tables, which are the same for workers that teach the programs and those that do not.
    pub(crate) fn tables(&self, generation: u64) -> Tables {
        let mut tables = Tables::empty(self.local());
        tables.generation = generation;
        let lpm = |nets: &[IpNet]| Arc::new(nets.iter().map(|net| (*net, ())).collect());
        tables.served = self.served.as_deref().map(lpm);
        tables.lan = Arc::new(LanTable::new(&self.lan));
        tables.tunnel_macs = [2, 0, 0, 0, 7, 1, 2, 0, 0, 0, 7, 2];
        tables.icmp = Sources {
            v4: Some([10, HOME, 0, 1].into()),
            v6: None,
        };
        let mut routing = Routing::default();
        for remote in &self.remotes {
            let source = (remote.isd_as, HostAddr::from(remote.host));
            let counters: Arc<[RemoteCounters]> =
                (0..=WORKERS).map(|_| RemoteCounters::default()).collect();
            tables.add_remote(remote.number, source, lpm(&remote.accepted), counters);
            let sessions: Vec<u16> = remote
                .sessions
                .iter()
                .zip(0u8..)
                .map(|(session, number)| {
                    let paths = session.paths.iter();
                    let paths: Vec<_> = paths
                        .filter_map(|path| self.fill(remote, path, number))
                        .collect();
                    let count = paths.len().max(1) as u8;
                    let spread = Spread {
                        buckets: Arc::new(session.buckets.map(|path| path % count)),
                        used: Arc::default(),
                    };
                    tables.add_session(source, paths, Some(spread))
                })
                .collect();
            let rules = remote.rules.iter().map(|(condition, session)| Rule {
                condition: Arc::new(condition.clone()),
                action: match session {
                    Some(session) => Action::Session(sessions[*session]),
                    None => Action::Drop,
                },
            });
            routing.add_site(&remote.routed, rules.collect());
        }
        for v6 in [false, true] {
            routing.add_home(net(v6, HOME, 16));
        }
        tables.routing = Arc::new(routing);
        tables
    }

    fn fill(&self, remote: &RemotePlan, path: &PathPlan, session: u8) -> Option<Path> {
        let counters: Arc<[PathCounters]> =
            (0..=WORKERS).map(|_| PathCounters::default()).collect();
        let spec = PathSpec {
            id: path.id,
            ends: Endpoints {
                local_isd_as: LOCAL_AS,
                local: SocketAddr::new(self.host(), PORT),
                remote_isd_as: remote.isd_as,
                remote: SocketAddr::new(remote.host, PORT),
            },
            next_hop: NextHop {
                address: SocketAddr::new(address(self.v6, 202, path.mac), 30001),
                source_mac: MAC,
                destination_mac: [2, 0, 0, 0, 9, path.mac],
            },
            path_type: u8::from(path.hops != 0),
            path: &path.header(),
            session,
            path_mtu: path.mtu,
            link_mtu: self.mtu,
            streams: (0..WORKERS)
                .map(|worker| (path.id as u32 * 2 + worker as u32) % IN_KERNEL)
                .collect(),
            keyring: None,
            counters,
        };
        Path::new(spec).ok()
    }
}

impl RemotePlan {
    /// Other prefixes that it may send from.
    fn vet(&mut self, dice: &mut Dice) {
        let own = THEIRS + self.number as u8;
        self.accepted = vec![net(false, own, 16)];
        if dice.percent(80) {
            self.accepted.push(net(true, own, 16));
        }
        if dice.percent(20) {
            self.accepted.push(net(false, 0, 8));
        }
    }

    /// Other traffic classes.
    fn decide(&mut self, dice: &mut Dice) {
        let session =
            |dice: &mut Dice| (!dice.percent(15)).then(|| dice.below(self.sessions.len()));
        let conditions = dice.below(4);
        let mut rules: Vec<_> = (0..conditions)
            .map(|_| (condition(dice, 1), session(dice)))
            .collect();
        if !dice.percent(10) {
            rules.push((Condition::ALWAYS, Some(dice.below(self.sessions.len()))));
        }
        self.rules = rules;
    }
}

fn lan(dice: &mut Dice, mtu: usize) -> LanFacts {
    let mut facts = LanFacts::default();
    for v6 in [false, true] {
        let host = |host| address(v6, HOME, host);
        facts.local.insert(host(1).into());
        facts
            .routes
            .insert(sixteen(v6, 0), LanRoute::OnLink { port: 0 });
        let gateway = LanRoute::Gateway {
            port: 1,
            address: host(17),
        };
        facts.routes.insert(sixteen(v6, 16), gateway);
        facts.routes.insert(sixteen(v6, 32), LanRoute::Kernel);
        facts
            .routes
            .insert(sixteen(v6, 48), LanRoute::OnLink { port: 2 });
        for (port, number) in [(0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (1, 17), (2, 48)] {
            if dice.percent(80) {
                let neighbour = LanNeighbour {
                    mac: [2, 0, 0, 5, dice.byte(), number],
                    interface_mac: [2, 0, 0, 6, 0, port as u8],
                    mtu: dice.one(&[mtu as u16, mtu as u16, mtu as u16, 1280, 576]),
                };
                facts.neighbours.insert((port, host(number)), neighbour);
            }
        }
    }
    facts
}

/// Tells the XDP programs of the tables, as the control plane does. Numbers are few, so that they return soon.
pub(crate) struct Follower {
    /// Devices send packets in several buffers.
    buffers: bool,
    pub(crate) maps: FastPathMaps,
    generation: u16,
    next_stream: u32,
    paths: HashMap<u64, Known>,
    free_paths: VecDeque<u32>,
    hops: BTreeMap<(u16, IpAddr), (u32, Hop)>,
    free_hops: VecDeque<u32>,
}

struct Known {
    number: u32,
    leaving: bool,
}

impl Follower {
    pub(crate) fn new(mut maps: FastPathMaps, buffers: bool) -> Self {
        for output in 0..=LAN_PORTS as u32 {
            maps.set_output(output, crate::frames::LO)
                .expect("an output");
        }
        Self {
            buffers,
            maps,
            // Soon it begins again.
            generation: u16::MAX - 30,
            next_stream: 1000,
            paths: HashMap::new(),
            free_paths: (1..=12).collect(),
            hops: BTreeMap::new(),
            free_hops: (1..=24).collect(),
        }
    }

    fn path(&mut self, path: &Path) -> Option<u32> {
        if path.template.len() > FAST_HEADERS.min(MAX_HEADERS) {
            return None;
        }
        let value = FastPath {
            output: 0,
            buffers: self.buffers.into(),
            capacity: path.packer.capacity() as u32,
            template: path.template.resize()?,
        };
        let number = match self.paths.get(&path.id) {
            Some(known) => known.number,
            None => {
                let number = self.free_paths.pop_front()?;
                let shared = self.maps.shared();
                let first = self.next_stream;
                self.next_stream += shared.sockets();
                shared.begin_path(number, |socket| IN_KERNEL | ((first + socket) % IN_KERNEL));
                number
            }
        };
        self.maps.set_path(number, Some(&value)).expect("a path");
        let known = Known {
            number,
            leaving: false,
        };
        self.paths.insert(path.id, known);
        Some(number)
    }

    fn hops(&mut self, lan: &LanTable) -> Vec<u32> {
        let mut before = std::mem::take(&mut self.hops);
        let mut numbers = Vec::new();
        for (key, neighbour) in lan.in_order() {
            let mut macs = [0; 12];
            macs[..6].copy_from_slice(&neighbour.mac);
            macs[6..].copy_from_slice(&neighbour.interface_mac);
            let value = Hop {
                output: 1 + key.0,
                buffers: self.buffers.into(),
                mtu: neighbour.mtu.into(),
                macs,
            };
            let known = before.remove(&key).map(|(number, _)| number);
            let number = known.or_else(|| self.free_hops.pop_front());
            let Some(number) = number.filter(|_| usize::from(key.0) < LAN_PORTS) else {
                self.free_hops.extend(number);
                numbers.push(0);
                continue;
            };
            self.maps.set_hop(number, Some(&value)).expect("a hop");
            self.hops.insert(key, (number, value));
            numbers.push(number);
        }
        for (number, _) in before.into_values() {
            self.maps.set_hop(number, None).expect("a hop");
            self.free_hops.push_back(number);
        }
        numbers
    }

    /// Workers are about to get these tables.
    pub(crate) fn prepare(&mut self, tables: &mut Tables) {
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        tables.fast_generation = self.generation;
        self.paths
            .values_mut()
            .for_each(|known| known.leaving = true);
        for path in &mut tables.paths {
            path.fast = self.path(path);
        }
        tables.fast_hops = self.hops(&tables.lan.clone());
    }

    /// Workers have them.
    pub(crate) fn commit(&mut self) {
        self.maps.shared().set_generation(self.generation);
        let Self {
            maps,
            paths,
            free_paths,
            ..
        } = self;
        paths.retain(|_, known| {
            if known.leaving {
                maps.set_path(known.number, None).expect("a path");
                free_paths.push_back(known.number);
            }
            !known.leaving
        });
    }
}
