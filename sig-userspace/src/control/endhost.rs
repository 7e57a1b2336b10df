//! Who listens on the end host port.

use std::{io, net::IpAddr, sync::Arc};

use super::config;
use crate::sockets::{EndhostPort, Local};

/// Takes the end host port of `ip`, as far as the configuration wants it. `None`: another program owns it
/// and relays what is ours.
///
/// # Errors
/// Of the operating system. [`io::ErrorKind::AddrInUse`] only if the port must be ours.
///
/// # Panics
/// Outside of a tokio runtime.
pub fn open(
    local: &Arc<Local>,
    ip: IpAddr,
    wish: config::EndhostPort,
) -> io::Result<Option<EndhostPort>> {
    if wish == config::EndhostPort::Shared {
        return Ok(None);
    }
    match EndhostPort::open(local, ip) {
        Ok(port) => Ok(Some(port)),
        Err(error)
            if wish == config::EndhostPort::Auto && error.kind() == io::ErrorKind::AddrInUse =>
        {
            tracing::info!(%ip, "another program owns the end host port; it has to relay what is ours");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};

    use sig_common::{addr::IsdAs, wire::scion::ENDHOST_PORT};

    use super::*;

    #[tokio::test]
    async fn the_port_is_ours_if_it_is_wanted_and_free() {
        use config::EndhostPort::{Auto, Own, Shared};

        // An address of its own, as other processes may test the same.
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let ip = Ipv4Addr::new(127, high, low, 253).into();
        let local = Local::new(IsdAs::new(1, 1), 0..=0);
        let opened = |wish| open(&local, ip, wish).map(|port| port.is_some());

        let other = UdpSocket::bind((ip, ENDHOST_PORT)).expect("a socket");
        assert!(!opened(Auto).expect("shared"));
        assert!(!opened(Shared).expect("shared"));
        let error = opened(Own).expect_err("it must be ours");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(other);
        assert!(!opened(Shared).expect("shared"));
        assert!(opened(Auto).expect("ours"));
    }
}
