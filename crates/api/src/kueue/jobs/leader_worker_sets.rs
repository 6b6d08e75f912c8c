//! `LeaderWorkerSets`: each of their groups, a leader and its workers, waits for a Workload of its own. After
//! `pkg/controller/jobs/leaderworkerset` of Kueue v0.19.
//!
//! The webhook marks the templates of a set, so its pods are held back. The pods of a group become members of the group of pods that
//! has the name of its Workload.

use serde_json::{Value, json};

use super::pods::{GROUP_NAME, GROUP_TOTAL, MANAGED, ROLE_HASH, SUSPENDED_BY, group_name, is_ended};
use super::sets::SetOfPods;
use super::{JobKind, MAIN, PREBUILT, Priority, annotation, entries, set_at, topology};
use crate::value::count;

/// The row of `LeaderWorkerSets`.
pub(crate) const LEADER_WORKER_SET: JobKind = JobKind {
    framework: "leaderworkerset.x-k8s.io/leaderworkerset",
    api_version: "leaderworkerset.x-k8s.io/v1",
    kind: "LeaderWorkerSet",
    plural: "leaderworkersets",
    integration: &SetOfPods { hold_back, pod_sets },
};

/// The prefix of the labels and annotations that the controller of the sets writes.
const OWN: &str = "leaderworkerset.sigs.k8s.io";
/// The label of pods with the name of their set.
pub const SET_NAME: &str = "leaderworkerset.sigs.k8s.io/name";
/// The label of pods with the number of their group in the set.
const GROUP_NUMBER: &str = "leaderworkerset.sigs.k8s.io/group-index";
/// The label of pods with their number in the group. The leader has number 0.
const WORKER_NUMBER: &str = "leaderworkerset.sigs.k8s.io/worker-index";
/// The annotation of workers with the name of their leader.
const LEADER_NAME: &str = "leaderworkerset.sigs.k8s.io/leader-name";
/// The annotation of a Workload with the number of its group.
const WORKLOAD_NUMBER: &str = "kueue.x-k8s.io/component-workload-index";
const LEADER: &str = "leader";
const WORKER: &str = "worker";
/// So many groups of a set have Workloads. Kueue's webhook lets a set have more.
pub const GROUPS_MAX: u32 = 1_000;

fn hold_back(set: &mut Value) {
    for field in ["leaderTemplate", "workerTemplate"] {
        if templates(set)[field].is_object() {
            let path = ["spec", "leaderWorkerTemplate", field, "metadata", "annotations", SUSPENDED_BY];
            set_at(set, &path, LEADER_WORKER_SET.framework.into());
        }
    }
}

/// The pod sets of a group.
fn pod_sets(set: &Value) -> Vec<Value> {
    let Value::Object(_) = &templates(set)["leaderTemplate"] else {
        return vec![pod_set(&templates(set)["workerTemplate"], MAIN, size(set))];
    };
    vec![
        pod_set(&templates(set)["leaderTemplate"], LEADER, 1),
        pod_set(&templates(set)["workerTemplate"], WORKER, size(set).saturating_sub(1)),
    ]
}

fn templates(set: &Value) -> &Value {
    &set["spec"]["leaderWorkerTemplate"]
}

/// The number of pods of a group.
fn size(set: &Value) -> u32 {
    count(templates(set), &["size"], 1)
}

/// A pod set without what the controller of the sets writes into each pod.
fn pod_set(template: &Value, name: &str, count: u32) -> Value {
    let mut of_set = template.clone();
    for field in ["labels", "annotations"] {
        if let Some(kept) = of_set.pointer_mut(&format!("/metadata/{field}")) {
            *kept = entries(kept).filter(|(key, _)| !key.starts_with(OWN) || key == SET_NAME).collect();
        }
    }
    let mut set = json!({"name": name, "count": count, "template": of_set});
    let index = (name != LEADER).then_some(WORKER_NUMBER);
    if let Some(request) = topology::request(template, index) {
        set["topologyRequest"] = request;
    }
    set
}

/// The number of groups of a set, of which the first [`GROUPS_MAX`] have Workloads. While a set is updated with more groups than it
/// asks for, those of its status do.
pub fn groups(set: &Value) -> u32 {
    let wanted = count(set, &["spec", "replicas"], 1);
    let surge = &set["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"]["maxSurge"];
    // A number of groups, or a part of them in percent, which is rounded up.
    let surge = surge.as_i64().or_else(|| surge.as_str()?.trim_end_matches('%').parse().ok());
    let has_surge =
        surge.is_some_and(|surge| surge > 0) && count(set, &["status", "updatedReplicas"], 0) < wanted;
    let present = if has_surge { count(set, &["status", "replicas"], 0) } else { 0 };
    wanted.max(present)
}

/// The name of the Workload of a group.
pub fn workload_name(set: &Value, group: &str) -> String {
    let [name, uid] = ["name", "uid"].map(|field| set["metadata"][field].as_str().unwrap_or_default());
    LEADER_WORKER_SET.workload_name(&format!("{name}-{group}"), uid)
}

