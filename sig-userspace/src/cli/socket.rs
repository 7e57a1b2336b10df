//! Talking to a running gateway over its Unix socket.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Failure;
use crate::accelerate::status as accelerator;
use crate::control::config;
use crate::srv6::status as sr_node;
use sig_core::{document, problem::Errors, status as gateway};
use sig_router::status as router;

/// What listens on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Gateway,
    Router,
    Accelerator,
    SrNode,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Gateway, Self::Router, Self::Accelerator, Self::SrNode];

    /// The word of the status documents.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Gateway => gateway::Status::KIND,
            Self::Router => router::Status::KIND,
            Self::Accelerator => accelerator::Status::KIND,
            Self::SrNode => sr_node::Status::KIND,
        }
    }

    const fn article(self) -> &'static str {
        match self {
            Self::Accelerator | Self::SrNode => "an",
            Self::Gateway | Self::Router => "a",
        }
    }

    /// The command that starts one, and of which there are others for it.
    const fn command(self) -> &'static str {
        match self {
            Self::Gateway => "sig",
            Self::Router => "sig router",
            Self::Accelerator => "sig accelerate",
            Self::SrNode => "sig srv6",
        }
    }

    /// How one is started.
    const fn start(self) -> &'static str {
        match self {
            Self::Gateway => "sig run --config FILE",
            Self::Router => "sig router run --config FILE",
            Self::Accelerator => "sig accelerate run --underlay DEVICE",
            Self::SrNode => "sig srv6 run --config FILE",
        }
    }

    /// How one is chosen.
    const fn choice(self) -> &'static str {
        match self {
            Self::Gateway | Self::Router | Self::SrNode => {
                "give its socket with --socket or its configuration with --config"
            }
            Self::Accelerator => "give its socket with --socket",
        }
    }
}

/// Sockets that are asked what they are have to answer within this time.
const QUICK: Duration = Duration::from_secs(2);

/// What listens there; `None` if it does not tell.
pub(super) fn kind(socket: &Path) -> Option<Kind> {
    #[derive(serde::Deserialize)]
    struct Document {
        kind: String,
    }
    let document = ask(socket, "status\n", QUICK, Kind::Gateway).ok()?;
    let document: Document = serde_json::from_slice(&document).ok()?;
    let mut kinds = Kind::ALL.into_iter();
    kinds.find(|kind| kind.name() == document.kind)
}

/// Refuses a socket of the other kind. `command` is what was called, such as `status`.
///
/// # Errors
///
/// What to call instead.
pub(super) fn expect(socket: &Path, wanted: Kind, command: &str) -> Result<(), String> {
    match kind(socket) {
        Some(found) if found != wanted => Err(format!(
            "{}: this is {} {}; use \"{} {command}\"",
            socket.display(),
            found.article(),
            found.name(),
            found.command()
        )),
        _ => Ok(()),
    }
}

/// Refuses a socket of something else than a gateway, where `command` asks gateways only.
///
/// # Errors
///
/// What it is.
pub(super) fn expect_gateway(socket: &Path, command: &str) -> Result<(), String> {
    match kind(socket) {
        Some(found) if found != Kind::Gateway => Err(format!(
            "{}: this is {} {}; \"sig {command}\" asks gateways",
            socket.display(),
            found.article(),
            found.name()
        )),
        _ => Ok(()),
    }
}

/// What answers in this folder and is no gateway; routers first.
pub(super) fn neighbour(folder: &Path) -> Option<&'static str> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sockets = entries.map(|entry| entry.path());
    let sockets = sockets.filter(|path| path.extension().is_some_and(|e| e == "sock"));
    let found: Vec<Kind> = sockets.filter_map(|socket| kind(&socket)).collect();
    let mut others = Kind::ALL.into_iter().skip(1);
    others.find(|kind| found.contains(kind)).map(Kind::name)
}

/// Where gateways and routers put their sockets unless configured otherwise.
pub(super) const FOLDER: &str = "/run/sig";

