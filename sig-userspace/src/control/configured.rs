//! The remotes of the `[[remote]]` sections while the gateway runs: their paths expire, and a reload brings
//! others. Time is an argument.

#[cfg(feature = "xdp")]
mod follow;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use ipnet::IpNet;

use super::{
    config::{Config, EXPIRES_SOON, Made, Path, Remote},
    plan::{Plan, SessionKey},
};
#[cfg(feature = "xdp")]
pub(crate) use follow::{Handle, follow};
use sig_core::{notation::rfc3339, scion};

/// The remotes in force.
#[derive(Clone, Debug)]
pub(crate) struct Configured {
    served: Vec<IpNet>,
    remotes: Vec<Known>,
    last_key: u64,
}

/// A remote and its state.
#[derive(Clone, Debug)]
struct Known {
    key: SessionKey,
    /// As the file has it.
    read: Remote,
    /// With the paths that are made here as they are now.
    remote: Remote,
    /// Of each path of the remote, what has been said about its expiry.
    told: Vec<Validity>,
}

/// How long a path can still be used. Ordered by urgency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Validity {
    /// Longer than [`EXPIRES_SOON`].
    Valid,
    /// Until this time.
    ExpiresSoon,
    /// No longer.
    Expired,
}

/// What an operator should know about a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    /// The remote, as ISD-AS and host.
    pub remote: String,
    /// Name of the path.
    pub path: String,
    /// Whether it is about to expire, has expired, or has been made anew.
    pub validity: Validity,
    /// When, seconds since 1970.
    pub expires_at: u64,
    /// It has expired and there is no other path to the remote.
    pub was_last: bool,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = rfc3339(self.expires_at);
        let remedy = "replace it and run \"sig reload\"";
        match (self.validity, self.was_last) {
            (Validity::Expired, false) => write!(f, "the path expired at {at}: {remedy}"),
            (Validity::Expired, true) => write!(
                f,
                "the path expired at {at} and no other path is left: routes to \
                 the remote withdrawn; {remedy}"
            ),
            (Validity::ExpiresSoon, _) => write!(f, "the path expires soon, at {at}: {remedy}"),
            (Validity::Valid, _) => write!(f, "the path was renewed and is valid until {at}"),
        }
    }
}

impl Configured {
    /// The remotes of a configuration. Their plan is at first [`Plan::from_config`], but for what has expired.
    #[must_use]
    pub(crate) fn new(config: &Config, now: SystemTime) -> Self {
        let mut configured = Configured {
            served: Vec::new(),
            remotes: Vec::new(),
            last_key: 0,
        };
        configured.reload(config, now);
        configured
    }

    /// What the data plane is to do at the time `now`.
    #[must_use]
    pub(crate) fn plan(&self, now: SystemTime) -> Plan {
        let remotes = self.remotes.iter().map(|known| (known.key, &known.remote));
        Plan::of_remotes(&self.served, remotes).at(now)
    }

    /// Puts the remotes and served prefixes of another configuration into force. Sessions, and with them streams
    /// and counters, of remotes that are in both go on. Tells what has changed, one line each.
    pub(crate) fn reload(&mut self, config: &Config, now: SystemTime) -> Vec<String> {
        let mut lines = Vec::new();
        let mut old = std::mem::take(&mut self.remotes);
        for remote in &config.remotes {
            // What tells remotes apart for the data plane too.
            let is_same = |known: &Known| {
                let gateway = known.remote.gateway.ip();
                (known.remote.isd_as, gateway) == (remote.isd_as, remote.gateway.ip())
            };
            let name = name(remote);
            let known = match old.iter().position(is_same) {
                Some(place) => {
                    let known = old.remove(place);
                    for change in changes(&known.read, remote) {
                        lines.push(format!("{name}: {change}"));
                    }
                    known.follow(remote, now)
                }
                None => {
                    lines.push(format!("{name}: added"));
                    let key = SessionKey(self.last_key);
                    self.last_key += 1;
                    Known {
                        key,
                        read: Remote {
                            paths: Vec::new(),
                            ..remote.clone()
                        },
                        remote: remote.clone(),
                        told: Vec::new(),
                    }
                    .follow(remote, now)
                }
            };
            self.remotes.push(known);
        }
        lines.extend(
            old.iter()
                .map(|known| format!("{}: removed", name(&known.read))),
        );
        if self.served != config.gateway.prefixes {
            self.served.clone_from(&config.gateway.prefixes);
            lines.push("served prefixes changed".to_owned());
        }
        lines
    }

