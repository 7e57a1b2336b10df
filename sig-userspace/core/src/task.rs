//! Tasks that end with their owner, and do not end before it unnoticed.

use tokio::{sync::watch, task::JoinHandle};

/// A tokio task that ends when its owner goes away.
#[derive(Debug)]
pub struct Task {
    what: &'static str,
    handle: JoinHandle<()>,
    alive: watch::Receiver<()>,
}

impl Task {
    /// Starts it. `what` it does is the subject of the sentence that tells of its end.
    pub fn spawn(what: &'static str, future: impl Future<Output = ()> + Send + 'static) -> Self {
        let (life, alive) = watch::channel(());
        let handle = tokio::spawn(async move {
            let _life = life;
            future.await;
        });
        Task {
            what,
            handle,
            alive,
        }
    }

    /// Waits until the task has ended in whatever way, and says so.
    pub fn ended(&self) -> impl Future<Output = String> + Send + use<> {
        let (what, mut alive) = (self.what, self.alive.clone());
        async move {
            while alive.changed().await.is_ok() {}
            format!("{what} ended unexpectedly; see the log")
        }
    }

    /// Ends it, and waits until it has let go of everything.
    pub async fn stop(mut self) {
        self.handle.abort();
        // Cancelled, or ended before.
        let _ = (&mut self.handle).await;
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn whoever_waits_is_told_of_an_end() {
        let task = Task::spawn("the core", ready(()));
        assert!(task.ended().await.starts_with("the core ended"));
        let task = Task::spawn("the core", pending());
        let ended = task.ended();
        task.stop().await;
        ended.await;
    }
}
