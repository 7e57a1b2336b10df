//! What the engine needs of SCION: the header template of a path, from which every frame on that
//! path gets its outer headers.

mod template;

pub use template::{Endpoints, FrameFields, NextHop, Template, TemplateError};
