//! The configuration of a border router: its own file, the topology of the AS and the key that hop fields are signed
//! with, checked as a whole.
//!
//! The own file (TOML) is that of the reference's router, with a section `[xdp]` added; it names the folder of
//! `topology.json` and `keys/master0.key`. [`check`] is pure but for reading these two through a function; [`load`] reads
//! from the disk.

mod keys;
mod limits;
mod own;
mod whole;

#[cfg(test)]
mod tests;

use std::{
    cell::RefCell,
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use super::AsModel;
pub use limits::RateLimits;
use own::Own;
pub use own::Xdp;
pub use sig_core::document::common::{Log, LogFormat, LogLevel, Observe, XdpMode};
use sig_core::{
    document::{self, toml::Section, values::master_key},
    notation::from_base64,
    problem::{Errors, Problem, Report},
    topology::{self, Ends},
};

/// A commented configuration with every key.
pub const SAMPLE: &str = include_str!("sample.toml");

/// A topology for the sample.
pub const SAMPLE_TOPOLOGY: &str = include_str!("sample.topology.json");

/// Where the master key is in the folder.
const KEY_FILE: &str = "keys/master0.key";

/// Bytes of a master key; the reference takes any number.
pub const MASTER_KEY_LEN: usize = 16;

/// Longest text of the own file and of a topology; far more than any in use has.
const LONGEST_TEXT: usize = 16 << 20;

/// Everything that a border router is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The AS, and this router in it.
    pub model: AsModel,
    /// Section `[log.console]`.
    pub log: Log,
    /// Where operators and their programs look: sections `[metrics]` and `[api]`.
    pub observe: Observe,
    /// Unix socket that `sig router status` asks. Default `/run/sig/<id>.sock`.
    pub status_socket: PathBuf,
    /// The fast path.
    pub xdp: Xdp,
    /// Whether the slow path runs: the sockets at the internal address and at our ends of links are ours. Otherwise another
    /// router on this host has them. Default true.
    pub slow_path: bool,
    /// Sizes of these sockets' buffers.
    pub buffers: Buffers,
    /// The own file and the topology as they were read.
    pub texts: Texts,
}

/// The text of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Texts {
    /// The own file, TOML.
    pub own: String,
    /// The topology, JSON.
    pub topology: String,
}

/// Sizes of socket buffers in bytes; `None`: as the system has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffers {
    /// Of what was received.
    pub receive: Option<u32>,
    /// Of what is to be sent.
    pub send: Option<u32>,
}

/// Reads a file that the configuration needs.
pub type ReadFile<'a> = &'a dyn Fn(&Path) -> io::Result<Vec<u8>>;

/// Checks the own file of a border router, its `text`, and what it leads to. Beside the settings, what works but deserves
/// a look.
///
/// `file` is its name for messages. `find_folder` makes of `config_dir` the folder of the other files, which `read_file` is
/// asked for.
///
/// # Errors
///
/// All problems of all files that can be told at once.
pub fn check(
    text: &str,
    file: &str,
    find_folder: &dyn Fn(&Path) -> PathBuf,
    read_file: ReadFile<'_>,
) -> Result<(Settings, Vec<Problem>), Errors> {
    let report = Report::new(file, text);
    let Some(table) = document::toml::parse(&report, text, LONGEST_TEXT) else {
        return Err(Errors::new(report.take().0));
    };
    let root = Section::root(&report, table.get_ref(), keys::SCHEMA);
    let own = own::read(&root);
    let mut found = Problems::default();
    let model = own::config_dir(&root).and_then(|config_dir| {
        model(
            &root,
            own.as_ref(),
            &find_folder(config_dir),
            read_file,
            &mut found,
        )
    });

    let (mut errors, mut warnings) = report.take();
    errors.append(&mut found.errors);
    warnings.append(&mut found.warnings);
    match (model, own) {
        (Some((model, topology)), Some(own)) if errors.is_empty() => {
            let texts = Texts {
                own: text.to_owned(),
                topology,
            };
            Ok((own.settings(model, texts), warnings))
        }
        _ => {
            // What is missing may be there under a name that has no effect.
            errors.append(&mut warnings);
            Err(Errors::new(errors))
        }
    }
}

