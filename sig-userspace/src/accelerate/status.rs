//! What a running accelerator tells about itself: `sig accelerate status`.

use std::{collections::BTreeMap, net::IpAddr, time::Instant};

use serde::{Deserialize, Serialize};
use sig_common::{
    accelerate::{Stat, WAY_LIFETIME},
    addr::IsdAs,
    maps::RemoteKey,
};
use sig_linux::bpf::{AcceleratorPrograms, monotonic_ns};

use super::{Options, learn::Learner};

/// A running accelerator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Status {
    /// What answers: `accelerator`.
    pub(crate) kind: String,
    /// Version of the program.
    pub(crate) version: String,
    /// Milliseconds since the start.
    pub(crate) uptime_ms: u64,
    /// Device that frames leave and come in by.
    pub(crate) underlay: String,
    /// Tunnel device of the gateway.
    pub(crate) tunnel: String,
    /// What it waits for; the gateway works alone until then.
    pub(crate) waiting_for: Option<String>,
    /// Packets that were encapsulated and sent in place of the gateway.
    pub(crate) packets_sent: u64,
    /// Bytes of them.
    pub(crate) bytes_sent: u64,
    /// Packets that were decapsulated and delivered in place of the gateway.
    pub(crate) packets_delivered: u64,
    /// Bytes of them.
    pub(crate) bytes_delivered: u64,
    /// SYNs of TCP whose maximum segment size was lowered.
    pub(crate) mss_clamped: u64,
    /// Packets and frames that were left to the gateway or lost, by reason.
    pub(crate) left: BTreeMap<String, u64>,
    /// Sessions of the gateway, as its probes tell.
    pub(crate) sessions: Vec<Session>,
    /// Paths that packets are sent on.
    pub(crate) paths: Vec<Path>,
    /// Gateways whose frames are decapsulated.
    pub(crate) remotes: Vec<Remote>,
    /// Why frames or sessions of the gateway cannot be imitated.
    pub(crate) problems: Vec<String>,
}

impl Status {
    /// What [`Status::kind`] is.
    pub(crate) const KIND: &str = "accelerator";
}

/// A session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Session {
    /// ISD-AS of the remote gateway.
    pub(crate) isd_as: String,
    /// Address of the remote gateway.
    pub(crate) host: IpAddr,
    /// Number.
    pub(crate) session: u8,
    /// Whether probes are answered.
    pub(crate) is_up: bool,
    /// Milliseconds since the last answer.
    pub(crate) answered_ms: u64,
}

/// A path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Path {
    /// Number.
    pub(crate) number: u32,
    /// ISD-AS of the remote gateway.
    pub(crate) isd_as: String,
    /// Address of the remote gateway.
    pub(crate) host: IpAddr,
    /// Session.
    pub(crate) session: u8,
    /// Where frames go first.
    pub(crate) next_hop: String,
    /// Longest packet that is sent on it.
    pub(crate) longest_packet: u32,
    /// Whether the gateway has used it lately.
    pub(crate) is_used: bool,
    /// Packets sent on it.
    pub(crate) packets_sent: u64,
}

/// A remote gateway.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Remote {
    /// ISD-AS.
    pub(crate) isd_as: String,
    /// Address.
    pub(crate) host: IpAddr,
    /// Packets of its frames that were delivered.
    pub(crate) packets_delivered: u64,
}

/// How the reasons are called.
const REASONS: [(Stat, &str); 10] = [
    (Stat::OutOdd, "out_other_kind"),
    (Stat::OutUnknown, "out_not_learned"),
    (Stat::OutBusy, "out_behind_others"),
    (Stat::OutLong, "out_too_long"),
    (Stat::OutLost, "out_lost"),
    (Stat::InOdd, "in_other_kind"),
    (Stat::InUnknown, "in_not_learned"),
    (Stat::InBusy, "in_behind_others"),
    (Stat::InChecksum, "in_wrong_checksum"),
    (Stat::InLost, "in_lost"),
];

pub(super) fn read(
    programs: &AcceleratorPrograms,
    learner: &Learner,
    waiting: Option<&str>,
    options: &Options,
    started: Instant,
) -> Status {
    let now = monotonic_ns();
    let ms_since = |time: u64| now.saturating_sub(time) / 1_000_000;
    let name = |key: RemoteKey| (IsdAs(key.isd_as).to_string(), IpAddr::from(key.host));
    let stat = |stat| programs.stat(stat).unwrap_or_default();
    let mut sessions: Vec<_> = learner.sessions.iter().collect();
    sessions.sort_by_key(|(key, _)| **key);
    let sessions = sessions.into_iter().map(|(key, session)| {
        let (isd_as, host) = name(key.remote);
        Session {
            isd_as,
            host,
            session: key.session,
            is_up: session.is_up,
            answered_ms: ms_since(session.answered),
        }
    });
    let paths = learner.paths.iter().map(|(number, path)| {
        let (isd_as, host) = name(path.remote);
        let seen = programs.way(path.way).unwrap_or_default();
        Path {
            number: *number,
            isd_as,
            host,
            session: path.session,
            next_hop: path.headers.next_hop().to_string(),
            longest_packet: programs.path(*number).map_or(0, |path| path.capacity),
            is_used: now.saturating_sub(seen) < WAY_LIFETIME,
            packets_sent: (programs.sent(path.place).unwrap_or_default().packets)
                .saturating_sub(path.sent_before),
        }
    });
    let mut remotes: Vec<_> = learner.remotes.iter().collect();
    remotes.sort_by_key(|(key, _)| **key);
    let delivered = |place| programs.delivered(place).unwrap_or_default();
    let bytes_delivered = (0..learner.remote_places).map(|place| delivered(place).bytes);
    let bytes_sent =
        (0..learner.places).map(|place| programs.sent(place).unwrap_or_default().bytes);
    let mut problems = learner.problems(now);
    problems.sort();
    problems.dedup();
    Status {
        kind: Status::KIND.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_ms: started.elapsed().as_millis() as u64,
        underlay: options.underlay.clone(),
        tunnel: options.tunnel.clone(),
        waiting_for: waiting.map(str::to_owned),
        packets_sent: stat(Stat::Sent),
        bytes_sent: bytes_sent.sum(),
        packets_delivered: stat(Stat::Delivered),
        bytes_delivered: bytes_delivered.sum(),
        mss_clamped: stat(Stat::MssClamped),
        left: REASONS
            .into_iter()
            .map(|(reason, name)| (name.to_owned(), stat(reason)))
            .collect(),
        sessions: sessions.collect(),
        paths: paths.collect(),
        remotes: remotes
            .into_iter()
            .map(|(key, remote)| {
                let (isd_as, host) = name(*key);
                Remote {
                    isd_as,
                    host,
                    packets_delivered: (delivered(remote.place).packets)
                        .saturating_sub(remote.delivered_before),
                }
            })
            .collect(),
        problems,
    }
}
