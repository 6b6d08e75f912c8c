//! Printers for the core group except pods, and for events.

use jiff::Timestamp;
use serde_json::Value;

use super::{Printer, age, age_of, containers, joined_labels, name, or, text, wide};
use crate::object;

pub(super) fn printer(plural: &str) -> &'static Printer {
    match plural {
        "nodes" => &NODES,
        "services" => &SERVICES,
        "namespaces" => &NAMESPACES,
        "configmaps" => &CONFIG_MAPS,
        "secrets" => &SECRETS,
        "events" => &EVENTS,
        "endpoints" => &ENDPOINTS,
        "persistentvolumes" => &VOLUMES,
        "persistentvolumeclaims" => &CLAIMS,
        "resourcequotas" => &QUOTAS,
        "limitranges" => &super::policies::CREATED_AT,
        "replicationcontrollers" => &REPLICATION_CONTROLLERS,
        "podtemplates" => &POD_TEMPLATES,
        _ => &super::PLAIN,
    }
}

const NODES: Printer = Printer {
    columns: &[
        text("Name"),
        text("Status"),
        text("Roles"),
        text("Age"),
        text("Version"),
        wide("Internal-IP"),
        wide("External-IP"),
        wide("OS-Image"),
        wide("Kernel-Version"),
        wide("Container-Runtime"),
    ],
    cells: |node, now| {
        let info = |key, absent| or(node, &["status", "nodeInfo", key], absent).into();
        let address = |kind: &str| {
            let all = object::items(node, &["status", "addresses"]);
            let found = all.iter().find(|a| object::text(a, &["type"]) == kind);
            found.map_or("<none>", |a| object::text(a, &["address"])).into()
        };
        let kernel = or(node, &["status", "nodeInfo", "kernelVersion"], "<unknown>");
        let kernel = match object::text(node, &["status", "nodeInfo", "architecture"]) {
            "" => kernel.to_owned(),
            architecture => format!("{kernel} ({architecture})"),
        };
        vec![
            name(node),
            node_status(node).into(),
            node_roles(node).into(),
            age_of(node, now),
            info("kubeletVersion", ""),
            address("InternalIP"),
            address("ExternalIP"),
            info("osImage", "<unknown>"),
            kernel.into(),
            info("containerRuntimeVersion", "<unknown>"),
        ]
    },
};

fn node_status(node: &Value) -> String {
    let ready = object::items(node, &["status", "conditions"])
        .iter()
        .find(|c| object::text(c, &["type"]) == "Ready")
        .map(|c| object::text(c, &["status"]) == "True");
    let status = match ready {
        Some(true) => "Ready",
        Some(false) => "NotReady",
        None => "Unknown",
    };
    if object::flag(node, &["spec", "unschedulable"]) {
        format!("{status},SchedulingDisabled")
    } else {
        status.to_owned()
    }
}

fn node_roles(node: &Value) -> String {
    let mut roles: Vec<&str> = Vec::new();
    for (key, value) in object::map(node, &["metadata", "labels"]).into_iter().flatten() {
        if let Some(role) = key.strip_prefix("node-role.kubernetes.io/").filter(|role| !role.is_empty()) {
            roles.push(role);
        } else if key == "kubernetes.io/role"
            && let Some(role) = value.as_str().filter(|role| !role.is_empty())
        {
            roles.push(role);
        }
    }
    roles.sort_unstable();
    roles.dedup();
    if roles.is_empty() { "<none>".into() } else { roles.join(",") }
}

const SERVICES: Printer = Printer {
    columns: &[
        text("Name"),
        text("Type"),
        text("Cluster-IP"),
        text("External-IP"),
        text("Port(s)"),
        text("Age"),
        wide("Selector"),
    ],
    cells: |service, now| {
        vec![
            name(service),
            or(service, &["spec", "type"], "ClusterIP").into(),
            or(service, &["spec", "clusterIP"], "<none>").into(),
            external_address(service).into(),
            ports(service).into(),
            age_of(service, now),
            joined_labels(service, &["spec", "selector"]),
        ]
    },
};

fn external_address(service: &Value) -> String {
    let own: Vec<&str> = object::texts(service, &["spec", "externalIPs"]).collect();
    let own = own.join(",");
    match object::text(service, &["spec", "type"]) {
        "ExternalName" => object::text(service, &["spec", "externalName"]).to_owned(),
        "LoadBalancer" => {
            let mut all: Vec<&str> = object::items(service, &["status", "loadBalancer", "ingress"])
                .iter()
                .map(|i| or(i, &["ip"], object::text(i, &["hostname"])))
                .collect();
            all.extend((!own.is_empty()).then_some(own.as_str()));
            if all.is_empty() { "<pending>".into() } else { all.join(",") }
        }
        _ if own.is_empty() => "<none>".into(),
        _ => own,
    }
}

