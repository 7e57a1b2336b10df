//! Any bytes as an Ethernet frame, as a SCION packet in a frame to us, and as an IP packet: the
//! underlay parser and the checked views agree about them, and nothing panics.

#[path = "../../../sig-common/tests/support/mod.rs"]
mod support;

use support::Underlay;
use support::oracle::{check, touch};

/// Takes `data` for all of these.
///
/// # Panics
/// If the parsers break a promise.
pub(crate) fn run(data: &[u8]) {
    check(data);
    touch(data);
    // Most inputs would not get past the outer headers.
    if data.len() <= 4096 {
        for host in ["10.0.0.2", "fd00::2"] {
            check(&Underlay::to(host, 30056).wrap(data));
        }
    }
}
