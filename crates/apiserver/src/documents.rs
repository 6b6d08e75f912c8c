//! `/openapi/v3`: the index and the documents. A document is built at the first request and cached until the served
//! resources change.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::Value;

use crate::openapi::{self, CustomResource, ResourceInfo, SubresourceInfo};
use crate::registry::{Registry, Resource};

/// Cached documents by group and version, each with its hash.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    generation: u64,
    hashes: BTreeMap<(String, String), String>,
    cached: BTreeMap<(String, String), (String, Bytes)>,
}

fn resource_info(resource: &Resource) -> ResourceInfo<'_> {
    let subresources = resource.subresources.iter().map(|subresource| SubresourceInfo {
        name: subresource.name,
        kind: match (subresource.kind, subresource.version) {
            ("", _) => ("", "", ""),
            (kind, "") => (&resource.group, &resource.version, kind),
            (kind, version) => (subresource.group, version, kind),
        },
        verbs: subresource.verbs,
    });
    ResourceInfo {
        group: &resource.group,
        version: &resource.version,
        kind: &resource.kind,
        plural: &resource.plural,
        namespaced: resource.namespaced,
        verbs: resource.verbs,
        subresources: subresources.collect(),
    }
}

/// Calls `act` with the resources and custom resources of one group and version.
fn with_version<T>(
    registry: &Registry,
    group: &str,
    version: &str,
    act: impl FnOnce(&[ResourceInfo<'_>], &[CustomResource<'_>]) -> T,
) -> Option<T> {
    let served = registry.version(group, version)?;
    let resources: Vec<ResourceInfo<'_>> = served.values().map(|resource| resource_info(resource)).collect();
    let custom: Vec<CustomResource<'_>> = served
        .values()
        .filter_map(|resource| {
            let schema = &resource.custom.as_ref()?.schema;
            let (group, version) = (resource.group.as_str(), resource.version.as_str());
            let (kind, plural, list_kind) = (&resource.kind, &resource.plural, &resource.list_kind);
            Some(CustomResource { group, version, kind, plural, list_kind, schema })
        })
        .collect();
    Some(act(&resources, &custom))
}

impl Documents {
    /// The index of all documents.
    pub(crate) fn index(&mut self, registry: &Registry) -> Value {
        self.refresh(registry);
        let hashes = self.hashes.iter();
        openapi::index(
            hashes.map(|((group, version), hash)| (group.as_str(), version.as_str(), hash.clone())),
        )
    }

    /// The hash of the document of a group and version; `None` if the version is not served.
    pub(crate) fn hash(&mut self, registry: &Registry, group: &str, version: &str) -> Option<String> {
        self.refresh(registry);
        self.hashes.get(&(group.to_owned(), version.to_owned())).cloned()
    }

    /// The document with this hash of a group and version; `None` if the version is not served.
    pub(crate) fn document(
        &mut self,
        registry: &Registry,
        group: &str,
        version: &str,
        hash: String,
    ) -> Option<Bytes> {
        let key = (group.to_owned(), version.to_owned());
        if let Some((_, body)) = self.cached.get(&key).filter(|(cached, _)| *cached == hash) {
            return Some(body.clone());
        }
        let document = with_version(registry, group, version, |resources, custom| {
            openapi::document(group, version, resources, custom)
        })?;
        let body = Bytes::from(document.to_string());
        self.cached.insert(key, (hash, body.clone()));
        Some(body)
    }

    /// Computes the hashes again if the served resources changed.
    fn refresh(&mut self, registry: &Registry) {
        if self.generation == registry.generation {
            return;
        }
        self.generation = registry.generation;
        let groups = registry.groups();
        let versions = groups.iter().flat_map(|(group, versions)| versions.iter().map(move |v| (group, v)));
        self.hashes = versions
            .filter_map(|(group, version)| {
                let hash = with_version(registry, group, version, |resources, custom| {
                    openapi::hash(group, version, resources, custom)
                })?;
                Some(((group.clone(), version.clone()), hash))
            })
            .collect();
    }
}
