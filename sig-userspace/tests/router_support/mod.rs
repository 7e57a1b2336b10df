//! What tests of the border router share: signed paths, an AS, packets.
#![allow(
    dead_code,
    reason = "every test binary uses another part of this module"
)]

pub(crate) mod asys;
#[cfg(feature = "xdp")]
pub(crate) mod compare;
pub(crate) mod path;
pub(crate) mod random;
