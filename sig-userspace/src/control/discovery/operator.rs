//! What operators see of the running gateway, and change in it.

use std::sync::{Arc, MutexGuard, PoisonError};

use super::{Policies, Shared, tasks::Input};
use crate::control::{
    config::Control,
    host::ControlReport,
    remotes::{Now, Snapshot},
};
use sig_core::{
    policy::routing,
    problem::{Errors, Problem},
    status,
};
use sig_rpc::daemon;

/// For looking at the gateway and changing what it does, from any task.
#[derive(Clone)]
pub(crate) struct Handle(pub(super) Arc<Shared>);

impl Handle {
    /// The control plane's part of the status.
    #[must_use]
    pub(crate) fn report(&self) -> ControlReport {
        let shared = &*self.0;
        let Snapshot {
            ases,
            policies,
            sites,
            contested,
            refused,
            probing,
        } = shared.remotes().snapshot(Now::read());
        ControlReport {
            control: status::Control {
                daemon: daemon(shared.daemon.state()),
                ctrl_addr: shared.control.ctrl_addr.to_string(),
                probe_addr: shared.control.probe_addr.to_string(),
                endhost_port: shared.endhost.into(),
                identity: shared.identity.public().to_string(),
                advertised: shared.prefixes.told(),
                routing_policy: shared.prefixes.policy().to_string(),
                ases,
                policies,
                sites,
                contested,
                sockets: shared.local.counters.read(),
                refused,
            },
            probing,
        }
    }

    /// Reads the policy files that `control` names again and puts them into force; what they have in common
    /// with those in force is not touched. Tells what has changed, one line each, and what deserves a look.
    ///
    /// # Errors
    /// All problems of the files; nothing changes then.
    pub(crate) fn reload(&self, control: &Control) -> Result<(Vec<String>, Vec<Problem>), Errors> {
        let _changing = self.changing();
        let (policies, warnings) = Policies::load(control, &self.0.config.gateway)?;
        let changes = policies.changes(&self.0.policies.load());
        self.put_into_force(policies);
        Ok((changes, warnings))
    }

    /// Whether remote gateways are told that there are no prefixes here.
    pub(crate) fn set_draining(&self, draining: bool) {
        self.0.prefixes.set_draining(draining);
    }

    /// Puts another IP routing policy into force, until the next reload.
    ///
    /// # Errors
    /// What is wrong with the text; the old policy stays.
    pub(crate) fn set_routing_policy(&self, text: &str) -> Result<(), Errors> {
        let routing = routing::check(text, "the policy")?;
        let _changing = self.changing();
        let traffic = self.0.policies.load().traffic.clone();
        self.put_into_force(Policies { traffic, routing });
        Ok(())
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        let changing = self.0.changing.lock();
        changing.unwrap_or_else(PoisonError::into_inner)
    }

    fn put_into_force(&self, policies: Policies) {
        let shared = &*self.0;
        shared.prefixes.set_policy(policies.routing.clone());
        shared
            .remotes()
            .set_policies(Now::read(), &policies.traffic, policies.routing.clone());
        shared.policies.store(Arc::new(policies));
        // A full queue wakes the core as well.
        let _ = shared.wake.try_send(Input::Changed);
    }
}

fn daemon(state: daemon::State) -> status::Daemon {
    let daemon::State {
        address,
        reachable,
        problem,
        requests,
        failures,
        paths_skipped,
    } = state;
    status::Daemon {
        address,
        reachable,
        problem,
        requests,
        failures,
        paths_skipped,
    }
}
