//! Amounts of named resources in base units: milli for `cpu`, whole units (bytes, devices, pods) for everything else.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::quantity::{Milli, Quantity, QuantityError, Units};

/// Amounts by resource name. Zero amounts are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amounts(BTreeMap<String, i64>);

impl Amounts {
    /// No amounts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses a resource list: a map from resource name to string or number. `null` counts as empty.
    pub fn read(list: &Value) -> Result<Self, AmountError> {
        let mut amounts = Self::default();
        for (name, quantity) in list.as_object().into_iter().flatten() {
            let amount = parse_amount(name, quantity)
                .map_err(|cause| AmountError { resource: name.clone(), cause })?;
            amounts.set(name, amount);
        }
        Ok(amounts)
    }

    /// The amount of a resource in base units; 0 if absent.
    pub fn get(&self, resource: &str) -> i64 {
        self.0.get(resource).copied().unwrap_or(0)
    }

    /// Sets the amount of a resource.
    pub fn set(&mut self, resource: &str, amount: i64) {
        if amount == 0 {
            self.0.remove(resource);
        } else {
            self.0.insert(resource.to_owned(), amount);
        }
    }

    /// Adds `other`, saturating.
    pub fn add(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            self.set(name, self.get(name).saturating_add(*amount));
        }
    }

    /// Sets each amount to the maximum of both.
    pub fn raise_to(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            self.set(name, self.get(name).max(*amount));
        }
    }

    /// Sets absent amounts from `other`: a missing request defaults to the limit.
    pub fn fill_from(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            if self.get(name) == 0 {
                self.set(name, *amount);
            }
        }
    }

    /// The product with `count`, saturating.
    #[must_use]
    pub fn times(&self, count: u32) -> Self {
        let mut product = Self::default();
        for (name, amount) in &self.0 {
            product.set(name, amount.saturating_mul(i64::from(count)));
        }
        product
    }

    /// Whether all amounts are zero.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Resource names and amounts, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }
}

impl<'a> FromIterator<(&'a str, i64)> for Amounts {
    fn from_iter<T: IntoIterator<Item = (&'a str, i64)>>(entries: T) -> Self {
        let mut amounts = Self::default();
        for (name, amount) in entries {
            amounts.set(name, amount);
        }
        amounts
    }
}

/// Formats the amounts as quantities, such as `cpu 500m, memory 512Mi`.
impl fmt::Display for Amounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (name, amount)) in self.iter().enumerate() {
            let separator = if position == 0 { "" } else { ", " };
            match name {
                "cpu" => write!(f, "{separator}{name} {}", Milli(amount))?,
                _ => write!(f, "{separator}{name} {}", Units(amount))?,
            }
        }
        Ok(())
    }
}

/// An invalid amount in a resource list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("resource {resource}: {cause}")]
pub struct AmountError {
    /// Resource name.
    pub resource: String,
    /// Cause.
    #[source]
    pub cause: QuantityError,
}

fn parse_amount(name: &str, quantity: &Value) -> Result<i64, QuantityError> {
    let text = match quantity {
        Value::Null => return Ok(0),
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
            return Err(QuantityError::Type(quantity.to_string()));
        }
    };
    let parsed = Quantity::parse(&text)?;
    if parsed.is_negative() {
        return Err(QuantityError::Negative(text));
    }
    Ok(if name == "cpu" { parsed.milli() } else { parsed.units() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_and_strings_parse_and_zeros_are_dropped() {
        let list = json!({"cpu": 3, "memory": "16G", "nvidia.com/gpu": "0", "ephemeral-storage": 0.5});
        let amounts = Amounts::read(&list).unwrap();
        assert_eq!(amounts.to_string(), "cpu 3, ephemeral-storage 1, memory 16G");
        assert_eq!(Amounts::read(&Value::Null).unwrap(), Amounts::new());
    }

    #[test]
    fn an_invalid_amount_is_an_error_with_its_resource() {
        let error = |list| Amounts::read(&list).unwrap_err().to_string();
        assert_eq!(
            error(json!({"cpu": "-1"})),
            "resource cpu: quantity \"-1\" is negative; resources start at 0"
        );
        assert_eq!(
            error(json!({"memory": ["1G"]})),
            "resource memory: [\"1G\"] is not a quantity; write a number or a text such as 16Gi"
        );
    }

    #[test]
    fn sums_saturate() {
        let mut amounts = Amounts::from_iter([("memory", i64::MAX)]);
        amounts.add(&amounts.clone());
        assert_eq!(amounts.get("memory"), i64::MAX);
        assert_eq!(amounts.times(3).get("memory"), i64::MAX);
    }
}
