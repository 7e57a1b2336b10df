//! Packets of an interface of this host, until the user has seen enough.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{io, process, thread};

use pcap_file::DataLink;
use sig_linux::capture::{Begin, Capture};

use super::capture::{Ended, Packet};
use crate::cli::signals::Signals;

/// How long a wish to end may go unnoticed.
const NOTICE: Duration = Duration::from_millis(100);

/// An interface being read.
pub(super) struct Live {
    capture: Capture,
    link: DataLink,
    packets: u64,
    enough: Arc<AtomicBool>,
}

impl Live {
    pub(super) fn open(interface: &str) -> Result<Self, String> {
        let capture = Capture::open(interface).map_err(|error| error.to_string())?;
        let enough = until_signal().map_err(|error| format!("cannot wait for signals: {error}"))?;
        let link = match capture.begin() {
            Begin::Ethernet => DataLink::ETHERNET,
            Begin::Ip => DataLink::RAW,
        };
        Ok(Self {
            capture,
            link,
            packets: 0,
            enough,
        })
    }

    /// The next packet, if there is one by now.
    pub(super) fn next(&mut self) -> Result<Option<Packet>, Ended> {
        if self.enough.load(Ordering::Relaxed) {
            return Err(Ended::Complete);
        }
        let broken = |error: sig_linux::Error| Ended::Broken(error.to_string());
        let Some(captured) = self.capture.read().map_err(broken)? else {
            return Ok(None);
        };
        self.packets += 1;
        Ok(Some(Packet {
            number: self.packets,
            time: captured.time,
            link: self.link,
            data: captured.data.to_owned(),
            original_len: captured.original_len,
        }))
    }

    /// Waits for a packet, but not for long.
    pub(super) fn wait(&self) -> Result<(), Ended> {
        let broken = |error: sig_linux::Error| Ended::Broken(error.to_string());
        self.capture.wait(NOTICE).map_err(broken)
    }

    /// Packets that were lost since the last call.
    pub(super) fn lost(&self) -> u64 {
        self.capture.lost().unwrap_or_default().into()
    }
}

/// Becomes true with the first signal to end. A second one ends the process even if nobody reads its output.
pub(in crate::cli) fn until_signal() -> io::Result<Arc<AtomicBool>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut signals = {
        let _within = runtime.enter();
        Signals::catch()?
    };
    let enough = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&enough);
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            runtime.block_on(signals.next());
            flag.store(true, Ordering::Relaxed);
            runtime.block_on(signals.next());
            process::exit(1);
        })?;
    Ok(enough)
}
