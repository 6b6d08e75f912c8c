//! Paths that are not resources: version, health, `OpenAPI`, and discovery in its aggregated and unaggregated forms.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::negotiate::accepted;
use crate::registry::Resource;
use crate::request::Call;
use crate::response::Answer;
use crate::server::ApiServer;
use crate::status::Status;

/// Handles a path that is not a resource.
pub(crate) fn answer(server: &mut ApiServer, call: &Call<'_>, parts: &[&str]) -> Result<Answer, Status> {
    if !matches!(call.method, Method::GET | Method::HEAD) {
        return Err(Status::method_not_allowed());
    }
    let value = match parts {
        [] => root(server),
        ["version"] => version(server),
        ["healthz" | "livez" | "readyz", ..] if call.query.has("verbose") => {
            return Ok(Answer::text(format!("[+]ping ok\n{} check passed\n", parts[0])));
        }
        ["healthz" | "livez" | "readyz", ..] => return Ok(Answer::text("ok")),
        ["openapi", "v2"] => return Ok(open_api_v2(&server.config.version)),
        ["openapi", "v3", path @ ..] => return open_api_v3(server, call, path),
        ["api"] if let Some(version) = aggregated_version(call) => {
            return Ok(aggregated(server, call, version, true));
        }
        ["apis"] if let Some(version) = aggregated_version(call) => {
            return Ok(aggregated(server, call, version, false));
        }
        ["api"] => json!({
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": "" }],
        }),
        ["apis"] => {
            let groups: Vec<Value> = groups(server)
                .filter(|(group, _)| !group.is_empty())
                .map(|(g, v)| group_value(&g, &v))
                .collect();
            json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
        }
        ["apis", group] => {
            let found = groups(server).find(|(g, _)| g == group && !g.is_empty());
            let (group, versions) = found.ok_or_else(Status::no_such_path)?;
            let mut value = group_value(&group, &versions);
            value["kind"] = "APIGroup".into();
            value["apiVersion"] = "v1".into();
            value
        }
        ["api", version] => resources(server, "", version)?,
        ["apis", group, version] => resources(server, group, version)?,
        _ => return Err(Status::no_such_path()),
    };
    Ok(Answer::Value { code: 200, value })
}

/// An empty `OpenAPI` v2 document. kubectl requests it if v3 does not contain a kind, and continues if it is empty.
fn open_api_v2(version: &str) -> Answer {
    // The messages `Document { swagger = 1, info = 2 }` and `Info { title = 1, version = 2 }` in protobuf.
    let text = |field: u8, text: &[u8]| {
        let length = u8::try_from(text.len().min(100)).expect("at most 100");
        [&[field << 3 | 2, length], &text[..usize::from(length)]].concat()
    };
    let info = [text(1, b"Kubernetes"), text(2, version.as_bytes())].concat();
    let body = [text(1, b"2.0"), text(2, &info)].concat();
    let content_type = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    Answer::Raw { content_type, body: body.into(), etag: None }
}

/// Handles a path below `/openapi/v3`.
fn open_api_v3(server: &mut ApiServer, call: &Call<'_>, path: &[&str]) -> Result<Answer, Status> {
    let (documents, registry) = (&mut server.documents, &server.registry);
    let (group, version) = match path {
        [] => return Ok(Answer::Value { code: 200, value: documents.index(registry) }),
        ["api", version] => ("", *version),
        ["apis", group, version] => (*group, *version),
        _ => return Err(Status::no_such_path()),
    };
    let hash = documents.hash(registry, group, version).ok_or_else(Status::no_such_path)?;
    let etag = format!("\"{hash}\"");
    if call.headers.get(http::header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == etag.as_bytes())
    {
        return Ok(Answer::NotModified { etag });
    }
    let body = documents.document(registry, group, version, hash).ok_or_else(Status::no_such_path)?;
    Ok(Answer::Raw { content_type: "application/json", body, etag: Some(etag) })
}

fn groups(server: &ApiServer) -> impl Iterator<Item = (String, Vec<String>)> + use<> {
    server.registry.groups().into_iter()
}

fn root(server: &ApiServer) -> Value {
    let mut paths = vec![String::from("/api"), "/api/v1".into(), "/apis".into()];
    for (group, versions) in groups(server).filter(|(group, _)| !group.is_empty()) {
        paths.push(format!("/apis/{group}"));
        paths.extend(versions.iter().map(|version| format!("/apis/{group}/{version}")));
    }
    paths.extend(["/healthz", "/livez", "/openapi/v3", "/readyz", "/version"].map(String::from));
    paths.sort();
    json!({ "paths": paths })
}

