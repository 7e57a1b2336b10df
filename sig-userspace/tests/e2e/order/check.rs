//! Compares what arrived with what was sent and with what the network did to it.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::AddAssign;

use sig_common::accelerate::STREAM_BIT;

use super::packets::{Arrival, Label};
use super::relay::{Log, Packets};

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
    /// Reached it behind later ones that a worker sent, as the first of them is in several frames. A veth without a program brings it about
    /// (`veth_xdp_rcv` in Linux): of what waits in its ring, frames that a program redirected come behind those of sockets.
    pub(crate) overtaken_in_veth: usize,
    pub(crate) duplicate: usize,
    pub(crate) damaged: usize,
    /// Arrived after the round in which they were sent, of which nothing is known any more.
    pub(crate) late: usize,
    /// Arrived although they were never sent, or never seen by the network.
    pub(crate) stray: usize,
    /// Frames that the network got from the gateways, and in which order.
    pub(crate) frames: usize,
    pub(crate) frames_sent_out_of_order: usize,
    /// Frames that came to a relay behind a later one of their stream: in routers, or sent so.
    pub(crate) frames_relayed_out_of_order: usize,
    pub(crate) frames_lost: usize,
    pub(crate) frames_duplicated: usize,
    pub(crate) frames_delayed: usize,
    /// Packets sent in frames of streams that no worker or process has, but a program in the kernel.
    pub(crate) sent_by_kernel: usize,
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
        self.overtaken_in_veth += other.overtaken_in_veth;
        self.duplicate += other.duplicate;
        self.damaged += other.damaged;
        self.late += other.late;
        self.stray += other.stray;
        self.frames += other.frames;
        self.frames_sent_out_of_order += other.frames_sent_out_of_order;
        self.frames_relayed_out_of_order += other.frames_relayed_out_of_order;
        self.frames_lost += other.frames_lost;
        self.frames_duplicated += other.frames_duplicated;
        self.frames_delayed += other.frames_delayed;
        self.sent_by_kernel += other.sent_by_kernel;
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
             in order by the network, {} sent so, {} overtaken in a veth), {} duplicate, {} damaged, {} late, {} stray; {} frames ({} sent out of order, {} so after \
             the routers), {} lost, {} duplicated, {} delayed; {} packets sent from the kernel",
            self.sent,
            self.received,
            self.lost_by_network,
            self.lost_otherwise,
            self.out_of_order,
            self.misplaced,
            self.sent_out_of_order,
            self.overtaken_in_veth,
            self.duplicate,
            self.damaged,
            self.late,
            self.stray,
            self.frames,
            self.frames_sent_out_of_order,
            self.frames_relayed_out_of_order,
            self.frames_lost,
            self.frames_duplicated,
            self.frames_delayed,
            self.sent_by_kernel
        )?;
        for example in &self.examples {
            write!(f, "\n    {example}")?;
        }
        Ok(())
    }
}

/// What one gateway sent to the other, as seen by the relays in front of both.
#[derive(Debug)]
pub(crate) struct Network {
    sent: Log,
    sent_packets: Packets,
    relayed: Log,
    packets: Packets,
}

impl Network {
    pub(crate) fn new(sent: Log, relayed: Log) -> Self {
        Self {
            sent_packets: sent.packets(),
            packets: relayed.packets(),
            sent,
            relayed,
        }
    }

    /// Whether all of `first` had been sent on to the receiver for the last time when `second` was complete for the first
    /// time. A frame that both have parts in does not count: the packets are in order in it.
    fn left_in_order(&self, first: Label, second: Label) -> bool {
        let turns = |place: &usize| self.relayed.frames[*place].sent_on;
        let (first, second) = (&self.packets.parts[&first], &self.packets.parts[&second]);
        let complete = second.iter().map(|place| Some(turns(place)?.0));
        let Some(complete) = complete.max().flatten() else {
            return false;
        };
        let before = |place| turns(place).is_some_and(|(_, last)| last < complete);
        first
            .iter()
            .all(|place| second.contains(place) || before(place))
    }

