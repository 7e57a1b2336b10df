//! To a host or a service of the AS.

use std::net::SocketAddr;

use sig_common::{
    addr::HostAddr,
    router::{Reason, delivery, passage::Passage},
    wire::scion::{
        NEXT_SCMP,
        scmp::{ECHO_REQUEST, code},
    },
};

use super::{
    Context, Exit, Router,
    halt::{Rejection, Reply},
    parameter,
};
use sig_core::scion::scmp::Problem;

/// Service numbers with this bit mean all instances of the service; they go to any one, too.
const MULTICAST: u16 = 0x8000;

impl Router {
    /// Where a packet for this AS goes, and the reason for which the fast path leaves it alone.
    pub(super) fn deliver(
        &self,
        context: &Context<'_>,
        passage: &Passage,
    ) -> Result<(Exit, Option<Reason>), Rejection> {
        let destination = context.header.destination;
        if let Some(HostAddr::Svc(number)) = destination {
            let Some(instance) = self.instance(number, context.header.flow_id()) else {
                let problem = Problem::Unreachable { code: 0 };
                let halt = Rejection::report(Reason::NoService, problem);
                return Err(halt.behind(Reason::Service));
            };
            return Ok((Exit::Host(instance), Some(Reason::Service)));
        }
        let packet = context.packet;
        let host = delivery::host(packet, passage.address_types).map_err(|reason| {
            // The reference points to nothing here.
            Rejection::report(reason, parameter(code::INVALID_DESTINATION, 0))
        })?;
        let header_len = passage.header_len as usize;
        let port = delivery::port(packet, passage.next_header, header_len, packet.len())
            .map_err(Rejection::silent)?;
        let host = host.into();
        let here = host == self.model.internal.ip();
        if here && let Some((NEXT_SCMP, [ECHO_REQUEST, ..])) = context.header.upper_layer() {
            return Err(Rejection::new(Reason::Local, Reply::Echo));
        }
        let fast = here.then_some(Reason::Local);
        Ok((Exit::Host(self.model.host_address(host, port)), fast))
    }

    /// An instance of a service; the packets of a flow go to the same one.
    fn instance(&self, number: u16, flow_id: u32) -> Option<SocketAddr> {
        let instances = match HostAddr::Svc(number & !MULTICAST) {
            HostAddr::SVC_CS => &self.model.control_services,
            HostAddr::SVC_DS => &self.model.discovery_services,
            _ => return None,
        };
        let index = (flow_id as usize).checked_rem(instances.len())?;
        instances.get(index).copied()
    }
}
