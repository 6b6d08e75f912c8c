//! Lists: pagination, resource versions, selectors and content negotiation.

use crate::harness::{
    CONFIG_MAPS, Cluster, DEFINITIONS, GADGETS, PODS, config_map, gadget, gadget_definition, pod,
};
use apiserver::Config;
use serde_json::json;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

fn cluster_with_three_config_maps() -> Cluster {
    let mut cluster = Cluster::new();
    for name in ["a", "b", "c"] {
        cluster.create("/api/v1/namespaces/kube-public/configmaps", config_map(name));
    }
    cluster
}

const PUBLIC: &str = "/api/v1/namespaces/kube-public/configmaps";

#[test]
fn pages_of_a_list_are_consistent_despite_writes_between_them() {
    let mut cluster = cluster_with_three_config_maps();
    let first = cluster.get(&format!("{PUBLIC}?limit=2"));
    assert_eq!(first.names(), ["a", "b"]);
    assert_eq!(first.body["metadata"]["remainingItemCount"], 2);
    cluster.create(PUBLIC, config_map("bb"));
    cluster.delete(&format!("{PUBLIC}/c"));
    let token = first.body["metadata"]["continue"].as_str().unwrap().to_owned();
    let second = cluster.get(&format!("{PUBLIC}?limit=2&continue={token}"));
    assert_eq!(second.names(), ["c", "kube-root-ca.crt"]);
    assert_eq!(second.body["metadata"]["resourceVersion"], first.body["metadata"]["resourceVersion"]);
    assert_eq!(second.body["metadata"].get("continue"), None);
}

#[test]
fn an_expired_continue_token_returns_a_token_for_an_inconsistent_list() {
    let mut cluster = Cluster::with(Config { history_changes: 5, ..Config::default() });
    for name in ["a", "b", "c"] {
        cluster.create(PUBLIC, config_map(name));
    }
    let first = cluster.get(&format!("{PUBLIC}?limit=2"));
    let token = first.body["metadata"]["continue"].as_str().unwrap().to_owned();
    for at in 0..9 {
        cluster.create(PUBLIC, config_map(&format!("d{at}")));
    }
    let expired = cluster.get(&format!("{PUBLIC}?limit=2&continue={token}"));
    assert_eq!((expired.code, &expired.body["reason"]), (410, &json!("Expired")));
    let token = expired.body["metadata"]["continue"].as_str().unwrap().to_owned();
    assert_eq!(cluster.get(&format!("{PUBLIC}?limit=2&continue={token}")).names(), ["c", "d0"]);
}

