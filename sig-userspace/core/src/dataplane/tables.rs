//! What the workers look up: an immutable snapshot, made by the control plane and swapped as a whole.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;
use sig_common::{
    addr::{HostAddr, IsdAs},
    reason::DropReason,
    scope::may_cross,
    wire::{
        inner::InnerPacket,
        sig_frame::{EXTENSION_LEN, TAG_LEN},
        underlay::Local,
    },
};

use super::{
    counters::Traffic, filter::Filter, icmp::Sources, lan::LanTable, lpm::Lpm, mark::Mark, police,
};
use crate::{
    counter::Counter,
    framing::{CapacityError, Packer},
    policy::class::Condition,
    port::umem::{HEADROOM, JUMBO_SIZE},
    protection::Keyring,
    scion::{Endpoints, NextHop, Template, TemplateError},
};

/// Parts that the flows of a session fall into: each part has one path.
pub const BUCKETS: usize = 256;

/// The snapshot.
#[derive(Debug)]
pub struct Tables {
    /// Differs from that of every other snapshot of this gateway, never 0.
    pub generation: u64,
    /// This gateway's data address, as frames to it carry it.
    pub local: Local,
    /// Inner destinations that remotes may send to; `None`: all that `routing` does not lead into the
    /// tunnel.
    pub served: Option<Arc<Lpm<()>>>,
    /// Where packets from remotes can be sent without the kernel.
    pub lan: Arc<LanTable>,
    /// Which packets go into which session.
    pub routing: Arc<Routing>,
    /// What is done with packets beside carrying them.
    pub filter: Arc<Filter>,
    /// Sessions with remote gateways.
    pub sessions: Vec<Session>,
    /// By the place of a session, that of its remote in `remotes`; [`NO_REMOTE`] if it is not there.
    session_remotes: Vec<u16>,
    /// Paths of all sessions, those of one session side by side.
    pub paths: Vec<Path>,
    /// Remote gateways.
    pub remotes: Vec<Remote>,
    /// By [`Remote::id`], the place in `remotes`; [`NO_REMOTE`] where there is none.
    remote_slots: Vec<u16>,
    /// Source of a frame to the number of the remote in `remotes`.
    pub admitted: HashMap<(IsdAs, HostAddr), u16, BuildHasherDefault<SourceHasher>>,
    /// The Ethernet header, without its type, of packets on their way to the kernel:
    /// destination MAC (the tunnel device), then source MAC (its peer).
    pub tunnel_macs: [u8; 12],
    /// Longest packet that the tunnel device takes, bytes.
    pub tunnel_mtu: u32,
    /// Where ICMP errors come from.
    pub icmp: Sources,
    /// Number under which the XDP programs know the decisions that follow from these tables; 0: they are not told any.
    pub fast_generation: u16,
    /// Numbers under which the XDP programs know the neighbours of `lan`, by their places there; 0: they do not.
    pub fast_hops: Vec<u32>,
}

const NO_REMOTE: u16 = u16::MAX;

/// From inner packets to sessions.
#[derive(Debug, Default)]
pub struct Routing {
    routes: Lpm<Target>,
    /// Rules of the sites where it takes more than the destination to decide.
    sites: Vec<Box<[Rule]>>,
}

/// Where packets to a prefix go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The same for all: the site has no rule, or its first one takes every packet.
    Fixed(Action),
    /// Where the rules with this place in [`Routing::sites`] say.
    Rules(u16),
    /// Not into the tunnel: the prefix is at home here, within one of a remote.
    Home,
}

/// What is done with which packets to a site. The first rule that holds decides. `S` names a session: in the tables,
/// by its place in [`Tables::sessions`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule<S = u16> {
    /// Which packets.
    pub condition: Arc<Condition>,
    /// What is done with them.
    pub action: Action<S>,
}

/// What is done with packets to a remote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<S = u16> {
    /// They go into this session.
    Session(S),
    /// They are dropped.
    Drop,
}

impl<S> Action<S> {
    /// Returns the session that packets go into, if they do.
    pub fn session(self) -> Option<S> {
        match self {
            Self::Session(session) => Some(session),
            Self::Drop => None,
        }
    }
}

