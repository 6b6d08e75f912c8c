//! Observations in, world out: whose pods are whose, in any order of arrival; and where a wrapper is after a restart.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use api::MicroTime;
use api::appwrapper::Group;
use index::{Index, Kind, KindState, ObjectRow, Phase, Stop};
use model::{Assignment, GangState};
use serde_json::{Value, json};

/// One observation.
#[derive(Clone)]
enum Seen {
    Node(Value),
    Wrapper(Value),
    Object(&'static str, &'static str, Value),
    Pod(Value),
    Listed(&'static str, &'static str),
}

fn see(index: &mut Index, seen: Seen) {
    match seen {
        Seen::Node(node) => index.node_seen(serde_json::from_value(node).unwrap()),
        Seen::Wrapper(wrapper) => {
            index.wrapper_seen(Group::Mcad, serde_json::from_value(wrapper).unwrap(), MicroTime(1));
        }
        Seen::Object(api_version, kind, object) => {
            let object = serde_json::from_value(object).unwrap();
            index.object_seen(ObjectRow::of(&Kind::new(api_version, kind), object));
        }
        Seen::Pod(pod) => index.pod_seen(serde_json::from_value(pod).unwrap()),
        Seen::Listed(api_version, kind) => {
            let state = KindState::Served { plural: kind.to_lowercase(), listed: true };
            index.kind_known(&Kind::new(api_version, kind), &state);
        }
    }
}

fn meta(name: &str, uid: &str, owner: Option<&str>) -> Value {
    let owners: Vec<_> = owner.iter().map(|uid| json!({"uid": uid, "controller": true})).collect();
    json!({"name": name, "namespace": "ns", "uid": uid, "resourceVersion": "7", "ownerReferences": owners})
}

fn node() -> Seen {
    Seen::Node(json!({
        "metadata": {"name": "n", "uid": "n"},
        "status": {"allocatable": {"cpu": "16", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]},
    }))
}

fn wrapper(template: &Value, status: &Value) -> Seen {
    Seen::Wrapper(json!({
        "metadata": meta("w", "w-uid", None),
        "spec": {"resources": {"GenericItems": [{"generictemplate": template}]}}, "status": status,
    }))
}

fn pod_spec(cpu: &str) -> Value {
    json!({"nodeName": "n", "containers": [{"resources": {"requests": {"cpu": cpu}}}]})
}

fn pod(name: &str, owner: &str, labels: Value, cpu: &str) -> Seen {
    let mut metadata = meta(name, name, Some(owner));
    metadata["labels"] = labels;
    Seen::Pod(json!({"metadata": metadata, "spec": pod_spec(cpu), "status": {"phase": "Running"}}))
}

fn template(cpu: &str) -> Value {
    json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}})
}

/// Which pod set each pod belongs to, and what the node has free.
fn outcome(index: &Index) -> Vec<String> {
    let gang = index.world().gang("w-uid").unwrap();
    let name = |set: usize| gang.pod_sets[set].name.clone();
    let owner = |pod: &model::Pod| pod.gang.as_ref().map_or("nobody".into(), |(_, set)| name(*set));
    let pods = index.world().pods().map(|pod| format!("{}: {}", pod.name, owner(pod)));
    let free = index.world().usage("n").unwrap();
    pods.chain([format!("{free:?}")]).collect()
}

/// Applies observations in many orders; all have to lead to the same outcome, which is returned without the usage.
fn in_any_order(seen: &[Seen]) -> Vec<String> {
    let mut first: Option<Vec<String>> = None;
    let mut dice = 1_u64;
    for _ in 0..200 {
        let mut order: Vec<Seen> = seen.to_vec();
        for at in (1..order.len()).rev() {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            order.swap(at, usize::try_from(dice >> 33).unwrap() % (at + 1));
        }
        let mut index = Index::new();
        for seen in order {
            see(&mut index, seen);
        }
        let outcome = outcome(&index);
        assert_eq!(*first.get_or_insert(outcome.clone()), outcome);
    }
    let mut outcome = first.unwrap();
    outcome.pop();
    outcome
}

