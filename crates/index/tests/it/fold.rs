//! Watch events in, World out: the pod sets of pods for any order of events, and the phase of a wrapper after a
//! restart.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use api::MicroTime;
use api::appwrapper::Group;
use index::{Index, Kind, KindState, ObjectRow, Phase, ReservedPlaces, StopReason};
use model::{Assignment, GangState};
use serde_json::{Value, json};

/// One watch event.
#[derive(Clone)]
enum WatchEvent {
    Node(Value),
    Wrapper(Value),
    Object(&'static str, &'static str, Value),
    Pod(Value),
    Listed(&'static str, &'static str),
}

fn apply(index: &mut Index, event: WatchEvent) {
    match event {
        WatchEvent::Node(node) => index.upsert_node(serde_json::from_value(node).unwrap()),
        WatchEvent::Wrapper(wrapper) => {
            index.upsert_namespace(&serde_json::from_value(json!({"metadata": {"name": "ns"}})).unwrap());
            index.upsert_wrapper(Group::Mcad, serde_json::from_value(wrapper).unwrap(), MicroTime(1));
        }
        WatchEvent::Object(api_version, kind, object) => {
            let object = serde_json::from_value(object).unwrap();
            index.upsert_object(ObjectRow::of(&Kind::new(api_version, kind), object));
        }
        WatchEvent::Pod(pod) => index.upsert_pod(serde_json::from_value(pod).unwrap()),
        WatchEvent::Listed(api_version, kind) => {
            let state = KindState::Served { plural: kind.to_lowercase(), listed: true };
            index.set_kind_state(&Kind::new(api_version, kind), &state);
        }
    }
}

fn meta(name: &str, uid: &str, owner: Option<&str>) -> Value {
    let owners: Vec<_> = owner.iter().map(|uid| json!({"uid": uid, "controller": true})).collect();
    json!({"name": name, "namespace": "ns", "uid": uid, "resourceVersion": "7", "ownerReferences": owners})
}

fn node() -> WatchEvent {
    WatchEvent::Node(json!({
        "metadata": {"name": "n", "uid": "n"},
        "status": {"allocatable": {"cpu": "16", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]},
    }))
}

fn wrapper(template: &Value, status: &Value) -> WatchEvent {
    WatchEvent::Wrapper(json!({
        "metadata": meta("w", "w-uid", None),
        "spec": {"resources": {"GenericItems": [{"generictemplate": template}]}}, "status": status,
    }))
}

/// The status of a dispatched gang with a record of its places.
fn dispatched(assignment: &str) -> Value {
    let record = json!({"type": "PlacesReserved", "reason": "Admitted", "status": "True",
        "message": ReservedPlaces::of(assignment).to_string()});
    json!({"canrun": true, "state": "Running", "queuejobstate": "Dispatched", "conditions": [record]})
}

fn pod_spec(cpu: &str) -> Value {
    json!({"nodeName": "n", "containers": [{"resources": {"requests": {"cpu": cpu}}}]})
}

fn pod(name: &str, owner: &str, labels: Value, cpu: &str) -> WatchEvent {
    let mut metadata = meta(name, name, Some(owner));
    metadata["labels"] = labels;
    WatchEvent::Pod(json!({"metadata": metadata, "spec": pod_spec(cpu), "status": {"phase": "Running"}}))
}

fn template(cpu: &str) -> Value {
    json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}})
}

/// The pod set of each pod, and the free resources of the node.
fn outcome(index: &Index) -> Vec<String> {
    let gang = index.world().gang("w-uid").unwrap();
    let name = |set: usize| gang.pod_sets[set].name.clone();
    let owner = |pod: &model::Pod| pod.gang.as_ref().map_or("no gang".into(), |(_, set)| name(*set));
    let pods = index.world().pods().map(|pod| format!("{}: {}", pod.name, owner(pod)));
    let free = index.world().usage("n").unwrap();
    pods.chain([format!("{free:?}")]).collect()
}

