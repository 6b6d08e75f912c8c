//! What the webhooks do with pods, with sets of pods, and with the topology annotations of pods.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]
#![allow(clippy::needless_pass_by_value, reason = "test code")]

use api::kueue::webhooks::{
    Context, Gates, JobDefaults, JobRules, Operation, aggregate, default, review, validate,
};
use api::selector::LabelSelector;
use serde_json::{Value, json};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const GROUP: &str = "kueue.x-k8s.io/pod-group-name";
const TOTAL: &str = "kueue.x-k8s.io/pod-group-total-count";
const PARENT: &str = "kueue.x-k8s.io/pod-suspending-parent";
const LWS: &str = "leaderworkerset.x-k8s.io/leaderworkerset";

fn context() -> Context {
    let frameworks = [
        "pod",
        "batch/job",
        "deployment",
        "statefulset",
        LWS,
        "trainer.kubeflow.org/trainjob",
        "workload.codeflare.dev/appwrapper",
        "jobset.x-k8s.io/jobset",
        "kubeflow.org/tfjob",
        "kubeflow.org/mpijob",
        "sparkoperator.k8s.io/sparkapplication",
    ];
    let namespaces = LabelSelector::default().with("kubernetes.io/metadata.name", "kube-system", false);
    let jobs =
        JobRules { frameworks: frameworks.map(str::to_owned).into(), namespaces, ..JobRules::default() };
    Context { jobs, ..Context::default() }
}

fn of_sets_only() -> Context {
    Context { jobs: JobRules { pods_of_sets_only: true, ..context().jobs }, ..context() }
}

fn pod(labels: Value, annotations: Value) -> Value {
    json!({"metadata": {"name": "p", "namespace": "team", "labels": labels, "annotations": annotations},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}})
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    let field = field.replace("~1", "/");
    object.pointer_mut(parent).unwrap()[field] = value;
    object
}

/// The object as it is created.
fn created(resource: &str, object: Value, context: &Context) -> Value {
    written(resource, Operation::Create, object, &JobDefaults::default(), context)
}

fn written(
    resource: &str,
    operation: Operation,
    mut object: Value,
    known: &JobDefaults,
    context: &Context,
) -> Value {
    default(resource, operation, &mut object, known, context);
    object
}

/// The error of a write; empty if it is allowed.
fn error(resource: &str, object: &Value, old: Option<&Value>) -> String {
    let operation = if old.is_some() { Operation::Update } else { Operation::Create };
    let errors = validate(resource, operation, object, old, &JobDefaults::default(), &context());
    if errors.is_empty() { String::new() } else { aggregate(&errors) }
}

#[test]
fn a_pod_with_a_queue_is_held_back_before_it_exists() {
    let held = created("pods", pod(json!({QUEUE: "q"}), json!({})), &context());
    let expected = json!([{"name": "kueue.x-k8s.io/admission"}, {"name": "kueue.x-k8s.io/topology"}]);
    assert_eq!(held["spec"]["schedulingGates"], expected);
    assert_eq!(held["metadata"]["labels"], json!({QUEUE: "q", "kueue.x-k8s.io/managed": "true"}));
    assert_eq!(held["metadata"]["finalizers"], json!(["kueue.x-k8s.io/managed"]));
    assert_eq!(held["metadata"]["annotations"]["kueue.x-k8s.io/role-hash"].as_str().unwrap().len(), 8);
    assert_eq!(created("pods", held.clone(), &context()), held, "twice is once");
    assert_eq!(
        written(
            "pods",
            Operation::Update,
            pod(json!({QUEUE: "q"}), json!({})),
            &JobDefaults::default(),
            &context()
        ),
        pod(json!({QUEUE: "q"}), json!({})),
        "a pod that exists gets no gate"
    );

    let mut flat = context();
    flat.gates.topology_aware_scheduling = false;
    let held = created("pods", pod(json!({QUEUE: "q"}), json!({})), &flat);
    assert_eq!(held["spec"]["schedulingGates"], json!([{"name": "kueue.x-k8s.io/admission"}]));
}

