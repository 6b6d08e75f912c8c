//! The status of a RayCluster, from its spec, its pods and the previous status.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::containers::head_service;
use super::services::head_ports;
use super::start::is_gpu;
use super::types::{ClusterStatus, HeadInfo, RayCluster};
use crate::wire::{Condition, Container, Pod, Quantity, Stamp, condition};

/// Reason and message of the condition `ReplicaFailure`: why pods could not be created.
pub(super) type Failure = (&'static str, String);

pub(super) fn is_head(pod: &Pod) -> bool {
    pod.metadata.label("ray.io/node-type") == Some("head")
}

/// The condition that is true while the cluster is being suspended or is suspended.
pub(super) fn suspension(status: &ClusterStatus) -> Option<&'static str> {
    ["RayClusterSuspending", "RayClusterSuspended"]
        .into_iter()
        .find(|kind| condition(&status.conditions, kind).is_some_and(|condition| condition.status == "True"))
}

/// The observed state, besides the cluster itself.
pub(super) struct Observed<'a> {
    /// All pods of the cluster, including terminating ones.
    pub(super) pods: &'a [Arc<Pod>],
    /// The head Service, unless it is headless.
    pub(super) service: Option<&'a Value>,
    pub(super) failure: Option<&'a Failure>,
}

/// Computes the new status.
pub(super) fn next(cluster: &RayCluster, observed: &Observed<'_>, now: Stamp) -> ClusterStatus {
    let Observed { pods, service, failure } = *observed;
    let old = &cluster.status;
    let spec = &cluster.spec;
    let mut status = old.clone();
    let head = pods.iter().find(|pod| is_head(pod));
    let workers = || pods.iter().filter(|pod| !is_head(pod));
    let number = |count: usize| Some(i64::try_from(count).unwrap_or(i64::MAX)).filter(|count| *count != 0);
    status.available_worker_replicas = number(workers().filter(|pod| pod.is_running()).count());
    status.ready_worker_replicas = number(workers().filter(|pod| pod.is_running() && pod.is_ready()).count());
    status.desired_worker_replicas = Some(spec.desired_workers()).filter(|count| *count != 0);
    let bound = |of: fn(&super::types::Group) -> i64| {
        let groups = spec.worker_group_specs.iter().filter(|group| group.suspend != Some(true));
        let sum = groups.fold(0i64, |sum, group| sum.saturating_add(of(group)));
        Some(sum.min(i64::from(i32::MAX))).filter(|count| *count != 0)
    };
    status.min_worker_replicas = bound(|group| group.min_replicas.unwrap_or(0) * group.hosts());
    status.max_worker_replicas =
        bound(|group| group.max_replicas.unwrap_or(i64::from(i32::MAX)).saturating_mul(group.hosts()));
    sum_requests(cluster, &mut status);
    status.endpoints = endpoints(cluster, service);
    let address = head.map_or(String::new(), |head| head.status.pod_ip.clone());
    let own = service.and_then(|service| service["spec"]["clusterIP"].as_str());
    status.head = HeadInfo {
        pod_name: head.map_or(String::new(), |head| head.metadata.name.clone()),
        service_ip: own.unwrap_or(&address).to_owned(),
        pod_ip: address,
        service_name: head_service(cluster),
    };
    status.observed_generation = Some(cluster.metadata.generation);
    state(cluster, pods, failure, now, &mut status);
    conditions(cluster, pods, head, failure, now, &mut status);
    let unchanged = ClusterStatus { last_update_time: old.last_update_time, ..status.clone() } == *old;
    if !unchanged {
        status.last_update_time = Some(now);
    }
    status
}

/// The ports of the head: node ports if the Service has any.
fn endpoints(cluster: &RayCluster, service: Option<&Value>) -> BTreeMap<String, String> {
    let Some(service) = service else {
        return head_ports(cluster).into_iter().map(|(name, port)| (name, port.to_string())).collect();
    };
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let shown = |port: &Value| {
        let number = [&port["nodePort"], &port["targetPort"]].into_iter().find_map(Value::as_u64)?;
        Some((port["name"].as_str()?.to_owned(), number.to_string()))
    };
    ports.filter_map(shown).collect()
}

/// Sums the requests of the app containers in the templates. As in KubeRay, init containers and sidecars are not
/// counted.
fn sum_requests(cluster: &RayCluster, status: &mut ClusterStatus) {
    let spec = &cluster.spec;
    let mut sums = [Quantity::default(); 4];
    let head = (&spec.head_group_spec, 1);
    let groups = spec.worker_group_specs.iter().filter(|group| group.suspend != Some(true));
    let workers = groups.map(|group| (group, group.replicas.unwrap_or(0) * group.hosts()));
    for (group, count) in std::iter::once(head).chain(workers) {
        for container in group.pod().spec.containers {
            let amounts = [
                request(&container, |name| name == "cpu"),
                request(&container, |name| name == "memory"),
                request(&container, is_gpu),
                request(&container, |name| name == "google.com/tpu"),
            ];
            for (sum, amount) in sums.iter_mut().zip(amounts) {
                *sum = *sum + amount * count;
            }
        }
    }
    [status.desired_cpu, status.desired_memory, status.desired_gpu, status.desired_tpu] = sums.map(Some);
}

