//! Generated frames: a template, and what differs from frame to frame. The same source runs in the
//! program `generate` and in user space.
//!
//! A UDP packet with a right checksum adds the same to any sum around it, whatever its contents: the
//! sum over the packet and its pseudo header is zero. So markers change no checksum but that of their
//! own packet, and the sequence number of a SIG frame none but that of UDP/SCION.

use sig_common::wire::{Store, checksum::Sum, udp};

use super::{DESTINATION_PORT, FIRST_PORT, MAGIC, MARKER_LEN, MAX_FRAME, MAX_INNER};

/// An inner packet of a template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Inner {
    /// Offset of its UDP header in the frame.
    pub udp: u16,
    /// Sum over what its UDP checksum covers, with source port, checksum, flow, sequence number and
    /// time zero.
    pub sum: u16,
    /// Its UDP length field.
    pub len: u16,
}

/// A frame as it lies in memory, without what differs from frame to frame.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Template {
    /// Bytes of the frame, at most [`MAX_FRAME`].
    pub len: u32,
    /// Bytes from its start to be written into every frame; what follows is zero, or the same in all
    /// templates.
    pub written: u32,
    /// Inner packets.
    pub packets: u32,
    /// Offset of the SIG frame header; 0 if there is none.
    pub sig: u16,
    /// Sum over what the UDP/SCION checksum covers, with checksum, stream and sequence number zero.
    pub sig_sum: u16,
    /// The inner packets.
    pub inner: [Inner; MAX_INNER],
    /// The frame.
    pub bytes: [u8; MAX_FRAME],
}

/// What a generator is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Setup {
    /// Time from one inner packet to the next, in 2^-16 ns; 0: as fast as possible.
    pub gap: u64,
    /// How far behind the generator tries to catch up, nanoseconds.
    pub catch_up: u64,
    /// Templates that take turns.
    pub templates: u32,
    /// SIG stream.
    pub stream: u32,
    /// Flows that take turns, at least 1.
    pub flows: u32,
    /// Not 0: no more is sent.
    pub stop: u32,
}

/// Where a generator stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Progress {
    /// Inner packets sent.
    pub packets: u64,
    /// When the first was sent, nanoseconds; 0: not yet.
    pub first: u64,
    /// When the next is due, nanoseconds.
    pub due: u64,
    /// Further 2^-16 ns.
    pub due_fraction: u64,
    /// Sequence number of the next SIG frame.
    pub frame: u64,
    /// Sequence number of the next packet, within its flow.
    pub packet: u64,
    /// The flow it belongs to.
    pub flow: u32,
    /// Template of the next frame.
    pub template: u32,
}

impl Setup {
    /// Whether `packets` packets are due at `now`; counts them as sent if so.
    #[inline(always)]
    pub fn take_turn(&self, progress: &mut Progress, now: u64, packets: u64) -> bool {
        if self.stop != 0 {
            return false;
        }
        if progress.first == 0 {
            progress.first = now;
            progress.due = now;
            progress.due_fraction = 0;
        }
        if self.gap != 0 {
            if now < progress.due {
                return false;
            }
            if now - progress.due > self.catch_up {
                progress.due = now - self.catch_up;
            }
            let step = self.gap * packets + progress.due_fraction;
            progress.due += step >> 16;
            progress.due_fraction = step & 0xffff;
        }
        progress.packets += packets;
        true
    }
}

impl Progress {
    /// Goes on to the next template.
    #[inline(always)]
    pub fn step(&mut self, setup: &Setup) {
        self.template += 1;
        if self.template >= setup.templates {
            self.template = 0;
        }
    }
}

/// Writes into a frame, which already holds the template, what is its own: stream and sequence number,
/// and the markers. `now` is in nanoseconds. `None` if the template does not fit the frame.
#[inline(always)]
pub fn patch<S: Store + ?Sized>(
    frame: &mut S,
    template: &Template,
    setup: &Setup,
    progress: &mut Progress,
    now: u64,
) -> Option<()> {
    let sig = usize::from(template.sig) % MAX_FRAME;
    if sig != 0 {
        let [i0, i1, i2, i3] = setup.stream.to_be_bytes();
        let [s0, s1, s2, s3, s4, s5, s6, s7] = progress.frame.to_be_bytes();
        let header = [i0, i1, i2, i3, s0, s1, s2, s3, s4, s5, s6, s7];
        frame.store(sig + 4, header)?;
        let sum = Sum::ZERO.add_u16(template.sig_sum).add_u32(setup.stream);
        let checksum = sum.add_u64(progress.frame).checksum();
        frame.store(sig - 2, checksum.to_be_bytes())?;
        progress.frame += 1;
    }
    for inner in 0..MAX_INNER {
        if inner as u32 >= template.packets {
            break;
        }
        let Inner { udp, sum, len } = template.inner[inner];
        let marker = Marker {
            flow: progress.flow as u16,
            sequence: progress.packet as u32,
            time: now,
        };
        frame.store(usize::from(udp) % MAX_FRAME, marker.encode(sum, len))?;
        progress.flow += 1;
        if progress.flow >= setup.flows {
            progress.flow = 0;
            progress.packet += 1;
        }
    }
    Some(())
}

/// What a generated packet tells its receiver.
struct Marker {
    flow: u16,
    sequence: u32,
    time: u64,
}

impl Marker {
    /// The UDP header, its length field `len`, and the marker of the packet whose checksum covers `sum`
    /// besides.
    #[inline(always)]
    fn encode(&self, sum: u16, len: u16) -> [u8; 8 + MARKER_LEN] {
        let port = FIRST_PORT.wrapping_add(self.flow);
        let sum = Sum::ZERO
            .add_u16(sum)
            .add_u16(port)
            .add_u16(self.flow)
            .add_u32(self.sequence)
            .add_u64(self.time);
        let checksum = udp::checksum(sum);
        let [p0, p1] = port.to_be_bytes();
        let [d0, d1] = DESTINATION_PORT.to_be_bytes();
        let [l0, l1] = len.to_be_bytes();
        let [c0, c1] = checksum.to_be_bytes();
        let [m0, m1] = MAGIC.to_be_bytes();
        let [f0, f1] = self.flow.to_be_bytes();
        let [s0, s1, s2, s3] = self.sequence.to_be_bytes();
        let [t0, t1, t2, t3, t4, t5, t6, t7] = self.time.to_be_bytes();
        [
            p0, p1, d0, d1, l0, l1, c0, c1, m0, m1, f0, f1, s0, s1, s2, s3, t0, t1, t2, t3, t4, t5,
            t6, t7,
        ]
    }
}

/// Writes a whole frame to the start of `out` and returns its length; `None` if it does not fit.
pub fn write(
    out: &mut [u8],
    template: &Template,
    setup: &Setup,
    progress: &mut Progress,
    now: u64,
) -> Option<usize> {
    let len = template.len as usize;
    let frame = out.get_mut(..len)?;
    frame.copy_from_slice(template.bytes.get(..len)?);
    patch(frame, template, setup, progress, now)?;
    Some(len)
}
