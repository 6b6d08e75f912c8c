//! Claims of pod templates: on which nodes the pods can run, what keeps them from the queue, and what is not planned.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use api::MicroTime;
use api::appwrapper::Group;
use index::{Index, Kind, KindState, Phase, ReferencedChange, ReferencedKind};
use model::{Operator, Requirement};
use serde_json::{Value, json};

const CLAIM_KINDS: [ReferencedKind; 3] =
    [ReferencedKind::Claims, ReferencedKind::Volumes, ReferencedKind::StorageClasses];

/// An index with these objects, all of them listed.
fn index(objects: &[Value]) -> Index {
    let mut index = Index::new();
    index.upsert_namespace(&serde_json::from_value(json!({"metadata": {"name": "ns"}})).unwrap());
    for object in objects {
        apply(&mut index, object);
    }
    for kind in CLAIM_KINDS {
        index.set_listed(kind, Ok(()));
    }
    index
}

fn apply(index: &mut Index, object: &Value) {
    let object = object.clone();
    index.apply_referenced(match object["kind"].as_str().unwrap() {
        "PersistentVolumeClaim" => ReferencedChange::Claim(serde_json::from_value(object).unwrap()),
        "PersistentVolume" => ReferencedChange::Volume(serde_json::from_value(object).unwrap()),
        _ => ReferencedChange::StorageClass(serde_json::from_value(object).unwrap()),
    });
}

fn claim(name: &str, spec: &Value) -> Value {
    json!({"kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": spec})
}

fn volume(name: &str, zones: &[&str]) -> Value {
    let terms: Vec<Value> = zones
        .iter()
        .map(|zone| json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}))
        .collect();
    json!({"kind": "PersistentVolume", "metadata": {"name": name}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}})
}

fn class(name: &str, mode: &str, zones: &[&str]) -> Value {
    let topologies = match zones {
        [] => json!(null),
        zones => json!([{"matchLabelExpressions": [{"key": "zone", "values": zones}]}]),
    };
    json!({"kind": "StorageClass", "metadata": {"name": name}, "provisioner": "example.com/disk", "volumeBindingMode": mode,
        "allowedTopologies": topologies})
}

/// A Job of so many pods that use these claims.
fn job(pods: u32, claims: &[&str]) -> Value {
    let volumes: Vec<Value> = claims
        .iter()
        .map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}))
        .collect();
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"parallelism": pods,
        "template": {"spec": {"containers": [{"name": "c"}], "volumes": volumes}}}})
}

