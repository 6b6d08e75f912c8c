//! Sets of owners after a type became atomic: who owned parts of a value owns all of it from then on.

use serde_json::{Map, Value};

use super::set::{Set, has_children};
use super::walk::{Branch, branch};
use crate::typeinfo::{Shape, TypeInfo};

/// Moves members below what is now atomic up to it.
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
        // Of an undescribed value the value would decide; its owners keep what they have.
        let Some(below) = below.filter(|below| below.shape() != Shape::Deduced) else { continue };
        if branch(below, &Value::Null) == Branch::Leaf {
            child.clear();
        } else {
            node(child, below);
        }
    }
}
