//! `sig doctor`: what is fine on this host, what is not, and what to do. Changes nothing and sends nothing.

mod findings;

use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Failure;
use super::notation::{Format, Notation};
use super::socket::{self, Kind};
use crate::control::config;
use findings::{Finding, Level, findings};
use sig_linux::facts::{self, Facts};

/// Check this host: kernel, privileges, memory, interfaces. Changes nothing, sends nothing.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Check the host for this configuration.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    notation: Notation,
}

/// The answer in JSON.
#[derive(Serialize)]
struct Report<'a> {
    /// Nothing essential is missing.
    ok: bool,
    findings: &'a [Finding],
}

/// Exit code 1 when something essential is missing.
pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let config = args.config.as_deref().map(config::load).transpose();
    let config = config.map_err(|errors| Failure::Refused(errors.to_string()))?;
    let next_hops: Vec<_> = config
        .iter()
        .flat_map(|config| &config.remotes)
        .flat_map(|remote| &remote.paths)
        .map(|path| path.next_hop.ip())
        .collect();
    let source = config.as_ref().map(|config| config.gateway.data_addr.ip());
    let facts = gather(source, &next_hops)?;
    report(
        args.notation.format(),
        &findings(&facts, config.as_ref()),
        out,
        "the gateway cannot run on this host as configured",
    )
}

/// The same for a border router; `own` are its addresses, if they are known, and `is_running` whether it answers.
pub(super) fn router(
    format: Format,
    own: Option<&[IpAddr]>,
    is_running: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut facts = gather(None, &[])?;
    if is_running {
        facts.running = Some(Kind::Router.name());
    }
    report(
        format,
        &findings::router_findings(&facts, own),
        out,
        "the router cannot run on this host as configured",
    )
}

fn gather(source: Option<IpAddr>, next_hops: &[IpAddr]) -> Result<Facts, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(error.to_string()))?;
    let mut facts = runtime
        .block_on(facts::gather(source, next_hops))
        .map_err(|error| Failure::Failed(error.to_string()))?;
    facts.running = socket::neighbour(Path::new(socket::FOLDER));
    Ok(facts)
}

fn report(
    format: Format,
    findings: &[Finding],
    out: &mut dyn Write,
    verdict: &str,
) -> Result<(), Failure> {
    let ok = findings.iter().all(|finding| finding.level != Level::Bad);
    match format {
        Format::Human => print_lines(out, findings)?,
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, &Report { ok, findings })
                .map_err(io::Error::from)?;
            writeln!(out)?;
        }
    }
    if ok {
        Ok(())
    } else {
        Err(Failure::Failed(verdict.into()))
    }
}

fn print_lines(out: &mut dyn Write, findings: &[Finding]) -> io::Result<()> {
    let mut area = "";
    for finding in findings {
        if finding.area != area {
            area = &finding.area;
            writeln!(out, "{area}")?;
        }
        let mark = match finding.level {
            Level::Good => '✓',
            Level::Warning => '!',
            Level::Bad => '✗',
        };
        writeln!(out, "  {mark} {}", finding.text)?;
        if let Some(remedy) = &finding.remedy {
            writeln!(out, "    → {remedy}")?;
        }
    }
    let count = |level| {
        findings
            .iter()
            .filter(|finding| finding.level == level)
            .count()
    };
    writeln!(
        out,
        "{} ok, {} to look at, {} to fix",
        count(Level::Good),
        count(Level::Warning),
        count(Level::Bad),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_show_mark_text_and_remedy_under_their_area() {
        let findings = [
            Finding::good("kernel", "Linux 6.18"),
            Finding::bad("privileges", "CAP_NET_ADMIN is missing", "run it as root"),
            Finding::warning("privileges", "little memory may be locked", "raise it"),
        ];
        let mut out = Vec::new();
        print_lines(&mut out, &findings).unwrap();
        let expected = "kernel\n  ✓ Linux 6.18\nprivileges\n  ✗ CAP_NET_ADMIN is missing\n    → run it as root\n  \
                        ! little memory may be locked\n    → raise it\n1 ok, 1 to look at, 1 to fix\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
