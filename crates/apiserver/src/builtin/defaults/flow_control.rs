//! Defaults of API Priority and Fairness. After `pkg/apis/flowcontrol/v1/defaults.go` of Kubernetes.

use serde_json::{Value, json};

use crate::builtin::fields::{object_mut, set_default};

/// `FlowSchema`.
pub(super) fn flow_schema(schema: &mut Value) {
    let Some(spec) = object_mut(schema, "spec") else { return };
    if spec["matchingPrecedence"] == 0 {
        spec["matchingPrecedence"] = 1000.into();
    }
    set_default(spec, &["matchingPrecedence"], 1000);
}

/// `PriorityLevelConfiguration`.
pub(super) fn priority_level(level: &mut Value) {
    let Some(spec) = object_mut(level, "spec") else { return };
    if let Some(limited) = object_mut(spec, "limited") {
        set_default(limited, &["nominalConcurrencyShares"], 30);
        set_default(limited, &["lendablePercent"], 0);
        if limited["limitResponse"]["type"] == "Queue" {
            set_default(limited, &["limitResponse", "queuing"], json!({}));
        }
        if let Some(queuing) =
            limited.pointer_mut("/limitResponse/queuing").filter(|queuing| queuing.is_object())
        {
            for (field, value) in [("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)] {
                set_default(queuing, &[field], value);
            }
        }
    }
    if let Some(exempt) = object_mut(spec, "exempt") {
        set_default(exempt, &["nominalConcurrencyShares"], 0);
        set_default(exempt, &["lendablePercent"], 0);
    }
}