#[test]
fn the_index_of_a_pod_in_its_group_comes_from_another_label() {
    let labels = json!({QUEUE: "q", "index": "3"});
    let annotations = json!({"kueue.x-k8s.io/pod-group-pod-index-label": "index"});
    let held = created("pods", pod(labels, annotations), &context());
    assert_eq!(held["metadata"]["labels"]["kueue.x-k8s.io/pod-group-pod-index"], "3");
}

#[test]
fn pods_that_no_queue_is_for_stay_as_they_are() {
    let queued = || pod(json!({QUEUE: "q"}), json!({}));
    let owned = |version: &str, kind: &str| {
        let owner =
            json!([{"apiVersion": version, "kind": kind, "name": "o", "uid": "u", "controller": true}]);
        with(queued(), "/metadata/ownerReferences", owner)
    };
    let mut unmanaged = context();
    unmanaged.jobs.frameworks.retain(|name| name != "pod");
    for (why, pod, context) in [
        ("without a queue", pod(json!({}), json!({})), context()),
        (
            "in a namespace of the system",
            with(queued(), "/metadata/namespace", "kube-system".into()),
            context(),
        ),
        ("the Job queues for it", owned("batch/v1", "Job"), context()),
        ("the StatefulSet queues for it", owned("apps/v1", "StatefulSet"), context()),
        ("the kind is not managed", queued(), unmanaged),
        ("only pods of sets are managed", queued(), of_sets_only()),
    ] {
        assert_eq!(created("pods", pod.clone(), &context), pod, "{why}");
    }
    let of_deployment = created("pods", owned("apps/v1", "ReplicaSet"), &context());
    assert!(of_deployment["spec"]["schedulingGates"].is_array(), "a ReplicaSet is no job");
}

#[test]
fn a_pod_without_a_queue_may_get_one() {
    let known = JobDefaults { has_queue: true, ..JobDefaults::default() };
    let held = written("pods", Operation::Create, pod(json!({}), json!({})), &known, &context());
    assert_eq!(held["metadata"]["labels"][QUEUE], "default");
    assert!(held["spec"]["schedulingGates"].is_array());
    let mut all = context();
    all.jobs.manages_unnamed = true;
    let held = created("pods", pod(json!({}), json!({})), &all);
    assert_eq!(held["metadata"]["labels"], json!({"kueue.x-k8s.io/managed": "true"}));
}

#[test]
fn a_pod_of_a_set_gets_gates_its_role_and_the_label_alone() {
    for context in [context(), of_sets_only()] {
        let held = created("pods", pod(json!({}), json!({PARENT: "statefulset"})), &context);
        assert_eq!(held["spec"]["schedulingGates"][0]["name"], "kueue.x-k8s.io/admission");
        assert!(held["metadata"]["annotations"]["kueue.x-k8s.io/role-hash"].is_string());
        assert_eq!(held["metadata"]["labels"], json!({"kueue.x-k8s.io/managed": "true"}));
        assert!(held["metadata"].get("finalizers").is_none());
    }
}

