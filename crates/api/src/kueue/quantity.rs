//! Quantities as Kueue writes them: the canonical text of an amount of a resource.
//!
//! After `pkg/resources` of Kueue v0.19 and the canonical form of Kubernetes quantities: the largest unit that leaves an
//! integer.

use serde_json::Value;

use crate::quantity::{BINARY, DECIMAL, Quantity, Scale};

/// The canonical text of an amount in base units: thousandths for `cpu`, else units.
///
/// ```
/// use api::kueue::quantity::canonical;
/// assert_eq!(canonical("cpu", 1500), "1500m");
/// assert_eq!(canonical("cpu", 2_000_000), "2k");
/// assert_eq!(canonical("memory", 3 << 30), "3Gi");
/// assert_eq!(canonical("memory", 1_000), "1000");
/// assert_eq!(canonical("example.com/gpu", 12), "12");
/// assert_eq!(canonical("example.com/gpu", 5_000), "5k");
/// ```
pub fn canonical(resource: &str, amount: i64) -> String {
    let is_binary = ["memory", "ephemeral-storage"].contains(&resource) || resource.starts_with("hugepages-");
    match resource {
        "cpu" if amount % 1000 != 0 => format!("{amount}m"),
        "cpu" => scaled(amount / 1000, &DECIMAL),
        _ if is_binary => scaled(amount, &BINARY),
        _ => scaled(amount, &DECIMAL),
    }
}

fn scaled(amount: i64, scale: &Scale) -> String {
    let (amount, suffix) = scale.largest_unit(amount);
    format!("{amount}{suffix}")
}

/// The exact text of an amount in millionths of base units, with steps of thousandths below one unit.
///
/// ```
/// use api::kueue::quantity::exact;
/// assert_eq!(exact("cpu", 1_500_000_000), "1500m");
/// assert_eq!(exact("cpu", 1), "1n");
/// assert_eq!(exact("memory", 2_000_000), "2");
/// assert_eq!(exact("memory", 1), "1u");
/// ```
pub fn exact(resource: &str, millionths: u128) -> String {
    const SUFFIXES: [&str; 4] = ["n", "u", "m", ""];
    let (mut amount, mut at) = (millionths, usize::from(resource != "cpu"));
    while at + 1 < SUFFIXES.len() && amount % 1000 == 0 {
        (amount, at) = (amount / 1000, at + 1);
    }
    format!("{amount}{}", SUFFIXES[at])
}

/// The amount of a quantity in millionths of base units; zero if it is negative or invalid.
///
/// ```
/// use api::kueue::quantity::millionths;
/// assert_eq!(millionths("cpu", &"1500m".into()), 1_500_000_000);
/// assert_eq!(millionths("memory", &2.into()), 2_000_000);
/// assert_eq!(millionths("memory", &"-2".into()), 0);
/// ```
pub fn millionths(resource: &str, quantity: &Value) -> u128 {
    let text = quantity.as_str().map_or_else(|| quantity.to_string(), str::to_owned);
    let Ok(quantity) = Quantity::parse(&text) else { return 0 };
    let nano = u128::try_from(quantity.nano()).unwrap_or(0);
    if resource == "cpu" { nano } else { nano / 1000 }
}
