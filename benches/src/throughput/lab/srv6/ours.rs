//! Our SR node's XDP programs, with tables as `sig srv6 run` fills them.

use std::{net::Ipv6Addr, sync::Arc};

use anyhow::{Context as _, Result};
use ipnet::IpNet;
use sig_common::{
    srv6::{
        Behavior as Sid, Flavors,
        filter::{Action, Row},
        maps::{Adjacency, Function, MAX_HEADERS, Policy, Port, Reason},
    },
    wire::{ipv6, srv6::NEXT_IPV6},
};
use sig_core::policy::{
    class::parse_rule,
    rules::{self, Rule},
};
use sig_linux::bpf::{Attachment, Rules, Sr, SrPrograms, XdpMode};

use super::{LINK_MTU, NEXT, SID, TABLE, add_routes, behavior, headers};
use crate::throughput::{
    experiment::{Behavior, Case, Family},
    instrument::{
        programs::{self, Usage},
        run::Snapshot,
    },
    lab::{
        device::{UnderTest, add_napi, add_program},
        napi,
        network::Network,
    },
    trial::{Trial, Validity},
};

/// Number of the policy, the adjacency and the function there is.
const ONE: u32 = 1;
/// Counters of the SID or policy, and of what comes back from the function.
const SLOT: u32 = 1;
const RETURNED_SLOT: u32 = 2;
/// Counters of the policy for what comes back from a static proxy.
const AGAIN_SLOT: u32 = 3;

/// Counters of rules.
const RULES_SLOT: u32 = 4;

/// Packets that the node left to the kernel to send.
const TO_KERNEL: &str = "srv6 to_kernel";
/// Packets to the SID, or into the policy.
const PACKETS: &str = "srv6 packets";
/// Packets that came back from the function.
const RETURNED: &str = "srv6 returned";

/// MAC addresses of both ends of the wire that is the function.
const FUNCTION_MACS: [[u8; 6]; 2] = [[2, 0, 0, 1, 20, 1], [2, 0, 0, 1, 20, 2]];

/// The programs on the left device, and on the one that the function returns packets by.
pub(in super::super) struct Node {
    // The programs leave the devices before their maps go.
    _attachments: Vec<Attachment>,
    programs: SrPrograms,
    napi: Vec<u32>,
}

impl Node {
    /// Has the programs do what a case says.
    pub(in super::super) fn start(
        network: &Network,
        case: &Case,
        rules: Option<(u16, bool)>,
    ) -> Result<Self> {
        add_routes(network)?;
        let netns = &network.device;
        let behavior = behavior(case)?;
        let function = match behavior.is_proxy() {
            true => Some(Wire::new(network)?),
            false => None,
        };
        let left = programs::index_of(netns, &network.left.device)?;
        let right = programs::index_of(netns, &network.right.device)?;
        let mut programs = load()?;
        let mut receivers = vec![left];
        let mut senders = vec![left, right];
        if let Some(wire) = &function {
            receivers.push(wire.indices[1]);
            senders.push(wire.indices[0]);
        }
        let attachments = netns.run(|| {
            for device in senders {
                programs.add_device(device)?;
            }
            receivers
                .into_iter()
                .map(|device| programs.attach(device, Some(XdpMode::Native)))
                .collect::<Result<Vec<_>, _>>()
        })??;
        let function_device = function.as_ref().map(|wire| wire.indices);
        let mut tables = tables(network, behavior, [left, right], function_device)?;
        tables.rules = rules
            .map(|(count, is_advanced)| refusals(count, is_advanced))
            .transpose()?;
        programs.set(&tables)?;
        let mut napi = Vec::new();
        let names = function.as_ref().map(|wire| &wire.names[1]);
        for device in std::iter::once(&network.left.device).chain(names) {
            let threads = napi::run_first_in_threads(netns, device, case.cpus.device)?;
            napi.extend(threads);
        }
        Ok(Self {
            _attachments: attachments,
            programs,
            napi,
        })
    }
}

