//! Field sets in the wire format of `managedFields` (`FieldsV1`), and set operations on them.
//!
//! A set is a tree of path elements: `f:name` is a field, `k:{..}` an item of a list map, `v:..` an item of a set and
//! `i:..` an index. A node without children is a member. A node with children is a member when it contains `"."`.
//! Operations work on the wire format directly, so the sets of managers that a write does not affect are neither
//! decoded nor encoded.

use std::fmt::Write;

use serde_json::{Map, Value};

use crate::typeinfo::TypeInfo;

/// Child key that makes a node with children a member.
const SELF: &str = ".";

type Node = Map<String, Value>;

/// A set of fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Set(Node);

impl Set {
    /// Wraps a set that this server stored. It is not validated.
    pub(super) fn trusted(fields: Value) -> Self {
        match fields {
            Value::Object(fields) => Self(fields),
            _ => Self::default(),
        }
    }

    /// Decodes a set from a client: validates every path element and converts it to its canonical form.
    pub(super) fn parse(fields: &Value) -> Result<Self, String> {
        normalize(fields).map(Self)
    }

    pub(super) fn into_value(self) -> Value {
        Value::Object(self.0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The children of the root, to walk the set together with a value.
    pub(super) fn root(&self) -> &Node {
        &self.0
    }

    pub(super) fn root_mut(&mut self) -> &mut Node {
        &mut self.0
    }

    /// Adds a path. The empty path (the whole object) is never a member.
    pub(super) fn insert(&mut self, path: &[String]) {
        let Some((last, parents)) = path.split_last() else { return };
        let mut node = &mut self.0;
        for element in parents {
            node = descend(node, element);
        }
        match node.get_mut(last).and_then(Value::as_object_mut) {
            Some(children) if !children.is_empty() => {
                children.insert(SELF.into(), empty());
            }
            Some(_) => {}
            None => {
                node.insert(last.clone(), empty());
            }
        }
    }

    pub(super) fn contains(&self, path: &[String]) -> bool {
        let mut node = &self.0;
        for (index, element) in path.iter().enumerate() {
            let Some(child) = node.get(element).and_then(Value::as_object) else { return false };
            if index + 1 == path.len() {
                return is_member(child);
            }
            node = child;
        }
        false
    }

    pub(super) fn add(&mut self, other: &Self) {
        union(&mut self.0, &other.0);
    }

    /// Removes the members of `other` (`Difference` in structured-merge-diff). Members below them stay.
    pub(super) fn subtract(&mut self, other: &Self) {
        difference(&mut self.0, &other.0, false);
    }

    /// Removes the members of `other` and everything below them (`RecursiveDifference` in structured-merge-diff).
    pub(super) fn subtract_trees(&mut self, other: &Self) {
        difference(&mut self.0, &other.0, true);
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        Self(intersection(&self.0, &other.0))
    }

    /// Adds every declared field that has members below it (`EnsureNamedFieldsAreMembers` in structured-merge-diff),
    /// so that removing these members also removes the field.
    pub(super) fn with_named_fields(mut self, types: &dyn TypeInfo) -> Self {
        name_fields(&mut self.0, Some(types));
        self
    }

    /// The paths of all members; a member comes before the members below it.
    pub(super) fn paths(&self) -> Vec<Vec<String>> {
        let mut paths = Vec::new();
        collect(&self.0, &mut Vec::new(), &mut paths);
        paths
    }
}

/// Whether a node is itself a member.
pub(super) fn is_member(node: &Node) -> bool {
    node.is_empty() || node.contains_key(SELF)
}

/// Whether a node has members below it.
pub(super) fn has_children(node: &Node) -> bool {
    node.keys().any(|key| key != SELF)
}

/// The path element of a field.
pub(super) fn field(name: &str) -> String {
    format!("f:{name}")
}

/// Formats a path as in conflict messages: `.spec.containers[name="web"].image`.
pub(super) fn display(path: &[String]) -> String {
    let mut out = String::new();
    for element in path {
        let (kind, rest) = element.split_at(element.len().min(2));
        match kind {
            "k:" => {
                let keys: Node = serde_json::from_str(rest).unwrap_or_default();
                let keys: Vec<_> = keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
                write!(out, "[{}]", keys.join(",")).expect("writing to a string never fails");
            }
            "v:" => write!(out, "[={rest}]").expect("writing to a string never fails"),
            "i:" => write!(out, "[{rest}]").expect("writing to a string never fails"),
            _ => write!(out, ".{rest}").expect("writing to a string never fails"),
        }
    }
    out
}

fn empty() -> Value {
    Value::Object(Node::new())
}

/// The children of `element`, which is created if it does not exist. The caller adds children to it.
fn descend<'n>(node: &'n mut Node, element: &str) -> &'n mut Node {
    let known = node.contains_key(element);
    let child = node.entry(element).or_insert_with(empty);
    if !child.is_object() {
        *child = empty();
    }
    let children = child.as_object_mut().expect("the child is an object: set above");
    if known && children.is_empty() {
        children.insert(SELF.into(), empty());
    }
    children
}

