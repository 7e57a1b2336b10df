//! Interfaces on which XDP does not see what it must see: ports of aggregates, trunks whose VLAN tags are hidden.

use std::fmt;

use sig_common::wire::ethernet::TPID_8021Q;

use super::ethtool::Ethtool;
use super::link::Link;

/// Why an interface does not suit a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsuited {
    /// What is wrong, as the rest of a sentence that starts with the interface.
    pub text: String,
    /// What to do.
    pub remedy: String,
}

impl fmt::Display for Unsuited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.text, self.remedy)
    }
}

/// Whether an XDP program finds the VLAN tags of an interface in the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VlanTags {
    /// It does.
    #[default]
    Seen,
    /// The card takes them out first (`rxvlan`).
    TakenOut,
    /// The kernel takes them out before the packets reach a device that is made of others.
    Above,
    /// The other end of a veth pair leaves them beside the packet (`txvlan`), where no XDP program sees them.
    LeftOut,
    /// As [`Self::LeftOut`] or not: the other end is in another network namespace.
    Unknown,
}

impl VlanTags {
    /// Asks the driver of an interface; `all` are the interfaces of its network namespace.
    pub fn of(ethtool: &Ethtool, link: &Link, all: &[Link]) -> Self {
        let offloads = |name: &str| ethtool.vlan_offloads(name).unwrap_or_default();
        if matches!(
            link.kind.as_deref(),
            Some("bridge" | "bond" | "team" | "macvlan" | "vlan")
        ) {
            return Self::Above;
        }
        if link.driver.as_deref() != Some("veth") {
            return if offloads(&link.name).rx {
                Self::TakenOut
            } else {
                Self::Seen
            };
        }
        // A veth end hands over packets as the other end sent them, whatever its own setting.
        let peer = all
            .iter()
            .find(|other| Some(other.ifindex) == link.peer_ifindex && !link.peer_elsewhere);
        match peer {
            Some(peer) if offloads(&peer.name).tx => Self::LeftOut,
            Some(_) => Self::Seen,
            None => Self::Unknown,
        }
    }
}

/// Whether an interface is a bond or team: native XDP programs run on its ports, with the ports' queues, so that no packet reaches
/// an AF_XDP socket of the whole. Generic mode is for the whole.
pub fn is_aggregate(link: &Link) -> bool {
    matches!(link.kind.as_deref(), Some("bond" | "team"))
}

/// Refuses bonds and teams where native mode is asked for; and their ports, whose packets are those of the whole.
///
/// # Errors
/// Why the interface cannot be used.
pub fn check_aggregate(link: &Link, all: &[Link], is_native: bool) -> Result<(), Unsuited> {
    if is_aggregate(link) && is_native {
        return Err(Unsuited {
            text: format!(
                "is a {}: native XDP programs run on its ports, so AF_XDP sockets receive nothing",
                link.kind.as_deref().unwrap_or_default()
            ),
            remedy: "leave `mode` in [dataplane] at \"auto\", which takes generic mode for it"
                .into(),
        });
    }
    let controller = all
        .iter()
        .find(|other| Some(other.ifindex) == link.controller);
    match controller {
        Some(controller) if is_aggregate(controller) => Err(Unsuited {
            text: format!(
                "is a port of {}, which receives its packets",
                controller.name
            ),
            remedy: format!(
                "use {}, or take the interface out of it (`ip link set dev {} nomaster`)",
                controller.name, link.name
            ),
        }),
        _ => Ok(()),
    }
}

/// Refuses trunks whose VLAN tags are hidden from XDP: tagged packets would be treated as untagged.
///
/// # Errors
/// Why the interface cannot be used; for [`VlanTags::Unknown`] it perhaps can.
pub fn check_vlans(link: &Link, all: &[Link], tags: VlanTags) -> Result<(), Unsuited> {
    let Some(user) = vlan_user(link, all) else {
        return Ok(());
    };
    let name = &link.name;
    let (how, remedy) = match tags {
        VlanTags::Seen => return Ok(()),
        VlanTags::TakenOut => (
            "the NIC strips the tags before XDP sees them (`rxvlan`)",
            format!("`ethtool -K {name} rxvlan off`, also at boot"),
        ),
        VlanTags::Above => (
            "the kernel strips the tags before XDP sees them",
            format!("use an interface below {name}, or one without VLANs on it"),
        ),
        VlanTags::LeftOut => (
            "the other end of the pair offloads the tags (`txvlan`)",
            "`ethtool -K PEER txvlan off` for the other end of the pair".into(),
        ),
        VlanTags::Unknown => (
            "the other end of the pair, in another network namespace, may offload the tags (`txvlan`)",
            "make sure at the other end: `ethtool -K PEER txvlan off`".into(),
        ),
    };
    Err(Unsuited {
        text: format!(
            "carries VLANs ({user}), but {how}: tagged packets would be treated as untagged"
        ),
        remedy,
    })
}

