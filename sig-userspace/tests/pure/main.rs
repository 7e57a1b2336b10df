//! What needs no privileges: files, captures, the command line, and the engine over ports in memory.

#[cfg(feature = "xdp")]
mod cli;
#[cfg(feature = "xdp")]
mod cli_run;
mod corpora;
mod engine_backend;
mod engine_lan;
mod examples;
#[cfg(feature = "xdp")]
mod gateway;
#[cfg(feature = "xdp")]
mod mistakes;
mod monitoring;
mod policies_doc;
mod scion_captures;
#[cfg(feature = "xdp")]
mod units;
