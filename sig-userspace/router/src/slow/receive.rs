//! From one socket through the router to others.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use sig_common::router::{Reason, maps::Traffic};

use super::{
    Shared,
    counters::Counters,
    limits::Limits,
    liveness::{Heard, SessionKey},
    network::{Network, Place},
    socket::{Kind, Received, Socket},
    stun,
};
use crate::{
    bfd::Control,
    forward::{Ingress, Outcome, Peer, Verdict},
};

/// Packets taken from a socket before others have their turn.
const BATCH: usize = 64;

/// The same of BFD.
const BFD_BATCH: usize = 32;

/// After each batch of BFD, so that no flood keeps its thread busy, which goes before everything else on its CPU. The timer
/// makes it up to twice as long. What is taken in between is many times what neighbours send.
const BFD_PAUSE: Duration = Duration::from_millis(1);

/// Longest datagram.
const LONGEST: usize = 65_535;

/// Longest datagram with BFD: SCION header and message, with room for what is behind it.
const LONGEST_BFD: usize = 1_500;

/// Waits when the socket has an error, such as no memory: it must not spin.
const PAUSE: Duration = Duration::from_millis(10);

/// Room for a datagram, and what is in it.
struct Datagram {
    buffer: Vec<u8>,
    /// What is known of it, until it is handled.
    received: Option<Received>,
}

impl Datagram {
    fn of(len: usize) -> Self {
        Self {
            buffer: vec![0; len],
            received: None,
        }
    }
}

/// Takes packets of one kind from a socket until the task is ended.
pub(super) async fn run(shared: Arc<Shared>, place: Place, socket: Arc<Socket>, kind: Kind) {
    let socket = socket.half(kind);
    let (most, longest) = match kind {
        Kind::Plain => (BATCH, LONGEST),
        Kind::Bfd => (BFD_BATCH, LONGEST_BFD),
    };
    let mut rates = shared.network.load().limits.clone();
    let mut limits = Limits::new(&rates, Instant::now());
    let mut batch: Vec<Datagram> = std::iter::repeat_with(|| Datagram::of(longest))
        .take(most)
        .collect();
    loop {
        if let Err(error) = socket.readable().await {
            tracing::warn!("{place:?}: {error}");
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        let mut count = 0;
        for datagram in &mut batch {
            match socket.receive(&mut datagram.buffer) {
                Ok(received) => datagram.received = Some(received),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    tracing::debug!("{place:?}: {error}");
                    tokio::time::sleep(PAUSE).await;
                    break;
                }
            }
            count += 1;
        }
        let network = shared.network.load_full();
        if !Arc::ptr_eq(&network.limits, &rates) {
            rates = network.limits.clone();
            limits = Limits::new(&rates, Instant::now());
        }
        // What keeps paths alive goes first.
        for urgent in [true, false] {
            for datagram in batch.iter_mut().take(count) {
                let Some(received) = datagram.received else {
                    continue;
                };
                let Some(packet) = datagram.buffer.get_mut(..received.len) else {
                    continue;
                };
                if is_urgent(packet) == urgent {
                    datagram.received = None;
                    shared.handle(&network, place, packet, received, &mut limits);
                }
            }
        }
        match kind {
            Kind::Bfd => tokio::time::sleep(BFD_PAUSE).await,
            Kind::Plain if count == most => tokio::task::yield_now().await,
            Kind::Plain => {}
        }
    }
}

/// Whether a packet has a one-hop path.
fn is_urgent(packet: &[u8]) -> bool {
    packet.get(8) == Some(&sig_common::wire::scion::path::ONE_HOP)
}

