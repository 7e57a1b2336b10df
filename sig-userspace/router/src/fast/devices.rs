//! Which devices have the program, and in which mode.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use sig_common::router::maps::{Sender, Tags};

use super::{
    Arrival, Port, map_tag,
    ports::{Arrivals, is_ethernet},
};
use crate::{
    AsModel,
    config::{Xdp, XdpMode},
};
use sig_linux::{
    bpf::{self, Attachment, RouterPrograms},
    ethtool::Ethtool,
    link::Link,
    netdev::xdp_features,
    suited::{self, Unsuited, VlanTags},
};

/// The devices of the network namespace that concern the router.
#[derive(Default)]
pub(super) struct Devices {
    links: Vec<Link>,
    attached: BTreeMap<u32, Device>,
    arrivals: Arrivals,
    /// Devices with VLANs on which XDP does not see the tags, and why.
    stripping: BTreeMap<u32, Unsuited>,
    /// What the maps say of devices to send through: the carrier of each, and what is particular about it.
    senders: BTreeMap<u32, (u32, Sender)>,
}

/// A device with the program.
pub(super) struct Device {
    pub(super) name: String,
    pub(super) attachment: Attachment,
}

/// What decides about devices.
pub(super) struct Wishes<'a> {
    pub(super) model: &'a AsModel,
    pub(super) xdp: &'a Xdp,
    pub(super) mode: XdpMode,
    /// The device that leads to an address.
    pub(super) way_to: &'a dyn Fn(IpAddr) -> Option<u32>,
}

impl Devices {
    /// Takes notice of the devices that there are, and makes the attached ones those that are needed.
    ///
    /// # Errors
    /// A device with an address of the router does not take the program, though a mode is demanded. The others do.
    pub(super) fn follow(
        &mut self,
        programs: &mut RouterPrograms,
        links: Vec<Link>,
        wishes: &Wishes<'_>,
    ) -> Result<(), String> {
        self.links = links;
        self.arrivals = Arrivals::of(&self.links, wishes.model, wishes.xdp, wishes.way_to);
        let wanted = self.wanted(wishes);
        self.attached
            .retain(|ifindex, _| wanted.iter().any(|link| link.ifindex == *ifindex));
        self.look_for_stripping(&wanted);
        let holders: BTreeSet<u32> = self
            .arrivals
            .all()
            .filter_map(|ifindex| Some(self.carrier(ifindex)?.0))
            .collect();
        let mode = match wishes.mode {
            XdpMode::Native => Some(bpf::XdpMode::Native),
            XdpMode::Generic => Some(bpf::XdpMode::Generic),
            XdpMode::Auto => None,
        };
        let mut failed = None;
        let mut fresh = Vec::new();
        for link in &wanted {
            if self.attached.contains_key(&link.ifindex) {
                continue;
            }
            let attached = programs
                .attach(link.ifindex, mode)
                .or_else(|error| match mode {
                    Some(_) => Err(error),
                    None => programs.attach(link.ifindex, Some(bpf::XdpMode::Generic)),
                });
            match attached {
                Ok(attachment) => {
                    fresh.push(link.ifindex);
                    let device = Device {
                        name: link.name.clone(),
                        attachment,
                    };
                    self.attached.insert(link.ifindex, device);
                }
                Err(error) if holders.contains(&link.ifindex) && wishes.mode != XdpMode::Auto => {
                    failed.get_or_insert_with(|| error.to_string());
                }
                Err(error) => no_fast_path(&link.name, &error),
            }
        }
        // A native program sends only through devices that can do that, a generic one through any. Some drivers can once they
        // have a program, so that this is known only now.
        let mut wanted = wanted.iter().filter(|link| holders.contains(&link.ifindex));
        if wishes.mode == XdpMode::Auto && !wanted.all(|link| transmits(link.ifindex).is_some()) {
            for ifindex in &fresh {
                self.attach_generic(programs, *ifindex);
            }
        }
        for device in fresh
            .iter()
            .filter_map(|ifindex| self.attached.get(ifindex))
        {
            let mode = device.attachment.mode();
            tracing::info!(device = device.name, %mode, "fast path attached");
        }
        self.look(programs);
        failed.map_or(Ok(()), Err)
    }

    /// Has a device run the program in generic mode instead of native.
    fn attach_generic(&mut self, programs: &mut RouterPrograms, ifindex: u32) {
        let Some(Device { name, attachment }) = self.attached.remove(&ifindex) else {
            return;
        };
        // It leaves the device before it comes back.
        drop(attachment);
        match programs.attach(ifindex, Some(bpf::XdpMode::Generic)) {
            Ok(attachment) => {
                self.attached.insert(ifindex, Device { name, attachment });
            }
            Err(error) => no_fast_path(&name, &error),
        }
    }

