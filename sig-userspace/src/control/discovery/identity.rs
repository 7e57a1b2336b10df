//! Who this gateway is, and who others are that ask it.

use std::{
    path::Path,
    sync::{Arc, OnceLock, Weak},
};

use sig_core::{
    document,
    notation::{base64, from_base64},
    protection::{Offer, ReceiveKey, Refusal, Reply},
};
use sig_rpc::{Answering, OwnIdentity, Peer};

use super::{Shared, tasks::Input};
use crate::{
    control::{config::Protection, remotes::Now},
    gateway::Error,
};

/// The identity of the configured file, or a new one.
pub(super) fn own(protection: &Protection) -> Result<OwnIdentity, Error> {
    match &protection.general.identity_file {
        Some(file) => read(file).map_err(Error::Configuration),
        None => {
            let made = OwnIdentity::generate();
            let (identity, _) = made.map_err(|error| Error::Rpc(error.to_string()))?;
            Ok(identity)
        }
    }
}

/// Reads an identity file.
///
/// # Errors
/// What is wrong with it, with what to do.
pub(crate) fn read(file: &Path) -> Result<OwnIdentity, String> {
    let remedy = "; \"sig identity --new FILE\" makes one";
    let text = document::read_text(file, remedy).map_err(|errors| errors.to_string())?;
    from_base64(text.trim())
        .and_then(|document| OwnIdentity::read(&document))
        .map_err(|problem| format!("{}: {problem}{remedy}", file.display()))
}

/// A new identity, and the text of its file.
///
/// # Errors
/// Without random numbers.
pub(crate) fn make() -> Result<(OwnIdentity, String), String> {
    let (identity, document) = OwnIdentity::generate().map_err(|error| error.to_string())?;
    Ok((identity, base64(&document) + "\n"))
}

/// Decides about keys for those who ask, as soon as there is something to decide with.
#[derive(Default)]
pub(super) struct Keys(Arc<OnceLock<Weak<Shared>>>);

impl Keys {
    pub(super) fn answering(&self, own: &Arc<OwnIdentity>) -> Answering {
        let shared = Arc::clone(&self.0);
        let concerned = Arc::clone(&self.0);
        let concerns = move |caller: Peer| {
            let shared = concerned.get().and_then(Weak::upgrade);
            // As long as it starts, it does not know whom.
            shared.is_none_or(|shared| shared.remotes().protects(caller.isd_as))
        };
        let decide = move |caller: Peer,
                           offer: Option<&Offer>,
                           make: &mut dyn FnMut() -> Option<Arc<ReceiveKey>>| {
            let Some(shared) = shared.get().and_then(Weak::upgrade) else {
                return offer.map(|_| Reply {
                    holding: Vec::new(),
                    decision: Err(Refusal::NotYet),
                });
            };
            let from = (caller.isd_as, caller.address.ip().to_canonical());
            let (reply, ask) = shared.remotes().greet(Now::read(), from, offer, make);
            if ask {
                // If it has no room, the core is about to look anyway.
                let _ = shared.wake.try_send(Input::Changed);
            }
            reply
        };
        Answering::new(Arc::clone(own), Box::new(concerns), Box::new(decide))
    }

    pub(super) fn serve(&self, shared: &Arc<Shared>) {
        // Called once.
        let _ = self.0.set(Arc::downgrade(shared));
    }
}
