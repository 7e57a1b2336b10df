//! What the configurations of gateway and border router have in common.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use sig_common::addr::IsdAs;

use super::section::{Special, UnlessEmpty};
use super::toml::{Item, Section, or};
use crate::notation::{duration, show_duration};
use crate::problem::excerpt;
use crate::section;

/// Longest path of a Unix socket (`sun_path` without its terminator).
const LONGEST_SOCKET_PATH: usize = 107;

section! {
    /// `[log.console]`: the console log.
    #[derive(Copy)]
    pub struct Log {}

    /// Least important message shown.
    level: LogLevel = LogLevel::Info, UnlessEmpty(Special(
        |item| item.parse("\"info\"", |word| LogLevel::from_word(word).ok_or_else(|| {
            let word = excerpt(word);
            format!("\"{word}\" is unknown; write \"error\", \"warn\", \"info\", \"debug\" or \"trace\"")
        })),
        |level| Some(level.as_str().into()),
    ));
    /// Notation of the lines.
    format: LogFormat = LogFormat::Human, UnlessEmpty(Special(
        |item| {
            let text = item.text("\"human\"")?;
            if text.eq_ignore_ascii_case("json") {
                return Some(LogFormat::Json);
            }
            if !text.eq_ignore_ascii_case("human") {
                let text = excerpt(text);
                item.place.warn(format!("\"{text}\" is unknown and treated as \"human\""));
            }
            Some(LogFormat::Human)
        },
        |format| Some(match format {
            LogFormat::Human => "human",
            LogFormat::Json => "json",
        }.into()),
    ));
}

/// Importance of a log message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// The gateway cannot do its job.
    Error,
    /// An operator should look.
    Warn,
    /// What happens in normal operation.
    Info,
    /// For finding out why.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevel {
    /// The word of the configuration file, which is also the directive of a tracing filter.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }

    /// The level of this word, in any case. The reference's levels beyond `error` are of messages that end the process;
    /// here those are errors.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Some(match word.to_ascii_lowercase().as_str() {
            "error" | "dpanic" | "panic" | "fatal" => Self::Error,
            "warn" | "warning" => Self::Warn,
            "info" => Self::Info,
            "debug" => Self::Debug,
            "trace" => Self::Trace,
            _ => return None,
        })
    }
}

/// Notation of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text for people.
    Human,
    /// One JSON object per line.
    Json,
}

/// HTTP servers: sections `[metrics]` and `[api]`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Observe {
    /// Metrics and status pages.
    pub prometheus: Option<Listen>,
    /// Management API.
    pub api: Option<Listen>,
}

/// Where an HTTP server listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listen {
    /// The address.
    pub address: SocketAddr,
    /// Whether other machines may change things, and names of this host be used that are none of its own.
    pub allow_remote: bool,
}

/// How XDP programs are attached to an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XdpMode {
    /// Native where the driver can, generic otherwise.
    Auto,
    /// In the driver, or the gateway does not start.
    Native,
    /// In the kernel's generic receive path.
    Generic,
}

/// Words for [`XdpMode`].
pub const XDP_MODES: [(&str, XdpMode); 3] = [
    ("auto", XdpMode::Auto),
    ("native", XdpMode::Native),
    ("generic", XdpMode::Generic),
];

/// A duration within bounds, both included.
pub fn time(item: &Item<'_>, from: Duration, to: Duration) -> Option<Duration> {
    let (least, most) = (show_duration(from), show_duration(to));
    item.parse(&format!("\"{least}\""), |text| {
        let value = duration(text)?;
        if value < from || value > to {
            return Err(format!(
                "\"{text}\" is out of range; write a duration from \"{least}\" to \"{most}\""
            ));
        }
        Ok(value)
    })
}

/// `[log.console]`.
pub fn log(root: &Section<'_>) -> Option<Log> {
    let console = root.section("log").section("console");
    if let Some(item) = console.get_unless_empty("stacktrace_level") {
        item.text("\"none\"");
        item.place.warn("ignored: log lines carry no stack traces");
    }
    if let Some(item) = console.get("disable_caller") {
        item.boolean();
        item.place.warn("ignored: log lines name no callers");
    }
    Log::read(&console)
}

