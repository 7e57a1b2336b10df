//! Flows of numbered UDP datagrams between the clients, and what became of them.

use std::{
    net::{SocketAddr, UdpSocket},
    os::fd::AsRawFd as _,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use testbed::{Family, Site};

/// How long datagrams may be under way.
const STRAGGLERS: Duration = Duration::from_millis(500);
const PORT: u16 = 7100;
/// Bytes of each datagram.
const SIZE: usize = 200;

/// Flows that go on until they are stopped.
pub(crate) struct Flows {
    stop: Arc<AtomicBool>,
    sent: Arc<Vec<AtomicU32>>,
    received: Arc<Mutex<Vec<Vec<u32>>>>,
    threads: [JoinHandle<()>; 2],
}

impl Flows {
    /// `count` flows from client to client with `rate` datagrams a second each.
    pub(crate) fn start(from: &Site, to: &Site, family: Family, count: u16, rate: u32) -> Self {
        let bind = |site: &Site, port| {
            let address = SocketAddr::new(site.client_ip(family), port);
            let socket = site.client.run(|| UdpSocket::bind(address));
            socket.expect("the namespace").expect("a socket")
        };
        let receiver = bind(to, PORT);
        widen(&receiver);
        receiver
            .set_read_timeout(Some(Duration::from_millis(50)))
            .expect("a time-out");
        let senders: Vec<_> = (0..count).map(|flow| bind(from, 40000 + flow)).collect();
        let to = SocketAddr::new(to.client_ip(family), PORT);
        let stop = Arc::new(AtomicBool::new(false));
        let sent: Arc<Vec<_>> = Arc::new(senders.iter().map(|_| AtomicU32::new(0)).collect());
        let received = Arc::new(Mutex::new(vec![Vec::new(); senders.len()]));
        let sending = {
            let (stop, sent) = (stop.clone(), sent.clone());
            thread::spawn(move || {
                let start = Instant::now();
                let mut bytes = [0; SIZE];
                while !stop.load(Relaxed) {
                    let due = (start.elapsed().as_secs_f64() * f64::from(rate)) as u32;
                    for (flow, (socket, sent)) in (0u32..).zip(senders.iter().zip(&*sent)) {
                        bytes[..4].copy_from_slice(&flow.to_be_bytes());
                        // After a pause of the machine not all at once: nobody promised room for that.
                        for number in (sent.load(Relaxed)..due).take(20) {
                            bytes[4..8].copy_from_slice(&number.to_be_bytes());
                            // What the kernel refuses is lost.
                            let _ = socket.send_to(&bytes, to);
                            sent.store(number + 1, Relaxed);
                        }
                    }
                    thread::sleep(Duration::from_millis(1));
                }
            })
        };
        let receiving = {
            let (stop, received) = (stop.clone(), received.clone());
            thread::spawn(move || {
                let mut bytes = [0; SIZE];
                let mut end = None;
                while end.is_none_or(|end| Instant::now() < end) {
                    if end.is_none() && stop.load(Relaxed) {
                        end = Some(Instant::now() + STRAGGLERS);
                    }
                    let Ok(SIZE) = receiver.recv(&mut bytes) else {
                        continue;
                    };
                    let word = |at: usize| {
                        u32::from_be_bytes(std::array::from_fn(|byte| bytes[at + byte]))
                    };
                    received.lock().expect("no panic")[word(0) as usize].push(word(4));
                }
            })
        };
        Self {
            stop,
            sent,
            received,
            threads: [sending, receiving],
        }
    }

    /// How many datagrams of each flow have been sent so far.
    pub(crate) fn sent(&self) -> Vec<u32> {
        self.sent.iter().map(|sent| sent.load(Relaxed)).collect()
    }

    /// Whether a datagram of the first flow has arrived that was sent after the first `number`.
    pub(crate) fn has_arrived_since(&self, number: u32) -> bool {
        let received = self.received.lock().expect("no panic");
        received[0].last().is_some_and(|last| *last >= number)
    }

    /// Stops them and waits for the last datagrams.
    pub(crate) fn stop(self) -> Outcome {
        self.stop.store(true, Relaxed);
        for thread in self.threads {
            thread.join().expect("no panic");
        }
        let sent = self.sent.iter().map(|sent| sent.load(Relaxed));
        let received = std::mem::take(&mut *self.received.lock().expect("no panic"));
        Outcome {
            flows: sent
                .zip(received)
                .map(|(sent, received)| Flow { sent, received })
                .collect(),
        }
    }
}

/// What became of flows.
pub(crate) struct Outcome {
    pub(crate) flows: Vec<Flow>,
}

impl Outcome {
    /// Every datagram arrived, in order, once.
    pub(crate) fn assert_perfect(&self) {
        self.assert_ordered();
        let lost: Vec<_> = self
            .flows
            .iter()
            .map(|flow| flow.lost(0, flow.sent))
            .collect();
        assert!(lost.iter().all(|lost| *lost == 0), "lost: {lost:?}");
        assert!(self.flows.iter().all(|flow| flow.sent > 0));
    }

    /// No datagram overtook another of its flow, and none came twice.
    pub(crate) fn assert_ordered(&self) {
        for (number, flow) in self.flows.iter().enumerate() {
            let bad = flow.received.windows(2).find(|pair| pair[0] >= pair[1]);
            assert_eq!(bad, None, "neighbours in flow {number}");
        }
    }
}

/// A flow that has ended.
pub(crate) struct Flow {
    pub(crate) sent: u32,
    /// Numbers in the order of arrival.
    pub(crate) received: Vec<u32>,
}

impl Flow {
    /// How many of the datagrams with these numbers are missing.
    pub(crate) fn lost(&self, from: u32, to: u32) -> usize {
        let mut arrived = vec![false; self.sent as usize];
        for number in &self.received {
            arrived[*number as usize] = true;
        }
        arrived[from as usize..to as usize]
            .iter()
            .filter(|arrived| !**arrived)
            .count()
    }
}

/// Gives the socket room for what comes while its thread waits for a processor.
fn widen(socket: &UdpSocket) {
    let bytes: libc::c_int = 16 << 20;
    // SAFETY: the pointer and the length are those of a live integer.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUFFORCE,
            (&raw const bytes).cast(),
            size_of_val(&bytes) as libc::socklen_t,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}
