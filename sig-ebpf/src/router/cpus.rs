//! Which CPU takes a packet. All packets of a flow go to the same one, so that they stay in order.

use aya_ebpf::bindings::xdp_md;
use sig_common::{
    router::maps::Config,
    wire::scion::{address::ISD_AS_LEN, common::HEADER_LEN},
};

use super::{maps, parse, work::Work};

/// Redirects to one of the CPUs by flow id and addresses; `None` if there is none to take the packet.
#[inline(never)]
pub fn spread(ctx: *mut xdp_md, work: &Work, config: &Config) -> Option<u32> {
    let packet = parse::scion(ctx, &work.outer);
    let flow = packet.be32(0)? & 0x000f_ffff;
    let mut hash = mix(config.seed, u64::from(flow));
    // What may be the address header: both ISD-AS numbers and up to two long addresses. Behind short addresses it is
    // the path, which a flow keeps but for its pointers: these are left out.
    hash = mix(hash, packet.be64(HEADER_LEN)?);
    hash = mix(hash, packet.be64(HEADER_LEN + 8)?);
    hash = mix(hash, packet.be64(HEADER_LEN + ISD_AS_LEN)?);
    let types = packet.be16(8)? as u8;
    if types & 0x33 != 0 {
        // An address of 16 bytes among them: the next 12 bytes are of the addresses in every case.
        hash = mix(hash, packet.be64(HEADER_LEN + ISD_AS_LEN + 8)?);
        hash = mix(hash, u64::from(packet.be32(HEADER_LEN + ISD_AS_LEN + 16)?));
        if types == 0x33 {
            hash = mix(hash, u64::from(packet.be32(HEADER_LEN + ISD_AS_LEN + 20)?));
            hash = mix(hash, packet.be64(HEADER_LEN + ISD_AS_LEN + 24)?);
        }
    }
    let index = ((hash >> 32) * u64::from(config.cpus)) >> 32;
    let cpu = maps::cpu(index as u32)?;
    maps::R_CPUS.redirect(cpu, 0).ok()
}

const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline(always)]
fn mix(hash: u64, word: u64) -> u64 {
    let product = (hash ^ word).wrapping_mul(FACTOR);
    product ^ product >> 32
}
