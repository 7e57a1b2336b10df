//! All paths to one remote AS.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::{Duration, Instant, SystemTime},
};

use sig_common::addr::IsdAs;

use super::{
    prober::Prober,
    revocations::{Failure, Revocations},
    state::{Liveness, PathState},
};
use crate::scion::{Fingerprint, Path};

/// How often paths are probed that nobody uses.
const UNUSED_INTERVAL: Duration = Duration::from_millis(500);
/// How long a path is kept that the daemon does not tell any more.
const MISSING_KEPT: Duration = Duration::from_secs(60);
/// Smallest path MTU in bytes that an SCMP message can cause: still enough for useful frames.
const MTU_FLOOR: u16 = 1000;
/// How long the path MTU of an SCMP message is believed.
const MTU_KEPT: Duration = Duration::from_secs(600);
/// Between the first probes of new paths.
const FIRST_PROBES_APART: Duration = Duration::from_millis(5);
/// Whoever looks for answers later than this was held up, and the answers get more time.
const HELD_UP: Duration = Duration::from_millis(100);

/// How paths are probed, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Time between two probes of a path in use. Default 200 ms.
    pub probe_interval: Duration,
    /// A path without an answer for this long is dead; later if its round trip time or probe interval asks for
    /// it. Default 600 ms.
    pub probe_timeout: Duration,
    /// Paths watched, unless more are in use. Default 64.
    pub limit: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            probe_interval: Duration::from_millis(200),
            probe_timeout: Duration::from_millis(600),
            limit: 64,
        }
    }
}

impl Settings {
    fn within_bounds(self) -> Self {
        let longest = Duration::from_secs(60);
        Settings {
            probe_interval: self
                .probe_interval
                .clamp(Duration::from_millis(10), longest),
            probe_timeout: self.probe_timeout.clamp(Duration::from_millis(10), longest),
            limit: self.limit.max(1),
        }
    }
}

/// An SCMP traceroute request to send: to the monitor's AS along `path`, with the router alert flag in the
/// last hop field, so that the border router at which the path enters that AS answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Names the path.
    pub fingerprint: Fingerprint,
    /// The path.
    pub path: Path,
    /// Sequence number of the request.
    pub sequence: u16,
}

/// What a monitor has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Probes handed out.
    pub probes_sent: u64,
    /// Probes answered.
    pub probes_received: u64,
    /// Probes that the socket did not take ([`Monitor::probe_not_sent`]).
    pub send_errors: u64,
    /// Answers to no probe: duplicates, very late ones, inventions, and those from another AS.
    pub unexpected: u64,
    /// Paths of the daemon beyond the limit, counted at each update.
    pub paths_refused: u64,
}

#[derive(Debug)]
struct Watched {
    path: Path,
    prober: Prober,
    next_probe: Instant,
    in_use: bool,
    missing_since: Option<Instant>,
    /// What an SCMP message said, and when.
    learned_mtu: Option<(u16, Instant)>,
    added: Instant,
}

/// Watches all paths to one remote AS.
///
/// Several monitors share one socket and one SCMP identifier: an answer belongs to the monitor of the AS that
/// it comes from (the source ISD-AS of its SCION header), and the sequence numbers of one monitor are its
/// own.
#[derive(Debug)]
pub struct Monitor {
    remote: IsdAs,
    settings: Settings,
    paths: BTreeMap<Fingerprint, Watched>,
    next_sequence: u16,
    /// The earliest `next_probe`.
    next_probe: Option<Instant>,
    /// Until when answers have been given more time.
    granted: Option<Instant>,
    /// See [`Monitor::take_news`].
    news: bool,
    problem: Option<String>,
    counters: Counters,
}

impl Monitor {
    /// Of paths to `remote`. The first probe has the sequence number `first_sequence`, best a random one:
    /// then others cannot guess what to answer.
    #[must_use]
    pub fn new(remote: IsdAs, settings: Settings, first_sequence: u16) -> Self {
        Monitor {
            remote,
            settings: settings.within_bounds(),
            paths: BTreeMap::new(),
            next_sequence: first_sequence,
            next_probe: None,
            granted: None,
            news: false,
            problem: None,
            counters: Counters::default(),
        }
    }

    /// The AS that the paths lead to.
    #[must_use]
    pub fn remote(&self) -> IsdAs {
        self.remote
    }

    /// From now on with these settings. A smaller limit holds from the next update on.
    pub fn set_settings(&mut self, settings: Settings) {
        self.settings = settings.within_bounds();
    }