    /// The devices that are to have the program: by default those by which packets to our addresses come in, and those
    /// that lead to neighbours and siblings.
    fn wanted(&self, wishes: &Wishes<'_>) -> Vec<Link> {
        let xdp = wishes.xdp;
        let links = wishes.model.links().map(|(.., remote)| remote.ip());
        let siblings = wishes.model.siblings.iter().map(|s| s.internal.ip());
        let mut needed: BTreeSet<u32> = self.arrivals.all().collect();
        needed.extend(links.chain(siblings).filter_map(wishes.way_to));
        if !xdp.devices.is_empty() {
            let links = self.links.iter();
            let named = links.filter(|link| xdp.devices.contains(&link.name));
            needed = named.map(|link| link.ifindex).collect();
        }
        let carriers: BTreeSet<u32> = needed
            .into_iter()
            .filter_map(|ifindex| Some(self.carrier(ifindex)?.0))
            .collect();
        let wanted = self.links.iter().filter(|link| {
            link.up
                && is_ethernet(link)
                && carriers.contains(&link.ifindex)
                && !xdp.exclude.contains(&link.name)
        });
        wanted.cloned().collect()
    }

    /// Finds devices whose frames come without the tags that tell VLANs apart. They are left to the kernel, which knows.
    fn look_for_stripping(&mut self, wanted: &[Link]) {
        let stripping = stripping(wanted, &self.links);
        for (ifindex, why) in &stripping {
            if self.stripping.get(ifindex) != Some(why) {
                let name = self.name(*ifindex).unwrap_or("?");
                tracing::warn!("packets received on {name} take the slow path: {name} {why}");
            }
        }
        self.stripping = stripping;
    }

    fn name(&self, ifindex: u32) -> Option<&str> {
        let link = self.links.iter().find(|link| link.ifindex == ifindex)?;
        Some(&link.name)
    }

    /// Lets packets out through the devices that can send them now: of a veth device that depends on its other end.
    pub(super) fn look(&mut self, programs: &mut RouterPrograms) {
        let wanted = self.wanted_senders();
        let gone: Vec<u32> = self.senders.keys().copied().collect();
        for ifindex in gone {
            if wanted.contains_key(&ifindex) {
                continue;
            }
            if let Some(device) = self.attached.get(&ifindex) {
                tracing::info!(
                    device = device.name,
                    "XDP programs on other devices cannot send through this one; using the slow path"
                );
            }
            match programs.remove_device(ifindex) {
                Ok(()) => {
                    self.senders.remove(&ifindex);
                }
                Err(error) => tracing::warn!("{error}"),
            }
        }
        for (ifindex, (carrier, sender)) in wanted {
            if self.senders.get(&ifindex) == Some(&(carrier, sender)) {
                continue;
            }
            match programs.add_sender(ifindex, carrier, sender) {
                Ok(()) => {
                    self.senders.insert(ifindex, (carrier, sender));
                }
                Err(error) => tracing::warn!("{error}"),
            }
        }
    }

    /// Devices with the program that can send, and VLAN devices on them.
    fn wanted_senders(&self) -> BTreeMap<u32, (u32, Sender)> {
        let mut attached = self.attached.values();
        let any_native = attached.any(|d| d.attachment.mode() == bpf::XdpMode::Native);
        let can: BTreeMap<u32, bool> = self
            .attached
            .keys()
            .filter_map(|ifindex| {
                let can = if any_native {
                    transmits(*ifindex)?
                } else {
                    true
                };
                Some((*ifindex, can))
            })
            .collect();
        let senders = self.links.iter().filter_map(|link| {
            let (carrier, tags) = self.carrier(link.ifindex)?;
            let fragments = u32::from(*can.get(&carrier)?);
            Some((link.ifindex, (carrier, Sender { tags, fragments })))
        });
        senders.collect()
    }

    /// Whether packets are sent through a device.
    pub(super) fn transmits(&self, ifindex: u32) -> bool {
        self.senders.contains_key(&ifindex)
    }

    /// The device that carries the frames of a device, and the tags that they have; `None` if these are too many.
    pub(super) fn carrier(&self, ifindex: u32) -> Option<(u32, Tags)> {
        let (mut at, mut tags) = (ifindex, [0; 2]);
        while let Some((below, tag)) = self.below(at) {
            if tags[1] != 0 {
                return None;
            }
            tags = [tag, tags[0]];
            at = below;
        }
        Some((at, tags))
    }

