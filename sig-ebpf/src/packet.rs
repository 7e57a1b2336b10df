//! Access to packet bytes as the verifier demands it: every load and store follows a comparison
//! of its very address with the end of the packet.

use core::arch::asm;

use aya_ebpf::{
    bindings::{__sk_buff, xdp_md},
    helpers::bpf_xdp_get_buff_len,
    programs::{TcContext, XdpContext},
};
use sig_common::wire::{Load, Store, ethernet, ipv6};

/// Offset of the IP header in an Ethernet frame without VLAN tags.
pub const IP: usize = ethernet::HEADER_LEN;

/// The address family of IPv4, for the kernel's tables.
pub const AF_INET: u8 = 2;
/// The address family of IPv6.
pub const AF_INET6: u8 = 10;

/// Bytes of the packet of an XDP program that are in the first buffer.
#[inline(always)]
pub fn len(ctx: *mut xdp_md) -> usize {
    let packet = Packet::of(ctx, 0);
    // LLVM would go on to compute with the end instead, which the verifier forbids.
    opaque(packet.end - packet.start)
}

/// Bytes of the packet of an XDP program, in all buffers.
#[inline(always)]
pub fn whole_len(ctx: *mut xdp_md) -> usize {
    // SAFETY: the context is of the running program.
    opaque(unsafe { bpf_xdp_get_buff_len(ctx) } as usize)
}

/// The same, [`CUT`] if the IP packet in it, without VLAN tags, is longer. The kernel is asked only if that is longer than the first
/// buffer, or if it is not known.
///
/// A function of its own: it costs its callers no stack.
#[inline(never)]
pub fn checked_len(ctx: *mut xdp_md) -> u32 {
    let packet = Packet::of(ctx, 0);
    let len = packet.len as u32;
    let (announced, headers) = match packet.be16(IP - 2) {
        Some(ethernet::ETHERTYPE_IPV4) => (packet.be16(IP + 2), IP),
        Some(ethernet::ETHERTYPE_IPV6) => (packet.be16(IP + 4), IP + ipv6::HEADER_LEN),
        _ => (None, 0),
    };
    // Of packets that the kernel has merged, the length can be 0.
    let announced = announced.unwrap_or(0);
    let end = u32::from(announced) + headers as u32;
    if announced != 0 && end <= len {
        return len;
    }
    let len = whole_len(ctx) as u32;
    if end > len { CUT } else { len }
}

/// Of a packet that has been cut off.
pub const CUT: u32 = u32::MAX;

/// The same number, of which LLVM knows nothing: what is checked about it is checked for the verifier to see.
#[inline(always)]
pub fn opaque(mut number: usize) -> usize {
    // SAFETY: no instructions.
    unsafe { asm!("/* {0} */", inout(reg) number, options(pure, nomem, nostack)) };
    number
}

/// The packet of the running program.
#[derive(Clone, Copy)]
pub struct Packet {
    start: usize,
    /// End of what is within reach.
    end: usize,
    len: usize,
}

impl Packet {
    /// The packet an XDP program looks at.
    #[inline(always)]
    pub fn of_xdp(ctx: &XdpContext) -> Self {
        let (start, end) = (ctx.data(), ctx.data_end());
        Self {
            start,
            end,
            len: end - start,
        }
    }

    /// What comes behind the first `offset` bytes of the packet of an XDP program. `offset` must be bounded by a constant.
    #[inline(always)]
    pub fn of(ctx: *mut xdp_md, offset: usize) -> Self {
        // SAFETY: the context is of the running program, which keeps it valid. Volatile, or else functions would be given
        // these numbers in place of the context, and the verifier would not know them for what they are.
        let (start, end) = unsafe {
            (
                core::ptr::read_volatile(&raw const (*ctx).data),
                core::ptr::read_volatile(&raw const (*ctx).data_end),
            )
        };
        let (start, end) = (start as usize + offset, end as usize);
        Self {
            start,
            end,
            len: end - start,
        }
    }

    /// The packet a TC program looks at; its linear part is within reach.
    #[inline(always)]
    pub fn of_tc(ctx: &TcContext) -> Self {
        Self {
            start: ctx.data(),
            end: ctx.data_end(),
            len: ctx.len() as usize,
        }
    }

    /// As [`Packet::of`], of a TC program; its linear part is within reach.
    #[inline(always)]
    pub fn of_skb(skb: *mut __sk_buff, offset: usize) -> Self {
        // SAFETY: as in `of`.
        let (start, end, len) = unsafe {
            (
                core::ptr::read_volatile(&raw const (*skb).data),
                core::ptr::read_volatile(&raw const (*skb).data_end),
                core::ptr::read_volatile(&raw const (*skb).len),
            )
        };
        Self {
            start: start as usize + offset,
            end: end as usize,
            len: (len as usize).saturating_sub(offset),
        }
    }

    /// The same, with so many bytes in all buffers.
    #[inline(always)]
    pub fn with_len(self, len: usize) -> Self {
        Self { len, ..self }
    }

    /// The same, as if more followed: to read the first packet of a part of packets.
    #[inline(always)]
    pub fn endless(self) -> Self {
        Self {
            len: usize::MAX,
            ..self
        }
    }

    /// What is behind the Ethernet header of a frame without VLAN tags.
    #[inline(always)]
    pub fn ip(self) -> Self {
        self.behind(IP)
    }