/// Which gateway.
#[derive(clap::Args)]
pub(super) struct Choice {
    /// The gateway's socket [default: the only one in /run/sig].
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Use the socket of this configuration file.
    #[arg(long, value_name = "FILE", conflicts_with = "socket")]
    config: Option<PathBuf>,
}

impl Choice {
    /// The socket of the gateway.
    pub(super) fn socket(&self) -> Result<PathBuf, Failure> {
        match (&self.socket, &self.config) {
            (Some(socket), _) => Ok(socket.clone()),
            (None, Some(file)) => match config::load(file) {
                Ok(config) => Ok(config.gateway.status_socket),
                Err(errors) => in_spite_of(&errors, file, ["gateway", "gateway"], Kind::Gateway),
            },
            (None, None) => only_socket(Path::new(FOLDER), Kind::Gateway).map_err(Failure::Failed),
        }
    }
}

/// The socket of a process that runs although its file has mistakes by now: as far as that can be read in these
/// sections, which have its path and its id; or else the only one there is.
pub(super) fn in_spite_of(
    errors: &Errors,
    file: &Path,
    [section, id]: [&str; 2],
    kind: Kind,
) -> Result<PathBuf, Failure> {
    let refused = || Failure::Refused(errors.to_string());
    let text = document::read_text(file, "").map_err(|_| refused())?;
    let named = document::status_socket(&text, section, id).filter(|socket| socket.exists());
    let socket = named
        .or_else(|| only_socket(Path::new(FOLDER), kind).ok())
        .ok_or_else(refused)?;
    let mut warning = format!("{errors}\n");
    let (file, shown) = (file.display(), socket.display());
    let _ = writeln!(warning, "warning: {file} has errors; asking {shown} anyway");
    let _ = io::stderr().write_all(warning.as_bytes());
    Ok(socket)
}

/// The socket in `folder`, if there is exactly one of what is wanted.
pub(super) fn only_socket(folder: &Path, wanted: Kind) -> Result<PathBuf, String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut sockets: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "sock"))
        .collect();
    sockets.sort();
    let mut others = None;
    sockets.retain(|socket| {
        let other = kind(socket).filter(|kind| *kind != wanted);
        others = others.or(other);
        other.is_none()
    });
    let name = wanted.name();
    match &sockets[..] {
        [socket] => Ok(socket.clone()),
        [] => {
            let found = match others {
                None => "there is no socket".to_owned(),
                Some(other) => format!(
                    "there are only sockets of others (\"{} status\" asks a {})",
                    other.command(),
                    other.name()
                ),
            };
            Err(format!(
                "no {name} is running: {found} in {}; start one with \"{}\", or {}",
                folder.display(),
                wanted.start(),
                wanted.choice()
            ))
        }
        several => {
            let names: Vec<_> = several.iter().map(|s| s.display().to_string()).collect();
            Err(format!(
                "several {name}s are running; choose one with --socket: {}",
                names.join(", ")
            ))
        }
    }
}

/// Connects to the gateway or router, and sends it a line, or none.
pub(super) fn open(socket: &Path, line: &str, asked: Kind) -> Result<UnixStream, String> {
    let shown = socket.display();
    let name = asked.name();
    let mut stream = UnixStream::connect(socket).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            let start = asked.start();
            format!("{shown}: no {name} is listening; start it with \"{start}\"")
        }
        io::ErrorKind::PermissionDenied => {
            format!("{shown}: permission denied; run as the user of the {name} or as root")
        }
        _ => format!("{shown}: {error}"),
    })?;
    // A gateway that has answered already, because it is of an older version or took us for silent, may
    // not read any more. What it answered is there all the same.
    let _ = stream
        .write_all(line.as_bytes())
        .and_then(|()| stream.shutdown(Shutdown::Write));
    Ok(stream)
}

