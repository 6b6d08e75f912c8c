//! The resource table: one entry for each resource and served version, built in or from a custom resource definition.

mod builtin;
mod custom;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

pub(crate) use self::custom::{Custom, resources as custom_resources, state_of};
use crate::names::NameRule;
use crate::object;
use crate::store::StorageId;

/// When a write increments `metadata.generation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Generation {
    /// Never: the resource has no generation.
    Never,
    /// When `spec` changes.
    Spec,
    /// When any field outside `metadata` changes; `status` does not count if it is a subresource.
    Content,
}

/// Per-resource behaviour, as set by the REST strategies of kube-apiserver.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) names: NameRule,
    pub(crate) generation: Generation,
    /// An update may omit `resourceVersion` (`AllowUnconditionalUpdate`).
    pub(crate) unconditional: bool,
    /// A PUT to a name that does not exist creates the object (`AllowCreateOnUpdate`).
    pub(crate) create_on_update: bool,
    /// A DELETE returns the object instead of a Status (`ReturnDeletedObject`).
    pub(crate) returns_deleted: bool,
    /// Dependents are orphaned unless the request sets a propagation policy (`DefaultGarbageCollectionPolicy`).
    pub(crate) orphans: bool,
}

impl Rules {
    /// The rules of most kinds.
    pub(crate) const DEFAULT: Self = Self {
        names: NameRule::Subdomain,
        generation: Generation::Never,
        unconditional: true,
        create_on_update: false,
        returns_deleted: false,
        orphans: false,
    };
}

/// A subresource of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subresource {
    pub(crate) name: &'static str,
    /// Group, version and kind of its request and response bodies; empty if they are those of the resource.
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) verbs: &'static [&'static str],
}

/// A field that field selectors support besides `metadata.name` and `metadata.namespace`.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub(crate) label: String,
    pub(crate) path: Vec<String>,
    /// Value to match when the field is missing.
    pub(crate) unset: &'static str,
    /// Selectable in this version. Other versions of the resource may have other selectable fields.
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
    /// `apiVersion` in which objects are stored.
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

    /// The resource stores no objects: the server computes an answer, as for `SubjectAccessReview`, or another
    /// component does.
    pub(crate) fn is_virtual(&self) -> bool {
        !self.verbs.contains(&"delete")
    }

    /// Values of the selectable fields of a stored object.
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

/// All served resources, by group and version.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    versions: BTreeMap<(String, String), BTreeMap<String, Arc<Resource>>>,
    /// Incremented by every change, to invalidate caches over the whole table.
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

    /// The entry through which the server itself accesses a stored resource: the preferred version.
    pub(crate) fn by_storage(&self, storage: &str) -> Option<&Arc<Resource>> {
        let mut versions = self.all().filter(|r| &*r.storage == storage);
        let first = versions.next()?;
        Some(std::iter::once(first).chain(versions).find(|r| r.api_version() == r.stored_as).unwrap_or(first))
    }

    /// The entry of a kind in exactly this version.
    pub(crate) fn by_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Resource>> {
        let (group, version) = object::group_version(api_version);
        self.versions
            .get(&(group.to_owned(), version.to_owned()))?
            .values()
            .find(|r| r.kind == kind && !r.is_virtual())
    }

    /// All entries, sorted by group, version and plural.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.versions.values().flat_map(BTreeMap::values)
    }

    /// The entries of one group and version.
    pub(crate) fn version(&self, group: &str, version: &str) -> Option<&BTreeMap<String, Arc<Resource>>> {
        self.versions.get(&(group.to_owned(), version.to_owned()))
    }

    /// Groups in the order of kube-apiserver's discovery, each with its versions, the preferred one first.
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

/// Sort key for versions after `k8s.io/apimachinery/pkg/version`: GA before beta before alpha, higher numbers first.
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
    fn groups_are_in_the_order_of_kube_apiserver() {
        let groups: Vec<String> = Registry::new().groups().into_iter().map(|(group, _)| group).collect();
        assert_eq!(
            groups[..5],
            ["", "apps", "events.k8s.io", "authentication.k8s.io", "authorization.k8s.io"]
        );
        assert_eq!(groups.last().map(String::as_str), Some("resource.k8s.io"));
    }

    #[test]
    fn ga_versions_are_preferred_to_beta_and_alpha_versions() {
        let mut versions = ["v1alpha1", "v1", "v2beta1", "v10", "v2", "foo", "v2beta2"];
        versions.sort_by(|a, b| version_rank(b).cmp(&version_rank(a)).then_with(|| a.cmp(b)));
        assert_eq!(versions, ["v10", "v2", "v1", "v2beta2", "v2beta1", "v1alpha1", "foo"]);
    }
}
