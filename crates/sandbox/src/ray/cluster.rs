//! Reconciles a RayCluster: Services and RBAC objects, then pods, then the status.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::containers::head_service;
use super::pods::{self, ReplicaHost};
use super::status::{self, Failure, Observed, is_head, suspension};
use super::types::{Group, RayCluster};
use super::{auth, redis, services, validate};
use crate::cluster::{Cluster, Delete, Error, Kind, Precondition, Queue, Recorder, Store, merge_patch};
use crate::pace::Pace;
use crate::wire::{Key, Pod};

/// The value of `managedBy` for this operator.
const OPERATOR: &str = "ray.io/kuberay-operator";
/// Polling interval for the Redis cleanup Job.
const CLEANUP_POLL: Duration = Duration::from_secs(2);

/// The RayCluster controller.
pub(crate) struct ClusterOperator {
    cluster: Cluster,
    clusters: Arc<Store<RayCluster>>,
    pods: Arc<Store<Pod>>,
    recorder: Recorder,
    pace: Pace,
    /// Uids of clusters whose Services and RBAC objects exist.
    with_dependents: Mutex<BTreeSet<String>>,
    pub(crate) queue: Queue<Key>,
}

/// One change to the pods of a cluster.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    CreateHead,
    CreateWorker {
        group: usize,
        host: ReplicaHost,
    },
    /// Several deletions share one event: the others have none.
    Delete {
        pod: Key,
        event: Option<(&'static str, String)>,
    },
}

impl ClusterOperator {
    pub(crate) fn new(
        cluster: Cluster,
        clusters: Arc<Store<RayCluster>>,
        pods: Arc<Store<Pod>>,
        recorder: &Recorder,
        pace: Pace,
    ) -> Self {
        let recorder = recorder.for_component("raycluster-controller");
        Self {
            cluster,
            clusters,
            pods,
            recorder,
            pace,
            with_dependents: Mutex::default(),
            queue: Queue::new(),
        }
    }

    /// Queues the cluster of a changed pod.
    pub(crate) fn pod_changed(&self, pod: &Pod) {
        if let Some(name) = pod.metadata.label("ray.io/cluster") {
            self.queue.add(Key::new(&*pod.metadata.namespace, name));
        }
    }

    pub(crate) async fn reconcile(&self, key: Key) -> Result<Option<Instant>, Error> {
        let Some(cluster) = self.clusters.get(&key) else { return Ok(None) };
        if cluster.metadata.is_deleting() {
            self.with_dependents.lock().unwrap_or_else(PoisonError::into_inner).remove(&cluster.metadata.uid);
            return self.clean_up_redis(&cluster).await;
        }
        if cluster.spec.managed_by.as_deref().is_some_and(|manager| manager != OPERATOR) {
            return Ok(None);
        }
        if let Err(problem) = validate::cluster(&cluster) {
            let message = format!("The RayCluster spec is invalid {key}: {problem}");
            self.recorder.warning(&*cluster, "InvalidRayClusterSpec", message);
            return Ok(None);
        }
        if redis::is_on(&cluster) && !cluster.metadata.finalizers.iter().any(|name| name == redis::FINALIZER)
        {
            let finalizers = [&*cluster.metadata.finalizers, &[redis::FINALIZER.to_owned()]].concat();
            let patch = json!({ "metadata": { "finalizers": finalizers } });
            self.cluster
                .patch(&self.clusters, &cluster.metadata, patch, Precondition::ResourceVersion)
                .await?;
        }
        self.create_dependents(&cluster).await?;
        let counted = self.cluster.limit(cluster.clone(), &self.recorder);
        let steps = decide(&counted, &self.pods_of(&key), |what| self.pace.draw((&key, what)));
        let failure = self.run_steps(&cluster, steps).await;
        self.report(&key, failure.as_ref().map(|(failure, _)| failure)).await?;
        failure.map_or(Ok(None), |(_, error)| Err(error))
    }

    fn pods_of(&self, key: &Key) -> Vec<Arc<Pod>> {
        self.pods.indexed(&format!("ray/{}/{}", key.namespace, key.name))
    }

