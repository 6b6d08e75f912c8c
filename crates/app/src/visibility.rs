//! Requests to the endpoint of the controller, which the API server forwards.

use anyhow::{Result, anyhow, bail};
use controllers::GangKind;
use kube::Client;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use server::Report;
use server::visibility::{
    GROUP, PAGE_MAX, Resource, VERSION, WORKLOAD_PLANS, WORKLOAD_REPORTS, WRAPPER_PLANS, WRAPPER_REPORTS,
};

use crate::groups::not_served;
use crate::plan::Manifest;

/// The endpoint of the controller.
pub(crate) struct Visibility {
    client: Client,
    /// The names of its resources.
    resources: Vec<String>,
}

/// An object with reports.
#[derive(Deserialize)]
struct Reports {
    #[serde(default)]
    reports: Vec<Report>,
}

/// A page of such objects.
#[derive(Deserialize)]
struct List {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(default)]
    items: Vec<Reports>,
}

#[derive(Default, Deserialize)]
struct ListMeta {
    #[serde(default, rename = "continue")]
    next: Option<String>,
}

#[derive(Deserialize)]
struct Planned {
    status: Reports,
}

impl Visibility {
    /// The endpoint, if the controller of this cluster serves one.
    pub(crate) async fn of(client: &Client) -> Option<Self> {
        let found: Result<Value, _> = request(client, "GET", &format!("/apis/{GROUP}/{VERSION}"), None).await;
        match found {
            Ok(found) => {
                let names = found["resources"].as_array().into_iter().flatten();
                let names = names.filter_map(|resource| resource["name"].as_str());
                Some(Self { client: client.clone(), resources: names.map(str::to_owned).collect() })
            }
            Err(error) if code(&error) == Some(404) => None,
            Err(error) => {
                eprintln!(
                    "muster: the controller's endpoint does not answer ({}); reading the cluster instead",
                    text(&error)
                );
                None
            }
        }
    }

    /// Whether it answers about objects of a kind.
    pub(crate) fn serves(&self, kind: GangKind) -> bool {
        kind != GangKind::Workload || self.resources.iter().any(|name| name == WORKLOAD_REPORTS.plural)
    }

    /// The reports about the objects of a kind and a name; empty if there is none.
    pub(crate) async fn why(&self, kind: GangKind, namespace: &str, name: &str) -> Result<Vec<Report>> {
        let resource = reports_of(kind).plural;
        let found = request(&self.client, "GET", &path(namespace, &format!("{resource}/{name}")), None).await;
        match found {
            Ok(Reports { reports }) => Ok(reports),
            Err(error) if code(&error) == Some(404) => Ok(Vec::new()),
            Err(error) => Err(refusal(&error)),
        }
    }

    /// The reports about all objects of a kind in a namespace, or in all.
    pub(crate) async fn list(&self, kind: GangKind, namespace: Option<&str>) -> Result<Vec<Report>> {
        let resource = reports_of(kind).plural;
        let list = namespace.map_or_else(
            || format!("/apis/{GROUP}/{VERSION}/{resource}"),
            |namespace| path(namespace, resource),
        );
        let (mut reports, mut after) = (Vec::new(), String::new());
        loop {
            let page = format!("{list}?limit={PAGE_MAX}&continue={after}");
            let page: List =
                request(&self.client, "GET", &page, None).await.map_err(|error| refusal(&error))?;
            reports.extend(page.items.into_iter().flat_map(|item| item.reports));
            match page.metadata.next {
                Some(next) if !next.is_empty() && next != after => after = next,
                _ => return Ok(reports),
            }
        }
    }

    /// What would happen to objects of a namespace if they were created now, in this order. All are AppWrappers, or all are
    /// Workloads. The API server validates each in a dry run.
    pub(crate) async fn plan(&self, namespace: &str, manifests: Vec<Manifest>) -> Result<Vec<Report>> {
        let Some(of) = manifests.first().map(|manifest| manifest.kind) else { return Ok(Vec::new()) };
        let mut created: Vec<Value> = Vec::new();
        for Manifest { kind, object: mut manifest, is_completed } in manifests {
            if is_completed {
                created.push(manifest);
                continue;
            }
            let version = format!("/apis/{}", manifest["apiVersion"].as_str().unwrap_or_default());
            if let Err(error) = request::<Value>(&self.client, "GET", &version, None).await
                && code(&error) == Some(404)
            {
                bail!(not_served(kind));
            }
            let name = manifest["metadata"]["name"].as_str().unwrap_or("an object without a name").to_owned();
            if let Some(meta) = manifest["metadata"].as_object_mut() {
                meta.insert("namespace".into(), namespace.into());
            }
            let path = format!("{version}/namespaces/{namespace}/{}?dryRun=All", kind.names().1);
            let object = request(&self.client, "POST", &path, Some(manifest)).await;
            created.push(
                object.map_err(|error| anyhow!("the API server would reject {name}: {}", text(&error)))?,
            );
        }
        let Resource { plural, kind, field, .. } = match of {
            GangKind::Wrapper(_) => WRAPPER_PLANS,
            GangKind::Workload => WORKLOAD_PLANS,
        };
        let plan = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": kind, "metadata": {}, "spec": {field: created},
        });
        let planned = request(&self.client, "POST", &path(namespace, plural), Some(plan)).await;
        let Planned { status } = planned.map_err(|error| refusal(&error))?;
        Ok(status.reports)
    }
}

fn reports_of(kind: GangKind) -> Resource {
    match kind {
        GangKind::Wrapper(_) => WRAPPER_REPORTS,
        GangKind::Workload => WORKLOAD_REPORTS,
    }
}

fn path(namespace: &str, resource: &str) -> String {
    format!("/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{resource}")
}

async fn request<T: DeserializeOwned>(
    client: &Client,
    method: &str,
    path: &str,
    body: Option<Value>,
) -> Result<T, kube::Error> {
    let body = body.map_or_else(Vec::new, |body| body.to_string().into_bytes());
    let request =
        http::Request::builder().method(method).uri(path).header("content-type", "application/json");
    client.request(request.body(body).map_err(kube::Error::HttpError)?).await
}

fn code(error: &kube::Error) -> Option<u16> {
    let kube::Error::Api(status) = error else { return None };
    Some(status.code)
}

/// Why the endpoint did not answer. Who may not ask it is told the role that helps.
fn refusal(error: &kube::Error) -> anyhow::Error {
    let text = text(error);
    if code(error) == Some(403) {
        return anyhow!(
            "{text}; the ClusterRole muster-visibility has this right, and so have view, edit and admin, of which it is a part"
        );
    }
    anyhow!(text)
}

/// An error and its causes in one text. Of a refusal, the message of the API server alone.
pub(crate) fn line(error: &anyhow::Error) -> String {
    let mut texts = Vec::new();
    for cause in error.chain() {
        if let Some(kube::Error::Api(status)) = cause.downcast_ref() {
            texts.push(status.message.clone());
            break;
        }
        texts.push(cause.to_string());
    }
    texts.join(": ")
}

/// An error whose text is the message of the API server alone.
pub(crate) fn told(error: kube::Error) -> anyhow::Error {
    if let kube::Error::Api(status) = error { anyhow!(status.message) } else { error.into() }
}

/// The message of the API server, without the rest of its status.
fn text(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error { status.message.clone() } else { error.to_string() }
}
