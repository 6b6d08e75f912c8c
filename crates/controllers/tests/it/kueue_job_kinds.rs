//! Kinds of jobs of Kueue's API: each is suspended, admitted, preempted, restored, and ends.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use crate::common;
use crate::common::jobs::*;
use crate::common::kueue::*;
use crate::common::{Cluster, Running, resource, wrappers};
use api::appwrapper::Group;
use api::kueue::jobs::JobKind;
use controllers::{Config, JobsConfig, Kueue};
use kube::api::DynamicObject;
use serde_json::{Value, json};

/// A kind of jobs: a spec of two pods of one CPU, and what its controller reports.
struct Sample {
    framework: &'static str,
    spec: Value,
    runs: Value,
    stopped: Value,
    /// `None`: it never ends by itself.
    succeeds: Option<Value>,
    /// JSON pointers to the templates, or to what is added to them.
    templates: &'static [&'static str],
}

fn samples() -> Vec<Sample> {
    let ready = |status: &str| json!({"conditions": [{"type": "Ready", "status": status}]});
    vec![
        Sample {
            framework: "batch/job",
            spec: json!({"parallelism": 2, "completions": 2, "template": template()}),
            runs: json!({"active": 2, "startTime": "2026-01-01T00:00:00Z"}),
            stopped: json!({"active": 0}),
            succeeds: Some(
                json!({"conditions": [{"type": "Complete", "status": "True", "message": "done"}]}),
            ),
            templates: &["/spec/template"],
        },
        Sample {
            framework: "ray.io/rayjob",
            spec: ray_job(1),
            runs: json!({"jobDeploymentStatus": "Running", "rayClusterStatus": {"state": "ready"}}),
            stopped: json!({"jobDeploymentStatus": "Suspended", "rayClusterStatus": null}),
            succeeds: Some(
                json!({"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "message": "done"}),
            ),
            templates: &[
                "/spec/rayClusterSpec/headGroupSpec/template",
                "/spec/rayClusterSpec/workerGroupSpecs/0/template",
            ],
        },
        Sample {
            framework: "ray.io/raycluster",
            spec: ray_cluster(1),
            runs: json!({"state": "ready"}),
            stopped: json!({"state": "suspended"}),
            succeeds: None,
            templates: &["/spec/headGroupSpec/template", "/spec/workerGroupSpecs/0/template"],
        },
        Sample {
            framework: "ray.io/rayservice",
            spec: json!({"serveConfigV2": "", "rayClusterConfig": ray_cluster(1)}),
            runs: ready("True"),
            stopped: ready("False"),
            succeeds: None,
            templates: &[
                "/spec/rayClusterConfig/headGroupSpec/template",
                "/spec/rayClusterConfig/workerGroupSpecs/0/template",
            ],
        },
        Sample {
            framework: "jobset.x-k8s.io/jobset",
            spec: json!({"replicatedJobs": [{"name": "Workers", "replicas": 2, "template": {"spec":
                {"parallelism": 3, "completions": 1, "template": template()}}}]}),
            runs: json!({"replicatedJobsStatus": [{"name": "Workers", "active": 2, "ready": 2}]}),
            stopped: json!({"replicatedJobsStatus": [{"name": "Workers", "active": 0}]}),
            succeeds: Some(
                json!({"conditions": [{"type": "Completed", "status": "True", "message": "done"}]}),
            ),
            templates: &["/spec/replicatedJobs/0/template/spec/template"],
        },
        training("kubeflow.org/jaxjob", "jaxReplicaSpecs", &["/spec/jaxReplicaSpecs/Worker/template"]),
        training(
            "kubeflow.org/mpijob",
            "mpiReplicaSpecs",
            &["/spec/mpiReplicaSpecs/Launcher/template", "/spec/mpiReplicaSpecs/Worker/template"],
        ),
        training(
            "kubeflow.org/paddlejob",
            "paddleReplicaSpecs",
            &["/spec/paddleReplicaSpecs/Master/template", "/spec/paddleReplicaSpecs/Worker/template"],
        ),
        training(
            "kubeflow.org/pytorchjob",
            "pytorchReplicaSpecs",
            &["/spec/pytorchReplicaSpecs/Master/template", "/spec/pytorchReplicaSpecs/Worker/template"],
        ),
        training(
            "kubeflow.org/tfjob",
            "tfReplicaSpecs",
            &["/spec/tfReplicaSpecs/PS/template", "/spec/tfReplicaSpecs/Worker/template"],
        ),
        training(
            "kubeflow.org/xgboostjob",
            "xgbReplicaSpecs",
            &["/spec/xgbReplicaSpecs/Master/template", "/spec/xgbReplicaSpecs/Worker/template"],
        ),
        app_wrapper(),
        train_job(),
        spark(),
    ]
}

fn app_wrapper() -> Sample {
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"},
        "spec": {"parallelism": 2, "completions": 4, "template": template()}});
    let status = |phase: &str, is: &str, are_ready: &str| {
        json!({"phase": phase, "conditions": [{"type": "QuotaReserved", "status": is},
            {"type": "ResourcesDeployed", "status": is}, {"type": "PodsReady", "status": are_ready}]})
    };
    Sample {
        framework: "workload.codeflare.dev/appwrapper",
        spec: json!({"components": [{"template": job}]}),
        runs: status("Running", "True", "True"),
        stopped: status("Suspended", "False", "False"),
        succeeds: Some(status("Succeeded", "False", "False")),
        templates: &["/spec/components/0/podSetInfos/0"],
    }
}

