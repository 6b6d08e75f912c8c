//! The fields of a Node that its kubelet sets: conditions, addresses, versions and labels; and the allocation of pod
//! CIDRs.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde_json::{Map, Value, json};

use crate::wire::{Node, Quantity, Stamp};

/// Prefix of the container runtime version of simulated nodes.
pub(super) const RUNTIME_PREFIX: &str = "sandbox://";
/// The Kubernetes version of simulated nodes.
const KUBELET_VERSION: &str = "v1.36.0";
/// The capacity of a node that is created without any.
const DEFAULT_CAPACITY: [(&str, &str); 4] =
    [("cpu", "16"), ("memory", "64Gi"), ("ephemeral-storage", "256Gi"), ("pods", "110")];

/// Allocates one address for every node from 172.16.0.0/12, and one pod CIDR from 10.0.0.0/8.
#[derive(Debug, Default)]
pub(super) struct Network {
    node_addresses: BTreeMap<String, Ipv4Addr>,
    pod_cidrs: BTreeMap<String, String>,
    next_host: u32,
    next_offset: u32,
}

impl Network {
    pub(super) fn node_address(&mut self, node: &str) -> Ipv4Addr {
        if let Some(known) = self.node_addresses.get(node) {
            return *known;
        }
        self.next_host += 1;
        let first = u32::from(Ipv4Addr::new(172, 18, 0, 1));
        let address = Ipv4Addr::from(first + self.next_host % 0x000d_0000);
        self.node_addresses.insert(node.to_owned(), address);
        address
    }

    /// The pod CIDR of a node: twice as many addresses as it can run pods, at least 256.
    pub(super) fn pod_cidr(&mut self, node: &str, pods: u32) -> String {
        if let Some(known) = self.pod_cidrs.get(node) {
            return known.clone();
        }
        let size = pods.clamp(128, 1 << 16).saturating_mul(2).next_power_of_two();
        let first = u32::from(Ipv4Addr::new(10, 244, 0, 0));
        let offset = self.next_offset.next_multiple_of(size);
        self.next_offset = offset + size;
        // After 10.255.255.255, allocation continues at 10.0.0.0.
        let address = Ipv4Addr::from((10 << 24) | ((first + offset) & 0x00ff_ffff));
        let range = format!("{address}/{}", 32 - size.trailing_zeros());
        self.pod_cidrs.insert(node.to_owned(), range.clone());
        range
    }
}

