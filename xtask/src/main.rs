//! Project tasks, run as `cargo xtask TASK`. One file per task.

mod bench;
#[path = "../../sig-userspace/linux/bpf_build.rs"]
mod bpf_build;
mod build_ebpf;
mod chaos;
mod demo;
mod dependencies;
mod dist;
mod screenshots;
mod setup;
mod shell;
mod test;
mod vm;

use clap::{Parser, Subcommand};

/// Tasks of the project sig.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Make a bare Debian machine with rustup ready to build and run everything here
    Setup(setup::Arguments),
    /// Build the XDP and TC programs
    BuildEbpf(build_ebpf::Arguments),
    /// Lint the XDP and TC programs
    ClippyEbpf,
    /// Check licences, bans and sources of dependencies (deny.toml), and that all are used
    Dependencies,
    /// Make what is installed: package, tarball, container image
    Dist(dist::Arguments),
    /// Show two gateways carrying traffic between two ASes, in network namespaces
    Demo(demo::Arguments),
    /// Let gateways and routers of three ASes meet random faults, and check that packets and processes stay whole
    Chaos(chaos::Arguments),
    /// Take the pictures of the documentation, and try the live page in a browser
    Screenshots(screenshots::Arguments),
    /// Measure sig against the limits of the machine and against what people use
    Bench(bench::Arguments),
    /// Run gateways and routers on other kernels and emulated network cards
    Vm(vm::Arguments),
    #[command(hide = true)]
    VmGuest(vm::GuestArguments),
    /// Run all tests; as root also those over real network devices
    Test(test::Arguments),
}

fn main() -> std::process::ExitCode {
    let result = match Arguments::parse().task {
        Task::Setup(arguments) => setup::run(&arguments),
        Task::BuildEbpf(arguments) => build_ebpf::run(&arguments),
        Task::ClippyEbpf => build_ebpf::clippy(),
        Task::Dependencies => dependencies::run(),
        Task::Dist(arguments) => dist::run(&arguments),
        Task::Demo(arguments) => demo::run(&arguments),
        Task::Chaos(arguments) => chaos::run(&arguments),
        Task::Screenshots(arguments) => screenshots::run(&arguments),
        Task::Bench(arguments) => bench::run(&arguments),
        Task::Vm(arguments) => vm::run(&arguments),
        Task::VmGuest(arguments) => vm::run_guest(&arguments),
        Task::Test(arguments) => test::run(&arguments),
    };
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
