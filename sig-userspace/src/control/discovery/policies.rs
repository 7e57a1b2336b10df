//! The policy files.

use std::path::Path;

use sig_common::addr::IsdAs;

use crate::control::config::{Control, Gateway, WrittenAt};
use sig_core::{
    document,
    policy::{
        advice::{Environment, advice},
        routing::{self, RoutingPolicy},
        traffic::{self, TrafficPolicy},
    },
    problem::{Errors, Problem},
};

/// What the policy files say.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Policies {
    /// Remote ASes and their classes.
    pub traffic: TrafficPolicy,
    /// What is advertised and believed; empty without a file.
    pub routing: RoutingPolicy,
}

impl Policies {
    /// Reads and checks the files that the configuration names, both in any case, so that all problems
    /// are told at once. Beside the policies, what works but deserves a look, also in the light of what the
    /// configuration says of the gateway.
    ///
    /// # Errors
    /// All problems of both files.
    pub(crate) fn load(
        control: &Control,
        gateway: &Gateway,
    ) -> Result<(Self, Vec<Problem>), Errors> {
        let (at, sample) = (&control.traffic_policy_at, "traffic-policy");
        let traffic = read(&control.traffic_policy_file, at, sample)
            .and_then(|(text, file)| traffic::check(&text, &file));
        let routing = match &control.ip_routing_policy_file {
            Some(path) => read(path, &control.ip_routing_policy_at, "routing-policy").and_then(
                |(text, file)| {
                    let (policy, starts) = routing::read(&text, &file)?;
                    Ok((policy, Some((file, text, starts))))
                },
            ),
            None => Ok((RoutingPolicy::default(), None)),
        };
        match (traffic, routing) {
            (Ok((traffic, mut warnings)), Ok((routing, source))) => {
                if let Some((file, text, starts)) = source {
                    let around = Environment {
                        traffic: &traffic,
                        own: Some(gateway.isd_as).filter(|isd_as| isd_as.0 != 0),
                        served: &gateway.prefixes,
                    };
                    warnings.extend(advice(&routing, (&file, &text), &starts, around));
                }
                Ok((Policies { traffic, routing }, warnings))
            }
            (traffic, routing) => {
                let problems = traffic.err().into_iter().chain(routing.err());
                Err(Errors::new(
                    problems
                        .flat_map(|errors| errors.problems().to_vec())
                        .collect(),
                ))
            }
        }
    }

    /// How the policies differ from `before`, for people: one line each, none if they do not.
    pub(crate) fn changes(&self, before: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        let (old, new) = (&before.traffic.ases, &self.traffic.ases);
        let mut note = |isd_as: &IsdAs, what: &str| lines.push(format!("{isd_as}: {what}"));
        for (isd_as, policy) in new {
            match old.get(isd_as) {
                None => note(isd_as, "added"),
                Some(before) if before == policy => {}
                Some(before) if before.policies == policy.policies => {
                    note(isd_as, "prefixes changed")
                }
                Some(_) => note(isd_as, "policies changed"),
            }
        }
        for isd_as in old.keys().filter(|isd_as| !new.contains_key(isd_as)) {
            note(isd_as, "removed");
        }
        if self.routing != before.routing {
            lines.push("IP routing policy changed".to_owned());
        }
        lines
    }
}

/// The text of the file that is named at this place, and its name. `sample` is what `sig config sample` calls one.
fn read(path: &Path, at: &WrittenAt, sample: &str) -> Result<(String, String), Errors> {
    if let Err(error) = document::read(path) {
        return Err(Errors::new(vec![Problem {
            file: at.file.clone(),
            line: at.line,
            key: at.key.clone(),
            message: format!(
                "\"{}\" cannot be read: {error}; correct the name, or start with \"sig config sample \
                 {sample} > FILE\"",
                path.display()
            ),
        }]));
    }
    document::read_text(path, "").map(|text| (text, path.display().to_string()))
}
