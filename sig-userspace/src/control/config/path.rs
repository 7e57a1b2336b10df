//! Checks the bytes of a configured SCION path.

use sig_common::wire::scion::path::{META_LEN, Meta};

use sig_core::{document::values::scion_path, scion::expires_at};

/// Checks a path of type SCION before its first hop: what receivers check, CurrINF and CurrHF 0. Tells when it
/// expires, in seconds since 1970.
pub(super) fn check(raw: &[u8]) -> Result<u64, String> {
    if let Some(meta) = raw.first_chunk::<META_LEN>() {
        let meta = Meta::decode(*meta);
        if (meta.current_info, meta.current_hop) != (0, 0) {
            return Err(format!(
                "CurrINF is {} and CurrHF is {}, but a path at its sender has 0 and 0; use the \
                 path as returned by the daemon, not from a packet in transit",
                meta.current_info, meta.current_hop
            ));
        }
        if meta.infos() == 0 {
            return Err(
                "the path has no segment; for a remote in the local AS write raw = \"\"".to_owned(),
            );
        }
    }
    let path = scion_path(raw)?;
    Ok(expires_at(&path).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::check;
    use sig_core::document::values::hex;

    const GOOD: &str =
        "00002000 0100123466000000 003f00000001010203040506 003f000200000708090a0b0c";

    fn check_hex(text: &str) -> Result<u64, String> {
        check(&hex(text).unwrap())
    }

    #[test]
    fn a_path_of_the_daemon_is_fine() {
        // 0x66000000 and 64 times 337.5 s.
        assert_eq!(check_hex(GOOD), Ok(1_711_276_032 + 21_600));
    }

    #[test]
    fn a_path_under_way_is_refused() {
        assert_eq!(
            check_hex(&GOOD.replacen("00002000", "41002000", 1)).unwrap_err(),
            "CurrINF is 1 and CurrHF is 1, but a path at its sender has 0 and \
             0; use the path as returned by the daemon, not from a packet in transit"
        );
    }

    #[test]
    fn a_cut_path_is_refused() {
        assert_eq!(
            check_hex(&GOOD[..GOOD.len() - 2]).unwrap_err(),
            "35 bytes found, but 1 segment with 2 hop fields take 36; \
             the path is truncated or has trailing bytes"
        );
        assert!(check_hex("0000").is_err());
    }

    #[test]
    fn segments_leave_no_hole() {
        assert_eq!(
            check_hex("00002001").unwrap_err(),
            "segment 1 has no hop fields, but a later segment does; the bytes are corrupted"
        );
        assert_eq!(
            check_hex("00000000").unwrap_err(),
            "the path has no segment; for a remote in the local AS write raw = \"\""
        );
        assert_eq!(
            check_hex("0003ffff").unwrap_err(),
            "189 hop fields are more than 64; the bytes are corrupted"
        );
    }
}