    /// Whether there are frames of streams that a program may have.
    fn has_fast_path(&self) -> bool {
        let frames = &self.sent.frames;
        frames
            .iter()
            .any(|frame| frame.header.stream & STREAM_BIT != 0)
    }

    fn sent_by_kernel(&self) -> usize {
        let is_of_kernel = |place: &usize| self.sent.frames[*place].header.stream & STREAM_BIT != 0;
        let packets = self.sent_packets.parts.values();
        packets
            .filter(|parts| parts.iter().all(is_of_kernel))
            .count()
    }

    fn lost(&self, label: Label) -> bool {
        let lost = |place: &usize| self.relayed.frames[*place].sent_on.is_none();
        match self.packets.parts.get(&label) {
            Some(parts) => parts.iter().any(lost),
            None => self.sent_packets.parts.contains_key(&label),
        }
    }

    /// Frames of a packet for the reader: stream, sequence number, and the turns of the first and last copy.
    fn describe(&self, label: Label) -> String {
        let places = self.packets.parts.get(&label).into_iter().flatten();
        let texts = places.map(|place| {
            let frame = &self.relayed.frames[*place];
            let header = frame.header;
            format!(
                "{:x}:{}@{:?}",
                header.stream, header.sequence, frame.sent_on
            )
        });
        format!(
            "{label:?} in frames [{}]",
            texts.collect::<Vec<_>>().join(" ")
        )
    }
}

