//! The CRD of AppWrapper, for both API groups.
//!
//! The schema prunes the same fields as MCAD's, with one addition: the condensed form, a single item directly under
//! `resources`. In canonical form a template must be a complete object; the API server validates it.

use serde_json::{Value, json};

use super::components::COMPONENTS_VERSION;
use super::{Group, KIND, PLURAL, VERSION};

/// Pattern of a Kubernetes quantity.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// Pattern of an `apiVersion` that an API server can serve: a version, or a group and a version.
const API_VERSION: &str =
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[a-z]([-a-z0-9]*[a-z0-9])?$";
/// Pattern of a kind that an API server can serve.
const KIND_NAME: &str = "^[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?$";
/// Maximum length of a kind and of a version.
const LABEL_MAX: u32 = 63;
/// Maximum length of a group, a slash and a version.
const API_VERSION_MAX: u32 = 253 + 1 + LABEL_MAX;

/// What `kubectl get appwrappers` prints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Columns {
    /// State, position, start and age, and with `-o wide` why the gang is pending.
    #[default]
    Queue,
    /// Name and age, as with the definition of MCAD.
    Mcad,
}

/// The extension of a schema that keeps fields that it does not have.
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

/// Where the state of a gang is.
const STATE_PATH: &str = ".status.state";
/// The printer columns: name, type, path, and 0 or, for `-o wide` only, 1.
const COLUMNS: [(&str, &str, &str, u8); 6] = [
    ("State", "string", STATE_PATH, 0),
    ("Queued", "string", ".status.queuejobstate", 0),
    ("Position", "string", ".status.queue.position", 0),
    ("Start", "string", ".status.queue.start", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Why", "string", ".status.message", 1),
];

/// The CRD as a manifest.
pub fn definition(group: Group, columns: Columns) -> Value {
    let mut definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": group.resource(), "labels": {"app.kubernetes.io/managed-by": "muster"}},
        "spec": {
            "group": group.name(),
            "names": {"kind": KIND, "listKind": format!("{KIND}List"), "plural": PLURAL, "singular": "appwrapper",
                "shortNames": ["aw"]},
            "scope": "Namespaced",
            "versions": [{
                "name": VERSION,
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": schema()},
                "subresources": {"status": {}},
            }],
        },
    });
    if columns == Columns::Queue {
        definition["spec"]["versions"][0]["additionalPrinterColumns"] = COLUMNS
            .iter()
            .map(|(name, kind, path, priority)| {
                json!({"name": name, "type": kind, "jsonPath": path, "priority": priority})
            })
            .collect();
    }
    definition
}

/// Adds the version with components, that of the other controller of `workload.codeflare.dev`, to the CRD of this group. Objects
/// of both versions are stored as they are. For a simulated cluster: a cluster has one of the two.
///
/// Without effect on a definition that does not have the version of [`definition`], and on one that has both already.
pub fn add_components(definition: &mut Value) {
    let versions = definition.pointer_mut("/spec/versions").and_then(Value::as_array_mut);
    let Some(versions) = versions else { return };
    let Some(at) = versions.iter().position(|version| version["name"] == VERSION) else { return };
    let stored = &mut versions[at];
    keep_components(stored);
    let mut version = json!({
        "name": COMPONENTS_VERSION,
        "served": true,
        "storage": false,
        "schema": {"openAPIV3Schema": components_schema()},
        "subresources": {"status": {}},
    });
    if let Some(columns) = stored.get("additionalPrinterColumns") {
        version["additionalPrinterColumns"] = columns.clone();
        let columns = version["additionalPrinterColumns"].as_array_mut().into_iter().flatten();
        for column in columns.filter(|column| column["jsonPath"] == STATE_PATH) {
            // kubectl prints the columns of the newer version for the objects of both.
            column["jsonPath"] = ".status['state','phase']".into();
        }
    }
    versions.retain(|version| version["name"] != COMPONENTS_VERSION);
    versions.push(version);
}

