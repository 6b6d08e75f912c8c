use api::kueue::jobs::JobKind;
use serde_json::json;

use super::*;

fn pod(name: &str, group: &str, total: &str, cpu: u32) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default",
        "labels": {"kueue.x-k8s.io/queue-name": "team", "kueue.x-k8s.io/pod-group-name": group},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": total}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}})
}

fn sets_of(pods: &[Value], in_files: usize) -> Result<Vec<Value>> {
    compose(&group_of("g", pods), in_files)
}

#[test]
fn the_pods_of_a_group_are_planned_as_one_in_the_place_of_the_first() {
    let job = JobKind::of_framework("batch/job").unwrap();
    let pods = pod_kind();
    let mut elsewhere = pod("d", "g", "2", 1);
    elsewhere["metadata"]["namespace"] = "other".into();
    let mut alone = pod("e", "", "1", 1);
    alone["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] = Value::Null;
    let mut here = pod("c", "g", "2", 1);
    here["metadata"]["namespace"] = Value::Null;
    let manifests = vec![
        (Planned::Job(pods), pod("a", "g", "2", 1)),
        (Planned::Job(job), json!({"metadata": {"name": "b"}})),
        (Planned::Job(pods), here),
        (Planned::Job(pods), elsewhere),
        (Planned::Job(pods), alone),
        // A label means nothing at a job.
        (Planned::Job(job), pod("f", "g", "2", 1)),
    ];
    let names = |pods: &[Value]| -> Vec<String> {
        pods.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let found: Vec<String> = gathered(manifests, "default")
        .into_iter()
        .map(|unit| match unit {
            Unit::Object(_, object) => names(&[object]).concat(),
            Unit::Group(namespace, pods) => format!("{namespace}: {}", names(&pods).join(" ")),
        })
        .collect();
    assert_eq!(found, ["default: a c", "b", "other: d", "e", "f"]);
}

#[test]
fn pods_of_a_role_are_a_pod_set() {
    let pods = [pod("a", "g", "3", 2), pod("b", "g", "3", 1), pod("c", "g", "3", 1)];
    let sets = sets_of(&pods, 3).unwrap();
    let mut counts: Vec<_> = sets.iter().filter_map(|set| set["count"].as_u64()).collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 2]);
}

#[test]
fn a_group_with_fast_admission_is_counted_by_its_first_pod() {
    let mut first = pod("a", "g", "3", 1);
    first["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-fast-admission"] = "true".into();
    let sets = sets_of(&[first], 1).unwrap();
    assert_eq!((sets.len(), &sets[0]["count"]), (1, &json!(3)));
}

#[test]
fn an_incomplete_or_contradictory_group_is_an_error_that_says_why() {
    let with = |total: &str| pod("b", "g", total, 1);
    for (pods, in_files, says) in [
        (vec![pod("a", "g", "4", 1), with("4")], 2, "the files have 2 of its 4 pods: a group gets"),
        (
            vec![pod("a", "g", "4", 1), with("4")],
            1,
            "the files have 1 of its 4 pods and the cluster 1 more: a",
        ),
        (vec![with("2"), with("2")], 2, "two of its pods are called b"),
        (vec![pod("a", "g", "2", 1), with("1")], 2, "pods 'a' and 'b' has different"),
        (vec![with("many")], 1, "strconv.Atoi: parsing \"many\""),
        (vec![with("5001")], 1, "make several groups, or a Job"),
    ] {
        let error = sets_of(&pods, in_files).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn pods_that_are_too_many_do_not_count() {
    let sets = sets_of(&[pod("a", "g", "1", 1), pod("b", "g", "1", 1)], 2).unwrap();
    assert_eq!(sets[0]["count"], 1);
}