impl Shared {
    fn handle(
        &self,
        network: &Network,
        place: Place,
        packet: &mut [u8],
        received: Received,
        limits: &mut Limits,
    ) {
        let from = received.from;
        let (ingress, counters, socket) = match place {
            Place::Inside(_) => (
                Ingress::Internal(from),
                &network.inside_counters,
                &network.inside,
            ),
            Place::Link(number, _) => {
                let Some(link) = network.links.get(&number) else {
                    return;
                };
                if from != link.remote {
                    link.counters.reason(Reason::WrongPeer);
                    link.counters.dropped(Reason::WrongPeer);
                    return;
                }
                (Ingress::External(number), &link.counters, &link.socket)
            }
        };
        let (Place::Inside(local) | Place::Link(_, local)) = place;
        if !(self.admits)(local, received.ifindex) {
            counters.reason(Reason::WrongDevice);
            counters.dropped(Reason::WrongDevice);
            return;
        }
        if !(self.seen_before)(from.ip()) {
            counters.count(Traffic::Input, packet.len());
        }
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let ways = network.ways(&self.liveness);
        let outcome = network.router.process(packet, ingress, now, &ways);
        if let Some(reason) = outcome.reason {
            counters.reason(reason);
            // Of BFD, each session has its own limit.
            if reason != Reason::Bfd && !limits.admit(reason, Instant::now()) {
                counters.dropped(Reason::RateLimited);
                return;
            }
        }
        if let Err(reason) = self.carry_out(network, outcome, packet, from, socket) {
            counters.dropped(reason);
        }
    }

    /// Does what the verdict says.
    ///
    /// # Errors
    /// Why the packet went nowhere.
    fn carry_out(
        &self,
        network: &Network,
        outcome: Outcome,
        packet: &[u8],
        from: SocketAddr,
        socket: &Socket,
    ) -> Result<(), Reason> {
        match outcome.verdict {
            Verdict::Forward { interface } => {
                let link = network.links.get(&interface);
                let link = link.ok_or(Reason::EgressInterface)?;
                send(&link.socket, packet, link.remote)?;
                sent(&link.counters, &outcome, packet);
            }
            Verdict::Sibling(sibling) => {
                let sibling = network.model().siblings.get(sibling);
                let sibling = sibling.ok_or(Reason::EgressInterface)?;
                send(&network.inside, packet, sibling.internal)?;
                sent(&network.inside_counters, &outcome, packet);
            }
            Verdict::Deliver(host) => {
                send(&network.inside, packet, host)?;
                sent(&network.inside_counters, &outcome, packet);
            }
            Verdict::Answer(answer) => send(socket, &answer, from)?,
            Verdict::Bfd { peer, message } => {
                let key = match peer {
                    Peer::Interface(interface) => SessionKey::Link(interface),
                    Peer::Sibling(sibling) => {
                        let sibling = network.model().siblings.get(sibling);
                        SessionKey::Sibling(sibling.ok_or(Reason::Bfd)?.internal)
                    }
                };
                let message = packet.get(message).unwrap_or_default();
                let control = Control::decode(message).map_err(|_| Reason::Bfd)?;
                match self.liveness.handle(key, &control) {
                    Heard::Taken => {}
                    Heard::NoSession => return Err(Reason::Bfd),
                    Heard::TooMany => return Err(Reason::RateLimited),
                }
            }
            Verdict::Stun => {
                let answer = stun::answer(packet, from).ok_or(Reason::Stun)?;
                send(socket, &answer, from)?;
            }
            Verdict::Drop(reason) => return Err(reason),
        }
        Ok(())
    }
}

fn sent(counters: &Counters, outcome: &Outcome, packet: &[u8]) {
    if let Some(traffic) = outcome.traffic {
        counters.count(traffic, packet.len());
    }
}

/// What the kernel does not send is lost, with the nearest reason.
fn send(socket: &Socket, packet: &[u8], to: SocketAddr) -> Result<(), Reason> {
    socket
        .plain
        .send(packet, to)
        .map_err(|error| match error.raw_os_error() {
            Some(libc::EMSGSIZE) => Reason::TooBig,
            Some(libc::EAFNOSUPPORT | libc::EINVAL) => Reason::FamilyChange,
            _ => Reason::NoHost,
        })
}