fn train_job() -> Sample {
    let jobs = |active: u32| json!({"jobsStatus": [{"name": "node", "active": active, "ready": active, "succeeded": 0}]});
    Sample {
        framework: "trainer.kubeflow.org/trainjob",
        spec: json!({"runtimeRef": {"kind": "TrainingRuntime", "name": "torch"}, "trainer": {"numNodes": 2}}),
        runs: jobs(1),
        stopped: jobs(0),
        succeeds: Some(json!({"conditions": [{"type": "Complete", "status": "True", "message": "done"}]})),
        templates: &[
            "/spec/runtimePatches/0/trainingRuntimeSpec/template/spec/replicatedJobs/0/template/spec/template",
        ],
    }
}

/// The runtime of [`train_job`].
async fn create_runtime(cluster: &Cluster) {
    let labels = json!({"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"});
    let job = json!({"name": "node",
        "template": {"metadata": {"labels": labels}, "spec": {"template": template()}}});
    let runtime = json!({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainingRuntime",
        "metadata": {"name": "torch"},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [job]}}}});
    let kind = resource("trainer.kubeflow.org/v1alpha1", "TrainingRuntime", "trainingruntimes");
    cluster.create_as(&kind, "default", runtime).await;
}

fn spark() -> Sample {
    let state = |state: &str| {
        json!({"applicationState": {"state": state, "errorMessage": "done"},
            "executorState": {"pi-exec-1": state}})
    };
    let role = json!({"coreRequest": "1", "labels": {"version": "3.5"}});
    let executor = json!({"coreRequest": "1", "instances": 1});
    Sample {
        framework: "sparkoperator.k8s.io/sparkapplication",
        spec: json!({"mode": "cluster", "driver": role, "executor": executor}),
        runs: state("RUNNING"),
        stopped: state("SUSPENDED"),
        succeeds: Some(state("COMPLETED")),
        templates: &["/spec/driver", "/spec/executor"],
    }
}

