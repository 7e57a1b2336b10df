//! Where each packet goes: the sender's decisions, apart from the bytes.
//!
//! The engine builds frames in place, in the chunk the packet arrived in; the
//! [`Encoder`](super::Encoder) builds them in a buffer. Both ask the same [`Packer`].

use core::ops::Range;

use super::NO_START;

/// A packet starts in a frame only if at least this many payload bytes are left, so that the
/// fixed header of the packet is never split.
pub const MIN_START: usize = 40;
/// Smallest payload capacity of a frame: below it no packet could start anywhere.
/// (Reference senders refuse paths that leave less than 41.)
pub const MIN_CAPACITY: usize = MIN_START;
/// Largest payload capacity of a frame: what fits a UDP datagram beside the frame header.
pub const MAX_CAPACITY: usize = 65_511;
/// A packet spans at most this many frames; reference receivers give up beyond.
pub const MAX_FRAMES_PER_PACKET: usize = 100;

/// The capacity given for the payload of a frame cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a frame payload of {0} bytes: must be {MIN_CAPACITY} to {MAX_CAPACITY}, choose a path with a suitable MTU"
)]
pub struct CapacityError(pub usize);

/// The packet would need more than [`MAX_FRAMES_PER_PACKET`] frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a packet of {0} bytes needs more than {MAX_FRAMES_PER_PACKET} frames")]
pub struct TooLong(pub usize);

/// A frame that is ready to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The index of its header.
    pub index: u16,
    /// Payload bytes in it, at least 1.
    pub len: usize,
}

/// Where a packet goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Whole, into the open frame, at this payload offset, behind what is there.
    Append {
        /// Payload offset, more than 0.
        offset: usize,
    },
    /// Whole, at the front of a new frame.
    Fresh {
        /// The frame that was open and is now to be sent, before the new one.
        closed: Option<Closed>,
    },
    /// Larger than a frame: in parts.
    Split(Parts),
}

/// One part of a split packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The frame to be sent before this part is written into a new one; `None`: this part goes
    /// into the frame that is open.
    pub closed: Option<Closed>,
    /// Payload offset of the part in its frame; 0 in all frames but the first.
    pub offset: usize,
    /// The bytes of the packet that belong there.
    pub range: Range<usize>,
}

/// The parts of a split packet, in order. All must be written: the [`Packer`] counts the last
/// part's frame as open already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    capacity: usize,
    len: usize,
    done: usize,
    offset: usize,
    /// What to send before the next part.
    closed: Option<Closed>,
    /// Index of the frame that the next part goes into.
    index: u16,
}

impl Iterator for Parts {
    type Item = Part;

    fn next(&mut self) -> Option<Part> {
        if self.done == self.len {
            return None;
        }
        let end = self.len.min(self.done + self.capacity - self.offset);
        let part = Part {
            closed: self.closed.take(),
            offset: self.offset,
            range: self.done..end,
        };
        self.closed = Some(Closed {
            index: self.index,
            len: self.capacity,
        });
        (self.done, self.offset, self.index) = (end, 0, NO_START);
        Some(part)
    }
}

/// The frame of one stream that is being filled.
///
/// Packets that wait anyway share a frame; a packet is split only if it is larger than a frame,
/// since splitting means copying.
#[derive(Clone, Debug)]
pub struct Packer {
    capacity: usize,
    used: usize,
    index: u16,
}

impl Packer {
    /// `capacity`: payload bytes of a frame, without the 16-byte header.
    ///
    /// # Errors
    /// If the capacity is outside [`MIN_CAPACITY`]`..=`[`MAX_CAPACITY`].
    pub fn new(capacity: usize) -> Result<Self, CapacityError> {
        if (MIN_CAPACITY..=MAX_CAPACITY).contains(&capacity) {
            Ok(Self {
                capacity,
                used: 0,
                index: NO_START,
            })
        } else {
            Err(CapacityError(capacity))
        }
    }

    /// Payload bytes of a full frame.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Payload bytes in the open frame; 0: no frame is open.
    #[must_use]
    pub const fn used(&self) -> usize {
        self.used
    }

