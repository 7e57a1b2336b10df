//! The gateway binary.

fn main() -> std::process::ExitCode {
    sig::cli::main()
}
