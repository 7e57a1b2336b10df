//! The gateway as an operator sees it, whichever way it finds its remotes.

use std::{
    fmt::Write as _,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use super::{
    config::{self, Config, LogLevel},
    configured, discovery,
    host::HostHandle,
};
use crate::observe::{log::LogControl, operator::Operator, status::Status};

/// Where a gateway has its remotes from.
#[derive(Clone)]
pub enum Remotes {
    /// The SCION daemon and remote ASes.
    Found(discovery::Handle),
    /// The `[[remote]]` sections of the configuration.
    Configured(configured::Handle),
}

/// A gateway that was started with a configuration file.
pub struct Running {
    host: HostHandle,
    remotes: Remotes,
    file: PathBuf,
    /// As it was read, with what has been found out and reloaded since.
    in_force: Mutex<Config>,
    /// As it was read at the start.
    read: Config,
    log: LogControl,
}

impl Running {
    /// The gateway of `host` with its `remotes`, whose configuration was `read` from `file` and completed to
    /// `in_force`.
    #[must_use]
    pub fn new(
        host: HostHandle,
        remotes: Remotes,
        file: PathBuf,
        (read, in_force): (Config, Config),
        log: LogControl,
    ) -> Self {
        Running {
            host,
            remotes,
            file,
            read,
            in_force: Mutex::new(in_force),
            log,
        }
    }
}

impl Operator for Running {
    fn status(&self) -> Status {
        self.host.status()
    }

    fn config(&self) -> String {
        let in_force = self.in_force.lock();
        in_force.unwrap_or_else(PoisonError::into_inner).to_toml()
    }

    fn log_level(&self) -> LogLevel {
        self.log.level()
    }

    fn set_log_level(&self, level: LogLevel) -> Result<(), String> {
        self.log.set(level)
    }

    fn set_routing_policy(&self, text: &str) -> Result<(), String> {
        let Remotes::Found(discovery) = &self.remotes else {
            return Err(
                "the remotes and their prefixes are written in the configuration file".into(),
            );
        };
        discovery
            .set_routing_policy(text)
            .map_err(|errors| errors.to_string())
    }

    fn reload(&self) -> Result<String, String> {
        let config = config::load(&self.file).map_err(|errors| errors.to_string())?;
        let mut told = String::new();
        match (&self.remotes, &config.control) {
            (Remotes::Found(discovery), Some(control)) => {
                let (changes, warnings) = discovery
                    .reload(control)
                    .map_err(|errors| errors.to_string())?;
                for line in changes {
                    let _ = writeln!(told, "{line}");
                }
                for warning in warnings {
                    tracing::warn!("{warning}");
                    let _ = writeln!(told, "warning: {warning}");
                }
            }
            (Remotes::Configured(remotes), None) => {
                for line in remotes.reload(&config) {
                    let _ = writeln!(told, "{line}");
                }
                let mut in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
                in_force.remotes.clone_from(&config.remotes);
                in_force
                    .gateway
                    .prefixes
                    .clone_from(&config.gateway.prefixes);
            }
            (Remotes::Found(_), None) | (Remotes::Configured(_), Some(_)) => {
                return Err(format!(
                    "{}: [[remote]] sections take the place of the SCION daemon, or the other way round, only \
                     with a restart",
                    self.file.display()
                ));
            }
        }
        if config.log.level != self.log_level() {
            self.set_log_level(config.log.level)?;
            let _ = writeln!(told, "log level: {}", config.log.level.as_str());
        }
        let waiting = restart_only(&self.read, &config);
        if !waiting.is_empty() {
            let _ = writeln!(
                told,
                "{}: takes effect with a restart: {}",
                self.file.display(),
                waiting.join(", ")
            );
        }
        if told.is_empty() {
            told.push_str("nothing has changed\n");
        }
        Ok(told)
    }
}

/// The keys of the file at the start whose values a reload does not put into force, and that differ.
fn restart_only(read: &Config, now: &Config) -> Vec<String> {
    let mut read = read.clone();
    read.log.level = now.log.level;
    match (&mut read.control, &now.control) {
        (Some(read), Some(now)) => {
            read.traffic_policy_file
                .clone_from(&now.traffic_policy_file);
            read.ip_routing_policy_file
                .clone_from(&now.ip_routing_policy_file);
        }
        _ => {
            read.gateway.prefixes.clone_from(&now.gateway.prefixes);
            read.remotes.clone_from(&now.remotes);
        }
    }
    read.differences(now)
}
