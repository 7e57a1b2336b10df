//! What is made of what the programs have seen: paths, sessions, and the gateways that ours talks to.
//!
//! A frame teaches a path: later packets of its flow get headers like its own. Session probes, twice a second, tell which
//! way the gateway prefers now, and their answers whether the remote is there. Facts about the reference gateway that this relies on: a probe takes
//! the first path of its session, which is the one that data takes while there is only one; a session that was not
//! answered for two seconds is down. Without probes that can be recognised, only its frames tell of the gateway's choice.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    net::IpAddr,
};

use sig_common::accelerate::{
    CPU_BITS, MAX_PATHS, MAX_REMOTES, NO_PATH, PROBE_PORT, Path, STREAM_BIT, Sighting,
    WAY_LIFETIME, kind, mix, probes,
};
use sig_common::{
    addr::IsdAs,
    maps::RemoteKey,
    wire::{ethernet, sig_frame, udp},
};
use sig_linux::{Error, bpf::AcceleratorPrograms};

use super::headers::{Headers, Unsuited};

const SECOND: u64 = 1_000_000_000;
/// A session without an answer for this long is down, as for the gateway itself.
const UNANSWERED: u64 = 2 * SECOND;
/// A session that is not probed any more is over.
const UNPROBED: u64 = 3 * SECOND;
/// A session whose prober is silent for this long may have another: two probes are missing, and it is not down yet. A gateway that changes
/// its sessions probes the old ones on for two seconds.
const OTHER_PROBER: u64 = WAY_LIFETIME;
/// Frames of a remote that ours has sent nothing to for this long are the gateway's.
const UNTALKED: u64 = 10 * SECOND;
/// A path that was not used for this long is forgotten.
const UNUSED: u64 = 60 * SECOND;

/// Sessions at the same time; those that are not probed for [`UNPROBED`] are removed.
const MAX_SESSIONS: usize = 1024;
/// Log lines about single sessions in a row.
const TOLD: usize = 8;

/// SCION packets of this length pass every link (SCION header specification, as for IPv6).
const LEAST_MTU: u32 = 1280;

/// Where the programs look.
pub(super) trait Tables {
    fn set_path(&mut self, number: u32, path: Option<&Path>) -> Result<(), Error>;
    fn set_frame(&mut self, frame: u64, path: Option<u32>) -> Result<(), Error>;
    fn set_way(&mut self, way: u64, time: u64) -> Result<(), Error>;
    fn way(&self, way: u64) -> Option<u64>;
    fn set_remote(&mut self, remote: RemoteKey, place: Option<u32>) -> Result<(), Error>;
    fn set_local(&mut self, local: RemoteKey, is_ours: bool) -> Result<(), Error>;
    fn path(&self, number: u32) -> Option<Path>;
    /// Leaves all frames to the gateway until what it has is through.
    fn hold_inbound(&mut self, now: u64) -> Result<(), Error>;
    /// Packets sent from a place of paths.
    fn sent(&self, place: u32) -> u64;
    /// Packets delivered from the remote at this place.
    fn delivered(&self, place: u32) -> u64;
}

impl Tables for AcceleratorPrograms {
    fn set_path(&mut self, number: u32, path: Option<&Path>) -> Result<(), Error> {
        self.set_path(number, path)
    }

    fn set_frame(&mut self, frame: u64, path: Option<u32>) -> Result<(), Error> {
        self.set_frame(frame, path)
    }

    fn set_way(&mut self, way: u64, time: u64) -> Result<(), Error> {
        self.set_way(way, time)
    }

    fn way(&self, way: u64) -> Option<u64> {
        self.way(way)
    }

    fn set_remote(&mut self, remote: RemoteKey, place: Option<u32>) -> Result<(), Error> {
        self.set_remote(remote, place)
    }

    fn set_local(&mut self, local: RemoteKey, is_ours: bool) -> Result<(), Error> {
        self.set_local(local, is_ours)
    }

    fn path(&self, number: u32) -> Option<Path> {
        self.path(number)
    }

    fn hold_inbound(&mut self, now: u64) -> Result<(), Error> {
        self.hold_inbound(now)
    }

