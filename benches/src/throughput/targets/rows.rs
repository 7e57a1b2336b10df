//! What the rows are made of.

use std::fmt;

use crate::throughput::{record::Metric, subject::Subject};

/// What a row is made of.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) target: f64,
    pub(super) ratio: Ratio,
}

/// One side of a ratio.
#[derive(Clone, Copy)]
pub(super) struct Side {
    pub(super) subject: Subject,
    pub(super) workers: u16,
}

/// How figures become a ratio; of one experiment and one case.
pub(super) enum Ratio {
    /// Of one over another, where more is better; the other way round where less is. Of several metrics the geometric mean.
    Of(&'static [Metric], Cell, Side, Side),
    /// What plain IP takes over what the gateways add to it.
    Added(Metric, Cell, Side, Side),
    /// Of the best repeat of one over a fixed value; the other way round where less is better.
    Over(Metric, Cell, Side, f64),
}

/// Which case.
#[derive(Clone, Copy)]
pub(super) struct Cell {
    /// None: any.
    pub(super) size: Option<u16>,
    pub(super) packed: bool,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.subject)?;
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
    }
}

const fn cell(size: u16) -> Cell {
    Cell {
        size: Some(size),
        packed: false,
    }
}

const ANY: Cell = Cell {
    size: None,
    packed: false,
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
    let row = |name, target, ratio| Row {
        name,
        target,
        ratio,
    };
    let [limit, encapsulate, decapsulate, helper] =
        [AfXdpForward, Encapsulate, Decapsulate, DecapsulateHelper].map(side);
    let [ip, sig, reference, tuned] =
        [ChainIp, ChainSig, ChainReference, ChainReferenceTuned].map(side);
    let [redirect, router, router_reference] = [XdpRedirect, Router, RouterReference].map(side);
    let two = Side {
        workers: 2,
        ..side(PipelineEncapsulate)
    };
    vec![
        row(
            "encapsulate 100 B / AF_XDP forward",
            0.9,
            Of(&[PerCpuSecond], cell(100), encapsulate, limit),
        ),
        row(
            "encapsulate 1300 B / AF_XDP forward",
            0.9,
            Of(&[PerCpuSecond], cell(1300), encapsulate, limit),
        ),
        row(
            "encapsulate 100 B packed / AF_XDP forward",
            2.5,
            Of(&[PerCpuSecond], packed(100), encapsulate, limit),
        ),
        row(
            "decapsulate 100 B / AF_XDP forward",
            0.8,
            Of(&[PerCpuSecond], cell(100), decapsulate, limit),
        ),
        row(
            "decapsulate 1300 B / AF_XDP forward",
            0.8,
            Of(&[PerCpuSecond], cell(1300), decapsulate, limit),
        ),
        row(
            "decapsulate 100 B through the TC helper / AF_XDP forward",
            0.5,
            Of(&[PerCpuSecond], cell(100), helper, limit),
        ),
        row(
            "decapsulate 1300 B through the TC helper / AF_XDP forward",
            0.5,
            Of(&[PerCpuSecond], cell(1300), helper, limit),
        ),
        row(
            "decapsulate 100 B packed / AF_XDP forward",
            1.0,
            Of(&[PerCpuSecond], packed(100), decapsulate, limit),
        ),
        row(
            "two workers / one worker, a core each, in memory",
            1.8,
            Of(&[Mrr], cell(100), two, side(PipelineEncapsulate)),
        ),
        row(
            "chain PDR 100 B / reference default",
            30.0,
            Of(&[Pdr], packed(100), sig, reference),
        ),
        row(
            "chain PDR 1300 B / reference default",
            30.0,
            Of(&[Pdr], packed(1300), sig, reference),
        ),
        row(
            "chain PDR 100 B / reference tuned",
            15.0,
            Of(&[Pdr], packed(100), sig, tuned),
        ),
        row(
            "chain PDR 1300 B / reference tuned",
            15.0,
            Of(&[Pdr], packed(1300), sig, tuned),
        ),
        row(
            "chain TCP / reference default",
            10.0,
            Of(&[TcpForward, TcpReverse], ANY, sig, reference),
        ),
        row(
            "chain TCP / plain IP",
            0.5,
            Of(&[TcpForward, TcpReverse], ANY, sig, ip),
        ),
        row(
            "CPU time per million packets, reference default / sig",
            20.0,
            Of(&[CpuProcess], cell(100), sig, reference),
        ),
        row(
            "idle RTT, plain IP / added by both gateways",
            1.0,
            Added(RttIdle, cell(100), sig, ip),
        ),
        row(
            "flood ping average RTT, reference default / sig",
            10.0,
            Of(&[FloodRttAvg], cell(100), sig, reference),
        ),
        row(
            "restart outage, reference default / sig",
            5.0,
            Of(&[Outage], ANY, sig, reference),
        ),
        row(
            "pipeline encapsulate 100 B / 10 Mpps",
            1.0,
            Over(Mrr, cell(100), side(PipelineEncapsulate), 10e6),
        ),
        row(
            "pipeline decapsulate 100 B / 10 Mpps",
            1.0,
            Over(Mrr, cell(100), side(PipelineDecapsulate), 10e6),
        ),
        row(
            "router 138 B, whole path / XDP redirect",
            0.6,
            Of(&[Mrr], cell(ROUTED), router, redirect),
        ),
        row(
            "router 138 B, 0.5 µs / run time of the program per packet",
            1.0,
            Over(ProgramTime, cell(ROUTED), router, 0.5),
        ),
        row(
            "router PDR 138 B / reference router",
            6.0,
            Of(&[Pdr], cell(ROUTED), router, router_reference),
        ),
    ]
}
