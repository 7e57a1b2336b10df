//! The gateway binary.
fn main() {}
