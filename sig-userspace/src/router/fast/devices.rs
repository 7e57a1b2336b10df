//! Which devices have the program, and in which mode.

use std::{collections::BTreeMap, net::IpAddr};

use crate::{
    kernel::{
        bpf::{self, Attachment, RouterPrograms},
        link::Link,
        netdev::xdp_features,
    },
    router::config::XdpMode,
};

/// The devices of the network namespace that concern the router.
#[derive(Default)]
pub(super) struct Devices {
    attached: BTreeMap<u32, Device>,
    /// Every address of the host, and the device that frames to it come in by.
    addresses: BTreeMap<IpAddr, u32>,
    /// VLAN devices: the device that carries their frames, and the tag.
    vlans: BTreeMap<u32, (u32, u16)>,
}

/// A device with the program.
pub(super) struct Device {
    pub(super) name: String,
    pub(super) attachment: Attachment,
    /// Packets may be sent through it by the program.
    pub(super) transmits: bool,
}

impl Devices {
    /// Makes the attached devices those that `links` asks for: Ethernet that is up and by which packets to an address
    /// of this host come in. `essential` are the addresses that the router cannot do without.
    ///
    /// # Errors
    /// A device with an essential address does not take the program, though a mode is demanded.
    pub(super) fn follow(
        &mut self,
        programs: &mut RouterPrograms,
        links: &[Link],
        essential: &[IpAddr],
        mode: XdpMode,
    ) -> Result<(), String> {
        self.vlans = links
            .iter()
            .filter_map(|link| Some((link.ifindex, (link.peer_ifindex?, link.vlan?))))
            .collect();
        self.addresses = links
            .iter()
            .flat_map(|link| {
                let carrier = self.carrier(link.ifindex).0;
                link.addresses.iter().map(move |net| (net.addr(), carrier))
            })
            .collect();
        let wanted: Vec<&Link> = links
            .iter()
            .filter(|link| link.up && link.mac.is_some() && !link.loopback)
            .filter(|link| {
                self.addresses
                    .values()
                    .any(|carrier| *carrier == link.ifindex)
            })
            .collect();
        self.attached
            .retain(|ifindex, _| wanted.iter().any(|link| link.ifindex == *ifindex));
        let is_essential = |link: &Link| {
            let mut essential = essential.iter();
            essential.any(|ip| self.addresses.get(ip) == Some(&link.ifindex))
        };
        // A native program sends only through devices that can do that, a generic one through any.
        let all_transmit = wanted
            .iter()
            .filter(|link| is_essential(link))
            .all(|link| transmits(link.ifindex));
        for link in wanted {
            if self.attached.contains_key(&link.ifindex) {
                continue;
            }
            let attached = match mode {
                XdpMode::Native => programs.attach(link.ifindex, Some(bpf::XdpMode::Native)),
                XdpMode::Auto if all_transmit => programs
                    .attach(link.ifindex, None)
                    .or_else(|_| programs.attach(link.ifindex, Some(bpf::XdpMode::Generic))),
                XdpMode::Generic | XdpMode::Auto => {
                    programs.attach(link.ifindex, Some(bpf::XdpMode::Generic))
                }
            };
            match attached {
                Ok(attachment) => {
                    tracing::info!(device = link.name, mode = %attachment.mode(), "fast path attached");
                    let device = Device {
                        name: link.name.clone(),
                        attachment,
                        transmits: false,
                    };
                    self.attached.insert(link.ifindex, device);
                }
                Err(error) if is_essential(link) && mode != XdpMode::Auto => {
                    return Err(error.to_string());
                }
                Err(error) => {
                    tracing::warn!(
                        "no fast path for packets that come in by {}: {error}",
                        link.name
                    );
                }
            }
        }
        self.look(programs);
        Ok(())
    }

    /// Lets packets out through the devices that can send them now: of a veth device that depends on its other end.
    pub(super) fn look(&mut self, programs: &mut RouterPrograms) {
        let any_native = self
            .attached
            .values()
            .any(|device| device.attachment.mode() == bpf::XdpMode::Native);
        for (ifindex, device) in &mut self.attached {
            let can = !any_native || transmits(*ifindex);
            if can == device.transmits {
                continue;
            }
            let changed = if can {
                programs.add_device(*ifindex)
            } else {
                tracing::info!(
                    device = device.name,
                    "other devices' programs cannot send through it; the slow path does"
                );
                programs.remove_device(*ifindex)
            };
            match changed {
                Ok(()) => device.transmits = can,
                Err(error) => tracing::warn!("{error}"),
            }
        }
    }

    /// The device that carries the frames of a device, and the tag that they have.
    pub(super) fn carrier(&self, ifindex: u32) -> (u32, Option<u16>) {
        match self.vlans.get(&ifindex) {
            Some((carrier, vlan)) => (*carrier, Some(*vlan)),
            None => (ifindex, None),
        }
    }

    /// The attached device by which packets to an address come in, if it is on one.
    pub(super) fn of_address(&self, ip: IpAddr) -> Option<u32> {
        let ifindex = self.addresses.get(&ip)?;
        self.attached.contains_key(ifindex).then_some(*ifindex)
    }

    /// All attached devices.
    pub(super) fn attached(&self) -> impl Iterator<Item = (u32, &Device)> {
        self.attached
            .iter()
            .map(|(ifindex, device)| (*ifindex, device))
    }

    /// All addresses of the host.
    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.keys().copied()
    }
}

/// Whether other devices' native programs can send through a device; yes, where the kernel does not tell.
fn transmits(ifindex: u32) -> bool {
    match xdp_features(ifindex) {
        Ok(Some(features)) => features.transmit(),
        Ok(None) | Err(_) => true,
    }
}
