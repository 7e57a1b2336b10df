//! Reading experiment files.

use std::{fmt::Display, ops::RangeInclusive};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use super::{Algorithm, Experiment, Family, Mix, Size};
use crate::throughput::subject::Subject;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    experiment: Vec<Experiment>,
}

/// Reads the text of an experiment file; `file` is its name for messages.
///
/// # Errors
///
/// What is wrong first: unknown and missing keys, wrong types, empty lists, values out of range, subjects that the
/// algorithm means nothing to.
pub fn read(file: &str, text: &str) -> Result<Vec<Experiment>> {
    let File { experiment } = toml::from_str(text).with_context(|| file.to_owned())?;
    for (number, one) in experiment.iter().enumerate() {
        let is_taken = experiment[..number].iter().any(|o| o.name == one.name);
        let name = &one.name;
        ensure!(!is_taken, "{file}: there are two experiments \"{name}\"");
        check(one).with_context(|| format!("{file}: experiment \"{name}\""))?;
    }
    Ok(experiment)
}

fn check(experiment: &Experiment) -> Result<()> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let name = &experiment.name;
    ensure!(
        !name.is_empty() && name.chars().all(is_name),
        "name: write letters, digits and -"
    );
    let algorithm = experiment.algorithm;
    list("subjects", &experiment.subjects, |subject| {
        misfit(*subject, algorithm)
    })?;
    list("families", &experiment.families, |_| Ok(()))?;
    let shortest = match experiment.families.contains(&Family::Ipv6) {
        true => 64,
        false => 44,
    };
    list("sizes", &experiment.sizes, |size| match size {
        Size::Fixed(bytes) => within("bytes of an IP packet", *bytes, shortest..=1500),
        Size::Mix(Mix::Imix) if shortest > 44 => bail!("imix holds packets too short for IPv6"),
        Size::Mix(Mix::Imix) => Ok(()),
    })?;
    list("flows", &experiment.flows, |n| {
        within("flows", *n, 1..=4096)
    })?;
    list("packed", &experiment.packed, |_| Ok(()))?;
    list("workers", &experiment.workers, |n| {
        within("workers", *n, 1..=2)
    })?;
    if experiment.subjects.iter().any(|of| of.has_behaviors()) || !experiment.behaviors.is_empty() {
        list("behaviors", &experiment.behaviors, |_| Ok(()))?;
    }
    list("layouts", &experiment.layouts, |_| Ok(()))?;
    within("repeats", experiment.repeats, 1..=1000)?;
    within("seconds", experiment.seconds, 0.1..=3600.0)?;
    within("loss_percent", experiment.loss_percent, 0.001..=50.0)?;
    within("start_rate", experiment.start_rate, 1.0..=1e8)?;
    if let Some(most) = experiment.max_rate {
        within("max_rate", most, experiment.start_rate..=1e9)?;
    }
    within(
        "resolution_percent",
        experiment.resolution_percent,
        0.1..=50.0,
    )?;
    within("votes", experiment.votes, 1..=9)?;
    ensure!(
        !experiment.votes.is_multiple_of(2),
        "votes: an even number may be a tie"
    );
    within("rate", experiment.rate(), 1.0..=1e9)?;
    within("packets", experiment.packets(), 10..=10_000_000)?;
    ensure!(
        experiment.cpus.tester != experiment.cpus.device || algorithm.is_scenario(),
        "cpus: tester and device need CPUs of their own"
    );
    Ok(())
}

fn within<T: PartialOrd + Display>(key: &str, value: T, range: RangeInclusive<T>) -> Result<()> {
    let (low, high) = (range.start(), range.end());
    ensure!(
        range.contains(&value),
        "{key}: {value} is out of range; write {low} to {high}"
    );
    Ok(())
}

/// A list that is not empty, and has nothing twice.
fn list<T: PartialEq>(key: &str, list: &[T], check: impl Fn(&T) -> Result<()>) -> Result<()> {
    ensure!(!list.is_empty(), "{key}: the list is empty");
    for (n, element) in list.iter().enumerate() {
        ensure!(
            !list[..n].contains(element),
            "{key}: element {n} is there twice"
        );
        check(element).context(key.to_owned())?;
    }
    Ok(())
}

/// Why a subject cannot be measured with an algorithm.
fn misfit(subject: Subject, algorithm: Algorithm) -> Result<()> {
    ensure!(
        subject.is_pipeline() == (algorithm == Algorithm::Pipeline),
        "what is in memory goes with the algorithm \"pipeline\", and nothing else does: {subject}"
    );
    ensure!(
        algorithm != Algorithm::ProgramTime || subject.is_program(),
        "{subject} is no single BPF program"
    );
    ensure!(
        !algorithm.is_scenario() || subject.is_chain(),
        "{subject} is no chain of two sites"
    );
    Ok(())
}
