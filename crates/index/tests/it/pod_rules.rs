//! Rules between pods: which selectors select which pods and pod sets, for any order of events.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::collections::BTreeSet;

use api::MicroTime;
use api::appwrapper::Group;
use index::{Index, Kind, KindState, ObjectRow};
use model::PodRules;
use serde_json::{Value, json};

const HOST: &str = "kubernetes.io/hostname";

fn index() -> Index {
    let mut index = Index::new();
    index.upsert_namespace(&serde_json::from_value(json!({"metadata": {"name": "ns"}})).unwrap());
    for (api_version, kind) in [("batch/v1", "Job"), ("apps/v1", "Deployment"), ("apps/v1", "ReplicaSet")] {
        let state = KindState::Served { plural: format!("{}s", kind.to_lowercase()), listed: true };
        index.set_kind_state(&Kind::new(api_version, kind), &state);
    }
    index
}

/// An AppWrapper of one object; its uid is its name.
fn submit(index: &mut Index, name: &str, object: &Value) {
    let kind = object["kind"].as_str().unwrap();
    let wrapper = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1"},
        "spec": {"resources": {"GenericItems": [{"generictemplate": object}]}},
    });
    index.upsert_wrapper(Group::Mcad, serde_json::from_value(wrapper).unwrap(), MicroTime(1));
    let state = KindState::Served { plural: format!("{}s", kind.to_lowercase()), listed: true };
    index.set_kind_state(&Kind::new(object["apiVersion"].as_str().unwrap(), kind), &state);
    index.settle();
}

fn workload(kind: (&str, &str), name: &str, spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["containers"] = spec.get("containers").cloned().unwrap_or_else(|| json!([{"name": "c"}]));
    json!({"apiVersion": kind.0, "kind": kind.1, "metadata": {"name": name}, "spec": {"parallelism": 2, "replicas": 2,
        "template": {"metadata": {"labels": {"app": name}}, "spec": spec}}})
}

fn job(name: &str, spec: &Value) -> Value {
    workload(("batch/v1", "Job"), name, spec)
}

/// A spec with one required term of this kind.
fn with_term(kind: &str, selector: &Value, more: &Value) -> Value {
    let mut term = json!({"topologyKey": HOST, "labelSelector": selector});
    term.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

fn apart(selector: &Value) -> Value {
    with_term("podAntiAffinity", selector, &Value::Null)
}

fn labels(labels: &Value) -> Value {
    json!({"matchLabels": labels})
}

/// A running pod; its uid is its name.
fn run(index: &mut Index, (namespace, name): (&str, &str), labels: &Value, spec: &Value) {
    let mut spec = spec.clone();
    spec["nodeName"] = json!("n");
    let pod = json!({"metadata": {"name": name, "namespace": namespace, "uid": name, "labels": labels},
        "spec": spec, "status": {"phase": "Running"}});
    index.upsert_pod(serde_json::from_value(pod).unwrap());
}

fn namespace(index: &mut Index, name: &str, labels: &Value) {
    let namespace = json!({"metadata": {"name": name, "labels": labels}});
    index.upsert_namespace(&serde_json::from_value(namespace).unwrap());
}

fn pod_rules<'a>(index: &'a Index, pod: &str) -> Option<&'a PodRules> {
    index.world().pod(pod).unwrap().rules.as_deref()
}

fn set_rules<'a>(index: &'a Index, gang: &str) -> Option<&'a PodRules> {
    index.world().gang(gang).unwrap().pod_sets[0].rules.as_deref()
}

/// The names of the pods whose `selected_by` is that of the gang's anti-affinity.
fn selected(index: &Index, gang: &str) -> BTreeSet<String> {
    let rules = set_rules(index, gang).unwrap();
    let selector = rules.anti_affinity.first().map(|term| term.selector);
    let selector = selector.or_else(|| rules.affinity.as_ref().map(|affinity| affinity.selector));
    let selector = selector.or_else(|| rules.spread.first().map(|spread| spread.selector)).unwrap();
    let is_selected = |rules: &Option<std::sync::Arc<PodRules>>| {
        rules.as_ref().is_some_and(|rules| rules.selected_by.contains(&selector))
    };
    let pods = index.world().pods().filter(|pod| is_selected(&pod.rules)).map(|pod| pod.name.clone());
    let gangs = index.wrappers().filter_map(|wrapper| index.world().gang(&wrapper.uid));
    let gangs = gangs.filter(|gang| is_selected(&gang.pod_sets[0].rules)).map(|gang| gang.uid.clone());
    pods.chain(gangs).collect()
}

fn names<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.map(str::to_owned).into()
}