fn ports(service: &Value) -> String {
    let one = |port: &Value| {
        let number = object::int(port, &["port"]).unwrap_or(0);
        let protocol = or(port, &["protocol"], "TCP");
        match object::int(port, &["nodePort"]) {
            Some(node) if node > 0 => format!("{number}:{node}/{protocol}"),
            _ => format!("{number}/{protocol}"),
        }
    };
    let all: Vec<String> = object::items(service, &["spec", "ports"]).iter().map(one).collect();
    if all.is_empty() { "<none>".into() } else { all.join(",") }
}

const NAMESPACES: Printer = Printer {
    columns: &[text("Name"), text("Status"), text("Age")],
    cells: |value, now| {
        vec![name(value), object::text(value, &["status", "phase"]).into(), age_of(value, now)]
    },
};

const CONFIG_MAPS: Printer = Printer {
    columns: &[text("Name"), text("Data"), text("Age")],
    cells: |value, now| {
        let size = |key| object::map(value, &[key]).map_or(0, serde_json::Map::len);
        vec![name(value), (size("data") + size("binaryData")).into(), age_of(value, now)]
    },
};

const SECRETS: Printer = Printer {
    columns: &[text("Name"), text("Type"), text("Data"), text("Age")],
    cells: |value, now| {
        let size = object::map(value, &["data"]).map_or(0, serde_json::Map::len);
        vec![name(value), object::text(value, &["type"]).into(), size.into(), age_of(value, now)]
    },
};

const EVENTS: Printer = Printer {
    columns: &[
        text("Last Seen"),
        text("Type"),
        text("Reason"),
        text("Object"),
        wide("Subobject"),
        wide("Source"),
        text("Message"),
        wide("First Seen"),
        wide("Count"),
        wide("Name"),
    ],
    cells: event,
};

/// The cells of an event, for both API groups.
fn event(event: &Value, now: Timestamp) -> Vec<Value> {
    let either = |a: &[&str], b: &[&str]| match object::text(event, a) {
        "" => object::text(event, b).to_owned(),
        found => found.to_owned(),
    };
    let first = match either(&["firstTimestamp"], &["deprecatedFirstTimestamp"]) {
        stamp if stamp.is_empty() => object::text(event, &["eventTime"]).to_owned(),
        stamp => stamp,
    };
    let mut last = match either(&["lastTimestamp"], &["deprecatedLastTimestamp"]) {
        stamp if stamp.is_empty() => first.clone(),
        stamp => stamp,
    };
    let mut count =
        object::int(event, &["count"]).or(object::int(event, &["deprecatedCount"])).unwrap_or(1).max(1);
    if let Some(series) = object::get(event, &["series"]).filter(|s| s.is_object()) {
        object::text(series, &["lastObservedTime"]).clone_into(&mut last);
        count = object::int(series, &["count"]).unwrap_or(count);
    }
    let about = |key| either(&["involvedObject", key], &["regarding", key]);
    let kind = about("kind").to_lowercase();
    let target = match about("name") {
        named if named.is_empty() => kind,
        named => format!("{kind}/{named}"),
    };
    let component = match either(&["source", "component"], &["deprecatedSource", "component"]) {
        none if none.is_empty() => either(&["reportingComponent"], &["reportingController"]),
        component => component,
    };
    let host = match either(&["source", "host"], &["deprecatedSource", "host"]) {
        none if none.is_empty() => object::text(event, &["reportingInstance"]).to_owned(),
        host => host,
    };
    vec![
        age(&last, now).into(),
        object::text(event, &["type"]).into(),
        object::text(event, &["reason"]).into(),
        target.into(),
        about("fieldPath").into(),
        if host.is_empty() { component } else { format!("{component}, {host}") }.into(),
        either(&["message"], &["note"]).trim().into(),
        age(&first, now).into(),
        count.into(),
        name(event),
    ]
}

const ENDPOINTS: Printer = Printer {
    columns: &[text("Name"), text("Endpoints"), text("Age")],
    cells: |value, now| {
        let mut all = Vec::new();
        for subset in object::items(value, &["subsets"]) {
            let addresses = object::items(subset, &["addresses"]).iter().map(|a| object::text(a, &["ip"]));
            let ports = object::items(subset, &["ports"]);
            for address in addresses {
                if ports.is_empty() {
                    all.push(address.to_owned());
                }
                all.extend(
                    ports.iter().map(|p| format!("{address}:{}", object::int(p, &["port"]).unwrap_or(0))),
                );
            }
        }
        let shown = match all.len() {
            0 => "<none>".to_owned(),
            1..=3 => all.join(","),
            more => format!("{} + {} more...", all[..3].join(","), more - 3),
        };
        vec![name(value), shown.into(), age_of(value, now)]
    },
};

