//! What the engine and the SR node's programs tell each other about a packet on the pair of tunnel devices, in its destination MAC
//! address: no device has such an address, so a packet that nobody takes is dropped by the kernel, or by `sig_inject`.

/// A mark: what is to be done, and with which number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// From the engine: into this policy of the SR node.
    Policy(u32),
    /// From the engine: a copy, to the adjacency of the SR node with this number.
    Mirror(u32),
    /// To the engine: the packet has been through its chain, and leaves now.
    Returned,
}

/// The first bytes: locally administered, of one device. The next one is the kind of mark, the last three are the number.
const PREFIX: [u8; 2] = [0x06, 0x53];
const POLICY: u8 = 1;
const MIRROR: u8 = 2;
const RETURNED: u8 = 3;

impl Mark {
    /// Numbers are below this.
    pub const NUMBERS: u32 = 1 << 24;

    /// The address.
    #[must_use]
    pub const fn address(self) -> [u8; 6] {
        let (kind, number) = match self {
            Self::Policy(number) => (POLICY, number),
            Self::Mirror(number) => (MIRROR, number),
            Self::Returned => (RETURNED, 0),
        };
        let [_, a, b, c] = number.to_be_bytes();
        [PREFIX[0], PREFIX[1], kind, a, b, c]
    }

    /// The mark that an address is.
    #[inline(always)]
    #[must_use]
    pub const fn of(address: [u8; 6]) -> Option<Self> {
        let [first, second, kind, a, b, c] = address;
        if first != PREFIX[0] || second != PREFIX[1] {
            return None;
        }
        let number = u32::from_be_bytes([0, a, b, c]);
        match kind {
            POLICY => Some(Self::Policy(number)),
            MIRROR => Some(Self::Mirror(number)),
            RETURNED => Some(Self::Returned),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        for mark in [
            Mark::Policy(0),
            Mark::Policy(0x12_3456),
            Mark::Mirror(Mark::NUMBERS - 1),
            Mark::Returned,
        ] {
            let address = mark.address();
            assert_eq!(Mark::of(address), Some(mark));
            assert_eq!(address[0] & 3, 2, "of one device, locally administered");
        }
        assert_eq!(Mark::of([2, 0, 0, 0, 0, 0]), None);
        assert_eq!(Mark::of([0x06, 0x53, 0, 0, 0, 0]), None);
    }
}
