//! The console log, with a level that can be changed while the gateway runs.
//!
//! In the journal of systemd, each line has its priority (sd-daemon(3)), and no time of its own.
//!
//! A log that cannot be written is no reason to stop carrying packets: lines wait in a bounded queue for a thread that
//! writes them, and are lost when nobody takes them. How many were lost is said as soon as one can be written again.

use std::{
    fmt,
    fs::File,
    io::{self, IsTerminal, Write},
    os::{fd::AsFd as _, unix::fs::MetadataExt as _},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use tracing::{Dispatch, Event, Level, Subscriber};
use tracing_subscriber::{
    EnvFilter,
    fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter, format::Writer},
    registry::LookupSpan,
    reload::Handle,
    util::SubscriberInitExt as _,
};

use sig_core::document::common::{Log, LogFormat, LogLevel};

/// Lines that wait for being written. More are lost.
const QUEUE: usize = 4096;

/// How long the end of the process waits for a standard error output that nobody reads.
const PATIENCE: Duration = Duration::from_secs(1);

/// Libraries whose debug messages are about their own work, not about the gateway's. They are shown with `trace` only.
const LIBRARIES: &str = "aya=warn,aya_obj=warn,h2=warn,h3=warn,h3_quinn=warn,hyper=warn,hyper_util=warn,\
    netlink_packet_route=warn,netlink_proto=warn,quinn=warn,quinn_proto=warn,quinn_udp=warn,rustls=warn,tower=warn";

/// Changes the level of the log.
pub struct LogControl {
    level: Mutex<LogLevel>,
    set: Box<dyn Fn(LogLevel) -> Result<(), String> + Send + Sync>,
}

impl LogControl {
    /// Returns what changes the level of a log that is now `level` by calling `set`.
    pub fn new(
        level: LogLevel,
        set: impl Fn(LogLevel) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        LogControl {
            level: Mutex::new(level),
            set: Box::new(set),
        }
    }

    /// Least important message shown.
    pub fn level(&self) -> LogLevel {
        *self.level.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes that.
    ///
    /// # Errors
    ///
    /// If the log is gone.
    pub fn set(&self, level: LogLevel) -> Result<(), String> {
        let mut current = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        (self.set)(level)?;
        *current = level;
        Ok(())
    }
}

/// How lines look.
#[derive(Clone, Copy)]
struct Style {
    format: LogFormat,
    /// The journal of systemd takes them.
    is_journal: bool,
    colours: bool,
}

/// Whether the standard error output leads to the journal of systemd, which then has named that stream.
fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    let errors = io::stderr().as_fd().try_clone_to_owned().map(File::from);
    errors
        .and_then(|errors| errors.metadata())
        .is_ok_and(|errors| stream == format!("{}:{}", errors.dev(), errors.ino()))
}

/// What the journal takes for the priority of a line, as in syslog.
const fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "<3>",
        Level::WARN => "<4>",
        Level::INFO => "<6>",
        _ => "<7>",
    }
}

/// Events as `F` writes them, each line with its priority.
struct Prioritised<F>(F);

impl<S, N, F> FormatEvent<S, N> for Prioritised<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = String::new();
        self.0
            .format_event(context, Writer::new(&mut text), event)?;
        let priority = priority(*event.metadata().level());
        // A level is padded.
        for line in text.trim_start().lines() {
            writeln!(writer, "{priority}{line}")?;
        }
        Ok(())
    }
}

/// Starts the log of the process, on the standard error output. To be called once. Dropping the [`Flush`] writes what
/// still waits.
pub fn start(log: &Log) -> (LogControl, Flush) {
    let is_journal = is_journal();
    let style = Style {
        format: log.format,
        is_journal,
        // As <https://no-color.org> asks for it.
        colours: io::stderr().is_terminal()
            && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
    };
    let (lines, flush) = queue(io::stderr(), style, QUEUE);
    let (dispatch, control) = build(log.level, style, move || lines.clone());
    dispatch.init();
    (control, flush)
}

