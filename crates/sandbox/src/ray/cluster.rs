//! Brings one RayCluster closer to its spec: services and rights, pods, then the status.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::pods::{self, Place};
use super::status::{self, Failure, is_head, suspension};
use super::types::{Group, RayCluster};
use super::{services, validate};
use crate::cluster::{Cluster, Delete, Error, Guard, Kind, Queue, Recorder, Store, difference};
use crate::pace::Pace;
use crate::wire::{Key, Pod};

/// The value of `managedBy` that means this operator.
const OPERATOR: &str = "ray.io/kuberay-operator";

/// The operator of `RayClusters`.
pub(crate) struct ClusterOperator {
    cluster: Cluster,
    clusters: Arc<Store<RayCluster>>,
    pods: Arc<Store<Pod>>,
    recorder: Recorder,
    pace: Pace,
    /// Clusters whose services and rights exist, by uid.
    furnished: Mutex<BTreeSet<String>>,
    pub(crate) queue: Queue<Key>,
}

/// One change to the pods of a cluster.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    CreateHead,
    CreateWorker { group: usize, place: Place },
    Delete { pod: Key, event: &'static str, why: String },
}

impl ClusterOperator {
    pub(crate) fn new(
        cluster: Cluster,
        clusters: Arc<Store<RayCluster>>,
        pods: Arc<Store<Pod>>,
        recorder: &Recorder,
        pace: Pace,
    ) -> Self {
        let recorder = recorder.of("raycluster-controller");
        Self { cluster, clusters, pods, recorder, pace, furnished: Mutex::default(), queue: Queue::new() }
    }

    /// A pod changed: so may its cluster.
    pub(crate) fn pod_changed(&self, pod: &Pod) {
        if let Some(name) = pod.metadata.label("ray.io/cluster") {
            self.queue.add(Key::new(&*pod.metadata.namespace, name));
        }
    }

    pub(crate) async fn reconcile(&self, key: Key) -> Result<Option<Instant>, Error> {
        let Some(cluster) = self.clusters.get(&key) else { return Ok(None) };
        if cluster.metadata.is_deleting() {
            self.furnished.lock().unwrap_or_else(PoisonError::into_inner).remove(&cluster.metadata.uid);
            return Ok(None);
        }
        if cluster.spec.managed_by.as_deref().is_some_and(|manager| manager != OPERATOR) {
            return Ok(None);
        }
        if let Err(problem) = validate::cluster(&cluster) {
            let message = format!("The RayCluster spec is invalid {key}: {problem}");
            self.recorder.warning(&*cluster, "InvalidRayClusterSpec", message);
            return Ok(None);
        }
        self.furnish(&cluster).await?;
        let steps = decide(&cluster, &self.pods_of(&key), |what| self.pace.draw((&key, what)));
        let failure = self.carry_out(&cluster, steps).await;
        self.report(&key, failure.as_ref().map(|(failure, _)| failure)).await?;
        failure.map_or(Ok(None), |(_, error)| Err(error))
    }

    fn pods_of(&self, key: &Key) -> Vec<Arc<Pod>> {
        self.pods.indexed(&format!("ray/{}/{}", key.namespace, key.name))
    }

    /// Makes what the cluster needs besides pods; also while it is suspended.
    async fn furnish(&self, cluster: &Arc<RayCluster>) -> Result<(), Error> {
        let uid = &cluster.metadata.uid;
        if self.furnished.lock().unwrap_or_else(PoisonError::into_inner).contains(uid) {
            return Ok(());
        }
        let namespace = &cluster.metadata.namespace;
        let all =
            services::services(cluster).into_iter().map(|service| (Kind::SERVICE, "CreatedService", service));
        for (kind, reason, object) in services::rights(cluster).into_iter().chain(all) {
            if self.cluster.ensure(kind, namespace, &object).await? {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let message = format!("Created {} {namespace}/{name}", words(kind.name));
                self.recorder.normal(&**cluster, reason, message);
            }
        }
        self.furnished.lock().unwrap_or_else(PoisonError::into_inner).insert(uid.clone());
        Ok(())
    }

