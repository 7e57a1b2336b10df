//! Values of the BPF maps.

/// Settings of the programs `redirect` and `tc_redirect`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Forwarding {
    /// Index of the device that `tc_redirect` sends through.
    pub ifindex: u32,
    /// `redirect` drops one packet in this many; 0: none.
    pub drop_one_in: u32,
}

/// Settings of the program `sink`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Expected {
    /// What is looked for, see [`kind`].
    pub kind: u32,
    /// Offset of the IP header of IP packets, of the UDP header of others. Below 256.
    pub at: u32,
    /// SIG frames: length of inner packets. If 0, they are counted by their headers.
    pub packet_len: u32,
    /// What was remembered of sequence numbers under another epoch is forgotten.
    pub epoch: u32,
    /// SCION packets: offset of the path header. Below 256.
    pub path_at: u32,
    /// SCION packets: first bytes of the path header: where the packet is, and the segment identifier of the first segment.
    pub path: [u8; 8],
}

/// Values of [`Expected::kind`].
pub mod kind {
    /// Generated IP packets.
    pub const IP: u32 = 0;
    /// SIG frames.
    pub const SIG_FRAMES: u32 = 1;
    /// Generated SCION packets with a certain path header.
    pub const SCION: u32 = 2;
    /// Generated packets by their UDP header, whatever is in front of it.
    pub const UDP: u32 = 3;
}

/// What a sink counts, per CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Totals {
    /// Ethernet frames with what is looked for.
    pub frames: u64,
    /// Inner packets; 0 where they are to be counted by bytes.
    pub packets: u64,
    /// Bytes of inner packets.
    pub bytes: u64,
    /// Frames with a sequence number that had arrived before.
    pub duplicates: u64,
    /// Frames behind a later one of the same flow or stream.
    pub reordered: u64,
    /// Frames that were something else and went to the kernel.
    pub foreign: u64,
}

/// The sequence number that should come next in a flow or stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Next {
    /// It. Of a flow in the upper half, so that both wrap alike.
    pub sequence: u64,
    /// Epoch it was noted in.
    pub epoch: u64,
}

/// A remembered sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Seen {
    /// Epoch in the upper half, flow or stream in the lower.
    pub whose: u64,
    /// The number, as in [`Next::sequence`].
    pub sequence: u64,
}
