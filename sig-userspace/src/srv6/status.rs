//! What `sig srv6 status` is told.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use sig_common::srv6::maps::Reason;

use super::{
    State,
    config::Service,
    tables::{Counted, is_up, why_down},
};

/// The status document of an SR node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Status {
    /// [`Status::KIND`].
    pub(crate) kind: String,
    pub(crate) version: String,
    pub(crate) id: String,
    pub(crate) uptime_ms: u64,
    /// What keeps packets from being processed, one line each.
    pub(crate) problems: Vec<String>,
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) sids: Vec<SidStatus>,
    pub(crate) policies: Vec<PolicyStatus>,
    pub(crate) functions: Vec<FunctionStatus>,
    pub(crate) rules: Vec<RuleStatus>,
    /// Copies for mirrors that their devices took.
    pub(crate) copies_sent: u64,
    /// Those that they did not take, or that were too many at once.
    pub(crate) copies_lost: u64,
    /// Packets that did not go on, or not by themselves, by reason.
    pub(crate) refused: Vec<(String, u64)>,
    /// ICMP errors sent.
    pub(crate) icmp_sent: u64,
}

/// A device with the program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Interface {
    pub(crate) name: String,
    /// `native` or `generic`; none while the program does not run there.
    pub(crate) xdp: Option<String>,
}

/// A SID.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SidStatus {
    pub(crate) sid: String,
    pub(crate) behavior: String,
    pub(crate) target: String,
    /// Packets to it, and their bytes.
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

/// A policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PolicyStatus {
    pub(crate) name: String,
    pub(crate) segments: Vec<String>,
    /// Packets put behind it, and their bytes before.
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

/// A function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct FunctionStatus {
    pub(crate) name: String,
    pub(crate) is_up: bool,
    /// While it is down, why: by link, neighbour or probe.
    pub(crate) why_down: Option<String>,
    /// `bypass` or `drop`.
    pub(crate) on_failure: String,
    /// Packets that it returned.
    pub(crate) packets_returned: u64,
    /// How often the headers of the packets to it changed.
    pub(crate) header_changes: u64,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RuleStatus {
    pub(crate) name: String,
    /// With the device or policy that it leads to.
    pub(crate) action: String,
    /// Packets that it was applied to, and their bytes.
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

impl Status {
    /// The word of the document.
    pub(crate) const KIND: &str = "SR node";
}

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
