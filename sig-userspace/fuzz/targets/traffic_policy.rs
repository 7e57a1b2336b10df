#![no_main]

#[path = "../bodies/traffic_policy.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
