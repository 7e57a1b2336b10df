//! Notations of durations, times and bytes that several rooms read or write.

use std::time::{Duration, UNIX_EPOCH};

use base64::{DecodeError, Engine as _, engine::general_purpose::STANDARD};

use crate::problem::excerpt;

/// A number with one unit of `y w d h m s ms us µs ns`, as in the reference's configuration.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || {
        format!(
            "\"{}\" is not a duration; write a whole number with one unit of \
             y, w, d, h, m, s, ms, us, ns, for example \"500ms\"",
            excerpt(text)
        )
    };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let nanoseconds: u64 = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        "w" => 7 * 86_400_000_000_000,
        "y" => 365 * 86_400_000_000_000,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let total = number.checked_mul(nanoseconds).ok_or_else(wrong)?;
    Ok(Duration::from_nanos(total))
}

/// A duration for a message: the largest unit that needs no fraction.
pub fn show_duration(duration: Duration) -> String {
    let nanoseconds = duration.as_nanos();
    for (unit, name) in [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")] {
        if nanoseconds.is_multiple_of(unit) {
            return format!("{}{name}", nanoseconds / unit);
        }
    }
    format!("{nanoseconds}ns")
}

/// So many of something, whose plural ends in "s".
pub fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// Bytes in hexadecimal.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Base64 with padding (RFC 4648, section 4).
pub fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Reads base64 with padding (RFC 4648, section 4); white space is skipped.
///
/// # Errors
///
/// What is wrong.
pub fn from_base64(text: &str) -> Result<Vec<u8>, String> {
    let text: String = text.split_ascii_whitespace().collect();
    STANDARD.decode(&text).map_err(|error| match error {
        // Of text that is one digit too long, this is the last byte, be it within a character.
        DecodeError::InvalidByte(_, byte) if byte != b'=' => {
            let is_digit = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
            let odd = text.chars().find(|c| !is_digit(*c)).unwrap_or(byte.into());
            format!("\"{}\" is not a digit of base64", odd.escape_default())
        }
        _ => "the base64 text is truncated or has wrong padding".to_owned(),
    })
}

/// A time in seconds since 1970, as RFC 3339 writes it in UTC; times after the year 9999 as its last second.
pub fn rfc3339(time: u64) -> String {
    const LAST: u64 = 253_402_300_799;
    let time = UNIX_EPOCH + Duration::from_secs(time.min(LAST));
    humantime::format_rfc3339_seconds(time).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_standard() {
        let pairs = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ];
        for (text, encoded) in pairs {
            assert_eq!(base64(text.as_bytes()), encoded);
            assert_eq!(from_base64(encoded), Ok(text.into()));
        }
        assert_eq!(base64(&[255, 255, 255, 0]), "////AA==");
        assert_eq!(from_base64(" Zm9v\r\nYg==\n"), Ok(b"foob".into()));
    }

    #[test]
    fn what_is_not_base64_is_refused() {
        for text in [
            "Zg", "Zg=", "Zh==", "Zg==Zg==", "Z===", "====", "Zm9v!", "Zm9-", "é", "Zm9é", "AA=é",
        ] {
            assert!(from_base64(text).is_err(), "{text}");
        }
        let error = from_base64("Zm9\nvé").unwrap_err();
        assert_eq!(error, "\"\\u{e9}\" is not a digit of base64");
    }

    #[test]
    fn times_are_written_as_the_calendar_has_them() {
        let pairs = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_709_164_800, "2024-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (1_795_283_079, "2026-11-21T17:44:39Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (u64::MAX, "9999-12-31T23:59:59Z"),
        ];
        for (time, text) in pairs {
            assert_eq!(rfc3339(time), text);
        }
    }

    #[test]
    fn durations_have_one_unit() {
        assert_eq!(duration("1ms"), Ok(Duration::from_millis(1)));
        assert_eq!(duration("20s"), Ok(Duration::from_secs(20)));
        assert_eq!(duration("2w"), Ok(Duration::from_secs(14 * 86400)));
        assert_eq!(duration("7µs"), Ok(Duration::from_micros(7)));
        assert_eq!(
            duration("1m30s").unwrap_err(),
            "\"1m30s\" is not a duration; write a whole number with one unit of \
             y, w, d, h, m, s, ms, us, ns, for example \"500ms\""
        );
        for wrong in [
            "",
            "5",
            "ms",
            "-1s",
            "1.5s",
            "99999999999999999999s",
            "600y",
        ] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_are_shown_as_they_are_written() {
        for text in ["20s", "500ms", "1us", "1500ns"] {
            assert_eq!(show_duration(duration(text).unwrap()), text);
        }
    }
}
