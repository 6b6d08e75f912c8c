//! The object that is created at dispatch: the author's template, owned and labelled.

use serde_json::{Map, Value, json};

use super::{ASSIGNMENT_ANNOTATION, Group, KIND, NAME_LABEL, OBJECT_LABEL};
use crate::meta::Meta;
use crate::value::{at, text};

/// Longest value of a label.
const LABEL_MAX: usize = 63;
/// Letters of generated suffixes; as in Kubernetes, none that spell words or look alike.
const SUFFIX_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Why a template cannot be created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// It asks for another namespace than its wrapper's.
    #[error("resource namespace \"{object}\" is different from AppWrapper namespace \"{wrapper}\"")]
    Namespace {
        /// The template's namespace.
        object: String,
        /// The wrapper's namespace.
        wrapper: String,
    },
}

/// Renders the object at `position` among the wrapper's. Rendering twice gives the same name: a template that asks for a
/// generated one gets a suffix derived from the wrapper's identity, so that a restart recognises what exists.
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

/// Name of the object at `position`.
pub fn name(wrapper: &Meta, template: &Value, position: usize) -> String {
    match (text(template, &["metadata", "name"]), text(template, &["metadata", "generateName"])) {
        (Some(name), _) => name.to_owned(),
        (None, Some(prefix)) => format!("{prefix}{}", suffix(&wrapper.uid, position)),
        (None, None) => wrapper.name.clone(),
    }
}

/// A name as the value of a label: at most 63 characters, the last a letter or digit.
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

/// Adds the object's labels to its pod template, but only where the author labels pods at all: MCAD tracks exactly those.
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
    inner.as_object_mut().expect("it was just made an object")
}

/// Five letters from the 64-bit FNV-1a hash of an identity and a position.
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
