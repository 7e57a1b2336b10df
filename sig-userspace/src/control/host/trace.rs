//! What the gateway would do with a packet.
//!
//! The workers' tables decide ([`sig_core::dataplane::trace`]); here are the names of what they consist of.

use std::{
    collections::{BTreeMap, HashMap},
    time::UNIX_EPOCH,
};

use ipnet::IpNet;
use sig_common::{
    addr::IsdAs,
    maps::LanRoute,
    reason::DropReason,
    scope::refused_prefix,
    wire::{inner::InnerPacket, sig_frame::PROTECTION_LEN},
};

use super::{HostHandle, Shared, lock};
use crate::control::{
    PlannedPath, Planner,
    plan::{SessionKey, SessionPath, Site},
    rules::{Action, Rule},
};
use sig_core::{
    dataplane::{
        Path, Session, Tables,
        filter::Decision,
        trace::{Delivery, Egress, Ingress, Route},
    },
    notation::{counted, rfc3339},
    remedy::remedy,
    status::Probing,
    trace::{Outcome, Question, Step, Trace, Verdict},
};
use sig_linux::neighbours::{Resolution, Snapshot};

/// What is known of the gateway beside the tables.
struct Facts<'a> {
    planner: &'a Planner,
    tables: &'a Tables,
    rules: &'a [Rule],
    /// Why the programs do not send on a path.
    why_not: &'a dyn Fn(&Path) -> Option<String>,
    hops: &'a Snapshot,
    probing: &'a HashMap<SessionKey, Probing>,
    /// LAN interfaces, by their numbers.
    lan: BTreeMap<u16, String>,
    /// The tunnel device.
    tunnel: &'a str,
    /// What is done with packets from the LAN, by the longest prefix.
    from_lan: Option<(IpNet, LanRoute)>,
    /// The prefix that the guard left out.
    excluded: Option<IpNet>,
}

impl HostHandle {
    /// What would be done with a packet. May block for a moment; not to be called from a task.
    ///
    /// # Errors
    ///
    /// What is wrong with the question.
    pub(crate) fn trace(&self, question: &Question) -> Result<Trace, String> {
        let shared: &Shared = &self.shared;
        let source = lock(&shared.control).clone();
        let probing = source.map_or_else(HashMap::new, |source| source().probing);
        let hops = shared.hops.borrow().clone();
        let lans = shared.lans.view();
        let lan = lans
            .numbered()
            .into_iter()
            .map(|(number, facts)| (number, facts.interface.clone()))
            .collect();
        let applied = shared.applied.blocking_lock();
        let chains = lock(&shared.chains);
        let mut engine = lock(&shared.engine);
        let tables = engine.tables();
        let no_programs = shared.no_fast_path.clone();
        let mut why = HashMap::new();
        for path in &tables.paths {
            let reason = match engine.in_kernel() {
                Some(programs) => programs.why_not(path),
                None => Some(
                    no_programs
                        .clone()
                        .unwrap_or_else(|| "`[dataplane] fast_path = \"off\"`".to_owned()),
                ),
            };
            why.insert(path.id, reason);
        }
        let planner = engine.planner();
        Facts {
            planner,
            tables: &tables,
            rules: &chains.in_force().rules,
            why_not: &|path| why.get(&path.id).cloned().flatten(),
            hops: &hops,
            probing: &probing,
            lan,
            tunnel: &planner.config().tunnel.name,
            from_lan: applied.lan_route(question.destination),
            excluded: applied.excluded(planner.current(), question.destination),
        }
        .answer(question)
    }
}

