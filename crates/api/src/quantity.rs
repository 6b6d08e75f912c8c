//! Kubernetes quantities such as `500m`, `1.5Gi` and `2e3`, and their canonical form.
//!
//! [`crate::amounts`] defines the base unit of each resource.

use std::fmt;

/// Nano units in one unit. Kubernetes keeps no finer step.
const NANO: i128 = 1_000_000_000;
/// Significant digits of a mantissa. Further digits are beyond the largest amount or below the finest step.
const DIGITS_MAX: usize = 27;
/// Fractional digits of a binary quantity. The limit prevents an overflow of the product.
const BINARY_FRACTION_MAX: usize = 10;

/// A parsed quantity: exact to 10^-9, rounded up beyond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity {
    nano: i128,
}

/// Why a text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text is empty.
    #[error("quantity is empty; write a number such as 500m or 16Gi")]
    Empty,
    /// The number or the suffix is invalid.
    #[error("\"{0}\" is not a quantity; write a number such as 500m or 16Gi")]
    Malformed(String),
    /// The value is negative.
    #[error("quantity \"{0}\" is negative; resources start at 0")]
    Negative(String),
    /// The JSON value is neither a string nor a number.
    #[error("{0} is not a quantity; write a number or a text such as 16Gi")]
    Type(String),
}

enum Suffix {
    Decimal(i32),
    Binary(u32),
}

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self { nano: 0 };
    /// The smallest amount above zero.
    pub const FINEST: Self = Self { nano: 1 };

    /// Parses a quantity with an optional sign. Saturates at 128 bits of nano units.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let trimmed = text.trim();
        if trimmed.is_empty() {
            return Err(QuantityError::Empty);
        }
        let malformed = || QuantityError::Malformed(text.to_owned());
        let (negative, rest) = match trimmed.as_bytes()[0] {
            b'-' => (true, &trimmed[1..]),
            b'+' => (false, &trimmed[1..]),
            _ => (false, trimmed),
        };
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let suffix = Suffix::parse(suffix).ok_or_else(malformed)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
            return Err(malformed());
        }
        let magnitude = nano(whole, fraction.trim_end_matches('0'), &suffix);
        Ok(Self { nano: if negative { -magnitude } else { magnitude } })
    }

    /// Whole units, rounded away from zero, saturating.
    pub fn units(self) -> i64 {
        self.steps(NANO)
    }

    /// Thousandths of a unit, rounded away from zero, saturating.
    pub fn milli(self) -> i64 {
        self.steps(NANO / 1000)
    }

    /// Millionths of a unit, rounded away from zero, saturating.
    pub fn micro(self) -> i64 {
        self.steps(NANO / 1_000_000)
    }

    /// Billionths of a unit.
    pub fn nano(self) -> i128 {
        self.nano
    }

    /// Whether the value is below zero.
    pub fn is_negative(self) -> bool {
        self.nano < 0
    }

    fn steps(self, step: i128) -> i64 {
        let magnitude = self.nano.unsigned_abs().div_ceil(step.unsigned_abs());
        let magnitude = i64::try_from(magnitude).unwrap_or(i64::MAX);
        if self.nano < 0 { -magnitude } else { magnitude }
    }
}

impl Suffix {
    fn parse(text: &str) -> Option<Self> {
        let decimal = match text {
            "n" => -9,
            "u" => -6,
            "m" => -3,
            "" => 0,
            "k" => 3,
            "M" => 6,
            "G" => 9,
            "T" => 12,
            "P" => 15,
            "E" => 18,
            "Ki" => return Some(Self::Binary(10)),
            "Mi" => return Some(Self::Binary(20)),
            "Gi" => return Some(Self::Binary(30)),
            "Ti" => return Some(Self::Binary(40)),
            "Pi" => return Some(Self::Binary(50)),
            "Ei" => return Some(Self::Binary(60)),
            exponent => {
                let digits = exponent.strip_prefix(['e', 'E'])?;
                let unsigned = digits.strip_prefix(['+', '-']).unwrap_or(digits);
                if unsigned.is_empty() || !unsigned.bytes().all(|b| b.is_ascii_digit()) {
                    return None;
                }
                // An exponent beyond an i32 saturates.
                let bound = if digits.starts_with('-') { i32::MIN / 2 } else { i32::MAX / 2 };
                digits.parse().unwrap_or(bound).clamp(i32::MIN / 2, i32::MAX / 2)
            }
        };
        Some(Self::Decimal(decimal))
    }
}

