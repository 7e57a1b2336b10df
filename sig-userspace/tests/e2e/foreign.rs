//! A stand-in for a foreign gateway: what the reference does as far as the network and its host can see it.
//!
//! It takes its time, and so has packets for a while that others could overtake. Frames with packets that it gets together
//! are packed; longer packets are cut. Whole packets of frames are delivered as the frames come, from whomever, with
//! duplicates; only a packet in parts needs its frames in order.

mod frames;

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use sig_common::addr::HostAddr;
use sig_common::wire::inner::InnerPacket;
use sig_core::framing::{Encoder, FrameView};
use sig_core::scion::packet::Endpoint;
use testbed::{Family, Site};

use self::frames::{Peer, Pending, answer, datagram, encoder, send_to};
use crate::support::wire::wait;

/// The TUN device.
pub(crate) const TUNNEL: &str = "sig";
const PROBE_PORT: u16 = 30856;
const PROBE_INTERVAL: Duration = Duration::from_millis(500);
/// Packets or frames that it has at most; more are dropped.
const QUEUE: usize = 512;
/// Packets that may share frames.
const BATCH: usize = 32;
/// How soon a thread notices that it is to end.
const NOTICE: Duration = Duration::from_millis(20);

/// What the gateway sends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    /// 0 or 1.
    pub(crate) number: u8,
    pub(crate) path: Vec<u8>,
}

/// A running gateway. Its device and routes go when it is dropped.
pub(crate) struct Foreign {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    session: Mutex<Session>,
    stop: AtomicBool,
    delay: Duration,
    /// The longest time that it may have had a packet, in microseconds.
    longest: AtomicU64,
    /// Packets that it sent, and delivered.
    passed: [AtomicU64; 2],
}

impl Foreign {
    /// Starts one at `site`, for the networks of `remote`. Packets take `delay` through it.
    pub(crate) fn start(site: &Site, remote: &Site, session: Session, delay: Duration) -> Self {
        let host = |site: &Site| {
            let isd_as = site.isd_as().parse().expect("an ISD-AS");
            (isd_as, HostAddr::from(site.data_addr().ip()))
        };
        let peer = Peer {
            local: host(site),
            remote: host(remote),
            data_port: site.data_addr().port(),
            next_hop: site.router_inside(),
        };
        let open = || {
            let bind = |port| UdpSocket::bind((site.data_addr().ip(), port));
            let sockets = [peer.data_port, PROBE_PORT, 0, 0, 0].map(bind);
            let sockets = sockets.map(|socket| socket.expect("a free port"));
            (tun().expect("a TUN device"), sockets)
        };
        let (tunnel, [data, answers, probes, first, second]) =
            site.gateway.run(open).expect("the namespace");
        up(site, remote);
        let shared = Arc::new(Shared {
            session: Mutex::new(session),
            stop: AtomicBool::new(false),
            delay,
            longest: AtomicU64::new(0),
            passed: Default::default(),
        });
        let (sending, delivering, probing) = (shared.clone(), shared.clone(), shared.clone());
        let (from_tunnel, to_tunnel) = (tunnel.try_clone().expect("a copy"), tunnel);
        let prefixes = Family::ALL.map(|family| remote.prefix(family).parse().expect("a prefix"));
        let threads = vec![
            thread::spawn(move || sending.send(&from_tunnel, &[first, second], peer, prefixes)),
            thread::spawn(move || delivering.deliver(&data, &to_tunnel)),
            thread::spawn(move || probing.probe(&probes, &answers, peer)),
        ];
        Self { shared, threads }
    }

    /// Another path or session from now on.
    pub(crate) fn change(&self, session: Session) {
        *self.shared.session() = session;
    }

    /// The longest time that a packet can have been in it since the last call.
    pub(crate) fn longest_stay(&self) -> Duration {
        Duration::from_micros(self.shared.longest.swap(0, Ordering::Relaxed))
    }

