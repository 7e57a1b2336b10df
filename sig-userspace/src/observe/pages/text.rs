//! Notations that pages need.

/// Base64 with padding (RFC 4648, section 4).
pub(super) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits = group
            .iter()
            .zip([16, 8, 0])
            .fold(0, |bits, (byte, shift)| bits | u32::from(*byte) << shift);
        for (number, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            text.push(if number <= group.len() {
                char::from(DIGITS[(bits >> shift & 63) as usize])
            } else {
                '='
            });
        }
    }
    text
}

/// A time in seconds since 1970, as RFC 3339 writes it in UTC.
pub(super) fn rfc3339(time: u64) -> String {
    let (days, second) = (time / 86_400, time % 86_400);
    // Years that begin in March, so that a leap day is the last day, in eras of 400 such years; day 0 is
    // the first of March of the year 0. The months have 31 and 30 days in turns of five.
    let day = days + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    format!(
        "{:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        era * 400 + year + carry,
        second / 3_600,
        second / 60 % 60,
        second % 60
    )
}

/// Text within HTML, also within the quotes of an attribute.
pub(super) fn html(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
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
        }
        assert_eq!(base64(&[255, 255, 255, 0]), "////AA==");
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
        ];
        for (time, text) in pairs {
            assert_eq!(rfc3339(time), text);
        }
    }

    #[test]
    fn text_cannot_break_out_of_html() {
        assert_eq!(
            html("<b class=\"x\">'&'</b>"),
            "&lt;b class=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/b&gt;"
        );
    }
}