    /// What has become urgent by the time `now` and was not told before.
    pub(crate) fn poll(&mut self, now: SystemTime) -> Vec<Notice> {
        let mut notices = Vec::new();
        for known in &mut self.remotes {
            for path in known
                .remote
                .paths
                .iter_mut()
                .filter(|path| is_due(path, now))
            {
                make(path, now);
                notices.push(Notice {
                    remote: name(&known.read),
                    path: path.name.clone(),
                    validity: Validity::Valid,
                    expires_at: expiry(path).map_or(0, seconds),
                    was_last: false,
                });
            }
            let paths = &known.remote.paths;
            let states: Vec<(Validity, u64)> = paths.iter().map(|path| state(path, now)).collect();
            let none_left = states.iter().all(|(state, _)| *state == Validity::Expired);
            for ((path, told), (validity, expires_at)) in
                paths.iter().zip(&mut known.told).zip(states)
            {
                if validity > *told {
                    notices.push(Notice {
                        remote: name(&known.read),
                        path: path.name.clone(),
                        validity,
                        expires_at,
                        was_last: none_left,
                    });
                }
                *told = validity;
            }
        }
        notices
    }

    /// When [`Configured::plan`] or [`Configured::poll`] will have something new; `None`: never.
    #[must_use]
    pub(crate) fn deadline(&self, now: SystemTime) -> Option<SystemTime> {
        let paths = self.remotes.iter().flat_map(|known| &known.remote.paths);
        let times = |path: &Path| {
            let expiry = expiry(path)?;
            let first = match &path.made {
                Some(made) => expiry.checked_sub(half_life(made)),
                None => expiry.checked_sub(EXPIRES_SOON),
            };
            Some([first, Some(expiry)])
        };
        paths
            .filter_map(times)
            .flatten()
            .flatten()
            .filter(|time| *time > now)
            .min()
    }
}

impl Known {
    /// This remote, as the file has it now.
    fn follow(mut self, read: &Remote, now: SystemTime) -> Self {
        let mut remote = read.clone();
        let mut told = Vec::with_capacity(remote.paths.len());
        for path in &mut remote.paths {
            let mut known = self
                .read
                .paths
                .iter()
                .zip(&self.remote.paths)
                .zip(&self.told);
            match known.find(|((before, _), _)| *before == path) {
                Some(((_, current), validity)) => {
                    path.raw.clone_from(&current.raw);
                    told.push(*validity);
                }
                None => {
                    make(path, now);
                    told.push(Validity::Valid);
                }
            }
        }
        (self.read, self.remote, self.told) = (read.clone(), remote, told);
        self
    }
}

/// Makes the bytes of a path that is made here, valid from `now` on.
fn make(path: &mut Path, now: SystemTime) {
    let Some(made) = &path.made else { return };
    let now = u32::try_from(seconds(now)).unwrap_or(u32::MAX);
    // There is one, since there was one when the configuration was read.
    if let Ok(fresh) = made.at(now) {
        path.raw = fresh.raw;
    }
}

/// Paths that are made here are made anew after this time.
fn half_life(made: &Made) -> Duration {
    Duration::from_secs(made.lifetime() / 2)
}

/// Whether the path is to be made anew: it is old, or the clock was set back.
fn is_due(path: &Path, now: SystemTime) -> bool {
    let (Some(made), Some(expiry)) = (&path.made, expiry(path)) else {
        return false;
    };
    let left = expiry.duration_since(now).unwrap_or_default();
    left <= half_life(made) || left > Duration::from_secs(made.lifetime())
}

/// The remote in words.
fn name(remote: &Remote) -> String {
    format!("remote {},{}", remote.isd_as, remote.gateway.ip())
}

/// How a remote differs from what it was.
fn changes(old: &Remote, new: &Remote) -> Vec<&'static str> {
    let differences = [
        (old.gateway != new.gateway, "data port changed"),
        (old.session != new.session, "session number changed"),
        (old.prefixes != new.prefixes, "prefixes changed"),
        (old.paths != new.paths, "paths changed"),
    ];
    let changed = differences.into_iter().filter(|(differ, _)| *differ);
    changed.map(|(_, what)| what).collect()
}

fn expiry(path: &Path) -> Option<SystemTime> {
    scion::Path::configured(&path.raw, path.next_hop, path.mtu).expiry
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

/// How long a path can still be used, and when it expires, in seconds since 1970.
fn state(path: &Path, now: SystemTime) -> (Validity, u64) {
    let Some(expiry) = expiry(path) else {
        return (Validity::Valid, 0);
    };
    let left = expiry.duration_since(now).unwrap_or_default();
    let validity = if left.is_zero() {
        Validity::Expired
    } else if path.made.is_none() && left <= EXPIRES_SOON {
        Validity::ExpiresSoon
    } else {
        Validity::Valid
    };
    (validity, seconds(expiry))
}
