//! Any bytes as a segment routing header, alone and in an IPv6 packet: the parser and the view agree about them, what was read
//! makes the same header again, and nothing panics.

#[path = "../../../sig-common/tests/support/srh.rs"]
mod support;

/// Takes `data` for all of these.
///
/// # Panics
/// If the parsers break a promise.
pub(crate) fn run(data: &[u8]) {
    support::check(data);
}
