//! What several integration tests share.

pub(crate) mod netns;
pub(crate) mod wire;
