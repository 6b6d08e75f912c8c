//! Printers for the remaining groups: policy, RBAC, scheduling, coordination, networking, storage, extensions.

use serde_json::Value;

use super::{Printer, age_of, boolean, count, date, integer, name, or, selector, text, wide};
use crate::object;

pub(super) fn printer(plural: &str) -> &'static Printer {
    match plural {
        "roles" | "clusterroles" | "customresourcedefinitions" | "csistoragecapacities" => &CREATED_AT,
        "rolebindings" | "clusterrolebindings" => &BINDINGS,
        "priorityclasses" => &PRIORITY_CLASSES,
        "poddisruptionbudgets" => &DISRUPTION_BUDGETS,
        "flowschemas" => &FLOW_SCHEMAS,
        "prioritylevelconfigurations" => &PRIORITY_LEVELS,
        "leases" => &LEASES,
        "endpointslices" => &ENDPOINT_SLICES,
        "ingresses" => &INGRESSES,
        "ingressclasses" => &INGRESS_CLASSES,
        "networkpolicies" => &NETWORK_POLICIES,
        "runtimeclasses" => &RUNTIME_CLASSES,
        "storageclasses" => &STORAGE_CLASSES,
        "volumeattachments" => &VOLUME_ATTACHMENTS,
        "csinodes" => &CSI_NODES,
        "csidrivers" => &CSI_DRIVERS,
        "volumeattributesclasses" => &ATTRIBUTES_CLASSES,
        "mutatingwebhookconfigurations" | "validatingwebhookconfigurations" => &WEBHOOKS,
        "validatingadmissionpolicies" => &ADMISSION_POLICIES,
        "validatingadmissionpolicybindings" => &ADMISSION_BINDINGS,
        _ => &super::PLAIN,
    }
}

/// Kinds that show the creation time instead of the age.
pub(super) const CREATED_AT: Printer = Printer {
    columns: &[text("Name"), date("Created At")],
    cells: |value, _| vec![name(value), object::text(value, &["metadata", "creationTimestamp"]).into()],
};

const BINDINGS: Printer = Printer {
    columns: &[
        text("Name"),
        text("Role"),
        text("Age"),
        wide("Users"),
        wide("Groups"),
        wide("ServiceAccounts"),
    ],
    cells: |value, now| {
        let of = |kind: &str| -> Value {
            let subjects = object::items(value, &["subjects"]);
            let subjects = subjects.iter().filter(|s| object::text(s, &["kind"]) == kind);
            let shown: Vec<String> = subjects
                .map(|s| match kind {
                    "ServiceAccount" => {
                        format!("{}/{}", object::text(s, &["namespace"]), object::text(s, &["name"]))
                    }
                    _ => object::text(s, &["name"]).to_owned(),
                })
                .collect();
            shown.join(", ").into()
        };
        let role = |key| object::text(value, &["roleRef", key]);
        vec![
            name(value),
            format!("{}/{}", role("kind"), role("name")).into(),
            age_of(value, now),
            of("User"),
            of("Group"),
            of("ServiceAccount"),
        ]
    },
};

const PRIORITY_CLASSES: Printer = Printer {
    columns: &[
        text("Name"),
        integer("Value"),
        boolean("Global-Default"),
        text("Age"),
        text("PreemptionPolicy"),
    ],
    cells: |value, now| {
        vec![
            name(value),
            count(value, &["value"]),
            object::flag(value, &["globalDefault"]).into(),
            age_of(value, now),
            or(value, &["preemptionPolicy"], "PreemptLowerPriority").into(),
        ]
    },
};

const FLOW_SCHEMAS: Printer = Printer {
    columns: &[
        text("Name"),
        text("PriorityLevel"),
        integer("MatchingPrecedence"),
        text("DistinguisherMethod"),
        text("Age"),
        text("MissingPL"),
    ],
    cells: |value, now| {
        let conditions = object::items(value, &["status", "conditions"]);
        let dangling = conditions.iter().find(|condition| condition["type"] == "Dangling");
        vec![
            name(value),
            object::text(value, &["spec", "priorityLevelConfiguration", "name"]).into(),
            count(value, &["spec", "matchingPrecedence"]),
            or(value, &["spec", "distinguisherMethod", "type"], "<none>").into(),
            age_of(value, now),
            dangling.map_or("?", |condition| object::text(condition, &["status"])).into(),
        ]
    },
};

