use serde_json::json;

use super::*;

fn template() -> Value {
    json!({"metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": 1}}}]}})
}

fn set(replicas: u32) -> Value {
    json!({"metadata": {"name": "web", "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "team"}},
        "spec": {"replicas": replicas, "template": template(),
            "leaderWorkerTemplate": {"size": 3, "leaderTemplate": template(), "workerTemplate": template()}}})
}

/// Name, queue and counts of Workloads.
fn lines(workloads: &[Value]) -> Vec<String> {
    let line = |workload: &Value| {
        let sets = workload["spec"]["podSets"].as_array().unwrap();
        let sets: Vec<String> = sets.iter().map(|set| format!("{}x{}", set["name"], set["count"])).collect();
        format!("{} {} {}", workload["metadata"]["name"], workload["spec"]["queueName"], sets.join(" "))
            .replace('"', "")
    };
    workloads.iter().map(line).collect()
}

fn of(kind: &str, set: &Value) -> Result<Vec<Value>> {
    of_set(JobKind::of_framework(kind).unwrap(), set, &Priority::default(), "it")
}

#[test]
fn a_set_has_a_workload_for_each_of_its_groups() {
    let one = of("statefulset", &set(3)).unwrap();
    assert_eq!(lines(&one), ["statefulset-web team mainx3"]);
    assert_eq!(one[0]["metadata"]["uid"], "plan-of-default/statefulset-web");
    assert_eq!(one[0]["metadata"]["ownerReferences"], Value::Null);
    let groups = of("leaderworkerset.x-k8s.io/leaderworkerset", &set(2)).unwrap();
    let expected = [0, 1].map(|group| format!("leaderworkerset-web-{group} team leaderx1 workerx2"));
    assert_eq!(lines(&groups), expected);
}

#[test]
fn the_pods_of_a_deployment_wait_one_by_one_in_its_queue() {
    let pod = pod_of_deployment(&set(2));
    assert_eq!(annotation(&pod, SUSPENDED_BY), Some(DEPLOYMENT));
    let found = of_pods(&pod, 2, &Priority::default()).unwrap();
    assert_eq!(lines(&found), ["pod-web-1 team mainx1", "pod-web-2 team mainx1"]);
    let mut grouped = set(2);
    grouped["spec"]["template"]["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] = "g".into();
    let error = of_pods(&pod_of_deployment(&grouped), 2, &Priority::default()).unwrap_err();
    assert!(error.to_string().starts_with("its pods are in the group g"), "{error}");
}

#[test]
fn what_is_too_large_is_cut_or_refused() {
    let many = 1_000_000;
    assert_eq!(planned(&set(many), "pods", "it"), PLANNED_MAX);
    assert_eq!(of("leaderworkerset.x-k8s.io/leaderworkerset", &set(many)).unwrap().len(), 50);
    let error = of("statefulset", &set(many)).unwrap_err().to_string();
    assert!(error.starts_with("the group main has 1000000 pods"), "{error}");
}

#[test]
fn a_set_without_replicas_is_empty() {
    assert!(is_empty("it", &set(0)));
    assert!(!is_empty("it", &set(1)));
    let mut without = set(1);
    without["spec"]["replicas"] = Value::Null;
    assert!(!is_empty("it", &without), "the default is one");
}