#[test]
fn pods_of_a_ray_job_find_their_sets_through_its_cluster_and_its_submitter() {
    let cluster = json!({"headGroupSpec": {"template": template("2")},
        "workerGroupSpecs": [{"groupName": "gpu", "replicas": 1, "template": template("4")}]});
    let job = json!({"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "j"}, "spec": {"rayClusterSpec": cluster}});
    let seen = [
        node(),
        wrapper(&job, &json!({})),
        Seen::Listed("ray.io/v1", "RayJob"),
        Seen::Object("ray.io/v1", "RayJob", json!({"metadata": meta("j", "j-uid", Some("w-uid"))})),
        Seen::Object("ray.io/v1", "RayCluster", json!({"metadata": meta("j-x", "c-uid", Some("j-uid"))})),
        Seen::Object("batch/v1", "Job", json!({"metadata": meta("j", "s-uid", Some("j-uid"))})),
        pod("head", "c-uid", json!({"ray.io/group": "headgroup"}), "2"),
        pod("worker", "c-uid", json!({"ray.io/group": "gpu"}), "4"),
        pod("submit", "s-uid", json!({}), "500m"),
        pod("other", "x-uid", json!({}), "1"),
    ];
    assert_eq!(in_any_order(&seen), ["head: head", "other: nobody", "submit: submitter", "worker: gpu"]);
}

#[test]
fn pods_of_a_deployment_find_it_through_its_replica_set() {
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"replicas": 2, "template": template("1")}});
    let seen = [
        node(),
        wrapper(&deployment, &json!({})),
        Seen::Listed("apps/v1", "Deployment"),
        Seen::Object("apps/v1", "Deployment", json!({"metadata": meta("d", "d-uid", Some("w-uid"))})),
        Seen::Object("apps/v1", "ReplicaSet", json!({"metadata": meta("d-1", "r-uid", Some("d-uid"))})),
        pod("a", "r-uid", json!({}), "1"),
        pod("b", "r-uid", json!({}), "1"),
    ];
    assert_eq!(in_any_order(&seen), ["a: deployment", "b: deployment"]);
}

#[test]
fn pods_of_a_job_set_find_their_replicated_job() {
    let jobs = json!([{"name": "leader", "template": {"spec": {"template": template("1")}}},
        {"name": "workers", "replicas": 2, "template": {"spec": {"template": template("2")}}}]);
    let set = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "s"}, "spec": {"replicatedJobs": jobs}});
    let label = |role: &str| json!({"jobset.sigs.k8s.io/replicatedjob-name": role});
    let seen = [
        node(),
        wrapper(&set, &json!({})),
        Seen::Listed("jobset.x-k8s.io/v1alpha2", "JobSet"),
        Seen::Object(
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            json!({"metadata": meta("s", "s-uid", Some("w-uid"))}),
        ),
        Seen::Object("batch/v1", "Job", json!({"metadata": meta("s-leader-0", "l-uid", Some("s-uid"))})),
        Seen::Object("batch/v1", "Job", json!({"metadata": meta("s-workers-0", "k-uid", Some("s-uid"))})),
        pod("l", "l-uid", label("leader"), "1"),
        pod("k", "k-uid", label("workers"), "2"),
    ];
    assert_eq!(in_any_order(&seen), ["k: workers", "l: leader"]);
}

#[test]
fn a_restart_finds_where_each_gang_was() {
    struct Case {
        name: &'static str,
        status: Value,
        annotation: Option<&'static str>,
        exists: bool,
        phase: Phase,
    }
    let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "c"}, "spec": {"template": template("1")}});
    let placed = Assignment { pod_sets: vec![vec![("n".into(), 1)]], ..Assignment::default() };
    let running = json!({"canrun": true, "state": "Running", "queuejobstate": "Dispatched"});
    let cases = [
        Case { name: "new", status: json!({}), annotation: None, exists: false, phase: Phase::Waiting },
        Case {
            name: "intent only",
            status: json!({"canrun": true, "state": "Pending", "queuejobstate": "HeadOfLine"}),
            annotation: None,
            exists: false,
            phase: Phase::Waiting,
        },
        Case {
            name: "intent and object",
            status: json!({"canrun": true, "state": "Pending", "queuejobstate": "HeadOfLine"}),
            annotation: Some("[{\"n\":1}]"),
            exists: true,
            phase: Phase::Starting(Some(placed.clone())),
        },
        Case {
            name: "dispatched",
            status: running.clone(),
            annotation: Some("[{\"n\":1}]"),
            exists: true,
            phase: Phase::Running(Some(placed)),
        },
        Case {
            name: "dispatched by somebody who does not say where",
            status: running.clone(),
            annotation: None,
            exists: true,
            phase: Phase::Running(None),
        },
        Case {
            name: "an assignment of another shape",
            status: running,
            annotation: Some("[{\"n\":1},{}]"),
            exists: true,
            phase: Phase::Running(None),
        },
        Case {
            name: "taken back halfway",
            status: json!({"state": "Running", "queuejobstate": "PreemptCandidate"}),
            annotation: None,
            exists: true,
            phase: Phase::Stopping(Stop::Requeue, None),
        },
        Case {
            name: "stopped for another one halfway",
            status: json!({"state": "Running", "queuejobstate": "Preempted"}),
            annotation: Some("[{\"n\":2}]"),
            exists: true,
            phase: Phase::Stopping(Stop::Preempt(None), None),
        },
        Case {
            name: "ended",
            status: json!({"state": "Completed", "queuejobstate": "Completed"}),
            annotation: None,
            exists: true,
            phase: Phase::Ended,
        },
    ];
    for Case { name, status, annotation, exists, phase } in cases {
        let mut index = Index::new();
        see(&mut index, wrapper(&job, &status));
        let mut object = json!({"metadata": meta("c", "c-uid", Some("w-uid"))});
        if let Some(annotation) = annotation {
            object["metadata"]["annotations"] = json!({"muster.dev/assignment": annotation});
        }
        if exists {
            see(&mut index, Seen::Object("batch/v1", "Job", object));
        }
        see(&mut index, Seen::Listed("batch/v1", "Job"));
        assert_eq!(index.wrapper("w-uid").unwrap().phase, phase, "{name}");
        let in_world = index.world().gang("w-uid").map(|gang| gang.state.clone());
        let expected = match phase {
            Phase::Waiting => Some(GangState::Waiting),
            Phase::Starting(Some(a)) | Phase::Running(Some(a)) => Some(GangState::Reserved(a)),
            Phase::Starting(None) | Phase::Running(None) => Some(GangState::Unplaced),
            Phase::Nominated(_) | Phase::Leaving(..) | Phase::Stopping(_, Some(_)) => unreachable!("{name}"),
            Phase::Unknown | Phase::Held(_) | Phase::Stopping(_, None) | Phase::Ended => None,
        };
        assert_eq!(in_world, expected, "{name}");
    }
    // Before it is known what exists, nothing is decided about what may have begun.
    let mut index = Index::new();
    see(&mut index, wrapper(&config_map, &json!({"canrun": true})));
    index.kind_known(
        &Kind::new("v1", "ConfigMap"),
        &KindState::Served { plural: "configmaps".into(), listed: false },
    );
    assert_eq!(index.wrapper("w-uid").unwrap().phase, Phase::Unknown);
}

