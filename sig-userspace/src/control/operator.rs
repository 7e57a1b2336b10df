//! The gateway as an operator sees it, whichever way it finds its remotes.

use std::{
    fmt::Write as _,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{
    config::{self, Config, LogLevel},
    configured, discovery,
    host::HostHandle,
};
use sig_core::status::Status;
use sig_observe::{log::LogControl, operator::Operator};

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
    /// Held while files are read and put into force, so that the newer ones stay.
    reloading: Mutex<()>,
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
            reloading: Mutex::default(),
            log,
        }
    }
}

impl Operator for Running {
    fn status(&self) -> Status {
        self.host.status()
    }

    fn config(&self) -> String {
        let mut in_force = lock(&self.in_force).clone();
        in_force.log.level = self.log.level();
        in_force.to_toml()
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
        let _reloading = lock(&self.reloading);
        let config = config::load(&self.file).map_err(|errors| errors.to_string())?;
        let mut told = String::new();
        let mut incomplete = None;
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
                let (lines, result) = remotes.reload(&config);
                for line in lines {
                    let _ = writeln!(told, "{line}");
                }
                incomplete = result.err();
            }
            (Remotes::Found(_), None) | (Remotes::Configured(_), Some(_)) => {
                return Err(format!(
                    "{}: [[remote]] sections can replace the SCION daemon, or vice \
                     versa, only with a restart",
                    self.file.display()
                ));
            }
        }
        take_over(&mut lock(&self.in_force), &config);
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
        match incomplete {
            Some(error) => Err(format!(
                "{told}some changes did not take effect, retrying: {error}"
            )),
            None if told.is_empty() => Ok("nothing has changed\n".to_owned()),
            None => Ok(told),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes over what a reload puts into force.
fn take_over(in_force: &mut Config, now: &Config) {
    in_force.log.level = now.log.level;
    match (&mut in_force.control, &now.control) {
        (Some(control), Some(now)) => {
            control
                .traffic_policy_file
                .clone_from(&now.traffic_policy_file);
            control
                .ip_routing_policy_file
                .clone_from(&now.ip_routing_policy_file);
        }
        _ => {
            in_force.gateway.prefixes.clone_from(&now.gateway.prefixes);
            in_force.remotes.clone_from(&now.remotes);
        }
    }
}

/// The keys of the file at the start whose values a reload does not put into force, and that differ.
fn restart_only(read: &Config, now: &Config) -> Vec<String> {
    let mut read = read.clone();
    take_over(&mut read, now);
    read.differences(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_in_force_names_the_files_that_were_read_last() {
        let read = |policy: &str, id: &str| {
            let text = format!(
                "[gateway]\nid = \"{id}\"\ntraffic_policy_file = \"{policy}\"\n\
                 [sciond_connection]\naddress = \"127.0.0.1:30255\"\n[log.console]\nlevel = \"debug\"\n"
            );
            let no_files = |_: &std::path::Path| Err(std::io::ErrorKind::NotFound.into());
            config::check(&text, "gateway.toml", &no_files).expect("a configuration")
        };
        let (mut in_force, now) = (read("old.json", "a"), read("new.json", "b"));
        assert_eq!(
            restart_only(&in_force, &now),
            ["gateway.id", "gateway.status_socket"]
        );
        take_over(&mut in_force, &now);
        assert!(in_force.to_toml().contains("new.json"));
    }
}
