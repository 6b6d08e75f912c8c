//! Conversion of objects between `v1beta1` and `v1beta2`.
//!
//! The rules are those of Kueue v0.19.1 (`apis/kueue/v1beta1/*_conversion.go`). What `v1beta1` lacks is lost in it; the rest
//! survives both ways, fields that neither version knows included.

use serde_json::{Map, Value, json};

use super::kinds::Kind;
use super::{GROUP, TopologyAssignment, V1BETA1, V1BETA2};
use crate::value::{list, text};

/// Why an object cannot be converted. The object is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConversionError {
    /// The version asked for is not served.
    #[error("cannot convert to {0:?}: the served versions are {GROUP}/{V1BETA1} and {GROUP}/{V1BETA2}")]
    Wanted(String),
    /// The object has a version that is not served.
    #[error("cannot convert from {0:?}: the served versions are {GROUP}/{V1BETA1} and {GROUP}/{V1BETA2}")]
    Found(String),
    /// The group has no such kind.
    #[error("cannot convert an object of kind {0:?}: the group {GROUP} has no such kind")]
    Kind(String),
    /// A field contradicts itself, so that the other version cannot express it.
    #[error("cannot convert {path}.{why}")]
    Field {
        /// Path of the field.
        path: String,
        /// Path below it, and what is wrong there.
        why: String,
    },
}

/// Converts an object to the `apiVersion` `to`, such as `kueue.x-k8s.io/v1beta2`. Metadata is not changed.
pub fn convert(object: &mut Value, to: &str) -> Result<(), ConversionError> {
    let wanted = version(to).ok_or_else(|| ConversionError::Wanted(to.to_owned()))?;
    let found = text(object, &["apiVersion"]).unwrap_or_default();
    let found = version(found).ok_or_else(|| ConversionError::Found(found.to_owned()))?;
    let name = text(object, &["kind"]).unwrap_or_default();
    let kind = Kind::of_kind(name).ok_or_else(|| ConversionError::Kind(name.to_owned()))?;
    if wanted != found {
        convert_kind(kind.kind, object, wanted == V1BETA2)?;
        object["apiVersion"] = format!("{GROUP}/{wanted}").into();
    }
    Ok(())
}

fn version(api_version: &str) -> Option<&'static str> {
    let (group, version) = api_version.split_once('/')?;
    [V1BETA1, V1BETA2].into_iter().find(|known| group == GROUP && version == *known)
}

fn convert_kind(kind: &str, object: &mut Value, newer: bool) -> Result<(), ConversionError> {
    match (kind, newer) {
        ("ClusterQueue", true) => cluster_queue_to_v1beta2(object),
        ("ClusterQueue", false) => cluster_queue_to_v1beta1(object),
        ("Cohort", true) => drop_usage_of_fair_sharing(object),
        ("LocalQueue", true) => {
            rename(part(object, "status"), "flavorUsage", "flavorsUsage");
            remove(part(object, "status"), "flavors");
        }
        ("LocalQueue", false) => rename(part(object, "status"), "flavorsUsage", "flavorUsage"),
        ("MultiKueueCluster", true) => cluster_to_v1beta2(object),
        ("MultiKueueCluster", false) => cluster_to_v1beta1(object),
        ("Workload", _) => return convert_workload(object, newer),
        _ => {}
    }
    Ok(())
}

fn cluster_queue_to_v1beta2(object: &mut Value) {
    if let Some(spec) = part(object, "spec") {
        rename(Some(&mut *spec), "cohort", "cohortName");
        // The list wins over the strategy.
        let checks = spec.remove("admissionChecks");
        let checks = checks.as_ref().and_then(Value::as_array).filter(|checks| !checks.is_empty());
        if let Some(checks) = checks {
            let rules: Vec<Value> = checks.iter().map(|name| json!({"name": name})).collect();
            spec.insert("admissionChecksStrategy".into(), json!({"admissionChecks": rules}));
        }
        if let Some(fungibility) = spec.get_mut("flavorFungibility").and_then(Value::as_object_mut) {
            for (field, former) in [("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt")] {
                if fungibility.get(field).is_some_and(|value| value == former) {
                    fungibility.insert(field.into(), "MayStopSearch".into());
                }
            }
        }
    }
    remove(part(object, "status"), "pendingWorkloadsStatus");
    drop_usage_of_fair_sharing(object);
}

fn cluster_queue_to_v1beta1(object: &mut Value) {
    rename(part(object, "spec"), "cohortName", "cohort");
    remove(part(object, "spec"), "concurrentAdmissionPolicy");
}

/// In `v1beta2` only local queues have the usage for admission fair sharing.
fn drop_usage_of_fair_sharing(object: &mut Value) {
    let fair_sharing = part(object, "status").and_then(|status| status.get_mut("fairSharing"));
    remove(fair_sharing.and_then(Value::as_object_mut), "admissionFairSharingStatus");
}

fn cluster_to_v1beta2(object: &mut Value) {
    let Some(spec) = part(object, "spec") else { return };
    let mut source = Map::new();
    if let Some(mut config) = spec.remove("kubeConfig").filter(|config| text(config, &["location"]).is_some())
    {
        if text(&config, &["locationType"]).is_none() {
            remove(config.as_object_mut(), "locationType");
        }
        source.insert("kubeConfig".into(), config);
    }
    if let Some(profile) = spec.remove("clusterProfileRef").filter(|profile| !profile.is_null()) {
        source.insert("clusterProfileRef".into(), profile);
    }
    spec.insert("clusterSource".into(), source.into());
}

