//! The pods of kinds of jobs that describe them elsewhere than in templates of their own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use api::kueue::jobs::{Injection, JobKind, REFERENCED};
use api::kueue::status::{PodSetAssignment, ReclaimablePods};
use serde_json::{Value, json};

fn kind(framework: &str) -> &'static JobKind {
    JobKind::of_framework(framework).unwrap()
}

fn template(cpu: &str) -> Value {
    json!({"spec": {"containers": [{"name": "node", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}})
}

fn added(name: &str) -> Injection {
    let assignment = PodSetAssignment { name: name.into(), ..PodSetAssignment::default() };
    Injection::of_flavors(&assignment, 3, |_| None).unwrap()
}

fn counts(sets: &[Value]) -> Vec<(String, u64)> {
    let count = |set: &Value| (set["name"].as_str().unwrap().to_owned(), set["count"].as_u64().unwrap());
    sets.iter().map(count).collect()
}

fn named(sets: &[(&str, u64)]) -> Vec<(String, u64)> {
    sets.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

fn wrapper(components: &Value) -> Value {
    json!({"metadata": {"name": "aw"}, "spec": {"components": components}})
}

#[test]
fn the_pod_sets_of_components_are_found() {
    let kind = kind("workload.codeflare.dev/appwrapper");
    let sets = |components: Value| kind.integration.pod_sets(&wrapper(&components));
    let of = |version: &str, kind: &str, spec: Value| json!([{"template": {"apiVersion": version, "kind": kind, "metadata": {"name": "x", "labels": {"a": "b"}}, "spec": spec}}]);
    let pod = template("1")["spec"].clone();
    let role = |replicas: u32| json!({"replicas": replicas, "template": template("1")});
    let ray = json!({"headGroupSpec": role(1), "workerGroupSpecs": [role(3), role(0)]});
    let set = json!({"replicatedJobs": [{"name": "w", "replicas": 2,
        "template": {"spec": {"parallelism": 3, "completions": 2, "template": template("1")}}}]});
    let job = json!({"parallelism": 3, "completions": 2, "template": template("1")});
    for (version, kind, spec, expected) in [
        ("v1", "Pod", pod, &[("aw-0", 1)][..]),
        ("apps/v1", "Deployment", role(4), &[("aw-0", 4)]),
        ("apps/v1", "StatefulSet", json!({"template": template("1")}), &[("aw-0", 1)]),
        ("batch/v1", "Job", job, &[("aw-0", 2)]),
        ("jobset.x-k8s.io/v1alpha2", "JobSet", set, &[("aw-0", 4)]),
        (
            "kubeflow.org/v1",
            "PyTorchJob",
            json!({"pytorchReplicaSpecs": {"Worker": role(2), "Master": role(1)}}),
            &[("aw-0", 1), ("aw-1", 2)],
        ),
        ("ray.io/v1", "RayCluster", ray.clone(), &[("aw-0", 1), ("aw-1", 3), ("aw-2", 0)]),
        ("ray.io/v1", "RayJob", json!({"rayClusterSpec": ray}), &[("aw-0", 1), ("aw-1", 3), ("aw-2", 0)]),
        ("v1", "Service", json!({}), &[]),
        ("batch/v1", "Job", json!({"template": {}}), &[]),
    ] {
        assert_eq!(counts(&sets(of(version, kind, spec))), named(expected), "{kind}");
    }
}

#[test]
fn declared_and_recorded_pod_sets_take_the_place_of_inferred_ones() {
    let kind = kind("workload.codeflare.dev/appwrapper");
    let set = json!({"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
        "spec": {"groups": [{"template": template("1")}]}});
    let path = "template.spec.groups[0].template";
    let declared =
        |path: &str| json!([{"template": set, "podSets": [{"path": path, "replicas": 3}, {"path": path}]}]);
    let mut job = wrapper(&declared(path));
    assert_eq!(counts(&kind.integration.pod_sets(&job)), named(&[("aw-0", 3), ("aw-1", 1)]));
    assert_eq!(
        kind.integration.pod_sets(&wrapper(&declared("template.spec.groups[7]"))),
        Vec::<Value>::new()
    );
    job["status"] = json!({"componentStatus": [{"podSets": [{"path": path, "replicas": 5}]}]});
    assert_eq!(counts(&kind.integration.pod_sets(&job)), named(&[("aw-0", 5)]));
}

#[test]
fn what_an_admission_adds_to_components_is_beside_them_and_goes_with_it() {
    let kind = kind("workload.codeflare.dev/appwrapper");
    let level = json!({"kueue.x-k8s.io/podset-required-topology": "rack"});
    let mut near = template("1");
    near["metadata"] = json!({"annotations": level});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": near}});
    let job = wrapper(&json!([{"template": {"apiVersion": "v1", "kind": "Service"}}, {"template": job}]));
    let request = json!({"required": "rack", "podIndexLabel": "batch.kubernetes.io/job-completion-index"});
    assert_eq!(kind.integration.pod_sets(&job)[0]["topologyRequest"], request);
    assert!(kind.start(&job, &[]).is_err(), "one pod set");
    let started = kind.start(&job, &[added("aw-0")]).unwrap();
    assert_eq!(started["spec"]["components"][1]["podSetInfos"], json!([{}]));
    assert_eq!(started["spec"]["suspend"], false);
    let workload = json!({"spec": {"podSets": kind.integration.pod_sets(&job)}});
    let restored = kind.restore(&started, &workload);
    assert_eq!(restored["spec"]["components"], job["spec"]["components"]);
}

#[test]
fn the_pods_of_a_train_job_are_those_of_its_runtime_as_it_changes_them() {
    let kind = kind("trainer.kubeflow.org/trainjob");
    let step = |name: &str, step: &str| {
        json!({"name": name, "replicas": 1, "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": step}},
            "spec": {"template": template("1")}}})
    };
    let runtime = |policy: Value| {
        json!({"spec": {"mlPolicy": policy, "template": {"spec": {"replicatedJobs":
            [step("model", "model-initializer"), step("node", "trainer")]}}}})
    };
    let patch = |manager: &str, selector: &str| {
        json!({"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [{"name": "node",
            "template": {"spec": {"template": {"spec": {"nodeSelector": {"pool": selector}}}}}}]}}}})
    };
    let job = |policy: Value, trainer: Value| {
        json!({REFERENCED: runtime(policy), "spec": {"trainer": trainer,
            "runtimePatches": [patch("author", "a100"), patch("kueue.x-k8s.io/manager", "other")]}})
    };
    let pods = |policy: Value, trainer: Value| counts(&kind.integration.pod_sets(&job(policy, trainer)));
    let both = |nodes| named(&[("model", 1), ("node", nodes)]);
    assert_eq!(pods(Value::Null, json!({})), both(1));
    assert_eq!(pods(json!({"numNodes": 4}), json!({})), both(4));
    assert_eq!(pods(json!({"numNodes": 4, "torch": {}}), json!({"numNodes": 2})), both(2));
    assert_eq!(pods(json!({"mpi": {"runLauncherAsNode": true}}), json!({"numNodes": 4})), both(3));
    let trainer = json!({"image": "mine", "env": [{"name": "A", "value": "1"}],
        "resourcesPerNode": {"requests": {"cpu": "8"}}});
    let changed = job(json!({"numNodes": 1}), trainer);
    let spec = &kind.integration.pod_sets(&changed)[1]["template"]["spec"];
    assert_eq!(spec["nodeSelector"], json!({"pool": "a100"}), "the patch of the admission does not count");
    let expected = json!([{"name": "node", "image": "mine", "env": [{"name": "A", "value": "1"}],
        "resources": {"requests": {"cpu": "8"}}}]);
    assert_eq!(spec["containers"], expected);
    let mut ended = changed;
    ended["status"] =
        json!({"jobsStatus": [{"name": "model", "succeeded": 1}, {"name": "node", "ready": 1}]});
    assert_eq!(kind.integration.reclaimable(&ended), [ReclaimablePods { name: "model".into(), count: 1 }]);
    assert!(kind.integration.are_pods_ready(&ended));
}

