//! Single requests to the API server: paths, bodies and timeouts.

use std::time::Duration;

use api::appwrapper::Group;
use index::{Kind, wire};
use kube::Client;
use kube::api::{DeleteParams, GetParams, Patch, PatchParams, PostParams};
use kube::core::Request;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::error::{self, Error};

/// Field manager of all writes of this controller.
pub(crate) const FIELD_MANAGER: &str = "muster";
/// Timeout of one request.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Number of objects of one page of a list.
const PAGE_SIZE: u32 = 500;

/// A page of a list.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Page {
    /// Its objects, without `apiVersion` and `kind`.
    pub(crate) items: Vec<Value>,
    pub(crate) metadata: PageMeta,
}

/// Metadata of a page.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PageMeta {
    /// The token of the next page; empty for the last one.
    #[serde(rename = "continue", deserialize_with = "api::meta::null_is_default")]
    pub(crate) next: String,
}

/// URL path of a resource, in one namespace or cluster-wide.
#[derive(Debug, Clone)]
pub struct ResourcePath {
    path: String,
}

impl ResourcePath {
    /// Path of the resource that serves `kind`. An empty namespace means all namespaces, or a cluster-scoped
    /// resource.
    pub fn of(kind: &Kind, plural: &str, namespace: &str) -> Self {
        let root = if kind.group().is_empty() { "/api" } else { "/apis" };
        let version: Vec<String> = kind.api_version.split('/').map(escape).collect();
        let (version, plural) = (version.join("/"), escape(plural));
        let path = match namespace {
            "" => format!("{root}/{version}/{plural}"),
            _ => format!("{root}/{version}/namespaces/{}/{plural}", escape(namespace)),
        };
        Self { path }
    }

    /// Path of the AppWrappers of a group in a namespace.
    pub(crate) fn wrappers(group: Group, namespace: &str) -> Self {
        let kind = Kind::new(group.api_version(), api::appwrapper::KIND);
        Self::of(&kind, api::appwrapper::PLURAL, namespace)
    }

    fn request(&self) -> Request {
        Request::new(self.path.clone())
    }

    /// Reads one object.
    pub async fn get<T: DeserializeOwned>(&self, client: &Client, name: &str) -> Result<T, Error> {
        call(client, self.request().get(name, &GetParams::default())).await
    }

    /// Reads a page of the objects. An empty token begins the list; the answer has the token of the next page.
    pub(crate) async fn list(&self, client: &Client, token: &str) -> Result<Page, Error> {
        let token = if token.is_empty() { String::new() } else { format!("&continue={}", escape(token)) };
        get(client, &format!("{}?limit={PAGE_SIZE}{token}", self.path)).await
    }

    /// Replaces one object if it still has the resource version of `object`.
    pub(crate) async fn replace(&self, client: &Client, name: &str, object: &Value) -> Result<(), Error> {
        let params = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
        call::<wire::Object>(client, self.request().replace(name, &params, bytes(object))).await.map(drop)
    }

    /// Creates one object.
    pub async fn create<T: DeserializeOwned>(&self, client: &Client, object: &Value) -> Result<T, Error> {
        let params = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
        call(client, self.request().create(&params, bytes(object))).await
    }

    /// Creates one object with `dryRun=All`: returns the object as the API server would store it.
    pub(crate) async fn create_dry_run<T: DeserializeOwned>(
        &self,
        client: &Client,
        object: &Value,
    ) -> Result<T, Error> {
        let params = PostParams { field_manager: Some(FIELD_MANAGER.into()), dry_run: true };
        call(client, self.request().create(&params, bytes(object))).await
    }

    /// Merges `status` into one object if the object still has this resource version. Uses the status subresource if
    /// the resource has one.
    pub async fn merge_status<T: DeserializeOwned>(
        &self,
        client: &Client,
        name: &str,
        resource_version: &str,
        status: &Value,
        is_subresource: bool,
    ) -> Result<T, Error> {
        let patch = json!({"metadata": {"resourceVersion": resource_version}, "status": status});
        if !is_subresource {
            return self.merge(client, name, &patch).await;
        }
        self.merge_into_status(client, name, &patch).await
    }

