//! `sig run` as far as it gets without privileges: until the SCION daemon answers.

use std::{
    fs::{self, File},
    io::{PipeReader, PipeWriter, Read as _, Write as _},
    net::TcpListener,
    os::{fd::AsRawFd as _, unix::net::UnixDatagram},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

/// No test waits this long unless something is broken.
const PATIENCE: Duration = Duration::from_secs(60);

fn sig(arguments: &[&str], errors: Stdio) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sig"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors)
        .spawn()
        .and_then(Child::wait_with_output)
        .expect("the binary runs")
}

/// A folder with the files of a gateway; removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("sig-run-{}-{name}", std::process::id());
        let folder = Folder(std::env::temp_dir().join(name));
        fs::create_dir_all(&folder.0).expect("a temporary folder");
        fs::write(folder.path("traffic"), "{\"ASes\": {}}").expect("written");
        folder.configure(free_port(), "");
        folder
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Writes the configuration, with the daemon at this port.
    fn configure(&self, daemon: u16, more: &str) {
        let text = format!(
            "[gateway]\nstatus_socket = \"{}\"\ntraffic_policy_file = \"{}\"\n\
             [sciond_connection]\naddress = \"127.0.0.1:{daemon}\"\n{more}\n",
            self.path("sig.sock"),
            self.path("traffic"),
        );
        fs::write(self.path("gateway.toml"), text).expect("written");
    }

    fn run(&self, errors: impl Into<Stdio>) -> Gateway {
        let child = Command::new(env!("CARGO_BIN_EXE_sig"))
            .args(["run", "--config", &self.path("gateway.toml")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn();
        Gateway(child.expect("the binary runs"))
    }

    /// Asks for the status until the gateway says that it waits.
    fn wait_until_it_waits(&self) -> String {
        let begin = Instant::now();
        loop {
            let status = sig(
                &["status", "--socket", &self.path("sig.sock")],
                Stdio::piped(),
            );
            let text = String::from_utf8(status.stderr).expect("text");
            if text.contains("waiting for the SCION daemon") {
                assert_eq!(status.status.code(), Some(1));
                return text;
            }
            assert!(begin.elapsed() < PATIENCE, "{text}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A left-over folder is no reason to fail.
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Gateway(Child);

impl Gateway {
    fn signal(&self, signal: i32) {
        // SAFETY: no pointers; the process is ours and not waited for yet.
        let result = unsafe { libc::kill(self.0.id() as i32, signal) };
        assert_eq!(result, 0);
    }

    /// Ends it with SIGTERM.
    fn end(&mut self) -> ExitStatus {
        self.signal(libc::SIGTERM);
        let begin = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().expect("a child") {
                return status;
            }
            assert!(begin.elapsed() < PATIENCE, "still there");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port where nobody listens.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

/// A pipe that holds as much as it can.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let set = |flags: i32| {
        // SAFETY: a descriptor that is open, and no pointers.
        let result = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, flags) };
        assert_eq!(result, 0);
    };
    set(libc::O_NONBLOCK);
    for piece in [4096, 1] {
        while (&writer).write(&vec![b'.'; piece]).is_ok() {}
    }
    set(0);
    (reader, writer)
}

#[test]
fn a_gateway_that_waits_for_the_daemon_says_so_and_reads_its_files_again() {
    let folder = Folder::new("waits");
    let log = File::create(folder.path("log")).expect("a file");
    let mut gateway = folder.run(log);
    let status = folder.wait_until_it_waits();
    assert!(status.contains("Connection refused"), "{status}");

    // A mistake in the file keeps nobody from asking.
    folder.configure(free_port(), "nonsense");
    let file = folder.path("gateway.toml");
    for command in ["status", "reload"] {
        let output = sig(&[command, "--config", &file], Stdio::piped());
        let text = String::from_utf8(output.stderr).expect("text");
        assert!(text.contains("gateway.toml:6: "), "{command}: {text}");
        assert!(text.contains("has errors; asking"), "{command}: {text}");
        assert_eq!(output.status.code(), Some(1), "{command}: {text}");
    }

    // Another address of the daemon counts, whoever asks for it.
    for asked in ["SIGHUP", "uid"] {
        let daemon = TcpListener::bind("127.0.0.1:0").expect("a port");
        folder.configure(daemon.local_addr().expect("an address").port(), "");
        if asked == "SIGHUP" {
            gateway.signal(libc::SIGHUP);
        } else {
            let output = sig(&["reload", "--config", &file], Stdio::piped());
            assert_eq!(output.status.code(), Some(0), "{output:?}");
        }
        daemon.accept().expect("the gateway");
    }
    assert_eq!(gateway.end().code(), Some(0));
    let log = fs::read_to_string(folder.path("log")).expect("the log");
    for line in [
        "waiting for the SCION daemon",
        "reload failed: ",
        "reload: re-reading all files and looking again for what the start waits for by=\"SIGHUP\"",
        "reload: re-reading all files and looking again for what the start waits for by=\"uid ",
    ] {
        assert!(log.contains(line), "{line}: {log}");
    }
}

/// Datagrams to the service manager until there was one that begins like each of these, in any order.
fn hear(manager: &UnixDatagram, wanted: &[&str]) {
    let begin = Instant::now();
    let mut heard = Vec::<String>::new();
    let mut bytes = [0; 1024];
    let is_missing = |heard: &[String], wanted: &str| !heard.iter().any(|h| h.starts_with(wanted));
    while wanted.iter().any(|wanted| is_missing(&heard, wanted)) {
        // Signs of life come without end.
        assert!(begin.elapsed() < PATIENCE, "{wanted:?}: {heard:?}");
        let length = manager
            .recv(&mut bytes)
            .unwrap_or_else(|error| panic!("{wanted:?}: {error}: {heard:?}"));
        heard.push(String::from_utf8_lossy(&bytes[..length]).into_owned());
    }
}

#[test]
fn the_service_manager_hears_what_a_gateway_waits_for_and_that_it_lives() {
    let folder = Folder::new("notifies");
    let socket = folder.path("notify");
    let manager = UnixDatagram::bind(&socket).expect("a socket");
    manager.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let absent = "[dataplane]\nunderlay = \"absent0\"";
    folder.configure(free_port(), absent);
    let log = File::create(folder.path("log")).expect("a file");
    let child = Command::new(env!("CARGO_BIN_EXE_sig"))
        .args(["run", "--config", &folder.path("gateway.toml")])
        .env("NOTIFY_SOCKET", &socket)
        .env("WATCHDOG_USEC", "300000")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn();
    let mut gateway = Gateway(child.expect("the binary runs"));
    let waits = "STATUS=waiting for interface absent0, which does not exist (`ip -br link` lists those that do)";
    hear(&manager, &[waits, "READY=1", "WATCHDOG=1"]);

    // A reload reads the file again: it goes on to what comes next, before or after it says that the reload is over.
    folder.configure(free_port(), "");
    gateway.signal(libc::SIGHUP);
    let reload = "RELOADING=1\nMONOTONIC_USEC=";
    let waits = "STATUS=waiting for the SCION daemon: ";
    hear(&manager, &[reload, "READY=1", waits]);
    gateway.signal(libc::SIGTERM);
    hear(&manager, &["STOPPING=1"]);
    assert_eq!(gateway.end().code(), Some(0));
    let log = fs::read_to_string(folder.path("log")).expect("the log");
    assert!(log.contains("WARN waiting for interface absent0"), "{log}");
}

#[test]
fn a_log_that_cannot_be_written_neither_ends_nor_blocks_a_gateway() {
    let full_device = || File::options().write(true).open("/dev/full");
    let (read, closed) = std::io::pipe().expect("a pipe");
    drop(read);
    let (mut unread, full) = full_pipe();
    let outputs: [(&str, Stdio); 3] = [
        ("full-device", full_device().expect("a device").into()),
        ("closed-pipe", closed.into()),
        ("full-pipe", full.into()),
    ];
    for (name, errors) in outputs {
        let folder = Folder::new(name);
        let mut gateway = folder.run(errors);
        folder.wait_until_it_waits();
        // That is logged as an error.
        folder.configure(free_port(), "nonsense");
        gateway.signal(libc::SIGHUP);
        folder.wait_until_it_waits();
        assert_eq!(gateway.end().code(), Some(0), "{name}");
    }
    let mut dots = Vec::new();
    unread.read_to_end(&mut dots).expect("a pipe");
    assert!(dots.iter().all(|byte| *byte == b'.'), "not full");
}

#[test]
fn without_arguments_there_is_help() {
    let output = sig(&[], Stdio::piped());
    let text = String::from_utf8(output.stderr).expect("text");
    assert!(
        text.contains("Usage: sig") && text.contains("doctor"),
        "{text}"
    );
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_message_that_cannot_be_written_does_not_change_the_exit_code() {
    let folder = Folder::new("check");
    let file = folder.path("gateway.toml");
    let full = || {
        Stdio::from(
            File::options()
                .write(true)
                .open("/dev/full")
                .expect("a device"),
        )
    };
    folder.configure(1, "[features]\nappropriate_digest_algorithm = true");
    let check = sig(&["config", "check", &file], full());
    assert_eq!(check.status.code(), Some(0));
    assert!(check.stdout.ends_with(b"1 warning\n"), "{check:?}");
    folder.configure(1, "nonsense");
    assert_eq!(
        sig(&["config", "check", &file], full()).status.code(),
        Some(2)
    );
    assert_eq!(
        sig(&["status", "--socket", "/nowhere"], full())
            .status
            .code(),
        Some(1)
    );
    let (_unread, errors) = full_pipe();
    let check = sig(&["config", "check", &file], errors.into());
    assert_eq!(check.status.code(), Some(2));
}