/// The interface below a VLAN device, if programs and sockets on it can do, in native mode, what those on the VLAN device could only do
/// in generic mode; or why not, as a sentence. `None`: it is no VLAN device.
///
/// `max_mtu` is the largest MTU that works. `tags` tells whether XDP sees VLAN tags on an interface, `native` whether its driver has
/// native mode, if that is known.
pub fn trunk<'a>(
    link: &Link,
    all: &'a [Link],
    max_mtu: u32,
    tags: impl Fn(&Link) -> VlanTags,
    native: impl Fn(&Link) -> Option<bool>,
) -> Option<Result<&'a Link, String>> {
    let tag = link.vlan?;
    let below = all
        .iter()
        .find(|below| Some(below.ifindex) == link.peer_ifindex && !link.peer_elsewhere);
    let Some(below) = below else {
        return Some(Err("its parent is in another network namespace".into()));
    };
    let name = &below.name;
    let why = match (below.kind.as_deref(), tags(below)) {
        _ if tag.tpid != TPID_8021Q => format!("it has 802.1ad tags on {name}, not 802.1Q"),
        (Some(kind), _) if kind != "veth" => format!("its parent {name} is a {kind}"),
        (_, VlanTags::Above | VlanTags::LeftOut | VlanTags::Unknown) => format!(
            "XDP on its parent {name} may not see the tags: the other end of the pair may offload them (`txvlan`)"
        ),
        _ if below.mac.is_none() => format!("its parent {name} is not Ethernet"),
        _ if below.xdp_program.is_some() => {
            format!("its parent {name} has an XDP program already")
        }
        _ if below.mtu > max_mtu => format!(
            "the MTU of its parent {name}, {}, exceeds {max_mtu}, the most that packet buffers hold",
            below.mtu
        ),
        _ if check_aggregate(below, all, false).is_err() => {
            format!("its parent {name} is a port of another interface")
        }
        _ if native(below) == Some(false) => {
            format!("the driver of its parent {name} does not support native XDP")
        }
        (_, VlanTags::Seen | VlanTags::TakenOut) => return Some(Ok(below)),
    };
    Some(Err(why))
}

