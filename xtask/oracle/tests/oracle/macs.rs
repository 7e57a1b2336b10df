//! MACs of hop fields.

use proptest::prelude::*;
use sciparse::dataplane_path::standard::mac::algo::calculate_hop_mac;
use sig_core::scion::{HopKey, MacInput};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn macs_are_the_same(
        key: [u8; 16],
        segment_id: u16,
        timestamp: u32,
        expiry: u8,
        ingress: u16,
        egress: u16,
    ) {
        let input = MacInput { segment_id, timestamp, expiry, ingress, egress };
        let theirs = calculate_hop_mac(segment_id, timestamp, expiry, ingress, egress, &key);
        prop_assert_eq!(HopKey::new(key).mac(&input), theirs);
    }
}
