//! The harness over real devices: namespaces and veths of their own, one test after the other. Needs root.

mod support;

mod chains;
mod honesty;
mod instruments;
mod lab;
