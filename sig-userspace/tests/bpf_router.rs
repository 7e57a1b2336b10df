//! The border router's fast path over single packets: the real program, run by the kernel.
#![cfg(feature = "xdp")]

mod support;

use sig::kernel::bpf::{RouterOptions, RouterPrograms};

#[test]
fn the_verifier_takes_the_programs() {
    if !support::netns::root_or_skip() {
        return;
    }
    let programs = RouterPrograms::load(RouterOptions::default()).unwrap();
    for figures in programs.figures().unwrap() {
        println!("{figures:?}");
        assert!(figures.verified < 1_000_000);
    }
}