    /// Creates the objects that a cluster needs besides its pods, even while it is suspended.
    async fn create_dependents(&self, cluster: &Arc<RayCluster>) -> Result<(), Error> {
        let uid = &cluster.metadata.uid;
        if self.with_dependents.lock().unwrap_or_else(PoisonError::into_inner).contains(uid) {
            return Ok(());
        }
        let namespace = &cluster.metadata.namespace;
        let ingress =
            services::ingress(cluster).map(|ingress| (Kind::INGRESS, Some("CreatedIngress"), ingress));
        let secret = auth::secret(cluster, self.pace).map(|secret| (Kind::SECRET, None, secret));
        let autoscaler_rbac = services::autoscaler_rbac(cluster).into_iter().chain(ingress).chain(secret);
        for (kind, reason, object) in autoscaler_rbac.chain(services::services(cluster)) {
            if self.cluster.create_if_absent(kind, namespace, &object).await?
                && let Some(reason) = reason
            {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let message = format!("Created {} {namespace}/{name}", event_kind(kind.name));
                self.recorder.normal(&**cluster, reason, message);
            }
        }
        self.with_dependents.lock().unwrap_or_else(PoisonError::into_inner).insert(uid.clone());
        Ok(())
    }

    /// Carries out the steps in order and stops at the first error.
    async fn run_steps(&self, cluster: &Arc<RayCluster>, steps: Vec<Step>) -> Option<(Failure, Error)> {
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
                Step::CreateWorker { group, host } => {
                    let pod = pods::worker(cluster, &cluster.spec.worker_group_specs[group], &host);
                    (
                        "Worker",
                        "FailedCreateWorkerPod",
                        self.create(cluster, "CreatedWorkerPod", "worker", &pod).await,
                    )
                }
                Step::Delete { pod, event } => {
                    let Some(held) = self.pods.get(&pod) else { continue };
                    let result = self.cluster.delete(&self.pods, &held.metadata, Delete::default()).await;
                    if let (Ok(()), Some((event, message))) = (&result, event) {
                        self.recorder.normal(&**cluster, event, message);
                    }
                    ("", "FailedDeleteWorkerPod", result)
                }
            };
            if let Err(error) = result {
                let (reason, what) = match role {
                    "" => ("FailedToDeletePod".to_owned(), "Failed deleting Pod".to_owned()),
                    _ => (
                        format!("FailedToCreate{role}Pod"),
                        format!("Failed to create {} Pod", role.to_ascii_lowercase()),
                    ),
                };
                let why = error.reason();
                self.recorder.warning(&**cluster, &reason, format!("{what} {namespace}/, {why}"));
                return Some(((failed, format!("{failed}\n{why}")), error));
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

    /// Deletes the pods of a deleted cluster, runs the Redis cleanup Job once the head is gone, then removes the
    /// finalizer.
    async fn clean_up_redis(&self, cluster: &Arc<RayCluster>) -> Result<Option<Instant>, Error> {
        let meta = &cluster.metadata;
        if !meta.finalizers.iter().any(|name| name == redis::FINALIZER) {
            return Ok(None);
        }
        let pods = self.pods_of(&meta.key());
        for pod in pods.iter().filter(|pod| !pod.metadata.is_deleting()) {
            self.cluster.delete(&self.pods, &pod.metadata, Delete::default()).await?;
        }
        if pods.iter().any(|pod| is_head(pod)) {
            return Ok(None);
        }
        let key = Key::new(&*meta.namespace, redis::cleanup_name(cluster));
        let later = Some(Instant::now() + self.pace.scaled(CLEANUP_POLL));
        let Some(job) = self.cluster.get(Kind::JOB, &key).await? else {
            self.cluster.create_uncached(Kind::JOB, &meta.namespace, &redis::cleanup(cluster)).await?;
            let message = format!("Created Redis cleanup Job {key}");
            self.recorder.normal(&**cluster, "CreatedRedisCleanupJob", message);
            return Ok(later);
        };
        let ends = ["Complete", "Failed"];
        let conditions = job["status"]["conditions"].as_array().into_iter().flatten();
        let mut ended = conditions.filter(|c| c["status"] == "True").filter_map(|c| c["type"].as_str());
        if !ended.any(|kind| ends.contains(&kind)) {
            return Ok(later);
        }
        let left: Vec<&String> = meta.finalizers.iter().filter(|name| *name != redis::FINALIZER).collect();
        let finalizers = if left.is_empty() { Value::Null } else { json!(left) };
        let patch = json!({ "metadata": { "finalizers": finalizers } });
        match self.cluster.patch(&self.clusters, meta, patch, Precondition::Uid).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(None),
        }
    }

