//! The watchdog of the service manager: it starts the process anew when that hangs.

use std::{convert::Infallible, future::pending};

use sig_observe::service::ServiceManager;
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};

/// Tells the service manager that the process does its work, as often as that wants to know, while `works` says so. Does not end.
pub(super) async fn watch(
    manager: &ServiceManager,
    mut works: impl AsyncFnMut() -> bool,
) -> Infallible {
    let Some(limit) = manager.watchdog() else {
        return pending().await;
    };
    let mut looks = interval(limit / 3);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        if works().await {
            manager.alive();
        }
    }
}

/// The same while the process starts, until what is returned is dropped: who waits lives. In a task of its own, for a start may block
/// longer than the service manager has patience.
#[must_use]
pub(super) fn watch_start(manager: &ServiceManager) -> JoinSet<Infallible> {
    let manager = manager.clone();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { watch(&manager, async || true).await });
    tasks
}
