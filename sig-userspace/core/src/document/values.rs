//! The notations of single values: addresses, names. Every error says
//! what to write instead.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use sig_common::wire::scion::path::{MAX_HOPS, META_LEN, Meta, ScionPath};

use crate::notation::{counted, from_base64};
use crate::problem::excerpt;
use crate::scion::HopKey;

/// Longest id of a gateway, in characters.
const LONGEST_ID: usize = 255;

/// Host and port of an address, the port replaced by `default_port` where it is absent or 0, as in
/// the reference. The host is `None` where it is empty.
pub fn address(text: &str, default_port: u16) -> Result<(Option<IpAddr>, u16), String> {
    let wrong = || {
        format!(
            "\"{}\" is not an address; write IP:port, for example \
             \"192.0.2.10:{default_port}\" or \"[2001:db8::10]:{default_port}\"",
            excerpt(text)
        )
    };
    // An IPv6 address without brackets has no port: its last group could not be told from one.
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok((Some(ip), default_port));
    }
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, port) = rest.split_once(']').ok_or_else(wrong)?;
        if port.is_empty() {
            (host, "")
        } else {
            (host, port.strip_prefix(':').ok_or_else(wrong)?)
        }
    } else {
        let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
        if host.contains(':') {
            return Err(wrong());
        }
        (host, port)
    };
    let port = match port {
        "" => default_port,
        digits if digits.bytes().all(|b| b.is_ascii_digit()) => digits
            .parse()
            .map_err(|_| format!("port {} is out of range; write 1 to 65535", excerpt(digits)))?,
        _ => return Err(wrong()),
    };
    let port = if port == 0 { default_port } else { port };
    if host.is_empty() {
        return Ok((None, port));
    }
    match host.parse() {
        Ok(ip) => Ok((Some(ip), port)),
        Err(_) if is_host_name(host) => Err(format!(
            "\"{}\" is a host name, which is not supported; write its IP address",
            excerpt(host)
        )),
        Err(_) => Err(wrong()),
    }
}

/// A full `IP:port`.
pub fn socket_address(text: &str) -> Result<SocketAddr, String> {
    match text.parse::<SocketAddr>() {
        Ok(address) if address.port() == 0 => {
            Err("port 0 cannot be sent to; write the router's port".to_owned())
        }
        Ok(address) => unicast(address.ip()).map(|()| address),
        Err(_) if text.parse::<IpAddr>().is_ok() => {
            let text = if text.contains(':') {
                format!("[{text}]")
            } else {
                text.to_owned()
            };
            Err(format!(
                "no port; write the port of the router too, for example \"{text}:30042\""
            ))
        }
        Err(_)
            if text
                .rsplit_once(':')
                .is_some_and(|(host, _)| is_host_name(host)) =>
        {
            Err(format!(
                "\"{}\" is a host name, which is not supported; write its IP address",
                excerpt(text)
            ))
        }
        Err(_) => Err(format!(
            "\"{}\" is not an address; write IP:port, for example \"192.0.2.1:30042\"",
            excerpt(text)
        )),
    }
}

/// Refuses addresses that no single host has.
pub fn unicast(ip: IpAddr) -> Result<(), String> {
    let kind = match ip {
        _ if ip.is_unspecified() => "the unspecified address",
        _ if ip.is_multicast() => "a multicast address",
        IpAddr::V4(Ipv4Addr::BROADCAST) => "the broadcast address",
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => {
            let v4 = v6.to_canonical();
            return Err(format!("{ip} is an IPv4 address; write {v4}"));
        }
        IpAddr::V6(v6) if v6.is_unicast_link_local() => "a link-local address",
        _ => return Ok(()),
    };
    Err(format!("{ip} is {kind}; write the address of one host"))
}

