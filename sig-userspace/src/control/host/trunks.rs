//! Trunks: interfaces below VLAN devices, on which programs and sockets serve the VLAN devices in native mode.

use std::collections::{HashMap, HashSet};

use sig_common::maps::TrunkPort;
use sig_common::wire::ethernet::Tag;
use sig_core::port::Role;
use sig_linux::{
    bpf::{self, Attachment, Program, Programs},
    ethtool::{Ethtool, TagsKept},
    link::Link,
    netdev::xdp_features,
    suited::{self, VlanTags},
};

use super::Error;
use crate::control::{config::XdpMode, rules::Rules};

/// By index, interfaces whose drivers did not take the program, and why.
pub(super) type RefusedTrunks = HashMap<u32, String>;

/// The trunks of a gateway.
pub(super) struct Trunks {
    mode: XdpMode,
    /// Names of interfaces of an SR node: its program finds their packets on VLAN devices only.
    of_chains: HashSet<String>,
    refused: RefusedTrunks,
    /// Whether the programs know of VLANs.
    are_possible: bool,
    /// By index.
    in_use: HashMap<u32, InUse>,
}

/// A trunk in use, or about to be.
struct InUse {
    /// Goes before the tags do.
    attachment: Option<Attachment>,
    _kept: Option<TagsKept>,
    /// Indexes of the interfaces that are served on it, or would be if something else did not stand in the way.
    users: HashSet<u32>,
}

/// Where an interface is served, if not on itself as if there were no VLANs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trunk {
    pub(super) link: Link,
    /// `None`: frames in no VLAN.
    pub(super) tag: Option<Tag>,
}

impl Trunk {
    /// Lets frames for a port to its program, or leaves them to the kernel.
    pub(super) fn serve(
        &self,
        programs: &mut Programs,
        (role, ifindex): (Role, u32),
        on: bool,
    ) -> Result<(), sig_linux::Error> {
        let program = match role {
            Role::Underlay => TrunkPort::UNDERLAY,
            Role::Lan | Role::Tunnel => TrunkPort::LAN,
        };
        let vlan = self.tag.map_or(0, Tag::id);
        let port = TrunkPort { ifindex, program };
        programs.set_vlan(self.link.ifindex, vlan, on.then_some(port))
    }
}

fn of_chains(rules: &Rules) -> HashSet<String> {
    let nodes = rules.srv6.iter().map(|srv6| &srv6.node);
    let names = nodes.flat_map(|node| node.trusted.iter().chain(&node.untrusted));
    names.cloned().collect()
}

impl Trunks {
    pub(super) fn new(mode: XdpMode, rules: &Rules, refused: RefusedTrunks) -> Self {
        Trunks {
            mode,
            of_chains: of_chains(rules),
            refused,
            are_possible: true,
            in_use: HashMap::new(),
        }
    }

    /// Takes note of whether the programs that were loaded know of VLANs.
    pub(super) fn set_possible(&mut self, are_possible: bool) {
        self.are_possible = are_possible;
    }

    /// Takes note of rules that come into force.
    pub(super) fn set_rules(&mut self, rules: &Rules) {
        self.of_chains = of_chains(rules);
    }

    /// Interfaces whose drivers did not take the program.
    pub(super) fn refused(&self) -> &RefusedTrunks {
        &self.refused
    }

