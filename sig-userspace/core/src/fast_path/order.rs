//! Tells the programs how far a worker has come with the packets that were handed over to it.
//!
//! A packet has left the worker when what became of it has left the transmit rings: until then, the programs must not send
//! a later one of its flow. Rings are looked at as a whole, now and then: an *epoch* ends when all that was in them at its beginning has
//! been sent.

use std::sync::{Arc, atomic::Ordering};

use sig_common::fast_path::tickets;

use super::Shared;
use crate::port::{
    Port, Progress,
    umem::{Area, Frame},
};

/// How long nothing may be sent in an epoch, nanoseconds. Some drivers tell of a transmission at the next one only.
const PATIENCE_NS: u64 = 100_000_000;
/// How long an epoch may last while something is sent, nanoseconds.
const EPOCH_NS: u64 = 1_000_000_000;
/// Longer than a packet with a ticket needs to the ring, nanoseconds, unless a hypervisor stops the CPU meanwhile.
const ON_THE_WAY_NS: u64 = 5_000_000;
/// Periods of [`ON_THE_WAY_NS`] that are longer than that.
const STOPPED: u32 = 20;
/// First wait for the end of an epoch, nanoseconds.
const FIRST_WAIT_NS: u64 = 30_000;

/// The tickets of one worker.
pub struct Order {
    shared: Arc<Shared>,
    clock: Clock,
    sockets: Vec<Socket>,
    epoch: Option<Epoch>,
    /// Per port, how many frames are not expected to be completed.
    written_off: Vec<u64>,
}

/// Time in which the worker ran: however long it was stopped between two looks, [`ON_THE_WAY_NS`] count. What it does after a look is
/// nevertheless dated to it.
#[derive(Default)]
struct Clock {
    looked: u64,
    passed: u64,
}

impl Clock {
    fn look(&mut self, now: u64) -> u64 {
        self.passed += now.saturating_sub(self.looked).min(ON_THE_WAY_NS);
        self.looked = now;
        self.passed
    }
}

/// A socket whose packets have tickets.
struct Socket {
    number: u32,
    /// Of the packet received last.
    seen: u64,
    /// The last one that the current epoch is about.
    asked: u64,
    /// As told to the programs.
    taken: u64,
    /// The ticket that it had given last when nothing waited in it before.
    looked: u64,
    period: Period,
}

/// A while, [`ON_THE_WAY_NS`] or more, after which what was given before should have come.
struct Period {
    began: u64,
    /// The ticket given last before.
    given: u64,
    /// So many have ended without it.
    missed: u32,
    /// Packets that the socket had lost when the period before the one before began, when the one before did, and when this one did.
    /// What was given last before may have been lost during any of them.
    lost: (u64, u64, u64),
}

/// Looks at the frames of a port that are not expected to be completed: if fewer are in flight, at least some had only been delayed.
fn look_after(written_off: &mut u64, port: &dyn Port) {
    let Progress { sent, completed } = port.progress();
    if sent.saturating_sub(completed) < *written_off {
        *written_off = 0;
    }
}

struct Epoch {
    began: u64,
    /// What each port has to complete.
    goals: Vec<u64>,
    /// How much of that was missing at the last look, in all, and since when.
    missing: (u64, u64),
    wait: u64,
}

impl Order {
    /// Nothing has been received.
    #[must_use]
    pub fn new(shared: Arc<Shared>) -> Self {
        Order {
            shared,
            clock: Clock::default(),
            sockets: Vec::new(),
            epoch: None,
            written_off: Vec::new(),
        }
    }

    /// From now on the worker sends through other ports than before, and has these sockets no more. What it sent through ports that are gone is
    /// not waited for.
    pub fn change_ports(&mut self, gone: impl Iterator<Item = u32>) {
        for gone in gone {
            self.sockets.retain(|socket| socket.number != gone);
        }
        if self.epoch.take().is_some() {
            // What it was about is for the next one, which begins at once.
            for socket in &mut self.sockets {
                socket.asked = 0;
            }
        }
        self.written_off.clear();
    }

    /// The ticket that a socket gave last: to be asked before packets are received from it.
    pub fn given(&self, socket: Option<u32>) -> u64 {
        let words = socket.map(|socket| self.shared.socket(socket));
        words.map_or(0, |words| words[tickets::GIVEN].load(Ordering::Acquire))
    }