/// Applies the events in 200 pseudo-random orders and in rounds of random lengths, and asserts that the outcome is the
/// same. Returns the pod sets of the
/// pods.
fn in_any_order(events: &[WatchEvent]) -> Vec<String> {
    let mut first: Option<Vec<String>> = None;
    let mut random = 1_u64;
    for _ in 0..200 {
        let mut order: Vec<WatchEvent> = events.to_vec();
        for at in (1..order.len()).rev() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            order.swap(at, usize::try_from(random >> 33).unwrap() % (at + 1));
        }
        let mut index = Index::new();
        for event in order {
            apply(&mut index, event);
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if random >> 62 == 0 {
                index.settle();
            }
        }
        index.settle();
        let outcome = outcome(&index);
        assert_eq!(*first.get_or_insert(outcome.clone()), outcome);
    }
    let mut outcome = first.unwrap();
    outcome.pop();
    outcome
}

#[test]
fn pods_of_a_ray_job_map_to_its_head_worker_and_submitter_pod_sets() {
    let cluster = json!({"headGroupSpec": {"template": template("2")},
        "workerGroupSpecs": [{"groupName": "gpu", "replicas": 1, "template": template("4")}]});
    let job = json!({"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "j"}, "spec": {"rayClusterSpec": cluster}});
    let events = [
        node(),
        wrapper(&job, &json!({})),
        WatchEvent::Listed("ray.io/v1", "RayJob"),
        WatchEvent::Object("ray.io/v1", "RayJob", json!({"metadata": meta("j", "j-uid", Some("w-uid"))})),
        WatchEvent::Object(
            "ray.io/v1",
            "RayCluster",
            json!({"metadata": meta("j-x", "c-uid", Some("j-uid"))}),
        ),
        WatchEvent::Object("batch/v1", "Job", json!({"metadata": meta("j", "s-uid", Some("j-uid"))})),
        pod("head", "c-uid", json!({"ray.io/group": "headgroup"}), "2"),
        pod("worker", "c-uid", json!({"ray.io/group": "gpu"}), "4"),
        pod("submit", "s-uid", json!({}), "500m"),
        pod("other", "x-uid", json!({}), "1"),
    ];
    assert_eq!(in_any_order(&events), ["head: head", "other: no gang", "submit: submitter", "worker: gpu"]);
}

#[test]
fn pods_of_a_deployment_map_to_its_pod_set_through_the_replica_set() {
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"replicas": 2, "template": template("1")}});
    let events = [
        node(),
        wrapper(&deployment, &json!({})),
        WatchEvent::Listed("apps/v1", "Deployment"),
        WatchEvent::Object("apps/v1", "Deployment", json!({"metadata": meta("d", "d-uid", Some("w-uid"))})),
        WatchEvent::Object("apps/v1", "ReplicaSet", json!({"metadata": meta("d-1", "r-uid", Some("d-uid"))})),
        pod("a", "r-uid", json!({}), "1"),
        pod("b", "r-uid", json!({}), "1"),
    ];
    assert_eq!(in_any_order(&events), ["a: deployment", "b: deployment"]);
}

#[test]
fn pods_of_a_job_set_map_to_the_pod_set_of_their_replicated_job() {
    let jobs = json!([{"name": "leader", "template": {"spec": {"template": template("1")}}},
        {"name": "workers", "replicas": 2, "template": {"spec": {"template": template("2")}}}]);
    let set = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "s"}, "spec": {"replicatedJobs": jobs}});
    let label = |role: &str| json!({"jobset.sigs.k8s.io/replicatedjob-name": role});
    let events = [
        node(),
        wrapper(&set, &json!({})),
        WatchEvent::Listed("jobset.x-k8s.io/v1alpha2", "JobSet"),
        WatchEvent::Object(
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            json!({"metadata": meta("s", "s-uid", Some("w-uid"))}),
        ),
        WatchEvent::Object(
            "batch/v1",
            "Job",
            json!({"metadata": meta("s-leader-0", "l-uid", Some("s-uid"))}),
        ),
        WatchEvent::Object(
            "batch/v1",
            "Job",
            json!({"metadata": meta("s-workers-0", "k-uid", Some("s-uid"))}),
        ),
        pod("l", "l-uid", label("leader"), "1"),
        pod("k", "k-uid", label("workers"), "2"),
    ];
    assert_eq!(in_any_order(&events), ["k: workers", "l: leader"]);
}

