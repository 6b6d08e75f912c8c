//! Jobs of the kinds that one operator runs: `TrainJobs`, Spark applications, AppWrappers `v1beta2` and kinds from a file.

#![allow(clippy::unwrap_used, reason = "a failed helper ends the test")]

use crate::support::{Cluster, DEFAULT, PODS, cluster, cluster_with_kinds, holds};
use api::kueue::jobs::declare;
use serde_json::{Value, json};

const TRAIN_JOBS: &str = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs";
const SPARK: &str = "/apis/sparkoperator.k8s.io/v1beta2/namespaces/default/sparkapplications";
const WRAPPERS: &str = "/apis/workload.codeflare.dev/v1beta2/namespaces/default/appwrappers";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const RUNS: &str = "/apis/example.com/v1/namespaces/default/trainingruns";

fn template(annotations: &Value) -> Value {
    json!({"metadata": {"annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]}})
}

async fn names(cluster: &Cluster) -> Vec<String> {
    let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap().to_owned();
    let mut names: Vec<String> = cluster.pods().await.iter().map(name).collect();
    names.sort();
    names
}

async fn no_pod_is_left(cluster: &Cluster) {
    cluster.eventually("no pod is left", || async { cluster.pods().await.is_empty().then_some(()) }).await;
}

#[tokio::test(start_paused = true)]
async fn a_train_job_runs_as_its_runtime_and_its_admission_say() {
    let cluster = cluster(&DEFAULT, 1.0).await;
    let path = format!("{TRAIN_JOBS}/train");
    let spec = json!({"runtimeRef": {"name": "torch-distributed"}, "suspend": true,
        "trainer": {"numNodes": 2, "resourcesPerNode": {"requests": {"cpu": "2"}}}});
    let job = json!({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
        "metadata": {"name": "train"}, "spec": spec});
    cluster.create(TRAIN_JOBS, &job).await;
    let job = cluster.until(&path, |job| holds(job, "Suspended", "True")).await;
    assert_eq!(job["spec"]["runtimeRef"]["kind"], "ClusterTrainingRuntime");
    assert!(cluster.pods().await.is_empty());
    let added = json!({"name": "node", "template": {"spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": "cpu"}}}}}});
    let patch = json!({"manager": "kueue.x-k8s.io/manager",
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [added]}}}});
    cluster.patch(&path, &json!({"spec": {"suspend": false, "runtimePatches": [patch]}})).await;
    let job = cluster.until(&path, |job| job["status"]["jobsStatus"][0]["ready"] == 1).await;
    assert!(holds(&job, "Suspended", "False"), "{job:#}");
    let pods = cluster.pods().await;
    assert_eq!(pods.len(), 2);
    assert!(pods.iter().all(|pod| pod["spec"]["nodeName"] == "cpu"), "{pods:#?}");
    assert_eq!(pods[0]["spec"]["containers"][0]["resources"]["requests"]["cpu"], "2");
    cluster.patch(&path, &json!({"spec": {"suspend": true}})).await;
    no_pod_is_left(&cluster).await;
    cluster
        .until(&path, |job| holds(job, "Suspended", "True") && job["status"]["jobsStatus"][0]["active"] == 0)
        .await;
    cluster.patch(&path, &json!({"spec": {"suspend": false}})).await;
    let job = cluster.until(&path, |job| holds(job, "Complete", "True")).await;
    assert_eq!(job["status"]["jobsStatus"][0]["succeeded"], 1, "{job:#}");
}

#[tokio::test(start_paused = true)]
async fn a_train_job_whose_runtime_comes_later_says_so_and_then_starts() {
    let cluster = cluster(&DEFAULT, 1.0).await;
    let job = json!({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "train"},
        "spec": {"runtimeRef": {"name": "mine", "kind": "TrainingRuntime"}}});
    cluster.create(TRAIN_JOBS, &job).await;
    cluster
        .eventually("an Event names the runtime", || async {
            let events = cluster.events("train").await;
            events.iter().any(|event| event.contains("TrainingRuntime \"mine\" does not exist")).then_some(())
        })
        .await;
    let mut runtime =
        cluster.get("/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes/torch-distributed").await;
    runtime["metadata"] = json!({"name": "mine"});
    runtime["kind"] = "TrainingRuntime".into();
    cluster.create("/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainingruntimes", &runtime).await;
    cluster.until(&format!("{TRAIN_JOBS}/train"), |job| holds(job, "Complete", "True")).await;
}