    /// Takes the tickets of packets that a port received. What has none, because the programs could not put one in front, has
    /// no metadata afterwards. `none_waits`: no more were there, and this had been [given](Order::given) before; what has not come of that was
    /// lost, or is just coming. `lost` asks how many packets the socket has lost. `now`: not after any of this.
    pub fn received(
        &mut self,
        socket: Option<u32>,
        frames: &mut [Frame],
        area: &Area,
        none_waits: Option<u64>,
        lost: impl Fn() -> u64,
        now: u64,
    ) {
        let Some(socket) = socket else {
            for frame in frames {
                frame.set_metadata(area, 0);
            }
            return;
        };
        let now = self.clock.look(now);
        let words = self.shared.socket(socket);
        let known = self.sockets.iter().position(|known| known.number == socket);
        let place = known.unwrap_or_else(|| {
            // Another socket may have had this number, and others may still wait for what it gave.
            let done = words[tickets::DONE].load(Ordering::Relaxed);
            let lost = lost();
            self.sockets.push(Socket {
                number: socket,
                seen: done,
                asked: done,
                taken: done,
                looked: done,
                period: Period {
                    began: now,
                    given: done,
                    missed: 0,
                    lost: (lost, lost, lost),
                },
            });
            self.sockets.len() - 1
        });
        let Socket {
            seen,
            taken,
            looked,
            period,
            ..
        } = &mut self.sockets[place];
        if !frames.is_empty() {
            let given = words[tickets::GIVEN].load(Ordering::Acquire);
            for frame in frames {
                // What stands there otherwise may be any bytes, also those of a sender's choice.
                let (ticket, of) = tickets::decompose(frame.metadata(area));
                if *seen < ticket && ticket <= given && of == socket + 1 {
                    *seen = ticket;
                } else {
                    frame.set_metadata(area, 0);
                }
            }
        }
        if let Some(given) = none_waits {
            if now - period.began >= ON_THE_WAY_NS {
                period.began = now;
                let has_come = period.given <= *seen;
                let lost = lost();
                period.missed = if has_come { 0 } else { period.missed + 1 };
                if has_come || lost != period.lost.0 || period.missed > STOPPED {
                    *seen = period.given.max(*seen);
                    // Not what was given by now, which may be later than `now`.
                    period.given = *looked;
                    period.missed = 0;
                    period.lost = (period.lost.1, period.lost.2, lost);
                }
            }
            *looked = given;
        }
        let furthest = none_waits.unwrap_or(0).max(*seen);
        if furthest > *taken {
            *taken = furthest;
            words[tickets::TAKEN].store(furthest, Ordering::Relaxed);
        }
    }

    /// To be called after transmission, at the monotonic time `now` in nanoseconds or later, with the ports that the worker sends through, and
    /// how many frames wait for the ring of each.
    pub fn advance<'a>(
        &mut self,
        now: u64,
        ports: impl Iterator<Item = (&'a dyn Port, usize)> + Clone,
    ) {
        let now = self.clock.look(now);
        for (written_off, (port, _)) in self.written_off.iter_mut().zip(ports.clone()) {
            look_after(written_off, port);
        }
        if self.epoch.is_none() && self.sockets.iter().any(|s| s.seen > s.asked) {
            for socket in &mut self.sockets {
                socket.asked = socket.seen;
            }
            let count = ports.clone().count();
            self.written_off.resize(count, 0);
            let goals = ports.clone().zip(&self.written_off);
            let goals = goals.map(|((port, waiting), written_off)| {
                port.progress().sent + waiting as u64 - written_off
            });
            self.epoch = Some(Epoch {
                began: now,
                goals: goals.collect(),
                missing: (u64::MAX, now),
                wait: FIRST_WAIT_NS,
            });
        }
        let Some(epoch) = &mut self.epoch else {
            return;
        };
        let goals = epoch.goals.iter().zip(ports);
        let missing = |goal: u64, progress: Progress| goal.saturating_sub(progress.completed);
        let in_all = goals
            .clone()
            .map(|(goal, (port, _))| missing(*goal, port.progress()))
            .sum();
        let (before, since) = epoch.missing;
        if in_all < before {
            epoch.missing = (in_all, now);
        }
        let moves = in_all < before || now - since <= PATIENCE_NS;
        if in_all > 0 && moves && now - epoch.began <= EPOCH_NS {
            return;
        }
        // What has not been sent by now, say because the link is down, is not waited for again.
        for (written_off, (goal, (port, _))) in self.written_off.iter_mut().zip(goals) {
            *written_off += missing(*goal, port.progress());
        }
        for socket in &self.sockets {
            let done = &self.shared.socket(socket.number)[tickets::DONE];
            done.store(socket.asked, Ordering::Release);
        }
        self.epoch = None;
    }

