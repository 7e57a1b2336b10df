//! Workers alone, in memory: the pipeline's tunnels as a device.

use std::{collections::BTreeMap, sync::Barrier, thread, time::Duration};

use anyhow::{Result, bail};

use super::{
    experiment::{Case, Cpus, Family, Size},
    instrument::thread::pin,
    subject::{Device, Refusal, Subject},
    trial::{Rate, Trial, Validity},
};
use crate::pipeline::{
    shape::Shape,
    traffic::{Sizes, Traffic, Version},
    tunnel::Tunnel,
};

/// Packets of one round: a multiple of every number of flows.
const PACKETS: usize = 4096;
/// Packets that wait at the sender: one batch of the receive ring.
const BATCH: usize = 64;

/// `Worker::process` between packets in memory.
struct Pure {
    /// One per worker.
    tunnels: Vec<Tunnel>,
    subject: Subject,
    cpus: Cpus,
}

/// Sets the pipeline up; all packets are carried once and compared.
///
/// # Errors
///
/// The case makes no sense in memory.
pub fn open(subject: Subject, case: &Case) -> Result<Box<dyn Device>, Refusal> {
    let sizes = match case.size {
        Size::Fixed(bytes) => Sizes::Fixed(bytes.into()),
        Size::Mix(_) => Sizes::Mix,
    };
    let shape = if case.packed {
        Shape::Packed
    } else {
        Shape::OnePerFrame
    };
    let traffic = Traffic {
        version: match case.family {
            Family::Ipv4 => Version::V4,
            Family::Ipv6 => Version::V6,
        },
        sizes,
        flows: case.flows.into(),
        alternate_classes: !case.packed,
    };
    let window = match subject {
        Subject::PipelineDecapsulate | Subject::PipelineDecapsulateProtected => {
            shape.packets_for_a_batch_of_frames(sizes)
        }
        _ => BATCH,
    };
    Ok(Box::new(Pure {
        tunnels: Tunnel::side_by_side(
            case.workers.into(),
            shape.capacity(sizes),
            &[],
            traffic.packets(PACKETS),
            window,
            subject.is_protected(),
        ),
        subject,
        cpus: case.cpus,
    }))
}

impl Device for Pure {
    fn trial(&mut self, rate: Rate, length: Duration) -> Result<Trial> {
        if rate != Rate::Max {
            bail!("in memory nothing paces packets: only the highest rate can be measured");
        }
        let start = Barrier::new(self.tunnels.len());
        let subject = self.subject;
        let measured: Vec<_> = thread::scope(|scope| {
            let cpus = [self.cpus.device, self.cpus.tester];
            let threads: Vec<_> = self
                .tunnels
                .iter_mut()
                .zip(cpus)
                .map(|(tunnel, cpu)| {
                    let start = &start;
                    scope.spawn(move || {
                        let pinned = pin(0, cpu.into());
                        start.wait();
                        pinned?;
                        // Caches and predictors are warm after a moment.
                        process(tunnel, subject, length / 5);
                        Ok::<_, anyhow::Error>(process(tunnel, subject, length))
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join()).collect()
        });
        let (mut rate, mut workers) = (0.0, 0.0);
        for measured in measured {
            let Ok(measured) = measured else {
                bail!("packets were lost in memory");
            };
            let (packets, time) = measured?;
            rate += packets as f64 / time.as_secs_f64();
            workers += time.as_secs_f64();
        }
        // Each worker's clock stands still while packets are made for it, so that their times differ a little.
        let seconds = workers / self.tunnels.len() as f64;
        let packets = (rate * seconds) as u64;
        Ok(Trial {
            target: None,
            seconds,
            sent: packets,
            received: packets,
            cpu: BTreeMap::from([("workers".to_owned(), workers)]),
            validity: Validity::Valid,
            ..Trial::default()
        })
    }
}

/// Packets, and the time that they took, at least `length`.
fn process(tunnel: &mut Tunnel, subject: Subject, length: Duration) -> (u64, Duration) {
    let (mut packets, mut time) = (0, Duration::ZERO);
    while time < length {
        time += match subject {
            Subject::PipelineDecapsulate | Subject::PipelineDecapsulateProtected => {
                tunnel.decapsulate(1)
            }
            _ => tunnel.encapsulate(1),
        };
        packets += PACKETS as u64;
    }
    (packets, time)
}
