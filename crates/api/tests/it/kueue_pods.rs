//! Pods and groups of pods that wait for a Workload.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use api::MicroTime;
use api::kueue::jobs::pods::{GROUP_NAME, GROUP_TOTAL, MANAGED, ROLE_HASH, SERVING, active_until, role};
use api::kueue::jobs::{CopiedKeys, GROUP_PODS_MAX, JobKind, PodGroup, Priority};
use serde_json::{Value, json};

/// Specs whose fields are not in the order of Go, with all the types that count.
const SPECS: &str = include_str!("data/role_specs.json");

fn pod(name: &str, role: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "team", "uid": format!("uid-{name}"), "labels": {
            "kueue.x-k8s.io/queue-name": "queue", GROUP_NAME: "group"}, "finalizers": [MANAGED],
            "annotations": {GROUP_TOTAL: "3", ROLE_HASH: role}, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
            "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]},
        "status": {"phase": "Pending"}})
}

fn group(pods: &[Value]) -> PodGroup<'_> {
    PodGroup { name: "group", pods: pods.iter().collect() }
}

fn with(mut pod: Value, pointer: &str, value: Value) -> Value {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    pod.pointer_mut(parent).unwrap()[field] = value;
    pod
}

fn names(pods: &[&Value]) -> Vec<String> {
    pods.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// Hashes that Kueue v0.19.1 computes for the same specs (`GenerateRoleHash` of `pkg/util/pod`).
#[test]
fn roles_have_the_hashes_of_kueue() {
    let hashes = ["7aa6c7b8", "749848e2", "20aef5db", "86a1e77e"];
    let specs: Vec<Value> = serde_json::from_str(SPECS).unwrap();
    for (spec, hash) in specs.iter().zip(hashes) {
        assert_eq!(role(&json!({"spec": spec})), hash, "{spec}");
    }
}

#[test]
fn a_group_has_a_pod_set_for_each_role() {
    let pods = [pod("a", "worker"), pod("b", "leader"), pod("c", "worker")];
    let (sets, excess) = group(&pods).compose().unwrap();
    let found: Vec<_> = sets.iter().map(|set| (&set["name"], &set["count"])).collect();
    assert_eq!(found, [(&json!("leader"), &json!(1)), (&json!("worker"), &json!(2))]);
    assert!(excess.is_empty());
    let workload = group(&pods).workload(sets, &Priority::default(), &CopiedKeys::default()).unwrap();
    assert_eq!(workload["metadata"]["name"], "group");
    assert_eq!(workload["metadata"]["ownerReferences"].as_array().unwrap().len(), 3);
    assert_eq!(workload["spec"]["queueName"], "queue");
}

#[test]
fn an_incomplete_group_and_one_that_contradicts_itself_have_no_workload() {
    let two = [pod("a", "worker"), pod("b", "worker")];
    let why = group(&two).compose().unwrap_err().to_string();
    assert_eq!(why, "'group' group has fewer runnable pods than expected");
    let mut other = pod("c", "worker");
    other["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "x".into();
    let why = group(&[pod("a", "worker"), pod("b", "worker"), other]).compose().unwrap_err().to_string();
    assert_eq!(why, "pods 'a' and 'c' has different queue names: queue!=x");
    let mut other = pod("c", "worker");
    other["metadata"]["annotations"][GROUP_TOTAL] = "4".into();
    let why = group(&[pod("a", "worker"), pod("b", "worker"), other]).compose().unwrap_err().to_string();
    assert!(why.ends_with("values: 3!=4"), "{why}");
}

#[test]
fn a_group_has_as_many_pods_as_may_own_its_workload() {
    let why = |total: u32| {
        let mut pod = pod("a", "worker");
        pod["metadata"]["annotations"][GROUP_TOTAL] = total.to_string().into();
        group(&[pod]).compose().unwrap_err().to_string()
    };
    assert!(why(GROUP_PODS_MAX + 1).ends_with("make several groups, or a Job"));
    assert!(why(GROUP_PODS_MAX).ends_with("has fewer runnable pods than expected"));
}

#[test]
fn a_workload_is_owned_by_the_pods_that_are_there_and_by_their_set() {
    let pods = [pod("a", "worker"), pod("b", "worker")];
    let owner = |kind: &str, uid: &str| json!({"kind": kind, "uid": uid});
    let known = [owner("StatefulSet", "uid-set"), owner("Pod", "uid-gone"), owner("Pod", "uid-a")];
    let workload = json!({"metadata": {"ownerReferences": known}});
    let (owners, added) = group(&pods).owners(&workload, &[&pods[0], &pods[1]]).unwrap();
    let uids: Vec<&Value> = owners.iter().map(|owner| &owner["uid"]).collect();
    assert_eq!((uids, added), (vec![&json!("uid-set"), &json!("uid-a"), &json!("uid-b")], 1));
    assert_eq!(group(&pods).owners(&workload, &[&pods[0]]), None);
}

#[test]
fn a_group_is_ready_when_its_pods_are_or_have_succeeded() {
    let ready = json!([{"type": "Ready", "status": "True"}]);
    let mut pods = ["a", "b", "c"].map(|name| with(pod(name, "worker"), "/status/conditions", ready.clone()));
    assert!(group(&pods).are_ready());
    pods[1] = with(pod("b", "worker"), "/status/phase", "Succeeded".into());
    assert!(group(&pods).are_ready());
    pods[2] = with(pod("c", "worker"), "/status/phase", "Failed".into());
    assert!(!group(&pods).are_ready());
}

#[test]
fn the_newest_gated_pods_are_too_many_and_failed_ones_are_replaced() {
    let mut pods = vec![pod("a", "worker"), pod("b", "worker"), pod("c", "worker"), pod("d", "worker")];
    pods[3]["metadata"]["creationTimestamp"] = "2026-01-01T00:00:09Z".into();
    let (sets, excess) = group(&pods).compose().unwrap();
    assert_eq!((sets[0]["count"].as_u64(), names(&excess)), (Some(3), vec!["d".to_owned()]));
    let workload = json!({"spec": {"podSets": sets}});
    pods[0]["status"]["phase"] = "Failed".into();
    let found = group(&pods).membership(&workload, false, MicroTime(0)).unwrap();
    assert_eq!((names(&found.kept), found.absent), (vec!["b".into(), "c".into(), "d".into()], 0));
    assert_eq!((names(&found.replaced), names(&found.excess)), (vec!["a".to_owned()], vec![]));
    pods.pop();
    let found = group(&pods).membership(&workload, false, MicroTime(0)).unwrap();
    assert_eq!((names(&found.kept), found.absent), (vec!["b".into(), "c".into(), "a".into()], 1));
    let of_another = json!({"spec": {"podSets": [{"name": "other", "count": 3}]}});
    assert!(group(&pods).membership(&of_another, false, MicroTime(0)).is_none());
}

#[test]
fn a_group_ends_when_all_pods_have_succeeded_or_nothing_is_replaced() {
    let ended =
        |phase: &str| ["a", "b", "c"].map(|name| with(pod(name, "worker"), "/status/phase", json!(phase)));
    let mut pods = ended("Succeeded");
    assert_eq!(group(&pods).finished().unwrap().message, "Pods succeeded: 3/3.");
    assert_eq!(group(&pods).reclaimable()[0].count, 3);
    pods[0]["metadata"]["annotations"][SERVING] = "true".into();
    assert!(group(&pods).finished().is_none() && group(&pods).reclaimable().is_empty());
    let mut pods = ended("Failed");
    assert!(group(&pods).finished().is_none());
    pods[1]["metadata"]["annotations"]["kueue.x-k8s.io/retriable-in-group"] = "false".into();
    assert_eq!(group(&pods).finished().unwrap().message, "Pods succeeded: 0/3.");
}

#[test]
fn a_deleted_pod_counts_as_running_until_its_grace_period_is_over() {
    let mut running = with(pod("a", "worker"), "/status/phase", json!("Running"));
    let until = |pod: &Value, now| group(std::slice::from_ref(pod)).active_until(MicroTime(now), false);
    assert_eq!(until(&running, 0), Some(MicroTime(i64::MAX)));
    running["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:10Z".into();
    running["metadata"]["deletionGracePeriodSeconds"] = 30.into();
    assert_eq!(until(&running, 0), Some(MicroTime(40_000_000)));
    assert_eq!(until(&running, 40_000_001), None);
}

#[test]
fn a_pod_counts_from_its_start_on_and_no_longer_when_it_is_deleted_before_it_runs() {
    let forever = Some(MicroTime(i64::MAX));
    let mut pod = pod("a", "worker");
    assert_eq!(active_until(&pod, MicroTime(0), false), forever, "it may run");
    let running = with(pod.clone(), "/status/phase", json!("Running"));
    for pod in [&mut pod, &mut running.clone()] {
        pod["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:10Z".into();
        pod["metadata"]["deletionGracePeriodSeconds"] = 30.into();
        let expected = (pod["status"]["phase"] == "Running").then_some(MicroTime(40_000_000));
        assert_eq!(active_until(pod, MicroTime(0), false), expected);
        assert_eq!(active_until(pod, MicroTime(0), true), None);
    }
}

#[test]
fn a_prebuilt_workload_is_for_no_pod_that_asks_for_more() {
    let pods = [pod("a", "worker"), pod("b", "worker"), pod("c", "worker")];
    let (sets, _) = group(&pods).compose().unwrap();
    let mut workload = json!({"metadata": {}, "spec": {"podSets": sets}});
    assert!(group(&pods).is_equivalent(&workload, false));
    let mut larger = pods.clone();
    larger[2]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2".into();
    assert!(!group(&larger).is_equivalent(&workload, false));
    // Admission adds requests to the pods of a set.
    workload["metadata"]["ownerReferences"] = json!([{"kind": "StatefulSet", "name": "set", "uid": "u"}]);
    assert!(group(&larger).is_equivalent(&workload, false));
}

#[test]
fn a_pod_alone_has_a_workload_of_its_own() {
    let kind = JobKind::of_framework("pod").unwrap();
    let pod = pod("a", "worker");
    let workload = kind.workload(&pod, &Priority::default(), &CopiedKeys::default());
    assert!(workload["metadata"]["name"].as_str().unwrap().starts_with("pod-a-"));
    assert_eq!(workload["spec"]["podSets"][0]["name"], "main");
    assert!(kind.is_suspended(&pod));
}

#[test]
fn a_workload_gets_the_labels_and_annotations_of_these_keys_if_no_two_pods_differ() {
    let with_team = |name: &str, team: &str| {
        let mut pod = pod(name, "worker");
        pod["metadata"]["labels"]["team"] = team.into();
        pod["metadata"]["annotations"]["cost-center"] = team.into();
        pod
    };
    let keys = |label: &str, annotation: &str| CopiedKeys {
        labels: [label.to_owned()].into(),
        annotations: [annotation.to_owned()].into(),
    };
    let alone = JobKind::of_framework("pod").unwrap();
    let workload = alone.workload(&with_team("a", "red"), &Priority::default(), &keys("team", "cost-center"));
    let meta = &workload["metadata"];
    assert_eq!(
        (&meta["labels"]["team"], &meta["annotations"]["cost-center"]),
        (&json!("red"), &json!("red"))
    );
    let pods = [with_team("a", "red"), with_team("b", "red"), with_team("c", "blue")];
    let workload = |pods: &[Value], keys| group(pods).workload(Vec::new(), &Priority::default(), &keys);
    let same = workload(&pods[..2], keys("team", "cost-center")).unwrap();
    let meta = &same["metadata"];
    assert_eq!(
        (&meta["labels"]["team"], &meta["annotations"]["cost-center"]),
        (&json!("red"), &json!("red"))
    );
    let error = |keys| workload(&pods, keys).unwrap_err().to_string();
    assert!(error(keys("team", "")).ends_with("pods have different label values"));
    assert!(error(keys("", "cost-center")).ends_with("pods have different annotation values"));
}
