//! Resource quantities: `100m`, `1.5Gi`, `2e3`.
//!
//! This module parses quantities exactly, in units of 10⁻⁹, and writes their canonical form.

/// The error message of Kubernetes for a malformed quantity.
pub const MALFORMED: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// Units of 10⁻⁹ in one unit. Quantities have no finer resolution.
const NANO: i128 = 1_000_000_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Binary,
    Decimal,
    Exponent,
}

const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// Decimal suffixes with their powers of ten.
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

/// The value in units of 10⁻⁹, rounded away from zero, saturating. `None` if `text` is malformed.
pub fn nanos(text: &str) -> Option<i128> {
    parse(text).map(|(value, _)| value)
}

fn parse(text: &str) -> Option<(i128, Format)> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let (numerator, denominator, format) = scale(suffix)?;
    let digits = |text: &str| -> i128 {
        text.bytes().fold(0i128, |sum, digit| sum.saturating_mul(10).saturating_add(i128::from(digit - b'0')))
    };
    // Digits beyond these do not change the rounded value.
    let fraction = &fraction[..fraction.len().min(20)];
    let power = 10i128.pow(u32::try_from(fraction.len()).ok()?);
    let mantissa = digits(whole).saturating_mul(power).saturating_add(digits(fraction));
    let scaled = mantissa.saturating_mul(numerator);
    let divisor = denominator.saturating_mul(power);
    // Numbers of this size exceed the range of quantities, so their precision does not matter.
    let value = match scaled.checked_mul(NANO) {
        Some(product) => product.checked_div(divisor)? + i128::from(product % divisor != 0),
        None => (scaled / divisor).saturating_mul(NANO),
    };
    let value = value.min(i128::from(i64::MAX).saturating_mul(NANO));
    Some((if negative { -value } else { value }, format))
}

fn scale(suffix: &str) -> Option<(i128, i128, Format)> {
    if let Some(power) = BINARY.iter().skip(1).position(|one| *one == suffix) {
        return Some((1i128 << (10 * (power + 1)), 1, Format::Binary));
    }
    let ten = |exponent: i32| -> Option<(i128, i128)> {
        let power = 10i128.checked_pow(exponent.unsigned_abs())?;
        Some(if exponent < 0 { (1, power) } else { (power, 1) })
    };
    if let Some((_, exponent)) = DECIMAL.iter().find(|(one, _)| *one == suffix) {
        let (numerator, denominator) = ten(*exponent)?;
        return Some((numerator, denominator, Format::Decimal));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    let (numerator, denominator) = ten(exponent.clamp(-30, 30))?;
    Some((numerator, denominator, Format::Exponent))
}

/// The canonical form in which kube-apiserver stores the quantity: `1500m` for `1.5`, `1` for `1000m`, `1Gi` for
/// `1024Mi`.
pub fn canonical(text: &str) -> Option<String> {
    let (value, format) = parse(text)?;
    Some(render(value, format))
}

/// The canonical form of the sum of two quantities, in the format of the first one that is not zero. `None` if one is
/// malformed.
pub fn sum(one: &str, other: &str) -> Option<String> {
    let ((one, format), (other, other_format)) = (parse(one)?, parse(other)?);
    Some(render(one.saturating_add(other), if one == 0 { other_format } else { format }))
}

fn render(value: i128, format: Format) -> String {
    if value == 0 {
        return "0".to_owned();
    }
    let sign = if value < 0 { "-" } else { "" };
    let value = value.unsigned_abs();
    let one = NANO.unsigned_abs();
    if format == Format::Binary && value.is_multiple_of(one) && value / one >= 1024 {
        let (mut whole, mut power) = (value / one, 0);
        while whole % 1024 == 0 && power < BINARY.len() - 1 {
            whole /= 1024;
            power += 1;
        }
        return format!("{sign}{whole}{}", BINARY[power]);
    }
    let (mut whole, mut step) = (value, 0);
    while whole % 1000 == 0 && step < DECIMAL.len() - 1 {
        whole /= 1000;
        step += 1;
    }
    let (suffix, exponent) = DECIMAL[step];
    match (format, exponent) {
        (Format::Exponent, 0) | (Format::Binary | Format::Decimal, _) => format!("{sign}{whole}{suffix}"),
        (Format::Exponent, _) => format!("{sign}{whole}e{exponent}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_stored_in_canonical_form() {
        for (text, stored) in [
            ("1.5", Some("1500m")),
            ("1000m", Some("1")),
            ("0.5Gi", Some("512Mi")),
            ("1024Mi", Some("1Gi")),
            ("1.5Gi", Some("1536Mi")),
            ("100", Some("100")),
            ("2000", Some("2k")),
            ("1000Ki", Some("1000Ki")),
            ("512", Some("512")),
            ("2e3", Some("2e3")),
            ("0", Some("0")),
            ("0.0000000001", Some("1n")),
            ("-1.5", Some("-1500m")),
            (".5", Some("500m")),
            ("1Gb", None),
            ("", None),
            ("abc", None),
            ("1.2.3", None),
            ("0.1Ki", Some("102400m")),
            ("99999999999999999999", Some("9223372036854775807")),
        ] {
            assert_eq!(canonical(text).as_deref(), stored, "{text}");
        }
    }

    #[test]
    fn sums_keep_the_format_of_the_first_quantity() {
        for (one, other, total) in [
            ("500m", "1", Some("1500m")),
            ("1Gi", "512Mi", Some("1536Mi")),
            ("0", "1Gi", Some("1Gi")),
            ("1k", "24", Some("1024")),
            ("1", "x", None),
        ] {
            assert_eq!(sum(one, other).as_deref(), total, "{one} {other}");
        }
    }

    #[test]
    fn quantities_compare_exactly() {
        assert!(nanos("1Gi") > nanos("1G"));
        assert_eq!(nanos("0.1"), nanos("100m"));
        assert_eq!(nanos("1Ei"), nanos("1024Pi"));
    }
}
