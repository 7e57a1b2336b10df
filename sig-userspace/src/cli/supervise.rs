//! A process in the foreground ends when a part of it does.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    panic::{self, AssertUnwindSafe, PanicHookInfo},
    thread,
    time::Duration,
};

use tokio::{runtime::Runtime, sync::watch};

/// How long the end of the process waits for what still runs.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs `work` to its end, or until a task or a thread of this process panics: half a gateway must not go on, and its
/// service manager starts a whole one. To be called once.
///
/// # Errors
/// That of `work`, or what panicked.
pub(super) fn supervise(
    runtime: Runtime,
    work: impl Future<Output = Result<(), String>>,
) -> Result<(), String> {
    let mut panicked = notice_panics();
    let first = panicked.clone();
    let result = panic::catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            tokio::select! {
                biased;
                Ok(message) = panicked.wait_for(Option::is_some) => Err(message.clone().unwrap_or_default()),
                result = work => result,
            }
        })
    }));
    runtime.shutdown_timeout(PATIENCE);
    result.unwrap_or_else(|_| Err(first.borrow().clone().unwrap_or_default()))
}

/// From now on, the first panic is told here, and none is written to a standard error output that might not take it.
fn notice_panics() -> watch::Receiver<Option<String>> {
    let (first, panicked) = watch::channel(None);
    panic::set_hook(Box::new(move |info| {
        let message = describe(info);
        first.send_if_modified(|first| {
            let is_first = first.is_none();
            if is_first {
                *first = Some(message);
            }
            is_first
        });
    }));
    panicked
}

fn describe(info: &PanicHookInfo<'_>) -> String {
    let what = info.payload_as_str().unwrap_or("no message");
    let place = info
        .location()
        .map_or_else(String::new, |place| format!(" at {place}"));
    let thread = thread::current();
    let name = thread.name().unwrap_or("unnamed");
    let mut text = format!(
        "bug in sig: thread \"{name}\" panicked{place}: {what}; please report it with the preceding log"
    );
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        text.push_str(&format!("\n{backtrace}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::{future::pending, process::Command};

    use super::*;

    /// Runs a test of this module in a process of its own, which may have the hook for itself.
    fn in_a_process(test: &str) {
        let name = format!("cli::supervise::tests::{test}");
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &name, "--ignored", "--nocapture"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}");
        assert!(text.contains("1 passed"), "{text}");
    }

    fn runtime() -> Runtime {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(2).enable_all().build().unwrap()
    }

    #[test]
    fn a_task_that_panics_ends_the_process_with_an_error() {
        in_a_process("a_task");
    }

    #[test]
    fn a_thread_that_panics_ends_the_process_with_an_error() {
        in_a_process("a_thread");
    }

    #[test]
    fn work_that_panics_is_an_error() {
        in_a_process("the_work");
    }

    #[test]
    #[ignore = "run by another test, in a process of its own"]
    fn a_task() {
        let error = supervise(runtime(), async {
            // Nobody looks at how it ends.
            drop(tokio::spawn(async { panic!("the {} is gone", "core") }));
            pending().await
        });
        let error = error.unwrap_err();
        assert!(error.contains("the core is gone"), "{error}");
        assert!(error.contains("supervise.rs:"), "{error}");
    }

    #[test]
    #[ignore = "run by another test, in a process of its own"]
    fn a_thread() {
        let error = supervise(runtime(), async {
            let thread = thread::Builder::new().name("worker-3".into());
            drop(thread.spawn(|| panic!("no chunk")));
            pending().await
        });
        let error = error.unwrap_err();
        assert!(error.contains("\"worker-3\""), "{error}");
    }

    #[test]
    #[ignore = "run by another test, in a process of its own"]
    fn the_work() {
        let error = supervise(runtime(), async { panic!("no way on") });
        assert!(error.unwrap_err().contains("no way on"));
    }
}
