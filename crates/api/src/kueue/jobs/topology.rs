//! The topology request of a pod set, from the annotations of its pod template. After `pkg/controller/jobframework/tas.go` of
//! Kueue v0.19.

use serde_json::{Map, Value, json};

use super::set_at;

/// The annotation with the level in which all pods have to be.
pub(crate) const REQUIRED: &str = "kueue.x-k8s.io/podset-required-topology";
/// The annotation with the level in which all pods should be.
pub(crate) const PREFERRED: &str = "kueue.x-k8s.io/podset-preferred-topology";
/// The annotation with the wish for any places.
pub(crate) const UNCONSTRAINED: &str = "kueue.x-k8s.io/podset-unconstrained-topology";
/// The annotation with the level in which the pods of a slice have to be.
pub(crate) const SLICE: &str = "kueue.x-k8s.io/podset-slice-required-topology";
/// The annotation with the number of pods of a slice.
pub(crate) const SLICE_SIZE: &str = "kueue.x-k8s.io/podset-slice-size";
/// The annotation with the name of the group of pod sets that have the same domain.
pub(crate) const GROUP: &str = "kueue.x-k8s.io/podset-group-name";
/// The annotation with slices of slices, as JSON.
pub(crate) const LAYERS: &str = "kueue.x-k8s.io/podset-slice-required-topology-constraints";
/// The annotation of pods whose ranks begin behind those of another pod of the gang.
pub(crate) const INDEX_OFFSET: &str = "kueue.x-k8s.io/pod-index-offset";

/// The fields of a topology request with the level and the size of slices, and with slices of slices.
const SLICE_FIELD: &str = "podSetSliceRequiredTopology";
const SLICE_SIZE_FIELD: &str = "podSetSliceSize";
const LAYERS_FIELD: &str = "podsetSliceRequiredTopologyConstraints";

/// The largest number of layers.
const LAYERS_MAX: usize = 3;

/// The boolean value of a text, as Go reads it.
pub(crate) fn truth(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// States that the indices of the pods of a template begin behind that of one other pod.
pub(crate) fn follow_one(template: &mut Value) {
    set_at(template, &["metadata", "annotations", INDEX_OFFSET], "1".into());
}

/// The topology request of a template. `index_label`: the label of its pods with their rank. `None`: the template asks for
/// nothing, and its pods have no ranks. An annotation that cannot be read counts as absent.
pub(crate) fn request(template: &Value, index_label: Option<&str>) -> Option<Value> {
    let annotation = |key: &str| template["metadata"]["annotations"][key].as_str();
    let mut request = Map::new();
    if let Some(level) = annotation(REQUIRED) {
        request.insert("required".into(), level.into());
    } else if let Some(level) = annotation(PREFERRED) {
        request.insert("preferred".into(), level.into());
    } else if let Some(is_unconstrained) = annotation(UNCONSTRAINED).and_then(truth) {
        request.insert("unconstrained".into(), is_unconstrained.into());
    }
    let layers = annotation(LAYERS).and_then(|text| serde_json::from_str::<Vec<Value>>(text).ok());
    if let Some(layers) = layers.filter(|layers| (1..=LAYERS_MAX).contains(&layers.len())) {
        request.insert(LAYERS_FIELD.into(), layers.into());
    } else if let (Some(level), Some(size)) =
        (annotation(SLICE), annotation(SLICE_SIZE).and_then(|size| size.parse::<i32>().ok()))
    {
        request.insert(SLICE_FIELD.into(), level.into());
        request.insert(SLICE_SIZE_FIELD.into(), size.into());
    }
    let has_level = request.contains_key("required") || request.contains_key("preferred");
    if let Some(group) = annotation(GROUP).filter(|_| has_level) {
        request.insert("podSetGroupName".into(), group.into());
    }
    if let Some(label) = index_label {
        request.insert("podIndexLabel".into(), label.into());
    }
    (!request.is_empty()).then_some(Value::Object(request))
}

/// The same of pods that have their rank in a sub-group: the label with the index of the sub-group, and the number of sub-groups.
pub(super) fn request_in_sub_groups(
    template: &Value,
    index_label: Option<&str>,
    sub_group_label: &str,
    sub_groups: u32,
) -> Value {
    let mut request = request(template, index_label).unwrap_or_default();
    request["subGroupIndexLabel"] = sub_group_label.into();
    request["subGroupCount"] = sub_groups.into();
    request
}

/// Whether two topology requests ask for the same places. Requests without a level, which only say how pods are ranked, are all
/// the same. After `ComparePodSets` of Kueue v0.20.
pub(super) fn is_same(one: &Value, other: &Value) -> bool {
    let [one, other] = [one, other].map(normalized);
    let asks = |request: &Map<String, Value>| {
        let levels = ["required", "preferred", "unconstrained", LAYERS_FIELD];
        levels.iter().any(|field| request.contains_key(*field))
    };
    one == other || !asks(&one) && !asks(&other)
}

/// A topology request without empty fields, whose slices are layers.
fn normalized(request: &Value) -> Map<String, Value> {
    let mut request = request.as_object().cloned().unwrap_or_default();
    request.retain(|_, value| !value.is_null());
    let [level, size] = [SLICE_FIELD, SLICE_SIZE_FIELD].map(|field| request.remove(field));
    if let Some(level) = level {
        request.entry(LAYERS_FIELD).or_insert_with(|| json!([{"topology": level, "size": size}]));
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_may_be_unconstrained_in_each_form_of_a_boolean_of_go() {
        let request = |text: &str| {
            request(&json!({"metadata": {"annotations": {UNCONSTRAINED: text}}}), None)
                .and_then(|request| request["unconstrained"].as_bool())
        };
        for (text, value) in [("true", Some(true)), ("1", Some(true)), ("F", Some(false)), ("yes", None)] {
            assert_eq!(request(text), value, "{text}");
        }
    }
}
