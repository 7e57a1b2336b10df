//! `sig accelerate`: takes simple packets off a foreign gateway beside us, without its knowledge.
//!
//! The programs ([`sig_common::accelerate`]) watch and forward; [`learn`] makes of what they have seen what they forward by. When
//! this ends, in whatever way, the programs leave their devices and the gateway does all by itself again.

mod headers;
mod learn;
pub(crate) mod status;
#[cfg(test)]
mod tests;

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use sig_linux::{
    Error,
    bpf::{AcceleratorPrograms, Attached, Places, Sightings, monotonic_ns},
    link::{self, Link},
    netlink::Netlink,
    tunnel_pair::{MTUS, Owner, TunnelPair, TunnelPairConfig},
};
use sig_observe::socket::ControlSocket;

use learn::Learner;
use status::Status;

/// What is accelerated.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Device that frames leave and come in by.
    pub(crate) underlay: String,
    /// Tunnel device of the gateway.
    pub(crate) tunnel: String,
    /// Segments of TCP are limited to what fits a frame.
    pub(crate) clamp_mss: bool,
    /// Where the status can be asked for.
    pub(crate) socket: PathBuf,
}

/// How often devices and sessions are looked at.
const TICK: Duration = Duration::from_millis(100);

/// What the gateway had before the programs came is through by then.
const WATCH_FIRST: Duration = Duration::from_millis(500);

/// An accelerator.
pub(crate) struct Accelerator {
    options: Options,
    started: Instant,
    netlink: Netlink,
    state: Arc<Mutex<State>>,
}

/// What the status shows.
struct State {
    programs: AcceleratorPrograms,
    learner: Learner,
    /// What is waited for, if anything.
    waiting: Option<String>,
}

impl Accelerator {
    /// Loads the programs. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// Missing privileges, or a kernel that cannot do it.
    pub(crate) fn load(options: Options) -> Result<(Self, Sightings), Error> {
        let (programs, sightings) = AcceleratorPrograms::load()?;
        let accelerator = Self {
            netlink: Netlink::open().map_err(Error::doing("open a netlink socket"))?,
            options,
            started: Instant::now(),
            state: Arc::new(Mutex::new(State {
                programs,
                learner: Learner::default(),
                waiting: None,
            })),
        };
        Ok((accelerator, sightings))
    }

    /// Answers `sig accelerate status`, until the result is dropped.
    ///
    /// # Errors
    /// Another process listens there, or the socket cannot be made.
    pub(crate) fn listen(&self) -> std::io::Result<ControlSocket> {
        let (state, options, started) =
            (Arc::clone(&self.state), self.options.clone(), self.started);
        ControlSocket::listen(
            &self.options.socket,
            move || Ok(status(&mut lock(&state), &options, started)),
            || Err("an accelerator has no files to reload".to_owned()),
        )
    }

    /// Accelerates whenever both devices are there. Returns with an error only.
    ///
    /// # Errors
    /// A device that cannot be what it is said to be, or a kernel that cannot do it.
    pub(crate) async fn run(
        &self,
        sightings: &mut Sightings,
    ) -> Result<std::convert::Infallible, Error> {
        loop {
            let places = self.devices().await?;
            // An error is none if it came of a device that went meanwhile: that is waited for again.
            let segmenter = match self.segmenter(places).await {
                Ok(segmenter) => segmenter,
                Err(error) if self.find(places).await? => return Err(error),
                Err(_) => continue,
            };
            if let Err(error) = self.accelerate(places, &segmenter, sightings).await
                && self.find(places).await?
                && self.has(&segmenter).await?
            {
                return Err(error);
            }
            // It may have gone together with a device.
            if let Err(error) = segmenter.delete().await {
                tracing::debug!("{error}");
            }
            let mut state = self.lock();
            let State {
                programs, learner, ..
            } = &mut *state;
            learner.forget_all(programs)?;
            programs.forget_entrances()?;
        }
    }

