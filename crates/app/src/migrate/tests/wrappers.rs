//! MCAD's settings, and AppWrappers.

use serde_json::{Value, json};

use super::*;
use crate::migrate::cluster::Resource;
use crate::migrate::systems::Software;

#[test]
fn settings_of_mcad_become_values() {
    for (container, name, outcome, text) in [
        (
            json!({"env": [{"name": "QUOTA_ENABLED", "value": "True"}]}),
            "QUOTA_ENABLED",
            Outcome::Set,
            "appWrappers.quota=true",
        ),
        (json!({"args": ["--quotaEnabled"]}), "QUOTA_ENABLED", Outcome::Set, "appWrappers.quota=true"),
        (
            json!({"args": ["--preemption", "true"]}),
            "PREEMPTION",
            Outcome::Set,
            "appWrappers.preemption=true",
        ),
        (
            json!({"args": ["-preemption=false"], "env": [{"name": "PREEMPTION", "value": "true"}]}),
            "PREEMPTION",
            Outcome::Kept,
            "is off",
        ),
        (
            json!({"env": [{"name": "DISPATCHER_MODE", "value": "true"}]}),
            "DISPATCHER_MODE",
            Outcome::NotServed,
            "no other cluster",
        ),
        (
            json!({"env": [{"name": "DISPATCHER_MODE", "value": "false"}]}),
            "DISPATCHER_MODE",
            Outcome::Kept,
            "is off",
        ),
        (json!({"args": ["--backofftime=20"]}), "BACKOFFTIME", Outcome::Differs, "has no effect"),
    ] {
        assert_told(&check(mcad(container)), name, outcome, text);
    }
    let both = json!({"env": [{"name": "DYNAMICPRIORITY", "value": "true"}, {"name": "PREEMPTION", "value": "true"}]});
    let checked = check(mcad(both));
    assert!(command(&checked).contains("appWrappers.dynamicPriority=true"), "{}", command(&checked));
    assert!(!command(&checked).contains("appWrappers.preemption"), "{}", command(&checked));
    // As in the ConfigMap of its chart.
    let mut cluster = mcad(json!({"envFrom": [{"configMapRef": {"name": "mcad"}}]}));
    let data = json!({"metadata": {"namespace": "kube-system"}, "data": {"QUOTA_ENABLED": "true"}});
    cluster.add("configmaps", vec![object("v1", "ConfigMap", "mcad", data)]);
    assert_eq!(
        command(&check(cluster)),
        "kubectl -n kube-system scale deployment/mcad-controller --replicas=0\n\
         helm install muster charts/muster --namespace muster-system --create-namespace \\\n  \
         --set 'appWrappers.groups={mcad.ibm.com}' \\\n  --set appWrappers.quota=true"
    );
}