const PRIORITY_LEVELS: Printer = Printer {
    columns: &[
        text("Name"),
        text("Type"),
        text("NominalConcurrencyShares"),
        text("Queues"),
        text("HandSize"),
        text("QueueLengthLimit"),
        text("Age"),
    ],
    cells: |value, now| {
        let queuing = |field: &str| limit(value, &["spec", "limited", "limitResponse", "queuing", field]);
        vec![
            name(value),
            object::text(value, &["spec", "type"]).into(),
            limit(value, &["spec", "limited", "nominalConcurrencyShares"]),
            queuing("queues"),
            queuing("handSize"),
            queuing("queueLengthLimit"),
            age_of(value, now),
        ]
    },
};

/// A number that may be missing.
fn limit(value: &Value, path: &[&str]) -> Value {
    object::int(value, path).map_or("<none>".into(), |number| number.to_string().into())
}

/// An integer or a percentage.
fn amount(value: &Value, path: &[&str]) -> Value {
    match object::get(value, path) {
        Some(Value::Number(number)) => number.to_string().into(),
        Some(Value::String(text)) => text.as_str().into(),
        _ => "N/A".into(),
    }
}

const DISRUPTION_BUDGETS: Printer = Printer {
    columns: &[
        text("Name"),
        text("Min Available"),
        text("Max Unavailable"),
        integer("Allowed Disruptions"),
        text("Age"),
    ],
    cells: |value, now| {
        vec![
            name(value),
            amount(value, &["spec", "minAvailable"]),
            amount(value, &["spec", "maxUnavailable"]),
            count(value, &["status", "disruptionsAllowed"]),
            age_of(value, now),
        ]
    },
};

const LEASES: Printer = Printer {
    columns: &[text("Name"), text("Holder"), text("Age")],
    cells: |value, now| {
        vec![name(value), object::text(value, &["spec", "holderIdentity"]).into(), age_of(value, now)]
    },
};

/// The first three items, and the number of further items.
fn first_three(all: &[String], absent: &str) -> Value {
    match all.len() {
        0 => absent.into(),
        1..=3 => all.join(",").into(),
        more => format!("{} + {} more...", all[..3].join(","), more - 3).into(),
    }
}

const ENDPOINT_SLICES: Printer = Printer {
    columns: &[text("Name"), text("AddressType"), text("Ports"), text("Endpoints"), text("Age")],
    cells: |value, now| {
        let ports: Vec<String> = object::items(value, &["ports"])
            .iter()
            .map(|port| object::int(port, &["port"]).map_or_else(|| "*".to_owned(), |p| p.to_string()))
            .collect();
        let endpoints: Vec<String> = object::items(value, &["endpoints"])
            .iter()
            .flat_map(|e| object::texts(e, &["addresses"]).map(String::from))
            .collect();
        vec![
            name(value),
            object::text(value, &["addressType"]).into(),
            first_three(&ports, "<unset>"),
            first_three(&endpoints, "<unset>"),
            age_of(value, now),
        ]
    },
};

const INGRESSES: Printer = Printer {
    columns: &[text("Name"), text("Class"), text("Hosts"), text("Address"), text("Ports"), text("Age")],
    cells: |value, now| {
        let hosts: Vec<String> = object::items(value, &["spec", "rules"])
            .iter()
            .map(|rule| object::text(rule, &["host"]))
            .filter(|host| !host.is_empty())
            .map(String::from)
            .collect();
        let addresses: Vec<&str> = object::items(value, &["status", "loadBalancer", "ingress"])
            .iter()
            .map(|i| or(i, &["ip"], object::text(i, &["hostname"])))
            .collect();
        let tls = !object::items(value, &["spec", "tls"]).is_empty();
        vec![
            name(value),
            or(value, &["spec", "ingressClassName"], "<none>").into(),
            first_three(&hosts, "*"),
            addresses.join(",").into(),
            if tls { "80, 443" } else { "80" }.into(),
            age_of(value, now),
        ]
    },
};

const INGRESS_CLASSES: Printer = Printer {
    columns: &[text("Name"), text("Controller"), text("Parameters"), text("Age")],
    cells: |value, now| {
        let parameter = |key| object::text(value, &["spec", "parameters", key]);
        let parameters = match (parameter("apiGroup"), parameter("kind"), parameter("name")) {
            (_, _, "") => "<none>".to_owned(),
            ("", kind, named) => format!("{kind}/{named}"),
            (group, kind, named) => format!("{kind}.{group}/{named}"),
        };
        vec![
            name(value),
            object::text(value, &["spec", "controller"]).into(),
            parameters.into(),
            age_of(value, now),
        ]
    },
};

const NETWORK_POLICIES: Printer = Printer {
    columns: &[text("Name"), text("Pod-Selector"), text("Age")],
    cells: |value, now| vec![name(value), selector(value, &["spec", "podSelector"]), age_of(value, now)],
};