/// Logs what a reload did that somebody asked for.
pub fn reloaded(by: &str, result: &Result<String, String>) {
    match result {
        Ok(told) => {
            for line in told.lines() {
                tracing::info!(by, "reload: {line}");
            }
        }
        Err(problems) => {
            for problem in problems.lines() {
                tracing::error!(by, "reload failed: {problem}");
            }
        }
    }
}

/// Writes a last line to the standard error output, if somebody takes it.
pub fn last_words(text: &str) {
    let priority = match is_journal() {
        true => priority(Level::ERROR),
        false => "",
    };
    let lines = text.lines().map(|line| format!("{priority}{line}\n"));
    let text: String = lines.collect();
    let (done, written) = mpsc::channel();
    let write = move || {
        let _ = io::stderr().write_all(text.as_bytes());
        let _ = done.send(());
    };
    // A write to a pipe that nobody reads does not return. The thread ends with the process.
    if thread::Builder::new().spawn(write).is_ok() {
        let _ = written.recv_timeout(PATIENCE);
    }
}

/// The end of the queue where lines come in. Neither fails nor waits.
#[derive(Clone)]
struct Lines {
    queue: mpsc::SyncSender<Entry>,
    lost: Arc<AtomicU64>,
}

enum Entry {
    Line(Vec<u8>),
    Flush(mpsc::Sender<()>),
}

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.queue.try_send(Entry::Line(line.to_vec())).is_err() {
            self.lost.fetch_add(1, Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes what waits in the queue of the log when it is dropped, unless nobody takes it.
pub struct Flush(mpsc::SyncSender<Entry>);

impl Drop for Flush {
    fn drop(&mut self) {
        let end = Instant::now() + PATIENCE;
        let (done, flushed) = mpsc::channel();
        let mut entry = Entry::Flush(done);
        while let Err(mpsc::TrySendError::Full(back)) = self.0.try_send(entry) {
            if Instant::now() > end {
                return;
            }
            entry = back;
            thread::sleep(PATIENCE / 100);
        }
        let _ = flushed.recv_timeout(end.saturating_duration_since(Instant::now()));
    }
}

/// A queue of `length` lines, and a thread that writes them to `output`.
fn queue(output: impl Write + Send + 'static, style: Style, length: usize) -> (Lines, Flush) {
    let (queue, entries) = mpsc::sync_channel(length);
    let lost = Arc::new(AtomicU64::new(0));
    let lines = Lines {
        queue: queue.clone(),
        lost: Arc::clone(&lost),
    };
    let thread = thread::Builder::new().name("log".into());
    // Without the thread all lines are lost, but a gateway that gets no threads does not start anyway.
    let _ = thread.spawn(move || write(&entries, output, style, &lost));
    (lines, Flush(queue))
}

fn write(entries: &mpsc::Receiver<Entry>, mut output: impl Write, style: Style, lost: &AtomicU64) {
    for entry in entries {
        if let Entry::Line(line) = &entry
            && output.write_all(line).is_err()
        {
            lost.fetch_add(1, Relaxed);
            continue;
        }
        let count = lost.swap(0, Relaxed);
        if count > 0 && output.write_all(notice(style, count).as_bytes()).is_err() {
            lost.fetch_add(count, Relaxed);
        }
        if let Entry::Flush(done) = entry {
            let _ = done.send(());
        }
    }
}

fn notice(style: Style, count: u64) -> String {
    let lines = if count == 1 { "log line" } else { "log lines" };
    let message = format!("{count} {lines} lost because standard error was blocked");
    let priority = match style.is_journal {
        true => priority(Level::WARN),
        false => "",
    };
    match style.format {
        LogFormat::Human => format!("{priority}WARN {message}\n"),
        LogFormat::Json => {
            format!("{priority}{{\"level\":\"WARN\",\"fields\":{{\"message\":\"{message}\"}}}}\n")
        }
    }
}

fn build(
    level: LogLevel,
    style: Style,
    writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static,
) -> (Dispatch, LogControl) {
    let lines = tracing_subscriber::fmt()
        .with_writer(writer)
        .with_ansi(style.colours)
        .log_internal_errors(false)
        .with_env_filter(filter(level));
    // Each has a type of its own.
    macro_rules! finish {
        ($lines:expr) => {{
            let lines = $lines.with_filter_reloading();
            let control = control(lines.reload_handle(), level);
            (lines.finish().into(), control)
        }};
    }
    match (style.format, style.is_journal) {
        (LogFormat::Human, false) => finish!(lines.with_target(false)),
        (LogFormat::Human, true) => {
            let lines = lines.with_target(false).without_time();
            finish!(lines.map_event_format(Prioritised))
        }
        (LogFormat::Json, false) => finish!(lines.json()),
        (LogFormat::Json, true) => finish!(lines.json().map_event_format(Prioritised)),
    }
}

fn control<S: 'static>(handle: Handle<EnvFilter, S>, level: LogLevel) -> LogControl {
    LogControl::new(level, move |level| {
        handle.reload(filter(level)).map_err(|e| e.to_string())
    })
}

fn filter(level: LogLevel) -> EnvFilter {
    let word = level.as_str();
    match level {
        LogLevel::Debug => EnvFilter::new(format!("{word},{LIBRARIES}")),
        _ => EnvFilter::new(word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Written {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const fn plain(format: LogFormat) -> Style {
        Style {
            format,
            is_journal: false,
            colours: false,
        }
    }

    fn shown(format: LogFormat) -> String {
        let lines = Written::default();
        let writer = lines.clone();
        let (dispatch, control) = build(LogLevel::Info, plain(format), move || writer.clone());
        tracing::dispatcher::with_default(&dispatch, || {
            // The same place in the program each time, because tracing remembers what it decided there.
            let speak = || tracing::debug!(level = control.level().as_str(), "spoken");
            speak();
            control.set(LogLevel::Debug).unwrap();
            speak();
            control.set(LogLevel::Error).unwrap();
            speak();
        });
        assert_eq!(control.level(), LogLevel::Error);
        drop(dispatch);
        assert!(control.set(LogLevel::Info).is_err());
        assert_eq!(control.level(), LogLevel::Error);
        lines.text()
    }

    #[test]
    fn the_level_of_a_running_log_changes() {
        for format in [LogFormat::Human, LogFormat::Json] {
            let text = shown(format);
            assert_eq!(text.lines().count(), 1, "{text}");
            assert!(text.contains("spoken") && text.contains("debug"), "{text}");
        }
    }

    /// An output that stands still while it is locked, and fails as often as it is told to.
    #[derive(Clone, Default)]
    struct Bad {
        gate: Arc<Mutex<()>>,
        failures: Arc<AtomicU64>,
        written: Written,
    }

    impl Write for Bad {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            drop(self.gate.lock().unwrap());
            let fails = self.failures.load(Relaxed);
            if fails > 0 {
                self.failures.store(fails - 1, Relaxed);
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.written.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_nobody_takes_are_lost_and_counted() {
        let bad = Bad::default();
        let shut = bad.gate.lock().unwrap();
        let (mut lines, flush) = queue(bad.clone(), plain(LogFormat::Human), 4);
        for n in 0..100 {
            // Would never return if it waited.
            lines.write_all(format!("line {n}\n").as_bytes()).unwrap();
        }
        drop(shut);
        drop(flush);
        let text = bad.written.text();
        let kept = text.lines().filter(|line| line.starts_with("line "));
        let kept = kept.count();
        assert!((4..=5).contains(&kept), "{text}");
        let notice = format!("WARN {} log lines lost", 100 - kept);
        assert!(text.contains(&notice), "{text}");
    }

    #[test]
    fn an_output_that_fails_is_written_again_when_it_can_be() {
        let bad = Bad::default();
        bad.failures.store(3, Relaxed);
        let (mut lines, flush) = queue(bad.clone(), plain(LogFormat::Json), 64);
        for n in 0..5 {
            lines.write_all(format!("{n}\n").as_bytes()).unwrap();
        }
        drop(flush);
        let text = bad.written.text();
        let mut written = text.lines();
        assert_eq!(written.next(), Some("3"));
        let notice: serde_json::Value = serde_json::from_str(written.next().unwrap()).unwrap();
        let message = notice["fields"]["message"].as_str().unwrap();
        assert!(message.starts_with("3 log lines"), "{message}");
        assert_eq!(written.next(), Some("4"));
    }

    #[test]
    fn the_end_of_the_log_tells_what_was_lost_before() {
        let bad = Bad::default();
        bad.failures.store(1, Relaxed);
        let (mut lines, flush) = queue(bad.clone(), plain(LogFormat::Human), 4);
        lines.write_all(b"the last\n").unwrap();
        drop(flush);
        let text = bad.written.text();
        assert!(text.starts_with("WARN 1 log line lost"), "{text}");
    }

    #[test]
    fn a_log_that_nobody_takes_does_not_keep_the_process_from_ending() {
        let bad = Bad::default();
        let _shut = bad.gate.lock().unwrap();
        let (mut lines, flush) = queue(bad.clone(), plain(LogFormat::Human), 1);
        for _ in 0..3 {
            lines.write_all(b"line\n").unwrap();
        }
        drop(flush);
    }

    #[test]
    fn debug_is_about_the_gateway_and_trace_about_everything() {
        let shown = |level| {
            let lines = Written::default();
            let writer = lines.clone();
            let style = plain(LogFormat::Human);
            let (dispatch, _control) = build(level, style, move || writer.clone());
            tracing::dispatcher::with_default(&dispatch, || {
                tracing::debug!(target: "aya::bpf", "relocating");
                tracing::debug!(target: "rustls::client", "hello");
                tracing::warn!(target: "quinn_proto", "odd");
                tracing::debug!("ours");
            });
            lines.text().lines().count()
        };
        assert_eq!(shown(LogLevel::Debug), 2);
        assert_eq!(shown(LogLevel::Trace), 4);
    }

    #[test]
    fn lines_in_the_journal_have_a_priority_and_no_time() {
        let lines = Written::default();
        let writer = lines.clone();
        let style = Style {
            is_journal: true,
            ..plain(LogFormat::Human)
        };
        let (dispatch, _control) = build(LogLevel::Debug, style, move || writer.clone());
        tracing::dispatcher::with_default(&dispatch, || {
            tracing::error!("first\nsecond");
            tracing::warn!(interface = "eth1", "gone");
            tracing::info!("ready");
            tracing::debug!("detail");
        });
        let text = lines.text();
        let expected = "<3>ERROR first\n<3>second\n<4>WARN gone interface=\"eth1\"\n<6>INFO ready\n<7>DEBUG detail\n";
        assert_eq!(text, expected);
        assert!(notice(style, 2).starts_with("<4>WARN 2 log lines lost"));
    }

    #[test]
    fn json_in_the_journal_has_a_priority() {
        let lines = Written::default();
        let writer = lines.clone();
        let style = Style {
            is_journal: true,
            ..plain(LogFormat::Json)
        };
        let (dispatch, _control) = build(LogLevel::Info, style, move || writer.clone());
        tracing::dispatcher::with_default(&dispatch, || tracing::warn!("gone"));
        let text = lines.text();
        let document = text.strip_prefix("<4>").unwrap();
        let document: serde_json::Value = serde_json::from_str(document).unwrap();
        assert_eq!(document["fields"]["message"], "gone");
    }
}
