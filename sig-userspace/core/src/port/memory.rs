//! Ports in memory: for tests, simulations and for embedding the engine behind other packet I/O.

use std::{
    collections::VecDeque,
    io,
    os::fd::RawFd,
    sync::{Arc, Mutex, PoisonError},
};

use super::{
    BATCH, Port,
    umem::{Area, Frame, FreeList, HEADROOM, JUMBO_SIZE},
};

type Wire = Arc<Mutex<VecDeque<Vec<u8>>>>;

/// A port whose other end is a [`MemoryWire`].
///
/// Packets are copied between the wire and the worker's UMEM, as a network card would.
pub struct MemoryPort {
    incoming: Wire,
    outgoing: Wire,
    received: Vec<Frame>,
    sent: Vec<Frame>,
    ring: usize,
}

/// The far end of a [`MemoryPort`]: what the network sees.
#[derive(Clone)]
pub struct MemoryWire {
    to_port: Wire,
    from_port: Wire,
}

/// A port with rings of `ring` frames and the wire at its other end.
pub fn pair(ring: usize) -> (MemoryPort, MemoryWire) {
    let (to_port, from_port) = (Wire::default(), Wire::default());
    let port = MemoryPort {
        incoming: to_port.clone(),
        outgoing: from_port.clone(),
        received: Vec::with_capacity(ring),
        sent: Vec::with_capacity(ring),
        ring,
    };
    (port, MemoryWire { to_port, from_port })
}

fn lock(wire: &Wire) -> std::sync::MutexGuard<'_, VecDeque<Vec<u8>>> {
    wire.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryWire {
    /// Sends an Ethernet frame to the port. Frames longer than the memory can hold are dropped, as a
    /// card drops what exceeds its MTU.
    pub fn send(&self, frame: &[u8]) {
        if frame.len() <= JUMBO_SIZE - HEADROOM {
            lock(&self.to_port).push_back(frame.to_vec());
        }
    }

    /// The next frame that the port transmitted.
    pub fn receive(&self) -> Option<Vec<u8>> {
        lock(&self.from_port).pop_front()
    }
}

impl Port for MemoryPort {
    fn receive(&mut self, into: &mut Vec<Frame>) -> usize {
        let count = self.received.len().min(BATCH);
        into.extend(self.received.drain(..count));
        count
    }

    fn transmit(&mut self, frames: &mut Vec<Frame>) {
        let room = self.ring - self.sent.len();
        self.sent.extend(frames.drain(..room.min(frames.len())));
    }

    fn service(&mut self, area: &Area, free: &mut FreeList) -> io::Result<()> {
        {
            let mut wire = lock(&self.outgoing);
            for frame in self.sent.drain(..) {
                wire.push_back(frame.bytes(area).to_vec());
                free.put(frame);
            }
        }
        let mut wire = lock(&self.incoming);
        while self.received.len() < self.ring && !wire.is_empty() {
            let Some(bytes) = wire.front() else { break };
            if HEADROOM + bytes.len() > area.largest_frame() {
                wire.pop_front();
                continue;
            }
            let Some(mut frame) = free.take_for(bytes.len()) else {
                break;
            };
            frame.place(HEADROOM, bytes.len());
            frame.bytes_mut(area).copy_from_slice(bytes);
            wire.pop_front();
            self.received.push(frame);
        }
        Ok(())
    }

    fn give_up(&mut self, _: &Area, free: &mut FreeList) {
        for frame in self.received.drain(..).chain(self.sent.drain(..)) {
            free.put(frame);
        }
    }

    fn fd(&self) -> Option<RawFd> {
        None
    }

    fn is_transmitting(&self) -> bool {
        !self.sent.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_cross_in_order_and_chunks_come_back() {
        let (area, pool) = Area::on_heap(64);
        let mut free = FreeList::new(pool.clone(), 128);
        let (mut port, wire) = pair(8);
        for n in 0..20u8 {
            wire.send(&[n; 60]);
        }
        let mut seen = Vec::new();
        let mut batch = Vec::new();
        while seen.len() < 20 {
            port.service(&area, &mut free).expect("memory never fails");
            port.receive(&mut batch);
            port.transmit(&mut batch);
            port.service(&area, &mut free).expect("memory never fails");
            seen.extend(std::iter::from_fn(|| wire.receive()).map(|frame| frame[0]));
        }
        assert_eq!(seen, (0..20).collect::<Vec<u8>>());
        assert!(batch.is_empty());
        drop(free);
        assert_eq!(pool.len(), 64);
    }
}
