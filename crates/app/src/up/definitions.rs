//! The definition of AppWrappers in a simulated cluster: it has the version of the other controller, too, whoever writes it. So
//! `kubectl apply` of the chart's definitions, which have one version, takes no kind away.

use std::sync::Arc;

use api::appwrapper::{Group, add_components};
use apiserver::{AdmissionPlugin, Service, Write};
use serde_json::Value;

/// Adds the version with components to Muster's definition of AppWrappers.
#[derive(Debug)]
struct Completion;

/// Completes the definitions that are written from now on.
pub(super) fn complete(service: &Service) {
    service.with(|server, _| server.admit_with("apiextensions.k8s.io", Arc::new(Completion)));
}

impl AdmissionPlugin for Completion {
    fn covers(&self, write: &Write<'_>) -> bool {
        write.plural == "customresourcedefinitions" && write.subresource.is_empty()
    }

    /// The definition of another installer stays as it is.
    fn mutate(&self, _: &Write<'_>, new: &mut Value) {
        let metadata = &new["metadata"];
        let is_ours = metadata["labels"]["app.kubernetes.io/managed-by"] == "muster";
        if is_ours && metadata["name"] == *Group::Codeflare.resource() {
            add_components(new);
        }
    }

    fn validate(&self, _: &Write<'_>, _: &Value, _: Option<&Value>) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }
}
