//! Chains that stand, because some take long to come up.

use std::{cell::RefCell, convert::Infallible, rc::Rc, sync::mpsc, thread, time::Duration};

use anyhow::anyhow;

use super::{
    Chain, Clients, build,
    device::{ChainDevice, Shared},
};
use crate::throughput::{
    experiment::{Algorithm, Case, Cpus, Experiment, Scenario},
    scenario::{self, Outcome},
    subject::{Device, Refusal, Subject},
};

/// How long a chain may take to carry packets again after something failed over it.
const RECOVERY: Duration = Duration::from_secs(3);

/// Chains by what they are. One that stands serves every case that needs no other one.
#[derive(Default)]
pub struct Chains {
    standing: Vec<(Kind, Result<Shared, String>)>,
    /// Processes end with the thread that started them, so threads that built chains wait until these are dropped.
    builders: Vec<mpsc::Sender<Infallible>>,
}

/// What makes a chain another one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kind {
    subject: Subject,
    workers: u16,
    /// Of gateways that are bound to some.
    cpus: Option<Cpus>,
    clients: Clients,
}

impl Kind {
    fn of(subject: Subject, case: &Case, clients: Clients) -> Self {
        Self {
            subject,
            workers: if subject.has_workers() {
                case.workers
            } else {
                1
            },
            cpus: matches!(subject, Subject::ChainSig | Subject::ChainReferenceTuned)
                .then_some(case.cpus),
            clients: if subject == Subject::ChainSig {
                clients
            } else {
                // The others are the same for both.
                Clients::Programs
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

    /// Measures a scenario once.
    ///
    /// # Errors
    ///
    /// As [`scenario::measure_undisturbed`], and if the chain did not come up. A chain that does not recover from what failed
    /// over it is taken down and set up again the next time.
    pub fn play(
        &mut self,
        subject: Subject,
        case: &Case,
        scenario: Scenario,
        seconds: f64,
    ) -> Result<Outcome, Refusal> {
        let chain = self.get(subject, case, Clients::Programs)?;
        let mut chain = chain.borrow_mut();
        let outcome = scenario::measure_undisturbed(scenario, &mut **chain, case, seconds);
        if matches!(outcome, Err(Refusal::Failed(_))) && chain.wait_loss_free(RECOVERY).is_err() {
            let kind = Kind::of(subject, case, Clients::Programs);
            self.standing.retain(|(standing, _)| *standing != kind);
        }
        outcome
    }

    /// Takes down all chains but those of subjects that are still needed.
    pub fn keep(&mut self, is_needed: impl Fn(Subject) -> bool) {
        self.standing.retain(|(kind, _)| is_needed(kind.subject));
    }

    /// Takes all chains down: their processes use some CPU time also without traffic. Chains with an open device go
    /// with that.
    pub fn close_all(&mut self) {
        self.standing.clear();
    }

    /// Sets up all that an experiment needs and that do not stand yet, at the same time: most of it is waiting.
    pub fn set_up(&mut self, experiment: &Experiment) {
        let clients = match experiment.algorithm {
            Algorithm::Scenario(_) => Clients::Programs,
            _ => Clients::Instruments,
        };
        let mut missing: Vec<(Kind, Subject, Case)> = Vec::new();
        for (subject, case) in experiment.groups().into_iter().flatten() {
            let kind = Kind::of(subject, &case, clients);
            let is_known = self.standing.iter().any(|(standing, _)| *standing == kind)
                || missing.iter().any(|(missing, ..)| *missing == kind);
            if subject.is_chain() && !is_known {
                missing.push((kind, subject, case));
            }
        }
        let building: Vec<_> = missing
            .into_iter()
            .map(|(kind, subject, case)| {
                let (result, built) = mpsc::channel();
                let (keeper, is_kept) = mpsc::channel::<Infallible>();
                self.builders.push(keeper);
                thread::spawn(move || {
                    let _ = result.send(build(subject, &case, clients));
                    let _ = is_kept.recv();
                });
                (kind, built)
            })
            .collect();
        for (kind, built) in building {
            // After a panic it is built again when it is asked for.
            if let Ok(chain) = built.recv() {
                let _ = self.stand(kind, chain);
            }
        }
    }

    fn get(&mut self, subject: Subject, case: &Case, clients: Clients) -> Result<Shared, Refusal> {
        let kind = Kind::of(subject, case, clients);
        let standing = self.standing.iter().find(|(standing, _)| *standing == kind);
        if let Some((_, chain)) = standing {
            return chain.clone().map_err(|error| anyhow!(error).into());
        }
        self.stand(kind, build(subject, case, clients))
    }

    fn stand(
        &mut self,
        kind: Kind,
        chain: Result<Box<dyn Chain>, Refusal>,
    ) -> Result<Shared, Refusal> {
        let chain = match chain {
            Ok(chain) => Ok(Rc::new(RefCell::new(chain))),
            // It would fail again, after a long wait each time.
            Err(Refusal::Failed(error)) => Err(format!("{error:#}")),
            Err(refusal) => return Err(refusal),
        };
        self.standing.push((kind, chain.clone()));
        chain.map_err(|error| anyhow!(error).into())
    }
}
