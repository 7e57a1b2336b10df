//! A receiver with two honest remotes behind a network that loses, repeats and reorders, and two
//! hostile ones that send anything: memory stays within the limits, what honest streams deliver was
//! sent, and is delivered once, and they still deliver at the end. Whole packets come on the
//! streams of honest senders, too, with numbers at which a line of a stream does something else.
//! Another receiver goes on with streams that are settled, and may say anything of how far it is.

use sig_common::reason::DropReason;
use sig_core::framing::{
    Encoder, FrameRef, FrameView, Limits, MIN_CAPACITY, Occupancy, Outcome, Piece, Reassembler,
    StreamKey, packet_len,
};

const SENDERS: usize = 4;
/// More than all steps together can take.
const IDLE_TIMEOUT: u64 = 1 << 44;
const STEPS: usize = 2_000;
/// Sequence numbers before the next one that are remembered.
const PAST: u64 = 1_984;
/// Distances from the highest number of a stream at which frames are forged.
const DISTANCES: [u64; 14] = [
    0,
    1,
    2,
    20,
    63,
    64,
    65,
    130,
    1_000,
    1_983,
    1_985,
    2_047,
    2_049,
    1 << 40,
];
/// The source of forged packets on the streams of others.
const FORGED: u32 = u32::MAX;
/// Frames overtake fewer others than make a new line of a stream.
const OVERTAKES: usize = 60;

/// Reads a plan from `data` and runs it.
///
/// # Panics
/// If the reassembly breaks a promise.
pub(crate) fn run(data: &[u8]) {
    let mut plan = Plan(data);
    let mut run = Run::new(&mut plan);
    for step in 0..STEPS {
        if plan.0.is_empty() {
            break;
        }
        run.step(&mut plan);
        // Slow, so not every time.
        if step.is_multiple_of(16) {
            assert_eq!(run.receiver.audit(), Ok(()));
        }
    }
    run.finish();
}

struct Plan<'a>(&'a [u8]);

