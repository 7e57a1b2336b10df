//! `sig run`: the gateway, in the foreground until a signal ends it.

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use tokio::{sync::mpsc, task::JoinSet};

use super::{
    Failure,
    signals::{self, Request, Signals},
    supervise::supervise,
};
use crate::control::{
    config::{self, Config},
    configured,
    discovery::{self, Discovery, Found, Policies},
    host::{Host, HostHandle},
    operator::{Remotes, Running},
};
use sig_core::{
    problem::{Errors, Problem},
    status::Status,
};
use sig_observe::{
    http::{Server, Service},
    log::{self, LogControl},
    operator::Operator,
    socket::ControlSocket,
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
    let files = Files::read(&args.config).map_err(Failure::Refused)?;
    let (log, _flush) = log::start(&files.config.log);
    files.log_warnings();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        // The workers have threads of their own; the control plane has little to do.
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("cannot start the runtime: {error}")))?;
    supervise(runtime, gateway(&args.config, files, log)).map_err(Failure::Failed)
}

/// The configuration and the policy files that it names.
struct Files {
    config: Config,
    /// Where the remotes are to be found.
    policies: Option<Policies>,
    warnings: Vec<Problem>,
}

impl Files {
    fn read(file: &Path) -> Result<Self, String> {
        let refused = |errors: Errors| errors.to_string();
        let config = config::load(file).map_err(refused)?;
        let policies = match &config.control {
            Some(control) => Some(Policies::load(control, &config.gateway).map_err(refused)?),
            None => None,
        };
        let (policies, more) = policies.unzip();
        let mut warnings = config.warnings().to_vec();
        warnings.extend(more.into_iter().flatten());
        Ok(Files {
            config,
            policies,
            warnings,
        })
    }

