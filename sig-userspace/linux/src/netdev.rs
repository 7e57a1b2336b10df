//! What XDP can do on an interface, as its driver declares it (generic netlink family `netdev`, Linux 6.3 and newer).

use std::io;

use rtnetlink::sys::protocols::NETLINK_GENERIC;
use rtnetlink::sys::{Socket, SocketAddr};

/// XDP abilities of an interface's driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpFeatures(u64);

impl XdpFeatures {
    /// From the bits of `enum netdev_xdp_act` in `linux/netdev.h`.
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Programs run in the driver (native mode).
    pub fn native(self) -> bool {
        self.0 & 1 != 0
    }

    /// A program can hand packets to AF_XDP sockets.
    pub fn redirect(self) -> bool {
        self.0 & (1 << 1) != 0
    }

    /// Programs of other devices can send through it. Of a veth device this depends on the other end: it must have a native
    /// program, or GRO.
    pub fn transmit(self) -> bool {
        self.0 & (1 << 2) != 0
    }

    /// As [`Self::transmit`], also frames in several buffers.
    pub fn transmit_fragments(self) -> bool {
        self.0 & (1 << 6) != 0
    }

    /// AF_XDP sockets without copying.
    pub fn zero_copy(self) -> bool {
        self.0 & (1 << 3) != 0
    }
}

/// Asks what XDP can do on interface `ifindex` of the calling thread's network namespace. Needs no privilege.
///
/// `Ok(None)` when this kernel does not tell.
pub fn xdp_features(ifindex: u32) -> io::Result<Option<XdpFeatures>> {
    const CONTROL: u16 = 16;
    const GET_FAMILY: u8 = 3;
    const FAMILY_ID: u16 = 1;
    const FAMILY_NAME: u16 = 2;
    const DEVICE_GET: u8 = 1;
    const IFINDEX: u16 = 1;
    const XDP_FEATURES: u16 = 3;

    let mut socket = Socket::new(NETLINK_GENERIC)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let family = match ask(&socket, CONTROL, GET_FAMILY, FAMILY_NAME, b"netdev\0") {
        Ok(attributes) => attribute(&attributes, FAMILY_ID).and_then(|value| value.try_into().ok()),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => None,
        Err(error) => return Err(error),
    };
    let Some(family) = family.map(u16::from_ne_bytes) else {
        return Ok(None);
    };
    let attributes = ask(&socket, family, DEVICE_GET, IFINDEX, &ifindex.to_ne_bytes())?;
    let bits = attribute(&attributes, XDP_FEATURES).and_then(|value| value.try_into().ok());
    Ok(bits.map(u64::from_ne_bytes).map(XdpFeatures))
}

/// Sends a request with one attribute and returns the attributes of the answer.
fn ask(socket: &Socket, family: u16, command: u8, kind: u16, value: &[u8]) -> io::Result<Vec<u8>> {
    const NETLINK_HEADER: usize = 16;
    const GENERIC_HEADER: usize = 4;
    const REQUEST: u16 = 1;
    const ERROR: u16 = 2;

    let mut attribute = Vec::new();
    let length = u16::try_from(4 + value.len()).map_err(io::Error::other)?;
    attribute.extend(length.to_ne_bytes());
    attribute.extend(kind.to_ne_bytes());
    attribute.extend(value);
    attribute.resize(attribute.len().next_multiple_of(4), 0);

    let length = NETLINK_HEADER + GENERIC_HEADER + attribute.len();
    let mut request = Vec::with_capacity(length);
    request.extend(
        u32::try_from(length)
            .map_err(io::Error::other)?
            .to_ne_bytes(),
    );
    request.extend(family.to_ne_bytes());
    request.extend(REQUEST.to_ne_bytes());
    request.extend([0; 8]); // sequence number and port: one question at a time
    request.extend([command, 1, 0, 0]); // version 1
    request.extend(attribute);
    socket.send(&request, 0)?;

    let (answer, _) = socket.recv_from_full()?;
    let odd = || io::Error::new(io::ErrorKind::InvalidData, "not a netlink message");
    let kind: [u8; 2] = answer
        .get(4..6)
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(odd)?;
    if u16::from_ne_bytes(kind) == ERROR {
        let code: [u8; 4] = answer
            .get(16..20)
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or_else(odd)?;
        return Err(io::Error::from_raw_os_error(
            i32::from_ne_bytes(code).saturating_neg(),
        ));
    }
    answer
        .get(NETLINK_HEADER + GENERIC_HEADER..)
        .map(<[u8]>::to_vec)
        .ok_or_else(odd)
}

/// The value of the first attribute of a kind.
pub(crate) fn attribute(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    let mut found = attributes(bytes).filter(|(kind, _)| *kind == wanted);
    found.next().map(|(_, value)| value)
}

/// Kinds and values of attributes, up to one that is broken.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    /// Flags in the two highest bits of an attribute's kind.
    const KIND: u16 = 0x3fff;
    std::iter::from_fn(move || {
        let [l0, l1, k0, k1] = *bytes.first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([l0, l1]));
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([k0, k1]) & KIND, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_and_broken_ones_are_not_followed() {
        let mut bytes = Vec::new();
        for (length, kind, value) in [(5u16, 1u16, [9, 0, 0, 0]), (8, 3, [1, 2, 3, 4])] {
            bytes.extend(length.to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(value);
        }
        assert_eq!(attribute(&bytes, 1), Some(&[9u8][..]));
        assert_eq!(attribute(&bytes, 3), Some(&[1u8, 2, 3, 4][..]));
        assert_eq!(attribute(&bytes, 7), None);
        for cut in 0..bytes.len() {
            assert_eq!(attribute(&bytes[..cut], 7), None);
        }
        assert_eq!(attribute(&[0; 8], 7), None, "length 0 must not loop");
    }

    #[test]
    fn the_loopback_interface_has_no_native_xdp() {
        // Kernels before 6.3 do not tell, which is an answer too.
        if let Some(features) = xdp_features(1).expect("the loopback interface is number 1") {
            assert!(!features.native() && !features.zero_copy());
        }
    }
}