fn submit(index: &mut Index, objects: &[Value]) {
    let items: Vec<Value> = objects.iter().map(|object| json!({"generictemplate": object})).collect();
    let wrapper = json!({"metadata": {"name": "w", "namespace": "ns", "uid": "w", "resourceVersion": "1"},
        "spec": {"resources": {"GenericItems": items}}});
    index.upsert_wrapper(Group::Mcad, serde_json::from_value(wrapper).unwrap(), MicroTime(1));
    for object in objects {
        let kind = Kind::new(object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
        index.set_kind_state(&kind, &KindState::Served { plural: "x".into(), listed: true });
    }
    index.settle();
}

/// The alternatives of labels that the nodes of the first pod set must have, or why it is not planned or not queued.
fn outcome(index: &Index) -> String {
    let wrapper = index.wrapper("w").unwrap();
    if let Phase::Inadmissible(problems) = &wrapper.phase {
        return problems.join(". ");
    }
    if wrapper.phase == Phase::Unknown {
        return "unknown".into();
    }
    let unplanned = wrapper.unplanned();
    if !unplanned.is_empty() {
        return format!("unplanned {}", unplanned.join(". "));
    }
    let gang = index.world().gang("w").unwrap();
    let requirement = |Requirement { key, operator, values }: &Requirement| {
        assert_eq!(*operator, Operator::In);
        format!("{key}={}", values.join(","))
    };
    let terms = gang.pod_sets[0].constraints.node_affinity.iter();
    let terms = terms.map(|term| term.expressions.iter().map(requirement).collect::<Vec<_>>().join("&"));
    terms.collect::<Vec<_>>().join(" | ")
}

#[test]
fn the_claims_of_a_gang_decide_where_its_pods_run() {
    let bound = |volume: &str| claim("data", &json!({"volumeName": volume, "storageClassName": ""}));
    let of_class = |class: &str| claim("data", &json!({"storageClassName": class}));
    let late = class("late", "WaitForFirstConsumer", &["a", "b"]);
    let mut local = class("local", "WaitForFirstConsumer", &[]);
    local["provisioner"] = json!("kubernetes.io/no-provisioner");
    let mut default = class("default", "WaitForFirstConsumer", &["c"]);
    default["metadata"]["annotations"] = json!({"storageclass.kubernetes.io/is-default-class": "true"});
    let mut labelled = volume("v", &[]);
    labelled["metadata"]["labels"] = json!({"topology.kubernetes.io/zone": "a__b"});
    let once =
        |volume: &str| claim("data", &json!({"volumeName": volume, "accessModes": ["ReadWriteOncePod"]}));
    let mut deleting = bound("v");
    deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let cases = [
        ("bound", vec![bound("v"), volume("v", &["a"])], 2, "zone=a"),
        ("bound in two zones", vec![bound("v"), volume("v", &["a", "b"])], 2, "zone=a | zone=b"),
        ("bound anywhere", vec![bound("v"), volume("v", &[])], 2, ""),
        ("zone labels", vec![bound("v"), labelled], 1, "topology.kubernetes.io/zone=a,b"),
        ("no volume", vec![bound("v")], 1, "job: claim data: its volume v does not exist"),
        ("none", vec![], 1, "job: claim data does not exist in namespace ns: create it"),
        ("late", vec![of_class("late"), late.clone()], 1, "zone=a,b"),
        (
            "late and shared",
            vec![of_class("late"), late.clone()],
            2,
            "unplanned job: claim data is used by 2 pods, and the first one that is scheduled decides where its volume is",
        ),
        ("default", vec![claim("data", &json!({})), default], 1, "zone=c"),
        (
            "early",
            vec![of_class("early"), class("early", "Immediate", &[])],
            1,
            "job: claim data is not bound to a volume yet",
        ),
        (
            "no class",
            vec![of_class("late")],
            1,
            "job: claim data: storage class late does not exist: create it",
        ),
        ("static", vec![of_class("")], 1, "job: claim data is not bound to a volume yet"),
        (
            "local",
            vec![of_class("local"), local],
            1,
            "unplanned job: claim data: storage class local binds it to an existing volume when its pod is scheduled",
        ),
        ("once", vec![once("v"), volume("v", &["a"])], 1, "zone=a"),
        (
            "once and shared",
            vec![once("v"), volume("v", &["a"])],
            3,
            "job: claim data is ReadWriteOncePod, but 3 pods use it",
        ),
        ("deleting", vec![deleting, volume("v", &["a"])], 1, "job: claim data is being deleted"),
    ];
    for (name, objects, pods, expected) in cases {
        let mut index = index(&objects);
        submit(&mut index, &[job(pods, &["data"])]);
        assert_eq!(outcome(&index), expected, "{name}");
    }
}

#[test]
fn node_affinity_and_all_volumes_hold_together() {
    let bound = |name: &str| claim(name, &json!({"volumeName": name}));
    let objects = [bound("one"), bound("two"), volume("one", &["a", "b"]), volume("two", &["b", "c"])];
    let mut index = index(&objects);
    let mut job = job(2, &["one", "two"]);
    job["spec"]["template"]["spec"]["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["x"]}]}]}}});
    submit(&mut index, &[job]);
    let expected = ["zone=a&zone=b", "zone=a&zone=c", "zone=b&zone=b", "zone=b&zone=c"]
        .map(|zones| format!("gpu=x&{zones}"));
    assert_eq!(outcome(&index), expected.join(" | "));
}

#[test]
fn a_gang_waits_for_its_claim_and_follows_its_volume() {
    let mut index = Index::new();
    index.upsert_namespace(&serde_json::from_value(json!({"metadata": {"name": "ns"}})).unwrap());
    submit(&mut index, &[job(1, &["data"])]);
    assert_eq!(outcome(&index), "unknown");
    assert_eq!(index.unlisted_kinds(), CLAIM_KINDS.into());
    for kind in CLAIM_KINDS {
        index.set_listed(kind, Ok(()));
    }
    index.settle();
    assert_eq!(outcome(&index), "job: claim data does not exist in namespace ns: create it");
    apply(&mut index, &class("late", "WaitForFirstConsumer", &[]));
    apply(&mut index, &claim("data", &json!({"storageClassName": "late"})));
    index.settle();
    assert_eq!(outcome(&index), "");
    apply(&mut index, &volume("v", &["b"]));
    apply(&mut index, &claim("data", &json!({"storageClassName": "late", "volumeName": "v"})));
    index.settle();
    assert_eq!(outcome(&index), "zone=b");
    index.apply_referenced(ReferencedChange::ClaimDeleted("data".into()));
    index.settle();
    assert_eq!(outcome(&index), "job: claim data does not exist in namespace ns: create it");
    index.set_listed(ReferencedKind::Claims, Err("not allowed".into()));
    index.settle();
    assert_eq!(outcome(&index), "unplanned job: persistentvolumeclaims cannot be listed: not allowed");
    index.delete_wrapper("w");
    assert!(index.referenced_kinds().is_empty());
}

#[test]
fn claims_that_the_gang_creates_are_not_missing() {
    let wrapped = |class: &str| {
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"storageClassName": class}})
    };
    let cases = [
        ("late", "zone=a"),
        (
            "early",
            "unplanned job: claim data: storage class early binds it to a volume that is not known yet",
        ),
    ];
    for (name, expected) in cases {
        let classes = [class("late", "WaitForFirstConsumer", &["a"]), class("early", "Immediate", &[])];
        let mut index = index(&classes);
        submit(&mut index, &[job(1, &["data"]), wrapped(name)]);
        assert_eq!(outcome(&index), expected);
    }
}

