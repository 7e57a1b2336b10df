//! A gateway on this machine that finds its remotes: with the SCION daemon, the control services of the
//! remote ASes and their gateways.
//!
//! What to do is decided in [`remotes`](super::remotes), free of I/O; here are the sockets, the questions and
//! answers, and what the operator asks for.

mod addresses;
pub(crate) mod identity;
mod operator;
mod policies;
mod prefixes;
mod tasks;

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwap;
use futures_util::{FutureExt as _, future::select_all};
use sig_common::wire::scion::ENDHOST_PORT;
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    config::{Config, Control},
    endhost,
    host::{Host, HostHandle},
    plan::Plan,
    remotes::{Now, Remotes, Settings},
    rules::Rules,
};
use crate::gateway::Error;
pub(crate) use operator::Handle;
pub(crate) use policies::Policies;
use prefixes::Prefixes;
use sig_core::task::Task;
use sig_rpc::{
    OwnIdentity, Router, RpcClient, RpcError, RpcServer,
    daemon::{Daemon, DaemonError, LocalAs},
    sockets::{EndhostPort, Local, PortChoice, ScionSocket},
};
use tasks::{Core, Input, Sockets};

/// How often [`Discovery::ready`] looks.
const READY_INTERVAL: Duration = Duration::from_millis(50);
/// The daemon is not asked for paths more often, whatever the environment says.
const LEAST_PATH_INTERVAL: Duration = Duration::from_millis(100);
/// Events that wait for their turn; whoever has more waits.
const EVENTS: usize = 1024;

/// The running gateway.
pub(crate) struct Discovery {
    shared: Arc<Shared>,
    host: Host,
    /// None of them ends before it.
    tasks: Vec<Task>,
    server: RpcServer,
    _endhost: Vec<EndhostPort>,
}

/// What the tasks and operators work on.
struct Shared {
    control: Control,
    config: Config,
    remotes: Mutex<Remotes>,
    policies: Arc<ArcSwap<Policies>>,
    prefixes: Arc<Prefixes>,
    daemon: Daemon,
    local: Arc<Local>,
    endhost: &'static str,
    wake: mpsc::Sender<Input>,
    /// Held while policies are read and put into force, so that none gets lost between two changes.
    changing: Mutex<()>,
    client: RpcClient,
    identity: Arc<OwnIdentity>,
}

impl Shared {
    fn remotes(&self) -> MutexGuard<'_, Remotes> {
        self.remotes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The SCION daemon, and what it says about its AS: all that a gateway has to wait for.
pub(crate) struct Found {
    daemon: Daemon,
    local_as: LocalAs,
}

impl Found {
    /// Waits for the daemon that the configuration names; `told` is told why it is not there yet.
    pub(crate) async fn wait(control: &Control, told: impl Fn(&DaemonError)) -> Self {
        let daemon = Daemon::new(&control.daemon);
        let local_as = daemon.wait_for(told).await;
        Found { daemon, local_as }
    }
}

impl Discovery {
    /// Starts the gateway in the AS that was `found`; `policies` are those of the files that the configuration names.
    ///
    /// # Errors
    /// If anything that is needed is missing, with what to do; nothing is left behind then.
    pub(crate) async fn start(
        config: Config,
        rules: Rules,
        policies: Policies,
        found: Found,
    ) -> Result<Self, Error> {
        let Some(control) = config.control.clone() else {
            return Err(Error::Configuration(
                "discovery cannot start: the configuration lists its remotes in [[remote]] sections".into(),
            ));
        };
        let Found { daemon, local_as } = found;
        let (config, control) = addresses::complete(config, control, &daemon, &local_as).await?;
        let known = routers(&local_as.interfaces).collect();
        let mut host = Host::start_with(config.clone(), rules, known).await?;

        host.handle().set_routers(routers(&local_as.interfaces))?;
        let (first, last) = local_as.ports;
        let local = Local::new(
            local_as.isd_as,
            if last == 0 {
                RangeInclusive::new(1, 0)
            } else {
                first..=last
            },
        );
        local
            .interfaces
            .store(Arc::new(local_as.interfaces.clone()));
        let sources = config.dataplane.underlay_sources.clone();
        local.sources.store(Arc::new(sources));
        let socket = |what, address: SocketAddr, port| {
            ScionSocket::bind(&local, address.ip(), port).map_err(|source| Error::Socket {
                what,
                address,
                source,
            })
        };
        let fixed = |address: SocketAddr| PortChoice::Fixed(address.port());
        let ctrl = control.ctrl_addr;
        let server_socket = socket("control address", ctrl, fixed(ctrl))?;
        let probe_server = socket(
            "probe address",
            control.probe_addr,
            fixed(control.probe_addr),
        )?;
        let client_socket = socket("client socket on", ctrl, PortChoice::Free)?;
        let prober = socket("probe client socket on", ctrl, PortChoice::Free)?;
        let data = host.take_data_socket();
        let data = data
            .map(|data| ScionSocket::scmp_only(&local, data))
            .transpose()
            .map_err(|source| Error::Socket {
                what: "data address",
                address: config.gateway.data_addr,
                source,
            })?;
        let own = [ctrl, control.probe_addr, config.gateway.data_addr].map(|address| address.ip());
        let taken = host.take_endhost_socket();
        let endhost = endhost::open(&local, own, control.discovery.endhost_port, taken).map_err(
            |(ip, source)| Error::Socket {
                what: "end host port",
                address: SocketAddr::new(ip, ENDHOST_PORT),
                source,
            },
        )?;

        let routing = policies.routing.clone();
        let traffic = policies.traffic.clone();
        let policies = Arc::new(ArcSwap::from_pointee(policies));
        let prefixes = Arc::new(Prefixes::new(local_as.isd_as, routing.clone()));
        let rpc = |error: RpcError| Error::Rpc(error.to_string());
        let (limits, asked) = (&control.discovery.limits, prefixes.clone());
        let client = RpcClient::new(Arc::new(client_socket), control.rpc.client_protocol, limits)
            .map_err(rpc)?;
        let identity = Arc::new(identity::own(&control.protection)?);
        let keys = identity::Keys::default();
        let answering = keys.answering(&identity);
        let router = Router::new().prefixes_and_keys(move |caller| asked.answer(caller), answering);
        let server = RpcServer::start(
            Arc::new(server_socket),
            control.rpc.server_protocol,
            limits,
            router,
            {
                let policies = Arc::clone(&policies);
                move |isd_as| policies.load().traffic.ases.contains_key(&isd_as)
            },
        )
        .map_err(rpc)?;

        let now = Now::read();
        let mut remotes = Remotes::new(now, settings(&config, &control));
        remotes.set_policies(now, &traffic, routing);
        let (wake, inputs) = mpsc::channel(EVENTS);
        let shared = Arc::new(Shared {
            remotes: Mutex::new(remotes),
            policies,
            prefixes,
            daemon,
            local,
            endhost: if endhost.is_empty() { "shared" } else { "own" },
            wake,
            changing: Mutex::default(),
            client,
            identity,
            config,
            control,
        });
        keys.serve(&shared);
        let sockets = Sockets { prober, data };
        let handle = Handle(shared.clone());
        host.handle().report_control(move || handle.report());
        let (plans, wanted) = watch::channel(Plan::default());
        let core = Core {
            shared: shared.clone(),
            sockets,
            inputs,
            host: host.handle(),
            plans,
        };
        let follow_plans = tasks::follow_plans(host.handle(), wanted);
        let answer = tasks::answer_probes(probe_server);
        let follow = tasks::follow_interfaces(shared.clone(), host.handle());
        let tasks = vec![
            Task::spawn("the control plane", core.run()),
            Task::spawn("the plan task", follow_plans),
            Task::spawn("the probe responder", answer),
            Task::spawn("the border router monitor", follow),
        ];
        Ok(Discovery {
            shared,
            host,
            tasks,
            server,
            _endhost: endhost,
        })
    }

