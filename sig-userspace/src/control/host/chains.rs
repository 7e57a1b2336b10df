//! The gateway's rules in force, and the SR node that their chains are made of.

use std::{sync::Arc, time::Duration};

use ipnet::IpNet;
use sig_core::{dataplane::filter::Chain, port::Role, status, task::Task};
use tokio::sync::watch;

use super::{Error, HostHandle, Shared, lock};
use crate::{
    control::{
        config::Config,
        rules::{Action, Counts, Links, Rule, Rules, filter},
    },
    srv6::{Beside, SrNode},
};

/// What is in force.
pub(super) struct Chains {
    rules: Rules,
    counts: Counts,
    node: Option<Node>,
    /// Whether everything took effect.
    is_complete: bool,
    fail: watch::Sender<Option<String>>,
}

/// A running node. It ends with this.
struct Node {
    node: Arc<SrNode>,
    _follows: Task,
}

impl Chains {
    /// No rules. `counts`: of those that workers follow already; `fail` takes why the gateway cannot go on.
    pub(super) fn new(counts: Counts, fail: watch::Sender<Option<String>>) -> Self {
        Chains {
            rules: Rules::default(),
            counts,
            node: None,
            is_complete: true,
            fail,
        }
    }

    /// Prefixes of SIDs behind the gateway.
    pub(super) fn locators(&self) -> Vec<IpNet> {
        let srv6 = self.rules.srv6.iter();
        let locators = srv6.flat_map(|srv6| &srv6.node.locators);
        locators.map(|net| (*net).into()).collect()
    }

    /// Ends the node.
    pub(super) fn end(&mut self) {
        self.node = None;
    }

    /// What each rule held for.
    pub(super) fn rules(&self) -> Vec<status::Rule> {
        let missing =
            |rule: &Rule| !self.is_complete && matches!(rule.action, Action::Chain { .. });
        let rules = self.rules.rules.iter().map(|rule| {
            let [to, from] = self.counts.of(&rule.name);
            status::Rule {
                name: rule.name.clone(),
                class: rule.condition.to_string(),
                action: rule.action.name().to_owned(),
                target: match missing(rule) {
                    true => Some("nowhere, dropped: see the log".to_owned()),
                    false => target(&rule.action),
                },
                packets_to_remotes: to.0,
                packet_bytes_to_remotes: to.1,
                packets_from_remotes: from.0,
                packet_bytes_from_remotes: from.1,
            }
        });
        rules.collect()
    }

    /// The rules.
    pub(super) const fn in_force(&self) -> &Rules {
        &self.rules
    }

    /// What the node does.
    pub(super) fn node(&self) -> Option<status::srv6::Status> {
        self.node.as_ref().map(|node| node.node.status())
    }
}

fn target(action: &Action) -> Option<String> {
    match action {
        Action::Accept | Action::Drop | Action::Count => None,
        Action::Mirror(device) => Some(device.clone()),
        Action::Chain { egress, ingress } => {
            let name = |name: &Option<String>| name.clone().unwrap_or_else(|| "-".to_owned());
            Some(format!("{} / {}", name(egress), name(ingress)))
        }
    }
}

impl HostHandle {
    /// Puts these rules into force. Tells what has changed, one line each.
    ///
    /// # Errors
    ///
    /// If the SR node cannot be started, or its programs do not take everything. Packets for chains that are not there are dropped.
    pub(crate) async fn set_rules(&self, rules: Rules) -> Result<Vec<String>, Error> {
        let shared = &*self.shared;
        let _setting = shared.setting_rules.lock().await;
        let (changes, is_complete) = {
            let chains = lock(&shared.chains);
            (rules.changes(&chains.rules), chains.is_complete)
        };
        if changes.is_empty() && is_complete {
            return Ok(changes);
        }
        let mut underlay = shared
            .ports
            .iter()
            .filter(|port| port.role == Role::Underlay);
        let named =
            underlay.find_map(|port| Some((&port.interface, rules.user_of(&port.interface)?)));
        if let Some((interface, user)) = named {
            return Err(Error::Interface(format!(
                "{user} of the rules names {interface}, the underlay interface; write another one"
            )));
        }
        // What goes stays until no worker sends packets there any more.
        let before = lock(&shared.chains).rules.srv6.clone();
        let both = Rules {
            srv6: match (&rules.srv6, before) {
                (Some(new), Some(old)) => Some(new.with(&old)),
                (new, old) => new.clone().or(old),
            },
            ..rules.clone()
        };
        let outcome = shared.follow(&both).await;
        shared.take_over(rules.clone());
        let outcome = match both == rules {
            true => outcome,
            false => outcome.and(shared.follow(&rules).await),
        };
        let outcome = outcome.and(self.protect_locators().await);
        lock(&shared.chains).is_complete = outcome.is_ok();
        outcome.map(|()| changes)
    }

