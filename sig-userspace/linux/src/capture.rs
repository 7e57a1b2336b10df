//! Reads the packets of an interface, both directions, without touching them: a packet socket (packet(7)) that never sends.
//!
//! Packets that an XDP program takes do not come this far.

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sig_common::wire::ethernet::{HEADER_LEN, TAG_LEN, TPID_8021Q};

use super::Error;
use super::af_xdp::{interface_index, set_option};

/// Bytes of the longest packet that is read in full: 64 KiB, as the stack hands over before it cuts segments, and headers.
const LONGEST: usize = (1 << 16) + 512;
/// Bytes that wait in the kernel while the reader is busy.
const QUEUE: libc::c_int = 16 << 20;

/// What captured bytes begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// An Ethernet header.
    Ethernet,
    /// An IPv4 or IPv6 header, on interfaces that have no Ethernet.
    Ip,
}

/// A packet of the interface.
#[derive(Clone, Copy, Debug)]
pub struct Captured<'a> {
    /// When the kernel saw it, nanoseconds since 1970.
    pub time: u64,
    /// Its bytes, with the VLAN tag that the kernel had taken out.
    pub data: &'a [u8],
    /// Bytes that it has; more than `data` above 64 KiB.
    pub original_len: u32,
}

/// An interface of the calling thread's network namespace, being read.
#[derive(Debug)]
pub struct Capture {
    socket: OwnedFd,
    interface: String,
    begin: Begin,
    /// On the loopback interface packets come in as they go out, and count once.
    is_loopback: bool,
    /// A packet, behind room for a tag.
    buffer: Box<[u8]>,
}

/// What the kernel says of a packet.
struct Message {
    /// Its bytes, which may be more than the buffer took.
    len: usize,
    from: libc::sockaddr_ll,
    time: Option<libc::timespec>,
    /// Protocol and control information of the tag that was taken out.
    tag: Option<(u16, u16)>,
}

