//! `/openapi/v3`: the index and the documents. A document is built at the first request and cached until the served
//! resources change.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::Value;

use crate::openapi::{self, CustomResource, ResourceInfo, SubresourceInfo};
use crate::registry::{Registry, Resource};
use crate::request::Call;
use crate::server::{Answer, ApiServer};
use crate::status::Status;

/// Cached documents by group and version, each with its hash.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    generation: u64,
    hashes: BTreeMap<(String, String), String>,
    cached: BTreeMap<(String, String), (String, Bytes)>,
}

fn resource_info(resource: &Resource) -> ResourceInfo<'_> {
    let subresources = resource.subresources.iter().map(|part| SubresourceInfo {
        name: part.name,
        kind: match (part.kind, part.version) {
            ("", _) => ("", "", ""),
            (kind, "") => (&resource.group, &resource.version, kind),
            (kind, version) => (part.group, version, kind),
        },
        verbs: part.verbs,
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
    let rows = registry.version(group, version)?;
    let resources: Vec<ResourceInfo<'_>> = rows.values().map(|row| resource_info(row)).collect();
    let custom: Vec<CustomResource<'_>> = rows
        .values()
        .filter_map(|row| {
            let schema = &row.custom.as_ref()?.schema;
            let (group, version) = (row.group.as_str(), row.version.as_str());
            let (kind, plural, list_kind) = (&row.kind, &row.plural, &row.list_kind);
            Some(CustomResource { group, version, kind, plural, list_kind, schema })
        })
        .collect();
    Some(act(&resources, &custom))
}

impl ApiServer {
    /// Handles a path below `/openapi/v3`.
    pub(crate) fn open_api(&mut self, call: &Call<'_>, path: &[&str]) -> Result<Answer, Status> {
        if self.documents.generation != self.registry.generation {
            self.documents.generation = self.registry.generation;
            self.documents.hashes = self.hashes();
        }
        let (group, version) = match path {
            [] => return Ok(Answer::Value { code: 200, value: self.index() }),
            ["api", version] => ("", *version),
            ["apis", group, version] => (*group, *version),
            _ => return Err(Status::no_such_path()),
        };
        let key = (group.to_owned(), version.to_owned());
        let hash = self.documents.hashes.get(&key).cloned().ok_or_else(Status::no_such_path)?;
        let etag = format!("\"{hash}\"");
        if call
            .headers
            .get(http::header::IF_NONE_MATCH)
            .is_some_and(|known| known.as_bytes() == etag.as_bytes())
        {
            return Ok(Answer::NotModified { etag });
        }
        let cached = self.documents.cached.get(&key).filter(|(of, _)| *of == hash);
        let body = if let Some((_, body)) = cached {
            body.clone()
        } else {
            let document = with_version(&self.registry, group, version, |resources, custom| {
                openapi::document(group, version, resources, custom)
            });
            let body = Bytes::from(document.ok_or_else(Status::no_such_path)?.to_string());
            self.documents.cached.insert(key, (hash, body.clone()));
            body
        };
        Ok(Answer::Raw { content_type: "application/json", body, etag: Some(etag) })
    }

    fn hashes(&self) -> BTreeMap<(String, String), String> {
        let groups = self.registry.groups();
        let versions = groups.iter().flat_map(|(group, versions)| versions.iter().map(move |v| (group, v)));
        versions
            .filter_map(|(group, version)| {
                let hash = with_version(&self.registry, group, version, |resources, custom| {
                    openapi::hash(group, version, resources, custom)
                })?;
                Some(((group.clone(), version.clone()), hash))
            })
            .collect()
    }

    fn index(&self) -> Value {
        let hashes = self.documents.hashes.iter();
        openapi::index(
            hashes.map(|((group, version), hash)| (group.as_str(), version.as_str(), hash.clone())),
        )
    }
}
