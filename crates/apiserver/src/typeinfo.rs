//! What patches and server-side apply must know of a type: the children of a value, how its lists and maps merge.
//!
//! Holds the [`TypeInfo`] trait and [`Untyped`]. Leaves to others: the types themselves (built-in `OpenAPI` types and
//! structural schemas of custom resources implement the trait) and every rule of merging.

use serde_json::Value;

/// The type of one node of an object. A walk starts at the type of the whole object (its fields are `metadata`,
/// `spec`, …) and follows [`TypeInfo::field`] and [`TypeInfo::items`] beside the value.
///
/// The node that [`TypeInfo::field`] returns is the *property*, so what is said at the place of use (patch strategy,
/// merge key, default, list type) is said there, even when the property only refers to a shared type.
pub trait TypeInfo: Send + Sync {
    /// What kind of node this is, and how server-side apply owns it.
    fn shape(&self) -> Shape<'_>;

    /// Type of the value under `name`: a declared property, or the value type of a map for every name.
    ///
    /// `None`: the type declares no such field. Never `None` for [`Shape::Deduced`].
    fn field(&self, name: &str) -> Option<&dyn TypeInfo>;

    /// Whether `name` is a property that the schema names, rather than a key of a map or an unknown field.
    ///
    /// Owners of a map own its keys; owners of a named property own it only through what is inside.
    fn declares(&self, name: &str) -> bool;

    /// Type of the items of a list, [`Untyped`] if this is none.
    fn items(&self) -> &dyn TypeInfo;

    /// How a strategic merge patch treats this node (`x-kubernetes-patch-strategy`, `x-kubernetes-patch-merge-key`).
    fn patch(&self) -> PatchRule<'_>;

    /// Default of this property, needed where the property is a key of a list map and an item omits it.
    fn default_value(&self) -> Option<&Value> {
        None
    }

    /// What an object of this type holds before anything is set: the parts of a built-in kind that are always there,
    /// so that nobody comes to own them by a create.
    fn zero(&self) -> Value {
        Value::Object(serde_json::Map::new())
    }

    /// Name of the type for error messages, such as `PodSpec`.
    fn name(&self) -> Option<&str> {
        None
    }
}

/// Kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape<'a> {
    /// A number, string or boolean.
    Scalar(ScalarKind),
    /// Nothing is known of its inside, and it has one owner: `RawExtension`, `type: object` without properties.
    Opaque,
    /// An object with properties, or a map (`x-kubernetes-map-type`, default granular).
    Map(MapKind),
    /// A list (`x-kubernetes-list-type`, default atomic).
    List(ListKind<'a>),
    /// Not described: the value decides. Objects are granular, lists atomic; children are deduced as well.
    Deduced,
}

/// What a scalar may hold. `null` always may stand for an absent value.
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

/// Who owns an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// Each field has owners of its own.
    Granular,
    /// One owner for all of it, replaced as a whole by apply. (Merge and strategic patches still descend.)
    Atomic,
}

/// Who owns a list, and what tells its items apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListKind<'a> {
    /// One owner for all of it.
    Atomic,
    /// Scalars, each with owners of its own.
    Set,
    /// Objects told apart by the values of these fields (`x-kubernetes-list-map-keys`, at least one).
    Map(&'a [String]),
}

/// How a strategic merge patch treats a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PatchRule<'a> {
    /// `merge`: items of the patch are merged into the list (else the list is replaced).
    pub merge: bool,
    /// `retainKeys`: fields that the patch's `$retainKeys` does not name are cleared.
    pub retain_keys: bool,
    /// `replace`: an object is replaced as a whole.
    pub replace: bool,
    /// Field that tells the objects of a merged list apart; `None` in a list of scalars.
    pub merge_key: Option<&'a str>,
}

impl<'a> PatchRule<'a> {
    /// Reads the extensions as `OpenAPI` documents carry them: strategies joined by commas, and the merge key.
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

/// The type of objects without a schema: objects granular, lists atomic, nothing merged by key.
#[derive(Clone, Copy, Debug, Default)]
pub struct Untyped;

/// A place to borrow [`Untyped`] from.
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
    fn strategies_are_read_from_the_extension() {
        let rule = PatchRule::parse("merge,retainKeys", Some("name"));
        assert!(rule.merge && rule.retain_keys && !rule.replace);
        assert_eq!(rule.merge_key, Some("name"));
        assert_eq!(PatchRule::parse("", None), PatchRule::default());
    }

    #[test]
    fn an_untyped_object_is_deduced_all_the_way_down() {
        let child = UNTYPED.field("spec").and_then(|spec| spec.field("anything")).unwrap();
        assert_eq!(child.shape(), Shape::Deduced);
        assert_eq!(child.items().shape(), Shape::Deduced);
    }
}