    /// Takes the steps one by one; the first that fails ends the pass.
    async fn carry_out(&self, cluster: &Arc<RayCluster>, steps: Vec<Step>) -> Option<(Failure, Error)> {
        let namespace = &cluster.metadata.namespace;
        for step in steps {
            let (role, failed, result) = match step {
                Step::CreateHead => {
                    let pod = pods::head(cluster);
                    (
                        "Head",
                        "FailedCreateHeadPod",
                        self.create(cluster, "CreatedHeadPod", "head", &pod).await,
                    )
                }
                Step::CreateWorker { group, place } => {
                    let pod = pods::worker(cluster, &cluster.spec.worker_group_specs[group], &place);
                    (
                        "Worker",
                        "FailedCreateWorkerPod",
                        self.create(cluster, "CreatedWorkerPod", "worker", &pod).await,
                    )
                }
                Step::Delete { pod, event, why } => {
                    let Some(held) = self.pods.get(&pod) else { continue };
                    let result = self.cluster.delete(&self.pods, &held.metadata, Delete::default()).await;
                    if result.is_ok() {
                        self.recorder.normal(&**cluster, event, format!("Deleted Pod {pod}{why}"));
                    }
                    ("", "FailedDeleteWorkerPod", result)
                }
            };
            if let Err(error) = result {
                let reason = if role.is_empty() {
                    "FailedToDeletePod".to_owned()
                } else {
                    format!("FailedToCreate{role}Pod")
                };
                let message = format!("Failed in namespace {namespace}, {}", error.reason());
                self.recorder.warning(&**cluster, &reason, &*message);
                return Some(((failed, message), error));
            }
        }
        None
    }

    async fn create(
        &self,
        cluster: &Arc<RayCluster>,
        event: &str,
        role: &str,
        pod: &Value,
    ) -> Result<(), Error> {
        let created = self.cluster.create(&self.pods, &cluster.metadata.namespace, pod).await?;
        self.recorder.normal(&**cluster, event, format!("Created {role} Pod {}", created.metadata.key()));
        Ok(())
    }

    async fn report(&self, key: &Key, failure: Option<&Failure>) -> Result<(), Error> {
        // Events of the pods that were just made may have come in between: look again.
        let Some(cluster) = self.clusters.get(key) else { return Ok(()) };
        let status = status::next(&cluster, &self.pods_of(key), failure, self.cluster.stamp());
        if status == cluster.status {
            return Ok(());
        }
        let patch = difference(&json!(cluster.status), &json!(status));
        self.cluster.patch_status(&self.clusters, &cluster.metadata, patch, Guard::Version).await.map(drop)
    }
}

fn words(kind: &str) -> &str {
    match kind {
        "ServiceAccount" => "service account",
        "RoleBinding" => "role binding",
        "Role" => "role",
        _ => "service",
    }
}

/// What to do about the pods of a cluster. `draw` gives names to replicas of several hosts.
fn decide(cluster: &RayCluster, pods: &[Arc<Pod>], draw: impl Fn(&str) -> u64) -> Vec<Step> {
    let suspended = suspension(&cluster.status);
    if suspended == Some("RayClusterSuspending") {
        let alive = pods.iter().filter(|pod| !pod.metadata.is_deleting());
        return alive.map(|pod| remove(pod, "DeletedPod", ", the cluster is suspended")).collect();
    }
    if suspended.is_some() || cluster.spec.suspend == Some(true) {
        return Vec::new();
    }
    let mut steps = Vec::new();
    let heads: Vec<&Arc<Pod>> = pods.iter().filter(|pod| is_head(pod)).collect();
    match heads.as_slice() {
        [] => {
            let restart =
                cluster.metadata.annotation("ray.io/disable-provisioned-head-restart") != Some("true");
            let provisioned = crate::wire::condition(&cluster.status.conditions, "RayClusterProvisioned");
            if restart || provisioned.is_none_or(|condition| condition.status != "True") {
                steps.push(Step::CreateHead);
            }
        }
        [head] if !head.metadata.is_deleting() => {
            if let Some(why) = unhealthy(head) {
                // The next pass makes a new one, with a new name.
                return vec![remove(head, "DeletedHeadPod", &why)];
            }
        }
        _ => {}
    }
    for (index, group) in cluster.spec.worker_group_specs.iter().enumerate() {
        let named =
            |pod: &&Arc<Pod>| !is_head(pod) && pod.metadata.label("ray.io/group") == Some(&group.group_name);
        let of_group: Vec<Arc<Pod>> = pods.iter().filter(named).cloned().collect();
        if group.hosts() > 1 {
            several_hosts(cluster, index, group, &of_group, &draw, &mut steps);
        } else {
            single_hosts(cluster, index, group, &of_group, &mut steps);
        }
    }
    steps
}

fn remove(pod: &Pod, event: &'static str, why: &str) -> Step {
    Step::Delete { pod: pod.metadata.key(), event, why: why.to_owned() }
}

/// Why a Ray pod has to be replaced: it ended, or its Ray container did and will not be started again.
fn unhealthy(pod: &Pod) -> Option<String> {
    if pod.is_finished() {
        return Some(format!(", its phase is {}", pod.status.phase));
    }
    let ray = pod.spec.containers.first()?;
    let status = pod.status.container_statuses.iter().find(|status| status.name == ray.name)?;
    let ended = status.state.terminated.is_some() && pod.spec.restart_policy == "Never";
    ended.then(|| ", its Ray container has terminated".to_owned())
}

