//! A whole gateway on the interfaces of this machine, as `sig run` is one.
//!
//! [`Builder::start`] makes the tunnel device, the AF_XDP ports, the BPF programs and the routes, finds the remotes or takes
//! those of the configuration, and opens the sockets and servers that the configuration names. It installs no signal
//! handler and no logger: events go to [`tracing`]. Nothing is left behind, however the process ends.
//!
//! ```no_run
//! use sig::gateway::Gateway;
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let gateway = Gateway::load("/etc/sig/gateway.toml")?.start().await?;
//! tokio::select! {
//!     () = gateway.ready() => println!("{:#?}", gateway.status().remotes),
//!     error = gateway.failed() => return Err(error.into()),
//! }
//! println!("{}", gateway.reload().await?);
//! gateway.stop().await?;
//! # Ok(())
//! # }
//! ```

mod error;
mod handle;
mod parts;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::runtime::{Handle as Runtime, RuntimeFlavor};
use tokio::sync::mpsc;

use crate::control::{
    config::{self, Config},
    discovery::{Found, Policies},
    host::awaited,
    operator::Running,
    rules::Rules,
};
pub use error::Error;
use handle::{EndOnDrop, Request};
pub use handle::{Handle, NotRunning, ReloadError};
use parts::Parts;
pub use sig_core::status::Status;
use sig_core::{
    problem::{Errors, Problem},
    task::Task,
};
pub use sig_observe::log::LogControl;
use sig_observe::{
    http::{Server, Service},
    operator::Operator as _,
    service::ServiceManager,
    socket::ControlSocket,
};

/// A gateway that can be started: its configuration, and the policy files that this names, have been read and checked.
pub struct Builder {
    files: Files,
    log: Option<LogControl>,
    handle: Handle,
    requests: mpsc::Receiver<Request>,
}

/// A running gateway. [`Gateway::stop`] ends it in order; dropping it, or the process, leaves nothing behind either.
pub struct Gateway {
    // In the order in which they end.
    _servers: Vec<Server>,
    _socket: ControlSocket,
    requests: Task,
    running: Arc<Running>,
    handle: EndOnDrop,
    parts: Parts,
}

/// The configuration and the policy files that it names.
struct Files {
    /// Where the configuration is read again; `None`: it was given.
    file: Option<PathBuf>,
    config: Config,
    /// Where the remotes are to be found.
    policies: Option<Policies>,
    rules: Rules,
    warnings: Vec<Problem>,
}

impl Files {
    fn new(file: Option<PathBuf>, config: Config) -> Result<Self, Errors> {
        let policies = match &config.control {
            Some(control) => Some(Policies::load(control, &config.gateway)?),
            None => None,
        };
        let (policies, more) = policies.unzip();
        let mut warnings = config.warnings().to_vec();
        warnings.extend(more.into_iter().flatten());
        let (rules, more) = Rules::load(&config)?;
        warnings.extend(more);
        Ok(Files {
            file,
            config,
            policies,
            rules,
            warnings,
        })
    }

    fn read_again(&self) -> Result<Self, Errors> {
        let config = match &self.file {
            Some(file) => config::load(file)?,
            None => self.config.clone(),
        };
        Files::new(self.file.clone(), config)
    }

    fn log_warnings(&self) {
        for warning in &self.warnings {
            tracing::warn!("{warning}");
        }
    }
}

impl Gateway {
    /// Begins a gateway with the configuration of this file.
    ///
    /// # Errors
    ///
    /// All problems of the file, or of the policy files that it names.
    pub fn load(file: impl AsRef<Path>) -> Result<Builder, Errors> {
        let file = file.as_ref();
        Files::new(Some(file.to_owned()), config::load(file)?).map(Builder::new)
    }

    /// Begins a gateway with this configuration.
    ///
    /// # Errors
    ///
    /// All problems of the policy files that it names.
    pub fn builder(config: Config) -> Result<Builder, Errors> {
        Files::new(None, config).map(Builder::new)
    }
}

impl Builder {
    fn new(files: Files) -> Self {
        let (handle, requests) = Handle::new();
        Builder {
            files,
            log: None,
            handle,
            requests,
        }
    }

    /// Lets operators see and change the level of the log. Without it, the level of the configuration decides only what the
    /// BPF programs log.
    #[must_use]
    pub fn log(mut self, log: LogControl) -> Self {
        self.log = Some(log);
        self
    }

    /// Has the service manager told what the gateway waits for, when its start is over, and when it reloads its files. For it,
    /// the start is over once the gateway is set up, or waits for something.
    #[must_use]
    pub(crate) fn service_manager(self, manager: ServiceManager) -> Self {
        self.handle.set_manager(manager);
        self
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.files.config
    }

    /// Returns what works in the files but deserves a look. It is logged when the gateway starts.
    #[must_use]
    pub fn warnings(&self) -> &[Problem] {
        &self.files.warnings
    }