    /// Finds out where an interface is to be served, if not on itself, and has the trunk leave tags in its packets until
    /// [`Self::keep_for`] finds it without users. `wanted` are the interfaces of the gateway, `all` those of this host, `max_mtu` is the
    /// largest MTU that packet buffers are for.
    ///
    /// # Errors
    ///
    /// Why a VLAN device can be served in generic mode only.
    pub(super) fn find(
        &mut self,
        link: &Link,
        wanted: &[&Link],
        all: &[Link],
        max_mtu: u32,
    ) -> Result<Option<Trunk>, String> {
        if self.mode == XdpMode::Generic {
            return Ok(None);
        }
        self.leave(link.ifindex);
        let ethtool =
            Ethtool::open().map_err(|error| format!("open an ethtool socket: {error}"))?;
        // The gateway's own program does not count.
        let mut all = all.to_vec();
        for trunk in &mut all {
            let own = self.in_use.get(&trunk.ifindex);
            trunk
                .xdp_program
                .take_if(|_| own.is_some_and(|own| own.attachment.is_some()));
        }
        let below = |vlan: &Link| self.below(vlan, &all, max_mtu, &ethtool);
        let trunk = match below(link) {
            Some(below) => Trunk {
                link: below?.clone(),
                tag: link.vlan,
            },
            // It has frames in no VLAN for itself.
            None if self.refused.contains_key(&link.ifindex) => return Ok(None),
            None => {
                let carries = |vlan: &&Link| {
                    let below = below(vlan).and_then(Result::ok);
                    below.is_some_and(|below| below.ifindex == link.ifindex)
                };
                if !self.in_use.contains_key(&link.ifindex) && !wanted.iter().any(carries) {
                    return Ok(None);
                }
                Trunk {
                    link: link.clone(),
                    tag: None,
                }
            }
        };
        let tags = VlanTags::of(&ethtool, &trunk.link, &all);
        self.prepare(&trunk.link, tags, link.ifindex)?;
        Ok(Some(trunk))
    }

