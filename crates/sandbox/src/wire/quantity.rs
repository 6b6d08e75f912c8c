//! Resource quantities: parsing and printing of the Kubernetes notation. Values are held in thousandths.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, Mul};
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A resource quantity in thousandths of its unit (milli-CPU, thousandths of a byte), rounded up.
///
/// Printed as Kubernetes does: in the shortest exact form, with the suffixes (`G` or `Gi`) of the parsed text.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    milli: i64,
    binary: bool,
}

/// The text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a quantity: expected a number with an optional suffix such as 500m, 2, 16Gi or 1G")]
pub struct QuantityError {
    text: String,
}

const DECIMAL: [(&str, i128); 9] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15)];
const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

impl Quantity {
    /// A quantity in whole units.
    pub const fn units(units: i64) -> Self {
        Self { milli: units.saturating_mul(1000), binary: false }
    }

    /// A quantity in thousandths.
    pub const fn from_milli(milli: i64) -> Self {
        Self { milli, binary: false }
    }

    /// The value in thousandths: milli-CPU for `cpu`.
    pub const fn milli(self) -> i64 {
        self.milli
    }

    /// The value in whole units, rounded up: bytes for `memory`.
    pub const fn ceil(self) -> i64 {
        self.milli.div_euclid(1000) + if self.milli.rem_euclid(1000) == 0 { 0 } else { 1 }
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let refuse = || QuantityError { text: text.to_owned() };
        let (sign, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || number.len() > 24 {
            return Err(refuse());
        }
        let digits: i128 = format!("0{whole}{fraction}").parse().map_err(|_| refuse())?;
        let scale = 10i128.pow(u32::try_from(fraction.len()).map_err(|_| refuse())?);
        let binary = BINARY.iter().find(|(name, _)| *name == suffix);
        let (numerator, denominator) = if let Some((_, bits)) = binary {
            (digits.saturating_mul(1000).saturating_mul(1i128 << bits), scale)
        } else {
            let exponent = match suffix.strip_prefix(['e', 'E']) {
                Some("") if suffix == "E" => 18,
                Some(exponent) => exponent.parse::<i128>().map_err(|_| refuse())?,
                None => DECIMAL.iter().find(|(name, _)| *name == suffix).ok_or_else(refuse)?.1,
            };
            let shift = u32::try_from((exponent + 3).unsigned_abs().min(30)).unwrap_or(30);
            if exponent + 3 >= 0 {
                (digits.saturating_mul(10i128.pow(shift)), scale)
            } else {
                (digits, scale.saturating_mul(10i128.pow(shift.min(12))))
            }
        };
        let milli = numerator / denominator + i128::from(numerator % denominator != 0);
        let milli = i64::try_from(milli).unwrap_or(i64::MAX);
        Ok(Self { milli: sign * milli, binary: binary.is_some() })
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.milli % 1000 != 0 {
            return write!(f, "{}m", self.milli);
        }
        let units = self.milli / 1000;
        if units == 0 {
            return write!(f, "0");
        }
        if self.binary {
            for (name, bits) in BINARY.iter().rev().filter(|(_, bits)| *bits < 60) {
                if units % (1i64 << bits) == 0 {
                    return write!(f, "{}{name}", units >> bits);
                }
            }
            return write!(f, "{units}");
        }
        let mut rest = units;
        let mut suffix = 3;
        while rest % 1000 == 0 && suffix + 1 < DECIMAL.len() {
            rest /= 1000;
            suffix += 1;
        }
        write!(f, "{rest}{}", DECIMAL[suffix].0)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.milli == other.milli
    }
}

impl Eq for Quantity {}

impl Add for Quantity {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let binary = if self.milli == 0 { other.binary } else { self.binary };
        Self { milli: self.milli.saturating_add(other.milli), binary }
    }
}

impl Mul<i64> for Quantity {
    type Output = Self;

    fn mul(self, times: i64) -> Self {
        Self { milli: self.milli.saturating_mul(times), ..self }
    }
}

impl Sum for Quantity {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::default(), Add::add)
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyNumber;
        impl Visitor<'_> for AnyNumber {
            type Value = Quantity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, units: i64) -> Result<Quantity, E> {
                Ok(Quantity::units(units))
            }

            fn visit_u64<E: de::Error>(self, units: u64) -> Result<Quantity, E> {
                Ok(Quantity::units(i64::try_from(units).unwrap_or(i64::MAX)))
            }

            fn visit_f64<E: de::Error>(self, units: f64) -> Result<Quantity, E> {
                units.to_string().parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(AnyNumber)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_parse_and_print_as_in_kubernetes() {
        for (text, milli, printed) in [
            ("1", 1000, "1"),
            ("500m", 500, "500m"),
            ("0.5", 500, "500m"),
            ("1.5Gi", 1_610_612_736_000, "1536Mi"),
            ("16G", 16_000_000_000_000, "16G"),
            ("2048Ki", 2_097_152_000, "2Mi"),
            ("1e3", 1_000_000, "1k"),
            ("1E", i64::MAX, "9223372036854775807m"),
            ("100n", 1, "1m"),
            ("0", 0, "0"),
            ("-2", -2000, "-2"),
        ] {
            let quantity: Quantity = text.parse().unwrap();
            assert_eq!((quantity.milli(), quantity.to_string().as_str()), (milli, printed), "{text}");
        }
        for text in ["", "x", "1x", "1.2.3", "Gi", "e3", "--1"] {
            assert!(text.parse::<Quantity>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_sum_keeps_the_suffixes_of_its_first_operand() {
        let sum: Quantity = ["16G", "16G"].iter().map(|q| q.parse::<Quantity>().unwrap()).sum();
        assert_eq!(sum.to_string(), "32G");
        let sum: Quantity = ["1Gi", "512Mi"].iter().map(|q| q.parse::<Quantity>().unwrap()).sum();
        assert_eq!(sum.to_string(), "1536Mi");
    }
}
