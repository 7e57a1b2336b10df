//! `sig relay`: the stand-in for border routers in the demo and in the end-to-end tests.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::str::FromStr;

use sig_common::maps::{Ip, RelayKey, RelayValue};
use tokio::signal::unix::{SignalKind, signal};

use super::Failure;
use crate::kernel::bpf::Relay;
use crate::kernel::link::{self, Link};
use crate::kernel::netlink::Netlink;

/// For tests: give UDP datagrams other addresses and send them on, in XDP, until SIGINT or SIGTERM.
///
/// Stands in for a border router between two gateways. It looks at neither SCION header nor path.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Datagrams to forward, and how: those to ADDRESS that come in through DEVICE get the
    /// addresses SOURCE and DESTINATION and the link-layer destination MAC, and leave through OUT.
    #[arg(
        long = "forward",
        value_name = "DEVICE,ADDRESS=OUT,SOURCE,DESTINATION,MAC",
        required = true
    )]
    forward: Vec<Forward>,
}

/// One way through the relay. Addresses are written `IP:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Forward {
    device: String,
    address: SocketAddr,
    out: String,
    source: SocketAddr,
    destination: SocketAddr,
    mac: [u8; 6],
}

impl FromStr for Forward {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (taken, sent) = text.split_once('=').ok_or("there is no \"=\"")?;
        let [device, address] = parts(taken)?;
        let [out, source, destination, mac] = parts(sent)?;
        let forward = Self {
            device: device.to_owned(),
            address: socket_address(address)?,
            out: out.to_owned(),
            source: socket_address(source)?,
            destination: socket_address(destination)?,
            mac: mac_address(mac)?,
        };
        let families = [forward.address, forward.source, forward.destination];
        if families
            .iter()
            .any(|a| a.is_ipv4() != families[0].is_ipv4())
        {
            return Err("the addresses are partly IPv4 and partly IPv6".to_owned());
        }
        Ok(forward)
    }
}

fn parts<const N: usize>(text: &str) -> Result<[&str; N], String> {
    let parts: Vec<_> = text.split(',').collect();
    <[&str; N]>::try_from(parts)
        .map_err(|parts| format!("\"{text}\" has {} parts instead of {N}", parts.len()))
}

fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| format!("\"{text}\" is not IP:port"))
}

fn mac_address(text: &str) -> Result<[u8; 6], String> {
    let wrong = || format!("\"{text}\" is not a MAC address, such as 02:00:00:00:00:01");
    let bytes: Vec<u8> = text
        .split(':')
        .map(|byte| match byte.as_bytes() {
            // The parser of the standard library would take a sign, too.
            [high, low] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                u8::from_str_radix(byte, 16).map_err(|_| wrong())
            }
            _ => Err(wrong()),
        })
        .collect::<Result<_, _>>()?;
    bytes.try_into().map_err(|_| wrong())
}

impl Forward {
    fn key(&self, device: &Link) -> RelayKey {
        RelayKey {
            ifindex: device.ifindex,
            port: self.address.port(),
            reserved: 0,
            dst: Ip::from(self.address.ip()),
        }
    }

    fn value(&self, out: &Link) -> Result<RelayValue, Failure> {
        let src_mac = out.mac.ok_or_else(|| {
            Failure::Refused(format!("interface {} has no hardware address", out.name))
        })?;
        Ok(RelayValue {
            src: Ip::from(self.source.ip()),
            dst: Ip::from(self.destination.ip()),
            src_port: self.source.port(),
            dst_port: self.destination.port(),
            ifindex: out.ifindex,
            src_mac,
            dst_mac: self.mac,
            reserved: 0,
        })
    }
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed("start the asynchronous runtime"))?
        .block_on(relay(&args.forward, out))
}

async fn relay(forwards: &[Forward], out: &mut dyn Write) -> Result<(), Failure> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed("handle SIGINT"))?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed("handle SIGTERM"))?;
    let devices = devices(forwards).await?;
    let mut relay = Relay::load()?;
    for forward in forwards {
        let value = forward.value(&devices[&forward.out])?;
        relay.set(forward.key(&devices[&forward.device]), value)?;
    }
    let mut attached = Vec::new();
    for device in devices.values() {
        attached.push(relay.attach(device.ifindex, None)?);
    }
    writeln!(out, "relay is ready")?;
    out.flush()?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    writeln!(out, "forwarded {} datagrams", relay.forwarded()?)?;
    drop(attached);
    Ok(())
}

fn failed(doing: &str) -> impl FnOnce(io::Error) -> Failure {
    move |error| Failure::Failed(format!("cannot {doing}: {error}"))
}

/// All devices of the rules, by name.
async fn devices(forwards: &[Forward]) -> Result<BTreeMap<String, Link>, Failure> {
    let netlink = Netlink::open().map_err(failed("open a netlink socket"))?;
    let mut devices = BTreeMap::new();
    for name in forwards.iter().flat_map(|f| [&f.device, &f.out]) {
        if !devices.contains_key(name) {
            devices.insert(name.clone(), link::by_name(&netlink, name).await?);
        }
    }
    Ok(devices)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "eth0,10.0.0.1:30042=eth1,10.9.0.1:50000,10.9.0.2:50000,02:00:00:00:0a:ff";

    #[test]
    fn a_rule_is_read() {
        let forward: Forward = GOOD.parse().unwrap();
        assert_eq!((&*forward.device, &*forward.out), ("eth0", "eth1"));
        assert_eq!(forward.address, "10.0.0.1:30042".parse().unwrap());
        assert_eq!(forward.source, "10.9.0.1:50000".parse().unwrap());
        assert_eq!(forward.destination, "10.9.0.2:50000".parse().unwrap());
        assert_eq!(forward.mac, [2, 0, 0, 0, 0x0a, 0xff]);
    }

    #[test]
    fn a_wrong_rule_says_what_is_wrong() {
        let error = |text: &str| text.parse::<Forward>().unwrap_err();
        assert_eq!(error("eth0"), "there is no \"=\"");
        assert_eq!(error("eth0=eth1"), "\"eth0\" has 1 parts instead of 2");
        assert!(error(&GOOD.replace(":30042", "")).contains("is not IP:port"));
        for mac in ["02:00:00:00:0a", "02:00:00:00:0a:fff", "02:00:00:00:0a:+f"] {
            let text = GOOD.replace("02:00:00:00:0a:ff", mac);
            assert!(error(&text).contains("is not a MAC address"), "{mac}");
        }
        assert!(error(&GOOD.replace("10.9.0.2", "[fd00::2]")).contains("partly IPv6"));
    }
}
