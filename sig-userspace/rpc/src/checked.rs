//! What peers answered, checked: within limits, in types that cannot be wrong.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use prost::{
    Message as _,
    encoding::{DecodeContext, decode_key, message, skip_field, string},
};

use super::{
    RpcError,
    messages::{
        Gateway, GatewaysResponse, Prefix, ProtectionAnswer, QUIC, ServiceResolutionResponse,
    },
};
use sig_core::peer::{Announced, GatewayAddresses};

/// Port of session probes if a gateway announces none.
pub const DEFAULT_PROBE_PORT: u16 = 30856;

/// Most interfaces that one gateway may ask paths to enter through.
const MAX_ALLOW_INTERFACES: usize = 256;

/// The usable gateways of an answer, and how many others it had.
pub(super) fn gateways(reply: &[u8], limit: u32) -> Result<(Vec<GatewayAddresses>, u32), RpcError> {
    limit_entries(reply, limit, "gateways")?;
    let reply = GatewaysResponse::decode(reply).map_err(RpcError::malformed)?;
    let total = reply.gateways.len();
    let gateways: Vec<_> = reply.gateways.into_iter().filter_map(gateway).collect();
    let ignored = total - gateways.len();
    Ok((gateways, u32::try_from(ignored).unwrap_or(u32::MAX)))
}

fn gateway(claim: Gateway) -> Option<GatewayAddresses> {
    let control = address(&claim.control_address)?;
    let probe = match claim.probe_address.as_str() {
        "" => SocketAddr::new(control.ip(), DEFAULT_PROBE_PORT),
        text => address(text)?,
    };
    let mut allow_interfaces = claim.allow_interfaces;
    allow_interfaces.sort_unstable();
    allow_interfaces.dedup();
    (allow_interfaces.len() <= MAX_ALLOW_INTERFACES).then_some(GatewayAddresses {
        control,
        data: address(&claim.data_address)?,
        probe,
        allow_interfaces,
    })
}

/// An address that can be sent to. Names are not looked up: a remote AS has no business with our resolver.
fn address(text: &str) -> Option<SocketAddr> {
    let address: SocketAddr = text.parse().ok()?;
    let ip = address.ip().to_canonical();
    let usable = address.port() != 0 && !ip.is_unspecified() && !ip.is_multicast();
    usable.then(|| SocketAddr::new(ip, address.port()))
}

/// The prefixes of an answer to a request with this etag.
pub(super) fn prefixes(mut reply: &[u8], etag: &str) -> Result<Announced, RpcError> {
    let malformed = RpcError::malformed;
    // One after the other: a message full of empty entries must not become as many objects.
    let (mut prefixes, mut total, mut name) = (Vec::new(), 0_u32, String::new());
    while !reply.is_empty() {
        let (tag, wire_type) = decode_key(&mut reply).map_err(malformed)?;
        let context = DecodeContext::default();
        match tag {
            1 => {
                let mut claim = Prefix::default();
                message::merge(wire_type, &mut claim, &mut reply, context).map_err(malformed)?;
                prefixes.extend(prefix(&claim));
                total += 1;
            }
            2 => string::merge(wire_type, &mut name, &mut reply, context).map_err(malformed)?,
            _ => skip_field(wire_type, tag, &mut reply, context).map_err(malformed)?,
        }
    }
    if !etag.is_empty() && name == etag && total == 0 {
        return Ok(Announced::Unchanged);
    }
    if name.len() > MAX_ETAG {
        return Err(RpcError::Malformed(format!(
            "the etag exceeds {MAX_ETAG} bytes"
        )));
    }
    Ok(Announced::Prefixes {
        malformed: total - prefixes.len() as u32,
        prefixes,
        etag: name,
    })
}

/// What the answer of a gateway says about protection.
pub(super) fn protection(mut reply: &[u8]) -> Option<ProtectionAnswer> {
    let mut found = None;
    while !reply.is_empty() {
        let (tag, wire_type) = decode_key(&mut reply).ok()?;
        let context = DecodeContext::default();
        if tag == PROTECTION {
            let answer = found.get_or_insert_with(ProtectionAnswer::default);
            message::merge(wire_type, answer, &mut reply, context).ok()?;
        } else {
            skip_field(wire_type, tag, &mut reply, context).ok()?;
        }
    }
    found
}

/// Number of the field.
const PROTECTION: u32 = 7446;

/// Longest etag that is kept, in bytes.
const MAX_ETAG: usize = 256;

fn prefix(claim: &Prefix) -> Option<IpNet> {
    let bytes = claim.prefix.as_slice();
    let ip = match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
        16 => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
        _ => return None,
    };
    let length = u8::try_from(claim.mask).ok()?;
    Some(IpNet::new(ip, length).ok()?.trunc())
}

/// A prefix in a message.
pub(super) fn prefix_message(prefix: &IpNet) -> Prefix {
    let prefix = prefix.trunc();
    Prefix {
        prefix: match prefix.addr() {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        },
        mask: u32::from(prefix.prefix_len()),
    }
}

/// Where a service is reached over QUIC, from the answer to a service resolution.
pub(super) fn service_address(reply: &[u8]) -> Result<SocketAddr, RpcError> {
    limit_entries(reply, 16, "transports of the service")?;
    let reply = ServiceResolutionResponse::decode(reply).map_err(RpcError::malformed)?;
    let text = &reply
        .transports
        .get(QUIC)
        .ok_or_else(|| RpcError::Malformed("the service has no QUIC address".to_owned()))?
        .address;
    address(text).ok_or_else(|| {
        RpcError::Malformed(format!(
            "the service address {text:.64?} is not an IP address and port"
        ))
    })
}

