//! The configuration of an SR node, checked as a whole.

mod model;
mod sections;
mod whole;

use std::path::{Path, PathBuf};

use sig_core::{
    document::{
        self,
        common::{self, Log, file_name, socket_path},
        schema::Schema,
        toml::Section,
    },
    problem::{Errors, Problem, Report},
};

pub(crate) use model::{
    HmacRule, HopLimit, LocalSid, NamedRule, Probe, ProbeKind, Remembered, Service, ServiceAddress,
    Srv6, Steering, Target,
};
pub(crate) use sections::{
    FUNCTION_KEYS, HMAC_KEYS, POLICY_KEYS, RULE_KEYS, SID_KEYS, SRV6_KEYS, of_gateway,
};

/// A commented configuration with every key.
pub(crate) const SAMPLE: &str = include_str!("../sample.toml");

/// Longest file.
const LONGEST_TEXT: usize = 16 << 20;

/// Everything that an SR node is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    /// Its name.
    pub(crate) id: String,
    /// Unix socket that `sig srv6 status` asks.
    pub(crate) status_socket: PathBuf,
    pub(crate) log: Log,
    pub(crate) srv6: Srv6,
}

pub(super) static SCHEMA: Schema = Schema(&[
    ("", &[&["general", "log", "srv6"]]),
    ("general", &[&["id", "status_socket"]]),
    ("log", &[&["console"]]),
    (
        "log.console",
        &[Log::KEYS, &["stacktrace_level", "disable_caller"]],
    ),
    ("srv6", SRV6_KEYS),
    ("srv6.sid[]", &[SID_KEYS]),
    ("srv6.policy[]", &[POLICY_KEYS]),
    ("srv6.function[]", &[FUNCTION_KEYS]),
    ("srv6.hmac_key[]", &[HMAC_KEYS]),
    ("srv6.rule[]", &[RULE_KEYS]),
]);

///
/// # Errors
/// All problems at once.
pub(crate) fn check(text: &str, file: &str) -> Result<(Config, Vec<Problem>), Errors> {
    let report = Report::new(file, text);
    let config = document::toml::parse(&report, text, LONGEST_TEXT)
        .and_then(|table| read(&Section::root(&report, table.get_ref(), &SCHEMA)));
    let (mut errors, mut warnings) = report.take();
    match config {
        Some(config) if errors.is_empty() => Ok((config, warnings)),
        _ => {
            errors.append(&mut warnings);
            Err(Errors::new(errors))
        }
    }
}

/// Reads and checks the file at `path`.
///
/// # Errors
/// As [`check`].
pub(crate) fn load(path: &Path) -> Result<(Config, Vec<Problem>), Errors> {
    let text = document::read_text(path, "; \"sig srv6 sample\" prints one to start from")?;
    check(&text, &path.display().to_string())
}

fn read(root: &Section<'_>) -> Option<Config> {
    let general = root.section("general");
    let id = general
        .require("id", "the name of this node, for example id = \"sr-1\"")
        .and_then(|item| file_name(&item, "\"sr-1\""));
    let socket = general.get("status_socket");
    let socket = socket.map(|item| socket_path(&item, "\"/run/sig/sr-1.sock\""));
    let log = common::log(root);
    let srv6 = sections::srv6(&root.section("srv6"));
    let id = id?;
    Some(Config {
        status_socket: match socket {
            Some(path) => path?,
            None => PathBuf::from(format!("/run/sig/{id}.sock")),
        },
        id,
        log: log?,
        srv6: srv6?,
    })
}
