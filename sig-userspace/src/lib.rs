//! SCION-IP gateway over AF_XDP: the library behind the program `sig`.
//!
//! ```text
//!  IP hosts ──> inner port ──> encap: class, session, path, pack ──> underlay port ──> border router
//!  IP hosts <── inner port <── reassemble, police <── decap: verify <── underlay port <── border router
//! ```
//!
//! Three ways to use it:
//!
//! - [`framing`] alone: IP packets in, SIG frames out, and back. No I/O.
//! - [`control::Gateway`] over ports of your own: implement [`port::Port`], or take [`port::memory`].
//! - `control::host::Host`: a whole gateway on the interfaces of this machine, as `sig run` is one.
//!
//! | feature | default | what it adds | needs |
//! |---|---|---|---|
//! | | | framing, engine, ports in memory, configuration | |
//! | `control` | yes | discovery of remotes, RPCs, metrics and status pages | a C compiler |
//! | `xdp` | yes | AF_XDP ports, BPF programs, the border router, the program `sig` | kernel headers, the BPF toolchain |

#![forbid(unsafe_code)]

pub use sig_core::{engine, framing, port};

pub mod control;

#[cfg(feature = "xdp")]
pub mod cli;