    /// Packets that it sent, and delivered.
    pub(crate) fn passed(&self) -> [u64; 2] {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        self.shared.passed.each_ref().map(count)
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A new TUN device in the namespace of this thread. It goes with the file.
fn tun() -> io::Result<File> {
    let tunnel = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")?;
    // SAFETY: all-zero bytes are a valid value of this struct.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(TUNNEL.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the request lives across the call, which writes the device's name into it.
    match unsafe { libc::ioctl(tunnel.as_raw_fd(), libc::TUNSETIFF, &raw mut request) } {
        0 => Ok(tunnel),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Brings the device up, with the routes of the gateway.
pub(crate) fn up(site: &Site, remote: &Site) {
    let routes = Family::ALL.map(|family| {
        let prefix = remote.prefix(family);
        format!("route replace {prefix} dev {TUNNEL} metric 15\n")
    });
    let lines = format!("link set {TUNNEL} up txqueuelen 1000\n{}", routes.concat());
    site.gateway.ip(&lines).expect("routes into the tunnel");
}

impl Shared {
    fn session(&self) -> std::sync::MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what `receive` has, and hands it on when its time has come, in order.
    fn pass(
        &self,
        from: &impl AsFd,
        mut receive: impl FnMut(&mut [u8]) -> io::Result<usize>,
        mut hand_on: impl FnMut(Vec<Vec<u8>>),
    ) {
        let mut bytes = vec![0; 1 << 16];
        let mut waiting: VecDeque<(Instant, Instant, Vec<u8>)> = VecDeque::new();
        let mut seen_empty = Instant::now();
        while !self.stop.load(Ordering::Relaxed) {
            let until_due = |due: Instant| due.saturating_duration_since(Instant::now());
            let next = waiting.front().map_or(NOTICE, |(due, ..)| until_due(*due));
            wait(&[from.as_fd()], next.min(NOTICE));
            let looked = Instant::now();
            for _ in 0..BATCH {
                let Ok(len) = receive(&mut bytes) else {
                    seen_empty = looked;
                    break;
                };
                if waiting.len() < QUEUE {
                    let due = looked + self.delay;
                    waiting.push_back((due, seen_empty, bytes[..len].to_vec()));
                }
            }
            let now = Instant::now();
            let due = waiting.partition_point(|(due, ..)| *due <= now);
            if let Some((_, since, _)) = waiting.front()
                && due > 0
            {
                let since = *since;
                hand_on(waiting.drain(..due).map(|(.., bytes)| bytes).collect());
                let stay = since.elapsed().as_micros() as u64;
                self.longest.fetch_max(stay, Ordering::Relaxed);
            }
        }
    }

    /// From the tunnel into the network.
    fn send(&self, tunnel: &File, sockets: &[UdpSocket; 2], peer: Peer, prefixes: [IpNet; 2]) {
        let mut sender: Option<(Session, Encoder)> = None;
        let receive = |bytes: &mut [u8]| (&mut &*tunnel).read(bytes);
        self.pass(tunnel, receive, |packets| {
            let session = self.session().clone();
            let socket = &sockets[usize::from(session.number)];
            let (_, encoder) = match sender.take_if(|(of, _)| *of == session) {
                Some(same) => sender.insert(same),
                None => sender.insert((session.clone(), encoder(&session, peer))),
            };
            let send = |frame: &[u8]| {
                send_to(socket, peer, peer.data_port, &session.path, frame);
            };
            for packet in packets {
                let is_for_remote = InnerPacket::parse(packet.as_slice())
                    .is_ok_and(|inner| prefixes.iter().any(|net| net.contains(&inner.destination)));
                if is_for_remote && encoder.push(&packet, send).is_ok() {
                    self.passed[0].fetch_add(1, Ordering::Relaxed);
                }
            }
            encoder.flush(send);
        });
    }

    /// From the network into the tunnel.
    fn deliver(&self, socket: &UdpSocket, tunnel: &File) {
        socket.set_nonblocking(true).expect("a setting");
        let mut streams: HashMap<(Endpoint, u8, u32), Pending> = HashMap::new();
        self.pass(
            socket,
            |bytes| socket.recv(bytes),
            |packets| {
                for bytes in packets {
                    let Some((packet, source_port, payload)) = datagram(&bytes) else {
                        continue;
                    };
                    let Ok(frame) = FrameView::new_checked(payload) else {
                        continue;
                    };
                    let (isd_as, host) = packet.source;
                    let header = frame.header();
                    let key = ((isd_as, host, source_port), header.session, header.stream);
                    streams.entry(key).or_default().take(&frame, |packet| {
                        let _ = (&mut &*tunnel).write(packet);
                        self.passed[1].fetch_add(1, Ordering::Relaxed);
                    });
                }
            },
        );
    }

    /// Session probes, and answers to those of the remote.
    fn probe(&self, probes: &UdpSocket, answers: &UdpSocket, peer: Peer) {
        answers.set_read_timeout(Some(NOTICE)).expect("a setting");
        let mut due = Instant::now();
        let mut bytes = [0; 2048];
        while !self.stop.load(Ordering::Relaxed) {
            if Instant::now() >= due {
                due += PROBE_INTERVAL;
                let Session { number, path } = self.session().clone();
                let probe: &[u8] = match number {
                    0 => &[0x0a, 0],
                    _ => &[0x0a, 2, 8, number],
                };
                send_to(probes, peer, PROBE_PORT, &path, probe);
            }
            let Ok((len, from)) = answers.recv_from(&mut bytes) else {
                continue;
            };
            if let Some(answer) = answer(&bytes[..len]) {
                let _ = answers.send_to(&answer, from);
            }
        }
    }
}