    /// Tries again what did not take effect.
    pub(super) async fn complete_rules(self) {
        loop {
            tokio::time::sleep(RETRY).await;
            let rules = {
                let chains = lock(&self.shared.chains);
                match chains.is_complete {
                    true => continue,
                    false => chains.rules.clone(),
                }
            };
            if let Err(error) = self.set_rules(rules).await {
                tracing::warn!(
                    "rules are not in force in full, and what has to pass a chain is dropped; retrying: {error}"
                );
            }
        }
    }
}

/// Between attempts to put rules into force.
const RETRY: Duration = Duration::from_secs(5);

/// What the rules name, by the numbers of the node.
fn links_of(rules: &Rules, node: &SrNode, mtu: u32) -> Links {
    let policies = rules.srv6.iter().flat_map(|srv6| &srv6.policies);
    Links {
        policies: policies
            .map(|policy| {
                let (number, room) = node.chain(&policy.name);
                let chain = Chain {
                    policy: number,
                    room: room.min(mtu),
                    segment: room.min(mtu),
                };
                (policy.name.clone(), chain)
            })
            .collect(),
        mirrors: rules
            .mirrors()
            .into_iter()
            .map(|device| {
                let number = node.mirror(&device);
                (device, number)
            })
            .collect(),
    }
}

impl Shared {
    /// Makes the workers follow the rules.
    fn take_over(&self, rules: Rules) {
        let mut chains = lock(&self.chains);
        let chains = &mut *chains;
        let mut engine = lock(&self.engine);
        // What is longer does not pass the tunnel device, on the way to the node.
        let mtu = u32::from(engine.planner().config().tunnel.mtu);
        let links = match &chains.node {
            Some(node) if node.node.has_tunnel() => links_of(&rules, &node.node, mtu),
            _ => Links::default(),
        };
        let workers = engine.counters().len();
        let filter = filter(&rules, &links, workers, &mut chains.counts);
        engine.set_filter(Arc::new(filter));
        chains.rules = rules;
    }

    /// Starts the node, or makes it follow the rules. It ends when they need none.
    async fn follow(&self, rules: &Rules) -> Result<(), Error> {
        lock(&self.trunks).set_rules(rules);
        let srv6 = rules.srv6.clone().unwrap_or_default();
        let beside = Beside {
            mirrors: rules.mirrors(),
            ..lock(&self.beside).clone()
        };
        if rules.srv6.is_none() && beside.mirrors.is_empty() {
            if let Some(programs) = lock(&self.programs).as_mut() {
                programs.set_next(None)?;
            }
            lock(&self.chains).node = None;
            return Ok(());
        }
        if self.choice.has_tun {
            return Err(Error::Interface(
                "chains and mirrors need XDP programs, and with them `[tunnel] device = \"veth\"`"
                    .into(),
            ));
        }
        let mut names = srv6.node.trusted.iter().chain(&srv6.node.untrusted);
        let lans = self.lans.view().ports;
        let ports = self.ports.iter().chain(&lans);
        let on_trunk = ports.filter(|port| port.is_in_vlan());
        let on_trunk: Vec<_> = on_trunk.map(|port| &port.interface).collect();
        if let Some(name) = names.clone().find(|name| on_trunk.contains(name)) {
            return Err(Error::Interface(format!(
                "the SR node of the rules cannot run on {name} while the gateway serves this VLAN device on its parent interface: \
                 restart the gateway"
            )));
        }
        let is_on_lan = names.any(|name| beside.lan.contains(name));
        let running = lock(&self.chains).node.as_ref().map(|of| of.node.clone());
        if let Some(node) = running {
            node.reload(srv6, Some(beside)).await?;
            return self.join(&node, is_on_lan);
        }
        let id = lock(&self.engine).planner().config().gateway.id.clone();
        let (node, mut events) = SrNode::load(id, srv6, Some(beside))?;
        node.look().await?;
        self.join(&node, is_on_lan)?;
        let node = Arc::new(node);
        let running = node.clone();
        let fail = lock(&self.chains).fail.clone();
        let follows = Task::spawn("the SR node", async move {
            let Err(error) = running.run(&mut events).await;
            fail.send_replace(Some(format!("the SR node has ended: {error}")));
        });
        lock(&self.chains).node = Some(Node {
            node,
            _follows: follows,
        });
        Ok(())
    }

    /// Has the node take what the gateway's program leaves to the kernel on LAN interfaces, if it is to run there.
    fn join(&self, node: &SrNode, is_on_lan: bool) -> Result<(), Error> {
        if let Some(programs) = lock(&self.programs).as_mut() {
            node.run_behind(programs, is_on_lan)?;
        }
        match node.has_tunnel() {
            true => Ok(()),
            false => Err(Error::Interface(
                "the program of the chains does not run on the tunnel device; see `sig chain status`".into(),
            )),
        }
    }
}

/// The gateway of the node. Mirrors come with the rules.
pub(super) fn beside(config: &Config, tunnel_index: u32) -> Beside {
    Beside {
        tunnel_index,
        tunnel: config.tunnel.name.clone(),
        lan: config.dataplane.lan.clone(),
        mirrors: Default::default(),
    }
}
