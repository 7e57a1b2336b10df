//! Protected frames with one gateway: which keys there are, and what is refused without.
//!
//! Each side asks for the key that it sends under, over the connection by which it asks for prefixes; so a key is known to the
//! receiver before the sender has it. Who asks us must prove to be whom we found when we asked it: that question took a path to its
//! AS that we had chosen, while anybody can claim an address when he asks. Where identities are pinned, both must be
//! among the pins.
//!
//! What is said in a question changes nothing else, and can at most make us ask, which we do anyway. That a gateway protects its frames no
//! longer is believed if it says so when we ask.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::control::config::{ProtectionMode, RemoteProtection};
use sig_core::{
    protection::{Greeting, Hello, Identity, Keyring, Offer, ReceiveKey, Refusal, Reply},
    status::Protection as Status,
};

/// A key that is older gets a successor, over another connection: whoever learns the secrets of one has no other frames.
const KEY_AGE: Duration = Duration::from_secs(1800);
/// So does one that has protected so many frames: far below what AES-GCM bears.
const KEY_FRAMES: u64 = 1 << 30;
/// How long a key is still taken once its successor is in use: longer than frames are on their way.
const OLD_KEY: Duration = Duration::from_secs(30);
/// How long frames without protection are still taken once there are others.
const UNPROTECTED: Duration = Duration::from_secs(3);
/// Keys for frames from a gateway: the one in use, the one before, and some that it asked for and did not use.
const MAX_KEYS: usize = 6;
/// A gateway that does not know us yet is asked again after so long, and then after twice as long each time.
const FIRST_WAIT: Duration = Duration::from_millis(250);
/// The longest of these times.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// Strangers can make us ask a gateway once in this time, and it can as well.
const HURRY_INTERVAL: Duration = Duration::from_secs(1);
/// A gateway gets so many keys in such a time.
const GIVEN: usize = 4;
const GIVE_INTERVAL: Duration = Duration::from_secs(4);
/// A gateway that says so often in a row that it does not know us, has no key of ours, and sends under none.
const STRANGE: u32 = 2;

/// The protection of frames to and from a gateway.
#[derive(Debug)]
pub(super) struct Protection {
    policy: RemoteProtection,
    workers: usize,
    keyring: Arc<Keyring>,
    /// With the keys of all gateways that send from the same address.
    taken: Arc<Keyring>,
    /// Who it was when we asked it last.
    identity: Option<Identity>,
    /// Whether frames to it are protected, and since when under the current key.
    sends: Option<Instant>,
    /// It does not know the key any more.
    is_lost: bool,
    receives: Vec<Received>,
    /// When frames under a key of it were first seen.
    seen: Option<Instant>,
    /// Frames from it that are not protected are refused.
    is_strict: bool,
    wait: Duration,
    /// How often in a row it has said that it does not know us.
    strange: u32,
    hurried: Option<Instant>,
    hurried_by_it: Option<Instant>,
    /// Its process may be another one than that of the connection to it.
    is_stale: bool,
    /// When it got keys.
    given: VecDeque<Instant>,
    refusal: Option<Refusal>,
}

#[derive(Debug)]
struct Received {
    key: Arc<ReceiveKey>,
    /// When a later one was first seen in use.
    replaced: Option<Instant>,
}

/// What follows from an answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Whether the plan has to change.
    pub(super) changed: bool,
    /// When the gateway is to be asked again, if earlier than it would be.
    pub(super) ask_at: Option<Instant>,
}

impl Protection {
    /// `taken`: that of another gateway that sends from the same address, if there is one.
    pub(super) fn new(
        policy: RemoteProtection,
        workers: usize,
        taken: Option<Arc<Keyring>>,
    ) -> Self {
        Protection {
            policy,
            workers,
            keyring: Arc::default(),
            taken: taken.unwrap_or_default(),
            identity: None,
            sends: None,
            is_lost: false,
            receives: Vec::new(),
            seen: None,
            is_strict: false,
            wait: FIRST_WAIT,
            strange: 0,
            hurried: None,
            hurried_by_it: None,
            is_stale: false,
            given: VecDeque::new(),
            refusal: None,
        }
    }

    /// Keys for frames to it, if these are protected.
    pub(super) fn sending(&self) -> Option<Arc<Keyring>> {
        let protects = self.sends.is_some() || self.policy.requires();
        protects.then(|| self.keyring.clone())
    }

    /// Keys for frames from it, unless there will never be any, and whether no others are taken.
    pub(super) fn receiving(&self) -> (Option<Arc<Keyring>>, bool) {
        let may_be = self.policy.mode != ProtectionMode::Off;
        let keyring = may_be.then(|| self.taken.clone());
        (keyring, self.is_strict || self.policy.requires())
    }

