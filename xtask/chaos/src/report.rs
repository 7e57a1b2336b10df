//! What happened.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path, time::Duration};

use anyhow::{Context as _, Result};

use crate::{
    faults::{Fault, Kind},
    network::ASES,
};

/// What happened in all rounds.
pub(crate) struct Report {
    seed: u64,
    dataplane: [&'static str; ASES],
    rounds: u64,
    lost: u64,
    sent: u64,
    kinds: BTreeMap<Kind, OfKind>,
    broken: Vec<String>,
}

/// Of the rounds with a fault of this kind.
#[derive(Default)]
struct OfKind {
    rounds: u64,
    /// The longest that it took to heal, where it was the only kind.
    healed: Option<Duration>,
    alone: u64,
}

impl Report {
    pub(crate) fn new(seed: u64, dataplane: [&'static str; ASES]) -> Self {
        Self {
            seed,
            dataplane,
            rounds: 0,
            lost: 0,
            sent: 0,
            kinds: BTreeMap::new(),
            broken: Vec::new(),
        }
    }

    /// Adds a round, and tells of it.
    pub(crate) fn round(
        &mut self,
        faults: &[Fault],
        healed: Option<Duration>,
        lost: u64,
        sent: u64,
    ) {
        self.rounds += 1;
        self.lost += lost;
        self.sent += sent;
        for fault in faults {
            let of_kind = self.kinds.entry(fault.kind).or_default();
            of_kind.rounds += 1;
            if faults.len() == 1 {
                of_kind.alone += 1;
                of_kind.healed = of_kind.healed.max(healed);
            }
        }
        let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
        let healed = healed.map_or("not healed".to_owned(), |healed| {
            format!("healed within {:.1} s", healed.as_secs_f64())
        });
        println!("{}; {healed}; {lost} of {sent} lost", faults.join(", "));
    }

    /// Adds rules that were broken in a round.
    pub(crate) fn broken(&mut self, round: u64, faults: &[Fault], broken: Vec<String>) {
        let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
        let when = match round {
            u64::MAX => "at the end".to_owned(),
            _ => format!("round {round} ({})", faults.join(", ")),
        };
        const SHOWN: usize = 6;
        let more = broken.len().saturating_sub(SHOWN);
        for rule in broken.into_iter().take(SHOWN) {
            eprintln!("BROKEN in {when}: {rule}");
            self.broken.push(format!("{when}: {rule}"));
        }
        if more > 0 {
            eprintln!("and {more} more");
        }
    }

    pub(crate) fn is_good(&self) -> bool {
        self.broken.is_empty()
    }

    /// Prints the report, and adds it to the file `report.md` of the folder.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let mut text = format!(
            "## Seed {}\n\n`[dataplane]` of a, b, c: {:?}. {} rounds, {} of {} datagrams lost, {} rules broken.\n\n\
             | fault | rounds | alone | healed alone within |\n|---|--:|--:|--:|\n",
            self.seed,
            self.dataplane,
            self.rounds,
            self.lost,
            self.sent,
            self.broken.len()
        );
        for (kind, of_kind) in &self.kinds {
            let healed = of_kind.healed.map_or("–".to_owned(), |healed| {
                format!("{:.1} s", healed.as_secs_f64())
            });
            let (rounds, alone) = (of_kind.rounds, of_kind.alone);
            writeln!(text, "| {} | {rounds} | {alone} | {healed} |", kind.name())?;
        }
        for rule in &self.broken {
            writeln!(text, "\nBroken: {rule}")?;
        }
        println!("\n{text}");
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let file = folder.join("report.md");
        let before = fs::read_to_string(&file).unwrap_or_default();
        fs::write(&file, before + &text + "\n")
            .with_context(|| format!("cannot write {}", file.display()))
    }
}
