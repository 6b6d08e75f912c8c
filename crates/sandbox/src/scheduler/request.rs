//! The effective resource request of a pod, as Kubernetes computes it.

use std::collections::BTreeMap;

use crate::wire::{Container, Pod, Quantity, Resources};

/// Amounts by resource name, in thousandths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amounts(BTreeMap<String, i64>);

impl Amounts {
    pub(super) fn of(resources: &BTreeMap<String, Quantity>) -> Self {
        Self(resources.iter().map(|(name, amount)| (name.clone(), amount.milli())).collect())
    }

    pub(super) fn get(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            match self.0.get_mut(name) {
                Some(sum) => *sum = sum.saturating_add(*amount),
                None => drop(self.0.insert(name.clone(), *amount)),
            }
        }
    }

    pub(super) fn subtract(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            if let Some(sum) = self.0.get_mut(name) {
                *sum = sum.saturating_sub(*amount);
            }
        }
    }

    fn raise_to(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let sum = self.0.entry(name.clone()).or_insert(0);
            *sum = (*sum).max(*amount);
        }
    }
}

/// Requests that scores assume for containers without any: 100m of CPU and 200 MB of memory, in thousandths.
const DEFAULT_REQUESTS: [(&str, i64); 2] = [("cpu", 100), ("memory", 200 * 1024 * 1024 * 1000)];

/// The effective request: the larger of the sum of app containers and sidecars, and of every init step; plus the
/// overhead.
pub(crate) fn effective(pod: &Pod) -> Amounts {
    combine(pod, request)
}

/// The effective request for scores, with defaults for containers without a CPU or memory request.
pub(super) fn nonzero(pod: &Pod) -> Amounts {
    combine(pod, |container| {
        let mut amounts = request(container);
        for (name, amount) in DEFAULT_REQUESTS {
            amounts.0.entry(name.to_owned()).or_insert(amount);
        }
        amounts
    })
}

fn combine(pod: &Pod, of: impl Fn(&Container) -> Amounts) -> Amounts {
    let mut running = Amounts::default();
    for container in &pod.spec.containers {
        running.add(&of(container));
    }
    let (mut sidecars, mut peak) = (Amounts::default(), Amounts::default());
    for container in &pod.spec.init_containers {
        let mut step = of(container);
        if container.is_sidecar() {
            sidecars.add(&step);
            step = sidecars.clone();
        } else {
            step.add(&sidecars);
        }
        peak.raise_to(&step);
    }
    running.add(&sidecars);
    running.raise_to(&peak);
    if let Some(of_pod) = &pod.spec.resources {
        running.0.extend(requested(of_pod).0);
    }
    running.add(&Amounts::of(&pod.spec.overhead));
    running
}

/// Requests of one container. A missing request defaults to the limit.
fn request(container: &Container) -> Amounts {
    requested(&container.resources)
}

fn requested(resources: &Resources) -> Amounts {
    let mut amounts = Amounts::of(&resources.limits);
    for (name, amount) in &resources.requests {
        amounts.0.insert(name.clone(), amount.milli());
    }
    amounts
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_effective_request_includes_init_containers_sidecars_limits_and_overhead() {
        let container = |cpu: &str| json!({ "name": "c", "resources": { "requests": { "cpu": cpu } } });
        let sidecar =
            json!({ "name": "s", "restartPolicy": "Always", "resources": { "limits": { "cpu": "300m" } } });
        for (name, spec, expected) in [
            ("app containers add up", json!({ "containers": [container("1"), container("500m")] }), 1500),
            (
                "the largest init counts",
                json!({ "containers": [container("1")], "initContainers": [container("2")] }),
                2000,
            ),
            (
                "a sidecar adds to apps",
                json!({ "containers": [container("1")], "initContainers": [sidecar] }),
                1300,
            ),
            (
                "a sidecar adds to later inits",
                json!({ "containers": [container("1")], "initContainers": [sidecar, container("2")] }),
                2300,
            ),
            (
                "a later sidecar does not",
                json!({ "containers": [container("1")], "initContainers": [container("2"), sidecar] }),
                2000,
            ),
            (
                "requests of the pod replace the sums",
                json!({ "containers": [container("1")], "resources": { "requests": { "cpu": "3" } } }),
                3000,
            ),
            ("overhead", json!({ "containers": [container("1")], "overhead": { "cpu": "250m" } }), 1250),
        ] {
            let pod: Pod = serde_json::from_value(json!({ "spec": spec })).unwrap();
            assert_eq!(effective(&pod).get("cpu"), expected, "{name}");
        }
    }
}