#[test]
fn app_wrappers_are_told_one_by_one() {
    let mut cluster = mcad(json!({}));
    let running = json!({"canrun": true, "state": "Running"});
    let template = |version: &str, kind: &str| json!([{"generictemplate": {"apiVersion": version, "kind": kind, "metadata": {"name": "o"}}}]);
    let elsewhere = json!([{"generictemplate": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "o", "namespace": "other"}}}]);
    let mut declares = job("4");
    declares["custompodresources"] = json!([{"replicas": 1, "requests": {"cpu": 2}}]);
    let all = [
        ("waits", json!({"state": "Pending"}), json!([job("1")])),
        ("new", Value::Null, json!([job("1")])),
        ("runs", running.clone(), json!([job("1")])),
        ("starting", json!({"canrun": true, "state": "Pending"}), json!([job("1")])),
        ("over", json!({"state": "Completed"}), json!([job("1")])),
        ("failed", json!({"state": "Failed"}), json!([job("1")])),
        ("broken", Value::Null, json!([{"custompodresources": []}])),
        ("bad-amount", Value::Null, json!([job("many")])),
        ("elsewhere", Value::Null, elsewhere),
        ("widget", running, template("example.com/v1", "Widget")),
        ("gadget", Value::Null, template("example.com/v1", "Gadget")),
        ("global", Value::Null, template("v1", "Namespace")),
        ("declares", Value::Null, json!([declares])),
    ];
    let all = all.into_iter().map(|(name, status, items)| wrapper(name, status, items));
    cluster.add("appwrappers.mcad.ibm.com", all.collect());
    let known = |version: &str, kind: &str| (version.to_owned(), kind.to_owned());
    cluster.wrapped = [
        (known("example.com/v1", "Widget"), Resource::Namespaced("widgets".into())),
        (known("example.com/v1", "Gadget"), Resource::Missing),
        (known("v1", "Namespace"), Resource::ClusterScoped("namespaces".into())),
        (known("v1", "ConfigMap"), Resource::Namespaced("configmaps".into())),
        (known("batch/v1", "Job"), Resource::Namespaced("jobs".into())),
    ]
    .into();
    let checked = check(cluster);
    for (name, outcome, text) in [
        ("waits", Outcome::Kept, "it stays queued"),
        ("new", Outcome::Kept, "it stays queued"),
        ("runs", Outcome::Kept, "runs on"),
        ("starting", Outcome::Kept, "those that are missing are created"),
        ("over", Outcome::Kept, "has ended"),
        ("failed", Outcome::Differs, "MCAD would try it again"),
        ("broken", Outcome::ToDo, "resources.GenericItems[0] has no generictemplate"),
        ("bad-amount", Outcome::ToDo, "waits and cannot start: Job j"),
        ("elsewhere", Outcome::ToDo, "fails when its turn comes"),
        ("widget", Outcome::Kept, "runs on"),
        ("widget", Outcome::Set, "appWrappers.wraps.example.com with widgets"),
        ("gadget", Outcome::ToDo, "waits until the cluster serves Gadget of example.com/v1"),
        ("global", Outcome::ToDo, "Namespace is cluster-scoped"),
        ("declares", Outcome::Differs, "(cpu): the larger amount counts"),
        ("order of the queue", Outcome::Differs, "by priority, then by age"),
    ] {
        assert_told(&checked, name, outcome, text);
    }
    assert_eq!(checked.exit_code(), 3);
    let command = command(&checked);
    assert!(command.contains(r#"--set-json appWrappers.wraps='{"example.com":["widgets"]}'"#), "{command}");
}

#[test]
fn app_wrappers_with_components_need_their_own_controller() {
    let components = |name: &str, labels: Value| {
        object(
            "workload.codeflare.dev/v1beta2",
            "AppWrapper",
            name,
            json!({"metadata": {"namespace": "team", "labels": labels}, "spec": {"components": []}}),
        )
    };
    let queue = json!({"kueue.x-k8s.io/queue-name": "q"});
    let mut cluster =
        kueue(&format!("{CONFIGURATION}integrations: {{frameworks: [workload.codeflare.dev/appwrapper]}}\n"));
    let wrappers = vec![components("queued", queue), components("alone", json!({}))];
    cluster.add("appwrappers.workload.codeflare.dev", wrappers);
    cluster.add(
        "customresourcedefinitions.apiextensions.k8s.io",
        vec![definition("appwrappers.workload.codeflare.dev", &["v1beta2"])],
    );
    let stopped = check(cluster.clone());
    assert_told(&stopped, "queued", Outcome::ToDo, "start that controller");
    let image = "quay.io/ibm/appwrapper:v1.2.0";
    cluster.add(
        "deployments.apps",
        vec![deployment("appwrapper-system", "appwrapper-controller-manager", image, json!({}), Value::Null)],
    );
    let checked = check(cluster);
    assert_told(&checked, "queued", Outcome::Kept, "its own controller must go on");
    assert_told(&checked, "alone", Outcome::Kept, "Muster leaves it alone");
    let of = |software| checked.systems.iter().any(|system| system.software == software);
    assert!(of(Software::AppWrapper) && of(Software::Kueue) && !of(Software::Mcad));
    assert!(!command(&checked).contains("appwrapper-controller-manager"), "{}", command(&checked));
}

#[test]
fn app_wrappers_without_their_controller_are_managed_by_muster() {
    let mut cluster = Cluster::default();
    let of = definition("appwrappers.workload.codeflare.dev", &["v1beta1"]);
    cluster.add("customresourcedefinitions.apiextensions.k8s.io", vec![of]);
    let mut left = wrapper("left", Value::Null, json!([job("1")]));
    left["apiVersion"] = "workload.codeflare.dev/v1beta1".into();
    cluster.add("appwrappers.workload.codeflare.dev", vec![left]);
    let checked = check(cluster);
    assert_eq!(
        command(&checked),
        "helm install muster charts/muster --namespace muster-system --create-namespace"
    );
    assert!(checked.text().contains("MCAD: no Deployment of it was found"), "{}", checked.text());
}
