//! The tunnel device without BPF: a TUN device with a queue for each worker.
//!
//! It goes with the last of its queues, however the process ends, and with it every route that points at it. The kernel hands
//! over packets of up to 64 KiB, with checksums left open, which the port cuts.

mod port;
mod segments;

use std::{
    fs::{File, OpenOptions},
    io,
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt as _},
    sync::Arc,
    time::Instant,
};

use rtnetlink::packet_route::{
    RouteNetlinkMessage,
    link::{LinkAttribute, LinkFlags, LinkMessage},
};
use sig_core::port::umem::Area;

use crate::{
    Error,
    link::{self, MAX_XDP_MTU},
    netlink::Netlink,
    tunnel_pair::{self, BUSY_RETRY, BUSY_TIMEOUT, Owner, TX_QUEUE_LEN, TunnelPairConfig},
};
pub use port::{CHUNKS, TunPort};

const DEVICE: &str = "/dev/net/tun";

// Not in `libc`.
const TUNSETIFF: libc::Ioctl = 0x4004_54ca;
const TUNSETOFFLOAD: libc::Ioctl = 0x4004_54d0;
const OFFLOADS: libc::c_ulong = 0x01 | 0x02 | 0x04 | 0x08;
/// Long packets of UDP, since Linux 6.2.
const UDP_OFFLOADS: libc::c_ulong = 0x20 | 0x40;

/// The device, up. Dropping it and its ports removes it; [`Tun::delete`] waits for that.
#[derive(Debug)]
pub struct Tun {
    name: String,
    ifindex: u32,
    netlink: Netlink,
    queues: Vec<File>,
}

impl Tun {
    /// Creates the device in the calling thread's network namespace. One left by a predecessor that was killed is waited for.
    ///
    /// # Errors
    /// The name is taken, or the kernel refuses, with what to do.
    pub async fn create(config: &TunnelPairConfig) -> Result<Self, Error> {
        tunnel_pair::check(config)?;
        if config.mtu > MAX_XDP_MTU {
            return Err(Error::Refused(format!(
                "a TUN device has an MTU of at most {MAX_XDP_MTU}: set `mtu` in [tunnel] to {MAX_XDP_MTU} or less, or \
                 `device = \"veth\"`"
            )));
        }
        let netlink = Netlink::open().map_err(Error::doing("open a netlink socket"))?;
        let mut queues = vec![add_when_free(&netlink, config).await?];
        for _ in 1..config.queues {
            let queue = attach(&config.name, 0);
            queues.push(queue.map_err(|error| refused(&config.name, &error))?);
        }
        let link = link::by_name(&netlink, &config.name).await?;
        let mut message = LinkMessage::default();
        message.header.index = link.ifindex;
        message.attributes = vec![
            LinkAttribute::Mtu(config.mtu),
            LinkAttribute::TxQueueLen(TX_QUEUE_LEN),
        ];
        let doing = format!("set the MTU of {}", config.name);
        let set = netlink.execute(RouteNetlinkMessage::SetLink(message), 0);
        set.await.map_err(Error::doing(doing))?;
        tunnel_pair::prepare(&netlink, &config.name, link.ifindex, Owner::Gateway).await?;
        let mut message = LinkMessage::default();
        message.header.index = link.ifindex;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        let doing = format!("bring {} up", config.name);
        let set = netlink.execute(RouteNetlinkMessage::SetLink(message), 0);
        set.await.map_err(Error::doing(doing))?;
        Ok(Self {
            name: config.name.clone(),
            ifindex: link.ifindex,
            netlink,
            queues,
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its index.
    #[must_use]
    pub const fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// The ports of the workers, with packets in `area`, in their order; none if they have been taken.
    pub fn ports(&mut self, area: &Arc<Area>) -> Vec<TunPort> {
        let queues = std::mem::take(&mut self.queues).into_iter();
        queues
            .map(|queue| TunPort::new(queue, area.clone()))
            .collect()
    }

    /// Deletes the device and the routes that point at it, and waits until it is gone.
    ///
    /// # Errors
    /// The kernel refuses.
    pub async fn delete(self) -> Result<(), Error> {
        drop(self.queues);
        tunnel_pair::delete_link(&self.netlink, &self.name, self.ifindex).await
    }
}

/// Whether the device that makes TUN devices can be opened.
pub(crate) fn try_open() -> io::Result<()> {
    open().map(drop)
}

fn open() -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(DEVICE)
}

async fn add_when_free(netlink: &Netlink, config: &TunnelPairConfig) -> Result<File, Error> {
    let name = &config.name;
    let deadline = Instant::now() + BUSY_TIMEOUT;
    loop {
        match attach(name, libc::IFF_TUN_EXCL) {
            Ok(queue) => return Ok(queue),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
            Err(error) => return Err(refused(name, &error)),
        }
        tunnel_pair::may_wait_for(netlink, config, deadline).await?;
        tokio::time::sleep(BUSY_RETRY).await;
    }
}

fn refused(name: &str, error: &io::Error) -> Error {
    Error::Refused(format!(
        "cannot create the TUN device {name}: {error}; it needs {DEVICE} (`modprobe tun`; give a container the device, as with \
         `--device {DEVICE}`) and CAP_NET_ADMIN"
    ))
}

/// `struct ifreq` of `net/if.h`, for names and flags.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    flags: libc::c_short,
    rest: [u8; 22],
}

/// Makes a queue of the device, and with it the device if it is the first one.
fn attach(name: &str, more_flags: libc::c_int) -> io::Result<File> {
    let queue = open()?;
    let flags =
        libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_MULTI_QUEUE | libc::IFF_VNET_HDR | more_flags;
    let mut request = Request {
        name: [0; libc::IFNAMSIZ],
        // The upper one is the sign.
        flags: flags as libc::c_short,
        rest: [0; 22],
    };
    let name = name.as_bytes();
    let end = libc::IFNAMSIZ - 1;
    let len = name.len().min(end);
    request.name[..len].copy_from_slice(&name[..len]);
    // SAFETY: the kernel reads and writes a live `ifreq`, whose length this structure has.
    let result = unsafe { libc::ioctl(queue.as_raw_fd(), TUNSETIFF, &raw mut request) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let offload = |offloads: libc::c_ulong| {
        // SAFETY: takes no pointer.
        match unsafe { libc::ioctl(queue.as_raw_fd(), TUNSETOFFLOAD, offloads) } {
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    offload(OFFLOADS | UDP_OFFLOADS).or_else(|_| offload(OFFLOADS))?;
    Ok(queue)
}

const _: () = assert!(size_of::<Request>() == size_of::<libc::ifreq>());