#[test]
fn a_restart_recovers_the_phase_of_each_gang() {
    struct Case {
        name: &'static str,
        status: Value,
        annotation: Option<&'static str>,
        exists: bool,
        phase: Phase,
    }
    let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "c"}, "spec": {"template": template("1")}});
    let places = |node: &str| Assignment { pod_sets: vec![vec![(node.into(), 1)]], ..Assignment::default() };
    let placed = places("n");
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
            status: dispatched("[{\"n\":1}]"),
            annotation: Some("[{\"n\":1}]"),
            exists: true,
            phase: Phase::Running(Some(placed)),
        },
        Case {
            name: "dispatched, and an author wrote another assignment",
            status: dispatched("[{\"n\":1}]"),
            annotation: Some("[{\"m\":1}]"),
            exists: true,
            phase: Phase::Running(Some(places("?"))),
        },
        Case {
            name: "dispatched, and an author removed the assignment",
            status: dispatched("[{\"n\":1}]"),
            annotation: None,
            exists: true,
            phase: Phase::Running(Some(places("?"))),
        },
        Case {
            name: "dispatched, and no object is observed yet",
            status: dispatched("[{\"n\":1}]"),
            annotation: None,
            exists: false,
            phase: Phase::Running(None),
        },
        Case {
            name: "dispatched by a version that recorded no digest",
            status: running.clone(),
            annotation: Some("[{\"n\":1}]"),
            exists: true,
            phase: Phase::Running(Some(places("?"))),
        },
        Case {
            name: "dispatched by a controller that records no assignment",
            status: running,
            annotation: None,
            exists: true,
            phase: Phase::Running(None),
        },
        Case {
            name: "an assignment with another number of pod sets",
            status: dispatched("[{\"n\":1},{}]"),
            annotation: Some("[{\"n\":1},{}]"),
            exists: true,
            phase: Phase::Running(Some(places("?"))),
        },
        Case {
            name: "requeued, objects not deleted yet",
            status: json!({"state": "Running", "queuejobstate": "PreemptCandidate"}),
            annotation: None,
            exists: true,
            phase: Phase::Stopping(StopReason::Requeue, None),
        },
        Case {
            name: "preempted, objects not deleted yet",
            status: json!({"state": "Running", "queuejobstate": "Preempted"}),
            annotation: Some("[{\"n\":2}]"),
            exists: true,
            phase: Phase::Stopping(StopReason::Preempt(None), None),
        },
        Case {
            name: "completed",
            status: json!({"state": "Completed", "queuejobstate": "Completed"}),
            annotation: None,
            exists: true,
            phase: Phase::Finished,
        },
    ];
    for Case { name, status, annotation, exists, phase } in cases {
        let mut index = Index::new();
        apply(&mut index, wrapper(&job, &status));
        let mut object = json!({"metadata": meta("c", "c-uid", Some("w-uid"))});
        if let Some(annotation) = annotation {
            object["metadata"]["annotations"] = json!({"muster.dev/assignment": annotation});
        }
        if exists {
            apply(&mut index, WatchEvent::Object("batch/v1", "Job", object));
        }
        apply(&mut index, WatchEvent::Listed("batch/v1", "Job"));
        assert_eq!(index.wrapper("w-uid").unwrap().phase, phase, "{name}");
        let in_world = index.world().gang("w-uid").map(|gang| gang.state.clone());
        let expected = match phase {
            Phase::Waiting => Some(GangState::Waiting),
            Phase::Starting(Some(a)) | Phase::Running(Some(a)) => Some(GangState::Reserved(a)),
            Phase::Starting(None) | Phase::Running(None) => Some(GangState::Unplaced),
            Phase::Nominated(_) | Phase::Stopped(..) | Phase::Stopping(_, Some(_)) => unreachable!("{name}"),
            Phase::Unknown | Phase::Inadmissible(_) | Phase::Stopping(_, None) | Phase::Finished => None,
        };
        assert_eq!(in_world, expected, "{name}");
    }
    // The phase of a gang that may have objects is unknown until their kind is listed.
    let mut index = Index::new();
    apply(&mut index, wrapper(&config_map, &json!({"canrun": true})));
    index.set_kind_state(
        &Kind::new("v1", "ConfigMap"),
        &KindState::Served { plural: "configmaps".into(), listed: false },
    );
    assert_eq!(index.wrapper("w-uid").unwrap().phase, Phase::Unknown);
}

