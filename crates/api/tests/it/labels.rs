//! The labels and host ports that pods will have before they exist.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use api::Meta;
use api::demand::labels::ExpectedLabels;
use api::demand::{self, PodSet};
use serde_json::{Value, json};

fn sets(object: &Value) -> Vec<PodSet> {
    demand::of_object(object).unwrap().unwrap()
}

/// The labels of a pod set, as `key=value`.
fn labels(object: &Value, set: &PodSet) -> Vec<String> {
    let wrapper = Meta { name: "w".into(), namespace: "ns".into(), uid: "u".into(), ..Meta::default() };
    let expected = ExpectedLabels::of(&wrapper, object, 0, &set.role, &set.shape.labels);
    expected.labels.iter().map(|(key, value)| format!("{key}={value}")).collect()
}

fn template(labels: &Value, spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["containers"] = spec.get("containers").cloned().unwrap_or_else(|| json!([{"name": "c"}]));
    json!({"metadata": {"labels": labels}, "spec": spec})
}

#[test]
fn pods_of_a_job_get_its_name_and_the_labels_of_the_appwrapper() {
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "labels": {"team": "x"}},
        "spec": {"template": template(&json!({"app": "a"}), &json!({}))}});
    let expected = [
        "app=a",
        "appwrapper.mcad.ibm.com=w",
        "batch.kubernetes.io/controller-uid=?u/0",
        "batch.kubernetes.io/job-name=j",
        "controller-uid=?u/0",
        "job-name=j",
        "resourceName=j",
        "team=x",
    ];
    assert_eq!(labels(&job, &sets(&job)[0]), expected);
    // Muster labels only templates that have labels.
    let mut bare = job.clone();
    bare["spec"]["template"]["metadata"] = json!({});
    assert_eq!(labels(&bare, &sets(&bare)[0]).len(), 4);
}

#[test]
fn ray_pods_get_the_labels_of_their_group_and_a_metrics_port() {
    let group = |name: &str, spec: Value| json!({"groupName": name, "replicas": 1, "labels": {"pool": name}, "template": template(&json!({"ray.io/group": "mine"}), &spec)});
    let own_port = json!([{"name": "c", "ports": [{"name": "metrics", "containerPort": 9000}]}]);
    let cluster = json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "r"}, "spec": {
        "headGroupSpec": {"template": template(&json!({}), &json!({}))},
        "workerGroupSpecs": [group("a", json!({"hostNetwork": true})), group("b", json!({"hostNetwork": true, "containers": own_port}))]}});
    let sets = sets(&cluster);
    let ports = |set: &PodSet| set.shape.rules.host_ports.iter().map(|port| port.port).collect::<Vec<_>>();
    assert_eq!(sets.iter().map(ports).collect::<Vec<_>>(), [vec![], vec![8080], vec![9000]]);
    let worker = labels(&cluster, &sets[1]);
    for label in [
        "pool=a",
        "ray.io/group=a",
        "ray.io/node-type=worker",
        "ray.io/cluster=r",
        "ray.io/identifier=r-worker",
    ] {
        assert!(worker.iter().any(|found| found == label), "{label} is missing in {worker:?}");
    }
    let job = json!({"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "j"}, "spec": {"rayClusterSpec": cluster["spec"]}});
    let sets = demand::of_object(&job).unwrap().unwrap();
    assert!(labels(&job, &sets[0]).contains(&"ray.io/cluster=?u/0".to_owned()), "its name is generated");
    assert!(labels(&job, &sets[3]).contains(&"job-name=j".to_owned()), "the submitter is the pod of a Job");
}