/// The answer of the gateway or router to a line, or to none. It has to come within `patience`.
pub(super) fn ask(
    socket: &Path,
    line: &str,
    patience: Duration,
    asked: Kind,
) -> Result<Vec<u8>, String> {
    let shown = socket.display();
    let name = asked.name();
    let mut stream = open(socket, line, asked)?;
    let mut document = Vec::new();
    stream
        .set_read_timeout(Some(patience))
        .and_then(|()| stream.read_to_end(&mut document))
        .or_else(|error| match error.kind() {
            io::ErrorKind::ConnectionReset if !document.is_empty() => Ok(document.len()),
            _ => Err(error),
        })
        .map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => format!(
                "{shown}: the {name} did not answer within {} s; see its log",
                patience.as_secs()
            ),
            _ => format!("{shown}: {error}"),
        })?;
    Ok(document)
}

/// The answer of the gateway to a question, as it is; not one that begins with `error`.
pub(super) fn answer(socket: &Path, line: &str, patience: Duration) -> Result<Vec<u8>, Failure> {
    let answer = ask(socket, line, patience, Kind::Gateway).map_err(Failure::Failed)?;
    match answer.strip_prefix(b"error\n") {
        Some(why) => {
            let why = String::from_utf8_lossy(why.trim_ascii_end());
            Err(Failure::Failed(format!("{}: {why}", socket.display())))
        }
        None => Ok(answer),
    }
}

/// The status of what listens there.
pub(super) fn fetch<S: serde::de::DeserializeOwned>(
    socket: &Path,
    asked: Kind,
) -> Result<S, Failure> {
    let document = status_document(socket, asked)?;
    serde_json::from_slice(&document).map_err(|error| {
        let socket = socket.display();
        Failure::Failed(format!(
            "{socket}: not a status that this version understands: {error}"
        ))
    })
}

/// Prints the status of what listens there as the JSON document that it is.
pub(super) fn print_json(socket: &Path, asked: Kind, out: &mut dyn Write) -> Result<(), Failure> {
    out.write_all(status_document(socket, asked)?.trim_ascii_end())?;
    writeln!(out)?;
    Ok(())
}