    /// Applies a merge patch to the status subresource of one object.
    pub(crate) async fn merge_into_status<T: DeserializeOwned>(
        &self,
        client: &Client,
        name: &str,
        patch: &Value,
    ) -> Result<T, Error> {
        call(client, self.request().patch_subresource("status", name, &patch_params(), &Patch::Merge(patch)))
            .await
    }

    /// Changes one object by a JSON patch. Uses the status subresource if the resource has one.
    pub(crate) async fn json_patch_status<T: DeserializeOwned>(
        &self,
        client: &Client,
        name: &str,
        edits: &[Value],
        is_subresource: bool,
    ) -> Result<T, Error> {
        let status = if is_subresource { "/status" } else { "" };
        let request = http::Request::patch(format!(
            "{}/{}{status}?fieldManager={FIELD_MANAGER}",
            self.path,
            escape(name)
        ))
        .header(http::header::ACCEPT, "application/json")
        .header(http::header::CONTENT_TYPE, "application/json-patch+json")
        .body(bytes(&Value::from(edits)))
        .map_err(|error| Error::Refused(error.to_string()))?;
        send(client, request).await
    }

    /// Applies a merge patch to one object. A `resourceVersion` in the patch makes the write conditional.
    pub async fn merge<T: DeserializeOwned>(
        &self,
        client: &Client,
        name: &str,
        patch: &Value,
    ) -> Result<T, Error> {
        call(client, self.request().patch(name, &patch_params(), &Patch::Merge(patch))).await
    }

    /// Applies a strategic merge patch to one object.
    pub(crate) async fn patch(&self, client: &Client, name: &str, patch: &Value) -> Result<(), Error> {
        let request = self.request().patch(name, &patch_params(), &Patch::Strategic(patch));
        call::<wire::Object>(client, request).await.map(drop)
    }

    /// Applies one object by server-side apply, and takes over fields that other managers own.
    pub(crate) async fn apply<T: DeserializeOwned>(
        &self,
        client: &Client,
        name: &str,
        object: &Value,
    ) -> Result<T, Error> {
        self.apply_as(client, FIELD_MANAGER, name, object).await
    }

    /// Applies an object for another field manager.
    pub(crate) async fn apply_as<T: DeserializeOwned>(
        &self,
        client: &Client,
        manager: &str,
        name: &str,
        object: &Value,
    ) -> Result<T, Error> {
        let params = PatchParams::apply(manager).force();
        call(client, self.request().patch(name, &params, &Patch::Apply(object))).await
    }

    /// Applies the status of one object by server-side apply as this field manager, and takes over fields that other
    /// managers own.
    pub(crate) async fn apply_status<T: DeserializeOwned>(
        &self,
        client: &Client,
        manager: &str,
        name: &str,
        object: &Value,
    ) -> Result<T, Error> {
        let params = PatchParams::apply(manager).force();
        call(client, self.request().patch_subresource("status", name, &params, &Patch::Apply(object))).await
    }

    /// Deletes one object if its uid still matches. Garbage collection deletes the dependents in the background. A conflict
    /// does not tell whether another object has the name now, so the object is read again.
    pub async fn delete(&self, client: &Client, name: &str, uid: &str) -> Result<(), Error> {
        self.delete_with(client, name, uid, DeleteParams::background()).await
    }

    /// The same, but the object is there until its dependents are gone.
    pub async fn delete_after_dependents(&self, client: &Client, name: &str, uid: &str) -> Result<(), Error> {
        self.delete_with(client, name, uid, DeleteParams::foreground()).await
    }