#[test]
fn a_watch_event_older_than_the_last_write_is_ignored() {
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "c"}, "spec": {"template": template("1")}});
    let mut index = Index::new();
    apply(&mut index, wrapper(&job, &json!({})));
    apply(&mut index, WatchEvent::Listed("batch/v1", "Job"));
    let mut status = index.wrapper("w-uid").unwrap().status.clone();
    status.message = "newer".into();
    index.status_written("w-uid", "9", status);
    apply(&mut index, wrapper(&job, &json!({"message": "older"})));
    assert_eq!(index.wrapper("w-uid").unwrap().status.message, "newer");
    index.delete_wrapper("w-uid");
    index.status_written("w-uid", "10", api::appwrapper::Status::default());
    assert!(index.wrapper("w-uid").is_none() && index.world().gang("w-uid").is_none());
}

#[test]
fn a_gang_with_a_cluster_scoped_kind_is_inadmissible() {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}});
    let mut index = Index::new();
    apply(&mut index, wrapper(&role, &json!({})));
    let kind = Kind::new("rbac.authorization.k8s.io/v1", "ClusterRole");
    assert_eq!(index.unknown_kinds().collect::<Vec<_>>(), [&kind]);
    index.set_kind_state(&kind, &KindState::ClusterScoped);
    let reason =
        "ClusterRole in rbac.authorization.k8s.io/v1 is cluster-scoped, so an AppWrapper cannot contain it";
    assert_eq!(index.wrapper("w-uid").unwrap().phase, Phase::Inadmissible(vec![reason.into()]));
}

#[test]
fn a_succeeded_pod_is_no_load_and_its_place_stays_reserved_where_it_ran() {
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template("4")}});
    let mut index = Index::new();
    for name in ["n", "m"] {
        index.upsert_node(
            serde_json::from_value(json!({
                "metadata": {"name": name, "uid": name},
                "status": {"allocatable": {"cpu": "16", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]},
            }))
            .unwrap(),
        );
    }
    let mut object = json!({"metadata": meta("j", "j-uid", Some("w-uid"))});
    object["metadata"]["annotations"] = json!({"muster.dev/assignment": "[{\"m\":1}]"});
    apply(&mut index, WatchEvent::Object("batch/v1", "Job", object));
    apply(&mut index, wrapper(&job, &dispatched("[{\"m\":1}]")));
    apply(&mut index, WatchEvent::Listed("batch/v1", "Job"));
    let taken = |index: &mut Index| {
        index.settle();
        let cpu = |node| 16_000 - index.world().usage(node).unwrap().free.get(model::ResourceIx::CPU).0;
        (cpu("n"), cpu("m"))
    };
    assert_eq!(taken(&mut index), (0, 4000), "assigned to m");
    apply(&mut index, pod("p", "j-uid", json!({}), "4"));
    assert_eq!(taken(&mut index), (4000, 0), "runs on n, and holds the place there");
    let ended = json!({"metadata": meta("p", "p", Some("j-uid")), "spec": pod_spec("4"), "status": {"phase": "Succeeded"}});
    apply(&mut index, WatchEvent::Pod(ended));
    assert_eq!(taken(&mut index), (4000, 0), "reserved for a successor");
    let status = api::appwrapper::Status { state: api::appwrapper::State::Completed, ..Default::default() };
    index.status_written("w-uid", "9", status);
    assert_eq!(taken(&mut index), (0, 0), "the gang ended");
}

#[test]
fn orphans_of_two_namespaces_that_name_the_same_owner_are_apart() {
    let mut index = Index::new();
    for namespace in ["ns", "other"] {
        let mut metadata = meta("p", namespace, Some("gone"));
        metadata["namespace"] = namespace.into();
        let spec = json!({"containers": [], "schedulingGates": [{"name": "muster.dev/placement"}]});
        apply(
            &mut index,
            WatchEvent::Pod(json!({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})),
        );
    }
    let owners: Vec<_> = index.orphan_owners().into_iter().cloned().collect();
    let of = |namespace: &str| (namespace.to_owned(), "gone".to_owned());
    assert_eq!(owners, [of("ns"), of("other")]);
    assert_eq!(index.orphans_of(&owners[0]).map(|pod| &*pod.uid).collect::<Vec<_>>(), ["ns"]);
}

