//! Prefixes as text.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::problem::excerpt;

/// Reads `address/length`. Bits beyond the length may be set: see [`canonical`].
///
/// # Errors
/// What is wrong and what to write instead.
pub(super) fn parse(text: &str) -> Result<IpNet, String> {
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

/// As the reference reads `Nets`: an IPv4-mapped prefix is an IPv4 one, bits beyond the length are refused.
///
/// # Errors
/// What is wrong and what to write instead.
pub(super) fn canonical(text: &str) -> Result<IpNet, String> {
    let prefix = read(text)?;
    let prefix = unmapped(prefix).unwrap_or(prefix);
    if prefix == prefix.trunc() {
        return Ok(prefix);
    }
    Err(format!(
        "\"{prefix}\" has host bits set; write \"{}\"",
        prefix.trunc()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let read = canonical("::ffff:10.0.0.0/104");
        assert_eq!(
            read.map(|prefix| prefix.to_string()),
            Ok("10.0.0.0/8".to_owned())
        );
        assert!(error("x").starts_with("\"x\" is not an IP prefix; write address/length"));
    }
}