    async fn report(&self, key: &Key, failure: Option<&Failure>) -> Result<(), Error> {
        // Read the cluster again: the watch may have delivered changes while pods were created.
        let Some(cluster) = self.clusters.get(key) else { return Ok(()) };
        let service = if services::is_headless(&cluster) {
            None
        } else {
            let key = Key::new(&*key.namespace, head_service(&cluster));
            self.cluster.get(Kind::SERVICE, &key).await?
        };
        let observed = Observed { pods: &self.pods_of(key), service: service.as_ref(), failure };
        let status = status::next(&cluster, &observed, self.cluster.stamp());
        if status == cluster.status {
            return Ok(());
        }
        let patch = merge_patch(&json!(cluster.status), &json!(status));
        self.cluster
            .patch_status(&self.clusters, &cluster.metadata, patch, Precondition::ResourceVersion)
            .await
            .map(drop)
    }
}

fn event_kind(kind: &str) -> &str {
    match kind {
        "ServiceAccount" => "service account",
        "RoleBinding" => "role binding",
        "Role" => "role",
        "Ingress" => "ingress",
        _ => "service",
    }
}

/// The next changes of the cluster's pods. `draw` returns random numbers for the names of multi-host replicas.
fn decide(cluster: &RayCluster, pods: &[Arc<Pod>], draw: impl Fn(&str) -> u64) -> Vec<Step> {
    let suspended = suspension(&cluster.status);
    if suspended == Some("RayClusterSuspending") {
        let alive = pods.iter().filter(|pod| !pod.metadata.is_deleting());
        let message = format!("Deleted Pods for RayCluster {} due to suspension", cluster.metadata.key());
        return remove_all(alive, "DeletedPod", message);
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
            if let Some(why) = replacement_reason(head) {
                // The next reconciliation creates a new head, with a new name.
                return vec![remove(head, "DeletedHeadPod", "head Pod", &why)];
            }
        }
        _ => {}
    }
    for (index, group) in cluster.spec.worker_group_specs.iter().enumerate() {
        let named =
            |pod: &&Arc<Pod>| !is_head(pod) && pod.metadata.label("ray.io/group") == Some(&group.group_name);
        let of_group: Vec<Arc<Pod>> = pods.iter().filter(named).cloned().collect();
        if group.hosts() > 1 {
            multi_host_group(cluster, index, group, &of_group, &draw, &mut steps);
        } else {
            single_host_group(cluster, index, group, &of_group, &mut steps);
        }
    }
    steps
}

fn remove(pod: &Pod, event: &'static str, what: &str, why: &str) -> Step {
    let pod = pod.metadata.key();
    let message = format!("Deleted {what} {pod}{why}");
    Step::Delete { pod, event: Some((event, message)) }
}

/// Deletes pods with a single event for all of them.
fn remove_all<'a>(
    pods: impl Iterator<Item = &'a Arc<Pod>>,
    event: &'static str,
    message: String,
) -> Vec<Step> {
    let mut event = Some((event, message));
    pods.map(|pod| Step::Delete { pod: pod.metadata.key(), event: event.take() }).collect()
}

/// The end of the event message if a Ray pod has to be replaced: it has finished, or its Ray container has terminated
/// and is not restarted.
fn replacement_reason(pod: &Pod) -> Option<String> {
    let ray = pod.spec.containers.first()?;
    let status = pod.status.container_statuses.iter().find(|status| status.name == ray.name);
    let end = status.and_then(|status| status.state.terminated.as_ref());
    let ended = end.is_some() && pod.spec.restart_policy == "Never";
    let exit = end.map_or_else(|| "<nil>".to_owned(), |end| format!("exit code {}", end.exit_code));
    (pod.is_finished() || ended).then(|| {
        let (phase, policy) = (&pod.status.phase, &pod.spec.restart_policy);
        format!(
            "; Pod status: {phase}; Pod restart policy: {policy}; Ray container terminated status: {exit}"
        )
    })
}

