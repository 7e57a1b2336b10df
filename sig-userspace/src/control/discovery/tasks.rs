//! What runs: questions out, answers in.

use std::{net::IpAddr, sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use sig_common::addr::HostAddr;
use tokio::sync::{mpsc, oneshot, watch};

use super::Shared;
use crate::control::{
    host::HostHandle,
    plan::Plan,
    remotes::{Action, Event, Now},
};
use sig_core::{
    paths::Failure,
    scion::{
        Interface, packet,
        scmp::{Problem, Scmp},
    },
};
use sig_rpc::{
    self as rpc,
    sockets::{Payload, Received, ScionSocket, Via},
};

/// Between attempts to make a plan take effect.
const APPLY_RETRY: Duration = Duration::from_secs(5);
/// How often the daemon is asked for the border routers, as in the reference.
const INTERFACES_INTERVAL: Duration = Duration::from_secs(10);

/// Most that the core takes in before it looks what is to be done.
const EVENTS_PER_LOOK: usize = 256;

/// What wakes the core.
pub(super) enum Input {
    /// A question was answered.
    Event(Event),
    /// Something has been changed from outside: look.
    Changed,
    /// Somebody wants to know whether the core lives: answer.
    Ping(oneshot::Sender<()>),
}

/// The sockets that the core reads.
pub(super) struct Sockets {
    /// Path probes and session probes.
    pub(super) prober: ScionSocket,
    /// Where SCMP errors about our frames arrive.
    pub(super) data: Option<ScionSocket>,
}

/// Carries out what [`Remotes`](crate::control::remotes::Remotes) decides.
pub(super) struct Core {
    pub(super) shared: Arc<Shared>,
    pub(super) sockets: Sockets,
    pub(super) inputs: mpsc::Receiver<Input>,
    pub(super) host: HostHandle,
    /// The newest plan, for [`follow_plans`].
    pub(super) plans: watch::Sender<Plan>,
}

impl Core {
    pub(super) async fn run(mut self) {
        // A new socket does not know yet that there is room.
        let _ = self.sockets.prober.writable().await;
        loop {
            let now = Now::read();
            let (actions, deadline) = {
                let mut remotes = self.shared.remotes();
                (remotes.poll(now), remotes.deadline(now))
            };
            for action in actions {
                self.act(action);
            }
            let mut event = tokio::select! {
                event = self.next() => event,
                () = tokio::time::sleep_until(deadline.into()) => None,
            };
            // What waits is taken before the next look: one look per answer would be too many.
            for _ in 0..EVENTS_PER_LOOK {
                if let Some(event) = event.take() {
                    self.shared.remotes().handle(Now::read(), event);
                }
                tokio::select! {
                    biased;
                    next = self.next() => event = next,
                    () = std::future::ready(()) => break,
                }
            }
            if let Some(event) = event {
                self.shared.remotes().handle(Now::read(), event);
            }
        }
    }

    /// Waits for the next thing that wakes the core; `None` if it is only to look. Nothing is lost if the future is
    /// dropped.
    async fn next(&mut self) -> Option<Event> {
        let data = async {
            match &self.sockets.data {
                Some(data) => data.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(input) = self.inputs.recv() => match input {
                Input::Event(event) => Some(event),
                Input::Changed => None,
                Input::Ping(answer) => {
                    // Who asked may have gone.
                    let _ = answer.send(());
                    None
                }
            },
            received = self.sockets.prober.recv() => event(received),
            received = data => event(received),
        }
    }

    fn act(&self, action: Action) {
        let shared = self.shared.clone();
        match action {
            Action::AskPaths(isd_as) => {
                let host = self.host.clone();
                self.ask(async move {
                    let answer = shared.daemon.paths(shared.local.isd_as, isd_as).await;
                    let result = answer
                        .map_err(|error| error.to_string())
                        .and_then(|paths| host.reachable(paths));
                    Event::Paths { isd_as, result }
                });
            }
            Action::AskGateways { isd_as, path } => self.ask(async move {
                let answer = shared.client.gateways(isd_as, &path).await;
                Event::Gateways {
                    isd_as,
                    result: answer.map_err(|error| error.to_string()),
                }
            }),
            Action::AskPrefixes {
                isd_as,
                control,
                path,
                etag,
                hello,
            } => self.ask(async move {
                let client = &shared.client;
                let answer = match hello {
                    Some(hello) => {
                        let saying = (Arc::clone(&shared.identity), hello);
                        client.exchange(isd_as, control, &path, &etag, saying).await
                    }
                    None => {
                        let prefixes = client.prefixes(isd_as, control, &path, &etag).await;
                        prefixes.map(|prefixes| (prefixes, None))
                    }
                };
                let (result, greeting) = match answer {
                    Ok((prefixes, greeting)) => (Ok(prefixes), greeting),
                    Err(error) => (Err(error.to_string()), None),
                };
                Event::Prefixes {
                    isd_as,
                    control,
                    result,
                    greeting,
                }
            }),
            Action::ProbePath {
                isd_as,
                path,
                sequence,
            } => {
                let prober = &self.sockets.prober;
                let id = prober.local_addr().port();
                let sent = packet::path_probe(prober.host(), isd_as, &path.raw, id, sequence)
                    .map_err(|error| error.to_string())
                    .and_then(|packet| {
                        prober
                            .try_send_raw(&packet, path.next_hop)
                            .map_err(|error| error.to_string())
                    });
                if let Err(problem) = sent {
                    tracing::debug!(%isd_as, "cannot send a path probe: {problem}");
                    shared
                        .remotes()
                        .handle(Now::read(), Event::SendFailed { isd_as });
                }
            }
            Action::ProbeSession {
                isd_as,
                address,
                session,
                path,
            } => {
                let to = (isd_as, HostAddr::from(address.ip()), address.port());
                let request = rpc::probe::request(session, &[]);
                let sent = self
                    .sockets
                    .prober
                    .try_send_to(to, &Via::from(&path), &request);
                if let Err(problem) = sent {
                    tracing::debug!(%isd_as, "cannot send a session probe: {problem}");
                }
            }
            Action::ReportToDaemon(Interface { isd_as, id }) => {
                tokio::spawn(async move {
                    if let Err(error) = shared.daemon.notify_interface_down(isd_as, id).await {
                        tracing::debug!("cannot report a failure to the daemon: {error}");
                    }
                });
            }
            Action::Apply(plan) => {
                self.plans.send_replace(plan);
            }
        }
    }

    fn ask(&self, question: impl Future<Output = Event> + Send + 'static) {
        let wake = self.shared.wake.clone();
        tokio::spawn(async move {
            // Nobody listens any more when the gateway stops.
            let _ = wake.send(Input::Event(question.await)).await;
        });
    }
}

/// Gives the data plane the newest plan, one at a time: a slow kernel makes none wait longer than the one
/// before it takes. One that does not take effect in full is tried again.
pub(super) async fn follow_plans(host: HostHandle, mut wanted: watch::Receiver<Plan>) {
    if wanted.changed().await.is_err() {
        return;
    }
    loop {
        let plan = wanted.borrow_and_update().clone();
        let retry = match host.apply(plan).await {
            Ok(()) => std::future::pending().left_future(),
            Err(error) => {
                tracing::error!("applying the plan failed, retrying: {error}");
                tokio::time::sleep(APPLY_RETRY).right_future()
            }
        };
        tokio::select! {
            changed = wanted.changed() => if changed.is_err() { return },
            () = retry => {}
        }
    }
}

/// What a received packet says.
fn event(received: Received) -> Option<Event> {
    let (isd_as, host) = received.source;
    match received.payload {
        Payload::Udp(payload) => Some(Event::SessionReply {
            isd_as,
            host: host.ip().unwrap_or(IpAddr::from([0; 4])),
            session: rpc::probe::parse_answer(&payload)?.0,
        }),
        Payload::Scmp(Scmp::TracerouteReply { sequence, .. }) => {
            Some(Event::PathReply { isd_as, sequence })
        }
        Payload::Scmp(Scmp::Error { problem, quote }) => match problem {
            Problem::InterfaceDown { isd_as, interface } => {
                Some(Event::Down(Failure::Interface(Interface {
                    isd_as,
                    id: interface,
                })))
            }
            Problem::ConnectivityDown {
                isd_as,
                ingress,
                egress,
            } => Some(Event::Down(Failure::Connectivity {
                isd_as,
                ingress,
                egress,
            })),
            Problem::PacketTooBig { mtu } => {
                let packet = quote.packet()?;
                Some(Event::TooBig {
                    isd_as: packet.destination.0,
                    path: packet.path.to_vec(),
                    mtu,
                })
            }
            Problem::Unreachable { .. } | Problem::Parameter { .. } => None,
        },
        Payload::Scmp(_) => None,
    }
}

/// Answers the session probes of remote gateways, over the way that they came.
pub(super) async fn answer_probes(socket: ScionSocket) {
    loop {
        let received = socket.recv().await;
        let Payload::Udp(request) = &received.payload else {
            continue;
        };
        if let Some(answer) = rpc::probe::answer(request)
            && let Err(error) = socket.try_send_to(received.sender(), &received.reply, &answer)
        {
            tracing::debug!("cannot answer a session probe: {error}");
        }
    }
}

/// Keeps the addresses of the border routers up to date. Once there were some, it takes an answer without any for a
/// mistake: who may bring frames and probes must not be anybody all of a sudden.
pub(super) async fn follow_interfaces(shared: Arc<Shared>, host: HostHandle) {
    let mut is_warned = false;
    loop {
        tokio::time::sleep(INTERFACES_INTERVAL).await;
        // Without an answer the old ones stay.
        let Ok(interfaces) = shared.daemon.interfaces().await else {
            continue;
        };
        let is_blank = interfaces.is_empty() && !shared.local.interfaces.load().is_empty();
        if is_blank && !is_warned {
            tracing::warn!(
                "the SCION daemon no longer lists any border router; keeping the known ones"
            );
        }
        is_warned = is_blank;
        if is_blank {
            continue;
        }
        if let Err(error) = host.set_routers(super::routers(&interfaces)) {
            tracing::error!("cannot update the border routers: {error}");
        }
        shared.local.interfaces.store(Arc::new(interfaces));
    }
}