    fn sent(&self, place: u32) -> u64 {
        self.sent(place).unwrap_or_default().packets
    }

    fn delivered(&self, place: u32) -> u64 {
        self.delivered(place).unwrap_or_default().packets
    }
}

/// All that was learned.
#[derive(Default)]
pub(super) struct Learner {
    /// By number.
    pub(super) paths: BTreeMap<u32, KnownPath>,
    pub(super) sessions: HashMap<SessionKey, Session>,
    pub(super) remotes: HashMap<RemoteKey, Remote>,
    /// Forms of frames that are left to the gateway.
    pub(super) refused: HashMap<u64, Refused>,
    /// Addresses of our gateway, and when it sent something from there last.
    locals: HashMap<RemoteKey, u64>,
    last_number: u32,
    /// Of the paths that were written.
    last_serial: u32,
    /// Places of paths that were in use.
    pub(super) places: u32,
    /// Places of remotes that were in use.
    pub(super) remote_places: u32,
}

/// A path that packets are sent on.
pub(super) struct KnownPath {
    pub(super) place: u32,
    pub(super) way: u64,
    pub(super) headers: Headers,
    /// Ports of its frames.
    ports: [u16; 2],
    pub(super) remote: RemoteKey,
    pub(super) session: u8,
    /// Forms of its frames.
    frames: Vec<u64>,
    /// First of its streams.
    stream: u32,
    learned: u64,
    /// Packets sent from its place before.
    pub(super) sent_before: u64,
}

impl KnownPath {
    const fn key(&self) -> SessionKey {
        SessionKey {
            remote: self.remote,
            session: self.session,
        }
    }
}

/// A session of our gateway with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct SessionKey {
    pub(super) remote: RemoteKey,
    pub(super) session: u8,
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (isd_as, host) = (IsdAs(self.remote.isd_as), IpAddr::from(self.remote.host));
        write!(f, "session {} with {isd_as},{host}", self.session)
    }
}

pub(super) struct Session {
    /// Which way the last probe went.
    way: u64,
    /// Bytes of their headers up to UDP/SCION.
    headers: usize,
    /// Source port of the probes.
    port: u16,
    pub(super) probed: u64,
    pub(super) answered: u64,
    pub(super) is_up: bool,
}

/// A gateway that ours talks to.
pub(super) struct Remote {
    pub(super) place: u32,
    talked: u64,
    /// Packets delivered from its place before.
    pub(super) delivered_before: u64,
}

/// Frames that are left to the gateway.
pub(super) struct Refused {
    /// `None`: it cannot be told.
    session: Option<SessionKey>,
    since: u64,
    /// `None`: because the session is down.
    pub(super) why: Option<Unsuited>,
}

impl Learner {
    /// Takes in what a program has seen.
    pub(super) fn take(&mut self, tables: &mut impl Tables, sighting: &Sighting) {
        let headers = match Headers::read(sighting) {
            Ok(headers) => headers,
            Err(why) => {
                // Else it would be told with every frame.
                if sighting.kind == kind::FRAME {
                    tracing::warn!(
                        "a frame of the gateway is not understood: {why}; frames like it are left to it"
                    );
                    log(self.refuse(tables, sighting, None, Some(why)));
                }
                return;
            }
        };
        let taken = match sighting.kind {
            kind::FRAME => self.frame(tables, sighting, headers),
            kind::PROBE => self.probe(tables, sighting, &headers),
            kind::ANSWER => self.answer(tables, sighting, &headers),
            _ => Ok(()),
        };
        log(taken);
    }

