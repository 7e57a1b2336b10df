//! EPIC: a SCION path with the sender's proof that the packet is its own.
//!
//! The routers of the last two hops verify it (EPIC-HP, as the reference does); for all others it is a SCION path.

use std::time::Duration;

use aes::{
    Aes128,
    cipher::{Block, BlockCipherEncrypt as _, KeyInit as _},
};
use sig_common::{
    addr::HostAddr,
    router::{Reason, passage::Passage},
    wire::{
        Load as _,
        scion::path::{EPIC_LEN, InfoField, META_LEN},
    },
};

use super::{Context, Links, Outcome, Router, changes::Changes, header::Header};

/// How long packets may be under way.
const MAX_LIFETIME: Duration = Duration::from_secs(2);
/// How far clocks may be apart.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(1);
/// Unit of the time in the packet id.
const TIME_UNIT: Duration = Duration::from_micros(21);
/// Bytes of a hop validation field.
const FIELD_LEN: usize = 4;

/// What is in front of the SCION path: the sender's proof.
pub(super) struct Proof {
    /// Time since the first info field's timestamp, and a counter.
    packet_id: [u8; 8],
    last_but_one: [u8; FIELD_LEN],
    last: [u8; FIELD_LEN],
}

impl Router {
    /// A packet with an EPIC path.
    pub(super) fn epic(
        &self,
        context: &Context<'_>,
        mut passage: Passage,
        links: &(impl Links + ?Sized),
    ) -> (Outcome, Changes) {
        let (outcome, changes) = match Proof::read(context.header.path_bytes()) {
            Some(proof) => {
                passage.path += EPIC_LEN as u32;
                self.transit(context, passage, Some(&proof), links)
            }
            None => (Outcome::dropped(Reason::MalformedPath), Changes::default()),
        };
        let outcome = Outcome {
            reason: outcome.reason.or(Some(Reason::Epic)),
            fast: Some(Reason::Epic),
            ..outcome
        };
        (outcome, changes)
    }
}

impl Proof {
    /// What is in front of a SCION path.
    fn read(path: &[u8]) -> Option<Self> {
        Some(Self {
            packet_id: path.bytes(0)?,
            last_but_one: path.bytes(8)?,
            last: path.bytes(12)?,
        })
    }

    /// Whether the sender has made this very packet, as far as it is up to this router to verify it: it came to a
    /// place with so many hops behind it. `hop_mac` is the whole MAC of the hop field, which has been verified.
    pub(super) fn holds(
        &self,
        context: &Context<'_>,
        hops_behind: u32,
        passage: &Passage,
        hop_mac: &[u8; 16],
    ) -> bool {
        let field = match hops_behind {
            0 => &self.last,
            1 => &self.last_but_one,
            _ => return true,
        };
        let first_info = passage.path as usize + META_LEN;
        let Some(info) = context.packet.bytes(first_info).map(InfoField::decode) else {
            return false;
        };
        let mac = mac(hop_mac, self.packet_id, info.timestamp, context.header);
        is_timely(info.timestamp, self.packet_id, context.now) && starts_with(&mac, field)
    }
}

/// Whether a MAC is the beginning of another, in constant time.
pub(super) fn starts_with(mac: &[u8; 16], start: &[u8]) -> bool {
    let difference = |(a, b): (&u8, &u8)| a ^ b;
    start.len() <= mac.len() && mac.iter().zip(start).map(difference).fold(0, |a, b| a | b) == 0
}

/// Whether the packet was sent lately.
fn is_timely(timestamp: u32, packet_id: [u8; 8], now: Duration) -> bool {
    let [t0, t1, t2, t3, ..] = packet_id;
    let units = Duration::from_nanos(
        TIME_UNIT.as_nanos() as u64 * (u64::from(u32::from_be_bytes([t0, t1, t2, t3])) + 1),
    );
    let sent = Duration::from_secs(timestamp.into()) + units;
    sent <= now + MAX_CLOCK_SKEW && now <= sent + MAX_LIFETIME + MAX_CLOCK_SKEW
}

/// CBC-MAC keyed with the whole MAC of the hop: over the length of the source host in words less one (1 byte),
/// timestamp, packet id, source ISD-AS and host, payload length, and zeros up to the end of the block.
fn mac(key: &[u8; 16], packet_id: [u8; 8], timestamp: u32, header: &Header<'_>) -> [u8; 16] {
    let mut input = Vec::with_capacity(48);
    let host: &[u8] = match &header.source {
        Some(HostAddr::V4(address)) => address,
        Some(HostAddr::V6(address)) => address,
        Some(HostAddr::Svc(number)) => {
            let [high, low] = number.to_be_bytes();
            &[high, low, 0, 0]
        }
        None => &[],
    };
    input.push((host.len() / 4).saturating_sub(1) as u8);
    input.extend(timestamp.to_be_bytes());
    input.extend(packet_id);
    input.extend(header.source_isd_as.to_bytes());
    input.extend(host);
    input.extend(header.payload_len().to_be_bytes());
    input.resize(input.len().next_multiple_of(16), 0);

    let cipher = Aes128::new(&(*key).into());
    let mut state = Block::<Aes128>::default();
    for block in input.as_chunks::<16>().0 {
        for (state, byte) in state.iter_mut().zip(block) {
            *state ^= byte;
        }
        cipher.encrypt_block(&mut state);
    }
    state.into()
}