/// The programs. Nobody listens to what they tell.
fn load() -> Result<SrPrograms> {
    // The ring of events is watched from within a runtime.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .context("a runtime for events")?;
    let _inside = runtime.enter();
    let (programs, events) = SrPrograms::load()?;
    drop(events);
    Ok(programs)
}

/// The function: a wire from a device to one that returns everything.
struct Wire {
    names: [String; 2],
    indices: [u32; 2],
}

impl Wire {
    fn new(network: &Network) -> Result<Self> {
        // As unique on the machine as these are.
        let links = [&network.left, &network.right];
        let names = links.map(|link| link.device.replacen('d', "f", 1));
        let [out, back] = &names;
        let [out_mac, back_mac] =
            FUNCTION_MACS.map(|mac| mac.map(|byte| format!("{byte:02x}")).join(":"));
        let netns = &network.device;
        netns.ip(&format!(
            "link add {out} mtu {LINK_MTU} address {out_mac} type veth \
             peer name {back} mtu {LINK_MTU} address {back_mac}\n\
             link set {out} up\n\
             link set {back} up\n"
        ))?;
        let indices = [
            programs::index_of(netns, out)?,
            programs::index_of(netns, back)?,
        ];
        Ok(Self { names, indices })
    }
}

fn adjacency(ifindex: u32, destination: [u8; 6], source: [u8; 6]) -> Adjacency {
    let mut macs = [0; 12];
    macs[..6].copy_from_slice(&destination);
    macs[6..].copy_from_slice(&source);
    Adjacency {
        ifindex,
        mtu: LINK_MTU.into(),
        macs,
        known: 1,
    }
}

fn tables(
    network: &Network,
    behavior: Behavior,
    [left, right]: [u32; 2],
    function: Option<[u32; 2]>,
) -> Result<Sr> {
    let mut sr = Sr::default();
    let mut flags = Port::TRUSTED;
    match behavior {
        Behavior::EncapsFrames => {
            flags |= Port::FRAMES;
            sr.policies.insert(ONE, policy(network, SLOT)?);
        }
        Behavior::Encaps | Behavior::Insert => {
            flags |= Port::STEERED;
            let policy = match behavior {
                Behavior::Insert => insertion(network)?,
                _ => policy(network, SLOT)?,
            };
            sr.policies.insert(ONE, policy);
            for family in [Family::Ipv4, Family::Ipv6] {
                let net: IpNet = network.right.prefix(family).parse()?;
                sr.steered.insert(net, ONE);
            }
        }
        Behavior::Sid(_) | Behavior::ProxyOfFlows => {
            let sid = match behavior {
                Behavior::Sid(sid) => sid,
                _ => Sid::EndAd6,
            };
            let target = match sid {
                Sid::EndX | Sid::EndDx4 | Sid::EndDx6 => ONE,
                Sid::EndT | Sid::EndDt4 | Sid::EndDt6 | Sid::EndDt46 => TABLE,
                Sid::EndDx2 => right,
                Sid::End => 0,
                Sid::EndAs | Sid::EndAd4 | Sid::EndAd6 | Sid::EndAm | Sid::EndAn => ONE,
            };
            let value = sig_common::srv6::Sid::new(sid, Flavors(0), target, SLOT);
            sr.sids.insert(SID, value);
            let link = &network.right;
            let neighbour = adjacency(right, link.tester_mac, link.device_mac);
            sr.adjacencies.insert(ONE, neighbour);
        }
    }
    if let Some([out, back]) = function {
        let [out_mac, back_mac] = FUNCTION_MACS;
        let kind = match behavior {
            Behavior::Sid(Sid::EndAs) => Function::CONFIGURED,
            Behavior::Sid(Sid::EndAm) => Function::MASQUERADED,
            _ => Function::CACHED,
        };
        sr.policies.insert(ONE, policy(network, AGAIN_SLOT)?);
        let value = Function {
            to: adjacency(out, back_mac, out_mac),
            flags: kind | Function::UP,
            policy: ONE,
            slot: RETURNED_SLOT,
            flows: u32::from(behavior == Behavior::ProxyOfFlows),
        };
        sr.functions.insert(ONE, value);
        let port = Port {
            mac: back_mac,
            flags: Port::RETURN,
            function: ONE,
            ..Port::default()
        };
        sr.ports.insert(back, port);
    }
    let port = Port {
        mac: network.left.device_mac,
        flags,
        function: match behavior {
            Behavior::EncapsFrames => ONE,
            _ => 0,
        },
        ..Port::default()
    };
    sr.ports.insert(left, port);
    Ok(sr)
}

