//! The configuration file: one TOML, checked as a whole.
//!
//! [`check`] is pure: text in, a [`Config`] with every default filled in and every value resolved
//! out, or all problems of the file with line, key and remedy. [`load`] reads the file first. [`Config::builder`] makes one
//! of typed values, by the same rules.
//!
//! A file with `topology` or `[peer]` is a short one, of which a configuration is made (`site`).
//!
//! A file without `[[remote]]` sections is one of a gateway that finds its remotes, as the files of the
//! reference are: all their keys are accepted, and those without effect here are named by
//! [`Config::warnings`]. Unknown keys are errors.

mod builder;
mod discovery;
mod keys;
mod made;
mod model;
mod path;
mod protection;
mod remote;
mod render;
mod sections;
mod site;
mod whole;

#[cfg(test)]
mod tests;

use std::io;
use std::path::Path as FilePath;
use std::time::{Duration, SystemTime};

pub use builder::Builder;
pub use discovery::{Discovery, Rpc};
pub use model::{
    Config, Control, DefaultRoute, EndhostPort, FastPathUse, LanTransmit, Made, Path, Pin,
    Preference, Protection, ProtectionMode, Remote, RemoteProtection, TunnelDevice, UnderlayPort,
    WrittenAt,
};
pub use protection::General;
pub use sections::{Dataplane, Gateway, Limits, Tunnel};
pub use sig_core::document::common::{Listen, Log, LogFormat, LogLevel, Observe, XdpMode};
pub use sig_core::peer::{PeerLimits, RpcProtocols, UnderlaySources};
pub use sig_core::problem::{Errors, Problem};
#[cfg(feature = "xdp")]
pub(crate) use site::Written;

use sig_core::document::{self, common, toml::Section};
use sig_core::problem::Report;

/// Reads the files that a configuration names, relative to the folder of the configuration file.
pub type ReadFile<'a> = &'a dyn Fn(&FilePath) -> io::Result<Vec<u8>>;

/// UDP/SCION port of the data plane where the configuration names none.
pub(crate) const DEFAULT_DATA_PORT: u16 = 30056;

/// A commented configuration with every key; the same as `sig config sample` prints.
pub(crate) const SAMPLE: &str = include_str!("sample.toml");

/// A configured path that expires within this time deserves a warning: paths live for 6 minutes to 24 hours.
pub(crate) const EXPIRES_SOON: Duration = Duration::from_secs(3600);

/// Checks the configuration `text`, whether or not its paths have expired.
///
/// `file` is the name for messages. `read_file` is asked for the path files that the text names; a
/// relative name is relative to the configuration file.
///
/// # Errors
///
/// All problems of the file that can be told at once, in the order of lines. While a value cannot
/// be read, checks that need it are left out.
pub fn check(text: &str, file: &str, read_file: ReadFile<'_>) -> Result<Config, Errors> {
    check_at(text, file, read_file, None)
}

/// As [`check`]; with a time, paths that have expired by then are errors too, and those that soon will get a
/// warning.
///
/// # Errors
///
/// As [`check`].
pub(crate) fn check_at(
    text: &str,
    file: &str,
    read_file: ReadFile<'_>,
    now: Option<SystemTime>,
) -> Result<Config, Errors> {
    let report = Report::new(file, text);
    let Some(table) = document::toml::parse(&report, text, document::LONGEST_FILE) else {
        return Err(Errors::new(report.take().0));
    };

    let root = Section::root(&report, table.get_ref(), keys::SCHEMA);
    let log = common::log(&root);
    let discovers = root.sections("remote").is_empty();
    let own = sections::own_addresses(&root, discovers);
    let gateway = sections::gateway(&root, own.as_ref(), discovers);
    let control = discovery::control(&root, own.as_ref(), discovers);
    let observe = common::observe(&root);
    let tunnel = sections::tunnel(&root);
    let dataplane = sections::dataplane(&root);
    sections::without_effect(&root);
    let remotes = remote::remotes(&root, gateway.as_ref(), read_file, now);
    whole::check(
        &root,
        gateway.as_ref(),
        tunnel.as_ref(),
        dataplane.as_ref(),
        &remotes,
        discovers,
    );

    let (errors, warnings) = report.take();
    let remotes: Option<Vec<Remote>> = remotes.into_iter().map(|r| r.value).collect();
    match (log, gateway, tunnel, dataplane, remotes, control, observe) {
        (
            Some(log),
            Some(gateway),
            Some(tunnel),
            Some(dataplane),
            Some(remotes),
            Some(control),
            Some(observe),
        ) if errors.is_empty() => Ok(Config {
            log,
            gateway: gateway.value,
            tunnel: tunnel.value,
            dataplane: dataplane.value,
            remotes,
            control: discovers.then_some(control),
            observe,
            warnings,
        }),
        _ => Err(Errors::new(errors).with_warnings(warnings)),
    }
}

/// Reads a duration as the configuration writes it: a whole number with one unit.
///
/// # Errors
///
/// What to write instead.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    sig_core::notation::duration(text)
}

/// Reads and checks the configuration file at `path`, whether or not its paths have expired.
///
/// # Errors
///
/// As [`check`]; a file that cannot be read is one problem at line 1.
pub fn load(path: &FilePath) -> Result<Config, Errors> {
    load_at(path, None)
}

/// As [`load`], with the time of [`check_at`].
///
/// # Errors
///
/// As [`load`].
pub(crate) fn load_at(path: &FilePath, now: Option<SystemTime>) -> Result<Config, Errors> {
    let text = document::read_text(path, "; \"sig config sample\" prints one to start from")?;
    let file = path.display().to_string();
    let folder = path.parent().unwrap_or(FilePath::new(""));
    let read_file = |name: &FilePath| document::read(&folder.join(name));
    if site::is_site(&text) {
        let made = site::check(&text, &file, &read_file, &site::own_address, now);
        return made.map(|(config, _)| config);
    }
    check_at(&text, &file, &read_file, now)
}

/// The status socket of a gateway with this short file.
#[cfg(feature = "xdp")]
pub(crate) fn socket_of_site(path: &FilePath) -> std::path::PathBuf {
    let name = document::values::file_name_of(&site::id(path));
    format!("/run/sig/{name}.sock").into()
}

/// Whether this file can be read and is no short file of a tunnel.
#[cfg(feature = "xdp")]
pub(crate) fn is_whole(path: &FilePath) -> bool {
    let text = document::read_text(path, "").unwrap_or_default();
    let table = text.parse::<toml::Table>();
    table.is_ok_and(|table| !table.is_empty()) && !site::is_site(&text)
}

/// Reads the short file of a tunnel, and tells what it stands for.
///
/// # Errors
///
/// As [`load`]; also if it is no such file.
#[cfg(feature = "xdp")]
pub(crate) fn load_site(path: &FilePath) -> Result<(Config, Written), Errors> {
    let text = document::read_text(path, "; \"sig quick --help\" shows what one holds")?;
    let file = path.display().to_string();
    let folder = path.parent().unwrap_or(FilePath::new(""));
    let read_file = |name: &FilePath| document::read(&folder.join(name));
    site::check(
        &text,
        &file,
        &read_file,
        &site::own_address,
        Some(SystemTime::now()),
    )
}