impl Capture {
    /// Reads `interface` from now on. Needs CAP_NET_RAW. The interface is not made promiscuous.
    ///
    /// # Errors
    /// Says what is missing.
    pub fn open(interface: &str) -> Result<Self, Error> {
        let index = interface_index(interface).map_err(|_| {
            Error::Refused(format!(
                "there is no interface {interface} here; `ip -br link` lists the existing ones"
            ))
        })?;
        let doing = || Error::doing(format!("capture on {interface}"));
        let raw = open(libc::SOCK_RAW).map_err(|error| match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Error::Refused(format!(
                "no permission to capture on {interface}: run as root or with the capability CAP_NET_RAW"
            )),
            _ => doing()(error),
        })?;
        let kind = bind(&raw, index).map_err(doing())?;
        let (socket, begin) = match kind {
            libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => (raw, Begin::Ethernet),
            _ => {
                let cooked = open(libc::SOCK_DGRAM).map_err(doing())?;
                bind(&cooked, index).map_err(doing())?;
                (cooked, Begin::Ip)
            }
        };
        Ok(Self {
            socket,
            interface: interface.to_owned(),
            begin,
            is_loopback: kind == libc::ARPHRD_LOOPBACK,
            buffer: vec![0; TAG_LEN + LONGEST].into(),
        })
    }

    /// What its packets begin with.
    pub fn begin(&self) -> Begin {
        self.begin
    }

    /// The next packet, `None` if there is none yet.
    ///
    /// # Errors
    /// The interface is down or gone, or another answer of the kernel.
    pub fn read(&mut self) -> Result<Option<Captured<'_>>, Error> {
        let message = loop {
            match self.receive() {
                Ok(message) if self.counts(&message.from) => break message,
                Ok(_) => {}
                Err(error) => match (error.kind(), error.raw_os_error()) {
                    (io::ErrorKind::WouldBlock, _) => return Ok(None),
                    (io::ErrorKind::Interrupted, _) => {}
                    (_, Some(libc::ENETDOWN | libc::ENODEV)) => {
                        return Err(Error::Refused("the interface is down or gone".to_owned()));
                    }
                    _ => return Err(self.doing()(error)),
                },
            }
        };
        let end = TAG_LEN + message.len.min(LONGEST);
        let mut begin = TAG_LEN;
        let mut original_len = message.len;
        if let Some((tpid, tci)) = message.tag
            && self.begin == Begin::Ethernet
            && message.len >= HEADER_LEN
        {
            // Between the addresses and the EtherType.
            self.buffer.copy_within(TAG_LEN..TAG_LEN + 12, 0);
            let ([p0, p1], [c0, c1]) = (tpid.to_be_bytes(), tci.to_be_bytes());
            if let Some(place) = self.buffer.get_mut(12..12 + TAG_LEN) {
                place.copy_from_slice(&[p0, p1, c0, c1]);
            }
            begin = 0;
            original_len += TAG_LEN;
        }
        Ok(Some(Captured {
            time: nanoseconds(message.time),
            data: self.buffer.get(begin..end).unwrap_or_default(),
            original_len: u32::try_from(original_len).unwrap_or(u32::MAX),
        }))
    }

    /// Waits until there is a packet or an error to be read, but not longer than `timeout`.
    ///
    /// # Errors
    /// An answer of the kernel.
    pub fn wait(&self, timeout: Duration) -> Result<(), Error> {
        let mut poll = libc::pollfd {
            fd: self.socket.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let timeout = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one entry that lives across the call.
        let result = unsafe { libc::poll(&mut poll, 1, timeout) };
        let error = io::Error::last_os_error();
        match result {
            ..0 if error.kind() != io::ErrorKind::Interrupted => Err(self.doing()(error)),
            _ => Ok(()),
        }
    }

    /// How many packets were lost since the last call, because they came faster than they were read.
    ///
    /// # Errors
    /// An answer of the kernel.
    pub fn lost(&self) -> Result<u32, Error> {
        let mut statistics = MaybeUninit::<libc::tpacket_stats>::zeroed();
        let mut len = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes to a live structure of that size.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                statistics.as_mut_ptr().cast(),
                &mut len,
            )
        };
        if result < 0 {
            return Err(self.doing()(io::Error::last_os_error()));
        }
        // SAFETY: any bytes are a value of this structure of integers, and all were set to zero.
        Ok(unsafe { statistics.assume_init() }.tp_drops)
    }

    fn doing(&self) -> impl FnOnce(io::Error) -> Error {
        Error::doing(format!("capture on {}", self.interface))
    }

    /// Whether this is one of the packets to be shown.
    fn counts(&self, from: &libc::sockaddr_ll) -> bool {
        let is_ip =
            [libc::ETH_P_IP, libc::ETH_P_IPV6].contains(&u16::from_be(from.sll_protocol).into());
        let comes_in_again = self.is_loopback && from.sll_pkttype == libc::PACKET_OUTGOING;
        (is_ip || self.begin == Begin::Ethernet) && !comes_in_again
    }

    /// Receives a packet into the buffer, behind the room for a tag.
    fn receive(&mut self) -> io::Result<Message> {
        /// Room for what the kernel says of a packet, aligned as it wants it.
        #[repr(align(8))]
        struct Control([u8; 256]);

        let room = self.buffer.get_mut(TAG_LEN..).unwrap_or_default();
        let mut part = libc::iovec {
            iov_base: room.as_mut_ptr().cast(),
            iov_len: room.len(),
        };
        let mut control = Control([0; 256]);
        // SAFETY: all-zero bytes are a value of both structures.
        let (mut from, mut header): (libc::sockaddr_ll, libc::msghdr) =
            unsafe { (mem::zeroed(), mem::zeroed()) };
        header.msg_name = (&raw mut from).cast();
        header.msg_namelen = size_of_val(&from) as libc::socklen_t;
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = control.0.len() as _;
        // SAFETY: all that the header points to is alive, exclusively borrowed and of the lengths given.
        let received = unsafe {
            libc::recvmsg(
                self.socket.as_raw_fd(),
                &mut header,
                libc::MSG_DONTWAIT | libc::MSG_TRUNC,
            )
        };
        let len = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        let mut message = Message {
            len,
            from,
            time: None,
            tag: None,
        };
        // SAFETY: the kernel filled in the control messages of this header, which are still alive.
        let mut next = unsafe { libc::CMSG_FIRSTHDR(&header) };
        while !next.is_null() {
            // SAFETY: not null, so within the control messages, whose headers are aligned there.
            let (level, kind) = unsafe { ((*next).cmsg_level, (*next).cmsg_type) };
            // SAFETY: as above.
            let data = unsafe { libc::CMSG_DATA(next) };
            match (level, kind) {
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    // SAFETY: messages of this type hold a time.
                    message.time = Some(unsafe { ptr::read_unaligned(data.cast()) });
                }
                (libc::SOL_PACKET, libc::PACKET_AUXDATA) => {
                    // SAFETY: messages of this type hold this structure.
                    let data = unsafe { ptr::read_unaligned(data.cast()) };
                    message.tag = tag(&data);
                }
                _ => {}
            }
            // SAFETY: as for the first.
            next = unsafe { libc::CMSG_NXTHDR(&header, next) };
        }
        Ok(message)
    }
}

