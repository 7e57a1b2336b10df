//! Templates of SCION packets.

use anyhow::{Result, bail, ensure};
use sig_common::wire::{
    PROTO_UDP,
    checksum::scion_pseudo_header,
    ethernet,
    scion::{
        common::{self, Common},
        path,
    },
    udp,
};

use super::{super::packet::ScionLoad, ethernet_header, ip_header, ip_header_len, template};
use crate::throughput::{
    experiment::Size,
    layout::{DESTINATION_PORT, Inner, MAGIC, MARKER_LEN, MAX_TEMPLATES, Template},
};

/// One frame per flow id.
pub(super) fn frames(load: &ScionLoad) -> Result<Vec<Template>> {
    (1..=flow_ids(load.underlay.flows))
        .map(|flow_id| frame(load, flow_id))
        .collect()
}

/// Different flow ids. A flow keeps its own if their number divides that of the flows.
fn flow_ids(flows: u16) -> u32 {
    let flows = u32::from(flows);
    (1..=MAX_TEMPLATES.min(flows))
        .rev()
        .find(|ids| flows % ids == 0)
        .unwrap_or(1)
}

fn frame(load: &ScionLoad, flow_id: u32) -> Result<Template> {
    let ScionLoad {
        underlay,
        ports,
        addresses,
        path,
    } = load;
    let Size::Fixed(len) = underlay.size else {
        bail!("SCION packets are generated in one length");
    };
    let header_len = common::HEADER_LEN + addresses.len() + path.len();
    let ip = ethernet::HEADER_LEN;
    let outer = ip + ip_header_len(underlay);
    let scion = outer + udp::HEADER_LEN;
    let l4 = scion + header_len;
    let end = ip + usize::from(len);
    ensure!(
        end >= l4 + udp::HEADER_LEN + MARKER_LEN,
        "packets of {len} bytes are too short for their headers and a marker"
    );

    let mut frame = ethernet_header(underlay);
    frame.resize(end, 0);
    let outer_len = (end - outer) as u16;
    let pseudo = ip_header(underlay, 0, &mut frame[ip..])?;
    let header = udp::Header {
        source_port: ports[0],
        destination_port: ports[1],
        length: outer_len,
        checksum: 0,
    };
    frame[outer..scion].copy_from_slice(&header.encode());

    let common = Common {
        traffic_class: 0,
        flow_id,
        next_header: PROTO_UDP,
        header_words: u8::try_from(header_len / 4)?,
        payload_len: (end - l4) as u16,
        path_type: path::SCION,
        address_types: addresses.types(),
    };
    let addresses_at = scion + common::HEADER_LEN;
    let path_at = addresses_at + addresses.len();
    frame[scion..addresses_at].copy_from_slice(&common.encode());
    addresses.emit(&mut frame[addresses_at..path_at])?;
    frame[path_at..l4].copy_from_slice(path);

    let (headers, datagram) = frame.split_at_mut(l4);
    let datagram_len = datagram.len() as u16;
    datagram[2..4].copy_from_slice(&DESTINATION_PORT.to_be_bytes());
    datagram[4..6].copy_from_slice(&datagram_len.to_be_bytes());
    datagram[8..10].copy_from_slice(&MAGIC.to_be_bytes());
    let covered = scion_pseudo_header(
        &headers[addresses_at..path_at],
        datagram_len.into(),
        PROTO_UDP,
    );
    let sum = covered.add_bytes(datagram).fold();
    datagram[6..8].copy_from_slice(&(!sum).to_be_bytes());
    // Markers change no sum around them: that over a datagram and its pseudo header is zero.
    let checksum = udp::checksum(pseudo.add_bytes(&frame[outer..]));
    frame[outer + 6..scion].copy_from_slice(&checksum.to_be_bytes());
    let inner = Inner {
        udp: l4 as u16,
        sum,
        len: datagram_len,
    };
    template(&frame, l4 + udp::HEADER_LEN + MARKER_LEN, &[inner])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_share_flow_ids_evenly() {
        for (flows, ids) in [(1, 1), (5, 5), (16, 16), (17, 1), (24, 12), (64, 16)] {
            assert_eq!(flow_ids(flows), ids, "{flows}");
        }
    }
}
