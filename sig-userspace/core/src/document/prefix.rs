//! Prefixes as text. All functions say in their errors what is wrong and what to write instead.

use std::net::IpAddr;

use ipnet::IpNet;
use sig_common::scope;

use crate::problem::excerpt;

/// Reads a prefix of addresses that packets through the gateway may have, in canonical form.
///
/// # Errors
/// Those of [`canonical`] and [`crossing`].
pub fn inner(text: &str) -> Result<IpNet, String> {
    canonical(text).and_then(crossing)
}

/// Reads a prefix in canonical form: nothing set beyond its length.
///
/// # Errors
/// No prefix in the strict notation, or bits set beyond its length.
pub fn canonical(text: &str) -> Result<IpNet, String> {
    parse(text).and_then(without_host_bits)
}

/// Reads a prefix as the reference reads `Nets`: an IPv4-mapped one is an IPv4 one.
///
/// # Errors
/// Those of [`inner`], but for IPv4-mapped prefixes.
pub(crate) fn nets(text: &str) -> Result<IpNet, String> {
    let prefix = read(text)?;
    without_host_bits(unmapped(prefix).unwrap_or(prefix)).and_then(crossing)
}

/// Refuses a prefix if no packet from or to it may cross the gateway: see [`scope`].
///
/// # Errors
/// What kind of addresses it has.
pub fn crossing(prefix: IpNet) -> Result<IpNet, String> {
    match refused(&prefix) {
        Some(kind) => Err(format!(
            "\"{prefix}\" is {kind}, which is never tunnelled; remove it"
        )),
        None => Ok(prefix),
    }
}

/// What the addresses of the prefix are, if none of them may cross the gateway.
#[must_use]
pub fn refused(prefix: &IpNet) -> Option<&'static str> {
    scope::refused_prefix(prefix.network(), prefix.prefix_len())
}

/// Reads `address/length`. Bits beyond the length may be set: see [`canonical`].
///
/// # Errors
/// Other text, and IPv4-mapped prefixes.
pub(crate) fn parse(text: &str) -> Result<IpNet, String> {
    let prefix = read(text)?;
    // No packet has such an address.
    match unmapped(prefix) {
        Some(v4) => Err(format!("\"{prefix}\" is an IPv4 prefix; write \"{v4}\"")),
        None => Ok(prefix),
    }
}

/// The IPv4 prefix that an IPv4-mapped one stands for.
fn unmapped(prefix: IpNet) -> Option<IpNet> {
    let IpNet::V6(v6) = prefix else { return None };
    let length = v6.prefix_len().checked_sub(96)?;
    let v4 = v6.addr().to_ipv4_mapped()?;
    IpNet::new(v4.into(), length).ok()
}

fn read(text: &str) -> Result<IpNet, String> {
    let wrong = || {
        format!(
            "\"{}\" is not an IP prefix; write address/length, for example \"10.2.0.0/24\" or \
             \"2001:db8:2::/64\"",
            excerpt(text)
        )
    };
    let Some((address, length)) = text.split_once('/') else {
        return Err(match text.parse::<IpAddr>() {
            Ok(address) => {
                let host = IpNet::from(address);
                format!("\"{address}\" has no prefix length; write \"{host}\"")
            }
            Err(_) => wrong(),
        });
    };
    // IpNet itself would also read numbers with leading zeros.
    let padded = length.len() > 1 && length.starts_with('0');
    let digits = !padded && length.bytes().all(|byte| byte.is_ascii_digit());
    let length = length.parse().ok().filter(|_| digits);
    let address: Option<IpAddr> = address.parse().ok();
    address
        .zip(length)
        .and_then(|(address, length)| IpNet::new(address, length).ok())
        .ok_or_else(wrong)
}

fn without_host_bits(prefix: IpNet) -> Result<IpNet, String> {
    match prefix.trunc() {
        network if network == prefix => Ok(prefix),
        network => Err(format!(
            "\"{prefix}\" has host bits set; write \"{network}\""
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn prefixes_are_read_strictly() {
        for text in ["10.2.0.0/16", "0.0.0.0/0", "::/0", "2001:db8::1/128"] {
            assert_eq!(
                parse(text).map(|prefix| prefix.to_string()),
                Ok(text.to_owned())
            );
        }
        for text in [
            "",
            "/",
            "10.0.0.0/",
            "10.0.0.0/33",
            "::/129",
            "010.0.0.0/8",
            "10.0.0.0/08",
            "10.0/8",
            "10.0.0.0/+8",
            " 10.0.0.0/8",
            "10.0.0.0/8 ",
            "fe80::%1/64",
            "a/8",
            "10.0.0.0/8/8",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn errors_say_what_to_write() {
        let error = |text| canonical(text).expect_err(text);
        assert_eq!(
            error("10.2.0.1"),
            "\"10.2.0.1\" has no prefix length; write \"10.2.0.1/32\""
        );
        assert_eq!(
            error("172.20.4.1/24"),
            "\"172.20.4.1/24\" has host bits set; write \"172.20.4.0/24\""
        );
        assert_eq!(
            parse("::ffff:10.0.0.0/104"),
            Err("\"::ffff:10.0.0.0/104\" is an IPv4 prefix; write \"10.0.0.0/8\"".to_owned())
        );
        assert_eq!(
            inner("224.0.0.0/8"),
            Err("\"224.0.0.0/8\" is multicast, which is never tunnelled; remove it".to_owned())
        );
        let read = nets("::ffff:10.0.0.0/104");
        assert_eq!(
            read.map(|prefix| prefix.to_string()),
            Ok("10.0.0.0/8".to_owned())
        );
        assert!(error("x").starts_with("\"x\" is not an IP prefix; write address/length"));
    }
    proptest! {
        #[test]
        fn a_prefix_that_is_accepted_has_an_address_that_crosses(
            v4: bool, address: u128, zeros in 0u32..128, length in 0u8..=128,
        ) {
            // Many short, and many with low bits alone.
            let address = address >> zeros;
            let prefix = if v4 {
                IpNet::new((address as u32).to_be_bytes().into(), length % 33)
            } else {
                IpNet::new(address.to_be_bytes().into(), length)
            };
            let prefix = prefix.expect("a length").trunc();
            let accepted = inner(&prefix.to_string());
            if unmapped(prefix).is_some() {
                prop_assert!(accepted.is_err(), "{}", prefix);
            } else {
                // The answer changes at multiples of /16 of IPv4, and of /64 and /10 of IPv6.
                let parts = prefix.subnets(prefix.prefix_len().max(10).min(prefix.max_prefix_len()));
                let crosses = parts.expect("longer").any(|part| {
                    scope::may_cross(part.network()) || scope::may_cross(part.broadcast())
                });
                prop_assert_eq!(accepted.is_ok(), crosses, "{}", prefix);
            }
        }
    }
}
