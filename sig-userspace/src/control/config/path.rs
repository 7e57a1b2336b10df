//! Checks the bytes of a configured SCION path.

/// What a forwarding path of path type SCION (1) must look like before its first hop: CurrINF and
/// CurrHF 0, segment lengths without a hole, as long as they say.
///
/// Layout: PathMeta (4 bytes: CurrINF 2 bits, CurrHF 6, reserved 6, three segment lengths of 6
/// bits), an info field of 8 bytes per segment, a hop field of 12 bytes per hop; SCION header
/// specification, path type SCION.
pub(super) fn check(raw: &[u8]) -> Result<(), String> {
    let Some(meta) = raw.first_chunk::<4>() else {
        return Err(format!(
            "{} bytes are too short for a SCION path, which starts with 4 bytes of PathMeta; \
             take the raw path from the daemon or \"scion showpaths\"",
            raw.len()
        ));
    };
    let meta = u32::from_be_bytes(*meta);
    let (current_info, current_hop) = (meta >> 30, (meta >> 24) & 0x3f);
    if (current_info, current_hop) != (0, 0) {
        return Err(format!(
            "CurrINF is {current_info} and CurrHF is {current_hop}, but a path at its sender has \
             0 and 0; take the path as the daemon gives it, not from a packet under way"
        ));
    }
    let segments = [(meta >> 12) & 0x3f, (meta >> 6) & 0x3f, meta & 0x3f];
    let info_fields = segments
        .iter()
        .rposition(|len| *len > 0)
        .map_or(0, |i| i + 1);
    if info_fields == 0 {
        return Err(
            "the path has no segment; for a remote in the own AS write raw = \"\"".to_owned(),
        );
    }
    if let Some(hole) = segments[..info_fields].iter().position(|len| *len == 0) {
        return Err(format!(
            "segment {hole} has no hop fields but a later segment has; the bytes are damaged"
        ));
    }
    let hop_fields: u32 = segments.iter().sum();
    if hop_fields > 64 {
        return Err(format!(
            "{hop_fields} hop fields are more than 64; the bytes are damaged"
        ));
    }
    let expected = 4 + 8 * info_fields + 12 * hop_fields as usize;
    if raw.len() != expected {
        return Err(format!(
            "{} bytes found, but {info_fields} segments with {hop_fields} hop fields take \
             {expected}; the path is cut off or has something appended",
            raw.len()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::values::hex;
    use super::check;

    const GOOD: &str =
        "00002000 0100123466000000 003f00000001010203040506 003f000200000708090a0b0c";

    fn check_hex(text: &str) -> Result<(), String> {
        check(&hex(text).unwrap())
    }

    #[test]
    fn a_path_of_the_daemon_is_fine() {
        assert_eq!(check_hex(GOOD), Ok(()));
    }

    #[test]
    fn a_path_under_way_is_refused() {
        assert_eq!(
            check_hex(&GOOD.replacen("00002000", "41002000", 1)).unwrap_err(),
            "CurrINF is 1 and CurrHF is 1, but a path at its sender has 0 and 0; \
             take the path as the daemon gives it, not from a packet under way"
        );
    }

    #[test]
    fn a_cut_path_is_refused() {
        assert_eq!(
            check_hex(&GOOD[..GOOD.len() - 2]).unwrap_err(),
            "35 bytes found, but 1 segments with 2 hop fields take 36; \
             the path is cut off or has something appended"
        );
        assert!(check_hex("0000").is_err());
    }

    #[test]
    fn segments_leave_no_hole() {
        assert_eq!(
            check_hex("00002001").unwrap_err(),
            "segment 1 has no hop fields but a later segment has; the bytes are damaged"
        );
        assert_eq!(
            check_hex("00000000").unwrap_err(),
            "the path has no segment; for a remote in the own AS write raw = \"\""
        );
        assert_eq!(
            check_hex("0003ffff").unwrap_err(),
            "189 hop fields are more than 64; the bytes are damaged"
        );
    }
}
