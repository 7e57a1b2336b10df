//! `sig srv6 run` between hosts and routers with the kernel's own segment routing.

mod bytes;
mod interop;
mod life;
mod net;
mod order;
mod packets;
mod process;
mod proxies;
mod refusals;
mod rules;
