//! Local SIDs.

/// What a SID stands for. The numbers are in the BPF map; they are not those of IANA, which count behaviors with every
/// combination of flavors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Behavior {
    /// RFC 8986, section 4.1: on to the next segment, by the main table.
    End,
    /// Section 4.2: on to the next segment, by way of an adjacency.
    EndX,
    /// Section 4.3: on to the next segment, by a table.
    EndT,
    /// Section 4.9: decapsulate an Ethernet frame and send it by a device.
    EndDx2,
    /// Section 4.5: decapsulate an IPv4 packet and send it to an adjacency.
    EndDx4,
    /// Section 4.4: the same with IPv6.
    EndDx6,
    /// Section 4.7: decapsulate an IPv4 packet and look it up in a table.
    EndDt4,
    /// Section 4.6: the same with IPv6.
    EndDt6,
    /// Section 4.8: the same with either.
    EndDt46,
    /// Static proxy: decapsulate for a function, configured headers for what it returns.
    EndAs,
    /// Dynamic proxy for IPv4 packets: decapsulate for a function, the headers of the last packet for what it returns.
    EndAd4,
    /// The same for IPv6 packets.
    EndAd6,
    /// Masquerading proxy: the function sees the final destination.
    EndAm,
    /// A function that knows of headers: on to the next segment, and to the function with all headers.
    EndAn,
}

impl Behavior {
    /// All, in the order of the numbers.
    pub const ALL: [Self; 14] = [
        Self::End,
        Self::EndX,
        Self::EndT,
        Self::EndDx2,
        Self::EndDx4,
        Self::EndDx6,
        Self::EndDt4,
        Self::EndDt6,
        Self::EndDt46,
        Self::EndAs,
        Self::EndAd4,
        Self::EndAd6,
        Self::EndAm,
        Self::EndAn,
    ];

    /// The behavior with this number, if there is one.
    #[inline(always)]
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        if (number as usize) < Self::ALL.len() {
            Some(Self::ALL[number as usize])
        } else {
            None
        }
    }

    /// The name in configuration and status: as in RFC 8986.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::End => "End",
            Self::EndX => "End.X",
            Self::EndT => "End.T",
            Self::EndDx2 => "End.DX2",
            Self::EndDx4 => "End.DX4",
            Self::EndDx6 => "End.DX6",
            Self::EndDt4 => "End.DT4",
            Self::EndDt6 => "End.DT6",
            Self::EndDt46 => "End.DT46",
            Self::EndAs => "End.AS",
            Self::EndAd4 => "End.AD4",
            Self::EndAd6 => "End.AD6",
            Self::EndAm => "End.AM",
            Self::EndAn => "End.AN",
        }
    }

    /// Whether packets to such a SID must have no segments left.
    #[must_use]
    pub const fn ends_the_list(self) -> bool {
        matches!(
            self,
            Self::EndDx2
                | Self::EndDx4
                | Self::EndDx6
                | Self::EndDt4
                | Self::EndDt6
                | Self::EndDt46
        )
    }

    /// Whether packets go on along their segment list.
    #[inline(always)]
    #[must_use]
    pub const fn is_transit(self) -> bool {
        matches!(self, Self::End | Self::EndX | Self::EndT)
    }
}

/// Variants of a behavior (RFC 8986, section 4.16), as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Flavors(pub u8);

impl Flavors {
    /// Who makes the last segment the active one removes the SRH.
    pub const PSP: Self = Self(1);
    /// Whose SID is the last segment removes the SRH.
    pub const USP: Self = Self(2);
    /// Whose SID is the last segment decapsulates.
    pub const USD: Self = Self(4);
    /// Of a dynamic proxy: packets without a further segment go to the function too, and end their chain there.
    pub const LAST: Self = Self(8);

    /// Whether all of `other` are among these.
    #[inline(always)]
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl core::ops::BitOr for Flavors {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// How many segments a packet goes on by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Jump(pub u8);

impl Jump {
    /// Two: the next segment is left out. It is an error if only one is left.
    pub const SKIP: Self = Self(1);
    /// All.
    pub const LAST: Self = Self(2);
}

/// A local SID, as in the BPF map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Sid {
    /// Number of the [`Behavior`].
    pub behavior: u8,
    /// Its variants.
    pub flavors: Flavors,
    /// Bits of the address, from the last one on, that are arguments; 0: none. The address has zeros there.
    pub arguments: u8,
    /// Zero in the map. Rules that send a packet past segments set it.
    pub jump: Jump,
    /// What the behavior is about: the number of an adjacency (`X`, `DX4`, `DX6`), a routing table (`T`, `DT`), a device
    /// (`DX2`) or a function (proxies).
    pub target: u32,
    /// Its counters.
    pub slot: u32,
}

impl Sid {
    /// A SID whose counters are at `slot`.
    #[must_use]
    pub const fn new(behavior: Behavior, flavors: Flavors, target: u32, slot: u32) -> Self {
        Self {
            behavior: behavior as u8,
            flavors,
            arguments: 0,
            jump: Jump(0),
            target,
            slot,
        }
    }

    /// The same with another behavior: what a rule makes of it.
    #[inline(always)]
    #[must_use]
    pub const fn as_end(&self, jump: Jump) -> Self {
        Self {
            jump,
            ..Self::new(Behavior::End, Flavors(0), 0, self.slot)
        }
    }

    /// Its behavior; `None` in a map value that nobody wrote.
    #[inline(always)]
    #[must_use]
    pub const fn behavior(&self) -> Option<Behavior> {
        Behavior::from_number(self.behavior)
    }
}
