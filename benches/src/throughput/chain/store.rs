//! Chains that stand, because some take long to come up.

use std::{cell::RefCell, rc::Rc, time::Duration};

use anyhow::anyhow;

use super::{
    Clients, build,
    device::{ChainDevice, Shared},
    wait_loss_free,
};
use crate::throughput::{
    experiment::{Case, Cpus, Experiment},
    scenario::{self, Outcome},
    subject::{Device, Refusal, Subject},
};

/// How long a chain may take to carry packets again after something failed over it.
const RECOVERY: Duration = Duration::from_secs(3);

/// Chains by what they are. One that stands serves every case that needs no other one.
#[derive(Default)]
pub struct Chains {
    standing: Vec<(Kind, Result<Shared, String>)>,
}

/// What makes a chain another one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kind {
    subject: Subject,
    /// Of gateways that are bound to some.
    cpus: Option<Cpus>,
    clients: Clients,
}

impl Kind {
    fn of(subject: Subject, case: &Case, clients: Clients) -> Self {
        let is_bound = matches!(
            subject,
            Subject::ChainSig
                | Subject::ChainSigEngine
                | Subject::ChainSigProtected
                | Subject::ChainSigSocket
                | Subject::ChainSigOneHost
                | Subject::ChainSigJumbo
                | Subject::ChainReferenceTuned
        );
        Self {
            subject,
            cpus: is_bound.then_some(case.cpus),
            clients: match subject {
                Subject::ChainSig
                | Subject::ChainSigEngine
                | Subject::ChainSigProtected
                | Subject::ChainSigSocket
                | Subject::ChainSigOneHost
                | Subject::ChainSigJumbo => clients,
                // The others are the same for both.
                _ => Clients::Programs,
            },
        }
    }
}

impl Chains {
    /// The chain with a generator in client A and a sink in client B. Only one device of a chain can be open at a time,
    /// and none while a scenario is measured over it.
    ///
    /// # Errors
    ///
    /// [`Refusal::NotHere`]: this machine lacks something, or the combination makes no sense. [`Refusal::Failed`]:
    /// the chain did not come up, or the kernel refuses generator or sink.
    pub fn open(&mut self, subject: Subject, case: &Case) -> Result<Box<dyn Device>, Refusal> {
        let chain = self.get(subject, case, Clients::Instruments)?;
        Ok(Box::new(ChainDevice::new(&chain, case)?))
    }

    /// Measures the scenario of an experiment once.
    ///
    /// # Errors
    ///
    /// As [`scenario::measure_undisturbed`], and if the chain did not come up. A chain that does not recover from what failed
    /// over it is taken down and set up again the next time.
    pub fn play(
        &mut self,
        subject: Subject,
        case: &Case,
        experiment: &Experiment,
    ) -> Result<Outcome, Refusal> {
        let chain = self.get(subject, case, Clients::Programs)?;
        let mut chain = chain.borrow_mut();
        let outcome = scenario::measure_undisturbed(experiment, &mut **chain, case);
        if matches!(outcome, Err(Refusal::Failed(_))) && wait_loss_free(&**chain, RECOVERY).is_err()
        {
            let kind = Kind::of(subject, case, Clients::Programs);
            self.standing.retain(|(standing, _)| *standing != kind);
        }
        outcome
    }

    /// Takes down all chains but those of subjects that are still needed: their processes use some CPU time also without
    /// traffic. Chains with an open device go with that.
    pub fn keep(&mut self, is_needed: impl Fn(Subject) -> bool) {
        self.standing.retain(|(kind, _)| is_needed(kind.subject));
    }

    fn get(&mut self, subject: Subject, case: &Case, clients: Clients) -> Result<Shared, Refusal> {
        let kind = Kind::of(subject, case, clients);
        let standing = self.standing.iter().find(|(standing, _)| *standing == kind);
        let chain = match standing {
            Some((_, chain)) => chain.clone(),
            None => {
                let chain = match build(subject, case, clients) {
                    Ok(chain) => Ok(Rc::new(RefCell::new(chain))),
                    // It would fail again, after a long wait each time.
                    Err(Refusal::Failed(error)) => Err(format!("{error:#}")),
                    Err(refusal) => return Err(refusal),
                };
                self.standing.push((kind, chain.clone()));
                chain
            }
        };
        chain.map_err(|error| anyhow!(error).into())
    }
}
