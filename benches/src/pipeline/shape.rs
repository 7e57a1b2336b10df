//! How packets lie in frames.

use std::fmt;

use crate::pipeline::traffic::Sizes;

/// Payload of a frame that fits an IPv4 underlay of MTU 1500 over a path of two ASes: a path MTU of
/// 1472 less SCION, UDP/SCION and SIG headers.
pub const PATH_MTU_1472: usize = 1472 - 72 - 8 - 16;

/// How packets lie in frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Every packet has a frame of its own.
    OnePerFrame,
    /// As many packets as fit share a frame of [`PATH_MTU_1472`] bytes. Packets of 1500 bytes are
    /// split over them.
    Packed,
    /// Every packet (of the mix, those of 1500 bytes) needs two frames.
    Split,
}

impl Shape {
    /// Payload bytes of a frame.
    #[must_use]
    pub fn capacity(self, sizes: Sizes) -> usize {
        match self {
            Shape::OnePerFrame => 1500,
            Shape::Packed => PATH_MTU_1472,
            Shape::Split => (sizes.longest() * 2 / 3).max(40),
        }
    }

    /// How many packets wait at once at the sender, so that the receiver gets whole batches.
    #[must_use]
    pub fn packets_for_a_batch_of_frames(self, sizes: Sizes) -> usize {
        match (self, sizes) {
            (Shape::Packed, Sizes::Fixed(len)) => 64 * (PATH_MTU_1472 / len).max(1),
            (Shape::Packed, Sizes::Mix) => 256,
            (Shape::OnePerFrame, _) => 64,
            (Shape::Split, _) => 32,
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Shape::OnePerFrame => "one packet per frame",
            Shape::Packed => "packed",
            Shape::Split => "split",
        })
    }
}
