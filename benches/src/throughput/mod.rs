//! The throughput harness: what carries packets, measured by a generator and a sink.
//!
//! ```text
//!   experiment file ─> run ─┬─ open a subject ([`subject::Subject`]) ─> [`subject::Device`]
//!                           ├─ search ([`search`]) drives trials of the device
//!                           └─ records ([`record::Record`]), one JSON line each
//!   records ─> report: targets, tables, plots
//! ```
//!
//! A *trial* is one interval of load at one rate. A trial in which the generator missed its rate is
//! invalid and never a result.

pub mod binary;
pub mod chain;
pub mod cli;
pub mod experiment;
pub mod instrument;
pub mod lab;
#[path = "../../ebpf/src/layout/mod.rs"]
pub mod layout;
pub mod machine;
pub mod measure;
pub mod progress;
pub mod pure;
pub mod record;
pub mod reference;
pub mod report;
pub mod run;
pub mod scenario;
pub mod search;
pub mod subject;
pub mod targets;
pub mod trial;
pub mod workbench;