/// Lets a version keep what objects with components have: the API server prunes what it stores by the schema of the stored version.
fn keep_components(version: &mut Value) {
    let Some(properties) = version.pointer_mut("/schema/openAPIV3Schema/properties") else { return };
    if let Some(Value::Object(fields)) = properties.pointer_mut("/spec/properties") {
        fields.extend(components_fields().map(|(field, schema)| (field.to_owned(), schema)));
    }
    for schema in ["/status", "/status/properties/conditions/items"] {
        if let Some(Value::Object(schema)) = properties.pointer_mut(schema) {
            schema.insert(PRESERVE.into(), true.into());
        }
    }
}

fn components_fields() -> [(&'static str, Value); 3] {
    let component = json!({"type": "object", "description": "A wrapped object.", "required": ["template"],
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {"template": {"type": "object", "description": "The object.",
            "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}});
    [
        ("components", array("The wrapped objects.", component)),
        ("suspend", json!({"type": "boolean", "description": "Whether the wrapped objects do not exist."})),
        ("managedBy", text("Controller of the object.")),
    ]
}

fn components_schema() -> Value {
    let mut spec = opaque("The wrapped objects.");
    spec["properties"] =
        components_fields().into_iter().map(|(field, schema)| (field.to_owned(), schema)).collect();
    object(
        "An AppWrapper contains Kubernetes objects, which are created together when they are admitted.",
        json!({
            "apiVersion": text("Group and version of this object."),
            "kind": text("Kind of this object."),
            "metadata": {"type": "object"},
            "spec": spec,
            "status": opaque("Status, as reported by its controller."),
        }),
    )
}

fn schema() -> Value {
    let mut schema = object(
        "An AppWrapper contains Kubernetes objects, which are created together when all their pods fit.",
        json!({
            "apiVersion": text("Group and version of this object."),
            "kind": text("Kind of this object."),
            "metadata": {"type": "object"},
            "spec": spec(),
            "status": status(),
        }),
    );
    schema["required"] = json!(["spec"]);
    schema
}

fn spec() -> Value {
    let mut spec = object(
        "The wrapped objects and their queueing parameters.",
        json!({
            "priority": integer("Priority; a higher priority is dispatched first."),
            "priorityslope": number("Increase of the priority per second of waiting, if dynamic priority is enabled."),
            "resources": resources(),
            "schedulingSpec": scheduling(),
            "selector": object("Accepted and not used.", json!({
                "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
                "matchExpressions": array("Accepted and not used.", object("A label selector requirement.", json!({
                    "key": text("Label."),
                    "operator": text("Operator."),
                    "values": array("Values.", json!({"type": "string"})),
                }))),
            })),
            "service": object("Accepted and not used.", json!({"spec": opaque("Accepted and not used.")})),
        }),
    );
    spec["required"] = json!(["resources"]);
    spec
}

fn resources() -> Value {
    let mut condensed = opaque(
        "One object in condensed form: a missing apiVersion, name or pod template around containers is filled in.",
    );
    condensed["required"] = json!(["kind"]);
    condensed["properties"] = type_meta();
    object(
        "The wrapped objects.",
        json!({
            "GenericItems": array("The wrapped objects, in order of creation.", generic_item()),
            "Items": array("Objects in the typed form of early versions.", legacy_item()),
            "metadata": opaque("Accepted and not used."),
            "generictemplate": condensed,
            "custompodresources": rows(),
            "completionstatus": text("As in GenericItems, for the condensed form."),
        }),
    )
}

/// The `apiVersion` and kind of a wrapped object.
fn type_meta() -> Value {
    json!({
        "apiVersion": {"type": "string", "maxLength": API_VERSION_MAX, "pattern": API_VERSION},
        "kind": {"type": "string", "maxLength": LABEL_MAX, "pattern": KIND_NAME},
    })
}

fn generic_item() -> Value {
    object(
        "One wrapped object.",
        json!({
            "allocated": integer("Accepted and not used."),
            "completionstatus": text(
                "Condition types, separated by commas. The object is complete when the type of a condition with status True contains one of them.",
            ),
            "custompodresources": rows(),
            "generictemplate": {
                "type": "object",
                "description": "The object to create when all pods fit. All items of a List are created.",
                "x-kubernetes-embedded-resource": true,
                "x-kubernetes-preserve-unknown-fields": true,
                "properties": type_meta(),
            },
            "metadata": opaque("Accepted and not used."),
            "minavailable": integer("Accepted and not used."),
            "priority": number("Accepted and not used."),
            "priorityslope": number("Accepted and not used."),
            "replicas": integer("Accepted and not used: exactly one object is created."),
        }),
    )
}

fn legacy_item() -> Value {
    object(
        "One wrapped object in the typed form.",
        json!({
            "allocatedreplicas": integer("Accepted and not used."),
            "metadata": opaque("Accepted and not used."),
            "minavailable": integer("Accepted and not used."),
            "priority": number("Accepted and not used."),
            "priorityslope": number("Accepted and not used."),
            "replicas": integer("Number of pods, for type Pod."),
            "template": opaque("The object; for type Pod, a pod template."),
            "type": text("Kind of the object."),
        }),
    )
}

fn rows() -> Value {
    let amounts = |description: &str| {
        json!({
            "type": "object",
            "description": description,
            "additionalProperties": {
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "pattern": QUANTITY,
                "x-kubernetes-int-or-string": true,
            },
        })
    };
    let mut row = object(
        "A group of pods.",
        json!({
            "replicas": integer("Number of pods."),
            "requests": amounts("Requests of each pod."),
            "limits": amounts("Default for missing requests."),
        }),
    );
    row["required"] = json!(["replicas", "requests"]);
    array(
        "Resources that the gang declares for its pods. They are reserved if they exceed the requests of the pod templates.",
        row,
    )
}

fn scheduling() -> Value {
    object(
        "Supervision of the gang after its dispatch.",
        json!({
            "nodeSelector": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Accepted and not used."},
            "minAvailable": integer("Minimum number of running or succeeded pods; a gang with fewer is requeued after a while."),
            "requeuing": object("Requeueing of a gang with too few running pods.", json!({
                "timeInSeconds": integer("First time to wait for enough running pods; default 300."),
                "initialTimeInSeconds": integer("First time to wait, if a dispatcher has changed timeInSeconds since."),
                "maxTimeInSeconds": integer("Maximum time to wait; 0 for no limit."),
                "growthType": text("Growth of the time with each requeue: exponential (the default), linear or none."),
                "numRequeuings": integer("Accepted and not used; status.numberOfRequeueings counts."),
                "maxNumRequeuings": integer("Maximum number of requeues, then the gang is deleted; 0 for no limit."),
            })),
            "dispatchDuration": object("Run time of the gang.", json!({
                "expected": integer("Expected run time in seconds."),
                "limit": integer("Seconds after the first dispatch when the gang is stopped and failed; 0 for no limit."),
                "overrun": {"type": "boolean", "description": "Accepted and not used."},
            })),
        }),
    )
}

fn status() -> Value {
    object(
        "Status of the gang.",
        json!({
            "Succeeded": integer("Tracked pods that succeeded."),
            "canrun": {"type": "boolean", "description": "Whether the gang is admitted: its objects may exist."},
            "conditions": array("Conditions, oldest first.", object("A condition.", json!({
                "lastTransitionMicroTime": stamp("Time of the last transition."),
                "lastUpdateMicroTime": stamp("Time of the last update."),
                "message": text("Details."),
                "reason": text("Reason."),
                "status": text("Always True."),
                "type": text("Type."),
            }))),
            "controllerfirstdispatchtimestamp": stamp("Time of the first dispatch, if the run time is limited."),
            "controllerfirsttimestamp": stamp("Time when a controller first saw the gang."),
            "failed": integer("Tracked pods that failed."),
            "filterignore": {"type": "boolean", "description": "Whether the gang has been queued."},
            "isdispatched": {"type": "boolean", "description": "Whether the gang is dispatched to another cluster."},
            "local": {"type": "boolean", "description": "Whether this is the copy on the cluster that runs the gang."},
            "message": text("Why the gang is pending, and the defaults that were filled in."),
            "numberOfRequeueings": integer("Number of requeues."),
            "pending": integer("Tracked pods that are pending."),
            "pendingpodconditions": array("Tracked pods that cannot be scheduled.", object("An unschedulable pod.", json!({
                "podname": text("Name of the pod."),
                "conditions": array("Conditions of the pod.", opaque("A condition.")),
            }))),
            "queue": object("The place in the queue while the gang is pending.", json!({
                "position": text("Position, such as 1 of 3."),
                "start": text("A time, or unknown."),
            })),
            "queuejobstate": text("Type of the current condition."),
            "requeueingTimeInSeconds": integer("Time before the next requeue."),
            "running": integer("Tracked pods that run."),
            "sender": text("Step that wrote this status."),
            "state": text("Pending, Running, RunningHoldCompletion, Completed, Failed or Deleted."),
            "systempriority": number("Priority."),
            "template": integer("Accepted and not used."),
            "totalcpu": integer64("CPU of tracked pods, in thousandths."),
            "totalgpu": integer64("GPUs of tracked pods."),
            "totalmemory": integer64("Memory of tracked pods, in bytes."),
        }),
    )
}

#[expect(clippy::needless_pass_by_value, reason = "schemas are nested calls; borrows would only add noise")]
fn object(description: &str, properties: Value) -> Value {
    json!({"type": "object", "description": description, "properties": properties})
}

fn opaque(description: &str) -> Value {
    json!({"type": "object", "description": description, "x-kubernetes-preserve-unknown-fields": true})
}

#[expect(clippy::needless_pass_by_value, reason = "as for objects")]
fn array(description: &str, items: Value) -> Value {
    json!({"type": "array", "description": description, "items": items})
}

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn integer(description: &str) -> Value {
    json!({"type": "integer", "format": "int32", "description": description})
}

fn integer64(description: &str) -> Value {
    json!({"type": "integer", "format": "int64", "description": description})
}

fn number(description: &str) -> Value {
    json!({"type": "number", "description": description})
}

fn stamp(description: &str) -> Value {
    json!({"type": "string", "format": "date-time", "description": description})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_version_keeps_what_the_version_with_components_has() {
        let mut both = definition(Group::Codeflare, Columns::Queue);
        add_components(&mut both);
        let versions = both["spec"]["versions"].as_array().unwrap();
        let names: Vec<&Value> = versions.iter().map(|version| &version["name"]).collect();
        assert_eq!(names, [VERSION, COMPONENTS_VERSION]);
        assert_eq!(versions[1]["additionalPrinterColumns"][0]["jsonPath"], ".status['state','phase']");
        let properties = &versions[0]["schema"]["openAPIV3Schema"]["properties"];
        for field in ["components", "suspend", "managedBy"] {
            assert!(properties["spec"]["properties"][field].is_object(), "{field}");
        }
        assert_eq!(properties["status"][PRESERVE], true);
        assert_eq!(properties["status"]["properties"]["conditions"]["items"][PRESERVE], true);
        let once = both.clone();
        add_components(&mut both);
        assert_eq!(both, once);
    }

    #[test]
    fn components_are_added_to_no_other_definition() {
        let other = json!({"spec": {"versions": [{"name": COMPONENTS_VERSION}]}});
        for definition in [other, json!({}), json!({"spec": "x"}), json!({"spec": {"versions": {}}})] {
            let mut changed = definition.clone();
            add_components(&mut changed);
            assert_eq!(changed, definition);
        }
        let mut without_columns = definition(Group::Codeflare, Columns::Mcad);
        without_columns["spec"]["versions"][0]["additionalPrinterColumns"] = json!([]);
        add_components(&mut without_columns);
        assert_eq!(without_columns["spec"]["versions"][1]["additionalPrinterColumns"], json!([]));
    }
}