impl Facts<'_> {
    fn answer(&self, question: &Question) -> Result<Trace, String> {
        let bytes = question.packet()?;
        let packet = InnerPacket::parse(&bytes[..])
            .map_err(|error| format!("the packet cannot be made: {error}"))?;
        let mut asked = question.clone();
        asked.length = packet.total_len;
        let mut answer = Answer(Trace {
            packet: asked,
            steps: Vec::new(),
            verdict: Verdict::Dropped,
            reason: None,
            meaning: None,
            remedy: None,
            remote: None,
            session: None,
            bucket: None,
            path: None,
            fingerprint: None,
            next_hop: None,
            frames: None,
            frame_bytes: None,
            fast_path: None,
        });
        match &question.from_remote {
            None => self.to_remote(&packet, &mut answer),
            Some(isd_as) => {
                let isd_as: IsdAs = isd_as
                    .parse()
                    .map_err(|error| format!("\"{isd_as}\" is no ISD-AS: {error}"))?;
                self.to_lan(isd_as, &packet, &mut answer);
            }
        }
        Ok(answer.0)
    }

    fn to_remote(&self, packet: &InnerPacket, answer: &mut Answer) {
        let trace = self.tables.trace_egress(packet);
        let verdict = trace.verdict;
        // What the kernel or the programs keep is not judged.
        if !self.entry(packet, answer) || !self.scope(packet, verdict, answer) {
            return;
        }
        self.source(packet, answer);
        if !self.route(packet, &trace, answer) {
            return;
        }
        if verdict == Err(DropReason::TtlExpired) {
            return answer.drop("TTL", "it expires here", DropReason::TtlExpired);
        }
        let of_direction = self.rules.iter().filter(|rule| rule.is_of_egress());
        let of_direction: Vec<&Rule> = of_direction.collect();
        if !rules(&of_direction, &trace.rules, trace.decision, verdict, answer) {
            return;
        }
        if !self.class(&trace, answer) {
            return;
        }
        if !self.session(&trace, answer) {
            return;
        }
        self.path(packet, &trace, answer);
    }

    /// Whether the addresses may cross.
    fn scope(
        &self,
        packet: &InnerPacket,
        verdict: Result<(), DropReason>,
        answer: &mut Answer,
    ) -> bool {
        if verdict != Err(DropReason::AddressScope) {
            answer.pass("scope", "both addresses may cross");
            return true;
        }
        let mut text = Vec::new();
        for address in [packet.source, packet.destination] {
            let bits = if address.is_ipv4() { 32 } else { 128 };
            if let Some(kind) = refused_prefix(address, bits) {
                text.push(format!("{address} is {kind}"));
            } else if self.tables.is_sid(address) {
                text.push(format!("{address} is a SID behind this gateway"));
            }
        }
        answer.drop("scope", &text.join(", "), DropReason::AddressScope);
        false
    }

    /// Whether packets from the LAN to this destination come to the gateway.
    fn entry(&self, packet: &InnerPacket, answer: &mut Answer) -> bool {
        let destination = packet.destination;
        match self.from_lan {
            Some((prefix, LanRoute::TUNNEL)) => {
                let lan: Vec<&str> = self.lan.values().map(String::as_str).collect();
                let by = match &lan[..] {
                    [] => format!("by the kernel's route into {}", self.tunnel),
                    lan => format!(
                        "by XDP on {}, elsewhere by the kernel's route into {}",
                        lan.join(", "),
                        self.tunnel
                    ),
                };
                answer.pass("entry", &format!("{prefix} comes to the gateway {by}"));
                true
            }
            Some((prefix, _)) => {
                let text = format!(
                    "{prefix} is a network or a route of this host, or served here: the kernel has it"
                );
                answer.not_taken("entry", &text, None);
                false
            }
            None => {
                if let Some(prefix) = self.excluded {
                    let text = format!(
                        "{prefix} of a remote contains it, but would capture traffic of this host and is excluded from the tunnel: see \
                         the log"
                    );
                    answer.not_taken("entry", &text, Some(DropReason::NoRoute));
                    return false;
                }
                let plan = self.planner.current();
                let holds = |site: &&Site| site.prefixes.iter().any(|p| p.contains(&destination));
                let reason = match plan.sites.iter().find(holds) {
                    Some(site) => {
                        let text = format!(
                            "{destination} belongs to {}, which has no session that works: the kernel has it meanwhile",
                            site.isd_as
                        );
                        answer.0.remote = Some(site.isd_as.to_string());
                        (text, DropReason::NoSession)
                    }
                    None => (
                        format!("no remote has {destination}: the kernel has it"),
                        DropReason::NoRoute,
                    ),
                };
                answer.not_taken("entry", &reason.0, Some(reason.1));
                false
            }
        }
    }

    /// Whether answers will come back.
    fn source(&self, packet: &InnerPacket, answer: &mut Answer) {
        let source = packet.source;
        let Some(served) = &self.tables.served else {
            return;
        };
        match served.find(source) {
            Some((prefix, _)) => answer.pass("source", &format!("{source} is in {prefix}, served here")),
            None => answer.warn(
                "source",
                &format!(
                    "{source} is in no prefix served here: the remote gateway is likely to drop it (inner_source), and answers are dropped \
                     here (inner_destination)"
                ),
            ),
        }
    }

    fn route(&self, packet: &InnerPacket, trace: &Egress, answer: &mut Answer) -> bool {
        let Some((prefix, route)) = trace.route else {
            let text = format!("no remote has {}", packet.destination);
            answer.drop("route", &text, DropReason::NoRoute);
            return false;
        };
        if route == Route::Home {
            let text = format!("{prefix} is at home here");
            answer.drop("route", &text, DropReason::NoRoute);
            return false;
        }
        match self.site(prefix) {
            Some(site) => {
                answer.pass("route", &format!("{prefix} is behind {}", site.isd_as));
                answer.0.remote = Some(site.isd_as.to_string());
            }
            None => answer.pass("route", &prefix.to_string()),
        }
        true
    }

    /// The site that a prefix of the tables belongs to: of several, the first one that is exported.
    fn site(&self, prefix: IpNet) -> Option<&Site> {
        let sites = self.planner.current().sites.iter();
        let has_it = |site: &&Site| site.prefixes.iter().any(|of| of.trunc() == prefix);
        let mut sites = sites.filter(has_it);
        let first = sites.clone().next();
        sites.find(|site| site.exported).or(first)
    }

    fn class(&self, trace: &Egress, answer: &mut Answer) -> bool {
        let Some((prefix, route)) = trace.route else {
            return false;
        };
        let classes = self.site(prefix).map_or(&[][..], |site| &site.rules);
        let count = classes.len();
        let text = match route {
            Route::Class(Some(place)) => {
                let condition = classes.get(place).map(|rule| rule.condition.to_string());
                format!(
                    "{} of {count}: {}",
                    place + 1,
                    condition.unwrap_or_default()
                )
            }
            Route::Class(None) => {
                answer.drop(
                    "class",
                    &format!("none of the {count} of the site takes it"),
                    DropReason::NoSession,
                );
                return false;
            }
            Route::Site | Route::Home => "all packets go the same way".to_owned(),
        };
        if trace.session.is_none() {
            let text = format!("{text}: it has no session");
            answer.drop("class", &text, DropReason::NoSession);
            return false;
        }
        answer.pass("class", &text);
        true
    }

    fn session(&self, trace: &Egress, answer: &mut Answer) -> bool {
        let Some(place) = trace.session.map(usize::from) else {
            return false;
        };
        let plan = self.planner.current();
        let (Some(session), Some(planned)) =
            (plan.sessions.get(place), self.planner.sessions().get(place))
        else {
            answer.drop("session", "there is none", DropReason::NoSession);
            return false;
        };
        answer.0.session = Some(session.number);
        let mut text = format!("number {} with {}", session.number, session.data_addr);
        if let Some(probing) = self.probing.get(&session.key) {
            let state = match probing.healthy {
                true => "answers probes",
                false => "does not answer probes",
            };
            text += &format!(", policy {}; the gateway {state}", session.policy_id);
        }
        answer.pass("session", &text);
        if trace.verdict != Err(DropReason::NoPath) {
            return true;
        }
        let paths = session.paths.iter().zip(&planned.paths);
        let problems: Vec<String> = paths
            .map(|(path, planned)| format!("{}: {}", path.name, self.problem(path, planned)))
            .collect();
        let text = match &problems[..] {
            [] => "the session has none that its policy allows and that works".to_owned(),
            problems => problems.join("; "),
        };
        answer.drop("path", &text, DropReason::NoPath);
        false
    }

    /// Why a path cannot be used.
    fn problem(&self, path: &SessionPath, planned: &PlannedPath) -> String {
        let next_hop = path.path.next_hop.ip();
        match self.hops.get(&next_hop) {
            _ if path.expired => "it has expired".to_owned(),
            Some(Resolution::Unresolved(reason)) => format!("next hop {next_hop}: {reason}"),
            _ => planned
                .problem
                .clone()
                .unwrap_or_else(|| "cannot be used".to_owned()),
        }
    }

    fn path(&self, packet: &InnerPacket, trace: &Egress, answer: &mut Answer) {
        let (Some(session), Some(place)) = (trace.session, trace.path) else {
            let reason = trace.verdict.err().unwrap_or(DropReason::NoPath);
            return answer.drop("path", "there is none", reason);
        };
        let Some(path) = self.tables.paths.get(usize::from(place)) else {
            return answer.drop("path", "there is none", DropReason::NoPath);
        };
        let first = match self.tables.sessions.get(usize::from(session)) {
            Some(Session::OnePath(first) | Session::ManyPaths(first, _)) => *first,
            Some(Session::Pathless) | None => 0,
        };
        let number = usize::from(place.saturating_sub(first));
        let planned = self.planner.sessions().get(usize::from(session));
        let of_plan = self.planner.current().sessions.get(usize::from(session));
        let paths = of_plan.zip(planned).into_iter();
        let usable: Vec<&SessionPath> = paths
            .flat_map(|(session, planned)| session.paths.iter().zip(&planned.paths))
            .filter(|(_, planned)| planned.is_usable())
            .map(|(path, _)| path)
            .collect();
        let Some(chosen) = usable.get(number) else {
            return answer.drop("path", "there is none", DropReason::NoPath);
        };
        let mut text = format!("\"{}\"", chosen.name);
        if let Some(bucket) = trace.bucket {
            text += &format!(
                ", by part {bucket} of 256 of the flows over {}",
                counted(usable.len(), "path")
            );
            answer.0.bucket = u8::try_from(bucket).ok();
        }
        if let Some(expiry) = chosen.path.expiry {
            let at = expiry.duration_since(UNIX_EPOCH).unwrap_or_default();
            text += &format!(", expires {}", rfc3339(at.as_secs()));
        }
        answer.pass("path", &text);
        answer.0.path = Some(chosen.name.clone());
        answer.0.fingerprint = Some(chosen.path.fingerprint.to_string());
        self.next_hop(chosen, answer);
        self.frames(packet, trace, (path, chosen), answer);
        self.way(trace, path, answer);
        answer.0.verdict = Verdict::Sent;
    }

    fn next_hop(&self, path: &SessionPath, answer: &mut Answer) {
        let next_hop = path.path.next_hop;
        answer.0.next_hop = Some(next_hop);
        match self.hops.get(&next_hop.ip()) {
            Some(Resolution::Resolved(hop)) => {
                let mac = mac(hop.destination_mac);
                let text = match hop.neighbour == next_hop.ip() {
                    true => format!("{next_hop} at {mac}"),
                    false => format!("{next_hop} by the router {} at {mac}", hop.neighbour),
                };
                answer.pass("next hop", &text);
            }
            Some(Resolution::Unresolved(reason)) => {
                answer.warn("next hop", &format!("{next_hop}: {reason}"));
            }
            None => answer.pass("next hop", &next_hop.to_string()),
        }
    }

    fn frames(
        &self,
        packet: &InnerPacket,
        trace: &Egress,
        (path, chosen): (&Path, &SessionPath),
        answer: &mut Answer,
    ) {
        let capacity = path.packer.capacity();
        let protection = path.keyring.as_ref().map_or(0, |_| PROTECTION_LEN);
        let headers = path.template.len() + protection;
        let len = usize::from(packet.total_len);
        let longest = headers + len.min(capacity);
        let frames = match trace.frames {
            1 => format!("one of {longest} bytes with Ethernet header"),
            frames => format!(
                "{frames} of up to {longest} bytes with Ethernet header, which one lost frame makes useless"
            ),
        };
        let text = format!(
            "{frames}; headers take {headers}, path MTU {}, so that one holds a packet of {capacity}",
            chosen.mtu
        );
        answer.pass("frames", &text);
        answer.0.frames = u32::try_from(trace.frames).ok();
        answer.0.frame_bytes = u32::try_from(longest).ok();
    }

    fn way(&self, trace: &Egress, path: &Path, answer: &mut Answer) {
        let why_not = match trace.is_simple {
            true => (self.why_not)(path),
            false if trace.frames > 1 => Some("it does not fit one frame".to_owned()),
            false if !trace.decision.is_plain() => Some("a rule counts or copies it".to_owned()),
            false => Some("it is no simple packet".to_owned()),
        };
        let text = match &why_not {
            None => "the fast path in the kernel, after the first packet of the flow".to_owned(),
            Some(why) => format!("a worker: {why}"),
        };
        answer.pass("sent by", &text);
        answer.0.fast_path = Some(why_not.is_none());
    }

    fn to_lan(&self, isd_as: IsdAs, packet: &InnerPacket, answer: &mut Answer) {
        let remotes = self.tables.remotes.iter().zip(0u16..);
        let known: Vec<u16> = remotes
            .filter(|(remote, _)| remote.isd_as == isd_as)
            .map(|(_, slot)| slot)
            .collect();
        answer.0.remote = Some(isd_as.to_string());
        // Of several gateways, the one from which it would be delivered.
        let traces = known
            .iter()
            .map(|slot| (*slot, self.tables.trace_ingress(*slot, packet)));
        let traces: Vec<(u16, Ingress)> = traces.collect();
        let best = traces.iter().find(|(_, trace)| trace.verdict.is_ok());
        let Some((slot, trace)) = best.or(traces.first()) else {
            let text = format!("no gateway of {isd_as} is known");
            return answer.drop("remote", &text, DropReason::UnknownRemote);
        };
        if let Some(remote) = self.tables.remotes.get(usize::from(*slot)) {
            let others = match known.len() {
                1 => String::new(),
                count => format!(", one of {}", counted(count, "gateway")),
            };
            let text = format!("gateway {} of {isd_as}{others}", remote.host);
            answer.pass("remote", &text);
        }
        if !self.scope(packet, trace.verdict, answer) {
            return;
        }
        let source = packet.source;
        match (trace.home, trace.accepted, trace.verdict) {
            (_, _, Err(DropReason::InnerSource)) => {
                let text = match (trace.home, trace.accepted) {
                    (Some(home), _) => format!("{source} is in {home}, which is at home here"),
                    (None, _) => format!("{source} is in no prefix accepted from it"),
                };
                return answer.drop("source", &text, DropReason::InnerSource);
            }
            (_, Some(accepted), _) => {
                answer.pass(
                    "source",
                    &format!("{source} is in {accepted}, accepted from it"),
                );
            }
            _ => {}
        }
        let destination = packet.destination;
        if trace.verdict == Err(DropReason::InnerDestination) {
            let text = format!("{destination} is in no prefix served here");
            return answer.drop("destination", &text, DropReason::InnerDestination);
        }
        let text = match trace.served {
            Some(served) => format!("{destination} is in {served}, served here"),
            None => format!("{destination} leads into no tunnel"),
        };
        answer.pass("destination", &text);
        let of_direction = self.rules.iter().filter(|rule| rule.is_of_ingress());
        let of_direction: Vec<&Rule> = of_direction.collect();
        if rules(
            &of_direction,
            &trace.rules,
            trace.decision,
            trace.verdict,
            answer,
        ) {
            self.deliver(packet, trace, answer);
        }
    }

    fn deliver(&self, packet: &InnerPacket, trace: &Ingress, answer: &mut Answer) {
        answer.0.verdict = Verdict::Delivered;
        match trace.delivery {
            Some(Delivery::Lan {
                port,
                address,
                mac: of,
                fast,
            }) => {
                let unknown = format!("LAN interface {port}");
                let interface = self.lan.get(&port).unwrap_or(&unknown);
                let text = format!("{address} at {} on {interface}", mac(of));
                answer.pass("next hop", &text);
                answer.0.fast_path = Some(fast);
                let text = match fast {
                    true => "the fast path in the kernel, after the first packet of the flow",
                    false => "a worker",
                };
                answer.pass("sent by", text);
            }
            Some(Delivery::Kernel { but_not_back }) => {
                answer.0.fast_path = Some(false);
                let text = format!(
                    "no neighbour of the LAN interfaces is known for it, or it needs a router: by {} and the kernel's routes (\"ip route get \
                     {}\")",
                    self.tunnel, packet.destination
                );
                if trace.verdict == Err(DropReason::PacketTooBig) {
                    let text = format!("{text}; longer than {} bytes", self.tables.tunnel_mtu);
                    return answer.drop("next hop", &text, DropReason::PacketTooBig);
                }
                answer.pass("next hop", &text);
                if but_not_back {
                    answer.warn(
                        "loop",
                        "its destination is behind the remote that sends it: it is dropped (routing_loop) unless the kernel knows another way",
                    );
                }
            }
            None => {}
        }
    }
}

