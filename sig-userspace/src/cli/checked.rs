//! What the commands that check a configuration file print.

use std::{
    io::{self, Write},
    path::Path,
};

use serde_json::{Value, json};
use sig_core::{
    notation::counted,
    problem::{Errors, Problem},
};

use super::Failure;

/// The outcome for a file, as text or as one JSON object: what it holds and what deserves a look, or what is wrong.
pub(super) fn print(
    file: &Path,
    checked: &Result<(String, Vec<Problem>), Errors>,
    json: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let (errors, warnings) = match checked {
        Ok((_, warnings)) => (&[][..], &warnings[..]),
        Err(errors) => (errors.problems(), errors.warnings()),
    };
    if json {
        let document = json!({
            "file": file.display().to_string(),
            "ok": checked.is_ok(),
            "errors": list(errors),
            "warnings": list(warnings),
        });
        writeln!(out, "{document}")?;
    } else {
        for warning in warnings {
            let _ = writeln!(io::stderr(), "warning: {warning}");
        }
    }
    match checked {
        Ok(_) if json => Ok(()),
        Ok((holds, warnings)) => {
            let warnings = match warnings.len() {
                0 => String::new(),
                many => format!(", {}", counted(many, "warning")),
            };
            writeln!(out, "{}: ok{holds}{warnings}", file.display())?;
            Ok(())
        }
        // The document has said what is wrong.
        Err(_) if json => Err(Failure::Refused(String::new())),
        Err(errors) => Err(Failure::Refused(errors.to_string())),
    }
}

fn list(problems: &[Problem]) -> Vec<Value> {
    let one =
        |p: &Problem| json!({ "file": p.file, "line": p.line, "key": p.key, "message": p.message });
    problems.iter().map(one).collect()
}
