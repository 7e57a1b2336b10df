//! A running router: slow and fast path, what operators ask of it, and how another configuration comes into force.

mod pages;
mod report;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use super::{
    AsModel,
    config::{self, Settings},
    fast::{FastConfig, FastPath, HostView},
    slow::{IsUp, SlowConfig, SlowPath},
    status::Status,
};
use sig_core::problem::Problem;
use sig_linux::link;
use sig_observe::{http::Server, log::LogControl, socket::ControlSocket};

/// A running border router.
pub struct Running {
    file: PathBuf,
    log: LogControl,
    started: Instant,
    reloads: AtomicU64,
    reloads_refused: AtomicU64,
    parts: Mutex<Parts>,
}

/// What a reload changes.
struct Parts {
    settings: Settings,
    model: Arc<AsModel>,
    slow: Option<SlowPath>,
    fast: Option<FastPath>,
}

/// Everything by which operators look at a router. It closes when dropped.
pub struct Endpoints {
    _socket: ControlSocket,
    _servers: Vec<Server>,
}

impl Running {
    /// Starts a router whose configuration is in `file`, once the host has its addresses; `waiting` is told which one is missing,
    /// and again when that changes. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// In one sentence, why it cannot run.
    pub async fn start(
        file: &Path,
        settings: Settings,
        log: LogControl,
        waiting: impl Fn(&str),
    ) -> Result<Arc<Self>, String> {
        let model = Arc::new(settings.model.clone());
        if settings.slow_path {
            wait_for_addresses(&model, waiting).await;
        }
        let host = HostView::default();
        let mut slow = if settings.slow_path {
            let (own, arrivals) = (host.clone(), host.clone());
            // Without a program, or over the loopback interface, the slow path is the first to see a packet.
            let seen_before = move |ip| {
                let own = own.load();
                own.as_ref().is_some_and(|own| !own.addresses.contains(&ip))
            };
            // Without a program, the host's own filters have seen everything.
            let admits = move |local, ifindex| {
                let host = arrivals.load();
                host.as_ref()
                    .is_none_or(|host| host.arrivals.admit(local, ifindex))
            };
            let slow_config = slow_config(&settings, &model);
            let slow = SlowPath::start(slow_config, Arc::new(seen_before), Arc::new(admits));
            Some(slow.map_err(|error| error.to_string())?)
        } else {
            None
        };
        let fast = match settings.xdp.mode {
            Some(mode) => {
                let is_up: IsUp = match &slow {
                    Some(slow) => slow.is_up(),
                    None => Arc::new(|_| true),
                };
                let changes = slow.as_ref().map(SlowPath::changes);
                let config = fast_config(&settings, &model);
                Some(FastPath::start(config, mode, is_up, changes, host).await?)
            }
            None => None,
        };
        if let Some(slow) = &mut slow {
            if fast.is_some() {
                slow.discard();
            }
            slow.listen();
        }
        Ok(Arc::new(Self {
            file: file.to_owned(),
            log,
            started: Instant::now(),
            reloads: AtomicU64::new(0),
            reloads_refused: AtomicU64::new(0),
            parts: Mutex::new(Parts {
                settings,
                model,
                slow,
                fast,
            }),
        }))
    }

    /// Waits until a part of it has ended that it cannot do without, and says which.
    pub async fn failed(&self) -> String {
        let failed = self.parts().fast.as_ref().map(FastPath::failed);
        match failed {
            Some(failed) => failed.await,
            None => std::future::pending().await,
        }
    }

    /// Opens the status socket and the HTTP servers.
    ///
    /// # Errors
    /// What cannot be opened.
    pub async fn open(self: &Arc<Self>) -> Result<Endpoints, String> {
        let (path, observe) = {
            let parts = self.parts();
            (parts.settings.status_socket.clone(), parts.settings.observe)
        };
        let (asked, reloaded) = (self.clone(), self.clone());
        let socket =
            ControlSocket::listen(&path, move || Ok(asked.status()), move || reloaded.reload());
        let socket = socket.map_err(|error| {
            let path = path.display();
            format!("{path}: cannot listen for `sig router status`: {error}")
        })?;
        let mut servers = Vec::new();
        if let Some(listen) = observe.prometheus {
            servers.push(pages::status(self, listen).await?);
        }
        if let Some(listen) = observe.api {
            servers.push(pages::api(self, listen).await?);
        }
        Ok(Endpoints {
            _socket: socket,
            _servers: servers,
        })
    }

