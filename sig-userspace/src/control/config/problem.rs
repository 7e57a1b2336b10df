//! What is wrong with a configuration, and where.

use std::fmt;

/// One finding about a configuration file: where it is and what to do about it.
///
/// Displayed as `gateway.toml:14: remote[0].prefixes[1]: "10.2.0.1/24" has host bits set; …`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Name of the file as the user gave it.
    pub file: String,
    /// Line, counted from 1. For a missing key: the line of the section that lacks it.
    pub line: usize,
    /// Dotted path of the key, for example `remote[1].path[0].raw`; empty for a syntax error.
    pub key: String,
    /// What is wrong and what to write instead.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.file, self.line)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// Everything that is wrong with a configuration file, in the order of its lines. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Errors(pub(super) Vec<Problem>);

impl Errors {
    /// The single problems, in the order of their lines.
    pub fn problems(&self) -> &[Problem] {
        &self.0
    }
}

impl fmt::Display for Errors {
    /// One line per problem.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Errors {}