/// The Workload of a group, as it is created.
pub fn workload(set: &Value, group: u32, priority: &Priority) -> Value {
    let group = group.to_string();
    let mut workload = LEADER_WORKER_SET.group_workload(set, &workload_name(set, &group), priority);
    set_at(&mut workload, &["metadata", "annotations", WORKLOAD_NUMBER], group.into());
    workload
}

/// The number of the group that a Workload is for.
pub fn group_of(workload: &Value) -> Option<u32> {
    annotation(workload, WORKLOAD_NUMBER)?.parse().ok()
}

/// The name of the set of a pod that waits with its group.
pub fn set_of(pod: &Value) -> Option<&str> {
    let is_held = annotation(pod, SUSPENDED_BY) == Some(LEADER_WORKER_SET.framework);
    pod["metadata"]["labels"][SET_NAME].as_str().filter(|_| is_held)
}

/// The pod of a set as a member of its group; `None` if it is one, has ended, or has no group yet.
pub fn member(set: &Value, pod: &Value) -> Option<Value> {
    let number = pod["metadata"]["labels"][GROUP_NUMBER].as_str()?;
    let group = workload_name(set, number);
    if is_ended(pod) || group_name(pod) == Some(&group) {
        return None;
    }
    let has_leader = templates(set)["leaderTemplate"].is_object();
    let role = match annotation(pod, LEADER_NAME) {
        _ if !has_leader => MAIN,
        Some(_) => WORKER,
        None => LEADER,
    };
    let mut member = pod.clone();
    let mut put =
        |field: &str, key: &str, value: &str| set_at(&mut member, &["metadata", field, key], value.into());
    put("labels", MANAGED, "true");
    // Kueue before 0.18 reads the labels.
    for key in [GROUP_NAME, PREBUILT] {
        put("annotations", key, &group);
    }
    put("annotations", GROUP_TOTAL, &size(set).to_string());
    put("annotations", ROLE_HASH, role);
    Some(member)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set() -> Value {
        let template = |name: &str| {
            json!({"metadata": {"labels": {"app": name, "leaderworkerset.sigs.k8s.io/size": "3"}},
                "spec": {"containers": [{"name": name}]}})
        };
        json!({"metadata": {"name": "serve", "uid": "u"}, "spec": {"replicas": 2, "leaderWorkerTemplate": {
            "size": 3, "leaderTemplate": template("l"), "workerTemplate": template("w")}}})
    }

    #[test]
    fn a_group_is_a_leader_and_its_workers() {
        let sets = pod_sets(&set());
        let found: Vec<_> = sets.iter().map(|set| (set["name"].clone(), set["count"].clone())).collect();
        assert_eq!(found, [(json!("leader"), json!(1)), (json!("worker"), json!(2))]);
        assert_eq!(sets[1]["template"]["metadata"]["labels"], json!({"app": "w"}));
        assert_eq!(sets[1]["topologyRequest"], json!({"podIndexLabel": WORKER_NUMBER}));

        let mut alike = set();
        alike["spec"]["leaderWorkerTemplate"]["leaderTemplate"] = Value::Null;
        let sets = pod_sets(&alike);
        assert_eq!((sets.len(), &sets[0]["name"], &sets[0]["count"]), (1, &json!("main"), &json!(3)));
    }

    #[test]
    fn groups_beyond_the_wanted_ones_count_while_a_set_is_updated() {
        let mut set = set();
        set["status"] = json!({"replicas": 3, "updatedReplicas": 1});
        assert_eq!(groups(&set), 2);
        for (surge, expected) in [(json!(1), 3), (json!("1"), 3), (json!("50%"), 3), (json!("0%"), 2)] {
            set["spec"]["rolloutStrategy"] = json!({"rollingUpdateConfiguration": {"maxSurge": surge}});
            assert_eq!(groups(&set), expected, "{surge}");
        }
        set["spec"]["rolloutStrategy"] = json!({"rollingUpdateConfiguration": {"maxSurge": 1}});
        set["status"]["updatedReplicas"] = 2.into();
        assert_eq!(groups(&set), 2);
    }

    #[test]
    fn a_pod_without_a_group_is_no_member_yet() {
        let mut pod =
            json!({"metadata": {"labels": {SET_NAME: "serve"}, "annotations": {LEADER_NAME: "serve-1"}}});
        assert_eq!(member(&set(), &pod), None);
        pod["metadata"]["labels"][GROUP_NUMBER] = "1".into();
        let member = member(&set(), &pod).unwrap();
        assert_eq!(annotation(&member, GROUP_NAME), Some(&*workload_name(&set(), "1")));
        assert_eq!(annotation(&member, ROLE_HASH), Some("worker"));
        assert_eq!(super::member(&set(), &member), None);
    }
}
