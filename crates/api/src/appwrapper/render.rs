//! Renders the object that is created at dispatch: the template with owner reference, labels and assignment.

use serde_json::{Map, Value, json};

use super::components::has_components;
use super::{ASSIGNMENT_ANNOTATION, Group, KIND, NAME_LABEL, OBJECT_LABEL, Spec};
use crate::meta::Meta;
use crate::value::{at, text};

/// Maximum length of a label value.
const LABEL_MAX: usize = 63;
/// Characters of generated name suffixes, as in Kubernetes: no vowels, no characters that look alike.
const SUFFIX_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A template that cannot be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// The namespace of the template is not that of its AppWrapper.
    #[error("resource namespace \"{object}\" is different from AppWrapper namespace \"{wrapper}\"")]
    Namespace {
        /// Namespace of the template.
        object: String,
        /// Namespace of the AppWrapper.
        wrapper: String,
    },
}

/// Renders the object with index `position` of an AppWrapper. The result is deterministic: the suffix for
/// `generateName` is derived from the uid of the AppWrapper, so that the controller finds existing objects after a
/// restart.
pub fn render(
    group: Group,
    wrapper: &Meta,
    template: &Value,
    position: usize,
    assignment: Option<&str>,
) -> Result<Value, RenderError> {
    if let Some(namespace) = text(template, &["metadata", "namespace"])
        && namespace != wrapper.namespace
    {
        return Err(RenderError::Namespace { object: namespace.into(), wrapper: wrapper.namespace.clone() });
    }
    let name = name(wrapper, template, position);
    let mut object = template.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    let metadata = object_at(&mut object, "metadata");
    for server_side in [
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "managedFields",
        "selfLink",
        "generateName",
    ] {
        metadata.remove(server_side);
    }
    metadata.insert("name".into(), json!(name));
    metadata.insert("namespace".into(), json!(wrapper.namespace));
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    if !labels.is_object() {
        *labels = json!({});
    }
    labels[NAME_LABEL] = json!(label_value(&wrapper.name));
    labels[OBJECT_LABEL] = json!(label_value(&name));
    let labels = labels.clone();
    if let Some(assignment) = assignment {
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        if !annotations.is_object() {
            *annotations = json!({});
        }
        annotations[ASSIGNMENT_ANNOTATION] = json!(assignment);
    }
    let owners = metadata.entry("ownerReferences").or_insert_with(|| json!([]));
    if !owners.is_array() {
        *owners = json!([]);
    }
    if let Some(owners) = owners.as_array_mut() {
        owners.push(owner_reference(group, wrapper));
    }
    label_template(&mut object, &labels);
    Ok(object)
}

/// The name of the object with index `position`.
pub fn name(wrapper: &Meta, template: &Value, position: usize) -> String {
    match (text(template, &["metadata", "name"]), text(template, &["metadata", "generateName"])) {
        (Some(name), _) => name.to_owned(),
        (None, Some(prefix)) => format!("{prefix}{}", suffix(&wrapper.uid, position)),
        (None, None) => wrapper.name.clone(),
    }
}

/// Whether an AppWrapper of any version wraps an object of this kind and name. Only then does a reference to it as the controller of
/// the object tell where the object comes from.
pub fn wraps(wrapper: &Value, group: &str, kind: &str, name: &str) -> bool {
    let meta: Meta = serde::Deserialize::deserialize(&wrapper["metadata"]).unwrap_or_default();
    let is_it = |(position, template): (usize, &Value)| {
        let of = crate::wrapped_kinds::group(text(template, &["apiVersion"]).unwrap_or_default());
        of == group
            && text(template, &["kind"]) == Some(kind)
            && self::name(&meta, template, position) == name
    };
    if has_components(wrapper) {
        let components = crate::value::list(wrapper, &["spec", "components"]);
        return components.iter().map(|component| &component["template"]).enumerate().any(is_it);
    }
    Spec::read(&wrapper["spec"], &meta.name).is_ok_and(|spec| spec.objects().enumerate().any(is_it))
}

/// Truncates a name to a valid label value: at most 63 characters, with a letter or digit at the end.
pub fn label_value(name: &str) -> &str {
    let end = name.char_indices().nth(LABEL_MAX).map_or(name.len(), |(end, _)| end);
    name[..end].trim_end_matches(|c: char| !c.is_ascii_alphanumeric())
}

fn owner_reference(group: Group, wrapper: &Meta) -> Value {
    json!({
        "apiVersion": group.api_version(),
        "kind": KIND,
        "name": wrapper.name,
        "uid": wrapper.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// Adds the labels of the object to its pod template, but only if the template has labels: MCAD tracks exactly those
/// pods.
fn label_template(object: &mut Value, labels: &Value) {
    if !at(object, &["spec", "template", "metadata", "labels"]).is_object() {
        return;
    }
    let pod_labels = &mut object["spec"]["template"]["metadata"]["labels"];
    for (key, value) in labels.as_object().into_iter().flatten() {
        pod_labels[key] = value.clone();
    }
}

fn object_at<'a>(object: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    let inner = &mut object[key];
    if !inner.is_object() {
        *inner = json!({});
    }
    inner.as_object_mut().expect("the value is an object")
}

/// Five characters from the 64-bit FNV-1a hash of a uid and an index.
fn suffix(uid: &str, position: usize) -> String {
    let bytes = uid.bytes().chain(position.to_le_bytes());
    let mut hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let letters = SUFFIX_LETTERS.len() as u64;
    let mut suffix = String::new();
    for _ in 0..5 {
        let letter = usize::try_from(hash % letters).expect("a remainder below 27 fits");
        suffix.push(char::from(SUFFIX_LETTERS[letter]));
        hash /= letters;
    }
    suffix
}