#[test]
fn uids_of_owners_count_within_their_namespace() {
    let mut index = Index::new();
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
        "spec": {"parallelism": 2, "template": template("1")}});
    let elsewhere = |mut object: Value| {
        object["metadata"]["namespace"] = json!("other");
        object
    };
    let status = json!({"canrun": true, "state": "Running", "queuejobstate": "Dispatched"});
    let forged_job = elsewhere(json!({"metadata": meta("j", "forged-job", Some("w-uid"))}));
    let mut of_wrapper =
        elsewhere(json!({"metadata": meta("p1", "p1", Some("w-uid")), "spec": pod_spec("1")}));
    of_wrapper["metadata"]["labels"] = json!({"appwrapper.mcad.ibm.com": "w"});
    let of_job = elsewhere(json!({"metadata": meta("p2", "p2", Some("j-uid")), "spec": pod_spec("1")}));
    let below_forged =
        elsewhere(json!({"metadata": meta("p3", "p3", Some("forged-job")), "spec": pod_spec("1")}));
    let events = [
        node(),
        WatchEvent::Listed("batch/v1", "Job"),
        WatchEvent::Object("batch/v1", "Job", forged_job),
        WatchEvent::Object("batch/v1", "Job", json!({"metadata": meta("j", "j-uid", Some("w-uid"))})),
        WatchEvent::Pod(of_wrapper),
        WatchEvent::Pod(of_job),
        WatchEvent::Pod(below_forged),
        wrapper(&job, &status),
        pod("own", "j-uid", json!({}), "1"),
    ];
    for event in events {
        apply(&mut index, event);
    }
    index.settle();
    let outcome = outcome(&index);
    for line in ["p1: no gang", "p2: no gang", "p3: no gang"] {
        assert!(outcome.contains(&line.to_owned()), "{outcome:?}");
    }
    assert!(outcome.iter().any(|line| line.starts_with("own: ") && line != "own: no gang"), "{outcome:?}");
    let of_gang = index.wrapper("w-uid").unwrap();
    assert_eq!(index.objects_of("w-uid").count(), 1);
    let names: Vec<_> = index.pods_of(of_gang).iter().map(|pod| pod.name.clone()).collect();
    assert_eq!(names, ["own"]);
}