/// Magnitude in nano units, rounded up, saturating at `i128::MAX`.
fn nano(whole: &str, fraction: &str, suffix: &Suffix) -> i128 {
    match suffix {
        Suffix::Decimal(power) => {
            let digits: String = whole.chars().chain(fraction.chars()).collect();
            let digits = digits.trim_start_matches('0');
            let dropped = digits.len().saturating_sub(DIGITS_MAX);
            let mut mantissa: i128 = digits[..digits.len() - dropped].parse().unwrap_or(0);
            // Dropped digits round up.
            mantissa += i128::from(digits[digits.len() - dropped..].bytes().any(|b| b != b'0'));
            let places = |length: usize| i64::try_from(length).unwrap_or(i64::MAX / 4);
            scale(mantissa, i64::from(*power) - places(fraction.len()) + places(dropped) + 9)
        }
        Suffix::Binary(shift) => {
            let kept = &fraction[..fraction.len().min(BINARY_FRACTION_MAX)];
            let digits: String = whole.chars().chain(kept.chars()).collect();
            let Ok(mantissa) = (if digits.is_empty() { Ok(0) } else { digits.parse::<i128>() }) else {
                return i128::MAX;
            };
            let mantissa = mantissa.saturating_add(i128::from(kept.len() < fraction.len()));
            let product = mantissa.saturating_mul(1 << shift).saturating_mul(NANO);
            let places = u32::try_from(kept.len()).expect("at most BINARY_FRACTION_MAX digits are kept");
            ceil_div(product, 10_i128.pow(places))
        }
    }
}

/// `mantissa` times ten to the `power`, rounded up, saturating.
fn scale(mantissa: i128, power: i64) -> i128 {
    if mantissa == 0 {
        return 0;
    }
    let factor = 10_i128.checked_pow(u32::try_from(power.unsigned_abs()).unwrap_or(u32::MAX));
    match (power >= 0, factor) {
        (true, factor) => factor.map_or(i128::MAX, |factor| mantissa.saturating_mul(factor)),
        (false, divisor) => divisor.map_or(1, |divisor| ceil_div(mantissa, divisor)),
    }
}

fn ceil_div(value: i128, divisor: i128) -> i128 {
    value / divisor + i128::from(value % divisor != 0)
}

/// Formats whole units in canonical form: with the largest binary suffix without a remainder, or else the largest
/// decimal one.
///
/// ```
/// assert_eq!(api::quantity::Units(512 << 20).to_string(), "512Mi");
/// assert_eq!(api::quantity::Units(16_000_000_000).to_string(), "16G");
/// assert_eq!(api::quantity::Units(3).to_string(), "3");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Units(pub i64);

/// Formats thousandths of a unit: `500m`, or `2` for whole units.
#[derive(Debug, Clone, Copy)]
pub struct Milli(pub i64);

