//! A link between two ASes.

use std::{
    net::SocketAddr,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use sig_common::addr::IsdAs;

/// One end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The AS.
    pub isd_as: IsdAs,
    /// Number of the AS's interface, not 0.
    pub interface: u16,
    /// Underlay address of the AS's router on this link.
    pub underlay: SocketAddr,
}

/// How a link fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The routers notice it, and tell senders (SCMP External Interface Down).
    Announced,
    /// Packets vanish.
    Silent,
}

/// A link. What it does to packets can be changed at any time.
#[derive(Debug)]
pub struct Link {
    /// Both ends. Between two ASes that are both core or both not, the first one is the parent where that matters.
    pub ends: [End; 2],
    /// Largest SCION packet in bytes, as paths announce it.
    pub mtu: u16,
    /// One-way latency, as paths announce it.
    pub announced_latency: Option<Duration>,
    state: Mutex<State>,
    carried: [AtomicU64; 2],
}

#[derive(Clone, Copy, Debug)]
struct State {
    cut: Option<Cut>,
    delay: Duration,
    loss: f64,
    mtu: u16,
}

/// What happens to a packet that is sent over a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Arrives { after: Duration },
    Vanishes,
}

impl Link {
    pub(crate) fn new(ends: [End; 2], mtu: u16, announced_latency: Option<Duration>) -> Self {
        Self {
            ends,
            mtu,
            announced_latency,
            state: Mutex::new(State {
                cut: None,
                delay: Duration::ZERO,
                loss: 0.0,
                mtu,
            }),
            carried: [const { AtomicU64::new(0) }; 2],
        }
    }

    /// Makes it fail.
    pub fn cut(&self, cut: Cut) {
        self.state().cut = Some(cut);
    }

    /// Makes it work again. Delay, loss and MTU stay.
    pub fn restore(&self) {
        self.state().cut = None;
    }

    /// Packets take this long, in each direction.
    pub fn set_delay(&self, delay: Duration) {
        self.state().delay = delay;
    }

    /// This share of packets, 0 to 1, is lost at random.
    pub fn set_loss(&self, share: f64) {
        self.state().loss = share;
    }

    /// SCION packets longer than `mtu` bytes are refused (SCMP Packet Too Big). Paths go on announcing what they did.
    pub fn set_mtu(&self, mtu: u16) {
        self.state().mtu = mtu;
    }

    /// How many packets arrived that the first and the second end sent.
    #[must_use]
    pub fn carried(&self) -> [u64; 2] {
        [0, 1].map(|end| self.carried[end].load(Relaxed))
    }

    /// Whether the routers take it for working.
    pub(crate) fn is_up(&self) -> bool {
        self.state().cut != Some(Cut::Announced)
    }

    /// Longest SCION packet that it carries now.
    pub(crate) fn current_mtu(&self) -> u16 {
        self.state().mtu
    }

    pub(crate) fn fate(&self) -> Fate {
        let State {
            cut, delay, loss, ..
        } = *self.state();
        let lost = || loss > 0.0 && rand::random::<f64>() < loss;
        if cut.is_some() || lost() {
            Fate::Vanishes
        } else {
            Fate::Arrives { after: delay }
        }
    }

    /// Counts a packet that came from the end `from`.
    pub(crate) fn count(&self, from: usize) {
        self.carried[from].fetch_add(1, Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