    /// What the daemon says about paths now. Those known already keep their statistics; those that it does
    /// not tell any more stay for a minute, unless they expire. No paths at all count as a failure.
    ///
    /// Beyond the limit, paths in use stay, then come those of the list in its order: the ones that policies
    /// admit belong to its front.
    pub fn update(&mut self, now: Instant, wall: SystemTime, paths: Vec<Path>) {
        if paths.is_empty() {
            self.update_failed("the daemon knows no path");
            return;
        }
        self.tick(now);
        self.problem = None;
        let mut order = Vec::with_capacity(paths.len());
        let mut listed = HashMap::with_capacity(paths.len());
        for path in paths {
            let fingerprint = path.fingerprint;
            if listed.insert(fingerprint, path).is_none() {
                order.push(fingerprint);
            }
        }
        let used = self.paths.values().filter(|watched| watched.in_use).count();
        let mut room = self.settings.limit.saturating_sub(used);
        let mut new = 0;
        for fingerprint in order {
            let Some(path) = listed.get(&fingerprint).cloned() else {
                continue;
            };
            let known = self.paths.get_mut(&fingerprint);
            if !known.as_ref().is_some_and(|watched| watched.in_use) {
                if room == 0 {
                    self.counters.paths_refused += 1;
                    self.paths.remove(&fingerprint);
                    continue;
                }
                room -= 1;
            }
            if let Some(watched) = known {
                watched.refresh(path);
            } else {
                self.paths.insert(fingerprint, Watched::new(now, path, new));
                new += 1;
            }
        }
        self.paths.retain(|fingerprint, watched| {
            if listed.contains_key(fingerprint) {
                return true;
            }
            watched.missing_since.get_or_insert(now);
            if watched.is_gone(now, wall) {
                return false;
            }
            if !watched.in_use {
                let fits = room > 0;
                room = room.saturating_sub(1);
                return fits;
            }
            true
        });
        self.find_next_probe();
    }

    /// The daemon tells no paths, and why. Those known stay as long as they are valid. Whether that is news,
    /// worth a line in the log.
    pub fn update_failed(&mut self, reason: impl Into<String>) -> bool {
        let news = self.problem.is_none();
        self.problem = Some(reason.into());
        news
    }

    /// Why the daemon tells no paths, if it does not.
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// These paths are used by sessions, the others are not.
    pub fn set_in_use(&mut self, now: Instant, paths: impl IntoIterator<Item = Fingerprint>) {
        let used: BTreeSet<Fingerprint> = paths.into_iter().collect();
        for (fingerprint, watched) in &mut self.paths {
            let in_use = used.contains(fingerprint);
            if in_use && !watched.in_use {
                let soon = now + self.settings.probe_interval;
                watched.next_probe = watched.next_probe.min(soon);
            }
            watched.in_use = in_use;
        }
        self.find_next_probe();
    }

    /// The probes that are due. Paths that nobody has told for too long go.
    pub fn poll_probes(&mut self, now: Instant, wall: SystemTime) -> Vec<Probe> {
        self.tick(now);
        self.paths.retain(|_, watched| !watched.is_gone(now, wall));
        let mut probes = Vec::new();
        for (fingerprint, watched) in &mut self.paths {
            if watched.next_probe > now {
                continue;
            }
            let interval = watched.interval(&self.settings);
            watched.next_probe = now + spread(interval, fingerprint, self.next_sequence);
            if watched.path.is_expired(wall) {
                watched.prober.suspend();
            } else if watched.is_probed() {
                let sequence = self.next_sequence;
                self.next_sequence = sequence.wrapping_add(1);
                watched.prober.sent(now, sequence, interval);
                probes.push(Probe {
                    fingerprint: *fingerprint,
                    path: watched.path.clone(),
                    sequence,
                });
            }
        }
        self.counters.probes_sent += probes.len() as u64;
        self.find_next_probe();
        probes
    }

    /// A probe could not be sent. Nobody will answer it, which says about the path what it says.
    pub fn probe_not_sent(&mut self) {
        self.counters.send_errors += 1;
    }

    /// A traceroute reply has arrived, sent by a router in the AS `from`. Whether it answers a probe.
    pub fn handle_reply(&mut self, now: Instant, sequence: u16, from: IsdAs) -> bool {
        self.tick(now);
        let expected = from == self.remote
            && self.paths.values_mut().any(|watched| {
                let before = watched.prober.standing();
                let expected = watched.prober.answer(now, sequence);
                self.news |= watched.prober.standing() != before;
                expected
            });
        if expected {
            self.counters.probes_received += 1;
        } else {
            self.counters.unexpected += 1;
        }
        expected
    }

    /// Whether a path has begun to answer, come to life or died since the last call: worth choosing anew at once.
    pub fn take_news(&mut self, now: Instant) -> bool {
        self.tick(now);
        std::mem::take(&mut self.news)
    }

    /// A router on the path cannot pass on SCION packets longer than `mtu` bytes. Whether that changes
    /// anything. Believed for ten minutes, or until the daemon announces another MTU, and never below
    /// 1000 bytes.
    pub fn packet_too_big(&mut self, now: Instant, path: Fingerprint, mtu: u16) -> bool {
        let Some(watched) = self.paths.get_mut(&path) else {
            return false;
        };
        let mtu = mtu.max(MTU_FLOOR);
        let smaller = mtu < watched.mtu(now);
        if smaller {
            watched.learned_mtu = Some((mtu, now));
        }
        smaller
    }

