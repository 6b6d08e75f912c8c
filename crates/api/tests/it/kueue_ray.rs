//! Ray's kinds of jobs under Kueue's API: what they ask for, and the rules of their webhooks.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]
#![allow(clippy::needless_pass_by_value, reason = "specs are written in place")]

use api::kueue::jobs::{CopiedKeys, JobKind, Priority};
use api::kueue::webhooks::{Context, JobDefaults, JobRules, Operation, default, review};
use serde_json::{Value, json};

fn kind(name: &str) -> &'static JobKind {
    JobKind::of_framework(name).unwrap()
}

fn template(cpu: &str) -> Value {
    let container = json!({"name": "ray", "image": "ray:2", "resources": {"requests": {"cpu": cpu}}});
    json!({"spec": {"containers": [container]}})
}

fn cluster(groups: &[&str]) -> Value {
    let group = |name: &&str| json!({"groupName": name, "replicas": 2, "template": template("1")});
    json!({"headGroupSpec": {"template": template("1")},
        "workerGroupSpecs": groups.iter().map(group).collect::<Vec<_>>()})
}

fn object(kind: &JobKind, spec: Value) -> Value {
    json!({"apiVersion": kind.api_version, "kind": kind.kind,
        "metadata": {"name": "train", "namespace": "team", "uid": "u",
            "labels": {"kueue.x-k8s.io/queue-name": "gpu"}},
        "spec": spec})
}

fn ray_job(spec: Value) -> Value {
    let mut job = object(
        kind("ray.io/rayjob"),
        json!({"shutdownAfterJobFinishes": true, "rayClusterSpec": cluster(&["a"])}),
    );
    for (field, value) in spec.as_object().unwrap() {
        job["spec"][field] = value.clone();
    }
    job
}

#[test]
fn containers_that_the_operator_adds_to_the_head_are_counted() {
    let sets = |job: &Value| kind("ray.io/rayjob").integration.pod_sets(job);
    let mut job = ray_job(json!({"submissionMode": "SidecarMode"}));
    job["spec"]["rayClusterSpec"]["enableInTreeAutoscaling"] = true.into();
    job["spec"]["rayClusterSpec"]["gcsFaultToleranceOptions"] = json!({});
    let found = sets(&job);
    assert_eq!(found.len(), 2, "no pod submits it");
    let containers = found[0]["template"]["spec"]["containers"].as_array().unwrap();
    let asked: Vec<_> = containers.iter().map(|one| (&one["name"], &one["resources"]["requests"])).collect();
    assert_eq!(
        json!(asked),
        json!([
            ["ray", {"cpu": "1", "memory": "256Mi"}],
            ["autoscaler", {"cpu": "500m", "memory": "512Mi"}],
            ["ray-job-submitter", {"cpu": "500m", "memory": "200Mi"}],
        ])
    );
    assert_eq!(found[1]["count"], 2);
    let mut group = json!({"groupName": "B", "template": template("1")});
    job["spec"]["rayClusterSpec"]["workerGroupSpecs"] = json!([group]);
    assert_eq!(
        (&sets(&job)[1]["count"], &sets(&job)[1]["name"]),
        (&json!(1), &json!("b")),
        "no replicas: one"
    );
    group["numOfHosts"] = 4.into();
    group["replicas"] = 3.into();
    job["spec"]["rayClusterSpec"]["workerGroupSpecs"] = json!([group]);
    assert_eq!(sets(&job)[1]["count"], 12);
}

#[test]
fn odd_objects_are_read_without_a_panic() {
    for framework in ["ray.io/rayjob", "ray.io/raycluster", "ray.io/rayservice"] {
        let kind = kind(framework);
        for spec in [json!(null), json!(7), json!({"rayClusterSpec": [], "workerGroupSpecs": {"a": 1}})] {
            let mut job = object(kind, spec);
            let workload = kind.workload(&job, &Priority::default(), &CopiedKeys::default());
            let _ = (kind.start(&job, &[]), kind.restore(&job, &workload), kind.integration.finished(&job));
            kind.set_suspended(&mut job, true);
            let _ =
                review(kind.plural, Operation::Update, &job, Some(&job), &JobDefaults::default(), &context());
        }
    }
}

fn context() -> Context {
    let names = ["ray.io/rayjob", "ray.io/raycluster", "ray.io/rayservice"];
    let jobs = JobRules { frameworks: names.map(str::to_owned).into(), ..JobRules::default() };
    Context { jobs, ..Context::default() }
}