#[test]
fn pods_and_groups_have_rules() {
    let plain = || pod(json!({QUEUE: "q"}), json!({}));
    let member = |total: &str| pod(json!({QUEUE: "q"}), json!({GROUP: "g", TOTAL: total}));
    let gated =
        |pod: Value| with(pod, "/spec/schedulingGates", json!([{"name": "kueue.x-k8s.io/admission"}]));
    let both = format!("both the '{TOTAL}' annotation and the '{GROUP}'");
    let retriable =
        |value: Value| with(member("2"), "/metadata/annotations/kueue.x-k8s.io~1retriable-in-group", value);
    let cases: [(&str, Value, Option<Value>, String); 13] = [
        ("a queue", plain(), None, String::new()),
        ("a group", member("2"), None, String::new()),
        ("a managed label", pod(json!({"kueue.x-k8s.io/managed": "false"}), json!({})), None,
            "metadata.labels[kueue.x-k8s.io/managed]: Forbidden: managed label value can only be 'true'".into()),
        ("a group without a number", pod(json!({}), json!({GROUP: "g"})), None,
            format!("metadata.annotations[{TOTAL}]: Required value: {both} annotation should be set")),
        ("a label of a group without a number", pod(json!({GROUP: "g"}), json!({})), None,
            format!("metadata.annotations[{TOTAL}]: Required value: {both} label should be set")),
        ("a number without a group", pod(json!({}), json!({TOTAL: "2"})), None,
            format!("metadata.labels[{GROUP}]: Required value: {both} label should be set")),
        ("a group of no pods", member("0"), None,
            format!("metadata.annotations[{TOTAL}]: Invalid value: \"0\": incorrect annotation value '{TOTAL}=0': group total count should be greater than zero")),
        ("a number that is none", member("two"), None,
            format!("metadata.annotations[{TOTAL}]: Invalid value: \"two\": strconv.Atoi: parsing \"two\": invalid syntax")),
        ("another group", with(member("2"), "/metadata/annotations/kueue.x-k8s.io~1pod-group-name", "other".into()), Some(member("2")),
            format!("metadata.annotations[{GROUP}]: Invalid value: \"other\": field is immutable")),
        ("a prebuilt Workload of another name",
            with(member("2"), "/metadata/annotations/kueue.x-k8s.io~1prebuilt-workload-name", "w".into()), None,
            "metadata.annotations[kueue.x-k8s.io/prebuilt-workload-name]: Invalid value: \"w\": prebuilt workload and pod group should be equal".into()),
        ("a group that is retried after all", retriable(json!("true")), Some(retriable(json!("false"))),
            "metadata.annotations[kueue.x-k8s.io/retriable-in-group]: Forbidden: unretriable pod group can't be converted to retriable".into()),
        ("another queue of a gated pod", gated(pod(json!({QUEUE: "other"}), json!({}))), Some(gated(plain())), String::new()),
        ("another queue of a pod that may start", pod(json!({QUEUE: "other"}), json!({})), Some(gated(plain())),
            format!("metadata.labels[{QUEUE}]: Invalid value: \"other\": field is immutable")),
    ];
    for (why, pod, old, expected) in cases {
        assert_eq!(error("pods", &pod, old.as_ref()), expected, "{why}");
    }
}

#[test]
fn a_pod_that_is_managed_beside_its_owner_is_warned_about() {
    let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "controller": true}]);
    let owned =
        with(pod(json!({"kueue.x-k8s.io/managed": "true"}), json!({})), "/metadata/ownerReferences", owner);
    let text = "pod owner is managed by kueue, label 'kueue.x-k8s.io/managed=true' might lead to unexpected behaviour";
    assert_eq!(
        review("pods", Operation::Create, &owned, None, &JobDefaults::default(), &context()),
        Ok(vec![text.to_owned()])
    );
    let held = with(owned.clone(), "/metadata/annotations", json!({PARENT: "x"}));
    assert_eq!(
        review("pods", Operation::Update, &held, Some(&held), &JobDefaults::default(), &context()),
        Ok(Vec::new())
    );
}

fn set(queue: Option<&str>, spec: Value) -> Value {
    let labels = queue.map_or(json!({}), |queue| json!({QUEUE: queue}));
    json!({"metadata": {"name": "s", "namespace": "team", "labels": labels}, "spec": spec})
}

fn template() -> Value {
    json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}})
}

