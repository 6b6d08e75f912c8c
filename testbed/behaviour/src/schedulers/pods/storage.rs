//! The volumes of random pods.

use serde_json::{Value, json};

use super::Pods;
use crate::schedulers::case::{HOST_NAME, PROVISIONER, REGION, ZONE, node_name};

/// The name of a volume that does not exist.
pub const MISSING: &str = "missing";

impl Pods {
    /// The node affinity of a volume.
    pub(super) fn volume_affinity(&mut self) -> Value {
        let expression = match self.random.u32(..3) {
            0 => {
                json!({"key": HOST_NAME, "operator": "In", "values": [node_name(self.seed, self.random.usize(..self.nodes.len()))]})
            }
            1 => json!({"key": ZONE, "operator": "In", "values": self.some(&["z1", "z2", "z3"])}),
            _ => json!({"key": "disk", "operator": "NotIn", "values": ["ssd"]}),
        };
        json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}})
    }

    /// A volume with its claim.
    pub(super) fn bound(
        &mut self,
        name: &str,
        namespace: &str,
        mode: &str,
        labels: &Value,
        affinity: Option<Value>,
    ) {
        let mut volume = json!({"apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": name, "labels": labels}, "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": [mode], "storageClassName": "",
            "csi": {"driver": "schedulers.example.com", "volumeHandle": name},
            "persistentVolumeReclaimPolicy": "Retain", "claimRef": {"namespace": namespace, "name": name}}});
        if let Some(affinity) = affinity {
            volume["spec"]["nodeAffinity"] = affinity;
        }
        let mut claim = claim(name, namespace, mode, "");
        claim["spec"]["volumeName"] = json!(name);
        self.storage.extend([volume, claim]);
    }

    /// A disk that only one pod may write.
    pub(super) fn disk(&mut self) -> Value {
        let reads = self.random.bool();
        let disk = self.one(&["x", "y"]);
        match self.random.u32(..4) {
            0 => {
                json!({"iscsi": {"targetPortal": "10.0.0.1:3260", "iqn": format!("iqn.2001-04.com.example:{disk}"), "lun": 0, "readOnly": reads}})
            }
            1 => {
                json!({"rbd": {"monitors": ["10.0.0.1:6789"], "pool": "pool", "image": disk, "readOnly": reads}})
            }
            2 => json!({"gcePersistentDisk": {"pdName": disk, "readOnly": reads}}),
            _ => json!({"awsElasticBlockStore": {"volumeID": disk, "readOnly": reads}}),
        }
    }

    /// A volume of a pod. What it needs is added to the storage under this name.
    pub(super) fn volume(&mut self, pod: &Value, name: &str) -> Value {
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        let mut used = name.to_owned();
        match self.random.u32(..11) {
            9 => return self.disk(),
            10 => {
                // A claim of a volume that does not exist.
                let mut claim = claim(name, namespace, "ReadWriteOnce", "");
                claim["spec"]["volumeName"] = json!(MISSING);
                self.storage.push(claim);
            }
            0 => {} // The claim is missing.
            1 => {
                let affinity = self.volume_affinity();
                self.bound(name, namespace, "ReadWriteMany", &json!({}), Some(affinity));
            }
            2 => {
                let zone = self.one(&["z1", "z2", "z1__z3"]);
                let labels =
                    if self.random.bool() { json!({ZONE: zone}) } else { json!({ZONE: zone, REGION: "r1"}) };
                self.bound(name, namespace, "ReadWriteMany", &labels, None);
            }
            3 => {
                let taken = self.taken.iter().find(|(space, _)| *space == namespace).cloned();
                match taken {
                    Some((_, taken)) => used = taken,
                    None => self.bound(name, namespace, "ReadWriteOncePod", &json!({}), None),
                }
            }
            4 => {
                // An unbound claim that waits for no pod.
                self.class(name, "Immediate", "kubernetes.io/no-provisioner");
                self.storage.push(claim(name, namespace, "ReadWriteOnce", name));
            }
            5 | 6 => {
                self.class(name, "WaitForFirstConsumer", "kubernetes.io/no-provisioner");
                for at in 0..self.random.usize(0..=3) {
                    let affinity = self.volume_affinity();
                    let capacity = self.one(&["500Mi", "1Gi", "2Gi"]);
                    let mode = self.one(&["ReadWriteOnce", "ReadWriteOnce", "ReadWriteMany"]);
                    self.storage.push(json!({"apiVersion": "v1", "kind": "PersistentVolume",
                        "metadata": {"name": format!("{name}-{at}")}, "spec": {
                        "capacity": {"storage": capacity}, "accessModes": [mode], "storageClassName": name,
                        "csi": {"driver": "schedulers.example.com", "volumeHandle": format!("{name}-{at}")},
                        "persistentVolumeReclaimPolicy": "Retain", "nodeAffinity": affinity}}));
                }
                self.storage.push(claim(name, namespace, "ReadWriteOnce", name));
            }
            7 => {
                // A class without volumes of this kind on any node.
                self.class(name, "WaitForFirstConsumer", PROVISIONER);
                if self.percent(70) {
                    let values = self.some(&["z1", "z2", "z3"]);
                    if let Some(class) = self.storage.last_mut() {
                        class["allowedTopologies"] =
                            json!([{"matchLabelExpressions": [{"key": ZONE, "values": values}]}]);
                    }
                }
                self.storage.push(claim(name, namespace, "ReadWriteOnce", name));
            }
            _ => {
                // A claim of a class that does not exist.
                self.storage.push(claim(name, namespace, "ReadWriteOnce", name));
            }
        }
        volume(&used)
    }

    pub(super) fn class(&mut self, name: &str, mode: &str, provisioner: &str) {
        self.storage.push(
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": provisioner, "volumeBindingMode": mode}),
        );
    }
}

pub(super) fn volume(claim: &str) -> Value {
    json!({"name": "data", "persistentVolumeClaim": {"claimName": claim}})
}

fn claim(name: &str, namespace: &str, mode: &str, class: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": namespace},
        "spec": {"accessModes": [mode], "storageClassName": class, "resources": {"requests": {"storage": "1Gi"}}}})
}
