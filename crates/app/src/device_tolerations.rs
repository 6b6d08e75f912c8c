//! Admission of pods on the embedded API server: pods that request a device tolerate the taint of its nodes, as with the plugin
//! `ExtendedResourceToleration` of kube-apiserver, which GKE uses.

use std::collections::BTreeSet;
use std::sync::Arc;

use apiserver::{AdmissionPlugin, Service, Write};
use serde_json::{Value, json};

#[derive(Debug)]
struct DeviceTolerations;

/// Gives new pods the tolerations of their devices.
pub(crate) fn install(service: &Service) {
    service.with(|server, _| server.admit_with("", Arc::new(DeviceTolerations)));
}

impl AdmissionPlugin for DeviceTolerations {
    fn covers(&self, write: &Write<'_>) -> bool {
        write.plural == "pods" && write.subresource.is_empty() && write.is_create
    }

    fn mutate(&self, _: &Write<'_>, pod: &mut Value) {
        tolerate(pod);
    }

    fn validate(&self, _: &Write<'_>, _: &Value, _: Option<&Value>) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }
}

/// Whether a resource is an extended one: with a domain that is not of Kubernetes.
fn is_device(resource: &str) -> bool {
    resource.split_once('/').is_some_and(|(domain, _)| {
        domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io") && !domain.starts_with("requests.")
    })
}

fn tolerate(pod: &mut Value) {
    let spec = &pod["spec"];
    let containers = ["initContainers", "containers"]
        .iter()
        .flat_map(|field| spec[field].as_array().into_iter().flatten());
    let requested = containers.flat_map(|container| {
        let resources = &container["resources"];
        let of = |field: &str| resources[field].as_object().into_iter().flatten();
        of("requests").chain(of("limits")).map(|(resource, _)| resource.clone())
    });
    let devices: BTreeSet<String> = requested.filter(|resource| is_device(resource)).collect();
    if devices.is_empty() {
        return;
    }
    if !pod["spec"]["tolerations"].is_array() {
        pod["spec"]["tolerations"] = json!([]);
    }
    let Some(tolerations) = pod["spec"]["tolerations"].as_array_mut() else { return };
    for device in devices {
        let toleration = json!({"key": device, "operator": "Exists", "effect": "NoSchedule"});
        if !tolerations.contains(&toleration) {
            tolerations.push(toleration);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_tolerate_the_taints_of_the_devices_that_they_request() {
        let mut pod = json!({"spec": {"containers": [
            {"resources": {"limits": {"nvidia.com/gpu": 1, "cpu": 1, "attachable.kubernetes.io/disk": 1}}}]}});
        tolerate(&mut pod);
        tolerate(&mut pod);
        assert_eq!(
            pod["spec"]["tolerations"],
            json!([{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}])
        );
        let mut plain = json!({"spec": {"containers": [{"resources": {"limits": {"cpu": 1}}}]}});
        tolerate(&mut plain);
        assert!(plain["spec"]["tolerations"].is_null());
    }
}
