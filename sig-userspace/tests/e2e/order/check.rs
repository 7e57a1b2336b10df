//! Compares what arrived with what was sent and with what the network did to it.

use std::collections::HashMap;
use std::fmt;
use std::ops::AddAssign;

use super::packets::{Arrival, Label};
use super::relay::Log;

/// Faults described in full.
const EXAMPLES: usize = 10;

/// Numbers of packets, unless said otherwise.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) sent: usize,
    pub(crate) received: usize,
    /// A frame of theirs was lost by the network.
    pub(crate) lost_by_network: usize,
    pub(crate) lost_otherwise: usize,
    /// Arrived behind a later one of their flow.
    pub(crate) out_of_order: usize,
    /// Those of them that the network had left in order.
    pub(crate) misplaced: usize,
    /// Reached the network behind a later one of their flow.
    pub(crate) sent_out_of_order: usize,
    pub(crate) duplicate: usize,
    pub(crate) damaged: usize,
    /// Arrived although they were not sent in this round, or never seen by the network.
    pub(crate) stray: usize,
    pub(crate) frames: usize,
    pub(crate) frames_lost: usize,
    pub(crate) frames_duplicated: usize,
    pub(crate) frames_delayed: usize,
    pub(crate) examples: Vec<String>,
}

impl Tally {
    /// What no network explains.
    pub(crate) fn faults(&self) -> usize {
        self.misplaced + self.sent_out_of_order + self.duplicate + self.damaged + self.stray
    }

    fn example(&mut self, text: impl FnOnce() -> String) {
        if self.examples.len() < EXAMPLES {
            self.examples.push(text());
        }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.received += other.received;
        self.lost_by_network += other.lost_by_network;
        self.lost_otherwise += other.lost_otherwise;
        self.out_of_order += other.out_of_order;
        self.misplaced += other.misplaced;
        self.sent_out_of_order += other.sent_out_of_order;
        self.duplicate += other.duplicate;
        self.damaged += other.damaged;
        self.stray += other.stray;
        self.frames += other.frames;
        self.frames_lost += other.frames_lost;
        self.frames_duplicated += other.frames_duplicated;
        self.frames_delayed += other.frames_delayed;
        for text in other.examples {
            self.example(|| text);
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} packets sent, {} received, {} lost by the network, {} lost otherwise, {} out of order ({} of them left \
             in order by the network, {} sent so), {} duplicate, {} damaged, {} stray; {} frames, {} lost, \
             {} duplicated, {} delayed",
            self.sent,
            self.received,
            self.lost_by_network,
            self.lost_otherwise,
            self.out_of_order,
            self.misplaced,
            self.sent_out_of_order,
            self.duplicate,
            self.damaged,
            self.stray,
            self.frames,
            self.frames_lost,
            self.frames_duplicated,
            self.frames_delayed
        )?;
        for example in &self.examples {
            write!(f, "\n    {example}")?;
        }
        Ok(())
    }
}

/// `sent`: packets of each flow in this round. `arrivals`: in order; damaged ones with their bytes.
pub(crate) fn check(round: u16, sent: &[u32], log: &Log, arrivals: &[Arrival]) -> Tally {
    let mut tally = Tally {
        sent: sent.iter().map(|count| *count as usize).sum(),
        frames: log.frames.len(),
        frames_lost: log.lost(),
        frames_duplicated: log.duplicated as usize,
        frames_delayed: log.delayed as usize,
        ..Tally::default()
    };
    let mut highest = HashMap::new();
    for label in &log.packets {
        let highest = highest.entry(label.flow).or_insert(label.number);
        if label.number < *highest {
            tally.sent_out_of_order += 1;
            tally.example(|| {
                let place = frames(log, *label);
                format!("{label:?} sent behind {highest}, in frames {place}")
            });
        }
        *highest = label.number.max(*highest);
    }
    // The packets of each flow that arrived, in order.
    let mut flows: HashMap<u16, Vec<Label>> = HashMap::new();
    for arrival in arrivals {
        let label = match arrival {
            Ok(label) => *label,
            Err(bytes) => {
                tally.damaged += 1;
                tally.example(|| format!("damaged: {bytes:02x?}"));
                continue;
            }
        };
        let known = sent.get(usize::from(label.flow));
        if label.round != round
            || known.is_none_or(|sent| label.number >= *sent)
            || !log.parts.contains_key(&label)
        {
            tally.stray += 1;
            tally
                .example(|| format!("{label:?} arrived in round {round}, not through the network"));
            continue;
        }
        let earlier = flows.entry(label.flow).or_default();
        if earlier.contains(&label) {
            tally.duplicate += 1;
            tally.example(|| format!("{label:?} twice, in frames {}", frames(log, label)));
            continue;
        }
        tally.received += 1;
        let ahead = |other: &&Label| other.number > label.number;
        if earlier.iter().any(|other| ahead(&other)) {
            tally.out_of_order += 1;
        }
        let mut ahead = earlier.iter().filter(ahead);
        if let Some(ahead) = ahead.find(|other| left_in_order(log, label, **other)) {
            tally.misplaced += 1;
            tally.example(|| {
                let places = [label, *ahead].map(|label| frames(log, label));
                let [own, other] = &places;
                format!(
                    "{label:?} in frames {own} arrived behind {} in frames {other}",
                    ahead.number
                )
            });
        }
        earlier.push(label);
    }
    for (flow, count) in sent.iter().enumerate() {
        let arrived = flows.get(&(flow as u16)).map_or(&[][..], Vec::as_slice);
        for number in 0..*count {
            let label = Label {
                round,
                flow: flow as u16,
                number,
            };
            if arrived.contains(&label) {
                continue;
            }
            let lost = |place: &u32| log.frames[*place as usize].sent_on.is_none();
            let parts = log.parts.get(&label);
            if parts.is_some_and(|parts| parts.iter().any(lost)) {
                tally.lost_by_network += 1;
            } else {
                tally.lost_otherwise += 1;
            }
        }
    }
    tally
}