#[test]
fn sets_of_pods_have_their_pods_wait() {
    let spec = || json!({"template": template()});
    let classed =
        with(set(Some("q"), spec()), "/metadata/labels/kueue.x-k8s.io~1priority-class", "high".into());
    let template = created("deployments", classed, &context())["spec"]["template"].clone();
    assert_eq!(template["metadata"]["annotations"], json!({PARENT: "deployment"}));
    let labels = json!({"app": "a", QUEUE: "q", "kueue.x-k8s.io/managed": "true", "kueue.x-k8s.io/priority-class": "high"});
    assert_eq!(template["metadata"]["labels"], labels);
    let updated = written(
        "deployments",
        Operation::Update,
        set(Some("other"), spec()),
        &JobDefaults::default(),
        &context(),
    );
    assert_eq!(updated["spec"]["template"]["metadata"]["labels"][QUEUE], "other");

    let template = created("statefulsets", set(Some("q"), spec()), &context())["spec"]["template"].clone();
    assert_eq!(template["metadata"], json!({"labels": {"app": "a"}, "annotations": {PARENT: "statefulset"}}));
    let foreign = with(set(Some("q"), spec()), "/spec/template/metadata/annotations", json!({PARENT: LWS}));
    assert_eq!(created("statefulsets", foreign.clone(), &context()), foreign);

    let group = json!({"leaderWorkerTemplate": {"leaderTemplate": {"spec": {}}, "workerTemplate": {"spec": {}}, "size": 3}});
    let queued = created("leaderworkersets", set(Some("q"), group), &context());
    let templates = &queued["spec"]["leaderWorkerTemplate"];
    let serving = "kueue.x-k8s.io/pod-group-serving";
    assert_eq!(
        templates["leaderTemplate"]["metadata"],
        json!({"labels": {QUEUE: "q"}, "annotations": {PARENT: LWS, serving: "true"}})
    );
    assert_eq!(
        templates["workerTemplate"]["metadata"],
        json!({"labels": {QUEUE: "q"}, "annotations": {PARENT: LWS, serving: "true", "kueue.x-k8s.io/pod-index-offset": "1"}})
    );
    for resource in ["deployments", "statefulsets"] {
        let plain = set(None, spec());
        assert_eq!(created(resource, plain.clone(), &context()), plain, "no queue");
        let deleted =
            with(set(Some("q"), spec()), "/metadata/deletionTimestamp", "2026-01-01T00:00:00Z".into());
        assert_eq!(created(resource, deleted.clone(), &context()), deleted, "it is being deleted");
    }
}

#[test]
fn the_pods_of_a_queued_set_keep_their_queue_and_their_shape() {
    let plain = |queue: &str| set(Some(queue), json!({"replicas": 2, "template": template()}));
    let ready = with(plain("q"), "/status", json!({"readyReplicas": 1, "replicas": 1}));
    let left = with(plain("q"), "/metadata/labels", json!({}));
    let queue =
        |value: &str| format!("metadata.labels[{QUEUE}]: Invalid value: {value:?}: field is immutable");
    let grown = with(plain("q"), "/spec/template/spec/containers/0/resources/requests/cpu", "2".into());
    let scaled = |replicas: u32| with(plain("q"), "/spec/replicas", replicas.into());
    let pods = "spec.template.spec.containers[0].resources.requests: Invalid value: {\"cpu\":\"2\"}: field is immutable";
    let ending = with(plain("q"), "/status", json!({"replicas": 1}));
    let cases = [
        ("deployments", plain("other"), plain("q"), String::new()),
        ("deployments", plain("other"), ready.clone(), queue("other")),
        ("deployments", left.clone(), plain("q"), queue("")),
        ("deployments", grown.clone(), plain("q"), String::new()),
        ("statefulsets", plain("other"), ready, queue("other")),
        ("statefulsets", left, plain("q"), queue("")),
        ("statefulsets", grown, plain("q"), pods.to_owned()),
        (
            "statefulsets",
            with(plain("q"), "/spec/template/spec/containers/0/image", "j".into()),
            plain("q"),
            String::new(),
        ),
        (
            "statefulsets",
            with(plain("q"), "/spec/template/spec/containers/0/resources/requests/cpu", "1000m".into()),
            plain("q"),
            String::new(),
        ),
        ("statefulsets", scaled(3), scaled(2), "spec.replicas: Invalid value: 3: field is immutable".into()),
        ("statefulsets", scaled(0), scaled(2), String::new()),
        ("statefulsets", plain("q"), scaled(0), String::new()),
        (
            "statefulsets",
            ending,
            scaled(0),
            "spec.replicas: Forbidden: scaling down is still in progress".into(),
        ),
    ];
    for (resource, new, old, expected) in cases {
        assert_eq!(error(resource, &new, Some(&old)), expected, "{resource} {new} from {old}");
    }
}

