//! The TUN device: packets as the engine sees them, and gone with its ports.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::Duration;

use etherparse::{PacketBuilder, SlicedPacket, TransportSlice};

use crate::support::netns::{Netns, root_or_skip, wait_until};
use sig_core::port::{
    Port,
    umem::{Area, FreeList},
};
use sig_linux::{
    link,
    netlink::Netlink,
    tun::Tun,
    tunnel_pair::{Owner, TunnelPairConfig},
};

fn config() -> TunnelPairConfig {
    TunnelPairConfig {
        name: "sig".into(),
        queues: 2,
        mtu: 1500,
        owner: Owner::Gateway,
    }
}

/// The payload of a datagram of the host, which has no more than one piece and a right checksum; nothing for the kernel's own
/// packets, such as those about multicast groups.
fn payload(frame: &[u8]) -> Vec<u8> {
    let packet = SlicedPacket::from_ethernet(frame).unwrap();
    let Some(TransportSlice::Udp(udp)) = &packet.transport else {
        return Vec::new();
    };
    assert!(udp.payload().len() <= 1000);
    let header = udp.to_header();
    let expected = header.calc_checksum_ipv4_raw([10, 9, 0, 1], [10, 9, 0, 2], udp.payload());
    assert_eq!(Some(header.checksum), expected.ok());
    udp.payload().to_vec()
}

#[test]
fn long_packets_of_the_kernel_come_in_pieces_and_others_go_back() {
    if !root_or_skip() {
        return;
    }
    let host = Netns::new("tun");
    host.block_on(async || {
        let mut tun = Tun::create(&config()).await.unwrap();
        host.ip("address add 10.9.0.1/24 dev sig");
        let (area, pool) = Area::on_heap(1024);
        let mut free = FreeList::new(pool, 128);
        let mut ports = tun.ports(&area);
        assert_eq!(ports.len(), 2);
        let socket = UdpSocket::bind("10.9.0.1:7000").unwrap();
        let size: libc::c_int = 1000;
        // SAFETY: the kernel reads a live integer.
        let set = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_UDP,
                libc::UDP_SEGMENT,
                (&raw const size).cast(),
                size_of_val(&size) as libc::socklen_t,
            )
        };
        assert_eq!(set, 0);
        let sent: Vec<u8> = (0..20_500u32).map(|n| (n % 251) as u8).collect();
        socket.send_to(&sent, "10.9.0.2:7001").unwrap();
        let mut seen = Vec::new();
        wait_until("all pieces are there", Duration::from_secs(10), || {
            for port in &mut ports {
                port.service(&area, &mut free).unwrap();
                let mut frames = Vec::new();
                port.receive(&mut frames);
                for frame in frames {
                    seen.extend(payload(frame.bytes(&area)));
                    free.put(frame);
                }
            }
            seen.len() >= sent.len()
        });
        assert!(seen == sent);

        let mut answer = Vec::new();
        PacketBuilder::ethernet2([0; 6], [0; 6])
            .ipv4([10, 9, 0, 2], [10, 9, 0, 1], 64)
            .udp(7001, 7000)
            .write(&mut answer, b"an answer")
            .unwrap();
        let mut frame = free.take().unwrap();
        frame.place(512, answer.len());
        frame.bytes_mut(&area).copy_from_slice(&answer);
        ports[0].transmit(&mut vec![frame]);
        let limit = Some(Duration::from_secs(10));
        socket.set_read_timeout(limit).unwrap();
        let mut buffer = [0; 100];
        let (len, from) = socket.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], b"an answer");
        assert_eq!(from, "10.9.0.2:7001".parse().unwrap());

        // It goes with its ports, and the next one is there as soon as that has happened.
        drop((ports, tun));
        Tun::create(&config())
            .await
            .unwrap()
            .delete()
            .await
            .unwrap();
        let netlink = Netlink::open().unwrap();
        assert_eq!(link::find(&netlink, "sig").await.unwrap(), None);
    });
}

#[test]
fn a_name_that_another_device_has_is_refused() {
    if !root_or_skip() {
        return;
    }
    let host = Netns::new("tun-name");
    host.ip("link add sig type veth peer name other");
    host.block_on(async || {
        let error = Tun::create(&config()).await.unwrap_err().to_string();
        assert!(
            error.contains("interface sig exists and does not belong to a gateway"),
            "{error}"
        );
    });
}
