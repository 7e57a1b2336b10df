//! What is wrong with a file that the user wrote, and where.

use std::cell::RefCell;
use std::fmt;

/// Longest excerpt of a value that a message quotes, in characters.
const EXCERPT: usize = 60;

/// One finding about a file: where it is and what to do about it.
///
/// Displayed as `gateway.toml:14: remote[0].prefixes[1]: "10.2.0.1/24" has host bits set; …`, and without file and line
/// where the values did not come from a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Name of the file as the user gave it; empty if there is no file.
    pub file: String,
    /// Line, counted from 1. For a missing key: the line of the section that lacks it. 0 if there is no file.
    pub line: usize,
    /// Dotted path of the key, for example `remote[1].path[0].raw`; empty for a syntax error.
    pub key: String,
    /// What is wrong and what to write instead.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.is_empty() {
            write!(f, "{}:{}: ", self.file, self.line)?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// Everything that is wrong with a file, in the order of its lines. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Errors {
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
    of_host: bool,
}

impl Errors {
    /// What is wrong; at least one problem.
    pub fn new(problems: Vec<Problem>) -> Self {
        debug_assert!(!problems.is_empty());
        Self {
            problems,
            warnings: Vec::new(),
            of_host: false,
        }
    }

    /// The same: the file may be right, the host is not as it has to be, or not yet.
    pub fn of_host(self) -> Self {
        let of_host = true;
        Self { of_host, ..self }
    }

    /// Whether it is no mistake in the file, and may pass.
    pub fn is_of_host(&self) -> bool {
        self.of_host
    }

    /// The same, with what works in the same file but deserves a look.
    pub fn with_warnings(self, warnings: Vec<Problem>) -> Self {
        Self { warnings, ..self }
    }

    /// The single problems, in the order of their lines.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// What deserves a look beside the problems.
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }
}

impl fmt::Display for Errors {
    /// One line per problem.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.problems.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Errors {}

/// Collects errors and warnings of one file.
pub struct Report<'a> {
    file: &'a str,
    line_starts: Vec<usize>,
    errors: RefCell<Vec<Problem>>,
    warnings: RefCell<Vec<Problem>>,
}

impl<'a> Report<'a> {
    /// Starts a report about `text`, which messages call `file`. An empty name: the text is not one that the user wrote,
    /// and its lines mean nothing to them.
    pub fn new(file: &'a str, text: &str) -> Self {
        let after_newline = text.bytes().enumerate().filter(|(_, b)| *b == b'\n');
        let line_starts = std::iter::once(0)
            .chain(after_newline.map(|(i, _)| i + 1))
            .collect();
        Self {
            file,
            line_starts,
            errors: RefCell::default(),
            warnings: RefCell::default(),
        }
    }

    /// Name of the file.
    pub fn file(&self) -> &str {
        self.file
    }

    /// Line of byte `at`, counted from 1; 0 if there is no file.
    pub fn line(&self, at: usize) -> usize {
        if self.file.is_empty() {
            return 0;
        }
        self.line_starts.partition_point(|start| *start <= at)
    }

    fn problem(&self, at: usize, key: &str, message: String) -> Problem {
        Problem {
            file: self.file.to_owned(),
            line: self.line(at),
            key: key.to_owned(),
            message,
        }
    }

    /// Reports an error at byte `at` of the text.
    pub fn error(&self, at: usize, key: &str, message: impl Into<String>) {
        let problem = self.problem(at, key, message.into());
        self.errors.borrow_mut().push(problem);
    }

    /// Reports something that works but deserves a look.
    pub fn warn(&self, at: usize, key: &str, message: impl Into<String>) {
        let problem = self.problem(at, key, message.into());
        self.warnings.borrow_mut().push(problem);
    }

    /// Errors and warnings, each in the order of lines.
    pub fn take(&self) -> (Vec<Problem>, Vec<Problem>) {
        let sorted = |problems: &RefCell<Vec<Problem>>| {
            let mut problems = problems.take();
            problems.sort_by_key(|p| p.line);
            problems
        };
        (sorted(&self.errors), sorted(&self.warnings))
    }
}

/// `text`, shortened and without control characters, for quoting in a message.
pub fn excerpt(text: &str) -> String {
    let short: String = text.chars().take(EXCERPT).collect();
    let mut short = printable(&short);
    if text.chars().nth(EXCERPT).is_some() {
        short.push('…');
    }
    short
}

/// `text` without control characters.
pub fn printable(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}
