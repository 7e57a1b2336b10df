//! A hop as policies name it.

use std::{fmt, str::FromStr};

use sig_common::addr::IsdAs;

use crate::problem::excerpt;
use crate::scion::Interface;

/// An AS, or its interfaces: `ISD`, `ISD-AS`, `ISD-AS#INTERFACE` or `ISD-AS#INGRESS,EGRESS`, in which
/// 0 stands for anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HopPredicate {
    /// The AS; 0 as ISD or AS number stands for any.
    pub isd_as: IsdAs,
    /// Its interfaces.
    pub interfaces: Interfaces,
}

/// Interfaces of an AS; 0 stands for any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interfaces {
    /// Whatever the direction.
    Either(u64),
    /// By which a path enters the AS, and by which it leaves it.
    InOut(u64, u64),
}

impl HopPredicate {
    /// Every interface of every AS.
    pub const ANY: Self = Self {
        isd_as: IsdAs(0),
        interfaces: Interfaces::Either(0),
    };

    /// Whether it names every hop.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.isd_as == IsdAs(0)
    }

    /// Whether it names an interface, by which a path enters its AS or leaves it.
    #[must_use]
    pub fn matches_interface(&self, interface: &Interface, enters: bool) -> bool {
        let wanted = match self.interfaces {
            Interfaces::Either(id) => id,
            Interfaces::InOut(ingress, _) if enters => ingress,
            Interfaces::InOut(_, egress) => egress,
        };
        self.matches_as(interface.isd_as) && is(wanted, interface.id)
    }

    /// Whether it names an AS on a path that enters and leaves it by these interfaces, 0 where the
    /// path starts or ends.
    pub(super) fn matches_hop(&self, isd_as: IsdAs, ingress: u64, egress: u64) -> bool {
        self.matches_as(isd_as)
            && match self.interfaces {
                Interfaces::Either(id) => is(id, ingress) || is(id, egress),
                Interfaces::InOut(wanted_in, wanted_out) => {
                    is(wanted_in, ingress) && is(wanted_out, egress)
                }
            }
    }

    fn matches_as(&self, isd_as: IsdAs) -> bool {
        matches_as(self.isd_as, isd_as)
    }
}

/// Whether an AS is the wanted one, of which ISD and AS number may be 0 for any.
pub(super) fn matches_as(wanted: IsdAs, isd_as: IsdAs) -> bool {
    is(wanted.isd().into(), isd_as.isd().into()) && is(wanted.asn(), isd_as.asn())
}

fn is(wanted: u64, number: u64) -> bool {
    wanted == 0 || wanted == number
}

impl FromStr for HopPredicate {
    type Err = String;

    /// Reads the forms above; the error says what to write instead.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "\"{}\" is not a hop; write ISD, ISD-AS, ISD-AS#INTERFACE or \
                 ISD-AS#INGRESS,EGRESS, for example 1-ff00:0:110#2, with 0 for anything",
                excerpt(text)
            )
        };
        let (isd_as, interfaces) = match text.split_once('#') {
            Some((isd_as, interfaces)) => (isd_as, Some(interfaces)),
            None => (text, None),
        };
        let isd_as = if isd_as.contains('-') {
            isd_as.parse().map_err(|_| wrong())?
        } else {
            let isd = number(isd_as).and_then(|isd| u16::try_from(isd).ok());
            let isd = isd.filter(|_| interfaces.is_none()).ok_or_else(wrong)?;
            IsdAs::new(isd, 0)
        };
        let interfaces = match interfaces.map(|list| (list, list.split_once(','))) {
            None => Interfaces::Either(0),
            Some((one, None)) => Interfaces::Either(number(one).ok_or_else(wrong)?),
            Some((_, Some((ingress, egress)))) => Interfaces::InOut(
                number(ingress).ok_or_else(wrong)?,
                number(egress).ok_or_else(wrong)?,
            ),
        };
        let any = matches!(interfaces, Interfaces::Either(0) | Interfaces::InOut(0, 0));
        if isd_as.asn() == 0 && !any {
            return Err(format!(
                "\"{}\" has an interface but no AS; add the AS, or write 0 for the interface",
                excerpt(text)
            ));
        }
        Ok(Self { isd_as, interfaces })
    }
}

fn number(digits: &str) -> Option<u64> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| plain)
}

impl fmt::Display for HopPredicate {
    /// All parts, as the reference prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.interfaces {
            Interfaces::Either(id) => write!(f, "{}#{id}", self.isd_as),
            Interfaces::InOut(ingress, egress) => write!(f, "{}#{ingress},{egress}", self.isd_as),
        }
    }
}