/// Whether the network had sent on all of `first` for the last time when `second` was complete for the first time. A
/// frame that both have parts in does not count: the packets are in order in it.
fn left_in_order(log: &Log, first: Label, second: Label) -> bool {
    let turns = |place: &u32| log.frames[*place as usize].sent_on;
    let (first, second) = (&log.parts[&first], &log.parts[&second]);
    let complete = second.iter().map(|place| Some(turns(place)?.0));
    let Some(complete) = complete.max().flatten() else {
        return false;
    };
    let before = |place| turns(place).is_some_and(|(_, last)| last < complete);
    first
        .iter()
        .all(|place| second.contains(place) || before(place))
}

/// Frames of a packet for the reader: stream, sequence number, and the turns of the first and last copy.
fn frames(log: &Log, label: Label) -> String {
    let frames = log.parts.get(&label).into_iter().flatten();
    let texts = frames.map(|place| {
        let frame = log.frames[*place as usize];
        format!("{:x}:{}@{:?}", frame.stream, frame.sequence, frame.sent_on)
    });
    texts.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::relay::Frame;
    use super::*;

    fn label(number: u32) -> Label {
        Label {
            round: 0,
            flow: 0,
            number,
        }
    }

    /// Packets of one flow by the frames that they are in, and turns of the frames.
    fn log(packets: &[&[u32]], turns: &[Option<(u32, u32)>]) -> Log {
        let mut log = Log::default();
        for (number, parts) in (0..).zip(packets) {
            log.packets.push(label(number));
            log.parts.insert(label(number), parts.to_vec());
        }
        for (sequence, sent_on) in (0..).zip(turns) {
            log.frames.push(Frame {
                stream: 0,
                sequence,
                sent_on: *sent_on,
            });
        }
        log
    }

    fn checked(log: &Log, arrivals: &[u32]) -> Tally {
        let arrivals: Vec<_> = arrivals.iter().map(|number| Ok(label(*number))).collect();
        check(0, &[log.packets.len() as u32], log, &arrivals)
    }

    #[test]
    fn only_what_the_network_left_in_order_must_be_so() {
        let once = |turn| Some((turn, turn));
        // Frames of packets, turns of frames, arrivals, out of order, misplaced.
        type Case = (
            &'static [&'static [u32]],
            [Option<(u32, u32)>; 3],
            &'static [u32],
            usize,
            usize,
        );
        let cases: [Case; 7] = [
            (&[&[0], &[1]], [once(0), once(1), None], &[0, 1], 0, 0),
            (&[&[0], &[1]], [once(0), once(1), None], &[1, 0], 1, 1),
            (&[&[0], &[1]], [once(1), once(0), None], &[1, 0], 1, 0),
            // In one frame, even if that came twice.
            (&[&[0], &[0]], [Some((0, 3)), None, None], &[1, 0], 1, 1),
            // The second was complete only with its own second frame.
            (&[&[0], &[1, 2]], [once(1), once(0), once(2)], &[1, 0], 1, 1),
            (&[&[0], &[1, 2]], [once(2), once(0), once(1)], &[1, 0], 1, 0),
            // Of the first, it may have been the copy that arrived.
            (&[&[0], &[1]], [Some((0, 2)), once(1), None], &[1, 0], 1, 0),
        ];
        for (packets, turns, arrivals, out_of_order, misplaced) in cases {
            let tally = checked(&log(packets, &turns), arrivals);
            assert_eq!(
                (tally.out_of_order, tally.misplaced),
                (out_of_order, misplaced),
                "{packets:?} {turns:?}"
            );
            assert_eq!(tally.faults(), misplaced);
        }
    }

    #[test]
    fn every_other_fault_is_found() {
        let mut log = log(&[&[0], &[1], &[2]], &[Some((0, 0)), None, Some((1, 1))]);
        let tally = checked(&log, &[0, 2, 2]);
        let lost = (tally.lost_by_network, tally.lost_otherwise);
        assert_eq!((tally.received, tally.duplicate, lost), (2, 1, (1, 0)));
        assert_eq!(checked(&log, &[0]).lost_otherwise, 1);
        assert_eq!(checked(&log, &[0, 3]).stray, 1);
        assert_eq!(check(1, &[3], &log, &[Ok(label(0))]).stray, 1);
        assert_eq!(check(0, &[3], &log, &[Err(vec![])]).damaged, 1);
        log.packets.swap(0, 1);
        assert_eq!(checked(&log, &[0, 2]).sent_out_of_order, 1);
    }
}
