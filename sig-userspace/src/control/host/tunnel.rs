//! The tunnel device, of either kind.

use sig_linux::{
    tun::Tun,
    tunnel_pair::{Owner, TunnelPair, TunnelPairConfig},
};

use super::Error;
use crate::control::config::Config;

pub(super) enum Tunnel {
    Pair(TunnelPair),
    Tun(Tun),
}

impl Tunnel {
    pub(super) async fn create(config: &Config, has_tun: bool) -> Result<Self, Error> {
        let settings = TunnelPairConfig {
            name: config.tunnel.name.clone(),
            queues: config.dataplane.workers.into(),
            mtu: config.tunnel.mtu.into(),
            owner: Owner::Gateway,
        };
        Ok(if has_tun {
            Self::Tun(Tun::create(&settings).await?)
        } else {
            Self::Pair(TunnelPair::create(&settings).await?)
        })
    }

    /// Its index.
    pub(super) fn ifindex(&self) -> u32 {
        match self {
            Self::Pair(pair) => pair.host().ifindex,
            Self::Tun(tun) => tun.ifindex(),
        }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Pair(pair) => &pair.host().name,
            Self::Tun(tun) => tun.name(),
        }
    }

    pub(super) const fn pair(&self) -> Option<&TunnelPair> {
        match self {
            Self::Pair(pair) => Some(pair),
            Self::Tun(_) => None,
        }
    }

    /// Destination, then source, of frames to the kernel.
    pub(super) fn macs(&self) -> [u8; 12] {
        let mut macs = [0; 12];
        if let Self::Pair(pair) = self {
            macs[..6].copy_from_slice(&pair.host().mac);
            macs[6..].copy_from_slice(&pair.peer().mac);
        }
        macs
    }

    pub(super) async fn delete(self) -> Result<(), Error> {
        match self {
            Self::Pair(pair) => pair.delete().await?,
            Self::Tun(tun) => tun.delete().await?,
        }
        Ok(())
    }
}
