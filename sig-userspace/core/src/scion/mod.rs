//! SCION itself: paths, packets, SCMP. The header template from which every frame on a path gets its
//! outer headers is in `sig_common::wire`, as BPF programs use it too.

mod authorship;
mod counters;
mod mac;
pub mod network;
pub mod packet;
mod path;
pub mod reverse;
pub mod scmp;

pub use authorship::segment_ids;
pub use counters::{SocketCounters, SocketCounts};
pub use mac::{HopKey, MacInput};
pub use path::expires_at;
pub use path::{Fingerprint, Interface, Path};
pub use sig_common::wire::template::{Endpoints, FrameFields, NextHop, Template, TemplateError};