    fn log_warnings(&self) {
        for warning in &self.warnings {
            tracing::warn!("{warning}");
        }
    }
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
    async fn start(
        config: Config,
        found: Option<(Found, Policies)>,
    ) -> Result<Self, discovery::Error> {
        match found {
            Some((found, policies)) => Discovery::start(config, policies, found)
                .await
                .map(Self::Finding),
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

async fn gateway(file: &Path, files: Files, log: LogControl) -> Result<(), String> {
    // Signals are caught before there is anything to leave behind.
    let mut signals = Signals::catch().map_err(|error| format!("cannot catch signals: {error}"))?;
    let id = files.config.gateway.id.clone();
    tracing::info!(id, "starting");
    let (door, mut asked) = Door::new();
    let door = Arc::new(door);
    let socket = door.open(&files.config)?;
    let Some((files, found)) = find(file, files, &log, &door, &mut signals, &mut asked).await
    else {
        return Ok(());
    };
    let config = files.config;
    door.set_stage("setting up interfaces and programs");
    let mut reload_later = false;
    let gateway = {
        let found = found.zip(files.policies);
        let mut starting = std::pin::pin!(Gateway::start(config.clone(), found));
        loop {
            tokio::select! {
                started = &mut starting => break started.map_err(|error| error.to_string())?,
                wish = signals.next() => match wish {
                    Request::End => return Ok(()),
                    Request::Reload => reload_later = true,
                },
            }
        }
    };
    let running = Arc::new(gateway.running(file, config.clone(), log));
    door.pass_on_to(&running);
    if reload_later {
        let running = Arc::clone(&running);
        tokio::spawn(signals::reload(move || running.reload()));
    }
    let outcome = match serve(&config, &running).await {
        Ok(servers) => {
            let outcome = until_the_end(&gateway, &running, &mut signals, &mut asked, &id).await;
            drop(servers);
            outcome
        }
        Err(error) => Err(error),
    };
    if outcome.is_ok() {
        tracing::info!(id, "stopping");
    }
    drop((socket, door, running));
    gateway.stop().await.map_err(|error| error.to_string())?;
    outcome
}

/// Waits for the SCION daemon, where one is needed. Who changes the files meanwhile may have them read again: the
/// daemon's address may be what is wrong. `None` if the gateway is to end.
async fn find(
    file: &Path,
    mut files: Files,
    log: &LogControl,
    door: &Door,
    signals: &mut Signals,
    asked: &mut mpsc::Receiver<Reload>,
) -> Option<(Files, Option<Found>)> {
    loop {
        let Some(control) = &files.config.control else {
            return Some((files, None));
        };
        let waiting = Found::wait(control, |error| {
            door.set_stage(&format!("waiting for the SCION daemon: {error}"));
        });
        let reload = tokio::select! {
            found = waiting => return Some((files, Some(found))),
            wish = signals.next() => match wish {
                Request::End => return None,
                Request::Reload => None,
            },
            Some(reload) = asked.recv() => Some(reload),
        };
        let result = match Files::read(file) {
            Ok(read) => {
                read.log_warnings();
                files = read;
                log.set(files.config.log.level)
                    .map(|()| "re-reading all files and querying the daemon again\n".to_owned())
            }
            Err(problems) => Err(problems),
        };
        match reload {
            // The control socket logs it.
            Some(reload) => reload.answer(result),
            None => log::reloaded("SIGHUP", &result),
        }
    }
}

/// What the control socket answers: before the gateway runs, what it waits for.
struct Door {
    running: OnceLock<Arc<Running>>,
    stage: Mutex<String>,
    reloads: mpsc::Sender<Reload>,
}

/// Somebody asks for a reload before the gateway runs.
struct Reload(std::sync::mpsc::Sender<Result<String, String>>);

impl Reload {
    fn answer(self, result: Result<String, String>) {
        // Who asked may have gone.
        let _ = self.0.send(result);
    }
}

impl Door {
    fn new() -> (Self, mpsc::Receiver<Reload>) {
        let (reloads, asked) = mpsc::channel(1);
        let door = Door {
            running: OnceLock::new(),
            stage: Mutex::new("reading its files".to_owned()),
            reloads,
        };
        (door, asked)
    }

    fn open(self: &Arc<Self>, config: &Config) -> Result<ControlSocket, String> {
        let socket = &config.gateway.status_socket;
        let (asked, reloaded) = (Arc::clone(self), Arc::clone(self));
        ControlSocket::listen(socket, move || asked.status(), move || reloaded.reload()).map_err(
            |error| {
                let socket = socket.display();
                format!("{socket}: cannot listen for `sig status`: {error}")
            },
        )
    }

    fn set_stage(&self, stage: &str) {
        stage.clone_into(&mut self.stage.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn pass_on_to(&self, running: &Arc<Running>) {
        // There is one gateway only.
        let _ = self.running.set(Arc::clone(running));
    }

    fn status(&self) -> Result<Status, String> {
        match self.running.get() {
            Some(running) => Ok(running.status()),
            None => {
                let stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
                Err(format!("the gateway is starting: {stage}"))
            }
        }
    }

    fn reload(&self) -> Result<String, String> {
        if let Some(running) = self.running.get() {
            return running.reload();
        }
        let (answer, answered) = std::sync::mpsc::channel();
        let gone = || "the gateway ends".to_owned();
        self.reloads
            .blocking_send(Reload(answer))
            .map_err(|_| gone())?;
        answered.recv().map_err(|_| gone())?
    }
}

/// Opens the HTTP servers.
async fn serve(config: &Config, running: &Arc<Running>) -> Result<Vec<Server>, String> {
    let mut servers = Vec::new();
    for (service, listen) in [
        (Service::StatusPages, config.observe.prometheus),
        (Service::Api, config.observe.api),
    ] {
        if let Some(listen) = listen {
            let server = Server::listen(service, listen, running.clone()).await;
            servers.push(server.map_err(|error| error.to_string())?);
        }
    }
    Ok(servers)
}

async fn until_the_end(
    gateway: &Gateway,
    running: &Arc<Running>,
    signals: &mut Signals,
    asked: &mut mpsc::Receiver<Reload>,
    id: &str,
) -> Result<(), String> {
    let mut announced = false;
    loop {
        tokio::select! {
            () = gateway.ready(), if !announced => {
                announced = true;
                // As the router does, for scripts that wait for it; nobody has to read it.
                let mut out = io::stdout();
                let _ = writeln!(out, "gateway is ready").and_then(|()| out.flush());
                tracing::info!(id, "ready");
            }
            reason = gateway.failed() => return Err(reason),
            wish = signals.next() => match wish {
                Request::End => return Ok(()),
                Request::Reload => {
                    let running = Arc::clone(running);
                    // The next signal may be to end meanwhile.
                    tokio::spawn(signals::reload(move || running.reload()));
                },
            },
            // Asked for just before the gateway ran.
            Some(reload) = asked.recv() => {
                let running = Arc::clone(running);
                tokio::task::spawn_blocking(move || reload.answer(running.reload()));
            }
        }
    }
}
