//! The control socket: whoever connects gets the state of the gateway or router as one JSON document, or has it
//! read its files again.
//!
//! A client may send one line first. `status`, an end of file or silence ask for the state; `reload` is
//! answered with a line `ok` and what changed, or with a line `error` and what is wrong. What else can be asked, with an
//! argument behind the word, is answered with a document, or with a line `error` and what is wrong. Then the socket is closed.

use std::{
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use serde::Serialize;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    sync::mpsc,
    task::{JoinHandle, JoinSet},
    time::timeout,
};

use super::log;

/// A client that sends nothing for this long wants the status.
const SILENCE: Duration = Duration::from_millis(100);

/// A client that does not finish its line or does not read for this long is left alone.
const PATIENCE: Duration = Duration::from_secs(5);

/// Clients that are served at the same time; more wait.
const CLIENTS: usize = 16;

/// Longest line of a client, in bytes.
const LONGEST_LINE: usize = 1024;

/// The listening socket. Dropping it removes the socket's file.
pub struct ControlSocket {
    path: PathBuf,
    task: JoinHandle<()>,
}

/// What clients ask for.
struct Answers {
    status: Box<dyn Fn() -> Result<Vec<u8>, String> + Send + Sync>,
    reload: Box<dyn Fn() -> Result<String, String> + Send + Sync>,
    questions: Vec<Question>,
}

/// Something that can be asked beside status and reload.
pub struct Question {
    word: &'static str,
    kind: Kind,
}

enum Kind {
    Document(Box<Document>),
    Stream(Box<Stream>),
}

/// The document for what was asked, and by whom.
type Document = dyn Fn(&str, &str) -> Result<Vec<u8>, String> + Send + Sync;
/// The lines for what was asked, and by whom.
type Stream = dyn Fn(&str, &str) -> Result<Lines, String> + Send + Sync;

/// Who asks.
struct Peer {
    is_root: bool,
    /// For the log.
    name: String,
}

/// Called on a thread of its own. Tells what is written next, in a tenth of a second: nothing, if it is empty. `None`: there is no more.
pub type Lines = Box<dyn FnMut() -> Option<Vec<u8>> + Send>;

/// What a client gets.
enum Answer {
    Whole(Vec<u8>),
    Stream(Lines),
}

impl Question {
    /// A line that begins with `word` is answered with the document that `answer`, which may block, makes of the rest.
    pub fn new<S: Serialize>(
        word: &'static str,
        answer: impl Fn(&str) -> Result<S, String> + Send + Sync + 'static,
    ) -> Self {
        Self::order(word, move |argument, _| answer(argument))
    }

    /// The same, if something is changed by it: `answer` is also told who asks, for the log.
    pub fn order<S: Serialize>(
        word: &'static str,
        answer: impl Fn(&str, &str) -> Result<S, String> + Send + Sync + 'static,
    ) -> Self {
        let answer = move |argument: &str, by: &str| {
            serde_json::to_vec(&answer(argument, by)?)
                .map_err(|error| format!("cannot write the answer: {error}"))
        };
        Question {
            word,
            kind: Kind::Document(Box::new(answer)),
        }
    }

    /// A line of root that begins with `word` is answered with what `start`, which may block, makes of the rest and of who asks: until
    /// there is no more, or the client goes or reads nothing for long. The socket's group shall not read packets of hosts.
    pub fn stream(
        word: &'static str,
        start: impl Fn(&str, &str) -> Result<Lines, String> + Send + Sync + 'static,
    ) -> Self {
        Question {
            word,
            kind: Kind::Stream(Box::new(start)),
        }
    }
}

impl ControlSocket {
    /// Listens at `path`, with access for the user and group of the process, and answers with what
    /// `status` and `reload` tell, which may block. A status that is an error is answered like one of a reload. The socket's folder is created if it is not there; the file
    /// of a predecessor that was killed is replaced. Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// If another process listens there, or the socket cannot be made.
    pub fn listen<S: Serialize>(
        path: &Path,
        status: impl Fn() -> Result<S, String> + Send + Sync + 'static,
        reload: impl Fn() -> Result<String, String> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Self::listen_with(path, status, reload, Vec::new())
    }

