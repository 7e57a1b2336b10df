//! What can go wrong, and how it is put right again.

use std::{
    fmt,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};
use rand::{Rng, rngs::StdRng};

use crate::{
    network::{ASES, LINKS, Network},
    relay::Weather,
};

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    LinkCut,
    LinkLoses,
    LinkDuplicates,
    LinkDamages,
    LinkDelays,
    LinkReorders,
    GatewayKilled,
    GatewayEnded,
    GatewayStopped,
    RouterKilled,
    RouterStopped,
    DaemonAway,
    ControlServiceAway,
    Reload,
    BrokenReload,
    ChangedReload,
    LanDown,
    LanGone,
    LanMtu,
    LanAddresses,
    UnderlayDown,
    UnderlayAddress,
    Flood,
}

impl Kind {
    pub(crate) const ALL: [Self; 23] = [
        Self::LinkCut,
        Self::LinkLoses,
        Self::LinkDuplicates,
        Self::LinkDamages,
        Self::LinkDelays,
        Self::LinkReorders,
        Self::GatewayKilled,
        Self::GatewayEnded,
        Self::GatewayStopped,
        Self::RouterKilled,
        Self::RouterStopped,
        Self::DaemonAway,
        Self::ControlServiceAway,
        Self::Reload,
        Self::BrokenReload,
        Self::ChangedReload,
        Self::LanDown,
        Self::LanGone,
        Self::LanMtu,
        Self::LanAddresses,
        Self::UnderlayDown,
        Self::UnderlayAddress,
        Self::Flood,
    ];

    /// Its words in the report.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::LinkCut => "link cut",
            Self::LinkLoses => "link loses",
            Self::LinkDuplicates => "link duplicates",
            Self::LinkDamages => "link damages",
            Self::LinkDelays => "link delays",
            Self::LinkReorders => "link reorders",
            Self::GatewayKilled => "gateway killed",
            Self::GatewayEnded => "gateway ended",
            Self::GatewayStopped => "gateway stopped (SIGSTOP)",
            Self::RouterKilled => "router killed",
            Self::RouterStopped => "router stopped (SIGSTOP)",
            Self::DaemonAway => "daemon away",
            Self::ControlServiceAway => "control service away",
            Self::Reload => "reload, nothing changed",
            Self::BrokenReload => "reload of a broken policy",
            Self::ChangedReload => "reload of a changed policy",
            Self::LanDown => "LAN interface down",
            Self::LanGone => "LAN interface made anew",
            Self::LanMtu => "LAN MTU changed",
            Self::LanAddresses => "LAN addresses removed",
            Self::UnderlayDown => "underlay interface down",
            Self::UnderlayAddress => "underlay address removed",
            Self::Flood => "flood of a stranger",
        }
    }

    /// Nothing may be lost.
    pub(crate) const fn is_harmless(self) -> bool {
        matches!(
            self,
            Self::DaemonAway
                | Self::ControlServiceAway
                | Self::Reload
                | Self::BrokenReload
                | Self::ChangedReload
                | Self::LinkDuplicates
        )
    }

    /// Nothing may come in another order than it was sent in.
    pub(crate) const fn keeps_order(self) -> bool {
        // Hosts cut long datagrams, and fragments do not show which flow they are of.
        !matches!(self, Self::LinkReorders | Self::LanMtu)
    }

    const fn is_of_link(self) -> bool {
        matches!(
            self,
            Self::LinkCut
                | Self::LinkLoses
                | Self::LinkDuplicates
                | Self::LinkDamages
                | Self::LinkDelays
                | Self::LinkReorders
        )
    }

    fn longest(self) -> Duration {
        Duration::from_millis(match self {
            Self::DaemonAway | Self::ControlServiceAway => 12_000,
            Self::Reload | Self::BrokenReload => 100,
            _ => 4_000,
        })
    }
}

