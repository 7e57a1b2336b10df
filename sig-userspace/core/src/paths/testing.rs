//! What the tests of this room share.

use std::time::{Duration, Instant};

use sig_common::addr::IsdAs;

use super::{Liveness, PathState};
use crate::scion::{Interface, Path};

pub(super) const MS: Duration = Duration::from_millis(1);
pub(super) const SECOND: Duration = Duration::from_secs(1);

/// AS `n` of ISD 1.
pub(super) fn isd_as(n: u64) -> IsdAs {
    IsdAs::new(1, 0xff00_0000_0000 + n)
}

pub(super) fn interface(n: u64, id: u64) -> Interface {
    Interface {
        isd_as: isd_as(n),
        id,
    }
}

/// A path through interfaces given by AS and number.
pub(super) fn path(interfaces: &[(u64, u64)]) -> Path {
    let next_hop = "10.0.0.1:30042".parse().expect("an address");
    let mut path = Path::configured(&[0; 36], next_hop, 1472);
    path.interfaces = interfaces.iter().map(|&(n, id)| interface(n, id)).collect();
    path.fingerprint = Path::fingerprint_of(&path.interfaces);
    path
}

/// A path from AS 1 to AS 9 over so many ASes in between; different for different `n`.
pub(super) fn path_over(transit: u64, n: u64) -> Path {
    let mut interfaces = vec![(1, n)];
    for hop in 0..transit {
        interfaces.extend([(100 * n + hop, 1), (100 * n + hop, 2)]);
    }
    interfaces.push((9, n));
    path(&interfaces)
}

/// A path in good health.
pub(super) fn alive(path: Path, since: Instant) -> PathState {
    PathState {
        mtu: path.mtu,
        path,
        liveness: Liveness::Alive {
            since,
            settled: since,
        },
        revoked: false,
        in_use: false,
        latency: Some(20 * MS),
        latency_min: Some(20 * MS),
        jitter: Some(Duration::ZERO),
        loss_ppm: Some(0),
    }
}
