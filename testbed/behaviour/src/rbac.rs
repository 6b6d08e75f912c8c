//! The RBAC permissions of the controllers: they act as the service account of `deploy/rbac.yaml`, with only its permissions.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// The user name of the controllers' service account.
pub const ACCOUNT: &str = "system:serviceaccount:muster:muster";
/// The manifest that users deploy.
const MANIFEST: &str = include_str!("../../../deploy/rbac.yaml");
/// The timeout for the aggregation of cluster roles.
const GRANTED_WITHIN: Duration = Duration::from_mins(1);

/// A verb on a resource, as in the rules of a role, without namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    verb: String,
    group: String,
    /// The resource, with its subresource.
    resource: String,
}

impl Permission {
    /// The permission that a request needs; `None` for a non-resource path.
    pub fn of<B>(request: &Request<B>) -> Option<Self> {
        let segments: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
        let (group, rest) = match segments.as_slice() {
            ["api", _, rest @ ..] => ("", rest),
            ["apis", group, _, rest @ ..] => (*group, rest),
            _ => return None,
        };
        let rest = match rest {
            ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
            rest => rest,
        };
        let (resource, has_name) = match rest {
            [] => return None,
            [resource] => ((*resource).to_owned(), false),
            [resource, _] => ((*resource).to_owned(), true),
            [resource, _, subresource, ..] => (format!("{resource}/{subresource}"), true),
        };
        let watches = request.uri().query().unwrap_or_default().split('&').any(|part| part == "watch=true");
        let verb = match *request.method() {
            Method::GET if has_name => "get",
            Method::GET if watches => "watch",
            Method::GET => "list",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if has_name => "delete",
            _ => "deletecollection",
        };
        Some(Self { verb: verb.into(), group: group.into(), resource })
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, group, resource } = self;
        if group.is_empty() { write!(f, "{verb} {resource}") } else { write!(f, "{verb} {resource}.{group}") }
    }
}

/// Applies the manifest, and waits until the API server allows all of its permissions.
pub async fn grant(client: &Client) -> Result<()> {
    for object in manifest()? {
        let path = path_of(&object);
        let request = Request::patch(format!("{path}?fieldManager=behaviour&force=true"))
            .header("Content-Type", "application/apply-patch+yaml")
            .body(serde_json::to_vec(&object)?)?;
        let _: Value = client.request(request).await.with_context(|| format!("cannot apply {path}"))?;
    }
    let begin = Instant::now();
    for permission in granted(|_| true)? {
        while !holds(client, &permission).await? {
            ensure!(begin.elapsed() < GRANTED_WITHIN, "{ACCOUNT} still has no permission to {permission}");
            sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(())
}

/// The permissions that the manifest grants and no request has used, without those for wrapped kinds.
pub fn unused(used: &BTreeSet<Permission>) -> Result<Vec<Permission>> {
    let is_own = |role: &Value| role["metadata"]["labels"]["muster.dev/wrapped"].is_null();
    Ok(granted(is_own)?.difference(used).cloned().collect())
}

fn manifest() -> Result<Vec<Value>> {
    serde_saphyr::from_multiple(MANIFEST).map_err(|error| anyhow!("deploy/rbac.yaml: {error}"))
}

/// The permissions of the selected roles.
fn granted(is_selected: impl Fn(&Value) -> bool) -> Result<BTreeSet<Permission>> {
    let mut permissions = BTreeSet::new();
    for role in manifest()?.into_iter().filter(is_selected) {
        for rule in role["rules"].as_array().into_iter().flatten() {
            let texts = |key: &str| -> Vec<String> {
                rule[key].as_array().into_iter().flatten().filter_map(Value::as_str).map(Into::into).collect()
            };
            for group in texts("apiGroups") {
                for resource in texts("resources") {
                    for verb in texts("verbs") {
                        permissions.insert(Permission {
                            verb,
                            group: group.clone(),
                            resource: resource.clone(),
                        });
                    }
                }
            }
        }
    }
    Ok(permissions)
}

fn path_of(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (api_version, name) = (text(&object["apiVersion"]), text(&object["metadata"]["name"]));
    let root = if api_version.contains('/') { "apis" } else { "api" };
    let namespace = match &*text(&object["metadata"]["namespace"]) {
        "" => String::new(),
        namespace => format!("/namespaces/{namespace}"),
    };
    format!("/{root}/{api_version}{namespace}/{}s/{name}", text(&object["kind"]).to_lowercase())
}

/// Asks the API server with a `SubjectAccessReview` whether the controllers have a permission: in `kube-system` for their own objects,
/// otherwise in all namespaces.
async fn holds(client: &Client, permission: &Permission) -> Result<bool> {
    let (resource, subresource) = permission.resource.split_once('/').unwrap_or((&permission.resource, ""));
    let group = &permission.group;
    // Some permissions are granted only for objects with these names.
    let name = match resource {
        "customresourcedefinitions" => "appwrappers.mcad.ibm.com",
        "leases" | "configmaps" => "muster",
        _ => "",
    };
    let namespace = if matches!(resource, "leases" | "configmaps") { "kube-system" } else { "" };
    let attributes = json!({"verb": permission.verb, "group": group, "resource": resource,
        "subresource": subresource, "namespace": namespace, "name": name});
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {
        "user": ACCOUNT, "groups": groups(), "resourceAttributes": attributes}});
    let request = Request::post("/apis/authorization.k8s.io/v1/subjectaccessreviews")
        .header("Content-Type", "application/json")
        .body(serde_json::to_vec(&review)?)?;
    let answer: Value = client.request(request).await?;
    Ok(answer["status"]["allowed"] == true)
}

/// A `ClusterRole` that permits controllers to create objects of a further kind.
pub fn wrapped_kind_role(name: &str, group: &str, resource: &str) -> Value {
    let verbs = ["create", "delete", "get", "list", "watch"];
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name, "labels": {"muster.dev/wrapped": "true"}},
        "rules": [{"apiGroups": [group], "resources": [resource], "verbs": verbs}],
    })
}

/// The groups of the service account.
pub fn groups() -> [&'static str; 3] {
    ["system:serviceaccounts", "system:serviceaccounts:muster", "system:authenticated"]
}