/// Name of a gateway: what fits a line of the log.
pub fn id(text: &str) -> Result<String, String> {
    if text.chars().count() > LONGEST_ID || text.contains(char::is_control) {
        return Err(format!(
            "\"{}\" is not usable as a name in the log; write up to {LONGEST_ID} characters, none of them \
             a control character",
            excerpt(text)
        ));
    }
    Ok(text.to_owned())
}

/// A file name made of an id: what file names better do without is replaced.
pub fn file_name_of(id: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let name: String = id
        .chars()
        .take(64)
        .map(|c| if plain(c) { c } else { '_' })
        .collect();
    match name.strip_prefix('.') {
        Some(rest) => format!("_{rest}"),
        None => name,
    }
}

/// Name of a network interface as the kernel takes it.
pub fn interface(text: &str) -> Result<String, String> {
    let wrong = if text.is_empty() {
        "an interface name is empty; write a name, for example \"eth0\"".to_owned()
    } else if text.len() > 15 {
        let short: String = text.chars().take(15).collect();
        let short = excerpt(&short);
        format!(
            "\"{}\" is longer than the 15 bytes of an interface name; shorten it, \
             for example \"{short}\"",
            excerpt(text)
        )
    } else if text == "."
        || text == ".."
        || text.contains(|c: char| "/:".contains(c) || c.is_whitespace() || c.is_control())
    {
        format!(
            "\"{}\" is not an interface name; use no slash, colon or space",
            excerpt(text)
        )
    } else {
        return Ok(text.to_owned());
    };
    Err(wrong)
}

/// Bytes in hexadecimal; white space and `_` between digits are allowed for readability.
pub fn hex(text: &str) -> Result<Vec<u8>, String> {
    let mut digits = Vec::with_capacity(text.len());
    for (i, c) in text.char_indices() {
        match c.to_digit(16) {
            Some(digit) => digits.push(digit as u8),
            None if c.is_ascii_whitespace() || c == '_' => {}
            None => {
                let c = excerpt(c.encode_utf8(&mut [0; 4]));
                return Err(format!(
                    "\"{c}\" at position {} is not a hexadecimal digit; write only 0-9 and a-f",
                    i + 1
                ));
            }
        }
    }
    let (pairs, rest) = digits.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(format!(
            "{} hexadecimal digits are not a whole number of bytes; a digit is missing or extra",
            digits.len()
        ));
    }
    Ok(pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

/// Reads a master key as the reference stores it, in base64, and derives the key of hop fields from it.
pub fn master_key(text: &str) -> Result<HopKey, String> {
    let master = from_base64(text)?;
    if master.is_empty() {
        return Err("the key is empty".to_owned());
    }
    Ok(HopKey::derive(&master))
}

/// Takes bytes for a SCION path, at its sender or under way, and says in words what is wrong with them (source: SCION
/// header specification, path type SCION).
pub fn scion_path(raw: &[u8]) -> Result<ScionPath<'_>, String> {
    let Some(meta) = raw.first_chunk::<META_LEN>() else {
        return Err(format!(
            "{} bytes are too short for a SCION path, which starts with a 4-byte path meta header; \
             take the raw path from the daemon or \"scion showpaths\"",
            raw.len()
        ));
    };
    let meta = Meta::decode(*meta);
    let (segments, hops) = (meta.infos(), meta.hops());
    if segments == 0 {
        return Err("the path has no segments; the bytes are corrupted".to_owned());
    }
    let hole = meta
        .segments
        .iter()
        .take(segments)
        .position(|len| *len == 0);
    if let Some(hole) = hole {
        return Err(format!(
            "segment {hole} has no hop fields, but a later segment does; the bytes are corrupted"
        ));
    }
    if hops > MAX_HOPS {
        return Err(format!(
            "{hops} hop fields are more than {MAX_HOPS}; the bytes are corrupted"
        ));
    }
    let Some(expected) = meta.path_len() else {
        return Err(format!(
            "CurrINF is {} and CurrHF is {}, but there are {segments} segments with {hops} hop fields; \
             the bytes are corrupted",
            meta.current_info, meta.current_hop
        ));
    };
    ScionPath::new_checked(raw).map_err(|_| {
        format!(
            "{} found, but {} with {} take {expected}; the path is truncated or has trailing bytes",
            counted(raw.len(), "byte"),
            counted(segments, "segment"),
            counted(hops, "hop field")
        )
    })
}

