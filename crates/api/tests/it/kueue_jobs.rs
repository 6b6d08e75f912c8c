//! Jobs of Kueue's API: their Workloads, what their admission adds, and the rules of their webhooks.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use api::Meta;
use api::kueue::jobs::{CopiedKeys, Flavor, Injection, InjectionError, JobKind, Priority};
use api::kueue::status::{ReclaimablePods, Status};
use api::kueue::webhooks::{Context, JobDefaults, JobRules, Operation, default, review};
use api::selector::LabelSelector;
use serde_json::{Value, json};

fn kind() -> &'static JobKind {
    JobKind::of_framework("batch/job").unwrap()
}

fn job(spec: &Value, status: &Value) -> Value {
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "train", "namespace": "team", "uid": "11111111-2222-3333-4444-555555555555",
            "labels": {"kueue.x-k8s.io/queue-name": "gpu"}},
        "spec": {"template": {"spec": {"containers": [{"name": "c"}], "nodeSelector": {"zone": "a"}}}},
        "status": status,
    });
    job["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    job
}

fn admission(flavors: &Value) -> Status {
    let set = json!({"name": "main", "count": 2, "flavors": flavors});
    serde_json::from_value(json!({"admission": {"clusterQueue": "queue", "podSetAssignments": [set]}}))
        .unwrap()
}

fn flavor(name: &str) -> Option<Flavor> {
    let labels = [("pool".to_owned(), name.to_owned())].into();
    (name != "missing")
        .then(|| Flavor { node_labels: labels, tolerations: vec![json!({"operator": "Exists"})] })
}

#[test]
fn the_workload_of_a_job_has_the_name_that_kueue_gives_it() {
    let job = job(&json!({"parallelism": 4, "completions": 2}), &json!({}));
    let workload = kind().workload(&job, &Priority::of_pod_class("high", 5), &CopiedKeys::default());
    assert_eq!(workload["metadata"]["name"], "job-train-a24cf");
    assert_eq!(workload["metadata"]["labels"]["kueue.x-k8s.io/job-uid"], job["metadata"]["uid"]);
    assert_eq!(workload["spec"]["podSets"][0]["count"], 2);
    assert_eq!(workload["spec"]["priorityClassRef"]["kind"], "PriorityClass");
    let long = "n".repeat(300);
    assert_eq!(kind().workload_name(&long, "uid").len(), 253);
}

#[test]
fn a_started_job_is_restored_to_what_it_was() {
    let before = job(&json!({"suspend": true}), &json!({}));
    let workload = kind().workload(&before, &Priority::default(), &CopiedKeys::default());
    let injections =
        Injection::of_admission("w", "gpu", &admission(&json!({"cpu": "a", "memory": "a"})), &[2], flavor)
            .unwrap();
    let started = kind().start(&before, &injections).unwrap();
    let template = &started["spec"]["template"];
    assert_eq!(template["spec"]["nodeSelector"], json!({"pool": "a", "zone": "a"}));
    assert_eq!(template["spec"]["tolerations"], json!([{"operator": "Exists"}]));
    assert_eq!(template["metadata"]["annotations"]["kueue.x-k8s.io/workload"], "w");
    assert_eq!(template["metadata"]["labels"]["kueue.x-k8s.io/cluster-queue-name"], "queue");
    assert!(kind().is_equivalent(&started, &workload, Some(&injections), true));
    assert!(kind().is_equivalent(&before, &workload, Some(&injections), true), "it has not been started yet");
    let mut changed = started.clone();
    changed["spec"]["template"]["spec"]["containers"][0]["image"] = "other".into();
    assert!(!kind().is_equivalent(&changed, &workload, Some(&injections), true));
    let mut restored = kind().restore(&started, &workload);
    restored["spec"]["suspend"] = true.into();
    restored["spec"]["template"].as_object_mut().unwrap().retain(|field, _| field == "spec");
    assert_eq!(restored, before);
}

