//! Formatting of amounts for messages: `500m cpu`, `16Gi memory`, `2 nvidia.com/gpu`.

use std::fmt;

use crate::amount::Amount;

/// An amount with the name of its resource, for messages.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity {
    /// The name of the resource.
    pub resource: String,
    /// The amount in the base unit of the resource; thousandths of one device for a device share.
    pub amount: Amount,
    /// Whether this is a share of one device.
    pub is_share: bool,
}

impl Quantity {
    /// An amount of the named resource.
    pub fn new(resource: &str, amount: Amount) -> Self {
        Self { resource: resource.to_owned(), amount, is_share: false }
    }

    /// A share of one device of the named resource, in thousandths.
    pub fn share(resource: &str, milli: u16) -> Self {
        Self { resource: resource.to_owned(), amount: Amount(milli.into()), is_share: true }
    }

    /// The amount without the name of the resource.
    pub fn amount_text(&self) -> String {
        let bytes = ["memory", "ephemeral-storage"].contains(&self.resource.as_str())
            || self.resource.starts_with("hugepages-");
        match self.resource.as_str() {
            _ if self.is_share => milli(self.amount.0),
            "cpu" => milli(self.amount.0),
            _ if bytes => size(self.amount.0),
            _ => self.amount.to_string(),
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = if self.is_share { "of one " } else { "" };
        write!(f, "{} {of}{}", self.amount_text(), self.resource)
    }
}

/// A number of thousandths as a decimal: `-2.5`, `10`.
pub fn milli_text(thousandths: i64) -> String {
    let (sign, milli) = (if thousandths < 0 { "-" } else { "" }, thousandths.unsigned_abs());
    match milli % 1000 {
        0 => format!("{sign}{}", milli / 1000),
        part => format!("{sign}{}.{}", milli / 1000, format!("{part:03}").trim_end_matches('0')),
    }
}

/// Whole units where possible, milli otherwise.
fn milli(amount: i64) -> String {
    if amount % 1000 == 0 { (amount / 1000).to_string() } else { format!("{amount}m") }
}

/// Formats bytes in the shortest exact form. When that is longer than six characters, in tenths of a binary unit,
/// rounded down.
fn size(bytes: i64) -> String {
    const BINARY: [(i64, &str); 5] =
        [(1 << 50, "Pi"), (1 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")];
    const DECIMAL: [(i64, &str); 5] = [
        (1_000_000_000_000_000, "P"),
        (1_000_000_000_000, "T"),
        (1_000_000_000, "G"),
        (1_000_000, "M"),
        (1_000, "k"),
    ];
    let exact = |units: [(i64, &str); 5]| {
        units
            .iter()
            .find(|(unit, _)| bytes != 0 && bytes % unit == 0)
            .map(|(unit, suffix)| format!("{}{suffix}", bytes / unit))
    };
    let plain = [exact(BINARY), exact(DECIMAL), Some(bytes.to_string())];
    let shortest = plain.into_iter().flatten().min_by_key(String::len).unwrap_or_default();
    if shortest.len() <= 6 {
        return shortest;
    }
    match BINARY.iter().find(|(unit, _)| bytes.unsigned_abs() >= unit.unsigned_abs()) {
        Some((unit, suffix)) => match (bytes / unit, bytes % unit * 10 / unit) {
            (whole, 0) => format!("{whole}{suffix}"),
            (whole, tenths) => format!("{whole}.{}{suffix}", tenths.abs()),
        },
        None => shortest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_read_as_people_write_them() {
        let cases = [
            ("cpu", 500, "500m cpu"),
            ("cpu", 16_000, "16 cpu"),
            ("cpu", 1_500, "1500m cpu"),
            ("memory", 16 << 30, "16Gi memory"),
            ("memory", 16_000_000_000, "16G memory"),
            ("memory", 512 << 20, "512Mi memory"),
            ("memory", 0, "0 memory"),
            ("memory", 33_424_123_456, "31.1Gi memory"),
            ("memory", -(33_424_123_456), "-31.1Gi memory"),
            ("memory", i64::MAX, "8191.9Pi memory"),
            ("nvidia.com/gpu", 2, "2 nvidia.com/gpu"),
        ];
        for (resource, amount, text) in cases {
            assert_eq!(Quantity::new(resource, Amount(amount)).to_string(), text);
        }
    }
}
