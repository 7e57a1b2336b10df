//! Templates of the frames that a [`Load`] consists of.

mod scion;

use std::net::IpAddr;

use anyhow::{Context as _, Result, bail, ensure};
use sig_common::wire::{
    PROTO_UDP,
    checksum::{Sum, ipv4_pseudo_header, ipv6_pseudo_header},
    ethernet, ipv4, ipv6, udp,
};
use sig_core::scion::{FrameFields, Template as Headers};

use super::packet::{IpLoad, Load, Outer};
use crate::throughput::{
    experiment::{Mix, Size},
    layout::{
        DESTINATION_PORT, Inner, MAGIC, MARKER_LEN, MAX_FLOWS, MAX_FRAME, MAX_INNER, MAX_TEMPLATES,
        Setup, Template,
    },
};

/// Longest Ethernet frame that several packets are packed into.
const PACKED_FRAME: usize = 1514;
/// Traffic classes (DSCP and ECN) that take turns if wanted.
const CLASSES: [u8; 2] = [0, 0x28];
/// The twelve packets of the simple Internet mix.
const IMIX: [u16; 12] = [44, 576, 44, 44, 576, 44, 1500, 576, 44, 44, 576, 44];

/// A load, ready to be sent.
pub(super) struct Templates {
    /// The frames that take turns.
    pub(super) frames: Vec<Template>,
    /// How; the rate is still missing.
    pub(super) setup: Setup,
}

impl Templates {
    /// The templates of a load.
    pub(super) fn new(load: &Load) -> Result<Self> {
        let inner = match load {
            Load::Ip(inner) | Load::Behind { inner, .. } | Load::SigFrames { inner, .. } => inner,
            Load::Scion(scion) => &scion.underlay,
        };
        ensure!(
            (1..=MAX_FLOWS).contains(&inner.flows.into()),
            "the load has {} flows; 1 to {MAX_FLOWS} are possible",
            inner.flows
        );
        let (frames, stream) = match load {
            Load::Ip(inner) => (plain(inner, &[])?, 0),
            Load::Behind { inner, headers } => (plain(inner, headers)?, 0),
            Load::SigFrames {
                inner,
                outer,
                per_frame,
            } => (sig_frames(inner, outer, *per_frame)?, outer.stream),
            Load::Scion(load) => (scion::frames(load)?, 0),
        };
        ensure!(
            frames.len() <= MAX_TEMPLATES as usize,
            "the load consists of {} different frames; {MAX_TEMPLATES} are possible",
            frames.len()
        );
        let setup = Setup {
            templates: frames.len() as u32,
            stream,
            flows: inner.flows.into(),
            ..Setup::default()
        };
        Ok(Templates { frames, setup })
    }

    /// The longest frame.
    pub(super) fn longest(&self) -> Option<&Template> {
        self.frames.iter().max_by_key(|frame| frame.len)
    }
}

/// Lengths of the packets that take turns.
fn lengths(load: &IpLoad) -> Vec<u16> {
    let least = least(load);
    match load.size {
        Size::Fixed(len) => vec![len],
        Size::Mix(Mix::Imix) => IMIX.map(|len| len.max(least)).to_vec(),
    }
}

/// Length of a packet that holds nothing but a marker.
fn least(load: &IpLoad) -> u16 {
    (ip_header_len(load) + udp::HEADER_LEN + MARKER_LEN) as u16
}

fn ip_header_len(load: &IpLoad) -> usize {
    if load.destination.is_ipv4() {
        ipv4::HEADER_LEN
    } else {
        ipv6::HEADER_LEN
    }
}

/// IP packets, behind IPv6 headers if there are any.
fn plain(load: &IpLoad, headers: &[u8]) -> Result<Vec<Template>> {
    let mut lengths = lengths(load);
    if load.alternate_class && lengths.len() % 2 == 1 {
        lengths.extend_from_within(..);
    }
    let mut frames = Vec::new();
    for (number, len) in lengths.into_iter().enumerate() {
        let class = CLASSES[number % 2 * usize::from(load.alternate_class)];
        let mut frame = ethernet_header(load);
        let ip = frame.len();
        frame.extend(headers);
        let inner = append(&mut frame, load, len, class)?;
        if !headers.is_empty() {
            let payload_len = (frame.len() - ip - ipv6::HEADER_LEN) as u16;
            frame[ip - 2..ip].copy_from_slice(&ethernet::ETHERTYPE_IPV6.to_be_bytes());
            frame[ip + 4..ip + 6].copy_from_slice(&payload_len.to_be_bytes());
        }
        let written = usize::from(inner.udp) + udp::HEADER_LEN + MARKER_LEN;
        frames.push(template(&frame, written, &[inner])?);
    }
    Ok(frames)
}