/// Reads and checks the own file at `path`, and what it leads to. A `config_dir` that is not in the folder of the file is
/// looked for in the working directory, as by the reference.
///
/// # Errors
///
/// As [`check`].
pub fn load(path: &Path) -> Result<(Settings, Vec<Problem>), Errors> {
    let text = document::read_text(path, "; \"sig router sample\" prints one to start from")?;
    let file = path.display().to_string();
    let folder = path.parent().unwrap_or(Path::new(""));
    let find_folder = |name: &Path| {
        let beside = folder.join(name);
        if beside.is_dir() || !name.is_dir() {
            beside
        } else {
            name.to_owned()
        }
    };
    let exposed = RefCell::new(Vec::new());
    let read_file = |name: &Path| {
        let bytes = document::read(name)?;
        if name.ends_with(KEY_FILE) && is_open(name) {
            exposed.borrow_mut().push(whole(
                &name.display().to_string(),
                "every user of this host can read the key and forge paths through the AS; chmod 600".to_owned(),
            ));
        }
        Ok(bytes)
    };
    let (settings, mut warnings) = check(&text, &file, &find_folder, &read_file)?;
    warnings.append(&mut exposed.borrow_mut());
    #[cfg(feature = "linux")]
    cpus_exist(&settings.xdp, &text, &file)?;
    Ok((settings, warnings))
}

/// Whether the machine has the CPUs that packets are to be spread over.
#[cfg(feature = "linux")]
fn cpus_exist(xdp: &Xdp, text: &str, file: &str) -> Result<(), Errors> {
    let possible = sig_linux::cpus::possible();
    let missing = xdp.cpus.iter().filter(|cpu| **cpu >= possible);
    let line = text
        .lines()
        .position(|line| line.trim_start().starts_with("cpus"));
    let errors: Vec<Problem> = missing
        .map(|cpu| Problem {
            file: file.to_owned(),
            line: line.map_or(1, |line| line + 1),
            key: "xdp.cpus".to_owned(),
            message: format!(
                "this machine has no CPU {cpu}; write numbers up to {}",
                possible - 1
            ),
        })
        .collect();
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Errors::new(errors))
    }
}

/// Whether a file can be read by users who are neither its owner nor in its group.
fn is_open(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|metadata| metadata.permissions().mode() & 0o004 != 0)
}

/// A problem of a whole file.
fn whole(file: &str, message: String) -> Problem {
    Problem {
        file: file.to_owned(),
        line: 1,
        key: String::new(),
        message,
    }
}

/// What is wrong with the files in `config_dir`, and what deserves a look.
#[derive(Default)]
struct Problems {
    errors: Vec<Problem>,
    warnings: Vec<Problem>,
}

/// The AS as the files in `config_dir` have it, and the text of the topology. `own` is absent if something is wrong there; the files are checked
/// nevertheless.
fn model(
    root: &Section<'_>,
    own: Option<&Own>,
    config_dir: &Path,
    read_file: ReadFile<'_>,
    found: &mut Problems,
) -> Option<(AsModel, String)> {
    let text = |name: &str| {
        let path: PathBuf = config_dir.join(name).components().collect();
        let file = path.display().to_string();
        let text = read_file(&path)
            .map_err(|error| {
                format!("cannot be read: {error}; check [general] config_dir, the folder it is read from")
            })
            .and_then(|bytes| String::from_utf8(bytes).map_err(|_| "not UTF-8 text".to_owned()));
        (file, text)
    };
    let (key_file, key) = text(KEY_FILE);
    let key_len = key
        .as_ref()
        .ok()
        .and_then(|text| Some(from_base64(text).ok()?.len()));
    let key = key.and_then(|text| {
        master_key(&text)
            .map_err(|error| format!("{error}; write the master key of the AS in base64"))
    });
    if key.is_ok()
        && let Some(len) = key_len.filter(|len| *len < MASTER_KEY_LEN)
    {
        let message = format!(
            "the key has {len} bytes, which is too short to be secure; \"sig router key --new\" prints one of {MASTER_KEY_LEN}"
        );
        found.warnings.push(whole(&key_file, message));
    }
    let (file, topology) = text("topology.json");
    let key = key.map_err(|message| found.errors.push(whole(&key_file, message)));
    let text = topology.map_err(|message| found.errors.push(whole(&file, message)));
    let text = text.ok()?;
    let report = Report::new(&file, &text);
    let topology = topology::read(&report, &text, Ends::Of(own.map(|own| own.id.as_str())));
    let model = topology
        .zip(own)
        .and_then(|(topology, own)| whole::model(root, own, &topology, key.ok()));
    let (mut errors, mut warnings) = report.take();
    found.errors.append(&mut errors);
    found.warnings.append(&mut warnings);
    Some((model?, text))
}
