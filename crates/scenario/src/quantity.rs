//! Parsing and rendering of Kubernetes quantities, exact in base units.

use model::Amount;

const SUFFIXES: [(&str, i64); 12] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("Ei", 1 << 60),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000),
];

/// The amount of a resource in its base unit; `None` when the text is not a quantity. Saturates, and rounds milli
/// units up.
pub(crate) fn parse(resource: &str, text: &str) -> Option<Amount> {
    let scale = if resource == "cpu" { 1000 } else { 1 };
    if let Some(milli) = text.strip_suffix('m') {
        let milli: i64 = milli.parse().ok()?;
        let up = i64::from(milli % 1000 > 0);
        return Some(Amount(if scale == 1000 { milli } else { milli / 1000 + up }));
    }
    let (digits, unit) = SUFFIXES
        .iter()
        .find_map(|(suffix, unit)| text.strip_suffix(suffix).map(|digits| (digits, *unit)))
        .unwrap_or((text, 1));
    let whole: i64 = digits.parse().ok()?;
    Some(Amount(whole.saturating_mul(unit).saturating_mul(scale)))
}

/// The shortest text that [`parse`] reads back as the same amount.
pub(crate) fn render(resource: &str, amount: Amount) -> String {
    let amount = amount.0;
    if resource == "cpu" {
        return if amount % 1000 == 0 { (amount / 1000).to_string() } else { format!("{amount}m") };
    }
    let scaled = SUFFIXES.iter().filter(|(_, unit)| amount != 0 && amount % unit == 0);
    let texts = scaled.map(|(suffix, unit)| format!("{}{suffix}", amount / unit));
    texts.chain([amount.to_string()]).min_by_key(String::len).unwrap_or_default()
}