#[test]
fn the_driver_and_the_executors_of_spark_are_counted_as_their_fields_say() {
    let kind = kind("sparkoperator.k8s.io/sparkapplication");
    let gate = json!({"name": "mine"});
    let app = json!({"spec": {
        "nodeSelector": {"disk": "ssd"},
        "volumes": [{"name": "data", "emptyDir": {}}, {"name": "unused", "emptyDir": {}}],
        "driver": {"cores": 1, "coreRequest": "500m", "coreLimit": "1200m", "memory": "512m", "labels": {"a": "b"},
            "volumeMounts": [{"name": "data", "mountPath": "/d"}, {"name": "spark-local-dir-1", "mountPath": "/t"}]},
        "executor": {"instances": 3, "memory": "2g", "gpu": {"name": "nvidia.com/gpu", "quantity": 2},
            "template": {"metadata": {"labels": {"c": "d"}}, "spec": {"schedulingGates": [gate]}},
            "sidecars": [{"name": "log", "image": "l"}]},
    }});
    let sets = kind.integration.pod_sets(&app);
    assert_eq!(counts(&sets), named(&[("driver", 1), ("executor", 3)]));
    let spec = |at: usize| &sets[at]["template"]["spec"];
    assert_eq!(
        spec(0)["containers"],
        json!([{"name": "spark-kubernetes-driver", "volumeMounts": [{"name": "data", "mountPath": "/d"}],
            "resources": {"requests": {"cpu": "500m", "memory": "896Mi"}, "limits": {"cpu": "1200m"}}}])
    );
    assert_eq!(spec(0)["volumes"], json!([{"name": "data", "emptyDir": {}}]));
    assert_eq!(
        spec(1)["containers"],
        json!([{"name": "spark-kubernetes-executor",
            "resources": {"requests": {"cpu": "1", "memory": "2432Mi"}, "limits": {"nvidia.com/gpu": "2"}}},
            {"name": "log", "image": "l"}])
    );
    assert_eq!(sets[1]["template"]["metadata"]["labels"], json!({"c": "d"}));
    let added = ["driver", "executor"].map(added);
    let started = kind.start(&app, &added).unwrap();
    for role in ["driver", "executor"] {
        assert_eq!(
            started["spec"][role]["nodeSelector"],
            json!({"disk": "ssd"}),
            "it was that of the application"
        );
    }
    assert!(started["spec"]["nodeSelector"].is_null());
    assert_eq!(started["spec"]["executor"]["template"]["spec"]["schedulingGates"], json!([gate]));
    let workload = json!({"spec": {"podSets": sets}});
    let restored = kind.restore(&started, &workload);
    for role in ["driver", "executor"] {
        assert_eq!(
            restored["spec"][role]["nodeSelector"],
            json!({"disk": "ssd"}),
            "it stays that of the roles"
        );
    }
    let failed = json!({"status": {"applicationState": {"state": "SUBMISSION_FAILED"}}});
    assert_eq!(kind.integration.finished(&failed), None, "the operator may submit it again");
}

