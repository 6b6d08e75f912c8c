//! The example manifests: their pod sets, and the objects that are created for them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use api::appwrapper::{Group, NAME_LABEL, Spec, render};
use api::{Meta, demand, validate};
use serde_json::{Value, json};

fn example(name: &str) -> Value {
    let path = format!("{}/../../examples/{name}", env!("CARGO_MANIFEST_DIR"));
    serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn spec(wrapper: &Value) -> Spec {
    Spec::read(&wrapper["spec"], wrapper["metadata"]["name"].as_str().unwrap()).unwrap()
}

/// One line for each pod set, and one for the declared resources.
fn demand_of(name: &str) -> Vec<String> {
    let demand = demand::of_spec(&spec(&example(name))).unwrap();
    let sets = demand.pod_sets.iter().map(|set| format!("{} {}x {}", set.name, set.count, set.shape.request));
    sets.chain(demand.declared.map(|declared| format!("declared {declared}"))).collect()
}

#[test]
fn pod_sets_include_the_containers_that_the_operator_adds() {
    assert_eq!(
        demand_of("aw-raycluster.yaml"),
        [
            "head 1x cpu 1, memory 1Gi, pods 1",
            "small-group 1x cpu 500m, memory 256Mi, pods 1",
            "declared cpu 20, memory 1Gi"
        ]
    );
    assert_eq!(
        demand_of("aw-raycluster-complete.yaml"),
        [
            "head 1x cpu 1, memory 2G, pods 1",
            "small-group 1x cpu 2, memory 2G, pods 1",
            "declared cpu 3, memory 4G"
        ]
    );
    assert_eq!(demand_of("aw-raycluster-complete.yaml"), demand_of("aw-raycluster-complete-1.yaml"));
    assert_eq!(
        demand_of("aw-kuberay-glue.yaml"),
        [
            "head 1x cpu 2, memory 16G, pods 1",
            "small-group 1x cpu 4, memory 16G, nvidia.com/gpu 1, pods 1",
            "declared cpu 6, memory 32G, nvidia.com/gpu 2"
        ]
    );
    assert_eq!(demand_of("aw-job.yaml"), ["job 2x cpu 500m, memory 100Mi, pods 1"]);
}

#[test]
fn the_condensed_form_converts_to_a_complete_object_and_lists_the_defaults() {
    let spec = spec(&example("aw-condensed.yaml"));
    let cluster = &spec.items[0].objects[0];
    assert_eq!(cluster["apiVersion"], "ray.io/v1");
    assert_eq!(cluster["metadata"]["name"], "raycluster-glue");
    let (head, worker) = (&cluster["spec"]["headGroupSpec"], &cluster["spec"]["workerGroupSpecs"][0]);
    assert_eq!(head["template"]["spec"]["containers"][0]["name"], "ray-head");
    assert_eq!(worker["template"]["spec"]["containers"][0]["name"], "ray-worker");
    assert_eq!((&head["containers"], &worker["containers"]), (&Value::Null, &Value::Null));
    assert_eq!(worker["groupName"], "worker");
    assert_eq!(
        spec.notes,
        [
            "apiVersion ray.io/v1",
            "name raycluster-glue",
            "headGroupSpec.template.spec around its containers",
            "container name ray-head",
            "workerGroupSpecs[0].template.spec around its containers",
            "container name ray-worker",
            "workerGroupSpecs[0].groupName worker",
        ]
    );
    assert_eq!(validate::problems(cluster), Vec::<String>::new());
    assert_eq!(
        demand_of("aw-condensed.yaml"),
        [
            "head 1x cpu 2, memory 16G, pods 1",
            "worker 1x cpu 4, memory 16G, nvidia.com/gpu 2, pods 1",
            "declared cpu 6, memory 32G, nvidia.com/gpu 2"
        ]
    );
}

#[test]
fn a_complete_manifest_gets_no_notes() {
    for name in ["aw-raycluster.yaml", "aw-raycluster-complete.yaml", "aw-kuberay-glue.yaml", "aw-job.yaml"] {
        let spec = spec(&example(name));
        assert_eq!(spec.notes, Vec::<String>::new(), "{name}");
        for object in spec.objects() {
            assert_eq!(validate::problems(object), Vec::<String>::new(), "{name}");
        }
    }
    assert_eq!(spec(&example("aw-kuberay-glue.yaml")).priority_milli, 9000);
    assert_eq!(spec(&example("aw-job.yaml")).items[0].completion, ["Complete"]);
}

#[test]
fn created_objects_have_owner_and_labels_and_pod_templates_with_labels_get_them_too() {
    let wrapper =
        Meta { name: "aw-job".into(), namespace: "default".into(), uid: "u-1".into(), ..Meta::default() };
    let job = &spec(&example("aw-job.yaml")).items[0].objects[0];
    let created = render::render(Group::Codeflare, &wrapper, job, 0, Some("{}")).unwrap();
    let labels = json!({"app": "aw-job", NAME_LABEL: "aw-job", "resourceName": "aw-job"});
    assert_eq!(created["metadata"]["labels"], labels);
    assert_eq!(created["spec"]["template"]["metadata"]["labels"], labels);
    assert_eq!(
        created["metadata"]["ownerReferences"],
        json!([{
            "apiVersion": "workload.codeflare.dev/v1beta1", "kind": "AppWrapper", "name": "aw-job", "uid": "u-1",
            "controller": true, "blockOwnerDeletion": true,
        }])
    );
    assert_eq!(created["metadata"]["annotations"], json!({"muster.dev/assignment": "{}"}));

    let cluster = &spec(&example("aw-raycluster.yaml")).items[0].objects[0];
    let created = render::render(Group::Mcad, &wrapper, cluster, 0, None).unwrap();
    assert_eq!(created["spec"], cluster["spec"], "Ray pods do not get the tracking label");
    assert_eq!(created["metadata"].get("annotations"), None);
}

#[test]
fn an_object_in_another_namespace_is_an_error_with_both_names() {
    let wrapper = Meta { name: "a".into(), namespace: "x".into(), ..Meta::default() };
    let job = &spec(&example("aw-job.yaml")).items[0].objects[0];
    assert_eq!(
        render::render(Group::Codeflare, &wrapper, job, 0, None).unwrap_err().to_string(),
        "resource namespace \"default\" is different from AppWrapper namespace \"x\""
    );
}

#[test]
fn generated_names_are_deterministic_and_long_names_are_truncated_in_labels() {
    let name = "n".repeat(70);
    let wrapper = Meta { name: name.clone(), namespace: "x".into(), uid: "u".into(), ..Meta::default() };
    let template =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "c-", "uid": "other"}});
    let render = |position| render::render(Group::Mcad, &wrapper, &template, position, None).unwrap();
    assert_eq!(render(0), render(0));
    assert_ne!(render(0)["metadata"]["name"], render(1)["metadata"]["name"]);
    assert_eq!(render(0)["metadata"]["labels"][NAME_LABEL], name[..63]);
    assert_eq!(render(0)["metadata"].get("uid"), None);
}
