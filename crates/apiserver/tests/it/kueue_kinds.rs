//! Kueue's kinds on the API server in memory, in both versions.

use api::kueue::{crds, kinds};
use std::sync::Arc;

use crate::harness::{Cluster, DEFINITIONS};
use api::kueue::webhooks::{Context, JobDefaults, Operation, default, review};
use apiserver::{AdmissionPlugin, Converter, Write};
use serde_json::{Value, json};

const OLD: &str = "/apis/kueue.x-k8s.io/v1beta1";
const NEW: &str = "/apis/kueue.x-k8s.io/v1beta2";

/// Kueue's webhooks as functions.
#[derive(Debug)]
struct Webhooks;

fn operation(write: &Write<'_>) -> Operation {
    if write.is_create { Operation::Create } else { Operation::Update }
}

impl AdmissionPlugin for Webhooks {
    fn mutate(&self, write: &Write<'_>, new: &mut Value) {
        default(write.plural, operation(write), new, &JobDefaults::default(), &Context::default());
    }

    fn validate(&self, write: &Write<'_>, new: &Value, old: Option<&Value>) -> Result<Vec<String>, String> {
        review(write.plural, operation(write), new, old, &JobDefaults::default(), &Context::default())
    }
}

fn cluster() -> Cluster {
    let mut cluster = Cluster::new();
    let convert = |object: &mut Value, wanted: &str| {
        api::kueue::convert(object, wanted).map_err(|error| error.to_string())
    };
    cluster.server.convert_with(api::kueue::GROUP, Converter::new(convert));
    cluster.server.admit_with(api::kueue::GROUP, Arc::new(Webhooks));
    for definition in crds(&json!({"url": "https://127.0.0.1:1/convert"})) {
        cluster.create(DEFINITIONS, definition);
    }
    cluster.settle();
    cluster
}

/// The path of a resource, in the namespace `default` if it has one.
fn path(version: &str, plural: &str) -> String {
    let is_namespaced = kinds::Kind::of_resource(plural).is_some_and(|kind| kind.is_namespaced);
    format!("{version}/{}{plural}", if is_namespaced { "namespaces/default/" } else { "" })
}

