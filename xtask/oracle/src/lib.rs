//! Nothing but tests: what the project makes of SCION paths, in comparison with the crate `sciparse`, which shares no
//! code with it. See `tests/oracle/main.rs`.
