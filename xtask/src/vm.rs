//! `cargo xtask vm`: gateways and routers on kernels of distributions and drivers of real network cards, in emulated machines.
//!
//! A machine has ten cards, which connect the hosts of [`testbed::Network`]. It starts from an archive in memory with one
//! kernel of Debian, the modules of the cards, `sig`, and this program, which does the rest there ([`guest`]).

mod guest;
mod image;
mod machine;
mod packages;

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail};
use testbed::Folder;

pub(crate) use guest::{Arguments as GuestArguments, run as run_guest};
pub(crate) use packages::archive;

use crate::{dist, shell};

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only these kernels
    #[arg(
        long,
        value_name = "SERIES",
        value_delimiter = ',',
        default_value = "6.1,6.12,newest"
    )]
    kernel: Vec<Series>,
    /// Only these cards
    #[arg(
        long,
        value_name = "CARD",
        value_delimiter = ',',
        default_value = "igb,virtio,virtio-iommu,e1000e,vmxnet3"
    )]
    card: Vec<Card>,
    /// Only these scenarios
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    scenario: Vec<guest::Scenario>,
    /// A line for the section `[dataplane]` of both gateways; may be repeated
    #[arg(long, value_name = "LINE", default_value = "workers = 2")]
    dataplane: Vec<String>,
    /// This program, instead of building what `cargo xtask dist` packs
    #[arg(long, value_name = "FILE")]
    sig: Option<PathBuf>,
    /// Longest run of a machine, in seconds
    #[arg(long, value_name = "N", default_value_t = 900)]
    limit: u64,
    /// Print what the machines print
    #[arg(long)]
    verbose: bool,
}

/// Kernels, by Debian's suite that has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Series {
    /// Of Debian 12
    #[value(name = "6.1")]
    V6_1,
    /// Of Debian 12, backports
    #[value(name = "6.12")]
    V6_12,
    /// The newest that Debian has packed
    Newest,
}

impl Series {
    fn suite(self) -> &'static str {
        match self {
            Self::V6_1 => "bookworm",
            Self::V6_12 => "bookworm-backports",
            Self::Newest => "trixie-backports",
        }
    }
}

/// Emulated network cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Card {
    /// Intel 82576: several queues, native XDP; zero copy in newer kernels
    Igb,
    /// virtio-net with four queues: native XDP
    Virtio,
    /// virtio-net behind an IOMMU: zero copy in newer kernels
    VirtioIommu,
    /// Intel 82574: no native XDP
    E1000e,
    /// VMware's: native XDP in newer kernels
    Vmxnet3,
}

impl Card {
    fn name(self) -> &'static str {
        match self {
            Self::Igb => "igb",
            Self::Virtio => "virtio-net",
            Self::VirtioIommu => "virtio-net, IOMMU",
            Self::E1000e => "e1000e",
            Self::Vmxnet3 => "vmxnet3",
        }
    }

    /// The device of QEMU, with its options, for a network connection.
    fn device(self) -> &'static str {
        match self {
            Self::Igb => "igb",
            Self::Virtio => "virtio-net-pci,mq=on,vectors=10",
            Self::VirtioIommu => "virtio-net-pci,mq=on,vectors=10,iommu_platform=on",
            Self::E1000e => "e1000e",
            Self::Vmxnet3 => "vmxnet3",
        }
    }
}

/// Runs the task.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if !shell::is_root() {
        bail!("run this as root: it installs packages, and makes device nodes for the machines");
    }
    packages::provide_tools()?;
    let sig = match &arguments.sig {
        Some(file) => file.clone(),
        None => dist::build()?,
    };
    let folder = Folder::new("vm")?;
    let mut rows = Vec::new();
    for series in &arguments.kernel {
        let kernel = packages::provide_kernel(series.suite())?;
        println!("kernel {}", kernel.version);
        let archive = image::build(&kernel, &sig, &arguments.dataplane, folder.path())?;
        for card in &arguments.card {
            let machine = machine::Machine {
                kernel: &kernel.image,
                archive: &archive,
                device: card.device(),
                limit: Duration::from_secs(arguments.limit),
                verbose: arguments.verbose,
            };
            let scenarios = guest::names(&arguments.scenario);
            let printed = machine.run(&scenarios)?;
            let log = shell::target_dir().join(format!("vm-{}-{card:?}.log", kernel.version));
            fs::write(&log, &printed).with_context(|| log.display().to_string())?;
            let results = guest::results(&printed);
            for result in &results {
                println!("{:<10} {:<18} {result}", kernel.version, card.name());
            }
            if results.is_empty() {
                println!("{:<10} {:<18} gave no result", kernel.version, card.name());
            }
            println!("           all that it printed: {}", log.display());
            rows.push(results);
        }
    }
    let failed = rows
        .iter()
        .filter(|results| results.is_empty() || results.iter().any(|result| !result.passed))
        .count();
    match failed {
        0 => Ok(()),
        some => bail!(
            "{some} of {} machines did not pass all scenarios",
            rows.len()
        ),
    }
}