#[tokio::test(start_paused = true)]
async fn a_spark_application_has_executors_while_its_driver_runs() {
    let cluster = cluster(&DEFAULT, 1.0).await;
    let path = format!("{SPARK}/pi");
    let app = |driver: &Value| {
        let driver = json!({"cores": 1, "memory": "1g", "annotations": driver});
        json!({"apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication", "metadata": {"name": "pi"},
            "spec": {"type": "Python", "mode": "cluster", "suspend": true, "driver": driver,
                "executor": {"instances": 2, "cores": 1, "memory": "1g", "nodeSelector": {"kubernetes.io/hostname": "cpu"}}}})
    };
    let state = |app: &Value| app["status"]["applicationState"]["state"].clone();
    cluster.create(SPARK, &app(&json!({"sandbox.muster.dev/run-time": "3m"}))).await;
    cluster.until(&path, |app| state(app) == "SUSPENDED").await;
    for suspend in [false, true, false] {
        cluster.patch(&path, &json!({"spec": {"suspend": suspend}})).await;
        if suspend {
            cluster.until(&path, |app| state(app) == "SUSPENDED").await;
            assert!(cluster.pods().await.is_empty());
            continue;
        }
        cluster
            .until(&path, |app| {
                app["status"]["executorState"] == json!({"pi-exec-1": "RUNNING", "pi-exec-2": "RUNNING"})
            })
            .await;
        assert_eq!(names(&cluster).await, ["pi-driver", "pi-exec-1", "pi-exec-2"]);
        let executor = cluster.get(&format!("{PODS}/pi-exec-1")).await;
        assert_eq!(executor["spec"]["nodeName"], "cpu");
    }
    let done = cluster.until(&path, |app| state(app) == "COMPLETED").await;
    assert!(done["status"]["terminationTime"].is_string(), "{done:#}");
    cluster
        .eventually("the executors are gone", || async {
            (names(&cluster).await == ["pi-driver"]).then_some(())
        })
        .await;
    cluster.delete(&path).await;
    no_pod_is_left(&cluster).await;
    cluster.create(SPARK, &app(&json!({"sandbox.muster.dev/fail": "exit=1"}))).await;
    cluster.patch(&path, &json!({"spec": {"suspend": false}})).await;
    cluster.until(&path, |app| state(app) == "FAILED").await;
}

fn wrapper(annotations: &Value, infos: &Value) -> Value {
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "inner"},
        "spec": {"parallelism": 2, "completions": 2, "backoffLimit": 0, "template": template(annotations)}});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}});
    json!({"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "metadata": {"name": "aw"},
        "spec": {"suspend": true, "components": [{"template": map}, {"template": job, "podSetInfos": infos}]}})
}

#[tokio::test(start_paused = true)]
async fn an_app_wrapper_with_components_has_their_objects_while_it_runs() {
    let cluster = cluster(&DEFAULT, 1.0).await;
    let (path, inner) = (format!("{WRAPPERS}/aw"), format!("{JOBS}/inner"));
    let infos = json!([{"nodeSelector": {"kubernetes.io/hostname": "cpu"}, "labels": {"team": "a"}}]);
    cluster.create(WRAPPERS, &wrapper(&json!({}), &infos)).await;
    let suspended = cluster.until(&path, |wrapper| wrapper["status"]["phase"] == "Suspended").await;
    assert_eq!(suspended["status"]["componentStatus"][1]["podSets"][0]["replicas"], 2, "{suspended:#}");
    assert!(cluster.get(&inner).await.is_null());
    for suspend in [false, true, false] {
        cluster.patch(&path, &json!({"spec": {"suspend": suspend}})).await;
        if suspend {
            cluster.until(&path, |wrapper| wrapper["status"]["phase"] == "Suspended").await;
            assert!(cluster.get(&inner).await.is_null());
            continue;
        }
        let running = cluster.until(&path, |wrapper| holds(wrapper, "PodsReady", "True")).await;
        assert_eq!(running["status"]["phase"], "Running");
        let pods = cluster.pods().await;
        assert!(pods.iter().all(|pod| pod["spec"]["nodeName"] == "cpu"), "{pods:#?}");
        assert_eq!(pods[0]["metadata"]["labels"]["team"], "a");
        assert!(!cluster.get("/api/v1/namespaces/default/configmaps/settings").await.is_null());
    }
    let done = cluster.until(&path, |wrapper| wrapper["status"]["phase"] == "Succeeded").await;
    assert!(holds(&done, "QuotaReserved", "False"), "{done:#}");
    cluster.delete(&path).await;
    no_pod_is_left(&cluster).await;
    cluster.create(WRAPPERS, &wrapper(&json!({"sandbox.muster.dev/fail": "exit=1"}), &json!([]))).await;
    cluster.patch(&path, &json!({"spec": {"suspend": false}})).await;
    cluster
        .until(&path, |wrapper| {
            wrapper["status"]["phase"] == "Failed" && holds(wrapper, "ResourcesDeployed", "False")
        })
        .await;
    assert!(cluster.get(&inner).await.is_null(), "the objects of one that failed are gone");
}