    /// Whether the failure is on a path that is watched.
    #[must_use]
    pub fn is_concerned_by(&self, failure: &Failure) -> bool {
        self.paths().any(|path| failure.is_on(path))
    }

    /// All paths as they are now, in the order of their fingerprints.
    pub fn states(
        &mut self,
        now: Instant,
        wall: SystemTime,
        revocations: &Revocations,
    ) -> Vec<PathState> {
        self.tick(now);
        let timeout = self.settings.probe_timeout;
        let state = |watched: &Watched| {
            let prober = &watched.prober;
            PathState {
                path: watched.path.clone(),
                mtu: watched.mtu(now),
                liveness: watched.liveness(now, wall, timeout),
                revoked: revocations
                    .on(now, &watched.path)
                    .any(|reported| !prober.proven_after(reported)),
                in_use: watched.in_use,
                latency: prober.round_trip().mean(),
                latency_min: prober.fastest(now),
                jitter: prober.round_trip().deviation(),
                loss_ppm: prober.loss_ppm(now, timeout),
            }
        };
        self.paths.values().map(state).collect()
    }

    /// The paths, in the order of their fingerprints.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.paths.values().map(|watched| &watched.path)
    }

    /// Paths watched.
    #[must_use]
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Whether no path is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// What has been counted since the start.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// When probes are due, a path dies unless an answer comes, or one expires.
    #[must_use]
    pub fn next_deadline(&self, now: Instant, wall: SystemTime) -> Option<Instant> {
        let timeout = self.settings.probe_timeout;
        let deaths = self
            .paths
            .values()
            .filter_map(|watched| watched.prober.deadline(timeout));
        let expiries = self.paths.values().filter_map(|watched| {
            let left = watched.path.expiry?.duration_since(wall).ok()?;
            now.checked_add(left).filter(|_| !left.is_zero())
        });
        deaths.chain(expiries).chain(self.next_probe).min()
    }

    /// Lets paths die whose time is over. If we were held up, answers may be waiting: they get as much
    /// more time.
    fn tick(&mut self, now: Instant) {
        let looked = self.granted.into_iter().chain(self.next_probe).max();
        let late = looked
            .filter(|_| self.next_probe.is_some())
            .map_or(Duration::ZERO, |looked| {
                now.saturating_duration_since(looked)
            });
        if late > HELD_UP {
            self.granted = Some(now);
        }
        for watched in self.paths.values_mut() {
            if late > HELD_UP {
                watched.prober.grant(late);
            }
            self.news |= watched.prober.advance(now, self.settings.probe_timeout);
        }
    }

    fn find_next_probe(&mut self) {
        self.next_probe = self.paths.values().map(|watched| watched.next_probe).min();
    }
}

impl Watched {
    /// The `place`-th new path of an update.
    fn new(now: Instant, path: Path, place: u32) -> Self {
        Watched {
            path,
            prober: Prober::new(now),
            next_probe: now + (FIRST_PROBES_APART * place).min(UNUSED_INTERVAL),
            in_use: false,
            missing_since: None,
            learned_mtu: None,
            added: now,
        }
    }

    fn refresh(&mut self, path: Path) {
        if path.mtu != self.path.mtu {
            self.learned_mtu = None;
        }
        self.path = path;
        self.missing_since = None;
    }

    /// Not told for too long, or neither told nor valid.
    fn is_gone(&self, now: Instant, wall: SystemTime) -> bool {
        self.missing_since.is_some_and(|since| {
            self.path.is_expired(wall) || now.saturating_duration_since(since) >= MISSING_KEPT
        })
    }

    /// Within the own AS there is no border router that could answer.
    fn is_probed(&self) -> bool {
        self.path.path_type() != 0
    }

    fn liveness(&self, now: Instant, wall: SystemTime, timeout: Duration) -> Liveness {
        if self.path.is_expired(wall) {
            Liveness::Expired
        } else if self.is_probed() {
            self.prober.liveness(now, timeout)
        } else {
            Liveness::Alive {
                since: self.added,
                settled: self.added,
            }
        }
    }

    fn mtu(&self, now: Instant) -> u16 {
        self.learned_mtu
            .filter(|&(_, when)| now.saturating_duration_since(when) < MTU_KEPT)
            .map_or(self.path.mtu, |(mtu, _)| mtu.min(self.path.mtu))
    }

    fn interval(&self, settings: &Settings) -> Duration {
        if self.in_use || self.prober.is_coming() {
            settings.probe_interval
        } else {
            settings.probe_interval.max(UNUSED_INTERVAL)
        }
    }
}

/// The interval, a tenth more or less, so that the probes of many paths do not march in step.
fn spread(interval: Duration, path: &Fingerprint, sequence: u16) -> Duration {
    let [a, b, ..] = path.0;
    let mixed = u32::from(u16::from_be_bytes([a, b]) ^ sequence).wrapping_mul(0x9e37_79b9) >> 22;
    interval.mul_f64(0.9 + f64::from(mixed) / 1024.0 * 0.2)
}
