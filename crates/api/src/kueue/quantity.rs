//! Quantities as Kueue writes them: the canonical text of an amount of a resource.
//!
//! After `pkg/resources` of Kueue v0.19 and the canonical form of Kubernetes quantities: the largest unit that leaves an
//! integer.

use crate::quantity::{BINARY, DECIMAL, Scale};

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
