//! All subjects that this machine can measure.

use std::fs::File;

use anyhow::Result;

use super::{
    binary,
    chain::Chains,
    experiment::{Case, Experiment},
    lab, pure,
    run::Workbench,
    scenario::Outcome,
    subject::{Device, Refusal, Subject},
};

/// The workbench of this machine. Others that measure over networks of ours wait until it is dropped.
pub struct Bench {
    is_built: bool,
    /// Chains take seconds to set up, so they stand for as long as the next experiment needs them too.
    chains: Chains,
    /// Last, so that others begin when everything is gone.
    _alone: File,
}

impl Bench {
    /// Waits until nobody else measures, and removes what killed processes left.
    ///
    /// # Errors
    ///
    /// The lock cannot be made.
    pub fn new() -> Result<Self> {
        let alone = testbed::exclusive()?;
        testbed::sweep();
        Ok(Bench {
            is_built: false,
            chains: Chains::default(),
            _alone: alone,
        })
    }
}

impl Workbench for Bench {
    fn prepare(&mut self, next: &Experiment) {
        if !self.is_built && next.subjects.iter().any(|subject| subject.runs_gateway()) {
            eprintln!("building the gateway");
            // What goes wrong is the reason why its subjects are not measured.
            let _ = binary::gateway_binary();
            self.is_built = true;
        }
        self.chains.keep(|subject| next.subjects.contains(&subject));
    }

    fn open(&mut self, subject: Subject, case: &Case) -> Result<Box<dyn Device>, Refusal> {
        if subject.is_pipeline() {
            pure::open(subject, case)
        } else if subject.is_chain() {
            self.chains.open(subject, case)
        } else {
            lab::open(subject, case)
        }
    }

    fn play(
        &mut self,
        subject: Subject,
        case: &Case,
        experiment: &Experiment,
    ) -> Result<Outcome, Refusal> {
        self.chains.play(subject, case, experiment)
    }
}