    /// Waits for both devices.
    async fn devices(&self) -> Result<Places, Error> {
        loop {
            let mut missing = None;
            let mut found = [None, None];
            let names = [&self.options.underlay, &self.options.tunnel];
            for (name, found) in names.into_iter().zip(&mut found) {
                match link::find(&self.netlink, name).await? {
                    Some(link) if !link.up => missing = Some(format!("device {name} to come up")),
                    Some(link) if *name == self.options.tunnel && !MTUS.contains(&link.mtu) => {
                        missing = Some(format!(
                            "device {name} to have an MTU from {} to {}, not {}",
                            MTUS.start(),
                            MTUS.end(),
                            link.mtu
                        ));
                    }
                    Some(link) => *found = Some(link),
                    None => missing = Some(format!("device {name}")),
                }
            }
            if let [Some(underlay), Some(tunnel)] = found {
                self.lock().waiting = None;
                return places(&underlay, &tunnel);
            }
            let changed = {
                let mut state = self.lock();
                let changed = state.waiting != missing;
                state.waiting.clone_from(&missing);
                changed
            };
            if let (true, Some(missing)) = (changed, missing) {
                tracing::info!("waiting for {missing}; the gateway works alone until then");
            }
            tokio::time::sleep(TICK).await;
        }
    }

    async fn segmenter(&self, places: Places) -> Result<TunnelPair, Error> {
        TunnelPair::create(&TunnelPairConfig {
            name: format!("sig-acc{}", places.tunnel),
            queues: 1,
            mtu: places.tunnel_mtu,
            owner: Owner::Accelerator,
        })
        .await
    }

    /// Whether both devices are still as they were.
    async fn find(&self, places: Places) -> Result<bool, Error> {
        let underlay = link::by_index(&self.netlink, places.underlay).await?;
        let tunnel = link::by_index(&self.netlink, places.tunnel).await?;
        Ok(underlay.is_some_and(|link| link.up)
            && tunnel.is_some_and(|link| link.up && link.mtu == places.tunnel_mtu))
    }

    /// Whether the segmenter still works: all packets into the tunnel pass it.
    async fn has(&self, segmenter: &TunnelPair) -> Result<bool, Error> {
        let link = link::by_index(&self.netlink, segmenter.host().ifindex).await?;
        Ok(link.is_some_and(|link| link.up))
    }

    /// Accelerates until a device goes or changes.
    async fn accelerate(
        &self,
        places: Places,
        segmenter: &TunnelPair,
        sightings: &mut Sightings,
    ) -> Result<(), Error> {
        let _attached: Attached = self.lock().programs.attach(places, segmenter)?;
        let attached_at = Instant::now();
        let mut enabled = None;
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let underlay_mtu = link::by_index(&self.netlink, places.underlay)
            .await?
            .map_or(0, |link| link.mtu);
        let (underlay, tunnel) = (&self.options.underlay, &self.options.tunnel);
        tracing::info!(underlay, tunnel, "watching the gateway");
        loop {
            tokio::select! {
                seen = sightings.next(|sighting| self.take(sighting)) => {
                    seen.map_err(Error::doing("read what the programs have seen"))?;
                }
                _ = tick.tick() => {
                    if !self.find(places).await? {
                        tracing::info!(underlay, tunnel, "a device went away or down, or changed");
                        return Ok(());
                    }
                    if !self.has(segmenter).await? {
                        let name = &segmenter.host().name;
                        tracing::warn!("{name}, which belongs to this accelerator, was deleted or set down; it is made anew");
                        return Ok(());
                    }
                    let mut state = self.lock();
                    let State { programs, learner, .. } = &mut *state;
                    learner.tick(programs, monotonic_ns());
                    let size = match self.options.clamp_mss {
                        true => learner.frame_size(programs, underlay_mtu),
                        false => 0,
                    };
                    if attached_at.elapsed() > WATCH_FIRST && enabled != Some(size) {
                        programs.enable(places, segmenter, size)?;
                        enabled = Some(size);
                    }
                }
            }
        }
    }

    fn take(&self, sighting: &sig_common::accelerate::Sighting) {
        let mut state = self.lock();
        let State {
            programs, learner, ..
        } = &mut *state;
        learner.take(programs, sighting);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn places(underlay: &Link, tunnel: &Link) -> Result<Places, Error> {
    if underlay.mac.is_none() {
        return Err(Error::Refused(format!(
            "{} is no Ethernet device; name the one that SCION frames leave by with --underlay",
            underlay.name
        )));
    }
    if tunnel.mac.is_some() {
        return Err(Error::Refused(format!(
            "{} is an Ethernet device, not a TUN device; name the tunnel device of the gateway with --tunnel (a gateway of \
             `sig run` has a fast path of its own)",
            tunnel.name
        )));
    }
    Ok(Places {
        underlay: underlay.ifindex,
        tunnel: tunnel.ifindex,
        tunnel_mtu: tunnel.mtu,
    })
}

fn status(state: &mut State, options: &Options, started: Instant) -> Status {
    let State {
        programs,
        learner,
        waiting,
    } = state;
    status::read(programs, learner, waiting.as_deref(), options, started)
}
