//! Paths and border router in comparison with the crate `sciparse`.
//!
//! | what | where |
//! |---|---|
//! | MACs of hop fields | `macs` |
//! | paths as they are made, read and reversed, and every hop of them | `networks` |
//! | any packet at any router, its SCMP answer; as root also by the XDP program | `routers` |
//! | the second hop field of one-hop paths | `one_hop` |
//!
//! `sciparse` moves along a path and verifies MACs. It knows no keys of others, no topology and no EPIC, and it treats the
//! two hops of a peering link like others, which is wrong: there it is not asked.
//!
//! `SIG_CASES` sets how many networks and ASes are tried, `SIG_SEED` the first of them. Failures print the seed.

#[path = "../../../../sig-userspace/tests/support/netns.rs"]
mod netns;
#[path = "../../../../sig-userspace/tests/router_support/mod.rs"]
mod support;

mod macs;
mod networks;
mod one_hop;
mod peer;
mod routers;

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().expect("a number"),
        Err(_) => default,
    }
}