    /// A frame in a form that was not known.
    fn frame(
        &mut self,
        tables: &mut impl Tables,
        sighting: &Sighting,
        headers: Headers,
    ) -> Result<(), Error> {
        let (frame, way, now) = (sighting.frame, sighting.way, sighting.time);
        let (remote, session, ports) = (headers.remote(), headers.session(), headers.ports());
        self.talks_to(tables, &headers, now)?;
        let key = SessionKey { remote, session };
        let is_down = self.sessions.get(&key).is_some_and(|s| !s.is_up);
        let template = match is_down {
            true => Err(None),
            false => headers.template().map_err(Some),
        };
        let template = match template {
            Ok(template) => template,
            Err(why) => {
                if let Some(why) = &why {
                    tracing::warn!(
                        next_hop = %headers.next_hop(),
                        "frames of {key} are left to the gateway: {why}"
                    );
                }
                return self.refuse(tables, sighting, Some(key), why);
            }
        };
        tables.set_way(way, now)?;
        // Whatever else was known of the session may be no more: it counts again when it is seen again.
        let others = self
            .paths
            .values()
            .filter(|path| path.remote == remote && path.session == session && path.way != way);
        for other in others.map(|path| path.way).collect::<Vec<_>>() {
            tables.set_way(other, lapsed(now))?;
        }
        let same = self.paths.iter_mut().find(|(_, path)| {
            (path.remote, path.session, path.way, path.ports) == (remote, session, way, ports)
        });
        if let Some((number, path)) = same {
            if !path.frames.contains(&frame) {
                path.frames.push(frame);
            }
            return tables.set_frame(frame, Some(*number));
        }
        let Some(place) = self.free_place() else {
            // Paths that are not used make room in a minute, when this is forgotten, too.
            return self.refuse(tables, sighting, Some(key), Some(Unsuited::Full));
        };
        self.last_number = self.last_number.wrapping_add(1).max(1);
        let (number, stream) = (self.last_number, self.free_stream());
        let path = Path {
            way,
            number,
            serial: self.next_serial(),
            peer: peer(key),
            place,
            stream,
            // Nothing that the gateway cuts is behind a header of this session yet.
            capacity: sighting.payload,
            traffic_class: headers.traffic_class().into(),
            full: 0,
            template,
        };
        tables.set_path(number, Some(&path))?;
        tables.set_frame(frame, Some(number))?;
        tracing::debug!(number, next_hop = %headers.next_hop(), "learned a path of {key}");
        let known = KnownPath {
            place,
            way,
            headers,
            ports,
            remote,
            session,
            frames: vec![frame],
            stream,
            learned: now,
            sent_before: tables.sent(place),
        };
        self.paths.insert(number, known);
        self.places = self.places.max(place + 1);
        Ok(())
    }

    /// Leaves frames of a form to the gateway.
    fn refuse(
        &mut self,
        tables: &mut impl Tables,
        sighting: &Sighting,
        session: Option<SessionKey>,
        why: Option<Unsuited>,
    ) -> Result<(), Error> {
        let refused = Refused {
            session,
            since: sighting.time,
            why,
        };
        self.refused.insert(sighting.frame, refused);
        tables.set_frame(sighting.frame, Some(NO_PATH))
    }

    /// A session probe of our gateway.
    fn probe(
        &mut self,
        tables: &mut impl Tables,
        sighting: &Sighting,
        headers: &Headers,
    ) -> Result<(), Error> {
        let (way, now) = (sighting.way, sighting.time);
        let [port, destination_port] = headers.ports();
        if !probes::has_ports(port, destination_port) {
            return Ok(());
        }
        let key = SessionKey {
            remote: headers.remote(),
            session: sighting.session as u8,
        };
        match self.sessions.get(&key) {
            // A session has one prober. What comes from another port answers a stranger who claims to be the remote.
            Some(known)
                if known.port != port && now.saturating_sub(known.probed) < OTHER_PROBER =>
            {
                return Ok(());
            }
            None if self.sessions.len() >= MAX_SESSIONS => return Ok(()),
            _ => {}
        }
        self.talks_to(tables, headers, now)?;
        if tables.way(way).is_none() {
            tables.set_way(way, now)?;
        }
        let session = self.sessions.entry(key).or_insert(Session {
            way,
            headers: headers.len(),
            port,
            probed: now,
            answered: now,
            is_up: true,
        });
        session.port = port;
        session.headers = headers.len();
        session.probed = now;
        let before = std::mem::replace(&mut session.way, way);
        if before != way {
            self.move_over(tables, key, before, way, now, headers)?;
        }
        Ok(())
    }