/// Who uses VLANs of the interface.
fn vlan_user(link: &Link, all: &[Link]) -> Option<String> {
    let device = all.iter().find(|other| {
        other.vlan.is_some() && other.peer_ifindex == Some(link.ifindex) && !other.peer_elsewhere
    });
    if let Some(device) = device {
        return Some(device.name.clone());
    }
    let bridge = all
        .iter()
        .find(|other| Some(other.ifindex) == link.controller && other.vlan_filtering)?;
    Some(format!("bridge {}", bridge.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sig_common::wire::ethernet::Tag;

    fn link(name: &str, ifindex: u32) -> Link {
        Link {
            name: name.into(),
            ifindex,
            mac: Some([2, 0, 0, 0, 0, 1]),
            ..Link::default()
        }
    }

    fn kind(kind: &str, link: Link) -> Link {
        let kind = Some(kind.into());
        Link { kind, ..link }
    }

    fn port_of(controller: u32, link: Link) -> Link {
        let controller = Some(controller);
        Link { controller, ..link }
    }

    #[test]
    fn a_bond_or_team_cannot_have_native_mode_and_its_ports_are_refused() {
        for of in ["bond", "team"] {
            let bond = kind(of, link("agg0", 7));
            let all = [port_of(7, link("eth0", 1)), bond.clone(), link("eth1", 2)];
            let refused = check_aggregate(&bond, &all, true).unwrap_err();
            assert!(refused.remedy.contains("\"auto\""), "{refused}");
            assert_eq!(check_aggregate(&bond, &all, false), Ok(()));
            for is_native in [false, true] {
                let refused = check_aggregate(&all[0], &all, is_native).unwrap_err();
                assert!(refused.text.contains("port of agg0"), "{refused}");
                assert_eq!(check_aggregate(&all[2], &all, is_native), Ok(()));
            }
        }
        let bridge = [kind("bridge", link("br0", 7)), port_of(7, link("eth0", 1))];
        for link in &bridge {
            assert_eq!(check_aggregate(link, &bridge, true), Ok(()));
        }
    }

    #[test]
    fn hidden_vlan_tags_are_refused_where_vlans_are_used() {
        let trunk = link("eth0", 1);
        let vlan = Link {
            vlan: Some(Tag {
                tpid: TPID_8021Q,
                tci: 200,
            }),
            peer_ifindex: Some(1),
            ..kind("vlan", link("eth0.200", 9))
        };
        let all = [trunk.clone(), vlan, link("eth1", 2)];
        let refused = check_vlans(&trunk, &all, VlanTags::TakenOut).unwrap_err();
        assert!(refused.text.contains("eth0.200"), "{refused}");
        assert_eq!(refused.remedy, "`ethtool -K eth0 rxvlan off`, also at boot");
        for (tags, remedy) in [
            (VlanTags::Above, "one without VLANs"),
            (VlanTags::LeftOut, "txvlan off"),
            (VlanTags::Unknown, "make sure at the other end"),
        ] {
            let refused = check_vlans(&trunk, &all, tags).unwrap_err();
            assert!(refused.remedy.contains(remedy), "{refused}");
        }
        assert_eq!(check_vlans(&trunk, &all, VlanTags::Seen), Ok(()));
        assert_eq!(check_vlans(&all[2], &all, VlanTags::TakenOut), Ok(()));
    }

    #[test]
    fn programs_go_on_the_interface_below_a_vlan_device_where_that_is_possible() {
        let card = link("eth0", 1);
        let vlan = Link {
            vlan: Some(Tag {
                tpid: TPID_8021Q,
                tci: 200,
            }),
            peer_ifindex: Some(1),
            ..kind("vlan", link("eth0.200", 9))
        };
        let look = |vlan: &Link, card: &Link, tags, native| {
            let all = [card.clone(), vlan.clone(), kind("bond", link("agg0", 7))];
            let found = trunk(vlan, &all, 9216, |_| tags, |_| native);
            found.map(|found| found.map(|trunk| trunk.name.clone()))
        };
        for tags in [VlanTags::Seen, VlanTags::TakenOut] {
            for native in [None, Some(true)] {
                let found = look(&vlan, &card, tags, native);
                assert_eq!(found, Some(Ok("eth0".into())));
            }
        }
        let veth = kind("veth", card.clone());
        assert!(look(&vlan, &veth, VlanTags::Seen, None).is_some_and(|found| found.is_ok()));
        assert_eq!(look(&card, &card, VlanTags::Seen, None), None);

        let refused = |vlan: &Link, card: &Link, tags, native, word| {
            let why = look(vlan, card, tags, native).map(Result::unwrap_err);
            assert!(
                why.as_ref().is_some_and(|why| why.contains(word)),
                "{why:?}"
            );
        };
        let seen = VlanTags::Seen;
        for (tags, card) in [
            (VlanTags::Unknown, &veth),
            (VlanTags::LeftOut, &veth),
            (VlanTags::Above, &card),
        ] {
            refused(&vlan, card, tags, None, "txvlan");
        }
        refused(&vlan, &card, seen, Some(false), "native XDP");
        refused(
            &vlan,
            &kind("bond", card.clone()),
            seen,
            None,
            "parent eth0 is a bond",
        );
        refused(&vlan, &port_of(7, card.clone()), seen, None, "is a port of");
        let mut other = card.clone();
        other.mtu = 9217;
        refused(&vlan, &other, seen, None, "MTU");
        other = card.clone();
        other.xdp_program = Some(5);
        refused(&vlan, &other, seen, None, "an XDP program");
        other = vlan.clone();
        other.peer_elsewhere = true;
        refused(&other, &card, seen, None, "another network namespace");
        other = vlan;
        other.vlan = Some(Tag {
            tpid: 0x88a8,
            tci: 200,
        });
        refused(&other, &card, seen, None, "802.1ad");
    }

    #[test]
    fn a_port_of_a_bridge_that_tells_vlans_apart_carries_vlans() {
        for (vlan_filtering, is_fine) in [(true, false), (false, true)] {
            let bridge = Link {
                vlan_filtering,
                ..kind("bridge", link("br0", 7))
            };
            let all = [port_of(7, link("eth0", 1)), bridge];
            let checked = check_vlans(&all[0], &all, VlanTags::TakenOut);
            assert_eq!(checked.is_ok(), is_fine, "{checked:?}");
        }
    }
}