    /// Whether nothing can be added to the open frame any more.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.capacity - self.used < MIN_START
    }

    /// The longest packet that can be sent whatever the state of the open frame, bytes.
    #[must_use]
    pub const fn max_packet(&self) -> usize {
        self.capacity * MAX_FRAMES_PER_PACKET
    }

    /// Decides where a packet of `len` bytes (a valid IP packet, so at least 20) goes and counts
    /// it as written.
    ///
    /// # Errors
    /// [`TooLong`]; nothing has changed then.
    #[inline]
    pub fn place(&mut self, len: usize) -> Result<Placement, TooLong> {
        let room = self.capacity - self.used;
        if len > self.capacity {
            return self.split(len).map(Placement::Split);
        }
        if self.used > 0 && len <= room && room >= MIN_START {
            let offset = self.used;
            if self.index == NO_START {
                self.index = offset as u16;
            }
            self.used += len;
            return Ok(Placement::Append { offset });
        }
        let closed = self.close();
        (self.used, self.index) = (len, 0);
        Ok(Placement::Fresh { closed })
    }

    fn split(&mut self, len: usize) -> Result<Parts, TooLong> {
        let frames = |offset: usize| (offset + len).div_ceil(self.capacity);
        if frames(0) > MAX_FRAMES_PER_PACKET {
            return Err(TooLong(len));
        }
        let here = !self.is_full() && frames(self.used) <= MAX_FRAMES_PER_PACKET;
        let closed = if here { None } else { self.close() };
        if self.index == NO_START {
            self.index = self.used as u16;
        }
        let parts = Parts {
            capacity: self.capacity,
            len,
            done: 0,
            offset: self.used,
            closed,
            index: self.index,
        };
        self.used = (self.used + len - 1) % self.capacity + 1;
        self.index = NO_START;
        Ok(parts)
    }

    /// Ends the open frame, if there is one: nothing more waits, or it is full.
    #[inline]
    pub fn close(&mut self) -> Option<Closed> {
        let closed = Closed {
            index: self.index,
            len: self.used,
        };
        (self.used, self.index) = (0, NO_START);
        (closed.len > 0).then_some(closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packer(capacity: usize) -> Packer {
        Packer::new(capacity).expect("a valid capacity")
    }

    /// (Index and length of the frame closed before, offset, bytes) of each part.
    type Told = (Option<(u16, usize)>, usize, Range<usize>);

    fn parts(placement: Placement) -> Vec<Told> {
        let Placement::Split(parts) = placement else {
            panic!("not split: {placement:?}")
        };
        parts
            .map(|p| (p.closed.map(|c| (c.index, c.len)), p.offset, p.range))
            .collect()
    }

    #[test]
    fn packets_that_fit_share_a_frame() {
        let mut packer = packer(300);
        assert_eq!(packer.place(100), Ok(Placement::Fresh { closed: None }));
        assert_eq!(packer.place(100), Ok(Placement::Append { offset: 100 }));
        assert_eq!(packer.place(100), Ok(Placement::Append { offset: 200 }));
        assert!(packer.is_full());
        assert_eq!(packer.close(), Some(Closed { index: 0, len: 300 }));
        assert_eq!(packer.close(), None);
    }

    #[test]
    fn a_packet_that_fits_an_empty_frame_is_not_split() {
        let mut packer = packer(300);
        packer.place(200).unwrap();
        let closed = Some(Closed { index: 0, len: 200 });
        assert_eq!(packer.place(101), Ok(Placement::Fresh { closed }));
    }

    #[test]
    fn a_short_packet_needs_40_free_bytes_like_any_other() {
        let mut packer = packer(100);
        packer.place(60).unwrap();
        assert_eq!(packer.place(20), Ok(Placement::Append { offset: 60 }));
        let closed = Some(Closed { index: 0, len: 80 });
        assert_eq!(packer.place(20), Ok(Placement::Fresh { closed }));
    }

    #[test]
    fn a_packet_larger_than_a_frame_is_split_from_an_empty_frame() {
        let mut packer = packer(100);
        let placement = packer.place(250).unwrap();
        assert_eq!(
            parts(placement),
            [
                (None, 0, 0..100),
                (Some((0, 100)), 0, 100..200),
                (Some((NO_START, 100)), 0, 200..250),
            ]
        );
        assert_eq!(packer.used(), 50);
        assert_eq!(packer.place(40), Ok(Placement::Append { offset: 50 }));
        assert_eq!(packer.close(), Some(Closed { index: 50, len: 90 }));
    }

    #[test]
    fn a_split_packet_starts_in_the_open_frame_if_40_bytes_are_left() {
        let mut packer = packer(100);
        packer.place(60).unwrap();
        let placement = packer.place(120).unwrap();
        assert_eq!(
            parts(placement),
            [(None, 60, 0..40), (Some((0, 100)), 0, 40..120)]
        );
        assert_eq!(
            packer.close(),
            Some(Closed {
                index: NO_START,
                len: 80
            })
        );
        packer.place(61).unwrap();
        let placement = packer.place(120).unwrap();
        assert_eq!(
            parts(placement),
            [(Some((0, 61)), 0, 0..100), (Some((0, 100)), 0, 100..120)]
        );
    }

    #[test]
    fn a_frame_with_a_tail_and_a_head_has_the_head_as_index() {
        let mut packer = packer(100);
        packer.place(130).unwrap();
        let placement = packer.place(130).unwrap();
        assert_eq!(
            parts(placement),
            [(None, 30, 0..70), (Some((30, 100)), 0, 70..130)]
        );
    }

    #[test]
    fn a_tail_may_fill_its_frame_exactly() {
        let mut packer = packer(100);
        let placement = packer.place(200).unwrap();
        assert_eq!(parts(placement).len(), 2);
        assert_eq!(packer.used(), 100);
        let closed = Some(Closed {
            index: NO_START,
            len: 100,
        });
        assert_eq!(packer.place(20), Ok(Placement::Fresh { closed }));
    }

    #[test]
    fn a_packet_spans_at_most_100_frames() {
        let mut packer = packer(41);
        assert_eq!(packer.place(4101), Err(TooLong(4101)));
        assert_eq!(packer.used(), 0);
        assert_eq!(parts(packer.place(4100).unwrap()).len(), 100);

        let mut packer = Packer::new(100).unwrap();
        packer.place(50).unwrap();
        let all = parts(packer.place(10_000).unwrap());
        assert_eq!(all.len(), 100, "starting behind 50 bytes would take 101");
        assert_eq!(all[0], (Some((0, 50)), 0, 0..100));
    }

    #[test]
    fn impossible_capacities_are_refused() {
        assert_eq!(Packer::new(39).err(), Some(CapacityError(39)));
        assert!(Packer::new(MIN_CAPACITY).is_ok());
        assert!(Packer::new(MAX_CAPACITY).is_ok());
        assert!(Packer::new(MAX_CAPACITY + 1).is_err());
    }
}
