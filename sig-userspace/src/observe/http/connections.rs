//! The connections of a server.

use std::{
    collections::VecDeque,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::{Router, http::Method};
use hyper::{
    Request,
    body::Incoming,
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

/// A connection as the server sees it.
struct Connection {
    task: AbortHandle,
    /// Whether the server works on an answer: then it does not wait for the client.
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
                while tasks.try_join_next().is_some() {}
                connections.retain(|connection| !connection.task.is_finished());
                if connections.len() >= limits.connections {
                    let idle = |connection: &Connection| !connection.answering.load(Relaxed);
                    // The oldest is the first.
                    match connections.iter().position(idle) {
                        Some(at) => {
                            if let Some(idle) = connections.remove(at) {
                                idle.task.abort();
                            }
                        }
                        // This does not take long: answers are made from memory.
                        None => drop(tasks.join_next().await),
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
        // Other requests have a body, which the client may send slowly.
        let is_whole = matches!(*request.method(), Method::GET | Method::HEAD);
        answering.store(is_whole, Relaxed);
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
