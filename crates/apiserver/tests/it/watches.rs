//! Watches: replay, selectors, bookmarks, compaction, and wake-ups by the service.

use std::sync::Arc;

use crate::harness::{CONFIG_MAPS, Cluster, config_map};
use apiserver::{ApiServer, Config, Pull, Service};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::json;
use tower::ServiceExt as _;

#[test]
fn a_watch_from_a_resource_version_replays_later_changes_then_streams() {
    let mut cluster = Cluster::new();
    let first = cluster.create(CONFIG_MAPS, config_map("a"));
    cluster.create(CONFIG_MAPS, config_map("b"));
    let version = first["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = cluster.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={version}"));
    assert_eq!(cluster.event_summaries(&mut watch), ["ADDED b"]);
    cluster.merge(&format!("{CONFIG_MAPS}/a"), json!({ "data": { "b": "2" } }));
    cluster.delete(&format!("{CONFIG_MAPS}/b"));
    assert_eq!(cluster.event_summaries(&mut watch), ["MODIFIED a", "DELETED b"]);
}

#[test]
fn an_object_that_starts_or_stops_matching_the_selector_gives_added_or_deleted() {
    let mut cluster = Cluster::new();
    let path = format!("{CONFIG_MAPS}/a");
    cluster.create(CONFIG_MAPS, config_map("a"));
    let mut watch = cluster.watch(&format!("{CONFIG_MAPS}?watch=true&labelSelector=x%3D1"));
    assert!(cluster.event_summaries(&mut watch).is_empty());
    cluster.merge(&path, json!({ "metadata": { "labels": { "x": "1" } } }));
    cluster.merge(&path, json!({ "data": { "b": "2" } }));
    let left = cluster.merge(&path, json!({ "metadata": { "labels": { "x": "2" } } })).body;
    let events = cluster.events(&mut watch);
    let types: Vec<&str> = events.iter().map(|e| e["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["ADDED", "MODIFIED", "DELETED"]);
    assert_eq!(events[2]["object"]["metadata"]["resourceVersion"], left["metadata"]["resourceVersion"]);
    assert_eq!(events[2]["object"]["metadata"]["labels"]["x"], "1");
}

#[test]
fn a_restart_ends_watches_and_expires_their_resource_versions() {
    let mut cluster = Cluster::new();
    let first = cluster.create(CONFIG_MAPS, config_map("a"));
    let version = first["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let from = |version: &str| format!("{CONFIG_MAPS}?watch=true&resourceVersion={version}");
    let mut before = cluster.watch(&from(&version));
    cluster.create(CONFIG_MAPS, config_map("b"));
    cluster.server.restart();
    assert!(matches!(cluster.server.pull(cluster.now, &mut before), Pull::End));
    let mut behind = cluster.watch(&from(&version));
    let events = cluster.events(&mut behind);
    assert_eq!((&events[0]["type"], &events[0]["object"]["code"]), (&json!("ERROR"), &json!(410)));
    // A new list returns the current state, and a watch can start from its resource version.
    let list = cluster.get(CONFIG_MAPS).body;
    let names: Vec<_> = list["items"].as_array().unwrap().iter().map(|i| &i["metadata"]["name"]).collect();
    assert_eq!(names, ["a", "b", "kube-root-ca.crt"]);
    let mut after = cluster.watch(&from(list["metadata"]["resourceVersion"].as_str().unwrap()));
    cluster.create(CONFIG_MAPS, config_map("c"));
    assert_eq!(cluster.event_summaries(&mut after), ["ADDED c"]);
}

#[test]
fn a_streaming_list_sends_a_bookmark_after_the_initial_events() {
    let mut cluster = Cluster::new();
    cluster.create(CONFIG_MAPS, config_map("a"));
    let query =
        "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = cluster.watch(&format!("{CONFIG_MAPS}?{query}&fieldSelector=metadata.name%3Da"));
    let events = cluster.events(&mut watch);
    assert_eq!(events[0]["type"], "ADDED");
    assert_eq!(events[1]["type"], "BOOKMARK");
    assert_eq!(events[1]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
}

#[tokio::test(start_paused = true)]
async fn a_write_through_the_service_wakes_the_watches_of_the_resource() {
    let service =
        Service::new(ApiServer::new(Config::default()), Arc::new(|| "2026-01-02T03:04:05Z".parse().unwrap()));
    let path = format!("{CONFIG_MAPS}?watch=true&resourceVersion=0&fieldSelector=metadata.name%3Da");
    let request = Request::get(path).body(Full::new(Bytes::new())).unwrap();
    let mut stream = service.clone().oneshot(request).await.unwrap().into_body();
    let reader = tokio::spawn(async move { stream.frame().await.unwrap().unwrap().into_data().unwrap() });
    tokio::task::yield_now().await;
    let body = Full::new(Bytes::from(config_map("a").to_string()));
    let created = service.oneshot(Request::post(CONFIG_MAPS).body(body).unwrap()).await.unwrap();
    assert_eq!(created.status(), 201);
    let event = reader.await.unwrap();
    assert!(event.starts_with(b"{\"type\":\"ADDED\""), "{event:?}");
}

#[test]
fn a_watch_from_a_compacted_resource_version_sends_expired_and_ends() {
    let mut cluster = Cluster::with(Config { history_changes: 3, ..Config::default() });
    for at in 0..6 {
        cluster.create(CONFIG_MAPS, config_map(&format!("m{at}")));
    }
    let mut watch = cluster.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion=2"));
    let events = cluster.events(&mut watch);
    assert_eq!((&events[0]["type"], &events[0]["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(events[0]["object"]["reason"], "Expired");
    assert!(matches!(cluster.server.pull(cluster.now, &mut watch), apiserver::Pull::End));
}

#[test]
fn a_watch_without_events_sends_bookmarks_and_ends_at_its_timeout() {
    let mut cluster = Cluster::new();
    let path =
        format!("{CONFIG_MAPS}?watch=true&allowWatchBookmarks=true&timeoutSeconds=90&resourceVersion=");
    let version = cluster.get(CONFIG_MAPS).body["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let mut watch = cluster.watch(&format!("{path}{version}"));
    assert!(cluster.events(&mut watch).is_empty());
    cluster.create("/api/v1/namespaces", json!({ "metadata": { "name": "elsewhere" } }));
    cluster.advance(61);
    let events = cluster.events(&mut watch);
    assert_eq!((&events[0]["type"], &events[0]["object"]["kind"]), (&json!("BOOKMARK"), &json!("ConfigMap")));
    let told: u64 = events[0]["object"]["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    assert!(told > version.parse().unwrap(), "a bookmark has the newest revision");
    cluster.advance(30);
    assert!(matches!(cluster.server.pull(cluster.now, &mut watch), apiserver::Pull::End));
}
