//! The border router: what its engine does with packets, and whole routers in namespaces.

#[path = "../router_support/mod.rs"]
mod router_support;
#[cfg(feature = "xdp")]
#[path = "../support/mod.rs"]
mod support;

mod engine;
#[cfg(feature = "xdp")]
mod run;