/// Frames to a remote gateway.
#[derive(Debug)]
pub enum Session {
    /// No path can be used.
    Pathless,
    /// All flows take the path with this place in [`Tables::paths`].
    OnePath(u16),
    /// Flows are spread over paths that begin at this place in [`Tables::paths`].
    ManyPaths(u16, Spread),
}

/// Which flows take which of a session's paths.
#[derive(Clone, Debug)]
pub struct Spread {
    /// By the upper eight bits of the flow hash, the number of the path within the session.
    pub buckets: Arc<[u8; BUCKETS]>,
    /// Which buckets packets fell into lately.
    pub used: Arc<Used>,
}

/// A mark per bucket: set by the workers, cleared by the control plane.
#[derive(Debug)]
pub struct Used([Mark; BUCKETS]);

impl Default for Used {
    fn default() -> Self {
        Used(std::array::from_fn(|_| Mark::default()))
    }
}

impl Used {
    /// Marks the bucket of a flow.
    #[inline]
    pub fn mark(&self, flow_hash: u32) {
        self.0[Self::bucket(flow_hash)].set();
    }

    /// The upper bits: the lower ones spread flows over workers and streams.
    #[inline]
    pub(super) const fn bucket(flow_hash: u32) -> usize {
        (flow_hash >> 24) as usize
    }

    /// The marks since the last call. One that a worker sets at the same time may be told by the next.
    pub fn take(&self) -> [bool; BUCKETS] {
        std::array::from_fn(|bucket| self.0[bucket].take())
    }
}

impl Spread {
    /// Number of the path for a flow, whose bucket is marked as used.
    #[inline]
    pub(super) fn pick(&self, flow_hash: u32) -> u16 {
        self.used.mark(flow_hash);
        self.look_up(flow_hash)
    }

    /// Number of the path for a flow.
    #[inline]
    pub(super) fn look_up(&self, flow_hash: u32) -> u16 {
        self.buckets[Used::bucket(flow_hash)].into()
    }
}

/// A remote gateway: whose frames are accepted.
#[derive(Debug)]
pub struct Remote {
    /// Names the remote for as long as the gateway knows it, across snapshots.
    pub id: u16,
    /// Its ISD-AS.
    pub isd_as: IsdAs,
    /// Its host address, the source of its frames.
    pub host: HostAddr,
    /// Inner sources that it may send from.
    pub accepted: Arc<Lpm<()>>,
    /// Per worker, what came from it; behind them, what the XDP programs delivered.
    pub counters: Arc<[RemoteCounters]>,
    /// Keys for protected frames from it, if there may be such frames.
    pub keyring: Option<Arc<Keyring>>,
    /// Whether frames from it that are not protected are refused.
    pub is_strict: bool,
    /// Payload bytes of the smallest frame that is sent to it; `usize::MAX` without a path.
    pub(super) frame_capacity: usize,
}

/// What one worker received from a remote. Aligned so that workers do not share cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct RemoteCounters {
    /// Frames and packets that came from it.
    pub received: Traffic,
    /// Frames and packets from it that were dropped.
    pub dropped: Counter,
}

/// A path to a remote gateway, as the workers use it.
#[derive(Debug)]
pub struct Path {
    /// Names a path of a session and its frame size across snapshots: as long as it stays, its streams
    /// go on, whatever becomes of hop fields and MAC addresses.
    pub id: u64,
    /// Outer headers.
    pub template: Template,
    /// An empty frame of the path's capacity; each worker starts from a copy of it.
    pub packer: Packer,
    /// Per worker, the stream id of its frames on this path.
    pub streams: Box<[u32]>,
    /// Per worker, what was sent on it; behind them, what the XDP programs sent.
    pub counters: Arc<[PathCounters]>,
    /// Keys for its frames, if they are protected.
    pub keyring: Option<Arc<Keyring>>,
    /// Number under which the XDP programs know it, if they can send on it.
    pub fast: Option<u32>,
}