impl<'a> Plan<'a> {
    fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    fn number(&mut self) -> u16 {
        u16::from(self.byte()) << 8 | u16::from(self.byte())
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

struct Sender {
    key: StreamKey,
    encoder: Encoder,
    sent: Vec<Vec<u8>>,
    delivered: Vec<bool>,
    /// The highest number that was taken in.
    top: u64,
    /// Frames forged on its stream.
    forged: u64,
    /// A frame came that may have been forgotten.
    blurred: bool,
    /// The next number, while the other receiver has the stream.
    elsewhere: Option<u64>,
    /// The other receiver may have claimed frames that are yet to be sent.
    lied: bool,
}

impl Sender {
    /// Whether what comes may come again without being noticed: lines that gave way are
    /// forgotten, and what is behind others further than is remembered.
    fn arrives(&mut self, sequence: u64, evicted: u64) {
        if sequence.wrapping_sub(self.top) <= u64::MAX / 2 {
            let jump = sequence.wrapping_sub(self.top);
            self.blurred |= self.forged > 0 && jump > PAST && self.top > 0;
            self.top = sequence;
        }
        let behind = self.top.wrapping_sub(sequence);
        self.blurred |= self.forged > 0 && (evicted > 0 || behind > PAST);
    }
}

struct Run {
    now: u64,
    limits: Limits,
    receiver: Reassembler,
    senders: Vec<Sender>,
    /// There is another receiver.
    shared: bool,
    /// Frames on their way, with the number of the sender.
    network: Vec<(usize, Vec<u8>)>,
}

impl Run {
    fn new(plan: &mut Plan<'_>) -> Self {
        let (max_packet, max_payload) = (plan.byte(), plan.byte());
        let limits = Limits {
            max_packet: if max_packet.is_multiple_of(2) {
                4_000
            } else {
                300
            },
            max_frame_payload: if max_payload.is_multiple_of(4) {
                100
            } else {
                1_500
            },
            reorder_frames: usize::from(plan.byte()) * 8,
            remotes: 4,
            streams_total: 36,
            streams_per_remote: 9,
            packets_total: 8,
            packets_per_remote: 2,
            held_total: 80,
            held_per_remote: usize::from(plan.byte() % 80),
            idle_timeout_ns: IDLE_TIMEOUT,
            ..Limits::default()
        };
        let senders = (0..SENDERS)
            .map(|n| {
                let key = StreamKey {
                    remote: n as u16 % 2,
                    src_port: 1,
                    session: 0,
                    stream: n as u32,
                };
                let capacity = MIN_CAPACITY + usize::from(plan.number() % 1_400);
                let encoder = Encoder::new(0, n as u32, capacity).expect("a valid capacity");
                Sender {
                    key,
                    encoder,
                    sent: Vec::new(),
                    delivered: Vec::new(),
                    top: 0,
                    forged: 0,
                    blurred: false,
                    elsewhere: None,
                    lied: false,
                }
            })
            .collect();
        Self {
            now: 0,
            receiver: Reassembler::new(limits, 1).expect("valid limits"),
            limits,
            senders,
            shared: max_packet & 2 != 0,
            network: Vec::new(),
        }
    }

    fn step(&mut self, plan: &mut Plan<'_>) {
        match plan.byte() % 16 {
            0..=3 => self.send(plan),
            4 => self.flush(usize::from(plan.byte()) % SENDERS),
            5..=7 => self.arrive(0, true),
            8 => self.arrive(usize::from(plan.byte()), true),
            9 => self.arrive(usize::from(plan.byte()), false),
            10 if !self.network.is_empty() => {
                let lost = usize::from(plan.byte()) % self.network.len();
                self.network.remove(lost);
            }
            11 => self.wait(u64::from(plan.byte()) << 23),
            12 => self.wait(u64::from(plan.byte()) << 13),
            13 => {
                let hostile = 2 + u16::from(plan.byte() % 3);
                self.receiver
                    .forget_remote(self.now, hostile, |key, piece, _| {
                        assert_eq!(key.remote, hostile);
                        assert!(matches!(piece, Piece::Assembled(_)));
                    });
            }
            14 => self.forge(plan),
            _ => self.attack(plan),
        }
    }

    fn send(&mut self, plan: &mut Plan<'_>) {
        let sender = usize::from(plan.byte()) % SENDERS;
        let Sender {
            encoder,
            sent,
            delivered,
            ..
        } = &mut self.senders[sender];
        let number = (sent.len() as u32).to_be_bytes();
        let kind = plan.byte();
        let len = 20 + usize::from(plan.number() % 2_500);
        let mut packet = vec![kind; if kind < 128 { len } else { 20 + len }];
        let len = packet.len() as u16;
        if kind < 128 {
            packet[0] = 0x45;
            packet[2..4].copy_from_slice(&len.to_be_bytes());
            packet[12..16].copy_from_slice(&number);
        } else {
            packet[0] = 0x60;
            packet[4..6].copy_from_slice(&(len - 40).to_be_bytes());
            packet[8..12].copy_from_slice(&number);
        }
        let network = &mut self.network;
        encoder
            .push(&packet, |frame| network.push((sender, frame.to_vec())))
            .expect("a valid packet");
        sent.push(packet);
        delivered.push(false);
        if kind.is_multiple_of(2) {
            self.flush(sender);
        }
    }

    fn flush(&mut self, sender: usize) {
        let network = &mut self.network;
        self.senders[sender]
            .encoder
            .flush(|frame| network.push((sender, frame.to_vec())));
    }

    fn arrive(&mut self, position: usize, remove: bool) {
        if self.network.is_empty() {
            return;
        }
        let position = position % self.network.len().min(OVERTAKES);
        let (sender, frame) = if remove {
            self.network.remove(position)
        } else {
            self.network[position].clone()
        };
        let view = FrameView::new_checked(&frame).expect("an encoder makes frames");
        let frame = FrameRef {
            sequence: view.header().sequence,
            index: view.header().index,
            congestion: false,
            payload: view.payload(),
        };
        // Whose frames give way to this one's is told with it: they are of the same remote.
        let remote = self.senders[sender].key.remote;
        let mut neighbours = self.senders.iter().filter(|s| s.key.remote == remote);
        let attacked = neighbours.any(|sender| sender.forged > 0);
        let outcome = self.insert(sender, frame);
        assert_ne!(outcome.reason, Some(DropReason::StreamLimit));
        if !attacked {
            assert_ne!(outcome.reason, Some(DropReason::IndexMismatch));
        }
        assert_ne!(outcome.reason, Some(DropReason::FrameInvalidPacket));
    }

    /// Takes in a frame on the stream of an honest sender, here or elsewhere.
    fn insert(&mut self, at: usize, frame: FrameRef<'_>) -> Outcome {
        let sender = &mut self.senders[at];
        sender.arrives(frame.sequence, self.receiver.counters().streams_evicted);
        let key = sender.key;
        if let Some(next) = sender.elsewhere {
            let is_whole = packet_len(frame.payload) == Ok(frame.payload.len());
            let fits = frame.payload.len() <= self.limits.max_packet;
            if frame.sequence == next && frame.index == 0 && is_whole && fits {
                sender.elsewhere = Some(next.wrapping_add(1));
                delivered(&mut self.senders, &self.limits, key, frame.payload, false);
                return Outcome::default();
            }
            sender.elsewhere = None;
            self.resume(key, next);
        }
        let (senders, limits) = (&mut self.senders, &self.limits);
        let outcome = self
            .receiver
            .insert(self.now, key, frame, |of, piece, congestion| {
                assert_eq!(of.remote, key.remote, "no other remote is touched");
                let packet = bytes(&piece, frame.payload);
                delivered(senders, limits, of, packet, congestion);
            });
        if self.shared {
            self.senders[at].elsewhere = self.receiver.settled(key);
        }
        outcome
    }

    /// The other receiver says how far it is.
    fn resume(&mut self, key: StreamKey, next: u64) {
        let (senders, limits) = (&mut self.senders, &self.limits);
        self.receiver
            .resume(self.now, key, next, |of, piece, congestion| {
                assert_eq!(of.remote, key.remote, "no other remote is touched");
                assert!(matches!(piece, Piece::Assembled(_)));
                delivered(senders, limits, of, bytes(&piece, &[]), congestion);
            });
    }

    fn wait(&mut self, ns: u64) {
        self.now += ns;
        let (senders, limits) = (&mut self.senders, &self.limits);
        self.receiver.poll(self.now, |key, piece, congestion| {
            assert!(matches!(piece, Piece::Assembled(_)));
            delivered(senders, limits, key, bytes(&piece, &[]), congestion);
        });
        assert!(self.receiver.next_deadline().is_none_or(|at| at > self.now));
    }

    fn attack(&mut self, plan: &mut Plan<'_>) {
        let kind = plan.byte();
        let key = StreamKey {
            // The last one is not a number of a remote.
            remote: 2 + u16::from(kind % 3),
            src_port: 1,
            session: 0,
            stream: u32::from(kind / 3 % 8),
        };
        let sequence = u64::from(plan.byte());
        let len = usize::from(plan.byte());
        let index = plan.number();
        let frame = FrameRef {
            sequence: if kind < 250 { sequence } else { sequence << 56 },
            index: if index & 0xff00 == 0xff00 {
                0xffff
            } else {
                index % 300
            },
            congestion: true,
            payload: plan.take(len),
        };
        if self.shared && index >> 8 == 0xfe {
            self.resume(key, frame.sequence);
            return;
        }
        let (senders, limits) = (&mut self.senders, &self.limits);
        let _ = self
            .receiver
            .insert(self.now, key, frame, |of, piece, congestion| {
                assert_eq!(of.remote, key.remote, "no other remote is touched");
                delivered(
                    senders,
                    limits,
                    of,
                    bytes(&piece, frame.payload),
                    congestion,
                );
            });
    }

    /// A frame of whole packets, or a lie of the other receiver, on the stream of an honest sender.
    fn forge(&mut self, plan: &mut Plan<'_>) {
        let choice = usize::from(plan.byte());
        let (distance, kind) = (usize::from(plan.byte()), plan.byte());
        let sender = &mut self.senders[choice % SENDERS];
        let distance = DISTANCES[distance % DISTANCES.len()];
        let sequence = if kind.is_multiple_of(4) {
            sender.top.wrapping_sub(distance)
        } else {
            sender.top.wrapping_add(distance)
        };
        sender.forged += 1;
        if self.shared && kind % 4 == 3 {
            sender.arrives(sequence, self.receiver.counters().streams_evicted);
            sender.lied = true;
            let key = sender.key;
            self.resume(key, sequence);
            return;
        }
        let mut packet = [0; 20];
        packet[0] = 0x45;
        packet[3] = 20;
        packet[12..16].copy_from_slice(&FORGED.to_be_bytes());
        let packets = packet.repeat(1 + choice / 16);
        let frame = FrameRef {
            sequence,
            index: 0,
            congestion: false,
            payload: &packets,
        };
        let _ = self.insert(choice % SENDERS, frame);
    }

    /// A packet whose frames come in order is delivered, whatever was before; of a stream with
    /// forged frames, one of so many packets.
    fn still_deliver(&mut self) {
        self.network.clear();
        for sender in 0..SENDERS {
            self.flush(sender);
            while !self.network.is_empty() {
                self.arrive(0, true);
            }
            let forged = self.senders[sender].forged;
            let mut tries = (0..=2 * forged + if forged > 0 { 40 } else { 0 }).map(|_| {
                let last = self.senders[sender].sent.len();
                self.send(&mut Plan(&[sender as u8, 0, 0, 180]));
                self.flush(sender);
                while !self.network.is_empty() {
                    self.arrive(0, true);
                }
                self.wait(self.limits.reorder_wait_ns);
                self.senders[sender].delivered[last]
            });
            let delivers = tries.any(|delivered| delivered);
            assert!(delivers || self.senders[sender].lied, "silenced");
        }
    }

    fn finish(mut self) {
        let used = self.receiver.occupancy();
        assert!(used.streams <= 36 && used.packets <= 8 && used.held <= 80);
        self.still_deliver();
        // What held frames begin with is kept for a moment more.
        self.wait(2 * IDLE_TIMEOUT);
        self.wait(2 * IDLE_TIMEOUT);
        assert_eq!(self.receiver.audit(), Ok(()));
        assert_eq!(self.receiver.occupancy(), Occupancy::default());
        assert_eq!(self.receiver.next_deadline(), None);
    }
}

fn bytes<'a>(piece: &'a Piece<'_>, payload: &'a [u8]) -> &'a [u8] {
    match piece {
        Piece::InFrame(range) => &payload[range.clone()],
        Piece::Assembled(packet) => packet,
    }
}

fn delivered(
    senders: &mut [Sender],
    limits: &Limits,
    key: StreamKey,
    packet: &[u8],
    congestion: bool,
) {
    assert_eq!(packet_len(packet), Ok(packet.len()));
    assert!(packet.len() <= limits.max_packet);
    let Some(sender) = senders.iter_mut().find(|sender| sender.key == key) else {
        assert!(key.remote >= 2, "from a stream that nobody sent");
        return;
    };
    assert!(!congestion, "a mark of another stream");
    let at = if packet[0] >> 4 == 4 { 12 } else { 8 };
    let number = u32::from_be_bytes(packet[at..at + 4].try_into().expect("4 bytes"));
    if number == FORGED && sender.forged > 0 {
        return;
    }
    let number = number as usize;
    assert_eq!(packet, sender.sent[number], "not what was sent");
    let before = core::mem::replace(&mut sender.delivered[number], true);
    assert!(!before || sender.blurred, "twice");
}
