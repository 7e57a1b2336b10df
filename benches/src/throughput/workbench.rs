//! All subjects that this machine can measure.

use std::fs::File;

use anyhow::Result;

use super::{
    binary,
    chain::{self, Chain},
    experiment::{Case, Cpus, Experiment, Scenario},
    lab, pure,
    run::Workbench,
    scenario::{self, Outcome},
    subject::{Device, Refusal, Subject},
};

/// The workbench of this machine. Others that measure over networks of ours wait until it is dropped.
pub struct Bench {
    _alone: File,
    is_built: bool,
    /// Chains take seconds to set up, so they stand for as long as the next experiment needs them too.
    chains: Vec<Standing>,
}

/// A chain that stands, or why it does not.
struct Standing {
    subject: Subject,
    workers: u16,
    cpus: Cpus,
    chain: Result<Box<dyn Chain>, String>,
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
            _alone: alone,
            is_built: false,
            chains: Vec::new(),
        })
    }

    /// The chain of a subject, which is set up unless it stands.
    fn chain(&mut self, subject: Subject, case: &Case) -> Result<&mut dyn Chain, Refusal> {
        let same = |standing: &Standing| {
            standing.subject == subject
                && standing.workers == case.workers
                && standing.cpus == case.cpus
        };
        let place = match self.chains.iter().position(same) {
            Some(place) => place,
            None => {
                let chain = match chain::build(subject, case) {
                    Ok(chain) => Ok(chain),
                    // The reason will be the same for all cases.
                    Err(Refusal::NotHere(reason)) => Err(reason),
                    Err(failed) => return Err(failed),
                };
                self.chains.push(Standing {
                    subject,
                    workers: case.workers,
                    cpus: case.cpus,
                    chain,
                });
                self.chains.len() - 1
            }
        };
        match &mut self.chains[place].chain {
            Ok(chain) => Ok(chain.as_mut()),
            Err(reason) => Err(Refusal::NotHere(reason.clone())),
        }
    }
}

impl Workbench for Bench {
    fn prepare(&mut self, experiment: &Experiment) {
        let subjects = &experiment.subjects;
        if !self.is_built && subjects.iter().any(|subject| subject.runs_gateway()) {
            eprintln!("building the gateway");
            // What goes wrong is the reason why its subjects are not measured.
            let _ = binary::gateway_binary();
            self.is_built = true;
        }
        self.chains
            .retain(|standing| subjects.contains(&standing.subject));
    }

    fn open(&mut self, subject: Subject, case: &Case) -> Result<Box<dyn Device>, Refusal> {
        if subject.is_pipeline() {
            pure::open(subject, case)
        } else if subject.is_chain() {
            Err(Refusal::NotHere("chains have no generator yet".into()))
        } else {
            lab::open(subject, case)
        }
    }

    fn play(
        &mut self,
        subject: Subject,
        case: &Case,
        scenario: Scenario,
        seconds: f64,
    ) -> Result<Outcome, Refusal> {
        scenario::measure(scenario, self.chain(subject, case)?, case, seconds)
    }
}
