//! `/status`: sessions, their paths and the routing table, as text in the reference's shape.

use std::fmt::Write as _;

use super::sessions::{self, Session, SessionPath};
use sig_core::status::Status;

/// Columns of the table of paths.
const COLUMNS: [&str; 6] = ["STATE", "REVOKED", "LATENCY", "JITTER", "DROPRATE", "PATH"];

pub(super) fn render(status: &Status) -> String {
    let mut page = String::new();
    let sessions = sessions::all(status);
    for of_as in sessions.chunk_by(|a, b| a.remote.isd_as == b.remote.isd_as) {
        if let Some(session) = of_as.first() {
            let _ = writeln!(page, "ISD-AS {}", session.remote.isd_as);
        }
        for session in of_as {
            write_session(&mut page, session);
        }
        page.push('\n');
    }
    page.push_str("\nROUTING TABLE:\n");
    page.push_str(&routing_table(status, &sessions));
    page
}

fn write_session(page: &mut String, session: &Session<'_>) {
    let remote = session.remote;
    // The reference prints where session probes go.
    let address = session
        .gateway
        .map_or(remote.gateway, |gateway| gateway.addresses.probe);
    let _ = writeln!(
        page,
        "  SESSION {}, POLICY_ID {}, REMOTE: {address}, HEALTHY {}\n    PATHS:",
        remote.session,
        remote.policy_id,
        session.is_healthy()
    );
    let mut rows = vec![COLUMNS.map(str::to_owned)];
    rows.extend(session.paths().into_iter().map(row));
    let mut widths = [0; COLUMNS.len()];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for row in rows {
        let cells = row.iter().zip(widths);
        let line: String = cells
            .map(|(cell, width)| format!("  {cell:<width$}"))
            .collect();
        let _ = writeln!(page, "   {}", line.trim_end());
    }
    page.push('\n');
}

fn row(path: SessionPath<'_>) -> [String; COLUMNS.len()] {
    let (state, revoked) = match (&*path.rejected, path.current) {
        ("", true) => ("-->".to_owned(), path.revoked.to_string()),
        ("", false) => (String::new(), path.revoked.to_string()),
        (reason, _) => (reason.to_owned(), String::new()),
    };
    let watched = path.watched;
    let milliseconds = |microseconds: Option<u64>| match microseconds {
        Some(microseconds) => format!("{:.2}ms", microseconds as f64 / 1e3),
        None => "-".to_owned(),
    };
    let loss = match watched.and_then(|path| path.loss_ppm) {
        Some(ppm) => format!("{:.2}%", f64::from(ppm) / 1e4),
        None => "-".to_owned(),
    };
    [
        state,
        revoked,
        milliseconds(watched.and_then(|path| path.latency_us)),
        milliseconds(watched.and_then(|path| path.jitter_us)),
        loss,
        path.text,
    ]
}

/// Which session takes which packets. Within a prefix, the first condition that holds decides.
pub(super) fn routing_table(status: &Status, sessions: &[Session<'_>]) -> String {
    let mut table = String::new();
    let mut entry = |prefix, condition: &str, session: Option<&Session<'_>>| {
        let _ = writeln!(table, "{prefix} condition: {condition}");
        let Some(session) = session else {
            table.push_str("  session: DROP\n");
            return;
        };
        let _ = writeln!(table, "  session: ID: {}", session.remote.session);
        for path in session.paths().iter().filter(|path| path.current) {
            let _ = writeln!(table, "    {}", path.text);
        }
    };
    let Some(control) = &status.control else {
        for session in sessions {
            for prefix in &session.remote.prefixes {
                entry(prefix, "BOOL=true", Some(session));
            }
        }
        return table;
    };
    for site in &control.sites {
        for prefix in &site.prefixes {
            for class in &site.classes {
                let session = sessions.iter().find(|session| {
                    session.remote.isd_as == site.isd_as
                        && Some(session.remote.session) == class.current
                });
                entry(prefix, &class.condition, session);
            }
        }
    }
    table
}
