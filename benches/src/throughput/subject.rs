//! What is measured.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use super::trial::{Rate, Trial};

/// Everything that can be measured, by the name that experiment files and records use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// Limit: XDP drops every packet at the device's receive side.
    XdpDrop,
    /// Limit: XDP redirects every packet to the other port through a devmap.
    XdpRedirect,
    /// The same in the generator's soft interrupt.
    XdpRedirectSplit,
    /// Limit: AF_XDP receives and frees every packet.
    AfXdpDrop,
    /// Limit: AF_XDP sends every packet, in its chunk, out of the other port.
    AfXdpForward,
    /// Limit: a TC ingress program redirects every packet to the other port.
    TcRedirect,
    /// Alternative: the kernel forwards IP between the two ports.
    KernelForward,
    /// Alternative: the kernel forwards into a VXLAN tunnel.
    KernelVxlan,
    /// The gateway, IP to SCION alone: between LAN and underlay port.
    Encapsulate,
    /// The gateway, SCION to IP alone, straight to the LAN port.
    Decapsulate,
    /// The gateway, SCION to IP alone, through the TC helper.
    DecapsulateHelper,
    /// The gateway's XDP program that sends simple packets, IP to SCION.
    EncapsulateFast,
    /// The gateway's XDP program that delivers simple packets, SCION to IP.
    DecapsulateFast,
    /// The border router's XDP program, from a link to a link.
    Router,
    /// The same without verification of hop fields.
    RouterUnverified,
    /// The border router of the reference.
    RouterReference,
    /// The SR node's XDP program.
    Srv6,
    /// The SR node's XDP program with a rule about what is inside.
    #[serde(rename = "srv6-basic-1")]
    Srv6Basic1,
    /// The SR node's XDP program with 10 rules about what is inside.
    #[serde(rename = "srv6-basic-10")]
    Srv6Basic10,
    /// The SR node's XDP program with 100 rules about what is inside.
    #[serde(rename = "srv6-basic-100")]
    Srv6Basic100,
    /// The SR node's XDP program with a rule about headers and segments.
    #[serde(rename = "srv6-advanced-1")]
    Srv6Advanced1,
    /// The SR node's XDP program with 10 rules about headers and segments.
    #[serde(rename = "srv6-advanced-10")]
    Srv6Advanced10,
    /// The SR node's XDP program with 100 rules about headers and segments.
    #[serde(rename = "srv6-advanced-100")]
    Srv6Advanced100,
    /// The kernel as SR node.
    Srv6Kernel,
    /// The whole chain of two sites: client, gateway, router, router, gateway, client, over plain IP
    /// forwarding instead of gateways.
    ChainIp,
    /// SCION hosts of the reference implementation over its routers, without gateways.
    ChainScion,
    /// The chain with the reference gateway at both ends, as it is by default.
    ChainReference,
    /// The same with the reference pinned to one CPU per site and one Go thread per process.
    ChainReferenceTuned,
    /// The reference gateway at both ends, as it is by default, over border routers of sig.
    ChainReferenceOverSigRouters,
    /// The same with `sig accelerate` beside the gateway of site A.
    ChainAcceleratedOne,
    /// The same with `sig accelerate` beside both gateways.
    ChainAccelerated,
    /// The chain with sig at one end and the reference gateway at the other.
    ChainMixed,
    /// The chain with sig at both ends, as it is by default: programs in the kernel send and deliver simple packets, except where
    /// packing by workers carries more.
    ChainSig,
    /// The same without these programs: workers do everything.
    ChainSigEngine,
    /// The same with protected frames, under keys that both ends know.
    ChainSigProtected,
    /// The same with UDP sockets towards the border routers.
    ChainSigSocket,
    /// The chain with sig at both ends, at site A on the same host as the border router: UDP sockets there, for packets between
    /// two programs of a host meet no network interface.
    ChainSigOneHost,
    /// The chain with sig at both ends and jumbo frames: an MTU of 9000 bytes in the LANs and on the underlay.
    ChainSigJumbo,
    /// `Worker::process` in memory, IP to SCION, without kernel and rings.
    PipelineEncapsulate,
    /// `Worker::process` in memory, SCION to IP.
    PipelineDecapsulate,
    /// `Worker::process` in memory, IP to SCION, of protected frames.
    PipelineEncapsulateProtected,
    /// `Worker::process` in memory, SCION to IP, of protected frames.
    PipelineDecapsulateProtected,
}

impl Subject {
    /// The name in files and records, such as `af-xdp-forward`.
    pub fn name(self) -> String {
        serde_json::to_value(self)
            .ok()
            .and_then(|name| name.as_str().map(str::to_owned))
            .unwrap_or_default()
    }

