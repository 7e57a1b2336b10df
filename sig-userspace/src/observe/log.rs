//! The console log, with a level that can be changed while the gateway runs.

use std::{
    io::{self, IsTerminal},
    sync::{Mutex, PoisonError},
};

use tracing::Dispatch;
use tracing_subscriber::{
    EnvFilter, fmt::MakeWriter, reload::Handle, util::SubscriberInitExt as _,
};

use crate::control::config::{Log, LogFormat, LogLevel};

/// Changes the level of the log.
pub struct LogControl {
    level: Mutex<LogLevel>,
    set: Box<dyn Fn(LogLevel) -> Result<(), String> + Send + Sync>,
}

impl LogControl {
    /// Least important message shown.
    pub fn level(&self) -> LogLevel {
        *self.level.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes that.
    ///
    /// # Errors
    ///
    /// If the log is gone.
    pub fn set(&self, level: LogLevel) -> Result<(), String> {
        let mut current = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        (self.set)(level)?;
        *current = level;
        Ok(())
    }
}

/// Starts the log of the process, on the standard error output. To be called once.
pub fn start(log: &Log) -> LogControl {
    let (dispatch, control) = build(log, io::stderr, io::stderr().is_terminal());
    dispatch.init();
    control
}

fn build(
    log: &Log,
    writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static,
    colours: bool,
) -> (Dispatch, LogControl) {
    let lines = tracing_subscriber::fmt()
        .with_writer(writer)
        .with_ansi(colours)
        .with_env_filter(filter(log.level));
    match log.format {
        LogFormat::Human => {
            let lines = lines.with_target(false).with_filter_reloading();
            let control = control(lines.reload_handle(), log.level);
            (lines.finish().into(), control)
        }
        LogFormat::Json => {
            let lines = lines.json().with_filter_reloading();
            let control = control(lines.reload_handle(), log.level);
            (lines.finish().into(), control)
        }
    }
}

fn control<S: 'static>(handle: Handle<EnvFilter, S>, level: LogLevel) -> LogControl {
    LogControl {
        level: Mutex::new(level),
        set: Box::new(move |level| handle.reload(filter(level)).map_err(|e| e.to_string())),
    }
}

fn filter(level: LogLevel) -> EnvFilter {
    EnvFilter::new(level.as_str())
}

#[cfg(test)]
mod tests {
    use std::{io::Write, sync::Arc};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn shown(format: LogFormat) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let level = LogLevel::Info;
        let (dispatch, control) = build(&Log { level, format }, move || writer.clone(), false);
        tracing::dispatcher::with_default(&dispatch, || {
            // The same place in the program each time, because tracing remembers what it decided there.
            let speak = || tracing::debug!(level = control.level().as_str(), "spoken");
            speak();
            control.set(LogLevel::Debug).unwrap();
            speak();
            control.set(LogLevel::Error).unwrap();
            speak();
        });
        assert_eq!(control.level(), LogLevel::Error);
        drop(dispatch);
        assert!(control.set(LogLevel::Info).is_err());
        assert_eq!(control.level(), LogLevel::Error);
        String::from_utf8(lines.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn the_level_of_a_running_log_changes() {
        for format in [LogFormat::Human, LogFormat::Json] {
            let text = shown(format);
            assert_eq!(text.lines().count(), 1, "{text}");
            assert!(text.contains("spoken") && text.contains("debug"), "{text}");
        }
    }
}
