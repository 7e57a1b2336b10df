//! What the HTTP server of the metrics shows, in the shape of the reference's pages.

mod json;
mod sessions;
mod status;
mod text;

use std::fmt::Write as _;

pub use json::pretty;
use sig_core::status::Status;

use super::{
    http::{JSON, PLAIN, ui},
    metrics,
    operator::Operator,
    process::Process,
};
use sig_core::document::common::LogLevel;

/// What pages are made of.
#[derive(Clone, Debug)]
pub struct View {
    /// State of the gateway.
    pub status: Status,
    /// Facts about the process.
    pub process: Process,
    /// The effective configuration as TOML.
    pub config: String,
    /// Least important message of the log.
    pub log_level: LogLevel,
}

impl View {
    /// What is so now. May block for a moment.
    pub fn of(operator: &dyn Operator) -> Self {
        View {
            status: operator.status(),
            process: Process::read(),
            config: operator.config(),
            log_level: operator.log_level(),
        }
    }
}

/// A page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// The effective configuration.
    Config,
    /// What remote gateways announce.
    PrefixWatcher,
    /// Prefixes advertised and learned.
    Sgrp,
    /// Sessions and routing tables.
    Engine,
    /// Version, process, command line.
    Info,
    /// The IP routing policy.
    RoutingPolicy,
    /// Least important message of the log.
    LogLevel,
    /// For Prometheus.
    Metrics,
    /// What sessions are made of.
    SessionConfigurator,
    /// Remote ASes, sessions, paths, routing table.
    Status,
}

impl Page {
    /// Every page, in the order of the paths.
    pub const ALL: [Self; 10] = [
        Self::Config,
        Self::PrefixWatcher,
        Self::Sgrp,
        Self::Engine,
        Self::Info,
        Self::RoutingPolicy,
        Self::LogLevel,
        Self::Metrics,
        Self::SessionConfigurator,
        Self::Status,
    ];

    /// Its path in the URL.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Config => "/config",
            Self::PrefixWatcher => "/diagnostics/prefixwatcher",
            Self::Sgrp => "/diagnostics/sgrp",
            Self::Engine => "/engine",
            Self::Info => "/info",
            Self::RoutingPolicy => "/ip-routing/policy",
            Self::LogLevel => "/log/level",
            Self::Metrics => "/metrics",
            Self::SessionConfigurator => "/sessionconfigurator",
            Self::Status => "/status",
        }
    }

    /// What it shows, for the index.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Config => "effective configuration",
            Self::PrefixWatcher => "IP prefixes accepted from remote gateways",
            Self::Sgrp => "IP prefixes advertised and learned",
            Self::Engine => "sessions and routing tables",
            Self::Info => "version and process",
            Self::RoutingPolicy => "IP routing policy (supports PUT)",
            Self::LogLevel => "logging level (supports PUT)",
            Self::Metrics => "metrics for Prometheus",
            Self::SessionConfigurator => "policies, remote gateways and the resulting sessions",
            Self::Status => "remote ASes, sessions, paths, routing table",
        }
    }

    /// Media type of its text.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Metrics => metrics::CONTENT_TYPE,
            Self::PrefixWatcher | Self::Sgrp | Self::LogLevel | Self::SessionConfigurator => JSON,
            Self::Config | Self::Engine | Self::Info | Self::RoutingPolicy | Self::Status => PLAIN,
        }
    }

    /// Its text.
    #[must_use]
    pub fn render(self, view: &View) -> String {
        let status = &view.status;
        match self {
            Self::Config => view.config.clone(),
            Self::PrefixWatcher => json::prefix_watcher(status),
            Self::Sgrp => json::sgrp(status),
            Self::Engine => json::engine(status),
            Self::Info => info(&status.version, &view.process),
            Self::RoutingPolicy => {
                let control = status.control.as_ref();
                control.map_or_else(String::new, |control| control.routing_policy.clone())
            }
            Self::LogLevel => log_level(view.log_level),
            Self::Metrics => metrics::render(status, &view.process),
            Self::SessionConfigurator => json::session_configurator(status),
            Self::Status => status::render(status),
        }
    }
}

/// `/all`: every page with its name above it, the long one at the end.
#[must_use]
pub fn all(view: &View) -> String {
    let mut text = String::new();
    let pages = Page::ALL.into_iter().filter(|page| *page != Page::Metrics);
    for page in pages.chain([Page::Metrics]) {
        let name = page.path().trim_start_matches('/');
        let line = "=".repeat(name.len());
        let _ = write!(text, "\n\n{name}\n{line}\n\n{}", page.render(view));
    }
    text
}

/// `/`: links to the pages, in HTML.
#[must_use]
pub fn index(id: &str) -> String {
    let pages = Page::ALL.map(|page| (page.path(), page.about()));
    links(id, [(ui::PATH, ui::ABOUT)].into_iter().chain(pages))
}

/// Links to pages, with what they show, in HTML.
pub(crate) fn links<'a>(id: &str, pages: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let id = text::html(id);
    let mut rows = String::new();
    for (path, about) in pages {
        let about = text::html(about);
        let _ = writeln!(
            rows,
            "<tr><td><a href=\"{path}\">[{}]</a></td><td>{about}</td></tr>",
            path.trim_start_matches('/')
        );
    }
    format!(
        "<!DOCTYPE html>\n<html>\n<head><title>{id}</title></head>\n\
         <body style=\"font-family:sans-serif\">\n<h1>{id}</h1>\n<table>\n{rows}</table>\n\
         </body>\n</html>\n"
    )
}

/// `/log/level`: `{"level":"info"}`, with a line end.
#[must_use]
pub fn log_level(level: LogLevel) -> String {
    format!("{{\"level\":\"{}\"}}\n", level.as_str())
}

/// `/info`: of a program with this version.
#[must_use]
pub fn info(version: &str, process: &Process) -> String {
    let ids = match process.user_group {
        Some((user, group)) => format!("{user} {group}"),
        None => "? ?".to_owned(),
    };
    let command: Vec<String> = process
        .command
        .iter()
        .map(|word| format!("{word:?}"))
        .collect();
    format!(
        "  Scion version: {}\n  In docker:     {}\n  pid:           {}\n  euid/egid:     {ids}\n  \
         cmd line:      [{}]\n",
        version,
        process.in_docker,
        process.pid,
        command.join(" ")
    )
}

#[cfg(test)]
mod tests;