#[test]
fn a_job_that_loses_its_owner_starts_with_the_templates_that_the_owner_started_with() {
    let mut left = job(&json!({"suspend": true}), &json!({}));
    left["spec"]["template"]["metadata"] = json!({
        "labels": {"kueue.x-k8s.io/podset": "head", "kueue.x-k8s.io/local-queue-name": "other",
            "kueue.x-k8s.io/cluster-queue-name": "others"},
        "annotations": {"kueue.x-k8s.io/workload": "of-the-owner"}});
    let injections =
        Injection::of_admission("w", "gpu", &admission(&json!({"cpu": "a"})), &[2], flavor).unwrap();
    let started = kind().start(&left, &injections).unwrap();
    let metadata = &started["spec"]["template"]["metadata"];
    assert_eq!(metadata["annotations"]["kueue.x-k8s.io/workload"], "w");
    assert_eq!(metadata["labels"]["kueue.x-k8s.io/podset"], "main");
    assert_eq!(metadata["labels"]["kueue.x-k8s.io/cluster-queue-name"], "queue");
}

#[test]
fn an_owner_reference_is_for_an_object_of_its_namespace_kind_and_name_only() {
    let owner: Meta = serde_json::from_value(json!({"name": "a", "namespace": "team", "uid": "u"})).unwrap();
    let named = |namespace: &str, version: &str, kind: &str, name: &str| {
        let reference =
            json!([{"apiVersion": version, "kind": kind, "name": name, "uid": "u", "controller": true}]);
        let meta = json!({"name": "b", "namespace": namespace, "ownerReferences": reference});
        serde_json::from_value::<Meta>(meta).unwrap().controller_key().unwrap()
    };
    let key = owner.key("batch/v1", "Job");
    assert_eq!(named("team", "batch/v1", "Job", "a"), key);
    assert_eq!(named("team", "batch/v2", "Job", "a"), key, "versions of a group are equal");
    for other in [
        named("others", "batch/v1", "Job", "a"),
        named("team", "example.com/v1", "Job", "a"),
        named("team", "batch/v1", "CronJob", "a"),
        named("team", "batch/v1", "Job", "c"),
    ] {
        assert_ne!(other, key);
    }
}

#[test]
fn a_change_of_what_the_whole_pod_asks_for_is_another_workload() {
    let job = job(&json!({}), &json!({}));
    let workload = kind().workload(&job, &Priority::default(), &CopiedKeys::default());
    assert!(kind().is_equivalent(&job, &workload, None, false));
    for (field, value) in
        [("resources", json!({"requests": {"cpu": "8"}})), ("resourceClaims", json!([{"name": "gpu"}]))]
    {
        let mut changed = job.clone();
        changed["spec"]["template"]["spec"][field] = value;
        assert!(!kind().is_equivalent(&changed, &workload, None, false), "{field}");
    }
}