fn single_hosts(cluster: &RayCluster, index: usize, group: &Group, pods: &[Arc<Pod>], steps: &mut Vec<Step>) {
    let alive: Vec<&Arc<Pod>> = pods.iter().filter(|pod| !pod.metadata.is_deleting()).collect();
    if group.suspend == Some(true) {
        steps.extend(alive.iter().map(|pod| remove(pod, "DeletedWorkerPod", ", its group is suspended")));
        return;
    }
    let broken: Vec<Step> =
        alive.iter().filter_map(|pod| Some(remove(pod, "DeletedWorkerPod", &unhealthy(pod)?))).collect();
    if !broken.is_empty() {
        // Replacements are made in the pass after.
        steps.extend(broken);
        return;
    }
    let doomed = &group.scale_strategy.workers_to_delete;
    let (unwanted, kept): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) =
        alive.into_iter().partition(|pod| doomed.contains(&pod.metadata.name));
    steps.extend(unwanted.iter().map(|pod| remove(pod, "DeletedWorkerPod", ", as the autoscaler asked")));
    let wanted = usize::try_from(group.desired_replicas()).unwrap_or(0);
    if kept.len() < wanted {
        let taken: BTreeSet<&str> =
            kept.iter().filter_map(|pod| pod.metadata.label("ray.io/worker-group-replica-index")).collect();
        let free = (0i64..).filter(|replica| !taken.contains(&*replica.to_string()));
        steps.extend(
            free.take(wanted - kept.len())
                .map(|replica| Step::CreateWorker { group: index, place: Place { replica, host: None } }),
        );
    } else if !cluster.spec.enable_in_tree_autoscaling {
        let surplus = kept.iter().take(kept.len() - wanted);
        steps.extend(surplus.map(|pod| remove(pod, "DeletedWorkerPod", ", the group has too many")));
    }
}

/// Groups whose replicas are several pods: a replica is made, kept and deleted whole.
fn several_hosts(
    cluster: &RayCluster,
    index: usize,
    group: &Group,
    pods: &[Arc<Pod>],
    draw: impl Fn(&str) -> u64,
    steps: &mut Vec<Step>,
) {
    let mut replicas: BTreeMap<&str, Vec<&Arc<Pod>>> = BTreeMap::new();
    for pod in pods {
        let name = pod.metadata.label("ray.io/worker-group-replica-name").unwrap_or_default();
        replicas.entry(name).or_default().push(pod);
    }
    let hosts = usize::try_from(group.hosts()).unwrap_or(1);
    let doomed = &group.scale_strategy.workers_to_delete;
    let mut whole = Vec::new();
    for (name, members) in &replicas {
        let broken = members.len() < hosts
            || members.iter().any(|pod| {
                pod.metadata.is_deleting() || unhealthy(pod).is_some() || doomed.contains(&pod.metadata.name)
            });
        if broken || group.suspend == Some(true) {
            let alive = members.iter().filter(|pod| !pod.metadata.is_deleting());
            steps.extend(alive.map(|pod| remove(pod, "DeletedWorkerPod", ", its replica is not whole")));
        } else {
            whole.push((*name, members));
        }
    }
    let wanted = usize::try_from(group.desired_replicas()).unwrap_or(0);
    if whole.len() > wanted && !cluster.spec.enable_in_tree_autoscaling {
        for (_, members) in whole.iter().take(whole.len() - wanted) {
            steps.extend(
                members.iter().map(|pod| remove(pod, "DeletedWorkerPod", ", the group has too many")),
            );
        }
    }
    let taken: BTreeSet<&str> =
        pods.iter().filter_map(|pod| pod.metadata.label("ray.io/worker-group-replica-index")).collect();
    let free = (0i64..).filter(|replica| !taken.contains(&*replica.to_string()));
    for replica in free.take(wanted.saturating_sub(whole.len())) {
        // A name is never used twice: what is left of a broken replica must not count towards a new one.
        let name = (0..u32::MAX)
            .map(|attempt| pods::replica_name(&group.group_name, draw(&format!("{replica}/{attempt}"))))
            .find(|name| !replicas.contains_key(&**name))
            .expect("not all names are taken");
        steps.extend((0..group.hosts()).map(|host| Step::CreateWorker {
            group: index,
            place: Place { replica, host: Some((name.clone(), host)) },
        }));
    }
}

#[cfg(test)]
#[path = "cluster_tests.rs"]
mod tests;