/// What a path is made of.
#[derive(Clone, Debug)]
pub struct PathSpec<'a> {
    /// See [`Path::id`].
    pub id: u64,
    /// The two gateways.
    pub ends: Endpoints,
    /// Where frames go first.
    pub next_hop: NextHop,
    /// SCION path type number.
    pub path_type: u8,
    /// The path header as it goes on the wire.
    pub path: &'a [u8],
    /// SIG session id.
    pub session: u8,
    /// Largest SCION packet that passes the path, bytes.
    pub path_mtu: usize,
    /// MTU of the underlay interface, bytes.
    pub link_mtu: usize,
    /// See [`Path::streams`].
    pub streams: Box<[u32]>,
    /// See [`Path::counters`].
    pub counters: Arc<[PathCounters]>,
    /// See [`Path::keyring`].
    pub keyring: Option<Arc<Keyring>>,
}

/// Why a path cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Its headers cannot be written.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// Its MTU leaves too little room for packets.
    #[error("the MTU leaves too little room: {0}")]
    Capacity(#[from] CapacityError),
}

impl Path {
    /// A path ready for use.
    ///
    /// # Errors
    ///
    /// If its headers cannot be written or leave no room for packets.
    pub fn new(spec: PathSpec<'_>) -> Result<Self, PathError> {
        let template = Template::new(
            &spec.ends,
            &spec.next_hop,
            spec.path_type,
            spec.path,
            spec.session,
        )?;
        let (template, front, back) = match &spec.keyring {
            None => (template, 0, 0),
            Some(_) => (template.protected(), EXTENSION_LEN, TAG_LEN),
        };
        let headers = (template.len() + front).max(HEADROOM);
        let frame = JUMBO_SIZE.saturating_sub(headers + back);
        let payload = template.capacity(spec.path_mtu, spec.link_mtu);
        let capacity = payload.saturating_sub(front + back).min(frame);
        Ok(Path {
            id: spec.id,
            template,
            packer: Packer::new(capacity)?,
            streams: spec.streams,
            counters: spec.counters,
            keyring: spec.keyring,
            fast: None,
        })
    }

    /// Bytes in front of a frame's payload.
    #[inline]
    pub(super) fn front(&self) -> usize {
        let extension = self.keyring.as_ref().map_or(0, |_| EXTENSION_LEN);
        self.template.len() + extension
    }

    /// Bytes behind a frame's payload.
    #[inline]
    pub(super) fn back(&self) -> usize {
        self.keyring.as_ref().map_or(0, |_| TAG_LEN)
    }
}

/// What one worker sent on a path. Aligned so that workers do not share cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct PathCounters {
    /// Frames and packets.
    pub sent: Traffic,
}

impl Tables {
    /// Tables that know nobody: every packet is dropped.
    pub fn empty(local: Local) -> Self {
        Tables {
            generation: 1,
            local,
            served: Some(Arc::default()),
            lan: Arc::default(),
            routing: Arc::default(),
            filter: Arc::default(),
            sessions: Vec::new(),
            session_remotes: Vec::new(),
            paths: Vec::new(),
            remotes: Vec::new(),
            remote_slots: Vec::new(),
            admitted: HashMap::default(),
            tunnel_macs: [0; 12],
            tunnel_mtu: u32::MAX,
            icmp: Sources::default(),
            fast_generation: 0,
            fast_hops: Vec::new(),
        }
    }

    /// Adds a remote gateway. `id` and source are not those of another one.
    pub fn add_remote(
        &mut self,
        id: u16,
        (isd_as, host): (IsdAs, HostAddr),
        accepted: Arc<Lpm<()>>,
        counters: Arc<[RemoteCounters]>,
    ) {
        let slot = self.remotes.len() as u16;
        let slots = self.remote_slots.len().max(usize::from(id) + 1);
        self.remote_slots.resize(slots, NO_REMOTE);
        self.remote_slots[usize::from(id)] = slot;
        self.admitted.insert((isd_as, host), slot);
        self.remotes.push(Remote {
            id,
            isd_as,
            host,
            accepted,
            counters,
            keyring: None,
            is_strict: false,
            frame_capacity: usize::MAX,
        });
    }

