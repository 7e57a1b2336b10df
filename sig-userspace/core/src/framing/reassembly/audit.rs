//! The inner invariants, checked in tests and fuzzing.

use super::Reassembler;

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
        for (at, stream) in self.streams.iter_open() {
            held += stream.held as usize;
            if self.held_slot(at, stream.next).is_some() {
                return Err("a frame is held though it is next");
            }
            let packet = stream.pending;
            if self.packets.slot(packet.buffer).is_some() {
                pending += 1;
            }
            if packet.len != 0 && packet.have >= packet.len {
                return Err("a complete packet is pending");
            }
            if stream.marked_ahead() != stream.held {
                return Err("a stream has marked other frames than it holds");
            }
            match stream.first_held() {
                None if stream.held > 0 => return Err("a stream does not find what it holds"),
                Some(first) if self.held_slot(at, first).is_none() => {
                    return Err("a stream takes for held what is not");
                }
                _ => {}
            }
        }
        let parked = |slot: &u32| self.packets.meta(*slot).len != 0;
        pending += self.packets.in_use_slots().filter(parked).count();
        let spent = |slot: &u32| self.held.meta(*slot).spent;
        held += self.held.in_use_slots().filter(spent).count();
        if pending != self.packets.in_use() || held != self.held.in_use() {
            return Err("a buffer belongs to no stream");
        }
        for slot in self.held.in_use_slots().filter(|slot| !spent(slot)) {
            let (owner, frame) = (self.held.owner(slot), self.held.meta(slot));
            if self.held_slot(owner.stream, frame.sequence) != Some(slot) {
                return Err("a held frame is not known to its stream");
            }
        }
        Ok(())
    }
}
