//! The connections of a server.

use std::{
    collections::VecDeque,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::Router;
use hyper::{
    Request,
    body::{Body, Frame, Incoming, SizeHint},
    server::conn::http1,
    service::{Service as _, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::{AbortHandle, JoinSet},
};

use super::{Limits, MAX_HEAD};

/// How soon a client gets the place of one whose request was worked on, if there was no other.
const LOOK: Duration = Duration::from_millis(10);

/// A connection as the server sees it.
struct Connection {
    task: AbortHandle,
    /// Whether the server works on a request: then it does not wait for the client.
    answering: Arc<AtomicBool>,
}

/// Takes connections. Clients that do not say what they want, or do not take the answer, cannot keep others out.
pub(super) async fn accept(listener: TcpListener, router: Router, limits: Limits) {
    // They end with this task.
    let mut tasks = JoinSet::new();
    let mut connections: VecDeque<Connection> = VecDeque::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                loop {
                    while tasks.try_join_next().is_some() {}
                    connections.retain(|connection| !connection.task.is_finished());
                    if connections.len() < limits.connections {
                        break;
                    }
                    let is_idle = |connection: &Connection| !connection.answering.load(Relaxed);
                    // The oldest is the first.
                    let idle = connections.iter().position(is_idle);
                    match idle.and_then(|at| connections.remove(at)) {
                        Some(idle) => idle.task.abort(),
                        // Others wait at the door as long as the work takes, at most the life of a connection.
                        None => tokio::time::sleep(LOOK).await,
                    }
                }
                let answering = Arc::new(AtomicBool::new(false));
                let serving = converse(stream, router.clone(), limits, Arc::clone(&answering));
                connections.push_back(Connection {
                    task: tasks.spawn(serving),
                    answering,
                });
            }
            Err(error) => {
                // Such as too many open files: it passes, and must not spin.
                tracing::warn!("cannot accept an HTTP connection: {error}");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

/// Serves a connection. That a client breaks off or sends nonsense is no concern of ours.
async fn converse(stream: TcpStream, router: Router, limits: Limits, answering: Arc<AtomicBool>) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |request: Request<Incoming>| {
        let request = request.map(|body| Awaited::new(body, Arc::clone(&answering)));
        let (answer, answering) = (router.call(request), Arc::clone(&answering));
        async move {
            let answer = answer.await;
            answering.store(false, Relaxed);
            answer
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = tokio::time::sleep(limits.lifetime) => connection.as_mut().graceful_shutdown(),
    }
    let _ = tokio::time::timeout(limits.grace, connection).await;
}

/// The body of a request, which the client may send slowly. Once it is whole, the server is at work.
struct Awaited {
    body: Incoming,
    answering: Arc<AtomicBool>,
}

impl Awaited {
    fn new(body: Incoming, answering: Arc<AtomicBool>) -> Self {
        answering.store(body.is_end_stream(), Relaxed);
        Awaited { body, answering }
    }
}

impl Body for Awaited {
    type Data = <Incoming as Body>::Data;
    type Error = <Incoming as Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let is_whole = frame.is_none() || self.body.is_end_stream();
        self.answering.store(is_whole, Relaxed);
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
