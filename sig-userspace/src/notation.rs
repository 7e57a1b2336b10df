//! The notation of durations, in all files that the user writes.

use std::time::Duration;

use crate::problem::excerpt;

/// A number with one unit of `y w d h m s ms us µs ns`, as in the reference's configuration.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
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
pub(crate) fn show_duration(duration: Duration) -> String {
    let nanoseconds = duration.as_nanos();
    for (unit, name) in [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")] {
        if nanoseconds.is_multiple_of(unit) {
            return format!("{}{name}", nanoseconds / unit);
        }
    }
    format!("{nanoseconds}ns")
}

#[cfg(test)]
mod tests {
    use super::*;

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