    /// Returns what looks at the gateway and reloads its files, also while it starts.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Starts the gateway: waits for its underlay interface, its addresses and, where remotes are to be found, the SCION
    /// daemon, and sets everything up. Dropping the future gives up, and leaves nothing behind.
    ///
    /// All threads of the tokio runtime must be in the network namespace of the gateway.
    ///
    /// # Errors
    ///
    /// If anything that is needed is missing, with what to do; nothing is left behind then.
    pub async fn start(mut self) -> Result<Gateway, Error> {
        let flavor = Runtime::try_current().map(|runtime| runtime.runtime_flavor());
        if flavor.ok() != Some(RuntimeFlavor::MultiThread) {
            return Err(Error::Runtime);
        }
        self.files.log_warnings();
        tracing::info!(id = self.files.config.gateway.id, "starting");
        let handle = EndOnDrop(self.handle.clone());
        let socket = self.handle.listen(&self.files.config)?;
        let found = self.wait().await?;
        self.handle
            .set_stage("setting up interfaces and BPF programs".to_owned());
        let Files {
            file,
            config,
            policies,
            rules,
            warnings: _,
        } = self.files;
        let parts = Parts::start(config.clone(), rules, found.zip(policies)).await?;
        let servers = config.observe;
        let running = Arc::new(parts.running(file, config, self.log));
        self.handle.set_running(&running);
        let servers = match serve(&servers, &running).await {
            Ok(servers) => servers,
            Err(error) => {
                drop((socket, handle, running));
                parts.stop().await?;
                return Err(error);
            }
        };
        self.handle.tell_ready();
        Ok(Gateway {
            _servers: servers,
            _socket: socket,
            requests: Task::spawn(
                "the answer to reloads",
                handle::answer(self.requests, running.clone()),
            ),
            running,
            handle,
            parts,
        })
    }

    /// Waits for interfaces and addresses, and for the SCION daemon where one is needed. Who changes the files meanwhile may
    /// have them read again: a name or an address may be what is wrong.
    async fn wait(&mut self) -> Result<Option<Found>, Error> {
        loop {
            let (config, handle) = (&self.files.config, &self.handle);
            let waiting = async {
                awaited::wait(config, |what| {
                    tracing::warn!("waiting for {what}");
                    handle.set_waiting(what);
                })
                .await?;
                let Some(control) = &config.control else {
                    return Ok(None);
                };
                let told = |error: &_| handle.set_waiting(&format!("the SCION daemon: {error}"));
                Ok(Some(Found::wait(control, told).await))
            };
            let request = tokio::select! {
                found = waiting => return found,
                // There is a sender: the handle.
                Some(request) = self.requests.recv() => request,
            };
            let result = self.read_again();
            request.answer(result);
        }
    }

    fn read_again(&mut self) -> Result<String, String> {
        self.files = self
            .files
            .read_again()
            .map_err(|errors| errors.to_string())?;
        self.files.log_warnings();
        if let Some(log) = &self.log {
            log.set(self.files.config.log.level)?;
        }
        Ok("re-reading all files and looking again for what the start waits for\n".to_owned())
    }
}

/// Opens the HTTP servers.
async fn serve(observe: &config::Observe, running: &Arc<Running>) -> Result<Vec<Server>, Error> {
    let mut servers = Vec::new();
    for (service, listen) in [
        (Service::StatusPages, observe.prometheus),
        (Service::Api, observe.api),
    ] {
        if let Some(listen) = listen {
            servers.push(Server::listen(service, listen, running.clone()).await?);
        }
    }
    Ok(servers)
}

impl Gateway {
    /// Returns what looks at the gateway and reloads its files, from any task. It does not keep the gateway running.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.0.clone()
    }

    /// Returns the state now.
    #[must_use]
    pub fn status(&self) -> Status {
        self.running.status()
    }

    /// Reads the configuration and policy files again, and puts into force what can change in a running gateway. Returns
    /// what has changed, one line each.
    ///
    /// # Errors
    ///
    /// What is wrong with the files, and nothing has changed; or what has not taken effect, which is tried again.
    pub async fn reload(&self) -> Result<String, ReloadError> {
        self.handle.0.reload().await
    }

    /// Puts what can change of this configuration, and the policy files that it names, into force. Returns what has changed,
    /// one line each.
    ///
    /// # Errors
    ///
    /// As [`Gateway::reload`].
    pub async fn reload_with(&self, config: Config) -> Result<String, ReloadError> {
        let running = self.running.clone();
        handle::blocking(move || running.reload_with(config)).await
    }

    /// Waits until packets can be sent to each remote of the configuration, or to one of those that are found.
    pub async fn ready(&self) {
        self.parts.ready().await;
    }

    /// Waits until the control plane answers, and returns how often each worker has looked at its ports: at least every tenth
    /// of a second.
    pub(crate) async fn rounds(&self) -> Vec<u64> {
        self.parts.rounds().await
    }

    /// Waits until the gateway cannot go on, and returns why. It must then be stopped and started again.
    pub async fn failed(&self) -> Error {
        Error::Failed(self.parts.failed().await)
    }

    /// Ends the gateway in order: routes first, so that the kernel answers for the remotes' prefixes again.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to remove something.
    pub async fn stop(self) -> Result<(), Error> {
        let Gateway {
            _servers,
            _socket,
            requests,
            running,
            handle,
            parts,
        } = self;
        drop((_servers, _socket, handle, running));
        requests.stop().await;
        parts.stop().await
    }
}