    /// Waits until the gateway cannot go on, and says why. It must then be stopped and started again.
    pub(crate) async fn failed(&self) -> String {
        let tasks = self.tasks.iter().map(|task| task.ended().boxed());
        let ended = select_all(tasks.chain([self.server.ended().boxed()]));
        tokio::select! {
            reason = self.host.failed() => reason,
            (reason, ..) = ended => reason,
        }
    }

    /// For changing its policies.
    pub(crate) fn handle(&self) -> Handle {
        Handle(self.shared.clone())
    }

    /// Its data plane.
    pub(crate) fn host(&self) -> HostHandle {
        self.host.handle()
    }

    /// The configuration with what has been found out.
    pub(crate) fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Waits until there is a session over which packets can be sent.
    pub(crate) async fn ready(&self) {
        while !self
            .shared
            .remotes()
            .current_plan()
            .sites
            .iter()
            .any(|site| site.exported)
        {
            tokio::time::sleep(READY_INTERVAL).await;
        }
    }

    /// Waits until the control plane answers.
    pub(crate) async fn answers(&self) {
        let (answer, answered) = oneshot::channel();
        // If it has ended, `failed` says so.
        if self.shared.wake.send(Input::Ping(answer)).await.is_ok() {
            let _ = answered.await;
        }
    }

    /// Ends the gateway in order.
    ///
    /// # Errors
    /// If the kernel refuses to remove something.
    pub(crate) async fn stop(mut self) -> Result<(), Error> {
        for task in self.tasks.drain(..) {
            task.stop().await;
        }
        self.host.stop().await
    }
}

/// The underlay addresses of the border routers at these interfaces of the AS.
fn routers(interfaces: &HashMap<u64, SocketAddr>) -> impl Iterator<Item = IpAddr> {
    interfaces.values().map(SocketAddr::ip)
}

fn settings(config: &Config, control: &Control) -> Settings {
    Settings {
        isd_as: config.gateway.isd_as,
        data_addr: config.gateway.data_addr,
        control_addrs: control_addrs(control),
        served: config.gateway.prefixes.clone(),
        default_route: control.discovery.default_route,
        paths: sig_core::paths::Settings {
            probe_interval: control.discovery.probe_interval,
            probe_timeout: control.discovery.probe_timeout,
            limit: control.discovery.limits.paths_per_as as usize,
        },
        path_interval: path_interval(control),
        switch_delay: control.discovery.switch_delay,
        limits: control.discovery.limits,
        protection: control.protection.clone(),
        workers: config.dataplane.workers.into(),
    }
}

/// What must stay within reach for the gateway to work. A daemon that is given by name is taken for a near one.
fn control_addrs(control: &Control) -> Vec<IpAddr> {
    let daemon = control.daemon.parse::<SocketAddr>().ok();
    let addresses = [control.ctrl_addr, control.probe_addr].into_iter();
    addresses
        .chain(daemon)
        .map(|address| address.ip())
        .collect()
}

/// As the reference, the environment has the last word.
fn path_interval(control: &Control) -> Duration {
    const VARIABLE: &str = "SCION_EXPERIMENTAL_GATEWAY_PATH_UPDATE_INTERVAL";
    match std::env::var(VARIABLE) {
        Ok(text) => match super::config::duration(&text) {
            Ok(interval) => interval.max(LEAST_PATH_INTERVAL),
            Err(problem) => {
                tracing::warn!("{VARIABLE} is ignored: {problem}");
                control.discovery.path_interval
            }
        },
        Err(_) => control.discovery.path_interval,
    }
}