/// Sends an Ethernet frame out of the interface with this index, in the network namespace of the calling thread.
///
/// # Errors
/// CAP_NET_RAW is missing, or the interface is not there, not up, or has no room.
pub fn send(ifindex: u32, frame: &[u8]) -> io::Result<()> {
    let socket = open(libc::SOCK_RAW | libc::SOCK_NONBLOCK)?;
    // SAFETY: all-zero bytes are a value of this structure.
    let mut to: libc::sockaddr_ll = unsafe { mem::zeroed() };
    to.sll_family = libc::AF_PACKET as u16;
    to.sll_ifindex = ifindex.cast_signed();
    // SAFETY: frame and address live across the call and have these lengths.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            frame.as_ptr().cast(),
            frame.len(),
            0,
            (&raw const to).cast(),
            size_of_val(&to) as libc::socklen_t,
        )
    };
    match sent {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A packet socket that sees nothing until it is bound.
fn open(kind: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: plain system call without pointers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` was just opened and belongs to nobody else.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let set = |level, name, value: libc::c_int| set_option(socket.as_fd(), level, name, &value);
    set(libc::SOL_PACKET, libc::PACKET_AUXDATA, 1)?;
    set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
    // More than the system's limit needs CAP_NET_ADMIN; what is allowed will do.
    set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, QUEUE)
        .or_else(|_| set(libc::SOL_SOCKET, libc::SO_RCVBUF, QUEUE))?;
    Ok(socket)
}

/// Has the socket see all packets of the interface; returns the interface's type (`ARPHRD_...`).
fn bind(socket: &OwnedFd, index: u32) -> io::Result<u16> {
    // SAFETY: all-zero bytes are a value of this structure.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index.cast_signed();
    let mut len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address lives across the call and has this length.
    if unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel writes at most `len` bytes to the live address.
    let result =
        unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut address).cast(), &mut len) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(address.sll_hatype)
}

/// The VLAN tag that was taken out of a packet, if one was.
fn tag(of: &libc::tpacket_auxdata) -> Option<(u16, u16)> {
    if of.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let tpid = match of.tp_status & libc::TP_STATUS_VLAN_TPID_VALID {
        0 => TPID_8021Q,
        _ => of.tp_vlan_tpid,
    };
    Some((tpid, of.tp_vlan_tci))
}

/// Nanoseconds since 1970; now, if the kernel did not tell.
fn nanoseconds(time: Option<libc::timespec>) -> u64 {
    let time = time.and_then(|time| {
        let seconds = u64::try_from(time.tv_sec).ok()?;
        let rest = u64::try_from(time.tv_nsec).ok()?;
        seconds.checked_mul(1_000_000_000)?.checked_add(rest)
    });
    time.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        u64::try_from(now.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
    })
}