fn version(server: &ApiServer) -> Value {
    let text = server.config.version.as_str();
    let mut numbers = text.trim_start_matches('v').split('.');
    json!({
        "major": numbers.next().unwrap_or_default(),
        "minor": numbers.next().unwrap_or_default(),
        "gitVersion": text,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

fn group_value(group: &str, versions: &[String]) -> Value {
    let entry =
        |version: &String| json!({ "groupVersion": format!("{group}/{version}"), "version": version });
    json!({
        "name": group,
        "versions": versions.iter().map(entry).collect::<Vec<_>>(),
        "preferredVersion": versions.first().map(entry),
    })
}

/// The `APIResourceList` of one group and version.
fn resources(server: &ApiServer, group: &str, version: &str) -> Result<Value, Status> {
    let known = || server.registry.all().any(|resource| resource.group == group);
    let unknown = || if known() { Status::no_such_resource() } else { Status::no_such_path() };
    let served = server.registry.version(group, version).ok_or_else(unknown)?;
    let mut all = Vec::new();
    for resource in served.values() {
        all.push(resource_value(resource));
        let mut subresources = resource.subresources.clone();
        if resource.custom.is_none() {
            subresources.sort_by_key(|s| s.name);
        }
        for subresource in subresources {
            let mut value = json!({
                "name": format!("{}/{}", resource.plural, subresource.name),
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": if subresource.kind.is_empty() { resource.kind.as_str() } else { subresource.kind },
                "verbs": subresource.verbs,
            });
            if !subresource.version.is_empty() {
                value["group"] = subresource.group.into();
                value["version"] = subresource.version.into();
            }
            all.push(value);
        }
    }
    Ok(json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": crate::object::api_version(group, version),
        "resources": all,
    }))
}

fn resource_value(resource: &Resource) -> Value {
    let mut value = json!({
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": resource.verbs,
    });
    if !resource.short_names.is_empty() {
        value["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        value["categories"] = json!(resource.categories);
    }
    if !resource.is_virtual() {
        value["storageVersionHash"] = hash(&format!(
            "{}/{}/{}",
            resource.group,
            crate::object::group_version(&resource.stored_as).1,
            resource.kind
        ))
        .into();
    }
    value
}

fn hash(text: &str) -> String {
    use base64::Engine as _;
    let digest = Sha256::digest(text.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(&digest[..8])
}

/// The version of aggregated discovery to return, if the client prefers it to plain JSON.
fn aggregated_version(call: &Call<'_>) -> Option<&'static str> {
    accepted(&call.headers)
        .iter()
        .find(|range| range.media == "application/json" || range.media == "*/*")
        .filter(|range| {
            range.parameter("g") == "apidiscovery.k8s.io" && range.parameter("as") == "APIGroupDiscoveryList"
        })
        .and_then(|range| match range.parameter("v") {
            "v2" => Some("v2"),
            "v2beta1" => Some("v2beta1"),
            _ => None,
        })
}

fn aggregated(server: &ApiServer, call: &Call<'_>, version: &'static str, core: bool) -> Answer {
    let items: Vec<Value> = groups(server)
        .filter(|(group, _)| group.is_empty() == core)
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    let served = server.registry.version(&group, version);
                    let resources: Vec<Value> = served
                        .into_iter()
                        .flat_map(|served| served.values())
                        .map(|resource| discovered(resource))
                        .collect();
                    json!({ "version": version, "freshness": "Current", "resources": resources })
                })
                .collect();
            let metadata = if group.is_empty() { json!({}) } else { json!({ "name": group }) };
            json!({ "metadata": metadata, "versions": versions })
        })
        .collect();
    let value = json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {},
        "items": items,
    });
    let body = Bytes::from(value.to_string());
    let digest = Sha256::digest(&body);
    let etag = format!("\"{digest:X}\"");
    if call.headers.get(http::header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == etag.as_bytes())
    {
        return Answer::NotModified { etag };
    }
    let content_type = match version {
        "v2" => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        _ => "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
    };
    Answer::Raw { content_type, body, etag: Some(etag) }
}

fn discovered(resource: &Resource) -> Value {
    let kind =
        |group: &str, version: &str, kind: &str| json!({ "group": group, "version": version, "kind": kind });
    let mut value = json!({
        "resource": resource.plural,
        "responseKind": kind(&resource.group, &resource.version, &resource.kind),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": resource.verbs,
    });
    if !resource.short_names.is_empty() {
        value["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        value["categories"] = json!(resource.categories);
    }
    let mut subresources = resource.subresources.clone();
    subresources.sort_by_key(|s| s.name);
    if !subresources.is_empty() {
        let subresources: Vec<Value> = subresources
            .iter()
            .map(|subresource| {
                let response = match (subresource.kind, subresource.version) {
                    ("", _) => kind(&resource.group, &resource.version, &resource.kind),
                    (own, "") => kind(&resource.group, &resource.version, own),
                    (own, version) => kind(subresource.group, version, own),
                };
                json!({ "subresource": subresource.name, "responseKind": response, "verbs": subresource.verbs })
            })
            .collect();
        value["subresources"] = subresources.into();
    }
    value
}
