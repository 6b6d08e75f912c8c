//! Request generators of the fuzz test: valid requests, mutations of valid requests, and random ones.

use bytes::Bytes;
use http::Request;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};

use crate::harness::Cluster;

/// A generated request.
#[derive(Clone)]
pub(crate) struct FuzzRequest {
    method: String,
    uri: String,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl std::fmt::Debug for FuzzRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let body = String::from_utf8_lossy(&self.body[..self.body.len().min(2_000)]);
        write!(f, "{} {} {:?} {body:?}", self.method, self.uri, self.headers)
    }
}

impl FuzzRequest {
    /// The HTTP request; `None` if the HTTP library rejects it.
    pub(crate) fn request(&self) -> Option<Request<Bytes>> {
        let mut request = Request::builder().method(self.method.as_str()).uri(self.uri.as_str());
        for (name, value) in &self.headers {
            request = request.header(*name, value.as_bytes());
        }
        request.body(Bytes::from(self.body.clone())).ok()
    }
}

/// Valid objects, with the path of their collection.
fn manifests() -> Vec<(&'static str, Value)> {
    let pod = json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}},
        "ports": [{"containerPort": 80}], "env": [{"name": "A", "value": "1"}]}]});
    let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": pod});
    let selector = json!({"matchLabels": {"app": "a"}});
    let mut job_template = template.clone();
    job_template["spec"]["restartPolicy"] = "Never".into();
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u"}]);
    let object = |api_version: &str, kind: &str, rest: Value| {
        let mut object = json!({"apiVersion": api_version, "kind": kind,
            "metadata": {"name": "a", "labels": {"l": "1"}, "annotations": {"n": "1"}}});
        for (name, field) in rest.as_object().expect("fields of an object") {
            object[name] = field.clone();
        }
        object
    };
    let mut owned = object("v1", "ConfigMap", json!({"data": {"k": "v"}}));
    owned["metadata"]["ownerReferences"] = owner;
    owned["metadata"]["finalizers"] = json!(["x.dev/f"]);
    vec![
        ("/api/v1/namespaces/default/pods", object("v1", "Pod", json!({"spec": pod}))),
        ("/api/v1/namespaces/default/configmaps", object("v1", "ConfigMap", json!({"data": {"k": "v"}}))),
        ("/api/v1/namespaces/default/configmaps", owned),
        ("/api/v1/namespaces/default/secrets", object("v1", "Secret", json!({"data": {"k": "dg=="}}))),
        (
            "/api/v1/namespaces/default/services",
            object("v1", "Service", json!({"spec": {"selector": {"a": "b"}, "ports": [{"port": 80}]}})),
        ),
        ("/api/v1/namespaces", object("v1", "Namespace", json!({}))),
        ("/api/v1/nodes", object("v1", "Node", json!({"status": {"capacity": {"cpu": "4"}}}))),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            object(
                "apps/v1",
                "Deployment",
                json!({"spec": {"replicas": 2, "selector": selector, "template": template}}),
            ),
        ),
        (
            "/apis/batch/v1/namespaces/default/jobs",
            object("batch/v1", "Job", json!({"spec": {"suspend": true, "template": job_template}})),
        ),
        (
            "/apis/batch/v1/namespaces/default/cronjobs",
            object(
                "batch/v1",
                "CronJob",
                json!({"spec": {"schedule": "* * * * *",
                "jobTemplate": {"spec": {"template": job_template}}}}),
            ),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            object(
                "rbac.authorization.k8s.io/v1",
                "ClusterRole",
                json!({"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}),
            ),
        ),
        (
            "/apis/coordination.k8s.io/v1/namespaces/default/leases",
            object("coordination.k8s.io/v1", "Lease", json!({"spec": {"holderIdentity": "x"}})),
        ),
        (
            "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers",
            object(
                "autoscaling/v1",
                "HorizontalPodAutoscaler",
                json!({"spec": {"maxReplicas": 3,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}}}),
            ),
        ),
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition()),
        (
            "/apis/x.dev/v1/namespaces/default/things",
            object("x.dev/v1", "Thing", json!({"spec": {"size": 1}})),
        ),
    ]
}

