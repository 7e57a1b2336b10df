//! The worker alone, in memory: the pipeline's tunnel as a device.

use std::{collections::BTreeMap, thread, time::Duration};

use anyhow::{Context as _, Result, bail};

use super::{
    experiment::{Case, Family, Size},
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
    tunnel: Tunnel,
    subject: Subject,
    cpu: u16,
}

/// Sets the pipeline up; all packets are carried once and compared.
///
/// # Errors
///
/// The case makes no sense in memory.
pub fn open(subject: Subject, case: &Case) -> Result<Box<dyn Device>, Refusal> {
    if case.workers != 1 {
        return Err(Refusal::NotHere("in memory there is one worker".into()));
    }
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
        Subject::PipelineDecapsulate => shape.packets_for_a_batch_of_frames(sizes),
        _ => BATCH,
    };
    Ok(Box::new(Pure {
        tunnel: Tunnel::new(shape.capacity(sizes), &[], traffic.packets(PACKETS), window),
        subject,
        cpu: case.cpus.device,
    }))
}

impl Device for Pure {
    fn trial(&mut self, rate: Rate, length: Duration) -> Result<Trial> {
        if rate != Rate::Max {
            bail!("in memory nothing paces packets: only the highest rate can be measured");
        }
        let (tunnel, subject, cpu) = (&mut self.tunnel, self.subject, self.cpu);
        let measured = thread::scope(|scope| {
            let thread = scope.spawn(move || {
                pin(cpu)?;
                // Caches and predictors are warm after a moment.
                process(tunnel, subject, length / 5);
                Ok::<_, anyhow::Error>(process(tunnel, subject, length))
            });
            thread.join()
        });
        let Ok(measured) = measured else {
            bail!("packets were lost in memory");
        };
        let (packets, time) = measured?;
        Ok(Trial {
            target: None,
            seconds: time.as_secs_f64(),
            sent: packets,
            received: packets,
            cpu: BTreeMap::from([("workers".to_owned(), time.as_secs_f64())]),
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
            Subject::PipelineDecapsulate => tunnel.decapsulate(1),
            _ => tunnel.encapsulate(1),
        };
        packets += PACKETS as u64;
    }
    (packets, time)
}

/// Binds the calling thread to a CPU.
fn pin(cpu: u16) -> Result<()> {
    // SAFETY: a zeroed cpu_set_t is the empty set; CPU_SET checks its bound; the set outlives the call.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu.into(), &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set)
    };
    if result == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
            .with_context(|| format!("CPU {cpu} is not there, or not ours to use"))
    }
}