#[test]
fn a_selector_selects_pods_and_gangs_in_any_order_of_events() {
    let a = json!({"app": "a"});
    for order in 0..6 {
        let mut index = index();
        for step in 0..3 {
            match (order + step * if order < 3 { 1 } else { 2 }) % 3 {
                0 => submit(&mut index, "a", &job("a", &apart(&labels(&a)))),
                1 => submit(&mut index, "b", &job("b", &json!({}))),
                _ => {
                    run(&mut index, ("ns", "one"), &a, &json!({}));
                    run(&mut index, ("away", "two"), &a, &json!({}));
                    run(&mut index, ("ns", "three"), &json!({"app": "b"}), &json!({}));
                }
            }
        }
        index.settle();
        assert_eq!(selected(&index, "a"), names(["a", "one"]), "order {order}");
        assert_eq!(set_rules(&index, "b"), None);
        assert_eq!(pod_rules(&index, "two"), None);
        // The pod is relabelled while it runs.
        run(&mut index, ("ns", "one"), &json!({"app": "b"}), &json!({}));
        run(&mut index, ("ns", "three"), &a, &json!({}));
        index.settle();
        assert_eq!(selected(&index, "a"), names(["a", "three"]));
        // The selector ends with its last user.
        index.delete_wrapper("a");
        index.settle();
        assert_eq!(pod_rules(&index, "three"), None);
    }
}

#[test]
fn the_anti_affinity_and_the_ports_of_a_foreign_pod_concern_a_gang() {
    let mut index = index();
    submit(&mut index, "a", &job("a", &json!({})));
    assert_eq!(set_rules(&index, "a"), None);
    let mut spec = apart(&labels(&json!({"app": "a"})));
    spec["hostNetwork"] = json!(true);
    spec["containers"] = json!([{"name": "c", "ports": [{"containerPort": 80}]}]);
    run(&mut index, ("ns", "foreign"), &json!({"app": "f"}), &spec);
    index.settle();
    let foreign = pod_rules(&index, "foreign").unwrap();
    let selector = foreign.anti_affinity.first().unwrap().selector;
    assert_eq!(foreign.host_ports.first().unwrap().port, 80);
    assert_eq!(set_rules(&index, "a").unwrap().selected_by, BTreeSet::from([selector]));
    index.delete_pod("foreign");
    index.settle();
    assert_eq!(set_rules(&index, "a"), None);
}

#[test]
fn pods_of_an_operator_have_the_labels_that_it_adds() {
    let of = |key: &str, value: &str| apart(&labels(&json!({key: value})));
    let cases = [
        (job("j", &of("job-name", "j")), true),
        (job("j", &of("batch.kubernetes.io/job-name", "j")), true),
        (job("j", &of("job-name", "other")), false),
        (job("j", &of("appwrapper.mcad.ibm.com", "j")), true),
        (workload(("apps/v1", "Deployment"), "j", &of("job-name", "j")), false),
        (
            workload(
                ("apps/v1", "Deployment"),
                "j",
                &with_term("podAntiAffinity", &json!({}), &json!({"matchLabelKeys": ["pod-template-hash"]})),
            ),
            true,
        ),
        (
            workload(
                ("apps/v1", "Deployment"),
                "j",
                &with_term(
                    "podAntiAffinity",
                    &json!({}),
                    &json!({"mismatchLabelKeys": ["pod-template-hash"]}),
                ),
            ),
            false,
        ),
    ];
    for (object, is_selected) in cases {
        let mut index = index();
        submit(&mut index, "j", &object);
        let expected = if is_selected { names(["j"]) } else { names([]) };
        assert_eq!(selected(&index, "j"), expected, "{object}");
    }
}

#[test]
fn the_first_pod_of_a_gang_completes_the_labels_that_its_operator_generates() {
    let mut index = index();
    let keys = json!({"matchLabelKeys": ["pod-template-hash"]});
    let object = workload(
        ("apps/v1", "Deployment"),
        "d",
        &with_term("podAntiAffinity", &labels(&json!({"app": "d"})), &keys),
    );
    submit(&mut index, "d", &object);
    run(&mut index, ("ns", "old"), &json!({"app": "d", "pod-template-hash": "1"}), &json!({}));
    index.settle();
    assert_eq!(selected(&index, "d"), names(["d"]));
    let owned = |name: &str, owner: &str| {
        json!({"name": name, "namespace": "ns", "uid": name, "resourceVersion": "3",
            "ownerReferences": [{"uid": owner, "controller": true}]})
    };
    for (kind, name, owner) in [("Deployment", "d", "d"), ("ReplicaSet", "set", "d-uid")] {
        let mut metadata = owned(name, owner);
        metadata["uid"] = json!(format!("{name}-uid"));
        let object = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        index.upsert_object(ObjectRow::of(&Kind::new("apps/v1", kind), object));
    }
    let mut metadata = owned("new", "set-uid");
    metadata["labels"] = json!({"app": "d", "pod-template-hash": "2"});
    let pod = json!({"metadata": metadata, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}});
    index.upsert_pod(serde_json::from_value(pod).unwrap());
    index.settle();
    assert_eq!(selected(&index, "d"), names(["d", "new"]));
}