/// What rules say; whether the packet goes on.
fn rules(
    all: &[&Rule],
    held: &[usize],
    decision: Decision,
    verdict: Result<(), DropReason>,
    answer: &mut Answer,
) -> bool {
    let names: Vec<String> = held
        .iter()
        .filter_map(|place| all.get(*place))
        .map(|rule| format!("\"{}\": {}", rule.name, rule.action.name()))
        .collect();
    let text = match &names[..] {
        [] if all.is_empty() => "there are none".to_owned(),
        [] => format!("none of {} holds: carried", counted(all.len(), "rule")),
        names => names.join(", "),
    };
    match decision {
        Decision::Carry { .. } => {
            answer.pass("rules", &text);
            true
        }
        Decision::Drop => {
            let last = held.last().and_then(|place| all.get(*place));
            let is_chain = last.is_some_and(|rule| matches!(rule.action, Action::Chain { .. }));
            let text = match is_chain {
                true => format!("{text}, which is not there"),
                false => text,
            };
            answer.drop("rules", &text, DropReason::Filtered);
            false
        }
        Decision::Chain(chain) => {
            if let Err(reason) = verdict {
                let text = format!("{text}, which takes packets of up to {} bytes", chain.room);
                answer.drop("rules", &text, reason);
                return false;
            }
            answer.pass("rules", &text);
            answer.pass(
                "chain",
                "what returns from it is carried on; see \"sig chain status\"",
            );
            answer.0.verdict = Verdict::Chain;
            false
        }
    }
}

