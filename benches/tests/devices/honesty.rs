//! Is the harness honest? Over real devices, root only. Nothing here depends on how fast the machine is.

use std::time::Duration;

use crate::support::{SHARED, Wires, load, root_or_skip};
use anyhow::Result;
use benches::throughput::{
    instrument::{
        Generator, LiveFrames, Paced, Sink,
        packet::{Expect, Load},
        programs::{self, Attached},
        run::{Limits, Snapshot, trial},
    },
    search::{self, SearchPlan, SearchResult},
    subject::Device,
    trial::{Rate, Trial, Validity},
};

/// A forwarder between generator and sink.
struct Bench<G> {
    generator: G,
    sink: Sink,
    _forwarder: Attached,
    limits: Limits,
}

impl<G: Generator> Device for Bench<G> {
    fn trial(&mut self, rate: Rate, length: Duration) -> Result<Trial> {
        trial(
            &self.limits,
            &mut self.generator,
            &mut self.sink,
            rate,
            length,
            &mut || Ok(Snapshot::default()),
        )
    }
}

/// Whatever rate the generator reaches on a busy machine shall do: these tests are about losses.
const ANY_RATE: Limits = Limits {
    rate: f64::INFINITY,
    ..SHARED
};

fn bench(wires: &Wires, forwarder: Attached) -> Result<Bench<LiveFrames>> {
    Ok(Bench {
        generator: LiveFrames::new(&wires.generator, "g0", &Load::Ip(load()), Some(0))?,
        sink: Sink::attach(&wires.sink, "s0", &Expect::Ip { at: 14 })?,
        _forwarder: forwarder,
        limits: ANY_RATE,
    })
}

/// A search at rates that any machine forwards without loss of its own.
fn pdr(bench: &mut dyn Device, loss_percent: f64) -> Result<(SearchResult, Vec<Trial>)> {
    let plan = SearchPlan {
        start_rate: 2500.0,
        max_rate: Some(5000.0),
        length: Duration::from_millis(100),
        votes: 3,
        ..SearchPlan::default()
    };
    let mut trials = Vec::new();
    let result = search::pdr(bench, &plan, loss_percent, &mut |trial| {
        trials.push(trial.clone());
    })?;
    Ok((result, trials))
}

#[test]
fn a_forwarder_that_drops_one_percent_fails_half_a_percent_and_passes_two() -> Result<()> {
    if !root_or_skip() {
        return Ok(());
    }
    let wires = Wires::new()?;
    let forwarder = programs::redirect(&wires.device, "d0", "d1", Some(100))?;
    let mut bench = bench(&wires, forwarder)?;

    let (result, trials) = pdr(&mut bench, 0.5)?;
    assert_eq!(result.rate, None, "{result:?} {trials:?}");
    assert!(
        result.notes.iter().any(|note| note.starts_with("none:")),
        "{result:?}"
    );
    assert!(trials.iter().all(Trial::is_valid), "{trials:?}");
    assert!(trials.iter().any(|trial| trial.received > 0), "{trials:?}");

    let (result, trials) = pdr(&mut bench, 2.0)?;
    let rate = result.rate.expect("one percent is less than two");
    assert!(
        trials.iter().any(|trial| trial.offered() == rate),
        "{rate} was measured"
    );
    Ok(())
}

#[test]
fn a_dead_sink_has_no_rate() -> Result<()> {
    if !root_or_skip() {
        return Ok(());
    }
    let wires = Wires::new()?;
    let mut bench = bench(&wires, programs::drop(&wires.device, "d0")?)?;
    let (result, trials) = pdr(&mut bench, 0.5)?;
    assert_eq!(result.rate, None, "{result:?}");
    assert!(
        result.notes.iter().any(|note| note.starts_with("none:")),
        "{result:?}"
    );
    for trial in &trials {
        assert!(trial.is_valid() && trial.sent > 0, "{trial:?}");
        assert_eq!((trial.received, &trial.latency), (0, &None), "{trial:?}");
    }
    Ok(())
}

#[test]
fn a_generator_too_slow_for_the_rate_gives_an_invalid_trial() -> Result<()> {
    if !root_or_skip() {
        return Ok(());
    }
    let wires = Wires::new()?;
    let rate = Rate::PacketsPerSecond(5e8);
    let length = Duration::from_millis(50);
    let load = Load::Ip(load());
    let generators: [Box<dyn Generator>; 2] = [
        Box::new(LiveFrames::new(&wires.generator, "g0", &load, Some(0))?),
        Box::new(Paced::new(&wires.generator, "g0", &load, Some(0))?),
    ];
    for mut generator in generators {
        let mut sink = Sink::attach(&wires.sink, "s0", &Expect::Ip { at: 14 })?;
        let _forwarder = programs::redirect(&wires.device, "d0", "d1", None)?;
        let trial = trial(
            &SHARED,
            generator.as_mut(),
            &mut sink,
            rate,
            length,
            &mut || Ok(Snapshot::default()),
        )?;
        let Validity::Invalid(reason) = &trial.validity else {
            panic!("no machine sends 500 million packets per second: {trial:?}");
        };
        assert!(reason.contains("generator was too slow"), "{reason}");
        assert!(trial.sent > 0, "{trial:?}");
    }
    Ok(())
}