    /// How long the worker may sleep at most, nanoseconds; longer each time.
    pub fn patience(&mut self) -> Option<u64> {
        let epoch = self.epoch.as_mut().map(|epoch| {
            let wait = epoch.wait;
            // Whatever wakes the worker meanwhile, and however often: an epoch ends after so long.
            epoch.wait = (wait * 2).min(ON_THE_WAY_NS);
            wait
        });
        // Until it is clear that what has not come is lost, the programs may take the worker to be behind.
        let is_missing = |socket: &Socket| socket.taken > socket.seen;
        let missing = self.sockets.iter().any(is_missing).then_some(ON_THE_WAY_NS);
        epoch.into_iter().chain(missing).min()
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::{
        fast_path::StreamIndex,
        port::{
            Progress,
            umem::{FreeList, HEADROOM},
        },
    };
    use sig_common::fast_path::StreamKey;

    struct NoIndex;

    impl StreamIndex for NoIndex {
        fn insert(&self, _: &StreamKey, _: u32) -> io::Result<()> {
            Ok(())
        }

        fn remove(&self, _: &StreamKey) {}
    }

    /// A port that has made this progress.
    struct Fixed(Progress);

    impl Port for Fixed {
        fn receive(&mut self, _: &mut Vec<Frame>) -> usize {
            0
        }

        fn transmit(&mut self, _: &mut Vec<Frame>) {}

        fn service(&mut self, _: &Area, _: &mut FreeList) -> io::Result<()> {
            Ok(())
        }

        fn fd(&self) -> Option<std::os::fd::RawFd> {
            None
        }

        fn is_transmitting(&self) -> bool {
            false
        }

        fn progress(&self) -> Progress {
            self.0
        }
    }

    const SOCKET: u32 = 1;

    /// Hands frames with these metadata over; what is left of these.
    fn receive(order: &mut Order, words: &[u64]) -> Vec<u64> {
        let (area, pool) = Area::on_heap(8);
        let mut free = FreeList::new(pool, 128);
        let frame = |word: &u64| {
            let mut frame = free.take().expect("a chunk is free");
            frame.place(HEADROOM, 60);
            frame.set_metadata(&area, *word);
            frame
        };
        let mut frames: Vec<Frame> = words.iter().map(frame).collect();
        order.received(Some(SOCKET), &mut frames, &area, None, || 0, 0);
        let metadata = |frame: Frame| {
            let word = frame.metadata(&area);
            free.put(frame);
            word
        };
        frames.into_iter().map(metadata).collect()
    }

    fn advance(order: &mut Order, now: u64, waiting: usize, (sent, completed): (u64, u64)) {
        let port = Fixed(Progress { sent, completed });
        order.advance(now, std::iter::once((&port as &dyn Port, waiting)));
    }

    /// Looks until this ticket is done, which must take [`PATIENCE_NS`] without progress; the time then.
    fn wait_for(
        order: &mut Order,
        mut now: u64,
        progress: (u64, u64),
        ticket: u64,
        done: impl Fn() -> u64,
    ) -> u64 {
        let began = now;
        while done() < ticket {
            now += ON_THE_WAY_NS;
            advance(order, now, 0, progress);
        }
        let took = now - began;
        assert!(
            (PATIENCE_NS..=PATIENCE_NS + 3 * ON_THE_WAY_NS).contains(&took),
            "{took}"
        );
        now
    }

    #[test]
    fn only_tickets_that_were_given_are_believed() {
        let shared = Arc::new(Shared::on_heap(3, Box::new(NoIndex)));
        shared.socket(SOCKET)[tickets::GIVEN].store(4, Ordering::Relaxed);
        let mut order = Order::new(shared);
        let ticket = |n| tickets::compose(n, SOCKET);
        let others = [0, u64::MAX, ticket(5), tickets::compose(3, 2)];
        assert_eq!(receive(&mut order, &others), [0; 4]);
        // One was lost on the way; one comes again.
        let words = [ticket(1), ticket(3), ticket(3), ticket(4)];
        assert_eq!(
            receive(&mut order, &words),
            [words[0], words[1], 0, words[3]]
        );
    }

    #[test]
    fn what_a_socket_lost_is_waited_for_shortly_and_what_is_on_its_way_longer() {
        /// When a ticket that does not come is written off, if the socket says afterwards that it lost so many packets.
        fn written_off(lost: u64) -> u64 {
            const LOOK_NS: u64 = 1_000_000;
            let shared = Arc::new(Shared::on_heap(3, Box::new(NoIndex)));
            let mut order = Order::new(shared);
            let (area, _) = Area::on_heap(1);
            let mut looks = (0..).step_by(LOOK_NS as usize);
            let is_written_off = |now: &u64| {
                let lost = || if *now > 0 { lost } else { 0 };
                // It is given during the round that begins at 0.
                order.received(Some(SOCKET), &mut [], &area, Some(1), lost, *now);
                order.sockets[0].seen == 1
            };
            looks.find(is_written_off).expect("some time")
        }
        let of_round = ON_THE_WAY_NS..2 * ON_THE_WAY_NS + 3_000_000;
        assert!(of_round.contains(&written_off(1)), "{}", written_off(1));
        let stopped = u64::from(STOPPED) * ON_THE_WAY_NS;
        let of_stop = stopped..2 * stopped;
        assert!(of_stop.contains(&written_off(0)), "{}", written_off(0));
    }

    #[test]
    fn losses_of_before_are_no_reason_to_write_a_ticket_off() {
        let shared = Arc::new(Shared::on_heap(3, Box::new(NoIndex)));
        let mut order = Order::new(shared);
        let (area, _) = Area::on_heap(1);
        let look = |order: &mut Order, given: u64, lost: u64, ms: u64| {
            order.received(
                Some(SOCKET),
                &mut [],
                &area,
                Some(given),
                || lost,
                ms * 1_000_000,
            );
            order.sockets[0].seen
        };
        for ms in 0..40 {
            look(&mut order, 0, u64::from(ms > 9), ms);
        }
        let late = (40..200).find(|ms| look(&mut order, 1, 1, *ms) == 1);
        assert!(late > Some(100), "{late:?}");
    }

    #[test]
    fn what_was_lost_while_packets_waited_is_not_waited_for() {
        let shared = Arc::new(Shared::on_heap(3, Box::new(NoIndex)));
        let mut order = Order::new(shared);
        let (area, _) = Area::on_heap(1);
        let look = |order: &mut Order, given: u64, lost: u64, ms: u64| {
            let now = ms * 1_000_000;
            order.received(Some(SOCKET), &mut [], &area, Some(given), || lost, now);
            order.sockets[0].seen
        };
        // The ring was never empty until then, and had no room for the last packet.
        look(&mut order, 0, 0, 0);
        let ended = (50..100).find(|ms| look(&mut order, 1, 1, *ms) == 1);
        assert!(ended < Some(65), "{ended:?}");
    }

    #[test]
    fn time_in_which_the_machine_stood_still_does_not_count() {
        let shared = Arc::new(Shared::on_heap(3, Box::new(NoIndex)));
        shared.socket(SOCKET)[tickets::GIVEN].store(1, Ordering::Relaxed);
        let done = || shared.socket(SOCKET)[tickets::DONE].load(Ordering::Relaxed);
        let mut order = Order::new(shared.clone());
        receive(&mut order, &[tickets::compose(1, SOCKET)]);
        for stops in 0..10 {
            advance(&mut order, stops * 10 * PATIENCE_NS, 0, (1, 0));
            assert_eq!(done(), 0);
        }
    }

    #[test]
    fn frames_that_were_only_delayed_are_waited_for_again() {
        let shared = Arc::new(Shared::on_heap(3, Box::new(NoIndex)));
        shared.socket(SOCKET)[tickets::GIVEN].store(9, Ordering::Relaxed);
        let done = || shared.socket(SOCKET)[tickets::DONE].load(Ordering::Relaxed);
        let mut order = Order::new(shared.clone());
        receive(&mut order, &[tickets::compose(1, SOCKET)]);
        let mut now = wait_for(&mut order, 0, (50, 10), 1, done);
        // The link was paused: what had been sent leaves, and as much follows.
        advance(&mut order, now, 0, (50, 20));
        receive(&mut order, &[tickets::compose(2, SOCKET)]);
        for completed in 20..60 {
            now += 1;
            advance(&mut order, now, 0, (60, completed));
            assert_eq!(done(), 1, "{completed}");
        }
        advance(&mut order, now, 0, (60, 60));
        assert_eq!(done(), 2);
    }

    #[test]
    fn an_epoch_ends_however_slowly_its_frames_leave() {
        let shared = Arc::new(Shared::on_heap(3, Box::new(NoIndex)));
        shared.socket(SOCKET)[tickets::GIVEN].store(1, Ordering::Relaxed);
        let done = || shared.socket(SOCKET)[tickets::DONE].load(Ordering::Relaxed);
        let mut order = Order::new(shared.clone());
        receive(&mut order, &[tickets::compose(1, SOCKET)]);
        let mut ends = (0..).map(|look| {
            advance(&mut order, look * ON_THE_WAY_NS, 0, (4_000, look));
            done() == 1
        });
        let looks = ends.position(|ended| ended).expect("an end") as u64;
        assert_eq!(looks, EPOCH_NS / ON_THE_WAY_NS + 1);
    }

    #[test]
    fn an_epoch_goes_on_while_something_leaves() {
        let shared = Arc::new(Shared::on_heap(3, Box::new(NoIndex)));
        shared.socket(SOCKET)[tickets::GIVEN].store(1, Ordering::Relaxed);
        let done = || shared.socket(SOCKET)[tickets::DONE].load(Ordering::Relaxed);
        let mut order = Order::new(shared.clone());
        receive(&mut order, &[tickets::compose(1, SOCKET)]);
        advance(&mut order, 0, 0, (3, 0));
        let looks = 3 * PATIENCE_NS / 2 / ON_THE_WAY_NS;
        for look in 0..=looks {
            let completed = 2 * look / looks;
            advance(&mut order, look * ON_THE_WAY_NS, 0, (3, completed));
            assert_eq!(done(), 0);
        }
        wait_for(&mut order, looks * ON_THE_WAY_NS, (3, 2), 1, done);
    }

    #[test]
    fn tickets_are_done_when_all_that_was_sent_then_has_left() {
        let shared = Arc::new(Shared::on_heap(3, Box::new(NoIndex)));
        shared.socket(SOCKET)[tickets::GIVEN].store(9, Ordering::Relaxed);
        let done = || shared.socket(SOCKET)[tickets::DONE].load(Ordering::Relaxed);
        let mut order = Order::new(shared.clone());
        let ticket = |n| tickets::compose(n, SOCKET);
        receive(&mut order, &[ticket(1), ticket(2)]);
        advance(&mut order, 0, 2, (5, 5));
        assert_eq!(done(), 0, "frames wait for the ring");
        advance(&mut order, 1, 0, (7, 5));
        assert_eq!(done(), 0, "they are on their way");
        assert_eq!(order.patience(), Some(FIRST_WAIT_NS));
        assert_eq!(order.patience(), Some(2 * FIRST_WAIT_NS));
        // More come meanwhile, and are for the next epoch.
        receive(&mut order, &[ticket(3)]);
        advance(&mut order, 2, 0, (8, 7));
        assert_eq!(done(), 2);
        advance(&mut order, 3, 0, (8, 7));
        assert_eq!(done(), 2);
        advance(&mut order, 4, 0, (8, 8));
        assert_eq!(done(), 3);
        assert_eq!(order.patience(), None);
        // A driver that tells of nothing stops nobody for long, however often the worker wakes up meanwhile.
        receive(&mut order, &[ticket(4)]);
        advance(&mut order, 5, 0, (9, 8));
        let longest = (0..100).filter_map(|_| order.patience()).max();
        assert_eq!(longest, Some(ON_THE_WAY_NS));
        let now = wait_for(&mut order, 5, (9, 8), 4, done);
        // And only once.
        receive(&mut order, &[ticket(5)]);
        advance(&mut order, now, 0, (10, 9));
        assert_eq!(done(), 5);
    }
}
