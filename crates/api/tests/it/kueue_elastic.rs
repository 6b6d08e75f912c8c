//! Jobs that change their size while they run: their Workloads, and the rules of their webhooks.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use api::kueue::feature_gates::FeatureGates;
use api::kueue::jobs::{CopiedKeys, JOB_KINDS, JobKind, Priority};
use api::kueue::webhooks::{Context, Gates, JobDefaults, JobRules, Operation, default, review};
use serde_json::{Value, json};

fn template() -> Value {
    json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}], "nodeSelector": {"zone": "a"}}})
}

fn object(framework: &str, spec: &Value) -> Value {
    let kind = JobKind::of_framework(framework).unwrap();
    json!({"apiVersion": kind.api_version, "kind": kind.kind,
        "metadata": {"name": "train", "namespace": "team", "uid": "11111111-2222-3333-4444-555555555555", "generation": 3,
            "labels": {"kueue.x-k8s.io/queue-name": "gpu"}, "annotations": {"kueue.x-k8s.io/elastic-job": "true"}},
        "spec": spec})
}

fn job() -> Value {
    object("batch/job", &json!({"parallelism": 2, "completions": 9, "suspend": true, "template": template()}))
}

fn cluster() -> Value {
    let group = json!({"groupName": "Small", "replicas": 2, "template": template()});
    json!({"headGroupSpec": {"template": template()}, "workerGroupSpecs": [group]})
}

fn context(is_on: bool) -> Context {
    let frameworks = JOB_KINDS.iter().map(|kind| kind.framework.to_owned()).chain(["deployment".to_owned()]);
    let jobs = JobRules { frameworks: frameworks.collect(), ..JobRules::default() };
    let gates = Gates { elastic_jobs_via_workload_slices: is_on, ..Gates::from(&FeatureGates::default()) };
    Context { jobs, gates }
}

fn checked(resource: &str, job: &Value, old: Option<&Value>, is_on: bool) -> String {
    let operation = if old.is_some() { Operation::Update } else { Operation::Create };
    let reviewed = review(resource, operation, job, old, &JobDefaults::default(), &context(is_on));
    reviewed.err().unwrap_or_default()
}

#[test]
fn every_generation_of_a_job_has_a_workload_with_a_name_of_its_own() {
    let batch = JobKind::of_framework("batch/job").unwrap();
    assert_eq!(batch.slice_name(&job(), None), "job-train-1fbd1");
    let mut ray = object("ray.io/rayjob", &json!({}));
    ray["metadata"] = json!({"name": "ray", "uid": "u", "generation": 2});
    let child = json!({"metadata": {"generation": 7}});
    let kind = JobKind::of_framework("ray.io/rayjob").unwrap();
    assert_eq!(kind.slice_name(&ray, Some(&child)), "rayjob-ray-c2e63");
}

#[test]
fn a_workload_that_continues_another_one_has_the_templates_of_the_author() {
    let kind = JobKind::of_framework("batch/job").unwrap();
    let sizes = |size: u32| vec![("main".to_owned(), size)];
    let first = kind.slice((&job(), None), &sizes(2), &Priority::default(), &CopiedKeys::default(), None);
    let annotations = |workload: &Value| workload["metadata"]["annotations"].clone();
    let expected = json!({"kueue.x-k8s.io/elastic-job": "true", "kueue.x-k8s.io/workload-slice-name": "job-train-1fbd1"});
    assert_eq!(annotations(&first), expected);
    let mut running = job();
    running["metadata"]["generation"] = json!(5);
    running["spec"]["template"]["spec"]["nodeSelector"]["pool"] = json!("spot");
    running["spec"]["template"]["metadata"]["annotations"] =
        json!({"kueue.x-k8s.io/workload": "job-train-1fbd1"});
    let second =
        kind.slice((&running, None), &sizes(4), &Priority::default(), &CopiedKeys::default(), Some(&first));
    let set = &second["spec"]["podSets"][0];
    assert_eq!((&set["count"], &set["template"]["spec"]["nodeSelector"]), (&json!(4), &json!({"zone": "a"})));
    assert_eq!(set["template"]["metadata"]["annotations"], Value::Null);
    let mut expected = expected;
    expected["kueue.x-k8s.io/workload-slice-replacement-for"] = json!("team/job-train-1fbd1");
    assert_eq!(annotations(&second), expected);
    assert_ne!(second["metadata"]["name"], first["metadata"]["name"]);
}

