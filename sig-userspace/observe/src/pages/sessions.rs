//! The facts about a session, brought together from where the status has them.

use sig_common::addr::IsdAs;

use sig_core::status::{
    Control, DiscoveredGateway, Remote, RemoteAs, SessionPolicy, Status, WatchedPath,
};

/// A session with a remote gateway.
#[derive(Clone, Copy)]
pub(super) struct Session<'a> {
    pub(super) remote: &'a Remote,
    /// What the control plane knows about the AS; `None` where the configuration names the paths.
    pub(super) found: Option<&'a RemoteAs>,
    /// Its gateway, as the control service of its AS lists it.
    pub(super) gateway: Option<&'a DiscoveredGateway>,
    pub(super) policy: Option<&'a SessionPolicy>,
}

/// A path of a session, with the words of the reference.
pub(super) struct SessionPath<'a> {
    pub(super) text: String,
    /// Frames are sent on it.
    pub(super) current: bool,
    /// Why it cannot be used; empty if it can.
    pub(super) rejected: String,
    pub(super) revoked: bool,
    /// `None` where the configuration names the paths.
    pub(super) watched: Option<&'a WatchedPath>,
}

/// All sessions, ordered by AS and number.
pub(super) fn all(status: &Status) -> Vec<Session<'_>> {
    let mut sessions: Vec<Session<'_>> = status
        .remotes
        .iter()
        .map(|remote| session(remote, status.control.as_ref()))
        .collect();
    sessions.sort_by_key(|session| {
        (
            session.remote.isd_as.parse::<IsdAs>().ok(),
            session.remote.session,
        )
    });
    sessions
}

fn session<'a>(remote: &'a Remote, control: Option<&'a Control>) -> Session<'a> {
    let found = control.and_then(|control| {
        control
            .ases
            .iter()
            .find(|found| found.isd_as == remote.isd_as)
    });
    Session {
        remote,
        found,
        gateway: found.and_then(|found| {
            let mut gateways = found.gateways.iter();
            gateways.find(|gateway| gateway.addresses.data == remote.gateway)
        }),
        policy: control.and_then(|control| {
            let mut policies = control.policies.iter();
            policies.find(|policy| policy.isd_as == remote.isd_as && policy.id == remote.policy_id)
        }),
    }
}

impl<'a> Session<'a> {
    /// Whether its gateway answers; where nobody asks it, whether there is a way to it.
    pub(super) fn is_healthy(&self) -> bool {
        match &self.remote.probing {
            Some(probing) => probing.healthy,
            None => self.remote.paths.iter().any(|path| path.problem.is_none()),
        }
    }

    /// Its paths: those in use, those that could be, those that do not answer, those that its policy excludes.
    pub(super) fn paths(&self) -> Vec<SessionPath<'a>> {
        let Some(found) = self.found else {
            return self.configured_paths();
        };
        let number = self.remote.session;
        let mut paths: Vec<(u8, SessionPath<'a>)> = found
            .paths
            .iter()
            .map(|path| {
                let (order, rejected) = if path.rejected_by.contains(&number) {
                    (3, "rejected by path policy")
                } else if !path.alive {
                    (2, "dead (probes are not passing through)")
                } else {
                    (u8::from(path.revoked), "")
                };
                let path = SessionPath {
                    text: path.text.clone(),
                    current: rejected.is_empty() && path.used_by.contains(&number),
                    rejected: rejected.to_owned(),
                    revoked: path.revoked,
                    watched: Some(path),
                };
                (order, path)
            })
            .collect();
        paths.sort_by_key(|(order, path)| (*order, !path.current));
        paths.into_iter().map(|(_, path)| path).collect()
    }

    fn configured_paths(&self) -> Vec<SessionPath<'a>> {
        let path = |path: &sig_core::status::Path| SessionPath {
            text: format!(
                "Path \"{}\" MTU: {} NextHop: {}",
                path.name, path.mtu, path.next_hop
            ),
            current: path.problem.is_none(),
            rejected: path.problem.clone().unwrap_or_default(),
            revoked: false,
            watched: None,
        };
        self.remote.paths.iter().map(path).collect()
    }
}
