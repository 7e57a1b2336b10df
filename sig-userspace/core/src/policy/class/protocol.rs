//! Names of protocols above IP.

/// Numbers (IANA, Assigned Internet Protocol Numbers) and the names by which the reference knows
/// them. A number's first name is the one that is printed.
const NAMES: &[(u8, &str)] = &[
    (2, "IGMP"),
    (6, "TCP"),
    (17, "UDP"),
    (27, "RUDP"),
    (47, "GRE"),
    (50, "IPSecESP"),
    (51, "IPSecAH"),
    (59, "NoNextHeader"),
    (89, "OSPF"),
    (97, "EtherIP"),
    (112, "VRRP"),
    (132, "SCTP"),
    (136, "UDPLite"),
    (137, "MPLS"),
    // What follows the reference's language cannot say.
    (1, "ICMPv4"),
    (1, "ICMP"),
    (4, "IPv4"),
    (41, "IPv6"),
    (50, "ESP"),
    (51, "AH"),
    (58, "ICMPv6"),
];

/// The number of a name in any case, or of a decimal number.
#[must_use]
pub fn number(text: &str) -> Option<u8> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok();
    }
    let mut names = NAMES.iter();
    names
        .find(|(_, name)| name.eq_ignore_ascii_case(text))
        .map(|(number, _)| *number)
}

/// The name of a number.
#[must_use]
pub fn name(number: u8) -> Option<&'static str> {
    let mut names = NAMES.iter();
    names
        .find(|(known, _)| *known == number)
        .map(|(_, name)| *name)
}
