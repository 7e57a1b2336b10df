//! Was the hop field made by this AS?

use sig_common::router::{Reason, maps::Config};

use super::work::{Stop, Work};

/// Not 0: forged hop fields are forwarded. To measure what the check costs, never in a network.
#[unsafe(no_mangle)]
static R_FORGED_HOPS_PASS_FOR_BENCHMARKS: u8 = 0;

/// Checks the MAC of the current hop field with the segment identifier as it is in the fields.
#[inline(always)]
pub fn mac(work: &Work, config: &Config) -> Result<(), Stop> {
    // SAFETY: a static of this object. Volatile, as the loader may set it.
    if unsafe { core::ptr::read_volatile(&raw const R_FORGED_HOPS_PASS_FOR_BENCHMARKS) } != 0 {
        return Ok(());
    }
    if computed(work, config) == work.fields.mac {
        Ok(())
    } else {
        Err(Reason::InvalidMac.into())
    }
}

/// A function of its own, so that the cipher is in the program once.
#[inline(never)]
fn computed(work: &Work, config: &Config) -> u64 {
    let fields = &work.fields;
    config.hop_mac(
        fields.segment_id,
        fields.timestamp,
        fields.expiry,
        fields.ingress,
        fields.egress,
    )
}