#[tokio::test(start_paused = true)]
async fn a_kind_from_a_file_is_served_and_its_jobs_run_and_end() {
    let file = json!({"kinds": [{
        "apiVersion": "example.com/v1", "kind": "TrainingRun", "resource": "trainingruns",
        "podSets": {"at": "/spec/groups", "count": [["/replicas"], ["/size"]], "template": "/template"},
        "indexLabel": "example.com/index",
        "active": "/status/groups/*/active",
        "ready": {"numbers": {"wanted": "/spec/groups/*/replicas",
            "ready": ["/status/groups/*/ready", "/status/groups/*/done"]}},
        "succeeded": "Complete",
        "ended": {"at": "/status/groups", "field": "/done"},
    }]});
    let kinds = declare(&file).unwrap();
    let cluster = cluster_with_kinds(&DEFAULT, kinds.clone()).await;
    let path = format!("{RUNS}/run");
    let run = |annotations: &Value| {
        let group = |name: &str, replicas: u32, size: u32| json!({"name": name, "replicas": replicas, "size": size, "template": template(annotations)});
        json!({"apiVersion": "example.com/v1", "kind": "TrainingRun", "metadata": {"name": "run"},
            "spec": {"suspend": true, "groups": [group("head", 1, 1), group("worker", 2, 2)]}})
    };
    cluster.create(RUNS, &run(&json!({}))).await;
    cluster.until(&path, |job| holds(job, "Suspended", "True")).await;
    cluster.patch(&path, &json!({"spec": {"suspend": false}})).await;
    let integration = kinds[0].integration;
    let job = cluster.until(&path, |job| integration.are_pods_ready(job)).await;
    assert_eq!(job["status"]["groups"][1], json!({"name": "worker", "active": 4, "ready": 2, "done": 0}));
    assert!(integration.is_active(&job) && integration.finished(&job).is_none(), "{job:#}");
    assert_eq!(
        names(&cluster).await,
        ["run-head-0", "run-worker-0", "run-worker-1", "run-worker-2", "run-worker-3"]
    );
    let pod = cluster.get(&format!("{PODS}/run-worker-3")).await;
    assert_eq!(pod["metadata"]["labels"]["example.com/index"], "3");
    let job = cluster.until(&path, |job| integration.finished(job).is_some_and(|end| end.succeeded)).await;
    assert_eq!(job["status"]["groups"][1]["done"], 2, "{job:#}");
    assert!(!integration.is_active(&job));
    cluster.delete(&path).await;
    no_pod_is_left(&cluster).await;
    cluster.create(RUNS, &run(&json!({"sandbox.muster.dev/fail": "exit=1"}))).await;
    cluster.patch(&path, &json!({"spec": {"suspend": false}})).await;
    let job = cluster.until(&path, |job| integration.finished(job).is_some()).await;
    assert!(holds(&job, "Failed", "True"), "{job:#}");
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_an_app_wrapper_of_the_older_version_are_left_alone() {
    let cluster = cluster(&DEFAULT, 1.0).await;
    let wrapper = json!({"apiVersion": "workload.codeflare.dev/v1beta1", "kind": "AppWrapper",
        "metadata": {"name": "older"}, "spec": {"resources": {}}});
    let wrapper = cluster.create(&WRAPPERS.replace("v1beta2", "v1beta1"), &wrapper).await;
    let owner = json!({"apiVersion": "workload.codeflare.dev/v1beta1", "kind": "AppWrapper", "name": "older",
        "uid": wrapper["metadata"]["uid"], "controller": true});
    let mut pod = template(&json!({"sandbox.muster.dev/run-time": "1h"}));
    pod["metadata"]["name"] = "p".into();
    pod["metadata"]["ownerReferences"] = json!([owner]);
    cluster.create(PODS, &pod).await;
    cluster.until(&format!("{PODS}/p"), |pod| pod["status"]["phase"] == "Running").await;
    cluster.patch(&format!("{WRAPPERS}/older"), &json!({"metadata": {"labels": {"seen": "yes"}}})).await;
    // Another one runs to its end meanwhile.
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "other"}, "spec": {"template": template(&json!({}))}});
    let component = json!({"template": job});
    let newer = json!({"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper",
        "metadata": {"name": "newer"}, "spec": {"components": [component]}});
    cluster.create(WRAPPERS, &newer).await;
    cluster.until(&format!("{WRAPPERS}/newer"), |wrapper| wrapper["status"]["phase"] == "Succeeded").await;
    assert_eq!(names(&cluster).await.iter().filter(|name| *name == "p").count(), 1);
}
