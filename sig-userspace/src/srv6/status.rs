//! What `sig srv6 status` is told.

use std::time::Instant;

use sig_common::srv6::maps::Reason;
pub(crate) use sig_core::status::srv6::{
    FunctionStatus, Interface, PolicyStatus, RuleStatus, SidStatus, Status,
};

use super::{
    State,
    config::Service,
    tables::{Counted, is_up, why_down},
};

/// The status.
pub(super) fn read(state: &mut State, started: Instant) -> Status {
    let State {
        id,
        programs,
        config,
        beside,
        numbers,
        around,
        attached,
        answerer,
        mirrors,
        told,
        ..
    } = state;
    let mut traffic = |counted| {
        let traffic = programs.traffic(numbers.slot(counted));
        traffic.map_or((0, 0), |of| (of.packets, of.bytes))
    };
    let sids = config.sids.iter().map(|sid| {
        let (packets, bytes) = traffic(Counted::Sid(sid.sid));
        SidStatus {
            sid: sid.sid.to_string(),
            behavior: sid.behavior.name().to_owned(),
            target: sid.target.to_string(),
            packets,
            bytes,
        }
    });
    let sids = sids.collect();
    let policies = config.policies.iter().map(|policy| {
        let (packets, bytes) = traffic(Counted::Policy(policy.name.clone()));
        PolicyStatus {
            name: policy.name.clone(),
            segments: policy.segments.iter().map(ToString::to_string).collect(),
            packets,
            bytes,
        }
    });
    let policies = policies.collect();
    let rules = config.rules.iter().map(|rule| {
        let (packets, bytes) = traffic(Counted::Rule(rule.name.clone()));
        let action = rule.rule.action.name();
        RuleStatus {
            name: rule.name.clone(),
            action: match &rule.target {
                Some(target) => format!("{action} {target}"),
                None => action.to_owned(),
            },
            packets,
            bytes,
        }
    });
    let rules = rules.collect();
    let returned: Vec<u64> = config
        .functions
        .iter()
        .map(|function| traffic(Counted::Function(function.name.clone())).0)
        .collect();
    let functions = config.functions.iter().zip(returned);
    let functions = functions.map(
        |(function, packets_returned): (&Service, _)| FunctionStatus {
            name: function.name.clone(),
            is_up: is_up(function, around),
            why_down: why_down(function, around, Instant::now()),
            on_failure: if function.bypass { "bypass" } else { "drop" }.to_owned(),
            packets_returned,
            header_changes: programs
                .changes(numbers.function(&function.name))
                .unwrap_or(0),
        },
    );
    let functions = functions.collect();
    let [copies_sent, not_taken] = mirrors.counts();
    let refused = Reason::ALL.map(|reason| {
        let count = programs.refused(reason).unwrap_or(0);
        (reason.name().to_owned(), count)
    });
    Status {
        kind: Status::KIND.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        id: id.clone(),
        uptime_ms: started.elapsed().as_millis() as u64,
        problems: told.clone(),
        interfaces: super::tables::ports(config, beside.as_ref())
            .map(|name| Interface {
                name: name.clone(),
                xdp: attached.get(name).map(|(_, of)| of.mode().to_string()),
            })
            .collect(),
        sids,
        policies,
        functions,
        rules,
        copies_sent,
        copies_lost: not_taken + programs.refused(Reason::MirrorFull).unwrap_or(0),
        refused: refused.into(),
        icmp_sent: answerer.sent,
    }
}