/// `v1beta1` has no optional `kubeConfig`: it is empty for a cluster profile.
fn cluster_to_v1beta1(object: &mut Value) {
    let Some(spec) = part(object, "spec") else { return };
    let mut source = spec.remove("clusterSource").unwrap_or_default();
    let mut take = |key| source.get_mut(key).map(Value::take).filter(Value::is_object);
    let mut config = take("kubeConfig").unwrap_or_else(|| json!({}));
    for field in ["location", "locationType"] {
        if text(&config, &[field]).is_none() {
            config[field] = "".into();
        }
    }
    if let Some(profile) = take("clusterProfileRef") {
        spec.insert("clusterProfileRef".into(), profile);
    }
    spec.insert("kubeConfig".into(), config);
}

/// The sources of a priority in `v1beta1`, with the group and kind of the reference in `v1beta2`.
const PRIORITY_SOURCES: [(&str, &str, &str); 2] = [
    ("kueue.x-k8s.io/workloadpriorityclass", GROUP, "WorkloadPriorityClass"),
    ("scheduling.k8s.io/priorityclass", "scheduling.k8s.io", "PriorityClass"),
];

const TIME_OF_V1BETA1: &str = "accumulatedPastExexcutionTimeSeconds";
const TIME_OF_V1BETA2: &str = "accumulatedPastExecutionTimeSeconds";

fn convert_workload(object: &mut Value, newer: bool) -> Result<(), ConversionError> {
    // What can fail comes first, so that an error leaves the object as it was.
    let places = converted_places(object, newer)?;
    for (index, place) in places {
        object["status"]["admission"]["podSetAssignments"][index]["topologyAssignment"] = place;
    }
    if newer {
        workload_to_v1beta2(object);
    } else {
        workload_to_v1beta1(object);
    }
    Ok(())
}

fn workload_to_v1beta2(object: &mut Value) {
    if let Some(spec) = part(object, "spec") {
        let (name, source) = (spec.remove("priorityClassName"), spec.remove("priorityClassSource"));
        remove(Some(&mut *spec), "priorityClassRef");
        let known = PRIORITY_SOURCES.iter().find(|(known, ..)| source.as_ref().is_some_and(|s| s == known));
        if let Some((_, group, kind)) = known {
            let name = name.unwrap_or_else(|| "".into());
            spec.insert("priorityClassRef".into(), json!({"group": group, "kind": kind, "name": name}));
        }
    }
    rename(part(object, "status"), TIME_OF_V1BETA1, TIME_OF_V1BETA2);
}

fn workload_to_v1beta1(object: &mut Value) {
    if let Some(spec) = part(object, "spec") {
        let class = spec.remove("priorityClassRef").unwrap_or_default();
        let is_class =
            |(_, group, kind): &&(&str, &str, &str)| class["group"] == **group && class["kind"] == **kind;
        if let Some((source, ..)) = PRIORITY_SOURCES.iter().find(is_class) {
            spec.insert("priorityClassSource".into(), (*source).into());
            spec.insert("priorityClassName".into(), class["name"].clone());
        }
        remove(Some(&mut *spec), "preemptionGates");
        for pod_set in spec.get_mut("podSets").and_then(Value::as_array_mut).into_iter().flatten() {
            let request = pod_set.get_mut("topologyRequest").and_then(Value::as_object_mut);
            remove(request, "podsetSliceRequiredTopologyConstraints");
        }
    }
    rename(part(object, "status"), TIME_OF_V1BETA2, TIME_OF_V1BETA1);
    remove(part(object, "status"), "preemptionGates");
}

/// The topology assignments in the other version, each with the index of its pod set.
fn converted_places(object: &Value, newer: bool) -> Result<Vec<(usize, Value)>, ConversionError> {
    let mut places = Vec::new();
    for (index, pod_set) in list(object, &["status", "admission", "podSetAssignments"]).iter().enumerate() {
        let Some(place) = pod_set.get("topologyAssignment").filter(|place| place.is_object()) else {
            continue;
        };
        let read = if newer { TopologyAssignment::from_v1beta1 } else { TopologyAssignment::from_v1beta2 };
        let read = read(place).map_err(|why| ConversionError::Field {
            path: format!("status.admission.podSetAssignments[{index}].topologyAssignment"),
            why,
        })?;
        places.push((index, if newer { read.to_v1beta2() } else { read.to_v1beta1() }));
    }
    Ok(places)
}

fn part<'a>(object: &'a mut Value, key: &str) -> Option<&'a mut Map<String, Value>> {
    object.get_mut(key)?.as_object_mut()
}

fn remove(fields: Option<&mut Map<String, Value>>, field: &str) {
    if let Some(fields) = fields {
        fields.remove(field);
    }
}

/// Moves a field to its other name. An empty text is no value: both versions omit it.
fn rename(fields: Option<&mut Map<String, Value>>, from: &str, to: &str) {
    let Some(fields) = fields else { return };
    fields.remove(to);
    if let Some(value) = fields.remove(from).filter(|value| !value.is_null() && value != "") {
        fields.insert(to.into(), value);
    }
}