#[test]
fn the_pods_of_a_job_that_changes_its_size_are_gated_at_its_creation() {
    let gate = json!([{"name": "kueue.x-k8s.io/elastic-job"}]);
    let gates = |resource: &str, mut job: Value, pointer: &str, is_on: bool| {
        default(resource, Operation::Create, &mut job, &JobDefaults::default(), &context(is_on));
        default(resource, Operation::Create, &mut job, &JobDefaults::default(), &context(is_on));
        job.pointer(pointer).unwrap()["spec"]["schedulingGates"].clone()
    };
    let ray = object("ray.io/raycluster", &cluster());
    let mut child = ray.clone();
    child["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "r", "uid": "r", "controller": true}]);
    let service = object("ray.io/rayservice", &json!({"rayClusterConfig": cluster()}));
    let rayjob = object("ray.io/rayjob", &json!({"rayClusterSpec": cluster()}));
    let mut unqueued = job();
    unqueued["metadata"]["labels"] = json!({});
    for (resource, job, pointer, expected) in [
        ("jobs", job(), "/spec/template", &gate),
        ("jobs", unqueued, "/spec/template", &Value::Null),
        ("rayclusters", ray.clone(), "/spec/headGroupSpec/template", &gate),
        ("rayclusters", child, "/spec/workerGroupSpecs/0/template", &gate),
        ("rayservices", service, "/spec/rayClusterConfig/workerGroupSpecs/0/template", &gate),
        ("rayjobs", rayjob, "/spec/rayClusterSpec/headGroupSpec/template", &Value::Null),
    ] {
        assert_eq!(gates(resource, job.clone(), pointer, true), *expected, "{resource} {pointer}");
        assert_eq!(gates(resource, job, pointer, false), Value::Null, "{resource} with the gate off");
    }
}

#[test]
fn jobs_that_change_their_size_have_rules() {
    let mut partial = job();
    partial["metadata"]["annotations"]["kueue.x-k8s.io/job-min-parallelism"] = "1".into();
    let placed = |key: &str| {
        let mut job = job();
        job["spec"]["template"]["metadata"]["annotations"][key] = "rack".into();
        job
    };
    let set = object("statefulset", &json!({"replicas": 1, "template": template()}));
    let lws = object(
        "leaderworkerset.x-k8s.io/leaderworkerset",
        &json!({"leaderWorkerTemplate": {"workerTemplate": template()}}),
    );
    let job_set = object("jobset.x-k8s.io/jobset", &json!({"replicatedJobs": []}));
    let mut deployment = object("statefulset", &json!({"replicas": 1, "template": template()}));
    deployment["kind"] = "Deployment".into();
    let unsupported = |kind: &str| {
        format!(
            "metadata.annotations[kueue.x-k8s.io/elastic-job]: Forbidden: elastic job is not supported for \"{kind}\""
        )
    };
    let topology = |mode: &str| {
        format!(
            "spec.template.metadata.annotations.kueue.x-k8s.io/podset-{mode}-topology: Forbidden: {mode} topology is not supported with elastic jobs"
        )
    };
    for (resource, job, expected) in [
        ("jobs", partial, "metadata.annotations[kueue.x-k8s.io/job-min-parallelism]: Invalid value: \"1\": partial admission and elastic job cannot be used together".to_owned()),
        ("jobs", placed("kueue.x-k8s.io/podset-required-topology"), topology("required")),
        ("jobs", placed("kueue.x-k8s.io/podset-preferred-topology"), topology("preferred")),
        ("statefulsets", set, unsupported("apps/v1, Kind=StatefulSet")),
        ("deployments", deployment, unsupported("apps/v1, Kind=Deployment")),
        ("leaderworkersets", lws, unsupported("leaderworkerset.x-k8s.io/v1, Kind=LeaderWorkerSet")),
        ("jobsets", job_set, unsupported("jobset.x-k8s.io/v1alpha2, Kind=JobSet")),
        ("rayclusters", object("ray.io/raycluster", &cluster()), "spec.headGroupSpec.template.spec.schedulingGates: Invalid value: null: an elastic job must have the ElasticJobSchedulingGate".to_owned()),
    ] {
        let error = checked(resource, &job, None, true);
        assert!(error.contains(&expected), "{expected}\n{error}");
        let error = checked(resource, &job, None, false);
        assert!(!error.contains("elastic"), "{resource} with the gate off: {error}");
    }
    assert_eq!(checked("jobs", &job(), None, true), "");
}

#[test]
fn whether_a_job_changes_its_size_does_not_change_and_such_a_job_names_another_workload() {
    let mut fixed = job();
    fixed["metadata"]["annotations"] = json!({});
    let immutable =
        "metadata.annotations[kueue.x-k8s.io/elastic-job]: Invalid value: false: field is immutable";
    assert!(checked("jobs", &fixed, Some(&job()), true).contains(immutable));
    assert_eq!(checked("jobs", &fixed, Some(&job()), false), "");
    let named = |mut job: Value, name: &str| {
        job["spec"]["suspend"] = false.into();
        job["metadata"]["annotations"]["kueue.x-k8s.io/prebuilt-workload-name"] = name.into();
        job
    };
    assert_eq!(checked("jobs", &named(job(), "b"), Some(&named(job(), "a")), true), "");
    let error = checked("jobs", &named(fixed.clone(), "b"), Some(&named(fixed, "a")), true);
    assert!(error.contains("prebuilt-workload-name]: Invalid value: \"b\": field is immutable"), "{error}");
}

#[test]
fn a_cluster_that_changes_its_size_by_itself_says_how_large_its_job_is() {
    let kind = JobKind::of_framework("ray.io/rayjob").unwrap();
    let mut spec = json!({"submissionMode": "HTTPMode", "rayClusterSpec": cluster()});
    let child = json!({"spec": {"workerGroupSpecs": [{"groupName": "Small", "replicas": 5, "numOfHosts": 2}, {"groupName": "x"}]}});
    let workers = |spec: &Value| kind.sizes(&object("ray.io/rayjob", spec), Some(&child))[1].1;
    assert_eq!(workers(&spec), 2);
    spec["rayClusterSpec"]["enableInTreeAutoscaling"] = true.into();
    assert_eq!(workers(&spec), 10);
}