#[test]
fn a_relabelled_namespace_changes_what_a_namespace_selector_selects() {
    let mut index = index();
    let of_team = json!({"namespaceSelector": {"matchLabels": {"team": "x"}}});
    submit(&mut index, "a", &job("a", &with_term("podAntiAffinity", &json!({}), &of_team)));
    index.settle();
    run(&mut index, ("away", "one"), &json!({}), &json!({}));
    index.settle();
    assert_eq!(selected(&index, "a"), names([]));
    namespace(&mut index, "away", &json!({"team": "x"}));
    index.settle();
    assert_eq!(selected(&index, "a"), names(["one"]));
    run(&mut index, ("away", "two"), &json!({}), &json!({}));
    namespace(&mut index, "ns", &json!({"team": "x"}));
    index.settle();
    assert_eq!(selected(&index, "a"), names(["a", "one", "two"]));
    index.delete_namespace("away");
    index.settle();
    assert_eq!(selected(&index, "a"), names(["a"]));
    // The name of a namespace is a label that need not be observed.
    let of_name = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "away"}}});
    submit(&mut index, "b", &job("b", &with_term("podAntiAffinity", &json!({}), &of_name)));
    assert_eq!(selected(&index, "b"), names(["one", "two"]));
}

#[test]
fn all_terms_of_an_affinity_select_together_and_a_terminating_pod_is_not_spread() {
    let mut index = index();
    let term = |selector: Value, key: &str| json!({"topologyKey": key, "labelSelector": selector});
    let spec = json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        term(labels(&json!({"app": "db"})), HOST), term(labels(&json!({"tier": "1"})), "zone")]}}});
    submit(&mut index, "a", &job("a", &spec));
    run(&mut index, ("ns", "both"), &json!({"app": "db", "tier": "1"}), &json!({}));
    run(&mut index, ("ns", "one"), &json!({"app": "db"}), &json!({}));
    index.settle();
    assert_eq!(selected(&index, "a"), names(["both"]));
    let affinity = set_rules(&index, "a").unwrap().affinity.clone().unwrap();
    assert_eq!(affinity.topology_keys, names([HOST, "zone"]));
    let spread = json!({"topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": labels(&json!({"app": "db"}))}]});
    submit(&mut index, "s", &job("s", &spread));
    assert_eq!(selected(&index, "s"), names(["both", "one"]));
    let terminating = json!({"metadata": {"name": "one", "namespace": "ns", "uid": "one", "labels": {"app": "db"},
        "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}});
    index.upsert_pod(serde_json::from_value(terminating).unwrap());
    index.settle();
    assert_eq!(selected(&index, "s"), names(["both"]));
}

#[test]
fn hostile_rules_are_bounded() {
    let mut index = index();
    // Unknown operators, and values of other types.
    for selector in [
        json!({"matchExpressions": [{"key": "app", "operator": "Near", "values": ["a"]}]}),
        json!({"matchLabels": {"app": 3}}),
        json!([1]),
        json!(null),
    ] {
        submit(&mut index, "odd", &job("odd", &apart(&selector)));
        assert_eq!(selected(&index, "odd"), names([]), "{selector}");
        index.delete_wrapper("odd");
    }
    let values: Vec<String> = (0..10_000).map(|at| format!("v-{at}")).collect();
    let long = json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": values}]});
    submit(&mut index, "long", &job("long", &apart(&long)));
    assert_eq!(selected(&index, "long"), names(["long"]));
    let terms: Vec<Value> = (0..10_000)
        .map(|at| json!({"topologyKey": HOST, "labelSelector": labels(&json!({"at": at.to_string()}))}))
        .collect();
    let many =
        json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}});
    submit(&mut index, "many", &job("many", &many));
    assert!(set_rules(&index, "many").unwrap().anti_affinity.is_empty());
    run(&mut index, ("ns", "foreign"), &json!({}), &many);
    index.settle();
    assert_eq!(pod_rules(&index, "foreign").unwrap().anti_affinity.len(), api::pod_rules::TERMS_MAX);
}

#[test]
fn ten_thousand_pods_are_compared_once_with_each_selector() {
    let mut index = index();
    for at in 0..10_000 {
        let of = json!({"app": format!("app-{}", at % 100), "at": at.to_string()});
        run(&mut index, ("ns", &format!("pod-{at}")), &of, &json!({}));
    }
    for app in 0..20 {
        let own = apart(&labels(&json!({"app": format!("app-{app}")})));
        submit(&mut index, &format!("g-{app}"), &job(&format!("g-{app}"), &own));
    }
    assert_eq!(selected(&index, "g-7").len(), 100);
    // Events about pods with known labels.
    for at in 0..10_000 {
        let of = json!({"app": format!("app-{}", at % 100), "at": at.to_string()});
        run(&mut index, ("ns", &format!("pod-{at}")), &of, &json!({}));
    }
    index.settle();
    assert_eq!(selected(&index, "g-7").len(), 100);
    for app in 0..20 {
        index.delete_wrapper(&format!("g-{app}"));
    }
    index.settle();
    assert!(index.world().pods().all(|pod| pod.rules.is_none()));
}