fn single_host_group(
    cluster: &RayCluster,
    index: usize,
    group: &Group,
    pods: &[Arc<Pod>],
    steps: &mut Vec<Step>,
) {
    let alive: Vec<&Arc<Pod>> = pods.iter().filter(|pod| !pod.metadata.is_deleting()).collect();
    if group.suspend == Some(true) {
        let (name, key) = (&group.group_name, cluster.metadata.key());
        let message = format!("Deleted all pods for suspended worker group {name} in RayCluster {key}");
        steps.extend(remove_all(alive.into_iter(), "DeletedWorkerPod", message));
        return;
    }
    let broken: Vec<Step> = alive
        .iter()
        .filter_map(|pod| Some(remove(pod, "DeletedWorkerPod", "worker Pod", &replacement_reason(pod)?)))
        .collect();
    if !broken.is_empty() {
        // The next reconciliation creates the replacements.
        steps.extend(broken);
        return;
    }
    let to_delete = &group.scale_strategy.workers_to_delete;
    let (unwanted, kept): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) =
        alive.into_iter().partition(|pod| to_delete.contains(&pod.metadata.name));
    steps.extend(unwanted.iter().map(|pod| remove(pod, "DeletedWorkerPod", "pod", "")));
    let wanted = usize::try_from(group.desired_replicas()).unwrap_or(0);
    if kept.len() < wanted {
        let taken: BTreeSet<&str> =
            kept.iter().filter_map(|pod| pod.metadata.label("ray.io/worker-group-replica-index")).collect();
        let free = (0i64..).filter(|replica| !taken.contains(&*replica.to_string()));
        steps.extend(free.take(wanted - kept.len()).map(|replica| Step::CreateWorker {
            group: index,
            host: ReplicaHost { replica, multi_host: None },
        }));
    } else if !cluster.spec.enable_in_tree_autoscaling {
        let surplus = kept.iter().take(kept.len() - wanted);
        steps.extend(surplus.map(|pod| remove(pod, "DeletedWorkerPod", "Pod", "")));
    }
}

/// Reconciles a group with several hosts for every replica. All pods of a replica are created and deleted together.
fn multi_host_group(
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
    let to_delete = &group.scale_strategy.workers_to_delete;
    let mut whole = Vec::new();
    for (name, members) in &replicas {
        let broken = members.len() < hosts
            || members.iter().any(|pod| {
                pod.metadata.is_deleting()
                    || replacement_reason(pod).is_some()
                    || to_delete.contains(&pod.metadata.name)
            });
        if broken || group.suspend == Some(true) {
            let alive = members.iter().filter(|pod| !pod.metadata.is_deleting());
            let why = format!(" for group {}: its replica is not whole", group.group_name);
            steps.extend(alive.map(|pod| remove(pod, "DeletedWorkerPod", "worker Pod", &why)));
        } else {
            whole.push((*name, members));
        }
    }
    let wanted = usize::try_from(group.desired_replicas()).unwrap_or(0);
    if whole.len() > wanted && !cluster.spec.enable_in_tree_autoscaling {
        for (_, members) in whole.iter().take(whole.len() - wanted) {
            let why = format!(" for group {}: the group has too many", group.group_name);
            steps.extend(members.iter().map(|pod| remove(pod, "DeletedWorkerPod", "worker Pod", &why)));
        }
    }
    let taken: BTreeSet<&str> =
        pods.iter().filter_map(|pod| pod.metadata.label("ray.io/worker-group-replica-index")).collect();
    let free = (0i64..).filter(|replica| !taken.contains(&*replica.to_string()));
    for replica in free.take(wanted.saturating_sub(whole.len())) {
        // Choose a name that no pod has: pods left from a broken replica must not count towards the new one.
        let name = (0..u32::MAX)
            .map(|attempt| pods::replica_name(&group.group_name, draw(&format!("{replica}/{attempt}"))))
            .find(|name| !replicas.contains_key(&**name))
            .expect("the number of names exceeds the number of replicas");
        steps.extend((0..group.hosts()).map(|host| Step::CreateWorker {
            group: index,
            host: ReplicaHost { replica, multi_host: Some((name.clone(), host)) },
        }));
    }
}

#[cfg(test)]
#[path = "cluster_tests.rs"]
mod tests;
