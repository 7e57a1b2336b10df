//! Real TCP connections that carry numbered records, beside the packets: whatever happens to those, streams arrive whole.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use testbed::{Family, Site};

use super::packets::fill;

const PORT: u16 = 7_100;
/// In each direction and family.
const CONNECTIONS: u64 = 2;
const INTERVAL: Duration = Duration::from_millis(40);
const PATIENCE: Duration = Duration::from_secs(60);

/// Lengths are a few hundred bytes to several segments.
fn record(stream: u64, number: u64) -> Vec<u8> {
    let seed = stream << 48 | number;
    let mut bytes = seed.to_be_bytes().to_vec();
    fill(&mut bytes, seed, 100 + (number as usize * 997 + 31) % 4_000);
    bytes
}

/// Records that are sent until this is dropped.
pub(crate) struct Streams {
    stop: Arc<AtomicBool>,
    /// They tell how many records they sent, and received.
    ends: Vec<[JoinHandle<u64>; 2]>,
}

impl Streams {
    pub(crate) fn start(a: &Site, b: &Site) -> Self {
        let mut streams = Self {
            stop: Arc::default(),
            ends: Vec::new(),
        };
        for (from, to) in [(a, b), (b, a)] {
            for family in Family::ALL {
                let address = (to.client_ip(family), PORT);
                let listener = to.client.run(|| TcpListener::bind(address));
                let listener = listener.expect("the namespace").expect("a free port");
                for _ in 0..CONNECTIONS {
                    let ours = from.client.run(|| TcpStream::connect(address));
                    let ours = ours.expect("the namespace").expect("a connection");
                    let (theirs, _) = listener.accept().expect("the connection");
                    streams.add(ours, theirs);
                }
            }
        }
        streams
    }

    fn add(&mut self, mut ours: TcpStream, mut theirs: TcpStream) {
        ours.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        theirs.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let (stop, stream) = (self.stop.clone(), self.ends.len() as u64);
        let sending = thread::spawn(move || {
            let mut sent = 0;
            while !stop.load(Ordering::Relaxed) {
                ours.write_all(&record(stream, sent)).expect("it is taken");
                sent += 1;
                thread::sleep(INTERVAL);
            }
            ours.shutdown(Shutdown::Write).expect("an end");
            sent
        });
        let receiving = thread::spawn(move || {
            let mut bytes = Vec::new();
            for number in 0.. {
                let expected = record(stream, number);
                bytes.clear();
                let len = (&mut theirs)
                    .take(expected.len() as u64)
                    .read_to_end(&mut bytes)
                    .expect("it arrives");
                if len == 0 {
                    return number;
                }
                // Not assert_eq: it would print the bytes.
                assert!(bytes == expected, "record {number} of stream {stream}");
            }
            unreachable!("numbers do not end")
        });
        self.ends.push([sending, receiving]);
    }

    /// Ends all connections. Returns how many records arrived, of how many.
    pub(crate) fn finish(mut self) -> [u64; 2] {
        self.stop.store(true, Ordering::Relaxed);
        let mut sums = [0; 2];
        for [sending, receiving] in self.ends.drain(..) {
            sums[1] += sending.join().expect("a connection that stays");
            sums[0] += receiving.join().expect("records as they were sent");
        }
        sums
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