#[test]
fn the_groups_of_a_queued_leader_worker_set_keep_their_size() {
    let lws = |queue: Option<&str>, size: u32, replicas: i64| {
        set(
            queue,
            json!({"replicas": replicas, "leaderWorkerTemplate": {"size": size, "workerTemplate": template()}}),
        )
    };
    let old = lws(Some("q"), 2, 1);
    let size = "spec.leaderWorkerTemplate.size: Invalid value: 3: field is immutable";
    for (new, old, expected) in [
        (lws(Some("q"), 3, 1), &old, size),
        (lws(Some("q"), 2, 4), &old, ""),
        (lws(None, 3, 1), &lws(None, 2, 1), ""),
        (
            lws(Some("q"), 2, -1),
            &old,
            "spec.replicas: Invalid value: -1: invalid LeaderWorkerSet replicas: must be >= 0, got -1",
        ),
        (
            with(lws(Some("q"), 2, 1), "/spec/leaderWorkerTemplate/leaderTemplate", json!({"spec": {}})),
            &old,
            "spec.leaderWorkerTemplate.leaderTemplate: Invalid value: {\"spec\":{}}: field is immutable",
        ),
    ] {
        assert_eq!(error("leaderworkersets", &new, Some(old)), expected);
    }
}

#[test]
fn train_jobs_app_wrappers_and_spark_applications_are_suspended_at_their_creation() {
    let train = created("trainjobs", set(Some("q"), json!({})), &context());
    assert_eq!(
        train["spec"],
        json!({"suspend": true, "runtimePatches": [
        {"manager": "kueue.x-k8s.io/manager", "trainingRuntimeSpec": {"template": {"spec": {}}}}]})
    );
    let components = json!({"components": []});
    assert_eq!(
        created("appwrappers", set(Some("q"), components.clone()), &context())["spec"],
        json!({"components": [], "suspend": true})
    );
    let older = json!({"resources": {}});
    for (queue, spec) in [(None, components), (Some("q"), older)] {
        assert_eq!(created("appwrappers", set(queue, spec.clone()), &context())["spec"], spec);
    }
    let spark = json!({"mode": "cluster", "dynamicAllocation": {"enabled": true}});
    assert_eq!(
        created("sparkapplications", set(Some("q"), spark.clone()), &context())["spec"]["suspend"],
        true
    );
    let wrong = error("sparkapplications", &set(Some("q"), json!({"mode": "client"})), None);
    let expected =
        "spec.mode: Invalid value: \"client\": only Cluster mode is supported for a kueue managed job";
    assert_eq!(wrong, expected);
    let wrong = error("sparkapplications", &set(Some("q"), spark), None);
    assert!(
        wrong.starts_with("spec.dynamicAllocation.enabled: Invalid value: true: a kueue managed"),
        "{wrong}"
    );
    let level = json!({"kueue.x-k8s.io/podset-slice-size": "2"});
    let spark = json!({"mode": "cluster", "driver": {"annotations": level}});
    let wrong = error("sparkapplications", &set(Some("q"), spark), None);
    assert!(
        wrong.starts_with("[spec.driver.annotations[kueue.x-k8s.io/podset-slice-size]: Forbidden"),
        "{wrong}"
    );
    assert_eq!(error("appwrappers", &set(Some("No Name"), json!({"resources": {}})), None), "");
    let wrong = error("appwrappers", &set(Some("No Name"), json!({"components": []})), None);
    assert!(wrong.starts_with(&format!("metadata.labels[{QUEUE}]: Invalid value: \"No Name\"")), "{wrong}");
    let running = |queue| set(Some(queue), json!({"suspend": false}));
    let moved = error("trainjobs", &running("other"), Some(&running("q")));
    assert_eq!(moved, format!("metadata.labels[{QUEUE}]: Invalid value: \"other\": field is immutable"));
}