#[test]
fn an_exact_resource_version_lists_the_past_and_a_future_one_times_out() {
    let mut cluster = cluster_with_three_config_maps();
    let now = cluster.get(PUBLIC).body["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    cluster.delete(&format!("{PUBLIC}/a"));
    let past = cluster.get(&format!("{PUBLIC}?resourceVersion={now}&resourceVersionMatch=Exact"));
    assert_eq!(past.names(), ["a", "b", "c", "kube-root-ca.crt"]);
    let newer = cluster.get(&format!("{PUBLIC}?resourceVersion={now}&resourceVersionMatch=NotOlderThan"));
    assert_eq!(newer.names(), ["b", "c", "kube-root-ca.crt"]);
    let future = cluster.get(&format!("{PUBLIC}?resourceVersion=99999"));
    assert_eq!(
        (future.code, &future.body["details"]["causes"][0]["reason"]),
        (504, &json!("ResourceVersionTooLarge"))
    );
}

#[test]
fn invalid_combinations_of_list_options_are_rejected() {
    let mut cluster = Cluster::new();
    for (query, code, part) in [
        (
            "resourceVersionMatch=Exact",
            422,
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        ("resourceVersion=0&resourceVersionMatch=Exact", 422, "is forbidden for resourceVersion \"0\""),
        ("sendInitialEvents=true", 422, "sendInitialEvents is forbidden for list"),
        ("watch=true&sendInitialEvents=true", 422, "requires setting resourceVersionMatch to NotOlderThan"),
        ("resourceVersion=abc", 400, "invalid syntax"),
        ("labelSelector=a%3Db%3Dc", 400, "found '=', expected: ',' or 'end of string'"),
        (
            "fieldSelector=spec.foo%3Dx",
            400,
            "\"spec.foo\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
        ("continue=nonsense", 400, "continue key is not valid"),
        ("limit=x", 400, "invalid syntax"),
    ] {
        let answer = cluster.get(&format!("{CONFIG_MAPS}?{query}"));
        let (found, message) = answer.failure();
        assert!(found == code && message.contains(part), "{query}: {found} {message}");
    }
}

#[test]
fn field_selectors_of_pods_select_by_node_phase_name_and_restart_policy() {
    let mut cluster = Cluster::new();
    for name in ["free", "bound"] {
        cluster.create(PODS, pod(name));
    }
    cluster.post(&format!("{PODS}/bound/binding"), json!({ "target": { "kind": "Node", "name": "n" } }));
    cluster.merge(&format!("{PODS}/bound/status"), json!({ "status": { "phase": "Running" } }));
    for (selector, expected) in [
        ("spec.nodeName=", vec!["free"]),
        ("spec.nodeName!=", vec!["bound"]),
        ("spec.nodeName=n,status.phase!=Succeeded,status.phase!=Failed", vec!["bound"]),
        ("status.phase=Pending", vec!["free"]),
        ("metadata.name=bound", vec!["bound"]),
        ("metadata.name=bound,metadata.namespace=default", vec!["bound"]),
        ("metadata.name!=bound", vec!["free"]),
        ("spec.restartPolicy=Always", vec!["bound", "free"]),
    ] {
        let query = selector.replace('=', "%3D").replace('!', "%21").replace(',', "%2C");
        assert_eq!(cluster.get(&format!("{PODS}?fieldSelector={query}")).names(), expected, "{selector}");
        assert_eq!(
            cluster.get(&format!("/api/v1/pods?fieldSelector={query}")).names(),
            expected,
            "{selector}"
        );
    }
}

#[test]
fn a_table_has_columns_cells_and_metadata() {
    let mut cluster = Cluster::new();
    cluster.create(DEFINITIONS, gadget_definition());
    cluster.settle();
    cluster.create(GADGETS, gadget("g"));
    cluster.advance(75);
    let table = cluster.send("GET", GADGETS, &[("accept", TABLE)], "").body;
    assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    let columns: Vec<_> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| format!("{} {} {}", c["name"].as_str().unwrap(), c["type"].as_str().unwrap(), c["priority"]))
        .collect();
    assert_eq!(columns, ["Name string 0", "Size integer 0", "Color string 1", "Age date 0"]);
    assert_eq!(table["rows"][0]["cells"], json!(["g", 3, "red", "75s"]));
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
}

#[test]
fn a_watch_as_table_sends_column_definitions_once() {
    let mut cluster = Cluster::new();
    let request = http::Request::get(format!("{CONFIG_MAPS}?watch=true&fieldSelector=metadata.name%3Da"))
        .header("accept", TABLE)
        .body(bytes::Bytes::new())
        .unwrap();
    let apiserver::Reply::Watch(mut watch) = cluster.raw(request) else { panic!("no watch") };
    cluster.create(CONFIG_MAPS, config_map("a"));
    cluster.delete(&format!("{CONFIG_MAPS}/a"));
    let events = cluster.events(&mut watch);
    assert!(events[0]["object"]["columnDefinitions"].is_array());
    assert!(events[1]["object"]["columnDefinitions"].is_null());
    assert_eq!(events[1]["object"]["rows"][0]["cells"][0], "a");
}

#[test]
fn a_list_can_be_requested_as_partial_object_metadata() {
    let mut cluster = cluster_with_three_config_maps();
    let list = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let body = cluster.send("GET", PUBLIC, &[("accept", list)], "").body;
    assert_eq!(body["kind"], "PartialObjectMetadataList");
    assert_eq!(
        body["items"][0].as_object().unwrap().keys().collect::<Vec<_>>(),
        ["apiVersion", "kind", "metadata"]
    );
}

#[test]
fn yaml_is_accepted_and_returned() {
    let mut cluster = Cluster::new();
    let body = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: yaml\ndata:\n  a: \"1\"\n";
    let created = cluster.send("POST", CONFIG_MAPS, &[("content-type", "application/yaml")], body);
    assert_eq!(created.code, 201, "{}", created.text);
    let shown = cluster.send("GET", &format!("{CONFIG_MAPS}/yaml"), &[("accept", "application/yaml")], "");
    assert!(shown.text.contains("name: yaml"), "{}", shown.text);
}
