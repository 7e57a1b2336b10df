//! Packets between the two clients that tell whether the tunnel carries any.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use testbed::{Family, Network, Site};

/// A client that asks and asks, and another that answers for as long as this lives.
pub(crate) struct Traffic {
    asking: UdpSocket,
    stop: Arc<AtomicBool>,
}

impl Traffic {
    pub(crate) fn start(network: &Network) -> Self {
        let socket = |site: &Site| {
            let address = (site.client_ip(Family::V4), 7002);
            let socket = site
                .client
                .run(|| UdpSocket::bind(address))
                .unwrap()
                .unwrap();
            socket
                .set_read_timeout(Some(Duration::from_millis(5)))
                .unwrap();
            socket
        };
        let (asking, answering) = (socket(&network.a), socket(&network.b));
        asking
            .connect((network.b.client_ip(Family::V4), 7002))
            .unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        thread::spawn(move || {
            let mut bytes = [0; 8];
            while !stopped.load(Ordering::Relaxed) {
                if let Ok((_, from)) = answering.recv_from(&mut bytes) {
                    let _ = answering.send_to(&bytes, from);
                }
            }
        });
        Self { asking, stop }
    }

    /// Asks every five milliseconds until an answer comes to a question asked by this call, and tells how long that
    /// took. Each call has another `number`.
    pub(crate) fn wait_for_answer(&self, number: u64, patience: Duration) -> Option<Duration> {
        let start = Instant::now();
        let mut bytes = [0; 8];
        while start.elapsed() < patience {
            // While the gateway is away, the kernel may tell that there is no way to the host.
            let _ = self.asking.send(&number.to_be_bytes());
            while self.asking.recv(&mut bytes).is_ok() {
                if bytes == number.to_be_bytes() {
                    return Some(start.elapsed());
                }
            }
        }
        None
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
