//! Loading and attaching the XDP and TC programs.
//!
//! [`Programs`] are those of a gateway. All maps belong to one gateway; several gateways on a host load
//! their own. Nothing is pinned: programs leave their devices when the [`Attachment`] is dropped or the
//! process ends in any way.
//!
//! Devices are named by interface index in the network namespace of the *calling thread*: attach to a
//! device of another namespace inside [`super::netns::run_in`].

mod errors;
mod maps;
mod names;
mod object;
mod router;

pub use maps::Counters;
pub use object::{Attachment, Program, ProgramFigures, TcAttachment, TestOutcome, XdpMode};
pub use router::{RouterOptions, RouterPrograms, RouterTables, SlotReasons, SlotTraffic};

use std::{
    collections::BTreeMap,
    future::Future,
    io,
    net::IpAddr,
    os::fd::{AsRawFd, BorrowedFd},
};

use aya_log::EbpfLogger;
use ipnet::IpNet;
use sig_common::{
    addr::IsdAs,
    maps::{Ip, LanPort, LanRoute, QueueKey, RemoteKey, Sockets, UnderlayPort},
    wire::underlay::Local,
};
use tokio::io::{Interest, unix::AsyncFd};

use super::Error;
use maps::Maps;
use object::Object;

/// Bytes of an Ethernet header.
const ETHERNET_LEN: u32 = 14;

/// Whether the programs tell about what they do with packets, by the crate `log` at debug level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Logging {
    /// No: the calls are not even in the running programs.
    #[default]
    Off,
    /// Drops and other rare events. Costs time per such packet.
    Debug,
}

/// The programs of a gateway and their maps.
pub struct Programs {
    object: Object,
    maps: Maps,
    logger: Option<Logger>,
}

type Logger = EbpfLogger<&'static dyn log::Log>;

impl Programs {
    /// Loads the programs into the kernel, attached to nothing, with empty maps.
    ///
    /// # Errors
    /// Missing privileges (CAP_BPF, CAP_NET_ADMIN), or a kernel that does not take the programs.
    pub fn load(logging: Logging) -> Result<Self, Error> {
        let mut object = Object::new(logging)?;
        // Before the programs are loaded, because it takes the log's map out of the object.
        let logger = match logging {
            Logging::Off => None,
            Logging::Debug => Some(object.logger()?),
        };
        object.load(&[
            Program::Underlay,
            Program::Lan,
            Program::Inner,
            Program::Inject,
        ])?;
        let maps = Maps::take(&mut object)?;
        Ok(Self {
            object,
            maps,
            logger,
        })
    }

    /// Attaches `sig_underlay` to a device that SIG frames come in through. `mode` `None` is native mode if the
    /// driver has it, else generic.
    ///
    /// # Errors
    /// No such device, another XDP program on it, missing privileges, or an MTU too large for XDP.
    pub fn attach_underlay(
        &mut self,
        ifindex: u32,
        mode: Option<XdpMode>,
    ) -> Result<Attachment, Error> {
        self.object.attach_xdp(Program::Underlay, ifindex, mode)
    }

    /// Attaches `sig_lan` to a device that packets of the LAN come in through.
    ///
    /// # Errors
    /// As [`Self::attach_underlay`].
    pub fn attach_lan(&mut self, ifindex: u32, mode: Option<XdpMode>) -> Result<Attachment, Error> {
        self.object.attach_xdp(Program::Lan, ifindex, mode)
    }

    /// Attaches `sig_inner` to the device of the inner port.
    ///
    /// # Errors
    /// As [`Self::attach_underlay`].
    pub fn attach_inner(
        &mut self,
        ifindex: u32,
        mode: Option<XdpMode>,
    ) -> Result<Attachment, Error> {
        self.object.attach_xdp(Program::Inner, ifindex, mode)
    }

    /// Attaches `sig_inject` to the TC ingress hook of the `sig` device.
    ///
    /// # Errors
    /// No such device, or missing privileges.
    pub fn attach_inject(&mut self, ifindex: u32) -> Result<TcAttachment, Error> {
        self.object.attach_tc(Program::Inject, ifindex)
    }

    /// Runs a program over an Ethernet frame as if it had come in through queue 0 of `lo`, whose interface index is 1.
    ///
    /// # Errors
    /// The kernel does not take the frame: shorter than an Ethernet header, or too long.
    pub fn test_run(&self, program: Program, frame: &[u8]) -> Result<TestOutcome, Error> {
        self.object.test_run(program, frame)
    }

    /// Sets our endpoint on the underlay device `ifindex`, which has the address `mac`. Frames to any other MAC
    /// address are left to the kernel. Sources are checked as on the other underlay devices.
    ///
    /// # Errors
    /// Too many devices.
    pub fn set_underlay_port(
        &mut self,
        ifindex: u32,
        local: &Local,
        mac: [u8; 6],
    ) -> Result<(), Error> {
        let flags = self.maps.underlay_flags();
        let port = UnderlayPort {
            local: *local,
            mac,
            flags,
        };
        self.maps.set_underlay_port(ifindex, port)
    }