/// Something that goes wrong for some time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    /// A link or an AS.
    place: usize,
    weather: Weather,
    pub(crate) begins: Duration,
    pub(crate) lasts: Duration,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.kind.is_of_link() {
            let [a, b] = LINKS[self.place].map(|(place, _)| letter(place));
            format!("{a}-{b} {}", self.place)
        } else {
            letter(self.place).to_string()
        };
        let (begins, lasts) = (self.begins.as_secs_f64(), self.lasts.as_secs_f64());
        write!(
            f,
            "{} {place} from {begins:.1} s for {lasts:.1} s",
            self.kind.name()
        )
    }
}

fn letter(place: usize) -> char {
    char::from(b'a' + place as u8)
}

impl Fault {
    /// One of these kinds.
    pub(crate) fn random(kinds: &[Kind], rng: &mut StdRng) -> Self {
        let kind = kinds[rng.random_range(0..kinds.len())];
        let places = if kind.is_of_link() { LINKS.len() } else { ASES };
        let place = rng.random_range(0..places);
        let mut share = |most: f64| most * rng.random_range(0.1..1.0);
        let good = Weather::default();
        let weather = match kind {
            Kind::LinkCut => Weather { cut: true, ..good },
            Kind::LinkLoses => Weather {
                lost: share(0.3),
                ..good
            },
            Kind::LinkDuplicates => Weather {
                duplicated: share(0.5),
                ..good
            },
            Kind::LinkDamages => Weather {
                damaged: share(0.2),
                ..good
            },
            Kind::LinkDelays => Weather {
                delay: Duration::from_millis(100).mul_f64(share(1.0)),
                ..good
            },
            Kind::LinkReorders => Weather {
                overtaken: share(0.3),
                spread: Duration::from_millis(40).mul_f64(share(1.0)),
                ..good
            },
            _ => good,
        };
        Self {
            kind,
            place,
            weather,
            begins: Duration::from_secs(2).mul_f64(rng.random()),
            lasts: kind.longest().mul_f64(rng.random_range(0.02..1.0)),
        }
    }

