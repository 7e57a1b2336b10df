//! SCION itself: paths, and the header template from which every frame on a path gets its outer headers.

mod path;
mod template;

pub use path::{Fingerprint, Interface, Path};
pub use template::{Endpoints, FrameFields, NextHop, Template, TemplateError};