    /// Takes protected frames from a remote that was added, under these keys. `is_strict`: and no others.
    pub fn protect_remote(
        &mut self,
        source: (IsdAs, HostAddr),
        keyring: Option<Arc<Keyring>>,
        is_strict: bool,
    ) {
        let slot = self.admitted.get(&source).copied();
        if let Some(remote) = slot.and_then(|slot| self.remotes.get_mut(usize::from(slot))) {
            remote.keyring = keyring;
            remote.is_strict = is_strict;
        }
    }

    /// Adds a session with the remote gateway `remote` and returns its place. The numbers in `spread` are below that of the paths; without
    /// it, all flows take the first path. There is room for 65536 sessions, and as many paths.
    pub fn add_session(
        &mut self,
        remote: (IsdAs, HostAddr),
        paths: Vec<Path>,
        spread: Option<Spread>,
    ) -> u16 {
        let slot = self.admitted.get(&remote).copied();
        if let Some(remote) = slot.and_then(|slot| self.remotes.get_mut(usize::from(slot))) {
            let capacities = paths.iter().map(|path| path.packer.capacity());
            remote.frame_capacity = capacities.fold(remote.frame_capacity, usize::min);
        }
        self.session_remotes.push(slot.unwrap_or(NO_REMOTE));
        let place = self.sessions.len() as u16;
        let first = self.paths.len() as u16;
        self.sessions.push(match (paths.len(), spread) {
            (0, _) => Session::Pathless,
            (2.., Some(spread)) => Session::ManyPaths(first, spread),
            _ => Session::OnePath(first),
        });
        self.paths.extend(paths);
        place
    }

    /// Whether packets to `destination` that go into the tunnel go to remote number `slot`, whatever
    /// their class.
    pub(super) fn leads_to(&self, slot: u16, destination: IpAddr) -> bool {
        let is_with = |session: u16| self.session_remotes.get(usize::from(session)) == Some(&slot);
        match self.routing.way(destination) {
            Some(Target::Fixed(action)) => action.session().is_some_and(is_with),
            Some(Target::Rules(site)) => {
                let rules = self.routing.sites[usize::from(site)].iter();
                rules.filter_map(|rule| rule.action.session()).all(is_with)
            }
            Some(Target::Home) | None => false,
        }
    }

    /// The place in `paths` of the path that a packet takes, and its flow with it, unless something else is done with it first. It is
    /// not marked as used. `has_returned`: it has been through its chain.
    ///
    /// # Errors
    ///
    /// Why it takes none.
    pub(crate) fn path_of(
        &self,
        packet: &InnerPacket,
        flow_hash: u32,
        has_returned: bool,
    ) -> Result<u16, DropReason> {
        if !has_returned && !self.filter.of_egress(packet).is_plain() {
            return Err(DropReason::Filtered);
        }
        let target = self.target(packet.source, packet.destination)?;
        self.path_to(target, packet, |spread| spread.look_up(flow_hash))
    }

    /// Where packets between these addresses go, as far as these decide.
    pub(super) fn target(&self, source: IpAddr, destination: IpAddr) -> Result<Target, DropReason> {
        if !may_cross(source) || !may_cross(destination) || self.filter.is_sid(destination) {
            return Err(DropReason::AddressScope);
        }
        self.routing.way(destination).ok_or(DropReason::NoRoute)
    }

    /// As [`Tables::path_of`], of a packet whose target is known. `pick` tells the number of a session's path.
    #[inline]
    pub(super) fn path_to(
        &self,
        target: Target,
        packet: &InnerPacket,
        pick: impl FnOnce(&Spread) -> u16,
    ) -> Result<u16, DropReason> {
        let session = self.session_to(target, packet)?;
        match &self.sessions[usize::from(session)] {
            Session::OnePath(path) => Ok(*path),
            Session::ManyPaths(first, spread) => Ok(first + pick(spread)),
            Session::Pathless => Err(DropReason::NoPath),
        }
    }

    /// The AS that an address is behind, by the prefixes that lead to remotes.
    pub(crate) fn behind(&self, address: IpAddr) -> Option<IsdAs> {
        let session = match self.routing.way(address)? {
            Target::Fixed(action) => action.session(),
            Target::Rules(site) => {
                let mut rules = self.routing.sites[usize::from(site)].iter();
                rules.find_map(|rule| rule.action.session())
            }
            Target::Home => None,
        }?;
        let slot = *self.session_remotes.get(usize::from(session))?;
        Some(self.remotes.get(usize::from(slot))?.isd_as)
    }