/// A custom resource definition with defaults, list types, a scale subresource and printer columns.
fn definition() -> Value {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "size": {"type": "integer", "minimum": 0, "default": 3},
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}},
            "any": {"x-kubernetes-preserve-unknown-fields": true}}},
        "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.x.dev"},
        "spec": {"group": "x.dev", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema},
                "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size",
                    "statusReplicasPath": ".status.ready"}}}]}})
}

/// Creates the custom resource definition and one object of each kind.
pub(crate) fn seed(cluster: &mut Cluster) {
    cluster.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition());
    cluster.settle();
    for (path, manifest) in manifests() {
        cluster.post(path, manifest);
    }
}

/// Generates a request.
pub(crate) fn request() -> impl Strategy<Value = FuzzRequest> {
    let manifest = select(manifests());
    (manifest, verb(), uri_suffix(), headers(), any::<Mutation>(), noise_body()).prop_map(
        |(
            (collection, mut manifest),
            (method, content_type, shape),
            (tail, query),
            mut headers,
            mutation,
            noise,
        )| {
            let name =
                if manifest["kind"] == "CustomResourceDefinition" { "things.x.dev" } else { mutation.name };
            manifest["metadata"]["name"] = name.into();
            let body = match mutation.kind % 8 {
                0 => noise,
                1..4 => body_for(shape, &manifest),
                _ => mutation.apply(body_for(shape, &manifest)),
            };
            let of_object = match method {
                "POST" => mutation.path % 8 == 0,
                "GET" | "HEAD" => mutation.path % 2 == 0,
                _ => mutation.path % 8 != 0,
            };
            let mut uri = match mutation.path {
                0..16 => tail.clone(),
                _ if of_object => format!("{collection}/{name}"),
                _ => collection.to_owned(),
            };
            if of_object && mutation.path % 3 == 0 {
                uri += &tail;
            }
            if mutation.path % 5 < 3 {
                uri += &query;
            }
            if headers.iter().all(|(name, _)| *name != "content-type") {
                headers.push(("content-type", content_type.into()));
            }
            FuzzRequest { method: method.into(), uri, headers, body }
        },
    )
}

/// The format of a body.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Whole,
    Yaml,
    Protobuf,
    JsonPatch,
    Merge,
    Options,
}

fn body_for(shape: Shape, manifest: &Value) -> Vec<u8> {
    match shape {
        Shape::Whole => manifest.to_string().into_bytes(),
        Shape::Yaml => serde_saphyr::to_string(manifest).unwrap_or_default().into_bytes(),
        Shape::Protobuf => protobuf(manifest),
        Shape::Merge => {
            let mut patch = manifest.clone();
            patch["metadata"]["labels"]["m"] = Value::Null;
            patch["spec"]["$patch"] = "replace".into();
            patch.to_string().into_bytes()
        }
        Shape::JsonPatch => json!([
            {"op": "test", "path": "/kind", "value": manifest["kind"]},
            {"op": "add", "path": "/metadata/labels/j", "value": "1"},
            {"op": "copy", "from": "/metadata", "path": "/spec"},
            {"op": "remove", "path": "/metadata/annotations"},
            {"op": "replace", "path": "/metadata/managedFields", "value": [{}]},
        ])
        .to_string()
        .into_bytes(),
        Shape::Options => json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 1,
            "propagationPolicy": "Foreground", "preconditions": {"uid": "u"}, "dryRun": ["All"]})
        .to_string()
        .into_bytes(),
    }
}