/// The units of a family of suffixes.
pub(crate) struct Scale {
    /// How many of one unit the next one has.
    step: i64,
    suffixes: [&'static str; 6],
}

pub(crate) const BINARY: Scale = Scale { step: 1024, suffixes: ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"] };
pub(crate) const DECIMAL: Scale = Scale { step: 1000, suffixes: ["k", "M", "G", "T", "P", "E"] };

impl Scale {
    /// The amount in the largest unit that leaves an integer, and the suffix of this unit.
    pub(crate) fn largest_unit(&self, amount: i64) -> (i64, &'static str) {
        let (mut value, mut suffix) = (amount, "");
        for next in self.suffixes {
            if value == 0 || value % self.step != 0 {
                break;
            }
            (value, suffix) = (value / self.step, next);
        }
        (value, suffix)
    }
}

impl fmt::Display for Units {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (binary, decimal) = (BINARY.largest_unit(self.0), DECIMAL.largest_unit(self.0));
        let (value, suffix) = if binary.0.abs() < decimal.0.abs() { binary } else { decimal };
        write!(f, "{value}{suffix}")
    }
}

impl fmt::Display for Milli {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 % 1000 == 0 { Units(self.0 / 1000).fmt(f) } else { write!(f, "{}m", self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantity_parses_and_rounds_up() {
        struct Case(&'static str, i64, i64);
        let cases = [
            Case("0", 0, 0),
            Case("500m", 1, 500),
            Case("1", 1, 1000),
            Case("1.5", 2, 1500),
            Case(".5", 1, 500),
            Case("5.", 5, 5000),
            Case("+3", 3, 3000),
            Case("-3", -3, -3000),
            Case("1n", 1, 1),
            Case("100u", 1, 1),
            Case("16G", 16_000_000_000, 16_000_000_000_000),
            Case("16Gi", 16 << 30, (16 << 30) * 1000),
            Case("1.5Gi", 3 << 29, (3 << 29) * 1000),
            Case("0.1Ki", 103, 102_400),
            Case("1e3", 1000, 1_000_000),
            Case("1E3", 1000, 1_000_000),
            Case("1.5e-3", 1, 2),
            Case("1E", 1_000_000_000_000_000_000, i64::MAX),
            Case("7Ei", 7 << 60, i64::MAX),
            Case("8Ei", i64::MAX, i64::MAX),
            Case("1e99999999999", i64::MAX, i64::MAX),
            Case("1e-99999999999", 1, 1),
            Case("0e99999999999", 0, 0),
            Case("99999999999999999999999999999999999999999999", i64::MAX, i64::MAX),
            Case("99999999999999999999999999999999999999999999Ei", i64::MAX, i64::MAX),
            Case("0.00000000000000000000000000000000000000001", 1, 1),
            Case("1.00000000000000000000000000000000000000000", 1, 1000),
        ];
        for Case(text, units, milli) in cases {
            let quantity = Quantity::parse(text).unwrap();
            assert_eq!(quantity.units(), units, "units of {text}");
            assert_eq!(quantity.milli(), milli, "milli of {text}");
        }
    }

    #[test]
    fn an_invalid_quantity_is_an_error_with_its_text() {
        for text in ["", " ", "G", "-", ".", "1.2.3", "1 G", "1Kb", "1e", "1e+", "0x10", "NaN", "1mi", "１"]
        {
            assert!(Quantity::parse(text).is_err(), "{text:?} was accepted");
        }
        assert_eq!(
            Quantity::parse("12 apples").unwrap_err().to_string(),
            "\"12 apples\" is not a quantity; write a number such as 500m or 16Gi"
        );
    }

    #[test]
    fn the_canonical_form_is_short_and_parses_to_the_same_value() {
        for (value, text) in [
            (0, "0"),
            (1, "1"),
            (1024, "1Ki"),
            (1000, "1k"),
            (1500, "1500"),
            (i64::MAX, "9223372036854775807"),
            (2_000_000_000, "2G"),
            (3 << 30, "3Gi"),
            (1_024_000, "1000Ki"),
        ] {
            assert_eq!(Units(value).to_string(), text);
            assert_eq!(Quantity::parse(text).unwrap().units(), value);
        }
        assert_eq!(Milli(2500).to_string(), "2500m");
        assert_eq!(Milli(4000).to_string(), "4");
    }
}
