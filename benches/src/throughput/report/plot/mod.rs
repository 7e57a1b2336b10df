//! Plots as SVG: lines with error bars over packet length, bars against a limit.

mod bars;
mod lines;
mod scale;

use maud::{Markup, html};

use super::view::{self, Chart};
use crate::throughput::subject::Subject;

/// Width of every plot, in its own units.
const WIDTH: f64 = 760.0;
/// Text, axes, grid.
const TEXT: &str = "#24292f";
const FAINT: &str = "#6e7781";
const GRID: &str = "#e4e7eb";

/// Lines where there are three places or more on the axis, bars otherwise. Complete in itself.
pub fn svg(chart: &Chart) -> Markup {
    let places = chart.places().into_iter();
    if places.filter_map(view::position).count() >= 3 {
        lines::draw(chart)
    } else {
        bars::draw(chart)
    }
}

/// The frame around every plot.
fn frame(chart: &Chart, height: f64, content: &Markup) -> Markup {
    html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {WIDTH} {height:.0}"))
            width=(WIDTH) height=(format!("{height:.0}")) role="img"
            font-family="system-ui, 'DejaVu Sans', sans-serif" font-size="12" fill=(TEXT) {
            title { (chart.title) }
            rect width="100%" height="100%" fill="#ffffff" {}
            (content)
        }
    }
}

/// A subject has the same colour in every plot: greys for limits, warm for the reference, blue for sig.
fn colour(subject: Subject) -> &'static str {
    use Subject::*;
    match subject {
        XdpDrop => "#b6bdc5",
        XdpRedirect | XdpRedirectSplit => "#d4a5a5",
        AfXdpDrop => "#a68bc9",
        AfXdpForward | ChainIp => "#6b7480",
        TcRedirect => "#b08968",
        KernelForward | Srv6Kernel => "#2da44e",
        KernelVxlan => "#8fbf5f",
        ChainScion => "#8250df",
        ChainReference | RouterReference => "#cf4520",
        ChainReferenceTuned => "#e8a317",
        ChainReferenceOverSigRouters => "#a05a2c",
        ChainAcceleratedOne => "#d6409f",
        ChainAccelerated => "#8b1e5b",
        ChainMixed => "#1b998b",
        EncapsulateFast => "#0a4a94",
        DecapsulateFast => "#0c7489",
        Encapsulate | ChainSig | Router | Srv6 | PipelineEncapsulate => "#0969da",
        Decapsulate | RouterUnverified | PipelineDecapsulate => "#12a5c4",
        DecapsulateHelper | ChainSigEngine | PipelineEncapsulateProtected => "#7d8ff0",
        ChainSigProtected | PipelineDecapsulateProtected => "#0c7489",
        ChainSigSocket => "#6f42c1",
        ChainSigOneHost => "#b083f0",
        ChainSigJumbo => "#0a4a94",
        Srv6Basic1 | Srv6Advanced1 => "#0a4a94",
        Srv6Basic10 | Srv6Advanced10 => "#0c7489",
        Srv6Basic100 | Srv6Advanced100 => "#12a5c4",
    }
}

/// A whisker of one standard deviation to both sides, with caps; `along` the x or the y axis.
fn whisker(from: (f64, f64), to: (f64, f64), colour: &str) -> Markup {
    let cap = |(x, y): (f64, f64)| {
        if from.0 == to.0 {
            [(x - 3.0, y), (x + 3.0, y)]
        } else {
            [(x, y - 3.0), (x, y + 3.0)]
        }
    };
    html! {
        @for [a, b] in [[from, to], cap(from), cap(to)] {
            (line(a, b, colour, 1.2, None))
        }
    }
}

fn line(from: (f64, f64), to: (f64, f64), colour: &str, width: f64, dash: Option<&str>) -> Markup {
    html! {
        line x1=(one(from.0)) y1=(one(from.1)) x2=(one(to.0)) y2=(one(to.1)) stroke=(colour)
            stroke-width=(width) stroke-dasharray=[dash] {}
    }
}

fn text(x: f64, y: f64, anchor: &str, colour: &str, content: &str) -> Markup {
    html! {
        text x=(one(x)) y=(one(y)) text-anchor=(anchor) fill=(colour) { (content) }
    }
}

/// With one decimal, which is enough for coordinates.
fn one(value: f64) -> String {
    format!("{value:.1}")
}

/// Rough width of a text, for the placing of legends.
fn width(text: &str) -> f64 {
    text.chars().count() as f64 * 6.6
}