/// The object in protobuf, with only its type and name.
fn protobuf(manifest: &Value) -> Vec<u8> {
    let field = |number: u8, bytes: &[u8]| {
        let length = u8::try_from(bytes.len().min(127)).expect("at most 127");
        [&[number << 3 | 2, length], &bytes[..usize::from(length)]].concat()
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().as_bytes().to_vec();
    let type_meta = [field(1, &text(&manifest["apiVersion"])), field(2, &text(&manifest["kind"]))].concat();
    let metadata = field(1, &field(1, &text(&manifest["metadata"]["name"])));
    [b"k8s\0".to_vec(), field(1, &type_meta), field(2, &metadata)].concat()
}

fn verb() -> impl Strategy<Value = (&'static str, &'static str, Shape)> {
    select(vec![
        ("GET", "application/json", Shape::Whole),
        ("POST", "application/json", Shape::Whole),
        ("POST", "application/yaml", Shape::Yaml),
        ("POST", "application/vnd.kubernetes.protobuf", Shape::Protobuf),
        ("PUT", "application/vnd.kubernetes.protobuf", Shape::Protobuf),
        ("PUT", "application/json", Shape::Whole),
        ("PUT", "application/yaml", Shape::Yaml),
        ("PATCH", "application/json-patch+json", Shape::JsonPatch),
        ("PATCH", "application/merge-patch+json", Shape::Merge),
        ("PATCH", "application/strategic-merge-patch+json", Shape::Merge),
        ("PATCH", "application/apply-patch+yaml", Shape::Yaml),
        ("PATCH", "application/apply-patch+yaml", Shape::Whole),
        ("DELETE", "application/json", Shape::Options),
        ("HEAD", "application/json", Shape::Whole),
        ("BREW", "text/html", Shape::Whole),
    ])
}

fn headers() -> impl Strategy<Value = Vec<(&'static str, String)>> {
    let known = select(vec![
        ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"),
        ("accept", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"),
        ("accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"),
        ("accept", "application/vnd.kubernetes.protobuf,application/json"),
        ("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"),
        ("accept", "application/yaml"),
        ("accept", "text/html"),
        ("accept", "*/*;q=x,;;,"),
        ("content-type", "application/json; charset=utf-8"),
        ("content-type", ""),
        ("if-none-match", "\"x\""),
        ("user-agent", "/"),
    ])
    .prop_map(|(name, value)| (name, value.to_owned()));
    let odd = (select(vec!["accept", "content-type", "user-agent", "if-none-match"]), "[ -~]{0,40}");
    prop::collection::vec(prop_oneof![4 => known, 1 => odd], 0..3)
}

/// Generates the path after an object name, and the query.
fn uri_suffix() -> impl Strategy<Value = (String, String)> {
    let tail = prop_oneof![
        4 => select(vec!["/status", "/scale", "/log", "/eviction", "/binding", "/finalize", "/token", "/x/y", "/", "//"])
            .prop_map(str::to_owned),
        1 => select(vec!["/api", "/apis", "/api/v1", "/apis/apps/v1", "/openapi/v3", "/openapi/v2", "/version", "/readyz",
            "/openapi/v3/apis/apps/v1", "/apis/x.dev/v1", "/apis/apiextensions.k8s.io/v1", "/metrics"])
            .prop_map(str::to_owned),
        1 => "(/[a-z%0-9.]{0,8}){0,6}",
    ];
    let parameter = prop_oneof![
        6 => select(vec![
            "watch=true", "watch=1", "limit=1", "limit=-1", "limit=99999999999999999999", "resourceVersion=0",
            "resourceVersion=1", "resourceVersion=99999", "resourceVersion=x", "resourceVersionMatch=Exact",
            "resourceVersionMatch=NotOlderThan", "sendInitialEvents=true", "allowWatchBookmarks=true", "dryRun=All",
            "dryRun=Some", "fieldManager=fuzz", "force=true", "fieldValidation=Strict", "fieldValidation=x",
            "labelSelector=l=1", "labelSelector=l in (1,2),!x", "labelSelector=((", "fieldSelector=metadata.name=a",
            "fieldSelector=spec.nodeName!=x", "fieldSelector=a=b=c,,", "continue=x", "timeoutSeconds=0",
            "timeoutSeconds=-5", "gracePeriodSeconds=0", "gracePeriodSeconds=-9223372036854775808",
            "gracePeriodSeconds=9223372036854775807", "propagationPolicy=Foreground", "orphanDependents=true",
            "pretty=true", "includeObject=Object", "includeObject=None", "tailLines=1", "container=c",
            "sinceSeconds=-1",
        ])
        .prop_map(str::to_owned),
        1 => "[a-zA-Z]{0,8}(=[a-zA-Z0-9%,!=.()-]{0,12})?",
    ];
    let query = prop::collection::vec(parameter, 0..4).prop_map(|parameters| {
        let encoded = parameters.join("&").replace(' ', "%20");
        if encoded.is_empty() { encoded } else { format!("?{encoded}") }
    });
    (tail, query)
}

fn noise_body() -> impl Strategy<Value = Vec<u8>> {
    let nested = |open: &'static str, close: &'static str| {
        (1_usize..3_000).prop_map(move |depth| (open.repeat(depth) + &close.repeat(depth)).into_bytes())
    };
    prop_oneof![
        Just(Vec::new()),
        prop::collection::vec(any::<u8>(), 0..64),
        prop::collection::vec(any::<u8>(), 0..64).prop_map(|tail| [b"k8s\0".as_slice(), &tail].concat()),
        nested("[", "]"),
        nested("{\"a\":", "}"),
        nested("- ", ""),
        select(vec![
            "null",
            "[]",
            "{}",
            "1e999999",
            "\"\\ud800\"",
            "{\"a\":1,\"a\":2}",
            "[{}]",
            "[1]",
            "&a [*a]",
            "a: &a\n  b: *a",
            "{\"metadata\":null}",
            "{\"kind\":1}",
            "--- \n---\n",
            "!!binary x",
            "123456789012345678901234567890",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
    ]
}

/// A mutation of a valid body.
#[derive(Debug, Clone)]
struct Mutation {
    kind: u8,
    path: u8,
    name: &'static str,
    at: Vec<Index>,
    with: Value,
    cut: Index,
}

impl Arbitrary for Mutation {
    type Parameters = ();
    type Strategy = BoxedStrategy<Self>;

    fn arbitrary_with((): ()) -> Self::Strategy {
        let with = select(vec![
            json!(null),
            json!(true),
            json!(-1),
            json!(i64::MAX),
            json!(1e300),
            json!(""),
            json!("x"),
            json!("\u{0}\u{7f}é"),
            json!("a/b//c"),
            json!([]),
            json!([[]]),
            json!([null]),
            json!({}),
            json!({"": ""}),
            json!([{"name": "a"}, {"name": "a"}]),
            json!("9".repeat(300)),
        ]);
        let name = select(vec!["a", "a", "a", "b", "c"]);
        (any::<u8>(), any::<u8>(), name, prop::collection::vec(any::<Index>(), 1..6), with, any::<Index>())
            .prop_map(|(kind, path, name, at, with, cut)| Self { kind, path, name, at, with, cut })
            .boxed()
    }
}

impl Mutation {
    fn apply(&self, mut body: Vec<u8>) -> Vec<u8> {
        match self.kind % 8 {
            // Replace a byte, or truncate the body.
            4 if !body.is_empty() => {
                let at = self.cut.index(body.len());
                body[at] = self.kind;
                body
            }
            5 if !body.is_empty() => {
                body.truncate(self.cut.index(body.len()));
                body
            }
            // Replace or add a node of the JSON value.
            _ => match serde_json::from_slice::<Value>(&body) {
                Ok(mut value) => {
                    self.mutate(&mut value);
                    value.to_string().into_bytes()
                }
                Err(_) => body,
            },
        }
    }

    fn mutate(&self, value: &mut Value) {
        let mut node = value;
        for step in &self.at {
            let size = match node {
                Value::Array(items) => items.len(),
                Value::Object(fields) => fields.len(),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
            };
            if size == 0 {
                break;
            }
            let at = step.index(size);
            node = match node {
                Value::Array(items) => &mut items[at],
                Value::Object(fields) => {
                    fields.values_mut().nth(at).expect("there are more fields than that")
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                    unreachable!("scalars have no size")
                }
            };
        }
        match (self.kind, node) {
            (0..64, Value::Object(fields)) => {
                fields.insert("unknown".into(), self.with.clone());
            }
            (_, node) => *node = self.with.clone(),
        }
    }
}
