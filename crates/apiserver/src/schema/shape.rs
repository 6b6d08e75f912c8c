//! Structural schemas as [`TypeInfo`], for patches and server-side apply.

use serde_json::Value;

use super::Structural;
use super::node::{Additional, Node};
use crate::typeinfo::{ListKind, MapKind, PatchRule, ScalarKind, Shape, TypeInfo, UNTYPED};

impl TypeInfo for Structural {
    fn shape(&self) -> Shape<'_> {
        Shape::Map(MapKind::Granular)
    }

    fn field(&self, name: &str) -> Option<&dyn TypeInfo> {
        match name {
            "apiVersion" | "kind" => Some(&UNTYPED),
            "metadata" => Some(crate::openapi::object_meta()),
            _ => self.root.field(name),
        }
    }

    fn declares(&self, name: &str) -> bool {
        matches!(name, "apiVersion" | "kind" | "metadata") || self.root.properties.contains_key(name)
    }

    fn items(&self) -> &dyn TypeInfo {
        &UNTYPED
    }

    fn patch(&self) -> PatchRule<'_> {
        PatchRule::default()
    }
}

impl TypeInfo for Node {
    fn shape(&self) -> Shape<'_> {
        let empty = self.properties.is_empty() && !self.is_map();
        match self.kind.as_str() {
            _ if self.int_or_string => Shape::Scalar(ScalarKind::Any),
            "object" if self.map_type.as_deref() == Some("atomic") => Shape::Map(MapKind::Atomic),
            "object" if self.preserve_unknown && empty => Shape::Deduced,
            "object" if empty && !self.embedded => Shape::Opaque,
            "object" => Shape::Map(MapKind::Granular),
            "array" => Shape::List(match self.list_type.as_deref() {
                Some("set") => ListKind::Set,
                Some("map") if !self.list_keys.is_empty() => ListKind::Map(&self.list_keys),
                _ => ListKind::Atomic,
            }),
            "integer" | "number" => Shape::Scalar(ScalarKind::Numeric),
            "boolean" => Shape::Scalar(ScalarKind::Boolean),
            "string" if matches!(self.limits.format.as_str(), "" | "byte") => {
                Shape::Scalar(ScalarKind::String)
            }
            "string" => Shape::Scalar(ScalarKind::Any),
            _ => Shape::Deduced,
        }
    }

    fn field(&self, name: &str) -> Option<&dyn TypeInfo> {
        if self.embedded && name == "metadata" {
            return Some(crate::openapi::object_meta());
        }
        if let Some(child) = self.child(name) {
            return Some(child);
        }
        let open = self.preserve_unknown
            || self.embedded && matches!(name, "apiVersion" | "kind")
            || matches!(self.additional, Some(Additional::Allowed(true)))
            || self.shape() == Shape::Deduced;
        open.then_some(&UNTYPED as &dyn TypeInfo)
    }

    fn declares(&self, name: &str) -> bool {
        self.properties.contains_key(name)
            || self.embedded && matches!(name, "apiVersion" | "kind" | "metadata")
    }

    fn items(&self) -> &dyn TypeInfo {
        match &self.items {
            Some(items) => items.as_ref(),
            None => &UNTYPED,
        }
    }

    fn patch(&self) -> PatchRule<'_> {
        PatchRule::default()
    }

    fn default_value(&self) -> Option<&Value> {
        self.default.as_ref()
    }
}