#[test]
fn an_older_observation_changes_nothing() {
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "c"}, "spec": {"template": template("1")}});
    let mut index = Index::new();
    see(&mut index, wrapper(&job, &json!({})));
    see(&mut index, Seen::Listed("batch/v1", "Job"));
    let mut status = index.wrapper("w-uid").unwrap().status.clone();
    status.message = "newer".into();
    index.written("w-uid", "9", status);
    see(&mut index, wrapper(&job, &json!({"message": "older"})));
    assert_eq!(index.wrapper("w-uid").unwrap().status.message, "newer");
    index.wrapper_gone("w-uid");
    index.written("w-uid", "10", api::appwrapper::Status::default());
    assert!(index.wrapper("w-uid").is_none() && index.world().gang("w-uid").is_none());
}

#[test]
fn kinds_that_cannot_be_wrapped_hold_the_gang_with_a_reason() {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}});
    let mut index = Index::new();
    see(&mut index, wrapper(&role, &json!({})));
    let kind = Kind::new("rbac.authorization.k8s.io/v1", "ClusterRole");
    assert_eq!(index.unknown_kinds().collect::<Vec<_>>(), [&kind]);
    index.kind_known(&kind, &KindState::ClusterScoped);
    let reason =
        "ClusterRole in rbac.authorization.k8s.io/v1 belongs to no namespace, so nothing can wrap it";
    assert_eq!(index.wrapper("w-uid").unwrap().phase, Phase::Held(vec![reason.into()]));
}

#[test]
fn a_pod_that_succeeded_elsewhere_than_planned_keeps_that_place_until_its_gang_ends() {
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template("4")}});
    let mut index = Index::new();
    for name in ["n", "m"] {
        index.node_seen(
            serde_json::from_value(json!({
                "metadata": {"name": name, "uid": name},
                "status": {"allocatable": {"cpu": "16", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]},
            }))
            .unwrap(),
        );
    }
    let mut object = json!({"metadata": meta("j", "j-uid", Some("w-uid"))});
    object["metadata"]["annotations"] = json!({"muster.dev/assignment": "[{\"m\":1}]"});
    see(&mut index, Seen::Object("batch/v1", "Job", object));
    see(
        &mut index,
        wrapper(&job, &json!({"canrun": true, "state": "Running", "queuejobstate": "Dispatched"})),
    );
    see(&mut index, Seen::Listed("batch/v1", "Job"));
    let taken = |index: &Index| {
        let cpu = |node| 16_000 - index.world().usage(node).unwrap().free.get(model::ResourceIx::CPU).0;
        (cpu("n"), cpu("m"))
    };
    assert_eq!(taken(&index), (0, 4000), "planned on m");
    see(&mut index, pod("p", "j-uid", json!({}), "4"));
    assert_eq!(taken(&index), (4000, 0), "runs on n");
    let ended = json!({"metadata": meta("p", "p", Some("j-uid")), "spec": pod_spec("4"), "status": {"phase": "Succeeded"}});
    see(&mut index, Seen::Pod(ended));
    assert_eq!(taken(&index), (4000, 0), "stays where it ran");
    let status = api::appwrapper::Status { state: api::appwrapper::State::Completed, ..Default::default() };
    index.written("w-uid", "9", status);
    assert_eq!(taken(&index), (0, 0), "the gang ended");
}
