//! What several integration tests share.

pub(crate) mod bpf;
pub(crate) mod netns;
#[path = "../../../sig-common/tests/support/mod.rs"]
pub(crate) mod packets;
pub(crate) mod router;
pub(crate) mod wire;
