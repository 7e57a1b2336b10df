//! What both directions of a worker work with during one batch.

use sig_common::{
    reason::DropReason,
    wire::{ethernet, inner::InnerPacket},
};

use super::{
    counters::WorkerCounters,
    icmp::{self, Message, RateLimit},
    inner,
    tables::Tables,
};
use crate::fast_path::teacher::Teacher;
use crate::port::umem::{Area, Frame, FreeList, HEADROOM};
use crate::tap::{Look, Point};

/// Borrowed for one batch.
pub(super) struct Context<'a> {
    /// Monotonic time, nanoseconds.
    pub(super) now: u64,
    /// Number of the worker.
    pub(super) worker: usize,
    /// See [`super::WorkerConfig::clamp_mss`].
    pub(super) clamp_mss: bool,
    /// Tells the XDP programs what was decided, if there are any.
    pub(super) teacher: Option<&'a mut Teacher>,
    pub(super) tables: &'a Tables,
    pub(super) area: &'a Area,
    pub(super) free: &'a mut FreeList,
    pub(super) counters: &'a WorkerCounters,
    /// Who watches, if anybody does, and where the packets at hand came in.
    pub(super) look: Option<&'a Look>,
    pub(super) point: Point,
    /// Finished frames for the underlay.
    pub(super) to_underlay: &'a mut Vec<Frame>,
    /// Finished Ethernet frames for the tunnel port.
    pub(super) to_tunnel: &'a mut Vec<Frame>,
    /// Finished Ethernet frames for each LAN interface.
    pub(super) to_lan: &'a mut [Option<Vec<Frame>>],
}

impl Context<'_> {
    /// Whether packets can be sent through this LAN interface.
    #[inline]
    pub(super) fn is_open(&self, lan: u16) -> bool {
        self.to_lan
            .get(usize::from(lan))
            .is_some_and(Option::is_some)
    }

    /// Keeps a TCP connection from agreeing on segments that do not fit, if that is wanted.
    #[inline]
    pub(super) fn clamp_mss(&self, bytes: &mut [u8], packet: &InnerPacket, capacity: usize) {
        if self.clamp_mss && inner::clamp_mss(bytes, packet, capacity) {
            self.counters.mss_clamped.add(1);
        }
    }

    /// Tells the sender of the packet that `frame` holds what is wrong with it, by way of the kernel.
    pub(super) fn tell_sender(
        &mut self,
        limit: &mut RateLimit,
        message: Message,
        frame: &Frame,
        packet: &InnerPacket,
    ) {
        if !limit.allow(self.now) {
            return;
        }
        let Some(mut answer) = self.free.take() else {
            return;
        };
        let start = HEADROOM + ethernet::HEADER_LEN;
        let room = &mut answer.chunk_mut(self.area)[start..];
        let original = frame.bytes(self.area);
        match icmp::error(message, &self.tables.icmp, original, packet, room) {
            Some(len) => {
                answer.place(HEADROOM, ethernet::HEADER_LEN + len);
                let macs = &self.tables.tunnel_macs;
                inner::write_ethernet(answer.bytes_mut(self.area), macs, packet);
                self.counters.icmp_sent.add(1);
                self.to_tunnel.push(answer);
            }
            None => self.free.put(answer),
        }
    }

    /// Counts a dropped IP packet and frees its chunk.
    #[inline]
    pub(super) fn discard(&mut self, frame: Frame, reason: DropReason) {
        self.drop(frame, reason, false);
    }

    /// The same for an Ethernet frame.
    #[inline]
    pub(super) fn discard_frame(&mut self, frame: Frame, reason: DropReason) {
        self.drop(frame, reason, true);
    }

    #[inline]
    fn drop(&mut self, frame: Frame, reason: DropReason, is_ethernet: bool) {
        if let Some(look) = self.look {
            let bytes = frame.bytes(self.area);
            look.drop(self.tables, self.point, reason, bytes, is_ethernet);
        }
        self.counters.drop(reason);
        self.free.put(frame);
    }

    /// Counts a dropped IP packet that is in no chunk of its own.
    pub(super) fn discard_copy(&self, packet: &[u8], reason: DropReason) {
        if let Some(look) = self.look {
            look.drop(self.tables, self.point, reason, packet, false);
        }
        self.counters.drop(reason);
    }
}