    /// The gateway takes another way for a session: its flows follow.
    fn move_over(
        &mut self,
        tables: &mut impl Tables,
        key: SessionKey,
        before: u64,
        way: u64,
        now: u64,
        headers: &Headers,
    ) -> Result<(), Error> {
        tables.set_way(before, lapsed(now))?;
        tables.set_way(way, now)?;
        let moved = |path: &&KnownPath| path.key() == key && path.way == before;
        let moved: Vec<u32> = self
            .paths
            .iter()
            .filter(|(_, path)| moved(path))
            .map(|(number, _)| *number)
            .collect();
        for number in moved {
            let (stream, serial) = (self.free_stream(), self.next_serial());
            let Some(path) = self.paths.get_mut(&number) else {
                continue;
            };
            for frame in path.frames.drain(..) {
                tables.set_frame(frame, None)?;
            }
            let ports = path.ports;
            let Ok(template) = headers.template_of(ports, key.session) else {
                // Its flows find the way by themselves.
                continue;
            };
            // What passes there is not known yet.
            let passes = LEAST_MTU.saturating_sub(template.len() as u32);
            let capacity = |path: Path| path.capacity.min(passes);
            let mut moved = Path {
                way,
                number,
                serial,
                peer: peer(key),
                place: path.place,
                stream,
                capacity: tables.path(number).map_or(0, capacity),
                traffic_class: headers.traffic_class().into(),
                full: 0,
                template,
            };
            path.way = way;
            path.headers = headers.clone();
            path.stream = stream;
            // Unless its frames were seen first: two paths become one.
            let same =
                |path: &KnownPath| path.key() == key && path.way == way && path.ports == ports;
            let twin = self
                .paths
                .iter()
                .find(|(other, path)| **other != number && same(path))
                .map(|(other, _)| *other);
            if let Some(twin) = twin {
                if let Some(seen) = tables.path(twin) {
                    moved.capacity = moved.capacity.max(seen.capacity);
                    moved.full = seen.full;
                }
                let frames = self
                    .paths
                    .get_mut(&twin)
                    .map(|twin| twin.frames.split_off(0));
                self.forget(tables, twin)?;
                let frames = frames.unwrap_or_default();
                for frame in &frames {
                    tables.set_frame(*frame, Some(number))?;
                }
                if let Some(path) = self.paths.get_mut(&number) {
                    path.frames = frames;
                }
            }
            tables.set_path(number, Some(&moved))?;
            tracing::info!(number, next_hop = %headers.next_hop(), "the gateway took another path for {key}");
        }
        Ok(())
    }

    /// An answer to a session probe of our gateway.
    fn answer(
        &mut self,
        tables: &mut impl Tables,
        sighting: &Sighting,
        headers: &Headers,
    ) -> Result<(), Error> {
        let [source, destination] = headers.ports();
        let key = SessionKey {
            remote: headers.local(),
            session: sighting.session as u8,
        };
        let Some(session) = self.sessions.get_mut(&key) else {
            return Ok(());
        };
        if !probes::has_ports(destination, source) || destination != session.port {
            return Ok(());
        }
        session.answered = sighting.time;
        if !std::mem::replace(&mut session.is_up, true) {
            tracing::info!("{key} is answered again");
            self.forget_refused(tables, |refused| refused.session == Some(key))?;
        }
        Ok(())
    }

