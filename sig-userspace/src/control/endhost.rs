//! Who listens on the end host port.

use std::{
    collections::BTreeSet,
    io,
    net::{IpAddr, UdpSocket},
    sync::Arc,
};

use super::config;
use sig_rpc::sockets::{EndhostPort, Local};

/// Takes the end host port of each of these addresses, as far as the configuration wants it. Those that are
/// missing belong to another program, which relays what is ours. `taken`: a socket that is open there already.
///
/// # Errors
/// Of the operating system, with the address. [`io::ErrorKind::AddrInUse`] only if the port must be ours.
///
/// # Panics
/// Outside of a tokio runtime.
pub(crate) fn open(
    local: &Arc<Local>,
    addresses: impl IntoIterator<Item = IpAddr>,
    wish: config::EndhostPort,
    taken: Option<UdpSocket>,
) -> Result<Vec<EndhostPort>, (IpAddr, io::Error)> {
    if wish == config::EndhostPort::Shared {
        return Ok(Vec::new());
    }
    let mut addresses: BTreeSet<IpAddr> = addresses.into_iter().collect();
    let mut ports = Vec::with_capacity(addresses.len());
    if let Some(socket) = taken {
        let unknown = |error| (IpAddr::from([0; 4]), error);
        let port = EndhostPort::over(local, socket).map_err(unknown)?;
        addresses.remove(&port.local_addr().ip());
        ports.push(port);
    }
    for ip in addresses {
        match EndhostPort::open(local, ip) {
            Ok(port) => ports.push(port),
            Err(error)
                if wish == config::EndhostPort::Auto
                    && error.kind() == io::ErrorKind::AddrInUse =>
            {
                tracing::info!(%ip, "the end host port is in use; relying on its owner to relay our packets");
            }
            Err(error) => return Err((ip, error)),
        }
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use sig_common::{addr::IsdAs, wire::scion::ENDHOST_PORT};

    use super::*;

    #[tokio::test]
    async fn the_ports_of_all_addresses_are_ours_if_they_are_wanted_and_free() {
        use config::EndhostPort::{Auto, Own, Shared};

        // Addresses of its own, as other processes may test the same.
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let [ip, second, third] =
            [251, 252, 253].map(|last| IpAddr::from(Ipv4Addr::new(127, high, low, last)));
        let local = Local::new(IsdAs::new(1, 1), 0..=0);
        // Each other address is taken once: a task that ends gives its port back a little later.
        let opened = |wish, other| {
            let ports = open(&local, [ip, other, ip], wish, None)?;
            let addresses = ports.iter().map(|port| port.local_addr().ip());
            Ok::<Vec<IpAddr>, (IpAddr, io::Error)>(addresses.collect())
        };

        let other = UdpSocket::bind((ip, ENDHOST_PORT)).expect("a socket");
        assert_eq!(opened(Auto, second).expect("shared"), [second]);
        assert!(opened(Shared, third).expect("shared").is_empty());
        let (whose, error) = opened(Own, third).expect_err("it must be ours");
        assert_eq!((whose, error.kind()), (ip, io::ErrorKind::AddrInUse));
        drop(other);
        assert!(opened(Shared, third).expect("shared").is_empty());
        assert_eq!(opened(Auto, third).expect("ours"), [ip, third]);
    }
}
