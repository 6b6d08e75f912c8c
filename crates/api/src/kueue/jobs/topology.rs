//! The topology request of a pod set, from the annotations of its pod template. After `pkg/controller/jobframework/tas.go` of
//! Kueue v0.19.

use serde_json::{Map, Value};

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
        request.insert("podsetSliceRequiredTopologyConstraints".into(), layers.into());
    } else if let (Some(level), Some(size)) =
        (annotation(SLICE), annotation(SLICE_SIZE).and_then(|size| size.parse::<i32>().ok()))
    {
        request.insert("podSetSliceRequiredTopology".into(), level.into());
        request.insert("podSetSliceSize".into(), size.into());
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

#[cfg(test)]
mod tests {
    use serde_json::json;

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
