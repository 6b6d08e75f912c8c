//! Migration of field sets after a schema change made a field atomic: the owner of a part becomes the owner of the
//! whole.

use serde_json::{Map, Value};

use super::set::{Set, has_children};
use super::walk::{Branch, branch};
use crate::typeinfo::{Shape, TypeInfo};

/// Replaces the members below an atomic field by the field itself.
pub(super) fn reconcile(set: &mut Set, types: &dyn TypeInfo) {
    node(set.root_mut(), types);
}

fn node(fields: &mut Map<String, Value>, types: &dyn TypeInfo) {
    for (element, child) in fields.iter_mut() {
        let Some(child) = child.as_object_mut().filter(|child| has_children(child)) else { continue };
        let below = match element.strip_prefix("f:") {
            Some(name) => types.field(name),
            None => Some(types.items()),
        };
        // The shape of an untyped field depends on its value, so its owners stay as they are.
        let Some(below) = below.filter(|below| below.shape() != Shape::Deduced) else { continue };
        if branch(below, &Value::Null) == Branch::Leaf {
            child.clear();
        } else {
            node(child, below);
        }
    }
}
