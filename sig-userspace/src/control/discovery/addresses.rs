//! The gateway's own AS and addresses, as far as the configuration leaves them open.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use sig_common::addr::IsdAs;

use super::Error;
use crate::control::config::{Config, Control};
use sig_rpc::daemon::{Daemon, LocalAs};

/// Fills in what the configuration leaves to be found out. As the reference does, an open address is the one
/// that this host uses towards the control service of its AS. `control` is that of the configuration.
pub(super) async fn complete(
    mut config: Config,
    mut control: Control,
    daemon: &Daemon,
    local: &LocalAs,
) -> Result<(Config, Control), Error> {
    if config.gateway.isd_as != IsdAs(0) && config.gateway.isd_as != local.isd_as {
        return Err(Error::Configuration(format!(
            "[gateway] isd_as is {}, but the SCION daemon is that of {}; remove the key, or correct it or \
             [sciond_connection] address",
            config.gateway.isd_as, local.isd_as
        )));
    }
    config.gateway.isd_as = local.isd_as;
    if control.ctrl_addr.ip().is_unspecified() {
        let service = daemon
            .control_service_ip()
            .await
            .map_err(|error| Error::Configuration(error.to_string()))?;
        let ip = service.and_then(source_towards).ok_or_else(|| {
            Error::Configuration(
                "cannot determine the address of this gateway: the daemon lists no control \
                 service that this host has a route to; set [gateway] ctrl_addr"
                    .into(),
            )
        })?;
        control.ctrl_addr.set_ip(ip);
        tracing::info!(%ip, "local address chosen from the route to the control service");
    }
    let ip = control.ctrl_addr.ip();
    for address in [&mut control.probe_addr, &mut config.gateway.data_addr] {
        if address.ip().is_unspecified() {
            address.set_ip(ip);
        }
    }
    config.control = Some(control.clone());
    Ok((config, control))
}

/// The source address that the kernel chooses towards `ip`. No packet is sent.
fn source_towards(ip: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match ip {
        IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).ok()?;
    socket.connect(SocketAddr::new(ip, 30252)).ok()?;
    let source = socket.local_addr().ok()?.ip();
    (!source.is_unspecified()).then_some(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_towards_this_host_is_this_host() {
        let loopback = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(source_towards(loopback), Some(loopback));
    }
}