    /// The place in `sessions` of the session that a packet goes into, whose target is known.
    #[inline]
    pub(super) fn session_to(
        &self,
        target: Target,
        packet: &InnerPacket,
    ) -> Result<u16, DropReason> {
        let action = match target {
            Target::Fixed(action) => action,
            Target::Rules(site) => self.routing.decide(site, packet),
            Target::Home => return Err(DropReason::NoRoute),
        };
        action.session().ok_or(DropReason::NoSession)
    }

    /// The place in `lan` of the next hop for packets of the remote with this [`Remote::id`] and of this flow, if they are
    /// delivered there.
    pub(crate) fn place_for(&self, id: u16, packet: &InnerPacket) -> Option<u32> {
        if !self.filter.of_ingress(packet).is_plain() {
            return None;
        }
        let (source, destination) = (packet.source, packet.destination);
        match police::decide(self, self.remote_slot(id)?, source, destination) {
            Ok(police::Delivery::Lan(place)) => Some(place),
            _ => None,
        }
    }

    /// The place in [`Tables::remotes`] of the remote with this [`Remote::id`].
    pub(super) fn remote_slot(&self, id: u16) -> Option<u16> {
        let slot = *self.remote_slots.get(usize::from(id))?;
        (slot != NO_REMOTE).then_some(slot)
    }
}

impl Routing {
    /// Adds prefixes with the same rules. A prefix that another site has already stays there. Beyond
    /// 65536 sites with conditions, packets to further ones are dropped.
    pub fn add_site(&mut self, prefixes: &[IpNet], rules: Vec<Rule>) {
        let way = match rules.first() {
            None => Target::Fixed(Action::Drop),
            Some(rule) if rule.condition.is_always() => Target::Fixed(rule.action),
            Some(_) => match u16::try_from(self.sites.len()) {
                Ok(place) => {
                    self.sites.push(rules.into());
                    Target::Rules(place)
                }
                Err(_) => Target::Fixed(Action::Drop),
            },
        };
        for prefix in prefixes {
            self.add_route(*prefix, way);
        }
    }

    /// Marks a prefix as being at home here, unless a site has it.
    pub fn add_home(&mut self, prefix: IpNet) {
        self.add_route(prefix, Target::Home);
    }

    fn add_route(&mut self, prefix: IpNet, way: Target) {
        if let Some(first) = self.routes.insert(prefix, way) {
            self.routes.insert(prefix, first);
        }
    }

    /// Where packets to an inner destination go, as far as it decides.
    pub(super) fn way(&self, destination: IpAddr) -> Option<Target> {
        self.routes.get(destination).copied()
    }

    /// As [`Routing::way`], with the longest prefix.
    pub(super) fn find(&self, destination: IpAddr) -> Option<(IpNet, Target)> {
        let (prefix, target) = self.routes.find(destination)?;
        Some((prefix, *target))
    }

    /// What the rules of a site do with a packet.
    pub(super) fn decide(&self, site: u16, packet: &InnerPacket) -> Action {
        let place = self.class(site, packet);
        let rule = place.and_then(|place| self.sites[usize::from(site)].get(place));
        rule.map_or(Action::Drop, |rule| rule.action)
    }

    /// The place of the rule of a site that holds for a packet.
    #[inline]
    pub(super) fn class(&self, site: u16, packet: &InnerPacket) -> Option<usize> {
        let mut rules = self.sites[usize::from(site)].iter();
        rules.position(|rule| rule.condition.matches(packet))
    }
}

/// Hashes the few words of a frame's source. The keys come from the configuration or the remote ASes'
/// control services, which name a few gateways each: too few to make collisions matter.
#[derive(Default)]
pub struct SourceHasher(u64);

impl Hasher for SourceHasher {
    fn finish(&self) -> u64 {
        // The low bits choose the place in the table, and only the high ones are well mixed.
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        let (words, rest) = rest.as_chunks();
        for word in words {
            self.write_u64(u32::from_le_bytes(*word).into());
        }
        for byte in rest {
            self.write_u64((*byte).into());
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(29) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}
