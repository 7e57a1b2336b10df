//! From configuration and resolved next hops to the workers' [`Tables`].

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use rand::{SeedableRng, rngs::StdRng};
use sig_common::{addr::HostAddr, wire::underlay::Local};

use super::config::{self, Config};
use crate::{
    dataplane::{
        Path, PathCounters, PathError, PathSpec, RemoteCounters, Tables, icmp::Sources,
        lan::LanTable,
    },
    framing::StreamIds,
    scion::{Endpoints, NextHop},
};

/// How a next hop is reached at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// MAC address of the underlay interface.
    pub interface_mac: [u8; 6],
    /// MAC address of the next hop, or of the router in front of it.
    pub mac: [u8; 6],
    /// Largest IP packet that the interface takes, bytes.
    pub mtu: usize,
}

/// What the tables depend on beside the configuration.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Next hops that are reachable. Paths through others are not used.
    pub neighbours: HashMap<IpAddr, Neighbour>,
    /// MAC of the tunnel device, then MAC of its peer.
    pub inner_macs: [u8; 12],
    /// Where ICMP errors come from.
    pub icmp: Sources,
    /// Where decapsulated packets can be sent without the kernel; nowhere by default.
    pub lan: Arc<LanTable>,
}

/// A configured path and its state.
#[derive(Debug)]
pub struct PlannedPath {
    /// Number of the remote in the configuration.
    pub remote: usize,
    /// Number of the path within the remote.
    pub path: usize,
    /// Stream ids, one per worker; empty while the path cannot be used.
    pub streams: Box<[u32]>,
    /// What was sent on it, per worker.
    pub counters: Arc<[PathCounters]>,
    /// Why it cannot be used.
    pub problem: Option<String>,
    /// Payload bytes of a frame.
    pub capacity: usize,
    id: u64,
}

/// Makes the tables, and remembers what must outlive them: streams and counters.
pub struct Planner {
    config: Arc<Config>,
    workers: usize,
    generation: u64,
    next_path: u64,
    streams: StreamIds<StdRng>,
    paths: Vec<PlannedPath>,
    remotes: Vec<Arc<[RemoteCounters]>>,
}

impl Planner {
    /// A planner for `workers` workers.
    pub fn new(config: Arc<Config>, workers: usize) -> Self {
        let mut paths = Vec::new();
        for (remote, remote_config) in config.remotes.iter().enumerate() {
            paths.extend((0..remote_config.paths.len()).map(|path| PlannedPath {
                remote,
                path,
                streams: Box::default(),
                counters: per_worker(workers),
                problem: None,
                capacity: 0,
                id: 0,
            }));
        }
        Planner {
            remotes: config.remotes.iter().map(|_| per_worker(workers)).collect(),
            paths,
            config,
            workers,
            generation: 0,
            next_path: 1,
            streams: StreamIds::new(StdRng::from_os_rng()),
        }
    }

    /// The configuration.
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// All paths, in the order of the configuration, as of the last [`Planner::plan`].
    pub fn paths(&self) -> &[PlannedPath] {
        &self.paths
    }

    /// What was received from each remote, per worker, in the order of the configuration.
    pub fn remotes(&self) -> &[Arc<[RemoteCounters]>] {
        &self.remotes
    }

    /// Our data address as frames carry it. Frames that the border router delivers to the end host
    /// port 30041, because the data port lies outside of the AS's dispatched range, are ours too.
    pub fn local(&self) -> Local {
        let gateway = &self.config.gateway;
        Local::new(
            gateway.isd_as,
            gateway.data_addr.ip(),
            gateway.data_addr.port(),
            true,
        )
    }

    /// Next hops of all paths.
    pub fn next_hops(&self) -> Vec<IpAddr> {
        let paths = self.config.remotes.iter().flat_map(|remote| &remote.paths);
        let mut hops: Vec<IpAddr> = paths.map(|path| path.next_hop.ip()).collect();
        hops.sort_unstable();
        hops.dedup();
        hops
    }

    /// Tables for these surroundings, at the monotonic time `now` in nanoseconds. A path that stays
    /// usable with the same frame size keeps its streams.
    pub fn plan(&mut self, now: u64, surroundings: &Surroundings) -> Tables {
        self.generation += 1;
        let config = self.config.clone();
        let mut tables = Tables::empty(self.local());
        tables.generation = self.generation;
        tables.served = config
            .gateway
            .prefixes
            .iter()
            .map(|prefix| (*prefix, ()))
            .collect();
        tables.inner_macs = surroundings.inner_macs;
        tables.icmp = surroundings.icmp;
        tables.lan = surroundings.lan.clone();
        let mut planned = 0;
        for (number, remote) in config.remotes.iter().enumerate() {
            let mut paths = Vec::with_capacity(remote.paths.len());
            for path in &remote.paths {
                let neighbour = surroundings.neighbours.get(&path.next_hop.ip());
                match self.plan_path(now, planned, remote, path, neighbour) {
                    Ok(path) => paths.push(path),
                    Err(problem) => self.give_up(now, planned, problem),
                }
                planned += 1;
            }
            let source = (remote.isd_as, HostAddr::from(remote.gateway.ip()));
            let counters = self.remotes[number].clone();
            tables.add_remote(number as u16, source, &remote.prefixes, paths, counters);
        }
        tables
    }

