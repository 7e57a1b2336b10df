//! The real programs with a fast path.

use sig_linux::bpf::{FastPathOptions, Logging, Programs};

use crate::support::netns::root_or_skip;

fn options() -> FastPathOptions {
    FastPathOptions {
        sockets: 8,
        clamp_mss: true,
        verify_checksums: true,
    }
}

#[test]
fn the_programs_load() {
    if !root_or_skip() {
        return;
    }
    let (_programs, maps) = Programs::load_with_fast_path(Logging::Off, options()).unwrap();
    assert_eq!(maps.shared().sockets(), 8);
}