    /// As [`ControlSocket::listen`], and answers these questions too.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn listen_with<S: Serialize>(
        path: &Path,
        status: impl Fn() -> Result<S, String> + Send + Sync + 'static,
        reload: impl Fn() -> Result<String, String> + Send + Sync + 'static,
        questions: Vec<Question>,
    ) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "another process is listening there; give this one a different id",
            ));
        }
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
        let answers = Answers {
            status: Box::new(move || {
                serde_json::to_vec(&status()?)
                    .map_err(|error| format!("cannot report the status: {error}"))
            }),
            reload: Box::new(reload),
            questions,
        };
        Ok(ControlSocket {
            path: path.to_owned(),
            task: tokio::spawn(serve(listener, Arc::new(answers))),
        })
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.task.abort();
        // It may be gone already.
        let _ = std::fs::remove_file(&self.path);
    }
}

async fn serve(listener: UnixListener, answers: Arc<Answers>) {
    // They end with this task.
    let mut clients = JoinSet::new();
    loop {
        while clients.try_join_next().is_some() {}
        if clients.len() >= CLIENTS {
            clients.join_next().await;
            continue;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                clients.spawn(client(stream, answers.clone()));
            }
            Err(error) => {
                // Such as too many open files: it passes, and must not spin.
                tracing::warn!("cannot answer on the control socket: {error}");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

/// A client that goes away is no concern of ours.
async fn client(mut stream: UnixStream, answers: Arc<Answers>) {
    let Ok(line) = line(&mut stream).await else {
        return;
    };
    let by = match stream.peer_cred() {
        Ok(peer) => Peer {
            is_root: peer.uid() == 0,
            name: format!("uid {}, pid {}", peer.uid(), peer.pid().unwrap_or_default()),
        },
        Err(_) => Peer {
            is_root: false,
            name: "control socket".to_owned(),
        },
    };
    let Ok(answer) = tokio::task::spawn_blocking(move || answer(&line, &by, &answers)).await else {
        return;
    };
    match answer {
        Answer::Whole(answer) => {
            let _ = timeout(PATIENCE, stream.write_all(&answer)).await;
        }
        Answer::Stream(lines) => pass_on(stream, lines).await,
    }
}

/// Writes what comes. The producer ends soon after this.
async fn pass_on(mut stream: UnixStream, mut lines: Lines) {
    let (sender, mut receiver) = mpsc::channel::<Vec<u8>>(16);
    // Not one of the runtime's threads, which do other work afterwards.
    let thread = std::thread::Builder::new().name("sig-watch".to_owned());
    let started = thread.spawn(move || {
        // Not further behind: it holds locks for a moment that the control plane waits for.
        set_nice(5);
        while let Some(line) = lines() {
            let is_over = match line.is_empty() {
                true => sender.is_closed(),
                false => sender.blocking_send(line).is_err(),
            };
            if is_over {
                return;
            }
        }
    });
    if let Err(error) = started {
        tracing::warn!("cannot start a thread for the watcher: {error}");
    }
    while let Some(line) = receiver.recv().await {
        if !matches!(timeout(PATIENCE, stream.write_all(&line)).await, Ok(Ok(()))) {
            return;
        }
    }
}

/// Gives the calling thread this nice value, up to 19: who forwards packets comes before who looks on.
pub fn set_nice(value: i32) {
    // SAFETY: reads and writes no memory. Of 0, Linux understands the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, value) };
}

/// The line of a client, which may end with the client's output; empty if it is silent.
async fn line(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    // However slowly it comes.
    let end = Instant::now() + PATIENCE;
    loop {
        let mut bytes = [0; LONGEST_LINE];
        let patience = match line.is_empty() {
            true => SILENCE,
            false => end.saturating_duration_since(Instant::now()),
        };
        match timeout(patience, stream.read(&mut bytes)).await {
            Ok(Ok(0)) => return Ok(line),
            Ok(count) => line.extend_from_slice(&bytes[..count?]),
            Err(_) if line.is_empty() => return Ok(line),
            Err(elapsed) => return Err(elapsed.into()),
        }
        if line.contains(&b'\n') || line.len() >= LONGEST_LINE {
            return Ok(line);
        }
    }
}

fn answer(line: &[u8], by: &Peer, answers: &Answers) -> Answer {
    let result = match line.trim_ascii() {
        b"" | b"status" => match (answers.status)() {
            Ok(document) => return Answer::Whole(document),
            Err(error) => Err(error),
        },
        b"reload" => {
            let result = (answers.reload)();
            log::reloaded(&by.name, &result);
            result
        }
        other => match ask(other, by, answers) {
            Ok(answer) => return answer,
            Err(error) => Err(error),
        },
    };
    Answer::Whole(match result {
        Ok(text) => format!("ok\n{text}").into_bytes(),
        Err(text) => format!("error\n{text}").into_bytes(),
    })
}

/// What is neither status nor reload.
fn ask(line: &[u8], by: &Peer, answers: &Answers) -> Result<Answer, String> {
    let text = String::from_utf8_lossy(line);
    let (word, argument) = text.split_once(' ').unwrap_or((&text, ""));
    let mut questions = answers.questions.iter();
    match questions.find(|question| question.word == word) {
        Some(question) => match &question.kind {
            Kind::Document(answer) => answer(argument.trim(), &by.name).map(Answer::Whole),
            Kind::Stream(_) if !by.is_root => {
                Err("only root may see packets; run it as root".to_owned())
            }
            Kind::Stream(start) => start(argument.trim(), &by.name).map(Answer::Stream),
        },
        None => {
            let words = answers.questions.iter().map(|question| question.word);
            let known: Vec<&str> = ["status", "reload"].into_iter().chain(words).collect();
            Err(format!(
                "unknown command \"{}\"; known: {}",
                line.escape_ascii(),
                known.join(", ")
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::example;
    use sig_core::status::Status;

    struct Running {
        socket: ControlSocket,
        reloads: Arc<AtomicU32>,
    }

    fn listen(name: &str) -> Running {
        let folder = std::env::temp_dir().join(format!("sig-control-{}", std::process::id()));
        let reloads = Arc::new(AtomicU32::new(0));
        let counted = reloads.clone();
        let reload = move || match counted.fetch_add(1, Ordering::Relaxed) {
            0 => Ok("remote 1-ff00:0:112: new".to_owned()),
            _ => Err("gateway.toml:3: wrong".to_owned()),
        };
        let path = folder.join(format!("{name}.sock"));
        let socket = ControlSocket::listen(&path, || Ok(example::found()), reload).unwrap();
        Running { socket, reloads }
    }

    /// Sends `line`, if any, and reads to the end without closing its own side.
    async fn ask(running: &Running, line: Option<&str>) -> String {
        let mut stream = UnixStream::connect(&running.socket.path).await.unwrap();
        if let Some(line) = line {
            stream.write_all(line.as_bytes()).await.unwrap();
        }
        let mut text = String::new();
        let end = timeout(Duration::from_secs(60), stream.read_to_string(&mut text)).await;
        end.expect("an end").unwrap();
        text
    }

    fn status(text: &str) -> Status {
        serde_json::from_str(text).unwrap()
    }

    #[tokio::test]
    async fn the_silent_the_closing_and_the_asking_get_the_status() {
        let running = listen("status");
        assert_eq!(status(&ask(&running, None).await), example::found());
        assert_eq!(
            status(&ask(&running, Some("status\n")).await),
            example::found()
        );
        let mut stream = UnixStream::connect(&running.socket.path).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert_eq!(status(&text), example::found());
        assert_eq!(running.reloads.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn a_reload_is_answered_with_what_changed_or_with_what_is_wrong() {
        let running = listen("reload");
        let changed = ask(&running, Some("reload\n")).await;
        assert_eq!(changed, "ok\nremote 1-ff00:0:112: new");
        let wrong = ask(&running, Some("reload\r\n")).await;
        assert_eq!(wrong, "error\ngateway.toml:3: wrong");
        assert_eq!(running.reloads.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn who_has_no_status_yet_says_why() {
        let path = std::env::temp_dir().join(format!("sig-early-{}.sock", std::process::id()));
        let status = || Err::<Status, _>("the gateway waits".to_owned());
        let socket = ControlSocket::listen(&path, status, || Ok(String::new())).unwrap();
        let running = Running {
            socket,
            reloads: Arc::default(),
        };
        assert_eq!(
            ask(&running, Some("status\n")).await,
            "error\nthe gateway waits"
        );
    }

    #[tokio::test]
    async fn other_questions_are_answered_with_a_document_or_an_error() {
        let folder = std::env::temp_dir().join(format!("sig-control-{}", std::process::id()));
        let length = Question::new("length", |argument| match argument {
            "" => Err("of what?".to_owned()),
            text => Ok(text.len()),
        });
        let path = folder.join("question.sock");
        let (status, reload) = (|| Ok(example::idle()), || Ok(String::new()));
        let running = Running {
            socket: ControlSocket::listen_with(&path, status, reload, vec![length]).unwrap(),
            reloads: Arc::default(),
        };
        assert_eq!(ask(&running, Some("length of this\n")).await, "7");
        assert_eq!(ask(&running, Some("length\n")).await, "error\nof what?");
        assert_eq!(
            ask(&running, Some("size\n")).await,
            "error\nunknown command \"size\"; known: status, reload, length"
        );
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_stream_ends_with_its_source_or_its_reader() {
        let folder = std::env::temp_dir().join(format!("sig-control-{}", std::process::id()));
        let endless = Arc::new(AtomicU32::new(0));
        let told = endless.clone();
        let count = Question::stream("count", move |argument, _| {
            let mut left: u32 = argument.parse().map_err(|_| "how many?".to_owned())?;
            Ok(Box::new(move || {
                left = left.checked_sub(1)?;
                Some(format!("{left}\n").into_bytes())
            }))
        });
        let forever = Question::stream("forever", move |_, _| {
            let told = told.clone();
            Ok(Box::new(move || {
                std::thread::sleep(Duration::from_millis(1));
                told.fetch_add(1, Ordering::Relaxed);
                Some(b"again\n".to_vec())
            }))
        });
        let path = folder.join("stream.sock");
        let (status, reload) = (|| Ok(example::idle()), || Ok(String::new()));
        let questions = vec![count, forever];
        let running = Running {
            socket: ControlSocket::listen_with(&path, status, reload, questions).unwrap(),
            reloads: Arc::default(),
        };
        assert_eq!(ask(&running, Some("count 3\n")).await, "2\n1\n0\n");
        assert_eq!(ask(&running, Some("count\n")).await, "error\nhow many?");
        let mut stream = UnixStream::connect(&path).await.unwrap();
        stream.write_all(b"forever\n").await.unwrap();
        let mut first = [0; 6];
        stream.read_exact(&mut first).await.unwrap();
        drop(stream);
        let mut before = u32::MAX;
        for _ in 0..600 {
            let now = endless.load(Ordering::Relaxed);
            if now == before {
                return;
            }
            before = now;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("it goes on without a reader");
    }

    #[tokio::test]
    async fn nonsense_is_refused_and_bounded() {
        let running = listen("nonsense");
        assert_eq!(
            ask(&running, Some("re\x1bload\n")).await,
            "error\nunknown command \"re\\x1bload\"; known: status, reload"
        );
        let long = "x".repeat(LONGEST_LINE);
        let answer = ask(&running, Some(&long)).await;
        assert!(
            answer.starts_with("error\nunknown command \"xxx"),
            "{answer}"
        );
    }

    #[tokio::test]
    async fn a_client_that_ends_within_its_line_is_answered_or_forgotten() {
        let running = listen("ends");
        let mut stream = UnixStream::connect(&running.socket.path).await.unwrap();
        stream.write_all(b"status").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert_eq!(status(&answer), example::found());
        // They would keep all places if they were waited for.
        for _ in 0..2 * CLIENTS {
            let mut stream = UnixStream::connect(&running.socket.path).await.unwrap();
            stream.write_all(b"stat").await.unwrap();
        }
        let answer = timeout(PATIENCE / 2, ask(&running, Some("status\n"))).await;
        assert_eq!(status(&answer.unwrap()), example::found());
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_keeps_nobody_waiting() {
        let running = listen("stuck");
        let mut stuck = Vec::new();
        for _ in 0..CLIENTS - 1 {
            let mut stream = UnixStream::connect(&running.socket.path).await.unwrap();
            stream.write_all(b"unfinished").await.unwrap();
            stuck.push(stream);
        }
        assert_eq!(
            status(&ask(&running, Some("status\n")).await),
            example::found()
        );
    }

    #[tokio::test]
    async fn a_second_gateway_does_not_take_the_socket() {
        let running = listen("taken");
        let second = ControlSocket::listen(
            &running.socket.path,
            || Ok(example::idle()),
            || Ok(String::new()),
        );
        assert_eq!(
            second.err().map(|e| e.kind()),
            Some(io::ErrorKind::AddrInUse)
        );
    }
}