fn union(into: &mut Node, other: &Node) {
    for (element, theirs) in other {
        if element == SELF {
            continue;
        }
        let Some(mine) = into.get_mut(element).and_then(Value::as_object_mut) else {
            into.insert(element.clone(), theirs.clone());
            continue;
        };
        let Some(theirs) = theirs.as_object() else { continue };
        let member = is_member(mine) || is_member(theirs);
        mine.remove(SELF);
        union(mine, theirs);
        if member && !mine.is_empty() {
            mine.insert(SELF.into(), empty());
        }
    }
}

fn difference(from: &mut Node, other: &Node, trees: bool) {
    from.retain(|element, mine| {
        let Some(mine) = mine.as_object_mut() else { return false };
        let Some(theirs) = other.get(element).and_then(Value::as_object) else { return true };
        let removed = is_member(theirs);
        if trees && removed {
            return false;
        }
        let member = is_member(mine) && !removed;
        mine.remove(SELF);
        difference(mine, theirs, trees);
        if mine.is_empty() {
            return member;
        }
        if member {
            mine.insert(SELF.into(), empty());
        }
        true
    });
}

fn intersection(left: &Node, right: &Node) -> Node {
    let mut common = Node::new();
    for (element, mine) in left {
        if element == SELF {
            continue;
        }
        let (Some(mine), Some(theirs)) = (mine.as_object(), right.get(element).and_then(Value::as_object))
        else {
            continue;
        };
        let member = is_member(mine) && is_member(theirs);
        let mut children = intersection(mine, theirs);
        if children.is_empty() && !member {
            continue;
        }
        if member && !children.is_empty() {
            children.insert(SELF.into(), empty());
        }
        common.insert(element.clone(), Value::Object(children));
    }
    common
}

fn name_fields(node: &mut Node, types: Option<&dyn TypeInfo>) {
    for (element, child) in node.iter_mut() {
        let Some(child) = child.as_object_mut().filter(|child| has_children(child)) else { continue };
        let name = element.strip_prefix("f:");
        let below = match (types, name) {
            (Some(types), Some(name)) => types.field(name),
            (Some(types), None) => Some(types.items()),
            (None, _) => None,
        };
        name_fields(child, below);
        if name.is_some_and(|name| types.is_some_and(|types| types.declares(name))) {
            child.insert(SELF.into(), empty());
        }
    }
}

fn collect(node: &Node, path: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
    let children = || node.iter().filter(|(element, _)| *element != SELF);
    for (element, child) in children() {
        if child.as_object().is_some_and(is_member) {
            path.push(element.clone());
            paths.push(path.clone());
            path.pop();
        }
    }
    for (element, child) in children() {
        if let Some(child) = child.as_object().filter(|child| has_children(child)) {
            path.push(element.clone());
            collect(child, path, paths);
            path.pop();
        }
    }
}

