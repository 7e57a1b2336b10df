//! What the workers look up: an immutable snapshot, made by the control plane and swapped as a whole.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    ops::Range,
    sync::Arc,
};

use ipnet::IpNet;
use sig_common::{
    addr::{HostAddr, IsdAs},
    wire::underlay::Local,
};

use super::{counters::Traffic, icmp::Sources, lan::LanTable, lpm::Lpm};
use crate::{
    counter::Counter,
    framing::{CapacityError, Packer},
    port::umem::{CHUNK_SIZE, HEADROOM},
    scion::{Endpoints, NextHop, Template, TemplateError},
};

/// The snapshot.
#[derive(Debug)]
pub struct Tables {
    /// Differs from that of every other snapshot of this gateway, never 0.
    pub generation: u64,
    /// This gateway's data address, as frames to it carry it.
    pub local: Local,
    /// Prefixes served here: inner destinations that remotes may send to.
    pub served: Lpm<()>,
    /// Where packets to `served` can be sent without the kernel.
    pub lan: Arc<LanTable>,
    /// Inner destination to the number of the remote in `remotes`.
    pub routes: Lpm<u16>,
    /// Remote gateways.
    pub remotes: Vec<Remote>,
    /// Paths of all remotes, those of one remote side by side.
    pub paths: Vec<Path>,
    /// Source of a frame to the number of the remote in `remotes`.
    pub admitted: HashMap<(IsdAs, HostAddr), u16, BuildHasherDefault<SourceHasher>>,
    /// The Ethernet header, without its type, of packets on their way to the kernel:
    /// destination MAC (the tunnel device), then source MAC (its peer).
    pub inner_macs: [u8; 12],
    /// Where ICMP errors come from.
    pub icmp: Sources,
}

/// A remote gateway.
#[derive(Debug)]
pub struct Remote {
    /// Names the remote for as long as the gateway knows it, across snapshots.
    pub id: u16,
    /// Its ISD-AS.
    pub isd_as: IsdAs,
    /// Its host address, the source of its frames.
    pub host: HostAddr,
    /// Inner sources that it may send from.
    pub accepted: Lpm<()>,
    /// Its paths in [`Tables::paths`] that can be used now; flows are shared among them.
    pub paths: Range<u16>,
    /// Per worker, what came from it.
    pub counters: Arc<[RemoteCounters]>,
}

/// What one worker received from a remote. Aligned so that workers do not share cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct RemoteCounters {
    /// Frames and packets that came from it.
    pub received: Traffic,
    /// Frames and packets from it that were dropped.
    pub dropped: Counter,
}

/// A path to a remote gateway, as the workers use it.
#[derive(Debug)]
pub struct Path {
    /// Names the path with these very headers, MTU and next hop, across snapshots; a change of any of
    /// them makes another path with other streams.
    pub id: u64,
    /// Outer headers.
    pub template: Template,
    /// An empty frame of the path's capacity; each worker starts from a copy of it.
    pub packer: Packer,
    /// Per worker, the stream id of its frames on this path.
    pub streams: Box<[u32]>,
    /// Per worker, what was sent on it.
    pub counters: Arc<[PathCounters]>,
}

/// What a path is made of.
#[derive(Clone, Debug)]
pub struct PathSpec<'a> {
    /// See [`Path::id`].
    pub id: u64,
    /// The two gateways.
    pub ends: Endpoints,
    /// Where frames go first.
    pub next_hop: NextHop,
    /// SCION path type number.
    pub path_type: u8,
    /// The path header as it goes on the wire.
    pub path: &'a [u8],
    /// SIG session id.
    pub session: u8,
    /// Largest SCION packet that passes the path, bytes.
    pub path_mtu: usize,
    /// MTU of the underlay interface, bytes.
    pub link_mtu: usize,
    /// See [`Path::streams`].
    pub streams: Box<[u32]>,
    /// See [`Path::counters`].
    pub counters: Arc<[PathCounters]>,
}

/// Why a path cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Its headers cannot be written.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// Its MTU leaves too little room for packets.
    #[error("the MTU leaves too little room: {0}")]
    Capacity(#[from] CapacityError),
}

impl Path {
    /// A path ready for use.
    ///
    /// # Errors
    ///
    /// If its headers cannot be written or leave no room for packets.
    pub fn new(spec: PathSpec<'_>) -> Result<Self, PathError> {
        let template = Template::new(
            &spec.ends,
            &spec.next_hop,
            spec.path_type,
            spec.path,
            spec.session,
        )?;
        let chunk = CHUNK_SIZE.saturating_sub(template.len().max(HEADROOM));
        let capacity = template.capacity(spec.path_mtu, spec.link_mtu).min(chunk);
        Ok(Path {
            id: spec.id,
            template,
            packer: Packer::new(capacity)?,
            streams: spec.streams,
            counters: spec.counters,
        })
    }
}

/// What one worker sent on a path. Aligned so that workers do not share cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct PathCounters {
    /// Frames and packets.
    pub sent: Traffic,
}

impl Tables {
    /// Tables that know nobody: every packet is dropped.
    pub fn empty(local: Local) -> Self {
        Tables {
            generation: 1,
            local,
            served: Lpm::default(),
            lan: Arc::default(),
            routes: Lpm::default(),
            remotes: Vec::new(),
            paths: Vec::new(),
            admitted: HashMap::default(),
            inner_macs: [0; 12],
            icmp: Sources::default(),
        }
    }

    /// Adds a remote with its paths.
    ///
    /// `prefixes` are both routed to it and accepted from it. Of two remotes with the same prefix
    /// the first one gets the packets.
    pub fn add_remote(
        &mut self,
        id: u16,
        (isd_as, host): (IsdAs, HostAddr),
        prefixes: &[IpNet],
        paths: Vec<Path>,
        counters: Arc<[RemoteCounters]>,
    ) {
        let slot = self.remotes.len() as u16;
        for prefix in prefixes {
            if let Some(first) = self.routes.insert(*prefix, slot) {
                self.routes.insert(*prefix, first);
            }
        }
        let first = self.paths.len() as u16;
        self.paths.extend(paths);
        self.admitted.insert((isd_as, host), slot);
        self.remotes.push(Remote {
            id,
            isd_as,
            host,
            accepted: prefixes.iter().map(|prefix| (*prefix, ())).collect(),
            paths: first..self.paths.len() as u16,
            counters,
        });
    }
}

/// Hashes the few words of a frame's source; the keys come from the configuration, so a peer cannot
/// choose them to collide.
#[derive(Default)]
pub struct SourceHasher(u64);

impl Hasher for SourceHasher {
    fn finish(&self) -> u64 {
        // The low bits choose the place in the table, and only the high ones are well mixed.
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        let (words, rest) = rest.as_chunks();
        for word in words {
            self.write_u64(u32::from_le_bytes(*word).into());
        }
        for byte in rest {
            self.write_u64((*byte).into());
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(29) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}