/// Access modes in their short form.
fn access_modes(value: &Value, path: &[&str]) -> String {
    let short = |mode: &str| match mode {
        "ReadWriteOnce" => "RWO".to_owned(),
        "ReadOnlyMany" => "ROX".into(),
        "ReadWriteMany" => "RWX".into(),
        "ReadWriteOncePod" => "RWOP".into(),
        other => other.to_owned(),
    };
    object::texts(value, path).map(short).collect::<Vec<_>>().join(",")
}

const VOLUMES: Printer = Printer {
    columns: &[
        text("Name"),
        text("Capacity"),
        text("Access Modes"),
        text("Reclaim Policy"),
        text("Status"),
        text("Claim"),
        text("StorageClass"),
        text("VolumeAttributesClass"),
        text("Reason"),
        text("Age"),
        wide("VolumeMode"),
    ],
    cells: |value, now| {
        let claim = |key| object::text(value, &["spec", "claimRef", key]);
        let claimed = if claim("name").is_empty() {
            String::new()
        } else {
            format!("{}/{}", claim("namespace"), claim("name"))
        };
        vec![
            name(value),
            object::text(value, &["spec", "capacity", "storage"]).into(),
            access_modes(value, &["spec", "accessModes"]).into(),
            object::text(value, &["spec", "persistentVolumeReclaimPolicy"]).into(),
            object::text(value, &["status", "phase"]).into(),
            claimed.into(),
            object::text(value, &["spec", "storageClassName"]).into(),
            or(value, &["spec", "volumeAttributesClassName"], "<unset>").into(),
            object::text(value, &["status", "reason"]).into(),
            age_of(value, now),
            or(value, &["spec", "volumeMode"], "<unset>").into(),
        ]
    },
};

const CLAIMS: Printer = Printer {
    columns: &[
        text("Name"),
        text("Status"),
        text("Volume"),
        text("Capacity"),
        text("Access Modes"),
        text("StorageClass"),
        text("VolumeAttributesClass"),
        text("Age"),
        wide("VolumeMode"),
    ],
    cells: |value, now| {
        let bound = !object::text(value, &["spec", "volumeName"]).is_empty();
        let modes = if bound { access_modes(value, &["status", "accessModes"]) } else { String::new() };
        let capacity = if bound { object::text(value, &["status", "capacity", "storage"]) } else { "" };
        let deleting = object::get(value, &["metadata", "deletionTimestamp"]).is_some();
        let phase = if deleting { "Terminating" } else { object::text(value, &["status", "phase"]) };
        vec![
            name(value),
            phase.into(),
            object::text(value, &["spec", "volumeName"]).into(),
            capacity.into(),
            modes.into(),
            object::text(value, &["spec", "storageClassName"]).into(),
            or(value, &["spec", "volumeAttributesClassName"], "<unset>").into(),
            age_of(value, now),
            or(value, &["spec", "volumeMode"], "<unset>").into(),
        ]
    },
};

const QUOTAS: Printer = Printer {
    columns: &[text("Name"), text("Request"), text("Limit"), text("Age")],
    cells: |value, now| {
        let (mut requests, mut limits) = (Vec::new(), Vec::new());
        for (key, hard) in object::map(value, &["status", "hard"]).into_iter().flatten() {
            let used = or(value, &["status", "used", key], "0");
            let shown = format!("{key}: {used}/{}", hard.as_str().unwrap_or_default());
            if key.contains("limits") { limits.push(shown) } else { requests.push(shown) }
        }
        vec![name(value), requests.join(", ").into(), limits.join(", ").into(), age_of(value, now)]
    },
};

const REPLICATION_CONTROLLERS: Printer = Printer {
    columns: super::workloads::REPLICA_SET_COLUMNS,
    cells: |value, now| {
        let mut cells = super::workloads::replica_set(value, now);
        cells.pop();
        cells.push(joined_labels(value, &["spec", "selector"]));
        cells
    },
};

const POD_TEMPLATES: Printer = Printer {
    columns: &[text("Name"), text("Containers"), text("Images"), text("Pod Labels")],
    cells: |value, _| {
        let [names, images] = containers(value, &["template", "spec", "containers"]);
        vec![name(value), names, images, joined_labels(value, &["template", "metadata", "labels"])]
    },
};
