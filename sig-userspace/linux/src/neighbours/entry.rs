//! The kernel's neighbour entries: looking at one, and having its neighbour asked.

use std::io;
use std::net::IpAddr;

use rtnetlink::packet_core::NLM_F_CREATE;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::neighbour::{
    NeighbourAttribute, NeighbourExtFlags, NeighbourFlags, NeighbourMessage, NeighbourState,
};

use super::{Reason, family};
use crate::netlink::Netlink;

/// A neighbour entry as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Missing,
    Incomplete,
    Failed,
    Usable {
        mac: [u8; 6],
        /// By somebody else than the kernel's neighbour discovery
        maintained: bool,
        /// Not confirmed lately, and nobody asks
        stale: bool,
    },
    /// Without an Ethernet address
    Odd,
}

pub(super) async fn find_entry(
    netlink: &Netlink,
    ifindex: u32,
    neighbour: IpAddr,
) -> Result<Entry, Reason> {
    let request = neighbour_message(ifindex, neighbour);
    let entry = match netlink
        .get(RouteNetlinkMessage::GetNeighbour(request))
        .await
    {
        Ok(Some(RouteNetlinkMessage::NewNeighbour(entry))) => entry,
        Ok(_) => return Ok(Entry::Missing),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(Entry::Missing),
        Err(error) => return Err(Reason::Kernel(error.to_string())),
    };
    Ok(Entry::of(&entry))
}

impl Entry {
    pub(crate) fn of(entry: &NeighbourMessage) -> Self {
        let mac = entry
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                NeighbourAttribute::LinkLayerAddress(bytes) => {
                    <[u8; 6]>::try_from(bytes.as_slice()).ok()
                }
                _ => None,
            });
        let other_hands = entry.header.flags.contains(NeighbourFlags::ExtLearned)
        || entry.attributes.iter().any(|attribute| {
            matches!(attribute, NeighbourAttribute::ExtFlags(flags) if flags.contains(NeighbourExtFlags::Managed))
        });
        match (entry.header.state, mac) {
            (NeighbourState::None, _) => Entry::Missing,
            (NeighbourState::Incomplete, _) => Entry::Incomplete,
            (NeighbourState::Failed, _) => Entry::Failed,
            (_, None) => Entry::Odd,
            (NeighbourState::Permanent | NeighbourState::Noarp, Some(mac)) => Entry::Usable {
                mac,
                maintained: true,
                stale: false,
            },
            (state, Some(mac)) => Entry::Usable {
                mac,
                maintained: other_hands,
                stale: state == NeighbourState::Stale,
            },
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Question {
    /// Find out the address of a neighbour without a usable entry.
    Resolve,
    /// Confirm the address of a neighbour with one.
    Confirm,
    /// Note that packets are sent to a neighbour with one, as the kernel does for its own.
    Use,
}

pub(crate) async fn ask(
    netlink: &Netlink,
    ifindex: u32,
    neighbour: IpAddr,
    question: Question,
) -> io::Result<()> {
    let mut request = neighbour_message(ifindex, neighbour);
    let flags = match question {
        Question::Resolve => {
            request.header.flags = NeighbourFlags::Use;
            NLM_F_CREATE
        }
        Question::Use => {
            request.header.flags = NeighbourFlags::Use;
            0
        }
        // Without NLM_F_REPLACE the kernel changes the state alone: address and flags stay what they are.
        Question::Confirm => {
            request.header.state = NeighbourState::Probe;
            0
        }
    };
    netlink
        .execute(RouteNetlinkMessage::NewNeighbour(request), flags)
        .await
}

fn neighbour_message(ifindex: u32, neighbour: IpAddr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family(neighbour);
    message.header.ifindex = ifindex;
    message
        .attributes
        .push(NeighbourAttribute::Destination(neighbour.into()));
    message
}