/// `sent`: packets of each flow in this round. `arrivals`: in order.
pub(crate) fn check(round: u16, sent: &[u32], network: &Network, arrivals: &[Arrival]) -> Tally {
    let mut tally = Tally {
        sent: sent.iter().map(|count| *count as usize).sum(),
        frames: network.sent.frames.len(),
        frames_sent_out_of_order: network.sent.out_of_order(),
        frames_relayed_out_of_order: network.relayed.out_of_order(),
        frames_lost: network.relayed.lost(),
        frames_duplicated: network.relayed.duplicated,
        frames_delayed: network.relayed.delayed,
        sent_by_kernel: network.sent_by_kernel(),
        ..Tally::default()
    };
    let mut highest = HashMap::new();
    let mut before = HashSet::new();
    // On a busy machine, what was sent in a round may still be under way in the next one.
    let labels = network.sent_packets.labels.iter();
    for label in labels.filter(|label| label.round == round) {
        let highest = highest.entry(label.flow).or_insert(*label);
        before.insert(*label);
        if label.number < highest.number {
            // Of those that overtook it, the first one; the others may be of the worker because that one is.
            let mut later =
                (label.number + 1..=highest.number).map(|number| Label { number, ..*label });
            let first = later
                .find(|later| before.contains(later))
                .unwrap_or(*highest);
            let is_of_worker = network.sent_packets.parts[&first].len() > 1;
            match is_of_worker && network.has_fast_path() {
                true => tally.overtaken_in_veth += 1,
                false => tally.sent_out_of_order += 1,
            }
            tally.example(|| {
                let [own, other] = [*label, *highest].map(|label| network.describe(label));
                format!("{own} sent behind {other}")
            });
        } else {
            *highest = *label;
        }
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
        if label.round < round {
            tally.late += 1;
            continue;
        }
        let known = sent.get(usize::from(label.flow));
        if label.round != round
            || known.is_none_or(|sent| label.number >= *sent)
            || !network.packets.parts.contains_key(&label)
        {
            tally.stray += 1;
            tally
                .example(|| format!("{label:?} arrived in round {round}, not through the network"));
            continue;
        }
        let earlier = flows.entry(label.flow).or_default();
        if earlier.contains(&label) {
            tally.duplicate += 1;
            tally.example(|| format!("{} twice", network.describe(label)));
            continue;
        }
        tally.received += 1;
        let ahead = |other: &&Label| other.number > label.number;
        if earlier.iter().any(|other| ahead(&other)) {
            tally.out_of_order += 1;
        }
        let mut ahead = earlier.iter().filter(ahead);
        if let Some(ahead) = ahead.find(|other| network.left_in_order(label, **other)) {
            tally.misplaced += 1;
            tally.example(|| {
                let [own, other] = [label, *ahead].map(|label| network.describe(label));
                format!("{own} arrived behind {other}")
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
            if network.lost(label) {
                tally.lost_by_network += 1;
            } else {
                tally.lost_otherwise += 1;
            }
        }
    }
    tally
}

#[cfg(test)]
mod tests {
    use sig_common::wire::sig_frame::Header;

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
    fn network(packets: &[&[usize]], turns: &[Option<(u32, u32)>]) -> Network {
        let packets = || Packets {
            labels: (0..).map(label).take(packets.len()).collect(),
            parts: (0..)
                .map(label)
                .zip(packets.iter().map(|parts| parts.to_vec()))
                .collect(),
        };
        let mut relayed = Log::default();
        relayed.frames.extend(turns.iter().map(|sent_on| Frame {
            header: Header::default(),
            payload: Vec::new(),
            path: Vec::new(),
            sent_on: *sent_on,
        }));
        Network {
            sent: relayed.clone(),
            sent_packets: packets(),
            relayed,
            packets: packets(),
        }
    }

    fn checked(network: &Network, arrivals: &[u32]) -> Tally {
        let arrivals: Vec<_> = arrivals.iter().map(|number| Ok(label(*number))).collect();
        let sent = network.sent_packets.labels.len();
        check(0, &[sent as u32], network, &arrivals)
    }

    #[test]
    fn only_what_the_network_left_in_order_must_be_so() {
        let once = |turn| Some((turn, turn));
        // Frames of two packets, turns of the frames, whether the second packet may arrive first.
        let cases = [
            ([&[0][..], &[1]], [once(0), once(1), None], false),
            ([&[0], &[1]], [once(1), once(0), None], true),
            // In one frame, even if that came twice.
            ([&[0], &[0]], [Some((0, 3)), None, None], false),
            // The second was complete only with its own second frame.
            ([&[0], &[1, 2]], [once(1), once(0), once(2)], false),
            ([&[0], &[1, 2]], [once(2), once(0), once(1)], true),
            ([&[0, 1], &[1, 2]], [once(0), once(2), once(1)], false),
            // Of the first, it may have been the copy that arrived.
            ([&[0], &[1]], [Some((0, 2)), once(1), None], true),
        ];
        for (packets, turns, may) in cases {
            let network = network(&packets, &turns);
            assert_eq!(checked(&network, &[0, 1]).faults(), 0);
            let tally = checked(&network, &[1, 0]);
            assert_eq!(tally.out_of_order, 1);
            let expected = usize::from(!may);
            assert_eq!(tally.misplaced, expected, "{packets:?} {turns:?}");
            assert_eq!(tally.faults(), expected);
        }
    }

    #[test]
    fn every_other_fault_is_found() {
        let mut network = network(&[&[0], &[1], &[2]], &[Some((0, 0)), None, Some((1, 1))]);
        let tally = checked(&network, &[0, 2, 2]);
        let lost = (tally.lost_by_network, tally.lost_otherwise);
        assert_eq!((tally.received, tally.duplicate, lost), (2, 1, (1, 0)));
        assert_eq!(checked(&network, &[0]).lost_otherwise, 1);
        assert_eq!(checked(&network, &[0, 3]).stray, 1);
        assert_eq!(check(1, &[3], &network, &[Ok(label(0))]).late, 1);
        assert_eq!(check(0, &[0], &network, &[Ok(label(0))]).stray, 1);
        assert_eq!(check(0, &[3], &network, &[Err(vec![])]).damaged, 1);
        network.sent_packets.labels.swap(0, 1);
        assert_eq!(checked(&network, &[0, 2]).sent_out_of_order, 1);
    }
}
