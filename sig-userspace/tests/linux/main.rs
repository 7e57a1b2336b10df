//! What the gateway asks of Linux: netlink, ethtool, the inner pair, AF_XDP. Needs root.

#[path = "../support/mod.rs"]
mod support;
mod xsk;

mod capture;
mod doctor;
mod lan;
mod netfilter;
mod networks;
mod next_hops;
mod pair;
mod routes;
mod srv6;
mod trunk;
mod tun;
mod xsk_leak;
mod xsk_port;
