//! What runs, whichever way the gateway finds its remotes.

use std::path::PathBuf;

use tokio::task::JoinSet;

use super::{Error, LogControl};
use crate::control::{
    config::Config,
    configured,
    discovery::{Discovery, Found, Policies},
    host::{Host, HostHandle},
    operator::{Remotes, Running},
    rules::Rules,
};

pub(super) enum Parts {
    Configured {
        host: Host,
        config: Box<Config>,
        remotes: configured::Handle,
        /// Ends with it.
        following: JoinSet<()>,
    },
    Finding(Discovery),
}

impl Parts {
    pub(super) async fn start(
        config: Config,
        rules: Rules,
        found: Option<(Found, Policies)>,
    ) -> Result<Self, Error> {
        match found {
            Some((found, policies)) => Discovery::start(config, rules, policies, found)
                .await
                .map(Self::Finding),
            None => {
                let host = Host::start_with(config.clone(), rules, Vec::new()).await?;
                let (remotes, following) = configured::follow(host.handle(), &config);
                let following = JoinSet::from_iter([following]);
                Ok(Self::Configured {
                    host,
                    config: Box::new(config),
                    remotes,
                    following,
                })
            }
        }
    }

    fn host(&self) -> HostHandle {
        match self {
            Self::Configured { host, .. } => host.handle(),
            Self::Finding(discovery) => discovery.host(),
        }
    }

    pub(super) fn running(
        &self,
        file: Option<PathBuf>,
        first: Config,
        log: Option<LogControl>,
    ) -> Running {
        let (remotes, in_force) = match self {
            Self::Configured {
                config, remotes, ..
            } => (Remotes::Configured(remotes.clone()), &**config),
            Self::Finding(discovery) => (Remotes::Found(discovery.handle()), discovery.config()),
        };
        Running::new(self.host(), remotes, file, (first, in_force.clone()), log)
    }

    /// Waits until the control plane answers, and returns how often each worker has looked at its ports.
    pub(super) async fn rounds(&self) -> Vec<u64> {
        if let Self::Finding(discovery) = self {
            discovery.answers().await;
        }
        self.host().rounds()
    }

    pub(super) async fn ready(&self) {
        match self {
            Self::Configured { host, .. } => host.ready().await,
            Self::Finding(discovery) => discovery.ready().await,
        }
    }

    pub(super) async fn failed(&self) -> String {
        match self {
            Self::Configured { host, .. } => host.failed().await,
            Self::Finding(discovery) => discovery.failed().await,
        }
    }

    pub(super) async fn stop(self) -> Result<(), Error> {
        match self {
            Self::Configured {
                host,
                remotes,
                mut following,
                ..
            } => {
                // The workers end with the last handle.
                following.shutdown().await;
                drop(remotes);
                host.stop().await
            }
            Self::Finding(discovery) => discovery.stop().await,
        }
    }
}
