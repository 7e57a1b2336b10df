//! Memory and descriptors of gateways and routers, which must not grow.

use std::{collections::HashMap, fs};

use anyhow::{Context as _, Result};

use crate::network::Network;

/// Rounds after which a process has what it needs.
const WARM: u32 = 3;
/// How much more than after these is suspicious: bytes, and descriptors.
const MORE_BYTES: u64 = 48 << 20;
const MORE_DESCRIPTORS: usize = 32;

/// What processes had at first, by number.
#[derive(Default)]
pub(crate) struct Memory(HashMap<u32, Known>);

#[derive(Default)]
struct Known {
    rounds: u32,
    bytes: u64,
    descriptors: usize,
}

impl Memory {
    /// Looks at all processes at the end of a round. Returns what grew.
    pub(crate) fn look(&mut self, network: &Network) -> Result<Vec<String>> {
        let mut grown = Vec::new();
        for (name, process) in network.ases.iter().flat_map(|own| own.processes()) {
            let Ok((bytes, descriptors)) = measure(process) else {
                // It has ended, which is told elsewhere.
                continue;
            };
            let known = self.0.entry(process).or_default();
            known.rounds += 1;
            if known.rounds <= WARM {
                known.bytes = known.bytes.max(bytes);
                known.descriptors = known.descriptors.max(descriptors);
            }
            if bytes > known.bytes + MORE_BYTES {
                grown.push(format!(
                    "{name}: {} MiB of memory, {} before",
                    bytes >> 20,
                    known.bytes >> 20
                ));
                known.bytes = bytes;
            }
            if descriptors > known.descriptors + MORE_DESCRIPTORS {
                grown.push(format!(
                    "{name}: {descriptors} descriptors, {} before",
                    known.descriptors
                ));
                known.descriptors = descriptors;
            }
        }
        Ok(grown)
    }
}

/// Resident memory in bytes, and open descriptors.
fn measure(process: u32) -> Result<(u64, usize)> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = kilobytes.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    let bytes = kilobytes.context("no VmRSS")? << 10;
    Ok((bytes, fs::read_dir(format!("/proc/{process}/fd"))?.count()))
}
