//! Signed SCION paths.

use sig_common::wire::scion::path::{HopField, Meta};
use sig_core::scion::{HopKey, MacInput};

/// A hop of a segment: what its AS signs.
#[derive(Clone, Debug)]
pub(crate) struct Hop {
    pub(crate) key: HopKey,
    /// Interfaces in construction direction.
    pub(crate) ingress: u16,
    pub(crate) egress: u16,
    pub(crate) expiry: u8,
    pub(crate) ingress_alert: bool,
    pub(crate) egress_alert: bool,
}

impl Hop {
    pub(crate) fn new(key: &HopKey, ingress: u16, egress: u16) -> Self {
        Self {
            key: key.clone(),
            ingress,
            egress,
            expiry: 63,
            ingress_alert: false,
            egress_alert: false,
        }
    }
}

/// A segment, or the part of it that a path uses.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// Whether it is used in the direction in which it was made.
    pub(crate) construction_direction: bool,
    /// The segment identifier that the first hop was made with.
    pub(crate) beta: u16,
    pub(crate) timestamp: u32,
    /// In construction direction.
    pub(crate) hops: Vec<Hop>,
    /// The first hop is left or entered by this interface, to or from a peer.
    pub(crate) peer: Option<u16>,
}

/// Where in an AS a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// On the link that leads in.
    Arriving,
    /// Behind the router that it has entered by, or not out yet.
    Inside,
}

impl Segment {
    fn macs(&self) -> (Vec<u16>, Vec<[u8; 6]>) {
        let mut betas = vec![self.beta];
        let mut macs = Vec::new();
        for (index, hop) in self.hops.iter().enumerate() {
            let mac = self.mac(hop, hop.ingress, betas[index]);
            betas.push(betas[index] ^ u16::from_be_bytes([mac[0], mac[1]]));
            macs.push(mac);
        }
        if let Some(peer) = self.peer {
            macs[0] = self.mac(&self.hops[0], peer, betas[1]);
        }
        (betas, macs)
    }

    fn mac(&self, hop: &Hop, ingress: u16, segment_id: u16) -> [u8; 6] {
        hop.key.mac(&MacInput {
            segment_id,
            timestamp: self.timestamp,
            expiry: hop.expiry,
            ingress,
            egress: hop.egress,
        })
    }

    /// The segment identifier in a packet at the hop `place`, counted in travel direction.
    fn segment_id(&self, place: usize, stage: Stage) -> u16 {
        let (betas, _) = self.macs();
        let index = if self.construction_direction {
            place
        } else {
            self.hops.len() - 1 - place
        };
        let arrives = stage == Stage::Arriving && place > 0;
        if index == 0 && self.peer.is_some() {
            betas[1]
        } else if arrives && !self.construction_direction {
            betas[index + 1]
        } else {
            betas[index]
        }
    }

    fn info(&self, segment_id: u16) -> [u8; 8] {
        let flags = u8::from(self.peer.is_some()) << 1 | u8::from(self.construction_direction);
        let [i0, i1] = segment_id.to_be_bytes();
        let [t0, t1, t2, t3] = self.timestamp.to_be_bytes();
        [flags, 0, i0, i1, t0, t1, t2, t3]
    }

    /// The hop fields in travel direction.
    fn fields(&self) -> Vec<[u8; 12]> {
        let (_, macs) = self.macs();
        let field = |(index, (hop, mac)): (usize, (&Hop, [u8; 6]))| {
            HopField {
                ingress_alert: hop.ingress_alert,
                egress_alert: hop.egress_alert,
                expiry: hop.expiry,
                ingress: self.peer.filter(|_| index == 0).unwrap_or(hop.ingress),
                egress: hop.egress,
                mac,
            }
            .encode()
        };
        let mut fields: Vec<_> = self.hops.iter().zip(macs).enumerate().map(field).collect();
        if !self.construction_direction {
            fields.reverse();
        }
        fields
    }
}

/// The path header of a packet that is at the hop `current`.
pub(crate) fn path(segments: &[Segment], current: usize, stage: Stage) -> Vec<u8> {
    let mut lens = [0; 3];
    let (mut infos, mut hops) = (Vec::new(), Vec::new());
    let (mut first, mut current_info) = (0, 0);
    for (index, segment) in segments.iter().enumerate() {
        let len = segment.hops.len();
        lens[index] = len as u8;
        let segment_id = if current < first {
            segment.segment_id(0, Stage::Inside)
        } else if current < first + len {
            current_info = index as u8;
            segment.segment_id(current - first, stage)
        } else {
            segment.segment_id(len - 1, Stage::Inside)
        };
        infos.extend(segment.info(segment_id));
        hops.extend(segment.fields().into_iter().flatten());
        first += len;
    }
    let meta = Meta {
        current_info,
        current_hop: current as u8,
        segments: lens,
    };
    [meta.encode().to_vec(), infos, hops].concat()
}