fn normalize(fields: &Value) -> Result<Node, String> {
    let Value::Object(fields) = fields else {
        return Err(format!("a set of fields is an object, not {fields}"));
    };
    let mut node = Node::new();
    for (element, below) in fields {
        if element == SELF {
            node.insert(SELF.into(), empty());
            continue;
        }
        // An element of an unknown kind is dropped: a later version may define it.
        if let Some(element) = normalize_element(element)? {
            node.insert(element, Value::Object(normalize(below)?));
        }
    }
    // The marker is redundant in a node without children.
    if node.len() == 1 && node.contains_key(SELF) {
        node.clear();
    }
    Ok(node)
}

fn normalize_element(element: &str) -> Result<Option<String>, String> {
    let Some((kind, rest)) = element.split_once(':').filter(|(kind, _)| kind.len() == 1) else {
        return Err(format!("path element {element:?} has no kind and colon"));
    };
    let json = |rest: &str| {
        serde_json::from_str::<Value>(rest).map_err(|error| format!("path element {element:?}: {error}"))
    };
    match kind {
        "f" => Ok(Some(element.to_owned())),
        "v" => Ok(Some(format!("v:{}", json(rest)?))),
        "k" => match json(rest)? {
            keys @ Value::Object(_) => Ok(Some(format!("k:{keys}"))),
            _ => Err(format!("path element {element:?} holds no keys")),
        },
        "i" => match rest.parse::<i64>() {
            Ok(index) => Ok(Some(format!("i:{index}"))),
            Err(error) => Err(format!("path element {element:?}: {error}")),
        },
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(value: impl std::borrow::Borrow<Value>) -> Set {
        Set::parse(value.borrow()).unwrap()
    }

    #[test]
    fn set_operations_distinguish_members_from_their_children() {
        let a = || set(json!({"f:a": {".": {}, "f:b": {}}, "f:c": {}}));
        let b = || set(json!({"f:a": {"f:b": {}, "f:d": {}}, "f:e": {"f:f": {}}}));
        let mut sum = a();
        sum.add(&b());
        assert_eq!(sum, set(json!({"f:a": {".": {}, "f:b": {}, "f:d": {}}, "f:c": {}, "f:e": {"f:f": {}}})));
        assert_eq!(a().intersection(&b()), set(json!({"f:a": {"f:b": {}}})));
        let mut rest = a();
        rest.subtract(&b());
        assert_eq!(rest, set(json!({"f:a": {}, "f:c": {}})));
        let mut rest = a();
        rest.subtract(&set(json!({"f:a": {}})));
        assert_eq!(rest, set(json!({"f:a": {"f:b": {}}, "f:c": {}})));
        let mut rest = a();
        rest.subtract_trees(&set(json!({"f:a": {}})));
        assert_eq!(rest, set(json!({"f:c": {}})));
    }

    #[test]
    fn inserting_below_a_member_keeps_the_member() {
        let path = |names: &[&str]| names.iter().map(|name| field(name)).collect::<Vec<_>>();
        let mut set = Set::default();
        set.insert(&path(&["a"]));
        set.insert(&path(&["a", "b"]));
        set.insert(&path(&["c", "d"]));
        assert_eq!(set.into_value(), json!({"f:a": {".": {}, "f:b": {}}, "f:c": {"f:d": {}}}));
    }

    #[test]
    fn client_field_sets_are_validated_and_converted_to_canonical_form() {
        let set =
            Set::parse(&json!({r#"k:{"b": 1, "a":"x"}"#: {".": {}}, "z:later": {}, "i:3": {}})).unwrap();
        assert_eq!(set.into_value(), json!({r#"k:{"a":"x","b":1}"#: {}, "i:3": {}}));
        for bad in [json!([]), json!({"f:a": 1}), json!({"name": {}}), json!({"k:[]": {}}), json!({"v:": {}})]
        {
            assert!(Set::parse(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn paths_are_formatted_as_in_conflict_messages() {
        let set = set(json!({"f:spec": {"f:containers": {r#"k:{"name":"web"}"#: {"f:image": {}}},
            "f:finalizers": {r#"v:"x""#: {}}}}));
        let display_name: Vec<_> = set.paths().iter().map(|path| display(path)).collect();
        assert_eq!(display_name, [r#".spec.containers[name="web"].image"#, r#".spec.finalizers[="x"]"#]);
    }
}