    /// What it is, for the reader of a report.
    pub fn title(self) -> &'static str {
        use Subject::*;
        match self {
            XdpDrop => "limit: XDP drop",
            XdpRedirect => "limit: XDP redirect",
            XdpRedirectSplit => "limit: XDP redirect on the generator's CPU",
            AfXdpDrop => "limit: AF_XDP receive",
            AfXdpForward => "limit: AF_XDP forward in place",
            TcRedirect => "limit: TC redirect",
            KernelForward => "kernel IP forwarding",
            KernelVxlan => "kernel VXLAN",
            Encapsulate => "sig, encapsulation",
            Decapsulate => "sig, decapsulation straight to the LAN",
            DecapsulateHelper => "sig, decapsulation through the TC helper",
            EncapsulateFast => "fast path of sig, encapsulation",
            DecapsulateFast => "fast path of sig, decapsulation",
            Router => "border router",
            RouterUnverified => "border router without verification",
            RouterReference => "border router of the reference",
            Srv6 => "SR node",
            Srv6Basic1 => "SR node, 1 basic rule",
            Srv6Basic10 => "SR node, 10 basic rules",
            Srv6Basic100 => "SR node, 100 basic rules",
            Srv6Advanced1 => "SR node, 1 advanced rule",
            Srv6Advanced10 => "SR node, 10 advanced rules",
            Srv6Advanced100 => "SR node, 100 advanced rules",
            Srv6Kernel => "kernel as SR node",
            ChainIp => "plain IP",
            ChainScion => "SCION hosts",
            ChainReference => "reference, both ends",
            ChainReferenceTuned => "reference tuned, both ends",
            ChainReferenceOverSigRouters => "reference over routers of sig",
            ChainAcceleratedOne => "reference over routers of sig, one end accelerated",
            ChainAccelerated => "reference over routers of sig, both ends accelerated",
            ChainMixed => "sig and reference",
            ChainSig => "sig, both ends",
            ChainSigEngine => "sig without fast path, both ends",
            ChainSigProtected => "sig with protected frames, both ends",
            ChainSigSocket => "sig with UDP sockets, both ends",
            ChainSigOneHost => "sig, gateway A on its router's host",
            ChainSigJumbo => "sig, MTU 9000, both ends",
            PipelineEncapsulate => "pipeline, encapsulation",
            PipelineDecapsulate => "pipeline, decapsulation",
            PipelineEncapsulateProtected => "pipeline, protected, encapsulation",
            PipelineDecapsulateProtected => "pipeline, protected, decapsulation",
        }
    }

    /// Whether it is the worker in memory.
    pub fn is_pipeline(self) -> bool {
        use Subject::*;
        matches!(self, PipelineEncapsulate | PipelineDecapsulate) || self.is_protected()
    }

    /// Whether frames are protected.
    pub fn is_protected(self) -> bool {
        use Subject::*;
        matches!(
            self,
            PipelineEncapsulateProtected | PipelineDecapsulateProtected
        )
    }

    /// Whether the program `sig` takes part.
    pub fn runs_gateway(self) -> bool {
        use Subject::*;
        matches!(
            self,
            Encapsulate
                | Decapsulate
                | DecapsulateHelper
                | EncapsulateFast
                | DecapsulateFast
                | ChainReferenceOverSigRouters
                | ChainAcceleratedOne
                | ChainAccelerated
                | ChainMixed
                | ChainSig
                | ChainSigEngine
                | ChainSigProtected
                | ChainSigSocket
                | ChainSigOneHost
                | ChainSigJumbo
        )
    }

    /// Whether [`Case::workers`](super::experiment::Case::workers) means anything to it.
    pub fn has_workers(self) -> bool {
        matches!(self, Subject::Router | Subject::RouterUnverified) || self.is_pipeline()
    }

    /// Whether [`Case::behavior`](super::experiment::Case::behavior) says what it does.
    pub fn has_behaviors(self) -> bool {
        self.is_sr_node() || self == Subject::Srv6Kernel
    }

    /// Whether it is the SR node's program, be it with rules.
    pub fn is_sr_node(self) -> bool {
        self == Subject::Srv6 || self.rules().is_some()
    }

    /// How many rules there are, and whether they are about headers and segments.
    pub fn rules(self) -> Option<(u16, bool)> {
        use Subject::*;
        Some(match self {
            Srv6Basic1 => (1, false),
            Srv6Basic10 => (10, false),
            Srv6Basic100 => (100, false),
            Srv6Advanced1 => (1, true),
            Srv6Advanced10 => (10, true),
            Srv6Advanced100 => (100, true),
            _ => return None,
        })
    }

    /// Whether it forwards SCION packets from a link to a link.
    pub fn is_router(self) -> bool {
        use Subject::*;
        matches!(self, Router | RouterUnverified | RouterReference)
    }

    /// Whether it is an XDP program of the gateway.
    pub fn is_fast_path(self) -> bool {
        matches!(self, Subject::EncapsulateFast | Subject::DecapsulateFast)
    }

    /// Whether it is a BPF program whose run time the kernel can tell.
    pub fn is_program(self) -> bool {
        use Subject::*;
        matches!(
            self,
            XdpDrop | XdpRedirect | XdpRedirectSplit | TcRedirect | Router | RouterUnverified
        ) || self.is_fast_path()
            || self.is_sr_node()
    }

    /// Whether it is measured over the chain of two sites.
    pub fn is_chain(self) -> bool {
        self.name().starts_with("chain-")
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

/// A subject that is set up, with generator and sink.
///
/// Several devices may be open at a time, so that trials can be interleaved: one that is not in a trial
/// must not use the processor.
pub trait Device {
    /// Offers load at `rate` for `length` and counts what arrives.
    ///
    /// # Errors
    ///
    /// Something broke; a trial that merely does not count says so in [`Trial::validity`].
    fn trial(&mut self, rate: Rate, length: Duration) -> anyhow::Result<Trial>;
}

/// Why a subject is not measured.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// This machine lacks something, or the combination makes no sense: the reason goes into the report.
    #[error("{0}")]
    NotHere(String),
    /// It should have worked.
    #[error(transparent)]
    Failed(#[from] anyhow::Error),
}
