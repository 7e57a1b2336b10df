//! What a gateway waits for on its host, as at boot: interfaces and addresses.

use std::time::Duration;

use super::Error;
use crate::control::config::{Config, UnderlayPort};
use sig_linux::{
    link::{self, Link},
    netlink::Netlink,
};

const LOOK: Duration = Duration::from_millis(500);

/// Waits until interfaces and addresses of the configuration are there; `told` is told what is missing, and again when that
/// changes. LAN interfaces may come later.
///
/// # Errors
/// The kernel does not say what there is.
pub(crate) async fn wait(config: &Config, told: impl Fn(&str)) -> Result<(), Error> {
    let netlink = Netlink::open().map_err(|source| Error::System {
        what: "open a netlink socket",
        source,
    })?;
    let mut last = None;
    loop {
        let Some(missing) = missing(&netlink, config).await? else {
            return Ok(());
        };
        if last.as_ref() != Some(&missing) {
            told(&missing);
            last = Some(missing);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The first that is missing, and what to do.
async fn missing(netlink: &Netlink, config: &Config) -> Result<Option<String>, Error> {
    let dataplane = &config.dataplane;
    let links = link::all(netlink).await?;
    let find = |name: &String| links.iter().find(|link| link.name == *name);
    let is_named = match dataplane.underlay_port {
        UnderlayPort::Socket => None,
        UnderlayPort::Auto | UnderlayPort::Xdp => dataplane.underlay.as_ref(),
    };
    if let Some(name) = is_named.filter(|name| find(name).is_none()) {
        return Ok(Some(format!(
            "interface {name}, which does not exist (`ip -br link` lists those that do)"
        )));
    }
    let gateway = [("data_addr", config.gateway.data_addr)];
    let control = config.control.as_ref();
    let control = control.map(|of| [("ctrl_addr", of.ctrl_addr), ("probe_addr", of.probe_addr)]);
    for (key, address) in gateway.into_iter().chain(control.into_iter().flatten()) {
        let ip = address.ip();
        if !link::can_bind(ip) {
            return Ok(Some(format!(
                "the address {ip} of `[gateway] {key}`, which no interface has (`ip address add` adds it)"
            )));
        }
    }
    let data_ip = config.gateway.data_addr.ip();
    let underlay = match (dataplane.underlay_port, is_named) {
        (UnderlayPort::Socket, _) => None,
        (_, Some(name)) => find(name),
        (_, None) => links.iter().find(|link| link.has_address(data_ip)),
    };
    let is_down = |link: &&Link| !link.up && link.mac.is_some();
    Ok(underlay.filter(is_down).map(|link| {
        let name = &link.name;
        format!("interface {name}, which is down (`ip link set dev {name} up`)")
    }))
}
