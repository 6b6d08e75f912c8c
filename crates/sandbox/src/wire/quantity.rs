//! Resource quantities in thousandths, with sums and the printed form. `api` parses them.

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

/// Decimal suffixes, each a thousand times the one before.
const DECIMAL: [&str; 6] = ["", "k", "M", "G", "T", "P"];
/// Binary suffixes with their exponents of two.
const BINARY: [(&str, u32); 5] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50)];

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
        let parsed =
            api::quantity::Quantity::parse(text).map_err(|_| QuantityError { text: text.to_owned() })?;
        Ok(Self { milli: parsed.milli(), binary: text.trim_end().ends_with('i') })
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
            for (name, bits) in BINARY.iter().rev() {
                if units % (1i64 << bits) == 0 {
                    return write!(f, "{}{name}", units >> bits);
                }
            }
            return write!(f, "{units}");
        }
        let mut rest = units;
        let mut suffix = 0;
        while rest % 1000 == 0 && suffix + 1 < DECIMAL.len() {
            rest /= 1000;
            suffix += 1;
        }
        write!(f, "{rest}{}", DECIMAL[suffix])
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