    /// Waits until everything that can keep others waiting has answered. May block; false if the thread of BFD has ended.
    #[must_use]
    pub fn answers(&self) -> bool {
        self.parts().slow.as_ref().is_none_or(SlowPath::answers)
    }

    /// Reads the configuration again and puts it into force; tells what changed. May block.
    ///
    /// # Errors
    /// What is wrong; nothing has changed then.
    pub fn reload(&self) -> Result<String, String> {
        // Locked before the file is read, so that of two reloads the newer text stays.
        let mut parts = self.parts();
        let result = config::load(&self.file)
            .map_err(|errors| errors.to_string())
            .and_then(|(settings, warnings)| self.apply(&mut parts, settings, &warnings));
        let counter = match result {
            Ok(_) => &self.reloads,
            Err(_) => &self.reloads_refused,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        result
    }

    fn apply(
        &self,
        parts: &mut Parts,
        settings: Settings,
        warnings: &[Problem],
    ) -> Result<String, String> {
        let model = Arc::new(settings.model.clone());
        // What can fail comes first: new sockets, then the maps.
        let prepared = match &parts.slow {
            Some(slow) => {
                let prepared = slow.prepare(slow_config(&settings, &model));
                Some(prepared.map_err(|error| error.to_string())?)
            }
            None => None,
        };
        if let Some(fast) = &parts.fast {
            let reloaded = fast.reload(fast_config(&settings, &model));
            reloaded.map_err(|error| error.to_string())?;
        }
        if let (Some(slow), Some(prepared)) = (&mut parts.slow, prepared) {
            slow.apply(prepared);
        }
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        if let Err(error) = self.log.set(settings.log.level) {
            tracing::warn!("{error}");
        }
        let told = report::changes(&parts.settings, &settings);
        // What only a start changes stays as it is, to be compared with again.
        parts.settings = Settings {
            status_socket: parts.settings.status_socket.clone(),
            observe: parts.settings.observe,
            slow_path: parts.settings.slow_path,
            xdp: config::Xdp {
                mode: parts.settings.xdp.mode,
                cpus: parts.settings.xdp.cpus.clone(),
                ..settings.xdp.clone()
            },
            ..settings
        };
        parts.model = model;
        Ok(told)
    }

    /// What it does now. May block for a moment.
    #[must_use]
    pub fn status(&self) -> Status {
        report::status(self, &self.parts())
    }

    /// Ends: neighbours are told, and nothing of it stays in the kernel.
    pub fn stop(&self) {
        let mut parts = self.parts();
        // First the programs, so that packets that are under way find the sockets.
        parts.fast = None;
        if let Some(slow) = parts.slow.take() {
            slow.stop();
        }
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until sockets can have all addresses of the router, as at boot.
async fn wait_for_addresses(model: &AsModel, waiting: impl Fn(&str)) {
    const LOOK: Duration = Duration::from_millis(500);
    let inside = ("the internal address".to_owned(), model.internal);
    let links = model.links();
    let links =
        links.map(|(number, _, local, _)| (format!("the address of interface {number}"), local));
    let addresses: Vec<_> = [inside].into_iter().chain(links).collect();
    let mut last = None;
    loop {
        let mut addresses = addresses.iter();
        let Some(missing) = addresses.find(|(_, address)| !link::can_bind(address.ip())) else {
            return;
        };
        if last != Some(missing) {
            let (what, address) = missing;
            let ip = address.ip();
            waiting(&format!(
                "{what} in the topology, {ip}, which no interface has (`ip address add` adds it)"
            ));
            last = Some(missing);
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn slow_config(settings: &Settings, model: &Arc<AsModel>) -> SlowConfig {
    SlowConfig {
        model: model.clone(),
        buffers: settings.buffers,
        limits: settings.xdp.rate_limits.clone(),
    }
}

fn fast_config(settings: &Settings, model: &Arc<AsModel>) -> FastConfig {
    FastConfig {
        model: model.clone(),
        xdp: settings.xdp.clone(),
    }
}
