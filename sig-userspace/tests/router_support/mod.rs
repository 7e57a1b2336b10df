//! What tests of the border router share: signed paths, an AS, packets.
#![allow(
    dead_code,
    reason = "every test binary uses another part of this module"
)]

pub(crate) mod asys;
pub(crate) mod path;
