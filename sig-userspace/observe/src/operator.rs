//! What an operator can ask of a running gateway, and tell it.

use sig_core::document::common::LogLevel;
use sig_core::status::Status;

/// A running gateway, as the HTTP servers see it. Every call may block for a moment, as for reading a file.
pub trait Operator: Send + Sync + 'static {
    /// Its state now.
    fn status(&self) -> Status;

    /// The configuration in force, as TOML.
    fn config(&self) -> String;

    /// Least important message that the log shows.
    fn log_level(&self) -> LogLevel;

    /// Changes that.
    ///
    /// # Errors
    ///
    /// Why it cannot be changed.
    fn set_log_level(&self, level: LogLevel) -> Result<(), String>;

    /// Puts another IP routing policy, in the form of its file, into force, until the next reload. No file is written.
    ///
    /// # Errors
    ///
    /// What is wrong with the text; the old policy stays.
    fn set_routing_policy(&self, text: &str) -> Result<(), String>;

    /// Reads the configuration and policy files again and puts them into force; tells what changed.
    ///
    /// # Errors
    ///
    /// What is wrong with the files, and nothing has changed; or what has not taken effect, which is tried again.
    fn reload(&self) -> Result<String, String>;
}
