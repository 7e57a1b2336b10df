//! The gateway as an operator sees it, whichever way it finds its remotes.

use std::{
    fmt::Write as _,
    path::PathBuf,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use super::{
    config::{self, Config, LogLevel},
    configured, discovery,
    host::{HostHandle, watching::Watch},
    rules::Rules,
};
use sig_core::{status::Status, trace::Trace};
use sig_observe::{log::LogControl, operator::Operator};
use tokio::runtime::Handle as Runtime;

/// Where a gateway has its remotes from.
#[derive(Clone)]
pub(crate) enum Remotes {
    /// The SCION daemon and remote ASes.
    Found(discovery::Handle),
    /// The `[[remote]]` sections of the configuration.
    Configured(configured::Handle),
}

/// What has become of [`Running::drain`].
#[derive(serde::Serialize)]
pub(crate) struct Drained {
    draining: bool,
    /// Remote gateways ask which prefixes there are, and see it. Otherwise the configuration names them, and nobody asks.
    tells_remotes: bool,
}

/// A running gateway.
pub(crate) struct Running {
    host: HostHandle,
    remotes: Remotes,
    /// Where its configuration is read again; `None`: it was given.
    file: Option<PathBuf>,
    /// As it was at the start, with what has been found out and reloaded since.
    in_force: Mutex<Config>,
    /// As it was at the start.
    first: Config,
    /// As it was read or given last.
    last: Mutex<Config>,
    /// Held while files are read and put into force, so that the newer ones stay.
    reloading: Mutex<()>,
    reloads: AtomicU64,
    reloads_refused: AtomicU64,
    draining: AtomicBool,
    /// `None`: the log is none of ours.
    log: Option<LogControl>,
    runtime: Runtime,
}

impl Running {
    /// The gateway of `host` with its `remotes`, whose configuration `first` was read from `file`, if there is one, and
    /// completed to `in_force`.
    #[must_use]
    pub(crate) fn new(
        host: HostHandle,
        remotes: Remotes,
        file: Option<PathBuf>,
        (first, in_force): (Config, Config),
        log: Option<LogControl>,
    ) -> Self {
        Running {
            host,
            remotes,
            file,
            last: Mutex::new(first.clone()),
            first,
            in_force: Mutex::new(in_force),
            reloading: Mutex::default(),
            reloads: AtomicU64::new(0),
            reloads_refused: AtomicU64::new(0),
            draining: AtomicBool::new(false),
            log,
            runtime: Runtime::current(),
        }
    }

    /// Puts what can change of this configuration, and the policy files that it names, into force; tells what changed.
    ///
    /// # Errors
    ///
    /// As [`Operator::reload`].
    pub(crate) fn reload_with(&self, config: Config) -> Result<String, String> {
        let _reloading = lock(&self.reloading);
        self.counted(self.put_into_force(config))
    }

    /// Counts the result of a reload.
    fn counted(&self, result: Result<String, String>) -> Result<String, String> {
        let counter = match result {
            Ok(_) => &self.reloads,
            Err(_) => &self.reloads_refused,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        result
    }

    /// What would be done with the packet of this question, which is JSON. May block for a moment.
    ///
    /// # Errors
    ///
    /// What is wrong with the question.
    pub(crate) fn trace(&self, question: &str) -> Result<Trace, String> {
        let question = serde_json::from_str(question)
            .map_err(|error| format!("not a question that this version understands: {error}"))?;
        self.host.trace(&question)
    }

    /// Packets as this request, which is JSON, says. `by` asks, for the log.
    ///
    /// # Errors
    ///
    /// What is wrong with the request.
    pub(crate) fn watch(&self, wanted: &str, by: &str) -> Result<Watch, String> {
        let wanted = serde_json::from_str(wanted)
            .map_err(|error| format!("not a request that this version understands: {error}"))?;
        self.host.watch(&wanted, by)
    }

    /// Leaves its traffic to other gateways, or takes it again. Packets that come are carried all the same. `by` asks, for the log. May
    /// block for a moment.
    ///
    /// # Errors
    ///
    /// What did not take effect.
    pub(crate) fn drain(&self, draining: bool, by: &str) -> Result<Drained, String> {
        let _reloading = lock(&self.reloading);
        let before = self.draining.swap(draining, Ordering::Relaxed);
        let tells_remotes = match &self.remotes {
            Remotes::Found(discovery) => {
                discovery.set_draining(draining);
                true
            }
            Remotes::Configured(_) => false,
        };
        let result = self.runtime.block_on(self.host.set_draining(draining));
        result.map_err(|error| format!("not all of it took effect, try again: {error}"))?;
        if before != draining {
            match draining {
                true => tracing::info!(
                    by,
                    "draining: kernel routes into the tunnel are withdrawn, remote gateways that ask are told no prefixes; \"sig drain \
                     --undo\" ends it"
                ),
                false => tracing::info!(by, "draining has ended"),
            }
        }
        Ok(Drained {
            draining,
            tells_remotes,
        })
    }

    /// What messages about the configuration begin with.
    fn prefix(&self) -> String {
        let name = |file: &PathBuf| format!("{}: ", file.display());
        self.file.as_ref().map_or_else(String::new, name)
    }

    fn put_into_force(&self, config: Config) -> Result<String, String> {
        let mut told = String::new();
        let mut incomplete: Vec<String> = Vec::new();
        // Both files are checked before either is put into force.
        let (rules, warnings) = Rules::load(&config).map_err(|errors| errors.to_string())?;
        for warning in warnings {
            tracing::warn!("{warning}");
            let _ = writeln!(told, "warning: {warning}");
        }
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
                incomplete.extend(result.err().map(|error| error.to_string()));
            }
            (Remotes::Found(_), None) | (Remotes::Configured(_), Some(_)) => {
                return Err(format!(
                    "{}[[remote]] sections can replace the SCION daemon, or vice \
                     versa, only with a restart",
                    self.prefix()
                ));
            }
        }
        match self
            .runtime
            .block_on(self.host.set_lan(&config.dataplane.lan))
        {
            Ok((changes, errors)) => {
                for line in changes {
                    let _ = writeln!(told, "{line}");
                }
                incomplete.extend(errors);
            }
            Err(error) => incomplete.push(error.to_string()),
        }
        match self.runtime.block_on(self.host.set_rules(rules)) {
            Ok(changes) => {
                for line in changes {
                    let _ = writeln!(told, "{line}");
                }
            }
            Err(error) => incomplete.push(error.to_string()),
        }
        take_over(&mut lock(&self.in_force), &config);
        if let Some(log) = &self.log
            && config.log.level != log.level()
        {
            log.set(config.log.level)?;
            let _ = writeln!(told, "log level: {}", config.log.level.as_str());
        }
        let waiting = restart_only(&self.first, &config);
        *lock(&self.last) = config;
        if !waiting.is_empty() {
            let _ = writeln!(
                told,
                "{}takes effect with a restart: {}",
                self.prefix(),
                waiting.join(", ")
            );
        }
        if !incomplete.is_empty() {
            return Err(format!(
                "{told}some changes did not take effect, retrying: {}",
                incomplete.join("; ")
            ));
        }
        match told.is_empty() {
            true => Ok("nothing changed\n".to_owned()),
            false => Ok(told),
        }
    }
}