fn request(container: &Container, wanted: impl Fn(&str) -> bool) -> Quantity {
    let resources = &container.resources;
    let requested = resources.requests.iter();
    let limited = resources.limits.iter().filter(|(name, _)| !resources.requests.contains_key(*name));
    requested.chain(limited).filter(|(name, _)| wanted(name)).map(|(_, amount)| *amount).sum()
}

fn all_run(pods: &[Arc<Pod>]) -> bool {
    !pods.is_empty() && pods.iter().all(|pod| pod.is_running() && pod.is_ready())
}

/// Sets `ready` once all desired pods are running and ready; the cluster stays `ready` afterwards. Sets `suspended`
/// when a suspended cluster has no pods.
fn state(
    cluster: &RayCluster,
    pods: &[Arc<Pod>],
    failure: Option<&Failure>,
    now: Stamp,
    status: &mut ClusterStatus,
) {
    let wanted = usize::try_from(cluster.spec.desired_workers() + 1).unwrap_or(usize::MAX);
    let state = if cluster.spec.suspend == Some(true) && pods.is_empty() {
        Some("suspended")
    } else if failure.is_none() && pods.len() == wanted && all_run(pods) {
        Some("ready")
    } else {
        None
    };
    if let Some(state) = state
        && status.state.as_deref() != Some(state)
    {
        status.state = Some(state.to_owned());
        status.state_transition_times.insert(state.to_owned(), now);
    }
}

fn conditions(
    cluster: &RayCluster,
    pods: &[Arc<Pod>],
    head: Option<&Arc<Pod>>,
    failure: Option<&Failure>,
    now: Stamp,
    status: &mut ClusterStatus,
) {
    let before = suspension(&cluster.status);
    let list = &mut status.conditions;
    match failure {
        Some((reason, message)) => {
            // The message names a pod of a new name each time: a change of it alone would lead to the next attempt at once.
            let is_told = |known: &Condition| known.kind == "ReplicaFailure" && known.reason == *reason;
            if !list.iter().any(is_told) {
                Condition::new("ReplicaFailure", true, reason, message, now).set_in(list);
            }
        }
        None => list.retain(|condition| condition.kind != "ReplicaFailure"),
    }
    head_condition(head, now).set_in(list);
    let mut set = |kind: &str, holds: bool, reason: &str, message: &str| {
        Condition::new(kind, holds, reason, message, now).set_in(list);
    };
    let (provisioned, suspending, suspended) =
        ("RayClusterProvisioned", "RayClusterSuspending", "RayClusterSuspended");
    match before {
        Some("RayClusterSuspending") if pods.is_empty() => {
            set(provisioned, false, "RayClusterPodsProvisioning", "RayCluster has been suspended");
            set(suspending, false, suspending, "");
            set(suspended, true, suspended, "");
            return;
        }
        Some("RayClusterSuspending") => return,
        Some(_) => {
            // An explicit `suspend: false` is needed to resume the cluster.
            if cluster.spec.suspend == Some(false) {
                set(suspended, false, suspended, "");
            }
            return;
        }
        None => {}
    }
    let was_provisioned =
        condition(&cluster.status.conditions, provisioned).is_some_and(|c| c.status == "True");
    if all_run(pods) {
        set(provisioned, true, "AllPodRunningAndReadyFirstTime", "All Ray Pods are ready for the first time");
    } else if !was_provisioned {
        let message = "RayCluster Pods are being provisioned for first time";
        set(provisioned, false, "RayClusterPodsProvisioning", message);
    }
    set(suspended, false, suspended, "");
    set(suspending, cluster.spec.suspend == Some(true), suspending, "");
}

/// The condition `HeadPodReady`, with the reason and message of the head pod.
fn head_condition(head: Option<&Arc<Pod>>, now: Stamp) -> Condition {
    let of = |holds, reason: &str, message: &str| Condition::new("HeadPodReady", holds, reason, message, now);
    let Some(head) = head else { return of(false, "HeadPodNotFound", "Head Pod not found") };
    let Some(ready) = head.condition("Ready") else { return of(false, "Unknown", "") };
    if ready.status == "True" {
        return of(true, "HeadPodRunningAndReady", "");
    }
    let waiting =
        head.status.container_statuses.iter().filter(|container| !container.ready).find_map(|container| {
            let waiting = container.state.waiting.as_ref()?;
            Some((waiting.reason.clone(), format!("{}: {}", container.name, waiting.message)))
        });
    match waiting {
        Some((reason, message)) => of(false, &reason, &message),
        None if ready.reason.is_empty() => of(false, "Unknown", &ready.message),
        None => of(false, &ready.reason, &ready.message),
    }
}