    /// The device below a VLAN device, and the tag.
    fn below(&self, ifindex: u32) -> Option<(u32, u32)> {
        let link = self.links.iter().find(|link| link.ifindex == ifindex)?;
        Some((link.peer_ifindex?, map_tag(link.vlan?)))
    }

    /// A device as packets come in by it, if they pass the program there.
    fn port(&self, link: &Link) -> Option<Port> {
        let (ifindex, tags) = self.carrier(link.ifindex)?;
        let usable = self.attached.contains_key(&ifindex) && !self.stripping.contains_key(&ifindex);
        Some(Port {
            ifindex,
            tags,
            mac: link.mac.filter(|_| usable)?,
        })
    }

    /// See [`super::Underlay::ports`].
    pub(super) fn ports(&self) -> Vec<Port> {
        self.links
            .iter()
            .filter_map(|link| self.port(link))
            .collect()
    }

    /// See [`super::Underlay::arrival`].
    pub(super) fn arrival(&self, local: SocketAddr) -> Arrival {
        let Some(devices) = self.arrivals.devices(local) else {
            return Arrival::Anywhere;
        };
        let links = self.links.iter();
        let links = links.filter(|link| devices.contains(&link.ifindex));
        Arrival::By(links.filter_map(|link| self.port(link)).collect())
    }

    /// The names of the devices by which packets to an address come in; `None`: any.
    pub(super) fn names_of(&self, local: SocketAddr) -> Option<BTreeSet<String>> {
        let devices = self.arrivals.devices(local)?;
        let names = devices.iter().filter_map(|ifindex| self.name(*ifindex));
        Some(names.map(str::to_owned).collect())
    }

    pub(super) fn exists(&self, name: &str) -> bool {
        self.links.iter().any(|link| link.name == name)
    }

    /// The devices as they were last seen, for [`Self::follow`].
    pub(super) fn links(&self) -> Vec<Link> {
        self.links.clone()
    }

    /// Whether a device sends frames in several buffers.
    pub(super) fn sends_fragments(&self, ifindex: u32) -> bool {
        let sender = self.senders.get(&ifindex);
        sender.is_some_and(|(_, sender)| sender.fragments != 0)
    }

    /// Where packets to our addresses may come in.
    pub(super) fn arrivals(&self) -> &Arrivals {
        &self.arrivals
    }

    /// All attached devices.
    pub(super) fn attached(&self) -> impl Iterator<Item = (u32, &Device)> {
        self.attached
            .iter()
            .map(|(ifindex, device)| (*ifindex, device))
    }

    /// All addresses of the host.
    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let addresses = self.links.iter().flat_map(|link| &link.addresses);
        addresses.map(|net| net.addr())
    }
}

fn no_fast_path(device: &str, error: &dyn std::fmt::Display) {
    tracing::warn!("no fast path for packets received on {device}: {error}");
}

/// Whether other devices' native programs can send through a device, and if so, also frames in several buffers. Where the
/// kernel does not tell, they can send others.
fn transmits(ifindex: u32) -> Option<bool> {
    match xdp_features(ifindex) {
        Ok(Some(features)) => features.transmit().then(|| features.transmit_fragments()),
        Ok(None) | Err(_) => Some(false),
    }
}

/// Those of some devices that have VLANs whose tags XDP may not see, and why.
fn stripping(wanted: &[Link], all: &[Link]) -> BTreeMap<u32, Unsuited> {
    let Ok(ethtool) = Ethtool::open() else {
        return BTreeMap::new();
    };
    let stripping = wanted.iter().filter_map(|link| {
        let tags = VlanTags::of(&ethtool, link, all);
        let why = suited::check_vlans(link, all, tags).err()?;
        Some((link.ifindex, why))
    });
    stripping.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sig_common::wire::ethernet::{TPID_8021Q, Tag};

    #[test]
    fn vlans_on_devices_made_of_others_are_left_to_the_kernel() {
        for kind in ["bridge", "bond", "team", "macvlan"] {
            let lower = Link {
                name: "br0".to_owned(),
                ifindex: 2,
                mac: Some([2; 6]),
                kind: Some(kind.to_owned()),
                ..Link::default()
            };
            let upper = Link {
                name: "br0.5".to_owned(),
                ifindex: 3,
                kind: Some("vlan".to_owned()),
                vlan: Some(Tag {
                    tpid: TPID_8021Q,
                    tci: 5,
                }),
                peer_ifindex: Some(2),
                ..lower.clone()
            };
            let wanted = [lower.clone()];
            let found = stripping(&wanted, &[lower.clone(), upper]);
            let found: Vec<u32> = found.into_keys().collect();
            assert_eq!(found, [2], "{kind}");
            assert!(stripping(&wanted, &[lower]).is_empty(), "{kind}");
        }
    }
}