    async fn delete_with(
        &self,
        client: &Client,
        name: &str,
        uid: &str,
        mut params: DeleteParams,
    ) -> Result<(), Error> {
        params.preconditions =
            Some(kube::api::Preconditions { uid: Some(uid.into()), resource_version: None });
        match call::<Value>(client, self.request().delete(name, &params)).await {
            Ok(_) | Err(Error::NotFound(_)) => Ok(()),
            Err(conflict @ Error::Conflict(_)) => match self.get::<wire::Object>(client, name).await {
                Ok(object) if object.metadata.uid == uid && !object.metadata.is_deleting() => Err(conflict),
                Ok(_) | Err(Error::NotFound(_)) => Ok(()),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        }
    }
}

/// Parameters of a patch: our field manager.
fn patch_params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() }
}

/// Creates a `SelfSubjectAccessReview`. The answer is in its status; the API server stores nothing.
pub(crate) async fn create_review<T: DeserializeOwned>(client: &Client, review: &Value) -> Result<T, Error> {
    let kind = Kind::new("authorization.k8s.io/v1", "SelfSubjectAccessReview");
    ResourcePath::of(&kind, "selfsubjectaccessreviews", "").create(client, review).await
}

/// Reads the warnings among the Events about one object.
pub(crate) async fn warnings_about(
    client: &Client,
    namespace: &str,
    uid: &str,
) -> Result<Vec<wire::ObjectEvent>, Error> {
    #[derive(Deserialize)]
    struct Events {
        items: Vec<wire::ObjectEvent>,
    }
    let path = ResourcePath::of(&Kind::new("v1", "Event"), "events", namespace).path;
    let selector = escape(&format!("involvedObject.uid={uid},type=Warning"));
    let events: Events = get(client, &format!("{path}?fieldSelector={selector}&limit=100")).await?;
    Ok(events.items)
}

/// Reads any URL path.
pub(crate) async fn get<T: DeserializeOwned>(client: &Client, path: &str) -> Result<T, Error> {
    let request = http_get(path).map_err(|error| Error::Refused(error.to_string()))?;
    send(client, request).await
}

fn http_get(path: &str) -> Result<http::Request<Vec<u8>>, http::Error> {
    http::Request::get(path).header(http::header::ACCEPT, "application/json").body(Vec::new())
}

async fn call<T: DeserializeOwned>(
    client: &Client,
    request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
) -> Result<T, Error> {
    let request = request.map_err(|error| Error::Refused(error.to_string()))?;
    send(client, request).await
}

/// Sends a request and decodes the answer. `Client::request` is not used: it logs answers that it cannot decode.
async fn send<T: DeserializeOwned>(client: &Client, request: http::Request<Vec<u8>>) -> Result<T, Error> {
    match tokio::time::timeout(CALL_TIMEOUT, client.request_text(request)).await {
        Ok(answer) => {
            serde_json::from_str(&answer?).map_err(|error| Error::Unreachable(error::undecodable(&error)))
        }
        Err(_) => Err(Error::Unreachable(format!("no answer within {} s", CALL_TIMEOUT.as_secs()))),
    }
}

/// Escapes a text so that it is one segment of a path, whatever it contains.
fn escape(text: &str) -> String {
    let is_dots = text.bytes().all(|b| b == b'.');
    let escape_byte = |b: u8| match b {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'~' => char::from(b).to_string(),
        b'.' if !is_dots => ".".into(),
        _ => format!("%{b:02X}"),
    };
    text.bytes().map(escape_byte).collect()
}

fn bytes(object: &Value) -> Vec<u8> {
    object.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_of_an_object_leaves_its_segment_of_the_path() {
        let path = |api_version: &str, namespace: &str| {
            ResourcePath::of(&Kind::new(api_version, "Job"), "jobs", namespace).path
        };
        assert_eq!(path("batch/v1", "a.b-c"), "/apis/batch/v1/namespaces/a.b-c/jobs");
        assert_eq!(path("../..", ".."), "/apis/%2E%2E/%2E%2E/namespaces/%2E%2E/jobs");
        assert_eq!(
            path("v1?x=#a b", "ä/b"),
            "/apis/v1%3Fx%3D%23a%20b/namespaces/%C3%A4%2Fb/jobs".replace("/apis", "/api")
        );
    }
}
