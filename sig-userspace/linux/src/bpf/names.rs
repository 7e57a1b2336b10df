//! Messages of the BPF programs, which know reasons by number only.

use log::{Log, Metadata, Record};
use sig_common::reason::DropReason;

/// Hands messages to the crate `log` with the names of reasons in place of their numbers.
pub(super) struct Named;

impl Log for Named {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        log::logger().enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        let message = named(&record.args().to_string());
        log::logger().log(
            &Record::builder()
                .args(format_args!("{message}"))
                .metadata(record.metadata().clone())
                .module_path(record.module_path())
                .file(record.file())
                .line(record.line())
                .build(),
        );
    }

    fn flush(&self) {
        log::logger().flush();
    }
}

/// `dropped, reason 2` with the name and the meaning of the reason.
fn named(message: &str) -> String {
    const WORD: &str = "reason ";
    let reason = || {
        let (before, number) = message.rsplit_once(WORD)?;
        let number: u8 = number.trim().parse().ok()?;
        let reason = DropReason::from_number(number)?;
        let (name, meaning) = (reason.name(), reason.describe());
        Some(format!("{before}{WORD}{name}: {meaning}"))
    };
    reason().unwrap_or_else(|| message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_names() {
        for reason in DropReason::ALL {
            let message = named(&format!("inject: dropped, reason {}", reason as u8));
            let begin = format!("inject: dropped, reason {}: ", reason.name());
            assert!(message.starts_with(&begin), "{message}");
        }
        assert_eq!(named("dropped, reason 255"), "dropped, reason 255");
        assert_eq!(named("resolving"), "resolving");
    }
}
