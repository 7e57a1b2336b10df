//! The harness without devices: experiment files, the orchestrator, the command line, reports.

mod experiments;
mod harness;
mod report;
mod support;
