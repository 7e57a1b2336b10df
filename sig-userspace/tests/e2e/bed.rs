//! What the end-to-end tests share.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use testbed::{Family, Network, Options, TimeLimit};

/// How long one test may take.
const LIMIT: Duration = Duration::from_secs(180);

/// The network of one test, alone on the machine. Needs root.
pub(crate) struct Bed {
    // Dropped in this order: the next test starts when everything has gone.
    pub(crate) network: Network,
    _lock: File,
    _limit: TimeLimit,
}

impl Bed {
    /// Two ASes with the gateways not started yet.
    pub(crate) fn new(options: &Options) -> Self {
        Self::with_limit(options, LIMIT)
    }

    /// The same for a test that may take another time.
    pub(crate) fn with_limit(options: &Options, limit: Duration) -> Self {
        let lock = testbed::exclusive().expect("a lock file in the folder for temporary files");
        let name = std::thread::current()
            .name()
            .unwrap_or("the test")
            .to_owned();
        let limit = testbed::time_limit(&name, limit);
        testbed::sweep();
        let network = Network::build(sig(), options).unwrap_or_else(|e| panic!("{e:#}"));
        Self {
            network,
            _lock: lock,
            _limit: limit,
        }
    }

    /// Two ASes with running gateways.
    pub(crate) fn running(options: &Options) -> Self {
        let mut bed = Self::new(options);
        bed.network
            .start_gateways()
            .unwrap_or_else(|e| panic!("{e:#}"));
        bed
    }
}

/// The gateway program under test.
pub(crate) fn sig() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_sig"))
}

/// Sends `count` echo requests of `size` bytes of payload from client A to client B; all must be answered.
pub(crate) fn assert_pings(network: &Network, family: Family, count: u32, size: u32) {
    let to = network.b.client_ip(family);
    let ping = testbed::ping(
        &network.a.client,
        to,
        count,
        size,
        Duration::from_millis(20),
    )
    .unwrap_or_else(|e| panic!("{e:#}"));
    assert_eq!(
        ping.received,
        ping.sent,
        "{size} bytes to {to}, answered of sent; gateways: {:#?}",
        [network.a.status(), network.b.status()]
    );
}

/// Sends `count` echo requests from client A to this address; all must be answered.
pub(crate) fn assert_pings_of(network: &Network, to: std::net::IpAddr, count: u32) {
    let interval = Duration::from_millis(20);
    let ping = testbed::ping(&network.a.client, to, count, 64, interval);
    let ping = ping.unwrap_or_else(|e| panic!("{e:#}"));
    assert_eq!(ping.received, ping.sent, "to {to}, answered of sent");
}
