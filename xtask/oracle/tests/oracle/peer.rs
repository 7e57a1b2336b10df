//! A border router of `sciparse`: how it moves a packet along its path.

use std::{fmt, time::Duration};

use sciparse::{
    core::view::View as _,
    dataplane_path::standard::{
        routing::{AdvanceError, AdvanceValidator, HopMacValidator, IngressAdvanceAction},
        view::{HopFieldView, InfoFieldView, StandardPathView},
    },
};

/// Where a router gets a packet from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// A neighbour.
    Link,
    /// Within the AS: the router by which it has entered, or its sender.
    Inside,
}

/// Where it goes, by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    /// Out by this interface of the router, or that of another router of the AS.
    Interface(u16),
    Here,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The hop field with this number.
    Expired(usize),
    /// Likewise.
    Mac(usize),
    /// The path does not fit the place.
    Path(String),
}

/// What has become of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) to: To,
    /// The interface by which the packet came in, if that is looked at.
    pub(crate) ingress: Option<u16>,
    pub(crate) alert: Option<Alert>,
}

/// A router that is asked to process the packet itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alert {
    Ingress,
    Egress,
}

/// The path in these bytes, all of them.
pub(crate) fn view(path: &mut [u8]) -> &mut StandardPathView {
    let (view, rest) = StandardPathView::try_from_mut_slice(path).expect("a path");
    assert!(rest.is_empty(), "{} bytes behind the path", rest.len());
    view
}

pub(crate) fn reversed(path: &[u8]) -> Vec<u8> {
    let mut back = path.to_vec();
    view(&mut back).try_reverse().expect("a way back");
    back
}

/// Lifetime first, then the MAC: the order of the reference.
#[derive(Clone, Copy)]
struct Validator<'a> {
    key: &'a [u8; 16],
    now: Duration,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl From<AdvanceError> for Refusal {
    fn from(error: AdvanceError) -> Self {
        Self::Path(error.to_string())
    }
}

impl AdvanceValidator for Validator<'_> {
    type Error = Refusal;

    fn validate_hop(
        &self,
        index: usize,
        hop: &HopFieldView,
        info: &InfoFieldView,
        is_start: bool,
        is_end: bool,
    ) -> Result<(), Refusal> {
        if u64::from(hop.expiry_timestamp(info)) < self.now.as_secs() {
            return Err(Refusal::Expired(index));
        }
        let macs = HopMacValidator { key: *self.key };
        macs.validate_hop(index, hop, info, is_start, is_end)
            .map_err(|_| Refusal::Mac(index))
    }

    fn validate_segment_change(
        &self,
        _index: usize,
        _hop: &HopFieldView,
        _info: &InfoFieldView,
        _next_hop: &HopFieldView,
        _next_info: &InfoFieldView,
    ) -> Result<(), Refusal> {
        Ok(())
    }
}

/// Moves a packet on at a router with this key; `is_ours` tells the interfaces of that router.
///
/// # Errors
/// The first that is found wrong. The path may be changed then.
pub(crate) fn advance(
    path: &mut StandardPathView,
    key: &[u8; 16],
    now: Duration,
    side: Side,
    is_ours: impl Fn(u16) -> bool,
) -> Result<Moved, Refusal> {
    let validator = Validator { key, now };
    let mut ingress = None;
    // Within the AS, the router by which the packet has entered has done this.
    if side == Side::Link || path.curr_hop_field_idx() == 0 {
        let output = path
            .advance_ingress_with_validator(validator, side == Side::Inside)?
            .into_result()
            .map_err(|(_, refusal)| refusal)?;
        if side == Side::Link {
            ingress = Some(output.ingress_interface);
        }
        let alert = (side == Side::Link && output.scmp_alert).then_some(Alert::Ingress);
        let to = match output.action {
            IngressAdvanceAction::ForwardLocal => To::Here,
            IngressAdvanceAction::ContinueEgress { egress_if } => To::Interface(egress_if),
        };
        let leaves = matches!(to, To::Interface(interface) if is_ours(interface));
        if !leaves || alert.is_some() {
            return Ok(Moved { to, ingress, alert });
        }
    }
    let output = path
        .advance_egress_with_validator(validator)?
        .into_result()
        .map_err(|(_, refusal)| refusal)?;
    Ok(Moved {
        to: To::Interface(output.egress_interface),
        ingress,
        alert: output.scmp_alert.then_some(Alert::Egress),
    })
}

/// Whether the current hop is one of the two at a peering link: there `sciparse` is not asked.
pub(crate) fn is_at_peering_link(path: &StandardPathView) -> bool {
    let (hop, first) = (path.curr_hop_field_idx(), path.seg0_len());
    let peering = path
        .curr_info_field()
        .is_some_and(|info| info.flags().peering());
    peering && (hop + 1 == first || hop == first)
}

/// The path of an answer to a packet with this path, as it leaves the router: without any verification, because the packet
/// may be answered for what is wrong with it.
pub(crate) fn answered(path: &[u8], side: Side) -> Result<Vec<u8>, Refusal> {
    let mut path = path.to_vec();
    let view = view(&mut path);
    if side == Side::Link {
        view.advance_ingress(false)?;
    }
    view.try_reverse()
        .map_err(|error| Refusal::Path(format!("{error:?}")))?;
    let hop = view.curr_hop_field_idx();
    let ends = view
        .calculate_segment_index(hop.into())
        .is_some_and(|(_, _, end)| end);
    if ends && hop + 1 < view.hop_field_count() {
        view.advance_ingress(true)?;
    }
    if side == Side::Link {
        view.advance_egress()?;
    }
    Ok(path)
}
