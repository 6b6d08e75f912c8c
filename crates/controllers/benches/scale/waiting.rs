//! AppWrappers that exist in the answers to the controller only, so that a million of them need no API server.
//!
//! They are copies of one pending AppWrapper of the API server, with its status.

use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Collected};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

const WRAPPERS: &str = "/apis/mcad.ibm.com/v1beta1/appwrappers";
/// Part of the path of each copy, and of the token of each page of copies.
const COPY: &str = "copy-";
const PAGE: usize = 500;

/// Adds copies to the list of AppWrappers, and accepts their changes.
#[derive(Clone)]
pub(crate) struct Copies {
    pub(crate) client: Client,
    pub(crate) count: usize,
    /// The list without copies, as read at first.
    pub(crate) list: std::sync::Arc<tokio::sync::OnceCell<Value>>,
}

impl Copies {
    /// Answers a request.
    pub(crate) async fn answer(self, request: Request<Body>) -> kube::Result<Response<Body>> {
        let uri = request.uri().to_string();
        let is_list = request.uri().path() == WRAPPERS && !uri.contains("watch=true");
        if self.count > 0 && is_list {
            return self.page(&uri).await;
        }
        if request.uri().path().contains(&format!("/{COPY}")) && request.method() == Method::PATCH {
            return self.changed(request).await;
        }
        self.client.send(request).await
    }

    /// A page: first the objects of the API server, then copies.
    async fn page(&self, uri: &str) -> kube::Result<Response<Body>> {
        let list = self.list.get_or_try_init(|| self.read()).await?;
        let from = uri.split_once(&format!("continue={COPY}")).map_or("", |(_, rest)| rest);
        let from: Option<usize> = from.split('&').next().and_then(|digits| digits.parse().ok());
        let items: Vec<Value> = match from {
            None => list["items"].as_array().cloned().unwrap_or_default(),
            Some(from) => (from..self.count.min(from + PAGE)).map(|at| copy(list, at)).collect(),
        };
        let next = from.map_or(0, |from| from + PAGE);
        let mut page = json!({ "kind": "AppWrapperList", "apiVersion": "mcad.ibm.com/v1beta1", "items": items,
            "metadata": { "resourceVersion": list["metadata"]["resourceVersion"] } });
        if next < self.count {
            page["metadata"]["continue"] = json!(format!("{COPY}{next}"));
        }
        Ok(ok(&page))
    }

    async fn read(&self) -> kube::Result<Value> {
        let request = Request::get(WRAPPERS).body(Vec::new()).expect("a request");
        self.client.request(request).await
    }

    /// The answer to a patch of a copy.
    async fn changed(&self, request: Request<Body>) -> kube::Result<Response<Body>> {
        let path = request.uri().path().to_owned();
        let at = path.split(COPY).nth(1).and_then(|rest| rest.split('/').next()?.parse().ok()).unwrap_or(0);
        let list = self.list.get_or_try_init(|| self.read()).await?;
        let mut object = copy(list, at);
        let body = request.into_body().collect().await.map(Collected::to_bytes).unwrap_or_default();
        let patch: Value = serde_json::from_slice(&body).unwrap_or_default();
        if patch["status"].is_object() {
            object["status"] = patch["status"].clone();
        }
        let version = object["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse::<u64>().ok());
        object["metadata"]["resourceVersion"] = json!((version.unwrap_or(0) + 1).to_string());
        Ok(ok(&object))
    }
}

/// A copy of the last AppWrapper that is pending.
fn copy(list: &Value, at: usize) -> Value {
    let mut items = list["items"].as_array().into_iter().flatten();
    let mut object = items.rfind(|item| item["status"]["state"] == "Pending").cloned().unwrap_or_default();
    object["metadata"]["name"] = json!(format!("{COPY}{at}"));
    object["metadata"]["uid"] = json!(format!("{COPY}{at:08}"));
    object
}

fn ok(value: &Value) -> Response<Body> {
    let response = Response::builder().status(StatusCode::OK).header("content-type", "application/json");
    response.body(Body::from(value.to_string().into_bytes())).expect("a response")
}