/// So many rules that drop packets, none of which the generator sends: each asks for several things, and about half of them are so.
fn refusals(count: u16, is_advanced: bool) -> Result<Rules> {
    let rule = |number: u16| {
        let condition = match is_advanced {
            false => format!(
                "all(src=fd00:{number:x}::/32,dst=fd00:{number:x}:1::/48,protocol=UDP,dstport={number})"
            ),
            true => format!(
                "all(outersrc=fd00:{number:x}::/32,sid={SID}/128,last=fd00:{number:x}:1::/48,segmentsleft=1-9,tag={number})"
            ),
        };
        Ok(Rule {
            condition: parse_rule(&condition)?,
            interfaces: Vec::new(),
            action: Action::Drop,
        })
    };
    let rules: Vec<_> = (1..=count).map(rule).collect::<Result<_>>()?;
    let tables =
        rules::compile(&rules).map_err(|error| anyhow::anyhow!("too many rules: {error:?}"))?;
    let rows = tables.rows.iter().map(|(_, end)| Row {
        action: Action::Drop as u32,
        slot: RULES_SLOT,
        end: *end,
        ..Row::default()
    });
    Ok(Rules {
        rows: rows.collect(),
        interfaces: Default::default(),
        tables: Arc::new(tables),
    })
}

/// Two segments for packets that are steered into them.
fn policy(network: &Network, slot: u32) -> Result<Policy> {
    policy_of(network, slot, NEXT)
}

/// Two segments that are inserted in front of the packet's own destination.
fn insertion(network: &Network) -> Result<Policy> {
    let [first, second] = NEXT;
    let policy = policy_of(network, SLOT, [first, second, Ipv6Addr::UNSPECIFIED])?;
    Ok(Policy {
        flags: Policy::INSERT,
        ..policy
    })
}

fn policy_of<const N: usize>(
    network: &Network,
    slot: u32,
    segments: [Ipv6Addr; N],
) -> Result<Policy> {
    let std::net::IpAddr::V6(source) = network.right.device_ip(Family::Ipv6) else {
        anyhow::bail!("the node has no IPv6 address");
    };
    let headers = headers(source, segments, NEXT_IPV6)?;
    let mut policy = Policy {
        headers: [0; MAX_HEADERS],
        len: headers.len() as u16,
        next_header_at: ipv6::HEADER_LEN as u16,
        flags: 0,
        slot,
        mtu: LINK_MTU.into(),
    };
    policy.headers[..headers.len()].copy_from_slice(&headers);
    Ok(policy)
}

impl UnderTest for Node {
    fn read(&mut self, snapshot: &mut Snapshot) -> Result<()> {
        let mut count = |name: &str, packets| snapshot.counters.insert(name.into(), packets);
        // Runs are packets: one that comes back from a function is still the same.
        let runs = self.programs.traffic(SLOT)?.packets;
        count(PACKETS, runs);
        count(RETURNED, self.programs.traffic(RETURNED_SLOT)?.packets);
        count(TO_KERNEL, self.programs.refused(Reason::ToKernel)?);
        let programs = self.programs.figures()?;
        let time = programs.iter().map(|program| program.run_time).sum();
        add_program(snapshot, Usage { runs, time });
        add_napi(snapshot, &self.napi);
        Ok(())
    }

    /// A trial is of the programs if the kernel sent next to nothing.
    fn judge(&self, trial: &mut Trial) {
        let of_kernel = trial.counters.get(TO_KERNEL).copied().unwrap_or_default();
        if of_kernel > trial.received / 100 && trial.is_valid() {
            trial.validity = Validity::Invalid(format!(
                "{of_kernel} packets were left to the kernel to send"
            ));
        }
    }
}