fn is_host_name(text: &str) -> bool {
    text.bytes()
        .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.')
        && text.bytes().any(|b| b.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_take_the_default_port() {
        let host = Some("192.0.2.1".parse().unwrap());
        let host6 = Some("fd00::1".parse().unwrap());
        assert_eq!(address("192.0.2.1:5", 7), Ok((host, 5)));
        assert_eq!(address("192.0.2.1", 7), Ok((host, 7)));
        assert_eq!(address("192.0.2.1:0", 7), Ok((host, 7)));
        assert_eq!(address("192.0.2.1:", 7), Ok((host, 7)));
        assert_eq!(address("[fd00::1]:5", 7), Ok((host6, 5)));
        assert_eq!(address("[fd00::1]", 7), Ok((host6, 7)));
        assert_eq!(address("fd00::1", 7), Ok((host6, 7)));
        assert_eq!(address(":5", 7), Ok((None, 5)));
        assert_eq!(address("", 7), Ok((None, 7)));
    }

    #[test]
    fn wrong_addresses_say_what_to_write() {
        assert_eq!(
            address("gw.example.org:5", 7).unwrap_err(),
            "\"gw.example.org\" is a host name, which is not supported; write its IP address"
        );
        assert_eq!(
            address("192.0.2.1:70000", 7).unwrap_err(),
            "port 70000 is out of range; write 1 to 65535"
        );
        for wrong in [
            "[fd00::1",
            "[fd00::1]5",
            "192.0.2.1:x",
            "1.2.3:5",
            "fd00:::1",
        ] {
            assert!(address(wrong, 7).is_err(), "{wrong}");
        }
    }

    #[test]
    fn interface_names_fit_the_kernel() {
        assert!(interface("enp1s0f0").is_ok());
        assert_eq!(
            interface("a-very-long-interface").unwrap_err(),
            "\"a-very-long-interface\" is longer than the 15 bytes of an interface name; \
             shorten it, for example \"a-very-long-int\""
        );
        for wrong in ["", "a b", "a/b", "..", "a\nb"] {
            assert!(interface(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn keys_are_derived_from_master_keys() {
        let key = master_key("dGVzdGtleV94eHh4eHh4eA==\n");
        assert_eq!(key, Ok(HopKey::derive(b"testkey_xxxxxxxx")));
        assert_eq!(master_key("").unwrap_err(), "the key is empty");
        assert!(master_key("dGVzd").is_err());
    }

    #[test]
    fn paths_under_way_point_inside_themselves() {
        let path = "00002000 0100123466000000 003f00000001010203040506 003f000200000708090a0b0c";
        let path = |meta| hex(&path.replacen("00002000", meta, 1)).unwrap();
        assert!(scion_path(&path("01002000")).is_ok());
        assert_eq!(
            scion_path(&path("42002000")).unwrap_err(),
            "CurrINF is 1 and CurrHF is 2, but there are 1 segments with 2 hop fields; \
             the bytes are corrupted"
        );
    }

    #[test]
    fn hexadecimal_may_be_grouped() {
        assert_eq!(hex("00 01_fF\n"), Ok(vec![0, 1, 255]));
        assert_eq!(hex(""), Ok(vec![]));
        assert_eq!(
            hex("00x1").unwrap_err(),
            "\"x\" at position 3 is not a hexadecimal digit; write only 0-9 and a-f"
        );
        assert_eq!(
            hex("001").unwrap_err(),
            "3 hexadecimal digits are not a whole number of bytes; a digit is missing or extra"
        );
    }
}
