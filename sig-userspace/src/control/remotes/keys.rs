//! What the gateways of an AS and we tell each other about the protection of frames.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use super::{
    Now,
    protection::Protection,
    remote_as::{Gateway, RemoteAs},
};
use crate::control::config::ProtectionMode;
use sig_core::{
    peer::Announced,
    protection::{Greeting, Offer, ReceiveKey, Refusal, Reply},
};

impl RemoteAs {
    /// Takes note of what the answer of a gateway says about the protection of frames: the answer, as far as it may be used, and
    /// whether the plan has to change.
    pub(super) fn handle_greeting(
        &mut self,
        now: Now,
        control: SocketAddr,
        result: Result<Announced, String>,
        greeting: Option<Greeting>,
    ) -> (Result<Announced, String>, bool) {
        let (Some(gateway), Ok(announced)) = (self.gateway(control), &result) else {
            return (result, false);
        };
        let announced = announced.clone();
        let before = gateway.protection.sending().is_some();
        match gateway.protection.greeted(now.monotonic, greeting) {
            Ok(outcome) => {
                if let Some(at) = outcome.ask_at {
                    gateway.exchange.sooner(at);
                }
                let after = gateway.protection.sending().is_some();
                let isd_as = self.isd_as;
                match (before, after) {
                    (false, true) => {
                        tracing::info!(%isd_as, %control, "frames to the gateway are protected");
                    }
                    (true, false) => {
                        tracing::warn!(%isd_as, %control, "frames to the gateway are no longer protected: it stopped offering protection, or no longer knows this gateway");
                    }
                    _ => {}
                }
                (Ok(announced), outcome.changed)
            }
            Err(problem) => (Err(problem), false),
        }
    }

    fn gateway(&mut self, control: SocketAddr) -> Option<&mut Gateway> {
        let mut gateways = self.gateways.iter_mut();
        gateways.find(|gateway| gateway.addresses.control == control)
    }

    /// Takes frames from the address of a gateway under the keys of all gateways that send from there.
    fn take_keys_of(&self, place: usize) {
        let Some(gateway) = self.gateways.get(place) else {
            return;
        };
        let taken = gateway.protection.taken();
        let all = self.gateways.iter().map(|other| &other.protection);
        let here = all.filter(|other| Arc::ptr_eq(other.taken(), taken));
        taken.set_receive(here.flat_map(Protection::keys).collect());
    }

    /// What to answer somebody of this AS, at this address, who asks for our prefixes.
    pub(super) fn handle_offer(
        &mut self,
        now: Now,
        host: IpAddr,
        offer: Option<&Offer>,
        make: &mut dyn FnMut() -> Option<Arc<ReceiveKey>>,
    ) -> (Option<Reply>, bool) {
        if self.protection.mode == ProtectionMode::Off {
            return (None, false);
        }
        let known = offer.and_then(|offer| {
            let places = 0..self.gateways.len();
            let mut found: Vec<usize> = places
                .filter(|place| self.gateways[*place].protection.is(&offer.identity))
                .collect();
            // Of several with one identity, the one that is where the question came from.
            found.sort_by_key(|place| self.gateways[*place].addresses.control.ip() != host);
            Some((*found.first()?, offer))
        });
        if let Some((place, offer)) = known {
            let gateway = &mut self.gateways[place];
            let (reply, ask) = gateway.protection.offered(now.monotonic, offer, make);
            if ask {
                gateway.exchange.hurry(now.monotonic);
            }
            // Before it knows of them.
            self.take_keys_of(place);
            return (Some(reply), ask);
        }
        // Who it is, or whether it protects frames no longer, we find out by asking.
        let mut ask = false;
        for gateway in &mut self.gateways {
            let concerned = match offer {
                Some(_) => true,
                None => gateway.protection.is_known(),
            };
            if concerned
                && gateway.addresses.control.ip() == host
                && gateway.protection.hurry(now.monotonic)
            {
                gateway.exchange.hurry(now.monotonic);
                ask = true;
            }
        }
        let reply = offer.map(|_| Reply {
            holding: Vec::new(),
            decision: Err(Refusal::NotYet),
        });
        (reply, ask)
    }

    /// Looks which keys are in use. Whether the plan has to change.
    pub(super) fn look_at_keys(&mut self, now: Now) -> bool {
        let mut changed = false;
        for place in 0..self.gateways.len() {
            let gateway = &mut self.gateways[place];
            let before = gateway.protection.keys().count();
            let is_strict = gateway.protection.look(now.monotonic);
            if gateway.protection.keys().count() != before {
                self.take_keys_of(place);
            }
            if is_strict {
                let gateway = &self.gateways[place];
                tracing::info!(
                    isd_as = %self.isd_as,
                    control = %gateway.addresses.control,
                    "frames from the gateway are protected; unprotected ones are refused from now on"
                );
                changed = true;
            }
        }
        changed
    }
}