    fn plan_path(
        &mut self,
        now: u64,
        planned: usize,
        remote: &config::Remote,
        path: &config::Path,
        neighbour: Option<&Neighbour>,
    ) -> Result<Path, String> {
        let neighbour = neighbour.ok_or_else(|| {
            format!(
                "the next hop {} has no known link-layer address",
                path.next_hop.ip()
            )
        })?;
        let gateway = &self.config.gateway;
        let spec = PathSpec {
            id: 0,
            ends: Endpoints {
                local_isd_as: gateway.isd_as,
                local: SocketAddr::new(gateway.data_addr.ip(), path.source_port),
                remote_isd_as: remote.isd_as,
                remote: remote.gateway,
            },
            next_hop: NextHop {
                address: path.next_hop,
                source_mac: neighbour.interface_mac,
                destination_mac: neighbour.mac,
            },
            path_type: u8::from(!path.raw.is_empty()),
            path: &path.raw,
            session: remote.session,
            path_mtu: path.mtu.into(),
            link_mtu: neighbour.mtu,
            streams: Box::default(),
            counters: self.paths[planned].counters.clone(),
        };
        let mut made = Path::new(spec).map_err(|error: PathError| error.to_string())?;
        self.open_streams(now, planned, made.packer.capacity())?;
        let state = &mut self.paths[planned];
        state.problem = None;
        made.id = state.id;
        made.streams = state.streams.clone();
        Ok(made)
    }

    /// Sees to it that the path has streams for frames of this capacity.
    fn open_streams(&mut self, now: u64, planned: usize, capacity: usize) -> Result<(), String> {
        let state = &self.paths[planned];
        if state.capacity == capacity && !state.streams.is_empty() {
            return Ok(());
        }
        self.release(now, planned);
        let mut streams = Vec::with_capacity(self.workers);
        for worker in 0..self.workers {
            match self.streams.allocate(now, worker as u8, self.workers as u8) {
                Some(stream) => streams.push(stream),
                None => {
                    streams
                        .into_iter()
                        .for_each(|stream| self.streams.release(now, stream));
                    return Err("all stream ids are in use".into());
                }
            }
        }
        let state = &mut self.paths[planned];
        (state.streams, state.capacity, state.id) = (streams.into(), capacity, self.next_path);
        self.next_path += 1;
        Ok(())
    }

    fn give_up(&mut self, now: u64, planned: usize, problem: String) {
        self.release(now, planned);
        self.paths[planned].problem = Some(problem);
    }

    fn release(&mut self, now: u64, planned: usize) {
        for stream in std::mem::take(&mut self.paths[planned].streams) {
            self.streams.release(now, stream);
        }
    }
}

fn per_worker<T: Default>(workers: usize) -> Arc<[T]> {
    (0..workers).map(|_| T::default()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::config;

    const TEXT: &str = r#"
        [gateway]
        isd_as = "1-ff00:0:110"
        data_addr = "10.10.0.2:30056"
        prefixes = ["192.168.10.0/24"]
        [[remote]]
        isd_as = "1-ff00:0:111"
        gateway = "10.11.0.2:30056"
        prefixes = ["192.168.11.0/24"]
        [[remote.path]]
        raw = "00002000 0100123466000000 003f00000001010203040506 003f000200000708090a0b0c"
        next_hop = "10.10.0.1:30042"
        mtu = 1472
        [[remote.path]]
        raw = "00002000 0100123466000000 003f00000001010203040506 003f000200000708090a0b0d"
        next_hop = "10.10.0.9:30042"
        mtu = 1280
    "#;

    fn planner() -> Planner {
        let config = config::check(TEXT, "test.toml", &|_| {
            Err(std::io::ErrorKind::NotFound.into())
        })
        .expect("a valid configuration");
        Planner::new(Arc::new(config), 2)
    }

    fn neighbours(hops: &[&str]) -> Surroundings {
        let neighbour = Neighbour {
            interface_mac: [2; 6],
            mac: [4; 6],
            mtu: 1500,
        };
        let hops = hops
            .iter()
            .map(|hop| (hop.parse().expect("an address"), neighbour));
        Surroundings {
            neighbours: hops.collect(),
            ..Surroundings::default()
        }
    }

    #[test]
    fn only_paths_with_a_reachable_next_hop_are_used() {
        let mut planner = planner();
        assert_eq!(planner.next_hops().len(), 2);
        let tables = planner.plan(0, &neighbours(&[]));
        assert!(tables.remotes[0].paths.is_empty());
        assert!(
            planner.paths()[0]
                .problem
                .as_ref()
                .is_some_and(|text| text.contains("10.10.0.1"))
        );
        let tables = planner.plan(0, &neighbours(&["10.10.0.9"]));
        assert_eq!(tables.remotes[0].paths.len(), 1);
        assert_eq!(tables.paths[0].packer.capacity(), 1184);
        assert_eq!(planner.paths()[1].problem, None);
    }

    #[test]
    fn a_path_keeps_its_streams_until_its_frame_size_changes_or_it_is_lost() {
        let mut planner = planner();
        let both = neighbours(&["10.10.0.1", "10.10.0.9"]);
        let first = planner.plan(0, &both);
        let second = planner.plan(0, &both);
        assert_ne!(first.generation, second.generation);
        for (a, b) in first.paths.iter().zip(&second.paths) {
            assert_eq!((a.id, &a.streams), (b.id, &b.streams));
            assert_eq!((a.streams[0] % 2, a.streams[1] % 2), (0, 1));
        }
        let mut narrow = both.clone();
        narrow
            .neighbours
            .values_mut()
            .for_each(|neighbour| neighbour.mtu = 1400);
        let third = planner.plan(0, &narrow);
        assert_ne!(third.paths[0].id, second.paths[0].id);
        assert_ne!(third.paths[0].streams, second.paths[0].streams);
        assert_eq!(third.paths[1].id, second.paths[1].id);
    }
}
