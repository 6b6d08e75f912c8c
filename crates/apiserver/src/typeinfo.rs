//! The type information that patches and server-side apply need: the children of a value, and how its lists and maps
//! merge.
//!
//! Contains the [`TypeInfo`] trait and [`Untyped`]. Built-in `OpenAPI` types and structural schemas of custom resources
//! implement the trait. The merge algorithms are in `patch` and `ssa`.

use serde_json::Value;

/// The type of one node of an object. A traversal starts at the type of the whole object, whose fields are `metadata`,
/// `spec` and so on, and calls [`TypeInfo::field`] and [`TypeInfo::items`] in step with the value.
///
/// [`TypeInfo::field`] returns the *property*, not the type that it refers to. So it has the patch strategy, merge key,
/// default and list type of the property, even if several properties refer to a shared type.
pub trait TypeInfo: Send + Sync {
    /// The kind of the node, and how server-side apply tracks its ownership.
    fn shape(&self) -> Shape<'_>;

    /// The type of the field `name`: a declared property, or the value type of a map.
    ///
    /// `None` if the type has no such field; never `None` for [`Shape::Deduced`].
    fn field(&self, name: &str) -> Option<&dyn TypeInfo>;

    /// Whether `name` is a declared property, and not a map key or an unknown field.
    ///
    /// A field manager owns the keys of a map. It owns a declared property only through the fields inside it.
    fn declares(&self, name: &str) -> bool;

    /// The type of the items of a list; [`Untyped`] if the node is not a list.
    fn items(&self) -> &dyn TypeInfo;

    /// The strategic merge patch strategy of this node (`x-kubernetes-patch-strategy`, `x-kubernetes-patch-merge-key`).
    fn patch(&self) -> PatchRule<'_>;

    /// The default of this property; used if the property is a key of a list map and an item omits it.
    fn default_value(&self) -> Option<&Value> {
        None
    }

    /// The encoding of the zero value of this type: the fields of a built-in kind that are always present. A create
    /// does not make the client the manager of these fields.
    fn zero(&self) -> Value {
        Value::Object(serde_json::Map::new())
    }

    /// The name of the type in error messages, e.g. `PodSpec`.
    fn name(&self) -> Option<&str> {
        None
    }
}

/// The kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape<'a> {
    /// A number, string or boolean.
    Scalar(ScalarKind),
    /// An object of unknown content, owned as a whole: `RawExtension`, or `type: object` without properties.
    Opaque,
    /// An object with properties, or a map (`x-kubernetes-map-type`, default granular).
    Map(MapKind),
    /// A list (`x-kubernetes-list-type`, default atomic).
    List(ListKind<'a>),
    /// No schema: the kind is deduced from the value. Objects are granular, lists atomic, and children are deduced too.
    Deduced,
}

/// The values that a scalar may have. `null` is allowed always, and means an absent value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScalarKind {
    /// `integer` or `number`.
    Numeric,
    /// `string` without a format, or with format `byte`.
    String,
    /// `boolean`.
    Boolean,
    /// Any scalar: quantities, int-or-string, dates and other strings with a format.
    Any,
}

/// How the ownership of an object is tracked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// Each field has its own managers.
    Granular,
    /// The object is owned as a whole, and apply replaces it. (Merge and strategic merge patches still merge its
    /// fields.)
    Atomic,
}

/// How the ownership of a list is tracked, and how its items are identified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListKind<'a> {
    /// The list is owned as a whole.
    Atomic,
    /// A set of scalars, each with its own managers.
    Set,
    /// Objects that are identified by the values of these fields (`x-kubernetes-list-map-keys`, at least one).
    Map(&'a [String]),
}

/// The strategic merge patch strategy of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PatchRule<'a> {
    /// `merge`: the items of the patch are merged into the list; without it, the list is replaced.
    pub merge: bool,
    /// `retainKeys`: fields that are not in `$retainKeys` of the patch are removed.
    pub retain_keys: bool,
    /// `replace`: an object is replaced as a whole.
    pub replace: bool,
    /// The field that identifies the objects of a merged list; `None` for a list of scalars.
    pub merge_key: Option<&'a str>,
}

impl<'a> PatchRule<'a> {
    /// Parses the `OpenAPI` extensions: comma-separated strategies, and the merge key.
    pub fn parse(strategies: &str, merge_key: Option<&'a str>) -> Self {
        let mut rule = Self { merge_key, ..Self::default() };
        for strategy in strategies.split(',').map(str::trim) {
            match strategy {
                "merge" => rule.merge = true,
                "retainKeys" => rule.retain_keys = true,
                "replace" => rule.replace = true,
                _ => {}
            }
        }
        rule
    }
}

/// The type of a value without a schema: objects are granular, lists atomic, and no list is merged by key.
#[derive(Clone, Copy, Debug, Default)]
pub struct Untyped;

/// A static [`Untyped`] to borrow.
pub static UNTYPED: Untyped = Untyped;

impl TypeInfo for Untyped {
    fn shape(&self) -> Shape<'_> {
        Shape::Deduced
    }

    fn field(&self, _name: &str) -> Option<&dyn TypeInfo> {
        Some(&UNTYPED)
    }

    fn declares(&self, _name: &str) -> bool {
        false
    }

    fn items(&self) -> &dyn TypeInfo {
        &UNTYPED
    }

    fn patch(&self) -> PatchRule<'_> {
        PatchRule::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comma_separated_strategy_parses_to_its_flags() {
        let rule = PatchRule::parse("merge,retainKeys", Some("name"));
        assert!(rule.merge && rule.retain_keys && !rule.replace);
        assert_eq!(rule.merge_key, Some("name"));
        assert_eq!(PatchRule::parse("", None), PatchRule::default());
    }

    #[test]
    fn the_children_of_an_untyped_object_are_deduced() {
        let child = UNTYPED.field("spec").and_then(|spec| spec.field("anything")).unwrap();
        assert_eq!(child.shape(), Shape::Deduced);
        assert_eq!(child.items().shape(), Shape::Deduced);
    }
}