/// The labels that a kubelet sets on its node unless they exist.
pub(super) fn labels(name: &str) -> [(&'static str, String); 5] {
    [
        ("beta.kubernetes.io/arch", "amd64".to_owned()),
        ("beta.kubernetes.io/os", "linux".to_owned()),
        ("kubernetes.io/arch", "amd64".to_owned()),
        ("kubernetes.io/hostname", name.to_owned()),
        ("kubernetes.io/os", "linux".to_owned()),
    ]
}

/// The status of a node that is connected.
pub(super) fn status(node: &Node, network: &mut Network, now: Stamp) -> Value {
    let name = &node.metadata.name;
    let mut capacity = node.status.capacity.clone();
    if capacity.is_empty() {
        capacity.clone_from(&node.status.allocatable);
    }
    if capacity.is_empty() {
        capacity = DEFAULT_CAPACITY
            .map(|(name, amount)| {
                (name.to_owned(), amount.parse().expect("default capacities are quantities"))
            })
            .into();
    }
    capacity.entry("pods".to_owned()).or_insert(Quantity::units(110));
    let mut allocatable = node.status.allocatable.clone();
    for (resource, amount) in &capacity {
        allocatable.entry(resource.clone()).or_insert(*amount);
    }
    let id = format!("{:032x}", crate::pace::Pace::new(1.0, 0).draw(name));
    let addresses = if node.internal_ip().is_empty() {
        json!([
            { "type": "InternalIP", "address": network.node_address(name).to_string() },
            { "type": "Hostname", "address": name },
        ])
    } else {
        let known = node.status.addresses.iter();
        known.map(|address| json!({ "type": address.kind, "address": address.address })).collect()
    };
    json!({
        "capacity": capacity,
        "allocatable": allocatable,
        "addresses": addresses,
        "conditions": conditions(node, true, now),
        "daemonEndpoints": { "kubeletEndpoint": { "Port": 10250 } },
        "nodeInfo": {
            "architecture": "amd64",
            "bootID": id,
            "containerRuntimeVersion": format!("{RUNTIME_PREFIX}{}", env!("CARGO_PKG_VERSION")),
            "kernelVersion": "6.12.0-sandbox",
            "kubeProxyVersion": "",
            "kubeletVersion": KUBELET_VERSION,
            "machineID": id,
            "operatingSystem": "linux",
            "osImage": "Muster sandbox",
            "systemUUID": id,
        },
    })
}

/// A complete Node object, as its kubelet registers it.
pub(super) fn registered_node(mut manifest: Value, network: &mut Network, now: Stamp) -> Value {
    let node: Node = serde_json::from_value(manifest.clone()).unwrap_or_default();
    let name = node.metadata.name.clone();
    let set = object(object(&mut manifest, "metadata"), "labels");
    for (label, value) in labels(&name) {
        if set[label].is_null() {
            set[label] = json!(value);
        }
    }
    let mut status = status(&node, network, now);
    let pods = status["allocatable"]["pods"].as_str().and_then(|pods| pods.parse().ok()).unwrap_or(110);
    if node.spec.pod_cidr.is_empty() {
        let range = network.pod_cidr(&name, pods);
        let spec = object(&mut manifest, "spec");
        spec["podCIDRs"] = json!([range]);
        spec["podCIDR"] = json!(range);
    }
    // Other fields that the manifest sets, for instance images or further conditions, stay.
    if let (Some(given), Some(ours)) = (manifest["status"].as_object(), status.as_object_mut()) {
        for (field, value) in given {
            ours.entry(field).or_insert(value.clone());
        }
    }
    manifest["status"] = status;
    manifest["apiVersion"] = json!("v1");
    manifest["kind"] = json!("Node");
    manifest
}

/// The conditions of a node; `Unknown` if it sends no heartbeats.
pub(super) fn conditions(node: &Node, alive: bool, now: Stamp) -> Value {
    let healthy = [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ];
    let mut list: Vec<Value> = Vec::new();
    for (kind, status, reason, message) in healthy {
        let (status, reason, message) = if alive {
            (status, reason, message)
        } else {
            ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
        };
        let old = crate::wire::condition(&node.status.conditions, kind);
        let since = old.filter(|old| old.status == status).and_then(|old| old.last_transition_time);
        let heard = if alive { now } else { old.and_then(|old| old.last_heartbeat_time).unwrap_or(now) };
        list.push(json!({
            "type": kind,
            "status": status,
            "lastHeartbeatTime": heard,
            "lastTransitionTime": since.unwrap_or(now),
            "reason": reason,
            "message": message,
        }));
    }
    let others = node.status.conditions.iter().filter(|c| !healthy.iter().any(|(kind, ..)| *kind == c.kind));
    list.extend(others.map(|other| json!(other)));
    json!(list)
}

/// The object in a field, created if it is absent.
fn object<'a>(value: &'a mut Value, field: &str) -> &'a mut Value {
    let slot = &mut value[field];
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    slot
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_cidrs_do_not_overlap_and_are_large_enough() {
        let mut network = Network::default();
        assert_eq!(network.pod_cidr("a", 110), "10.244.0.0/24");
        assert_eq!(network.pod_cidr("b", 1000), "10.244.8.0/21");
        assert_eq!(network.pod_cidr("c", 110), "10.244.16.0/24");
        assert_eq!(network.pod_cidr("a", 110), "10.244.0.0/24");
    }

    #[test]
    fn a_registered_node_is_ready_and_keeps_fields_of_its_manifest() {
        let manifest = json!({
            "metadata": { "name": "n", "labels": { "kubernetes.io/arch": "arm64" } },
            "status": { "capacity": { "cpu": 2 }, "images": [] },
        });
        let now = Stamp::of(jiff::Timestamp::UNIX_EPOCH);
        let node = registered_node(manifest, &mut Network::default(), now);
        assert_eq!(node["metadata"]["labels"]["kubernetes.io/arch"], "arm64");
        assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "n");
        assert_eq!(node["status"]["allocatable"], json!({ "cpu": "2", "pods": "110" }));
        assert_eq!(node["status"]["images"], json!([]));
        let ready = &node["status"]["conditions"][3];
        assert_eq!((&ready["type"], &ready["status"]), (&json!("Ready"), &json!("True")));
    }
}
