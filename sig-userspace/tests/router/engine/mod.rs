//! The border router's forwarding procedure, on packets of every kind.

mod any_bytes;
mod hosts;
mod network;

mod probes;
mod refusals;
mod special;
mod vectors;
mod ways;