#[test]
fn the_workers_of_an_mpi_job_are_ranked_behind_a_launcher_that_works() {
    let job = |launches_as_worker: bool, roles: &[&str], annotations: Value| {
        let role = |role: &&str| {
            ((*role).to_owned(), json!({"template": {"metadata": {"annotations": annotations}}}))
        };
        let roles: serde_json::Map<_, _> = roles.iter().map(role).collect();
        set(None, json!({"runLauncherAsWorker": launches_as_worker, "mpiReplicaSpecs": roles}))
    };
    let both = ["Launcher", "Worker"];
    let group = json!({"kueue.x-k8s.io/podset-group-name": "all"});
    let off = Context { gates: Gates { topology_aware_scheduling: false, ..Gates::default() }, ..context() };
    for (job, context, expected) in [
        (job(true, &both, json!({})), context(), json!({"kueue.x-k8s.io/pod-index-offset": "1"})),
        (job(false, &both, json!({})), context(), json!({})),
        (job(true, &both, group.clone()), context(), group),
        (job(true, &["Worker"], json!({})), context(), json!({})),
        (job(true, &both, json!({})), off, json!({})),
    ] {
        let created = created("mpijobs", job.clone(), &context);
        let sets = &created["spec"]["mpiReplicaSpecs"];
        assert_eq!(sets["Worker"]["template"]["metadata"]["annotations"], expected, "{job}");
        assert_eq!(sets["Launcher"], job["spec"]["mpiReplicaSpecs"]["Launcher"], "{job}");
    }
}

#[test]
fn topology_annotations_have_rules() {
    const PATH: &str = "metadata.annotations";
    let key = |name: &str| format!("kueue.x-k8s.io/{name}");
    let with = |entries: &[(&str, &str)]| {
        let annotations = entries.iter().map(|(name, value)| (key(name), Value::from(*value))).collect();
        error("pods", &pod(json!({}), Value::Object(annotations)), None)
    };
    let (level, slice, size) =
        ("podset-required-topology", "podset-slice-required-topology", "podset-slice-size");
    let (preferred, group) = ("podset-preferred-topology", "podset-group-name");
    let (layers, offset) = ("podset-slice-required-topology-constraints", "pod-index-offset");
    let two = r#"[{"topology":"block","size":4},{"topology":"rack","size":2}]"#;
    let odd = r#"[{"topology":"block","size":3},{"topology":"rack","size":2}]"#;
    for (entries, expected) in [
        (&[(level, "rack")][..], String::new()),
        (&[(level, "rack"), (slice, "host"), (size, "2")], String::new()),
        (&[(layers, two)], String::new()),
        (&[(offset, "0")], String::new()),
        (
            &[(offset, "-1")],
            format!("{PATH}[{}]: Invalid value: \"-1\": must be a number of pods", key(offset)),
        ),
        (
            &[(level, "rack"), (group, "g"), (offset, "1")],
            format!("{PATH}[{}]: Forbidden: may not be set when '{}' is specified", key(offset), key(group)),
        ),
        (
            &[(level, "rack"), (preferred, "rack")],
            format!(
                "{PATH}: Invalid value: must not contain more than one topology annotation: [\"{}\", \"{}\", \"{}\"]",
                key(level),
                key(preferred),
                key("podset-unconstrained-topology")
            ),
        ),
        (
            &[(slice, "host")],
            format!("{PATH}[{}]: Required value: must be set when '{}' is specified", key(size), key(slice)),
        ),
        (
            &[(slice, "host"), (size, "0")],
            format!("{PATH}[{}]: Invalid value: \"0\": must be greater than or equal to 1", key(size)),
        ),
        (
            &[(size, "2")],
            format!(
                "{PATH}[{}]: Forbidden: may not be set when '{}' is not specified",
                key(size),
                key(slice)
            ),
        ),
        (
            &[("podset-unconstrained-topology", "yes")],
            format!(
                "{PATH}[{}]: Invalid value: \"yes\": must be a boolean value",
                key("podset-unconstrained-topology")
            ),
        ),
        (
            &[(level, "rack"), (group, "1")],
            format!("{PATH}[{}]: Invalid value: \"1\": must not be a number", key(group)),
        ),
        (
            &[(group, "g")],
            format!(
                "{PATH}[{}]: Forbidden: may not be set when neither '{}' nor '{}' is specified",
                key(group),
                key(preferred),
                key(level)
            ),
        ),
        (
            &[(layers, odd)],
            format!(
                "{PATH}[{}][1].size: Invalid value: 2: must evenly divide the parent layer size 3",
                key(layers)
            ),
        ),
        (
            &[(layers, "[]")],
            format!(
                "{PATH}[{}]: Invalid value: \"[]\": topology constraints must contain between 1 and 3 entries",
                key(layers)
            ),
        ),
    ] {
        assert_eq!(with(entries), expected, "{entries:?}");
    }
}

