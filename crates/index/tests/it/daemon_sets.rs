//! Pods of `DaemonSet`s are charged to new nodes before they exist.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use api::MicroTime;
use index::{Index, ReferencedChange};
use model::{Amount, ResourceIx};
use serde_json::{Value, json};

const CREATED: &str = "2026-01-01T00:00:00Z";

fn at(seconds: i64) -> MicroTime {
    MicroTime::parse(CREATED).unwrap().plus_s(seconds)
}

fn upsert_node(index: &mut Index, name: &str, created: &str, taints: &Value) {
    let node = json!({"metadata": {"name": name, "uid": name, "creationTimestamp": created, "labels": {"zone": name}},
        "spec": {"taints": taints},
        "status": {"allocatable": {"cpu": "4", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]}});
    index.upsert_node(serde_json::from_value(node).unwrap());
}

fn upsert_set(index: &mut Index, uid: &str, cpu: &str, spec: &Value) {
    let mut spec = spec.clone();
    spec["containers"] = json!([{"name": "c", "resources": {"requests": {"cpu": cpu}}}]);
    let set = json!({"metadata": {"name": uid, "namespace": "kube-system", "uid": uid, "creationTimestamp": CREATED},
        "spec": {"template": {"spec": spec}}});
    index.apply_referenced(ReferencedChange::DaemonSet(serde_json::from_value(set).unwrap()));
}

fn upsert_pod(index: &mut Index, set: &str, node: Option<&str>, cpu: &str) {
    let owner = json!([{"uid": set, "controller": true}]);
    let pod = json!({"metadata": {"name": "p", "namespace": "kube-system", "uid": format!("{set}-pod"), "ownerReferences": owner},
        "spec": {"nodeName": node, "containers": [{"resources": {"requests": {"cpu": cpu}}}]}, "status": {"phase": "Pending"}});
    index.upsert_pod(serde_json::from_value(pod).unwrap());
}

/// The free CPUs of a node, in thousandths.
fn free(index: &mut Index, node: &str, now: MicroTime) -> i64 {
    index.expect_daemon_pods(now);
    index.settle();
    let world = index.world();
    let cpu: ResourceIx = world.resources().get("cpu").unwrap();
    let Amount(free) = world.free(world.node_ix(node).unwrap()).amounts.get(cpu);
    free
}

#[test]
fn a_daemon_is_charged_to_a_new_node_until_it_is_bound_and_then_as_it_is() {
    let mut index = Index::new();
    upsert_set(&mut index, "agent", "1", &json!({}));
    upsert_node(&mut index, "n", CREATED, &json!([]));
    assert_eq!(free(&mut index, "n", at(1)), 3_000);
    upsert_pod(&mut index, "agent", None, "1");
    assert_eq!(free(&mut index, "n", at(2)), 3_000, "it is not bound");
    upsert_pod(&mut index, "agent", Some("n"), "2");
    assert_eq!(free(&mut index, "n", at(3)), 2_000);
    index.delete_pod("agent-pod");
    assert_eq!(free(&mut index, "n", at(4)), 4_000, "an update does not hold its place");
}

#[test]
fn a_daemon_that_does_not_come_is_expected_for_a_limited_time() {
    let mut index = Index::new();
    upsert_set(&mut index, "agent", "1", &json!({}));
    upsert_node(&mut index, "n", "2026-01-01T01:00:00Z", &json!([]));
    assert_eq!(free(&mut index, "n", at(3_601)), 3_000);
    assert_eq!(index.expect_daemon_pods(at(3_700)), Some(at(3_900)));
    assert_eq!(free(&mut index, "n", at(3_900)), 4_000);
    assert_eq!(index.expect_daemon_pods(at(3_901)), None);
}

#[test]
fn a_daemon_is_expected_where_its_template_admits_the_node() {
    let gpu = json!([{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]);
    let pressure = json!([{"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}]);
    let tolerates = json!({"tolerations": [{"operator": "Exists"}]});
    let cases = [
        (json!({"nodeSelector": {"zone": "n"}}), json!([]), 3_000),
        (json!({"nodeSelector": {"zone": "other"}}), json!([]), 4_000),
        (json!({}), gpu.clone(), 4_000),
        (tolerates, gpu, 3_000),
        (json!({}), pressure, 3_000),
    ];
    for (spec, taints, expected) in cases {
        let mut index = Index::new();
        upsert_node(&mut index, "n", CREATED, &taints);
        assert_eq!(free(&mut index, "n", at(1)), 4_000);
        upsert_set(&mut index, "agent", "1", &spec);
        assert_eq!(free(&mut index, "n", at(2)), expected, "{spec} {taints}");
        index.apply_referenced(ReferencedChange::DaemonSetDeleted("agent".into()));
        assert_eq!(free(&mut index, "n", at(3)), 4_000);
    }
}
