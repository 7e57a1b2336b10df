//! What all SCION sockets of a gateway share.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use arc_swap::ArcSwap;
use bytes::Bytes;
use sig_common::{
    addr::{HostAddr, IsdAs},
    wire::scion::{ENDHOST_PORT, path::EMPTY},
};
use tokio::sync::mpsc;

use super::{Counters, Via, counters::add};
use crate::scion::{
    packet::{Content, Endpoint, Packet},
    reverse,
};

/// Packets from the end host port that wait for the reader of a socket; more are dropped.
pub(super) const QUEUE: usize = 128;

/// The local AS as sockets need it.
#[derive(Debug)]
pub struct Local {
    /// Our AS.
    pub isd_as: IsdAs,
    /// Ports that border routers deliver to directly; they deliver to the end host port what is for others.
    /// May be empty, also as `0..=0`.
    pub ports: RangeInclusive<u16>,
    /// The border router at each interface of the AS: its underlay address, where packets that leave by
    /// that interface are sent.
    pub interfaces: ArcSwap<HashMap<u64, SocketAddr>>,
    /// What happened at the sockets.
    pub counters: Counters,
    mailboxes: Mutex<HashMap<(IpAddr, u16), Mailbox>>,
}

/// Where packets for a socket go that do not arrive at its own port.
#[derive(Debug)]
struct Mailbox {
    queue: mpsc::Sender<Relayed>,
    scmp_only: bool,
}

/// A packet from the end host port, and the underlay address that sent it.
pub(super) type Relayed = (Bytes, SocketAddr);

impl Local {
    /// An AS without known border routers.
    #[must_use]
    pub fn new(isd_as: IsdAs, ports: RangeInclusive<u16>) -> Arc<Self> {
        Arc::new(Self {
            isd_as,
            ports,
            interfaces: ArcSwap::default(),
            counters: Counters::default(),
            mailboxes: Mutex::default(),
        })
    }

    /// Whether border routers deliver to this port directly.
    #[must_use]
    pub fn dispatches(&self, port: u16) -> bool {
        port != 0 && self.ports.contains(&port)
    }

    /// The way to an endpoint within the AS: straight to its host. `None` for a service.
    #[must_use]
    pub fn via(&self, to: Endpoint) -> Option<Via> {
        let (_, host, port) = to;
        let port = if self.dispatches(port) {
            port
        } else {
            ENDHOST_PORT
        };
        Some(Via {
            path_type: EMPTY,
            raw: Arc::default(),
            next_hop: SocketAddr::new(host.ip()?, port),
        })
    }

    /// The way back to who sent a packet that `at` received from the underlay address `from`; `None` if
    /// there is none.
    pub(super) fn way_back(
        &self,
        packet: &Packet<'_>,
        from: SocketAddr,
        at: SocketAddr,
    ) -> Option<Via> {
        let (path_type, raw) = reverse::reply_path(&packet.path).ok()?;
        // A program that relays from the end host port hides the border router.
        let relayed =
            from.port() == ENDHOST_PORT && (from.ip() == at.ip() || from.ip().is_loopback());
        let next_hop = if !relayed {
            from
        } else if let Some(interface) = reverse::arrived_by(&packet.path) {
            *self.interfaces.load().get(&u64::from(interface))?
        } else {
            let port = match &packet.content {
                Content::Udp { source_port, .. } => *source_port,
                Content::Scmp(_) => ENDHOST_PORT,
            };
            SocketAddr::new(packet.source.1.ip()?, port)
        };
        Some(Via {
            path_type,
            raw: raw.into(),
            next_hop,
        })
    }

    /// Whether a packet is for the host with this address.
    pub(super) fn is_at(&self, packet: &Packet<'_>, ip: IpAddr) -> bool {
        packet.destination == (self.isd_as, HostAddr::from(ip))
    }

    /// From now on, what the end host port receives for the socket with address `at` goes to the queue
    /// returned.
    pub(super) fn register(&self, at: SocketAddr, scmp_only: bool) -> mpsc::Receiver<Relayed> {
        let (queue, packets) = mpsc::channel(QUEUE);
        self.mailboxes()
            .insert((at.ip(), at.port()), Mailbox { queue, scmp_only });
        packets
    }

    /// Ends what [`Local::register`] began.
    pub(super) fn unregister(&self, at: SocketAddr) {
        self.mailboxes().remove(&(at.ip(), at.port()));
    }

    /// Hands a packet that came to the end host port to the socket at `port` of the same address.
    pub(super) fn deliver(&self, ip: IpAddr, port: u16, is_scmp: bool, packet: Relayed) {
        match self.mailboxes().get(&(ip, port)) {
            None => add(&self.counters.strays, 1),
            Some(mailbox) if mailbox.scmp_only && !is_scmp => {}
            Some(mailbox) => {
                if mailbox.queue.try_send(packet).is_err() {
                    add(&self.counters.overflows, 1);
                }
            }
        }
    }

    fn mailboxes(&self) -> MutexGuard<'_, HashMap<(IpAddr, u16), Mailbox>> {
        self.mailboxes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
