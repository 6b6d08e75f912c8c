//! String formats in the validation of custom resources.
//!
//! This module contains one check per format. Formats that kube-apiserver does not know for custom resources
//! (`int32`, `int64`, …) are not checked.

use std::net::{Ipv4Addr, Ipv6Addr};

use base64::Engine as _;

use crate::object::parse_rfc3339;

/// Whether `text` has the format; `None` for a format that is not checked. Dashes in the name of the format are
/// ignored.
pub(super) fn is_valid(format: &str, text: &str) -> Option<bool> {
    Some(match format.replace('-', "").as_str() {
        "datetime" => parse_rfc3339(text).is_some(),
        "date" => is_date(text),
        "duration" => go_duration_nanos(text).is_some(),
        "byte" => base64::engine::general_purpose::STANDARD.decode(text).is_ok(),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "mac" => is_mac(text),
        "uuid" => is_uuid(text, None),
        "uuid3" => is_uuid(text, Some('3')),
        "uuid4" => is_uuid(text, Some('4')),
        "uuid5" => is_uuid(text, Some('5')),
        "uri" => text.parse::<http::Uri>().is_ok_and(|uri| uri.scheme().is_some() || text.starts_with('/')),
        "email" => text.split_once('@').is_some_and(|(user, host)| {
            !user.is_empty() && !host.is_empty() && !host.contains(['@', ' ']) && !user.contains(' ')
        }),
        "hostname" => is_hostname(text),
        "hexcolor" => {
            let digits = text.strip_prefix('#').unwrap_or(text);
            matches!(digits.len(), 3 | 6) && digits.bytes().all(|b| b.is_ascii_hexdigit())
        }
        "k8sshortname" => crate::names::label(text).is_ok(),
        "k8slongname" => crate::names::subdomain(text).is_ok(),
        _ => return None,
    })
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

/// Nanoseconds of a duration in Go's format: `1h30m`, `-1.5s`, `22 ns`.
pub(super) fn go_duration_nanos(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.trim().as_bytes().first()? {
        b'-' => (true, &text.trim()[1..]),
        b'+' => (false, &text.trim()[1..]),
        _ => (false, text.trim()),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let after = after.trim_start();
        let letters = after.find(|c: char| c.is_ascii_digit() || c == '.' || c == ' ').unwrap_or(after.len());
        let (unit, next) = after.split_at(letters);
        let scale: i128 = match unit {
            "ns" => 1,
            "us" | "µs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return None;
        }
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let mut value = whole.checked_mul(scale)?;
        let mut place = scale;
        for digit in fraction.bytes() {
            place /= 10;
            value += i128::from(digit - b'0') * place;
        }
        total = total.checked_add(value)?;
        rest = next.trim_start();
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let bits: u8 = match bits.parse() {
        Ok(bits) => bits,
        Err(_) => return false,
    };
    address.parse::<Ipv4Addr>().is_ok() && bits <= 32 || address.parse::<Ipv6Addr>().is_ok() && bits <= 128
}

fn is_mac(text: &str) -> bool {
    let separator = if text.contains('-') { '-' } else { ':' };
    let parts: Vec<&str> = text.split(separator).collect();
    matches!(parts.len(), 6 | 8 | 20)
        && parts.iter().all(|part| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn is_uuid(text: &str, version: Option<char>) -> bool {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let dashes_fit = text.len() == 32
        || (text.len() == 36
            && text.char_indices().all(|(at, c)| (c == '-') == matches!(at, 8 | 13 | 18 | 23)));
    dashes_fit
        && digits.len() == 32
        && digits.bytes().all(|b| b.is_ascii_hexdigit())
        && version.is_none_or(|version| digits.chars().nth(12) == Some(version))
}

fn is_hostname(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 255
        && text.trim_end_matches('.').split('.').all(|label| {
            !label.is_empty()
                && label.len() <= 63
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_accept_the_values_that_kube_apiserver_accepts() {
        for (format, text, valid) in [
            ("date-time", "2026-11-21T02:00:00Z", Some(true)),
            ("date-time", "2026-11-21T02:00:00.123456+01:00", Some(true)),
            ("date-time", "2026-11-21", Some(false)),
            ("date-time", "2026-11-21 02:00:00Z", Some(false)),
            ("date-time", "", Some(false)),
            ("date-time", "2026-11-21T02:00Z", Some(false)),
            ("date", "2026-02-30", Some(false)),
            ("duration", "1h30m", Some(true)),
            ("duration", "22 ns", Some(true)),
            ("duration", "1", Some(false)),
            ("ipv4", "10.0.0.1", Some(true)),
            ("cidr", "10.0.0.0/33", Some(false)),
            ("mac", "01:23:45:67:89:ab", Some(true)),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", Some(true)),
            ("uuid4", "123e4567-e89b-12d3-a456-426614174000", Some(false)),
            ("byte", "aGVsbG8=", Some(true)),
            ("hostname", "-a.example", Some(false)),
            ("int32", "x", None),
            ("email", "a@b", Some(true)),
            ("uri", "https://example.com/a", Some(true)),
            ("uri", "not a uri", Some(false)),
        ] {
            assert_eq!(is_valid(format, text), valid, "{format} {text}");
        }
    }

    #[test]
    fn durations_are_parsed_exactly() {
        assert_eq!(go_duration_nanos("1.5s"), Some(1_500_000_000));
        assert_eq!(go_duration_nanos("-2m"), Some(-120_000_000_000));
        assert_eq!(go_duration_nanos("99999999999999999999h"), None);
        assert_eq!(go_duration_nanos("µs"), None);
    }
}