    /// Whether frames can be sent to it.
    pub(super) fn may_send(&self) -> bool {
        self.sends.is_some() || !self.policy.requires()
    }

    fn is_trusted(&self, identity: &Identity) -> bool {
        self.policy.pins.is_empty() || self.policy.pins.contains(identity)
    }

    /// Where the keys are from which frames of its address are taken.
    pub(super) fn taken(&self) -> &Arc<Keyring> {
        &self.taken
    }

    /// Keys for its frames.
    pub(super) fn keys(&self) -> impl Iterator<Item = Arc<ReceiveKey>> {
        self.receives.iter().map(|it| it.key.clone())
    }

    fn holding(&self) -> Vec<u32> {
        self.receives.iter().map(|it| it.key.number()).collect()
    }

    /// What to say when it is asked; `None`: nothing of all this.
    pub(super) fn hello(&self, now: Instant) -> Option<Hello> {
        if self.policy.mode == ProtectionMode::Off {
            return None;
        }
        let is_old = self.sends.is_some_and(|since| now >= since + KEY_AGE)
            || self
                .keyring
                .send()
                .is_some_and(|key| key.sent() >= KEY_FRAMES);
        Some(Hello {
            wants_key: self.sends.is_none() || self.is_lost || is_old,
            fresh: (self.sends.is_some() && is_old) || self.is_stale,
            holding: self.holding(),
            workers: self.workers,
        })
    }

    /// Takes note of an answer; `None`: of one without a word about protection.
    ///
    /// # Errors
    ///
    /// Why nothing of the answer may be used.
    pub(super) fn greeted(
        &mut self,
        now: Instant,
        greeting: Option<Greeting>,
    ) -> Result<Outcome, String> {
        if self.policy.mode == ProtectionMode::Off {
            return Ok(Outcome::default());
        }
        let Some(greeting) = greeting else {
            return self.without(now);
        };
        if !self.is_trusted(&greeting.identity) {
            return Err(format!(
                "the gateway is {}, which is not among the pins of its AS in [[protection.remote]]: if its operator has given it \
                 another identity, write that there; else somebody sits in between",
                greeting.identity
            ));
        }
        let before = self.identity.replace(greeting.identity);
        if before.is_some_and(|before| before != greeting.identity) {
            tracing::info!(identity = %greeting.identity, "the gateway has a new identity");
        }
        let mut outcome = Outcome::default();
        let asked_again = self.sends.is_some();
        self.refusal = greeting.refusal;
        self.is_stale = false;
        // Perhaps there was an answer without protection in between.
        if let Some(newest) = self.receives.iter_mut().rfind(|it| it.key.is_in_use()) {
            newest.replaced = None;
        }
        let own = self.keyring.send().map(|key| key.number());
        let is_known = own.is_none_or(|own| greeting.holding.contains(&own));
        self.strange = match greeting.refusal {
            Some(Refusal::NotYet) if !is_known => self.strange + 1,
            _ => 0,
        };
        if let Some(key) = greeting.key {
            self.keyring.set_send(Some(key));
            outcome.changed = self.sends.replace(now).is_none();
            self.is_lost = false;
            self.wait = FIRST_WAIT;
        } else if greeting.refusal == Some(Refusal::NotYet) {
            outcome.ask_at = Some(now + self.wait);
            self.wait = (2 * self.wait).min(LONGEST_WAIT);
        } else if greeting.refusal == Some(Refusal::Refused) && asked_again {
            // It takes no protected frames any more.
            outcome.changed = self.sends.take().is_some();
        }
        if self.strange >= STRANGE && !self.policy.requires() {
            // Nothing that we protect can be opened there; what comes from there is not protected.
            outcome.changed |= self.sends.take().is_some() || self.is_strict;
            self.is_lost = false;
            self.is_strict = false;
            self.seen = None;
        }
        let own = self.keyring.send().map(|key| key.number());
        let is_known = own.is_none_or(|own| greeting.holding.contains(&own));
        if self.sends.is_some() && !is_known && !self.is_lost && greeting.refusal.is_none() {
            let is_new = self.sends == Some(now);
            self.is_lost = !is_new;
            outcome.ask_at = outcome.ask_at.or(self.is_lost.then_some(now));
        }
        Ok(outcome)
    }

    /// It does not protect frames.
    fn without(&mut self, now: Instant) -> Result<Outcome, String> {
        if self.policy.requires() {
            return Err(
                "the gateway does not protect its frames, or cannot prove who it is, and [protection] or its AS's \
                 [[protection.remote]] requires it"
                    .to_owned(),
            );
        }
        let changed = self.sends.is_some() || self.is_strict;
        self.identity = None;
        self.sends = None;
        self.is_lost = false;
        self.is_strict = false;
        self.seen = None;
        self.refusal = None;
        self.wait = FIRST_WAIT;
        self.strange = 0;
        self.is_stale = false;
        for received in &mut self.receives {
            received.replaced.get_or_insert(now);
        }
        Ok(Outcome {
            changed,
            ask_at: None,
        })
    }

