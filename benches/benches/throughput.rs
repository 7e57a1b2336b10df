//! The throughput harness: `cargo bench -p benches --bench throughput -- --help`.

use std::process::ExitCode;

use benches::throughput::{cli, workbench::Bench};

fn main() -> ExitCode {
    cli::main(Bench::new)
}