#[test]
fn topology_annotations_of_jobs_are_checked_at_their_templates() {
    let annotated =
        |annotations: Value| json!({"metadata": {"annotations": annotations}, "spec": {"containers": []}});
    let slice = |size: &str| {
        annotated(
            json!({"kueue.x-k8s.io/podset-slice-required-topology": "host", "kueue.x-k8s.io/podset-slice-size": size}),
        )
    };
    let replicas =
        set(Some("q"), json!({"tfReplicaSpecs": {"Worker": {"replicas": 2, "template": slice("3")}}}));
    assert_eq!(
        error("tfjobs", &replicas, None),
        "spec.tfReplicaSpecs[Worker].template.metadata.annotations[kueue.x-k8s.io/podset-slice-size]: Invalid value: \"3\": \
         must not be greater than pod set count 2"
    );
    let grouped = annotated(
        json!({"kueue.x-k8s.io/podset-required-topology": "rack", "kueue.x-k8s.io/podset-group-name": "g"}),
    );
    let job =
        |template: &Value| json!({"name": "a", "replicas": 2, "template": {"spec": {"template": template}}});
    let alone = set(Some("q"), json!({"replicatedJobs": [job(&grouped)]}));
    assert_eq!(
        error("jobsets", &alone, None),
        "spec.replicatedJobs[0].template.spec.template.metadata.annotations[kueue.x-k8s.io/podset-group-name]: \
         Invalid value: \"g\": can only define groups of exactly 2 pod sets, got: 1 pod set(s)"
    );
    let mut other = job(&grouped);
    other["name"] = "b".into();
    let large = error("jobsets", &set(Some("q"), json!({"replicatedJobs": [job(&grouped), other]})), None);
    assert!(
        large.contains("at least one pod set has only 1 replica, got: 2 replica(s) and 2 replica(s)"),
        "{large}"
    );
}

#[test]
fn odd_objects_are_no_panic() {
    for resource in ["pods", "deployments", "statefulsets", "leaderworkersets", "trainjobs", "appwrappers"] {
        for spec in [
            json!("text"),
            json!(null),
            json!([1]),
            json!({"template": 1, "leaderWorkerTemplate": "x", "containers": {}}),
        ] {
            let object = set(Some("q"), spec);
            let created = created(resource, object.clone(), &context());
            error(resource, &created, Some(&object));
        }
    }
}
