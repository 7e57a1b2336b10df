//! The gateway as an operator sees it, whichever way it finds its remotes.

use std::{fmt::Write as _, path::PathBuf};

use super::{
    config::{self, Config, LogLevel},
    discovery::Handle,
    host::HostHandle,
};
use crate::observe::{log::LogControl, operator::Operator, status::Status};

/// A gateway that was started with a configuration file.
pub struct Running {
    host: HostHandle,
    /// Where the remotes are found rather than configured.
    discovery: Option<Handle>,
    file: PathBuf,
    /// As it was read, with what has been found out since.
    in_force: Config,
    /// As it was read.
    read: Config,
    log: LogControl,
}

impl Running {
    /// The gateway of `host` and `discovery`, whose configuration was `read` from `file` and completed to
    /// `in_force`.
    #[must_use]
    pub fn new(
        host: HostHandle,
        discovery: Option<Handle>,
        file: PathBuf,
        (read, in_force): (Config, Config),
        log: LogControl,
    ) -> Self {
        Running {
            host,
            discovery,
            file,
            read,
            in_force,
            log,
        }
    }
}

impl Operator for Running {
    fn status(&self) -> Status {
        self.host.status()
    }

    fn config(&self) -> String {
        self.in_force.to_toml()
    }

    fn log_level(&self) -> LogLevel {
        self.log.level()
    }

    fn set_log_level(&self, level: LogLevel) -> Result<(), String> {
        self.log.set(level)
    }

    fn set_routing_policy(&self, text: &str) -> Result<(), String> {
        let discovery = self
            .discovery
            .as_ref()
            .ok_or("the remotes and their prefixes are written in the configuration file")?;
        discovery
            .set_routing_policy(text)
            .map_err(|errors| errors.to_string())
    }

    fn reload(&self) -> Result<String, String> {
        let config = config::load(&self.file).map_err(|errors| errors.to_string())?;
        let mut told = String::new();
        if let (Some(discovery), Some(control)) = (&self.discovery, &config.control) {
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
        if config.log.level != self.log_level() {
            self.set_log_level(config.log.level)?;
            let _ = writeln!(told, "log level: {}", config.log.level.as_str());
        }
        if !is_same_but_for_policies(&config, &self.read) {
            let _ = writeln!(
                told,
                "{}: other changes take effect with a restart",
                self.file.display()
            );
        }
        if told.is_empty() {
            told.push_str("nothing has changed\n");
        }
        Ok(told)
    }
}

/// Whether two configurations differ at most in what a reload puts into force.
fn is_same_but_for_policies(a: &Config, b: &Config) -> bool {
    let mut a = a.clone();
    a.log.level = b.log.level;
    if let (Some(a), Some(b)) = (&mut a.control, &b.control) {
        a.traffic_policy_file.clone_from(&b.traffic_policy_file);
        a.ip_routing_policy_file
            .clone_from(&b.ip_routing_policy_file);
    }
    a == *b
}