#[test]
fn ephemeral_volumes_and_claims_of_a_stateful_set_are_planned_by_their_class() {
    let late = class("late", "WaitForFirstConsumer", &["a"]);
    let spec = json!({"storageClassName": "late"});
    let mut ephemeral = job(4, &[]);
    ephemeral["spec"]["template"]["spec"]["volumes"] =
        json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}]);
    let mut of_job = index(std::slice::from_ref(&late));
    submit(&mut of_job, &[ephemeral]);
    assert_eq!(outcome(&of_job), "zone=a");

    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": {"replicas": 2,
        "template": {"spec": {"containers": [{"name": "c"}]}},
        "volumeClaimTemplates": [{"metadata": {"name": "disk"}, "spec": spec}]}});
    let kept = |pod: u32, volume: &str| {
        claim(&format!("disk-db-{pod}"), &json!({"storageClassName": "late", "volumeName": volume}))
    };
    let different = "unplanned statefulset: the claims disk-db-N of its pods have volumes on different nodes";
    let cases = [
        (vec![], "zone=a"),
        (vec![kept(0, "v"), kept(1, "v"), volume("v", &["b"])], "zone=b"),
        (vec![kept(0, "v"), kept(1, "u"), volume("v", &["b"]), volume("u", &["c"])], different),
        (vec![kept(0, "v"), volume("v", &["b"])], different),
        (vec![kept(7, "v"), volume("v", &["b"])], "zone=a"),
    ];
    for (objects, expected) in cases {
        let mut index = index(&[objects, vec![late.clone()]].concat());
        submit(&mut index, std::slice::from_ref(&set));
        assert_eq!(outcome(&index), expected);
    }
}
