//! The inner invariants, checked in tests and fuzzing.

use super::Reassembler;
use super::list::NIL;

impl Reassembler {
    /// Checks the inner invariants, in time proportional to the limits: for tests and fuzzing.
    ///
    /// # Errors
    /// Names the invariant that does not hold.
    #[doc(hidden)]
    pub fn audit(&self) -> Result<(), &'static str> {
        self.packets.audit()?;
        self.held.audit()?;
        self.streams.audit()?;
        let (mut pending, mut held) = (0, 0);
        for (_, stream) in self.streams.iter_open() {
            held += stream.held.count_ones() as usize;
            if stream.is_held(stream.next) {
                return Err("a frame is held though it is next");
            }
            let packet = stream.pending;
            if packet.buffer != NIL {
                pending += 1;
            }
            if packet.len != 0 && packet.have >= packet.len {
                return Err("a complete packet is pending");
            }
        }
        if pending != self.packets.in_use() || held != self.held.in_use() {
            return Err("a buffer belongs to no stream");
        }
        for (slot, owner) in self.held.owners_in_use() {
            let sequence = self.held_frames[slot as usize].sequence;
            if !self
                .streams
                .iter_open()
                .any(|(at, stream)| at == owner.stream && stream.is_held(sequence))
            {
                return Err("a held frame is not known to its stream");
            }
        }
        Ok(())
    }
}