/// Refuses a message with more than `limit` fields of number 1 before any memory is spent on them.
fn limit_entries(mut message: &[u8], limit: u32, what: &'static str) -> Result<(), RpcError> {
    let mut entries = 0_u32;
    while !message.is_empty() {
        let (tag, wire_type) = decode_key(&mut message).map_err(RpcError::malformed)?;
        skip_field(wire_type, tag, &mut message, DecodeContext::default())
            .map_err(RpcError::malformed)?;
        entries += u32::from(tag == 1);
        if entries > limit {
            return Err(RpcError::TooMany { what, limit });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::PrefixesResponse;

    fn claim(control: &str, data: &str, probe: &str) -> Gateway {
        Gateway {
            control_address: control.to_owned(),
            data_address: data.to_owned(),
            probe_address: probe.to_owned(),
            allow_interfaces: vec![3, 1, 3],
        }
    }

    fn reply(claims: Vec<Gateway>) -> Vec<u8> {
        GatewaysResponse { gateways: claims }.encode_to_vec()
    }

    #[test]
    fn a_gateway_without_probe_address_is_probed_at_the_default_port() {
        let reply = reply(vec![claim("10.0.0.2:30256", "[fd00::2]:30056", "")]);
        assert_eq!(
            gateways(&reply, 1),
            Ok((
                vec![GatewayAddresses {
                    control: "10.0.0.2:30256".parse().unwrap(),
                    data: "[fd00::2]:30056".parse().unwrap(),
                    probe: "10.0.0.2:30856".parse().unwrap(),
                    allow_interfaces: vec![1, 3],
                }],
                0
            ))
        );
    }

    #[test]
    fn one_unusable_gateway_does_not_hide_the_others() {
        let good = claim("10.0.0.2:30256", "10.0.0.2:30056", "10.0.0.2:30856");
        let mut claims = vec![good.clone()];
        for bad in [
            "",
            "gateway:30256",
            "10.0.0.2",
            "10.0.0.2:0",
            "0.0.0.0:1",
            "[ff02::1]:1",
        ] {
            claims.push(claim(bad, "10.0.0.2:30056", ""));
            claims.push(claim("10.0.0.2:30256", bad, ""));
        }
        claims.push(claim("10.0.0.2:30256", "10.0.0.2:30056", "probe"));
        claims.push(Gateway {
            allow_interfaces: (0..300).collect(),
            ..good
        });
        let total = claims.len();
        let (usable, ignored) = gateways(&reply(claims), 100).expect("an answer");
        assert_eq!(usable.len(), 1);
        assert_eq!(ignored as usize, total - 1);
    }

    #[test]
    fn more_entries_than_allowed_are_refused_whatever_they_hold() {
        // 524288 empty entries in a message of one mebibyte.
        let flood = [0x0a, 0].repeat(1 << 19);
        assert_eq!(
            gateways(&flood, 16),
            Err(RpcError::TooMany {
                what: "gateways",
                limit: 16
            })
        );
        assert!(service_address(&flood).is_err());
        let nothing = Announced::Prefixes {
            prefixes: Vec::new(),
            malformed: 1 << 19,
            etag: String::new(),
        };
        assert_eq!(prefixes(&flood, ""), Ok(nothing));
    }

    #[test]
    fn prefixes_lose_their_host_bits_and_nonsense_is_counted() {
        let entry = |prefix: &[u8], mask| Prefix {
            prefix: prefix.to_vec(),
            mask,
        };
        let reply = PrefixesResponse {
            prefixes: vec![
                entry(&[10, 2, 3, 4], 24),
                entry(&[10, 2, 3, 4], 33),
                entry(&[0xfd; 16], 8),
                entry(&[0xfd; 16], 129),
                entry(&[0xfd; 5], 8),
                entry(&[], 0),
                entry(&[0; 4], 0),
                entry(&[0; 4], 256),
            ],
            etag: String::new(),
            protection: None,
        };
        assert_eq!(
            prefixes(&reply.encode_to_vec(), ""),
            Ok(Announced::Prefixes {
                prefixes: ["10.2.3.0/24", "fd00::/8", "0.0.0.0/0"]
                    .map(|p| p.parse().unwrap())
                    .to_vec(),
                malformed: 5,
                etag: String::new(),
            })
        );
    }

    #[test]
    fn only_our_own_etag_with_an_empty_list_means_unchanged() {
        let answer = |etag: &str| {
            PrefixesResponse {
                prefixes: Vec::new(),
                etag: etag.to_owned(),
                protection: None,
            }
            .encode_to_vec()
        };
        let none = |etag: &str| {
            Ok(Announced::Prefixes {
                prefixes: Vec::new(),
                malformed: 0,
                etag: etag.to_owned(),
            })
        };
        assert_eq!(prefixes(&answer("a"), "a"), Ok(Announced::Unchanged));
        assert_eq!(prefixes(&answer(""), ""), none(""));
        assert_eq!(prefixes(&answer(""), "a"), none(""));
        assert_eq!(prefixes(&answer("b"), "a"), none("b"));
        assert!(prefixes(&answer(&"x".repeat(300)), "").is_err());
    }

    #[test]
    fn malformed_messages_are_errors() {
        for bad in [
            &b"lol"[..],
            b"\x0a\x05a",
            b"\x0a\x02\xff\xff",
            b"\x08",
            b"\x0c",
        ] {
            assert!(prefixes(bad, "").is_err(), "{bad:02x?}");
            assert!(gateways(bad, 8).is_err(), "{bad:02x?}");
            assert!(service_address(bad).is_err(), "{bad:02x?}");
        }
        assert!(service_address(b"").is_err());
    }
}
