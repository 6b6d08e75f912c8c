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
/// What users deploy beside it for Kueue's API.
const QUEUES_MANIFEST: &str = include_str!("../../../deploy/kueue-rbac.yaml");
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

/// A permission of a role in the manifest.
struct Grant {
    permission: Permission,
    /// Where it applies; empty: in all namespaces.
    namespace: String,
    /// The name of an object that it applies to; empty: all names.
    name: String,
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
    wait(client, |_| true).await
}

/// Waits until the API server allows what the roles for wrapped kinds grant.
pub async fn wait_wrapped(client: &Client) -> Result<()> {
    wait(client, |role| !role["metadata"]["labels"]["muster.dev/wrapped"].is_null()).await
}

async fn wait(client: &Client, is_selected: impl Fn(&Value) -> bool) -> Result<()> {
    let begin = Instant::now();
    for grant in grants(is_selected)? {
        while !holds(client, &grant).await? {
            let permission = &grant.permission;
            ensure!(begin.elapsed() < GRANTED_WITHIN, "{ACCOUNT} still has no permission to {permission}");
            sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(())
}

/// The permissions that the manifest grants and no request has used, without those for wrapped kinds, and for the endpoint and
/// the requests to autoscalers, which the controllers of the cases do not serve and make.
pub fn unused(used: &BTreeSet<Permission>) -> Result<Vec<Permission>> {
    let is_own = |role: &Value| {
        role["metadata"]["labels"]["muster.dev/wrapped"].is_null()
            && role["metadata"]["name"] != "muster-endpoint"
            && role["metadata"]["name"] != "muster-provisioning"
    };
    let granted: BTreeSet<_> = grants(is_own)?.into_iter().map(|grant| grant.permission).collect();
    Ok(granted.difference(used).cloned().collect())
}

fn manifest() -> Result<Vec<Value>> {
    serde_saphyr::from_multiple(MANIFEST).map_err(|error| anyhow!("deploy/rbac.yaml: {error}"))
}

/// The collections and objects that give the controllers the permissions of `deploy/kueue-rbac.yaml`, without those in the
/// namespace of an installation of Kueue.
pub fn queue_roles() -> Result<Vec<(String, Value)>> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(QUEUES_MANIFEST)
        .map_err(|error| anyhow!("deploy/kueue-rbac.yaml: {error}"))?;
    let own = objects.into_iter().filter(|object| object["metadata"]["namespace"] != "kueue-system");
    Ok(own.map(|object| (collection_of(&object), object)).collect())
}

/// The permissions that the selected roles give to the controllers.
fn grants(is_selected: impl Fn(&Value) -> bool) -> Result<Vec<Grant>> {
    let manifest = manifest()?;
    let is_bound = |role: &&Value| {
        let is_same = |of: &Value| of["kind"] == role["kind"] && of["name"] == role["metadata"]["name"];
        !role["metadata"]["labels"]["muster.dev/wrapped"].is_null()
            || manifest.iter().any(|binding| is_same(&binding["roleRef"]))
    };
    let roles = manifest.iter().filter(is_bound).filter(|role| is_selected(role));
    Ok(roles.flat_map(grants_of_role).collect())
}

fn grants_of_role(role: &Value) -> Vec<Grant> {
    let namespace = role["metadata"]["namespace"].as_str().unwrap_or_default();
    let rules = role["rules"].as_array().into_iter().flatten();
    rules.flat_map(|rule| grants_of_rule(rule, namespace)).collect()
}

fn grants_of_rule(rule: &Value, namespace: &str) -> Vec<Grant> {
    let texts = |key: &str| -> Vec<String> {
        rule[key].as_array().into_iter().flatten().filter_map(Value::as_str).map(Into::into).collect()
    };
    let (resources, verbs) = (texts("resources"), texts("verbs"));
    let name = texts("resourceNames").into_iter().next().unwrap_or_default();
    let mut grants = Vec::new();
    for group in texts("apiGroups") {
        for resource in &resources {
            for verb in verbs.iter().cloned() {
                let permission = Permission { verb, group: group.clone(), resource: resource.clone() };
                grants.push(Grant { permission, namespace: namespace.to_owned(), name: name.clone() });
            }
        }
    }
    grants
}

fn path_of(object: &Value) -> String {
    format!("{}/{}", collection_of(object), object["metadata"]["name"].as_str().unwrap_or_default())
}

fn collection_of(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let api_version = text(&object["apiVersion"]);
    let root = if api_version.contains('/') { "apis" } else { "api" };
    let namespace = match &*text(&object["metadata"]["namespace"]) {
        "" => String::new(),
        namespace => format!("/namespaces/{namespace}"),
    };
    format!("/{root}/{api_version}{namespace}/{}s", text(&object["kind"]).to_lowercase())
}

/// Asks the API server with a `SubjectAccessReview` whether the controllers have a permission.
async fn holds(client: &Client, grant: &Grant) -> Result<bool> {
    let Grant { permission, namespace, name } = grant;
    let (resource, subresource) = permission.resource.split_once('/').unwrap_or((&permission.resource, ""));
    let attributes = json!({"verb": permission.verb, "group": permission.group, "resource": resource,
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
