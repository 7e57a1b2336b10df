#![no_main]

#[path = "../bodies/routing_policy.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
