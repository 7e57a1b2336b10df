//! Looking at a gateway and reloading it, before, while and after it runs.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::mpsc;

use super::{Error, Status};
use crate::control::{config::Config, operator::Running};
use sig_observe::{
    operator::Operator as _,
    service::ServiceManager,
    socket::{ControlSocket, Question},
};

/// Looks at a gateway and reloads its files, from any task, also while it starts. Cheap to clone.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

struct Shared {
    phase: Mutex<Phase>,
    requests: mpsc::Sender<Request>,
    /// None: nobody wants to be told.
    manager: OnceLock<ServiceManager>,
}

enum Phase {
    /// What it is doing.
    Starting(String),
    Running(Arc<Running>),
    Ended,
}

/// The gateway has no state to show.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotRunning(String);

/// Why files that were read again, or a configuration, did not take effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ReloadError(String);

/// Somebody asks for a reload while the gateway starts.
pub(super) struct Request(std::sync::mpsc::Sender<Result<String, String>>);

impl Request {
    pub(super) fn answer(self, result: Result<String, String>) {
        // Who asked may have gone.
        let _ = self.0.send(result);
    }
}

impl Handle {
    pub(super) fn new() -> (Self, mpsc::Receiver<Request>) {
        let (requests, asked) = mpsc::channel(1);
        let shared = Shared {
            phase: Mutex::new(Phase::Starting("reading the configuration".to_owned())),
            requests,
            manager: OnceLock::new(),
        };
        (Handle(Arc::new(shared)), asked)
    }

    /// Returns the state now.
    ///
    /// # Errors
    ///
    /// If the gateway does not run, with what it is waiting for.
    pub fn status(&self) -> Result<Status, NotRunning> {
        Ok(self.running()?.status())
    }

    fn running(&self) -> Result<Arc<Running>, NotRunning> {
        match &*self.phase() {
            Phase::Starting(stage) => Err(NotRunning(format!("the gateway is starting: {stage}"))),
            Phase::Running(running) => Ok(running.clone()),
            Phase::Ended => Err(NotRunning(ended())),
        }
    }

    /// Reads the files again, as [`Gateway::reload`](super::Gateway::reload) does. While the gateway waits for the SCION
    /// daemon, it then asks the one that the files name; while it sets things up, they are read when it runs.
    ///
    /// # Errors
    ///
    /// As [`Gateway::reload`](super::Gateway::reload), or the gateway has ended.
    pub async fn reload(&self) -> Result<String, ReloadError> {
        let handle = self.clone();
        blocking(move || handle.reload_now()).await
    }

    /// May wait for the kernel, and for a gateway that starts.
    fn reload_now(&self) -> Result<String, String> {
        let _reloading = self.0.manager.get().map(ServiceManager::reloading);
        let running = match &*self.phase() {
            Phase::Starting(_) => None,
            Phase::Running(running) => Some(running.clone()),
            Phase::Ended => return Err(ended()),
        };
        if let Some(running) = running {
            return running.reload();
        }
        let (answer, answered) = std::sync::mpsc::channel();
        let request = Request(answer);
        let sent = self.0.requests.blocking_send(request);
        sent.map_err(|_| ended())?;
        answered.recv().map_err(|_| ended())?
    }

    /// Opens the socket that `sig status`, `sig reload`, `sig drain`, `sig trace`, `sig capture` and `sig drops` ask.
    pub(super) fn listen(&self, config: &Config) -> Result<ControlSocket, Error> {
        let path = &config.gateway.status_socket;
        let (asked, reloaded) = (self.clone(), self.clone());
        let status = move || asked.status().map_err(|error| error.0);
        let traced = self.clone();
        let trace = Question::new("trace", move |question| {
            let running = traced.running().map_err(|error| error.0)?;
            running.trace(question)
        });
        let watched = self.clone();
        let watch = Question::stream("watch", move |wanted, by| {
            let running = watched.running().map_err(|error| error.0)?;
            let mut watch = running.watch(wanted, by)?;
            Ok(Box::new(move || watch.next()))
        });
        let drained = self.clone();
        let drain = Question::order("drain", move |wanted, by| {
            let running = drained.running().map_err(|error| error.0)?;
            match wanted {
                "on" => running.drain(true, by),
                "off" => running.drain(false, by),
                other => Err(format!("\"{other}\" is neither on nor off")),
            }
        });
        let reload = move || reloaded.reload_now();
        ControlSocket::listen_with(path, status, reload, vec![trace, watch, drain]).map_err(
            |source| Error::StatusSocket {
                path: path.clone(),
                source,
            },
        )
    }

    pub(super) fn set_manager(&self, manager: ServiceManager) {
        // There is one at most.
        let _ = self.0.manager.set(manager);
    }

    pub(super) fn set_stage(&self, stage: String) {
        let mut phase = self.phase();
        let is_new = !matches!(&*phase, Phase::Starting(last) if *last == stage);
        if let (true, Some(manager)) = (is_new, self.0.manager.get()) {
            manager.status(&stage);
        }
        *phase = Phase::Starting(stage);
    }

    /// Something has to come first that may take long. For the service manager the start is over: nobody is to wait with it.
    pub(super) fn set_waiting(&self, what: &str) {
        self.set_stage(format!("waiting for {what}"));
        self.tell_ready();
    }

    /// Tells the service manager that the start is over.
    pub(super) fn tell_ready(&self) {
        if let Some(manager) = self.0.manager.get() {
            manager.ready();
        }
    }

    pub(super) fn set_running(&self, running: &Arc<Running>) {
        *self.phase() = Phase::Running(running.clone());
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.0.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ended() -> String {
    "the gateway has ended".to_owned()
}

/// Lets go of the gateway, whoever keeps its handles.
pub(super) struct EndOnDrop(pub(super) Handle);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        *self.0.phase() = Phase::Ended;
    }
}

/// Answers what was asked for before the gateway ran.
pub(super) async fn answer(mut requests: mpsc::Receiver<Request>, running: Arc<Running>) {
    while let Some(request) = requests.recv().await {
        let running = running.clone();
        tokio::task::spawn_blocking(move || request.answer(running.reload()));
    }
}

/// Reloads where it may wait for the kernel.
pub(super) async fn blocking(
    reload: impl FnOnce() -> Result<String, String> + Send + 'static,
) -> Result<String, ReloadError> {
    match tokio::task::spawn_blocking(reload).await {
        Ok(result) => result.map_err(ReloadError),
        Err(error) => Err(ReloadError(format!("the reload did not complete: {error}"))),
    }
}
