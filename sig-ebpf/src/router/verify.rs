//! Was the hop field made by this AS?

use sig_common::router::{maps::Config, passage::Fields};

/// Not 0: forged hop fields are forwarded. To measure what the check costs, never in a network.
#[unsafe(no_mangle)]
static R_FORGED_HOPS_PASS_FOR_BENCHMARKS: u8 = 0;

/// Checks the MAC of a hop field with the segment identifier as it is in the fields.
#[inline(always)]
pub fn has_made(fields: &Fields, config: &Config) -> bool {
    // SAFETY: a static of this object. Volatile, as the loader may set it.
    let forged_pass =
        unsafe { core::ptr::read_volatile(&raw const R_FORGED_HOPS_PASS_FOR_BENCHMARKS) } != 0;
    forged_pass || computed(fields, config) == fields.mac
}

/// A function of its own, so that the cipher is in the program once.
#[inline(never)]
fn computed(fields: &Fields, config: &Config) -> u64 {
    config.hop_mac(&fields.mac_input())
}