/// An ISD-AS number without wildcards.
pub fn isd_as(item: &Item<'_>) -> Option<IsdAs> {
    item.parse("\"1-ff00:0:110\"", one_as)
}

/// The same, from text.
pub fn one_as(text: &str) -> Result<IsdAs, String> {
    let isd_as: IsdAs = text.parse().map_err(|_| {
        format!(
            "\"{}\" is not an ISD-AS number; write for example \"1-ff00:0:110\" or \"1-64512\"",
            excerpt(text)
        )
    })?;
    if isd_as.isd() == 0 || isd_as.asn() == 0 {
        return Err(format!(
            "{isd_as} is a wildcard; write the number of one AS, for example \"1-ff00:0:110\""
        ));
    }
    Ok(isd_as)
}

/// A name that files are named after.
pub fn file_name(item: &Item<'_>, example: &str) -> Option<String> {
    item.parse(example, |text| {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        if text.is_empty() || text.len() > 64 || !text.bytes().all(plain) || text.starts_with('.') {
            return Err(format!(
                "\"{}\" is not usable as a file name; write 1 to 64 letters, digits, \
                 '-', '_' or '.', not starting with '.'",
                excerpt(text)
            ));
        }
        Ok(text.to_owned())
    })
}

/// Path of a Unix socket.
pub fn socket_path(item: &Item<'_>, example: &str) -> Option<PathBuf> {
    item.parse(example, |text| {
        if text.is_empty() || text.len() > LONGEST_SOCKET_PATH || text.contains('\0') {
            return Err(format!(
                "not usable as a Unix socket; write a path of 1 to {LONGEST_SOCKET_PATH} bytes"
            ));
        }
        Ok(PathBuf::from(text))
    })
}

/// `[metrics]` and `[api]`. As in the reference, an address that other machines reach is taken; to change anything from
/// there takes `allow_remote`.
pub fn observe(root: &Section<'_>) -> Option<Observe> {
    let listen = |section: &'static str, key| {
        let section = root.section(section);
        let remote = or(&section, "allow_remote", false, Item::boolean);
        let address = or(&section, key, None, |item| {
            item.parse("\"127.0.0.1:30456\"", listen_address)
        });
        let (address, allow_remote) = (address?, remote?);
        if let (Some(address), false, Some(item)) = (address, allow_remote, section.get(key))
            && !address.ip().is_loopback()
        {
            item.place.warn(format!(
                "{address} is reachable from other machines without authentication; write \
                 \"127.0.0.1:{}\", or set allow_remote = true if you want this, which also allows changes",
                address.port()
            ));
        }
        Some(address.map(|address| Listen {
            address,
            allow_remote,
        }))
    };
    let (prometheus, api) = (listen("metrics", "prometheus"), listen("api", "addr"));
    let observe = Observe {
        prometheus: prometheus?,
        api: api?,
    };
    if let (Some(metrics), Some(api)) = (observe.prometheus, observe.api)
        && metrics.address == api.address
        && let Some(item) = root.section("api").get("addr")
    {
        item.place.error(format!(
            "{} is already used by [metrics] prometheus; write another port",
            api.address
        ));
    }
    Some(observe)
}

/// Where a server of ours listens; empty text: nowhere. An empty host means all addresses, as in the
/// reference.
fn listen_address(text: &str) -> Result<Option<SocketAddr>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    server(text)?;
    let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
    let port = port.parse().unwrap_or_default();
    let ip = match host {
        "" => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
        host => host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .parse()
            .map_err(|_| {
                format!(
                    "\"{}\" is a host name, which is not supported; write an IP address of this host",
                    excerpt(host)
                )
            })?,
    };
    Ok(Some(SocketAddr::new(ip, port)))
}

/// `host:port` of a server; the host may be a name.
pub fn server(text: &str) -> Result<(), String> {
    let port = text.rsplit_once(':').map(|(_, port)| port);
    match port.map(str::parse::<u16>) {
        Some(Ok(port)) if port != 0 => Ok(()),
        _ => Err(format!(
            "\"{}\" is not an address with a port; write host:port, for example \"127.0.0.1:30456\"",
            excerpt(text)
        )),
    }
}
