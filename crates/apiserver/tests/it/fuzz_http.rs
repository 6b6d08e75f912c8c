//! Fuzz test of the server with valid, mutated and random requests. The server must not panic, every error is a
//! `Status` object, and replaying the change log gives the stored objects.
//!
//! `FUZZ_HTTP_CASES=20000 cargo test --release -p apiserver fuzz_http::` runs more cases than the default.

use crate::requests;
use std::collections::BTreeMap;

use crate::harness::Cluster;
use crate::requests::FuzzRequest;
use apiserver::{Pull, Reply};
use http::Request;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::Value;

/// The collections whose change log is checked, including custom resources.
const COLLECTIONS: &[&str] = &[
    "/api/v1/pods",
    "/api/v1/namespaces",
    "/api/v1/configmaps",
    "/api/v1/nodes",
    "/apis/apps/v1/deployments",
    "/apis/batch/v1/jobs",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/x.dev/v1/things",
];

/// The objects of a collection by namespace and name, with the revision of the list.
#[derive(Debug, Clone, PartialEq)]
struct State {
    revision: u64,
    objects: BTreeMap<String, Value>,
}

/// An object without `kind` and `apiVersion`, which items of built-in lists omit.
fn untyped(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    object
}

fn key(object: &Value) -> String {
    let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
    format!("{}/{}", text("namespace"), text("name"))
}

/// Lists a collection; `None` if it is not served.
fn list(cluster: &mut Cluster, path: &str) -> Option<State> {
    let answer = cluster.get(path);
    if answer.code == 404 {
        return None;
    }
    assert_eq!(answer.code, 200, "{path}: {}", answer.text);
    let revision = answer.body["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse().ok());
    let revision: u64 = revision.expect("a list has a revision");
    let objects = answer.body["items"].as_array().expect("a list has items");
    for object in objects {
        let own = object["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse::<u64>().ok());
        assert!(own.is_some_and(|own| own <= revision), "{object} is newer than its list of {revision}");
        assert!(object["metadata"]["uid"].is_string(), "{object} has no uid");
    }
    let objects = objects.iter().map(|object| (key(object), untyped(object))).collect();
    Some(State { revision, objects })
}

/// Applies the watch events after `from` to its objects.
fn replay(cluster: &mut Cluster, path: &str, from: &State) -> Option<BTreeMap<String, Value>> {
    let watch = format!("{path}?watch=true&resourceVersion={}", from.revision);
    let Reply::Watch(mut watch) = cluster.raw(Request::get(watch).body("".into()).expect("a valid request"))
    else {
        return None;
    };
    let mut objects = from.objects.clone();
    let mut seen = from.revision;
    for event in cluster.events(&mut watch) {
        let object = untyped(&event["object"]);
        let revision = object["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse::<u64>().ok());
        let known = objects.contains_key(&key(&object));
        match event["type"].as_str() {
            Some("ADDED") if !known => objects.insert(key(&object), object),
            Some("MODIFIED") if known => objects.insert(key(&object), object),
            Some("DELETED") if known => objects.remove(&key(&object)),
            _ => panic!("{path}: unexpected event {event}"),
        };
        assert!(revision.is_some_and(|revision| revision > seen), "{path}: {event} after {seen}");
        seen = revision.unwrap_or(seen);
    }
    Some(objects)
}

fn check_answer(sent: &FuzzRequest, code: u16, content_type: &str, body: &[u8]) {
    assert!((200..600).contains(&code), "{sent:?}: {code}");
    if code < 400 {
        return;
    }
    if code == 404 && content_type.starts_with("text/plain") {
        return;
    }
    let status: Value = if content_type == "application/yaml" {
        let text = std::str::from_utf8(body).expect("YAML is UTF-8");
        serde_saphyr::from_str(text).unwrap_or_else(|e| panic!("{sent:?}: {e}"))
    } else {
        serde_json::from_slice(body).unwrap_or_else(|e| panic!("{sent:?}: {e}"))
    };
    assert_eq!(status["kind"], "Status", "{sent:?}: {status}");
    assert_eq!(status["status"], "Failure", "{sent:?}: {status}");
    assert_eq!(status["code"], code, "{sent:?}: {status}");
    assert!(status["message"].as_str().is_some_and(|message| !message.is_empty()), "{sent:?}: {status}");
}

fn send(cluster: &mut Cluster, sent: &FuzzRequest) {
    // Skip requests that the HTTP library rejects.
    let Some(request) = sent.request() else { return };
    match cluster.raw(request) {
        Reply::Response(response) => {
            let content_type = response.headers().get(http::header::CONTENT_TYPE);
            let content_type = content_type.and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
            check_answer(sent, response.status().as_u16(), &content_type, response.body());
        }
        Reply::Aggregated(_) => panic!("{sent:?}: no group is aggregated"),
        Reply::Watch(mut watch) => {
            for _ in 0..1_000 {
                match cluster.server.pull(cluster.now, &mut watch) {
                    Pull::Chunk(bytes) => {
                        for event in serde_json::Deserializer::from_slice(&bytes).into_iter::<Value>() {
                            let event = event.unwrap_or_else(|e| panic!("{sent:?}: {e}"));
                            assert!(event["type"].is_string() && event["object"].is_object(), "{event}");
                        }
                    }
                    Pull::Idle(_) | Pull::End => return,
                }
            }
            panic!("{sent:?}: the watch does not become idle");
        }
    }
}

/// Sends all requests, then checks that the watch events after each earlier list lead to the current objects.
fn check_requests(requests: &[FuzzRequest]) {
    let mut cluster = Cluster::new();
    requests::seed(&mut cluster);
    let mut states: Vec<(&str, State)> = Vec::new();
    let mut revision = 0;
    for (index, sent) in requests.iter().enumerate() {
        if index % 5 == 0 {
            let path = COLLECTIONS[index / 5 % COLLECTIONS.len()];
            let state = list(&mut cluster, path);
            assert!(state.as_ref().is_none_or(|state| state.revision >= revision), "the revision decreases");
            revision = state.as_ref().map_or(revision, |state| state.revision);
            states.extend(state.map(|state| (path, state)));
        }
        send(&mut cluster, sent);
        if index % 3 == 0 {
            cluster.advance(1);
            cluster.settle();
        }
    }
    for (path, state) in &states {
        let Some(now) = list(&mut cluster, path) else { continue };
        // The change log is lost if the definition of the collection was deleted and created again.
        let Some(replayed) = replay(&mut cluster, path, state) else { continue };
        assert_eq!(replayed, now.objects, "{path} from {}", state.revision);
    }
}

#[test]
fn random_requests_do_not_panic_and_watches_replay_to_the_current_state() {
    let cases = std::env::var("FUZZ_HTTP_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(48);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let result =
        TestRunner::new(config).run(&prop::collection::vec(requests::request(), 1..40), |requests| {
            check_requests(&requests);
            Ok(())
        });
    if let Err(error) = result {
        panic!("{error}");
    }
}