#[test]
fn an_assignment_with_more_places_than_pods_is_not_believed() {
    for (text, is_believed) in [
        (r#"[{"n":2}]"#, true),
        (r#"[{"n":1}]"#, true),
        (r#"[{"n":3}]"#, false),
        (r#"[{"n":2,"m":1}]"#, false),
        (r#"[{"n":4294967295,"m":4294967295}]"#, false),
        (r#"[{"n":1},{"n":1}]"#, false),
        (r#"[{"n":-1}]"#, false),
    ] {
        let mut index = Index::new();
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
            "spec": {"parallelism": 2, "completions": 2, "template": template("1")}});
        let status = dispatched(text);
        let mut metadata = meta("j", "j-uid", Some("w-uid"));
        metadata["annotations"] = json!({"muster.dev/assignment": text});
        let spec = json!({"parallelism": 2, "completions": 2});
        let object = json!({"metadata": metadata, "spec": spec});
        let events = [
            node(),
            WatchEvent::Listed("batch/v1", "Job"),
            WatchEvent::Object("batch/v1", "Job", object),
            wrapper(&job, &status),
        ];
        for event in events {
            apply(&mut index, event);
        }
        let phase = &index.wrapper("w-uid").unwrap().phase;
        let Phase::Running(Some(places)) = phase else { panic!("{text}: {phase:?}") };
        assert_eq!(places.nodes().all(|node| node != "?"), is_believed, "{text}: {phase:?}");
    }
}

#[test]
fn a_gang_of_an_unknown_namespace_is_not_queued() {
    let mut index = Index::new();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    let WatchEvent::Wrapper(mut object) = wrapper(&map, &json!({})) else { unreachable!() };
    object["metadata"]["namespace"] = json!("new");
    object["spec"]["priority"] = json!(100);
    object["metadata"]["annotations"] = json!({"muster.dev/protected": "true"});
    apply(&mut index, node());
    apply(&mut index, WatchEvent::Listed("v1", "ConfigMap"));
    apply(&mut index, WatchEvent::Wrapper(object));
    assert_eq!(index.wrapper("w-uid").unwrap().phase, Phase::Unknown);
    let limits = json!({"metadata": {"name": "new", "annotations": {"muster.dev/priority-max": "7.5"}}});
    assert_eq!(index.upsert_namespace(&serde_json::from_value(limits).unwrap()), [""; 0]);
    index.settle();
    let gang = index.world().gang("w-uid").unwrap();
    assert_eq!((gang.priority, gang.protected), (7_500, false));
}

#[test]
fn declared_run_times_count_as_many_times_over_as_others_of_the_namespace_were_exceeded() {
    const MINUTE: i64 = 60_000_000;
    const DAY: i64 = 24 * 60 * MINUTE;
    let start = MicroTime::parse("2026-11-21T00:00:00Z").unwrap();
    let at = |minutes: i64| MicroTime(start.0 + minutes * MINUTE);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    let submit = |index: &mut Index, name: &str, namespace: &str, status: &Value| {
        let limits = json!({"metadata": {"name": namespace}});
        index.upsert_namespace(&serde_json::from_value(limits).unwrap());
        let object = json!({
            "metadata": {"name": name, "namespace": namespace, "uid": name, "resourceVersion": "1",
                "annotations": {"muster.dev/expected-duration": "1m"}},
            "spec": {"resources": {"GenericItems": [{"generictemplate": map}]}}, "status": status,
        });
        index.upsert_wrapper(Group::Mcad, serde_json::from_value(object).unwrap(), MicroTime(1));
    };
    let condition = |kind: &str, reason: &str, time: MicroTime| json!({"type": kind, "reason": reason, "status": "True", "lastTransitionMicroTime": serde_json::to_value(time).unwrap()});
    let dispatched = condition("Dispatched", "AppWrapperRunnable", start);
    let running = json!({"canrun": true, "state": "Running", "queuejobstate": "Dispatched", "conditions": [dispatched]});
    let completed = json!({"state": "Completed", "queuejobstate": "Completed",
        "conditions": [dispatched, condition("Completed", "PodsCompleted", at(60))]});
    let new = |status: &Value| {
        let mut index = Index::new();
        apply(&mut index, WatchEvent::Listed("v1", "ConfigMap"));
        submit(&mut index, "next", "ns", &json!({}));
        submit(&mut index, "old", "ns", status);
        submit(&mut index, "other", "elsewhere", &json!({}));
        index
    };
    let runs = |index: &mut Index, now: MicroTime| {
        index.observe_overruns(now);
        index.settle();
        ["next", "other"].map(|name| index.world().gang(name).unwrap().runs_us.unwrap() / MINUTE)
    };
    let mut index = new(&running);
    for (minutes, expected) in [(1, 1), (2, 1), (3, 4), (4, 4), (5, 8), (60, 64)] {
        assert_eq!(runs(&mut index, at(minutes)), [expected, 1], "after {minutes} min");
    }
    assert_eq!(runs(&mut index, MicroTime(start.0 + 40 * DAY)), [65_536, 1], "it runs on");
    index.delete_wrapper("old");
    assert_eq!(runs(&mut index, MicroTime(start.0 + 40 * DAY + MINUTE)), [65_536, 1], "it has ended");
    assert_eq!(runs(&mut index, MicroTime(start.0 + 41 * DAY)), [1, 1], "a day later");
    assert_eq!(runs(&mut new(&running), at(60)), [64, 1], "a new process");
    assert_eq!(runs(&mut new(&completed), at(120)), [64, 1], "a new process after the end");
    let mut left = new(&completed);
    runs(&mut left, at(120));
    let record = left.take_changed_overruns().unwrap();
    assert_eq!(left.take_changed_overruns(), None);
    let mut next = new(&json!({}));
    next.restore_overruns(&record);
    assert_eq!(runs(&mut next, at(120)), [64, 1], "a new process after it was deleted, with the record");
    assert_eq!(runs(&mut next, MicroTime(at(60).0 + DAY)), [1, 1], "the record ends with its day");
    assert_eq!(next.take_changed_overruns().unwrap().len(), 0);
    let mut late = new(&completed);
    assert_eq!(runs(&mut late, MicroTime(at(60).0 + DAY)), [1, 1], "a day after the end");
    late.take_changed_overruns();
    assert_eq!(runs(&mut late, MicroTime(at(61).0 + DAY)), [1, 1]);
    assert_eq!(late.take_changed_overruns(), None, "it is not found again in each plan");
}