    /// Looks at what has not been seen for too long.
    pub(super) fn tick(&mut self, tables: &mut impl Tables, now: u64) {
        let since = |time: u64| now.saturating_sub(time);
        let (mut over, mut told) = (Vec::new(), 0);
        self.sessions.retain(|key, session| {
            let is_probed = since(session.probed) < UNPROBED;
            if !is_probed {
                if told < TOLD {
                    tracing::info!("the gateway has ended {key}");
                }
                told += 1;
                over.push(*key);
            }
            is_probed
        });
        // It may begin again.
        let ended = |refused: &Refused| refused.session.is_some_and(|key| over.contains(&key));
        log(self.forget_refused(tables, ended));
        for (key, session) in &mut self.sessions {
            if session.is_up && since(session.answered) > UNANSWERED {
                session.is_up = false;
                if told < TOLD {
                    tracing::info!("{key} is not answered; the gateway works alone for it");
                }
                told += 1;
            }
            if !session.is_up {
                over.push(*key);
            }
        }
        if told > TOLD {
            tracing::info!(
                "{} more sessions have ended or are not answered",
                told - TOLD
            );
        }
        let is_over = |path: &KnownPath| {
            let seen = tables.way(path.way).unwrap_or(0);
            over.contains(&path.key()) || since(seen) > UNUSED
        };
        let paths = self.paths.iter().filter(|(_, path)| is_over(path));
        for number in paths.map(|(number, _)| *number).collect::<Vec<_>>() {
            log(self.forget(tables, number));
        }
        let paths = &self.paths;
        self.remotes.retain(|key, remote| {
            if since(remote.talked) > UNTALKED {
                let is_its = |path: &KnownPath| path.remote == *key;
                remote.talked = last_seen(&*tables, paths, is_its).max(remote.talked);
            }
            let is_known = since(remote.talked) <= UNTALKED;
            if !is_known {
                log(tables.set_remote(*key, None));
            }
            is_known
        });
        self.locals.retain(|key, known| {
            if since(*known) > UNTALKED {
                let is_its = |path: &KnownPath| path.headers.local() == *key;
                *known = last_seen(&*tables, paths, is_its).max(*known);
            }
            let is_known = since(*known) <= UNTALKED;
            if !is_known {
                log(tables.set_local(*key, false));
            }
            is_known
        });
        log(self.forget_refused(tables, |refused| since(refused.since) > UNUSED));
    }

    /// What an operator should know, in words.
    pub(super) fn problems(&self, now: u64) -> Vec<String> {
        let refused = self
            .refused
            .values()
            .filter_map(|refused| refused.why.as_ref());
        let refused = refused.map(|why| format!("frames are left to the gateway: {why}"));
        let unprobed = self.paths.values().filter(|path| {
            !self.sessions.contains_key(&path.key()) && now.saturating_sub(path.learned) > UNPROBED
        });
        let unprobed = unprobed.map(|path| {
            format!(
                "no probes of {} to port {PROBE_PORT} are seen; the gateway is asked about its paths every {} s",
                path.key(),
                WAY_LIFETIME as f32 / SECOND as f32
            )
        });
        let full = (self.remotes.len() >= MAX_REMOTES as usize)
            .then(|| format!("frames of all remotes beyond {MAX_REMOTES} are left to the gateway"));
        refused.chain(unprobed).chain(full).collect()
    }

    /// The longest packet that fits a frame on every path; 0 without any. Until the gateway has cut a packet, the MTU of the
    /// underlay device tells.
    pub(super) fn frame_size(&self, tables: &impl Tables, underlay_mtu: u32) -> u32 {
        let sizes = self.paths.keys().filter_map(|number| {
            let path = tables.path(*number)?;
            let headers = (path.template.len() - ethernet::HEADER_LEN) as u32;
            Some(match path.full {
                0 => underlay_mtu.saturating_sub(headers),
                full => full,
            })
        });
        // Before the first frame, probes tell how long headers are.
        let guesses = self.sessions.values().map(|session| {
            let headers = session.headers + udp::HEADER_LEN + sig_frame::HEADER_LEN;
            underlay_mtu.saturating_sub((headers - ethernet::HEADER_LEN) as u32)
        });
        sizes.min().or(guesses.min()).unwrap_or(0)
    }