fn status_document(socket: &Path, asked: Kind) -> Result<Vec<u8>, Failure> {
    /// Who does not answer within this time is stuck.
    const PATIENCE: Duration = Duration::from_secs(5);

    expect(socket, asked, "status").map_err(Failure::Failed)?;
    ask(socket, "status\n", PATIENCE, asked).map_err(Failure::Failed)
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// A folder that is removed with its contents.
    pub(in crate::cli) struct Folder(pub(in crate::cli) PathBuf);

    impl Folder {
        pub(in crate::cli) fn new(name: &str) -> Self {
            let name = format!("sig-cli-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            // A left-over folder is no reason to fail.
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn line_and_answer_go_through_the_socket() {
        let folder = Folder::new("answer");
        let socket = folder.0.join("west.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let gateway = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            stream.read_to_string(&mut line).unwrap();
            stream.write_all(b"the answer").unwrap();
            line
        });
        assert_eq!(
            ask(&socket, "the line\n", PATIENCE, Kind::Gateway).unwrap(),
            b"the answer"
        );
        assert_eq!(gateway.join().unwrap(), "the line\n");
        assert_eq!(only_socket(&folder.0, Kind::Gateway), Ok(socket.clone()));

        // The gateway is gone, its socket is not.
        assert_eq!(
            ask(&socket, "", PATIENCE, Kind::Gateway).unwrap_err(),
            format!(
                "{}: no gateway is listening; start it with \"sig run --config FILE\"",
                socket.display()
            )
        );
    }

    #[test]
    fn the_answer_of_a_gateway_that_does_not_read_is_taken() {
        let folder = Folder::new("older");
        let socket = folder.0.join("west.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let gateway = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"{}").unwrap();
        });
        assert_eq!(
            ask(&socket, "reload\n", PATIENCE, Kind::Gateway).unwrap(),
            b"{}"
        );
        gateway.join().unwrap();
    }

    #[test]
    fn a_file_with_mistakes_still_names_its_socket() {
        let folder = Folder::new("mistakes");
        let (file, socket) = (folder.0.join("a.toml"), folder.0.join("a.sock"));
        std::fs::write(&socket, "").unwrap();
        let named = format!("[gateway]\nstatus_socket = \"{}\"\n", socket.display());
        for mistake in [
            "mtu = \n",
            "[tunnel]\nmtu = \"x\"\n",
            "[dataplane\n",
            "nonsense\n",
            "[[remote]]\n",
        ] {
            std::fs::write(&file, format!("{named}{mistake}")).unwrap();
            let choice = Choice {
                socket: None,
                config: Some(file.clone()),
            };
            let found = choice.socket();
            assert!(matches!(&found, Ok(found) if *found == socket), "{mistake}");
        }
    }

    #[test]
    fn no_socket_and_several_sockets_say_what_to_do() {
        let folder = Folder::new("choice");
        let shown = folder.0.display();
        assert_eq!(
            only_socket(&folder.0, Kind::Gateway).unwrap_err(),
            format!(
                "no gateway is running: there is no socket in {shown}; start one with \"sig run --config \
                 FILE\", or give its socket with --socket or its configuration with --config"
            )
        );
        for name in ["b.sock", "a.sock", "notes.txt"] {
            std::fs::write(folder.0.join(name), "").unwrap();
        }
        assert_eq!(
            only_socket(&folder.0, Kind::Gateway).unwrap_err(),
            format!(
                "several gateways are running; choose one with --socket: {shown}/a.sock, \
                 {shown}/b.sock"
            )
        );
    }

    /// A socket that tells its status until it is asked no more.
    fn listen(folder: &Folder, name: &str, status: &'static str) -> PathBuf {
        let socket = folder.0.join(name);
        let listener = UnixListener::bind(&socket).unwrap();
        // It ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut line = String::new();
                stream.read_to_string(&mut line).unwrap();
                assert_eq!(line, "status\n");
                stream.write_all(status.as_bytes()).unwrap();
            }
        });
        socket
    }

    #[test]
    fn gateways_and_routers_are_told_apart() {
        let folder = Folder::new("kinds");
        let shown = folder.0.display();
        let router = listen(
            &folder,
            "br.sock",
            "{\"kind\":\"router\",\"version\":\"0.1.0\"}",
        );
        assert_eq!(only_socket(&folder.0, Kind::Router), Ok(router.clone()));
        assert_eq!(neighbour(&folder.0), Some("router"));
        assert_eq!(
            only_socket(&folder.0, Kind::Gateway).unwrap_err(),
            format!(
                "no gateway is running: there are only sockets of others (\"sig router status\" asks a router) in \
                 {shown}; start one with \"sig run --config FILE\", or give its socket with --socket or its \
                 configuration with --config"
            )
        );
        let gateway = listen(&folder, "sig.sock", "{\"kind\":\"gateway\"}");
        assert_eq!(only_socket(&folder.0, Kind::Gateway), Ok(gateway.clone()));
        assert_eq!(only_socket(&folder.0, Kind::Router), Ok(router.clone()));
        // One of an older version may be either.
        let older = listen(&folder, "old.sock", "{\"version\":\"0.0.1\"}");
        assert_eq!(
            only_socket(&folder.0, Kind::Gateway).unwrap_err(),
            format!(
                "several gateways are running; choose one with --socket: {shown}/old.sock, {shown}/sig.sock"
            )
        );
        assert_eq!(
            expect(&router, Kind::Gateway, "reload").unwrap_err(),
            format!(
                "{}: this is a router; use \"sig router reload\"",
                router.display()
            )
        );
        assert_eq!(
            expect(&gateway, Kind::Router, "status").unwrap_err(),
            format!(
                "{}: this is a gateway; use \"sig status\"",
                gateway.display()
            )
        );
        assert_eq!(expect(&gateway, Kind::Gateway, "status"), Ok(()));
        assert_eq!(expect(&older, Kind::Gateway, "status"), Ok(()));
    }
}
