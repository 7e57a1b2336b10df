//! What the BPF programs of the throughput harness share with it in user space.

/// Most receive queues of a device under test.
pub const MAX_QUEUES: u32 = 64;

/// Settings of the programs `redirect` and `tc_redirect`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Forwarding {
    /// Index of the device that `tc_redirect` sends through.
    pub ifindex: u32,
    /// `redirect` drops one packet in this many; 0: none.
    pub drop_one_in: u32,
}

#[cfg(feature = "user")]
// SAFETY: `repr(C)`, made of integers only, no padding, and any bits are valid.
unsafe impl aya::Pod for Forwarding {}