    /// The underlay device `ifindex` has another MAC address now. Nothing happens if it is none.
    ///
    /// # Errors
    /// The kernel does not let us write.
    pub fn set_underlay_mac(&mut self, ifindex: u32, mac: [u8; 6]) -> Result<(), Error> {
        match self.maps.underlay_port(ifindex) {
            Some(port) => self
                .maps
                .set_underlay_port(ifindex, UnderlayPort { mac, ..port }),
            None => Ok(()),
        }
    }

    /// Makes these the underlay addresses that may bring frames of remotes, beside internal hosts that send frames
    /// of their own; `None`: whoever likes. Only differences are written.
    ///
    /// # Errors
    /// Too many prefixes. What was written before the error stays.
    pub fn set_sources(
        &mut self,
        sources: Option<impl IntoIterator<Item = IpNet>>,
    ) -> Result<(), Error> {
        let sources: Option<BTreeMap<_, _>> =
            sources.map(|nets| nets.into_iter().map(|net| (net.trunc(), 1)).collect());
        self.maps.set_sources(sources.as_ref())
    }

    /// Underlay addresses whose frames were refused, the last one of each CPU; each once.
    ///
    /// # Errors
    /// The kernel does not let us read.
    pub fn refused_sources(&self) -> Result<Vec<IpAddr>, Error> {
        self.maps.refused_sources()
    }

    /// Sets the device `ifindex` to be a LAN port with the address `mac`. With `check_mac`, only frames to this
    /// address are taken. Packets longer than `mtu` bytes are left to the kernel.
    ///
    /// # Errors
    /// Too many devices.
    pub fn set_lan_port(
        &mut self,
        ifindex: u32,
        mac: [u8; 6],
        check_mac: bool,
        mtu: u32,
    ) -> Result<(), Error> {
        let flags = if check_mac { LanPort::CHECK_MAC } else { 0 };
        let max_len = mtu.saturating_add(ETHERNET_LEN);
        self.maps.set_lan_port(
            ifindex,
            LanPort {
                mac,
                flags,
                max_len,
            },
        )
    }

    /// Makes these the remote gateways whose frames are admitted: ISD-AS, host address and number. Only differences
    /// are written; the frames of a remote that stays are admitted all the time.
    ///
    /// # Errors
    /// Too many remotes. What was written before the error stays.
    pub fn set_remotes(
        &mut self,
        remotes: impl IntoIterator<Item = (IsdAs, IpAddr, u32)>,
    ) -> Result<(), Error> {
        let key = |isd_as, host: IpAddr| RemoteKey::new(isd_as, Ip::from(host.to_canonical()));
        let remotes: BTreeMap<_, _> = remotes
            .into_iter()
            .map(|(isd_as, host, number)| (key(isd_as, host), number))
            .collect();
        self.maps.set_remotes(&remotes)
    }

    /// Makes these the routes of packets from the LAN. Only differences are written. Host bits are ignored; of two
    /// routes to one prefix the last one counts.
    ///
    /// # Errors
    /// Too many prefixes. What was written before the error stays.
    pub fn set_lan_routes(
        &mut self,
        routes: impl IntoIterator<Item = (IpNet, LanRoute)>,
    ) -> Result<(), Error> {
        let routes: BTreeMap<_, _> = routes
            .into_iter()
            .map(|(net, route)| (net.trunc(), route.action))
            .collect();
        self.maps.set_lan_routes(&routes)
    }

    /// Sets which sockets take the packets of a receive queue. `port` is an interface index or
    /// [`INNER_PORT`](sig_common::maps::INNER_PORT). A count of 0 leaves the packets to the kernel.
    ///
    /// # Errors
    /// Too many queues.
    pub fn set_steering(&mut self, port: u32, queue: u32, sockets: Sockets) -> Result<(), Error> {
        self.maps.set_steering(QueueKey { port, queue }, sockets)
    }

    /// Puts an AF_XDP socket at an index of the table that [`Self::set_steering`] refers to. It vanishes from the
    /// table when it is closed.
    ///
    /// # Errors
    /// Index out of range, or not an AF_XDP socket with a receive ring.
    pub fn set_socket(&mut self, index: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        self.maps.set_socket(index, socket.as_raw_fd())
    }

    /// Reads the counters of all programs, summed over the CPUs.
    ///
    /// # Errors
    /// The kernel does not let us read.
    pub fn counters(&self) -> Result<Counters, Error> {
        self.maps.counters()
    }

    /// The task that hands messages of the programs to the crate `log`, when they were loaded with
    /// [`Logging::Debug`]; once. It ends with an error of the ring's file descriptor only.
    ///
    /// # Errors
    /// The error it ends with.
    pub fn forward_logs(
        &mut self,
    ) -> Option<impl Future<Output = io::Result<()>> + Send + 'static> {
        let logger = self.logger.take()?;
        Some(async move {
            // SAFETY: the logger owns its file descriptor, always answers with the same one, and is owned by the
            // AsyncFd, which takes it out of the reactor before it drops it.
            let mut logger =
                unsafe { AsyncFd::register_with_interest(logger, Interest::READABLE) }?;
            loop {
                let mut ready = logger.readable_mut().await?;
                ready.get_inner_mut().flush();
                ready.clear_ready();
            }
        })
    }
}
