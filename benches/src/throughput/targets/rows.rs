//! What the rows are made of.

mod srv6;

use std::fmt;

use crate::throughput::{
    experiment::{Behavior, Family},
    record::Metric,
    subject::Subject,
};

/// What a row is made of.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) target: f64,
    pub(super) ratio: Ratio,
}

/// One side of a ratio.
#[derive(Clone, Copy)]
pub(super) struct Side {
    pub(super) subject: Subject,
    pub(super) workers: u16,
    pub(super) behavior: Option<Behavior>,
}

/// How figures become a ratio; of one experiment and one case.
pub(super) enum Ratio {
    /// Of one over another, where more is better; the other way round where less is. Of several metrics the geometric mean.
    Of(&'static [Metric], Cell, Side, Side),
    /// What plain IP takes over what the gateways add to it.
    Added(Metric, Cell, Side, Side),
    /// Of what two sides add to a third one: the first over the second.
    OfAdded(Metric, Cell, Side, Side, Side),
    /// Of the best repeat of one over a fixed value; the other way round where less is better.
    Over(Metric, Cell, Side, f64),
}

/// Which case.
#[derive(Clone, Copy)]
pub(super) struct Cell {
    /// None: any.
    pub(super) size: Option<u16>,
    pub(super) packed: bool,
    pub(super) family: Family,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.subject)?;
        if let Some(behavior) = self.behavior {
            write!(f, " {behavior}")?;
        }
        match self.workers {
            1 => Ok(()),
            workers => write!(f, " with {workers} workers"),
        }
    }
}

const fn side(subject: Subject) -> Side {
    Side {
        subject,
        workers: 1,
        behavior: None,
    }
}

const fn cell(size: u16) -> Cell {
    Cell {
        size: Some(size),
        packed: false,
        family: Family::Ipv4,
    }
}

const ANY: Cell = Cell {
    size: None,
    packed: false,
    family: Family::Ipv4,
};

/// Packets of one class, which may share frames.
const fn packed(size: u16) -> Cell {
    Cell {
        packed: true,
        ..cell(size)
    }
}

/// In an Ethernet frame of 138 bytes.
const ROUTED: u16 = 124;

