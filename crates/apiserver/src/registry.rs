//! What is served: one row for each resource and version, built in or from a custom resource definition.

mod builtin;
mod custom;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

pub(crate) use self::custom::{Custom, rows as custom_rows, state_of};
use crate::names::NameRule;
use crate::object;
use crate::store::StorageId;

/// When `metadata.generation` grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Generation {
    /// There is none.
    Never,
    /// When `spec` changes.
    Spec,
    /// When anything but metadata (and status, where that is a subresource) changes.
    Content,
}

/// How objects of a resource behave where resources differ.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) names: NameRule,
    pub(crate) generation: Generation,
    /// An update may leave out `resourceVersion`.
    pub(crate) unconditional: bool,
    /// A PUT to a name that does not exist creates.
    pub(crate) create_on_update: bool,
    /// A DELETE answers with the object, not with a Status.
    pub(crate) returns_deleted: bool,
    /// Dependents are orphaned unless the request says otherwise.
    pub(crate) orphans: bool,
}

/// A part of an object that has a path of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subresource {
    pub(crate) name: &'static str,
    /// Group, version and kind of what it speaks; empty: those of the resource.
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) verbs: &'static [&'static str],
}

/// A field that field selectors may name besides `metadata.name` and `metadata.namespace`.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub(crate) label: String,
    pub(crate) path: Vec<String>,
    /// Its value where the field is missing.
    pub(crate) unset: &'static str,
    /// Selectable in this version; other versions of the resource may differ.
    pub(crate) served: bool,
}

/// One resource in one version.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) namespaced: bool,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) verbs: &'static [&'static str],
    pub(crate) subresources: Vec<Subresource>,
    pub(crate) storage: StorageId,
    /// `apiVersion` that objects are stored in.
    pub(crate) stored_as: String,
    pub(crate) rules: Rules,
    pub(crate) fields: Vec<Field>,
    pub(crate) custom: Option<Custom>,
}

impl Resource {
    pub(crate) fn api_version(&self) -> String {
        object::api_version(&self.group, &self.version)
    }

    pub(crate) fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }

    pub(crate) fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    /// There are no objects of it: a POST computes an answer.
    pub(crate) fn is_virtual(&self) -> bool {
        !self.verbs.contains(&"get")
    }

    /// Values of the selectable fields of an object, as stored.
    pub(crate) fn field_values(&self, value: &Value) -> Box<[Box<str>]> {
        self.fields.iter().map(|field| field.read(value)).collect()
    }
}

impl Field {
    fn read(&self, value: &Value) -> Box<str> {
        let found = self.path.iter().try_fold(value, |at, key| at.get(key));
        match found {
            Some(Value::String(text)) => text.as_str().into(),
            Some(Value::Bool(flag)) => flag.to_string().into(),
            Some(Value::Number(number)) => number.to_string().into(),
            Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => self.unset.into(),
        }
    }
}

/// Everything that is served, by group and version.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    versions: BTreeMap<(String, String), BTreeMap<String, Arc<Resource>>>,
    /// Grows with each change, for caches over the whole table.
    pub(crate) generation: u64,
}

impl Registry {
    pub(crate) fn new() -> Self {
        let mut registry = Self::default();
        for resource in builtin::resources() {
            registry.insert(resource);
        }
        registry
    }

    pub(crate) fn insert(&mut self, resource: Resource) {
        self.generation += 1;
        self.versions
            .entry((resource.group.clone(), resource.version.clone()))
            .or_default()
            .insert(resource.plural.clone(), Arc::new(resource));
    }

    /// Removes all versions of a resource.
    pub(crate) fn remove(&mut self, group: &str, plural: &str) {
        self.generation += 1;
        for ((g, _), resources) in &mut self.versions {
            if g == group {
                resources.remove(plural);
            }
        }
        self.versions.retain(|_, resources| !resources.is_empty());
    }

    pub(crate) fn get(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.versions.get(&(group.to_owned(), version.to_owned()))?.get(plural)
    }

    /// The row through which the server itself works on a stored resource: its preferred version.
    pub(crate) fn by_storage(&self, storage: &str) -> Option<&Arc<Resource>> {
        let mut rows = self.all().filter(|r| &*r.storage == storage);
        let first = rows.next()?;
        Some(std::iter::once(first).chain(rows).find(|r| r.api_version() == r.stored_as).unwrap_or(first))
    }

    /// The row of a kind in exactly that version.
    pub(crate) fn by_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Resource>> {
        let (group, version) = object::group_version(api_version);
        self.versions
            .get(&(group.to_owned(), version.to_owned()))?
            .values()
            .find(|r| r.kind == kind && !r.is_virtual())
    }

    /// Every row, by group, version and plural.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.versions.values().flat_map(BTreeMap::values)
    }

    /// The rows of one group and version.
    pub(crate) fn version(&self, group: &str, version: &str) -> Option<&BTreeMap<String, Arc<Resource>>> {
        self.versions.get(&(group.to_owned(), version.to_owned()))
    }

    /// Groups as a real server orders them, each with its versions, preferred first.
    pub(crate) fn groups(&self) -> Vec<(String, Vec<String>)> {
        let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (group, version) in self.versions.keys() {
            groups.entry(group.clone()).or_default().push(version.clone());
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        for (_, versions) in &mut groups {
            versions.sort_by(|a, b| version_rank(b).cmp(&version_rank(a)).then_with(|| a.cmp(b)));
        }
        groups.sort_by_key(|(group, _)| builtin::group_rank(group));
        groups
    }
}

/// Order of versions by `k8s.io/apimachinery/pkg/version`: releases over betas over alphas, higher numbers first.
fn version_rank(version: &str) -> (u8, u32, u32) {
    let Some(rest) = version.strip_prefix('v') else { return (0, 0, 0) };
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let Ok(major) = rest[..digits].parse() else { return (0, 0, 0) };
    let minor = |text: &str| text.parse().unwrap_or(0);
    match &rest[digits..] {
        "" => (3, major, 0),
        tail => match (tail.strip_prefix("beta"), tail.strip_prefix("alpha")) {
            (Some(number), _) => (2, major, minor(number)),
            (_, Some(number)) => (1, major, minor(number)),
            (None, None) => (0, 0, 0),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_stand_in_the_order_of_a_real_server() {
        let groups: Vec<String> = Registry::new().groups().into_iter().map(|(group, _)| group).collect();
        assert_eq!(
            groups[..5],
            ["", "apps", "events.k8s.io", "authentication.k8s.io", "authorization.k8s.io"]
        );
        assert_eq!(groups.last().map(String::as_str), Some("resource.k8s.io"));
    }

    #[test]
    fn releases_are_preferred_over_betas_over_alphas() {
        let mut versions = ["v1alpha1", "v1", "v2beta1", "v10", "v2", "foo", "v2beta2"];
        versions.sort_by(|a, b| version_rank(b).cmp(&version_rank(a)).then_with(|| a.cmp(b)));
        assert_eq!(versions, ["v10", "v2", "v1", "v2beta2", "v2beta1", "v1alpha1", "foo"]);
    }
}