/// A kind of the training operator. One pod for each template, of one template two.
fn training(framework: &'static str, field: &str, templates: &'static [&'static str]) -> Sample {
    let each = 2 / templates.len();
    let role = |path: &&str| path.rsplit('/').nth(1).unwrap().to_owned();
    let roles = templates.iter().map(|path| (role(path), json!({"replicas": each, "template": template()})));
    let roles: serde_json::Map<String, Value> = roles.collect();
    let condition = |name: &str, message: &str| json!([{"type": name, "status": "True", "message": message}]);
    Sample {
        framework,
        spec: json!({"runPolicy": {"cleanPodPolicy": "None"}, field: roles}),
        runs: json!({"replicaStatuses": {"Worker": {"active": 2}}, "conditions": condition("Running", "")}),
        stopped: json!({"replicaStatuses": {"Worker": {"active": 0}}, "conditions": []}),
        succeeds: Some(json!({"conditions": condition("Succeeded", "done")})),
        templates,
    }
}

fn controller(cluster: &Cluster, jobs: JobsConfig) -> Running {
    cluster.start(cluster.client.clone(), Config { kueue: Kueue::Scheduler, jobs, ..Config::default() })
}

fn with_priority(class: &str) -> Value {
    json!({"labels": {"kueue.x-k8s.io/queue-name": "team", "kueue.x-k8s.io/priority-class": class}})
}

fn selectors<'a>(sample: &'a Sample, job: &'a DynamicObject) -> Vec<&'a Value> {
    let at = |pointer: &str| job.data.pointer(&format!("{pointer}/nodeSelector"));
    let selector =
        |pointer: &&str| at(&format!("{pointer}/spec")).or_else(|| at(pointer)).unwrap_or(&Value::Null);
    sample.templates.iter().map(selector).collect()
}

async fn play(cluster: &Cluster, jobs: &Jobs<'_>, sample: &Sample) {
    jobs.submit("low", sample.spec.clone()).await;
    let low = jobs.running("low").await;
    assert!(selectors(sample, &low).iter().all(|found| **found == json!({"pool": "gpu"})), "{low:?}");
    jobs.status("low", &sample.runs).await;
    let is_ready = |workload: &DynamicObject| is(workload, "PodsReady", "True", "Started");
    if sample.framework != "batch/job" {
        jobs.workload("low", is_ready).await;
    }
    jobs.submit_with("high", with_priority("high"), sample.spec.clone()).await;
    let low = jobs.stopped("low").await;
    let are_restored = |low: &DynamicObject| selectors(sample, low).iter().all(|found| found.is_null());
    // The patches of a TrainJob change when its pods are gone.
    let is_later = sample.framework == "trainer.kubeflow.org/trainjob";
    assert_ne!(are_restored(&low), is_later, "{low:?}");
    jobs.workload("low", |workload| is(workload, "QuotaReserved", "True", "QuotaReserved")).await;
    cluster.settled().await;
    assert_eq!(
        jobs.stopped("high").await.metadata.generation,
        Some(1),
        "the pods of the other one still run"
    );
    jobs.status("low", &sample.stopped).await;
    jobs.running("high").await;
    assert!(are_restored(&jobs.get("low").await));
    jobs.status("high", &sample.runs).await;
    jobs.workload("low", |workload| is(workload, "Requeued", "True", "Preempted")).await;
    match &sample.succeeds {
        Some(succeeds) => {
            jobs.status("high", succeeds).await;
            let workload = jobs.workload("high", |found| is(found, "Finished", "True", "Succeeded")).await;
            let message = match sample.framework {
                "workload.codeflare.dev/appwrapper" => "AppWrapper finished successfully",
                _ => "done",
            };
            assert_eq!(condition(&workload, "Finished").unwrap()["message"], message);
        }
        None => cluster.delete_now(&jobs.resource(), "default", "high").await,
    }
    let low = jobs.running("low").await;
    assert!(selectors(sample, &low).iter().all(|found| **found == json!({"pool": "gpu"})), "{low:?}");
}

#[tokio::test(start_paused = true)]
async fn a_job_of_every_kind_is_admitted_preempted_restored_and_ends() {
    let samples = samples();
    let kinds: Vec<_> = samples.iter().map(|sample| sample.framework).collect();
    // Pods, also of sets, are stopped by deletion: `kueue_pods` is about them.
    let served = api::kueue::jobs::JOB_KINDS.iter().filter(|kind| !kind.is_pod() && !kind.is_set_of_pods());
    let served: Vec<_> = served.map(|kind| kind.framework).collect();
    assert_eq!(kinds, served, "every kind has a sample");
    for sample in samples {
        // Spark asks for memory, also where the application does not.
        let quota = |name: &str, quota: &str| json!({"name": name, "nominalQuota": quota});
        let flavor = json!({"name": "gpu", "resources": [quota("cpu", "2"), quota("memory", "64Gi")]});
        let groups = json!([{"coveredResources": ["cpu", "memory"], "flavors": [flavor]}]);
        let more = json!({"preemption": {"withinClusterQueue": "LowerPriority"}, "resourceGroups": groups});
        let cluster = cluster_with_queue(2, more).await;
        priority_class(&cluster, "high", 100).await;
        let jobs = Jobs::of(&cluster, sample.framework);
        jobs.install().await;
        if sample.framework == "trainer.kubeflow.org/trainjob" {
            create_runtime(&cluster).await;
        }
        let kinds = JobsConfig { waits_for_pods: true, ..all_kinds() };
        let _controller = controller(&cluster, kinds);
        play(&cluster, &jobs, &sample).await;
    }
}

/// The kind of `examples/kueue/job-kinds.yaml`.
#[tokio::test(start_paused = true)]
async fn a_job_of_a_declared_kind_is_admitted_preempted_restored_and_ends() {
    let sample = Sample {
        framework: "example.com/trainingrun",
        spec: json!({"groups": [{"name": "main", "replicas": 2, "template": template()}]}),
        runs: json!({"groups": [{"active": 2, "ready": 2}]}),
        stopped: json!({"groups": [{"active": 0, "ready": 0}]}),
        succeeds: Some(json!({"conditions": [{"type": "Complete", "status": "True", "message": "done"}]})),
        templates: &["/spec/groups/0/template"],
    };
    let document = common::example("kueue/job-kinds.yaml");
    let kinds = api::kueue::jobs::declare(&document).unwrap();
    let more = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    let cluster = cluster_with_queue(2, more).await;
    priority_class(&cluster, "high", 100).await;
    let jobs = Jobs::of_kind(&cluster, kinds[0]);
    jobs.install().await;
    let config = JobsConfig { waits_for_pods: true, kinds, ..JobsConfig::default() };
    let _controller = controller(&cluster, config);
    play(&cluster, &jobs, &sample).await;
}

async fn ray_kinds(cpus: u32) -> Cluster {
    let cluster = cluster_with_queue(cpus, json!({})).await;
    Jobs::of(&cluster, "ray.io/rayjob").install().await;
    cluster
}

#[tokio::test(start_paused = true)]
async fn a_ray_job_asks_for_its_head_its_workers_and_the_pod_that_submits_it() {
    let quota = |name: &str, quota: &str| json!({"name": name, "nominalQuota": quota});
    let flavor = json!({"name": "gpu", "resources": [quota("cpu", "4"), quota("memory", "1Gi")]});
    let groups = json!([{"coveredResources": ["cpu", "memory"], "flavors": [flavor]}]);
    let cluster = cluster_with_queue(4, json!({"resourceGroups": groups})).await;
    Jobs::of(&cluster, "ray.io/rayjob").install().await;
    let _controller = controller(&cluster, all_kinds());
    let jobs = Jobs::of(&cluster, "ray.io/rayjob");
    let mut spec = ray_job(1);
    spec["submissionMode"] = "K8sJobMode".into();
    spec["rayClusterSpec"]["workerGroupSpecs"][0]["numOfHosts"] = 2.into();
    jobs.submit("train", spec).await;
    let workload = jobs.workload("train", |workload| is(workload, "Admitted", "True", "Admitted")).await;
    let sets = workload.data["spec"]["podSets"].as_array().unwrap();
    let counted: Vec<_> =
        sets.iter().map(|set| (set["name"].as_str().unwrap(), set["count"].as_u64())).collect();
    assert_eq!(counted, [("head", Some(1)), ("small", Some(2)), ("submitter", Some(1))]);
    let job = jobs.running("train").await;
    let submitter = &job.data["spec"]["submitterPodTemplate"];
    assert_eq!(submitter["spec"]["nodeSelector"], json!({"pool": "gpu"}), "its template is written");
    assert_eq!(submitter["spec"]["containers"][0]["image"], "i");
    jobs.status("train", &json!({"jobDeploymentStatus": "Running"})).await;
    let usage = |status: &Value| status["flavorsUsage"][0]["resources"][0]["total"] == "3500m";
    queue_status(&cluster, "team", usage).await;
    jobs.merge("train", json!({"spec": {"entrypoint": "other"}})).await;
    jobs.submit("next", ray_job(1)).await;
    jobs.workload("next", |workload| is(workload, "QuotaReserved", "False", "Pending")).await;
    assert_eq!(jobs.running("train").await.data["spec"]["suspend"], false, "its pods are as they were");
}

#[tokio::test(start_paused = true)]
async fn a_ray_job_whose_pods_change_while_it_runs_is_stopped_and_queued_again() {
    let cluster = ray_kinds(4).await;
    let _controller = controller(&cluster, all_kinds());
    let jobs = Jobs::of(&cluster, "ray.io/rayjob");
    jobs.submit("train", ray_job(1)).await;
    jobs.running("train").await;
    jobs.status("train", &json!({"jobDeploymentStatus": "Running"})).await;
    let mut spec = ray_job(3);
    spec["rayClusterSpec"]["workerGroupSpecs"][0]["template"]["spec"]["nodeSelector"] =
        json!({"pool": "gpu"});
    let group = spec["rayClusterSpec"]["workerGroupSpecs"].clone();
    jobs.merge("train", json!({"spec": {"rayClusterSpec": {"workerGroupSpecs": group}}})).await;
    let stopped = jobs.stopped("train").await;
    assert!(
        stopped.data["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["nodeSelector"].is_null()
    );
    jobs.status("train", &json!({"jobDeploymentStatus": "Suspended"})).await;
    jobs.running("train").await;
    let workload = jobs.workload("train", |workload| is(workload, "Admitted", "True", "Admitted")).await;
    assert_eq!(workload.data["spec"]["podSets"][1]["count"], 3);
}

#[tokio::test(start_paused = true)]
async fn a_ray_job_that_its_operator_refuses_gives_its_quota_back() {
    let cluster = ray_kinds(2).await;
    let _controller = controller(&cluster, all_kinds());
    let jobs = Jobs::of(&cluster, "ray.io/rayjob");
    jobs.submit("broken", ray_job(1)).await;
    jobs.running("broken").await;
    jobs.submit("next", ray_job(1)).await;
    jobs.workload("next", |workload| is(workload, "QuotaReserved", "False", "Pending")).await;
    jobs.status("broken", &json!({"jobDeploymentStatus": "ValidationFailed"})).await;
    let workload = jobs.workload("broken", |found| is(found, "QuotaReserved", "False", "OnHold")).await;
    assert_eq!(condition(&workload, "QuotaReserved").unwrap()["message"], "Job is on hold");
    jobs.running("next").await;
    cluster.delete_now(&jobs.resource(), "default", "next").await;
    cluster.settled().await;
    jobs.workload("broken", |found| is(found, "QuotaReserved", "False", "OnHold")).await;
    jobs.status("broken", &json!({"jobDeploymentStatus": "Suspended"})).await;
    jobs.workload("broken", |workload| is(workload, "Admitted", "True", "Admitted")).await;
}

#[tokio::test(start_paused = true)]
async fn the_cluster_of_a_ray_job_has_no_workload_and_runs_while_the_job_is_admitted() {
    let cluster = ray_kinds(2).await;
    let _controller = controller(&cluster, all_kinds());
    let [jobs, clusters] = ["ray.io/rayjob", "ray.io/raycluster"].map(|name| Jobs::of(&cluster, name));
    let owner = |job: &DynamicObject| {
        json!({"ownerReferences": [{"apiVersion": "ray.io/v1", "kind": "RayJob", "controller": true,
            "name": job.metadata.name, "uid": job.metadata.uid}],
            "labels": {"kueue.x-k8s.io/queue-name": "team"}})
    };
    let first = jobs.submit("first", ray_job(1)).await;
    jobs.running("first").await;
    let mut spec = ray_cluster(1);
    spec["suspend"] = false.into();
    clusters.submit_with("first-abcde", owner(&first), spec.clone()).await;
    clusters.merge("first-abcde", json!({"spec": {"suspend": false}})).await;
    let second = jobs.submit("second", ray_job(1)).await;
    clusters.submit_with("second-abcde", owner(&second), spec.clone()).await;
    clusters.merge("second-abcde", json!({"spec": {"suspend": false}})).await;
    clusters.stopped("second-abcde").await;
    cluster.settled().await;
    assert_eq!(clusters.get("first-abcde").await.data["spec"]["suspend"], false);
    assert_eq!(cluster.names(&workloads(), "default").await.len(), 2, "those of the RayJobs");
    cluster.delete_now(&jobs.resource(), "default", "first").await;
    clusters.running("second-abcde").await;
    let told = "second-abcde Suspended: Kueue managed child job suspended";
    let events = cluster.events().await;
    assert!(events.iter().any(|event| event.starts_with(told)), "{events:#?}");
}

/// The metadata of a job without a queue that another one owns.
fn owned(kind: &Jobs<'_>, owner: &DynamicObject) -> Value {
    let resource = kind.resource();
    json!({"labels": {}, "ownerReferences": [{"apiVersion": resource.api_version, "kind": resource.kind,
        "controller": true, "name": owner.metadata.name, "uid": owner.metadata.uid}]})
}

#[tokio::test(start_paused = true)]
async fn a_job_without_a_queue_follows_the_job_with_a_queue_that_owns_it() {
    let cluster = cluster_with_queue(2, json!({})).await;
    let [parents, children] = ["kubeflow.org/mpijob", "batch/job"].map(|name| Jobs::of(&cluster, name));
    parents.install().await;
    let _controller = controller(&cluster, all_kinds());
    let spec =
        training("kubeflow.org/mpijob", "mpiReplicaSpecs", &["/spec/mpiReplicaSpecs/Worker/template"]).spec;
    parents.submit("first", spec.clone()).await;
    parents.running("first").await;
    let parent = parents.submit("second", spec).await;
    let job = job("job", 1)["spec"].clone();
    for (name, metadata) in [("launcher", owned(&parents, &parent)), ("lone", json!({"labels": {}}))] {
        children.submit_with(name, metadata, job.clone()).await;
        children.merge(name, json!({"spec": {"suspend": false}})).await;
    }
    children.stopped("launcher").await;
    cluster.settled().await;
    assert_eq!(children.get("lone").await.data["spec"]["suspend"], false, "nothing owns it");
    assert_eq!(cluster.names(&workloads(), "default").await.len(), 2, "those of the parents");
    cluster.delete_now(&parents.resource(), "default", "first").await;
    children.running("launcher").await;
}

#[tokio::test(start_paused = true)]
async fn a_job_follows_an_owner_that_another_process_starts() {
    let cluster = ray_kinds(2).await;
    let kinds = |name| JobKind::of_framework(name).into_iter().collect();
    let config = JobsConfig {
        kinds: kinds("ray.io/raycluster"),
        others: kinds("ray.io/rayjob"),
        ..JobsConfig::default()
    };
    let _controller = controller(&cluster, config);
    let [parents, children] = ["ray.io/rayjob", "ray.io/raycluster"].map(|name| Jobs::of(&cluster, name));
    let parent = parents.submit("train", ray_job(1)).await;
    parents.merge("train", json!({"spec": {"suspend": false}})).await;
    children.submit_with("train-abcde", owned(&parents, &parent), ray_cluster(1)).await;
    children.merge("train-abcde", json!({"spec": {"suspend": false}})).await;
    children.stopped("train-abcde").await;
    cluster.settled().await;
    assert_eq!(parents.get("train").await.data["spec"]["suspend"], false, "it is left to the other process");
    assert_eq!(cluster.names(&workloads(), "default").await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_ray_job_on_a_cluster_that_is_there_and_the_jobs_of_an_app_wrapper_are_left_alone() {
    let cluster = ray_kinds(2).await;
    let _controller = controller(&cluster, all_kinds());
    let jobs = Jobs::of(&cluster, "ray.io/rayjob");
    let selector = json!({"clusterSelector": {"ray.io/cluster": "shared"}, "entrypoint": "python"});
    jobs.submit("guest", selector).await;
    jobs.merge("guest", json!({"spec": {"suspend": false}})).await;
    let version = Group::Mcad.api_version();
    let object = json!({"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "wrapped"}, "spec": ray_job(1)});
    let wrapper = json!({"apiVersion": version, "kind": "AppWrapper", "metadata": {"name": "w"},
        "spec": {"resources": {"GenericItems": [{"replicas": 1, "generictemplate": object}]}}});
    cluster.submit(wrapper).await;
    let wrapper = cluster.api(&wrappers(Group::Mcad), "default").get("w").await.unwrap().metadata;
    let wrapper = json!({"apiVersion": version, "kind": "AppWrapper", "name": "w", "uid": wrapper.uid,
        "controller": true});
    let more = json!({"ownerReferences": [wrapper], "labels": {"kueue.x-k8s.io/queue-name": "team"}});
    jobs.submit_with("wrapped", more, ray_job(1)).await;
    jobs.merge("wrapped", json!({"spec": {"suspend": false}})).await;
    cluster.settled().await;
    for name in ["guest", "wrapped"] {
        assert_eq!(jobs.get(name).await.data["spec"]["suspend"], false, "{name}");
    }
    assert_eq!(cluster.names(&workloads(), "default").await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_train_job_waits_for_its_runtime() {
    let cluster = cluster_with_queue(2, json!({})).await;
    let jobs = Jobs::of(&cluster, "trainer.kubeflow.org/trainjob");
    jobs.install().await;
    let _controller = controller(&cluster, all_kinds());
    jobs.submit("early", train_job().spec).await;
    cluster.settled().await;
    assert_eq!(cluster.names(&workloads(), "default").await, Vec::<String>::new());
    create_runtime(&cluster).await;
    let job = jobs.running("early").await;
    assert!(job.data.get(api::kueue::jobs::REFERENCED).is_none(), "the runtime is not written");
    let workload = jobs.workload("early", |workload| is(workload, "Admitted", "True", "Admitted")).await;
    assert_eq!(workload.data["spec"]["podSets"][0]["count"], 2);
}