#[test]
fn jobs_of_ray_in_a_queue_have_rules() {
    let groups: Vec<String> = (0..18).map(|at| format!("g{at}")).collect();
    let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
    let autoscaled = |mut cluster: Value| {
        cluster["enableInTreeAutoscaling"] = true.into();
        cluster
    };
    let mut headless = cluster(&[]);
    headless["headGroupSpec"]["template"]["spec"]["containers"] = json!([]);
    let mut no_cluster = ray_job(json!({}));
    no_cluster["spec"]["rayClusterSpec"] = Value::Null;
    let cases = [
        (
            "rayjobs",
            ray_job(json!({"shutdownAfterJobFinishes": false})),
            "spec.shutdownAfterJobFinishes: Invalid value: false: a kueue managed job should delete the cluster after finishing",
        ),
        (
            "rayjobs",
            ray_job(json!({"clusterSelector": {"a": "b"}})),
            "spec.clusterSelector: Invalid value: {\"a\":\"b\"}: a kueue managed job should not use an existing cluster",
        ),
        (
            "rayjobs",
            no_cluster,
            "spec.rayClusterSpec: Required value: rayClusterSpec is required for Kueue-managed jobs that don't use clusterSelector",
        ),
        (
            "rayjobs",
            ray_job(json!({"rayClusterSpec": headless})),
            "spec.rayClusterSpec.headGroupSpec.template.spec.containers: Required value: the head needs a container",
        ),
        (
            "rayjobs",
            ray_job(json!({"rayClusterSpec": cluster(&["head"])})),
            "spec.rayClusterSpec.workerGroupSpecs[0].groupName: Forbidden: \"head\" is reserved for the head group",
        ),
        (
            "rayjobs",
            ray_job(json!({"rayClusterSpec": cluster(&groups)})),
            "spec.rayClusterSpec.workerGroupSpecs: Too many: 19: must have at most 18 items",
        ),
        (
            "rayclusters",
            object(kind("ray.io/raycluster"), autoscaled(cluster(&[]))),
            "spec.enableInTreeAutoscaling: Invalid value: true: a kueue-managed RayCluster can use autoscaling only as an elastic job",
        ),
        (
            "rayservices",
            object(kind("ray.io/rayservice"), json!({"rayClusterConfig": autoscaled(cluster(&[]))})),
            "spec.rayClusterSpec.enableInTreeAutoscaling: Invalid value: true: a kueue managed job should only use autoscaling",
        ),
    ];
    for (resource, job, expected) in cases {
        let denied = format!(
            "admission webhook \"v{}.kb.io\" denied the request: {expected}",
            &resource[..resource.len() - 1]
        );
        for old in [None, Some(&job)] {
            let operation = if old.is_some() { Operation::Update } else { Operation::Create };
            let error =
                review(resource, operation, &job, old, &JobDefaults::default(), &context()).unwrap_err();
            assert!(error.starts_with(&denied), "{denied}\n{error}");
        }
        let mut unnamed = job;
        unnamed["metadata"]["labels"] = json!({});
        assert_eq!(
            review(resource, Operation::Create, &unnamed, None, &JobDefaults::default(), &context()),
            Ok(Vec::new())
        );
    }
    assert_eq!(
        review("rayjobs", Operation::Create, &ray_job(json!({})), None, &JobDefaults::default(), &context()),
        Ok(Vec::new())
    );
}

#[test]
fn a_running_job_of_ray_does_not_leave_its_queue() {
    let queue = "kueue.x-k8s.io/queue-name";
    for (resource, mut job) in [
        ("rayjobs", ray_job(json!({}))),
        ("rayclusters", object(kind("ray.io/raycluster"), cluster(&[]))),
        ("rayservices", object(kind("ray.io/rayservice"), json!({"rayClusterConfig": cluster(&[])}))),
    ] {
        let old = job.clone();
        job["metadata"]["labels"] = json!({});
        let left = |job: &Value, old: &Value| {
            review(resource, Operation::Update, job, Some(old), &JobDefaults::default(), &context())
        };
        let error = left(&job, &old).unwrap_err();
        assert!(
            error.contains(&format!("metadata.labels[{queue}]: Invalid value: \"\": field is immutable")),
            "{error}"
        );
        assert_eq!(left(&job, &job), Ok(Vec::new()), "no queue is left");
        kind(&format!("ray.io/{}", &resource[..resource.len() - 1])).set_suspended(&mut job, true);
        assert_eq!(left(&job, &old), Ok(Vec::new()), "it is stopped as it leaves");
    }
}

#[test]
fn jobs_of_ray_are_suspended_at_their_creation_unless_another_job_owns_them() {
    let created = |resource: &str, mut job: Value, context: &Context| {
        default(resource, Operation::Create, &mut job, &JobDefaults::default(), context);
        job
    };
    let job = created("rayjobs", ray_job(json!({})), &context());
    assert_eq!(job["spec"]["suspend"], true);
    let service = object(kind("ray.io/rayservice"), json!({"rayClusterConfig": cluster(&[])}));
    assert_eq!(created("rayservices", service, &context())["spec"]["rayClusterConfig"]["suspend"], true);
    let guest = ray_job(json!({"clusterSelector": {"a": "b"}}));
    assert_eq!(created("rayjobs", guest, &context())["spec"]["suspend"], Value::Null);
    let mut owned = object(kind("ray.io/raycluster"), cluster(&[]));
    owned["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "j", "uid": "1", "controller": true}]);
    assert_eq!(created("rayclusters", owned.clone(), &context())["spec"]["suspend"], Value::Null);
    let mut alone = context();
    alone.jobs.frameworks = vec!["ray.io/raycluster".into()];
    assert_eq!(created("rayclusters", owned, &alone)["spec"]["suspend"], true, "RayJobs are not managed");
}
