//! The sockets of a configuration, and what belongs to each.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    sync::Arc,
};

use sig_common::wire::scion::path;
use tokio::runtime::Handle;

use super::{
    BindError, SlowConfig,
    counters::Counters,
    liveness::{self, Liveness, SessionKey, SessionPlan},
    socket::Socket,
};
use crate::{
    config::{Buffers, RateLimits},
    forward::{Links, Router},
    model::{AsModel, Owner},
};

/// A socket: by what it is for, and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// The internal address.
    Inside(SocketAddr),
    /// Our end of the link at this SCION interface.
    Link(u16, SocketAddr),
}

/// A configuration with its sockets.
pub(super) struct Network {
    pub(super) router: Router,
    pub(super) limits: Arc<RateLimits>,
    buffers: Buffers,
    pub(super) inside: Arc<Socket>,
    pub(super) inside_counters: Arc<Counters>,
    pub(super) links: BTreeMap<u16, Link>,
    /// By sibling: an interface of it, if it has any. They are all up or all down.
    sibling_interfaces: Vec<Option<u16>>,
}

/// Our end of a link.
pub(super) struct Link {
    pub(super) local: SocketAddr,
    /// The only address that is heard.
    pub(super) remote: SocketAddr,
    pub(super) socket: Arc<Socket>,
    pub(super) counters: Arc<Counters>,
}

impl Network {
    /// Opens the sockets that `present` does not have, and takes the others from there.
    ///
    /// # Errors
    /// An address that cannot be bound.
    pub(super) fn open(
        config: SlowConfig,
        present: Option<&Self>,
        bfd: &Handle,
        counters: &mut BTreeMap<u16, Arc<Counters>>,
    ) -> Result<Self, BindError> {
        let model = &config.model;
        // By address: a link that got another number has its socket already.
        let open = |what: &str, address| match present.and_then(|p| p.socket_at(address)) {
            Some(socket) => Ok(socket),
            None => Socket::open(what, address, config.buffers, bfd).map(Arc::new),
        };
        let mut counters = |interface| counters.entry(interface).or_default().clone();
        let inside = open("internal address", model.internal)?;
        let mut links = BTreeMap::new();
        for (number, _, local, remote) in model.links() {
            let what = format!("link at interface {number}");
            let link = Link {
                local,
                remote,
                socket: open(&what, local)?,
                counters: counters(number),
            };
            links.insert(number, link);
        }
        let owned = |place| {
            let mut interfaces = model.interfaces.iter();
            let owned = interfaces.find(|(_, interface)| interface.owner == Owner::Sibling(place));
            owned.map(|(number, _)| *number)
        };
        Ok(Self {
            sibling_interfaces: (0..model.siblings.len()).map(owned).collect(),
            limits: Arc::new(config.limits),
            buffers: config.buffers,
            inside,
            inside_counters: counters(0),
            links,
            router: Router::new(config.model),
        })
    }

    pub(super) fn model(&self) -> &AsModel {
        self.router.model()
    }

    fn socket_at(&self, address: SocketAddr) -> Option<Arc<Socket>> {
        let mut links = self.links.values();
        if self.model().internal == address {
            return Some(self.inside.clone());
        }
        let link = links.find(|link| link.local == address)?;
        Some(link.socket.clone())
    }

    /// All sockets.
    pub(super) fn sockets(&self) -> HashMap<Place, Arc<Socket>> {
        let inside = (Place::Inside(self.model().internal), self.inside.clone());
        let links = self
            .links
            .iter()
            .map(|(number, link)| (Place::Link(*number, link.local), link.socket.clone()));
        links.chain([inside]).collect()
    }

    /// Brings the sockets to what the configuration says of them.
    pub(super) fn tune(&self) {
        let links = self.links.values();
        let links = links.map(|link| (&link.socket, [link.remote].into(), path::ONE_HOP));
        let siblings = self.model().siblings.iter();
        let siblings = siblings.map(|sibling| sibling.internal).collect();
        for (socket, peers, path_type) in links.chain([(&self.inside, siblings, path::EMPTY)]) {
            let tuned = socket
                .hear(&peers, path_type)
                .and_then(|()| socket.set_buffers(self.buffers));
            if let Err(error) = tuned {
                tracing::warn!("cannot set up a socket: {error}");
            }
        }
    }

    /// The BFD sessions.
    pub(super) fn sessions(&self) -> BTreeMap<SessionKey, SessionPlan> {
        liveness::plans(self.model(), |interface| match interface {
            Some(number) => self.links.get(&number).map(|link| link.socket.clone()),
            None => Some(self.inside.clone()),
        })
    }

    /// The state of the ways out, for [`Router::process`].
    pub(super) fn ways<'a>(&'a self, liveness: &'a Liveness) -> Ways<'a> {
        Ways {
            network: self,
            liveness,
        }
    }
}

/// See [`Network::ways`].
pub(super) struct Ways<'a> {
    network: &'a Network,
    liveness: &'a Liveness,
}

impl Links for Ways<'_> {
    fn is_interface_up(&self, interface: u16) -> bool {
        self.liveness.is_up(interface)
    }

    fn is_sibling_up(&self, sibling: usize) -> bool {
        let interface = self.network.sibling_interfaces.get(sibling);
        interface.is_some_and(|number| number.is_none_or(|number| self.liveness.is_up(number)))
    }
}