#[test]
fn another_topology_is_another_workload_until_the_job_has_quota() {
    let required = |level: &str| json!({"kueue.x-k8s.io/podset-required-topology": level});
    let with = |annotations: Value| {
        let mut job = job(&json!({}), &json!({}));
        job["spec"]["template"]["metadata"]["annotations"] = annotations;
        job
    };
    let workload = |job: &Value| kind().workload(job, &Priority::default(), &CopiedKeys::default());
    let is_of = |job: &Value, workload: &Value| kind().is_equivalent(job, workload, None, false);
    let [host, zone, any] = [required("host"), required("zone"), json!({})].map(with);
    for (one, other) in [(&host, &zone), (&host, &any), (&any, &host)] {
        assert!(!is_of(one, &workload(other)));
    }
    for one in [&host, &any] {
        assert!(is_of(one, &workload(one)));
    }
    let slices = with(
        json!({"kueue.x-k8s.io/podset-slice-required-topology": "host", "kueue.x-k8s.io/podset-slice-size": "2"}),
    );
    let layers = with(
        json!({"kueue.x-k8s.io/podset-slice-required-topology-constraints": r#"[{"topology":"host","size":2}]"#}),
    );
    assert!(is_of(&slices, &workload(&layers)) && !is_of(&slices, &workload(&any)));
    let mut without_ranks = workload(&any);
    without_ranks["spec"]["podSets"][0].as_object_mut().unwrap().remove("topologyRequest");
    assert!(is_of(&any, &without_ranks), "a Workload may lack what only says how pods are ranked");
    let admitted =
        Injection::of_admission("w", "gpu", &admission(&json!({"cpu": "a"})), &[2], flavor).unwrap();
    assert!(
        kind().is_equivalent(&host, &workload(&zone), Some(&admitted), true),
        "pods that run keep their places"
    );
}

#[test]
fn a_template_that_contradicts_its_admission_never_starts() {
    let mut contradicting = job(&json!({}), &json!({}));
    contradicting["spec"]["template"]["spec"]["nodeSelector"] = json!({"pool": "b"});
    let injections =
        Injection::of_admission("w", "gpu", &admission(&json!({"cpu": "a"})), &[2], flavor).unwrap();
    let error = kind().start(&contradicting, &injections).unwrap_err();
    assert!(error.is_permanent() && error.to_string().contains("key=pool, value1=b, value2=a"), "{error}");
    let missing = Injection::of_admission("w", "gpu", &admission(&json!({"cpu": "missing"})), &[2], flavor);
    assert_eq!(missing, Err(InjectionError::Flavor("missing".into())));
}

#[test]
fn pods_that_have_ended_give_back_their_quota() {
    let reclaimed = |spec: Value, status: Value| kind().integration.reclaimable(&job(&spec, &status));
    let main = |count| vec![ReclaimablePods { name: "main".into(), count }];
    let spec = json!({"parallelism": 3, "completions": 4});
    assert_eq!(reclaimed(spec.clone(), json!({"succeeded": 1})), []);
    assert_eq!(reclaimed(spec.clone(), json!({"succeeded": 3})), main(2));
    assert_eq!(reclaimed(json!({"parallelism": 1, "completions": 4}), json!({"succeeded": 4})), []);
    let wide = json!({"parallelism": 10, "completions": 4});
    assert_eq!(reclaimed(wide, json!({"succeeded": 1})), main(1), "three of its four pods run");
    let mut indexed = spec;
    indexed["completionMode"] = "Indexed".into();
    let indexes = json!({"completedIndexes": "0-1,9", "failedIndexes": "1-2,odd,5-4", "succeeded": 9});
    assert_eq!(reclaimed(indexed, indexes), main(2));
}

#[test]
fn a_job_is_ready_and_ends_as_its_status_says() {
    let of = |status: Value| job(&json!({"parallelism": 2}), &status);
    assert!(!kind().integration.are_pods_ready(&of(json!({"ready": 1}))));
    assert!(
        kind()
            .integration
            .are_pods_ready(&of(json!({"ready": 1, "uncountedTerminatedPods": {"succeeded": ["a"]}})))
    );
    let ended = kind()
        .integration
        .finished(&of(json!({"conditions": [{"type": "Failed", "status": "True", "message": "m"}]})));
    assert_eq!(ended.map(|ended| (ended.succeeded, ended.message)), Some((false, "m".to_owned())));
    assert_eq!(
        kind().integration.finished(&of(json!({"conditions": [{"type": "Failed", "status": "False"}]}))),
        None
    );
}

fn context() -> Context {
    let namespaces = LabelSelector::default().with("kubernetes.io/metadata.name", "kube-system", false);
    let jobs = JobRules { frameworks: vec!["batch/job".into()], namespaces, ..JobRules::default() };
    Context { jobs, ..Context::default() }
}

#[test]
fn a_job_gets_the_queue_and_the_class_with_the_name_default() {
    let defaulted = |labels: Value, known: &JobDefaults, context: &Context| {
        let mut job = job(&json!({}), &json!({}));
        job["metadata"]["labels"] = labels;
        default("jobs", Operation::Create, &mut job, known, context);
        (job["metadata"]["labels"].clone(), job["spec"]["suspend"] == true)
    };
    let queue = JobDefaults { has_queue: true, ..JobDefaults::default() };
    let labels = json!({"kueue.x-k8s.io/queue-name": "default"});
    for absent in [json!(null), json!({}), json!({"kueue.x-k8s.io/queue-name": ""})] {
        assert_eq!(defaulted(absent.clone(), &queue, &context()), (labels.clone(), true), "{absent}");
    }
    let other = json!({"kueue.x-k8s.io/queue-name": "other"});
    assert_eq!(defaulted(other.clone(), &queue, &context()), (other, true));
    let class = JobDefaults { has_class: true, ..queue };
    assert_eq!(defaulted(json!({}), &class, &context()), (labels, true), "without the feature gate");
    let mut gated = context();
    gated.gates.workload_priority_class_defaulting = true;
    let both = json!({"kueue.x-k8s.io/queue-name": "default", "kueue.x-k8s.io/priority-class": "default"});
    assert_eq!(defaulted(json!({}), &class, &gated), (both, true));
}

#[test]
fn a_job_of_a_queue_that_runs_it_in_another_cluster_is_taken_from_its_own_controller() {
    let known = JobDefaults { remote_queues: ["far".to_owned()].into(), ..JobDefaults::default() };
    let managed_by = |queue: &str, spec: Value| {
        let mut job = job(&spec, &json!({}));
        job["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": queue});
        default("jobs", Operation::Create, &mut job, &known, &context());
        job["spec"]["managedBy"].clone()
    };
    assert_eq!(managed_by("far", json!({})), "kueue.x-k8s.io/multikueue");
    assert_eq!(managed_by("near", json!({})), json!(null));
    assert_eq!(managed_by("far", json!({"managedBy": "example.com/own"})), "example.com/own");
}

#[test]
fn the_labels_of_a_namespace_decide_about_its_jobs() {
    let selector = LabelSelector::default().with("team", "a", true);
    let context = Context { jobs: JobRules { namespaces: selector, ..context().jobs }, ..context() };
    let suspended = |labels: Option<&[(&str, &str)]>| {
        let owned = |&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned());
        let namespace_labels = labels.map(|labels| labels.iter().map(owned).collect());
        let known = JobDefaults { namespace_labels, has_queue: true, ..JobDefaults::default() };
        let mut job = job(&json!({}), &json!({}));
        default("jobs", Operation::Create, &mut job, &known, &context);
        job["spec"]["suspend"] == true
    };
    assert!(suspended(Some(&[("team", "a")])));
    assert!(!suspended(Some(&[("team", "b")])));
    assert!(!suspended(None), "the controller suspends it");
}

