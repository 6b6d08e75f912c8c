//! The objects of a cluster that decide about a migration, and what of them could not be read.

use std::collections::BTreeMap;

use serde_json::Value;

/// The definitions of resources.
pub(crate) const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
/// The Deployments.
pub(crate) const DEPLOYMENTS: &str = "deployments.apps";
/// What the API server forwards to others.
pub(crate) const API_SERVICES: &str = "apiservices.apiregistration.k8s.io";
/// Both kinds of webhook configurations.
pub(crate) const WEBHOOKS: [&str; 2] = [
    "mutatingwebhookconfigurations.admissionregistration.k8s.io",
    "validatingwebhookconfigurations.admissionregistration.k8s.io",
];

/// What a kind that an AppWrapper wraps is in this cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Resource {
    /// A resource with this plural, whose objects have namespaces.
    Namespaced(String),
    /// A resource whose objects have none.
    ClusterScoped(String),
    /// The cluster does not serve the kind.
    Missing,
}

/// Something that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unread {
    /// The resource with its group; of a single object also its namespace and name.
    pub(crate) resource: String,
    /// The message of the API server.
    pub(crate) why: String,
    /// The verb that the user has no right to, if this is why.
    pub(crate) lacks: Option<&'static str>,
}

/// What was read of a cluster.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cluster {
    /// By resource with its group, such as `workloads.kueue.x-k8s.io`. One that the cluster does not serve is not there.
    objects: BTreeMap<String, Vec<Value>>,
    /// By `apiVersion` and kind: the kinds that AppWrappers wrap.
    pub(crate) wrapped: BTreeMap<(String, String), Resource>,
    pub(crate) unread: Vec<Unread>,
}

impl Cluster {
    /// Adds objects of a resource.
    pub(crate) fn add(&mut self, resource: &str, objects: Vec<Value>) {
        self.objects.entry(resource.to_owned()).or_default().extend(objects);
    }

    /// The objects of a resource.
    pub(crate) fn of(&self, resource: &str) -> &[Value] {
        self.objects.get(resource).map(Vec::as_slice).unwrap_or_default()
    }

    /// An object by its name.
    pub(crate) fn named(&self, resource: &str, namespace: &str, name: &str) -> Option<&Value> {
        self.of(resource).iter().find(|object| {
            let meta = &object["metadata"];
            meta["namespace"].as_str().unwrap_or_default() == namespace && meta["name"] == name
        })
    }

    /// The definition of a resource.
    pub(crate) fn definition(&self, resource: &str) -> Option<&Value> {
        self.named(DEFINITIONS, "", resource)
    }

    /// Whether the definition of a resource serves a version. Without the right to read definitions, it may.
    pub(crate) fn serves(&self, resource: &str, version: &str) -> bool {
        if !self.objects.contains_key(DEFINITIONS) {
            return true;
        }
        served(self.definition(resource).unwrap_or(&Value::Null)).contains(&version)
    }
}

/// The versions that a definition serves.
pub(crate) fn served(definition: &Value) -> Vec<&str> {
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    versions
        .filter(|version| version["served"] == true)
        .filter_map(|version| version["name"].as_str())
        .collect()
}

/// A text of an object; empty if there is none.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The items of a list; none if it is no list.
pub(crate) fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