/// The table of the project.
///
/// Single devices are compared by what a second of their forwarding thread's CPU time carries at the highest load: the
/// tester has one core as well, and is at its limit before a fast device is.
/// The router is compared by what comes through the whole path, generator and veth included, as its target is meant.
pub(super) fn rows() -> Vec<Row> {
    use Metric::*;
    use Ratio::*;
    use Subject::*;
    let [limit, encapsulate, decapsulate, helper] =
        [AfXdpForward, Encapsulate, Decapsulate, DecapsulateHelper].map(side);
    let [ip, sig, reference, tuned] =
        [ChainIp, ChainSig, ChainReference, ChainReferenceTuned].map(side);
    let [redirect, router, router_reference] = [XdpRedirect, Router, RouterReference].map(side);
    let [one, receiver] = [PipelineEncapsulate, PipelineDecapsulate].map(side);
    let [closed, fast_encapsulate, fast_decapsulate] =
        [XdpRedirectSplit, EncapsulateFast, DecapsulateFast].map(side);
    let two = Side { workers: 2, ..one };
    let per_cpu = |cell, of| Of(&[PerCpuSecond], cell, of, limit);
    let pdr = |cell, over| Of(&[Pdr], cell, sig, over);
    let tcp = |over| Of(&[TcpForward, TcpReverse], ANY, sig, over);
    let cpu = |cell| OfAdded(CpuAll, cell, reference, sig, ip);
    let over_reference = |metric, cell| Of(metric, cell, sig, reference);
    let memory = |of| Over(Mrr, cell(100), of, 10e6);
    let whole_path = |cell, of| Of(&[Mrr], cell, of, closed);
    let run_time = |cell, of| Over(ProgramTime, cell, of, 0.2);
    let [alone, accelerated_one, accelerated] = [
        ChainReferenceOverSigRouters,
        ChainAcceleratedOne,
        ChainAccelerated,
    ]
    .map(side);
    let accelerated_pdr = |cell| Of(&[Pdr], cell, accelerated, alone);
    let accelerated_tcp = |of| Of(&[TcpForward, TcpReverse], ANY, of, alone);

    let mut rows = Vec::new();
    let mut row = |name: &str, target, ratio| {
        rows.push(Row {
            name: name.to_owned(),
            target,
            ratio,
        })
    };
    let name = "encapsulate 100 B / AF_XDP forward";
    row(name, 0.9, per_cpu(cell(100), encapsulate));
    let name = "encapsulate 1300 B / AF_XDP forward";
    row(name, 0.9, per_cpu(cell(1300), encapsulate));
    let name = "encapsulate 100 B packed / AF_XDP forward";
    row(name, 2.5, per_cpu(packed(100), encapsulate));
    let name = "decapsulate 100 B / AF_XDP forward";
    row(name, 0.8, per_cpu(cell(100), decapsulate));
    let name = "decapsulate 1300 B / AF_XDP forward";
    row(name, 0.8, per_cpu(cell(1300), decapsulate));
    let name = "decapsulate 100 B through the TC helper / AF_XDP forward";
    row(name, 0.5, per_cpu(cell(100), helper));
    let name = "decapsulate 1300 B through the TC helper / AF_XDP forward";
    row(name, 0.5, per_cpu(cell(1300), helper));
    let name = "decapsulate 100 B packed / AF_XDP forward";
    row(name, 1.0, per_cpu(packed(100), decapsulate));
    let name = "two workers / one worker, a core each, in memory";
    row(name, 1.8, Of(&[Mrr], cell(100), two, one));
    let name = "chain PDR 100 B / reference default";
    row(name, 35.0, pdr(packed(100), reference));
    let name = "chain PDR 1300 B / reference default";
    row(name, 40.0, pdr(packed(1300), reference));
    let name = "chain PDR 100 B / reference tuned";
    row(name, 15.0, pdr(packed(100), tuned));
    let name = "chain PDR 1300 B / reference tuned";
    row(name, 30.0, pdr(packed(1300), tuned));
    row("chain TCP / reference default", 10.0, tcp(reference));
    row("chain TCP / plain IP", 0.9, tcp(ip));
    let name = "CPU time per packet added to plain IP, reference default / sig";
    row(name, 40.0, cpu(cell(100)));
    let name = "idle RTT, plain IP / added by both gateways";
    row(name, 1.0, Added(RttIdle, cell(100), sig, ip));
    let name = "flood ping average RTT, reference default / sig";
    row(name, 20.0, over_reference(&[FloodRttAvg], cell(100)));
    let name = "restart outage, reference default / sig";
    row(name, 5.0, over_reference(&[Outage], ANY));
    row("pipeline encapsulate 100 B / 10 Mpps", 1.0, memory(one));
    row(
        "pipeline decapsulate 100 B / 10 Mpps",
        1.0,
        memory(receiver),
    );
    let name = "fast path encapsulate 100 B, whole path / XDP redirect";
    row(name, 0.7, whole_path(cell(100), fast_encapsulate));
    let name = "fast path encapsulate 1300 B, whole path / XDP redirect";
    row(name, 0.7, whole_path(cell(1300), fast_encapsulate));
    let name = "fast path decapsulate 100 B, whole path / XDP redirect";
    row(name, 0.7, whole_path(cell(100), fast_decapsulate));
    let name = "fast path decapsulate 1300 B, whole path / XDP redirect";
    row(name, 0.7, whole_path(cell(1300), fast_decapsulate));
    let name = "fast path encapsulate 100 B, 0.2 µs / run time of the program per packet";
    row(name, 1.0, run_time(cell(100), fast_encapsulate));
    let name = "fast path encapsulate 1300 B, 0.2 µs / run time of the program per packet";
    row(name, 1.0, run_time(cell(1300), fast_encapsulate));
    let name = "fast path decapsulate 100 B, 0.2 µs / run time of the program per packet";
    row(name, 1.0, run_time(cell(100), fast_decapsulate));
    let name = "fast path decapsulate 1300 B, 0.2 µs / run time of the program per packet";
    row(name, 1.0, run_time(cell(1300), fast_decapsulate));
    let name = "accelerated gateways PDR 100 B / not accelerated";
    row(name, 5.0, accelerated_pdr(packed(100)));
    let name = "accelerated gateways PDR 1300 B / not accelerated";
    row(name, 5.0, accelerated_pdr(packed(1300)));
    let name = "accelerated gateways TCP / not accelerated";
    row(name, 5.0, accelerated_tcp(accelerated));
    let name = "one accelerated gateway TCP / not accelerated";
    row(name, 1.0, accelerated_tcp(accelerated_one));
    let name = "CPU time of the gateways, not accelerated / accelerated";
    let ratio = Of(&[CpuProcess], cell(100), accelerated, alone);
    row(name, 5.0, ratio);
    let name = "router 138 B, whole path / XDP redirect";
    row(name, 0.6, Of(&[Mrr], cell(ROUTED), router, redirect));
    let name = "router 138 B, 0.5 µs / run time of the program per packet";
    row(name, 1.0, Over(ProgramTime, cell(ROUTED), router, 0.5));
    let name = "router PDR 138 B / reference router";
    let ratio = Of(&[Pdr], cell(ROUTED), router, router_reference);
    row(name, 6.0, ratio);
    srv6::rows(&mut row);
    rows
}
