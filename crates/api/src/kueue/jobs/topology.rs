//! The topology request of a pod set, from the annotations of its pod template. After `pkg/controller/jobframework/tas.go` of
//! Kueue v0.19.

use serde_json::{Map, Value};

const REQUIRED: &str = "kueue.x-k8s.io/podset-required-topology";
const PREFERRED: &str = "kueue.x-k8s.io/podset-preferred-topology";
const UNCONSTRAINED: &str = "kueue.x-k8s.io/podset-unconstrained-topology";
const SLICE: &str = "kueue.x-k8s.io/podset-slice-required-topology";
const SLICE_SIZE: &str = "kueue.x-k8s.io/podset-slice-size";
const GROUP: &str = "kueue.x-k8s.io/podset-group-name";

/// The topology request of a template. `index_label`: the label of its pods with their rank. `None`: the template asks for
/// nothing, and its pods have no ranks. An annotation that cannot be read counts as absent.
pub(super) fn request(template: &Value, index_label: Option<&str>) -> Option<Value> {
    let annotation = |key: &str| template["metadata"]["annotations"][key].as_str();
    let mut request = Map::new();
    let truth = |text: &str| text.parse::<bool>().ok();
    if let Some(level) = annotation(REQUIRED) {
        request.insert("required".into(), level.into());
    } else if let Some(level) = annotation(PREFERRED) {
        request.insert("preferred".into(), level.into());
    } else if let Some(is_unconstrained) = annotation(UNCONSTRAINED).and_then(truth) {
        request.insert("unconstrained".into(), is_unconstrained.into());
    }
    if let (Some(level), Some(size)) =
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