    /// Whether two faults are about the same thing, so that the end of one would end the other.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        self.place == other.place && self.kind.is_of_link() == other.kind.is_of_link()
    }

    pub(crate) fn begin(&self, network: &mut Network) -> Result<()> {
        if self.kind.is_of_link() {
            network.relay.set(self.place, self.weather);
            return Ok(());
        }
        let own = &mut network.ases[self.place];
        match self.kind {
            Kind::GatewayKilled => own.end_gateway(libc::SIGKILL)?,
            Kind::GatewayEnded => own.end_gateway(libc::SIGTERM)?,
            Kind::GatewayStopped => own.gateway_process()?.signal(libc::SIGSTOP),
            Kind::RouterKilled => own.end_router(libc::SIGKILL)?,
            Kind::RouterStopped => own.router_process()?.signal(libc::SIGSTOP),
            Kind::DaemonAway => own.daemon.stop(),
            Kind::ControlServiceAway => own.control_service.stop(),
            Kind::Reload => {
                let output = own.reload()?;
                ensure!(output.status.success(), "a reload was refused: {output:?}");
            }
            Kind::BrokenReload => {
                own.break_policy()?;
                let output = own.reload()?;
                own.write_policies(1)?;
                ensure!(
                    !output.status.success(),
                    "a broken policy was taken: {output:?}"
                );
            }
            Kind::ChangedReload => {
                own.write_policies(2)?;
                let output = own.reload()?;
                ensure!(output.status.success(), "a reload was refused: {output:?}");
            }
            Kind::LanDown => drop(own.gateway.ip("link set lan down")?),
            Kind::LanGone => drop(own.gateway.ip("link delete lan")?),
            Kind::LanMtu => set_lan_mtu(network, self.place, LESS_MTU)?,
            Kind::LanAddresses => drop(own.gateway.ip("address flush dev lan scope global")?),
            Kind::UnderlayDown => drop(own.gateway.ip("link set underlay down")?),
            Kind::UnderlayAddress => {
                let ip = own.data_address().ip();
                own.gateway
                    .ip(&format!("address delete {ip}/24 dev underlay"))?;
            }
            Kind::Flood => flood(network, self.place, self.lasts)?,
            _ => bail!("{self} does not begin"),
        }
        Ok(())
    }

    pub(crate) fn end(&self, network: &mut Network) -> Result<()> {
        if self.kind.is_of_link() {
            network.relay.set(self.place, Weather::default());
            return Ok(());
        }
        let own = &mut network.ases[self.place];
        match self.kind {
            Kind::GatewayKilled | Kind::GatewayEnded => own.start_gateway()?,
            Kind::GatewayStopped => own.gateway_process()?.signal(libc::SIGCONT),
            Kind::RouterKilled => own.start_router()?,
            Kind::RouterStopped => own.router_process()?.signal(libc::SIGCONT),
            Kind::DaemonAway => own.daemon.restart()?,
            Kind::ControlServiceAway => own.control_service.restart()?,
            Kind::ChangedReload => {
                own.write_policies(1)?;
                let output = own.reload()?;
                ensure!(output.status.success(), "a reload was refused: {output:?}");
            }
            Kind::LanDown => {
                own.gateway.ip("link set lan up")?;
                own.set_lan_addresses()?;
            }
            Kind::LanGone => own.make_lan()?,
            Kind::LanMtu => set_lan_mtu(network, self.place, USUAL_MTU)?,
            Kind::LanAddresses => own.set_lan_addresses()?,
            Kind::UnderlayDown => drop(own.gateway.ip("link set underlay up")?),
            Kind::UnderlayAddress => {
                let ip = own.data_address().ip();
                own.gateway
                    .ip(&format!("address replace {ip}/24 dev underlay"))?;
            }
            _ => {}
        }
        Ok(())
    }
}

/// Of a LAN, bytes.
const USUAL_MTU: u32 = 1500;
const LESS_MTU: u32 = 1300;
/// Datagrams a second.
const FLOOD: u32 = 5_000;

/// A host of the underlay that is no border router sends what looks like the start of a frame to a gateway.
fn flood(network: &Network, place: usize, lasts: Duration) -> Result<()> {
    let own = &network.ases[place];
    let stranger = Ipv4Addr::new(10, 10 + place as u8, 0, 9);
    own.router
        .ip(&format!("address replace {stranger}/24 dev inside"))?;
    let socket = own
        .router
        .run(|| UdpSocket::bind(SocketAddr::new(stranger.into(), 0)))??;
    let to = own.data_address();
    thread::Builder::new()
        .name("stranger".to_owned())
        .spawn(move || {
            let start = Instant::now();
            let mut sent: u32 = 0;
            while start.elapsed() < lasts {
                let due = (start.elapsed().as_secs_f64() * f64::from(FLOOD)) as u32;
                for number in sent..due {
                    let mut bytes = [0; 200];
                    bytes[4..8].copy_from_slice(&number.to_be_bytes());
                    let _ = socket.send_to(&bytes, to);
                }
                sent = due;
                thread::sleep(Duration::from_millis(1));
            }
        })?;
    Ok(())
}

/// Changes the MTU of a LAN.
fn set_lan_mtu(network: &Network, place: usize, mtu: u32) -> Result<()> {
    let own = &network.ases[place];
    for netns in [&own.gateway, &*own.client] {
        netns.ip(&format!("link set lan mtu {mtu}"))?;
    }
    if mtu == USUAL_MTU {
        // What the clients learned meanwhile they would keep for ten minutes.
        for client in network.ases.iter().map(|own| &own.client) {
            for family in ["-4", "-6"] {
                client.exec(&format!("ip {family} route flush cache"))?;
            }
        }
    }
    Ok(())
}