fn object(version: &str, kind: &str, name: &str, spec: &Value) -> Value {
    let api_version = version.trim_start_matches("/apis/");
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// The kinds of a usual installation in the older version, as many guides have them.
fn installation() -> Vec<(&'static str, Value)> {
    let resources = ["cpu", "memory", "nvidia.com/gpu"];
    let quotas = [json!(10000), json!("10000Gi"), json!(10000)];
    let quotas: Vec<Value> = resources
        .iter()
        .zip(&quotas)
        .map(|(name, quota)| json!({"name": name, "nominalQuota": quota}))
        .collect();
    let mut flavor = object(OLD, "ResourceFlavor", "default-flavor", &Value::Null);
    flavor.as_object_mut().map(|fields| fields.remove("spec"));
    vec![
        ("resourceflavors", flavor),
        (
            "admissionchecks",
            object(
                OLD,
                "AdmissionCheck",
                "rayjob-gpu",
                &json!({
                    "controllerName": "kueue.x-k8s.io/provisioning-request",
                    "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "rayjob-gpu-config"},
                }),
            ),
        ),
        (
            "provisioningrequestconfigs",
            object(
                OLD,
                "ProvisioningRequestConfig",
                "rayjob-gpu-config",
                &json!({
                    "provisioningClassName": "queued-provisioning.gke.io", "managedResources": ["nvidia.com/gpu"],
                }),
            ),
        ),
        (
            "clusterqueues",
            object(
                OLD,
                "ClusterQueue",
                "cluster-queue",
                &json!({
                    "namespaceSelector": {}, "cohort": "all", "admissionChecks": ["rayjob-gpu"],
                    "flavorFungibility": {"whenCanBorrow": "Borrow"},
                    "resourceGroups": [{"coveredResources": resources, "flavors": [{"name": "default-flavor", "resources": quotas}]}],
                }),
            ),
        ),
        ("localqueues", object(OLD, "LocalQueue", "user-queue", &json!({"clusterQueue": "cluster-queue"}))),
    ]
}

#[test]
fn an_installation_in_the_older_version_is_served_in_both() {
    let mut cluster = cluster();
    for (plural, object) in installation() {
        let answer = cluster.post(&path(OLD, plural), object.clone());
        assert_eq!(answer.code, 201, "{}", answer.text);
        let warning = answer.headers.get("warning").map(|warning| warning.to_str().unwrap_or_default());
        assert_eq!(warning, Some("299 - \"This version is deprecated. Use v1beta2 instead.\""), "{plural}");
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let new = cluster.get(&format!("{}/{name}", path(NEW, plural))).body;
        assert_eq!(new["apiVersion"], "kueue.x-k8s.io/v1beta2", "{plural}");
    }
    let queue = cluster.get(&format!("{NEW}/clusterqueues/cluster-queue")).body;
    assert_eq!(queue["spec"]["cohortName"], "all");
    assert_eq!(
        queue["spec"]["admissionChecksStrategy"],
        json!({"admissionChecks": [{"name": "rayjob-gpu"}]})
    );
    let never = "Never";
    assert_eq!(
        queue["spec"]["preemption"],
        json!({
        "borrowWithinCohort": {"policy": never}, "reclaimWithinCohort": never, "withinClusterQueue": never})
    );
    assert_eq!(
        queue["spec"]["flavorFungibility"],
        json!({"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"})
    );
    assert_eq!(
        (&queue["spec"]["queueingStrategy"], &queue["spec"]["stopPolicy"]),
        (&json!("BestEffortFIFO"), &json!("None"))
    );
    let old = cluster.get(&format!("{OLD}/clusterqueues/cluster-queue")).body;
    assert_eq!(old["spec"]["cohort"], "all");
    assert_eq!(old["spec"]["admissionChecksStrategy"], json!({"admissionChecks": [{"name": "rayjob-gpu"}]}));
    let config = cluster.get(&format!("{NEW}/provisioningrequestconfigs/rayjob-gpu-config")).body;
    assert_eq!(
        config["spec"]["retryStrategy"],
        json!({"backoffBaseSeconds": 60, "backoffLimitCount": 3, "backoffMaxSeconds": 1800})
    );
}

#[test]
fn a_status_that_is_written_in_one_version_is_read_in_the_other() {
    let mut cluster = cluster();
    let spec = json!({"podSets": [{"template": {"spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 1}]}]}}}]});
    let created = cluster.create(&path(NEW, "workloads"), object(NEW, "Workload", "w", &spec));
    assert_eq!(created["spec"]["podSets"][0]["name"], "main");
    assert_eq!(created["spec"]["podSets"][0]["count"], 1);
    assert_eq!(created["spec"]["active"], true);
    assert_eq!(
        created["spec"]["podSets"][0]["template"], spec["podSets"][0]["template"],
        "templates are kept"
    );
    let places = json!({"levels": ["rack"], "slices": [{"domainCount": 2, "podCounts": {"universal": 1},
        "valuesPerLevel": [{"individual": {"prefix": "r", "roots": ["1", "2"]}}]}]});
    let status = json!({"status": {
        "accumulatedPastExecutionTimeSeconds": 7,
        "admission": {"clusterQueue": "q", "podSetAssignments": [{"name": "main", "topologyAssignment": places}]},
    }});
    let written = cluster.merge(&format!("{}/w/status", path(NEW, "workloads")), status);
    assert_eq!(written.code, 200, "{}", written.text);
    let old = cluster.get(&format!("{}/w", path(OLD, "workloads"))).body;
    assert_eq!(old["status"]["accumulatedPastExexcutionTimeSeconds"], 7);
    assert_eq!(
        old["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"],
        json!({
        "levels": ["rack"], "domains": [{"values": ["r1"], "count": 1}, {"values": ["r2"], "count": 1}]})
    );
    // A write in the older version keeps the places.
    cluster.merge(&format!("{}/w", path(OLD, "workloads")), json!({"metadata": {"labels": {"a": "b"}}}));
    let new = cluster.get(&format!("{}/w", path(NEW, "workloads"))).body;
    assert_eq!(new["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"], places);
}

#[test]
fn workloads_are_selected_by_their_cluster_queue_in_the_newer_version() {
    let mut cluster = cluster();
    let spec = json!({"podSets": [{"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}]});
    for (name, queue) in [("a", "one"), ("b", "two")] {
        cluster.create(&path(NEW, "workloads"), object(NEW, "Workload", name, &spec));
        let status = json!({"status": {"admission": {"clusterQueue": queue, "podSetAssignments": [{"name": "main"}]}}});
        cluster.merge(&format!("{}/{name}/status", path(NEW, "workloads")), status);
    }
    let selector = "?fieldSelector=status.admission.clusterQueue%3Dtwo";
    assert_eq!(cluster.get(&format!("{}{selector}", path(NEW, "workloads"))).names(), ["b"]);
    assert_eq!(cluster.get(&format!("{}{selector}", path(OLD, "workloads"))).code, 400);
}

#[test]
fn tables_show_the_columns_of_kueue() {
    let mut cluster = cluster();
    for (plural, object) in installation() {
        cluster.create(&path(OLD, plural), object);
    }
    let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    for version in [OLD, NEW] {
        let table = cluster.send("GET", &path(version, "clusterqueues"), &accept, "").body;
        assert_eq!(
            table["rows"][0]["cells"],
            json!(["cluster-queue", "all", "BestEffortFIFO", null, null]),
            "{version}"
        );
        let table = cluster.send("GET", &path(version, "localqueues"), &accept, "").body;
        assert_eq!(
            table["rows"][0]["cells"],
            json!(["user-queue", "cluster-queue", null, null]),
            "{version}"
        );
    }
}

#[test]
fn places_that_one_version_cannot_express_are_refused() {
    let mut cluster = cluster();
    let spec = json!({"podSets": [{"count": 1, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}]});
    cluster.create(&path(OLD, "workloads"), object(OLD, "Workload", "w", &spec));
    let places = json!({"levels": ["block", "rack"], "domains": [{"values": ["b"], "count": 1}]});
    let status = json!({"status": {"admission": {"clusterQueue": "q",
        "podSetAssignments": [{"name": "main", "topologyAssignment": places}]}}});
    let answer = cluster.merge(&format!("{}/w/status", path(OLD, "workloads")), status);
    assert_eq!(
        answer.failure(),
        (
            500,
            "conversion webhook for kueue.x-k8s.io/v1beta1, Kind=Workload failed: cannot convert \
        status.admission.podSetAssignments[0].topologyAssignment.domains[0].values: has 1 values for 2 levels"
        )
    );
}

#[test]
fn webhooks_complete_and_check_objects_in_every_version() {
    let mut cluster = cluster();
    let finalizers = json!(["kueue.x-k8s.io/resource-in-use"]);
    for (version, name) in [(OLD, "a"), (NEW, "b")] {
        let queue = cluster
            .create(&path(version, "clusterqueues"), object(version, "ClusterQueue", name, &json!({})));
        assert_eq!(queue["metadata"]["finalizers"], finalizers, "{version}");
        let groups = json!([{"coveredResources": ["cpu"], "flavors": [{"name": "f",
            "resources": [{"name": "cpu", "nominalQuota": 1, "lendingLimit": 2}]}]}]);
        let change = json!({"spec": {"resourceGroups": groups}});
        let refused = cluster.merge(&format!("{}/{name}", path(version, "clusterqueues")), change);
        let text = "admission webhook \"vclusterqueue.kb.io\" denied the request: \
            [spec.resourceGroups[0].flavors[0].resources[0].lendingLimit: Invalid value: \"2\": must be nil when cohort is \
            empty, spec.resourceGroups[0].flavors[0].resources[0].lendingLimit: Invalid value: \"2\": must be less than or \
            equal to the nominalQuota]";
        assert_eq!(refused.failure(), (403, text), "{version}");
    }
}

#[test]
fn the_status_of_a_workload_is_checked_and_warnings_are_returned() {
    let mut cluster = cluster();
    let pod_set = json!({"count": 1, "topologyRequest": {"subGroupCount": -1},
        "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}});
    let workload = object(NEW, "Workload", "w", &json!({"podSets": [pod_set]}));
    let created = cluster.post(&path(NEW, "workloads"), workload);
    let warning = created.headers.get("warning").map(|warning| warning.to_str().unwrap_or_default());
    assert!(warning.is_some_and(|text| text.contains("negative value -1 is deprecated")), "{warning:?}");
    let status = json!({"status": {"reclaimablePods": [{"name": "main", "count": 2}]}});
    let refused = cluster.merge(&format!("{}/w/status", path(NEW, "workloads")), status);
    let text = "admission webhook \"vworkload.kb.io\" denied the request: status.reclaimablePods[main].count: Invalid \
        value: 2: should be less or equal to 1";
    assert_eq!(refused.failure(), (403, text));
}
