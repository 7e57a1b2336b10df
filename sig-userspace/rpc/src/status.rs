//! Errors that a server answers with: gRPC's numbers, Connect's names and HTTP codes.

use std::fmt;

/// Most characters of an error message from a peer that are kept.
const MAX_MESSAGE: usize = 256;

/// The kind of an error. The number is gRPC's status code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the gRPC documentation")]
pub enum Code {
    Canceled = 1,
    Unknown,
    InvalidArgument,
    DeadlineExceeded,
    NotFound,
    AlreadyExists,
    PermissionDenied,
    ResourceExhausted,
    FailedPrecondition,
    Aborted,
    OutOfRange,
    Unimplemented,
    Internal,
    Unavailable,
    DataLoss,
    Unauthenticated,
}

/// Code, name in Connect's JSON, HTTP status in Connect.
const CODES: [(Code, &str, u16); 16] = [
    (Code::Canceled, "canceled", 499),
    (Code::Unknown, "unknown", 500),
    (Code::InvalidArgument, "invalid_argument", 400),
    (Code::DeadlineExceeded, "deadline_exceeded", 504),
    (Code::NotFound, "not_found", 404),
    (Code::AlreadyExists, "already_exists", 409),
    (Code::PermissionDenied, "permission_denied", 403),
    (Code::ResourceExhausted, "resource_exhausted", 429),
    (Code::FailedPrecondition, "failed_precondition", 400),
    (Code::Aborted, "aborted", 409),
    (Code::OutOfRange, "out_of_range", 400),
    (Code::Unimplemented, "unimplemented", 501),
    (Code::Internal, "internal", 500),
    (Code::Unavailable, "unavailable", 503),
    (Code::DataLoss, "data_loss", 500),
    (Code::Unauthenticated, "unauthenticated", 401),
];

impl Code {
    fn entry(self) -> (Code, &'static str, u16) {
        CODES[self as usize - 1]
    }

    /// gRPC's number.
    #[must_use]
    pub fn number(self) -> u32 {
        self as u32
    }

    /// Connect's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.entry().1
    }

    /// The HTTP status with which Connect reports it.
    #[must_use]
    pub fn http_status(self) -> u16 {
        self.entry().2
    }

    /// From gRPC's number; [`Code::Unknown`] for a number that has no meaning.
    pub(super) fn from_number(number: u32) -> Self {
        CODES
            .into_iter()
            .map(|(code, ..)| code)
            .find(|code| code.number() == number)
            .unwrap_or(Code::Unknown)
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        CODES
            .into_iter()
            .find(|(_, candidate, _)| *candidate == name)
            .map(|(code, ..)| code)
    }

    /// What an HTTP status means that comes without an error of gRPC or Connect.
    pub(super) fn from_http_status(status: u16) -> Self {
        match status {
            400 => Code::Internal,
            401 => Code::Unauthenticated,
            403 => Code::PermissionDenied,
            404 => Code::Unimplemented,
            429 | 502..=504 => Code::Unavailable,
            _ => Code::Unknown,
        }
    }
}

/// An error that a server answers with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its kind.
    pub code: Code,
    /// For people. What a peer sent is cut and has no control characters.
    pub message: String,
}

impl Status {
    /// An error of our own.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Status {
            code,
            message: message.into(),
        }
    }

    /// With a message that a peer sent.
    pub(super) fn from_peer(code: Code, message: &str) -> Self {
        let printable = |c: char| if c.is_control() { ' ' } else { c };
        Status::new(
            code,
            message
                .chars()
                .take(MAX_MESSAGE)
                .map(printable)
                .collect::<String>(),
        )
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code.name())?;
        if !self.message.is_empty() {
            write!(f, " ({})", self.message)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_lead_back_to_the_code() {
        for (i, (code, name, _)) in CODES.into_iter().enumerate() {
            assert_eq!(code.number() as usize, i + 1);
            assert_eq!(Code::from_number(code.number()), code);
            assert_eq!(code.name(), name);
            assert_eq!(Code::from_name(name), Some(code));
        }
        assert_eq!(Code::from_number(0), Code::Unknown);
        assert_eq!(Code::from_number(17), Code::Unknown);
        assert_eq!(Code::from_name("teapot"), None);
    }

    #[test]
    fn a_message_of_a_peer_cannot_fill_or_break_the_log() {
        let status = Status::from_peer(Code::Internal, &"a\n\x1b[31m".repeat(1000));
        assert_eq!(status.message.chars().count(), MAX_MESSAGE);
        assert!(!status.message.contains(char::is_control));
    }
}