#[test]
fn jobs_with_hostile_fields_are_read_without_a_panic() {
    let odd = [json!(null), json!(7), json!("x"), json!([]), json!([7, null]), json!({}), json!({"a": []})];
    for framework in [
        "workload.codeflare.dev/appwrapper",
        "trainer.kubeflow.org/trainjob",
        "sparkoperator.k8s.io/sparkapplication",
    ] {
        let kind = kind(framework);
        for (one, other) in odd.iter().flat_map(|one| odd.iter().map(move |other| (one, other))) {
            let job = json!({"spec": {"components": other, "driver": one, "executor": other, "volumes": one,
                    "runtimePatches": one, "trainer": other, "runtimeRef": one, "nodeSelector": one},
                "status": {"componentStatus": one, "jobsStatus": other, "applicationState": one},
                REFERENCED: {"spec": {"mlPolicy": one, "template": {"spec": {"replicatedJobs": [other, one]}}}}});
            for job in [job, json!({"spec": one, "status": other}), one.clone()] {
                let integration = kind.integration;
                let sets = integration.pod_sets(&job);
                let added = vec![Injection::default(); sets.len()];
                let _ = (kind.start(&job, &added), integration.reference(&job), integration.finished(&job));
                let _ = (
                    integration.is_active(&job),
                    integration.are_pods_ready(&job),
                    integration.reclaimable(&job),
                );
                let _ = kind.restore(&job, &json!({"spec": {"podSets": sets}}));
            }
        }
    }
}
