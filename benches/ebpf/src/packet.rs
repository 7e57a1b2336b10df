//! Access to packet bytes as the verifier demands it: every load follows a comparison of its very address with the end of the
//! packet.

use aya_ebpf::programs::XdpContext;
use sig_common::wire::{Load, ethernet};

/// Offset of the IP header in an Ethernet frame without VLAN tags.
pub const IP: usize = ethernet::HEADER_LEN;

/// The packet of the running program.
#[derive(Clone, Copy)]
pub struct Packet {
    start: usize,
    end: usize,
}

impl Packet {
    /// The packet an XDP program looks at.
    #[inline(always)]
    pub fn of_xdp(ctx: &XdpContext) -> Self {
        Self {
            start: ctx.data(),
            end: ctx.data_end(),
        }
    }
}

impl Load for Packet {
    #[inline(always)]
    fn len(&self) -> usize {
        self.end - self.start
    }

    #[inline(always)]
    fn bytes<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let start = self.start + offset;
        if start + N > self.end {
            return None;
        }
        // SAFETY: the bytes are within the packet, which the kernel keeps in place while the program runs.
        Some(unsafe { *(start as *const [u8; N]) })
    }
}
