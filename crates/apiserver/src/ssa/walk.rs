//! Shared by all walks over typed objects: granularity of ownership, path elements of list items, and equality of
//! values.

use serde_json::{Map, Value};

use crate::typeinfo::{ListKind, MapKind, Shape, TypeInfo};

/// Granularity at which a node is owned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Branch<'t> {
    /// Owned as a whole: scalars and atomic values.
    Leaf,
    /// An object whose fields are owned separately.
    Map,
    /// A list whose items are owned separately.
    List(ListKind<'t>),
}

/// Granularity of ownership of `value`, a node of type `types`.
pub(super) fn branch<'t>(types: &'t dyn TypeInfo, value: &Value) -> Branch<'t> {
    match types.shape() {
        Shape::Scalar(_) | Shape::Opaque | Shape::Map(MapKind::Atomic) | Shape::List(ListKind::Atomic) => {
            Branch::Leaf
        }
        Shape::Map(MapKind::Granular) => Branch::Map,
        Shape::List(kind) => Branch::List(kind),
        // The shape of an untyped field comes from its value.
        Shape::Deduced => {
            if value.is_object() {
                Branch::Map
            } else {
                Branch::Leaf
            }
        }
    }
}

/// The fields of an object; `None` for an empty object and for any other value.
pub(super) fn fields(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object).filter(|fields| !fields.is_empty())
}

/// The items of a list; empty for any other value.
pub(super) fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Equality of values; `1` equals `1.0`.
pub(super) fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(a), Value::Number(b)) => {
            a == b || a.as_f64() == b.as_f64() && (a.is_f64() || b.is_f64())
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|((m, a), (n, b))| m == n && same(a, b))
        }
        _ => left == right,
    }
}

/// The path element of a list item, or the reason why the item has none.
pub(super) fn item_element(kind: ListKind<'_>, types: &dyn TypeInfo, item: &Value) -> Result<String, String> {
    let ListKind::Map(keys) = kind else {
        return match item {
            Value::Object(_) => Err("associative list without keys has an element that's a map type".into()),
            Value::Array(_) => Err("not supported: associative list with lists as elements".into()),
            Value::Null => Err("associative list without keys has an element that's an explicit null".into()),
            scalar => Ok(format!("v:{}", canonical(scalar))),
        };
    };
    let item = match item {
        Value::Object(item) => item,
        Value::Null => return Err("associative list with keys may not have a null element".into()),
        _ => return Err("associative list with keys may not have non-map elements".into()),
    };
    let mut named = Map::new();
    for key in keys {
        let value = item.get(key).or_else(|| types.field(key).and_then(TypeInfo::default_value));
        if let Some(value) = value {
            named.insert(key.clone(), canonical(value));
        }
    }
    if named.is_empty() {
        let keys: Vec<_> = keys.iter().map(|key| format!("{key:?}")).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
            keys.join(" ")
        ));
    }
    Ok(format!("k:{}", Value::Object(named)))
}

/// Converts equal numbers to the same representation.
fn canonical(value: &Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap_or_default();
            let whole = float.trunc();
            #[allow(
                clippy::float_cmp,
                clippy::cast_possible_truncation,
                reason = "exactly whole, and within 2^53"
            )]
            if whole == float && whole.abs() <= 9_007_199_254_740_992.0 {
                Value::from(whole as i64)
            } else {
                value.clone()
            }
        }
        other => other.clone(),
    }
}