    /// The interface below a VLAN device, if that can be served there, or why not; `None`: it is none.
    fn below<'a>(
        &self,
        vlan: &Link,
        all: &'a [Link],
        max_mtu: u32,
        ethtool: &Ethtool,
    ) -> Option<Result<&'a Link, String>> {
        let tags = |link: &Link| VlanTags::of(ethtool, link, all);
        let native = |link: &Link| {
            let features = xdp_features(link.ifindex).ok().flatten();
            features.map(|features| features.native() && features.redirect())
        };
        let below = suited::trunk(vlan, all, max_mtu, tags, native)?;
        Some(below.and_then(|below| {
            let mut of_chains = [vlan, below].into_iter();
            if let Some(link) = of_chains.find(|link| self.of_chains.contains(&link.name)) {
                return Err(format!("the SR node of the rules runs on {}", link.name));
            }
            if !self.are_possible {
                return Err(
                    "the BPF programs were loaded without VLAN support: restart the gateway".into(),
                );
            }
            match self.refused.get(&below.ifindex) {
                Some(why) => Err(why.clone()),
                None => Ok(below),
            }
        }))
    }

    /// Has a trunk leave tags in the packets for this user.
    fn prepare(&mut self, trunk: &Link, tags: VlanTags, user: u32) -> Result<(), String> {
        if let Some(in_use) = self.in_use.get_mut(&trunk.ifindex) {
            in_use.users.insert(user);
            return Ok(());
        }
        let name = &trunk.name;
        let mut kept = None;
        if tags == VlanTags::TakenOut {
            kept = Some(TagsKept::on(trunk.ifindex).map_err(|error| {
                format!(
                    "its parent {name} takes the tags out before XDP sees them, and `ethtool -K {name} rxvlan off` fails: \
                     {error}"
                )
            })?);
            tracing::info!(
                interface = name,
                "the card leaves VLAN tags in received packets (`rxvlan` is off) while VLAN devices are served on it"
            );
        }
        let in_use = InUse {
            attachment: None,
            _kept: kept,
            users: HashSet::from([user]),
        };
        self.in_use.insert(trunk.ifindex, in_use);
        Ok(())
    }

    /// Lets the packets of a port to its program, which is attached to the trunk if it is the first one there.
    ///
    /// # Errors
    ///
    /// The driver does not take the program, as [`Self::refused`] tells from then on; or there are too many VLANs.
    pub(super) fn join(
        &mut self,
        programs: &mut Programs,
        trunk: &Trunk,
        (role, ifindex): (Role, u32),
    ) -> Result<(), Error> {
        let Some(in_use) = self.in_use.get_mut(&trunk.link.ifindex) else {
            return Err(Error::Interface(format!(
                "interface {} is not prepared for VLANs",
                trunk.link.name
            )));
        };
        if in_use.attachment.is_none() {
            let native = Some(bpf::XdpMode::Native);
            match programs.attach_xdp(Program::Trunk, trunk.link.ifindex, native) {
                Ok(attachment) => in_use.attachment = Some(attachment),
                Err(error) => {
                    // Nothing is served there, so that the tags are as they were.
                    self.in_use.remove(&trunk.link.ifindex);
                    // Where nothing else will do, it is tried again: the cause may be gone.
                    if self.mode != XdpMode::Native {
                        self.refused.insert(trunk.link.ifindex, error.to_string());
                    }
                    return Err(error.into());
                }
            }
        }
        trunk.serve(programs, (role, ifindex), true)?;
        Ok(())
    }

    /// An interface is served without a trunk, whatever [`Self::find`] said.
    pub(super) fn leave(&mut self, ifindex: u32) {
        for in_use in self.in_use.values_mut() {
            in_use.users.remove(&ifindex);
        }
    }

    /// Forgets interfaces that are gone: others may get their indexes.
    pub(super) fn forget(&mut self, gone: &HashSet<u32>) {
        self.in_use.retain(|ifindex, _| !gone.contains(ifindex));
        self.refused.retain(|ifindex, _| !gone.contains(ifindex));
    }

    /// Takes program and setting off trunks that none of these interfaces uses. Frames of the others are left to the kernel by then.
    ///
    /// An interface that is tried again and again is to be among them: some cards reset the link with each such change.
    pub(super) fn keep_for(&mut self, interfaces: &HashSet<u32>) {
        self.in_use.retain(|_, in_use| {
            in_use.users.retain(|user| interfaces.contains(user));
            !in_use.users.is_empty()
        });
    }

    /// The same for all of them.
    pub(super) fn end(&mut self) {
        self.in_use.clear();
    }

    /// Says that a VLAN device gets generic mode, if it may.
    ///
    /// # Errors
    ///
    /// Native mode is wanted.
    pub(super) fn tell_generic(&self, vlan: &Link, why: &str, told: bool) -> Result<(), Error> {
        if self.mode == XdpMode::Native {
            return Err(Error::Interface(format!(
                "interface {} cannot have native mode: {why}; leave `mode` in [dataplane] at \"auto\"",
                vlan.name
            )));
        }
        if told {
            tracing::warn!(
                interface = vlan.name,
                "the VLAN device is served in the slower generic mode: {why}"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trunk_is_kept_as_long_as_an_interface_uses_it_or_would() {
        let mut trunks = Trunks::new(XdpMode::Auto, &Rules::default(), RefusedTrunks::new());
        let eth0 = Link {
            name: "eth0".into(),
            ifindex: 1,
            ..Link::default()
        };
        for vlan in [10, 20] {
            trunks
                .prepare(&eth0, VlanTags::Seen, vlan)
                .expect("no ethtool");
        }
        trunks.keep_for(&HashSet::from([20, 30]));
        assert_eq!(trunks.in_use[&1].users, HashSet::from([20]));
        trunks.keep_for(&HashSet::from([10, 30]));
        assert!(trunks.in_use.is_empty());
    }

    #[test]
    fn an_interface_whose_driver_refused_is_served_without_a_trunk() {
        let eth0 = Link {
            name: "eth0".into(),
            ifindex: 1,
            ..Link::default()
        };
        let refused = RefusedTrunks::from([(1, "no".to_owned())]);
        let mut trunks = Trunks::new(XdpMode::Auto, &Rules::default(), refused);
        trunks
            .prepare(&eth0, VlanTags::Seen, 20)
            .expect("no ethtool");
        let all = [eth0.clone()];
        assert_eq!(trunks.find(&eth0, &[&eth0], &all, 3506), Ok(None));
        trunks.forget(&HashSet::from([1]));
        assert!(trunks.refused.is_empty() && trunks.in_use.is_empty());
    }
}
