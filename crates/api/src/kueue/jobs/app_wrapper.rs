//! AppWrappers `v1beta2` as jobs. What an admission adds to their pods is beside their templates: their controller adds it to the
//! objects that it creates. After `pkg/controller/jobs/appwrapper` of Kueue v0.19.

use serde_json::{Value, json};

use super::declared::true_condition;
use super::{Finished, Injection, InjectionError, Integration, JobKind, Operator, topology};
use crate::appwrapper::components::{has_components, pod_sets, pod_template};
use crate::value::list;

/// The row of AppWrappers.
pub(super) const APP_WRAPPER: JobKind = JobKind {
    framework: "workload.codeflare.dev/appwrapper",
    api_version: "workload.codeflare.dev/v1beta2",
    kind: "AppWrapper",
    plural: "appwrappers",
    integration: &AppWrapper,
};

#[derive(Debug)]
pub(super) struct AppWrapper;

impl Integration for AppWrapper {
    fn operator(&self) -> Option<&dyn Operator> {
        Some(self)
    }

    /// One of the older version has resources, and waits in no queue of Kueue.
    fn is_skipped(&self, wrapper: &Value) -> bool {
        !has_components(wrapper)
    }

    fn pod_sets(&self, wrapper: &Value) -> Vec<Value> {
        let name = wrapper["metadata"]["name"].as_str().unwrap_or_default();
        let components = list(wrapper, &["spec", "components"]).iter().zip(pod_sets(wrapper));
        let found = components
            .flat_map(|(component, sets)| sets.into_iter().map(move |set| (component, set)))
            .filter_map(|(component, set)| Some((pod_template(component, &set.path).ok()?, set)));
        let described = found.enumerate().map(|(at, (mut template, set))| {
            name_protocols(&mut template);
            let request = topology::request(&template, set.index_label());
            let mut described =
                json!({"name": format!("{name}-{at}"), "count": set.replicas, "template": template});
            if let Some(mut request) = request {
                let (label, count) = set.groups();
                if let Some(label) = label {
                    request["subGroupIndexLabel"] = label.into();
                }
                if let Some(count) = count {
                    request["subGroupCount"] = count.into();
                }
                described["topologyRequest"] = request;
            }
            described
        });
        described.collect()
    }

    fn templates(&self, _: &Value) -> Vec<String> {
        Vec::new()
    }

    fn injects_beside_templates(&self) -> bool {
        true
    }

    fn inject(&self, wrapper: &mut Value, injections: &[Injection]) -> Result<(), InjectionError> {
        let sets = pod_sets(wrapper);
        let mut next = injections.iter();
        let mut expected = 0;
        for (component, sets) in components_mut(wrapper).zip(sets) {
            let mut infos = Vec::new();
            for set in sets {
                let is_counted = pod_template(component, &set.path).is_ok();
                expected += usize::from(is_counted);
                let injection = if is_counted { next.next() } else { None };
                infos.push(injection.map_or_else(|| json!({}), Injection::as_info));
            }
            if let Some(component) = component.as_object_mut() {
                component.insert("podSetInfos".into(), infos.into());
            }
        }
        if expected == injections.len() {
            Ok(())
        } else {
            Err(InjectionError::Sets { expected, found: injections.len() })
        }
    }

    fn restore(&self, wrapper: &mut Value, _: &[Value]) {
        for component in components_mut(wrapper) {
            component.as_object_mut().map(|component| component.remove("podSetInfos"));
        }
    }

    fn is_active(&self, wrapper: &Value) -> bool {
        true_condition(wrapper, "QuotaReserved").is_some()
    }

    fn are_pods_ready(&self, wrapper: &Value) -> bool {
        true_condition(wrapper, "PodsReady").is_some()
    }

    /// One that has failed is over when its objects are gone.
    fn finished(&self, wrapper: &Value) -> Option<Finished> {
        let finished = |succeeded, message: &str| Some(Finished { succeeded, message: message.to_owned() });
        match wrapper["status"]["phase"].as_str() {
            Some("Succeeded") => finished(true, "AppWrapper finished successfully"),
            Some("Failed") if true_condition(wrapper, "ResourcesDeployed").is_none() => {
                finished(false, "AppWrapper failed")
            }
            _ => None,
        }
    }
}

fn components_mut(wrapper: &mut Value) -> impl Iterator<Item = &mut Value> {
    let components = wrapper.pointer_mut("/spec/components").and_then(Value::as_array_mut);
    components.into_iter().flatten()
}

/// The definition of Workloads gives ports a protocol, that of AppWrappers does not.
fn name_protocols(template: &mut Value) {
    for list in ["/spec/containers", "/spec/initContainers"] {
        let containers = template.pointer_mut(list).and_then(Value::as_array_mut);
        let ports = containers
            .into_iter()
            .flatten()
            .filter_map(|container| container.get_mut("ports").and_then(Value::as_array_mut))
            .flatten();
        for port in ports.filter_map(Value::as_object_mut) {
            port.entry("protocol").or_insert_with(|| "TCP".into());
        }
    }
}