    /// Whether this is who it was when we asked, or who a pin says that it is.
    pub(super) fn is(&self, identity: &Identity) -> bool {
        let is_pinned = self.identity.is_none() && self.policy.pins.contains(identity);
        self.policy.mode != ProtectionMode::Off
            && self.is_trusted(identity)
            && (self.identity == Some(*identity) || is_pinned)
    }

    /// Whether it has shown that it protects frames.
    pub(super) fn is_known(&self) -> bool {
        self.sends.is_some() || self.is_strict || self.seen.is_some()
    }

    /// Takes note of what it says when it asks. It then knows what we hold, and we ask it at once if it has forgotten our key.
    pub(super) fn offered(
        &mut self,
        now: Instant,
        offer: &Offer,
        make: &mut dyn FnMut() -> Option<Arc<ReceiveKey>>,
    ) -> (Reply, bool) {
        self.identity = Some(offer.identity);
        let mut decision = Ok(());
        if offer.wants_key {
            let is_too_soon = self
                .given
                .front()
                .is_some_and(|at| now < *at + GIVE_INTERVAL);
            if self.given.len() >= GIVEN && is_too_soon {
                decision = Err(Refusal::NotYet);
            } else if let Some(key) = make() {
                if self.given.len() >= GIVEN {
                    self.given.pop_front();
                }
                self.given.push_back(now);
                self.add(key);
            } else {
                decision = Err(Refusal::Refused);
            }
        }
        // It needs none, so it sends under one that it has, even if it has not sent anything since.
        if !offer.wants_key && !self.receives.is_empty() {
            self.seen.get_or_insert(now);
        }
        let own = self.keyring.send().map(|key| key.number());
        let is_lost = self.sends.is_some() && own.is_some_and(|own| !offer.holding.contains(&own));
        self.is_lost |= is_lost;
        self.is_stale |= is_lost;
        let reply = Reply {
            holding: self.holding(),
            decision,
        };
        (reply, is_lost && hurry(&mut self.hurried_by_it, now))
    }

    fn add(&mut self, key: Arc<ReceiveKey>) {
        if self.receives.len() >= MAX_KEYS {
            // Not the one in use: the last that was, if any was.
            let newest = self.receives.iter().rposition(|it| it.key.is_in_use());
            let place = usize::from(newest == Some(0));
            self.receives.remove(place);
        }
        let replaced = None;
        self.receives.push(Received { key, replaced });
    }

    /// Whether it may be asked out of turn because of what strangers can cause, such as that there is another process.
    pub(super) fn hurry(&mut self, now: Instant) -> bool {
        let may = hurry(&mut self.hurried, now);
        self.is_stale |= may;
        may
    }

    /// Looks which keys are in use. Whether the plan has to change.
    pub(super) fn look(&mut self, now: Instant) -> bool {
        let newest = self.receives.iter().rposition(|it| it.key.is_in_use());
        if let Some(newest) = newest {
            for older in &mut self.receives[..newest] {
                older.replaced.get_or_insert(now);
            }
            self.receives
                .retain(|it| it.replaced.is_none_or(|at| now < at + OLD_KEY));
        }
        let in_force = self
            .receives
            .iter()
            .any(|it| it.replaced.is_none() && it.key.is_in_use());
        if in_force {
            self.seen.get_or_insert(now);
        }
        let is_strict = self.seen.is_some_and(|at| now >= at + UNPROTECTED);
        let changed = is_strict && !self.is_strict;
        self.is_strict |= is_strict;
        changed
    }

    /// What there is to tell.
    pub(super) fn status(&self, now: Instant) -> Status {
        Status {
            mode: self.policy.mode.word().to_owned(),
            pinned: !self.policy.pins.is_empty(),
            identity: self.identity.map(|it| it.to_string()).unwrap_or_default(),
            sends: self.sends.is_some(),
            receives: self.seen.is_some(),
            strict: self.receiving().1,
            key_age_s: self
                .sends
                .map(|since| now.saturating_duration_since(since).as_secs()),
            problem: match self.refusal {
                _ if self.policy.mode == ProtectionMode::Off => "switched off here",
                Some(Refusal::NotYet) => "the gateway does not know this one yet",
                Some(Refusal::Refused) => "refused by the gateway",
                None if self.identity.is_none() => "not offered by the gateway",
                None => "",
            }
            .to_owned(),
        }
    }
}

fn hurry(before: &mut Option<Instant>, now: Instant) -> bool {
    let may = before.is_none_or(|at| now >= at + HURRY_INTERVAL);
    if may {
        *before = Some(now);
    }
    may
}