    /// Notes who talks to whom.
    fn talks_to(
        &mut self,
        tables: &mut impl Tables,
        headers: &Headers,
        now: u64,
    ) -> Result<(), Error> {
        if !headers.are_of_one_source() {
            return Ok(());
        }
        let local = headers.local();
        if self.locals.insert(local, now).is_none() {
            tables.set_local(local, true)?;
        }
        let key = headers.remote();
        if let Some(remote) = self.remotes.get_mut(&key) {
            remote.talked = now;
            return Ok(());
        }
        let used: Vec<u32> = self.remotes.values().map(|remote| remote.place).collect();
        let Some(place) = (0..MAX_REMOTES).find(|place| !used.contains(place)) else {
            return Ok(());
        };
        tables.set_remote(key, Some(place))?;
        // The programs have not looked at what it sent before.
        tables.hold_inbound(now)?;
        let remote = Remote {
            place,
            talked: now,
            delivered_before: tables.delivered(place),
        };
        self.remotes.insert(key, remote);
        self.remote_places = self.remote_places.max(place + 1);
        Ok(())
    }

    /// The first id of as many streams as a path has, which no path has now. At random: remotes keep what they know of earlier
    /// ones for a while.
    fn free_stream(&self) -> u32 {
        let used: Vec<u32> = self.paths.values().map(|path| path.stream).collect();
        let first = rand::random::<u32>();
        let mut ids =
            (0..MAX_PATHS).map(|path| (first.wrapping_add(path) << CPU_BITS) & (STREAM_BIT - 1));
        ids.find(|id| !used.contains(id)).unwrap_or(0)
    }

    fn next_serial(&mut self) -> u32 {
        self.last_serial = self.last_serial.wrapping_add(1);
        self.last_serial
    }

    fn free_place(&self) -> Option<u32> {
        let used: Vec<u32> = self.paths.values().map(|path| path.place).collect();
        (0..MAX_PATHS).find(|place| !used.contains(place))
    }

    fn forget(&mut self, tables: &mut impl Tables, number: u32) -> Result<(), Error> {
        let Some(path) = self.paths.remove(&number) else {
            return Ok(());
        };
        tables.set_path(number, None)?;
        for frame in path.frames {
            tables.set_frame(frame, None)?;
        }
        Ok(())
    }

    fn forget_refused(
        &mut self,
        tables: &mut impl Tables,
        is_over: impl Fn(&Refused) -> bool,
    ) -> Result<(), Error> {
        let over: Vec<u64> = self
            .refused
            .iter()
            .filter(|(_, refused)| is_over(refused))
            .map(|(frame, _)| *frame)
            .collect();
        for frame in over {
            self.refused.remove(&frame);
            tables.set_frame(frame, None)?;
        }
        Ok(())
    }

    /// Begins anew: another gateway may run by now.
    ///
    /// # Errors
    /// The kernel does not let us write.
    pub(super) fn forget_all(&mut self, tables: &mut impl Tables) -> Result<(), Error> {
        for number in self.paths.keys().copied().collect::<Vec<_>>() {
            self.forget(tables, number)?;
        }
        for remote in std::mem::take(&mut self.remotes).into_keys() {
            tables.set_remote(remote, None)?;
        }
        for local in std::mem::take(&mut self.locals).into_keys() {
            tables.set_local(local, false)?;
        }
        self.sessions.clear();
        self.forget_refused(tables, |_| true)
    }
}

/// When a way was seen last that is not used any more now.
const fn lapsed(now: u64) -> u64 {
    now.saturating_sub(WAY_LIFETIME + 1)
}

/// When the gateway used one of these paths last: of frames over a known path, nobody is told.
fn last_seen(
    tables: &impl Tables,
    paths: &BTreeMap<u32, KnownPath>,
    is_one: impl Fn(&KnownPath) -> bool,
) -> u64 {
    let ways = paths.values().filter(|path| is_one(path));
    let seen = ways.filter_map(|path| tables.way(path.way));
    seen.max().unwrap_or(0)
}

/// What stands for remote and session in the tables: a hash, for two of four billion that are the same would only mean that a
/// flow is not asked about again.
fn peer(key: SessionKey) -> u32 {
    let host = u128::from_be_bytes(key.remote.host.0);
    let words = [
        key.remote.isd_as,
        (host >> 64) as u64,
        host as u64,
        key.session.into(),
    ];
    ((words.into_iter().fold(0, mix) >> 32) as u32).max(1)
}

fn log(result: Result<(), Error>) {
    if let Err(error) = result {
        tracing::warn!("{error}; packets are left to the gateway");
    }
}