    /// What is behind the first `len` bytes, as far as it is within reach: for loops.
    #[inline(always)]
    pub fn behind(self, len: usize) -> Self {
        Self {
            start: self.start + len,
            len: self.len.saturating_sub(len),
            ..self
        }
    }

    /// The first `N` words of eight bytes, in native byte order.
    #[inline(always)]
    pub fn words<const N: usize>(&self) -> Option<[u64; N]> {
        if self.start + N * 8 > self.end {
            return None;
        }
        // SAFETY: as in `Load::bytes`.
        Some(core::array::from_fn(|word| unsafe {
            u64::from_ne_bytes(load((self.start + word * 8) as *const _))
        }))
    }

    /// `N` bytes at `offset`, to be written.
    #[inline(always)]
    pub fn bytes_mut<const N: usize>(&mut self, offset: usize) -> Option<&mut [u8; N]> {
        let at = self.at::<N>(offset)?;
        // SAFETY: as in `Load::bytes`; the reference borrows `self`, of which the program has one.
        Some(unsafe { &mut *at })
    }

    /// Two bytes at `offset`, big endian.
    #[inline(always)]
    pub fn be16(&self, offset: usize) -> Option<u16> {
        self.bytes(offset).map(u16::from_be_bytes)
    }

    /// Four bytes at `offset`, big endian.
    #[inline(always)]
    pub fn be32(&self, offset: usize) -> Option<u32> {
        self.bytes(offset).map(u32::from_be_bytes)
    }

    /// Eight bytes at `offset`, big endian.
    #[inline(always)]
    pub fn be64(&self, offset: usize) -> Option<u64> {
        self.bytes(offset).map(u64::from_be_bytes)
    }

    #[inline(always)]
    fn at<const N: usize>(&self, offset: usize) -> Option<*mut [u8; N]> {
        let start = self.start + offset;
        if start + N > self.end {
            return None;
        }
        Some(start as *mut [u8; N])
    }
}

impl Load for Packet {
    #[inline(always)]
    fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    fn bytes<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let at = self.at::<N>(offset)?;
        // SAFETY: `at` checked that the bytes are within the packet, which the kernel keeps in
        // place while the program runs.
        Some(unsafe { load(at) })
    }
}

/// Loads of words, which LLVM would put together of bytes because packets are not aligned. The kernel does not mind.
///
/// # Safety
/// The bytes are there.
#[inline(always)]
unsafe fn load<const N: usize>(at: *const [u8; N]) -> [u8; N] {
    // SAFETY: by the caller; types of the same size.
    unsafe {
        match N {
            16 => {
                let (first, second): (u64, u64);
                asm!("{} = *(u64 *)({} + 0)", out(reg) first, in(reg) at, options(readonly, nostack));
                asm!("{} = *(u64 *)({} + 8)", out(reg) second, in(reg) at, options(readonly, nostack));
                core::mem::transmute_copy(&[first, second])
            }
            8 => {
                let word: u64;
                asm!("{} = *(u64 *)({} + 0)", out(reg) word, in(reg) at, options(readonly, nostack));
                core::mem::transmute_copy(&word)
            }
            4 => {
                let word: u64;
                asm!("{} = *(u32 *)({} + 0)", out(reg) word, in(reg) at, options(readonly, nostack));
                core::mem::transmute_copy(&(word as u32))
            }
            2 => {
                let word: u64;
                asm!("{} = *(u16 *)({} + 0)", out(reg) word, in(reg) at, options(readonly, nostack));
                core::mem::transmute_copy(&(word as u16))
            }
            _ => *at,
        }
    }
}

/// Stores of words, likewise.
///
/// # Safety
/// There is room for the bytes.
#[inline(always)]
unsafe fn save<const N: usize>(at: *mut [u8; N], bytes: [u8; N]) {
    // SAFETY: by the caller; types of the same size.
    unsafe {
        match N {
            16 => {
                let [first, second]: [u64; 2] = core::mem::transmute_copy(&bytes);
                asm!("*(u64 *)({} + 0) = {}", in(reg) at, in(reg) first, options(nostack));
                asm!("*(u64 *)({} + 8) = {}", in(reg) at, in(reg) second, options(nostack));
            }
            8 => {
                let word: u64 = core::mem::transmute_copy(&bytes);
                asm!("*(u64 *)({} + 0) = {}", in(reg) at, in(reg) word, options(nostack));
            }
            4 => {
                let word: u32 = core::mem::transmute_copy(&bytes);
                let word = u64::from(word);
                asm!("*(u32 *)({} + 0) = {}", in(reg) at, in(reg) word, options(nostack));
            }
            2 => {
                let word: u16 = core::mem::transmute_copy(&bytes);
                let word = u64::from(word);
                asm!("*(u16 *)({} + 0) = {}", in(reg) at, in(reg) word, options(nostack));
            }
            _ => *at = bytes,
        }
    }
}

impl Store for Packet {
    #[inline(always)]
    fn store<const N: usize>(&mut self, offset: usize, bytes: [u8; N]) -> Option<()> {
        let at = self.at::<N>(offset)?;
        // SAFETY: as in `Load::bytes`; nothing borrows bytes of the packet longer than a statement takes.
        unsafe { save(at, bytes) };
        Some(())
    }
}
