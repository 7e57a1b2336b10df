//! The UDP sockets at the data address, and at the end host port of the same host.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
};

use sig_common::wire::scion::ENDHOST_PORT;
use sig_linux::socket_port::Group;

use super::Error;
use crate::control::config::{Config, EndhostPort};

/// What is open there.
pub(super) enum Sockets {
    /// XDP takes the frames.
    Held(UdpSocket),
    /// The workers read frames from there.
    Read {
        data: Group,
        /// Where border routers deliver if the data port is outside of the dispatched range; `None`: not ours, or not of
        /// interest.
        endhost: Option<Group>,
    },
}

impl Sockets {
    pub(super) fn open(config: &Config, has_sockets: bool) -> Result<Self, Error> {
        let address = config.gateway.data_addr;
        let failed = |source| Error::DataAddress { address, source };
        if !has_sockets {
            // Keeps the port from other programs, and the kernel from answering frames with "port unreachable" while no
            // program is attached.
            let socket = UdpSocket::bind(address).map_err(failed)?;
            return Ok(Self::Held(socket));
        }
        let workers = config.dataplane.workers;
        // Whoever finds remotes reads SCMP messages, and what else arrives at the end host port.
        let discovery = config.control.as_ref().map(|control| &control.discovery);
        let data =
            Group::open(address, address.port(), workers, discovery.is_some()).map_err(failed)?;
        let wanted = discovery.is_none_or(|of| of.endhost_port != EndhostPort::Shared);
        let endhost = SocketAddr::new(address.ip(), ENDHOST_PORT);
        let open = || Group::open(endhost, address.port(), workers, discovery.is_some());
        let endhost = match wanted.then(open) {
            Some(Ok(group)) => Some(group),
            Some(Err(error)) if error.kind() == io::ErrorKind::AddrInUse => {
                // With discovery, whoever opens it for the other addresses tells what follows from that.
                if discovery.is_none() {
                    tracing::info!(%endhost, "the end host port is in use; relying on its owner to relay our frames");
                }
                None
            }
            Some(Err(source)) => {
                return Err(Error::Socket {
                    what: "end host port",
                    address: endhost,
                    source,
                });
            }
            None => None,
        };
        Ok(Self::Read { data, endhost })
    }

    /// All groups that workers read from.
    pub(super) fn groups(&mut self) -> impl Iterator<Item = &mut Group> {
        let (data, endhost) = match self {
            Self::Held(_) => (None, None),
            Self::Read { data, endhost } => (Some(data), endhost.as_mut()),
        };
        data.into_iter().chain(endhost)
    }

    /// What is not for the workers: of the data address, and of the end host port. Sockets that nobody takes, to be kept.
    pub(super) fn rest(self) -> Rest {
        match self {
            Self::Held(socket) => Rest {
                data: Some(socket),
                ..Rest::default()
            },
            Self::Read { data, endhost } => {
                let (endhost, guard) = endhost.map(|of| (of.rest, of.guard)).unzip();
                Rest {
                    data: data.rest,
                    endhost: endhost.flatten(),
                    _guards: [data.guard, guard.flatten()],
                }
            }
        }
    }
}

/// See [`Sockets::rest`].
#[derive(Default)]
pub(super) struct Rest {
    pub(super) data: Option<UdpSocket>,
    pub(super) endhost: Option<UdpSocket>,
    _guards: [Option<UdpSocket>; 2],
}
