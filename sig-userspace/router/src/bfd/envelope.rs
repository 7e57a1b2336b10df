//! The SCION packet around a control packet.

use std::net::IpAddr;

use sig_common::{
    addr::{HostAddr, IsdAs},
    wire::{
        self,
        scion::{
            Header, NEXT_BFD,
            path::{HOP_LEN, HopField, INFO_LEN, InfoField, ONE_HOP_LEN, Path},
        },
    },
};

use super::control::Control;
use sig_core::scion::HopKey;

/// As the reference has them: expedited forwarding, and a flow id of its own.
const TRAFFIC_CLASS: u8 = 0xb8;
const FLOW_ID: u32 = 0xdead;

/// Clocks of neighbours may differ by so many seconds.
const CLOCK_DRIFT: u32 = 10;

/// Lifetime of the hop field: (63 + 1) units of 337.5 s.
const EXPIRY: u8 = 63;

/// Whom control packets go to, and by which path.
#[derive(Clone, Debug)]
pub enum Envelope {
    /// To the neighbour over a link of ours: a one-hop path.
    Link {
        /// Our ISD-AS.
        isd_as: IsdAs,
        /// The neighbour's.
        neighbour: IsdAs,
        /// SCION interface of the link.
        interface: u16,
        /// IP address of our end of the link.
        local: IpAddr,
        /// That of the neighbour's.
        remote: IpAddr,
    },
    /// To another router of the AS: the empty path.
    Sibling {
        /// Our ISD-AS.
        isd_as: IsdAs,
        /// Our internal IP address.
        local: IpAddr,
        /// The sibling's.
        remote: IpAddr,
    },
}

impl Envelope {
    /// The SCION packet with a control packet. `now`: seconds since 1970.
    ///
    /// # Errors
    /// None that can happen with this little in it.
    pub fn seal(&self, control: &Control, key: &HopKey, now: u32) -> Result<Vec<u8>, wire::Error> {
        let one_hop;
        let (isd_as, destination_isd_as, local, remote, path) = match *self {
            Self::Link {
                isd_as,
                neighbour,
                interface,
                local,
                remote,
            } => {
                one_hop = one_hop_path(interface, key, now.saturating_sub(CLOCK_DRIFT));
                (isd_as, neighbour, local, remote, Path::OneHop(&one_hop))
            }
            Self::Sibling {
                isd_as,
                local,
                remote,
            } => (isd_as, isd_as, local, remote, Path::Empty),
        };
        let payload = control.encode();
        let header = Header {
            traffic_class: TRAFFIC_CLASS,
            flow_id: FLOW_ID,
            next_header: NEXT_BFD,
            payload_len: payload.len() as u16,
            destination_isd_as,
            source_isd_as: isd_as,
            destination: HostAddr::from(remote),
            source: HostAddr::from(local),
            path,
        };
        let mut packet = vec![0; header.len()];
        header.emit(&mut packet)?;
        packet.extend_from_slice(&payload);
        Ok(packet)
    }
}

/// A path that leaves by `interface`; the neighbour would fill in the second hop field.
fn one_hop_path(interface: u16, key: &HopKey, timestamp: u32) -> [u8; ONE_HOP_LEN] {
    let info = InfoField {
        peering: false,
        construction_direction: true,
        segment_id: 0,
        timestamp,
    };
    let mut hop = HopField {
        ingress_alert: false,
        egress_alert: false,
        expiry: EXPIRY,
        ingress: 0,
        egress: interface,
        mac: [0; 6],
    };
    hop.mac = key.mac(&hop.mac_input(&info));
    let mut path = [0; ONE_HOP_LEN];
    path[..INFO_LEN].copy_from_slice(&info.encode());
    path[INFO_LEN..INFO_LEN + HOP_LEN].copy_from_slice(&hop.encode());
    path
}