/// The answer so far.
struct Answer(Trace);

impl Answer {
    fn step(&mut self, step: &str, outcome: Outcome, text: &str) {
        self.0.steps.push(Step {
            step: step.to_owned(),
            outcome,
            text: text.to_owned(),
        });
    }

    fn pass(&mut self, step: &str, text: &str) {
        self.step(step, Outcome::Pass, text);
    }

    fn warn(&mut self, step: &str, text: &str) {
        self.step(step, Outcome::Warning, text);
    }

    fn drop(&mut self, step: &str, text: &str, reason: DropReason) {
        self.step(step, Outcome::Stop, text);
        self.end(Verdict::Dropped, Some(reason));
    }

    fn not_taken(&mut self, step: &str, text: &str, reason: Option<DropReason>) {
        self.step(step, Outcome::Stop, text);
        self.end(Verdict::NotTaken, reason);
    }

    fn end(&mut self, verdict: Verdict, reason: Option<DropReason>) {
        self.0.verdict = verdict;
        self.0.reason = reason.map(|reason| reason.name().to_owned());
        self.0.meaning = reason.map(|reason| reason.describe().to_owned());
        self.0.remedy = reason.map(|reason| remedy(reason).to_owned());
    }
}

fn mac(address: [u8; 6]) -> String {
    address.map(|byte| format!("{byte:02x}")).join(":")
}

#[cfg(test)]
mod tests;
