//! A minimal client for tests of [`ApiServer`], with a virtual clock.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, clippy::needless_pass_by_value, reason = "test code")]

use apiserver::{ApiServer, Config, Pull, Reply, User, Watch};
use bytes::Bytes;
use http::{Request, Response};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// A server with its virtual clock and the user of the requests.
pub(crate) struct Cluster {
    pub(crate) server: ApiServer,
    pub(crate) now: Timestamp,
    pub(crate) user: User,
}

/// A response; `body` is the decoded body if it is JSON.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) text: String,
    pub(crate) body: Value,
}

impl Cluster {
    pub(crate) fn new() -> Self {
        Self::with(Config::default())
    }

    pub(crate) fn with(config: Config) -> Self {
        let mut cluster = Self {
            server: ApiServer::new(config),
            now: "2026-01-02T03:04:05.678901Z".parse().unwrap(),
            user: User::admin(),
        };
        cluster.settle();
        cluster
    }

    pub(crate) fn advance(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    /// Runs the built-in controllers until their work queue is empty.
    pub(crate) fn settle(&mut self) {
        for _ in 0..100 {
            if !self.server.run_controllers(self.now) {
                return;
            }
        }
        panic!("the work queue of the controllers does not become empty");
    }

    pub(crate) fn raw(&mut self, request: Request<Bytes>) -> Reply {
        self.server.handle(self.now, &self.user, request)
    }

    pub(crate) fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (key, value) in headers {
            request = request.header(*key, *value);
        }
        match self.raw(request.body(body.into()).unwrap()) {
            Reply::Response(response) => answer(response),
            Reply::Watch(_) | Reply::Aggregated(_) => panic!("{method} {path} is a watch or aggregated"),
        }
    }

    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.send("GET", path, &[], "")
    }

    pub(crate) fn post(&mut self, path: &str, body: Value) -> Answer {
        self.send("POST", path, &[("content-type", "application/json")], body.to_string())
    }

    pub(crate) fn put(&mut self, path: &str, body: Value) -> Answer {
        self.send("PUT", path, &[("content-type", "application/json")], body.to_string())
    }

    pub(crate) fn merge(&mut self, path: &str, body: Value) -> Answer {
        self.send("PATCH", path, &[("content-type", "application/merge-patch+json")], body.to_string())
    }

    pub(crate) fn delete(&mut self, path: &str) -> Answer {
        self.send("DELETE", path, &[], "")
    }

    pub(crate) fn watch(&mut self, path: &str) -> Watch {
        match self.raw(Request::get(path).body(Bytes::new()).unwrap()) {
            Reply::Watch(watch) => *watch,
            Reply::Aggregated(_) => panic!("{path} is aggregated"),
            Reply::Response(response) => panic!("{path} is not a watch: {:?}", answer(response)),
        }
    }

    /// The events that are due.
    pub(crate) fn events(&mut self, watch: &mut Watch) -> Vec<Value> {
        let mut text = Vec::new();
        while let Pull::Chunk(bytes) = self.server.pull(self.now, watch) {
            text.extend_from_slice(&bytes);
        }
        serde_json::Deserializer::from_slice(&text).into_iter().map(Result::unwrap).collect()
    }

    /// Types and object names of the events that are due, e.g. `ADDED a`.
    pub(crate) fn event_summaries(&mut self, watch: &mut Watch) -> Vec<String> {
        let events = self.events(watch);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        events
            .iter()
            .map(|e| format!("{} {}", text(&e["type"]), text(&e["object"]["metadata"]["name"])))
            .collect()
    }

    /// Creates an object; panics if the response is not 201.
    pub(crate) fn create(&mut self, path: &str, body: Value) -> Value {
        let answer = self.post(path, body);
        assert_eq!(answer.code, 201, "{path}: {}", answer.text);
        answer.body
    }
}

impl Answer {
    /// Code and message of a `Status`.
    pub(crate) fn failure(&self) -> (u64, &str) {
        assert_eq!(self.body["kind"], "Status", "{}", self.text);
        (self.code.into(), self.body["message"].as_str().unwrap_or_default())
    }

    /// Names of the items of a list.
    pub(crate) fn names(&self) -> Vec<&str> {
        let items = self.body["items"].as_array().unwrap_or_else(|| panic!("not a list: {}", self.text));
        items.iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
    }
}

pub(crate) fn answer(response: Response<Bytes>) -> Answer {
    let (parts, body) = response.into_parts();
    let text = String::from_utf8(body.to_vec()).unwrap();
    let body = serde_json::from_str(&text).unwrap_or_default();
    Answer { code: parts.status.as_u16(), headers: parts.headers, text, body }
}

pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": { "containers": [{ "name": "main", "image": "busybox" }] },
    })
}

pub(crate) fn config_map(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "a": "1" } })
}

/// A definition of `gadgets.example.com` with the versions `v1` (stored) and `v1alpha1`.
pub(crate) fn gadget_definition() -> Value {
    let schema = json!({ "openAPIV3Schema": {
        "type": "object",
        "properties": {
            "spec": { "type": "object", "properties": {
                "size": { "type": "integer" }, "color": { "type": "string" } } },
            "status": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
        },
    } });
    let version = |name: &str, storage: bool| {
        json!({
            "name": name,
            "served": true,
            "storage": storage,
            "schema": schema,
            "subresources": { "status": {} },
            "selectableFields": [{ "jsonPath": ".spec.color" }],
            "additionalPrinterColumns": [
                { "name": "Size", "type": "integer", "jsonPath": ".spec.size" },
                { "name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1 },
                { "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp" },
            ],
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "gadgets.example.com" },
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": { "plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList",
                       "shortNames": ["gd"], "categories": ["all"] },
            "versions": [version("v1", true), version("v1alpha1", false)],
        },
    })
}

pub(crate) fn gadget(name: &str) -> Value {
    json!({ "apiVersion": "example.com/v1", "kind": "Gadget", "metadata": { "name": name },
            "spec": { "size": 3, "color": "red" } })
}

pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const GADGETS: &str = "/apis/example.com/v1/namespaces/default/gadgets";