fn sig_frames(load: &IpLoad, outer: &Outer, per_frame: u16) -> Result<Vec<Template>> {
    ensure!(per_frame > 0, "a SIG frame holds at least one packet");
    let headers = Headers::new(
        &outer.endpoints,
        &outer.next_hop,
        outer.path_type,
        &outer.path,
        outer.session,
    )?;
    let most = usize::from(per_frame).min(MAX_INNER);
    let lengths = lengths(load);
    let mut packets = lengths.iter().copied().peekable();
    let mut frames = Vec::new();
    while packets.peek().is_some() {
        let mut frame = vec![0; headers.len()];
        let mut inner = Vec::new();
        // Packets of one length fill the frame; those of a mix go once around.
        let more = (lengths.len() == 1).then(|| lengths[0]);
        while inner.len() < most
            && let Some(len) = packets.peek().copied().or(more)
        {
            if !inner.is_empty() && frame.len() + usize::from(len) > PACKED_FRAME {
                break;
            }
            packets.next();
            inner.push(append(&mut frame, load, len, CLASSES[0])?);
        }
        let fields = FrameFields {
            traffic_class: 0,
            flow_hash: 1,
            stream: 0,
            sequence: 0,
            index: 0,
        };
        headers
            .write(&mut frame, &fields)
            .context("the frame begins with its headers")?;
        frames.push((frame, inner));
    }
    let sig = headers.len() - 16;
    let packed = frames.iter().any(|(_, inner)| inner.len() > 1);
    let several = frames.len() > 1;
    frames
        .into_iter()
        .map(|(frame, inner)| {
            // What differs between templates must be written; the rest stays as it is in the page.
            let written = if packed && several {
                frame.len()
            } else {
                usize::from(inner[0].udp) + udp::HEADER_LEN + MARKER_LEN
            };
            let checksum = u16::from_be_bytes([frame[sig - 2], frame[sig - 1]]);
            let mut template = template(&frame, written, &inner)?;
            template.sig = sig as u16;
            template.sig_sum = !checksum;
            Ok(template)
        })
        .collect()
}

fn template(frame: &[u8], written: usize, inner: &[Inner]) -> Result<Template> {
    ensure!(
        frame.len() <= MAX_FRAME,
        "a frame of {} bytes is longer than {MAX_FRAME}",
        frame.len()
    );
    let mut template = Template {
        len: frame.len() as u32,
        written: written as u32,
        packets: inner.len() as u32,
        sig: 0,
        sig_sum: 0,
        inner: [Inner::default(); MAX_INNER],
        bytes: [0; MAX_FRAME],
    };
    template.inner[..inner.len()].copy_from_slice(inner);
    template.bytes[..frame.len()].copy_from_slice(frame);
    Ok(template)
}

/// Appends an IP packet with an empty marker.
fn append(frame: &mut Vec<u8>, load: &IpLoad, len: u16, class: u8) -> Result<Inner> {
    let least = least(load);
    if len < least {
        bail!("packets of {len} bytes are too short: a marker needs {least}");
    }
    let at = frame.len();
    let udp_at = at + ip_header_len(load);
    let udp_len = len - ip_header_len(load) as u16;
    frame.resize(at + usize::from(len), 0);
    let pseudo = ip_header(load, class, &mut frame[at..])?;
    let udp = &mut frame[udp_at..];
    udp[2..4].copy_from_slice(&DESTINATION_PORT.to_be_bytes());
    udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
    udp[8..10].copy_from_slice(&MAGIC.to_be_bytes());
    let sum = pseudo.add_bytes(udp).fold();
    udp[6..8].copy_from_slice(&(!sum).to_be_bytes());
    Ok(Inner {
        udp: udp_at as u16,
        sum,
        len: udp_len,
    })
}

/// Writes the IP header of a UDP packet; returns the sum over the pseudo header.
fn ip_header(load: &IpLoad, class: u8, packet: &mut [u8]) -> Result<Sum> {
    let len = packet.len() as u16;
    let udp_len = len - ip_header_len(load) as u16;
    match (load.source, load.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let (source, destination) = (source.octets(), destination.octets());
            let header = ipv4::Header {
                tos: class,
                total_len: len,
                identification: 0,
                dont_fragment: true,
                ttl: 64,
                protocol: PROTO_UDP,
                source,
                destination,
            };
            header.emit(packet)?;
            Ok(ipv4_pseudo_header(source, destination, udp_len, PROTO_UDP))
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let (source, destination) = (source.octets(), destination.octets());
            let header = ipv6::Header {
                traffic_class: class,
                flow_label: 0,
                payload_len: udp_len,
                next_header: PROTO_UDP,
                hop_limit: 64,
                source,
                destination,
            };
            header.emit(packet)?;
            let len = udp_len.into();
            Ok(ipv6_pseudo_header(&source, &destination, len, PROTO_UDP))
        }
        (source, destination) => {
            bail!("packets from {source} to {destination} are of no IP version")
        }
    }
}

/// The start of a frame: addresses and EtherType.
fn ethernet_header(load: &IpLoad) -> Vec<u8> {
    let ethertype = match load.destination {
        IpAddr::V4(_) => ethernet::ETHERTYPE_IPV4,
        IpAddr::V6(_) => ethernet::ETHERTYPE_IPV6,
    };
    let mut header = [load.destination_mac, load.source_mac].concat();
    header.extend(ethertype.to_be_bytes());
    header
}
