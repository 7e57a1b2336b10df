//! `sig run`: the gateway, in the foreground until a signal ends it.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::task::JoinSet;

use super::{
    Failure,
    signals::{self, Signals, Wish},
};
use crate::{
    control::{
        config::{self, Config},
        configured,
        discovery::{self, Discovery, Policies},
        host::{Host, HostHandle},
        operator::{Remotes, Running},
    },
    observe::{
        http::{Server, Service},
        log::{self, LogControl},
        operator::Operator,
        socket::ControlSocket,
    },
};

/// Run the gateway in the foreground. SIGTERM or SIGINT ends it and leaves the host's network as it was;
/// SIGHUP reads the policy files again.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Configuration file; "sig config sample" prints one.
    #[arg(long, value_name = "FILE")]
    pub(super) config: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let refused = |errors: crate::problem::Errors| Failure::Refused(errors.to_string());
    let config = config::load(&args.config).map_err(refused)?;
    let policies = match &config.control {
        Some(control) => Some(Policies::load(control, &config.gateway).map_err(refused)?),
        None => None,
    };
    let log = log::start(&config.log);
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    let policies = policies.map(|(policies, warnings)| {
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        policies
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        // The workers have threads of their own; the control plane has little to do.
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("cannot start the runtime: {error}")))?;
    runtime
        .block_on(gateway(&args.config, config, policies, log))
        .map_err(Failure::Failed)
}

/// The gateway, whichever way it finds its remotes.
enum Gateway {
    Configured {
        host: Host,
        config: Box<Config>,
        remotes: configured::Handle,
        /// Ends with it.
        following: JoinSet<()>,
    },
    Finding(Discovery),
}

impl Gateway {
    async fn start(config: Config, policies: Option<Policies>) -> Result<Self, discovery::Error> {
        match policies {
            Some(policies) => Discovery::start(config, policies).await.map(Self::Finding),
            None => {
                let host = Host::start(config.clone()).await?;
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

    fn running(&self, file: &Path, read: Config, log: LogControl) -> Running {
        let (remotes, in_force) = match self {
            Self::Configured {
                config, remotes, ..
            } => (Remotes::Configured(remotes.clone()), &**config),
            Self::Finding(discovery) => (Remotes::Found(discovery.handle()), discovery.config()),
        };
        let configs = (read, in_force.clone());
        Running::new(self.host(), remotes, file.to_owned(), configs, log)
    }

    async fn ready(&self) {
        match self {
            Self::Configured { host, .. } => host.ready().await,
            Self::Finding(discovery) => discovery.ready().await,
        }
    }

    async fn failed(&self) -> String {
        match self {
            Self::Configured { host, .. } => host.failed().await,
            Self::Finding(discovery) => discovery.failed().await,
        }
    }

    async fn stop(self) -> Result<(), discovery::Error> {
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
                Ok(host.stop().await?)
            }
            Self::Finding(discovery) => discovery.stop().await,
        }
    }
}

async fn gateway(
    file: &Path,
    config: Config,
    policies: Option<Policies>,
    log: LogControl,
) -> Result<(), String> {
    // Signals are caught before there is anything to leave behind.
    let mut signals = Signals::catch().map_err(|error| format!("cannot catch signals: {error}"))?;
    let id = config.gateway.id.clone();
    tracing::info!(id, "starting");
    let gateway = {
        // Waiting for the SCION daemon can take long.
        let mut starting = std::pin::pin!(Gateway::start(config.clone(), policies));
        loop {
            tokio::select! {
                started = &mut starting => break started.map_err(|error| error.to_string())?,
                signal = signals.next() => if signal == Wish::End { return Ok(()) },
            }
        }
    };
    let running = Arc::new(gateway.running(file, config.clone(), log));
    let outcome = match serve(&config, &running).await {
        Ok(servers) => {
            let outcome = until_the_end(&gateway, &running, &mut signals, &id).await;
            drop(servers);
            outcome
        }
        Err(error) => Err(error),
    };
    if outcome.is_ok() {
        tracing::info!(id, "stopping");
    }
    drop(running);
    gateway.stop().await.map_err(|error| error.to_string())?;
    outcome
}

/// Opens everything by which operators look at the gateway.
async fn serve(
    config: &Config,
    running: &Arc<Running>,
) -> Result<(ControlSocket, Vec<Server>), String> {
    let socket = &config.gateway.status_socket;
    let (asked, reloaded) = (running.clone(), running.clone());
    let control = ControlSocket::listen(socket, move || asked.status(), move || reloaded.reload());
    let control = control.map_err(|error| {
        format!(
            "{}: cannot listen for `sig status`: {error}",
            socket.display()
        )
    })?;
    let mut servers = Vec::new();
    for (service, address) in [
        (Service::StatusPages, config.observe.prometheus),
        (Service::Api, config.observe.api),
    ] {
        if let Some(address) = address {
            let server = Server::listen(service, address, running.clone()).await;
            servers.push(server.map_err(|error| error.to_string())?);
        }
    }
    Ok((control, servers))
}

async fn until_the_end(
    gateway: &Gateway,
    running: &Arc<Running>,
    signals: &mut Signals,
    id: &str,
) -> Result<(), String> {
    let mut announced = false;
    loop {
        tokio::select! {
            () = gateway.ready(), if !announced => {
                announced = true;
                tracing::info!(id, "ready");
            }
            reason = gateway.failed() => return Err(reason),
            wish = signals.next() => match wish {
                Wish::End => return Ok(()),
                Wish::Reload => {
                    let running = Arc::clone(running);
                    signals::reload(move || running.reload()).await;
                },
            },
        }
    }
}
