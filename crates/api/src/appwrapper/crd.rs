//! The custom resource definition, under either group.
//!
//! Prunes what MCAD's prunes and keeps what it keeps, with one addition: the condensed shape, a single item directly under
//! `resources`. A template in canonical form has to be a whole object, as the API server itself checks.

use serde_json::{Value, json};

use super::{Group, KIND, PLURAL, VERSION};

/// What the API server accepts as a quantity.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// The definition as a manifest.
pub fn definition(group: Group) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": group.resource(), "labels": {"app.kubernetes.io/managed-by": "muster"}},
        "spec": {
            "group": group.name(),
            "names": {"kind": KIND, "listKind": format!("{KIND}List"), "plural": PLURAL, "singular": "appwrapper"},
            "scope": "Namespaced",
            "versions": [{
                "name": VERSION,
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": schema()},
                "subresources": {"status": {}},
            }],
        },
    })
}

fn schema() -> Value {
    let mut schema = object(
        "An AppWrapper holds Kubernetes objects back until all their pods have a place, then creates them together.",
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
        "What is wrapped, and how it is queued.",
        json!({
            "priority": integer("Rank in the queue; higher is dispatched first."),
            "priorityslope": number("By how much the rank rises with each second of waiting, where dynamic priority is on."),
            "resources": resources(),
            "schedulingSpec": scheduling(),
            "selector": object("Accepted and not used.", json!({
                "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
                "matchExpressions": array("Accepted and not used.", object("A condition on a label.", json!({
                    "key": text("Label."),
                    "operator": text("How to compare."),
                    "values": array("With what to compare.", json!({"type": "string"})),
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
        "One object, in the condensed shape: what it leaves out (apiVersion, name, the template around containers) is filled in.",
    );
    condensed["required"] = json!(["kind"]);
    condensed["properties"] = json!({"kind": {"type": "string", "minLength": 1}});
    object(
        "The wrapped objects.",
        json!({
            "GenericItems": array("The wrapped objects, in order of creation.", generic_item()),
            "Items": array("Objects in the typed form of early versions.", legacy_item()),
            "metadata": opaque("Accepted and not used."),
            "generictemplate": condensed,
            "custompodresources": rows(),
            "completionstatus": text("As in GenericItems, for the condensed shape."),
        }),
    )
}

fn generic_item() -> Value {
    object(
        "One wrapped object.",
        json!({
            "allocated": integer("Accepted and not used."),
            "completionstatus": text(
                "Types of conditions, separated by commas. The object is complete once one of its conditions contains one of them.",
            ),
            "custompodresources": rows(),
            "generictemplate": {
                "type": "object",
                "description": "The object to create once all pods have a place. A List stands for all its items.",
                "x-kubernetes-embedded-resource": true,
                "x-kubernetes-preserve-unknown-fields": true,
            },
            "metadata": opaque("Accepted and not used."),
            "minavailable": integer("Accepted and not used."),
            "priority": number("Accepted and not used."),
            "priorityslope": number("Accepted and not used."),
            "replicas": integer("Accepted and not used: one object is created in any case."),
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
            "replicas": integer("How many pods, for type Pod."),
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
            "replicas": integer("How many pods."),
            "requests": amounts("What each pod asks for."),
            "limits": amounts("Stands in for what is not requested."),
        }),
    );
    row["required"] = json!(["replicas", "requests"]);
    array("Pods that the object will bring, counted beside those that can be read from it.", row)
}

fn scheduling() -> Value {
    object(
        "How the gang is watched once it is dispatched.",
        json!({
            "nodeSelector": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Accepted and not used."},
            "minAvailable": integer("Pods that have to run or have succeeded; a gang with fewer is taken back in time."),
            "requeuing": object("When and how often a gang is taken back.", json!({
                "timeInSeconds": integer("First wait for enough running pods; 300 when absent."),
                "initialTimeInSeconds": integer("The first wait, where a dispatcher has changed timeInSeconds since."),
                "maxTimeInSeconds": integer("Longest wait; 0 for no bound."),
                "growthType": text("How each wait grows: exponential (the default), linear or none."),
                "numRequeuings": integer("Accepted and not used; status.numberOfRequeueings counts."),
                "maxNumRequeuings": integer("Give up after so many times; 0 for never."),
            })),
            "dispatchDuration": object("How long the gang may run.", json!({
                "expected": integer("Expected seconds."),
                "limit": integer("Seconds after the first dispatch when the gang is stopped and failed; 0 for no limit."),
                "overrun": {"type": "boolean", "description": "Accepted and not used."},
            })),
        }),
    )
}

fn status() -> Value {
    object(
        "Where the gang is.",
        json!({
            "Succeeded": integer("Tracked pods that succeeded."),
            "canrun": {"type": "boolean", "description": "Whether the objects may exist."},
            "conditions": array("What has happened, oldest first.", object("One thing that happened.", json!({
                "lastTransitionMicroTime": stamp("When it last changed."),
                "lastUpdateMicroTime": stamp("When it was last confirmed."),
                "message": text("Details."),
                "reason": text("Cause in a word."),
                "status": text("Always True."),
                "type": text("What happened."),
            }))),
            "controllerfirstdispatchtimestamp": stamp("When the gang was first dispatched, where its run time is limited."),
            "controllerfirsttimestamp": stamp("When the gang was first seen."),
            "failed": integer("Tracked pods that failed."),
            "filterignore": {"type": "boolean", "description": "Whether the gang has been queued."},
            "isdispatched": {"type": "boolean", "description": "Whether another cluster has it."},
            "local": {"type": "boolean", "description": "Whether this is a copy on the cluster that runs it."},
            "message": text("Why the gang waits, and what was filled in for its author."),
            "numberOfRequeueings": integer("How often the gang was taken back."),
            "pending": integer("Tracked pods that are pending."),
            "pendingpodconditions": array("Tracked pods that cannot be scheduled.", object("One such pod.", json!({
                "podname": text("Name of the pod."),
                "conditions": array("Its conditions.", opaque("A condition.")),
            }))),
            "queuejobstate": text("Type of the condition that rules now."),
            "requeueingTimeInSeconds": integer("Wait before the gang is taken back next."),
            "running": integer("Tracked pods that run."),
            "sender": text("Step that wrote this status."),
            "state": text("Pending, Running, RunningHoldCompletion, Completed, Failed or Deleted."),
            "systempriority": number("Rank in the queue."),
            "template": integer("Accepted and not used."),
            "totalcpu": wide("CPU of tracked pods, in thousandths."),
            "totalgpu": wide("GPUs of tracked pods."),
            "totalmemory": wide("Memory of tracked pods, in bytes."),
        }),
    )
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "schemas are built inside out; borrows at each call would only be noise"
)]
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

fn wide(description: &str) -> Value {
    json!({"type": "integer", "format": "int64", "description": description})
}

fn number(description: &str) -> Value {
    json!({"type": "number", "description": description})
}

fn stamp(description: &str) -> Value {
    json!({"type": "string", "format": "date-time", "description": description})
}