#[test]
fn a_job_with_a_queue_is_suspended_at_its_creation() {
    let suspended = |change: &dyn Fn(&mut Value), context: &Context| {
        let mut job = job(&json!({}), &json!({}));
        change(&mut job);
        default("jobs", Operation::Create, &mut job, &JobDefaults::default(), context);
        job["spec"]["suspend"] == true
    };
    assert!(suspended(&|_| {}, &context()));
    assert!(!suspended(&|job| job["metadata"]["labels"] = json!({}), &context()), "no queue");
    assert!(
        !suspended(&|job| job["metadata"]["namespace"] = "kube-system".into(), &context()),
        "another namespace"
    );
    let wrapped = |version: &str| json!([{"apiVersion": version, "kind": "AppWrapper", "controller": true}]);
    for version in ["workload.codeflare.dev/v1beta2", "mcad.ibm.com/v1beta1"] {
        assert!(
            !suspended(&|job| job["metadata"]["ownerReferences"] = wrapped(version), &context()),
            "the AppWrapper queues it"
        );
    }
    assert!(
        suspended(&|job| job["metadata"]["ownerReferences"] = wrapped("example.com/v1"), &context()),
        "a kind of the same name in another group"
    );
    let of_set = |job: &mut Value| {
        job["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "controller": true}]);
    };
    assert!(suspended(&of_set, &context()), "nobody starts sets of jobs");
    let mut of_others = context();
    of_others.jobs.others = vec!["jobset.x-k8s.io/jobset".into()];
    assert!(!suspended(&of_set, &of_others), "another process starts its owner");
    assert!(!suspended(&|_| {}, &Context::default()), "the kind is not managed");
    let mut by_label = context();
    by_label.jobs.namespaces = LabelSelector::default().with("team", "a", true);
    assert!(!suspended(&|_| {}, &by_label), "labels of namespaces are not known here");
}

/// Changes a Job.
type Change<'a> = &'a dyn Fn(&mut Value);

#[test]
fn the_labels_and_annotations_of_a_job_have_rules() {
    let cases: [(&str, Change, Change); 8] = [
        ("kueue.x-k8s.io/queue-name]: Invalid value: \"No Name\"", &|_| {}, &|job| {
            job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "No Name".into();
        }),
        ("max-exec-time-seconds]: Invalid value: 0: should be greater than 0", &|_| {}, &|job| {
            job["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = "0".into();
        }),
        ("elastic-job]: Invalid value: true: field is immutable", &|_| {}, &|job| {
            job["metadata"]["annotations"] = json!({"kueue.x-k8s.io/elastic-job": "true"});
        }),
        ("should be between 0 and 1", &|_| {}, &|job| {
            job["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "2"});
        }),
        ("should not be enabled for NonIndexed jobs", &|_| {}, &|job| {
            job["metadata"]["annotations"] =
                json!({"kueue.x-k8s.io/job-completions-equal-parallelism": "true"});
        }),
        ("queue-name]: Invalid value: \"other\": field is immutable", &|_| {}, &|job| {
            job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "other".into();
        }),
        ("cannot be added to a non-suspended workload", &|_| {}, &|job| {
            job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "high".into();
        }),
        (
            "cannot be removed from a workload",
            &|job| job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "high".into(),
            &|_| {},
        ),
    ];
    let plain = || job(&json!({"parallelism": 2, "completions": 2}), &json!({}));
    for (expected, before, change) in cases {
        let (mut old, mut new) = (plain(), plain());
        before(&mut old);
        change(&mut new);
        let error = review("jobs", Operation::Update, &new, Some(&old), &JobDefaults::default(), &context())
            .unwrap_err();
        assert!(error.contains(expected), "{expected}: {error}");
        assert!(error.starts_with("admission webhook \"vjob.kb.io\" denied the request: "), "{error}");
    }
    assert_eq!(
        review("jobs", Operation::Create, &plain(), None, &JobDefaults::default(), &context()),
        Ok(Vec::new())
    );
}

#[test]
fn kinds_that_are_described_by_data_are_counted() {
    let sets = |framework: &str, spec: Value| {
        let kind = JobKind::of_framework(framework).unwrap();
        let sets = kind.integration.pod_sets(&json!({ "spec": spec }));
        sets.iter().map(|set| format!("{} {}", set["name"], set["count"])).collect::<Vec<_>>().join(", ")
    };
    let one = |replicas: Value, more: Value| {
        let mut spec = json!({"template": {"spec": {}}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"name": "A", "replicas": replicas, "template": {"spec": spec}})
    };
    let jobs = json!([
        one(json!(2), json!({})),
        one(json!(3), json!({"parallelism": 4})),
        one(json!(2), json!({"parallelism": 4, "completions": 2})),
    ]);
    assert_eq!(sets("jobset.x-k8s.io/jobset", json!({"replicatedJobs": jobs})), r#""a" 2, "a" 12, "a" 4"#);
    let roles = json!({"Worker": {"replicas": 3, "template": {}}, "Master": {"template": {}}, "Other": {}, "PS": null});
    assert_eq!(
        sets("kubeflow.org/pytorchjob", json!({"pytorchReplicaSpecs": roles})),
        r#""master" 1, "worker" 3"#
    );
    assert_eq!(sets("kubeflow.org/tfjob", json!({"tfReplicaSpecs": roles})), r#""master" 1, "worker" 3"#);
    assert_eq!(sets("kubeflow.org/mpijob", json!(7)), "");
}

#[test]
fn slices_of_slices_are_read_from_their_annotation() {
    let layers = json!([{"topology": "rack", "size": 4}, {"topology": "host", "size": 2}]);
    let request = |layers: &str| {
        let annotations = json!({"kueue.x-k8s.io/podset-slice-required-topology-constraints": layers,
            "kueue.x-k8s.io/podset-slice-required-topology": "rack", "kueue.x-k8s.io/podset-slice-size": "2"});
        let template = json!({"metadata": {"annotations": annotations}, "spec": {"containers": []}});
        let job = job(&json!({"suspend": true, "template": template}), &json!({}));
        let workload = kind().workload(&job, &Priority::default(), &CopiedKeys::default());
        let mut request = workload["spec"]["podSets"][0]["topologyRequest"].clone();
        request.as_object_mut().unwrap().remove("podIndexLabel");
        request
    };
    assert_eq!(request(&layers.to_string()), json!({"podsetSliceRequiredTopologyConstraints": layers}));
    let one = json!({"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2});
    assert_eq!(request("[]"), one);
}

#[test]
fn the_jobs_of_a_job_set_are_the_sub_groups_of_its_pods() {
    let kind = JobKind::of_framework("jobset.x-k8s.io/jobset").unwrap();
    let one = json!({"name": "a", "replicas": 3, "template": {"spec": {"parallelism": 2, "template": {"spec": {}}}}});
    let sets = kind.integration.pod_sets(&json!({"spec": {"replicatedJobs": [one]}}));
    assert_eq!(
        sets[0]["topologyRequest"],
        json!({"podIndexLabel": "batch.kubernetes.io/job-completion-index",
            "subGroupIndexLabel": "jobset.sigs.k8s.io/job-index", "subGroupCount": 3})
    );
}

#[test]
fn the_pods_of_a_job_set_that_have_succeeded_give_back_their_quota() {
    let kind = JobKind::of_framework("jobset.x-k8s.io/jobset").unwrap();
    let job = json!({
        "spec": {"replicatedJobs": [
            {"name": "a", "replicas": 3, "template": {"spec": {"parallelism": 2}}},
            {"name": "b", "replicas": 1, "template": {"spec": {}}},
        ]},
        "status": {"replicatedJobsStatus": [{"name": "b", "succeeded": 2}, {"name": "a", "succeeded": 2}]},
    });
    let expected = vec![ReclaimablePods { name: "a".into(), count: 4 }];
    assert_eq!(kind.integration.reclaimable(&job), expected, "of b, more have succeeded than it has");
}

#[test]
fn a_suspended_job_leaves_its_queue_only_where_none_is_the_default() {
    let queued = job(&json!({"suspend": true}), &json!({}));
    let mut left = queued.clone();
    left["metadata"]["labels"] = json!({});
    let known = |has_queue| JobDefaults { has_queue, ..JobDefaults::default() };
    let update = |known| review("jobs", Operation::Update, &left, Some(&queued), &known, &context());
    assert_eq!(update(known(false)), Ok(Vec::new()));
    let text = update(known(true)).unwrap_err();
    assert!(text.ends_with("queue-name must not be empty in namespace with default queue"), "{text}");
}

#[test]
fn of_variables_with_the_same_name_the_workload_keeps_the_last() {
    let variable = |name: &str, value: &str| json!({"name": name, "value": value});
    let env = [variable("A", "1"), variable("B", "2"), variable("A", "3")];
    let containers = json!([{"name": "c", "env": env}, {"name": "d"}]);
    let spec = json!({"suspend": true, "template": {"spec":
        {"containers": containers, "initContainers": [{"name": "i", "env": env}]}}});
    let job = job(&spec, &json!({}));
    let workload = kind().workload(&job, &Priority::default(), &CopiedKeys::default());
    let kept = json!([variable("A", "3"), variable("B", "2")]);
    for list in ["containers", "initContainers"] {
        assert_eq!(workload["spec"]["podSets"][0]["template"]["spec"][list][0]["env"], kept);
    }
    assert!(kind().is_equivalent(&job, &workload, None, true));
    // The job keeps its own list.
    assert_eq!(kind().restore(&job, &workload)["spec"]["template"]["spec"]["containers"], containers);
}
