//! Streams whose expected frames are received elsewhere for a while: by the XDP program, which
//! takes frames of one whole packet with the next number and hands over all others.

use sig_common::reason::DropReason;

use super::line::PAST;
use super::unpack::abandon;
use super::{Piece, Reassembler, StreamKey};

impl Reassembler {
    /// The next number of a stream that another receiver can go on with, as nothing waits for it:
    /// no frame is held, no packet lacks its end, no other line may have frames ahead. Only a
    /// proven stream, as others come and go.
    ///
    /// Numbers that were given up, parts of packets that are kept for them, and lines that stopped
    /// behind, as after many frames were lost at once, are no obstacle: none of them has to do with
    /// the frames from `next` on. They are late here, whoever goes on.
    ///
    /// Costs three looks at the line of the last frame; one at the table of streams, if it is
    /// settled.
    #[inline]
    #[must_use]
    pub fn settled(&self, key: StreamKey) -> Option<u64> {
        let packed = key.pack();
        let at = if self.streams.packed(self.last) == packed {
            self.last
        } else {
            self.streams.any_of(packed)?
        };
        let line = self.streams.get(at);
        let idle = line.rank >= 2 && line.held == 0 && line.pending.len == 0;
        (idle && self.streams.leads(at)).then_some(line.next)
    }

    /// The frames of a stream before `next` that no line has taken in yet were received, and
    /// delivered, elsewhere. To be called before the next frame of the stream comes here; and now
    /// and then in between, so that the stream is not forgotten, nor gives way, as idle.
    ///
    /// A stream that was forgotten begins again at `next`, if it can, and then refuses what is
    /// before: nobody knows what was late there. Nothing happens if `next` is not ahead.
    ///
    /// What a line holds before `next`, which is a mistake of the other's, is delivered.
    pub fn resume<F: FnMut(StreamKey, Piece<'_>, bool)>(
        &mut self,
        now: u64,
        key: StreamKey,
        next: u64,
        mut deliver: F,
    ) {
        self.tally.begin();
        let packed = key.pack();
        let line = if self.streams.any_of(packed).is_some() {
            self.streams.nearest_behind(packed, next)
        } else {
            self.open(now, packed, next.wrapping_sub(PAST), &mut deliver)
        };
        let Some(at) = line else { return };
        loop {
            let line = self.streams.get_mut(at);
            let missing = next.wrapping_sub(line.next);
            if missing == 0 || line.is_behind(next) {
                break;
            }
            let held = line.first_held().map(|held| held.wrapping_sub(line.next));
            let pending = &mut line.pending;
            if abandon(pending, &mut self.packets) {
                self.tally.discard(DropReason::FrameGap);
            }
            line.receive(held.unwrap_or(missing).clamp(1, missing));
            line.delivered = true;
            self.release(now, at, &mut deliver);
        }
        self.streams.touch(at, now);
    }
}
