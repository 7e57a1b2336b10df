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

use super::Via;
use sig_core::{
    peer::UnderlaySources,
    scion::{
        SocketCounters,
        packet::{Content, Endpoint, Host, Packet},
        reverse,
    },
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
    /// Who else may bring packets on the underlay; see [`Local::may_bring`]. Anybody, unless it is set.
    pub sources: ArcSwap<UnderlaySources>,
    /// What happened at the sockets.
    pub counters: SocketCounters,
    mailboxes: Mutex<HashMap<(IpAddr, u16), Mailbox>>,
}

/// Whether a program of this host relayed a packet from the end host port, which hides where it came from.
fn is_relayed(from: SocketAddr, at: SocketAddr) -> bool {
    from.port() == ENDHOST_PORT && (from.ip() == at.ip() || from.ip().is_loopback())
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
            sources: ArcSwap::from_pointee(UnderlaySources::Any),
            counters: SocketCounters::default(),
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
        let next_hop = if !is_relayed(from, at) {
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

    /// Whether a packet of `source` that `at` received from the underlay address `from` can have come that way:
    /// from a border router of the AS, or, without a path, from the very host of the AS that it names. What a
    /// program of this host relays from the end host port may have come from anywhere. `true` as long as no
    /// border router is known.
    #[must_use]
    pub fn may_bring(
        &self,
        source: Host,
        has_path: bool,
        from: SocketAddr,
        at: SocketAddr,
    ) -> bool {
        let sources = self.sources.load();
        let more = match &**sources {
            UnderlaySources::Any => return true,
            UnderlaySources::Routers => &[][..],
            UnderlaySources::RoutersAnd(prefixes) => prefixes,
        };
        let ip = from.ip().to_canonical();
        let is_internal = !has_path && source == (self.isd_as, HostAddr::from(ip));
        let routers = self.interfaces.load();
        is_internal
            || is_relayed(from, at)
            || routers.is_empty()
            || routers
                .values()
                .any(|router| router.ip().to_canonical() == ip)
            || more.iter().any(|prefix| prefix.contains(&ip))
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
            None => self.counters.strays.add(1),
            Some(mailbox) if mailbox.scmp_only && !is_scmp => {}
            Some(mailbox) => {
                if mailbox.queue.try_send(packet).is_err() {
                    self.counters.overflows.add(1);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_from_border_routers_or_within_the_as_from_their_sender() {
        let own = IsdAs::new(1, 1);
        let local = Local::new(own, 0..=0);
        let at = SocketAddr::from(([10, 0, 0, 2], 30256));
        let host = |isd_as, last| (isd_as, HostAddr::V4([10, 0, 0, last]));
        let may = |source, has_path, last, port| {
            let from = SocketAddr::from(([10, 0, 0, last], port));
            local.may_bring(source, has_path, from, at)
        };
        let far = host(IsdAs::new(1, 2), 9);
        assert!(may(far, true, 66, 4000), "nothing is set");
        local.sources.store(Arc::new(UnderlaySources::Routers));
        assert!(may(far, true, 66, 4000), "no border router is known");
        let router = SocketAddr::from(([10, 0, 0, 1], 30042));
        local
            .interfaces
            .store(Arc::new(HashMap::from([(1, router)])));
        assert!(may(far, true, 1, 30042), "the border router");
        assert!(!may(far, true, 66, 30042), "another host");
        assert!(
            !may(far, false, 9, 30042),
            "a host of another AS without a path"
        );
        assert!(may(host(own, 9), false, 9, 4000), "a host of the AS");
        assert!(
            !may(host(own, 9), true, 9, 4000),
            "a host of the AS with a path"
        );
        assert!(!may(host(own, 9), false, 66, 4000), "in its name");
        assert!(may(far, true, 2, ENDHOST_PORT), "relayed by this host");
        let prefixes = vec!["10.0.0.64/30".parse().expect("a prefix")];
        local
            .sources
            .store(Arc::new(UnderlaySources::RoutersAnd(prefixes)));
        assert!(may(far, true, 66, 30042), "a configured prefix");
        assert!(!may(far, true, 70, 30042), "beside it");
    }
}