const RUNTIME_CLASSES: Printer = Printer {
    columns: &[text("Name"), text("Handler"), text("Age")],
    cells: |value, now| vec![name(value), object::text(value, &["handler"]).into(), age_of(value, now)],
};

const STORAGE_CLASSES: Printer = Printer {
    columns: &[
        text("Name"),
        text("Provisioner"),
        text("ReclaimPolicy"),
        text("VolumeBindingMode"),
        text("AllowVolumeExpansion"),
        text("Age"),
    ],
    cells: |value, now| {
        let default = "storageclass.kubernetes.io/is-default-class";
        let is_default = object::text(value, &["metadata", "annotations", default]) == "true";
        let shown = if is_default {
            format!("{} (default)", object::name(value))
        } else {
            object::name(value).into()
        };
        vec![
            shown.into(),
            object::text(value, &["provisioner"]).into(),
            or(value, &["reclaimPolicy"], "Delete").into(),
            or(value, &["volumeBindingMode"], "Immediate").into(),
            object::flag(value, &["allowVolumeExpansion"]).into(),
            age_of(value, now),
        ]
    },
};

const VOLUME_ATTACHMENTS: Printer = Printer {
    columns: &[text("Name"), text("Attacher"), text("PV"), text("Node"), boolean("Attached"), text("Age")],
    cells: |value, now| {
        vec![
            name(value),
            object::text(value, &["spec", "attacher"]).into(),
            object::text(value, &["spec", "source", "persistentVolumeName"]).into(),
            object::text(value, &["spec", "nodeName"]).into(),
            object::flag(value, &["status", "attached"]).into(),
            age_of(value, now),
        ]
    },
};

const CSI_NODES: Printer = Printer {
    columns: &[text("Name"), integer("Drivers"), text("Age")],
    cells: |value, now| {
        vec![name(value), object::items(value, &["spec", "drivers"]).len().into(), age_of(value, now)]
    },
};

const CSI_DRIVERS: Printer = Printer {
    columns: &[
        text("Name"),
        boolean("AttachRequired"),
        boolean("PodInfoOnMount"),
        boolean("StorageCapacity"),
        text("TokenRequests"),
        boolean("RequiresRepublish"),
        text("Modes"),
        text("Age"),
    ],
    cells: |value, now| {
        let flag = |key, absent| {
            object::get(value, &["spec", key]).and_then(Value::as_bool).unwrap_or(absent).into()
        };
        let list = |key, part: &[&str], absent: &str| -> Value {
            let all: Vec<&str> = object::items(value, &["spec", key])
                .iter()
                .map(|item| item.as_str().unwrap_or_else(|| object::text(item, part)))
                .collect();
            if all.is_empty() { absent.into() } else { all.join(",").into() }
        };
        vec![
            name(value),
            flag("attachRequired", true),
            flag("podInfoOnMount", false),
            flag("storageCapacity", false),
            list("tokenRequests", &["audience"], "<unset>"),
            flag("requiresRepublish", false),
            list("volumeLifecycleModes", &[], "Persistent"),
            age_of(value, now),
        ]
    },
};

const ATTRIBUTES_CLASSES: Printer = Printer {
    columns: &[text("Name"), text("DriverName"), text("Age")],
    cells: |value, now| vec![name(value), object::text(value, &["driverName"]).into(), age_of(value, now)],
};

const WEBHOOKS: Printer = Printer {
    columns: &[text("Name"), integer("Webhooks"), text("Age")],
    cells: |value, now| {
        vec![name(value), object::items(value, &["webhooks"]).len().into(), age_of(value, now)]
    },
};

const ADMISSION_POLICIES: Printer = Printer {
    columns: &[text("Name"), integer("Validations"), text("ParamKind"), text("Age")],
    cells: |value, now| {
        let kind = |key| object::text(value, &["spec", "paramKind", key]);
        let shown = if kind("kind").is_empty() {
            "<unset>".to_owned()
        } else {
            format!("{}/{}", kind("apiVersion"), kind("kind"))
        };
        vec![
            name(value),
            object::items(value, &["spec", "validations"]).len().into(),
            shown.into(),
            age_of(value, now),
        ]
    },
};

const ADMISSION_BINDINGS: Printer = Printer {
    columns: &[text("Name"), text("PolicyName"), text("ParamRef"), text("Age")],
    cells: |value, now| {
        let param = |key| object::text(value, &["spec", "paramRef", key]);
        let shown = match (param("namespace"), param("name")) {
            ("", "") => "<unset>".to_owned(),
            ("", named) => named.to_owned(),
            (namespace, named) => format!("{namespace}/{named}"),
        };
        vec![
            name(value),
            object::text(value, &["spec", "policyName"]).into(),
            shown.into(),
            age_of(value, now),
        ]
    },
};