impl Operator for Running {
    fn status(&self) -> Status {
        Status {
            reloads: self.reloads.load(Ordering::Relaxed),
            reloads_refused: self.reloads_refused.load(Ordering::Relaxed),
            draining: self.draining.load(Ordering::Relaxed),
            ..self.host.status()
        }
    }

    fn config(&self) -> String {
        let mut in_force = lock(&self.in_force).clone();
        in_force.log.level = self.log_level();
        in_force.to_toml()
    }

    fn log_level(&self) -> LogLevel {
        match &self.log {
            Some(log) => log.level(),
            None => lock(&self.in_force).log.level,
        }
    }

    fn set_log_level(&self, level: LogLevel) -> Result<(), String> {
        match &self.log {
            Some(log) => log.set(level),
            None => {
                Err("the log belongs to the program that runs this gateway: change it there".into())
            }
        }
    }

    fn set_routing_policy(&self, text: &str) -> Result<(), String> {
        let Remotes::Found(discovery) = &self.remotes else {
            return Err(
                "the remotes and their prefixes come from the configuration file; edit it and reload".into(),
            );
        };
        discovery
            .set_routing_policy(text)
            .map_err(|errors| errors.to_string())
    }

    fn reload(&self) -> Result<String, String> {
        let _reloading = lock(&self.reloading);
        let config = match &self.file {
            Some(file) => config::load(file).map_err(|errors| errors.to_string()),
            None => Ok(lock(&self.last).clone()),
        };
        self.counted(config.and_then(|config| self.put_into_force(config)))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes over what a reload puts into force.
fn take_over(in_force: &mut Config, now: &Config) {
    in_force.log.level = now.log.level;
    in_force.dataplane.lan.clone_from(&now.dataplane.lan);
    in_force
        .gateway
        .rules_file
        .clone_from(&now.gateway.rules_file);
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
